package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/terminal/metrics"
)

// A scan that waits for a silent host is scraped: it shows its progress so far, and keeps its address to itself. Its
// page ends with it.
func TestMetricsPage(t *testing.T) {
	inBubble(t, 1, simweb.Config{Seed: 6}, func(t *testing.T, w *world) {
		if err := os.WriteFile(w.list, []byte("ok.zoo.test\nnxdomain.zoo.test\nsilent.zoo.test\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const address = "127.0.0.1:9000"
		client := &http.Client{Transport: &http.Transport{DialContext: w.client().DialContext, DisableKeepAlives: true}}
		shown := func() (string, error) {
			response, err := client.Get("http://" + address + "/metrics")
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			return string(text), err
		}
		p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--timeout", "50s", "--metrics-addr", address)
		time.Sleep(10 * time.Second)
		p.says(t, "msg=metrics url=http://"+address+"/metrics")
		text, err := shown()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"bulkscan_origins_kept_total 2\n", `bulkscan_outcomes_total{outcome="answered"} 1` + "\n",
			`bulkscan_outcomes_total{outcome="dns_not_found"} 1` + "\n",
			`bulkscan_statuses_total{class="2xx"} 1` + "\n", "bulkscan_list_done 1\n", "bulkscan_origins_fed_total 3\n",
			`bulkscan_scan_state{state="running"} 1` + "\n",
			"bulkscan_dns_lookups_total ", "go_goroutines ",
		} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("nothing of %q in\n%s", want, text)
			}
		}

		// A second scan at this address reports this before it fetches a site.
		before := w.web.Stats().Requests
		second := w.scan(t, filepath.Join(t.TempDir(), "out"), "--metrics-addr", address)
		second.exits(t, exitUsage)
		second.says(t, "--metrics-addr "+address+": address already in use")
		if asked := w.web.Stats().Requests - before; asked != 0 {
			t.Errorf("the second scan asked %d times", asked)
		}

		p.signal(t, os.Interrupt)
		time.Sleep(time.Second)
		p.signal(t, os.Interrupt)
		p.exits(t, exitInt)
		if _, err := shown(); err == nil {
			t.Error("the page is there although the scan has ended")
		}
	})
}

// The file says how the scan ended, also if it was interrupted.
func TestMetricsFileOfInterrupted(t *testing.T) {
	inBubble(t, 300, simweb.Config{Seed: 7, Only: []string{"ok"}}, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "scan.prom")
		p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--rate", "50", "--metrics-file", path)
		time.Sleep(time.Second)
		p.signal(t, os.Interrupt)
		p.exits(t, exitInt)
		kept := fmt.Sprintf("\nbulkscan_origins_kept_total %d\n", w.web.Stats().Requests)
		holdsLines(t, path, "\nbulkscan_scan_state{state=\"interrupted\"} 1\n", "\nbulkscan_scan_info{scan_id=\"s\"} 1\n",
			kept)
	})
}

// holdsLines checks that a file has each of the texts.
func holdsLines(t *testing.T, path string, want ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range want {
		if !strings.Contains(string(text), want) {
			t.Errorf("nothing of %q in\n%s", want, text)
		}
	}
}

// Throttled addresses are logged once, at the end, and counted.
func TestThrottledInLog(t *testing.T) {
	inBubble(t, 3, simweb.Config{Seed: 4, Only: []string{"flaky-429"}}, func(t *testing.T, w *world) {
		path := filepath.Join(t.TempDir(), "scan.prom")
		p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--metrics-file", path)
		p.exits(t, 0)
		p.says(t, " throttled=3 ")
		holdsLines(t, path, "\nbulkscan_exchanges_throttled_total 3\n")
	})
}

// A silent name server is logged while the scan continues without it, and once more at the end. The rate makes the scan
// last long enough for the server to be suspected, probed, and found down.
func TestSilentNameServerInLog(t *testing.T) {
	inBubble(t, 60, simweb.Config{Seed: 8, Only: []string{"ok"}}, func(t *testing.T, w *world) {
		const addr = "127.0.0.1:5300"
		silent, err := w.net.ListenPacket(netip.MustParseAddrPort(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		p := w.scan(t, filepath.Join(t.TempDir(), "out"), "--resolver", addr, "--dns-rate", "15", "--log-level", "debug")
		p.exits(t, 0)
		p.says(t, "kept=60", `level=WARN msg="name server does not answer" server=`+addr,
			"dns.lookups=", `dns.servers="`+addr, `level=DEBUG msg="name server" addr=`+addr+" questions=")
	})
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
