// Package resolve answers one question: what addresses has a host name? It is a stub resolver: it asks recursive name
// servers, A first and AAAA where there is none, keeps their answers for as long as they allow, and tells a name that
// does not exist from a server that fails and from one that is silent.
//
// The package is laid out as a look-up goes:
//
//	resolve.go   the way of one look-up, and the servers there are
//	hosts.go     the names that this machine knows itself
//	cache.go     what is remembered, and who is being asked about
//	question.go  one question: to which server, how often, by TCP where its answer does not fit
//	server.go    a server: whether it is down, and whether it takes EDNS
//	pace.go      how many questions a second a server is asked
//	mux.go       the sockets through which all questions go
//	answer.go    what an answer says
//	stats.go     what is counted
package resolve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Options say how to ask. The zero value of a field stands for its default.
type Options struct {
	Total      time.Duration // for all questions of one look-up; its waits for Rate do not count; 10s
	First      time.Duration // until a question is sent again; each further wait is half as long again; 400ms
	Rate       float64       // questions a second in all, divided evenly among the servers, fewer to one that refuses too many; 0 = no limit
	MaxSockets int           // open at a time, TCP included, though not less than three for each server; 64
	CacheSize  int           // names remembered; 16384
	IPv4, IPv6 bool          // ask for that family only; not both
	Hosts      string        // path of the hosts file; "" is /etc/hosts, "-" none
	Log        *slog.Logger  // is told when a server stops answering, answers again, refuses too much or does not take EDNS; nil: nobody
}

// Answer is what a look-up found: addresses, or the outcome that says why there are none.
type Answer struct {
	Addrs   []netip.Addr     // at most maxAddrs from a server, in an order that is theirs and the name's; shared, not to be changed
	Outcome exchange.Outcome // dns_not_found, dns_failed, dns_timeout; 0 where Addrs has any
	Cause   exchange.Cause
	Took    time.Duration // without waits for Rate; 0 from the cache and from the hosts file
	Until   time.Time     // when the answer must be asked again; zero: never

	PutOff bool           // no server answered within the caller's patience; nothing else is set
	Server netip.AddrPort // that answered last, or refused to; invalid where none did, and for names that this machine knows itself
	Alias  string         // the name at the end of the chain of aliases; "" where there is none
}

// Resolver looks names up. It is safe for use by many goroutines. It keeps one of its own for each open socket; Close ends
// them, and so does some time without questions.
type Resolver struct {
	opts     Options
	servers  []*server
	mux      *mux
	tcp      chan struct{} // one for each open TCP connection
	calls    sync.Pool     // of *call
	hosts    map[string][]netip.Addr
	cache    *cache
	log      *slog.Logger
	closing  context.Context // ends with Close
	close    context.CancelFunc
	probing  sync.RWMutex // held for reading by whoever sends a probe
	counters counters
}

