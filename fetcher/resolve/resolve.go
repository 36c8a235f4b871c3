// Package resolve answers one question: what addresses has a host name? It is a stub resolver: it asks recursive name
// servers, A first and AAAA where there is none, keeps their answers for as long as they allow, and tells a name that
// does not exist from a server that fails and from one that is silent.
//
// resolve.go is the way of one lookup, cache.go what is remembered, exchange.go one question to one server, sockets.go what
// it is asked by, hosts.go the names that this machine knows itself.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Options say how to ask. The zero value of a field stands for its default.
type Options struct {
	Timeout    time.Duration // for one answer of one server; 2s
	Total      time.Duration // for all questions of one lookup; its waits for Rate and MaxSockets do not count; 10s
	Tries      int           // questions sent for one record type, over all servers; 4
	Rate       float64       // questions a second in all; 0 = no limit
	MaxSockets int           // open at a time, idle ones included, so that files do not run out; 256
	CacheSize  int           // names remembered; 16384
	IPv4, IPv6 bool          // ask for that family only; not both
	Hosts      string        // path of the hosts file; "" is /etc/hosts, "-" none
}

// Answer is what a lookup found: addresses, or the outcome that says why there are none.
type Answer struct {
	Addrs   []netip.Addr     // in the servers' order, at most maxAddrs; shared, not to be changed
	Outcome exchange.Outcome // dns_not_found, dns_failed, dns_timeout; 0 where Addrs has any
	Cause   exchange.Cause
	Took    time.Duration // without waits for Rate and MaxSockets; 0 from the cache and from the hosts file
	Until   time.Time     // when the answer must be asked again; zero: never
}

// Bounds of what a hostile answer may cost and of how long it counts.
const (
	maxAddrs    = 16
	maxAliases  = 16               // CNAMEs on the way from a name to its addresses
	maxQueries  = 4                // questions about aliases whose addresses an answer left out
	minTTL      = 10 * time.Second // a lookup's answer must outlive the exchange that it is for
	maxTTL      = time.Hour
	maxNegative = 5 * time.Minute
)

// deadAfter is after how many questions in vain, one behind the other, a server is taken for dead.
const deadAfter = 5

// Resolver looks names up. It is safe for use by many goroutines, and keeps none of its own.
type Resolver struct {
	opts    Options
	servers []*server
	sockets *sockets
	hosts   map[string][]netip.Addr
	cache   *cache
	limiter *rate.Limiter // nil: no limit
}

// New returns a Resolver that asks servers, each HOST:PORT or HOST with an IP address as host; none stands for those of
// /etc/resolv.conf.
func New(servers []string, opts Options) (*Resolver, error) {
	if opts.Timeout == 0 {
		opts.Timeout = 2 * time.Second
	}
	if opts.Total == 0 {
		opts.Total = 10 * time.Second
	}
	if opts.Tries == 0 {
		opts.Tries = 4
	}
	if opts.MaxSockets == 0 {
		opts.MaxSockets = 256
	}
	if opts.CacheSize == 0 {
		opts.CacheSize = 16384
	}
	switch {
	case opts.Timeout < 0 || opts.Total < 0 || opts.Tries < 0 || opts.Rate < 0 || opts.MaxSockets < 0 || opts.CacheSize < 0:
		return nil, errors.New("cannot resolve names with negative options")
	case opts.IPv4 && opts.IPv6:
		return nil, errors.New("cannot resolve names to IPv4 only and IPv6 only")
	}
	if len(servers) == 0 {
		servers = systemServers("/etc/resolv.conf")
	}
	r := &Resolver{opts: opts, sockets: newSockets(opts.MaxSockets), cache: newCache(opts.CacheSize)}
	for _, text := range servers {
		addr, err := parseServer(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read name server %q: %w", text, err)
		}
		r.servers = append(r.servers, &server{addr: addr, sockets: r.sockets})
	}
	r.sockets.servers = r.servers
	if opts.Rate > 0 {
		// A tenth of a second's worth may go at once: answers come in bursts, and so do the questions they free.
		r.limiter = rate.NewLimiter(rate.Limit(opts.Rate), max(1, int(opts.Rate/10)))
	}
	if opts.Hosts != "-" {
		path := opts.Hosts
		if path == "" {
			path = "/etc/hosts"
		}
		hosts, err := readHosts(path)
		if err != nil {
			return nil, err
		}
		r.hosts = hosts
	}
	return r, nil
}

// systemServers are the name servers that resolv.conf(5) names; the one on loopback where it names none. What is no
// address there is passed over.
func systemServers(path string) []string {
	var servers []string
	if conf, err := dns.ClientConfigFromFile(path); err == nil {
		for _, text := range conf.Servers {
			if addr, err := parseServer(net.JoinHostPort(text, conf.Port)); err == nil {
				servers = append(servers, addr.String())
			}
		}
	}
	if len(servers) == 0 {
		servers = []string{"127.0.0.1:53"}
	}
	return servers
}

