package bench

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// judgedSites makes sites that have answered with these files in turn, and judges them.
func judgedSites(tb testing.TB, bodies [][]byte, n int) []audit.Site {
	tb.Helper()
	sites := make([]audit.Site, n)
	for i := range sites {
		s := &sites[i]
		o, err := origin.Parse(fmt.Sprintf("www.host-%x.example", uint32(i)*2654435761))
		if err != nil {
			tb.Fatal(err)
		}
		s.Input, s.Origin, s.Domain, s.TLD = o.Host(), o, o.RegistrableDomain(), o.TLD()
		f := &s.Fetch
		f.Outcome, f.Status, f.Attempts, f.Proto, f.Body = exchange.Answered, 200, 1, "HTTP/1.1", bodies[i%len(bodies)]
		f.Answered = o.As(origin.HTTPS)
		f.Final = exchange.Target{Origin: f.Answered}
		f.FetchedAt = time.Date(2026, 11, 21, 4, 0, 0, i*500_000, time.UTC)
		audit.Judge(s)
	}
	return sites
}

// write keeps n sites, each of those given in turn, in one part of a dataset in a new folder.
func write(tb testing.TB, sites []audit.Site, n int, tables ...string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	w, err := sink.Open(context.Background(), st, sink.Options{ScanID: "bench", Tables: tables, PartRows: n})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		s := &sites[i%len(sites)]
		s.Seq, s.Rank = uint64(i), int64(i)+1
		if err := w.Add(s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// fileOf returns the path and the size of the one file of a table.
func fileOf(tb testing.TB, dir, table string) (path string, size int64) {
	tb.Helper()
	err := filepath.WalkDir(filepath.Join(dir, table), func(at string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(at) != ".parquet" {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			path, size = at, info.Size()
		}
		return err
	})
	if err != nil || path == "" {
		tb.Fatalf("no file of %s: %v", table, err)
	}
	return path, size
}

// readArrow reads a whole file with arrow-go.
func readArrow(tb testing.TB, path string) arrow.Table {
	tb.Helper()
	in, err := file.OpenParquetFile(path, false)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	reader, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		tb.Fatal(err)
	}
	rows, err := reader.ReadTable(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return rows
}

// TestArrowReads has arrow-go read every column of every table of a scan.
func TestArrowReads(t *testing.T) {
	sites := judgedSites(t, [][]byte{
		[]byte("User-agent: GPTBot\nDisallow: /\n\nSitemap: https://a.example/s.xml\n"),
		[]byte("User-agent: *\nDisallow: /a\nCrawl-delay: 1\n"), {},
	}, 300)
	want := map[string]int{schema.Sites: len(sites), schema.Bodies: 2} // an empty file has none
	for i := range sites {
		want[schema.Verdicts] += len(sites[i].Report.Verdicts)
		want[schema.Evidence] += len(sites[i].Report.Evidence)
	}
	dir := write(t, sites, len(sites), schema.AllTables...)
	for _, table := range schema.AllTables {
		path, _ := fileOf(t, dir, table)
		if got := readArrow(t, path); int(got.NumRows()) != want[table] || got.NumCols() < 2 {
			t.Errorf("%s: %d rows of %d columns, want %d rows", table, got.NumRows(), got.NumCols(), want[table])
		}
	}
}

// BenchmarkParquet writes a table of 100,000 sites with real files: bulkscan makes rows from judged sites first, and
// also hashes, syncs, renames and commits the file. arrow-go writes columns that are ready in memory, with zstd and
// otherwise its own settings.
//
//	make compare BENCH=Parquet TIME=3x COUNT=6
func BenchmarkParquet(b *testing.B) {
	sites, n := judgedSites(b, sharedtest.Bodies(b, "typical12k"), 4000), scaled(100_000)
	for _, table := range []string{schema.Sites, schema.Verdicts, schema.Evidence} {
		path, ours := fileOf(b, write(b, sites, n, table), table)
		rows := readArrow(b, path)
		// measure runs what writes the table once.
		measure := func(writer string, do func(b *testing.B) (size int64)) {
			b.Run("table="+table+"/by="+writer, func(b *testing.B) {
				b.ReportAllocs()
				size := int64(0)
				before := processorTime(b)
				for b.Loop() {
					size = do(b)
				}
				all := float64(rows.NumRows())
				b.ReportMetric(all*float64(b.N)/(processorTime(b)-before).Seconds(), "rows/cpu-s")
				b.ReportMetric(float64(size)/all, "file-B/row")
			})
		}
		measure("sink", func(b *testing.B) int64 {
			write(b, sites, n, table)
			return ours
		})
		props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd),
			parquet.WithMaxRowGroupLength(65536))
		measure("arrow", func(b *testing.B) int64 {
			out, err := os.Create(filepath.Join(b.TempDir(), table))
			if err != nil {
				b.Fatal(err)
			}
			if err := pqarrow.WriteTable(rows, out, 65536, props, pqarrow.DefaultWriterProps()); err != nil {
				// which closes the file
				b.Fatal(err)
			}
			info, err := os.Stat(out.Name())
			if err != nil {
				b.Fatal(err)
			}
			return info.Size()
		})
		rows.Release()
	}
}
