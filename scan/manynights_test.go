package scan

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// writeNights makes a dataset of so many published nights of three sites, up to 2026-10-31. All but the last are copies
// of it with other dates.
func writeNights(t testing.TB, st store.Store, nights int) {
	t.Helper()
	ctx := t.Context()
	const last = "2026-10-31"
	scanned(t, st, last)
	_, compacted := compact.Scan(ctx, st, "n"+last, compact.Options{}) // as Publish does, whose files the copies have
	end, err := time.Parse(time.DateOnly, last)
	if err := errors.Join(compacted, err); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for entry, err := range st.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(entry.Name, last) {
			if files[entry.Name], err = store.ReadAll(ctx, st, entry.Name, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ids []string
	for n := 1; n < nights; n++ {
		date := end.AddDate(0, 0, -n).Format(time.DateOnly)
		ids = append(ids, "n"+date)
		for name, data := range files {
			if strings.HasSuffix(name, ".json") {
				data = []byte(strings.ReplaceAll(string(data), last, date))
				at := strings.LastIndex(string(data), ",\n  \"sum\": \"")
				data = fmt.Appendf(data[:at:at], ",\n  \"sum\": %q\n}\n", schema.SumOf(append(data[:at:at], "\n}"...)))
			}
			if err := st.Put(ctx, strings.ReplaceAll(name, last, date), data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := commit.PublishPending(ctx, st, nil, ids); err != nil {
		t.Fatal(err)
	}
	if err := Publish(ctx, st, "n"+last, publishing); err != nil {
		t.Fatal(err)
	}
}

// scanned writes a complete scan, with its statistics.
func scanned(t testing.TB, st store.Store, date string) {
	t.Helper()
	id := "n" + date
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: id, Date: date, PartRows: 1})
	for i := range 3 {
		if err == nil {
			err = w.Add(site(t, uint64(i)))
		}
	}
	if err == nil {
		err = errors.Join(w.Flush(t.Context()), stats.Write(t.Context(), st, id, survey.Options{}), w.Complete(t.Context()),
			w.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEarlierNightsAreNotRead counts what a night reads of its dataset, from its first look to README and views: the
// same after 30 nights and after 120, except for the head's file of each earlier month, which the history reads.
func TestEarlierNightsAreNotRead(t *testing.T) {
	f := func(nights int) map[string]int {
		disk := newDisk(t)
		writeNights(t, disk, nights)
		for _, date := range []string{"2026-11-01", "2026-11-02"} { // with the first one the statistics of October are merged
			st := &counting{Store: disk, all: map[string]int{}}
			if err := CheckVersions(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			scanned(t, st, date)
			if err := Publish(t.Context(), st, "n"+date, publishing); err != nil {
				t.Fatal(err)
			}
			if date == "2026-11-02" {
				return st.all
			}
		}
		return nil
	}
	few, many := f(30), f(120)
	few["open _head/MONTH"] += 3 // months
	if !maps.Equal(few, many) {
		t.Errorf("after 30 nights %v; after 120 %v", few, many)
	}
}

// counting counts the reads of a store: opened objects, and lists. Names with numbers count as one.
type counting struct {
	store.Store
	mu  sync.Mutex
	all map[string]int
}

var numbers = regexp.MustCompile(`[0-9][-0-9]*`)

func (c *counting) count(what, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if commit.IsHead(name) && strings.Contains(name, "-") {
		name = "_head/MONTH"
	} else if strings.HasPrefix(name, history.Folder) {
		name = history.Folder
	}
	c.all[what+" "+numbers.ReplaceAllString(name, "N")]++
}

func (c *counting) Open(ctx context.Context, name string) (store.Object, error) {
	c.count("open", name)
	return c.Store.Open(ctx, name)
}

func (c *counting) Folders(ctx context.Context, folder string) iter.Seq2[string, error] {
	c.count("folders", folder)
	return c.Store.Folders(ctx, folder)
}

func (c *counting) List(ctx context.Context, prefix string) iter.Seq2[store.Entry, error] {
	c.count("list", prefix)
	return c.Store.List(ctx, prefix)
}

// BenchmarkNight writes and publishes one more night of three sites after so many, in a folder.
//
//	go test -run '^$' -bench Night -benchtime 5x -cpuprofile cpu.out ./scan
func BenchmarkNight(b *testing.B) {
	nights := []int{10, 365, 3650}
	if testing.Short() {
		nights = nights[:1]
	}
	for _, n := range nights {
		b.Run(fmt.Sprintf("nights=%d", n), func(b *testing.B) {
			st, err := store.NewDir(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			writeNights(b, st, n)
			night := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			publish := func() {
				date := night.Format(time.DateOnly)
				err := CheckVersions(b.Context(), st)
				scanned(b, st, date)
				if err := errors.Join(err, Publish(b.Context(), st, "n"+date, publishing)); err != nil {
					b.Fatal(err)
				}
				night = night.AddDate(0, 0, 1)
			}
			publish() // which merges the statistics of October
			for b.Loop() {
				publish()
			}
		})
	}
}
