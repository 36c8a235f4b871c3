// Package fetcher answers one question: what happened? It performs one exchange with one host at a time and returns
// its result in the types of package exchange. Package pipeline decides when, how often and how many at once. Package
// audit decides what an answer means.
//
// The files, in the order of an exchange:
//   - guard.go and connectto.go decide which address is dialled.
//   - wire.go dials (on Linux by connect_linux.go), shakes hands and sends; verify.go verifies certificates.
//   - head.go reads the response head, cdn.go recognises delivery networks in it.
//   - body.go and coding.go read the body.
//   - classify.go maps errors to outcomes.
//   - next.go, with location.go, decides what follows.
//   - ftp.go performs exchanges by FTP.
//   - tape.go records exchanges, recorded.go replays recorded ones.
//
// All input from the network is hostile: each part is bounded in bytes, in memory and by one absolute deadline.
package fetcher

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Resolver finds the addresses of a host name. An answer without addresses has an Outcome. A Resolver is called by
// many goroutines at once. It returns soon after ctx ends. *resolve.Resolver is one.
type Resolver interface {
	Lookup(ctx context.Context, host string) resolve.Answer
}

// resolver6 is a Resolver that can look up IPv6 addresses after Lookup returned IPv4 addresses. *resolve.Resolver is
// one.
type resolver6 interface {
	LookupIPv6(ctx context.Context, host string) resolve.Answer
}

// resolverAll is a Resolver that looks up many names at a time. *resolve.Resolver is one.
type resolverAll interface {
	LookupAll(ctx context.Context, queries []*resolve.Query, done func([]*resolve.Query))
}

// Config configures a Fetcher. The zero value of a field means its default, unless the field's comment says otherwise.
type Config struct {
	Timeout        time.Duration // one exchange from dialling to the body's end; 15s
	ConnectTimeout time.Duration // 5s; this and the next two lie inside Timeout
	TLSTimeout     time.Duration // no bound of its own
	HeaderTimeout  time.Duration // from the request's last byte to the head's end; no bound of its own

	MaxRedirects int // per attempt, over schemes and hosts; 0 follows none; see DefaultMaxRedirects
	Retries      int // of an origin; 0 makes none; see DefaultRetries
	// wait before the first retry, doubled for each further one; 0: none; see DefaultRetryAfter
	RetryAfter    time.Duration
	MaxRetryAfter time.Duration // the longest Retry-After that is obeyed; 0 ignores it; see DefaultMaxRetryAfter

	MaxBody   int    // bytes of a decoded body that are kept; 512000
	UserAgent string // required

	// BodyBudget bounds the memory of bodies above 16 KiB, in bytes: of all exchanges in flight, and of all Responses
	// before their Reset. It is at least four times MaxBody; the default is 256 MiB, or that minimum. A quarter is for
	// bodies up to 64 KiB; each larger body takes MaxBody of the rest. When the budget is used up, an exchange waits
	// until its own deadline. A smaller body is outside the budget; it takes 4 or 16 KiB from its first byte on.
	BodyBudget int64

	Scheme     origin.Scheme // of the first attempt for entries without a scheme: HTTPS (default) or HTTP
	NoFallback bool          // do not try the other scheme

	ConnectTo    []ConnectTo // the first match counts
	AllowPrivate bool        // permit private, loopback and other special addresses
	StrictTLS    bool        // an unverifiable certificate is a failure
	SkipVerify   bool        // verify no certificate: TLSVerified is Unknown; not with StrictTLS
	TLSMin       uint16      // the oldest version accepted, from tls.VersionTLS10 on; tls.VersionTLS12
	IPv4, IPv6   bool        // use only this family; not both
	SourceIP     netip.Addr  // local address; invalid: the system's choice; not with Dial

	// Dial opens each connection as net.Dialer.DialContext does, with the same errors; nil: the system opens them. The
	// network is "tcp". The address is an IP address with a port, and has passed all checks. ctx ends when the time for
	// connecting does. Dial is called from many goroutines at once.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Roots    *x509.CertPool         // without constraints of the pool's own; nil: the system's
	Resolver Resolver               // nil: resolve.New with the system's servers
	OptOut   func(host string) bool // reports whether a host must never be contacted; nil: none

	// OptOutAddr reports whether an address must never be dialled, for any host name; nil: none.
	OptOutAddr func(netip.Addr) bool

	// Record receives each exchange in which a request was sent by http or https, before Do returns; nil: no
	// recording. It is called from many goroutines at once and must not keep the Recording or its bytes. An
	// exchange that the context ended is not recorded.
	Record func(*Recording)

	// FTPData bounds the FTP transfers in flight. Each holds a second connection, so one more file. An exchange waits
	// for a free place until its deadline. 0 is 64.
	FTPData int
}

