package pipeline

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// listed are Rates by address, and by domain, which begins with a dot.
type listed map[string]float64

func (l listed) Address(addr netip.Addr) (float64, bool) {
	r, ok := l[addr.String()]
	return r, ok
}

func (l listed) Domain(host string) (domain string, perSecond float64, ok bool) {
	for ok = true; ok; _, host, ok = strings.Cut(host, ".") {
		if r, listed := l["."+host]; listed {
			return host, r, true
		}
	}
	return "", 0, false
}

// Hosts hN.DOMAIN are at address N%10 of their domain's network.
func atNetworks(host string) string {
	return fmt.Sprintf("10.%d.0.%d", len(host[strings.IndexByte(host, '.'):]), number(host)%10)
}

// Addresses and domains get the rates that they have of their own, and the others those of all, on a busy machine too: in no second
// more than is promised of the rate, and no less on the whole than it allows.
func TestOwnRatesHold(t *testing.T) {
	f := func(name string, cfg Config, hs []string, key func(asked) string, want map[string]float64) {
		t.Helper()
		run := func(name string, lag, way time.Duration, share float64) {
			l := newLags(1)
			w, s := &web{latency: 30 * time.Millisecond, ttl: 3 * time.Second, woken: l.upTo(lag), way: l.upTo(way), address: atNetworks}, &shelf{}
			cfg.Concurrency = 200
			if _, err := scan(t, cfg, w, &list{hosts: hs}, s, nil); err != nil || len(s.sites) != len(hs) {
				t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), len(hs), err)
			}
			times := w.times(key)
			for k, rate := range want {
				at := times[k]
				if len(at) < 2 {
					t.Fatalf("%s: %q was asked %d times", name, k, len(at))
				}
				checkRate(t, name+", "+k, at, rate)
				if took := (at[len(at)-1] - at[0]).Seconds(); took > float64(len(at))/rate/share+1 {
					t.Errorf("%s: %q was asked %d times in %.1f s, at %v/s", name, k, len(at), took, rate)
				}
			}
		}
		run(name, 0, 0, 0.95)
		run(name+", busy machine", 150*time.Millisecond, 100*time.Millisecond, 0.75)
	}
	addr := func(a asked) string { return a.addr.String() }
	domain := func(a asked) string { return a.host[strings.IndexByte(a.host, '.')+1:] }
	var mixed []string
	for i := range 400 {
		mixed = append(mixed, fmt.Sprintf("h%d.a.test", i), fmt.Sprintf("h%d.bb.test", i))
	}
	f("by address", Config{IPRate: 5, Rates: listed{"10.7.0.1": 40, "10.7.0.2": 0.5, "10.8.0.1": 200}}, mixed, addr,
		map[string]float64{"10.7.0.0": 5, "10.7.0.1": 40, "10.7.0.2": 0.5, "10.8.0.1": 200, "10.8.0.2": 5})
	f("by address, where there is no rate", Config{Rates: listed{"10.7.0.1": 2, "10.7.0.2": 20}}, mixed, addr, map[string]float64{"10.7.0.1": 2, "10.7.0.2": 20})
	f("by domain", Config{HostRate: 1, IPRate: 10, Rates: listed{".a.test": 4}}, mixed, domain, map[string]float64{"a.test": 4})
	f("by domain, where hosts have no rate", Config{Rates: listed{".a.test": 4, ".bb.test": 50}}, mixed, domain, map[string]float64{"a.test": 4, "bb.test": 50})
	f("by both", Config{HostRate: 1, IPRate: 1, Rate: 100, Rates: listed{".a.test": 3, "10.8.0.1": 20}}, mixed, addr, map[string]float64{"10.8.0.1": 20, "10.8.0.2": 1})
}

// A rate of 0 is no limit, of one address or of one domain alone.
func TestOwnRatesOfZero(t *testing.T) {
	f := func(name string, cfg Config, wantA, wantB time.Duration) {
		t.Helper()
		w, s := &web{address: atNetworks}, &shelf{}
		cfg.Concurrency = 100
		hs := append(hosts(100, "h%d.a.test"), hosts(100, "h%d.bb.test")...)
		if _, err := scan(t, cfg, w, &list{hosts: hs}, s, nil); err != nil || len(s.sites) != len(hs) {
			t.Fatalf("%s: kept %d, error %v", name, len(s.sites), err)
		}
		last := map[string]time.Duration{}
		for _, a := range w.asked {
			last[a.host[strings.IndexByte(a.host, '.')+1:]] = a.at
		}
		for domain, want := range map[string]time.Duration{"a.test": wantA, "bb.test": wantB} {
			if got := last[domain]; got != want {
				t.Errorf("%s: %s took %v; want %v", name, domain, got, want)
			}
		}
	}
	free := listed{}
	for i := range 10 {
		free[fmt.Sprintf("10.7.0.%d", i)] = 0
	}
	f("addresses", Config{IPRate: 1, Rates: free}, 0, 9*time.Second)
	f("a domain among slow ones", Config{Rates: listed{".test": 10, ".a.test": 0}}, 0, 99*paceOf(10).interval)
}

