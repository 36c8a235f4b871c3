package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/simweb"
)

// TestEveryFlagChanged scans a list, and resumes the scan with every flag changed in turn. A change that would give
// other rows is refused; the error has the old value, the new value and a remedy. A flag that only bounds the pace, or
// says where or how to look, may change. A new flag is in neither table, and fails the test.
func TestEveryFlagChanged(t *testing.T) {
	t.Parallel()
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Addresses: 4, Bodies: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	folder := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := file("list.csv", "domain,label\na.ok.zoo.test,x\nb.not-found.zoo.test,y\n")
	ca := file("ca.pem", string(web.CAPEM()))
	out := filepath.Join(folder, "out")
	base := []string{"-o", out, "--scan-id", "s", "--column", "domain", "--resolver", web.DNSAddr().String(), "--ca-file",
		ca, "--allow-private",
		"--host-rate", "0", "--ip-rate", "0", "--retry-after", "0s", "--progress", "none"}
	for _, to := range web.ConnectTo() {
		base = append(base, "--connect-to", to)
	}
	scan := func(lists []string, flags ...string) (code int, stderr string) {
		var text bytes.Buffer
		args := slices.Concat([]string{"scan"}, lists, base, flags)
		code = run(args, strings.NewReader(""), &bytes.Buffer{}, &text)
		return code, text.String()
	}
	if code, text := scan([]string{list}); code != 0 {
		t.Fatal(text)
	}
	asked := web.Stats().Requests

	// Refused: the value that it is changed to, and how the error begins.
	refused := map[string]struct{ now, says string }{
		"format":        {"csv", `--format was "auto" and is now "csv"`},
		"by":            {"month", `--by was "day" and is now "month"`}, // of archives
		"column":        {"1", `--column was "domain" and is now "1"`},
		"label-column":  {"label", `--label-column was "" and is now "label"`},
		"limit":         {"7", `--limit was "0" and is now "7"`},
		"sample":        {"0.5", `--sample was "0" and is now "0.5"`},
		"max-redirects": {"2", `--max-redirects was "5" and is now "2"`},
		"max-body":      {"1000", `--max-body was "512000" and is now "1000"`},
		"user-agent":    {"x/1", `--user-agent was "" and is now "x/1"`},
		"contact":       {"me@example.org", `--contact was "" and is now "me@example.org"`},
		"scheme":        {"http", `--scheme was "https" and is now "http"`},
		"no-fallback":   {"true", `--no-fallback was "false" and is now "true"`},
		"strict-tls":    {"true", `--strict-tls was "false" and is now "true"`},
		"tls-min":       {"1.3", `--tls-min was "1.2" and is now "1.3"`},
		"source-ip": {"127.0.0.1",
			`the observer was "live bulkscan any https+http HTTP/1.1" and is now "live bulkscan ipv4 https+http HTTP/1.1"`},
		"vantage":       {"elsewhere", `--vantage was "" and is now "elsewhere"`},
		"list-id":       {"tranco-1", `--list-id was "" and is now "tranco-1"`},
		"ipv4":          {"true", `--ipv4 was "false" and is now "true"`},
		"ipv6":          {"true", `--ipv6 was "false" and is now "true"`},
		"allow-private": {"false", `--allow-private was "true" and is now "false"`},
		"tables":        {"sites", `--tables was "sites,verdicts,evidence,bodies,policies" and is now "sites,policies"`},
		"tokens": {file("tokens.txt",
			"version 1\nname | aliases | category | purpose | operator | * | fallback | source | checked\n"+
				"MyBot | | ai | training | Me | yes | | https://example.org | 2026-01-01\n"), "the token registry was "},
	}
	accepted := map[string]string{
		"concurrency": "7", "host-rate": "9", "ip-rate": "9", "rate": "9", "dns-rate": "9",
		"timeout": "9s", "connect-timeout": "2s", "tls-timeout": "3s", "header-timeout": "4s", "retries": "1",
		"retry-after": "1s", "max-retry-after": "2s",
		"resolver": "127.0.0.1:1", "connect-to": "::192.0.2.1:9", "ca-file": file("other.pem", string(web.CAPEM())),
		"opt-out": file("opt-out.txt", "nobody.example\n"), "rates": file("rates.txt", "192.0.2.0/24 5\n"),
		"date": "2020-01-01", "part-rows": "9", "part-age": "9s", "progress": "log", "log-format": "json",
		"log-level": "debug", "quiet": "true", "allow-empty": "true", "max-error-rate": "0.9",
		"cpuprofile": "", "metrics-addr": "127.0.0.1:0", "metrics-file": filepath.Join(folder, "scan.prom"),
		"warc-out": filepath.Join(folder, "archive"), "repair": "true", "no-compact": "true", "no-publish": "true",
		"accept-list": "true",
	}
	// Flags that lead to another scan, or to no scan. For shares see TestSharesAreOneScan.
	other := []string{"help", "out", "fields", "scan-id", "restart", "dry-run", "config", "print-config", "shard",
		"workers", "collect"}
	flags := (&app{}).scanCommand().Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		change, isRefused := refused[f.Name]
		value, isAccepted := accepted[f.Name]
		switch {
		case slices.Contains(other, f.Name):
			return
		case isRefused == isAccepted:
			t.Errorf("--%s: say whether a scan can be resumed with another value", f.Name)
		case isRefused:
			if code, text := scan([]string{list}, "--"+f.Name+"="+change.now); code != exitFailed ||
				!strings.Contains(text, "cannot resume scan s: "+change.says) ||
				!strings.Contains(text, "begin it anew with --restart, or give another --scan-id") {
				t.Errorf("--%s=%s: exit code %d\n%s", f.Name, change.now, code, text)
			}
		default:
			if code, text := scan([]string{list}, "--"+f.Name+"="+value); code != 0 ||
				strings.Contains(text, "already_kept") == (f.Name == "quiet") {
				t.Errorf("--%s=%s: exit code %d\n%s", f.Name, value, code, text)
			}
		}
		delete(refused, f.Name)
		delete(accepted, f.Name)
	})
	if len(refused)+len(accepted) > 0 {
		t.Errorf("no such flags: %v %v", refused, accepted)
	}
	for name := range changesAnswers {
		if flags.Lookup(name) == nil && (&app{}).importCommand().Flags().Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}

	// Lists: only their contents count, in their order.
	sizes := func(path string) string {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("(%s, %d bytes)", path, info.Size())
	}
	longer := file("longer.csv", "domain,label\na.ok.zoo.test,x\nb.not-found.zoo.test,y\nc.ok.zoo.test,z\n")
	f := func(lists []string, says ...string) {
		t.Helper()
		code, text := scan(lists)
		if len(says) == 0 && code != 0 {
			t.Errorf("%q: exit code %d\n%s", lists, code, text)
		}
		for _, want := range append(says, "begin it anew with --restart, or give another --scan-id") {
			if len(says) > 0 && (code != exitFailed || !strings.Contains(text, want)) {
				t.Errorf("%q: exit code %d, nothing of %q in\n%s", lists, code, want, text)
			}
		}
	}
	renamed := file("renamed.csv", "domain,label\na.ok.zoo.test,x\nb.not-found.zoo.test,y\n")
	f([]string{renamed})
	f([]string{longer}, "the fingerprint of input "+longer+" was ", sizes(renamed), " and is now ", sizes(longer))
	f([]string{list, longer}, `the number of inputs was "1 (`+renamed+`)" and is now "2 (`+list+", "+longer+`)"`)
	if now := web.Stats().Requests; now != asked {
		t.Errorf("%d hosts were asked again", now-asked)
	}
}

