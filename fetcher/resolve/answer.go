package resolve

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Bounds of a hostile answer's cost, and of how long an answer is valid.
const (
	maxAddrs    = 16
	maxAliases  = 16               // CNAMEs from a name to its addresses
	maxQueries  = 4                // questions of one look-up: further ones ask for an alias whose addresses were left out
	minTTL      = 10 * time.Second // an answer must outlive the exchange that needs it
	maxTTL      = time.Hour
	maxNegative = 5 * time.Minute
)

// read follows the chain through a message. It returns false if the message ends at an alias, which then needs a
// question of its own.
func (c *chain) read(m *dns.Msg) (Answer, bool) {
	before := c.name
	if !c.walk(m.Answer) {
		return failed(exchange.DNSFailed, exchange.CauseCNAMEChain), true
	}
	answer := Answer{}
	ttl := c.negative(m)
	switch {
	case m.Rcode == dns.RcodeNameError: // applies to the end of the chain (RFC 6604 §2), whatever the records say
		answer = failed(exchange.DNSNotFound, exchange.CauseNoSuchName)
	case len(c.addrs) > 0:
		answer.Addrs, ttl = c.addrs, max(c.ttl, minTTL)
	case c.name == before || soa(m) != nil:
		answer = failed(exchange.DNSNotFound, exchange.CauseNoAddress)
	default:
		return answer, false
	}
	answer.Until = time.Now().Add(ttl)
	return answer, true
}

// add adds an address. It keeps the maxAddrs addresses with the lowest rank, each once, by rank. Servers rotate their
// answers; the order must be the same in each look-up, so that the second address is never one that was tried as the
// first. The rank depends on the name, so that names with the same addresses are spread over them.
func (c *chain) add(addr netip.Addr) {
	at, found := slices.BinarySearchFunc(c.addrs, addr, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(c.rank(a), c.rank(b)), a.Compare(b))
	})
	if found || at == maxAddrs {
		return
	}
	if len(c.addrs) == maxAddrs {
		c.addrs = c.addrs[:maxAddrs-1]
	}
	c.addrs = slices.Insert(c.addrs, at, addr)
}

// rank returns a hash of the name and an address. It is the same in every process.
func (c *chain) rank(addr netip.Addr) uint64 {
	bytes := addr.As16()
	return mix(c.seed, bytes[:])
}

// mix continues a hash with a few bytes (FNV-1a).
func mix[B []byte | string](h uint64, bytes B) uint64 {
	for i := range len(bytes) {
		h = (h ^ uint64(bytes[i])) * 1099511628211
	}
	return h
}

// chain leads from a name over its aliases to addresses.
type chain struct {
	name  string // that the chain has reached
	seed  uint64 // hash of the first name, see add
	qtype uint16
	addrs []netip.Addr
	ttl   time.Duration // the least of all records so far
	left  int           // further aliases allowed
}

// newChain returns a chain that begins at a name, in lower case, for addresses of a type.
func newChain(name string, qtype uint16) *chain {
	return &chain{name: name, seed: mix(14695981039346656037, name), qtype: qtype, ttl: maxTTL, left: maxAliases}
}

// walk follows the chain through an answer section, whose records may have any order. It returns false if the chain
// is too long, as a loop is.
func (c *chain) walk(records []dns.RR) bool {
	for {
		alias := ""
		for _, rr := range records {
			h := rr.Header()
			if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, c.name) {
				continue
			}
			var ip []byte
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			case *dns.CNAME:
				alias = rr.Target
				c.shorten(h.Ttl)
				continue
			}
			addr, ok := netip.AddrFromSlice(ip)
			if ok && h.Rrtype == c.qtype {
				c.add(addr.Unmap())
				c.shorten(h.Ttl)
			}
		}
		if len(c.addrs) > 0 || alias == "" {
			return true
		}
		if c.left--; c.left < 0 {
			return false
		}
		c.name = alias
	}
}

// shorten lowers the chain's time to live to a record's.
func (c *chain) shorten(ttl uint32) { c.ttl = min(c.ttl, seconds(ttl)) }

// seconds converts a time to live. One with the highest bit set counts as 0 (RFC 2181 §8).
func seconds(ttl uint32) time.Duration {
	if ttl > math.MaxInt32 {
		ttl = 0
	}
	return time.Duration(ttl) * time.Second
}

// negative returns how long the absence of a name or of its addresses is valid: by the zone's SOA (RFC 2308 §5), else
// for minTTL.
func (c *chain) negative(m *dns.Msg) time.Duration {
	ttl := minTTL
	if zone := soa(m); zone != nil {
		ttl = min(seconds(zone.Hdr.Ttl), seconds(zone.Minttl))
	}
	return max(min(ttl, c.ttl, maxNegative), minTTL)
}

func soa(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if zone, ok := rr.(*dns.SOA); ok {
			return zone
		}
	}
	return nil
}
