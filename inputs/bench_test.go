package inputs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

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

// TestAllocations checks that an entry costs one allocation, the string of its input.
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
		if per > 1.25 { // growing the set of seen origins costs a few thousand
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
