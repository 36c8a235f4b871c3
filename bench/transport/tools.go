package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is about programs of others, which are measured where they are on the PATH: how each is told to do the same
// exchanges, and how it is understood what it did. They get addresses in place of names, so that they need no DNS.

// Tool is a program of others.
type Tool struct {
	Name, Does, Leaves string

	// version tells which one is at path, or why it is not the one that is meant.
	version func(ctx context.Context, path string) (string, error)
	// arguments makes ready what it needs in dir and returns what to call it with.
	arguments func(t toolTurn, dir string) ([]string, error)
	// read understands what it said: how many answers were right, how many not.
	read func(out []byte, m *Measured)
	// counts says that the program decides how many exchanges it does.
	counts bool
}

// toolTurn is what is asked of a program.
type toolTurn struct {
	Path        string // of the program
	Web         *Web
	Secure      bool
	N, InFlight int
	Round       int
}

var tools = []*Tool{
	{
		Name:      "wrk",
		Does:      "one thread, `Connection: close`, for a second or some: it does not stop at a number",
		Leaves:    "more than one host, redirects, any look at what came but for the status, a name in the handshake",
		version:   wrkVersion,
		arguments: wrkArguments,
		read:      readWrk,
		counts:    true,
	},
	{
		Name:      "curl",
		Does:      "`--parallel`, a URL file, bodies to /dev/null, no certificate verified (`-k`)",
		Leaves:    "memory for many URLs: it makes all transfers of the list ready at once",
		version:   curlVersion,
		arguments: curlArguments,
		read:      readCurl,
	},
	{
		Name:      "httpx",
		Does:      "projectdiscovery's, by its leanest flags: stream mode, no retries, JSON with status and length",
		Leaves:    "the chain's verification; it keeps and tells more of an answer (title, hashes, technologies)",
		version:   httpxVersion,
		arguments: httpxArguments,
		read:      readHTTPX,
	},
	{
		Name:      "zgrab2",
		Does:      "`zgrab2 http`, JSON with the whole answer",
		Leaves:    "the chain's verification; it keeps and tells the whole handshake",
		version:   zgrabVersion,
		arguments: zgrabArguments,
		read:      readZgrab,
	},
}

// output runs a program that tells about itself, whatever its exit status.
func output(ctx context.Context, path string, args ...string) []byte {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, args...).CombinedOutput() // many exit with 1 after a help text
	return out
}

// run lets a program do one turn.
func (t *Tool) run(ctx context.Context, turn toolTurn) (m *Measured, err error) {
	dir, err := os.MkdirTemp("", "transport-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args, err := t.arguments(turn, dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxTurn)
	defer cancel()
	c := exec.CommandContext(ctx, turn.Path, args...)
	c.Env = append(os.Environ(), "HOME="+dir) // what it keeps for itself is not for this run
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	began := time.Now()
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", t.Name, err)
	}
	peak := make(chan int64)
	ended := make(chan struct{})
	go func() { peak <- watchPeak(c.Process.Pid, ended) }()
	err = c.Wait()
	m = &Measured{Wall: time.Since(began)}
	close(ended)
	m.PeakRSS = <-peak
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, ctx.Err())
	}
	m.CPU = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	t.read(out.Bytes(), m)
	if err != nil {
		// Where it got no answer at all, what it says is why.
		m.Errors = max(m.Errors, 1)
		m.Examples = append(m.Examples, fmt.Sprintf("%v: %q", err, tail(errs.Bytes())))
	}
	return m, nil
}

// maxTurn bounds a turn of anybody.
const maxTurn = 10 * time.Minute

func tail(b []byte) []byte { return b[max(0, len(b)-200):] }

// watchPeak looks at a process until it has ended, because nothing tells of its memory afterwards.
func watchPeak(pid int, ended <-chan struct{}) (peak int64) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		peak = max(peak, facts.Memory(strconv.Itoa(pid), facts.PeakResident))
		select {
		case <-ended:
			return peak
		case <-ticker.C:
		}
	}
}

// urlAt is the URL of exchange i by address. The question tells one from the others to those that ask each only once.
func (t toolTurn) urlAt(i int) string {
	return fmt.Sprintf("%s://%s:%d/robots.txt?%d", schemeOf(t.Secure), t.Web.addr(i), t.Web.port(t.Secure), i)
}

