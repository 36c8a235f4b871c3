package fetcher

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

func TestPublic(t *testing.T) {
	f := func(want bool, addrs ...string) {
		t.Helper()
		for _, addr := range addrs {
			if got := public(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s: got %v", addr, got)
			}
		}
	}
	f(true, "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255",
		"172.32.0.0",
		"192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255")
	f(false, "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254",
		"172.16.0.1", "172.31.255.255",
		"192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255")
	// The metadata services of clouds.
	f(false, "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254",
		"fd20:ce::254",
		"::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1")
	f(true, "168.63.129.15", "168.63.129.17")
	f(true, "2606:4700::1111", "2a00::1", "2002:808:808::1", "64:ff9b::808:808", "::ffff:8.8.8.8")
	f(false, "::", "::1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
		"64:ff9b:1::808:808",
		"100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:20::1", "2001:db8::1", "2002:7f00:1::1",
		"2002:a00:1::1",
		"2002:c0a8:101::1", "3fff::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1", "fe80::1%eth0",
		"2606:4700::1%eth0")
	if public(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

// Nothing leads to a private address: no literal, name, redirect, connect-to or Lookup.
func TestGuard(t *testing.T) {
	private := netip.MustParseAddrPort("127.0.0.1:80")
	cfg := testConfig(private)
	cfg.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		t.Errorf("%s was dialled", address)
		return nil, net.ErrClosed
	}
	cfg.AllowPrivate = false
	cfg.ConnectTo = nil
	cfg.Resolver = names{
		"private.example": {"10.0.0.1", "127.0.0.1"},
		"mixed.example":   {"10.0.0.1", "9.9.9.9"},
		"mapped.example":  {"::ffff:127.0.0.1"},
	}
	f := newFetcher(t, cfg)
	for _, entry := range []string{"http://127.0.0.1", "http://[::1]", "http://[::ffff:127.0.0.1]",
		"http://private.example", "http://mapped.example", "http://10.1.2.3",
		"http://127.1", "http://0x7f.1", "http://017700000001", "http://2130706433", "http://0", "http://%31%30.1.2.3",
		"http://[::ffff:7f00:1]"} {
		r, _ := fetch(t, f, entry)
		if r.Outcome != exchange.BlockedAddress || r.Cause != exchange.CausePrivateAddress || r.Attempts != 0 ||
			!r.FetchedAt.IsZero() || r.Remote.IsValid() {
			t.Errorf("%s: got %v %v %+v", entry, r.Outcome, r.Cause, r)
		}
	}
	if l := f.Resolve(t.Context(),
		exchange.Target{Origin: parse(t, "http://mixed.example")}); l.Addr != netip.MustParseAddr("9.9.9.9") {
		t.Errorf("mixed: got %+v", l)
	}
	x := exchange.Exchange{Origin: parse(t, "http://rebound.example"), Response: new(exchange.Response)}
	x.Target = f.First(x.Origin, x.Past)
	for _, addr := range []netip.Addr{private.Addr(), netip.MustParseAddr("::ffff:127.0.0.1"), {}} {
		x.Lookup = exchange.Lookup{Addr: addr}
		f.Do(t.Context(), &x)
		if x.Response.Outcome != exchange.BlockedAddress {
			t.Errorf("%v: got %v", addr, x.Response.Outcome)
		}
	}
	cfg.ConnectTo = []ConnectTo{{Addr: private.Addr(), ToPort: private.Port()}}
	if r, _ := fetch(t, newFetcher(t, cfg), "http://example.com"); r.Outcome != exchange.BlockedAddress {
		t.Errorf("connect-to: got %v", r.Outcome)
	}
}

// A redirect to an opted-out host is not followed.
func TestGuardRedirect(t *testing.T) {
	cfg := site(t, 0, reply("HTTP/1.1 302 x\r\nLocation: http://out.example/robots.txt\r\n\r\n"))
	cfg.OptOut = func(host string) bool { return host == "out.example" }
	r, asked := fetch(t, newFetcher(t, cfg), "http://example.com")
	if r.Outcome != exchange.OptedOut || len(asked) != 2 || len(r.Hops) != 1 || r.Attempts != 1 || r.FetchedAt.IsZero() {
		t.Errorf("got %v %v after %v, %d attempts", r.Outcome, r.Cause, asked, r.Attempts)
	}
	r, _ = fetch(t, newFetcher(t, cfg), "http://out.example")
	if r.Outcome != exchange.OptedOut || r.Attempts != 0 || !r.FetchedAt.IsZero() || r.Timing.Total != 0 {
		t.Errorf("got %v", r.Outcome)
	}
}

// A redirect into a private network is not dialled, for any spelling of the host, and for any name that resolves into
// one.
func TestGuardRedirectPrivate(t *testing.T) {
	const public = "93.184.215.14"
	f := func(location string, want exchange.Outcome, dials ...string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			cfg := testConfig(netip.AddrPort{})
			cfg.AllowPrivate, cfg.ConnectTo, cfg.SkipVerify = false, nil, true
			cfg.Resolver = names{
				"example.com":     {public},
				"two.example":     {"93.184.215.15"},
				"inside.example":  {"10.0.0.1"},
				"self.example":    {"127.0.0.1", "::1"},
				"mapped.example":  {"::ffff:192.168.0.1"},
				"cloud.example":   {"169.254.169.254"},
				"partly.example":  {"10.0.0.1", "93.184.215.16"},
				"nowhere.example": {},
			}
			w := newWeb(t, 0)
			w.serve(public+":80", reply("HTTP/1.1 302 x\r\nLocation: "+location+"\r\n\r\n"))
			for _, addr := range dials {
				w.serve(addr, reply(okHead+"Content-Length: 2\r\n\r\nab"))
			}
			cfg.Dial = w.dial
			r, asked := fetch(t, newFetcher(t, cfg), "http://example.com")
			if r.Outcome != want || !slices.Equal(w.dialled, append([]string{public + ":80"}, dials...)) {
				t.Errorf("to %s: got %v (%v), asked %v, dialled %v", location, r.Outcome, r.Cause, asked, w.dialled)
			}
			if want == exchange.BlockedAddress && (r.Cause != exchange.CausePrivateAddress || r.Status != 0 ||
				r.Remote.IsValid() || len(r.Hops) != 1 || r.Hops[0].Status != 302 || r.Attempts != 1) {
				t.Errorf("to %s: the row is %+v", location, r)
			}
			r.Reset()
		})
	}
	f("http://two.example/", exchange.Answered, "93.184.215.15:80")
	f("//partly.example:8080/x", exchange.Answered, "93.184.215.16:8080")
	f("http://nowhere.example/", exchange.DNSNotFound)
	for _, location := range []string{
		"http://127.0.0.1/", "http://127.0.0.1:8080/admin", "https://10.0.0.1/", "//192.168.0.1/robots.txt",
		"http://169.254.169.254/latest/meta-data/",
		"http://0.0.0.0/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
		"http://[64:ff9b::7f00:1]/", "http://[fd00::1]/", "http://[fe80::1]/",
		"http://100.64.0.1/", "http://inside.example/", "https://self.example/", "http://mapped.example/",
		"http://cloud.example/",
	} {
		f(location, exchange.BlockedAddress)
	}
}

