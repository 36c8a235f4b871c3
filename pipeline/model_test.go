package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// A look-up takes longer than the interval of its address or of the run. That must not delay the queue behind.
func TestAskingAddressesAgainSlowsNobody(t *testing.T) {
	f := func(name string, cfg Config) {
		t.Helper()
		hs := hosts(1000, "h%d.example.com")
		w := &web{ttl: 2 * time.Second, resolving: 200 * time.Millisecond, address: func(string) string { return "10.0.0.1" }}
		s := &shelf{}
		cfg.Concurrency = 500
		took, err := scan(t, cfg, w, &list{hosts: hs}, s, nil)
		if err != nil || len(s.sites) != len(hs) {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), len(hs), err)
		}
		// The first look-up, and one more when the addresses of the first records expire at once.
		if want := 999 * paceOf(50).interval; took < want+w.resolving || took > want+2*w.resolving {
			t.Errorf("%s: took %v; the rate allows %v", name, took, want)
		}
		if w.lookups > 3*len(hs) {
			t.Errorf("%s: %d look-ups for %d origins", name, w.lookups, len(hs))
		}
	}
	f("by address", Config{IPRate: 50})
	f("in all", Config{Rate: 50})
	f("both", Config{IPRate: 50, Rate: 100})
}

// If the rate in all bounds a run, no record needs to be read or looked up ahead: the list is not copied to the spill
// file, nor looked up again and again.
func TestTheRateInAllHoldsTheReaderBack(t *testing.T) {
	hs := hosts(3000, "h%d.example.com")
	w, s := &web{ttl: time.Minute}, &shelf{}
	var spilled, waiting int64
	watch := func(p *Pipeline) {
		for p.Progress().Kept.Load() < uint64(len(hs)) {
			spilled = max(spilled, p.Progress().Spilled.Load())
			waiting = max(waiting, p.Progress().Waiting.Load())
			time.Sleep(100 * time.Millisecond)
		}
	}
	took, err := scan(t, Config{Concurrency: 20, Rate: 50, MaxWaiting: 600}, w, &list{hosts: hs}, s, watch)
	if err != nil || len(s.sites) != len(hs) || took != 2999*paceOf(50).interval {
		t.Fatalf("kept %d of %d in %v, error %v", len(s.sites), len(hs), took, err)
	}
	if spilled > 0 || waiting > 300 {
		t.Errorf("%d were spilled, %d waited; want none spilled and few waiting", spilled, waiting)
	}
	if w.lookups > len(hs)+len(hs)/10 {
		t.Errorf("%d look-ups for %d origins", w.lookups, len(hs))
	}
}

// If a round through the spill file stops because every slot is in use, the next round is not delayed.
func TestBusyTraysDoNotPutOffTheDeferred(t *testing.T) {
	const n = 2000
	hs := append(hosts(n, "h%d.busy.example"), hosts(40, "h%d.slow.example")...)
	w := &web{address: func(host string) string {
		if host[len(host)-9] == 'w' { // slow.example
			return "10.3.0." + string(host[1])
		}
		return "10.1.1.1"
	}}
	w.lasts = func(host string) time.Duration {
		if host[len(host)-9] == 'w' {
			return 15 * time.Second
		}
		return 0
	}
	s := &shelf{}
	took, err := scan(t, Config{Concurrency: 2, IPRate: 100, MaxWaiting: 50}, w, &list{hosts: hs}, s, nil)
	if err != nil || len(s.sites) != len(hs) {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
	}
	// 40 slow ones on two slots take 300 s, the busy address 20 s more at the worst.
	if took > 320*time.Second {
		t.Errorf("took %v; want at most 320 s", took)
	}
}

// The caller that stops a run may close its list, to unblock Next: the error of the list is then no failure.
func TestAListThatFailsAfterStopIsStopped(t *testing.T) {
	_, err := scanSource(t, Config{Concurrency: 2}, &web{}, closedAfter(2*time.Second), &shelf{}, func(p *Pipeline) {
		time.Sleep(time.Second)
		p.Stop()
	})
	if !errors.Is(err, ErrStopped) {
		t.Errorf("ended with %v; want ErrStopped", err)
	}
}

// closedAfter is a Source whose Next blocks until it is closed.
type closedAfter time.Duration

func (l closedAfter) Next() (Entry, error) {
	time.Sleep(time.Duration(l))
	return Entry{}, errors.New("closed")
}

