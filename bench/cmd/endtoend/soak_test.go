package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSoak soaks for a moment, and reads a bad network's report beside it. What is looked at is that all was done and every row is
// right: whether something grows, a moment does not tell.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and scans for half a minute")
	}
	t.Chdir("../../..")
	file := filepath.Join(t.TempDir(), "soak.md")
	l, _ := run(t.Context(), []string{"-only", "soak,chaos", "-duration", "1s", "-soak", "60", "-chaos", "400", "-shared", "none", "-o", file}, io.Discard, os.Stderr)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	report := string(text)
	if report != l.report.String() {
		t.Error("the file has another report")
	}
	f := func(pattern string, least int) {
		t.Helper()
		if got := len(regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllString(report, -1)); got < least {
			t.Errorf("%d lines are %q, want %d", got, pattern, least)
		}
	}
	f(`## soak: 60 origins again and again for 1s, in one process`, 1)
	f(`\| \d+s \| 3 \| 180 \| \d+\.\d MB \| \d+ \| \d+ \| 0 \| \d+ MB \|`, 1)
	f(`- temporary files: 0.0, and before 0.0; at most 0.0: yes`, 1)
	f(`- (live heap|goroutines|open files|resident memory): .*: (yes|\*\*NO\*\*)`, 4)
	f(`- every origin of every run has exactly one row, equal to the truth \(180 rows\): yes`, 1)
	f(`## chaos: \d+ origins through a relay`, 1)
	f(`- every origin has exactly one row \((\d+) of \d+\): yes`, 1)
	f(`- each is true \(\d+\) or explained by a fault of its connection \([1-9]\d*\): yes`, 1)
	f(`- none took longer than its time-outs allow: yes`, 1)
	f(`Connections by what was done to them: none \d+, latency \d+, .*`, 1)
	f(`(SKIPPED: no two network namespaces .*|.*Both ways 2 % of them are lost.*|The kernel's netem, both ways.*)`, 1)
	if strings.Contains(report, "rows in") && strings.Count(report, ": **NO**") > 0 && !regexp.MustCompile(`(live heap|resident memory|goroutines|open files): .*\*\*NO\*\*`).MatchString(report) {
		t.Error("something is not as it must be")
	}
	if t.Failed() {
		t.Log(report)
	}
}

// What grows is told from what comes and goes.
func TestFlat(t *testing.T) {
	f := func(name string, heap func(i int) float64, want bool) {
		t.Helper()
		var all []sample
		for i := range 15 {
			all = append(all, sample{at: time.Duration(i) * time.Minute, heap: uint64(heap(i) * (1 << 20)), goroutines: 6, files: 13, resident: 100 << 20})
		}
		for _, v := range flat(all) {
			if is := v.ok; is != (want || !strings.HasPrefix(v.text, "live heap")) {
				t.Errorf("%s: %s: %t", name, v.text, is)
			}
		}
	}
	f("flat", func(int) float64 { return 20 }, true)
	f("up and down", func(i int) float64 { return 20 + float64(i%2) }, true)
	f("warming up", func(i int) float64 { return min(30, 10+10*float64(i)) }, true)
	f("one that is odd", func(i int) float64 { return 20 + float64(i/14*50) }, true)
	f("a tenth a minute", func(i int) float64 { return 20 + 2*float64(i) }, false)
	f("slowly", func(i int) float64 { return 20 + 0.5*float64(i) }, false)

	leak := func(set func(s *sample, i int), what string) {
		t.Helper()
		var all []sample
		for i := range 15 {
			var s sample
			set(&s, i)
			all = append(all, s)
		}
		for _, v := range flat(all) {
			if v.ok == strings.HasPrefix(v.text, what) {
				t.Errorf("%s grows: %s: %t", what, v.text, v.ok)
			}
		}
	}
	leak(func(s *sample, i int) { s.goroutines = 6 + 2*i }, "goroutines")
	leak(func(s *sample, i int) { s.files = 13 + 2*i }, "open files")
	leak(func(s *sample, i int) { s.tmps = i / 5 }, "temporary files")
	leak(func(s *sample, i int) { s.resident = int64(i) * 50 << 20 }, "resident memory")
}
