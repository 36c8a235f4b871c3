package resolve

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// throttled returns a handler that passes a number of questions a second to handle, and those above it to above.
func throttled(perSecond float64, above, handle dns.HandlerFunc) dns.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), int(perSecond/10))
	return func(w dns.ResponseWriter, q *dns.Msg) {
		if limiter.Allow() {
			handle(w, q)
			return
		}
		above(w, q)
	}
}

// anything is a handler that has an address for every name.
func anything(w dns.ResponseWriter, q *dns.Msg) { zone(q.Question[0].Name+" 60 A 192.0.2.1")(w, q) }

// lookUpMany looks names up, 256 at a time. It counts the look-ups by their result.
func lookUpMany(ctx context.Context, r *Resolver, names int) map[string]int {
	var mu sync.Mutex
	ends := map[string]int{}
	var next atomic.Int64
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= names; i = int(next.Add(1)) {
				end := tell(r.Lookup(ctx, fmt.Sprintf("a%d.example", i), 0))
				mu.Lock()
				ends[end]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return ends
}

// logged returns Options with a log, and its text.
func logged(opts Options) (Options, *logText) {
	var log logText
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	return opts, &log
}

// A server that refuses questions above its rate loses no name. It is asked more slowly, which is logged once, and
// another server is asked more.
func TestThrottlingServer(t *testing.T) {
	t.Parallel()
	const perSecond = 500
	f := func(name string, names int, opts Options, handlers ...dns.HandlerFunc) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, log := logged(opts)
			var servers []string
			for _, handle := range handlers {
				servers = append(servers, serve(t, handle))
			}
			r := newResolver(t, opts, servers...)
			ends := lookUpMany(t.Context(), r, names)
			// On a busy machine the first names are refused twice before the server is doubted. A scan retries them.
			if lost := names - ends["[192.0.2.1]"]; lost > names/50 {
				t.Errorf("%v", ends)
			} else if lost > 0 {
				ends = lookUpMany(t.Context(), r, names)
			}
			if ends["[192.0.2.1]"] != names {
				t.Errorf("later: %v", ends)
			}
			if n := strings.Count(log.String(), "is asked more slowly\" server="+servers[0]); n != 1 {
				t.Errorf("logged %d times: %s", n, log.String())
			}
			if s := r.Stats().Servers; s[0].Rate > 5_000 || len(s) > 1 && s[1].Failures == 0 && s[0].Questions > s[1].Questions*2 {
				t.Errorf("%+v", s)
			}
		})
	}
	throttles := func(rcode int) dns.HandlerFunc { return throttled(perSecond, code(rcode), anything) }
	f("REFUSED", 1500, Options{Rate: 10_000}, throttles(dns.RcodeRefused))
	f("SERVFAIL", 1500, Options{Rate: 10_000}, throttles(dns.RcodeServerFailure))
	f("SERVFAIL, without a rate of ours", 1500, Options{}, throttles(dns.RcodeServerFailure))
	// The good server is so fast that fewer names would be done before the other one is slowed down.
	f("REFUSED, beside a good one", 10_000, Options{Rate: 20_000}, throttles(dns.RcodeRefused), anything)
	f("both throttle", 1500, Options{Rate: 20_000}, throttles(dns.RcodeRefused), throttles(dns.RcodeServerFailure))
}

// A server that fails for some names at any rate keeps its rate, and is asked about each of them twice.
func TestFailingNames(t *testing.T) {
	t.Parallel()
	const names = 2000
	f := func(percent uint32) {
		t.Run(fmt.Sprintf("%d %%", percent), func(t *testing.T) {
			t.Parallel()
			opts, log := logged(Options{Rate: 20_000, Total: long})
			failing := 0
			fails := func(name string) bool {
				h := fnv.New32a()
				_, _ = h.Write([]byte(name))
				return h.Sum32()>>8%100 < percent
			}
			for i := range names {
				if fails(fmt.Sprintf("a%d.example.", i+1)) {
					failing++
				}
			}
			r := newResolver(t, opts, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
				if fails(q.Question[0].Name) {
					code(dns.RcodeServerFailure)(w, q)
					return
				}
				anything(w, q)
			}))
			// The server answers questions with EDNS, which is known after its first answer.
			r.servers[0].edns.Store(ednsWorks)
			ends := lookUpMany(t.Context(), r, names)
			if failed := tell(failed(exchange.DNSFailed, exchange.CauseServFail)); ends[failed] != failing || ends["[192.0.2.1]"] != names-failing {
				t.Errorf("%v, where %d fail", ends, failing)
			}
			s := r.Stats().Servers[0]
			// The slack is for questions that are repeated because the machine is busy.
			if most := uint64(failing * 5 / 2); s.Rate != 20_000 || s.Failures > most || log.String() != "" {
				t.Errorf("want at most %d refusals: %+v\n%s", most, s, log.String())
			}
		})
	}
	f(5)
	f(20)
}