// The longest domain counts, also of where a redirect leads.
func TestOwnRatesOfHops(t *testing.T) {
	w, s := &web{address: func(host string) string { return "10.0.0." + fmt.Sprint(1+len(host)) }}, &shelf{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		if x.Past.Trail != nil {
			return exchange.Done
		}
		to, err := origin.New(origin.HTTPS, "hub.slow.test", 443)
		if err != nil {
			t.Error(err)
		}
		target := exchange.Target{Origin: to, Path: "/robots.txt"}
		x.Past.Trail = &exchange.Trail{Target: target, Hops: []exchange.Hop{{Status: 301}}}
		return exchange.Next{Again: true, Target: target}
	}
	if _, err := scan(t, Config{Concurrency: 100, Rates: listed{".test": 50, ".slow.test": 5}}, w, &list{hosts: hosts(50, "h%d.test")}, s, nil); err != nil || len(s.sites) != 50 {
		t.Fatalf("kept %d, error %v", len(s.sites), err)
	}
	times := w.times(func(a asked) string { return fmt.Sprint(a.host == "hub.slow.test") })
	for i := range 50 {
		if first, hub := times["false"][i], times["true"][i]; first != time.Duration(i)*paceOf(50).interval || hub != time.Duration(i)*paceOf(5).interval {
			t.Errorf("host %d was asked after %v, and the hub after %v", i, first, hub)
		}
	}
}

// New rates hold for what waits already: in memory, in the spill file, or with an address that must be resolved again.
func TestRatesOfWhatWaits(t *testing.T) {
	f := func(name string, cfg Config, before, after listed, want func(at []time.Duration) string) {
		t.Helper()
		const changed = 10*time.Second + time.Millisecond // when no request is due
		w, s := &web{latency: 30 * time.Millisecond, ttl: 4 * time.Second, address: func(string) string { return "10.0.0.1" }}, &shelf{}
		cfg.Concurrency, cfg.Rates = 50, before
		hs := hosts(1000, "h%d.a.test")
		if _, err := scan(t, cfg, w, &list{hosts: hs}, s, func(p *Pipeline) {
			time.Sleep(changed)
			p.SetRates(listed{".a.test": 1e9}) // never in force, since the next comes at once
			p.SetRates(after)
		}); err != nil || len(s.sites) != len(hs) {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), len(hs), err)
		}
		var early, late []time.Duration
		for _, a := range w.asked {
			if a.at < changed {
				early = append(early, a.at)
			} else {
				late = append(late, a.at)
			}
		}
		if text := want(early) + want(late); text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
	// between returns a check that all were asked an interval apart, and the second, before others waited, by the slack less at most.
	between := func(rates ...float64) func(at []time.Duration) string {
		return func(at []time.Duration) string {
			rate := rates[0]
			rates = rates[1:]
			checkRate(t, "all", at, rate)
			p := paceOf(rate)
			for i := range at[1:] {
				if pause := at[i+1] - at[i]; pause != p.interval && (i > 0 || pause > p.interval || pause < p.interval-p.slack) {
					return fmt.Sprintf("request %d came %v after the one before, want %v; ", i+1, pause, p.interval)
				}
			}
			return ""
		}
	}
	for _, waiting := range []int{0, 100} {
		name := func(text string) string { return fmt.Sprintf("%s, %d may wait", text, waiting) }
		cfg := Config{IPRate: 5, HostRate: 1, MaxWaiting: waiting}
		f(name("an address faster"), cfg, listed{"10.0.0.1": 10}, listed{"10.0.0.1": 50}, between(10, 50))
		f(name("an address slower"), cfg, listed{"10.0.0.1": 90}, listed{"10.0.0.1": 10}, between(90, 10))
		f(name("an address as the others"), cfg, listed{"10.0.0.1": 90}, listed{}, between(90, 5))
		f(name("an address anew"), cfg, listed{}, listed{"10.0.0.1": 50}, between(5, 50))
		cfg.IPRate = 40
		f(name("a domain slower"), cfg, listed{}, listed{".a.test": 8}, between(40, 8))
		f(name("a domain no longer"), cfg, listed{".a.test": 8}, listed{}, between(8, 40))
	}
}