func writeLines(path string, n int, line func(i int) string) error {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func (m *Measured) wrong(n int, format string, args ...any) {
	m.Errors += n
	if len(m.Examples) < maxExamples {
		m.Examples = append(m.Examples, fmt.Sprintf(format, args...))
	}
}

// wrk

func wrkVersion(ctx context.Context, path string) (string, error) {
	name, _, ok := strings.Cut(string(output(ctx, path, "-v")), " [")
	if !ok || !strings.HasPrefix(name, "wrk ") {
		return "", errors.New("the wrk on the PATH is another program")
	}
	return strings.TrimPrefix(name, "wrk "), nil
}

// wrkArguments: it knows but one address, which is another one each round.
func wrkArguments(t toolTurn, _ string) ([]string, error) {
	seconds := 1 + t.N/20_000
	if t.Secure {
		seconds = 1 + t.N/3_000
	}
	return []string{
		"-t", "1", "-c", strconv.Itoa(t.InFlight), "-d", fmt.Sprintf("%ds", seconds), "--timeout", "15s",
		"-H", "Connection: close", "-H", "User-Agent: " + agent, "-H", "Accept: text/plain,*/*;q=0.8", "-H", "Accept-Encoding: identity",
		fmt.Sprintf("%s://%s:%d/robots.txt", schemeOf(t.Secure), t.Web.addr(t.Round), t.Web.port(t.Secure)),
	}, nil
}

var (
	wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in [\d.]+\w+, ([\d.]+)([KMGT]?)B read$`)
	wrkStatuses = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)$`)
	wrkSockets  = regexp.MustCompile(`(?m)^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$`)
)

func readWrk(out []byte, m *Measured) {
	found := wrkRequests.FindSubmatch(out)
	if found == nil {
		m.wrong(1, "not understood: %q", tail(out))
		return
	}
	answers, _ := strconv.Atoi(string(found[1])) // digits only
	m.Answers = answers
	if f := wrkStatuses.FindSubmatch(out); f != nil {
		n, _ := strconv.Atoi(string(f[1]))
		m.Answers -= n
		m.wrong(n, "%d answers with other statuses", n)
	}
	if f := wrkSockets.FindSubmatch(out); f != nil {
		for i, kind := range []string{"connect", "read", "write", "timeout"} {
			if n, _ := strconv.Atoi(string(f[i+1])); n > 0 {
				m.wrong(n, "%d errors: %s", n, kind)
			}
		}
	}
	// Of lengths it tells only the sum, to the second decimal; what was in flight at the end is in it.
	size, err := strconv.ParseFloat(string(found[2]), 64)
	for range strings.Index(" KMGT", string(append(found[3], ' ')[:1])) {
		size *= 1024
	}
	if least := 0.98 * float64(answers) * float64(len(answer)); m.Errors == 0 && (err != nil || size < least) {
		m.wrong(1, "%.0f bytes read, want %.0f at least", size, least)
	}
}

// curl

func curlVersion(ctx context.Context, path string) (string, error) {
	words := strings.Fields(string(output(ctx, path, "--version")))
	if len(words) < 2 || words[0] != "curl" {
		return "", errors.New("the curl on the PATH is another program")
	}
	return words[1], nil
}

func curlArguments(t toolTurn, dir string) ([]string, error) {
	config := filepath.Join(dir, "curl")
	err := writeLines(config, t.N, func(i int) string { return fmt.Sprintf("url = %q\noutput = %q", t.urlAt(i), os.DevNull) })
	return []string{
		"--disable", "--silent", "--insecure", "--noproxy", "*", "--parallel", "--parallel-max", strconv.Itoa(t.InFlight), "--no-keepalive", "--no-sessionid", "--http1.1",
		"--max-time", "600", "--user-agent", agent, "--header", "Connection: close",
		"--write-out", "%{http_code} %{size_download} %{num_connects}\\n", "--config", config,
	}, err
}

func readCurl(out []byte, m *Measured) {
	want := fmt.Sprintf("200 %d 1", len(body))
	for line := range bytes.Lines(out) {
		if got := string(bytes.TrimSpace(line)); got == want {
			m.Answers++
		} else {
			m.wrong(1, "status, length and connections %q, want %q", got, want)
		}
	}
}