// The defaults of the fields of Config whose zero value has a meaning of its own.
const (
	DefaultMaxRedirects  = 5
	DefaultRetries       = 2
	DefaultRetryAfter    = 60 * time.Second
	DefaultMaxRetryAfter = 10 * time.Minute
)

// Fetcher performs exchanges. It is safe for use by many goroutines; one goroutine at a time owns an Exchange.
// Between exchanges it holds no goroutine and no connection.
type Fetcher struct {
	cfg      Config
	policy   policy
	tls      *tls.Config
	verifier *verifier
	never    chan struct{} // never closed; see until
	memory   *memory
	ftpData  chan struct{} // one element for each transfer in flight
	decoders chan *decoder // the free list
	wires    sync.Pool
	tapes    *tapeBudget // nil where nothing is recorded
}

// setDefaults replaces the zero values that stand for defaults.
func (c *Config) setDefaults() {
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.TLSTimeout = cmp.Or(c.TLSTimeout, c.Timeout)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, c.Timeout)
	c.MaxBody = cmp.Or(c.MaxBody, 512000)
	c.BodyBudget = cmp.Or(c.BodyBudget, max(256<<20, 4*int64(c.MaxBody)))
	c.TLSMin = cmp.Or(c.TLSMin, tls.VersionTLS12)
	c.Scheme = cmp.Or(c.Scheme, origin.HTTPS)
	c.FTPData = cmp.Or(c.FTPData, 64)
}

