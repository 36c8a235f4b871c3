package resolve

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"
)

// throttled passes a number of questions a second to a script, and answers those above it with a code.
func throttled(perSecond float64, rcode int, pass script) script {
	limiter := rate.NewLimiter(rate.Limit(perSecond), int(perSecond/10))
	return func(q *query) {
		if limiter.Allow() {
			pass(q)
			return
		}
		refuses(rcode)(q)
	}
}

// lookUpMany looks names up, 256 at a time. It counts the look-ups by their result.
func (w *world) lookUpMany(ctx context.Context, r *Resolver, names int) map[string]int {
	var mu sync.Mutex
	ends := map[string]int{}
	var next atomic.Int64
	var all sync.WaitGroup
	size := 1
	if w.batched {
		size = maxBatch
	}
	for range 256 / size {
		all.Go(func() {
			for {
				var hosts []string
				for last := int(next.Add(int64(size))); len(hosts) < size; {
					if i := last - size + len(hosts) + 1; i <= names {
						hosts = append(hosts, fmt.Sprintf("a%d.example", i))
						continue
					}
					break
				}
				if len(hosts) == 0 {
					return
				}
				for _, answer := range w.findAll(ctx, r, hosts...) {
					mu.Lock()
					ends[tell(answer)]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return ends
}

// A server that refuses questions above its rate loses no name. It is asked more slowly, which is logged once, and
// another server is asked more.
func TestThrottlingServer(t *testing.T) {
	f := func(name string, names int, opts Options, makers ...func() script) {
		run(t, name, func(w *world) {
			opts, log := logged(opts)
			var scripts []script
			for _, each := range makers { // of limiters, in the time of the bubble
				scripts = append(scripts, each())
			}
			r := w.resolver(opts, scripts...)
			ends := w.lookUpMany(w.Context(), r, names)
			if ends["["+good+"]"] != names {
				w.Errorf("%v", ends)
			}
			if n := strings.Count(log.String(), "is asked more slowly\" server=10.0.1.1:53"); n != 1 {
				w.Errorf("logged %d times: %s", n, log.String())
			}
			if s := r.Stats().Servers; s[0].Rate > 5_000 || len(s) > 1 && s[1].Failures == 0 &&
				s[0].Questions > s[1].Questions*2 {
				w.Errorf("%+v", s)
			}
		})
	}
	throttles := func(rcode int) func() script { return func() script { return throttled(500, rcode, anything) } }
	answers := func() script { return anything }
	f("REFUSED", 1500, Options{Rate: 10_000}, throttles(dns.RcodeRefused))
	f("SERVFAIL", 1500, Options{Rate: 10_000}, throttles(dns.RcodeServerFailure))
	f("SERVFAIL, without a rate of ours", 1500, Options{}, throttles(dns.RcodeServerFailure))
	// The good server is so fast that fewer names would be done before the other one is slowed down.
	f("REFUSED, beside a good one", 4000, Options{Rate: 20_000}, throttles(dns.RcodeRefused), answers)
	f("both throttle", 1500, Options{Rate: 20_000}, throttles(dns.RcodeRefused), throttles(dns.RcodeServerFailure))
}

// A server that fails for some names at any rate keeps its rate, and is asked about each of them twice.
func TestFailingNames(t *testing.T) {
	const names = 2000
	f := func(percent uint32) {
		run(t, fmt.Sprintf("%d %%", percent), func(w *world) {
			opts, log := logged(Options{Rate: 20_000})
			fails := func(name string) bool {
				h := fnv.New32a()
				_, _ = h.Write([]byte(name))
				return h.Sum32()>>8%100 < percent
			}
			failing := 0
			for i := range names {
				if fails(fmt.Sprintf("a%d.example.", i+1)) {
					failing++
				}
			}
			r := w.resolver(opts, func(q *query) {
				if fails(q.Question[0].Name) {
					refuses(dns.RcodeServerFailure)(q)
					return
				}
				anything(q)
			})
			// The server answers questions with EDNS, which is known after its first answer.
			r.servers[0].edns.Store(ednsWorks)
			ends := w.lookUpMany(w.Context(), r, names)
			if ends[servFail] != failing || ends["["+good+"]"] != names-failing {
				w.Errorf("%v, where %d fail", ends, failing)
			}
			s := r.Stats().Servers[0]
			if want := uint64(2 * failing); s.Rate != 20_000 || s.Failures != want || s.Questions != names+uint64(failing) ||
				log.String() != "" {
				w.Errorf("want %d refusals: %+v\n%s", want, s, log.String())
			}
		})
	}
	f(5)
	f(20)
}

// If nearly all names fail, the rate may be the reason. So each name is asked more often, but the number is bounded.
func TestAllNamesFail(t *testing.T) {
	in(t, func(w *world) {
		const names = 256
		opts, log := logged(Options{})
		r := w.resolver(opts, refuses(dns.RcodeRefused))
		if ends := w.lookUpMany(w.Context(), r, names); ends[dnsRefused] != names {
			w.Errorf("%v", ends)
		}
		w.want(w.since().String(), "10s")
		if s := r.Stats().Servers[0]; s.Questions != names*8 || !math.IsInf(s.Rate, 1) || log.String() != "" {
			w.Errorf("%+v\n%s", s, log.String())
		}
	})
}

// Cancelling ends the wait before a refused name is asked again.
func TestCancelAfterRefusal(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{Total: time.Hour, First: time.Hour}, refuses(dns.RcodeRefused))
		r.servers[0].pacer.doubt.Store(time.Now().UnixNano())
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { w.find(ctx, r, fmt.Sprintf("a%d.example", i)) })
		}
		time.Sleep(time.Second)
		if n := r.Stats().Servers[0].Failures; n != 100 {
			w.Errorf("%d refusals", n)
		}
		cancel()
		all.Wait() // the next questions are due in an hour
		w.want(w.since().String(), "1s")
	})
}

