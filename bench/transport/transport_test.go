package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain is also the server and the contenders, which the command starts as processes of its own.
func TestMain(m *testing.M) {
	if part, ok := parts[first(os.Args[1:])]; ok {
		exit(part(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// TestCommand lets everybody who is here do 50 exchanges: all must come back right, and as many as the server has seen.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	figuresFile, markdown := filepath.Join(dir, "a", "figures.json"), filepath.Join(dir, "b", "report.md")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-n", "50", "-warm", "20", "-c", "16", "-rounds", "2", "-addresses", "4", "-certificates", "3", "-json", figuresFile, "-markdown", markdown}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	data, err := os.ReadFile(figuresFile)
	if err != nil {
		t.Fatal(err)
	}
	var figures Figures
	if err := json.Unmarshal(data, &figures); err != nil {
		t.Fatal(err)
	}
	if len(figures.Results) != len(contenders()) {
		t.Errorf("%d results of %d contenders", len(figures.Results), len(contenders()))
	}
	for _, r := range figures.Results {
		c, _ := find(r.Name)
		if r.Absent != "" {
			t.Logf("%s: %s", r.Name, r.Absent)
			if c.Tool == nil && runtime.GOOS == "linux" {
				t.Errorf("%s is absent", r.Name)
			}
			continue
		}
		if r.Version == "" || len(r.Rounds) != 2 {
			t.Errorf("%s: version %q, %d rounds", r.Name, r.Version, len(r.Rounds))
		}
		requests := int64(70) // 20 do not count
		if c.Tool != nil {
			requests = 50
		}
		for _, m := range r.Rounds {
			if m.Errors != 0 || m.Server.Requests < int64(m.Answers) || m.Wall <= 0 {
				t.Errorf("%s: %+v", r.Name, m)
			}
			if counts := c.Tool != nil && c.Tool.counts; !counts && (m.Answers != 50 || m.Server.Requests != requests) || m.Answers == 0 {
				t.Errorf("%s: %d answers, and the server has seen %d requests, want 50 and %d", r.Name, m.Answers, m.Server.Requests, requests)
			}
			if c.Tool == nil && c.Name != floor && (m.Objects < 50 || m.Bytes < m.Objects) {
				t.Errorf("%s: %d objects and %d bytes allocated", r.Name, m.Objects, m.Bytes)
			}
		}
	}
	written, err := os.ReadFile(markdown)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, out.Bytes()) {
		t.Error("the file is not what was shown")
	}
	for _, want := range []string{"| bulkscan TLS verified |", "## What must hold", "go -C bench/transport run . -addresses 4 -c 16 -certificates 3 -n 50 -rounds 2 -warm 20"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, out.String())
		}
	}
}

