package sink

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// BenchmarkCorpus keeps sites with real bodies, judged in advance, and reports the extrapolated size of a million
// sites.
//
//	go test ./sink -run '^$' -bench Corpus -benchtime 200000x -benchmem
func BenchmarkCorpus(b *testing.B) {
	bodies := sharedtest.Bodies(b, "typical12k")
	sites := make([]*audit.Site, len(bodies))
	for i, body := range bodies {
		s := typicalSite(b, uint64(i))
		s.SetOrigin(mustOrigin(b, fmt.Sprintf("host-%x.example%d.com", uint32(i)*2654435761, i%5000)))
		s.Fetch.Body = body
		audit.Judge(s)
		sites[i] = s
	}
	for _, tables := range [][]string{{schema.Sites}, {schema.Sites, schema.Verdicts}, schema.AllTables} {
		b.Run(fmt.Sprint(tables), func(b *testing.B) {
			before := heap()
			dir := newDir(b)
			w := mustOpen(b, dir, Options{ScanID: "corpus", Tables: tables})
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s := sites[i%len(sites)]
				s.Seq, s.Rank = uint64(i), int64(i)
				if err := w.Add(s); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sites/s")
			b.ReportMetric(heap()-before, "MB-kept")
			commits, err := commit.Commits(b.Context(), dir, "corpus")
			if err != nil {
				b.Fatal(err)
			}
			counts := commit.CountCommits(commits)
			b.ReportMetric(float64(counts.Bytes)/float64(b.N), "MB/million")
		})
	}
}

// heap is the memory in use after a collection, in megabytes.
func heap() float64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapInuse) / 1e6
}
