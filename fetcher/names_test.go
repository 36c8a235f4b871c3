package fetcher

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// changing is a Resolver whose answers change. A host's first look-up returns its first answer, and so on; the last
// answer stays. An answer is a list of addresses; "" means no such name.
type changing struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string // hosts, in order
}

func (c *changing) Lookup(_ context.Context, host string) resolve.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, host)
	left := c.answers[host]
	if len(left) > 1 {
		c.answers[host] = left[1:]
	}
	if len(left) == 0 || left[0] == "" {
		return resolve.Answer{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName}
	}
	answer := resolve.Answer{Until: time.Now().Add(time.Minute)}
	for _, text := range strings.Fields(left[0]) {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(text))
	}
	return answer
}

// dials gives a Config a web in which an address stands for its server's behaviour. The web records the dialled
// addresses.
func dials(t *testing.T, cfg *Config) *web {
	t.Helper()
	w := newWeb(t, 0)
	for addr, answer := range map[string]string{
		"3.0.0.1":   "HTTP/1.1 302 x\r\nLocation: http://b.com/\r\n\r\n",
		"4.0.0.1":   "HTTP/1.1 302 x\r\nLocation: /x\r\n\r\n",
		"5.0.0.1":   "HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n",
		"9.0.0.1":   okHead + "Content-Length: 2\r\n\r\nab",
		"9.0.0.2":   okHead + "Content-Length: 2\r\n\r\nab",
		"9.0.0.3":   okHead + "Content-Length: 2\r\n\r\nab",
		"9.0.0.9":   okHead + "Content-Length: 2\r\n\r\nab",
		"10.0.0.1":  okHead + "Content-Length: 2\r\n\r\nab",
		"127.0.0.1": okHead + "Content-Length: 2\r\n\r\nab",
	} {
		w.serve(addr+":80", reply(answer))
	}
	cfg.Dial = w.dial
	return w
}

// all returns the dialled addresses, with ports other than 80.
func (w *web) all() string { return strings.ReplaceAll(strings.Join(w.dialled, " "), ":80", "") }

// TestChangingNames has names whose answers change between look-ups. Each address is checked before it is dialled,
// and only a checked address is dialled. An origin's first exchange, its redirect hops, further addresses, other
// scheme and retries have a look-up each.
func TestChangingNames(t *testing.T) {
	const (
		good     = "9.0.0.1"
		redirect = "3.0.0.1" // to b.com
		onward   = "4.0.0.1" // to another path
		fails    = "5.0.0.1" // by 503
		silent   = "6.0.0.0" // see nowhere
		refuses  = "8.0.0.1"
		blocked  = "blocked_address"
	)
	f := func(name, entry string, a, b []string, dialled, want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			cfg := testConfig(netip.AddrPort{})
			cfg.AllowPrivate, cfg.ConnectTo, cfg.Retries, cfg.NoFallback = false, nil, 2, false
			resolver := &changing{answers: map[string][]string{"a.com": a, "b.com": b}}
			cfg.Resolver = resolver
			w := dials(t, &cfg)
			r, asked := fetch(t, newFetcher(t, cfg), entry)
			if w.all() != dialled {
				t.Errorf("%s: dialled %s, want %s", name, w.all(), dialled)
			}
			if r.Outcome.String() != want {
				t.Errorf("%s: the row says %v (%v), want %s", name, r.Outcome, r.Cause, want)
			}
			if want == blocked && (r.Cause != exchange.CausePrivateAddress || r.Body != nil) {
				t.Errorf("%s: the row is %+v", name, r)
			}
			if strings.HasPrefix(dialled, fails) && want == "answered" &&
				(r.Status != 503 || r.Cause != exchange.CausePrivateAddress || r.Attempts != len(w.dialled) ||
					r.FetchedAt.IsZero()) {
				t.Errorf("%s: the earlier answer is lost: %+v", name, r)
			}
			if len(resolver.asked) != len(asked) {
				t.Errorf("%s: %d exchanges with %d look-ups: %v", name, len(asked), len(resolver.asked), resolver.asked)
			}
			r.Reset()
		})
	}
	one := func(answers ...string) []string { return answers }
	const a = "http://a.com"

	// One answer.
	f("public", a, one(good), nil, good, "answered")
	for _, private := range []string{"127.0.0.1", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
		"255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1", "fe80::1", "fd00::1"} {
		f(private, a, one(private), nil, "", blocked)
		f(private+" first", a, one(private+" "+good), nil, good, "answered")
		f(private+" last", a, one(good+" "+private), nil, good, "answered")
	}
	f("a thousand private ones", a, one(strings.Repeat("10.0.0.1 ", 1000)), nil, "", blocked)
	f("a public one after them", a, one(strings.Repeat("10.0.0.1 ", 1000)+good), nil, good, "answered")
	f("redirected to a private one", a, one(redirect), one("127.0.0.1"), redirect, blocked)
	f("redirected to mixed ones", a, one(redirect), one("127.0.0.1 "+good), redirect+" "+good, "answered")

	// Changing answers.
	f("after the only look-up", a, one(good, "127.0.0.1"), nil, good, "answered")
	f("at the redirect", a, one(onward, "127.0.0.1"), nil, onward, blocked)
	f("at the redirect, to public ones", a, one(onward, good, "127.0.0.1"), nil, onward+" "+good, "answered")
	f("at the redirect's further address", a, one(redirect), one(refuses+" "+good, "127.0.0.1 10.0.0.1"), redirect+" "+
		refuses, "connect_refused")
	f("at the further address", a, one(refuses+" "+good, "127.0.0.1 10.0.0.1"), nil, refuses, "connect_refused")
	f("at the further address, mixed", a, one(refuses+" "+good, "10.0.0.1 "+refuses+" "+good), nil, refuses+" "+good,
		"answered")
	f("at the retry after 503", a, one(fails, "127.0.0.1"), nil, fails, "answered")
	f("at the second retry", a, one(fails, fails, "127.0.0.1"), nil, fails+" "+fails, "answered")
	f("at the retry after silence", a, one(silent, "127.0.0.1"), nil, silent, blocked)
	f("at the retry, to public ones", a, one(silent, good, "127.0.0.1"), nil, silent+" "+good, "answered")
	f("at the other scheme", "a.com", one(refuses, "127.0.0.1"), nil, refuses+":443", "connect_refused")
	f("at the other scheme, to public ones", "a.com", one(refuses, good, "127.0.0.1"), nil, refuses+":443 "+good,
		"answered")
	f("to nothing", a, one(fails, ""), nil, fails, "dns_not_found")
}

