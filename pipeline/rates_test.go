package pipeline

import (
	"fmt"
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

// Addresses and domains with rates of their own get these, and the others the general rates, also on a busy machine. No
// second has more requests than the rate promises, and in all there are not fewer than it allows.
func TestOwnRatesHold(t *testing.T) {
	f := func(name string, cfg Config, hs []string, key func(asked) string, want map[string]float64) {
		t.Helper()
		run := func(name string, lag, way time.Duration, share float64) {
			l := newLags(1)
			w, s := &web{latency: 30 * time.Millisecond, ttl: 3 * time.Second, woken: l.upTo(lag), way: l.upTo(way),
				address: atNetworks}, &shelf{}
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
	f("by address, where there is no rate", Config{Rates: listed{"10.7.0.1": 2, "10.7.0.2": 20}}, mixed, addr,
		map[string]float64{"10.7.0.1": 2, "10.7.0.2": 20})
	f("by domain", Config{HostRate: 1, IPRate: 10, Rates: listed{".a.test": 4}}, mixed, domain,
		map[string]float64{"a.test": 4})
	f("by domain, where hosts have no rate", Config{Rates: listed{".a.test": 4, ".bb.test": 50}}, mixed, domain,
		map[string]float64{"a.test": 4, "bb.test": 50})
	f("by both", Config{HostRate: 1, IPRate: 1, Rate: 100, Rates: listed{".a.test": 3, "10.8.0.1": 20}}, mixed, addr,
		map[string]float64{"10.8.0.1": 20, "10.8.0.2": 1})
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

// The longest domain counts, also for the target of a redirect.
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
	if _, err := scan(t, Config{Concurrency: 100, Rates: listed{".test": 50, ".slow.test": 5}}, w,
		&list{hosts: hosts(50, "h%d.test")}, s, nil); err != nil || len(s.sites) != 50 {
		t.Fatalf("kept %d, error %v", len(s.sites), err)
	}
	times := w.times(func(a asked) string { return fmt.Sprint(a.host == "hub.slow.test") })
	for i := range 50 {
		if first, hub := times["false"][i], times["true"][i]; first != time.Duration(i)*paceOf(50).interval ||
			hub != time.Duration(i)*paceOf(5).interval {
			t.Errorf("host %d was asked after %v, and the hub after %v", i, first, hub)
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