// check returns an error that says which field is wrong.
func (c *Config) check() error {
	switch {
	case c.Timeout < 0, c.ConnectTimeout < 0, c.TLSTimeout < 0, c.HeaderTimeout < 0:
		return errors.New("cannot fetch with a negative timeout")
	case c.MaxRedirects < 0 || c.MaxRedirects > 100:
		return errors.New("cannot follow fewer than 0 or more than 100 redirects")
	case c.Retries < 0 || c.Retries > 100:
		return errors.New("cannot make fewer than 0 or more than 100 retries")
	case c.RetryAfter < 0 || c.MaxRetryAfter < 0:
		return errors.New("cannot wait a negative time before a retry")
	case c.MaxBody < 0 || c.MaxBody > 1<<30:
		return errors.New("cannot keep fewer than 1 or more than 2³⁰ bytes of a body")
	case c.BodyBudget < 4*int64(c.MaxBody):
		return fmt.Errorf("cannot hold bodies of %d bytes in a budget of %d", c.MaxBody, c.BodyBudget)
	case c.Scheme != origin.HTTPS && c.Scheme != origin.HTTP:
		return fmt.Errorf("cannot begin by scheme %s", c.Scheme)
	case c.FTPData < 0:
		return errors.New("cannot have fewer than 1 FTP transfer in flight")
	case c.IPv4 && c.IPv6:
		return errors.New("cannot use IPv4 only and IPv6 only at the same time")
	case c.TLSMin < tls.VersionTLS10 || c.TLSMin > tls.VersionTLS13:
		return fmt.Errorf("cannot use %#04x as the oldest TLS version", c.TLSMin)
	case c.SkipVerify && c.StrictTLS:
		return errors.New("cannot insist on certificates without verifying them")
	case c.UserAgent == "":
		return errors.New("cannot fetch without a User-Agent")
	case strings.ContainsFunc(c.UserAgent, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return errors.New("cannot send control characters in the User-Agent")
	case c.SourceIP.IsValid() && (c.IPv4 && !c.SourceIP.Is4() || c.IPv6 && c.SourceIP.Is4()):
		return errors.New("cannot dial from a source address of the other family")
	case c.SourceIP.IsValid() && c.Dial != nil:
		return errors.New("cannot give a source address to connections that Dial opens")
	}
	return nil
}

// Longest is how long a silent site may take, both schemes and all retries included.
func (c *Config) Longest() time.Duration {
	took := c.Timeout
	for i := range c.Retries {
		took += c.Timeout + min(c.RetryAfter<<min(i, 10), max(c.RetryAfter, c.MaxRetryAfter))
	}
	if c.NoFallback {
		return took
	}
	return 2 * took
}

// Family is the address family of requests: any, ipv4 or ipv6.
func (c *Config) Family() string {
	only4, only6 := c.IPv4, c.IPv6
	if !only4 && !only6 {
		only4, only6 = c.SourceIP.Unmap().Is4(), c.SourceIP.Unmap().Is6()
	}
	switch {
	case only4 == only6:
		return "any"
	case only4:
		return "ipv4"
	}
	return "ipv6"
}

// New returns a Fetcher, or an error that says which field of cfg is wrong.
func New(cfg Config) (*Fetcher, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.SourceIP.IsValid() {
		cfg.SourceIP = cfg.SourceIP.Unmap()
		cfg.IPv4, cfg.IPv6 = cfg.SourceIP.Is4(), cfg.SourceIP.Is6()
	}
	if cfg.Resolver == nil {
		r, err := resolve.New(nil, resolve.Options{IPv4: cfg.IPv4, IPv6: cfg.IPv6})
		if err != nil {
			return nil, err
		}
		cfg.Resolver = r
	}
	f := &Fetcher{
		cfg: cfg,
		policy: policy{
			maxRedirects:  cfg.MaxRedirects,
			retries:       cfg.Retries,
			retryAfter:    cfg.RetryAfter,
			maxRetryAfter: cfg.MaxRetryAfter,
			first:         cfg.Scheme,
			noFallback:    cfg.NoFallback,
		},
		tls:      newTLSConfig(cfg.TLSMin),
		verifier: newVerifier(cfg.Roots),
		memory:   newMemory(cfg.BodyBudget, cfg.MaxBody),
		ftpData:  make(chan struct{}, cfg.FTPData),
		decoders: make(chan *decoder, runtime.GOMAXPROCS(0)),
		never:    make(chan struct{}),
	}
	for range cap(f.decoders) {
		f.decoders <- new(decoder)
	}
	if cfg.Record != nil {
		f.tapes = new(tapeBudget)
		f.tapes.left.Store(max(allTapes, 4*f.tapeLimit()))
	}
	f.wires.New = func() any { return f.newWire() }
	return f, nil
}

// First returns an origin's next target, given its past: the first target, the target of its last redirect, or the
// start of its retry.
func (f *Fetcher) First(o origin.Origin, past exchange.Past) exchange.Target {
	switch {
	case past.Trail != nil:
		return past.Trail.Target
	case past.Scheme != 0:
		return start(o, past.Scheme)
	}
	return start(o, f.policy.begins(o))
}

// Resolve finds the address to dial for a target. If there is none, the Lookup's outcome says why: the host or the
// address is refused, or DNS has no address. IP literals and targets that connect-to sends to an address need no DNS.
//
// Resolve returns the attempt's next permitted address, in the order of the answer; the first follows the last. IPv6
// addresses come after IPv4 addresses, and are looked up when their turn comes. If none of the addresses took the
// connection, the Lookup has their outcome.
func (f *Fetcher) Resolve(ctx context.Context, t exchange.Target) exchange.Lookup {
	answer, known := f.known(t)
	if !known {
		answer = f.cfg.Resolver.Lookup(ctx, t.Origin.Host())
	}
	return f.settle(ctx, t, answer)
}

// ResolveAll is Resolve for many targets. It does not wait for name servers. It calls done with each query once and
// several at a time, partly from other goroutines. done must not block or keep the slice.
func (f *Fetcher) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolver, ok := f.cfg.Resolver.(resolverAll)
	var names []*resolve.Query
	for _, q := range queries {
		switch answer, known := f.known(q.Target); {
		case known:
			q.Lookup = f.settle(ctx, q.Target, answer)
			done([]*exchange.Query{q})
		case ok:
			names = append(names, &resolve.Query{Host: q.Target.Origin.Host(), Of: q})
		default:
			go func() {
				q.Lookup = f.Resolve(ctx, q.Target)
				done([]*exchange.Query{q})
			}()
		}
	}
	if len(names) == 0 {
		return
	}
	resolver.LookupAll(ctx, names, func(answered []*resolve.Query) {
		settled := make([]*exchange.Query, 0, len(answered))
		for _, name := range answered {
			q, further := name.Of, resolver6(nil)
			if q.Lookup, further = f.choose(q.Target, name.Answer, nil); further == nil {
				settled = append(settled, q)
				continue
			}
			go func() {
				q.Lookup = f.settle(ctx, q.Target, name.Answer)
				done([]*exchange.Query{q})
			}()
		}
		if len(settled) > 0 {
			done(settled)
		}
	})
}