// New returns a Resolver that asks servers, each HOST:PORT or HOST with an IP address as host; none stands for those of
// /etc/resolv.conf.
func New(servers []string, opts Options) (*Resolver, error) {
	if opts.Total == 0 {
		opts.Total = 10 * time.Second
	}
	if opts.First == 0 {
		opts.First = 400 * time.Millisecond
	}
	if opts.MaxSockets == 0 {
		opts.MaxSockets = 64
	}
	if opts.CacheSize == 0 {
		opts.CacheSize = 16384
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case opts.Total < 0 || opts.First < 0 || opts.Rate < 0 || opts.MaxSockets < 0 || opts.CacheSize < 0:
		return nil, errors.New("cannot resolve names with negative options")
	case opts.IPv4 && opts.IPv6:
		return nil, errors.New("cannot resolve names to IPv4 only and IPv6 only")
	}
	if len(servers) == 0 {
		servers = systemServers("/etc/resolv.conf")
	}
	if len(servers) > maxServers {
		return nil, fmt.Errorf("cannot ask %d name servers, at most %d", len(servers), maxServers)
	}
	streams := max(1, opts.MaxSockets/4)
	r := &Resolver{opts: opts, cache: newCache(opts.CacheSize), log: opts.Log, tcp: make(chan struct{}, streams)}
	r.calls.New = func() any { return newCall() }
	r.closing, r.close = context.WithCancel(context.Background())
	r.mux = newMux(len(servers), opts.MaxSockets-streams, &r.counters.strangers)
	for i, text := range servers {
		addr, err := parseServer(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read name server %q: %w", text, err)
		}
		s := &server{addr: addr, index: i, mux: r.mux, pacer: newPacer(opts.Rate / float64(len(servers)))}
		s.heard.Store(time.Now().UnixNano())
		r.servers = append(r.servers, s)
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

// Close closes all sockets. Look-ups after it work, with new ones, which close by themselves after some time without questions.
func (r *Resolver) Close() error {
	r.probing.Lock()
	r.close()
	r.probing.Unlock()
	r.mux.close()
	return nil
}

// Lookup finds the addresses of a host name, in lower-case ASCII without a final dot. One question about a name is under
// way at a time; whoever asks meanwhile gets its answer. Where no server has answered within patience (0: within
// Options.Total) the look-up is put off, see Answer. When ctx ends first the outcome is dns_timeout.
func (r *Resolver) Lookup(ctx context.Context, host string, patience time.Duration) Answer {
	if addrs, ok := r.local(host); ok {
		if len(addrs) == 0 {
			return failed(exchange.DNSNotFound, exchange.CauseNoAddress)
		}
		return Answer{Addrs: addrs}
	}
	return r.find(ctx, host, host, patience, r.families)
}

// LookupIPv6 finds the IPv6 addresses of a host name of which Lookup has told others.
func (r *Resolver) LookupIPv6(ctx context.Context, host string, patience time.Duration) Answer {
	if _, ok := r.local(host); ok || r.opts.IPv4 {
		return failed(exchange.DNSNotFound, exchange.CauseNoAddress) // Lookup told of all there are
	}
	return r.find(ctx, host+"/6", host, patience, func(ctx context.Context, l *lookup, host string) Answer {
		return r.records(ctx, l, host, dns.TypeAAAA)
	})
}

// find returns what is remembered under a name, which is no other look-up's, or what questions about a host bring.
func (r *Resolver) find(ctx context.Context, name, host string, patience time.Duration, questions func(context.Context, *lookup, string) Answer) Answer {
	r.counters.lookups.Add(1)
	began := time.Now()
	answer, f, lead := r.cache.begin(name, began)
	for f != nil && !lead {
		shared, over := f.wait(ctx, patience)
		if over {
			return r.told(shared)
		}
		if f.good {
			r.counters.shared.Add(1)
			shared.Took = min(shared.Took, time.Since(began))
			return shared
		}
		answer, f, lead = r.cache.begin(name, time.Now())
	}
	if f == nil {
		r.counters.cacheHits.Add(1)
		return answer
	}
	answer = r.ask(ctx, f, host, patience, questions)
	// What failed because this caller gave up is nobody else's answer.
	r.cache.finish(f, answer, ctx.Err() == nil && !answer.PutOff)
	return r.told(answer)
}

// told counts what a caller is told.
func (r *Resolver) told(answer Answer) Answer {
	if answer.PutOff {
		r.counters.putOff.Add(1)
	}
	return answer
}

func failed(o exchange.Outcome, c exchange.Cause) Answer { return Answer{Outcome: o, Cause: c} }

// ask puts the questions of one look-up.
func (r *Resolver) ask(ctx context.Context, f *flight, host string, patience time.Duration, questions func(context.Context, *lookup, string) Answer) Answer {
	now := time.Now()
	l := lookup{began: now, deadline: now.Add(r.opts.Total), patient: true, flight: f}
	if patience > 0 && patience < r.opts.Total {
		l.deadline, l.patient = now.Add(patience), false
	}
	answer := questions(ctx, &l, host)
	took := time.Since(l.began) - l.waited
	if f.asked.Load() != 0 {
		r.counters.count(took)
	}
	if answer.Outcome == exchange.DNSTimeout && !l.patient && ctx.Err() == nil {
		return Answer{PutOff: true}
	}
	answer.Took = took
	return answer
}

// lookup is the time that one look-up takes. What it waits for by our own will counts against no server.
type lookup struct {
	began    time.Time
	waited   time.Duration // by our own will, with nothing under way
	deadline time.Time     // put off by each wait
	patient  bool          // it has the whole time
	flight   *flight
}

// delay puts the deadline off by a wait of our own, during which something was under way or not.
func (l *lookup) delay(waited time.Duration, underWay bool) {
	if !underWay {
		l.waited += waited
	}
	l.deadline = l.deadline.Add(waited)
}

// asked notes that a question has been sent: from the first on, those who wait for the answer use up their patience.
func (l *lookup) asked() {
	if l.flight.asked.Load() == 0 {
		l.flight.asked.Store(time.Now().UnixNano())
	}
}

// over reports whether the time is up.
func (l *lookup) over() bool { return !time.Now().Before(l.deadline) }

// until returns the earlier of t and the deadline.
func (l *lookup) until(t time.Time) time.Time {
	if l.deadline.Before(t) {
		return l.deadline
	}
	return t
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
	chain := newChain(name, qtype)
	for range maxQueries {
		m, from, cause := r.question(ctx, l, chain.name, qtype)
		var answer Answer
		ended := true
		switch cause {
		case 0:
			answer, ended = chain.read(m)
		case exchange.CauseDNSTimeout:
			answer = failed(exchange.DNSTimeout, cause)
		case exchange.CauseNoSuchName:
			answer = failed(exchange.DNSNotFound, cause)
		default:
			answer = failed(exchange.DNSFailed, cause)
		}
		if ended {
			if from != nil {
				answer.Server = from.addr
			}
			answer.Alias = chain.alias()
			return answer
		}
	}
	return failed(exchange.DNSFailed, exchange.CauseCNAMEChain)
}
