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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/parser"
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
		code := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a,b", form}, strings.NewReader(urls.String()), &stdout, &stderr)
		if n := bytes.Count(stdout.Bytes(), []byte("\n")); code != exitThreshold || n != 40_000 {
			t.Errorf("%s: exit code %d, %d rows; want %d, 40000", form, code, n, exitThreshold)
		}
		if want := "bulkscan: 20000 of 40000 disallowed\n"; stderr.String() != want {
			t.Errorf("%s: stderr %q, want %q", form, stderr.String(), want)
		}
	}
}

// A line that is too long is told of by its number and costs no more memory than another; those around it are judged.
func TestTestLongLines(t *testing.T) {
	f := func(in, rows, told string, code int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a", "--json"}, strings.NewReader(in), &stdout, &stderr)
		var lines []string
		for d := json.NewDecoder(&stdout); ; {
			var row struct{ URL string }
			if d.Decode(&row) != nil {
				break
			}
			lines = append(lines, row.URL[:min(len(row.URL), 3)])
		}
		if got != code || strings.Join(lines, " ") != rows || !strings.Contains(stderr.String(), told) {
			t.Errorf("of %d bytes: exit code %d, rows %q, stderr %.300q; want %d, %q, %q", len(in), got, lines, stderr.String(), code, rows, told)
		}
	}
	long := "/" + strings.Repeat("x", maxURL)
	f("/a\n"+long[:maxURL-1]+"\n/b\n", "/a /xx /b", "", 0)
	f("/a\n"+long+"\n/b\n", "/a /b", "line 2: skipped: longer than 65536 bytes", exitFailed)
	f("/a\n"+strings.Repeat(long, 10)+"\n/b", "/a /b", "1 of 3 lines", exitFailed)
	f("/a\n"+long, "/a", "1 of 2 lines", exitFailed)
	f(long+"\n"+long+"\n", "", "2 of 2 lines", exitFailed)
	// The user is told of the first few only; their number comes in the end.
	f(strings.Repeat("x\n", 1000)+"/a\n", "/a", "line 5: skipped", exitFailed)
	f(strings.Repeat("x\n", 1000)+"/a\n", "/a", "1000 of 1001 lines", exitFailed)
	var stderr bytes.Buffer
	run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}, strings.NewReader(strings.Repeat("x\n", 1000)), io.Discard, &stderr)
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

// Whoever reads the rows may leave: that ends the run, and is no failure. A full disk is one.
func TestTestOutputBreaks(t *testing.T) {
	args := []string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}
	var stderr bytes.Buffer
	gone := &brokenWriter{left: 1 << 18, err: &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}}
	if code := run(args, endless{}, gone, &stderr); code != exitThreshold || stderr.Len() > 0 {
		t.Errorf("the reader left: exit code %d, stderr %q; want %d and none", code, stderr.String(), exitThreshold)
	}
	// Some write in the midst fails, or the only one, at the end.
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
		_ = p.Wait() // the state says more than the error; what it does not read is not to be written
		if got := p.ProcessState.ExitCode(); got != code || stderr.String() != "" || readErr != nil {
			t.Errorf("%s: exit code %d, stderr %q, read %v; want %d", url, got, &stderr, readErr, code)
		}
	}
	f("/private/x", exitThreshold)
	f("/x", 0)
}

// The null device is no terminal that somebody sits at.
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

// A file that cannot be opened is told of as one.
func TestTestCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip("no Unix sockets: ", err)
	}
	defer l.Close()
	for _, args := range [][]string{{"test", "--agent", "a", "--robots", path, "/"}, {"check", path}} {
		var stderr bytes.Buffer
		if code := run(args, nil, io.Discard, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "bulkscan: cannot read "+path+": ") || strings.Contains(stderr.String(), "open ") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, &stderr)
		}
	}
}

// An interrupt ends the wait for a site at once: there is nothing to finish.
func TestInterruptWhileOneIsAsked(t *testing.T) {
	t.Parallel()
	f := func(s os.Signal, code int, args ...string) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		accepted := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			accepted <- err
			if err == nil {
				_, _ = io.Copy(io.Discard, c) // until the client leaves
				_ = c.Close()
			}
		}()
		args = append(args, "http://"+l.Addr().String(), "--allow-private", "--timeout", "50s")
		p := &process{cmd: exec.Command("bulkscan", args...)}
		p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		p.signal(t, s)
		p.exits(t, code)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%q: it took %v", args, took)
		}
		if want := "bulkscan: interrupted\n"; p.stderr.String() != want || p.stdout.String() != "" {
			t.Errorf("%q: stdout %q, stderr %q; want %q", args, &p.stdout, &p.stderr, want)
		}
	}
	f(os.Interrupt, exitInt, "test", "--agent", "a", "/", "--robots")
	f(syscall.SIGTERM, exitTerm, "test", "--agent", "a", "/", "--robots")
	f(os.Interrupt, exitInt, "check")
}

