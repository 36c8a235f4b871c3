// Package exchange answers one question: what is the result of an exchange with a host? It has the types that
// fetcher, pipeline, audit and sink share (Outcome, Hop, Timing, Response). It imports none of them, so that packages
// that read datasets need no HTTP client.
//
// The types in this file, in the order of an exchange: what to ask (Target), the results of the origin's earlier
// exchanges (Past), one request (Exchange), and its result (Response).
package exchange

import (
	"net/netip"
	"time"

	"github.com/bulkscan/bulkscan/origin"
)

// RobotsPath is the path of an origin's file (RFC 9309 §2.3).
const RobotsPath = "/robots.txt"

// Target is one URL to ask: an origin with a scheme of its own (never Auto), and a path with its query.
type Target struct {
	Origin origin.Origin
	Path   string // begins with "/"; "" stands for RobotsPath; without fragment

	// A target means one of its host's addresses. Skip says which one: the fetcher encodes in it at which address the
	// attempt began and how many it has tried. It is below 32; 0 means the first address.
	Skip uint8
	// Waited is how long connecting to the addresses tried before took, in tenths of a second; 255: that or longer.
	Waited uint8
	// Unmet is the outcome of the addresses that this attempt has tried before: connect_timeout if one timed out,
	// else connect_refused if one refused, else connect_failed; 0 if this is the first address.
	Unmet Outcome
}

// AppendTo appends the target as an absolute URL.
func (t Target) AppendTo(b []byte) []byte {
	b = t.Origin.AppendTo(b)
	if t.Path == "" {
		return append(b, RobotsPath...)
	}
	return append(b, t.Path...)
}

// String is AppendTo as a string.
func (t Target) String() string { return string(t.AppendTo(nil)) }

// Hop is one redirect that was followed: its status and the absolute URL that it led to.
type Hop struct {
	Status int
	URL    string
}

// Trail is the path of a redirected origin: the hops in order, and the target of the last. Each hop makes a new
// Trail. A Trail never changes, so records may share it.
type Trail struct {
	Target Target
	Hops   []Hop
}

// Past is the state that an origin's earlier exchanges leave for the next. It is a value, and small, because each
// waiting origin keeps one (see pipeline). A zero Past belongs to an origin that was never asked.
type Past struct {
	Trail    *Trail        // redirects of the current attempt; nil before the first
	Spent    time.Duration // in exchanges so far, without waiting
	Scheme   origin.Scheme // of the current attempt; 0 before the first
	Attempts uint8         // so far; redirect hops and a host's further addresses do not count
	Later    uint8         // retries so far, out of --retries
	HTTPS    Failure       // of the last attempt by https, or the last status by it
	HTTP     Failure       // the same by http
}

// Failure is an attempt's failure in two bytes: enough to write the row if the next attempt fails, too, and to decide
// about a retry. The zero value is no failure. If the outcome is answered, Cause holds the status, see AnsweredWith.
type Failure struct {
	Outcome Outcome
	Cause   Cause
}

// AnsweredWith returns the Failure for an attempt that got a status. It keeps the status only if it is from 401 to 599.
func AnsweredWith(status int) Failure {
	if status < 400 || status > 599 {
		status = 400
	}
	return Failure{Outcome: Answered, Cause: Cause(status - 400)}
}

// Status returns the status that AnsweredWith has kept; 0 if there is none.
func (f Failure) Status() int {
	if f.Outcome != Answered || f.Cause == 0 {
		return 0
	}
	return int(f.Cause) + 400
}

// Transient reports whether a retry may have another result: the outcome is transient, or this machine had no port,
// memory or file left, which says nothing about the host.
func (f Failure) Transient() bool {
	return f.Outcome.Transient() || f.Outcome != Answered && f.Cause == CauseNoLocalResource
}

// Lookup is the result of the resolve stage for one target.
type Lookup struct {
	Addr    netip.Addr    // to dial; with an Outcome invalid, or the last address dialled if that is the Target's Unmet
	More    bool          // another address is known to follow Addr
	Outcome Outcome       // one of dns_…, blocked_address, opted_out, or a Target's Unmet; 0: Addr is valid
	Cause   Cause         // the detail of Outcome
	Took    time.Duration // 0 from a cache
	Until   time.Time     // when the answer expires; zero: never (an address literal)
}

