package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// TestLookup looks names up in a zone. hostile_test.go has the other answers.
func TestLookup(t *testing.T) {
	f := func(name, host string, opts Options, want string, records ...string) {
		t.Helper()
		run(t, name, func(w *world) {
			w.want(tell(w.find(w.Context(), w.resolver(opts, zone(records...)), host)), want)
		})
	}
	const four, six = "a.com. 60 A 192.0.2.1", "a.com. 60 AAAA 2001:db8::1"
	f("A", "a.com", Options{}, "[192.0.2.1]", four, six)
	f("only AAAA", "a.com", Options{}, "[2001:db8::1]", six)
	f("IPv4 only", "a.com", Options{IPv4: true}, noAddress, six)
	f("IPv6 only", "a.com", Options{IPv6: true}, "[2001:db8::1]", four, six)
	f("underscore", "_x.a.com", Options{}, "[192.0.2.1]", "_x.a.com. 60 A 192.0.2.1")
	f("CNAME", "a.com", Options{}, "[192.0.2.1]", "a.com. 60 CNAME b.com.", "b.com. 60 CNAME c.com.",
		"c.com. 60 A 192.0.2.1")
	f("CNAME to nothing", "a.com", Options{}, noAddress, "a.com. 60 CNAME b.com.", "b.com. 60 TXT x")
	f("NXDOMAIN", "a.com", Options{}, noSuchName)
	f("no data", "a.com", Options{}, noAddress, "a.com. 60 TXT x")
	f("below localhost", "a.localhost", Options{IPv6: true}, "[::1]")
}

// A closed port alone fails a look-up. A restart of its server loses no name.
func TestClosedPort(t *testing.T) {
	in(t, func(w *world) {
		w.want(w.lookUp(w.resolver(Options{}, nil)),
			"0s, 400ms, 1s, 1.9s, 3.25s, 3.26s probe, 3.66s probe plain, 4.26s probe plain, 5.275s, 8.3125s; 10s "+unreachable)
	})
	in(t, func(w *world) {
		r := w.resolver(Options{}, nil)
		time.AfterFunc(1500*time.Millisecond, func() { w.serve(1, anything) })
		w.want(w.lookUp(r), "0s, 400ms, 1s, 1.9s; 1.91s ["+good+"]")
	})
}

// A dead server delays a few look-ups, not each that would ask it first.
func TestDeadServerIsLeftAlone(t *testing.T) {
	in(t, func(w *world) {
		opts, log := logged(Options{})
		r := w.resolver(opts, quiet, anything)
		lookUp := func(i int) (delayed bool) {
			got := w.find(w.Context(), r, fmt.Sprintf("a%d.com", i))
			if tell(got) != "["+good+"]" || got.Took != 2*oneWay && got.Took != r.opts.First+2*oneWay {
				w.Fatalf("got %s, which took %v", tell(got), got.Took)
			}
			return got.Took > r.opts.First
		}
		names := 0
		for ; !r.Stats().Servers[0].Down; names++ {
			lookUp(names)
		}
		probes := w.times(1, "probe")
		if len(probes) != probeTries {
			w.Fatalf("probes at %v", probes)
		}
		w.want(log.String(), downLine(w.begun.Add(probes[2]+900*time.Millisecond)))
		delayed := 0
		for i := range 500 {
			if lookUp(names + i) {
				delayed++
			}
		}
		if delayed == 0 || delayed > 60 { // by chance alone: 250
			w.Errorf("%d look-ups were delayed", delayed)
		}
	})
}

// Cancelling ends a look-up and those that wait for its answer.
func TestCancel(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(quiet)
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { w.want(tell(w.find(ctx, r, "a.com")), timedOut) })
		}
		time.Sleep(900 * time.Millisecond)
		cancel()
		all.Wait()
		w.want(w.questions()+"; "+w.since().String(), "0s, 400ms plain; 900ms")
	})
}

// Concurrent look-ups of a name ask the server once. Later ones do not ask it before the answer expires.
func TestOneFlight(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(anything)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got := w.find(w.Context(), r, "a.com"); tell(got) != "["+good+"]" || got.Took != 2*oneWay ||
					w.since() != 2*oneWay {
					w.Errorf("got %s, which took %v, after %v", tell(got), got.Took, w.since())
				}
			})
		}
		all.Wait()
		w.want(w.questions(), "0s")
		time.Sleep(time.Minute - time.Nanosecond)
		if again := w.find(w.Context(), r, "a.com"); tell(again) != "["+good+"]" || again.Took != 0 ||
			time.Until(again.Until) != 1 {
			w.Errorf("got %s, which took %v and is valid for %v", tell(again), again.Took, time.Until(again.Until))
		}
		time.Sleep(time.Nanosecond)
		w.find(w.Context(), r, "a.com")
		w.want(w.questions(), "0s, 1m0.01s")
	})
}

// The absence of a name is cached for as long as its zone says. Failures of servers are not cached.
func TestNegative(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(byName(map[string]script{
			"a.com.": edited(func(m *dns.Msg) { m.Rcode, m.Ns = dns.RcodeNameError, parsed("com. 900 SOA a. b. 1 2 3 4 120") }),
			"b.com.": refuses(dns.RcodeServerFailure),
		}))
		for range 2 {
			w.want(tell(w.find(w.Context(), r, "a.com")), noSuchName)
		}
		time.Sleep(2 * time.Minute)
		w.want(tell(w.find(w.Context(), r, "a.com")), noSuchName)
		w.want(w.questions(), "0s, 2m0.01s")
		for range 2 {
			w.want(tell(w.find(w.Context(), r, "b.com")), servFail)
		}
		w.want(w.questions(), "0s, 2m0.01s, 2m0.02s b.com., 2m0.13s b.com. plain, 2m0.19s b.com., 2m0.3s b.com. plain")
	})
}

func TestCacheExpiresAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(640)
		put := func(host string, ttl time.Duration) {
			_, f, lead := c.begin(host, time.Now())
			if f == nil || !lead {
				t.Fatalf("%s is cached or in flight", host)
			}
			c.finish(f, Answer{Addrs: []netip.Addr{netip.IPv6Loopback()}, Until: time.Now().Add(ttl)}, true)
		}
		put("a", time.Minute)
		time.Sleep(59 * time.Second)
		if _, f, _ := c.begin("a", time.Now()); f != nil {
			t.Error("expired too early")
		}
		time.Sleep(time.Second)
		put("a", time.Minute) // fails if it is still cached
		for i := range 10_000 {
			put(fmt.Sprint(i), time.Hour)
		}
		size := 0
		for i := range c.shards {
			size += max(len(c.shards[i].flights), len(c.shards[i].cached))
		}
		if size > 640 {
			t.Errorf("%d answers are cached", size)
		}
	})
}

// The second question is due when the rate allows it, which is later than the end of its context.
func TestRate(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{Rate: 0.001}, anything)
		w.want(w.lookUp(r), "0s; 10ms ["+good+"]")
		ctx, cancel := context.WithTimeout(w.Context(), 999*time.Second)
		defer cancel()
		w.want(tell(w.find(ctx, r, "b.com")), timedOut)
		w.want(w.questions()+"; "+w.since().String(), "0s; 16m39.01s")
		w.want(tell(w.find(w.Context(), r, "b.com")), "["+good+"]")
		w.want(w.questions(), "0s, 16m40s b.com.")
	})
}

// A leader whose context ends while it waits for the rate fails alone. Its followers begin again.
func TestRateOfLeader(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{Rate: 0.1}, zone("a.com. 60 AAAA 2001:db8::1"))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { w.want(fmt.Sprint(tell(w.find(ctx, r, "a.com")), " ", w.since()), timedOut+" 1s") })
		time.Sleep(2 * oneWay)
		all.Go(func() {
			w.want(fmt.Sprint(tell(w.find(w.Context(), r, "a.com")), " ", w.since()), "[2001:db8::1] 20.01s")
		})
		all.Wait()
		w.want(w.questions(), "0s, 10s, 20s AAAA")
	})
}

func TestSystemServers(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(systemServers(path), " "); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	f("nameserver 192.0.2.1\nnameserver 2001:db8::1\noptions ndots:1\n", "192.0.2.1:53 [2001:db8::1]:53")
	f("nameserver fe80::1%eth0\n", "[fe80::1%eth0]:53")
	// Invalid addresses are ignored, as by the system's resolver.
	f("nameserver ns.example\nnameserver 192.0.2.1\nnameserver\n", "192.0.2.1:53")
	f("nameserver ns.example\n", "127.0.0.1:53")
	f("", "127.0.0.1:53")
	if got := strings.Join(systemServers(filepath.Join(t.TempDir(), "absent")), " "); got != "127.0.0.1:53" {
		t.Errorf("without a file: got %s", got)
	}
}

func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	const text = "# comment\n192.0.2.1 a.example A2.example # more\n::1 a.example\nnonsense b.example\n192.0.2.9\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(opts Options, host, want string) {
		t.Helper()
		in(t, func(w *world) {
			opts.Hosts = path
			w.want(tell(w.find(w.Context(), w.resolver(opts, zone()), host)), want)
		})
	}
	f(Options{}, "a.example", "[192.0.2.1 ::1]")
	f(Options{IPv6: true}, "a.example", "[::1]")
	f(Options{}, "a2.example", "[192.0.2.1]")
	f(Options{IPv6: true}, "a2.example", noAddress)
	f(Options{}, "b.example", noSuchName)
}

func TestNewRefuses(t *testing.T) {
	for _, server := range []string{"", "ns.example", "1.1.1.1:x", "1.1.1.1:0", "1.1.1.1:53:53"} {
		if _, err := New([]string{server}, Options{}); err == nil {
			t.Errorf("%q was accepted as a server", server)
		}
	}
	if _, err := New(slices.Repeat([]string{"1.1.1.1"}, maxServers+1), Options{}); err == nil {
		t.Error("more than maxServers servers were accepted")
	}
	if _, err := New([]string{"1.1.1.1"}, Options{IPv4: true, IPv6: true}); err == nil {
		t.Error("two exclusive families were accepted")
	}
	r, err := New([]string{"1.1.1.1", "[2606:4700::1111]", "2606:4700::1111", "[::1]:5353", "fe80::1%eth0",
		"[fe80::1%eth0]:5353"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []netip.AddrPort
	for _, s := range r.servers {
		got = append(got, s.addr)
	}
	if want := "[1.1.1.1:53 [2606:4700::1111]:53 [2606:4700::1111]:53 [::1]:5353 [fe80::1%eth0]:53 [fe80::1%eth0]:5353]"; fmt.Sprint(got) != want {
		t.Errorf("got %s", got)
	}
}
