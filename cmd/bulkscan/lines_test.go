package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// TestShortLines checks that lines of --fields short have at most 300 bytes, for a host of each behaviour, by its own
// name and by a name of maximum length. Each line has the complete name, and lines with names of usual length have all
// fields.
func TestShortLines(t *testing.T) {
	inBubble(t, 1, simweb.Config{Seed: 1}, func(t *testing.T, w *world) {
		var hosts []string
		for _, b := range simweb.Behaviours() {
			host := b.Name + ".zoo.test"
			hosts = append(hosts, host)
			for len(host) < 251 {
				host = strings.Repeat("x", min(60, 252-len(host))) + "." + host
			}
			hosts = append(hosts, host)
		}
		if err := os.WriteFile(w.list, []byte(strings.Join(hosts, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		p := w.scan(t, "-", "--fields", "short", "--max-error-rate", "0")
		p.exits(t, 0)
		seen, longest := 0, 0
		for line := range strings.Lines(p.stdout.String()) {
			var row struct {
				Host, Finding string
				Star          *string `json:"star_verdict"`
				Score         *float64
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil || len(line) > 300 {
				t.Errorf("%d bytes, %v: %s", len(line), err, line)
			}
			if !slices.Contains(hosts, row.Host) || row.Finding == "" || len(row.Host) < 200 &&
				(row.Star == nil || row.Score == nil) {
				t.Errorf("something is missing in %s", line)
			}
			seen, longest = seen+1, max(longest, len(line))
		}
		if seen != len(hosts) || longest < 290 {
			t.Errorf("%d lines of %d hosts, the longest of %d bytes", seen, len(hosts), longest)
		}
	})
}