// TestFaults lets the server spoil every tenth answer: whoever is made of Go must tell exactly these from the others, and
// then the command fails.
func TestFaults(t *testing.T) {
	var chosen []Contender
	for _, c := range contenders() {
		if c.Tool == nil && c.New != nil {
			chosen = append(chosen, c)
		}
	}
	plan := Plan{N: 50, Rounds: 1, InFlight: 8, Addresses: 2, Certificates: 1}
	for plan.fault = range faults {
		t.Run(plan.fault, func(t *testing.T) {
			var out bytes.Buffer
			report := &Report{out: &out}
			figures, err := compare(t.Context(), report, plan, chosen, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(figures.Results) != len(chosen) {
				t.Fatalf("%d results of %d", len(figures.Results), len(chosen))
			}
			for _, r := range figures.Results {
				if m := r.Rounds[0]; m.Answers != 45 || m.Errors != 5 || len(m.Examples) == 0 {
					t.Errorf("%s: %d answers, %d errors %q; want 45 and 5", r.Name, m.Answers, m.Errors, m.Examples)
				}
				if !strings.Contains(out.String(), "**"+r.Name+": 5 errors**") {
					t.Errorf("the report does not tell of the errors of %s", r.Name)
				}
			}
			if !report.failed {
				t.Error("the command does not fail")
			}
		})
	}
}

// TestWarm: what goes wrong in exchanges that do not count is no secret either.
func TestWarm(t *testing.T) {
	c, _ := find(ours)
	plan := Plan{N: 5, Warm: 20, Rounds: 1, InFlight: 8, Addresses: 1, Certificates: 1, fault: "status"}
	if _, err := compare(t.Context(), &Report{out: io.Discard}, plan, []Contender{c}, ""); err == nil || !strings.Contains(err.Error(), "2 of the exchanges that do not count went wrong") {
		t.Errorf("%v", err)
	}
}

// TestFaultsOfTools is the same for programs of others, as far as they tell.
func TestFaultsOfTools(t *testing.T) {
	curl, _ := find("curl")
	if _, _, err := curl.present(t.Context()); err != nil {
		t.Skipf("SKIPPED: curl: %v", err)
	}
	for _, fault := range []string{"silent", "short", "status"} {
		plan := Plan{N: 50, Rounds: 1, InFlight: 8, Addresses: 2, Certificates: 1, fault: fault}
		figures, err := compare(t.Context(), &Report{out: &bytes.Buffer{}}, plan, []Contender{curl}, "")
		if err != nil {
			t.Fatal(err)
		}
		if m := figures.Results[0].Rounds[0]; m.Answers != 45 || m.Errors != 5 {
			t.Errorf("%s: %d answers, %d errors %q; want 45 and 5", fault, m.Answers, m.Errors, m.Examples)
		}
	}
}

// TestAudit: who says something else than the server has seen is found out.
func TestAudit(t *testing.T) {
	goMade, tool, secure := Contender{Group: Plain}, Contender{Group: Plain, Tool: &Tool{counts: true}}, Contender{Group: Verified}
	f := func(c Contender, answers int, seen Counts, want string) {
		t.Helper()
		m := Measured{Answers: answers, Server: seen}
		m.audit(c, Plan{N: 50, InFlight: 8})
		if got := strings.Join(m.Examples, "; "); got != want || (want == "") != (m.Errors == 0) {
			t.Errorf("%d errors, %q, want %q", m.Errors, got, want)
		}
	}
	f(goMade, 50, Counts{Accepted: 50, Requests: 50}, "")
	f(goMade, 49, Counts{Accepted: 50, Requests: 50}, "49 exchanges, want 50")
	f(goMade, 51, Counts{Accepted: 51, Requests: 51}, "51 exchanges, want 50")
	f(goMade, 50, Counts{Accepted: 49, Requests: 49}, "50 exchanges, but the server has seen 49 requests")
	f(goMade, 50, Counts{Accepted: 51, Requests: 51}, "50 exchanges, but the server has seen 51 requests")
	f(goMade, 50, Counts{Accepted: 10, Requests: 50}, "50 requests over 10 connections")
	f(goMade, 50, Counts{Accepted: 50, Requests: 50, Handshakes: 1}, "1 handshakes in plain exchanges")
	f(tool, 5000, Counts{Accepted: 5008, Requests: 5008}, "")
	f(tool, 5000, Counts{Accepted: 5009, Requests: 5009}, "5000 exchanges, but the server has seen 5009 requests")
	f(tool, 5000, Counts{Accepted: 4999, Requests: 4999}, "5000 exchanges, but the server has seen 4999 requests")
	f(secure, 50, Counts{Accepted: 50, Requests: 50, Handshakes: 50}, "")
	f(secure, 50, Counts{Accepted: 50, Requests: 50, Handshakes: 49}, "50 requests in 49 handshakes")
	f(secure, 50, Counts{Accepted: 50, Requests: 50, Handshakes: 50, Resumed: 2}, "2 handshakes resumed, 0 before TLS 1.3")
	f(secure, 50, Counts{Accepted: 50, Requests: 50, Handshakes: 50, Older: 3}, "0 handshakes resumed, 3 before TLS 1.3")
}

// TestTools: what programs of others say is understood, and what is wrong in it too.
func TestTools(t *testing.T) {
	f := func(read func([]byte, *Measured), out string, answers, wrong int) {
		t.Helper()
		var m Measured
		read([]byte(out), &m)
		if m.Answers != answers || m.Errors != wrong || (wrong > 0) != (len(m.Examples) > 0) {
			t.Errorf("%d answers and %d errors %q, want %d and %d, of\n%s", m.Answers, m.Errors, m.Examples, answers, wrong, out)
		}
	}
	wrk := func(requests int, read, more string) string {
		return fmt.Sprintf("Running 1s test @ http://127.0.0.1:80/robots.txt\n  1 threads and 256 connections\n  %d requests in 1.10s, %s read\n%sRequests/sec:  18172.00\n", requests, read, more)
	}
	size := fmt.Sprintf("%.2fMB", 20000*float64(len(answer))/(1<<20))
	f(readWrk, wrk(20000, size, ""), 20000, 0)
	f(readWrk, wrk(20000, "12.00MB", ""), 20000, 1)
	f(readWrk, wrk(20000, size, "  Non-2xx or 3xx responses: 7\n"), 19993, 7)
	f(readWrk, wrk(20000, size, "  Socket errors: connect 1, read 2, write 0, timeout 3\n"), 20000, 6)
	f(readWrk, wrk(100, fmt.Sprintf("%.2fKB", 100*float64(len(answer))/1024), ""), 100, 0)
	f(readWrk, "unable to connect to 127.0.0.1:80 Connection refused\n", 0, 1)

	good := fmt.Sprintf("200 %d 1\n", len(body))
	f(readCurl, good+good, 2, 0)
	f(readCurl, good+"200 12 1\n503 0 1\n000 0 0\n"+good, 2, 3)
	f(readCurl, fmt.Sprintf("200 %d 0\n", len(body)), 0, 1) // over an old connection

	httpx := func(status, length int) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-21T10:00:00Z","url":"http://127.0.0.1:80/robots.txt?1","status_code":%d,"content_length":%d,"failed":false}`+"\n", status, length)
	}
	f(readHTTPX, httpx(200, len(body))+httpx(200, len(body)), 2, 0)
	f(readHTTPX, httpx(200, len(body)-1)+httpx(404, len(body))+"banner\n", 0, 3)

	text, err := json.Marshal(string(body))
	if err != nil {
		t.Fatal(err)
	}
	zgrab := func(outcome string, status int) string {
		return fmt.Sprintf(`{"ip":"127.0.0.1","domain":"h1.survey.example","data":{"http":{"status":%q,"protocol":"http","result":{"response":{"status_line":"x","status_code":%d,"body":%s}}}}}`+"\n", outcome, status, text)
	}
	f(readZgrab, zgrab("success", 200)+zgrab("success", 200), 2, 0)
	f(readZgrab, zgrab("success", 503)+zgrab("io-timeout", 0)+`{"data":{"http":{"status":"connection-timeout"}}}`, 0, 3)
}

