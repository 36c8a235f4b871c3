package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// TestBarLay has what stands around a bar: what is counted comes first, and facts only where they leave it room.
func TestBarLay(t *testing.T) {
	f := func(s barState, width int, pace float64, wantCount, wantFacts string) {
		t.Helper()
		count, facts := s.lay(width, pace)
		if count != wantCount || facts != wantFacts {
			t.Errorf("%+v in %d columns:\ngot  %q and %q\nwant %q and %q", s, width, count, facts, wantCount, wantFacts)
		}
		if room := width - len(count) - 1 - len(facts); room < minProgress-1 && s.total > 0 {
			t.Errorf("%d columns leave %d to the bar", width, room)
		}
	}
	long := barState{done: 12345, total: 1_000_000, about: true, facts: []string{"2,915 failed", "400 waiting", "8,230 with status 2xx"}}
	f(long, 39, 530, "12,345 of ~1,000,000 sites", "")
	f(long, 79, 530, "12,345 of ~1,000,000 sites", "  31 min left  1 %  530/s  2,915 failed")
	f(long, 119, 530, "12,345 of ~1,000,000 sites", "  31 min left  1 %  530/s  2,915 failed  400 waiting  8,230 with status 2xx")
	f(barState{done: 999, total: 1000}, 39, 5, "999 of 1,000 sites", "  1 s left")
	f(barState{done: 1000, total: 1000}, 79, 5, "1,000 of 1,000 sites", "  100 %  5/s")
	f(barState{done: 5}, 39, 5, "5 sites", "  5/s")                            // of a pipe, nobody knows the end
	f(barState{done: 5, total: 1000}, 79, 0, "5 of 1,000 sites", "  0 %  0/s") // no pace, no time
	f(barState{done: 980, total: 1000, unforeseen: "20 slow"}, 79, 5, "980 of 1,000 sites", "  20 slow  98 %  5/s")
}

// TestPace has the growth a second over the last half minute.
func TestPace(t *testing.T) {
	var p pace
	start := time.Unix(1_800_000_000, 0)
	f := func(second float64, done int64, want float64) {
		t.Helper()
		if got := p.at(start.Add(time.Duration(second*float64(time.Second))), done); got != want {
			t.Errorf("after %v s: %v a second, want %v", second, got, want)
		}
	}
	f(0, 100, 0)
	f(0.5, 150, 100)
	f(2, 300, 100)
	f(20, 300, 10)
	f(32, 900, 20)
	f(62, 900, 0)
}

// TestBarOfScan has what the bar shows of a scan: silent sites that are left at the end leave no estimate.
func TestBarOfScan(t *testing.T) {
	var p pipeline.Progress
	d := &Display{Progress: &p, Read: func() (int64, int64) { return 10, 100 }}
	f := func(want barState) {
		t.Helper()
		got := d.bar()
		if got.done != want.done || got.total != want.total || got.about != want.about || got.unforeseen != want.unforeseen || strings.Join(got.facts, "|") != strings.Join(want.facts, "|") {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	p.Fed.Store(10)
	f(barState{total: 100, about: true, facts: []string{"0 failed", "0 with status 2xx"}})
	p.Kept.Store(5)
	p.Outcomes[exchange.Answered].Store(3)
	p.Statuses[2].Store(2)
	p.Waiting.Store(4)
	p.Deferred.Store(3)
	p.Asleep.Store(1)
	f(barState{done: 5, total: 100, about: true, facts: []string{"2 failed", "4 waiting", "4 slow or told to retry", "2 with status 2xx"}})
	d.Read = func() (int64, int64) { return 10, 0 }
	f(barState{done: 5, facts: []string{"2 failed", "4 waiting", "4 slow or told to retry", "2 with status 2xx"}})
}
