package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/warc"
)

// said is what the program logs at its end.
type said struct {
	Kept   int `json:"kept"`   // by scan
	Judged int `json:"judged"` // by reaudit
	Peak   int `json:"peak_memory_mb"`
}

// runProgram runs the built program and returns what it says and the processor time that it has used.
func runProgram(b *testing.B, program string, args ...string) (s said, cpu time.Duration) {
	b.Helper()
	c := exec.CommandContext(b.Context(), program, append(args, "--progress", "none", "--log-format", "json")...)
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Run(); err != nil {
		b.Fatalf("%v\n%s", err, &log)
	}
	for line := range bytes.Lines(log.Bytes()) {
		if err := json.Unmarshal(line, &s); err != nil {
			b.Fatal(err)
		}
	}
	return s, built.CPU(c.ProcessState)
}

// BenchmarkArchives has the built program judge archives of captures, in as many files, each written as Common Crawl
// publishes it. Of ten captures seven answer 200, one answers 404 and one redirects; one of a hundred answers 503.
//
//	make compare BENCH=Archives TIME=3x
func BenchmarkArchives(b *testing.B) {
	program, err := built.Command(b.Context(), b.TempDir(), built.Bulkscan)
	if err != nil {
		b.Fatal(err)
	}
	for _, files := range []int{1, 4} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			n := scaled(250_000) * files
			paths := archives(b, n, files, "typical12k", "modern-ai")
			var used time.Duration
			peak := 0
			for b.Loop() {
				s, cpu := runProgram(b, program, append([]string{"scan", "--format", "warc", "-o", b.TempDir()}, paths...)...)
				if s.Kept != n {
					b.Fatalf("%d captures of %d gave a row", s.Kept, n)
				}
				used, peak = used+cpu, max(peak, s.Peak)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "captures/s")
			reportCPU(b, used, n*b.N)
			b.ReportMetric(float64(peak), "peak-MB")
		})
	}
}

// BenchmarkReaudit has the built program judge stored files again, statistics included: by the registry of their scan,
// and by one with a new crawler, to which every rule for `*` applies, so that nearly all rows of sites differ.
//
//	make compare BENCH=Reaudit TIME=3x
func BenchmarkReaudit(b *testing.B) {
	program, err := built.Command(b.Context(), b.TempDir(), built.Bulkscan)
	if err != nil {
		b.Fatal(err)
	}
	stored, registry := b.TempDir(), filepath.Join(b.TempDir(), "tokens.txt")
	runProgram(b, program, append([]string{"scan", "--format", "warc", "-o", stored}, archives(b, scaled(500_000), 2,
		"typical12k")...)...)
	text := "version 1\nname | aliases | category | purpose | operator | * | fallback | source | checked\n" +
		"MyBot | | ai | training | Me | yes | | https://example.org | 2026-01-01\n"
	if err := os.WriteFile(registry, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	for name, flags := range map[string][]string{"same": nil, "other": {"--tokens", registry}} {
		b.Run("registry="+name, func(b *testing.B) {
			var used time.Duration
			judged, peak := 0, 0
			for b.Loop() {
				s, cpu := runProgram(b, program, append([]string{"reaudit", stored, "-o", b.TempDir()}, flags...)...)
				used, judged, peak = used+cpu, judged+s.Judged, max(peak, s.Peak)
			}
			if judged == 0 {
				b.Fatal("nothing was judged")
			}
			b.ReportMetric(float64(judged)/b.Elapsed().Seconds(), "sites/s")
			reportCPU(b, used, judged)
			b.ReportMetric(float64(peak), "peak-MB")
		})
	}
}

// archives writes captures into some files, whose bodies are those of some packs in turn.
func archives(b *testing.B, captures, files int, packs ...string) (paths []string) {
	b.Helper()
	var bodies [][]byte
	for _, pack := range packs {
		bodies = append(bodies, sharedtest.Bodies(b, pack)...)
	}
	w, dir := warc.NewWriter("bulkscan/bench"), b.TempDir()
	for n := range files {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%05d.warc.gz", n)))
		if err != nil {
			b.Fatal(err)
		}
		buffered := bufio.NewWriterSize(file, 1<<20)
		err = w.Begin(buffered, filepath.Base(file.Name()), captured)
		for i := n; i < captures && err == nil; i += files {
			x := capture(i, bodies[i%len(bodies)])
			err = w.Write(&x)
		}
		if err := errors.Join(err, buffered.Flush(), file.Close()); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, file.Name())
	}
	return paths
}

var captured = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// capture is the exchange with one site, with fields as a large crawler keeps them.
func capture(i int, body []byte) warc.Exchange {
	uri := fmt.Sprintf("https://www.site-%d.example.org/robots.txt", i)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
	switch {
	case i%100 == 99:
		head, body = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nRetry-After: 60\r\n",
			[]byte("<h1>Service Unavailable</h1>\n")
	case i%10 == 8:
		head, body = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n",
			[]byte("<html><title>404 Not Found</title><h1>Not Found</h1></html>\n")
	case i%10 == 9:
		uri = fmt.Sprintf("http://www.site-%d.example.org/robots.txt", i)
		head = fmt.Sprintf(
			"HTTP/1.1 301 Moved Permanently\r\nContent-Type: text/html\r\nLocation: https://www.site-%d.example.org/robots.txt\r\n", i-9)
		body = []byte("<html><title>301 Moved Permanently</title></html>\n")
	}
	head += fmt.Sprintf(
		"Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nServer: nginx/1.26.%d\r\nConnection: keep-alive\r\nVary: Accept-Encoding\r\n"+
			"ETag: W/\"%x\"\r\nX-Crawl-Content-Encoding: gzip\r\nContent-Length: %d\r\nStrict-Transport-Security: max-age=31536000\r\n\r\n",
		i%7, i*2654435761, len(body))
	host := strings.Split(uri, "/")[2]
	return warc.Exchange{
		URI: uri, Date: captured.Add(time.Duration(i) * time.Millisecond),
		IP: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), Protocols: []string{"http/1.1", "tls/1.3"},
		Request: []byte("GET /robots.txt HTTP/1.1\r\nHost: " + host +
			"\r\nUser-Agent: CCBot/2.0 (https://commoncrawl.org/faq/)\r\n" +
			"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: br,gzip\r\nConnection: Keep-Alive\r\n\r\n"),
		Response: append([]byte(head), body...), Payload: len(head),
		Metadata: fmt.Appendf(nil, "fetchTimeMs: %d\r\ncharset-detected: UTF-8\r\n", i%900),
	}
}
