package pipeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lags simulates a machine with busy processors: it sleeps for random times, from a generator of its own, since many
// goroutines call it.
type lags struct {
	mu   sync.Mutex
	dice *rand.Rand
}

func newLags(seed uint64) *lags { return &lags{dice: rand.New(rand.NewPCG(seed, 3))} }

// upTo returns a function that sleeps for up to so long, nil for no time.
func (l *lags) upTo(most time.Duration) func() {
	if most <= 0 {
		return nil
	}
	return func() {
		l.mu.Lock()
		d := time.Duration(l.dice.Int64N(int64(most)))
		l.mu.Unlock()
		time.Sleep(d)
	}
}

// At every rate, the exchanges that a pace lets start within a window are no more than the limiter promises for that
// window.
func TestEveryPaceKeepsThePromises(t *testing.T) {
	f := func(rate float64) {
		t.Helper()
		p := paceOf(rate)
		interval, slack := p.interval, p.slack
		if slack < minSlack-time.Microsecond || slack > maxSlack {
			t.Errorf("%v/s: a slack of %v; want %v to %v", rate, slack, minSlack, maxSlack)
		}
		if cost := interval.Seconds() * rate; cost < 1 || cost > 1.028+rate*1e-9 {
			t.Errorf("%v/s: the interval of %v is %v times that of the rate; want 1 to 1.028", rate, interval, cost)
		}
		for seconds, bound := range map[int]float64{1: 1.1*rate + 1, 10: 10*rate + 1} {
			started := (time.Duration(seconds)*time.Second+sway+slack)/interval + 1
			if float64(started) > bound {
				t.Errorf("%v/s: %d may start for a window of %d s; want at most %v", rate, started, seconds, bound)
			}
		}
	}
	for rate := 0.01; rate < 20_000; rate *= 1.003 {
		f(rate)
	}
	for rate := range 5000 {
		f(float64(rate + 1))
	}
}

// tokensOf are the tokens of keys that nothing has slowed.
func tokensOf(g *limiter, keys [numLevels]key) *[numLevels]token {
	var tokens [numLevels]token
	for l, limit := range g.limits {
		if limit != nil {
			tokens[l] = token{keys[l], limit.pace}
		}
	}
	return &tokens
}

