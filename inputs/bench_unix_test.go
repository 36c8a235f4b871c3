//go:build unix

package inputs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// Ten million lines, as a scan reads them, of real hosts: each host of the shared list occurs 29 times, with a label in
// front of it, so that all are distinct. Some of the lists have names in other scripts, whose A-labels must be
// computed. One has each host twice, and one is read with so little memory that most of the seen hosts are on disk. CPU
// is the time of all threads, so it is valid on a loaded machine, too.
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
			cpu := processorTime()
			for b.Loop() {
				if got := readList(b, nil, file.Name(), opt); got != want {
					b.Fatalf("%d entries", got)
				}
			}
			lines := float64(n) * float64(b.N)
			b.ReportMetric(lines/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(float64(processorTime()-cpu)/lines, "CPU-ns/line")
			b.ReportMetric(0, "ns/op")
		})
	}
	plain := func(w *bufio.Writer, _, label int, host string) { fmt.Fprintf(w, "w%d.%s\n", label, host) }
	// every writes a list in which one name of so many has an umlaut.
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
	run("urls", n, Options{}, func(w *bufio.Writer, _, label int, host string) {
		fmt.Fprintf(w, "https://w%d.%s/a?b\n",
			label, host)
	})
	run("csv", n, Options{}, func(w *bufio.Writer, i, label int, host string) {
		fmt.Fprintf(w, "%d,w%d.%s\r\n", i+1, label,
			host)
	})
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
	cpu := processorTime()
	for b.Loop() {
		if got := readList(b, nil, path, Options{LabelColumn: "label"}); got != n {
			b.Fatalf("%d entries", got)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(processorTime()-cpu)/float64(n)/float64(b.N), "CPU-ns/line")
}

// processorTime is what this process has used so far, user's and system's, on all threads; 0 where the system does not
// tell.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
