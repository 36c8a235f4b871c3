package pipeline

import (
	"fmt"
	"testing"
	"time"
)

// A rare key holds its cell for ten seconds, so that others in it go on, and waits for all of its interval itself. Its rate may change
// meanwhile, and is counted from its last start.
func TestRareKey(t *testing.T) {
	l := newLimit(1, 1)
	at := func(k key, perSecond float64) token { return token{k, paceOf(perSecond)} }
	takes := func(now time.Duration, t token) bool { return l.take(t, now) <= 0 }
	step := func(what string, now time.Duration, tok token, want bool) {
		t.Helper()
		if early := l.next(tok) > now; early == want {
			t.Errorf("%s: next says otherwise", what)
		}
		if got := takes(now, tok); got != want {
			t.Errorf("%s: starts %v", what, got)
		}
	}
	s := time.Second
	step("the first of a rare key", 1*s, at(1, 0.001), true)
	step("another in its cell", 10*s, at(2, 1), false)
	step("another in its cell", 12*s, at(2, 1), true)
	step("the rare key", 900*s, at(1, 0.001), false)
	step("the rare key at a lower rate", 1100*s, at(1, 0.0001), false)
	step("the rare key at a higher rate", 1100*s, at(1, 0.002), true)
	step("at a rate that is not rare, right after", 1105*s, at(1, 50), false)
	step("at a rate that is not rare", 1111*s, at(1, 50), true)
	step("again", 1111*s+100*time.Millisecond, at(1, 50), true)

	step("before it is given back", 5000*s, at(1, 0.001), true)
	l.giveBack(at(1, 0.001))
	step("after it was given back", 5001*s, at(1, 0.001), true)
}

// Where there are too many rare keys, one more holds its cell for all of its interval, until some have passed.
func TestRareKeysAreBounded(t *testing.T) {
	l := newLimit(1, tableCells)
	slow, slower := paceOf(0.01), paceOf(0.001)
	for k := range key(maxRare) {
		if wait := l.take(token{k, slow}, 100*time.Second); wait > 0 {
			t.Fatalf("key %d waits for %v", k, wait)
		}
	}
	const more, late = key(maxRare), key(maxRare + 1)
	if l.take(token{more, slower}, 101*time.Second) > 0 || len(l.rare.last) != maxRare || l.next(token{more + tableCells, paceOf(1)}) < 1000*time.Second {
		t.Error("one more is not counted")
	}
	if l.take(token{late, slower}, 300*time.Second) > 0 || len(l.rare.last) != 1 || l.next(token{late, slower}) < 1300*time.Second {
		t.Errorf("%d are remembered after all had passed", len(l.rare.last))
	}
}

// Rates that change hold for rare keys: a raised one within ten seconds, a lowered one from the last request on, and one that stays as
// if nothing had changed.
func TestRareRatesChange(t *testing.T) {
	f := func(name string, before, after listed, want time.Duration) {
		t.Helper()
		w, s := &web{latency: 30 * time.Millisecond, address: func(string) string { return "10.0.0.1" }}, &shelf{}
		_, err := scan(t, Config{Concurrency: 50, Rates: before}, w, &list{hosts: hosts(20, "h%d.a.test")}, s, func(p *Pipeline) {
			for n := range 5 {
				time.Sleep(3 * time.Second)
				p.SetRates(listed{"." + fmt.Sprint(n) + ".test": 1, ".a.test": before[".a.test"], "10.0.0.1": before["10.0.0.1"]})
			}
			p.SetRates(after)
		})
		if err != nil || len(s.sites) != 20 {
			t.Fatalf("%s: kept %d, error %v", name, len(s.sites), err)
		}
		if at := w.asked[1].at - w.asked[0].at; at != want {
			t.Errorf("%s: the second is asked %v after the first; want %v", name, at, want)
		}
	}
	const s = time.Second
	f("a domain faster", listed{".a.test": 0.001}, listed{".a.test": 50}, 15*s)
	f("an address faster", listed{"10.0.0.1": 0.001}, listed{"10.0.0.1": 50}, 15*s)
	f("an address no longer", listed{"10.0.0.1": 0.001}, listed{}, 15*s)
	f("a domain slower", listed{".a.test": 0.05}, listed{".a.test": 0.01}, 100*s)
	f("an address slower", listed{"10.0.0.1": 0.05}, listed{"10.0.0.1": 0.01}, 100*s)
	f("as it was", listed{".a.test": 0.05, "10.0.0.1": 0.02}, listed{".a.test": 0.05, "10.0.0.1": 0.02}, 50*s)
}
