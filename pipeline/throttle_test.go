package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// A key's life is written as a script: `5s>6s` is an exchange sent after 5 s whose 429 came after 6 s, and `70s=1s`
// says that the interval is 1 s after 70 s.
func TestThrottled(t *testing.T) {
	f := func(name string, rate float64, script string) {
		t.Helper()
		level := newLevel(newLimiter(&Config{IPRate: rate}).limits[byAddress], nil)
		at, other := token{7, level.limit.pace}, token{8, level.limit.pace}
		parse := func(text string) time.Duration {
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for _, step := range strings.Fields(script) {
			if sent, heard, complains := strings.Cut(step, ">"); complains {
				level.throttled(at, parse(sent), parse(heard))
				continue
			}
			when, want, _ := strings.Cut(step, "=")
			if got := level.intervalOf(at, parse(when)); got != parse(want) {
				t.Errorf("%s: after %s the interval is %v; want %s", name, when, got, want)
			}
		}
		if got := level.intervalOf(other, 0); got != other.interval {
			t.Errorf("%s: the interval of another key is %v; want %v", name, got, other.interval)
		}
	}
	f("nothing happens", 2, "0s=500ms")
	f("doubled each time, up to 16 times", 2, "0s>1s 1s=1s 2s>3s 3s=2s 5s>6s 6s=4s 10s>11s 11s=8s 20s>21s 21s=8s")
	f("at most 10 s", 1, "0s>1s 2s>3s 4s>5s 5s=8s 6s>7s 7s=10s 8s>9s 9s=10s")
	f("configured slower", 0.05, "0s>1s 1s=20s 2s>3s 3s=20s")
	f("no rate", 0, "0s=0s 0s>1s 1s=200ms 2s>3s 3s=400ms 4s>5s 5s=800ms 6s>7s 7s=1600ms 8s>9s 9s=1600ms")
	f("sent before the last doubling", 2, "0s>1s 0s>1s 1s>2s 1s=1s 1001ms>3s 3s=2s 2s>4s 3s>4s 4s=2s")
	f("halved each minute", 2,
		"0s>1s 2s>3s 4s>5s 64999ms=4s 65s=2s 124999ms=2s 125s=1s 184999ms=1s 185s=500ms 1000s=500ms")
	f("the limit is not counted twice", 2, "0s>1s 2s>3s 4s>5s 6s>7s 8s>9s 10s>11s 70999ms=8s 71s=4s")
	f("a late answer renews the minute", 2, "0s>1s 0s>50s 61s=1s 109999ms=1s 110s=500ms")
	f("halved and doubled", 2, "0s>1s 2s>3s 4s>5s 65s=2s 66s>67s 67s=4s 127s=2s 187s=1s 247s=500ms")
	f("back to no rate", 0, "0s>1s 2s>3s 63s=200ms 123s=0s 124s>125s 125s=200ms")
}

// Each address is slowed by itself, and no more than there is room for at once.
func TestThrottledIsBounded(t *testing.T) {
	level := newLevel(newLimiter(&Config{IPRate: 10}).limits[byAddress], nil)
	for k := range key(maxSlowed + 1000) {
		at := token{k, level.limit.pace}
		level.throttled(at, 0, time.Second)
		if level.intervalOf(at, time.Second) == at.interval {
			t.Fatalf("address %d is not slowed", k)
		}
	}
	if n := len(level.slowed); n != maxSlowed {
		t.Errorf("%d addresses are slowed; want %d", n, maxSlowed)
	}
	level.intervalOf(token{key: maxSlowed + 999}, time.Hour)
	if n := len(level.slowed); n != maxSlowed-1 {
		t.Errorf("%d addresses are slowed after one has calmed down; want %d", n, maxSlowed-1)
	}
}

// throttling lets each network of a web answer 429 to an exchange that comes less than gap after the one before. There
// are two retries, each after `after`. It returns the number of complaints, and of sites that ended with one.
func throttling(w *web, gap, after time.Duration) (complaints, lost *int) {
	complaints, lost = new(int), new(int)
	last := map[[16]byte]time.Duration{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		network := networkOf(x.Lookup.Addr.As16())
		at := time.Since(w.begun) - w.latency
		before, asked := last[network]
		last[network] = at
		if !asked || at-before >= gap {
			return exchange.Done
		}
		*complaints++
		x.Response.Status = 429
		if x.Past.Later == 2 {
			*lost++
			return exchange.Next{Throttled: true}
		}
		x.Past.Later++
		return exchange.Next{Again: true, After: after, Target: x.Target, Throttled: true}
	}
	return complaints, lost
}

// 200 sites are at one address, which answers 429 to an exchange that comes too soon after another. All are answered,
// also without a rate, and on a busy machine; and the address soon has no reason for a 429.
func TestAThrottlingAddressIsAskedAsItWishes(t *testing.T) {
	f := func(name string, cfg Config, gap, lag time.Duration, address func(i int) string, least, most int) {
		t.Helper()
		w := &web{latency: 30 * time.Millisecond, woken: newLags(1).upTo(lag), address: func(host string) string {
			var i int
			_, _ = fmt.Sscanf(host, "h%d", &i)
			return address(i)
		}}
		complaints, lost := throttling(w, gap, time.Minute)
		var counted uint64
		s := &shelf{}
		cfg.Concurrency = 100
		_, err := scan(t, cfg, w, &list{hosts: hosts(200, "h%d.example.com")}, s, func(p *Pipeline) {
			for p.Progress().Kept.Load() < 200 {
				time.Sleep(time.Second)
			}
			counted = p.Progress().Throttled.Load()
		})
		if err != nil || len(s.sites) != 200 || *lost > 0 {
			t.Errorf("%s: kept %d of 200, %d of them throttled to the end, error %v", name, len(s.sites), *lost, err)
		}
		if *complaints < least || *complaints > most || counted != uint64(*complaints) {
			t.Errorf("%s: %d complaints, counted %d; want from %d to %d", name, *complaints, counted, least, most)
		}
	}
	one := func(int) string { return "10.1.1.1" }
	network := func(i int) string { return fmt.Sprintf("2001:db8::%x:%x", i, i) }
	f("the default rate", Config{IPRate: 10}, 350*time.Millisecond, 0, one, 3, 3)
	f("an IPv6 network", Config{IPRate: 10}, 350*time.Millisecond, 0, network, 3, 3)
	f("a high rate", Config{IPRate: 50}, 150*time.Millisecond, 0, one, 5, 5)
	f("a rate in all, too", Config{IPRate: 50, HostRate: 1, Rate: 100}, 150*time.Millisecond, 0, one, 5, 5)
	f("a busy machine", Config{IPRate: 10}, 350*time.Millisecond, 150*time.Millisecond, one, 1, 20)
	f("no rate", Config{}, 350*time.Millisecond, 0, one, 99, 110) // the order of the first hundred is not fixed
	f("no rate, a rate in all", Config{Rate: 100}, 350*time.Millisecond, 0, one, 5, 5)
}

// The exact times of requests to an address that answers 429.
func TestWhenAThrottlingAddressIsAsked(t *testing.T) {
	const latency = 10 * time.Millisecond
	f := func(name string, rate float64, complains int, want ...time.Duration) {
		t.Helper()
		w := &web{latency: latency, address: func(string) string { return "10.1.1.1" }}
		asked := 0
		w.answer = func(*exchange.Exchange) exchange.Next {
			asked++
			return exchange.Next{Throttled: asked <= complains}
		}
		s := &shelf{}
		if _, err := scan(t, Config{Concurrency: 1, IPRate: rate}, w, &list{hosts: hosts(len(want), "h%d.example.com")}, s,
			nil); err != nil {
			t.Fatal(err)
		}
		for i, a := range w.asked {
			if a.at != want[i] {
				t.Errorf("%s: exchange %d was at %v; want %v", name, i, a.at, want[i])
			}
		}
	}
	const ms = time.Millisecond
	f("twice a second", 2, 9, 0, 1010*ms, 3020*ms, 7030*ms, 15040*ms, 23040*ms, 31040*ms)
	f("no rate", 0, 9, 0, 210*ms, 620*ms, 1430*ms, 3040*ms, 4640*ms)
	f("once", 2, 1, 0, 1010*ms, 2010*ms, 3010*ms)
	f("halved after a minute", 0.5, 2,
		// the minute ends at 64.02 s
		0, 4010*ms, 12020*ms, 20020*ms, 28020*ms, 36020*ms, 44020*ms, 52020*ms, 60020*ms, 68020*ms,
		72020*ms)
}

// Exchanges that were under way when an address first complained say nothing about the slower rate: the interval is
// doubled once. This lasts for a minute.
func TestABurstOfComplaintsDoublesOnce(t *testing.T) {
	const n = 400
	w := &web{latency: 10 * time.Millisecond, address: func(string) string { return "10.1.1.1" }}
	seen := map[string]bool{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		if host := x.Target.Origin.Host(); !seen[host] {
			seen[host] = true
			return exchange.Next{Again: true, After: 20 * time.Second, Target: x.Target, Throttled: true}
		}
		return exchange.Done
	}
	s := &shelf{}
	if _, err := scan(t, Config{Concurrency: n}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil); err != nil ||
		len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	// From 20.01 s on, every 0.2 s; from 60.01 s on, as fast as they like.
	for i, a := range w.asked {
		var want time.Duration
		if i >= n {
			want = min(20*time.Second+time.Duration(i-n)*200*time.Millisecond, time.Minute) + w.latency
		}
		if a.at != want {
			t.Fatalf("exchange %d was at %v; want %v", i, a.at, want)
		}
	}
}

// On a busy machine, too, the exchanges of a slowed address start an interval apart, except for lateness within the
// slack.
func TestTheLimiterKeepsTheSlowerRate(t *testing.T) {
	f := func(rate float64, interval time.Duration) {
		t.Helper()
		w := &web{latency: time.Millisecond, woken: newLags(2).upTo(150 * time.Millisecond),
			address: func(string) string { return "10.1.1.1" }}
		w.answer = func(*exchange.Exchange) exchange.Next { return exchange.Next{Throttled: true} }
		s := &shelf{}
		if _, err := scan(t, Config{Concurrency: 4, IPRate: rate}, w, &list{hosts: hosts(100, "h%d.example.com")}, s,
			nil); err != nil {
			t.Fatal(err)
		}
		slack := newLimiter(&Config{IPRate: rate}).limits[byAddress].slack
		for i := 20; i < len(w.asked); i++ {
			if gap := w.asked[i].at - w.asked[i-1].at; gap < interval-slack {
				t.Errorf("%v/s: exchange %d started %v after the one before; want at least %v", rate, i, gap, interval-slack)
			}
		}
	}
	f(0, 1600*time.Millisecond)
	f(2, 8*time.Second)
}