// TestAbsent: a program that only has the name of one that is meant is absent.
func TestAbsent(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: the stand-ins are shell scripts")
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, tool := range tools {
		c := Contender{Name: tool.Name, Tool: tool}
		if _, _, err := c.present(t.Context()); err == nil || err.Error() != "not on the PATH" {
			t.Errorf("%s: %v", tool.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, tool.Name), []byte("#!/bin/sh\necho something else 1.0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, version, err := c.present(t.Context()); err == nil || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s: version %q, %v", tool.Name, version, err)
		}
	}
}

// TestHeld measures few in flight: all must be held at once and come back right.
func TestHeld(t *testing.T) {
	figuresFile := filepath.Join(t.TempDir(), "held.json")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-inflight", "-held", "20,60", "-hold", "1ms", "-addresses", "2", "-only", "bulkscan,bulkscan TLS,fasthttp.Client,fasthttp.Client TLS,raw", "-json", figuresFile}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	data, err := os.ReadFile(figuresFile)
	if err != nil {
		t.Fatal(err)
	}
	var figures Figures
	if err := json.Unmarshal(data, &figures); err != nil {
		t.Fatal(err)
	}
	if len(figures.Held) != 8 {
		t.Errorf("%d results, want those of two clients, plain and over TLS, with 20 and 60 in flight", len(figures.Held))
	}
	for _, h := range figures.Held {
		if h.Measured.Answers != h.InFlight || h.Measured.Errors != 0 || h.Measured.Server.Requests != int64(h.InFlight) {
			t.Errorf("%s, %d in flight: %+v", h.Name, h.InFlight, h.Measured)
		}
		if h.Held.Goroutines < h.InFlight || h.Held.Live.sum() <= h.Held.Before.sum() {
			t.Errorf("%s, %d in flight: looked at another time: %+v", h.Name, h.InFlight, h.Held)
		}
	}
}

