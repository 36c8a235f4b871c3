package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
)

// TestBarLay shows the texts around a bar: the count comes first, and facts only if they leave room for the bar.
func TestBarLay(t *testing.T) {
	f := func(s barState, width int, pace float64, wantCount, wantFacts string) {
		t.Helper()
		count, facts := s.lay(width, pace, pace > 0)
		if count != wantCount || facts != wantFacts {
			t.Errorf("%+v in %d columns:\ngot  %q and %q\nwant %q and %q", s, width, count, facts, wantCount, wantFacts)
		}
		if room := width - len(count) - 1 - len(facts); room < minProgress-1 && s.total > 0 {
			t.Errorf("%d columns leave %d to the bar", width, room)
		}
	}
	long := barState{done: 12345, total: 1_000_000, about: true, facts: []string{"2,915 failed", "400 waiting",
		"8,230 with status 2xx"}}
	f(long, 39, 530, "12,345 of ~1,000,000 sites", "")
	f(long, 79, 530, "12,345 of ~1,000,000 sites", "  31 min left  1 %  530/s  2,915 failed")
	f(long, 119, 530, "12,345 of ~1,000,000 sites",
		"  31 min left  1 %  530/s  2,915 failed  400 waiting  8,230 with status 2xx")
	f(barState{done: 999, total: 1000}, 39, 5, "999 of 1,000 sites", "  1 s left")
	f(barState{done: 1000, total: 1000}, 79, 5, "1,000 of 1,000 sites", "  100 %  5/s")
	f(barState{done: 5}, 39, 5, "5 sites", "  5/s")                            // of a pipe, nobody knows the end
	f(barState{done: 5, total: 1000}, 79, 0, "5 of 1,000 sites", "  0 %  0/s") // no pace, no time
	f(barState{done: 980, total: 1000, unforeseen: "20 slow"}, 79, 5, "980 of 1,000 sites", "  20 slow  98 %  5/s")
	// half the tail more
	f(barState{done: 500, total: 1000, tail: 30 * time.Second}, 79, 5, "500 of 1,000 sites",
		"  1 min 55 s left  50 %  5/s")
	f(barState{done: 500, total: 1000, tail: 31 * time.Second}, 79, 5, "500 of 1,000 sites", "  50 %  5/s")
}

// TestPace shows the growth a second over the last half minute, which is steady if it was the same over its halves.
func TestPace(t *testing.T) {
	var p pace
	start := time.Unix(1_800_000_000, 0)
	f := func(second float64, done int64, want float64, steady bool) {
		t.Helper()
		if got, is := p.at(start.Add(time.Duration(second*float64(time.Second))), done); got != want || is != steady {
			t.Errorf("after %v s: %v a second, steady %v; want %v, %v", second, got, is, want, steady)
		}
	}
	f(0, 100, 0, false)
	f(0.5, 150, 100, false)
	f(2, 300, 100, false)
	f(20, 300, 10, false)
	f(32, 900, 20, false)
	f(62, 900, 0, false)
	f(72, 1200, 7.5, false)
	f(82, 1500, 12, false)
	f(92, 1800, 15, false)
	f(102, 2070, 29.25, true)
	f(112, 2325, 28.125, true)
	f(122, 2580, 27.6, true)
}

// TestBarOfScan shows the bar of a scan: sites that wait longer than others leave no estimate if they are many, and an
// uncertain end if they are few.
func TestBarOfScan(t *testing.T) {
	var p pipeline.Progress
	d := &Display{Progress: &p, Read: func() (int64, int64) { return 10, 100 }, Slots: 100, Longest: time.Minute}
	f := func(want barState) {
		t.Helper()
		got := d.bar()
		if got.done != want.done || got.total != want.total || got.about != want.about || got.unforeseen != want.unforeseen ||
			got.tail != want.tail || strings.Join(got.facts, "|") != strings.Join(want.facts, "|") {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	p.Fed.Store(1000)
	f(barState{total: 10_000, about: true, facts: []string{"0 failed", "0 with status 2xx"}})
	p.Retries.Store(1)
	f(barState{total: 10_000, about: true, facts: []string{"0 failed", "0 with status 2xx"}, tail: time.Minute})
	p.Kept.Store(500)
	p.Outcomes[exchange.Answered].Store(300)
	p.Statuses[2].Store(200)
	p.Waiting.Store(300)
	p.Silent.Store(30)
	p.Asleep.Store(10)
	facts := []string{"200 failed", "300 waiting", "40 slow or told to retry", "200 with status 2xx"}
	// 400 of all will wait, four for each slot.
	f(barState{done: 500, total: 10_000, about: true, facts: facts, tail: 5 * time.Minute})
	p.Asleep.Store(18)
	f(barState{done: 500, total: 10_000, about: true, unforeseen: "48 slow or told to retry", facts: []string{"200 failed",
		"300 waiting", "200 with status 2xx"}, tail: 348 * time.Second})
	p.Waiting.Store(400)
	f(barState{done: 500, total: 10_000, about: true, unforeseen: "400 waiting", facts: []string{"200 failed",
		"48 slow or told to retry", "200 with status 2xx"}, tail: 348 * time.Second})
	d.Read = func() (int64, int64) { return 10, 0 }
	f(barState{done: 500, facts: []string{"200 failed", "400 waiting", "48 slow or told to retry", "200 with status 2xx"},
		tail: time.Minute})
}