// Many goroutines pass the limiter at once, each at the levels of a host, an address and the run. It admits as many as
// the pace of each level allows, and wastes little.
func TestTheLimiterHoldsAgainstACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{HostRate: 100, IPRate: 200, Rate: 300}
		p := New(cfg, nil, nil, nil, nil)
		p.woken = newLags(1).upTo(30 * time.Millisecond)
		r := p.newRun(t.Context())
		var mu sync.Mutex
		started := map[string][]time.Duration{}
		var all sync.WaitGroup
		for i := range 60 {
			host, addr := i%6, i%2
			all.Go(func() {
				for range 50 {
					tokens := tokensOf(r.limiter, [numLevels]key{byHost: key(host), byAddress: key(addr)})
					r.limiter.sent(tokens)
					r.waitForStart(tokens)
					at := time.Since(r.begun)
					mu.Lock()
					for _, k := range []string{fmt.Sprint("host ", host), fmt.Sprint("address ", addr), "all"} {
						started[k] = append(started[k], at)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for k, at := range started {
			rate := map[byte]float64{'h': cfg.HostRate, 'a': cfg.IPRate}[k[0]]
			if k == "all" {
				rate = cfg.Rate
			}
			p := paceOf(rate)
			for _, window := range []time.Duration{p.slack, 100 * time.Millisecond, time.Second, 10 * time.Second} {
				if n, bound := most(at, window), int((window+p.slack)/p.interval)+1; n > bound {
					t.Errorf("%s: %d passed in %v; want at most %d", k, n, window, bound)
				}
			}
		}
		// The order in which goroutines come is not the same in each run: 10.2 to 10.6 s were seen.
		if took := slices.Max(started["all"]); took > 11500*time.Millisecond {
			t.Errorf("3000 took %v at 300/s; want some 10.3 s", took)
		}
		for l, limit := range r.limiter.limits {
			for i := range limit.unstarted.cells() {
				if n := limit.unstarted.cell(key(i)).Load(); n != 0 {
					t.Errorf("level %d: %d exchanges have not started", l, n)
				}
			}
		}
		r.cancel(nil)
	})
}

// Two goroutines see that the run allows a start. If one takes it, the other's start at its address is taken back.
func TestTheLimiterTakesBackWhatCameToNothing(t *testing.T) {
	g := newLimiter(&Config{IPRate: 10, Rate: 10})
	const now = time.Hour
	if _, wait := g.take(tokensOf(g, [numLevels]key{byAddress: 1}), now); wait > 0 {
		t.Fatalf("the first must wait %v", wait)
	}
	limit := g.limits[inAll]
	if level, wait := g.take(tokensOf(g, [numLevels]key{byAddress: 2}), now); level != inAll ||
		wait != limit.interval-limit.slack {
		t.Errorf("the second must wait %v at level %d; want %v at level %d", wait, level, limit.interval-limit.slack, inAll)
	}
	if due := time.Duration(g.limits[byAddress].due.cell(2).Load()); due > now {
		t.Errorf("the second's address is due at %v; want it as it was, due before %v", due, now)
	}
}

// Half of the list is at one address, whose rate is a quarter of the rate in all. It gets that quarter all the time,
// and the others get the rest: no record waits longer than the slower of the two rates requires.
func TestTheRateInAllStarvesNoAddress(t *testing.T) {
	f := func(name string, hot int, ipRate float64, lag time.Duration, least float64) {
		t.Helper()
		const rate = 2000
		n := 10_000
		if testing.Short() {
			n = 5000
		}
		var mixed []string
		for i := range n {
			mixed = append(mixed, fmt.Sprintf("h%d.busy.example", i), fmt.Sprintf("h%d.other.example", i))
		}
		w := &web{latency: 100 * time.Millisecond, woken: newLags(1).upTo(lag)}
		w.address = func(host string) string {
			i := number(host)
			if strings.HasSuffix(host, ".busy.example") {
				return fmt.Sprintf("10.1.1.%d", i%hot)
			}
			return fmt.Sprintf("10.2.%d.%d", i/250, i%250)
		}
		s := &shelf{}
		took, err := scan(t, Config{Concurrency: 1000, IPRate: ipRate, Rate: rate}, w, &list{hosts: mixed}, s, nil)
		if err != nil || len(s.sites) != 2*n {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), 2*n, err)
		}
		var others time.Duration
		for _, a := range w.asked {
			if strings.HasSuffix(a.host, ".other.example") {
				others = max(others, a.at)
			}
		}
		meanwhile := 0
		for _, a := range w.asked {
			if strings.HasSuffix(a.host, ".busy.example") && a.at < others {
				meanwhile++
			}
		}
		if got := float64(meanwhile) / others.Seconds(); got < least {
			t.Errorf("%s: the busy half was asked %.0f times a second while there were others; want at least %.0f", name, got,
				least)
		}
		// The first and the last requests, on a busy machine, and the last answers take half a second at most.
		if ideal := max(float64(n)/min(float64(hot)*ipRate, rate), 2*float64(n)/rate); took.Seconds() > 1.05*ideal+0.5 {
			t.Errorf("%s: took %v; the rates allow %.1f s", name, took, ideal)
		}
		checkRate(t, "all", w.times(func(asked) string { return "all" })["all"], rate)
		for k, at := range w.times(func(a asked) string { return a.addr.String() }) {
			checkRate(t, k, at, ipRate)
		}
	}
	f("a quarter", 1, 500, 0, 475)
	f("a quarter, by workers that start late", 1, 500, 150*time.Millisecond, 450)
	f("more than its share", 1, 1500, 0, 950)
	f("eight addresses with more than their share", 8, 500, 0, 950)
}