// known returns the answer about a target that needs no DNS.
func (f *Fetcher) known(t exchange.Target) (answer resolve.Answer, ok bool) {
	if f.cfg.OptOut != nil && f.cfg.OptOut(t.Origin.Host()) {
		return resolve.Answer{Outcome: exchange.OptedOut, Cause: exchange.CauseOptOut}, true
	}
	literal, ok := t.Origin.Addr()
	if to := f.connectTo(t.Origin); to.Addr.IsValid() {
		literal, ok = to.Addr, true
	}
	return resolve.Answer{Addrs: []netip.Addr{literal}}, ok
}

// settle chooses the address to dial for a target, given the answer about its host. It looks up the IPv6 addresses if
// they are needed.
func (f *Fetcher) settle(ctx context.Context, t exchange.Target, answer resolve.Answer) exchange.Lookup {
	lookup, resolver := f.choose(t, answer, nil)
	if resolver != nil {
		six := resolver.LookupIPv6(ctx, t.Origin.Host())
		lookup, _ = f.choose(t, answer, &six)
	}
	return lookup
}

// choose returns the address to dial for a target, given the answers about its host. If it needs the answer six first,
// it returns the resolver for that answer.
func (f *Fetcher) choose(t exchange.Target, answer resolve.Answer, six *resolve.Answer) (exchange.Lookup, resolver6) {
	if answer.Outcome == exchange.OptedOut {
		return exchange.Lookup{Outcome: answer.Outcome, Cause: answer.Cause}, nil
	}
	var found [maxAddresses]netip.Addr
	addrs, lookup := f.allowed(found[:0], answer)
	begin, tried := round(t)
	resolver := f.ipv6Resolver(t)
	if answer.Outcome != 0 || len(addrs) == maxAddresses || slices.ContainsFunc(answer.Addrs, isIPv6) {
		resolver = nil
	}
	if resolver != nil && begin+tried >= len(addrs) {
		if six == nil {
			return lookup, resolver
		}
		answer = *six
		both, further := f.allowed(addrs, answer)
		lookup.Took += answer.Took
		switch {
		case len(both) > len(addrs):
			lookup.Until = earlier(lookup.Until, answer.Until)
			lookup.Outcome, lookup.Cause = 0, 0
		case further.Outcome == exchange.OptedOut && lookup.Outcome != 0:
			lookup.Outcome, lookup.Cause = further.Outcome, further.Cause
		}
		addrs = both
	}
	switch n := len(addrs); {
	case n > 0 && (tried < n || t.Unmet == 0):
		lookup.Addr = addrs[(begin+tried)%n]
		lookup.More = tried+1 < n
	case t.Unmet != 0:
		lookup.Outcome, lookup.Cause = t.Unmet, unmetCause(t.Unmet)
		if n > 0 {
			lookup.Addr = addrs[(begin+tried-1)%n]
		}
	}
	return lookup, nil
}