// TestRandomRuns takes random lists over random webs through random configurations, and checks what must hold of every
// run: no origin twice, each once unless the run was stopped, no rate exceeded, and everything ends (synctest reports a
// goroutine that is left or a deadlock).
func TestRandomRuns(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 30
	}
	for seed := range runs {
		randomRun(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomRun(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...int) int { return of[rnd.IntN(len(of))] }
	numHosts, numAddrs := pick(1, 5, 40, 200), pick(1, 3, 20)
	hs := make([]string, rnd.IntN(250))
	for i := range hs {
		hs[i] = fmt.Sprintf("h%d.example.com:%d", rnd.IntN(numHosts), 1000+i)
	}
	cfg := Config{
		Concurrency: pick(1, 2, 10, 100), Resolvers: pick(0, 0, 1, 3), MaxWaiting: pick(0, 1, 3, 20, 100),
		SilentLookups: pick(0, 1, 7), SilentExchanges: pick(0, 1, 7),
		HostRate: float64(pick(0, 1, 10)), IPRate: float64(pick(0, 2, 20)), Rate: float64(pick(0, 0, 5, 50)),
	}
	// The web has a random generator of its own, since many goroutines call it.
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 2))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	moves, fails, complains := pick(0, 0, 2), pick(0, 3), pick(0, 0, 2)
	w := &web{ttl: time.Duration(pick(0, 300, 2000, 60000)) * time.Millisecond,
		resolving: time.Duration(pick(0, 5, 300)) * time.Millisecond}
	if w.resolving == 300*time.Millisecond || rnd.IntN(3) == 0 {
		quick, silentNames := w.resolving, pick(0, 10, 50, 100)
		w.answers = func(string) time.Duration {
			if roll(100) < silentNames {
				return time.Duration(roll(2)+1) * 8 * time.Second // which is late, or never
			}
			return quick
		}
	}
	w.lookup = func(host string) (exchange.Lookup, bool) {
		if fails > 0 && roll(20) < fails {
			return exchange.Lookup{Outcome: exchange.DNSTimeout}, true
		}
		at := 0
		for _, c := range []byte(host) {
			at = at*31 + int(c)
		}
		if moves > 0 {
			at += roll(moves)
		}
		l := exchange.Lookup{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(at % numAddrs)})}
		if w.ttl > 0 {
			l.Until = time.Now().Add(w.ttl)
		}
		return l, true
	}
	busy := newLags(seed)
	w.woken = busy.upTo(time.Duration(pick(0, 20, 150)) * time.Millisecond)
	w.way = busy.upTo(time.Duration(pick(0, 20, 100)) * time.Millisecond)
	slow := pick(0, 10, 1000)
	w.lasts = func(string) time.Duration { return time.Duration(roll(slow+1)) * time.Millisecond }
	w.answer = func(x *exchange.Exchange) (next exchange.Next) {
		if complains > 0 && roll(20) < complains {
			defer func() { next.Throttled = true }()
		}
		if x.Past.Attempts > 4 {
			return exchange.Done
		}
		switch roll(8) {
		case 0:
			to, _ := origin.Parse(fmt.Sprintf("https://h%d.example.com", roll(numHosts)))
			target := exchange.Target{Origin: to, Path: "/elsewhere"}
			x.Past.Trail = &exchange.Trail{Target: target, Hops: []exchange.Hop{{Status: 301, URL: target.String()}}}
			return exchange.Next{Again: true, Target: target}
		case 1:
			x.Past.Trail = nil
			return exchange.Next{Again: true, After: time.Duration(roll(90)) * time.Second,
				Target: exchange.Target{Origin: x.Origin.As(origin.HTTP)}}
		case 2: // the other scheme, at once or later, after a time-out
			x.Past.Trail, x.Response.Outcome = nil, exchange.Timeout
			return exchange.Next{Again: true, After: time.Duration(roll(2)) * time.Minute,
				Target: exchange.Target{Origin: x.Origin.As(origin.HTTP)}}
		case 3: // another address
			x.Response.Outcome = exchange.ConnectRefused
			next := x.Target
			next.Skip, next.Unmet = next.Skip+1, exchange.ConnectRefused
			return exchange.Next{Again: true, Target: next}
		}
		return exchange.Done
	}
	var during func(*Pipeline)
	stopped := rnd.IntN(4) == 0
	if stopped {
		after := time.Duration(rnd.IntN(20000)) * time.Millisecond
		during = func(p *Pipeline) { time.Sleep(after); p.Stop() }
	}
	s := &shelf{}
	_, err := scan(t, cfg, w, &list{hosts: hs}, s, during)
	if err != nil && !(stopped && errors.Is(err, ErrStopped)) {
		t.Errorf("ended with %v", err)
	}
	if err == nil && len(s.sites) != len(hs) {
		t.Errorf("kept %d of %d", len(s.sites), len(hs))
	}
	check := func(rate float64, key func(asked) string) {
		if rate == 0 {
			return
		}
		for k, at := range w.times(key) {
			checkRate(t, k, at, rate)
		}
	}
	check(cfg.HostRate, func(a asked) string { return a.host })
	check(cfg.IPRate, func(a asked) string { return a.addr.String() })
	check(cfg.Rate, func(asked) string { return "all" })
}
