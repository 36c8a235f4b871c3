// Command archives answers one question: what does it cost to judge an archive of captures? It writes archives as Common
// Crawl publishes its robots.txt captures, from the real files of ../shared, has the built bulkscan judge them with two
// processors, and tells captures a second, processor time, and how much of it went into gunzip; and what it costs to judge
// stored bodies again, of a dataset of typical files.
//
// From the project's root:
//
//	go run ./bench/cmd/archives                          # a million captures, three million records
//	go run ./bench/cmd/archives -o FILE                  # keeps the report
//	go run ./bench/cmd/archives -captures 50000 -runs 1  # a smaller one
//
// Of ten captures seven answer 200, one 404, one redirects to a capture that is there, and one in a hundred answers 503.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/warc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "archives: %v\n", err)
		os.Exit(1)
	}
}

// The marks. leastRate is captures a second with two processors, judging and keeping included. leastPerCore is the same of one
// processor's second: texting_robots is said to take less than 30 minutes for 34 million captures on a laptop, which counts here
// as if it had used one processor of it.
const (
	leastRate    = 25_000
	leastPerCore = 34e6 / (30 * 60)
)

var errMissed = errors.New("bulkscan is slower than a mark: see above")

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	f := flag.NewFlagSet("archives", flag.ContinueOnError)
	out := f.String("o", "", "also write the report to `FILE`")
	captures := f.Int("captures", 1_000_000, "how many")
	files := f.Int("files", 4, "in how many archives")
	runs := f.Int("runs", 3, "scans of all; the best counts, as others only take away from it")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *captures < 1 || *files < 1 || *runs < 1 || f.NArg() > 0 {
		return errors.New("captures, files and runs are at least 1, and there are no arguments")
	}
	dir, err := os.MkdirTemp("", "archives-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "bulkscan")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/bulkscan").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build bulkscan: %w\n%s", err, text)
	}
	paths, size, err := write(dir, *captures, *files, "typical12k", "modern-ai")
	if err != nil {
		return err
	}
	var report bytes.Buffer
	fmt.Fprintf(&report, "# Archives: %d captures, %d records in %d files, %d MB\n\n", *captures, 3**captures+*files, *files, size>>20)
	fmt.Fprintf(&report, "%s, %d of its processors, kernel %s, %s, source %s, load %s.\n\n", facts.Processor(), processors, facts.Kernel(), runtime.Version(), facts.Commit(), facts.Load())
	fmt.Fprintf(&report, "| scan | captures | captures/s | wall | CPU | CPU a capture | captures per CPU second | peak memory |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	// row has so many captures judged, and returns how many it were a second, and a second of a processor.
	row := func(name string, captures int, paths ...string) (rate, perCore float64, err error) {
		s, err := scan(ctx, program, dir, paths)
		if err != nil {
			return 0, 0, err
		}
		if s.Kept != captures {
			return 0, 0, fmt.Errorf("%d captures of %d gave a row", s.Kept, captures)
		}
		kept := float64(s.Kept)
		rate, perCore = kept/s.wall.Seconds(), kept/s.cpu.Seconds()
		fmt.Fprintf(&report, "| %s | %d | %s | %.1f s | %.1f s | %.1f µs | %s | %d MB |\n",
			name, captures, facts.Digits(rate), s.wall.Seconds(), s.cpu.Seconds(), 1e6/perCore, facts.Digits(perCore), s.Peak)
		return rate, perCore, nil
	}
	var best, bestPerCore float64
	for i := range *runs {
		rate, perCore, err := row(fmt.Sprintf("all, %d", i+1), *captures, paths...)
		if err != nil {
			return err
		}
		best, bestPerCore = max(best, rate), max(bestPerCore, perCore)
	}
	// One file is read by one goroutine; what others do with it must keep the second processor busy. Its redirects lead to other
	// files, and so nowhere.
	if _, _, err := row("one file", (*captures+*files-1) / *files, paths[0]); err != nil {
		return err
	}
	shares, err := profile(ctx, program, dir, paths)
	if err != nil {
		return err
	}
	fmt.Fprintf(&report, "\nOf one more scan's processor time: %s.\n", shares)
	reached := best >= leastRate && bestPerCore >= leastPerCore
	mark := func(name string, best, least float64) {
		fmt.Fprintf(&report, "- %s: %s in the best scan; the mark, %s, is %s.\n", name, facts.Digits(best), facts.Digits(least), verdict(best >= least))
	}
	report.WriteString("\n")
	mark("Captures a second", best, leastRate)
	mark("Captures a second of one processor", bestPerCore, leastPerCore)
	again, err := reaudits(ctx, program, dir, *captures, &report)
	if err != nil {
		return err
	}
	if _, err := stdout.Write(report.Bytes()); err != nil {
		return err
	}
	if *out != "" {
		if err := os.WriteFile(*out, report.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if !reached || again < leastAgain {
		return errMissed
	}
	return nil
}

func verdict(reached bool) string {
	if reached {
		return "reached"
	}
	return "missed"
}

// leastAgain is the mark of judging stored bodies again: so many a second of processor time, where nothing has changed since.
const leastAgain = 100_000

// registry has a crawler that the scan did not know, and that every site's rules for * are for: nearly all rows of sites change.
const registry = `version 1
name   | aliases | category | purpose  | operator | *   | fallback | source              | checked
MyBot  |         | ai       | training | Me       | yes |          | https://example.org | 2026-01-01
`

// reaudits makes a dataset of typical files, judges it again, by the same registry and by another, and reports both. It returns
// how many bodies a second of processor time the first one judged.
func reaudits(ctx context.Context, program, dir string, captures int, report io.Writer) (rate float64, err error) {
	typical := filepath.Join(dir, "typical")
	if err := os.Mkdir(typical, 0o700); err != nil {
		return 0, err
	}
	paths, _, err := write(typical, captures, processors, "typical12k")
	if err != nil {
		return 0, err
	}
	stored, tokens := filepath.Join(dir, "stored"), filepath.Join(dir, "tokens.txt")
	if err := os.WriteFile(tokens, []byte(registry), 0o600); err != nil {
		return 0, err
	}
	if _, err := measure(ctx, program, append([]string{"scan", "--format", "warc", "-o", stored}, paths...)...); err != nil {
		return 0, err
	}
	fmt.Fprintf(report, "\n| judged again | sites/s | wall | CPU | bodies per CPU second | peak memory |\n|---|---|---|---|---|---|\n")
	for _, r := range []struct {
		name  string
		flags []string
	}{{"nothing has changed", nil}, {"another registry", []string{"--tokens", tokens}}} {
		out := filepath.Join(dir, "again")
		s, err := measure(ctx, program, append([]string{"reaudit", stored, "-o", out, "--json"}, r.flags...)...)
		if err := errors.Join(err, os.RemoveAll(out)); err != nil {
			return 0, err
		}
		var all []struct {
			Came struct {
				Bodies float64 `json:"bodies"`
			} `json:"came"`
		}
		if err := json.Unmarshal(s.stdout, &all); err != nil || len(all) != 1 {
			return 0, fmt.Errorf("cannot read what reaudit says: %w\n%s", err, s.stdout)
		}
		bodies := all[0].Came.Bodies / s.cpu.Seconds()
		if r.flags == nil {
			rate = bodies
		}
		fmt.Fprintf(report, "| %s | %s | %.1f s | %.1f s | %s | %d MB |\n", r.name, facts.Digits(float64(s.Judged)/s.wall.Seconds()), s.wall.Seconds(), s.cpu.Seconds(), facts.Digits(bodies), s.Peak)
	}
	fmt.Fprintf(report, "\nStatistics are in all of these figures. The mark, %d bodies a second of a processor where nothing has changed, is %s.\n", leastAgain, verdict(rate >= leastAgain))
	return rate, nil
}

// processors is how many a scan may use.
const processors = 2

// write writes archives whose bodies are those of some packs.
func write(dir string, captures, files int, packs ...string) (paths []string, size int64, err error) {
	var bodies [][]byte
	for _, pack := range packs {
		if err := sharedtest.Try(func(tb testing.TB) { bodies = append(bodies, sharedtest.Bodies(tb, pack)...) }); err != nil {
			return nil, 0, err
		}
	}
	w := warc.NewWriter("bench/cmd/archives")
	for n := range files {
		path := filepath.Join(dir, fmt.Sprintf("%05d.warc.gz", n))
		file, err := os.Create(path)
		if err != nil {
			return nil, 0, err
		}
		buffered := bufio.NewWriterSize(file, 1<<20)
		err = w.Begin(buffered, filepath.Base(path), at)
		for i := n; i < captures && err == nil; i += files {
			x := capture(i, bodies[i%len(bodies)])
			err = w.Write(&x)
		}
		size += w.Size()
		if err = errors.Join(err, buffered.Flush(), file.Close()); err != nil {
			return nil, 0, err
		}
		paths = append(paths, path)
	}
	return paths, size, nil
}

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// capture is the exchange with one site.
func capture(i int, body []byte) warc.Exchange {
	uri := fmt.Sprintf("https://www.site-%d.example.org/robots.txt", i)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
	switch {
	case i%100 == 99:
		head, body = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nRetry-After: 60\r\n", []byte("<h1>Service Unavailable</h1>\n")
	case i%10 == 8:
		head, body = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n", []byte("<html><title>404 Not Found</title><h1>Not Found</h1></html>\n")
	case i%10 == 9: // as most redirects are: from one scheme to the other, or to another host
		uri = fmt.Sprintf("http://www.site-%d.example.org/robots.txt", i)
		head = fmt.Sprintf("HTTP/1.1 301 Moved Permanently\r\nContent-Type: text/html\r\nLocation: https://www.site-%d.example.org/robots.txt\r\n", i-9)
		body = []byte("<html><title>301 Moved Permanently</title></html>\n")
	}
	head += fmt.Sprintf("Date: Sat, 21 Nov 2026 12:00:00 GMT\r\nServer: nginx/1.26.%d\r\nConnection: keep-alive\r\nVary: Accept-Encoding\r\nLast-Modified: Mon, 04 Mar 2024 0%d:17:31 GMT\r\n"+
		"ETag: W/\"%x\"\r\nX-Crawl-Content-Encoding: gzip\r\nX-Crawl-Content-Length: %d\r\nContent-Length: %d\r\nStrict-Transport-Security: max-age=31536000\r\n\r\n",
		i%7, i%10, i*2654435761, len(body)/3, len(body))
	host := strings.Split(uri, "/")[2]
	return warc.Exchange{
		URI: uri, Date: at.Add(time.Duration(i) * time.Millisecond), IP: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), Protocols: []string{"http/1.1", "tls/1.3"},
		Request: []byte("GET /robots.txt HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: CCBot/2.0 (https://commoncrawl.org/faq/)\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
			"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: br,gzip\r\nConnection: Keep-Alive\r\n\r\n"),
		Response: append([]byte(head), body...), Payload: len(head),
		Metadata: fmt.Appendf(nil, "fetchTimeMs: %d\r\ncharset-detected: UTF-8\r\nlanguages-cld2: {\"reliable\":true,\"text-bytes\":%d}\r\n", i%900, len(body)),
	}
}

// measured is what a run told and used.
type measured struct {
	Msg    string `json:"msg"`
	Kept   int    `json:"kept"`
	Judged int    `json:"judged"` // of reaudit
	Peak   int    `json:"peak_memory_mb"`

	stdout    []byte
	wall, cpu time.Duration
}

// scan has the archives judged, in a process of its own.
func scan(ctx context.Context, program, dir string, paths []string, flags ...string) (s measured, err error) {
	out := filepath.Join(dir, "out")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	return measure(ctx, program, append(append([]string{"scan", "--format", "warc", "-o", out}, flags...), paths...)...)
}

// measure runs the program.
func measure(ctx context.Context, program string, args ...string) (s measured, err error) {
	args = append([]string{args[0], "--progress", "none", "--log-format", "json"}, args[1:]...)
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", processors))
	var stdout, log bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &log
	began := time.Now()
	err = c.Run()
	s.wall = time.Since(began)
	if err != nil {
		return s, fmt.Errorf("bulkscan %s failed: %w\n%s", args[0], err, log.Bytes())
	}
	s.stdout = stdout.Bytes()
	s.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	for line := range bytes.Lines(log.Bytes()) {
		if err := json.Unmarshal(line, &s); err != nil {
			return s, fmt.Errorf("cannot read the log: %w", err)
		}
	}
	if s.Msg != "done" {
		return s, fmt.Errorf("bulkscan %s did not say that it was done\n%s", args[0], log.Bytes())
	}
	return s, nil
}

// parts of the processor's time, by the functions that are on the stack.
var parts = []struct{ name, focus string }{
	{"gunzip", `compress/(gzip|flate)`},
	{"going from record to record, without gunzip", `internal/warc\.\(\*Reader\)`},
	{"reading answers (HTTP)", `fetcher\.\(\*Fetcher\)\.Replay`},
	{"judging", `pipeline\.\(\*run\)\.judgeRecalled`},
	{"keeping", `pipeline\.\(\*run\)\.keep|sink\.`},
	{"hashing the archives, to name the scan", `inputs\.Fingerprints`},
}

// accounting is how pprof says the share of what it shows.
var accounting = regexp.MustCompile(`Showing nodes accounting for [^,]+, ([0-9.]+)% of`)

// profile tells the parts of a scan's processor time.
func profile(ctx context.Context, program, dir string, paths []string) (string, error) {
	path := filepath.Join(dir, "cpu.prof")
	if _, err := scan(ctx, program, dir, paths, "--cpuprofile", path); err != nil {
		return "", err
	}
	var texts []string
	for i, part := range parts {
		args := []string{"tool", "pprof", "-top", "-nodefraction", "0", "-nodecount", "1000000", "-focus", part.focus}
		if i > 0 {
			args = append(args, "-ignore", parts[0].focus)
		}
		text, err := exec.CommandContext(ctx, "go", append(args, program, path)...).Output()
		if err != nil {
			return "", fmt.Errorf("cannot read the profile: %w", err)
		}
		share := accounting.FindSubmatch(text)
		if share == nil {
			return "", fmt.Errorf("cannot read what pprof says:\n%s", text)
		}
		texts = append(texts, fmt.Sprintf("%s %% %s", share[1], part.name))
	}
	return strings.Join(texts, ", "), nil
}
