package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/metrics"
	"github.com/bulkscan/bulkscan/internal/simweb"
)

// A scan that waits for a silent host is scraped, shows what it has done so far, and lets nobody else have its address. Its page
// ends with it.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, simweb.Config{Seed: 6})
	if err := os.WriteFile(w.list, []byte("ok.zoo.test\nnxdomain.zoo.test\nsilent.zoo.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--timeout", "50s", "--metrics-addr", "127.0.0.1:0")

	var url string
	p.await(t, "word of where the metrics are", func() bool {
		found := regexp.MustCompile(`msg=metrics url=(http://127\.0\.0\.1:\d+/metrics)`).FindStringSubmatch(p.stderr.String())
		if found != nil {
			url = found[1]
		}
		return found != nil
	})
	shown := func() string {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	has := func(lines ...string) bool {
		text := shown()
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				return false
			}
		}
		return true
	}
	p.await(t, "counts of two origins", func() bool {
		return has("bulkscan_origins_kept_total 2", `bulkscan_outcomes_total{outcome="answered"} 1`, `bulkscan_outcomes_total{outcome="dns_not_found"} 1`,
			`bulkscan_statuses_total{class="2xx"} 1`, "bulkscan_list_done 1", "bulkscan_origins_fed_total 3", `bulkscan_scan_state{state="running"} 1`)
	})
	if text := shown(); !strings.Contains(text, "\nbulkscan_dns_lookups_total ") || !strings.Contains(text, "\ngo_goroutines ") {
		t.Errorf("the page is\n%s", text)
	}

	// A second scan at this address is told so before it asks anybody.
	before, address := w.web.Stats().Requests, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	second := w.scan(t, filepath.Join(t.TempDir(), "out"), "--metrics-addr", address)
	second.exits(t, exitUsage)
	second.says(t, "--metrics-addr "+address+": address already in use")
	if asked := w.web.Stats().Requests - before; asked != 0 {
		t.Errorf("the second scan asked %d times", asked)
	}

	p.signal(t, os.Interrupt)
	p.await(t, "word of the first interrupt", func() bool { return strings.Contains(p.stderr.String(), "once more to abort") })
	p.signal(t, os.Interrupt)
	p.exits(t, exitInt)
	if response, err := http.Get(url); err == nil {
		_ = response.Body.Close()
		t.Error("the page is there although the scan has ended")
	}
}

// The file says how the scan ended, also one that was interrupted.
func TestMetricsFileOfInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 300, simweb.Config{Seed: 7, Only: []string{"ok"}})
	path := filepath.Join(t.TempDir(), "scan.prom")
	p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--rate", "50", "--metrics-file", path)
	p.await(t, "requests", func() bool { return w.web.Stats().Requests >= 5 })
	p.signal(t, os.Interrupt)
	p.exits(t, exitInt)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := fmt.Sprintf("\nbulkscan_origins_kept_total %d\n", w.web.Stats().Requests)
	for _, want := range []string{"\nbulkscan_scan_state{state=\"interrupted\"} 1\n", "\nbulkscan_scan_info{scan_id=\"s\"} 1\n", kept} {
		if !strings.Contains(string(text), want) {
			t.Errorf("nothing of %q in\n%s", want, text)
		}
	}
}

// Throttled addresses are told of once, at the end, and counted.
func TestThrottledInLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, simweb.Config{Seed: 4, Only: []string{"flaky-429"}})
	path := filepath.Join(t.TempDir(), "scan.prom")
	p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--metrics-file", path)
	p.exits(t, 0)
	p.says(t, " throttled=3 ")
	text, err := os.ReadFile(path)
	if want := "\nbulkscan_exchanges_throttled_total 3\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("nothing of %q in\n%s%v", want, text, err)
	}
}

// A name server that keeps silent is told of while the scan goes on without it, and once more at the end.
// The rate makes the scan last for long enough that the server is suspected, asked for the root, and found down.
func TestSilentNameServerInLog(t *testing.T) {
	notShort(t)
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	w := newWorld(t, 60, simweb.Config{Seed: 8, Only: []string{"ok"}})
	addr := silent.LocalAddr().String()
	p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--resolver", addr, "--dns-rate", "15", "--log-level", "debug")
	p.exits(t, 0)
	p.says(t, "kept=60", `level=WARN msg="name server does not answer" server=`+addr,
		"dns.lookups=", `dns.servers="`+addr, `level=DEBUG msg="name server" addr=`+addr+" questions=")
}

func TestStateAfter(t *testing.T) {
	f := func(err error, want metrics.State) {
		t.Helper()
		if got := stateAfter(err); got != want {
			t.Errorf("after %v the scan is %v, want %v", err, got, want)
		}
	}
	f(nil, metrics.Complete)
	f(&exitError{exitThreshold, errors.New("too many")}, metrics.Complete)
	f(&exitError{exitDamaged, errors.New("an archive")}, metrics.Complete)
	f(&exitError{exitInt, errors.New("interrupted")}, metrics.Interrupted)
	f(errors.Join(&exitError{exitTerm, nil}, nil), metrics.Interrupted)
	f(usagef("no such column"), metrics.Failed)
	f(io.ErrShortWrite, metrics.Failed)
}
