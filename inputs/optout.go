package inputs

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// OptOut is a set of hosts, domains and address ranges that are never contacted. A range covers hosts that are
// addresses, and all dialled addresses. A single address is a range of one.
type OptOut struct {
	hosts  map[string]struct{}
	ranges map[netip.Prefix]struct{}
	bits   []int // distinct prefix lengths of the ranges
}

// ReadOptOut reads one host, domain or address range per line; blank lines and # comments are skipped. An entry that
// could only be honoured in part is an error, since these sites have asked not to be contacted.
func ReadOptOut(path string) (*OptOut, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list := &OptOut{hosts: map[string]struct{}{}, ranges: map[netip.Prefix]struct{}{}}
	scanner := bufio.NewScanner(file)
	for line := 1; scanner.Scan(); line++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := list.add(strings.TrimPrefix(text, "*.")); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), line, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return list, nil
}

// add adds one entry. Its error says what to write instead.
func (s *OptOut) add(entry string) error {
	if prefix, err := netip.ParsePrefix(entry); err == nil && !prefix.Addr().Is4In6() {
		s.addRange(prefix.Masked())
		return nil
	}
	o, spelling, err := origin.ParseSpelling(entry)
	if err != nil {
		return fmt.Errorf("%w; write one host or domain a line", err)
	}
	if spelling != origin.Full {
		return fmt.Errorf("%.80q is no address in full; write all four numbers, as in 192.0.2.1, and a range as 192.0.2.0/24", entry)
	}
	if _, path, _ := strings.Cut(entry, "/"); path != "" && o.Scheme() == origin.Auto {
		if _, isAddress := o.Addr(); isAddress {
			return fmt.Errorf("%.80q is neither an address nor a range; write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32", entry)
		}
	}
	if addr, isAddress := o.Addr(); isAddress {
		s.addRange(netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	s.hosts[o.Host()] = struct{}{}
	return nil
}

func (s *OptOut) addRange(prefix netip.Prefix) {
	s.ranges[prefix] = struct{}{}
	if !slices.Contains(s.bits, prefix.Bits()) {
		s.bits = append(s.bits, prefix.Bits())
	}
}

// Covers reports whether an address is in one of the ranges.
func (s *OptOut) Covers(addr netip.Addr) bool {
	for _, bits := range s.bits {
		if prefix, err := addr.Prefix(bits); err == nil {
			if _, ok := s.ranges[prefix]; ok {
				return true
			}
		}
	}
	return false
}

// Contains reports whether the set has a host, a domain above it, or a range with the host's address.
func (s *OptOut) Contains(host string) bool {
	if len(s.ranges) > 0 {
		if addr, err := netip.ParseAddr(host); err == nil {
			return s.Covers(addr)
		}
	}
	for {
		if _, ok := s.hosts[host]; ok {
			return true
		}
		_, parent, ok := strings.Cut(host, ".")
		if !ok {
			return false
		}
		host = parent
	}
}
