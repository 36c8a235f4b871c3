package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

type judgeFunc func(*audit.Site)

func (f judgeFunc) Judge(s *audit.Site) { f(s) }

// stallFor simulates a stall of that length until now, or at most a beat longer.
func (r *run) stallFor(d time.Duration) {
	time.Sleep(d)
	r.stalls.beat.Add(-int64(d + beatEvery))
}

// The result of an exchange or a look-up during a stall counts only if the stall cannot be its cause. A process that
// stalls all the time still ends.
func TestStall(t *testing.T) {
	const timeoutOf = 2 * time.Second
	type result struct {
		kept           exchange.Outcome
		status         int
		asked, lookups int
		attempts       int
		spoilt         uint64
	}
	// The process stalls in the first `times` exchanges, or look-ups, which end as given; all others end well.
	f := func(name string, times int, ends exchange.Response, next exchange.Next, lookup exchange.Lookup, want result) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			var r *run
			left := times
			w, s := &web{begun: time.Now(), latency: 100 * time.Millisecond, resolving: 10 * time.Millisecond}, &shelf{}
			if lookup != (exchange.Lookup{}) {
				w.lookup = func(string) (exchange.Lookup, bool) {
					if left == 0 {
						return exchange.Lookup{}, false
					}
					left--
					r.stallFor(timeoutOf)
					return lookup, true
				}
			}
			w.answer = func(x *exchange.Exchange) exchange.Next {
				x.Past.Spent += 100 * time.Millisecond
				x.Response.Timing = exchange.Timing{Connect: 50 * time.Millisecond, TTFB: 50 * time.Millisecond,
					Total: x.Past.Spent}
				x.Response.Attempts = int(x.Past.Attempts)
				if left == 0 {
					return exchange.Done
				}
				left--
				r.stallFor(timeoutOf)
				x.Response.Outcome, x.Response.Status = ends.Outcome, ends.Status
				x.Response.Timing.TTFB += timeoutOf
				x.Past.Spent += timeoutOf
				x.Response.Timing.Total = x.Past.Spent
				next.Target = x.Target
				return next
			}
			var judged exchange.Response
			judge := judgeFunc(func(site *audit.Site) { judged = site.Fetch })
			p := New(Config{Concurrency: 4, SpillDir: t.TempDir()}, &list{hosts: []string{"a.example.com"}}, w, judge, s)
			r = p.newRun(t.Context())
			r.start()
			if err := r.wait(); err != nil || len(s.sites) != 1 {
				t.Fatalf("%s: kept %d origins, error %v", name, len(s.sites), err)
			}
			k := s.sites[0]
			if stalled := min(times, max(want.asked, want.lookups)); p.progress.Stalled()/(timeoutOf+
				beatEvery) > time.Duration(stalled) || p.progress.Stalled() < time.Duration(stalled)*timeoutOf ||
				int(p.progress.Stalls.Load()) != stalled {
				t.Errorf("%s: %d stalls of %v, want %d", name, p.progress.Stalls.Load(), p.progress.Stalled(), stalled)
			}
			got := result{k.outcome, judged.Status, len(w.asked), w.lookups, k.attempts, p.progress.Spoilt.Load()}
			if got != want {
				t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
			}
			if total := judged.Timing.Total; total > time.Duration(max(1, k.attempts))*100*time.Millisecond {
				t.Errorf("%s: it took %v, stalls left out", name, total)
			}
		})
	}
	answered := func(status int) exchange.Response {
		return exchange.Response{Outcome: exchange.Answered, Status: status}
	}
	failed := func(o exchange.Outcome) exchange.Response { return exchange.Response{Outcome: o} }
	none, done := exchange.Lookup{}, exchange.Done

	f("nothing happens", 0, answered(200), done, none, result{exchange.Answered, 200, 1, 1, 1, 0})
	f("an answer counts", 1, answered(200), done, none, result{exchange.Answered, 200, 1, 1, 1, 0})
	f("so does a refusal", 1, answered(403), done, none, result{exchange.Answered, 403, 1, 1, 1, 0})
	f("so does a redirect", 1, answered(301), exchange.Next{Again: true}, none, result{exchange.Answered, 200, 2, 2, 2, 0})
	f("a refused connection is news", 1, failed(exchange.ConnectRefused), done, none, result{exchange.ConnectRefused, 0, 1,
		1, 1, 0})
	f("what breaks off a body that was too large is no time-out", 1, failed(exchange.BadEncoding), done, none,
		result{exchange.BadEncoding, 0, 1, 1, 1, 0})
	for _, o := range []exchange.Outcome{exchange.Timeout, exchange.ConnectTimeout, exchange.Reset, exchange.ClosedEarly,
		exchange.TLSFailed, exchange.ConnectFailed} {
		f(o.String(), 1, failed(o), done, none, result{exchange.Answered, 200, 2, 2, 1, 1})
	}
	f("the server was tired of waiting", 1, answered(408), done, none, result{exchange.Answered, 200, 2, 2, 1, 1})
	f("or its gateway was", 1, answered(504), done, none, result{exchange.Answered, 200, 2, 2, 1, 1})
	f("what ails a server it says itself", 1, answered(503), done, none, result{exchange.Answered, 503, 1, 1, 1, 0})
	f("a later try is none", 1, failed(exchange.Timeout), exchange.Next{Again: true, After: time.Hour}, none,
		result{exchange.Answered, 200, 2, 2, 1, 1})
	f("as often as it may", maxSpoilt, failed(exchange.Timeout), done, none, result{exchange.Answered, 200, maxSpoilt + 1,
		maxSpoilt + 1, 1, maxSpoilt})
	f("and no more", maxSpoilt+3, failed(exchange.Timeout), done, none, result{exchange.Timeout, 0, maxSpoilt + 1,
		maxSpoilt + 1, 1, maxSpoilt})

	silent := exchange.Lookup{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout, Took: timeoutOf}
	f("a silent name server", 1, answered(200), done, silent, result{exchange.Answered, 200, 1, 2, 1, 1})
	f("a failing one", 1, answered(200), done, exchange.Lookup{Outcome: exchange.DNSFailed, Cause: exchange.CauseServFail},
		result{exchange.Answered, 200, 1, 2, 1, 1})
	f("a name that does not exist", 1, answered(200), done, exchange.Lookup{Outcome: exchange.DNSNotFound,
		Cause: exchange.CauseNoSuchName}, result{exchange.DNSNotFound, 0, 0, 1, 1, 0})
	f("names have an end too", maxSpoilt+3, answered(200), done, silent, result{exchange.DNSTimeout, 0, 0, maxSpoilt + 1,
		1, maxSpoilt})
}

