package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
)

// TestScanThroughABadNetwork scans a web through a network that delays, slows down, swallows, resets and closes
// connections, and loses questions to the name server. Each origin has exactly one row. Each row is true, or explained
// by the fault of its last connection. No exchange takes longer than its time-outs.
func TestScanThroughABadNetwork(t *testing.T) {
	notShort(t)
	const (
		seed    = 32
		timeout = 3 * time.Second
	)
	// Hosts that only fail at first count requests, and the network decides which requests reach them.
	shares := map[string]float64{"flaky-503": 0, "flaky-reset": 0, "dns-silent": 0, "silent": 0.002, "endless-1xx": 0}
	cfg := simweb.Config{Seed: seed, Addresses: 64, Slow: 300 * time.Millisecond, Hold: 4 * timeout, Shares: shares}
	inBubble(t, 0, cfg, func(t *testing.T, w *world) { scanThroughABadNetwork(t, w, seed, timeout) })
}

func scanThroughABadNetwork(t *testing.T, w *world, seed uint64, timeout time.Duration) {
	t.Helper()
	web := w.web
	bad, err := simweb.StartChaos(web, simweb.DefaultChaos(seed))
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	var hosts []string
	for rank, host := range web.Names(3000) {
		// the result of the other scheme would explain nothing
		hosts = append(hosts, []string{"http://", "https://"}[rank%2]+host)
	}
	if err := os.WriteFile(w.list, []byte(strings.Join(hosts, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--resolver", bad.DNSAddr().String(), "--timeout", timeout.String(), "--connect-timeout", "1500ms",
		"--concurrency", "300", "--retries", "1"}
	out := filepath.Join(t.TempDir(), "out")
	p := w.scanBy(t, out, bad.ConnectTo(), flags...)
	p.exits(t, 0)

	scan, err := latest(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	policy := simweb.DefaultPolicy()
	policy.TrustCA, policy.Retries = true, 1
	d := compare.Disturbance{Web: web, Policy: policy, Hosts: hosts, Faced: bad.Faced, Within: 2*timeout +
		20*time.Millisecond}
	hold := func(d compare.Disturbance) *compare.DisturbedResult {
		result, err := compare.Disturbed(t.Context(), scan, d)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := hold(d)
	if !result.OK() {
		t.Error(result)
	}
	// The same rows would be wrong for another network, late with other time-outs, and too many or too few for other
	// lists.
	calm, hasty, longer, shorter := d, d, d, d
	calm.Faced = func(string) []simweb.Fault { return nil }
	hasty.Within = time.Microsecond
	longer.Hosts = append(slices.Clone(hosts), "http://one-more.test")
	shorter.Hosts = hosts[1:]
	if r := hold(calm); r.OK() || r.Wrong != len(hosts)-result.True || len(r.Explained) > 0 {
		t.Errorf("without faults: %v", r)
	}
	if r := hold(hasty); r.OK() || r.Late == 0 {
		t.Errorf("with no time: %v", r)
	}
	if r := hold(longer); r.OK() || r.Missing != 1 {
		t.Errorf("of a longer list: %v", r)
	}
	if r := hold(shorter); r.OK() || r.Unknown != 1 {
		t.Errorf("of a shorter list: %v", r)
	}
	stats := bad.Stats()
	// A network that does nothing would explain nothing.
	for _, kind := range []simweb.FaultKind{simweb.FaultBlackhole, simweb.FaultReset, simweb.FaultClose} {
		if result.Explained[kind] == 0 {
			t.Errorf("no row is explained by %s", kind)
		}
	}
	for _, outcome := range []exchange.Outcome{exchange.Timeout, exchange.Reset, exchange.ClosedEarly} {
		if result.Outcomes[outcome.String()] == 0 {
			t.Errorf("no row has the outcome %s from a fault", outcome)
		}
	}
	if stats.Lost == 0 || result.True < len(hosts)/2 {
		t.Errorf("%d packets were lost, and %d rows are true", stats.Lost, result.True)
	}
	// The seed determines what happens to a connection.
	for i, host := range hosts[:200] {
		host = host[strings.Index(host, "://")+3:]
		for nth, f := range bad.Faced(host) {
			if f.Kind != simweb.FaultHole && f.Kind != simweb.FaultLoss && f != simweb.DefaultChaos(seed).FaultOf(host, nth) {
				t.Errorf("%d: connection %d of %s met %v", i, nth, host, fmt.Sprint(f))
			}
		}
	}
}
