//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/simweb"
)

// hotWorld runs a test in virtual time, against a web of two addresses, with a list of equally many hosts at each.
// Hosts below hot.test are at the hot address.
func hotWorld(t *testing.T, each int, do func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, 0, simweb.Config{Seed: 9, Addresses: 2, Only: []string{"ok"}, RecordAccepts: true},
		func(t *testing.T, w *world) {
			var list bytes.Buffer
			for i, host := range w.web.Names(each) {
				fmt.Fprintf(&list, "h%d.hot.test\n%s\n", i, host)
			}
			if err := os.WriteFile(w.list, list.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			do(t, w)
		})
}

// hasLoad checks the connections to an address: their number, the number in the busiest second, and the time from the
// first to the last.
func hasLoad(t *testing.T, load *simweb.Load, total, second int, last time.Duration) {
	t.Helper()
	if load == nil {
		t.Fatal("nothing has connected")
	}
	if took := load.Last.Sub(load.First).Round(100 * time.Millisecond); load.Total != total || load.Second != second ||
		took != last {
		t.Errorf("%s had %d connections in %v, %d in the busiest second; want %d, %v, %d", load.Name, load.Total, took,
			load.Second, total, last, second)
	}
}

// TestRatesOfTwoAddresses scans hosts at two addresses with a rate of their own: each gets that rate, as its server
// counts.
func TestRatesOfTwoAddresses(t *testing.T) {
	const each = 60
	hotWorld(t, each, func(t *testing.T, w *world) {
		rates := filepath.Join(t.TempDir(), "rates.txt")
		if err := os.WriteFile(rates, fmt.Appendf(nil, "%v 30\n127.0.0.0/8 12\n", w.web.HotAddr()), 0o666); err != nil {
			t.Fatal(err)
		}
		w.scan(t, filepath.Join(t.TempDir(), "out"), "--rates", rates, "--ip-rate", "1").exits(t, 0)
		record := w.web.Record()
		hasLoad(t, record.Hot, 60, 30, 2000*time.Millisecond)
		hasLoad(t, record.Address, 60, 12, 4900*time.Millisecond)
	})
}