// The rate is halved at most once for questions asked at the same rate, not below leastRate, and only if more than
// one in slowPart was revoked. It grows again up to the ceiling when nothing is refused.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, log := logged(Options{})
		s := &server{pacer: newPacer(1000)}
		ask := func(seconds int, revokedPart int) { // at the full rate; one answer in revokedPart comes after a refusal
			for range seconds * 10 {
				s.questions.Add(uint64(s.pacer.rate() / 10))
				for i := range int(s.pacer.rate() / 10) {
					s.answers.Add(1)
					if revokedPart > 0 && i%revokedPart == 0 {
						s.revoked(opts.Log, time.Now())
					}
				}
				time.Sleep(100 * time.Millisecond)
				s.pacer.grow()
			}
		}
		f := func(what string, low, high float64) {
			t.Helper()
			if got := s.pacer.rate(); got < low || got > high {
				t.Errorf("%s: %v a second, want %v to %v", what, got, low, high)
			}
		}
		ask(10, 16)
		f("one in sixteen", 1000, 1000)
		before := time.Now()
		ask(1, 4)
		f("one in four, for a second", 100, 500)
		low := s.pacer.rate()
		for range 100 {
			s.revoked(opts.Log, before)
		}
		f("refusals of before", low, low)
		ask(60, 2)
		f("one in two, for a minute", leastRate, 40)
		ask(1, 0)
		low = s.pacer.rate()
		ask(10, 0)
		f("nothing refused for ten seconds", low+9, low*3)
		ask(300, 0)
		f("nothing refused for five minutes", 1000, 1000)
		if s.pacer.slowed.Load() || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("slowed: %v\n%s", s.pacer.slowed.Load(), log.String())
		}
	})
}

