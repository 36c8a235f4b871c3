package sink

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// TestVerifyWhileCompacting verifies repeatedly while a dataset is compacted, and never finds damage.
func TestVerifyWhileCompacting(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, 40)); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			if lines, v := findings(t, dir); v.Damaged > 0 {
				t.Errorf("%s", strings.Join(lines, "\n"))
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	for parts := int64(2); parts <= 10; parts += 2 {
		mustCompact(t, dir, compact.Options{PartBytes: parts * commits[0].Bytes()})
	}
	close(over)
	wait.Wait()
}

// changing is a store that calls a function once, before a listing of a prefix or before an object is opened.
type changing struct {
	store.Store
	before string
	after  int // as many listings or openings of it
	do     func()

	mu       sync.Mutex // records are opened by several goroutines
	happened bool
}

func (c *changing) happens(name string) {
	if name != c.before {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after--; c.after < 0 && !c.happened {
		c.happened = true
		c.do()
	}
}

func (c *changing) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	c.happens(prefix)
	return c.Store.List(ctx, prefix)
}

func (c *changing) Open(ctx context.Context, name string) (store.Object, error) {
	c.happens(name)
	return c.Store.Open(ctx, name)
}

// TestVerifyWhileScanning shows that Verify finds no damage while scans begin, restart, commit and end in a sound
// dataset, at any point of its reading.
func TestVerifyWhileScanning(t *testing.T) {
	t.Parallel()
	options := Options{ScanID: "a", Date: "2026-11-21", ToolVersion: "test", PartRows: 3}
	restart := func(dir *store.Dir, date string, tables ...string) {
		o := options
		o.Restart, o.Date, o.Tables = true, date, tables
		scanWithStats(t, dir, o, typicalSites(t, 4)...)
	}
	for i, before := range []string{
		"sites/", "bodies/", "_rejects/", schema.ScansFolder, commit.CommitsFolder("a"),
		commit.FileRecordName("a", schema.TokenStats),
		commit.ManifestName("a"), commit.RecordName("a", "0", 0), commit.PartName(schema.Sites, "2026-11-21", "a", "0", 0),
		commit.PartName(schema.Sites, "2026-11-21", "a", "0", 1),
		commit.FileRecordName("a", schema.RecordStats), commit.StatsName(schema.TokenStats, "2026-11-21", "a"),
		commit.StatsName(schema.RecordStats, "2026-11-21", "a"), "token_stats/",
	} {
		if raceEnabled && i%3 > 0 || testing.Short() && i%6 > 0 {
			continue // a sample, in short mode and under the race detector, which makes each case ten times slower
		}
		for what, do := range map[string]func(dir *store.Dir){
			"a scan":                           func(dir *store.Dir) { writeSites(t, dir, "newcomer", typicalSites(t, 5)...) },
			"more of a scan that was complete": func(dir *store.Dir) { scanWithStats(t, dir, options, typicalSites(t, 9)...) },
			"statistics": func(dir *store.Dir) {
				writeStats(t, dir, "a", schema.TokenStats, schema.TokenStatsRow{Token: "*"})
			},
			"a restart":                func(dir *store.Dir) { restart(dir, options.Date) },
			"a restart on another day": func(dir *store.Dir) { restart(dir, "2026-11-22", schema.Sites, schema.Verdicts) },
		} {
			dir := newDir(t)
			scanWithStats(t, dir, options, typicalSites(t, 5)...)
			c := &changing{Store: dir, before: before, do: func() { do(dir) }}
			lines, v := findings(t, c)
			if v.Damaged > 0 || !c.happened {
				t.Errorf("%s, before %s: %q", what, before, lines)
			}
		}
	}
}

// TestVerifyDerivedWhileWritten shows the same of the files for readers, however often they are read.
func TestVerifyDerivedWhileWritten(t *testing.T) {
	for _, before := range []string{index.Name, views.Name, schema.PackageName, index.MonthsFolder} {
		for after := 0; ; after++ {
			dir := newDir(t)
			options := Options{ScanID: "a", Date: "2026-11-21", ToolVersion: "test"}
			scanWithStats(t, dir, options, typicalSites(t, 5)...)
			options.ScanID = "b"
			c := &changing{Store: dir, before: before, after: after,
				do: func() { scanWithStats(t, dir, options, typicalSites(t, 9)...) }}
			lines, v := findings(t, c)
			if v.Damaged > 0 {
				t.Errorf("a scan before time %d of %s: %q", after+1, before, lines)
			}
			if !c.happened {
				break
			}
		}
	}
}

// TestVerifyInterruptedRestart shows the same for an incomplete scan that is restarted on another day.
func TestVerifyInterruptedRestart(t *testing.T) {
	for _, before := range []string{commit.CommitsFolder("a"), commit.RecordName("a", "0", 0),
		commit.FileRecordName("a", schema.TokenStats)} {
		dir := newDir(t)
		options := Options{ScanID: "a", Date: "2026-11-21", ToolVersion: "test", PartRows: 3}
		w := mustOpen(t, dir, options)
		for _, s := range typicalSites(t, 5) {
			if err := w.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		options.Restart, options.Date = true, "2026-11-22"
		c := &changing{Store: dir, before: before, do: func() { scanWithStats(t, dir, options, typicalSites(t, 4)...) }}
		if lines, v := findings(t, c); v.Damaged > 0 || !c.happened {
			t.Errorf("before %s: %q", before, lines)
		}
	}
}
