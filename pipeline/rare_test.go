package pipeline

import (
	"testing"
	"time"
)

// A rare key holds its cell for ten seconds, so that others in it continue, and waits for all of its interval itself.
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
	step("the rare key", 1100*s, at(1, 0.001), true)

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
	if l.take(token{more, slower}, 101*time.Second) > 0 || len(l.rare.due) != maxRare ||
		l.next(token{more + tableCells, paceOf(1)}) < 1000*time.Second {
		t.Error("one more is not counted")
	}
	if l.take(token{late, slower}, 300*time.Second) > 0 || len(l.rare.due) != 1 ||
		l.next(token{late, slower}) < 1300*time.Second {
		t.Errorf("%d are remembered after all had passed", len(l.rare.due))
	}
}