func parseServer(s string) (netip.AddrPort, error) {
	s = strings.TrimSpace(s)
	addr, err := netip.ParseAddrPort(s)
	if err == nil && addr.Port() == 0 {
		return addr, errors.New("port 0")
	}
	if err != nil {
		// A zone may hold anything, a bracket and a port too: only what is no address with a port is one without.
		alone, errAlone := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
		if errAlone == nil {
			return netip.AddrPortFrom(alone, 53), nil
		}
	}
	return addr, err
}

// Close closes the sockets that wait for their next question. Lookups after it work, with new ones.
func (r *Resolver) Close() error {
	r.sockets.closeIdle()
	return nil
}

// Lookup finds the addresses of a host name, in lower-case ASCII without a final dot. One question about a name is under
// way at a time; whoever asks meanwhile gets its answer. When ctx ends first the outcome is dns_timeout.
func (r *Resolver) Lookup(ctx context.Context, host string) Answer {
	if addrs, ok := r.local(host); ok {
		if len(addrs) == 0 {
			return failed(exchange.DNSNotFound, exchange.CauseNoAddress)
		}
		return Answer{Addrs: addrs}
	}
	return r.find(ctx, host, host, r.families)
}

// LookupIPv6 finds the IPv6 addresses of a host name of which Lookup has told others.
func (r *Resolver) LookupIPv6(ctx context.Context, host string) Answer {
	if _, ok := r.local(host); ok || r.opts.IPv4 {
		return failed(exchange.DNSNotFound, exchange.CauseNoAddress) // Lookup told of all there are
	}
	return r.find(ctx, host+"/6", host, func(ctx context.Context, l *lookup, host string) Answer {
		return r.records(ctx, l, host, dns.TypeAAAA)
	})
}

// find returns what is remembered under a name, which is no other lookup's, or what questions about a host bring.
func (r *Resolver) find(ctx context.Context, name, host string, questions func(context.Context, *lookup, string) Answer) Answer {
	began := time.Now()
	for {
		answer, f, lead := r.cache.begin(name, time.Now())
		if f == nil {
			return answer
		}
		if lead {
			answer = r.ask(ctx, host, questions)
			// What failed because this caller gave up is nobody else's answer.
			r.cache.finish(name, f, answer, ctx.Err() == nil)
			return answer
		}
		select {
		case <-f.done:
			if f.good {
				answer = f.answer
				answer.Took = time.Since(began)
				return answer
			}
		case <-ctx.Done():
			return failed(exchange.DNSTimeout, exchange.CauseDNSTimeout)
		}
	}
}

func failed(o exchange.Outcome, c exchange.Cause) Answer { return Answer{Outcome: o, Cause: c} }

// lookup is the time that one lookup takes. What it waits for by our own will counts against no server.
type lookup struct {
	began    time.Time
	waited   time.Duration
	deadline time.Time // put off by each wait
}

// ask puts the questions of one lookup.
func (r *Resolver) ask(ctx context.Context, host string, questions func(context.Context, *lookup, string) Answer) Answer {
	l := lookup{began: time.Now()}
	l.deadline = l.began.Add(r.opts.Total)
	answer := questions(ctx, &l, host)
	answer.Took = time.Since(l.began) - l.waited
	return answer
}

// families asks for the addresses of the families that may be dialled.
func (r *Resolver) families(ctx context.Context, l *lookup, host string) Answer {
	if r.opts.IPv6 {
		return r.records(ctx, l, host, dns.TypeAAAA)
	}
	answer := r.records(ctx, l, host, dns.TypeA)
	if r.opts.IPv4 || answer.Cause != exchange.CauseNoAddress {
		return answer
	}
	six := r.records(ctx, l, host, dns.TypeAAAA)
	if six.Outcome == exchange.DNSNotFound {
		// Two answers without addresses count for as long as both do.
		if answer.Until.Before(six.Until) {
			six.Until = answer.Until
		}
	}
	return six
}

