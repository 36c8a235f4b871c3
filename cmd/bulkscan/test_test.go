package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
)

// writeRobots puts a robots.txt into a folder of its own.
func writeRobots(t testing.TB, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "robots.txt")
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const privateOnly = "User-agent: *\nDisallow: /private/\n"

func TestTestManyURLs(t *testing.T) {
	var urls strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&urls, "https://example.com/%s/%d\n", [...]string{"private", "public"}[i%2], i)
	}
	for _, form := range []string{"--json=false", "--json"} {
		var stdout, stderr bytes.Buffer
		code := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a,b", form},
			strings.NewReader(urls.String()), &stdout, &stderr)
		if n := bytes.Count(stdout.Bytes(), []byte("\n")); code != exitThreshold || n != 40_000 {
			t.Errorf("%s: exit code %d, %d rows; want %d, 40000", form, code, n, exitThreshold)
		}
		if want := "bulkscan: 20000 of 40000 disallowed\n"; stderr.String() != want {
			t.Errorf("%s: stderr %q, want %q", form, stderr.String(), want)
		}
	}
}

// A line that is too long is reported by its number and costs no more memory than another; those around it are judged.
func TestTestLongLines(t *testing.T) {
	f := func(in, rows, told string, code int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a", "--json"}, strings.NewReader(in),
			&stdout, &stderr)
		var lines []string
		for d := json.NewDecoder(&stdout); ; {
			var row struct{ URL string }
			if d.Decode(&row) != nil {
				break
			}
			lines = append(lines, row.URL[:min(len(row.URL), 3)])
		}
		if got != code || strings.Join(lines, " ") != rows || !strings.Contains(stderr.String(), told) {
			t.Errorf("of %d bytes: exit code %d, rows %q, stderr %.300q; want %d, %q, %q", len(in), got, lines, stderr.String(),
				code, rows, told)
		}
	}
	long := "/" + strings.Repeat("x", maxURL)
	f("/a\n"+long[:maxURL-1]+"\n/b\n", "/a /xx /b", "", 0)
	f("/a\n"+long+"\n/b\n", "/a /b", "line 2: skipped: longer than 65536 bytes", exitFailed)
	f("/a\n"+strings.Repeat(long, 10)+"\n/b", "/a /b", "1 of 3 lines", exitFailed)
	f("/a\n"+long, "/a", "1 of 2 lines", exitFailed)
	f(long+"\n"+long+"\n", "", "2 of 2 lines", exitFailed)
	// Only the first few lines are reported; their number follows at the end.
	f(strings.Repeat("x\n", 1000)+"/a\n", "/a", "line 5: skipped", exitFailed)
	f(strings.Repeat("x\n", 1000)+"/a\n", "/a", "1000 of 1001 lines", exitFailed)
	var stderr bytes.Buffer
	run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"},
		strings.NewReader(strings.Repeat("x\n", 1000)), io.Discard, &stderr)
	if n := strings.Count(stderr.String(), "skipped"); n != maxShownBad {
		t.Errorf("told of %d lines, want %d", n, maxShownBad)
	}
}

// brokenWriter takes some bytes, then fails.
type brokenWriter struct {
	left int
	err  error
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, w.err
	}
	w.left -= len(p)
	return len(p), nil
}

// endless is a list of URLs without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	const urls = "/private/x\n"
	return copy(p, strings.Repeat(urls, max(1, len(p)/len(urls)))), nil
}

// The reader of the rows may leave: that ends the run, and is no failure. A full disk is a failure.
func TestTestOutputBreaks(t *testing.T) {
	args := []string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}
	var stderr bytes.Buffer
	gone := &brokenWriter{left: 1 << 18, err: &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}}
	if code := run(args, endless{}, gone, &stderr); code != exitThreshold || stderr.Len() > 0 {
		t.Errorf("the reader left: exit code %d, stderr %q; want %d and none", code, stderr.String(), exitThreshold)
	}
	// A write in the middle fails, or the only write, at the end.
	for _, in := range []io.Reader{endless{}, strings.NewReader("/\n")} {
		stderr.Reset()
		full := &brokenWriter{left: 1, err: syscall.ENOSPC}
		if code := run(args, in, full, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("the disk is full: exit code %d, stderr %q; want %d", code, stderr.String(), exitFailed)
		}
	}
}

