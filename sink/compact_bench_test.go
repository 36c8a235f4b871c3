package sink

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// The parts of BenchmarkCompact: ten million sites as a scan writes them.
const (
	benchParts    = 200
	benchPartRows = 50_000
)

// manyParts writes one part of benchPartRows sites, and copies of it under the names of all others, each with a commit
// for its own seq.
func manyParts(b *testing.B, folder string, tables ...string) *store.Dir {
	b.Helper()
	ctx := context.Background()
	dir, err := store.NewDir(folder)
	if err != nil {
		b.Fatal(err)
	}
	o := Options{ScanID: "many", Date: "2026-11-21", Tables: tables, PartRows: benchPartRows}
	w := mustOpen(b, dir, o)
	site := typicalSite(b, 0)
	for seq := range uint64(benchPartRows) {
		site.Seq, site.Rank, site.Report.BodyHash = seq, int64(seq)+1, seq*0x9e3779b97f4a7c15|1
		host := fmt.Sprintf("site-%x.example.com", seq*2654435761)
		site.SetOrigin(mustOrigin(b, host))
		site.Input, site.Fetch.Answered = host, site.Origin
		if err := w.Add(site); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		b.Fatal(err)
	}
	commits, err := commit.Commits(ctx, dir, o.ScanID)
	if err != nil || len(commits) != 1 {
		b.Fatal(len(commits), err)
	}
	first := commits[0]
	for n := 1; n < benchParts; n++ {
		c := first
		c.N, c.Files = n, nil
		for _, f := range first.Files {
			name := commit.PartName(f.Table, o.Date, o.ScanID, c.Shard, n)
			copyFile(b, filepath.Join(folder, f.Name), filepath.Join(folder, name))
			f.Name = name
			c.Files = append(c.Files, f)
		}
		finished := roaring64.New()
		finished.AddRange(uint64(n)*benchPartRows, uint64(n+1)*benchPartRows)
		if c.Finished, err = finished.ToBytes(); err != nil {
			b.Fatal(err)
		}
		if err := c.Write(ctx, dir); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func copyFile(b *testing.B, from, to string) {
	b.Helper()
	in, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		b.Fatal(err)
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCompact merges ten million sites in 200 parts. BULKSCAN_BENCH_KEEP names a folder for the dataset, which is
// kept.
//
//	go test ./sink -run '^$' -bench Compact -benchtime 1x
func BenchmarkCompact(b *testing.B) {
	for _, bench := range []struct {
		name   string
		tables []string
	}{
		{"sites", []string{schema.Sites}},
		{"sites+verdicts", []string{schema.Sites, schema.Verdicts}},
		{"all", schema.AllTables},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var rows, bytes int64
			for range b.N {
				b.StopTimer()
				folder := b.TempDir()
				if keep := os.Getenv("BULKSCAN_BENCH_KEEP"); keep != "" {
					folder = filepath.Join(keep, bench.name)
				}
				dir := manyParts(b, folder, bench.tables...)
				b.StartTimer()
				done, err := compact.Scan(context.Background(), dir, "many", compact.Options{})
				if err != nil {
					b.Fatal(err)
				}
				rows, bytes = done.Rows, done.Bytes
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(bytes)/1e6, "MB")
		})
	}
}