// A question avoids servers where it would wait for much longer than at another one.
func TestCrowded(t *testing.T) {
	r := &Resolver{}
	for range 3 {
		r.servers = append(r.servers, &server{pacer: newPacer(100)})
	}
	f := func(want servers, waiting ...int64) {
		t.Helper()
		for i, n := range waiting {
			r.servers[i].pacer.waiting.Store(n)
		}
		if got := r.crowded(); got != want {
			t.Errorf("%v: got %b, want %b", waiting, got, want)
		}
	}
	f(0, 0, 0, 0)
	f(0, 10, 20, 0)
	f(0b010, 10, 30, 0)
	f(0, 100, 90, 80)
	f(0b100, 50, 50, 130)
	r.servers[0].isDown.Store(true)
	f(0, 0, 100, 100) // the server that is down does not count
}

// A server without EDNS, which refuses or ignores it, answers all names. It is detected once.
func TestServerWithoutEDNS(t *testing.T) {
	const names = 300
	f := func(name string, withEDNS script, others ...script) {
		run(t, name, func(w *world) {
			opts, log := logged(Options{})
			var had, later atomic.Int64
			scripts := append([]script{withoutEDNS(func(q *query) {
				had.Add(1)
				if q.Question[0].Name[0] == 'c' {
					later.Add(1)
				}
				withEDNS(q)
			}, anything)}, others...)
			r := w.resolver(opts, scripts...)
			if ends := w.lookUpMany(w.Context(), r, names); ends["["+good+"]"] != names {
				w.Errorf("%v", ends)
			}
			most := int64(256 + ednsTries - 1) // those in flight, and those of the first answers
			if len(others) > 0 {
				most = names // each may have asked this server first, and then the other one
			}
			for i := 0; r.servers[0].edns.Load() != ednsFails; i++ { // with another server, by a probe
				w.find(w.Context(), r, fmt.Sprintf("b%d.example", i))
				most += 2
			}
			for i := range names {
				w.find(w.Context(), r, fmt.Sprintf("c%d.example", i))
			}
			if n := strings.Count(log.String(), "asked without"); n != 1 || later.Load() > 0 || had.Load() > most {
				w.Errorf("logged %d times, %d questions had EDNS, of them %d later\n%s", n, had.Load(), later.Load(), log.String())
			}
			if s := r.Stats().Servers[0]; s.Down {
				w.Errorf("%+v", s)
			}
		})
	}
	f("silence", quiet)
	f("REFUSED", refuses(dns.RcodeRefused))
	f("SERVFAIL", refuses(dns.RcodeServerFailure))
	f("NOTIMP", refuses(dns.RcodeNotImplemented))
	f("FORMERR", refuses(dns.RcodeFormatError))
	f("BADVERS", badVersion)
	f("silence, beside a good one", quiet, anything)
	f("SERVFAIL, beside a good one", refuses(dns.RcodeServerFailure), anything)
}

// A server that has answered a question with EDNS is asked with EDNS, however many packets are lost.
func TestEDNSIsKept(t *testing.T) {
	in(t, func(w *world) {
		var n atomic.Int64
		opts, log := logged(Options{})
		r := w.resolver(opts, func(q *query) {
			if n.Add(1)%3 != 2 {
				anything(q)
			}
		})
		w.find(w.Context(), r, "b.example")
		if ends := w.lookUpMany(w.Context(), r, 300); ends["["+good+"]"] != 300 {
			w.Errorf("%v", ends)
		}
		if got := r.servers[0].edns.Load(); got != ednsWorks || log.String() != "" {
			w.Errorf("%d\n%s", got, log.String())
		}
	})
}

// Questions that were put together before the rate was lowered are sent at the lower rate.
func TestLoweredRateHoldsForBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := newPacer(100), time.Now()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				timer := time.NewTimer(time.Hour)
				defer timer.Stop()
				_, _ = p.wait(t.Context(), timer, nil, maxBatch)
			})
		}
		all.Wait()
		if took, want := time.Since(begun), (4*maxBatch-1)*10*time.Millisecond; took.Round(time.Millisecond) != want {
			t.Errorf("%d questions took %v, want %v", 4*maxBatch, took, want)
		}
	})
}
