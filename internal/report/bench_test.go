package report

import (
	"context"
	"fmt"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// benchScan writes a scan of so many sites with these bodies.
func benchScan(b *testing.B, sites int, body func(i int) []byte) store.Store {
	b.Helper()
	dir, err := store.NewDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	w, err := sink.Open(b.Context(), dir, sink.Options{ScanID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	s := &audit.Site{}
	for i := range sites {
		s.Reset()
		if s.Origin, err = origin.Parse(fmt.Sprintf("host%d.com", i)); err != nil {
			b.Fatal(err)
		}
		s.Seq, s.Rank, s.Input = uint64(i), int64(i)+1, s.Origin.Host()
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body(i)
		audit.Judge(s)
		if err := w.Add(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkReport reads a scan of 200,000 sites with real bodies, in four parts.
//
//	go test ./internal/report -run '^$' -bench Report -benchtime 1x -benchmem
func BenchmarkReport(b *testing.B) {
	const sites = 200_000
	bodies := sharedtest.Bodies(b, "typical12k")
	dir := benchScan(b, sites, func(i int) []byte { return bodies[i%len(bodies)] })
	perSite := func(b *testing.B) {
		b.ReportMetric(float64(b.N)*sites/b.Elapsed().Seconds(), "sites/s")
	}
	b.Run("stats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := Stats(b.Context(), dir, "bench", Options{}); err != nil {
				b.Fatal(err)
			}
		}
		perSite(b)
	})
	for _, d := range Definitions() {
		b.Run("summary/"+d.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Summarize(b.Context(), dir, "bench", SummaryOptions{Definition: d.Name, Selection: Selection{Category: "ai"}}); err != nil {
					b.Fatal(err)
				}
			}
			perSite(b)
		})
	}
}
