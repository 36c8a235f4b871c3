package page

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestScales checks the ticks of scales: they are round numbers, and the last holds the greatest value.
func TestScales(t *testing.T) {
	shares := func(most float64, want string) {
		t.Helper()
		top, step := niceScale(most)
		if got := fmt.Sprintf("%s by %s", round(top), round(step)); got != want {
			t.Errorf("shares to %v: %s, want %s", most, got, want)
		}
	}
	shares(0, "0.1% by 0.1%")
	shares(0.0004, "0.1% by 0.1%")
	shares(0.2, "20% by 5%")
	shares(0.201, "25% by 5%")
	shares(0.97, "100% by 20%")
	shares(1, "100% by 20%")

	counts := func(most int64, want string) {
		t.Helper()
		c := newColumns("x", "site", []bin{{label: "a", sites: most, class: "blocked"}})
		var labels []string
		for _, l := range c.Y {
			labels = append(labels, l.Label)
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("columns of %d: %s, want %s", most, got, want)
		}
	}
	counts(0, "0 1")
	counts(1, "0 1")
	counts(7, "0 2 4 6 8")
	counts(193, "0 50 100 150 200")
	counts(1565, "0 500 1,000 1,500 2,000")
	counts(1_000_000, "0 200,000 400,000 600,000 800,000 1,000,000")

	amounts := func(low, high float64, unit, want string) {
		t.Helper()
		var labels []string
		from, to, ticks := powers(low, high, unit)
		if from > low || to < high || ticks[len(ticks)-1].Label != amount(to, unit) || ticks[0].At != "0%" ||
			ticks[len(ticks)-1].At != "100%" {
			t.Errorf("%v to %v %s: the scale is from %v to %v, its ticks %v", low, high, unit, from, to, ticks)
		}
		for _, tick := range ticks {
			labels = append(labels, tick.At+" "+tick.Label)
		}
		if got := strings.Join(labels, ", "); got != want {
			t.Errorf("%v to %v %s: %s, want %s", low, high, unit, got, want)
		}
	}
	amounts(8, 32, "B", "0% 8 B, 50% 16 B, 100% 32 B")
	amounts(8, 8, "B", "0% 8 B, 100% 16 B")
	amounts(math.Exp2(6.5), math.Exp2(8.5), "ms", "0% 64 ms, 33.33% 128 ms, 66.67% 256 ms, 100% 512 ms")
	amounts(1, 1<<20, "B",
		"0% 1 B, 14.29% 8 B, 28.57% 64 B, 42.86% 512 B, 57.14% 4 KiB, 71.43% 32 KiB, 85.71% 256 KiB, 100% 2 MiB")
}

// TestPercent checks that only a share of 0 looks like 0, and only a share of all looks like all.
func TestPercent(t *testing.T) {
	f := func(share float64, want string) {
		t.Helper()
		if got := percent(share); got != want {
			t.Errorf("%v: %s, want %s", share, got, want)
		}
	}
	f(0, "0%")
	f(0.00001, "<0.1%")
	f(-0.00001, ">-0.1%")
	f(0.2005, "20.1%")
	f(0.99999, ">99.9%")
	f(1, "100%")
	f(math.NaN(), "–")
}

// TestColumnsCutOff checks that a bin that is cut off does not set the scale, and that empty bins have no bar.
func TestColumnsCutOff(t *testing.T) {
	c := newColumns("x", "site", []bin{{label: "none", sites: 5000, class: "open", cut: true},
		{label: "one", sites: 10, class: "blocked", gap: true}, {label: "two", class: "blocked"}})
	got := ""
	for _, b := range c.Bars {
		got += fmt.Sprintf("%s at %s, %s high: %s\n", b.Class, b.X, b.H, b.Title)
	}
	const want = "open at 0%, 200 high: none: 5,000 sites\nblocked at 50%, 200 high: one: 10 sites\n"
	if got != want {
		t.Errorf("bars:\n%s, want\n%s", got, want)
	}
}

// TestColumnsBreak checks that an axis leaves out long runs of empty bins and says so, and labels the bins at both ends
// of what is left out.
func TestColumnsBreak(t *testing.T) {
	f := func(want string, filled ...int) {
		t.Helper()
		bins := make([]bin, filled[len(filled)-1]+1)
		for i := range bins {
			bins[i] = bin{tick: fmt.Sprint(i), class: "blocked"}
		}
		for _, i := range filled {
			bins[i].sites = 1
		}
		c := newColumns("x", "site", bins)
		var labels []string
		for _, x := range c.X {
			labels = append(labels, x.Label)
		}
		if got := fmt.Sprintf("%d bars, %d breaks, %s", len(c.Bars), len(c.Breaks), strings.Join(labels, " ")); got != want {
			t.Errorf("bins %v: %s, want %s", filled, got, want)
		}
	}
	f("2 bars, 0 breaks, 0 8", 0, 8)
	f("2 bars, 1 breaks, 0 9", 0, 9)
	f("3 bars, 1 breaks, 0 160 167", 0, 160, 167)
	f("4 bars, 2 breaks, 0 50 99", 0, 1, 50, 99)
	f("1 bars, 1 breaks, 20", 20)
}

// TestLines checks that a gap breaks a line, that the labels at the ends of lines do not overlap, and that all stay
// inside.
func TestLines(t *testing.T) {
	flat := func(share float64) []point { return []point{{at: 0, share: share}, {at: 1, share: share}} }
	broken := []point{{at: 0, share: 0.1}, {at: 0.25, share: 0.1}, {at: 0.5, gap: true}, {at: 0.75, share: 0.2},
		{at: 1, share: 0.2}}
	l := newLines("x", nil, []string{"a", "b", "c", "d"}, [][]point{broken, flat(0.2), flat(0.199), flat(0)})
	if want := "M0 110L250 110M750 0L1000 0"; l.Series[0].Path != want {
		t.Errorf("the broken line is %s, want %s", l.Series[0].Path, want)
	}
	var places []float64
	for _, s := range l.Series {
		var at float64
		if _, err := fmt.Sscan(s.LabelAt, &at); err != nil {
			t.Fatal(err)
		}
		places = append(places, at)
	}
	for i, at := range places {
		if at > linesHeight+4 {
			t.Errorf("label %d is at %v, below the plot", i, at)
		}
		for j := range i {
			if math.Abs(at-places[j]) < labelRoom-0.1 {
				t.Errorf("labels %d and %d are at %v and %v", j, i, places[j], at)
			}
		}
	}
}
