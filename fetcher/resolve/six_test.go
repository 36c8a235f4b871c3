package resolve

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// LookupIPv6 asks once for the addresses that Lookup leaves out. The cache keeps both answers apart.
func TestLookupIPv6(t *testing.T) {
	var asked atomic.Int32
	answers := zone("a.com. 60 A 192.0.2.1", "a.com. 60 AAAA 2001:db8::1", "four.com. 60 A 192.0.2.4", "alias.com. 60 CNAME a.com.")
	server := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		asked.Add(1)
		answers(w, q)
	})
	r := newResolver(t, Options{}, server)
	f := func(host, want string, questions int32) {
		t.Helper()
		before := asked.Load()
		if got := tell(r.LookupIPv6(t.Context(), host, 0)); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
		if n := asked.Load() - before; n != questions {
			t.Errorf("%s: %d questions, want %d", host, n, questions)
		}
	}
	if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	f("a.com", "[2001:db8::1]", 1)
	f("a.com", "[2001:db8::1]", 0)
	f("alias.com", "[2001:db8::1]", 1)
	f("four.com", "dns_not_found: the name has no address", 1)
	f("four.com", "dns_not_found: the name has no address", 0)
	f("none.com", "dns_not_found: the name does not exist (NXDOMAIN)", 1)
	f("localhost", "dns_not_found: the name has no address", 0)
	if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
		t.Errorf("afterwards: got %s", got)
	}
	r.hosts = map[string][]netip.Addr{"here.com": {netip.MustParseAddr("192.0.2.9")}}
	f("here.com", "dns_not_found: the name has no address", 0)
	r = newResolver(t, Options{IPv4: true}, server)
	f("a.com", "dns_not_found: the name has no address", 0)
}