// If nearly all names fail, the rate may be the reason. So each name is asked more often, but the number is bounded.
func TestAllNamesFail(t *testing.T) {
	t.Parallel()
	const names = 256
	opts, log := logged(Options{First: 100 * time.Millisecond, Total: long})
	r := newResolver(t, opts, serve(t, code(dns.RcodeRefused)))
	ends := lookUpMany(t.Context(), r, names)
	if want := tell(failed(exchange.DNSFailed, exchange.CauseDNSRefused)); ends[want] != names {
		t.Errorf("%v", ends)
	}
	if s := r.Stats().Servers[0]; s.Questions > names*maxSendings || !math.IsInf(s.Rate, 1) || log.String() != "" {
		t.Errorf("%+v\n%s", s, log.String())
	}
}

// Cancelling ends the wait before a refused name is asked again.
func TestCancelAfterRefusal(t *testing.T) {
	noLeaks(t)
	r := newResolver(t, Options{Total: time.Hour, First: time.Hour}, serve(t, code(dns.RcodeRefused)))
	r.servers[0].pacer.doubt.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { r.Lookup(ctx, fmt.Sprintf("a%d.example", i), 0) })
	}
	for r.Stats().Servers[0].Failures < 100 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	all.Wait() // the next questions are due in an hour
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
	t.Parallel()
	const names = 300
	f := func(name string, withEDNS dns.HandlerFunc, beside ...dns.HandlerFunc) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, log := logged(Options{First: 100 * time.Millisecond})
			var had, later atomic.Int64
			servers := []string{serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
				if q.IsEdns0() != nil {
					had.Add(1)
					if q.Question[0].Name[0] == 'c' {
						later.Add(1)
					}
					withEDNS(w, q)
					return
				}
				anything(w, q)
			})}
			for _, handle := range beside {
				servers = append(servers, serve(t, handle))
			}
			r := newResolver(t, opts, servers...)
			if ends := lookUpMany(t.Context(), r, names); ends["[192.0.2.1]"] != names {
				t.Errorf("%v", ends)
			}
			for i := 0; r.servers[0].edns.Load() != ednsFails; i++ { // with another server, by a probe
				if i > 1000 {
					t.Fatalf("not detected: %s", log.String())
				}
				r.Lookup(t.Context(), fmt.Sprintf("b%d.example", i), 0)
			}
			for i := range names {
				r.Lookup(t.Context(), fmt.Sprintf("c%d.example", i), 0)
			}
			if n := strings.Count(log.String(), "asked without"); n != 1 || later.Load() > 0 || had.Load() > 2*256 {
				t.Errorf("logged %d times, %d questions had EDNS, of them %d later\n%s", n, had.Load(), later.Load(), log.String())
			}
			for i := 0; r.Stats().Servers[0].Down; i++ { // on a busy machine it was silent for too long, until a probe
				if i > 1000 {
					t.Fatalf("%+v", r.Stats().Servers[0])
				}
				r.Lookup(t.Context(), fmt.Sprintf("d%d.example", i), 0)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	f("silence", silence)
	f("REFUSED", code(dns.RcodeRefused))
	f("SERVFAIL", code(dns.RcodeServerFailure))
	f("NOTIMP", code(dns.RcodeNotImplemented))
	f("FORMERR", code(dns.RcodeFormatError))
	f("BADVERS", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.SetEdns0(ednsSize, false)
		m.Rcode = dns.RcodeBadVers
		_ = w.WriteMsg(m)
	})
	f("silence, beside a good one", silence, anything)
	f("SERVFAIL, beside a good one", code(dns.RcodeServerFailure), anything)
}

// A server that has answered a question with EDNS is asked with EDNS, however many packets are lost.
func TestEDNSIsKept(t *testing.T) {
	var n atomic.Int64
	opts, log := logged(Options{First: 20 * time.Millisecond})
	r := newResolver(t, opts, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if n.Add(1)%3 != 2 {
			anything(w, q)
		}
	}))
	r.Lookup(t.Context(), "b.example", 0)
	if ends := lookUpMany(t.Context(), r, 300); ends["[192.0.2.1]"] != 300 {
		t.Errorf("%v", ends)
	}
	if got := r.servers[0].edns.Load(); got != ednsWorks || log.String() != "" {
		t.Errorf("%d\n%s", got, log.String())
	}
}