// httpx

var httpxCurrent = regexp.MustCompile(`Current Version: (v[\d.]+\S*)`)

func httpxVersion(ctx context.Context, path string) (string, error) {
	found := httpxCurrent.FindSubmatch(output(ctx, path, "-version", "-no-color", "-disable-update-check"))
	if found == nil {
		return "", errors.New("the httpx on the PATH is another program")
	}
	return string(found[1]), nil
}

func httpxArguments(t toolTurn, dir string) ([]string, error) {
	list := filepath.Join(dir, "list")
	return []string{
		"-list", list, "-silent", "-json", "-no-color", "-disable-update-check", "-no-stdin", "-stream", "-skip-dedupe", "-threads", strconv.Itoa(t.InFlight),
		"-rate-limit", "0", "-retries", "0", "-timeout", "15", "-no-fallback-scheme", "-cdn=false", "-H", "Connection: close", "-H", "Accept-Encoding: identity",
	}, writeLines(list, t.N, t.urlAt)
}

func readHTTPX(out []byte, m *Measured) {
	readJSON(out, m, func(line []byte) (status, length int, err error) {
		var r struct {
			Status int `json:"status_code"`
			Length int `json:"content_length"`
		}
		err = json.Unmarshal(line, &r)
		return r.Status, r.Length, err
	})
}

// zgrab2

// zgrabVersion: not all tell.
func zgrabVersion(ctx context.Context, path string) (string, error) {
	if !bytes.Contains(output(ctx, path, "http", "--help"), []byte("--endpoint")) {
		return "", errors.New("the zgrab2 on the PATH is another program")
	}
	return "of unknown version", nil
}

func zgrabArguments(t toolTurn, dir string) ([]string, error) {
	list := filepath.Join(dir, "list")
	args := []string{
		"http", "--input-file", list, "--metadata-file", os.DevNull, "--log-file", os.DevNull,
		"--senders", strconv.Itoa(t.InFlight), "--port", strconv.Itoa(int(t.Web.port(t.Secure))), "--endpoint", "/robots.txt",
	}
	if t.Secure {
		args = append(args, "--use-https")
	}
	// Newer ones call on a host in the internet to learn which families it may dial, unless they are told from where, and
	// leave loopback addresses alone, unless they are told to leave none.
	help := output(context.Background(), t.Path, "http", "--help")
	if bytes.Contains(help, []byte("--local-addr")) {
		args = append(args, "--local-addr", "127.0.0.1")
	}
	for flag, value := range map[string]string{"--blocklist-file": os.DevNull, "--status-updates-file": os.DevNull} {
		if bytes.Contains(help, []byte(flag)) {
			args = append(args, flag, value)
		}
	}
	return args, writeLines(list, t.N, func(i int) string { return fmt.Sprintf("%s,%s", t.Web.addr(i), hostOf(i)) })
}

func readZgrab(out []byte, m *Measured) {
	readJSON(out, m, func(line []byte) (status, length int, err error) {
		var r struct {
			Data struct {
				HTTP struct {
					Status string `json:"status"`
					Result struct {
						Response struct {
							Status int    `json:"status_code"`
							Body   string `json:"body"`
						} `json:"response"`
					} `json:"result"`
				} `json:"http"`
			} `json:"data"`
		}
		err = json.Unmarshal(line, &r)
		if err == nil && r.Data.HTTP.Status != "success" {
			err = fmt.Errorf("status %q", r.Data.HTTP.Status)
		}
		return r.Data.HTTP.Result.Response.Status, len(r.Data.HTTP.Result.Response.Body), err
	})
}

// readJSON reads a line an answer.
func readJSON(out []byte, m *Measured, read func(line []byte) (status, length int, err error)) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		switch status, length, err := read(lines.Bytes()); {
		case err != nil:
			m.wrong(1, "%v", err)
		case status != 200 || length != len(body):
			m.wrong(1, "status %d and %d bytes, want 200 and %d", status, length, len(body))
		default:
			m.Answers++
		}
	}
	if err := lines.Err(); err != nil {
		m.wrong(1, "not understood: %v", err)
	}
}
