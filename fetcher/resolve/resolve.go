// Package resolve answers one question: which addresses does a host name have? It is a stub resolver. It asks
// recursive name servers for A records, and for AAAA records if there are none. It caches answers for as long as they
// allow. It distinguishes a name that does not exist, a server that fails, and a server that is silent.
//
// The files, in the order of a look-up:
//
//	resolve.go   one look-up, and the list of servers
//	hosts.go     local names
//	cache.go     cached answers and look-ups in flight
//	batch.go     many look-ups together, until one needs more than its first question
//	question.go  one question: to which server, how often, by TCP after a truncated answer
//	server.go    a server: whether it is down, and whether it answers questions with EDNS
//	pace.go      the rate of questions to a server
//	mux.go       the sockets of all questions
//	network.go   the system's sockets, or those of a test
//	answer.go    reading an answer
//	stats.go     the counts
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

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Options configure a Resolver. The zero value of a field means its default.
type Options struct {
	Total time.Duration // bound of one look-up, without its waits for Rate; 10s
	First time.Duration // wait before a question is sent again; each further wait is half as long again; 400ms
	// questions a second to all servers, shared evenly; less to one that refuses too many; 0: no limit
	Rate       float64
	MaxSockets int          // open at a time, TCP included, but three at least for each server; 64
	CacheSize  int          // cached names; 16384
	IPv4, IPv6 bool         // ask for this family only; not both
	Hosts      string       // path of the hosts file; "" is /etc/hosts, "-" none
	Network    Network      // nil: this machine's
	Log        *slog.Logger // for servers that stop answering, answer again, refuse too much or fail with EDNS; nil: none
}

// Answer is the result of a look-up: addresses, or the outcome that says why there are none.
type Answer struct {
	Addrs   []netip.Addr     // at most maxAddrs from a server, in an order fixed for the name; shared, read only
	Outcome exchange.Outcome // dns_not_found, dns_failed, dns_timeout; 0 if there are Addrs
	Cause   exchange.Cause
	Took    time.Duration // without waits for Rate; 0 from the cache and for local names
	Until   time.Time     // when the answer expires; zero: never
}

// Resolver looks names up. It is safe for use by many goroutines. Each open socket has a goroutine, which ends with
// Close, or after some time without questions.
type Resolver struct {
	opts     Options
	servers  []*server
	mux      *mux
	tcp      chan struct{} // one element for each open TCP connection
	calls    sync.Pool     // of *call
	hosts    map[string][]netip.Addr
	cache    *cache
	log      *slog.Logger
	closing  context.Context // ends with Close
	close    context.CancelFunc
	probing  sync.RWMutex // held for reading while a probe is sent
	counters counters
}