// ipv6Resolver returns the resolver for the IPv6 addresses of a target's host, which follow its IPv4 addresses; nil
// if they are not wanted.
func (f *Fetcher) ipv6Resolver(t exchange.Target) resolver6 {
	if _, literal := t.Origin.Addr(); literal || f.cfg.IPv4 || f.connectTo(t.Origin).Addr.IsValid() {
		return nil
	}
	resolver, _ := f.cfg.Resolver.(resolver6)
	return resolver
}

func isIPv6(addr netip.Addr) bool { return addr.Unmap().Is6() }

// allowed appends the permitted addresses of an answer to addrs, up to its capacity. If there are none, the Lookup
// says why.
func (f *Fetcher) allowed(addrs []netip.Addr, answer resolve.Answer) ([]netip.Addr, exchange.Lookup) {
	lookup := exchange.Lookup{Outcome: answer.Outcome, Cause: answer.Cause, Took: answer.Took, Until: answer.Until}
	if lookup.Outcome != 0 {
		return addrs, lookup
	}
	lookup.Outcome, lookup.Cause = exchange.DNSNotFound, exchange.CauseNoAddress
	before := len(addrs)
	for _, addr := range answer.Addrs {
		addr = addr.Unmap()
		if f.cfg.IPv4 && !addr.Is4() || f.cfg.IPv6 && !addr.Is6() {
			continue
		}
		switch cause := f.refusal(addr); {
		case cause == 0:
			if len(addrs) < cap(addrs) && !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		case lookup.Outcome != exchange.OptedOut: // an opt-out takes precedence over a special address
			lookup.Outcome, lookup.Cause = protocolOutcome[cause], cause
		}
	}
	if len(addrs) > before {
		lookup.Outcome, lookup.Cause = 0, 0
	}
	return addrs, lookup
}

