package sink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// smallDataset returns a complete scan with a file of every kind: three parts, statistics, a reject, views.sql. The
// scan is made once; the tests damage copies.
func smallDataset(t testing.TB) *store.Dir {
	t.Helper()
	smallFiles.Do(func() {
		dir := newDir(t)
		smallDatasetIn(t, dir)
		smallFiles.all = objects(t, dir)
	})
	if smallFiles.all == nil {
		t.Fatal("the scan could not be made: the first test that needs it says why")
	}
	dir := newDir(t)
	for name, data := range smallFiles.all {
		path := filepath.Join(dir.Root(), filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(data), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var smallFiles struct {
	sync.Once
	all map[string]string // contents by name
}

func smallDatasetIn(t testing.TB, dir store.Store) {
	t.Helper()
	ctx := context.Background()
	rejects, err := commit.OpenRejects(ctx, dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	if err := rejects.Add(commit.Reject{Input: "list", Line: 1, Text: "…", Reason: "no host"}); err != nil {
		t.Fatal(err)
	}
	if err := rejects.Close(ctx); err != nil {
		t.Fatal(err)
	}
	scanWithStats(t, dir, crashOptions, typicalSites(t, crashSites)...)
}

// completeListed completes a scan and lists it for readers, as publishing does.
func completeListed(ctx context.Context, w *Writer) error {
	return errors.Join(w.Complete(ctx), index.Update(ctx, w.store), views.Write(ctx, w.store, nil))
}

// scanWithStats scans like the command, which computes statistics before the scan is complete.
func scanWithStats(t testing.TB, st store.Store, o Options, sites ...*audit.Site) {
	t.Helper()
	w := mustOpen(t, st, o)
	for _, s := range sites {
		if w.Done(s.Seq) {
			continue
		}
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	writeStats(t, st, o.ScanID, schema.TokenStats, schema.TokenStatsRow{Token: "GPTBot", SegmentKind: "all"})
	writeStats(t, st, o.ScanID, schema.RecordStats, schema.RecordStatsRow{Kind: "typo", Key: "dissallow", Sites: 1,
		Lines: 1})
	if err := completeListed(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func writeStats[T any](t testing.TB, st store.Store, scanID, table string, rows ...T) {
	t.Helper()
	writeStatsOf(t, st, mustReadScan(t, st, scanID), table, rows...)
}

func writeStatsOf[T any](t testing.TB, st store.Store, scan *commit.Scan, table string, rows ...T) {
	t.Helper()
	w, err := statistics.Create[T](context.Background(), st, scan, commit.StatsName(table, scan.Manifest.ScanDate,
		scan.Manifest.ScanID), table, "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if err := w.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// findings verifies a dataset and returns every finding as its line.
func findings(t testing.TB, st store.Store) (lines []string, v *verify.Totals) {
	t.Helper()
	v, err := verify.Dataset(context.Background(), st,
		verify.Options{Report: func(f verify.Finding) { lines = append(lines, f.String()) }})
	if err != nil {
		t.Fatal(err)
	}
	return lines, v
}