// TestSecondProcess shows the error of a second process that would write the same scan. The lock of a killed process
// does not count, even if its file stays, and whichever process wrote it.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, simweb.Config{Seed: 4, Only: []string{"silent"}})
	out := filepath.Join(t.TempDir(), "out")
	lock := filepath.Join(out, "_scans", "s", "lock")
	first := w.scan(t, out, "--timeout", "50s")
	first.await(t, "connections", func() bool { return w.web.Stats().Accepts >= 3 })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--restart"}, {"--part-rows", "7"}} {
		second := w.scan(t, out, flags...)
		second.exits(t, exitFailed)
		second.says(t, "scan s is being written by process "+strconv.Itoa(first.cmd.Process.Pid)+" on "+strconv.Quote(host)+
			" since 2", "wait for it, or give another --scan-id")
	}
	if after, err := os.ReadFile(lock); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the lock said %q, and says %q (%v)", before, after, err)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.exits(t, -1)
	if _, err := os.Stat(lock); err != nil {
		t.Errorf("a killed process took its lock's file along: %v", err)
	}
	// The file of a lock that no process holds does not matter, whatever process and machine wrote it.
	if err := os.WriteFile(lock, []byte(`{"pid":1,"host":"elsewhere.example","started_at":"2026-01-01T00:00:00Z"}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	w.scan(t, out, "--timeout", "200ms", "--retries", "0", "--allow-empty").exits(t, 0)
	if _, err := os.Stat(lock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock's file is left: %v", err)
	}
}