// TestCheckedIsDialled has a name that changes between look-up and dialling. The checked address is dialled.
func TestCheckedIsDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(netip.AddrPort{})
		cfg.AllowPrivate, cfg.ConnectTo = false, nil
		resolver := &changing{answers: map[string][]string{"a.com": {"9.0.0.1", "127.0.0.1"}}}
		cfg.Resolver = resolver
		w := dials(t, &cfg)
		f := newFetcher(t, cfg)
		x := exchange.Exchange{Origin: parse(t, "http://a.com"), Response: new(exchange.Response)}
		x.Target = f.First(x.Origin, x.Past)
		x.Lookup = f.Resolve(t.Context(), x.Target)
		if x.Lookup.Addr != netip.MustParseAddr("9.0.0.1") || !x.Lookup.Until.After(time.Now()) {
			t.Fatalf("got %+v", x.Lookup)
		}
		time.Sleep(time.Until(x.Lookup.Until) - time.Second) // the answer is about to expire
		if next := f.Do(t.Context(), &x); next.Again || x.Response.Outcome != exchange.Answered ||
			x.Response.Remote.String() != "9.0.0.1:80" {
			t.Errorf("got %+v, %+v", x.Response, next)
		}
		if w.all() != "9.0.0.1" || fmt.Sprint(resolver.asked) != "[a.com]" {
			t.Errorf("dialled %v after look-ups of %v", w.all(), resolver.asked)
		}
		// The answer has expired. A new look-up gets the changed answer, and nothing is dialled.
		time.Sleep(time.Minute)
		x.Lookup = f.Resolve(t.Context(), x.Target)
		if x.Lookup.Outcome != exchange.BlockedAddress || x.Lookup.Addr.IsValid() {
			t.Errorf("renewed: got %+v", x.Lookup)
		}
		f.Do(t.Context(), &x)
		if x.Response.Outcome != exchange.BlockedAddress || len(w.dialled) != 1 {
			t.Errorf("renewed: got %v, dialled %v", x.Response.Outcome, w.all())
		}
		// Do refuses a Lookup with a private address.
		x.Lookup = exchange.Lookup{Addr: netip.MustParseAddr("127.0.0.1")}
		f.Do(t.Context(), &x)
		if x.Response.Outcome != exchange.BlockedAddress || len(w.dialled) != 1 {
			t.Errorf("unchecked: got %v, dialled %v", x.Response.Outcome, w.all())
		}
	})
}

