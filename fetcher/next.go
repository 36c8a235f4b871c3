package fetcher

import (
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file decides what follows an exchange: a redirect hop, another address, the other scheme, a retry, or nothing.
// It does no input or output; policy.next is a function of its arguments.
//
// An origin has a first round (https, then http if nothing answered) and retries. Each is one attempt by one scheme.
// An attempt is an exchange and the redirect hops after it. At each hop it makes at most maxAddresses exchanges, one
// for each address of the host, until one takes the connection. Past.HTTPS and Past.HTTP hold the result of each
// scheme: zero before the first attempt, then the failure of the last attempt, or Answered with the last status once
// one came.

// policy is the part of Config that decides what follows an exchange.
type policy struct {
	maxRedirects  int
	retries       int
	retryAfter    time.Duration // wait before the first retry; doubled for each further one
	maxRetryAfter time.Duration // the longest Retry-After that is obeyed
	first         origin.Scheme // of an Auto origin's first attempt: HTTPS or HTTP
	noFallback    bool
}

// hints are facts about an exchange that only the policy needs.
type hints struct {
	location   string        // of a redirect
	retryAfter time.Duration // 0: none, or in the past
	more       bool          // another address of the host may be left
	waited     time.Duration // how long connecting took before it failed
}

// start returns an origin's first target by a scheme.
func start(o origin.Origin, s origin.Scheme) exchange.Target {
	return exchange.Target{Origin: o.As(s)}
}

// begins returns the scheme of an origin's first attempt.
func (p *policy) begins(o origin.Origin) origin.Scheme {
	if o.Scheme() == origin.Auto {
		return p.first
	}
	return o.Scheme()
}

// other returns the scheme to which an Auto origin falls back from s.
func other(s origin.Scheme) origin.Scheme {
	if s == origin.HTTPS {
		return origin.HTTP
	}
	return origin.HTTPS
}

// failure returns the result of a scheme in a Past.
func failure(past *exchange.Past, s origin.Scheme) *exchange.Failure {
	if s == origin.HTTP {
		return &past.HTTP
	}
	return &past.HTTPS
}

// next decides what follows the exchange with target whose result is r, and updates past. It may change r: it sets
// the outcome of a redirect that cannot be followed, and if both schemes failed, r becomes the first scheme's
// failure. jitter is a random number from [0, 1).
func (p *policy) next(o origin.Origin, target exchange.Target, past *exchange.Past, r *exchange.Response, h hints,
	jitter float64) exchange.Next {
	if unconnected(r) {
		if h.more {
			return exchange.Next{Again: true, Target: nextAddress(target, r.Outcome, h.waited)}
		}
		if found := combined(target.Unmet, r.Outcome); found != r.Outcome {
			r.Outcome, r.Cause = found, unmetCause(found)
		}
	}
	// The next attempt begins at the address that took the connection. If none did, it begins where this one began.
	begin, tried := round(target)
	switch {
	case past.Trail != nil:
		begin = 0
	case !unconnected(r):
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
	// The other scheme is tried once: in the first round, or in a retry if the name did not resolve before.
	if fallback && scheme == first && seen.Outcome.FallsBack() && *failure(past, other(scheme)) == (exchange.Failure{}) {
		return again(other(scheme), 0)
	}
	if int(past.Later) < p.retries {
		if s := p.retryScheme(past, r, scheme, first, fallback); s != 0 {
			after := p.wait(int(past.Later), h.retryAfter, jitter)
			past.Later++
			return again(s, after)
		}
	}
	if lost := *failure(past, first); scheme != first && !answered(past) && lost.Outcome != 0 {
		fail(r, start(o, first), lost)
	}
	// A retry that could not ask says nothing about the site. Its last status stands, with the retry's cause.
	if status := seen.Status(); status != 0 && !r.HasStatus() &&
		(!r.Outcome.Asked() || r.Cause == exchange.CauseNoLocalResource) {
		fail(r, start(o, scheme), exchange.Failure{Outcome: exchange.Answered, Cause: r.Cause})
		r.Status = status
	}
	return exchange.Done
}

// unconnected reports whether an address took no connection: it refused, timed out, or is unreachable. Without IPv6 on
// this machine, connecting may fail with EADDRNOTAVAIL, which otherwise means a lack of ports.
func unconnected(r *exchange.Response) bool {
	return r.Outcome == exchange.ConnectRefused || r.Outcome == exchange.ConnectTimeout ||
		r.Outcome == exchange.ConnectFailed && (r.Cause == exchange.CauseUnreachable || r.Remote.Addr().Is6())
}

const (
	// maxAddresses bounds the addresses of a host that an attempt tries at each hop.
	maxAddresses = 3
	// The index of an attempt's first address grows with each attempt, because only Resolve knows the number of
	// addresses (1 to 3). Modulo allRounds, a multiple of 1, 2 and 3, it still selects the same address.
	allRounds = 6
)

// skip returns the Target.Skip of an attempt that begins at the address with this index. A Skip is begin × maxAddresses
// plus the number of addresses that the attempt has tried.
func skip(begin int) uint8 { return uint8(begin % allRounds * maxAddresses) }

// round is the inverse of skip: the index of the attempt's first address, not yet modulo the number of addresses, and
// how many the attempt has tried.
func round(t exchange.Target) (begin, tried int) {
	return int(t.Skip) / maxAddresses, int(t.Skip) % maxAddresses
}

// nextAddress returns the target at the host's next address, given this address's outcome and how long connecting took.
func nextAddress(target exchange.Target, outcome exchange.Outcome, waited time.Duration) exchange.Target {
	target.Skip++
	target.Unmet = combined(target.Unmet, outcome)
	target.Waited = uint8(min(time.Duration(target.Waited)+(waited+waitedUnit-1)/waitedUnit, math.MaxUint8))
	return target
}

// waitedUnit is the unit of Target.Waited.
const waitedUnit = 100 * time.Millisecond

// combined returns the outcome of several addresses, given that of the last and that of those before it. A time-out
// takes precedence, because it is transient; then a refusal, because it shows that the host is there.
func combined(before, last exchange.Outcome) exchange.Outcome {
	for _, o := range [...]exchange.Outcome{exchange.ConnectTimeout, exchange.ConnectRefused} {
		if before == o || last == o {
			return o
		}
	}
	return last
}

// unmetCause returns the cause of a Target.Unmet.
func unmetCause(o exchange.Outcome) exchange.Cause {
	switch o {
	case exchange.ConnectTimeout:
		return exchange.CauseConnectTimeout
	case exchange.ConnectRefused:
		return exchange.CauseRefused
	}
	return exchange.CauseUnreachable
}

// retryScheme returns the scheme of the next retry after an attempt by scheme ended with r; 0 if no retry can help.
func (p *policy) retryScheme(past *exchange.Past, r *exchange.Response, scheme, first origin.Scheme,
	fallback bool) origin.Scheme {
	last := exchange.Failure{Outcome: r.Outcome, Cause: r.Cause}
	// A retry would meet the same challenge.
	mayPass := last.Transient() || r.Outcome == exchange.Answered && r.Fields.Challenge == "" && passes(r.Status)
	if !fallback || answered(past) {
		// Once a status came by one scheme, which is the current one, retries keep to it.
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

// passes reports whether a retry may get another status: after 5xx, 429 (RFC 6585 §4) and 408 (RFC 9110 §15.5.9).
func passes(status int) bool {
	return status >= 500 || status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusRequestTimeout
}

// throttles reports whether a response says that its address gets too many requests: a 429 (RFC 6585 §4), or a 503 with
// a Retry-After (RFC 9110 §15.6.4). A 503 without one means a broken server. A challenge says nothing about the number
// of requests, whatever its status.
func throttles(r *exchange.Response, h hints) bool {
	return r.Fields.Challenge == "" && (r.Status == fasthttp.StatusTooManyRequests ||
		r.Status == fasthttp.StatusServiceUnavailable && h.retryAfter > 0)
}

// answered reports whether a status ever came, by either scheme.
func answered(past *exchange.Past) bool {
	return past.HTTPS.Outcome == exchange.Answered || past.HTTP.Outcome == exchange.Answered
}

// wait returns the wait before a retry, after `before` other retries. It doubles each time and has ±20 % of jitter,
// so that origins that failed together are not retried together. It is never shorter than the first retry's. A
// server's Retry-After may lengthen it up to the cap.
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

// visited reports whether the current attempt has fetched a target before.
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

// extend returns a new Trail with one more hop. Records share Trails, so the old one does not change.
func extend(t *exchange.Trail, status int, next exchange.Target) *exchange.Trail {
	longer := &exchange.Trail{Target: next}
	if t != nil {
		longer.Hops = append(make([]exchange.Hop, 0, len(t.Hops)+1), t.Hops...)
	}
	longer.Hops = append(longer.Hops, exchange.Hop{Status: status, URL: next.String()})
	return longer
}

// fail turns a Response into that of an earlier attempt with target. It clears what belongs to the later exchange
// alone, and keeps the address that was dialled last and the counts and times of the origin.
func fail(r *exchange.Response, target exchange.Target, f exchange.Failure) {
	remote, attempts, at, total := r.Remote, r.Attempts, r.FetchedAt, r.Timing.Total
	r.Reset()
	r.Outcome, r.Cause = f.Outcome, f.Cause
	r.Answered, r.Final = target.Origin, target
	r.Remote, r.Attempts, r.FetchedAt, r.Timing.Total = remote, attempts, at, total
}
