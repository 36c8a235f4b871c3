package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// BenchmarkMerge adds the second night of so many sites to the ledger, from reading the scan to the new record.
//
//	make bench BENCH=Merge
func BenchmarkMerge(b *testing.B) {
	sizes := []int{1_000_000, 10_000_000}
	if testing.Short() {
		sizes = []int{20_000}
	}
	for _, sites := range sizes {
		b.Run(fmt.Sprintf("sites=%d", sites), func(b *testing.B) { benchmarkMerge(b, sites) })
	}
}

func benchmarkMerge(b *testing.B, sites int) {
	dir, err := store.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for n := range 2 {
		writeNight(b, dir, n, sites)
	}
	ctx := b.Context()
	h, err := commit.ReadHead(ctx, dir)
	if err != nil {
		b.Fatal(err)
	}
	if err := derive(ctx, dir, Options{}, h, &past{Pruned: &commit.Pruned{}, head: h}, &Ledger{Observer: bot},
		scansOf(b, dir, "n0"), ""); err != nil {
		b.Fatal(err)
	}
	first, err := store.ReadAll(ctx, dir, LedgerName, schema.MaxLedger)
	if err != nil {
		b.Fatal(err)
	}
	names, err := commit.Heads(ctx, dir)
	if err != nil {
		b.Fatal(err)
	}
	last := names[len(names)-1]
	head, err := store.ReadAll(ctx, dir, last, schema.MaxLedger)
	if err != nil {
		b.Fatal(err)
	}
	var done Merged
	var peak uint64
	for b.Loop() {
		b.StopTimer()
		names, err := commit.Heads(ctx, dir)
		for _, name := range names {
			err = errors.Join(err, dir.Delete(ctx, name))
		}
		if err := errors.Join(err, dir.Put(ctx, LedgerName, first), dir.Put(ctx, last, head)); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		stop := watchHeap(&peak)
		b.StartTimer()
		if _, err := Update(ctx, dir, Options{Progress: func(m Merged) { done = m }}); err != nil {
			b.Fatal(err)
		}
		stop()
	}
	l, err := ReadLedger(ctx, dir)
	if err != nil {
		b.Fatal(err)
	}
	var bytes int64
	for _, f := range l.Files {
		bytes += f.Bytes
	}
	b.ReportMetric(float64(sites)*float64(b.N)/b.Elapsed().Seconds(), "sites/s")
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
	b.ReportMetric(float64(bytes)/1e6, "ledger-MB")
	b.ReportMetric(float64(done.Causes[ByPolicy]), "changes")
}

// watchHeap raises peak to the highest heap in use until stop is called.
func watchHeap(peak *uint64) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*peak = max(*peak, m.HeapInuse+m.StackInuse)
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() { close(end); done.Wait() }
}

// writeNight writes a scan with 2,000 policies. On every night but the first, 0.3 % of the sites have another policy, 3
// % fail, and 1 % are not listed.
func writeNight(b *testing.B, st store.Store, n, sites int) {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	w, err := sink.Open(b.Context(), st, sink.Options{ScanID: fmt.Sprint("n", n), Date: fmt.Sprintf("2026-11-%02d", n+1),
		Observer: bot, Tables: []string{schema.Sites}})
	if err != nil {
		b.Fatal(err)
	}
	s := sitetest.Typical(b, 0)
	answer, report := s.Fetch, s.Report
	for i := range sites {
		unlike := func(perMille int) bool { return n > 0 && rng.IntN(1000) < perMille }
		if unlike(10) {
			continue
		}
		s.Seq, s.Fetch, s.Report = uint64(i), answer, report
		s.SetOrigin(sitetest.Origin(b, fmt.Sprintf("www.site-%d.example", i)))
		policy := i * 7919 % 2000
		if unlike(3) {
			policy++
		}
		s.Report.Policy.ID, s.Report.Unmanaged = uint64(policy)+1, 0
		s.Report.BodyHash, s.Report.License = uint64(policy)+1, fmt.Appendf(nil, "https://example.com/%d", policy)
		if unlike(30) {
			s.Fetch.Outcome, s.Fetch.Status = exchange.Timeout, 0
			s.Report = audit.Report{Access: parser.AccessFullDisallow, Finding: audit.FindingUnreachable}
		}
		if err := w.Add(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(b.Context()), w.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
}
