package fetcher

import (
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// This file is the policy of what follows an exchange: a redirect's hop, another address, the other scheme, a later try,
// or nothing.
// It does no input or output; policy.next is a function of its arguments.
//
// An origin's life is a first round (https, then http where nothing answered) and later tries, each one attempt by one
// scheme. An attempt is an exchange and the redirect hops after it, and at each hop at most maxAddresses exchanges, until
// one of the host's addresses takes the connection: once round all of them, from whichever it begins at. Past.HTTPS and Past.HTTP remember what became of
// each scheme: nothing yet (zero), the failure of its last attempt, or Answered, once a status came by it, with the last one.

// policy is the part of Config that decides what follows an exchange.
type policy struct {
	maxRedirects  int
	retries       int
	retryAfter    time.Duration // of the first later try; doubled for each one after it
	maxRetryAfter time.Duration // up to which a server's Retry-After is obeyed
	first         origin.Scheme // by which an Auto origin begins: HTTPS or HTTP
	noFallback    bool
}

// hints are what the response said about what to do next. Only the policy needs them.
type hints struct {
	location   string        // of a redirect
	retryAfter time.Duration // 0: none, or in the past
	more       bool          // another address of the host may be left
	waited     time.Duration // for the address to take the connection, which it has not
	putOff     bool          // the host was silent for longer than patience
}

// start returns an origin's first target by a scheme.
func start(o origin.Origin, s origin.Scheme) exchange.Target {
	return exchange.Target{Origin: o.As(s)}
}

// begins returns the scheme by which an origin's first attempt is made.
func (p *policy) begins(o origin.Origin) origin.Scheme {
	if o.Scheme() == origin.Auto {
		return p.first
	}
	return o.Scheme()
}

// other is the scheme to which an Auto origin falls back from s.
func other(s origin.Scheme) origin.Scheme {
	if s == origin.HTTPS {
		return origin.HTTP
	}
	return origin.HTTPS
}

// failure returns the Past's memory of a scheme.
func failure(past *exchange.Past, s origin.Scheme) *exchange.Failure {
	if s == origin.HTTP {
		return &past.HTTP
	}
	return &past.HTTPS
}

// next decides what follows the exchange with target that left r, and brings past up to date. It may change r: a
// redirect that cannot be followed gets its outcome here, and when all is lost by both schemes r becomes the first
// scheme's failure. jitter is a random number from [0, 1).
func (p *policy) next(o origin.Origin, target exchange.Target, past *exchange.Past, r *exchange.Response, h hints, jitter float64) exchange.Next {
	if closed(r) {
		if h.more {
			return exchange.Next{Again: true, Target: another(target, r.Outcome, h.waited)}
		}
		if found := ofAll(target.Unmet, r.Outcome); found != r.Outcome {
			r.Outcome, r.Cause = found, unmetCause(found)
		}
	}
	// The next attempt begins at the address that took the connection, or where this one began if none did.
	begin, tried := round(target)
	switch {
	case past.Trail != nil:
		begin = 0
	case !closed(r):
		begin += tried
	}
	target.Skip, target.Waited, target.Unmet = 0, 0, 0
	if r.Outcome == exchange.Answered && r.Status >= 300 && r.Status <= 399 {
		next, cause := follow(target, h.location)
		switch {
		case cause != 0:
			r.Outcome, r.Cause = exchange.RedirectInvalid, cause
		case visited(o, past, next):
			r.Outcome, r.Cause = exchange.RedirectLimit, exchange.CauseRedirectLoop
		case hops(past) >= p.maxRedirects:
			r.Outcome, r.Cause = exchange.RedirectLimit, exchange.CauseTooManyRedirects
		default:
			past.Trail = extend(past.Trail, r.Status, next)
			r.Hops = past.Trail.Hops
			return exchange.Next{Again: true, Target: next}
		}
	}

	scheme, first := past.Scheme, p.begins(o)
	fallback := o.Scheme() == origin.Auto && !p.noFallback
	seen := failure(past, scheme)
	switch {
	case r.HasStatus():
		*seen = exchange.AnsweredWith(r.Status)
	case past.Trail != nil && seen.Outcome != exchange.Answered:
		*seen = exchange.AnsweredWith(0)
	case seen.Outcome != exchange.Answered:
		*seen = exchange.Failure{Outcome: r.Outcome, Cause: r.Cause}
	}

	again := func(s origin.Scheme, after time.Duration) exchange.Next {
		past.Scheme, past.Trail = s, nil
		target := start(o, s)
		target.Skip = skip(begin)
		return exchange.Next{Again: true, After: after, Target: target}
	}
	// Once, and not only in the first round: a name that first failed to resolve meets the host on a later try.
	if fallback && scheme == first && seen.Outcome.FallsBack() && *failure(past, other(scheme)) == (exchange.Failure{}) {
		return again(other(scheme), 0)
	}
	if int(past.Later) < p.retries {
		if s := p.later(past, r, scheme, first, fallback); s != 0 {
			after := p.wait(int(past.Later), h.retryAfter, jitter)
			past.Later++
			return again(s, after)
		}
	}
	if lost := *failure(past, first); scheme != first && !answered(past) && lost.Outcome != 0 {
		fail(r, start(o, first), lost)
	}
	// What keeps us from asking once more says nothing of the site: what it said before stands, with the reason beside it.
	if status := seen.Status(); status != 0 && !r.HasStatus() && (!r.Outcome.Asked() || r.Cause == exchange.CauseNoLocalResource) {
		fail(r, start(o, scheme), exchange.Failure{Outcome: exchange.Answered, Cause: r.Cause})
		r.Status = status
	}
	return exchange.Done
}

// closed reports whether an address took no connection: it refused, was silent for too long, or is out of reach. To a
// machine without IPv6 every IPv6 address is, and it may say so by an error that elsewhere tells of a lack of ports.
func closed(r *exchange.Response) bool {
	return r.Outcome == exchange.ConnectRefused || r.Outcome == exchange.ConnectTimeout ||
		r.Outcome == exchange.ConnectFailed && (r.Cause == exchange.CauseUnreachable || r.Remote.Addr().Is6())
}

const (
	// An attempt tries so many addresses of a host at most, at each hop.
	maxAddresses = 3
	// Where an attempt begins counts on from try to try, since how many addresses there are is for Resolve to know. Modulo
	// this, it means the same address of one, of two and of three.
	allRounds = 6
)

// skip returns the Target.Skip of an attempt that begins at an address. A Skip is that times maxAddresses, and how many the
// attempt has tried since: what begins at the first passes over Skip addresses.
func skip(begin int) uint8 { return uint8(begin % allRounds * maxAddresses) }

// round is skip's inverse: the address at which the attempt begins, not yet modulo how many there are, and how many the
// attempt has tried.
func round(t exchange.Target) (begin, tried int) {
	return int(t.Skip) / maxAddresses, int(t.Skip) % maxAddresses
}

// another returns the target at the host's next address, after what came of this one and how long it took.
func another(target exchange.Target, outcome exchange.Outcome, waited time.Duration) exchange.Target {
	target.Skip++
	target.Unmet = ofAll(target.Unmet, outcome)
	target.Waited = uint8(min(time.Duration(target.Waited)+(waited+waitedUnit-1)/waitedUnit, math.MaxUint8))
	return target
}

// waitedUnit is what Target.Waited counts in.
const waitedUnit = 100 * time.Millisecond

// ofAll is what came of several addresses, given what came of the last and of those before it: a time-out, which may pass,
// else a refusal, since a host that refuses is there.
func ofAll(before, last exchange.Outcome) exchange.Outcome {
	for _, o := range [...]exchange.Outcome{exchange.ConnectTimeout, exchange.ConnectRefused} {
		if before == o || last == o {
			return o
		}
	}
	return last
}

// unmetCause is the detail of a Target.Unmet.
func unmetCause(o exchange.Outcome) exchange.Cause {
	switch o {
	case exchange.ConnectTimeout:
		return exchange.CauseConnectTimeout
	case exchange.ConnectRefused:
		return exchange.CauseRefused
	}
	return exchange.CauseUnreachable
}

// later returns the scheme of the next later try after an attempt by scheme ended as r says; 0 where none is worth it.
func (p *policy) later(past *exchange.Past, r *exchange.Response, scheme, first origin.Scheme, fallback bool) origin.Scheme {
	last := exchange.Failure{Outcome: r.Outcome, Cause: r.Cause}
	mayPass := last.Transient() || r.Outcome == exchange.Answered && (r.Status >= 500 || r.Status == fasthttp.StatusTooManyRequests)
	if !fallback || answered(past) {
		// Once a status came by one of an Auto origin's schemes, that one is stayed with: it is the current one.
		if !mayPass {
			return 0
		}
		return scheme
	}
	a, b := failure(past, first).Transient(), failure(past, other(first)).Transient()
	switch {
	case a && b && past.Later%2 == 0, a && !b:
		return first
	case b:
		return other(first)
	}
	return 0
}

// throttles reports whether a response says that its address is asked too often (RFC 6585 §4). A 503 says so with a
// Retry-After (RFC 9110 §15.6.4); without one, something is broken.
func throttles(r *exchange.Response, h hints) bool {
	return r.Status == fasthttp.StatusTooManyRequests || r.Status == fasthttp.StatusServiceUnavailable && h.retryAfter > 0
}

// answered reports whether a status ever came, by either scheme.
func answered(past *exchange.Past) bool {
	return past.HTTPS.Outcome == exchange.Answered || past.HTTP.Outcome == exchange.Answered
}

// wait is how long the later try after `before` others waits: doubled each time, with 20 % of jitter either way so that
// what failed together does not come back together, and never under the first one's time. A server's Retry-After may
// lengthen it up to the cap.
func (p *policy) wait(before int, asked time.Duration, jitter float64) time.Duration {
	after := p.retryAfter
	bound := max(p.retryAfter, p.maxRetryAfter)
	for i := 0; i < before && after < bound; i++ {
		after *= 2
	}
	after = min(after, bound)
	after += time.Duration(float64(after) * (0.4*jitter - 0.2))
	return max(after, p.retryAfter, min(asked, p.maxRetryAfter))
}

func hops(past *exchange.Past) int {
	if past.Trail == nil {
		return 0
	}
	return len(past.Trail.Hops)
}

// visited reports whether the current attempt has already asked for a target.
func visited(o origin.Origin, past *exchange.Past, next exchange.Target) bool {
	if next == start(o, past.Scheme) {
		return true
	}
	if past.Trail == nil {
		return false
	}
	url := next.String()
	for _, hop := range past.Trail.Hops {
		if hop.URL == url {
			return true
		}
	}
	return false
}

// extend returns a new Trail with one more hop. Trails are shared by records, so the old one stays as it is.
func extend(t *exchange.Trail, status int, next exchange.Target) *exchange.Trail {
	longer := &exchange.Trail{Target: next}
	if t != nil {
		longer.Hops = append(make([]exchange.Hop, 0, len(t.Hops)+1), t.Hops...)
	}
	longer.Hops = append(longer.Hops, exchange.Hop{Status: status, URL: next.String()})
	return longer
}

// fail turns a Response into that of another, earlier attempt with target. What belongs to the later
// exchange alone goes; the address that was dialled last, counts and times of the origin stay.
func fail(r *exchange.Response, target exchange.Target, f exchange.Failure) {
	remote, attempts, at, total := r.Remote, r.Attempts, r.FetchedAt, r.Timing.Total
	r.Reset()
	r.Outcome, r.Cause = f.Outcome, f.Cause
	r.Answered, r.Final = target.Origin, target
	r.Remote, r.Attempts, r.FetchedAt, r.Timing.Total = remote, attempts, at, total
}
