package fetcher

import (
	"net/netip"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// special lists the address blocks without sites of the public web: private, loopback, link-local, shared (CGNAT),
// documentation, benchmarking, multicast and reserved space (the IANA special-purpose registries of RFC 6890 and later
// additions). A name that resolves into them is a mistake, or an attack on the scanner's own network. The blocks also
// contain the metadata services of clouds: 169.254.169.254, Alibaba's 100.100.100.200 and Oracle's 192.0.0.192.
// Amazon's fd00:ec2::254 is outside of 2000::/3. Azure's has an entry of its own.
var special = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	// Azure serves metadata to virtual machines at this public address.
	"168.63.129.16/32",
	// Of IPv6, only 2000::/3 is allocated; these are the exceptions inside it. 2001::/23 contains Teredo, whose
	// addresses embed any IPv4 address, and ORCHIDs, which are not routable.
	"2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16",
)

var globalIPv6 = netip.MustParsePrefix("2000::/3")

func parsePrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}

// public reports whether an address may be dialled without AllowPrivate. An embedded IPv4 address counts instead.
func public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = exchange.Embedded(addr)
	if addr.Is6() && !globalIPv6.Contains(addr) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}
