package inputs

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
)

// place is what a line of a file names: an address range, or a host with all names below it.
type place struct {
	prefix netip.Prefix // as written, so that its address may have bits behind the prefix; invalid for a host
	host   origin.Origin
}

// parsePlace reads a place. A single address is a range of one. The remedy is for an entry that is no place.
func parsePlace(entry, remedy string) (place, error) {
	if prefix, err := netip.ParsePrefix(entry); err == nil && !prefix.Addr().Is4In6() {
		return place{prefix: prefix}, nil
	}
	o, spelling, err := origin.ParseSpelling(strings.TrimPrefix(entry, "*."))
	if err != nil {
		return place{}, fmt.Errorf("%w; %s", err, remedy)
	}
	if spelling != origin.Full {
		return place{},
			fmt.Errorf("%.80q is no address in full; write all four numbers, as in 192.0.2.1, and a range as 192.0.2.0/24",
				entry)
	}
	addr, isAddress := o.Addr()
	if !isAddress {
		return place{host: o}, nil
	}
	if _, path, _ := strings.Cut(entry, "/"); path != "" && o.Scheme() == origin.Auto {
		return place{}, fmt.Errorf("%.80q is neither an address nor a range; write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32",
			entry)
	}
	return place{prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
}

// places has a value for each place. The value of the longest prefix, or of the longest name, counts.
type places[T any] struct {
	hosts  map[string]T
	ranges map[netip.Prefix]T
	bits   [2][]int // distinct prefix lengths of the ranges, the longest first: of IPv4, and of IPv6
}

func newPlaces[T any]() places[T] {
	return places[T]{hosts: map[string]T{}, ranges: map[netip.Prefix]T{}}
}

// add sets a place's value.
func (s *places[T]) add(p place, value T) {
	if !p.prefix.IsValid() {
		s.hosts[p.host.Host()] = value
		return
	}
	s.ranges[p.prefix.Masked()] = value
	s.addBits(familyOf(p.prefix.Addr()), p.prefix.Bits())
}

func (s *places[T]) addBits(family, bits int) {
	at, known := slices.BinarySearchFunc(s.bits[family], bits, func(a, b int) int { return b - a })
	if !known {
		s.bits[family] = slices.Insert(s.bits[family], at, bits)
	}
}

// addAll adds the places of another set.
func (s *places[T]) addAll(other *places[T]) {
	maps.Copy(s.hosts, other.hosts)
	maps.Copy(s.ranges, other.ranges)
	for family, lengths := range other.bits {
		for _, bits := range lengths {
			s.addBits(family, bits)
		}
	}
}

// get returns the value of exactly this place.
func (s *places[T]) get(p place) (value T, ok bool) {
	if p.prefix.IsValid() {
		value, ok = s.ranges[p.prefix.Masked()]
	} else {
		value, ok = s.hosts[p.host.Host()]
	}
	return value, ok
}

// ofAddr returns the value of the smallest range that has an address. It allocates nothing.
func (s *places[T]) ofAddr(addr netip.Addr) (value T, ok bool) {
	for _, bits := range s.bits[familyOf(addr)] {
		prefix, _ := addr.Prefix(bits)
		if value, ok = s.ranges[prefix]; ok {
			return value, true
		}
	}
	return value, false
}

// ofHost returns the value of a host, or of the nearest name above it that has one, and that name. It allocates
// nothing.
func (s *places[T]) ofHost(host string) (name string, value T, ok bool) {
	for ok = len(s.hosts) > 0; ok; _, host, ok = strings.Cut(host, ".") {
		if value, ok := s.hosts[host]; ok {
			return host, value, true
		}
	}
	return "", value, false
}

func (s *places[T]) entries() int { return len(s.hosts) + len(s.ranges) }

// familyOf is 0 for IPv4 and 1 for IPv6.
func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// readLines calls take with each line of a file that is neither blank nor a # comment, and returns the sum of the file.
// An error of take gets the file's name and the line's number.
func readLines(path string, take func(line int, text string) error) (sum fileSum, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	hash := sha256.New()
	scanner, line := bufio.NewScanner(io.TeeReader(file, hash)), 1
	for ; scanner.Scan(); line++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		if line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := take(line, text); err != nil {
			return sum, fmt.Errorf("%s:%d: %w", filepath.Base(path), line, err)
		}
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return sum, fmt.Errorf("%s:%d: the line is longer than %d bytes", filepath.Base(path), line, bufio.MaxScanTokenSize)
	case err != nil:
		return sum, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return fileSum(hash.Sum(nil)), nil
}
