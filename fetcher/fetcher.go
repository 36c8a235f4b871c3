// Package fetcher answers one question: what happened? It performs one exchange with one host at a time and says how it
// ended, in the words of package exchange. When to ask, how often and how many at once is package pipeline's business;
// what an answer means is package audit's.
//
// The files in the order of an exchange: guard.go and connectto.go say where we may and shall dial, connecttimes.go for how
// long; wire.go dials, on Linux by connect_linux.go, shakes hands and sends, and verify.go judges certificates; head.go reads the response head and cdn.go what it gives away; body.go and coding.go read the
// body; classify.go names failures; next.go, with location.go, decides what follows. ftp.go does the same for ftp.
// Everything that comes from the network is hostile: each part is bounded in bytes, in memory and by one absolute
// deadline.
package fetcher

import (
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
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// Resolver finds the addresses of a host name. Its answers carry an Outcome where there are none, or are put off where
// patience (0: its own time) has run out. It is called by many goroutines at once and returns soon after ctx ends.
// *resolve.Resolver is one.
type Resolver interface {
	Lookup(ctx context.Context, host string, patience time.Duration) resolve.Answer
}

// resolver6 is a Resolver that can be asked for IPv6 addresses where Lookup told of others. *resolve.Resolver is one.
type resolver6 interface {
	LookupIPv6(ctx context.Context, host string, patience time.Duration) resolve.Answer
}

// Config says how to fetch. The zero value of a field stands for its default, unless it says otherwise.
type Config struct {
	Timeout        time.Duration // one exchange from dialling to the body's end; 15s
	ConnectTimeout time.Duration // 5s; this and the next two lie inside Timeout
	TLSTimeout     time.Duration // no bound of its own
	HeaderTimeout  time.Duration // from the request's last byte to the head's end; no bound of its own

	MaxRedirects  int           // per attempt, over schemes and hosts; 0 follows none; DefaultMaxRedirects
	Retries       int           // later tries of an origin; 0 makes none; DefaultRetries
	RetryAfter    time.Duration // wait before the first later try, doubled for each after it; 0 is at once; DefaultRetryAfter
	MaxRetryAfter time.Duration // up to which a server's Retry-After is obeyed; 0 ignores it; DefaultMaxRetryAfter

	MaxBody   int    // bytes of a decoded body that are kept; 512000
	UserAgent string // required

	// BodyBudget is how many bytes the bodies above 16 KiB of all exchanges together, and of the Responses that have not
	// been Reset, may be in; at least four times MaxBody; 256 MiB, or that. A quarter of it is for bodies up to 64 KiB;
	// each larger one takes MaxBody of the rest. Who finds nothing left waits for it, until its own deadline. What is
	// smaller is in 4 or 16 KiB an exchange besides, from its first byte on.
	BodyBudget int64

	Scheme     origin.Scheme // by which entries without a scheme begin: HTTPS (default) or HTTP
	NoFallback bool          // do not try the other one

	ConnectTo    []ConnectTo // the first that matches counts
	AllowPrivate bool        // permit private, loopback and other special addresses
	StrictTLS    bool        // an unverifiable certificate is a failure
	SkipVerify   bool        // verify none: TLSVerified is Unknown; not with StrictTLS
	TLSMin       uint16      // the oldest version spoken, from tls.VersionTLS10 on; tls.VersionTLS12
	IPv4, IPv6   bool        // only that family; not both
	SourceIP     netip.Addr  // to dial from; invalid: the system's choice

	Roots    *x509.CertPool         // without constraints of the pool's own; nil: the system's
	Resolver Resolver               // nil: resolve.New with the system's servers
	OptOut   func(host string) bool // reports whether a host must never be contacted; nil: none

	// OptOutAddr reports whether an address must never be dialled, whatever name has led there; nil: none.
	OptOutAddr func(netip.Addr) bool

	// Record is told of each exchange in which a request was sent over http or https, before Do returns; nil: nobody wants
	// to know. It is called from many goroutines at once, and keeps nothing of what it is given. What was put off or cut off
	// by the context is not told.
	Record func(*Recording)

	// FTPData is how many FTP transfers may be under way at once: each is a second connection of its exchange, and a file
	// more. One that has to wait for another to end does so until its own deadline. 64.
	FTPData int
}

// The defaults of those fields of Config whose zero value means something.
const (
	DefaultMaxRedirects  = 5
	DefaultRetries       = 2
	DefaultRetryAfter    = 60 * time.Second
	DefaultMaxRetryAfter = 10 * time.Minute
)

// Fetcher performs exchanges. It is safe for use by many goroutines; each Exchange belongs to one at a time. It keeps no
// goroutine and no connection between exchanges.
type Fetcher struct {
	cfg      Config
	policy   policy
	tls      *tls.Config
	verifier *verifier
	dial     func(context.Context, netip.AddrPort) (net.Conn, error) // nil: the network; tests put a fake one here
	memory   *memory
	ftpData  chan struct{} // one for each transfer under way
	decoders chan *decoder // all there are; taken and put back
	wires    sync.Pool
	connects connectTimes
	tapes    *tapeBudget // nil where nothing is recorded
}

// New returns a Fetcher, or an error that says which field of cfg is wrong.
func New(cfg Config) (*Fetcher, error) {
	orDefault := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDefault(&cfg.Timeout, 15*time.Second)
	orDefault(&cfg.ConnectTimeout, 5*time.Second)
	orDefault(&cfg.TLSTimeout, cfg.Timeout)
	orDefault(&cfg.HeaderTimeout, cfg.Timeout)
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 512000
	}
	if cfg.BodyBudget == 0 {
		cfg.BodyBudget = max(256<<20, 4*int64(cfg.MaxBody))
	}
	if cfg.TLSMin == 0 {
		cfg.TLSMin = tls.VersionTLS12
	}
	if cfg.Scheme == 0 {
		cfg.Scheme = origin.HTTPS
	}
	if cfg.FTPData == 0 {
		cfg.FTPData = 64
	}
	switch {
	case cfg.Timeout < 0, cfg.ConnectTimeout < 0, cfg.TLSTimeout < 0, cfg.HeaderTimeout < 0:
		return nil, errors.New("cannot fetch with a negative timeout")
	case cfg.MaxRedirects < 0 || cfg.MaxRedirects > 100:
		return nil, errors.New("cannot follow fewer than 0 or more than 100 redirects")
	case cfg.Retries < 0 || cfg.Retries > 100:
		return nil, errors.New("cannot make fewer than 0 or more than 100 later tries")
	case cfg.RetryAfter < 0 || cfg.MaxRetryAfter < 0:
		return nil, errors.New("cannot wait a negative time before a later try")
	case cfg.MaxBody < 0 || cfg.MaxBody > 1<<30:
		return nil, errors.New("cannot keep fewer than 1 or more than 2³⁰ bytes of a body")
	case cfg.BodyBudget < 4*int64(cfg.MaxBody):
		return nil, fmt.Errorf("cannot hold bodies of %d bytes in a budget of %d", cfg.MaxBody, cfg.BodyBudget)
	case cfg.Scheme != origin.HTTPS && cfg.Scheme != origin.HTTP:
		return nil, fmt.Errorf("cannot begin by scheme %s", cfg.Scheme)
	case cfg.FTPData < 0:
		return nil, errors.New("cannot have fewer than 1 FTP transfer under way")
	case cfg.IPv4 && cfg.IPv6:
		return nil, errors.New("cannot use IPv4 only and IPv6 only")
	case cfg.TLSMin < tls.VersionTLS10 || cfg.TLSMin > tls.VersionTLS13:
		return nil, fmt.Errorf("cannot take %#04x for the oldest TLS version", cfg.TLSMin)
	case cfg.SkipVerify && cfg.StrictTLS:
		return nil, errors.New("cannot insist on certificates without verifying them")
	case cfg.UserAgent == "":
		return nil, errors.New("cannot fetch without a User-Agent")
	case strings.ContainsFunc(cfg.UserAgent, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return nil, errors.New("cannot send control characters in the User-Agent")
	case cfg.SourceIP.IsValid() && (cfg.IPv4 && !cfg.SourceIP.Is4() || cfg.IPv6 && cfg.SourceIP.Is4()):
		return nil, errors.New("cannot dial from a source address of the other family")
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

// First returns what to ask of an origin next, given its past: a fresh one's first target, the target of its last
// redirect, or the start of its later try.
func (f *Fetcher) First(o origin.Origin, past exchange.Past) exchange.Target {
	switch {
	case past.Trail != nil:
		return past.Trail.Target
	case past.Scheme != 0:
		return start(o, past.Scheme)
	}
	return start(o, f.policy.begins(o))
}

// Resolve finds the address to dial for a target, or says in the Lookup's outcome why there is none: we refuse the host
// or the address, or DNS has no answer. IP literals and targets that connect-to sends to an address need no DNS.
//
// Of a host's addresses those count that we may dial, in the order of the answer. Where an attempt begins behind the IPv4
// addresses, or has come to their end, a host's IPv6 addresses are asked for and come behind them; behind the last comes
// the first. Where an attempt was given a connection at none, the Lookup has that for its outcome.
//
// Where name servers say nothing for longer than patience (0: than the resolver waits), the look-up is put off.
func (f *Fetcher) Resolve(ctx context.Context, t exchange.Target, patience time.Duration) exchange.Lookup {
	host := t.Origin.Host()
	if f.cfg.OptOut != nil && f.cfg.OptOut(host) {
		return exchange.Lookup{Outcome: exchange.OptedOut, Cause: exchange.CauseOptOut}
	}
	literal, isLiteral := t.Origin.Addr()
	if to := f.connectTo(t.Origin); to.Addr.IsValid() {
		literal, isLiteral = to.Addr, true
	}
	answer := resolve.Answer{Addrs: []netip.Addr{literal}}
	if !isLiteral {
		answer = f.cfg.Resolver.Lookup(ctx, host, patience)
	}
	if answer.PutOff {
		return exchange.Lookup{PutOff: true}
	}
	var found [maxAddresses]netip.Addr
	addrs, lookup := f.allowed(found[:0], answer)
	begin, tried := round(t)
	six := f.six(t)
	if answer.Outcome != 0 || len(addrs) == maxAddresses || slices.ContainsFunc(answer.Addrs, isSix) {
		six = nil
	}
	if six != nil && begin+tried >= len(addrs) {
		answer = six.LookupIPv6(ctx, host, patience)
		if answer.PutOff {
			return exchange.Lookup{PutOff: true}
		}
		behind, further := f.allowed(addrs, answer)
		lookup.Took += answer.Took
		switch {
		case len(behind) > len(addrs):
			lookup.Until = sooner(lookup.Until, answer.Until)
			lookup.Outcome, lookup.Cause = 0, 0
		case further.Outcome == exchange.OptedOut && lookup.Outcome != 0:
			lookup.Outcome, lookup.Cause = further.Outcome, further.Cause
		}
		addrs = behind
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
	return lookup
}

// six returns whom to ask for the IPv6 addresses of a target's host behind its IPv4 addresses, nil where nobody is asked.
func (f *Fetcher) six(t exchange.Target) resolver6 {
	if _, literal := t.Origin.Addr(); literal || f.cfg.IPv4 || f.connectTo(t.Origin).Addr.IsValid() {
		return nil
	}
	six, _ := f.cfg.Resolver.(resolver6)
	return six
}

func isSix(addr netip.Addr) bool { return addr.Unmap().Is6() }

// allowed appends those of an answer's addresses to addrs that we may dial, up to its capacity. The Lookup says why there
// are none.
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
		case lookup.Outcome != exchange.OptedOut: // which somebody has asked for, and so comes first
			lookup.Outcome, lookup.Cause = protocolOutcome[cause], cause
		}
	}
	if len(addrs) > before {
		lookup.Outcome, lookup.Cause = 0, 0
	}
	return addrs, lookup
}

// refusal says why we do not dial an address; 0 where we may.
func (f *Fetcher) refusal(addr netip.Addr) exchange.Cause {
	inner := exchange.Carried(addr)
	switch {
	case f.cfg.OptOutAddr != nil && (f.cfg.OptOutAddr(addr) || inner != addr && f.cfg.OptOutAddr(inner)):
		return exchange.CauseOptOutAddress
	case !f.cfg.AllowPrivate && !public(addr):
		return exchange.CausePrivateAddress
	}
	return 0
}

// sooner returns the earlier of two times, of which the zero one is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// connectTo returns the rule for an origin, the zero ConnectTo where none matches.
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
// never waits for a turn and follows nothing; Next says what to do about the origin. Failures are data: they stand in
// x.Response, which Do overwrites, and in x.Past, which it brings up to date. Where x.Lookup has an outcome, that is the
// failure, and the network is left alone.
//
// When ctx ends first, the exchange is as if it had not been: x.Past is what it was, x.Response has no outcome, and the
// result is Done. The caller, who ended ctx, drops the origin.
//
// Nor is it an attempt when the host is put off (see exchange.Next); x.Response then says what it was silent for. All
// exchanges with the addresses of one host, until one of them takes the connection, are one attempt.
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
	if hints.putOff {
		x.Past = before
		return exchange.Next{Again: true, PutOff: true, Target: x.Target}
	}
	if r.Outcome.Asked() {
		past.Spent += x.Lookup.Took + time.Since(began)
		if past.Trail == nil && x.Target.Unmet == 0 && past.Attempts < 255 {
			past.Attempts++
		}
	}
	// A redirect, or a later look-up, may lead to where we do not ask: the origin itself was asked all the same.
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

// exchange is the exchange itself. It fills the Response and returns the error that ended it early, which is already
// told in the Response.
func (f *Fetcher) exchange(ctx context.Context, x *exchange.Exchange, began time.Time) (hints, error) {
	r := x.Response
	if x.Lookup.Outcome != 0 {
		r.Outcome, r.Cause = x.Lookup.Outcome, x.Lookup.Cause
		if x.Lookup.Addr.IsValid() {
			r.Remote = netip.AddrPortFrom(x.Lookup.Addr, f.port(x.Target.Origin))
		}
		return hints{}, ctx.Err()
	}
	// Resolve has looked at both already; Do promises it whatever it is given.
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
	w.deadline, w.patience = began.Add(f.cfg.Timeout), x.Patience
	w.connectFor, w.passesOver = f.connectFor(x), x.Lookup.More
	at, err := w.run(ctx, x)
	if w.tape != nil && ctx.Err() == nil && !(w.cut && isTimeout(err)) {
		w.record(x, began, err)
	}
	if err != nil {
		r.Outcome, r.Cause = classify(at, err)
		h := hints{putOff: w.cut && isTimeout(err)}
		if at == connecting {
			h.more, h.waited = x.Lookup.More || f.maybeSix(x), time.Since(began)
		}
		return h, err
	}
	r.Outcome = exchange.Answered
	return w.hints, nil
}

// connectFor is how long an exchange may wait for its connection. All addresses of a host have Config.ConnectTimeout
// together: one behind which another is known has its share, and the last what is left. None has less than leastConnect.
func (f *Fetcher) connectFor(x *exchange.Exchange) time.Duration {
	all := f.cfg.ConnectTimeout
	left := all - time.Duration(x.Target.Waited)*waitedUnit
	if x.Lookup.More {
		left = min(left, f.connects.share())
	}
	return max(left, min(all, leastConnect))
}

// maybeSix reports whether a host of which an IPv4 address is dialled may have IPv6 addresses that nobody has asked for.
func (f *Fetcher) maybeSix(x *exchange.Exchange) bool {
	_, tried := round(x.Target)
	return tried+1 < maxAddresses && !isSix(x.Lookup.Addr) && f.six(x.Target) != nil
}
