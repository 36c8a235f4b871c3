package inputs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// bigList returns n distinct hosts, one a line by format.
func bigList(n int, format string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, format, i+1, uint32(i)*2654435761)
	}
	return b.Bytes()
}

// readList reads a list once and returns the number of entries.
func readList(tb testing.TB, content []byte, path string, opt Options) int {
	opt.Stdin, opt.Parquet = bytes.NewReader(content), openParquet
	r, err := Open(tb.Context(), []string{path}, opt)
	if err != nil {
		tb.Fatal(err)
	}
	defer closeReader(tb, r)
	for n := 0; ; n++ {
		if _, err := r.Next(); err == io.EOF {
			return n
		} else if err != nil {
			tb.Fatal(err)
		}
	}
}

// TestAllocations: an entry costs the string of its input and nothing else.
func TestAllocations(t *testing.T) {
	const n = 50_000
	for name, content := range map[string][]byte{
		"lines": bigList(n, "www.host-%d-%x.example\n"),
		"urls":  bigList(n, "https://www.host-%d-%x.example/a/b?c\n"),
		"csv":   bigList(n, "%d,host-%x.example,label\r\n"),
	} {
		path := listFile(t, name, content)
		per := testing.AllocsPerRun(1, func() {
			if got := readList(t, nil, path, Options{LabelColumn: map[string]string{"csv": "3"}[name]}); got != n {
				t.Fatalf("%s: %d entries", name, got)
			}
		}) / n
		if per > 1.25 { // the set of seen origins grows in a few thousand steps
			t.Errorf("%s: %.2f allocations an entry", name, per)
		}
	}
}

// With decompression, detection and duplicates, as a scan reads:
//
//	go test -run - -bench Read -benchtime 3x -cpu 1 ./inputs
func BenchmarkRead(b *testing.B) {
	const n = 1_000_000
	run := func(name string, path string, want int, opt Options) {
		b.Run(name, func(b *testing.B) {
			if info, err := os.Stat(path); err == nil {
				b.SetBytes(info.Size())
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := readList(b, nil, path, opt); got != want {
					b.Fatalf("%d entries", got)
				}
			}
			b.ReportMetric(float64(want)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
	tranco := bigList(n, "%d,host-%x.example\r\n")
	run("lines", listFile(b, "lines", bigList(n, "host-%d-%x.example\n")), n, Options{})
	run("urls", listFile(b, "urls", bigList(n, "https://host-%d-%x.example/a\n")), n, Options{})
	run("tranco", listFile(b, "tranco", tranco), n, Options{})
	run("tranco.zip", listFile(b, "tranco.zip", packed(b, "zip", string(tranco))), n, Options{})
	run("quoted", listFile(b, "quoted", bigList(n, "\"%d\",\"host-%x.example\"\n")), n, Options{})
	run("jsonl", listFile(b, "jsonl", bigList(n/10, "{\"rank\":%d,\"domain\":\"host-%x.example\"}\n")), n/10, Options{})
	run("real", sharedtest.Path(b, "lists", "merged-origins.csv.zst"), 353_933, Options{LabelColumn: "3"})
}

// Ten million lines, as a scan reads them, of real hosts: each of the shared list is there 29 times, with a label in front of it,
// so that all are distinct. Some of the lists have names in other scripts, the A-labels of which are to be found, one has each
// host twice, and one is read with so little memory that most of what was seen is on disk. CPU is that of all threads, so that
// it holds on a loaded machine too.
//
//	go test -run - -bench TenMillion -benchtime 1x ./inputs
func BenchmarkTenMillion(b *testing.B) {
	const n = 10_000_000
	var hosts []string
	r, err := Open(b.Context(), []string{sharedtest.Path(b, "lists", "merged-origins.csv.zst")}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer closeReader(b, r)
	entries, err := readAll(r)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if _, isAddress := e.Origin.Addr(); !isAddress && len(e.Origin.Host()) < 240 {
			hosts = append(hosts, e.Origin.Host())
		}
	}
	run := func(name string, want int, opt Options, line func(w *bufio.Writer, i int, label int, host string)) {
		b.Run(name, func(b *testing.B) {
			file, err := os.Create(filepath.Join(b.TempDir(), "list"))
			if err != nil {
				b.Fatal(err)
			}
			w := bufio.NewWriterSize(file, 1<<20)
			for i := range n {
				line(w, i, i/len(hosts), hosts[i%len(hosts)])
			}
			if err := errors.Join(w.Flush(), file.Close()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			cpu := facts.CPU()
			for b.Loop() {
				if got := readList(b, nil, file.Name(), opt); got != want {
					b.Fatalf("%d entries", got)
				}
			}
			lines := float64(n) * float64(b.N)
			b.ReportMetric(lines/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(float64(facts.CPU()-cpu)/lines, "CPU-ns/line")
			b.ReportMetric(0, "ns/op")
		})
	}
	plain := func(w *bufio.Writer, _, label int, host string) { fmt.Fprintf(w, "w%d.%s\n", label, host) }
	// every is a list of which each so manieth name has an umlaut.
	every := func(share int) func(w *bufio.Writer, i, label int, host string) {
		return func(w *bufio.Writer, i, label int, host string) {
			if i%share == 0 {
				fmt.Fprintf(w, "wä%d.%s\n", label, host)
				return
			}
			plain(w, i, label, host)
		}
	}
	run("lines", n, Options{}, plain)
	run("lines, 1 in 100 IDN", n, Options{}, every(100))
	run("lines, 1 in 10 IDN", n, Options{}, every(10))
	run("lines, each twice", n/2, Options{}, func(w *bufio.Writer, i, _ int, _ string) {
		i %= n / 2
		plain(w, i, i/len(hosts), hosts[i%len(hosts)])
	})
	run("lines, 64 MiB for duplicates", n, Options{DedupeMemory: 64 << 20}, plain)
	run("urls", n, Options{}, func(w *bufio.Writer, _, label int, host string) { fmt.Fprintf(w, "https://w%d.%s/a?b\n", label, host) })
	run("csv", n, Options{}, func(w *bufio.Writer, i, label int, host string) { fmt.Fprintf(w, "%d,w%d.%s\r\n", i+1, label, host) })
	run("jsonl", n, Options{}, func(w *bufio.Writer, i, label int, host string) {
		fmt.Fprintf(w, "{\"rank\":%d,\"domain\":\"w%d.%s\"}\n", i+1, label, host)
	})
}

// go test -run - -bench Parquet -benchtime 1x ./inputs
func BenchmarkParquet(b *testing.B) {
	const n = 1_000_000
	type row struct {
		Rank   int64  `parquet:"rank,delta"`
		Domain string `parquet:"domain,plain"`
		Label  string `parquet:"label,dict"`
	}
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{int64(i), fmt.Sprintf("www.host-%d-%x.example", i, uint32(i)*2654435761), []string{"news", "shop"}[i%2]}
	}
	path := listFile(b, "list.parquet", parquetOf(b, rows, parquet.Compression(&parquet.Zstd)))
	b.ReportAllocs()
	cpu := facts.CPU()
	for b.Loop() {
		if got := readList(b, nil, path, Options{LabelColumn: "label"}); got != n {
			b.Fatalf("%d entries", got)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(facts.CPU()-cpu)/float64(n)/float64(b.N), "CPU-ns/line")
}
