package inputs

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
)

// Rates are the rates of some address ranges, and of some domains with all names below them, in exchanges a second; 0
// is no limit. A look-up allocates nothing, or a little if rates are divided and a public suffix may lie between a host
// and its domain.
type Rates struct {
	places[rated]

	workers float64
}

// rated is a rate, and the line that gives it.
type rated struct {
	perSecond float64
	divided   bool // among workers
	line      int
}

const (
	maxRates  = 100_000 // entries of a file
	ratesForm = "write a domain or an address range, and then its rate, as in 192.0.2.0/24 50"
)

// ReadRates reads an address range or a domain, and its rate, per line; blank lines and # comments are skipped.
func ReadRates(path string) (*Rates, error) {
	list := &Rates{places: newPlaces[rated](), workers: 1}
	if _, err := readLines(path, list.read); err != nil {
		return nil, err
	}
	return list, nil
}

// read reads one line.
func (s *Rates) read(line int, text string) error {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return fmt.Errorf("%.80q has %d fields; %s", text, len(fields), ratesForm)
	}
	p, err := parsePlace(fields[0], ratesForm)
	if err != nil {
		return err
	}
	if err := checkRated(p, fields[0]); err != nil {
		return err
	}
	rate, err := strconv.ParseFloat(fields[1], 64)
	if err != nil || !(rate >= 0 && rate <= math.MaxFloat64) { // not a number is none of them
		return fmt.Errorf("%.80q is no rate; write exchanges a second as a number, as in 0.5, or 0 for no limit", fields[1])
	}
	if other, ok := s.get(p); ok {
		return fmt.Errorf("%.80q has a rate in line %d, too; leave one of them out", fields[0], other.line)
	}
	if s.entries() == maxRates {
		return fmt.Errorf("more than %d entries; leave out ranges that are part of others with the same rate", maxRates)
	}
	s.add(p, rated{rate, p.prefix.IsValid() || p.host.RegistrableDomain() == "", line})
	return nil
}

// Among divides the rates among the tasks that write shares of a scan at once. It does not divide the rate of hosts
// that are all in one share: the hosts of one registrable domain.
func (s *Rates) Among(workers int) { s.workers = float64(workers) }

func (s *Rates) of(r rated) float64 {
	if r.divided {
		return r.perSecond / s.workers
	}
	return r.perSecond
}

// checkRated refuses places that the limiter has no rate for, or that the user may have meant otherwise.
func checkRated(p place, entry string) error {
	if !p.prefix.IsValid() {
		switch {
		case strings.ContainsAny(entry, `/:?\`):
			return fmt.Errorf("%.80q is a URL or has a port; write the domain alone: %s", entry, p.host.Host())
		case p.host.RegistrableDomain() == "" && p.host.ICANNDomain() == "":
			return fmt.Errorf("%.80q is a public suffix, and its names are of many owners; write a domain below it", entry)
		}
		return nil
	}
	addr, bits := p.prefix.Addr(), p.prefix.Bits()
	switch masked := p.prefix.Masked(); {
	case addr.Is6() && bits > 64:
		return fmt.Errorf("%.80q is a part of a /64, which has one rate; write %v", entry,
			netip.PrefixFrom(addr, 64).Masked())
	case masked != p.prefix:
		return fmt.Errorf("%.80q has bits behind its prefix; write %v, or %v for the one address", entry, masked,
			netip.PrefixFrom(addr, min(64, addr.BitLen())).Masked())
	}
	return nil
}

// Address returns the rate of an address, by the smallest range that has it.
func (s *Rates) Address(addr netip.Addr) (perSecond float64, ok bool) {
	r, ok := s.ofAddr(addr)
	return s.of(r), ok
}

// Domain returns the longest domain with a rate that a host belongs to, and the rate that all hosts of this domain
// share.
func (s *Rates) Domain(host string) (domain string, perSecond float64, ok bool) {
	domain, r, ok := s.ofHost(host)
	if ok && !r.divided && s.workers > 1 && strings.Count(host, ".") > strings.Count(domain, ".")+1 {
		// a public suffix may lie between, as in bucket.s3.amazonaws.com
		r.divided = len(origin.RegistrableDomain(host)) > len(domain)
	}
	return domain, s.of(r), ok
}

// Entries returns the number of ranges and domains.
func (s *Rates) Entries() int { return s.entries() }
