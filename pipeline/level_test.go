package pipeline

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// Which addresses share a rate.
func TestNetworkOf(t *testing.T) {
	f := func(addr, want string) {
		t.Helper()
		if got := netip.AddrFrom16(networkOf(netip.MustParseAddr(addr).As16())).Unmap(); got != netip.MustParseAddr(want) {
			t.Errorf("%s is rated as %v; want %s", addr, got, want)
		}
	}
	f("192.0.2.7", "192.0.2.7")
	f("::ffff:192.0.2.7", "192.0.2.7")
	f("2001:db8:1:2::", "2001:db8:1:2::")
	f("2001:db8:1:2::1", "2001:db8:1:2::")
	f("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::")
	f("2001:db8:1:3::1", "2001:db8:1:3::")
	f("64:ff9b::192.0.2.7", "192.0.2.7")
	f("64:ff9b::192.0.2.8", "192.0.2.8")
	f("64:ff9b:1::192.0.2.7", "64:ff9b:1::") // RFC 8215: where it embeds one is for its network to know
	f("2002:c000:207::1", "192.0.2.7")
	f("2002:c000:207:ffff::1", "192.0.2.7")            // any of its 65,536 networks ends at the same router
	f("2001:0:c000:207:8000:1::", "2001:0:c000:207::") // Teredo, by its server
	f("::1", "::")
	f("::192.0.2.7", "::")
}

// 200 addresses of one IPv6 network have one rate among them, wherever starts are counted.
func TestIPv6NetworksHaveOneRate(t *testing.T) {
	f := func(name string, address func(i int) string, want time.Duration) {
		t.Helper()
		w := &web{address: func(host string) string {
			var i int
			_, _ = fmt.Sscanf(host, "h%d", &i)
			return address(i)
		}}
		s := &shelf{}
		took, err := scan(t, Config{Concurrency: 200, IPRate: 10}, w, &list{hosts: hosts(200, "h%d.example.com")}, s, nil)
		if err != nil || len(s.sites) != 200 {
			t.Fatalf("%s: kept %d of 200, error %v", name, len(s.sites), err)
		}
		// Of 200 networks two may share a cell of the limiter's table, and with it the rate.
		if took != want && (want > 0 || took != paceOf(10).interval) {
			t.Errorf("%s: took %v; want %v", name, took, want)
		}
	}
	f("one network", func(i int) string { return fmt.Sprintf("2001:db8::%x:%x", i, i) }, 199*paceOf(10).interval)
	f("a network each", func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) }, 0)
	f("IPv4 behind NAT64", func(i int) string { return fmt.Sprintf("64:ff9b::a00:%x", i) }, 0)
}
