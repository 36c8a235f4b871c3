package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/store"
)

// TestYears scans and merges small years of both kinds.
func TestYears(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program and scans for seconds, which -short leaves out")
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-seed", "5", "-sockets", "40x12", "-generated", "1000x20"}, &out, os.Stderr); err != nil {
		t.Errorf("the run ended with %v\n%s", err, &out)
	}
	for pattern, n := range map[string]int{
		`## (sockets: 40 sites, 12|generated: 1000 sites, 20) nights`:             2,
		`\| \d+ \| \d+ \| \d+ \| \d+ \| [1-9]\d* \| \d+ \| 0 \| 0 \|`:             4, // each ledger is judged twice
		`- Outages seen .* flip: ([1-9]\d*)\. The policy came back after [1-9].*`: 4,
	} {
		if got := len(regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllString(out.String(), -1)); got != n {
			t.Errorf("%d lines are %q, want %d:\n%s", got, pattern, n, &out)
		}
	}
}

// TestMonth runs three nights by bulkscan nightly, of which one is killed and one is met by a clock that steps back.
func TestMonth(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program and scans for seconds, which -short leaves out")
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-seed", "5", "-sockets", "", "-generated", "", "-nightly", "60x3"}, &out, os.Stderr); err != nil {
		t.Errorf("the run ended with %v\n%s", err, &out)
	}
	for _, want := range []string{"| kill -9 in the middle of the scan, and a second run beside it | published | 2 |", "| the clock steps back by a week | published | 1 |", "\n3 nights, ", " 0 damaged, 0 leftovers"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

// TestHours runs six nights back to back.
func TestHours(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program and scans for seconds, which -short leaves out")
	}
	t.Setenv("TMPDIR", t.TempDir()) // which the run changes
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-sockets", "", "-generated", "", "-hours", "40x6"}, &out, os.Stderr); err != nil {
		t.Errorf("the run ended with %v\n%s", err, &out)
	}
	for _, want := range []string{"## back to back: 40 sites, 6 nights in ", "\n| goroutines at most | ", " and 0 temporary ones are left.", "\n6 nights, ", " 0 damaged, 0 leftovers"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

// TestJudge changes one episode, gap or policy of a true ledger, or one file of the script: the judge finds each.
func TestJudge(t *testing.T) {
	s, err := newScript(3, size{400, 24}, func(int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	y := &year{script: s, store: st, out: t.Output()}
	for n := range s.nights {
		if err := y.one(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := y.judge(t.Context()); err != nil {
		t.Fatal(err)
	}
	// flipped finds a site that flipped once, from one night to the next, before the change of observer.
	flipped := func(l *ledger) (site int) {
		return slices.IndexFunc(s.ids, func(id int64) bool {
			e := l.episodes[id]
			return len(e) == 3 && e[1].Cause == history.ByPolicy && e[2].Cause == history.ByObserver && e[1].ValidFrom == e[0].ValidTo+1 && e[1].Observations > 2
		})
	}
	f := func(name, want string, change func(l *ledger, e []history.Episode, site int)) {
		t.Helper()
		l, err := readLedger(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		site := flipped(l)
		change(l, l.episodes[s.ids[site]], site)
		v := judge(s, l)
		found := fmt.Sprintf("missing %d, false %d, differ %d", v.missing, v.untrue, v.differ)
		if v.ok() || found != want || len(v.examples) == 0 || !strings.Contains(v.examples[0], s.hosts[site]) {
			t.Errorf("%s: %s, want %s: %q", name, found, want, v.examples)
		}
	}
	f("a flip is a night late", "missing 1, false 1, differ 1", func(_ *ledger, e []history.Episode, _ int) {
		e[0].ValidTo++
		e[1].PreviousLast++
		e[1].ValidFrom++
	})
	f("a flip is not there", "missing 1, false 0, differ 1", func(l *ledger, e []history.Episode, site int) {
		e[0].ValidTo = e[1].ValidTo
		l.episodes[s.ids[site]] = slices.Delete(e, 1, 2)
	})
	f("a flip is invented", "missing 0, false 1, differ 1", func(l *ledger, e []history.Episode, site int) {
		last := e[1]
		e[1].ValidTo = last.ValidFrom
		last.PreviousLast, last.ValidFrom = last.ValidFrom, last.ValidTo
		l.episodes[s.ids[site]] = slices.Insert(e, 2, last)
	})
	f("the cause is another", "missing 1, false 0, differ 1", func(_ *ledger, e []history.Episode, _ int) { e[1].Cause = history.ByPresence })
	f("the policies are exchanged", "missing 1, false 0, differ 1", func(_ *ledger, e []history.Episode, _ int) {
		e[0].Policy, e[1].Policy = e[1].Policy, e[0].Policy
	})
	f("the change of observer is a flip", "missing 0, false 1, differ 1", func(_ *ledger, e []history.Episode, _ int) { e[2].Cause = history.ByPolicy })
	f("the change of observer is not there", "missing 0, false 0, differ 1", func(l *ledger, e []history.Episode, site int) {
		e[1].ValidTo = e[2].ValidTo
		l.episodes[s.ids[site]] = e[:2]
	})
	f("a failure is not counted", "missing 0, false 0, differ 1", func(_ *ledger, e []history.Episode, _ int) { e[1].Failures++ })
	f("a gap is invented", "missing 0, false 0, differ 1", func(l *ledger, _ []history.Episode, site int) {
		l.gaps[s.ids[site]] = append(l.gaps[s.ids[site]], history.Gap{Class: "unreachable", First: s.first, Last: s.first, Nights: 1})
	})
	f("the script has one flip less", "missing 0, false 1, differ 1", func(_ *ledger, _ []history.Episode, site int) {
		cells := slices.Clone(s.cells[site])
		t.Cleanup(func() { s.cells[site] = cells })
		for n := range s.cells[site] {
			c := &s.cells[site][n]
			if c.shown == c.file {
				c.shown = cells[0].file
			}
			c.file = cells[0].file
		}
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-sockets", "2000"}, {"-generated", "5x5"}, {"-generated", "0x30"}, {"-nightly", "5x2"}, {"-hours", "5x2"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err == nil || !strings.Contains(err.Error(), "cannot understand") {
			t.Errorf("year %v: %v", args, err)
		}
	}
}