// refusal returns why an address must not be dialled; 0 if it may be.
func (f *Fetcher) refusal(addr netip.Addr) exchange.Cause {
	inner := exchange.Embedded(addr)
	switch {
	case f.cfg.OptOutAddr != nil && (f.cfg.OptOutAddr(addr) || inner != addr && f.cfg.OptOutAddr(inner)):
		return exchange.CauseOptOutAddress
	case !f.cfg.AllowPrivate && !public(addr):
		return exchange.CausePrivateAddress
	}
	return 0
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// connectTo returns the rule for an origin; the zero ConnectTo if none matches.
func (f *Fetcher) connectTo(o origin.Origin) ConnectTo {
	for _, to := range f.cfg.ConnectTo {
		if to.matches(o) {
			return to
		}
	}
	return ConnectTo{}
}

// port returns the port at which an origin is dialled.
func (f *Fetcher) port(o origin.Origin) uint16 {
	if to := f.connectTo(o); to.ToPort != 0 {
		return to.ToPort
	}
	return o.Port()
}

// Do performs one exchange: one request to the host of x.Target at the address of x.Lookup, within Config.Timeout. It
// does not wait for a rate and follows no redirect; Next says what to do with the origin. Failures are data: Do
// overwrites x.Response and updates x.Past. If x.Lookup has an outcome, that is the failure, and Do makes no network
// requests.
//
// If ctx ends first, the exchange does not count: x.Past stays as it was, x.Response has no outcome, and the result
// is Done. The caller, which ended ctx, drops the origin.
//
// Exchanges with several addresses of a host, until one takes the connection, count as one attempt.
func (f *Fetcher) Do(ctx context.Context, x *exchange.Exchange) exchange.Next {
	began := time.Now()
	before := x.Past
	r := x.Response
	r.Reset()
	past := &x.Past
	if past.Scheme == 0 {
		past.Scheme = f.policy.begins(x.Origin)
	}
	r.Final = exchange.Target{Origin: x.Target.Origin, Path: x.Target.Path}
	r.Answered = x.Origin.As(past.Scheme)
	if past.Trail != nil {
		r.Hops = past.Trail.Hops
	}
	r.Timing.DNS = x.Lookup.Took

	hints, err := f.exchange(ctx, x, began)
	if err != nil && ctx.Err() != nil {
		r.Reset()
		x.Past = before
		return exchange.Done
	}
	if r.Outcome.Asked() {
		past.Spent += x.Lookup.Took + time.Since(began)
		if past.Trail == nil && x.Target.Unmet == 0 && past.Attempts < 255 {
			past.Attempts++
		}
	}
	// The origin got a request, even if a redirect or a later look-up led to a host that gets none.
	if past.Attempts > 0 {
		r.FetchedAt = began
	}
	r.Attempts = int(past.Attempts)
	r.Timing.Total = past.Spent
	throttled := throttles(r, hints)
	next := f.policy.next(x.Origin, x.Target, past, r, hints, rand.Float64())
	next.Throttled = throttled
	return next
}

// exchange connects, sends the request and reads the answer. It fills the Response. The error that it returns is
// already classified in the Response.
func (f *Fetcher) exchange(ctx context.Context, x *exchange.Exchange, began time.Time) (hints, error) {
	r := x.Response
	if x.Lookup.Outcome != 0 {
		r.Outcome, r.Cause = x.Lookup.Outcome, x.Lookup.Cause
		if x.Lookup.Addr.IsValid() {
			r.Remote = netip.AddrPortFrom(x.Lookup.Addr, f.port(x.Target.Origin))
		}
		return hints{}, ctx.Err()
	}
	// Resolve has checked host and address already. Do checks them again, so that no Lookup can lead past the guard.
	if f.cfg.OptOut != nil && f.cfg.OptOut(x.Target.Origin.Host()) {
		r.Outcome, r.Cause = exchange.OptedOut, exchange.CauseOptOut
		return hints{}, nil
	}
	addr := x.Lookup.Addr.Unmap()
	cause := exchange.CausePrivateAddress
	if addr.IsValid() {
		cause = f.refusal(addr)
	}
	if cause != 0 {
		r.Outcome, r.Cause = protocolOutcome[cause], cause
		return hints{}, nil
	}
	r.Remote = netip.AddrPortFrom(addr, f.port(x.Target.Origin))

	w := f.wires.Get().(*wire)
	defer f.release(w)
	w.deadline, w.connectFor = began.Add(f.cfg.Timeout), f.connectFor(x)
	at, err := w.run(ctx, x)
	if w.tape != nil && ctx.Err() == nil {
		w.record(x, began, err)
	}
	if err != nil {
		r.Outcome, r.Cause = classify(at, err)
		var h hints
		if at == connecting {
			h.more, h.waited = x.Lookup.More || f.mayHaveIPv6(x), time.Since(began)
		}
		return h, err
	}
	r.Outcome = exchange.Answered
	return w.hints, nil
}

// leastConnect is how long connecting to an address may take if another address follows: a lost first packet is sent
// again after one second.
const leastConnect = 2 * time.Second

// connectFor returns how long connecting may take. The addresses of a host share Config.ConnectTimeout. Each address
// but the last gets leastConnect. The last one gets the rest of the time, but at least leastConnect.
func (f *Fetcher) connectFor(x *exchange.Exchange) time.Duration {
	all := f.cfg.ConnectTimeout
	left := all - time.Duration(x.Target.Waited)*waitedUnit
	if x.Lookup.More {
		left = min(left, leastConnect)
	}
	return max(left, min(all, leastConnect))
}

// mayHaveIPv6 reports whether the host of a dialled IPv4 address may have IPv6 addresses that were not looked up yet.
func (f *Fetcher) mayHaveIPv6(x *exchange.Exchange) bool {
	_, tried := round(x.Target)
	return tried+1 < maxAddresses && !isIPv6(x.Lookup.Addr) && f.ipv6Resolver(x.Target) != nil
}
