package resolve

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Bounds of what a hostile answer may cost and of how long it counts.
const (
	maxAddrs    = 16
	maxAliases  = 16               // CNAMEs on the way from a name to its addresses
	maxQueries  = 4                // questions about aliases whose addresses an answer left out
	minTTL      = 10 * time.Second // an answer must outlive the exchange that it is for
	maxTTL      = time.Hour
	maxNegative = 5 * time.Minute
)

// read follows a message from where the walk stands. It reports false where the message ends at an alias, and that has to be
// asked for.
func (c *chain) read(m *dns.Msg) (Answer, bool) {
	before := c.name
	if !c.walk(m.Answer) {
		return failed(exchange.DNSFailed, exchange.CauseCNAMEChain), true
	}
	answer := Answer{}
	ttl := c.negative(m)
	switch {
	case m.Rcode == dns.RcodeNameError: // it is about the end of the chain (RFC 6604 §2), whatever else is told
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

// alias is the name at which the walk stands, "" where it is the first.
func (c *chain) alias() string {
	if strings.EqualFold(c.name, c.start) {
		return ""
	}
	return strings.TrimSuffix(c.name, ".")
}

// keep puts an address to the others: those of which place is least, each once, in that order. Servers turn their answers
// round, and who has tried the first of the addresses must not meet it again as the second. Which comes first differs from
// name to name, so that the names of one set of addresses are spread over them.
func (c *chain) keep(addr netip.Addr) {
	at, found := slices.BinarySearchFunc(c.addrs, addr, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(c.place(a), c.place(b)), a.Compare(b))
	})
	if found || at == maxAddrs {
		return
	}
	if len(c.addrs) == maxAddrs {
		c.addrs = c.addrs[:maxAddrs-1]
	}
	c.addrs = slices.Insert(c.addrs, at, addr)
}

// place is a number that the name and an address make, the same for ever.
func (c *chain) place(addr netip.Addr) uint64 {
	bytes := addr.As16()
	return mix(c.lot, bytes[:])
}

// mix goes on with a hash of a few bytes (FNV-1a).
func mix[B []byte | string](h uint64, bytes B) uint64 {
	for i := range len(bytes) {
		h = (h ^ uint64(bytes[i])) * 1099511628211
	}
	return h
}

// chain is the walk from a name over its aliases to addresses.
type chain struct {
	name  string // where the walk stands
	start string // where it began
	lot   uint64 // which that makes, see keep
	qtype uint16
	addrs []netip.Addr
	ttl   time.Duration // the least on the way
	left  int           // aliases that may still come
}

// newChain returns a walk that begins at a name, in lower case, for addresses of a type.
func newChain(name string, qtype uint16) *chain {
	return &chain{name: name, start: name, lot: mix(14695981039346656037, name), qtype: qtype, ttl: maxTTL, left: maxAliases}
}

// walk follows an answer section from where the walk stands, in whatever order its records come. It reports false for a
// chain that is too long or a loop, which without end is the same.
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
				c.least(h.Ttl)
				continue
			}
			addr, ok := netip.AddrFromSlice(ip)
			if ok && h.Rrtype == c.qtype {
				c.keep(addr.Unmap())
				c.least(h.Ttl)
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

// least brings the chain's time down to a record's.
func (c *chain) least(ttl uint32) { c.ttl = min(c.ttl, seconds(ttl)) }

// seconds reads a time to live. One with the highest bit set counts as none (RFC 2181 §8).
func seconds(ttl uint32) time.Duration {
	if ttl > math.MaxInt32 {
		ttl = 0
	}
	return time.Duration(ttl) * time.Second
}

// negative is how long the absence of a name or of its addresses counts: by the zone's SOA (RFC 2308 §5), else shortly.
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