// records finds the addresses of one family, along the chain of aliases.
func (r *Resolver) records(ctx context.Context, l *lookup, host string, qtype uint16) Answer {
	name := dns.Fqdn(host)
	if _, ok := dns.IsDomainName(name); !ok || len(name) > 254 {
		return failed(exchange.DNSNotFound, exchange.CauseNoSuchName)
	}
	chain := chain{name: name, qtype: qtype, ttl: maxTTL, left: maxAliases}
	for range maxQueries {
		m, cause := r.question(ctx, l, chain.name, qtype)
		if cause != 0 {
			if cause == exchange.CauseDNSTimeout {
				return failed(exchange.DNSTimeout, cause)
			}
			return failed(exchange.DNSFailed, cause)
		}
		before := chain.name
		if !chain.walk(m.Answer) {
			return failed(exchange.DNSFailed, exchange.CauseCNAMEChain)
		}
		switch {
		case len(chain.addrs) > 0:
			return Answer{Addrs: chain.addrs, Until: time.Now().Add(max(chain.ttl, minTTL))}
		case m.Rcode == dns.RcodeNameError:
			answer := failed(exchange.DNSNotFound, exchange.CauseNoSuchName)
			answer.Until = time.Now().Add(chain.negative(m))
			return answer
		case chain.name == before:
			answer := failed(exchange.DNSNotFound, exchange.CauseNoAddress)
			answer.Until = time.Now().Add(chain.negative(m))
			return answer
		}
		// The answer ends at an alias: ask for what it stands for.
		if soa(m) != nil {
			answer := failed(exchange.DNSNotFound, exchange.CauseNoAddress)
			answer.Until = time.Now().Add(chain.negative(m))
			return answer
		}
	}
	return failed(exchange.DNSFailed, exchange.CauseCNAMEChain)
}

// chain is the walk from a name over its aliases to addresses.
type chain struct {
	name  string // where the walk stands
	qtype uint16
	addrs []netip.Addr
	ttl   time.Duration // the least on the way
	left  int           // aliases that may still come
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
			var ip net.IP
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
			if ok && h.Rrtype == c.qtype && len(c.addrs) < maxAddrs {
				c.addrs = append(c.addrs, addr.Unmap())
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

func (c *chain) least(ttl uint32) {
	c.ttl = min(c.ttl, time.Duration(ttl)*time.Second)
}

// negative is how long the absence of a name or of its addresses counts: by the zone's SOA (RFC 2308 §5), else shortly.
func (c *chain) negative(m *dns.Msg) time.Duration {
	ttl := minTTL
	if zone := soa(m); zone != nil {
		ttl = time.Duration(min(zone.Hdr.Ttl, zone.Minttl)) * time.Second
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

// first draws the server that a question begins with, by its index: any, but one that answers nothing any more only now
// and then, to see whether it does again.
func (r *Resolver) first() int {
	lot := int(dns.Id())
	first := lot % len(r.servers)
	if probe := lot/len(r.servers)%16 == 0; probe {
		return first
	}
	for i := range r.servers {
		if at := (first + i) % len(r.servers); r.servers[at].silent.Load() < deadAfter {
			return at
		}
	}
	return first
}

// turn waits until another question may go: by the rate, and by the sockets that may be open. It reports false where ctx
// ended first; else the caller owes a leave.
func (r *Resolver) turn(ctx context.Context, l *lookup) bool {
	began := time.Now()
	if r.limiter != nil && r.limiter.Wait(ctx) != nil {
		// Wait knows at once that our turn comes too late. It is too late when ctx ends: until then the failure would
		// pass for the servers', and for the answer of others who wait for this flight.
		<-ctx.Done()
	}
	if ctx.Err() != nil || !r.sockets.enter(ctx) {
		return false
	}
	waited := time.Since(began)
	l.waited += waited
	l.deadline = l.deadline.Add(waited)
	return true
}

// question asks the servers one question until one answers it, or the lookup's time is up: each in turn, from a random
// one on. The cause is that of the last failure.
func (r *Resolver) question(ctx context.Context, l *lookup, name string, qtype uint16) (*dns.Msg, exchange.Cause) {
	cause := exchange.CauseDNSTimeout
	first := r.first()
	for try := range r.opts.Tries {
		if !r.turn(ctx, l) {
			return nil, exchange.CauseDNSTimeout
		}
		now := time.Now()
		if !now.Before(l.deadline) {
			r.sockets.leave()
			return nil, cause
		}
		deadline := now.Add(r.opts.Timeout)
		if l.deadline.Before(deadline) {
			deadline = l.deadline
		}
		s := r.servers[(first+try)%len(r.servers)]
		m, err := s.ask(ctx, name, qtype, deadline)
		r.sockets.leave()
		if err == nil {
			s.silent.Store(0)
			switch m.Rcode {
			case dns.RcodeSuccess, dns.RcodeNameError:
				return m, 0
			case dns.RcodeRefused:
				cause = exchange.CauseDNSRefused
			case dns.RcodeFormatError, dns.RcodeNotImplemented:
				cause = exchange.CauseDNSMalformed
			default:
				cause = exchange.CauseServFail
			}
			// A server that says that it cannot will say so again; the others are worth a question each.
			if try+1 >= len(r.servers) && try > 0 {
				return nil, cause
			}
			continue
		}
		if ctx.Err() == nil {
			s.silent.Add(1)
		}
		cause = causeOf(err)
	}
	return nil, cause
}