// New returns a Resolver that asks servers, each HOST:PORT or HOST with an IP address as host. An empty list means
// the servers of /etc/resolv.conf.
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
	if opts.Network == nil {
		opts.Network = &system{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case opts.Total < 0 || opts.First < 0 || opts.Rate < 0 || opts.MaxSockets < 0 || opts.CacheSize < 0:
		return nil, errors.New("cannot resolve names with negative options")
	case opts.IPv4 && opts.IPv6:
		return nil, errors.New("cannot resolve names to IPv4 only and IPv6 only at the same time")
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
	r.mux = newMux(len(servers), opts.MaxSockets-streams, &r.counters.unexpected)
	for i, text := range servers {
		addr, err := parseServer(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read name server %q: %w", text, err)
		}
		s := &server{addr: addr, index: i, network: opts.Network, mux: r.mux,
			pacer: newPacer(opts.Rate / float64(len(servers)))}
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

// systemServers returns the name servers in resolv.conf(5), or the one on loopback if there are none. It ignores
// invalid addresses.
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
		// A zone may contain any character, even a bracket and a port. So an address without a port is tried second.
		alone, errAlone := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
		if errAlone == nil {
			return netip.AddrPortFrom(alone, 53), nil
		}
	}
	return addr, err
}

// Close closes all sockets. Later look-ups work with new sockets, which close by themselves after some time without
// questions.
func (r *Resolver) Close() error {
	r.probing.Lock()
	r.close()
	r.probing.Unlock()
	r.mux.close()
	return nil
}

// Lookup finds the addresses of a host name, given in lower-case ASCII without a final dot. A name has one look-up in
// flight; concurrent callers share its answer. If no server answers within Options.Total, or if ctx ends
// first, the outcome is dns_timeout.
func (r *Resolver) Lookup(ctx context.Context, host string) Answer {
	if answer, ok := r.localAnswer(host); ok {
		return answer
	}
	return r.find(ctx, host, host, r.families)
}

// localAnswer is the answer about a local name.
func (r *Resolver) localAnswer(host string) (Answer, bool) {
	addrs, ok := r.local(host)
	if ok && len(addrs) == 0 {
		return failed(exchange.DNSNotFound, exchange.CauseNoAddress), true
	}
	return Answer{Addrs: addrs}, ok
}

// LookupIPv6 finds the IPv6 addresses of a host name for which Lookup returned IPv4 addresses.
func (r *Resolver) LookupIPv6(ctx context.Context, host string) Answer {
	if _, ok := r.local(host); ok || r.opts.IPv4 {
		return failed(exchange.DNSNotFound, exchange.CauseNoAddress) // Lookup has returned all
	}
	return r.find(ctx, host+"/6", host, func(ctx context.Context, l *lookup, host string) Answer {
		return r.records(ctx, l, host, dns.TypeAAAA)
	})
}

// find returns the cached answer under a key, which is unique to the kind of look-up, or the answer to questions
// about a host.
func (r *Resolver) find(ctx context.Context, key, host string, questions func(context.Context, *lookup,
	string) Answer) Answer {
	r.counters.lookups.Add(1)
	began := time.Now()
	answer, f, lead := r.cache.begin(key, began)
	for f != nil && !lead {
		shared, gaveUp := f.wait(ctx)
		if gaveUp {
			return shared
		}
		if f.good {
			r.counters.shared.Add(1)
			shared.Took = min(shared.Took, time.Since(began))
			return shared
		}
		answer, f, lead = r.cache.begin(key, time.Now())
	}
	if f == nil {
		r.counters.cacheHits.Add(1)
		return answer
	}
	l := r.begin(time.Now())
	return r.lead(ctx, &l, f, host, questions)
}

// lead asks the questions of one look-up, and ends its flight.
func (r *Resolver) lead(ctx context.Context, l *lookup, f *flight, host string, questions func(context.Context, *lookup,
	string) Answer) Answer {
	answer := questions(ctx, l, host)
	answer.Took = time.Since(l.began) - l.waited
	if l.asked {
		r.counters.count(answer.Took)
	}
	// An answer that this caller's ctx cut off is not valid for followers.
	r.cache.finish(f, answer, ctx.Err() == nil)
	return answer
}

func failed(o exchange.Outcome, c exchange.Cause) Answer { return Answer{Outcome: o, Cause: c} }

// begin begins a look-up at a time.
func (r *Resolver) begin(at time.Time) lookup {
	return lookup{began: at, deadline: at.Add(r.opts.Total)}
}

// lookup measures the time of one look-up. Waits for our own rate and connections do not count against a server.
type lookup struct {
	began    time.Time
	waited   time.Duration // own waits without a question in flight
	deadline time.Time     // extended by each own wait
	asked    bool          // a question has been sent
	first    *call         // the first question, if it has been sent in a batch; else nil
}

// delay extends the deadline by an own wait. inFlight says that a question was in flight meanwhile.
func (l *lookup) delay(waited time.Duration, inFlight bool) {
	if !inFlight {
		l.waited += waited
	}
	l.deadline = l.deadline.Add(waited)
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

// firstType is the type of a look-up's first question.
func (r *Resolver) firstType() uint16 {
	if r.opts.IPv6 {
		return dns.TypeAAAA
	}
	return dns.TypeA
}

// wantsSix reports whether the answer to the first type makes IPv6 addresses wanted.
func (r *Resolver) wantsSix(answer Answer) bool {
	return answer.Cause == exchange.CauseNoAddress && !r.opts.IPv4 && !r.opts.IPv6
}

// families asks for the addresses of the permitted families.
func (r *Resolver) families(ctx context.Context, l *lookup, host string) Answer {
	answer := r.records(ctx, l, host, r.firstType())
	if !r.wantsSix(answer) {
		return answer
	}
	six := r.records(ctx, l, host, dns.TypeAAAA)
	if six.Outcome == exchange.DNSNotFound {
		// Two answers without addresses are valid until the first expires.
		if answer.Until.Before(six.Until) {
			six.Until = answer.Until
		}
	}
	return six
}

// askable reports whether a question can have a name.
func askable(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && len(name) <= 254
}

// records finds the addresses of one family, along the chain of aliases.
func (r *Resolver) records(ctx context.Context, l *lookup, host string, qtype uint16) Answer {
	name := dns.Fqdn(host)
	if !askable(name) {
		return failed(exchange.DNSNotFound, exchange.CauseNoSuchName)
	}
	chain := newChain(name, qtype)
	for range maxQueries {
		m, cause := r.question(ctx, l, chain.name, qtype)
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
			return answer
		}
	}
	return failed(exchange.DNSFailed, exchange.CauseCNAMEChain)
}
