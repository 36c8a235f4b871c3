package pipeline

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// In random worlds with little memory each origin is kept once and no request is too early, whatever is spilled, and
// the run takes little longer than with memory for all.
func TestRandomSpills(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		if randomSpill(t, seed); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomSpill(t *testing.T, seed uint64) {
	run := func(maxWaiting int) (took time.Duration) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		pick := func(of ...int) int { return of[rnd.IntN(len(of))] }
		numHosts, numAddrs, n := pick(1, 20, 400), pick(1, 2, 30), 50+rnd.IntN(400)
		hs := make([]string, n)
		for i := range hs {
			hs[i] = fmt.Sprintf("h%d.example.com:%d", rnd.IntN(numHosts), 1000+i)
		}
		cfg := Config{
			Concurrency: pick(1, 3, 50), Resolvers: pick(0, 1), MaxWaiting: maxWaiting,
			HostRate: float64(pick(0, 2, 20)), IPRate: float64(pick(1, 5, 50)), Rate: float64(pick(0, 0, 40)),
		}
		var mu sync.Mutex
		dice := rand.New(rand.NewPCG(seed, 6))
		roll := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return dice.IntN(n)
		}
		w := &web{ttl: time.Duration(pick(0, 2000, 60000)) * time.Millisecond,
			resolving: time.Duration(pick(0, 50)) * time.Millisecond}
		w.address = func(host string) string {
			var i int
			_, _ = fmt.Sscanf(host, "h%d", &i)
			return fmt.Sprintf("10.0.0.%d", i*i%numAddrs)
		}
		retries, slow, complains := pick(0, 10, 60), pick(0, 5), pick(0, 0, 3)
		w.lasts = func(host string) time.Duration {
			if number(host)%20 < slow {
				return 2 * timeout
			}
			return 50 * time.Millisecond
		}
		w.answer = func(x *exchange.Exchange) exchange.Next {
			switch {
			case x.Past.Attempts > 2:
				return exchange.Done
			case roll(100) < complains:
				return exchange.Next{Again: true, After: time.Second, Target: x.Target, Throttled: true}
			case roll(100) < retries:
				return exchange.Next{Again: true, After: time.Duration(roll(300)) * time.Second, Target: x.Target}
			}
			return exchange.Done
		}
		s := &shelf{}
		took, err := scan(t, cfg, w, &list{hosts: hs}, s, nil)
		if err != nil || len(s.sites) != n {
			t.Errorf("%d places: kept %d of %d, error %v", maxWaiting, len(s.sites), n, err)
		}
		for host, at := range w.times(func(a asked) string { return a.host }) {
			if cfg.HostRate > 0 {
				checkRate(t, host, at, cfg.HostRate)
			}
		}
		for addr, at := range w.times(func(a asked) string { return a.addr.String() }) {
			checkRate(t, addr, at, cfg.IPRate)
		}
		return took
	}
	roomy := run(10_000)
	run(1) // in which everything waits for the one place: only its end is bounded
	for _, places := range []int{2, 7, 30, 100} {
		if took := run(places); took > roomy*3/2+5*time.Minute {
			t.Errorf("%d places: took %v; with places for all %v", places, took, roomy)
		}
	}
}

// An address that is slowed after its records were spilled does not hold up the spilled records of another.
func TestASlowedAddressHoldsUpNoSpilledRecords(t *testing.T) {
	const n = 3000
	var mixed []string
	for i := range n {
		mixed = append(mixed, fmt.Sprintf("h%d.slow.example", i), fmt.Sprintf("h%d.fine.example", i))
	}
	slow := func(host string) bool { return host[len(host)-9] == 'w' }
	w := &web{latency: 10 * time.Millisecond, resolving: 20 * time.Millisecond, ttl: time.Minute}
	w.address = func(host string) string {
		if slow(host) {
			return "10.1.1.1"
		}
		return "10.2.2.2"
	}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		return exchange.Next{Throttled: slow(x.Target.Origin.Host()) && time.Since(w.begun) > 10*time.Second}
	}
	s := &shelf{}
	took, err := scan(t, Config{Concurrency: 20, IPRate: 10, MaxWaiting: 400}, w, &list{hosts: mixed}, s, nil)
	if err != nil || len(s.sites) != 2*n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), 2*n, err)
	}
	var fine time.Duration
	for _, a := range w.asked {
		if !slow(a.host) {
			fine = max(fine, a.at)
		}
	}
	t.Logf("the other address was done after %v, all after %v", fine, took)
	// A spilled record is resolved at its turn, which may delay the last one by a turn or two.
	if want := w.resolving + (n+1)*paceOf(10).interval; fine > want {
		t.Errorf("the other address was done after %v; want at most %v", fine, want)
	}
	if most := n * 1600 * time.Millisecond * 11 / 10; took > most {
		t.Errorf("took %v; want at most %v", took, most)
	}
}

// The slowest rate makes no estimate overflow, nor a bucket that a calendar cannot keep.
func TestEstimatesAreBounded(t *testing.T) {
	level, c, file := newLevel(newLimiter(&Config{IPRate: 1e-12}).limits[byAddress], nil), &calendar{}, newSpill(t.TempDir())
	level.queues[1] = queue{length: 1 << 18}
	var last time.Duration
	for range 1000 {
		turn := level.estimate(token{1, level.limit.pace}, time.Second, 10)
		if turn < last || turn > farthest {
			t.Fatalf("estimated %v after %v", turn, last)
		}
		last = turn
		if err := c.put(file, turn, time.Second, record{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.buckets) > 10 || c.held != 1000 || c.buckets[0].from >= c.buckets[0].to {
		t.Errorf("%d records in %d buckets", c.held, len(c.buckets))
	}
}