// A list that breaks off is a failure; what was judged before is printed.
func TestTestInputBreaks(t *testing.T) {
	in := io.MultiReader(strings.NewReader("/a\n/b"), &failing{errors.New("disk on fire")})
	var stdout, stderr bytes.Buffer
	code := run([]string{"test", "--robots", writeRobots(t, privateOnly), "--agent", "a"}, in, &stdout, &stderr)
	if code != exitFailed || strings.Count(stdout.String(), "\n") != 1 || !strings.Contains(stderr.String(), "standard input, line 2: disk on fire") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// Somebody may be waiting for each answer before the next question.
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

// rowsFor prepares rows of a body for crawlers.
func rowsFor(t testing.TB, body string, d parser.Dialect, asJSON bool, agents ...string) *rows {
	t.Helper()
	f := &testFlags{agents: agents}
	auditor := audit.New(tokens.Default())
	crawlers, err := f.crawlers(auditor)
	if err != nil {
		t.Fatal(err)
	}
	robots := &inForce{site: &audit.Site{IsFile: true, Dialect: d}}
	robots.site.Fetch.Body = []byte(body)
	auditor.Judge(robots.site)
	return newRows(&app{stdout: io.Discard, stderr: io.Discard}, robots, auditor, crawlers, asJSON, nil)
}

// The tester and a survey agree: whom each token of the registry follows, why, and whether it may fetch the root. Of names
// that are no product tokens the survey's lenient row is compared, where it has one.
func TestTestFollowsAsAudit(t *testing.T) {
	bodies := []string{
		"", "Disallow: /\n", privateOnly, "User-agent: *\nDisallow: /\n",
		"User-agent: Googlebot\nDisallow: /\n\nUser-agent: Yandex\nUser-agent: msnbot\nDisallow: /\n",
		"User-agent: *\nDisallow: /\n\nUser-agent: googlebot-news\nuser-agent: ADSBOT-GOOGLE\nAllow: /\n\nUser-agent: Googlebot/2.1\nDisallow: /a\n",
		"User-agent: GoogleOther\nDisallow: /\nUser-agent: *\nDisallow: /$\nUser-agent: GPTBot\n",
		"User-agent: MJ12bot/v1.4\nDisallow: /\n\nUser-agent: AI21Bot\nDisallow: /\n\nUser-agent: Screaming Frog\nAllow: /\n\n" +
			"User-agent: img2dataset; all\nUser-agent: IMG2DATASET\nUser-agent: big\nUser-agent: Yahoo! Slurp\nDisallow: /\n\nUser-agent: *\nDisallow: /a\n",
		"User-agent: *\nDisallow: /\n\nUser-agent: AI2Bot foo\nDisallow: /a\n\nUser-agent: The Knowledge AI\nDisallow:\n\nUser-agent: ai2bot\nDisallow: /$\n",
	}
	compared, lenient := 0, 0
	for _, body := range bodies {
		site := &audit.Site{}
		site.Fetch.Outcome, site.Fetch.Status, site.Fetch.Body = exchange.Answered, 200, []byte(body)
		audit.Judge(site)
		result := audit.Explain(site)
		for _, want := range result.Tokens {
			i := slices.IndexFunc(result.Verdicts, func(v audit.VerdictResult) bool {
				return v.Lenient && v.Token == want.Token && !tokens.IsProductToken(v.Token)
			})
			if i >= 0 {
				v := &result.Verdicts[i]
				want.Via, want.RootAllowed, want.Line = v.Via, v.RootAllowed, v.Line
			}
			r := rowsFor(t, body, parser.Google, true, want.Token)
			if err := r.add("/"); err != nil {
				t.Fatal(err)
			}
			var row struct {
				Token, Via, Group string
				Allowed, Lenient  bool
				GroupLines        [][2]int `json:"group_lines"`
			}
			if err := json.Unmarshal(r.row, &row); err != nil {
				t.Fatal(err)
			}
			agrees := row.Group == want.Follows
			if i >= 0 {
				lenient++
				agrees = row.GroupLines[0][0] <= want.Line && want.Line <= row.GroupLines[0][1]
			}
			if !agrees || row.Token != want.Token || row.Lenient != (i >= 0) || row.Via != want.Via || row.Allowed != want.RootAllowed {
				t.Errorf("%q: %s\nthe survey has %+v, lenient %v", body, r.row, want, i >= 0)
			}
			compared++
		}
	}
	if compared < len(bodies)*len(tokens.Default().Tokens) || lenient != 5 {
		t.Errorf("compared %d tokens, %d of them lenient", compared, lenient)
	}
}

// Lines are counted and quoted as the parser reads them, whatever ends them and whatever hides in them.
func TestTestQuotesLines(t *testing.T) {
	body := "\xef\xbb\xbfUser-agent: *\rDisallow: /cr\r\n\r\n# comment\n\n  Disallow\t:\t/tab \x00 hidden\nDisallow:/last#x\n" +
		"Disallow: /" + strings.Repeat("é", 4000) + "\nDisallow: /end"
	r := rowsFor(t, body, parser.Google, true, "*")
	f := func(url string, number int, text, value string) {
		t.Helper()
		if err := r.add(url); err != nil {
			t.Fatal(err)
		}
		var row struct {
			Line             int
			Rule, Key, Value string
		}
		if err := json.Unmarshal(r.row, &row); err != nil {
			t.Fatalf("%s: %v in %s", url, err, r.row)
		}
		if row.Line != number || row.Rule != text || row.Value != value || row.Key != "disallow" {
			t.Errorf("%s: %+v; want line %d, %q, %q", url, row, number, text, value)
		}
	}
	f("/cr", 2, "Disallow: /cr", "/cr")
	f("/tab", 6, "Disallow\t:\t/tab \x00 hidden", "/tab")
	f("/last", 7, "Disallow:/last#x", "/last")
	f("/"+strings.Repeat("é", 4001), 8, "Disallow: /"+strings.Repeat("é", 244), "/"+strings.Repeat("é", 249))
	f("/end", 9, "Disallow: /end", "/end")
	if text := string(r.rule(2).text); text != `line 6: Disallow : /tab \u0000 hidden` {
		t.Errorf("shown as %q", text)
	}
}

// However many groups name a crawler, a row lists a few.
func TestTestBoundsGroups(t *testing.T) {
	r := rowsFor(t, strings.Repeat("User-agent: a\nDisallow: /x\n", 1000), parser.Google, true, "a")
	if err := r.add("/x"); err != nil {
		t.Fatal(err)
	}
	var row struct {
		Groups      int
		GroupLines  [][2]int `json:"group_lines"`
		GroupAgents []string `json:"group_agents"`
	}
	if err := json.Unmarshal(r.row, &row); err != nil {
		t.Fatal(err)
	}
	if row.Groups != 1000 || len(row.GroupLines) != maxListed || len(row.GroupAgents) != maxListed || row.GroupLines[1] != [2]int{3, 4} {
		t.Errorf("%+v", row)
	}
	if why := strings.TrimSpace(string(r.followers[0].why)); why != "group a, lines 1-2, 3-4, 5-6, …" {
		t.Errorf("text has %q", why)
	}
}

func FuzzAppendText(f *testing.F) {
	f.Add("/plain?a=b")
	f.Add("\"\\\x00\x1b\x7f\u009b\u202e\U0001F600\U000E0001\xff\xc3")
	f.Fuzz(func(t *testing.T, s string) {
		quoted := printable.AppendJSON(nil, s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil {
			t.Fatalf("%q: %v in %s", s, err, quoted)
		}
		if want := string([]rune(s)); back != want { // each broken octet is U+FFFD
			t.Errorf("%q came back as %q", s, back)
		}
		if shown := string(quoted); printable.Text(shown) != shown || strings.Contains(shown, "\n") {
			t.Errorf("%q is not fit for a terminal: %q", s, shown)
		}
	})
}

// Once its rules have decided before, a URL costs no memory, so that millions of them need no more than one.
func TestTestAllocations(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		r := rowsFor(t, "User-agent: *\nDisallow: /private/\nAllow: /*.gif$\n", parser.RFC, asJSON, "a", "b", "*")
		urls := []string{"https://example.com/private/x?y=z", "/a.gif", "/", "/robots.txt", "/caf\u00e9/%41"}
		got := testing.AllocsPerRun(100, func() {
			for _, url := range urls {
				if err := r.add(url); err != nil {
					t.Fatal(err)
				}
			}
		})
		// What is not plain is put through the escapes of line and JSON.
		if got > 4 {
			t.Errorf("json %v: %v allocations for %d URLs", asJSON, got, len(urls))
		}
		if got := testing.AllocsPerRun(100, func() { _ = r.add(urls[0]) }); got != 0 {
			t.Errorf("json %v: %v allocations for a plain URL", asJSON, got)
		}
	}
}

// go test ./cmd/bulkscan -run '^$' -bench TestURLs
func BenchmarkTestURLs(b *testing.B) {
	var urls bytes.Buffer
	const n = 1000
	for i := range n {
		fmt.Fprintf(&urls, "https://example.com/%s/%d\n", [...]string{"private", "public", "a.gif"}[i%3], i)
	}
	for _, form := range []string{"text", "json"} {
		b.Run(form, func(b *testing.B) {
			r := rowsFor(b, "User-agent: *\nDisallow: /private/\nAllow: /*.gif$\nDisallow: /search\nDisallow: /*?sort=\n", parser.Google, form == "json", "GPTBot", "CCBot")
			b.SetBytes(int64(urls.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.addAll(bytes.NewReader(urls.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/URL")
		})
	}
}