// New rates hold for spilled records, also where memory is full of records of an address that stays slow.
func TestRatesOfWhatIsSpilled(t *testing.T) {
	const changed = 31 * time.Second
	w, s := &web{latency: 30 * time.Millisecond, ttl: time.Hour, address: atNetworks}, &shelf{}
	var hs []string
	for i := range 1000 {
		hs = append(hs, fmt.Sprintf("h%d.a.test", 10*i), fmt.Sprintf("h%d.bb.test", 10*i))
	}
	cfg := Config{Concurrency: 50, IPRate: 1, MaxWaiting: 100, Rates: listed{"10.7.0.0": 0.2}}
	if _, err := scan(t, cfg, w, &list{hosts: hs}, s, func(p *Pipeline) {
		time.Sleep(changed)
		p.SetRates(listed{"10.7.0.0": 100})
	}); err != nil || len(s.sites) != len(hs) {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
	}
	times := w.times(func(a asked) string { return a.addr.String() })
	// The eighth request was due by the old rate.
	if want, last := 35*time.Second+992*paceOf(100).interval, times["10.7.0.0"][999]; last != want {
		t.Errorf("the address that is faster now took until %v; want %v", last, want)
	}
	if last := times["10.8.0.0"][999]; last < 999*time.Second || last > 1000*time.Second {
		t.Errorf("the other took until %v", last)
	}
}

// Whatever changes at whatever moment, every origin is kept once, no record is forgotten in a queue, and no second has more than the
// highest rate allows.
func TestRatesChangeAtAnyMoment(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		dice, l := rand.New(rand.NewPCG(seed, 7)), newLags(seed)
		w := &web{latency: 30 * time.Millisecond, ttl: time.Second, resolving: 20 * time.Millisecond, woken: l.upTo(50 * time.Millisecond), address: atNetworks}
		throttling(w, 150*time.Millisecond, time.Second)
		var hs []string
		for i := range 300 {
			hs = append(hs, fmt.Sprintf("h%d.a.test", i), fmt.Sprintf("h%d.bb.test", i))
		}
		s := &shelf{}
		cfg := Config{Concurrency: 20, HostRate: 1, IPRate: 10, MaxWaiting: []int{0, 50}[seed%2], Rates: listed{}}
		if seed%4 >= 2 {
			cfg.Rate = 40
		}
		_, err := scan(t, cfg, w, &list{hosts: hs}, s, func(p *Pipeline) {
			for range 40 {
				time.Sleep(time.Duration(dice.IntN(800)) * time.Millisecond)
				rates := listed{}
				for _, place := range []string{".a.test", ".bb.test", ".h7.a.test", "10.7.0.1", "10.7.0.2", "10.8.0.1"} {
					if dice.IntN(2) == 0 {
						rates[place] = float64(dice.IntN(5)) * 5
					}
				}
				p.SetRates(rates)
			}
		})
		if err != nil || len(s.sites) != len(hs) {
			t.Fatalf("seed %d: kept %d of %d, error %v", seed, len(s.sites), len(hs), err)
		}
		for k, at := range w.times(func(a asked) string { return a.addr.String() }) {
			switch k {
			case "10.7.0.1", "10.7.0.2", "10.8.0.1": // 0 is one of their rates
			default:
				checkRate(t, k, at, 10)
			}
		}
	}
}

// However the rate of a domain changes, and those of its addresses, no second has more of any than the highest of its rates allows.
func TestChangedRatesHold(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		dice, l := rand.New(rand.NewPCG(seed, 9)), newLags(seed)
		w, s := &web{latency: 30 * time.Millisecond, ttl: 2 * time.Second, resolving: 20 * time.Millisecond, woken: l.upTo(50 * time.Millisecond)}, &shelf{}
		w.address = func(host string) string { return fmt.Sprintf("10.0.0.%d", number(host)%50) }
		hs := hosts(500, "h%d.a.test")
		rateUpTo := func(most int) float64 { return []float64{0.02, 0.08, 1, float64(1 + dice.IntN(most))}[dice.IntN(4)] }
		cfg := Config{Concurrency: 20, HostRate: 1, IPRate: 5, MaxWaiting: []int{0, 50}[seed%2], Rates: listed{".a.test": 8}}
		_, err := scan(t, cfg, w, &list{hosts: hs}, s, func(p *Pipeline) {
			for range 60 {
				time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
				p.SetRates(listed{".a.test": rateUpTo(8), fmt.Sprintf("10.0.0.%d", dice.IntN(50)): rateUpTo(5)})
			}
			p.SetRates(listed{".a.test": 8})
		})
		if err != nil || len(s.sites) != len(hs) {
			t.Fatalf("seed %d: kept %d of %d, error %v", seed, len(s.sites), len(hs), err)
		}
		checkRate(t, "the domain", w.times(func(asked) string { return "" })[""], 8)
		for addr, at := range w.times(func(a asked) string { return a.addr.String() }) {
			checkRate(t, addr, at, 5)
		}
	}
}

// The tokens of a record cost no allocation, whatever rates there are.
func TestTokensAllocateNothing(t *testing.T) {
	o, err := origin.New(origin.HTTPS, "www.a.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{HostRate: 1, Rates: listed{".a.test": 5}}, nil, nil, nil, nil)
	s := p.newRun(t.Context()).newSchedule()
	rec := &record{origin: o, addr: netip.MustParseAddr("192.0.2.7").As16()}
	if n := testing.AllocsPerRun(100, func() {
		if s.token(byHost, rec).interval != paceOf(5).interval || s.levels[byHost].intervalOf(s.token(byHost, rec), 0) == 0 {
			t.Error("another pace")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
