package sink

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

func newDir(tb testing.TB) *store.Dir {
	tb.Helper()
	dir, err := store.NewDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func mustOpen(tb testing.TB, st store.Store, o Options) *Writer {
	tb.Helper()
	w, err := Open(context.Background(), st, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := w.Abort(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// TestAddAllocatesNothing counts allocations for a site once a part's memory has grown.
func TestAddAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	const partRows = 4096
	w := mustOpen(t, newDir(t), Options{ScanID: "allocs", PartRows: partRows})
	site := typicalSite(t, 1)
	var seq uint64
	add := func() {
		seq++
		site.Seq, site.Report.BodyHash = seq, seq/3+1
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools of parquet-go
	for range 6 * partRows {                         // the part's memory grows
		add()
	}
	if n := testing.AllocsPerRun(partRows/2, add); n != 0 {
		t.Errorf("%v allocations a site, want none", n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4 * partRows {
		add()
	}
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	perSite := float64(after.Mallocs-before.Mallocs) / (4 * partRows)
	t.Logf("%.3f allocations a site, batches and sealing of parts of %d rows included", perSite, partRows)
	if perSite >= 1 {
		t.Errorf("%.3f allocations a site with all that is written, want well below 1", perSite)
	}
}

// go test ./sink -run '^$' -bench Add -benchtime 300000x -benchmem
func BenchmarkAdd(b *testing.B) {
	for _, bench := range []struct {
		name   string
		tables []string
	}{
		{"sites", []string{schema.Sites}},
		{"sites+verdicts", []string{schema.Sites, schema.Verdicts}},
		{"sites+verdicts+evidence", []string{schema.Sites, schema.Verdicts, schema.Evidence}},
		{"all", schema.AllTables},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := mustOpen(b, newDir(b), Options{ScanID: "bench", Tables: bench.tables})
			site := typicalSite(b, 0)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				site.Seq, site.Rank, site.Report.BodyHash = uint64(i), int64(i), uint64(i/3)+1
				if err := w.Add(site); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sites/s")
		})
	}
}