// Query is one look-up of several that are made together.
type Query struct {
	Target Target
	Lookup Lookup // the result
	ID     int    // the caller's
}

// Exchange is one request: what to ask, the origin's state, and where the answer goes.
type Exchange struct {
	Origin   origin.Origin // as listed; the scheme may be Auto
	Target   Target        // what to ask now
	Lookup   Lookup        // of Target's host
	Past     Past          // updated by the exchange
	Response *Response     // overwritten by the exchange; has the same owner as the Exchange
}

// Response is the result of an origin's last exchange, and how the origin got there. All byte slices are views of
// memory that the Response owns, valid until the next Reset.
type Response struct {
	Outcome   Outcome
	Cause     Cause
	Status    int            // of the last response; 0 if none came
	Answered  origin.Origin  // the origin that answered, or was tried first; never Auto
	Final     Target         // of the last exchange
	Hops      []Hop          // redirects of the last attempt; aliases a Trail
	Attempts  int            // redirect hops and a host's further addresses do not count
	Remote    netip.AddrPort // dialled in the last exchange; invalid if none was
	FetchedAt time.Time      // of the last exchange; zero if the origin was never asked
	Timing    Timing

	TLSVersion  uint16 // as in crypto/tls; 0 on plain connections
	TLSVerified Tristate

	Proto  string // "HTTP/1.1", "HTTP/1.0", or "" (interned, no view)
	Fields Fields

	Body      []byte   // decoded, at most --max-body bytes; nil unless the outcome is answered and the status 2xx
	BodyFrom  Recycler // gets Body's memory back at Reset; nil: the garbage collector frees it
	Truncated bool     // the body was cut at --max-body, and its unfinished last line dropped
	CutAt     int      // decoded bytes before the cut; 0 unless Truncated, and for stored answers

	arena []byte // memory of Fields
}

// Fields are the response header fields that the dataset keeps, each at most MaxField bytes; nil if absent.
type Fields struct {
	Server, ContentType, ETag, LastModified, CacheControl, XRobotsTag, ContentUsage []byte

	// CDN is the delivery network that answered, recognised by header fields; "" if unknown (interned, no view).
	CDN string

	// Challenge is the vendor whose documented field marks the response as a bot challenge; "" if it is none (interned,
	// no view).
	Challenge string
}

// MaxField is how many bytes of a header field are kept at most.
const MaxField = 500

// Keep copies a header field's value into the Response and returns the kept copy, cut at MaxField bytes; nil for an
// empty value. The copy is valid until Reset.
func (r *Response) Keep(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	if len(value) > MaxField {
		value = value[:MaxField]
	}
	n := len(r.arena)
	if cap(r.arena)-n < len(value) {
		// Earlier Fields view the old block, which must not move. So begin a new one; the views keep the old one alive.
		r.arena = make([]byte, 0, max(1024, 2*cap(r.arena), len(value)))
		n = 0
	}
	r.arena = append(r.arena, value...)
	return r.arena[n:len(r.arena):len(r.arena)]
}

// Recycler takes back the memory of a body: the slice that it lent, in any length.
type Recycler interface{ Recycle(body []byte) }

// Reset makes the Response ready for another exchange. It keeps its own memory, up to a bound, and returns the body
// to BodyFrom.
func (r *Response) Reset() {
	if r.BodyFrom != nil {
		r.BodyFrom.Recycle(r.Body)
	}
	arena := r.arena[:0]
	if cap(arena) > 8<<10 {
		arena = nil
	}
	*r = Response{arena: arena}
}

// HasStatus reports whether an HTTP status came in the last exchange.
func (r *Response) HasStatus() bool { return r.Status != 0 }

// Timing has the durations of the last exchange's parts, and of all exchanges of the origin. Zero means that the part
// did not take place, or was not measured (a cached DNS answer).
type Timing struct {
	DNS, Connect, TLS time.Duration
	TTFB              time.Duration // from the request's last byte to the response's first
	Total             time.Duration // of all exchanges of the origin, without waiting
}

// Tristate is a fact that may not apply.
type Tristate uint8

// The three states. The zero value is Unknown.
const (
	Unknown Tristate = iota
	No
	Yes
)