func TestParseConnectTo(t *testing.T) {
	f := func(in string, want ConnectTo) {
		t.Helper()
		got, err := ParseConnectTo(in)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v", in, got, err)
		}
	}
	lo := netip.MustParseAddr("127.0.0.1")
	six := netip.MustParseAddr("2001:db8::1")
	f(":::", ConnectTo{})
	f("::127.0.0.1:8080", ConnectTo{Addr: lo, ToPort: 8080})
	f("Example.COM:443:127.0.0.1:8443", ConnectTo{Host: "example.com", Port: 443, Addr: lo, ToPort: 8443})
	f(":80::8080", ConnectTo{Port: 80, ToPort: 8080})
	f("example.com::127.0.0.1:", ConnectTo{Host: "example.com", Addr: lo})
	f("[2001:db8::1]:80:[2001:db8::1]:81", ConnectTo{Host: "2001:db8::1", Port: 80, Addr: six, ToPort: 81})
	for _, in := range []string{"", "a", "a:1", "a:1:2.2.2.2", "::localhost:80", "::1.1.1.1:0", "::1.1.1.1:65536", ":x::",
		"::[::1:80", "a b:::", "::1.1.1.1:80:90", "[::1]x:1:1.1.1.1:1"} {
		if got, err := ParseConnectTo(in); err == nil {
			t.Errorf("%q: got %+v", in, got)
		}
	}
}
