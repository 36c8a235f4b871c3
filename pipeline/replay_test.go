package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// shelved is an Archive over host names: each answered after as many hops as its name has letters.
type shelved struct {
	list
	recalled int
	during   func(n int) // what happens when so many were recalled before; nil: nothing
}

func (s *shelved) Recall(r *exchange.Response) {
	if s.during != nil {
		s.during(s.recalled)
	}
	s.recalled++
	r.Outcome, r.Status, r.Attempts = exchange.Answered, 200, 1
	r.Hops = make([]exchange.Hop, len(s.hosts[s.next-1]))
}

func TestReplayKeepsEveryAnswerOnce(t *testing.T) {
	a, s := &shelved{list: list{hosts: hosts(5000, "h%d.example.com")}}, &shelf{}
	p := NewReplay(Config{Skip: func(seq uint64) bool { return seq%5 == 0 }}, a, noJudge{}, s)
	if err := p.Run(t.Context()); err != nil || len(s.sites) != 4000 || a.recalled != 4000 {
		t.Fatalf("kept %d of %d that were recalled, error %v; want 4000", len(s.sites), a.recalled, err)
	}
	seen := map[uint64]bool{}
	for _, k := range s.sites {
		if seen[k.seq] || k.input != a.hosts[k.seq] || k.hops != len(k.input) || k.outcome != exchange.Answered ||
			k.attempts != 1 {
			t.Fatalf("%+v, which is kept twice (%v) or mixed up", k, seen[k.seq])
		}
		seen[k.seq] = true
	}
	progress := p.Progress()
	if progress.Fed.Load() != 4000 || progress.Skipped.Load() != 1000 || progress.Statuses[2].Load() != 4000 ||
		!progress.ListDone() {
		t.Errorf("fed %d, skipped %d", progress.Fed.Load(), progress.Skipped.Load())
	}
}

// TestReplayEnds ends a replay before its archive in several ways: recalled answers are kept.
func TestReplayEnds(t *testing.T) {
	gone, full := errors.New("gone"), errors.New("full")
	f := func(a *shelved, s *shelf, want error, text string, kept int, during func(*Pipeline, context.CancelFunc)) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.hosts = hosts(1000, "h%d.example.com")
		p := NewReplay(Config{}, a, noJudge{}, s)
		if during != nil {
			a.during = func(n int) {
				if n == 500 {
					during(p, cancel)
				}
			}
		}
		err := p.Run(ctx)
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), text) || len(s.sites) != kept {
			t.Errorf("kept %d of %d, error %v; want %d and %v", len(s.sites), a.recalled, err, kept, want)
		}
		if s.fail == nil && a.recalled != len(s.sites) {
			t.Errorf("%d were recalled, and %d kept", a.recalled, len(s.sites))
		}
	}
	f(&shelved{}, &shelf{}, nil, "", 1000, nil)
	f(&shelved{list: list{err: gone}}, &shelf{}, gone, "cannot read the list: gone", 1000, nil)
	f(&shelved{}, &shelf{fail: full, after: 100}, full, "cannot keep h10", 100, nil)
	f(&shelved{}, &shelf{}, ErrStopped, "", 501, func(p *Pipeline, _ context.CancelFunc) { p.Stop() })
	f(&shelved{}, &shelf{}, context.Canceled, "", 501, func(_ *Pipeline, cancel context.CancelFunc) { cancel() })
}

// TestReplaysAddUp runs replays that share their progress: their counts add up, and a stopped replay does not count as
// done because an earlier one was.
func TestReplaysAddUp(t *testing.T) {
	var progress Progress
	run := func(during func(*Pipeline)) error {
		a := &shelved{list: list{hosts: hosts(1000, "h%d.example.com")}}
		p := NewReplay(Config{Progress: &progress}, a, noJudge{}, &shelf{})
		a.during = func(n int) {
			if n == 500 && during != nil {
				during(p)
			}
		}
		return p.Run(t.Context())
	}
	if err := run(nil); err != nil || progress.Kept.Load() != 1000 {
		t.Fatalf("kept %d, error %v", progress.Kept.Load(), err)
	}
	if err := run((*Pipeline).Stop); !errors.Is(err, ErrStopped) || progress.Kept.Load() != 1501 || progress.ListDone() {
		t.Errorf("kept %d, error %v, done %v; want 1501 and %v", progress.Kept.Load(), err, progress.ListDone(), ErrStopped)
	}
}
