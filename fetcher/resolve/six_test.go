package resolve

import (
	"net/netip"
	"testing"
)

// LookupIPv6 asks once for the addresses that Lookup leaves out. The cache keeps both answers apart.
func TestLookupIPv6(t *testing.T) {
	in(t, func(w *world) {
		script := zone("a.com. 60 A 192.0.2.1", "a.com. 60 AAAA 2001:db8::1", "four.com. 60 A 192.0.2.4",
			"alias.com. 60 CNAME a.com.")
		r := w.resolver(Options{}, script)
		f := func(host, want string, questions int) {
			w.Helper()
			before := len(w.sent)
			w.want(tell(r.LookupIPv6(w.Context(), host)), want)
			if n := len(w.sent) - before; n != questions {
				w.Errorf("%s: %d questions, want %d", host, n, questions)
			}
		}
		w.want(w.lookUp(r), "0s; 10ms [192.0.2.1]")
		f("a.com", "[2001:db8::1]", 1)
		f("a.com", "[2001:db8::1]", 0)
		f("alias.com", "[2001:db8::1]", 1)
		f("four.com", noAddress, 1)
		f("four.com", noAddress, 0)
		f("none.com", noSuchName, 1)
		f("localhost", noAddress, 0)
		w.want(tell(w.find(w.Context(), r, "a.com")), "[192.0.2.1]")
		r.hosts = map[string][]netip.Addr{"here.com": {netip.MustParseAddr("192.0.2.9")}}
		f("here.com", noAddress, 0)
		r = w.resolver(Options{IPv4: true}, script)
		f("a.com", noAddress, 0)
	})
}
