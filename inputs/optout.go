package inputs

import "net/netip"

// OptOut is a set of hosts, domains and address ranges that are never contacted. A range covers hosts that are
// addresses, and all dialled addresses. A single address is a range of one.
type OptOut struct {
	places[struct{}]

	sum fileSum
}

// ReadOptOut reads one host, domain or address range per line; blank lines and # comments are skipped. An entry that
// could only be honoured in part is an error, since these sites have asked not to be contacted.
func ReadOptOut(path string) (*OptOut, error) {
	list := &OptOut{places: newPlaces[struct{}]()}
	var err error
	list.sum, err = readLines(path, func(_ int, text string) error {
		p, err := parsePlace(text, "write one host or domain a line")
		if err != nil {
			return err
		}
		list.add(p, struct{}{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Covers reports whether an address is in one of the ranges.
func (s *OptOut) Covers(addr netip.Addr) bool {
	_, ok := s.ofAddr(addr)
	return ok
}

// Contains reports whether the set has a host, a domain above it, or a range with the host's address.
func (s *OptOut) Contains(host string) bool {
	if len(s.ranges) > 0 {
		if addr, err := netip.ParseAddr(host); err == nil {
			return s.Covers(addr)
		}
	}
	_, _, ok := s.ofHost(host)
	return ok
}