// The same with a pipe, whose signal would end the process otherwise.
func TestTestReaderLeaves(t *testing.T) {
	f := func(url string, code int) {
		t.Helper()
		rows, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr output
		p := exec.Command("bulkscan", "test", "--robots", writeRobots(t, privateOnly), "--agent", "a")
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader(strings.Repeat(url+"\n", 100_000)), out, &stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		_, readErr := io.ReadFull(rows, make([]byte, 100))
		_ = rows.Close()
		_ = out.Close()
		_ = p.Wait() // the state says more than the error
		if got := p.ProcessState.ExitCode(); got != code || stderr.String() != "" || readErr != nil {
			t.Errorf("%s: exit code %d, stderr %q, read %v; want %d", url, got, &stderr, readErr, code)
		}
	}
	f("/private/x", exitThreshold)
	f("/x", 0)
}

// The null device is not a terminal with a user.
func TestTestReadsNull(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var stdout, stderr bytes.Buffer
	code := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}, null, &stdout, &stderr)
	if want := "bulkscan: no URL on standard input\n"; code != 0 || stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %q", code, &stdout, &stderr, want)
	}
}

// A file that cannot be opened is reported as one.
func TestTestCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip("no Unix sockets: ", err)
	}
	defer l.Close()
	for _, args := range [][]string{{"test", "--agent", "a", "--robots", path, "/"}, {"check", path}} {
		var stderr bytes.Buffer
		if code := run(args, nil, io.Discard, &stderr); code != exitFailed || !strings.Contains(stderr.String(),
			"bulkscan: cannot read "+path+": ") || strings.Contains(stderr.String(), "open ") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, &stderr)
		}
	}
}

// An interrupt at once ends the wait for a site: there is nothing to finish.
func TestInterruptWhileOneIsAsked(t *testing.T) {
	f := func(s os.Signal, code int, args ...string) {
		t.Helper()
		inBubble(t, 0, simweb.Config{Hold: time.Hour}, func(t *testing.T, w *world) {
			leadTo(t, w.web)
			t.Setenv("BULKSCAN_CA_FILE", "")
			p := w.start(t, append(args, "http://silent.zoo.test", "--timeout", "1h")...)
			time.Sleep(time.Minute)
			p.signal(t, s)
			p.exits(t, code)
			if want := "bulkscan: interrupted\n"; p.stderr.String() != want || p.stdout.String() != "" {
				t.Errorf("%q: stdout %q, stderr %q; want %q", args, &p.stdout, &p.stderr, want)
			}
		})
	}
	f(os.Interrupt, exitInt, "test", "--agent", "a", "/", "--robots")
	f(syscall.SIGTERM, exitTerm, "test", "--agent", "a", "/", "--robots")
	f(os.Interrupt, exitInt, "check")
}

// A list that breaks off is a failure; URLs judged before are printed.
func TestTestInputBreaks(t *testing.T) {
	in := io.MultiReader(strings.NewReader("/a\n/b"), &failing{errors.New("disk on fire")})
	var stdout, stderr bytes.Buffer
	code := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}, in, &stdout, &stderr)
	if code != exitFailed || strings.Count(stdout.String(), "\n") != 1 || !strings.Contains(stderr.String(),
		"standard input, line 2: disk on fire") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// A program may wait for each answer before it sends the next question.
func TestTestAnswersAtOnce(t *testing.T) {
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan int, 1)
	robots := writeRobots(t, privateOnly)
	go func() {
		code := run([]string{"test", "--robots", robots, "--agent", "a"}, in, out, io.Discard)
		_ = out.Close()
		done <- code
	}()
	for _, url := range []string{"/a", "/private/", "/b"} {
		if _, err := io.WriteString(ask, url+"\n"); err != nil {
			t.Fatal(err)
		}
		row := make([]byte, 4096)
		n, err := answers.Read(row)
		if err != nil || !strings.Contains(string(row[:n]), "  "+url+" ") {
			t.Fatalf("after %s: %q, %v", url, row[:n], err)
		}
	}
	_ = ask.Close()
	if code := <-done; code != exitThreshold {
		t.Errorf("exit code %d, want %d", code, exitThreshold)
	}
}