// Times of an exchange that may include a stall count as not measured, and the others stay.
func TestForgive(t *testing.T) {
	const s = time.Second
	f := func(in exchange.Timing, stalled time.Duration, want exchange.Timing) {
		t.Helper()
		if forgive(&in, stalled); in != want {
			t.Errorf("got %+v, want %+v", in, want)
		}
	}
	f(exchange.Timing{DNS: s, Connect: s, TLS: 2 * s, TTFB: 6 * s, Total: 12 * s}, 5*s, exchange.Timing{DNS: s, Connect: s,
		TLS: 2 * s, Total: 7 * s})
	f(exchange.Timing{Connect: s, TLS: 2 * s, TTFB: 6 * s, Total: 9 * s}, 2*s, exchange.Timing{Connect: s, Total: 7 * s})
	f(exchange.Timing{Connect: s, Total: s}, 60*s, exchange.Timing{Connect: s})
}

// A late beat is a stall only if it is very late, whichever goroutine notices it. It counts as one stall, however many
// goroutines notice.
func TestStallIsNoticedOnce(t *testing.T) {
	f := func(late, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := &run{begun: time.Now()}
			told := 0
			r.stalls.told = func(time.Duration) { told++ }
			time.Sleep(late)
			for range 3 {
				if got := r.stalled(); got != want {
					t.Errorf("a beat that is %v late is a stall of %v, want %v", late, got, want)
				}
			}
			r.stalls.note(time.Since(r.begun))
			if wantTold := min(1, int(want)); told != wantTold {
				t.Errorf("told %d times, want %d", told, wantTold)
			}
		})
	}
	f(0, 0)
	f(beatEvery, 0)
	f(800*time.Millisecond, 0) // what a busy machine may do
	f(beatEvery+stallAfter, 0)
	f(time.Minute, time.Minute-beatEvery)
}
