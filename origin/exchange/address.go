package exchange

import "net/netip"

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052 §2.1
	sixToFour = netip.MustParsePrefix("2002::/16")    // RFC 3056 §2
)

// Embedded returns the IPv4 address embedded in an IPv6 address whose packets go there: IPv4-mapped, NAT64's
// well-known prefix, 6to4. It returns any other address unchanged.
func Embedded(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return addr
}