// TestHeldFails: exchanges that fail while others are kept waiting end the run with an error, and leave nothing behind that
// waits for them.
func TestHeldFails(t *testing.T) {
	l, err := open(t.Context(), serverConfig{Addresses: 1, Certificates: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.web.Roots = nil // which no contender takes
	c, _ := find(stock + " TLS")
	if h, err := l.held(t.Context(), c, 3, Plan{}); err == nil || !strings.Contains(err.Error(), "cannot read the authority's certificate") {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestStops: the end of the context ends everything, with nobody's answers lost in silence.
func TestStops(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := run(ctx, []string{"-n", "1000000", "-only", "bulkscan", "-addresses", "2"}, &bytes.Buffer{}, io.Discard); err == nil || errors.Is(err, errMarks) {
		t.Errorf("%v, want an error", err)
	}
}

// TestMarks: what must hold is said of the best turns, and a miss fails the command where it binds.
func TestMarks(t *testing.T) {
	figures := func(ours, theirs time.Duration) *Figures {
		round := func(cpu time.Duration) Measured { return Measured{Answers: 10_000, CPU: cpu, Wall: time.Second} }
		a, _ := find("bulkscan")
		b, _ := find(stock)
		return &Figures{Plan: Plan{N: 10_000}, Results: []Result{
			{Contender: a, Name: a.Name, Rounds: []Measured{round(ours), round(3 * ours)}},
			{Contender: b, Name: b.Name, Rounds: []Measured{round(2 * theirs), round(theirs)}},
		}}
	}
	f := func(figures *Figures, want string, failed bool) {
		t.Helper()
		var out bytes.Buffer
		r := &Report{out: &out}
		r.Compare(figures)
		if !strings.Contains(out.String(), want) || r.failed != failed {
			t.Errorf("failed: %v; %q is not in\n%s", r.failed, want, out.String())
		}
	}
	f(figures(600*time.Millisecond, time.Second), "ours to net/http, best turns (median of rounds 1.05): 0.600 ≤ 0.650: yes", false)
	f(figures(700*time.Millisecond, time.Second), "0.700 ≤ 0.650: **NO**", true)
	f(figures(900*time.Millisecond, 2*time.Second), "CPU s per 10k, best turn (median 1.80): 0.900 ≤ 0.750: **NO**", false)
	few := figures(700*time.Millisecond, time.Second)
	few.Plan.N = 50
	f(few, "Nothing is claimed", false)
	wrong := figures(600*time.Millisecond, time.Second)
	wrong.Results[1].Rounds[0].wrong(2, "a body of %d bytes", 7)
	f(wrong, `**net/http: 2 errors**, such as ["a body of 7 bytes"]`, true)
}

// TestHeldMarks is the same for memory in flight.
func TestHeldMarks(t *testing.T) {
	f := func(inFlight int, each, resident float64, want string, failed bool) {
		t.Helper()
		var out bytes.Buffer
		r := &Report{out: &out}
		now := Memory{Heap: uint64(each) * uint64(inFlight)}
		r.Held(&Figures{Held: []HeldResult{{Name: ours, Group: Plain, InFlight: inFlight, Held: Held{Now: now, Live: now}, Measured: Measured{PeakRSS: int64(resident), Answers: inFlight}}}})
		if !strings.Contains(out.String(), want) || r.failed != failed {
			t.Errorf("failed: %v; %q is not in\n%s", r.failed, want, out.String())
		}
	}
	f(10_000, 29e3, 899e6, "MB of peak RSS: 899 ≤ 900: yes", false)
	f(10_000, 31e3, 899e6, "31.0 ≤ 30.0: **NO**", true)
	f(10_000, 29e3, 901e6, "901 ≤ 900: **NO**", true)
	f(20, 99e3, 1e6, "Nothing is claimed", false)
}

// TestArguments: what makes no sense is refused before anything starts.
func TestArguments(t *testing.T) {
	for _, args := range []string{"-n 0", "-rounds 0", "-c 0", "-c 20000", "-addresses 0", "-addresses 300", "-certificates 0", "-hold -1s", "-held x", "-held 0", "-only nobody", "something"} {
		if err := run(t.Context(), strings.Fields(args), &bytes.Buffer{}, io.Discard); err == nil || errors.Is(err, errMarks) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestAnswer: the whole answer is what it says it is.
func TestAnswer(t *testing.T) {
	head, got, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !ok || check(200, got) != nil || !bytes.Contains(head, fmt.Appendf(nil, "\r\nContent-Length: %d\r\n", len(got))) {
		t.Errorf("%q", answer)
	}
	if len(answer) < 1000 || len(answer) > 2000 {
		t.Errorf("%d bytes, want about a kilobyte", len(answer))
	}
	for name, fault := range faults {
		if bytes.Equal(fault, answer) {
			t.Errorf("%s is no fault", name)
		}
	}
	for _, wrong := range []error{check(503, body), check(200, body[1:]), check(200, bytes.ToUpper(body))} {
		if wrong == nil {
			t.Error("a wrong answer passes")
		}
	}
}