// TestNamesAsked checks the names in look-ups: IDNA ASCII in lower case, for any spelling in a list or a redirect.
// Invalid names are not looked up.
func TestNamesAsked(t *testing.T) {
	f := func(entry, location, asked string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			cfg := testConfig(netip.AddrPort{})
			cfg.AllowPrivate, cfg.ConnectTo = false, nil
			resolver := &changing{answers: map[string][]string{}}
			cfg.Resolver = resolver
			if location != "" {
				resolver.answers["a.com"] = []string{"9.0.0.1"}
			}
			w := newWeb(t, 0)
			w.serve("9.0.0.1:80", reply("HTTP/1.1 302 x\r\nLocation: "+location+"\r\n\r\n"))
			cfg.Dial = w.dial
			fetch(t, newFetcher(t, cfg), entry)
			if got := strings.Join(resolver.asked, " "); got != asked {
				t.Errorf("%s → %s: asked for %q, want %q", entry, location, got, asked)
			}
		})
	}
	f("http://Example.COM", "", "example.com")
	f("http://example.com.", "", "example.com")
	f("http://bücher.example", "", "xn--bcher-kva.example")
	f("http://BÜCHER.example", "", "xn--bcher-kva.example")
	f("http://bu\u0308cher.example", "", "xn--bcher-kva.example") // decomposed
	f("http://b%C3%BCcher.example", "", "xn--bcher-kva.example")
	f("http://xn--bcher-kva.example", "", "xn--bcher-kva.example")
	f("http://faß.example", "", "xn--fa-hia.example")
	f("http://例え。テスト", "", "xn--r8jz45g.xn--zckzah")
	f("http://a_b.example", "", "a_b.example")
	f("http://１２７.0.0.1", "", "")
	const a = "http://a.com"
	f(a, "http://bücher.example/", "a.com xn--bcher-kva.example")
	f(a, "//B%C3%9CCHER.example:80/x", "a.com xn--bcher-kva.example")
	f(a, "http://B.example./", "a.com b.example")
	for _, location := range []string{"http://127.1/", "http://１２７.0.0.1/", "http://0x7f.1/", "http://[::1]/",
		"http://a b.example/", "http://.example/",
		"http://" + strings.Repeat("a", 64) + ".example/", "http://" + strings.Repeat("a.", 130) + "example/"} {
		f(a, location, "a.com")
	}
}

// TestLocalNames checks that local names reach no server, and that their addresses are checked like all others.
func TestLocalNames(t *testing.T) {
	noLeaks(t)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []string
	started := make(chan struct{})
	// The server has a public address for every name: 9.0.0.9.
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			mu.Lock()
			asked = append(asked, q.Question[0].Name)
			mu.Unlock()
			m := new(dns.Msg).SetReply(q)
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET,
				Ttl: 60}, A: net.IPv4(9, 0, 0, 9)}}
			_ = w.WriteMsg(m)
		})}
	ended := make(chan error)
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-ended
	})
	hosts := filepath.Join(t.TempDir(), "hosts")
	const entries = "127.0.0.1 localhost\n10.0.0.1 inside.example\n9.0.0.1 Outside.Example\n10.0.0.1 mixed.example\n9.0.0.2 mixed.example\n9.0.0.3 fake.localhost\n"
	if err := os.WriteFile(hosts, []byte(entries), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(entry string, allowed bool, questions, dialled, want string) {
		t.Helper()
		resolver, err := resolve.New([]string{packets.LocalAddr().String()}, resolve.Options{Hosts: hosts})
		if err != nil {
			t.Fatal(err)
		}
		defer resolver.Close()
		cfg := testConfig(netip.AddrPort{})
		cfg.AllowPrivate, cfg.ConnectTo, cfg.Resolver = allowed, nil, resolver
		w := dials(t, &cfg)
		mu.Lock()
		asked = nil
		mu.Unlock()
		r, _ := fetch(t, newFetcher(t, cfg), entry)
		mu.Lock()
		defer mu.Unlock()
		if strings.Join(asked, " ") != questions || w.all() != dialled || r.Outcome.String() != want {
			t.Errorf("%s: %v after questions %q and dialling %q; want %s after %q and %q", entry, r.Outcome, asked, w.all(),
				want, questions, dialled)
		}
		r.Reset()
	}
	const blocked, answered = "blocked_address", "answered"
	f("http://localhost", false, "", "", blocked)
	f("http://LOCALHOST.", false, "", "", blocked)
	f("http://a.localhost", false, "", "", blocked)
	f("http://a.b.localhost", false, "", "", blocked)
	f("http://localhost", true, "", "127.0.0.1", answered)
	f("http://a.localhost", true, "", "127.0.0.1", answered)
	f("http://inside.example", false, "", "", blocked)
	f("http://inside.example", true, "", "10.0.0.1", answered)
	f("http://outside.example", false, "", "9.0.0.1", answered)
	f("http://mixed.example", false, "", "9.0.0.2", answered)
	f("http://fake.localhost", false, "", "9.0.0.3", answered) // by the hosts file
	f("http://other.example", false, "other.example.", "9.0.0.9", answered)
	f("http://localhost.example", false, "localhost.example.", "9.0.0.9", answered)
	f("http://notlocalhost", false, "notlocalhost.", "9.0.0.9", answered)
}
