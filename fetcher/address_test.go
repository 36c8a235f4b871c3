package fetcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// dual is a Resolver whose hosts have IPv6 addresses under their name and "/6".
type dual struct{ names }

func (d dual) LookupIPv6(ctx context.Context, host string) resolve.Answer {
	return d.Lookup(ctx, host+"/6")
}

// TestAddresses is the table of hosts with several addresses: which are dialled in which order, the row, and its
// attempts. An address stands for the result of dialling it.
func TestAddresses(t *testing.T) {
	const (
		// 8.0.0.1 and others refuse.
		good        = "9.0.0.1 9.0.0.2 2606::1"
		unreachable = "7.0.0.1 7.0.0.2 2608::1"
		silences    = "6.0.0.1 6.0.0.2 6.0.0.3 2605::1"
		late        = "5.0.0.1" // silent the first time, then good
		plainly     = "4.0.0.1" // only http: refuses https
		secure      = "3.0.0.1" // only https, but without TLS: refuses http
		foreign     = "2609::1" // of a family without an address of this machine
	)
	f := func(name, hosts, six, dialled, want string, edit ...func(*Config)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			cfg := testConfig(netip.AddrPort{})
			cfg.ConnectTo, cfg.AllowPrivate, cfg.Retries = nil, false, 0
			cfg.Timeout, cfg.ConnectTimeout = 5*time.Second, 3*time.Second
			cfg.Resolver = dual{names{"a.com": strings.Fields(hosts), "a.com/6": strings.Fields(six)}}
			cfg.OptOutAddr = netip.MustParsePrefix("11.0.0.0/8").Contains
			for _, e := range edit {
				e(&cfg)
			}
			w := newWeb(t, 0)
			for _, addr := range append(strings.Fields(good), late, plainly) {
				w.serve(netip.AddrPortFrom(netip.MustParseAddr(addr), 80).String(), hold(okHead+"Content-Length: 0\r\n\r\n"))
			}
			for _, addr := range append(strings.Fields(good), late, secure) {
				w.serve(netip.AddrPortFrom(netip.MustParseAddr(addr), 443).String(), silent)
			}
			var asked []string
			first := true
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				to := netip.MustParseAddrPort(address)
				addr := to.Addr().String()
				asked = append(asked, fmt.Sprintf("%s/%d", addr, to.Port()))
				failed := func(errno syscall.Errno) (net.Conn, error) {
					return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
				}
				switch {
				case addr == late && first:
					first = false
					return w.dial(ctx, network, nowhere)
				case addr == foreign:
					return failed(syscall.EADDRNOTAVAIL)
				case slices.Contains(strings.Fields(unreachable), addr):
					return failed(syscall.ENETUNREACH)
				case slices.Contains(strings.Fields(silences), addr):
					return w.dial(ctx, network, nowhere)
				case addr == "10.0.0.1":
					return nil, errors.New("unexpected address " + addr)
				}
				return w.dial(ctx, network, address)
			}
			entry := "http://a.com"
			if !cfg.NoFallback {
				entry = "a.com"
			}
			began := time.Now()
			r, _ := fetch(t, newFetcher(t, cfg), entry)
			if got := strings.ReplaceAll(strings.Join(asked, " "), "/80", ""); got != dialled {
				t.Errorf("%s: dialled %s, want %s", name, got, dialled)
			}
			got := fmt.Sprintf("%v %d %s", r.Outcome, r.Attempts, r.Remote.Addr())
			if took := time.Since(began); took > 0 {
				got += " " + took.String()
			}
			if got != want {
				t.Errorf("%s: row %s, want %s", name, got, want)
			}
			if r.Final.Skip != 0 || r.Final.Unmet != 0 {
				t.Errorf("%s: the row's URL has %+v", name, r.Final)
			}
		})
	}
	retries := func(c *Config) { c.Retries = 2 }
	often := func(c *Config) { c.Retries = 5 }
	both := func(c *Config) { c.NoFallback = false }
	slowly := func(c *Config) { c.ConnectTimeout, c.Timeout = 10*time.Second, 15*time.Second }
	quickly := func(c *Config) { c.ConnectTimeout = time.Second }
	private := func(c *Config) { c.AllowPrivate = true }
	four := func(c *Config) { c.IPv4 = true }
	six := func(c *Config) { c.IPv6 = true }
	plain := func(c *Config) { c.Resolver = c.Resolver.(dual).names }

	f("the first is good", "9.0.0.1 8.0.0.1", "", "9.0.0.1", "answered 1 9.0.0.1")
	f("the first refuses", "8.0.0.1 9.0.0.1", "", "8.0.0.1 9.0.0.1", "answered 1 9.0.0.1")
	f("the first is unreachable", "7.0.0.1 9.0.0.1", "", "7.0.0.1 9.0.0.1", "answered 1 9.0.0.1")
	f("two of three fail", "8.0.0.1 7.0.0.1 9.0.0.1", "", "8.0.0.1 7.0.0.1 9.0.0.1", "answered 1 9.0.0.1")
	f("at most three", "8.0.0.1 8.0.0.2 8.0.0.3 9.0.0.1", "", "8.0.0.1 8.0.0.2 8.0.0.3", "connect_refused 1 8.0.0.3")
	f("all fail", "8.0.0.1 7.0.0.1", "", "8.0.0.1 7.0.0.1", "connect_refused 1 7.0.0.1")
	f("none is reachable", "7.0.0.1 7.0.0.2", "", "7.0.0.1 7.0.0.2", "connect_failed 1 7.0.0.2")
	f("the same again", "8.0.0.1 8.0.0.1", "", "8.0.0.1", "connect_refused 1 8.0.0.1")
	f("and IPv6", "8.0.0.1", "2606::1", "8.0.0.1 2606::1", "answered 1 2606::1")
	f("no IPv4 here", "7.0.0.1 7.0.0.2", "2606::1", "7.0.0.1 7.0.0.2 2606::1", "answered 1 2606::1")
	f("no IPv6 here", "8.0.0.1", "2608::1", "8.0.0.1 2608::1", "connect_refused 1 2608::1")
	f("three are enough", "8.0.0.1 8.0.0.2 8.0.0.3", "2606::1", "8.0.0.1 8.0.0.2 8.0.0.3", "connect_refused 1 8.0.0.3")
	f("only IPv6", "2607::1 2606::1", "", "2607::1 2606::1", "answered 1 2606::1")
	f("--ipv4", "8.0.0.1", "2606::1", "8.0.0.1", "connect_refused 1 8.0.0.1", four)
	f("--ipv6", "8.0.0.1 2606::1", "", "2606::1", "answered 1 2606::1", six)
	f("a resolver of one family", "8.0.0.1", "2606::1", "8.0.0.1", "connect_refused 1 8.0.0.1", plain)
	// Every address passes the guard.
	f("a private one", "8.0.0.1 10.0.0.1 9.0.0.1", "", "8.0.0.1 9.0.0.1", "answered 1 9.0.0.1")
	f("only private ones are left", "8.0.0.1 10.0.0.1", "::1", "8.0.0.1", "connect_refused 1 8.0.0.1")
	f("private ones, and IPv6", "10.0.0.1 127.0.0.1", "2606::1", "2606::1", "answered 1 2606::1")
	f("private ones, and refusing IPv6", "10.0.0.1", "2607::1 2606::1", "2607::1 2606::1", "answered 1 2606::1")
	f("nothing but private ones", "10.0.0.1 127.0.0.1", "::1 fd00::1", "", "blocked_address 0 invalid IP")
	f("private ones, and a resolver of one family", "10.0.0.1", "2606::1", "", "blocked_address 0 invalid IP", plain)
	f("private ones, and --ipv4", "10.0.0.1", "2606::1", "", "blocked_address 0 invalid IP", four)
	f("permitted", "8.0.0.1 10.0.0.1", "", "8.0.0.1 10.0.0.1", "connect_failed 1 10.0.0.1", private)
	// Opted-out addresses do not pass.
	f("an opted-out one", "11.0.0.1 9.0.0.1", "", "9.0.0.1", "answered 1 9.0.0.1")
	f("an opted-out one after one that refuses", "8.0.0.1 11.0.0.1 9.0.0.1", "", "8.0.0.1 9.0.0.1", "answered 1 9.0.0.1")
	f("an opted-out one, and IPv6", "11.0.0.1", "2606::1", "2606::1", "answered 1 2606::1")
	f("an opted-out one inside IPv6", "8.0.0.1", "64:ff9b::b00:1 2606::1", "8.0.0.1 2606::1", "answered 1 2606::1")
	f("only opted-out ones are left", "8.0.0.1 11.0.0.1", "", "8.0.0.1", "connect_refused 1 8.0.0.1")
	f("nothing but opted-out ones", "11.0.0.1 11.0.0.2", "64:ff9b::b00:1", "", "opted_out 0 invalid IP")
	f("nothing but opted-out and private ones", "11.0.0.1 10.0.0.1", "::1", "", "opted_out 0 invalid IP")
	f("opted out by IPv6, private by IPv4", "10.0.0.1", "64:ff9b::b00:1", "", "opted_out 0 invalid IP")
	f("opted out and permitted", "11.0.0.1", "", "", "opted_out 0 invalid IP", private)
	// After a silent address the next one is tried. All together have the time of one.
	f("a time-out", "6.0.0.1 9.0.0.1", "", "6.0.0.1 9.0.0.1", "answered 1 9.0.0.1 2s")
	f("a time-out, and a longer time", "6.0.0.1 9.0.0.1", "", "6.0.0.1 9.0.0.1", "answered 1 9.0.0.1 2s", slowly)
	f("a time-out, and a shorter one", "6.0.0.1 9.0.0.1", "", "6.0.0.1 9.0.0.1", "answered 1 9.0.0.1 1s", quickly)
	f("two time-outs", "6.0.0.1 6.0.0.2 9.0.0.1", "", "6.0.0.1 6.0.0.2 9.0.0.1", "answered 1 9.0.0.1 4s", slowly)
	f("time-outs", "6.0.0.1 6.0.0.2", "", "6.0.0.1 6.0.0.2", "connect_timeout 1 6.0.0.2 10s", slowly)
	f("time-outs, and a short time", "6.0.0.1 6.0.0.2", "", "6.0.0.1 6.0.0.2", "connect_timeout 1 6.0.0.2 2s", quickly)
	f("three time-outs", "6.0.0.1 6.0.0.2 6.0.0.3", "", "6.0.0.1 6.0.0.2 6.0.0.3", "connect_timeout 1 6.0.0.3 10s", slowly)
	f("a time-out and a refusal", "6.0.0.1 8.0.0.1", "", "6.0.0.1 8.0.0.1", "connect_timeout 1 8.0.0.1 2s")
	f("a refusal and a time-out", "8.0.0.1 6.0.0.1", "", "8.0.0.1 6.0.0.1", "connect_timeout 1 6.0.0.1 3s")
	f("time-outs, and retries", "6.0.0.1 6.0.0.2", "", "6.0.0.1 6.0.0.2 6.0.0.1 6.0.0.2 6.0.0.1 6.0.0.2",
		"connect_timeout 3 6.0.0.2 12s", retries)
	// IPv6 addresses are looked up after the IPv4 addresses have had all their time.
	f("a time-out, and IPv6", "6.0.0.1", "2606::1", "6.0.0.1 2606::1", "answered 1 2606::1 3s")
	f("time-outs, and IPv6", "6.0.0.1 6.0.0.2", "2606::1", "6.0.0.1 6.0.0.2 2606::1", "answered 1 2606::1 4s")
	f("a time-out, and silent IPv6", "6.0.0.1", "2605::1", "6.0.0.1 2605::1", "connect_timeout 1 2605::1 5s")
	f("a time-out, and no IPv6", "6.0.0.1", "", "6.0.0.1", "connect_timeout 1 6.0.0.1 3s")
	f("a time-out, and no IPv6 here", "6.0.0.1", "2608::1", "6.0.0.1 2608::1", "connect_timeout 1 2608::1 3s")
	f("a time-out, and a resolver of one family", "6.0.0.1", "2606::1", "6.0.0.1", "connect_timeout 1 6.0.0.1 3s", plain)
	f("lost once", "5.0.0.1 8.0.0.1", "", "5.0.0.1 8.0.0.1 5.0.0.1", "answered 2 5.0.0.1 2s", retries)
	f("lost once, no IPv6 address here", "5.0.0.1", "2609::1", "5.0.0.1 2609::1 5.0.0.1", "answered 2 5.0.0.1 3s", retries)
	f("round and round", "8.0.0.1 6.0.0.1 8.0.0.2", "",
		"8.0.0.1 6.0.0.1 8.0.0.2 8.0.0.1 6.0.0.1 8.0.0.2 8.0.0.1 6.0.0.1 8.0.0.2", "connect_timeout 3 8.0.0.2 6s", retries)
	f("three in turn, for long", "6.0.0.1", "2605::1",
		"6.0.0.1 2605::1 6.0.0.1 2605::1 6.0.0.1 2605::1 6.0.0.1 2605::1 6.0.0.1 2605::1 6.0.0.1 2605::1",
		"connect_timeout 6 2605::1 30s", often)
	// The other scheme begins at the address that took the connection, and also tries each address. It is tried if
	// all addresses failed.
	f("by http only at the first", "4.0.0.1 3.0.0.1", "", "4.0.0.1/443 3.0.0.1/443 3.0.0.1 4.0.0.1",
		"answered 2 4.0.0.1 5s", both)
	f("a time-out, then no TLS", "6.0.0.1 9.0.0.1", "", "6.0.0.1/443 9.0.0.1/443 9.0.0.1", "answered 2 9.0.0.1 7s", both)
	f("a time-out, and no TLS by IPv6", "6.0.0.1", "2606::1", "6.0.0.1/443 2606::1/443 2606::1", "answered 2 2606::1 8s",
		both)
	f("time-outs by both schemes", "6.0.0.1 6.0.0.2", "", "6.0.0.1/443 6.0.0.2/443 6.0.0.1 6.0.0.2",
		"connect_timeout 2 6.0.0.2 8s", both)
	f("a time-out, and the other scheme", "6.0.0.1 4.0.0.1", "", "6.0.0.1/443 4.0.0.1/443 6.0.0.1 4.0.0.1",
		"answered 2 4.0.0.1 4s", both)
	f("none by either scheme", "8.0.0.1 8.0.0.2", "", "8.0.0.1/443 8.0.0.2/443 8.0.0.1 8.0.0.2",
		"connect_refused 2 8.0.0.2", both)
}

// Do dials no address that the guard refuses, also as a further address of a host.
func TestFurtherAddressesAreGuarded(t *testing.T) {
	cfg := testConfig(netip.AddrPort{})
	cfg.AllowPrivate, cfg.ConnectTo = false, nil
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { panic("dialled") }
	f := newFetcher(t, cfg)
	x := exchange.Exchange{Origin: parse(t, "http://a.com"), Response: new(exchange.Response)}
	x.Target = exchange.Target{Origin: x.Origin, Skip: 1, Unmet: exchange.ConnectRefused}
	x.Lookup = exchange.Lookup{Addr: netip.MustParseAddr("127.0.0.1"), More: true}
	if next := f.Do(t.Context(), &x); next.Again || x.Response.Outcome != exchange.BlockedAddress {
		t.Errorf("got %v, %+v", x.Response.Outcome, next)
	}
}
