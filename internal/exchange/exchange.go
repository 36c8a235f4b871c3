// Package exchange answers one question: what does an exchange with a host leave behind? It holds the words that
// fetcher, pipeline, audit and sink share (Outcome, Hop, Timing, Response), and imports none of them, so that what
// reads datasets does not drag an HTTP client in.
//
// The file is laid out as one origin's way is: what to ask (Target), what earlier requests of the same origin left
// (Past), one request (Exchange), and what came back (Response).
package exchange

import (
	"net/netip"
	"time"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// RobotsPath is the only path that counts as an origin's file (RFC 9309 §2.3).
const RobotsPath = "/robots.txt"

// Target is one URL to ask: an origin with a scheme of its own (never Auto), and a path with its query.
type Target struct {
	Origin origin.Origin
	Path   string // begins with "/"; "" stands for RobotsPath; the fragment is gone

	// A host may have several addresses, of which a target means one. Skip says which: it is the fetcher's own count of where
	// the attempt began and how many it has tried, below 32; 0 is the first.
	// Unmet is what came of those that the same attempt has tried before: connect_timeout where one took no connection in
	// time, else connect_refused where one refused us, connect_failed where all were out of reach, 0 where this is the first.
	// Waited is how long connecting to them took, in tenths of a second; 255: that or longer.
	Skip   uint8
	Waited uint8
	Unmet  Outcome
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

// Hop is one redirect that was followed: the status that sent us on, and the absolute URL to which.
type Hop struct {
	Status int
	URL    string
}

// Trail is the way behind an origin that was redirected: the hops in order, and the target of the last. It is made
// anew at each hop and never changed afterwards, so that records may share it.
type Trail struct {
	Target Target
	Hops   []Hop
}

// Past is what earlier exchanges of one origin leave for the next. It is small because it is what a waiting origin
// keeps (see pipeline); it is a value, and a zero Past is an origin that was never asked.
type Past struct {
	Trail    *Trail        // redirects of the current attempt; nil before the first
	Spent    time.Duration // in exchanges so far, without waiting
	Scheme   origin.Scheme // by which the current attempt began; 0 before the first
	Attempts uint8         // exchanges so far; hops, a host's further addresses and what was put off are not counted
	Later    uint8         // of those, how many were later tries, out of --retries
	HTTPS    Failure       // what the last attempt by https failed with, or the last status by it
	HTTP     Failure       // the same by http
}

// Failure is an attempt's failure in two bytes: enough to write its row when the attempt after it fails too, and to
// know whether another is worth it. The zero value is no failure. Where the outcome is answered, a status that is tried again
// stands in the place of the cause: see AnsweredWith.
type Failure struct {
	Outcome Outcome
	Cause   Cause
}

// AnsweredWith is what is kept of an attempt to which a status came: the status itself only if it is an error, from 401 to 599.
func AnsweredWith(status int) Failure {
	if status < 400 || status > 599 {
		status = 400
	}
	return Failure{Outcome: Answered, Cause: Cause(status - 400)}
}

// Status is the status that AnsweredWith has kept; 0 where there is none.
func (f Failure) Status() int {
	if f.Outcome != Answered || f.Cause == 0 {
		return 0
	}
	return int(f.Cause) + 400
}

// Transient reports whether a later try may end otherwise: the outcome may pass, or the failure was this machine's own,
// which had no port, memory or file left, and says nothing about the host.
func (f Failure) Transient() bool {
	return f.Outcome.Transient() || f.Outcome != Answered && f.Cause == CauseNoLocalResource
}

// Lookup is the answer of the resolve stage for one target.
type Lookup struct {
	Addr    netip.Addr    // to dial; where Outcome is set invalid, or after a Target's Unmet the last that was dialled
	More    bool          // another address is known to stand behind Addr
	Outcome Outcome       // dns_not_found, dns_failed, dns_timeout, blocked_address, a Target's Unmet; 0 where Addr is good
	Cause   Cause         // the detail of Outcome
	Took    time.Duration // 0 from a cache
	Until   time.Time     // when the answer must be asked again; zero: never (an address literal)

	// PutOff says that no name server answered within the patience that there was: nothing is known, and the look-up is to
	// be made again with all the time that it may take. Nothing else is set.
	PutOff bool
}

// Exchange is one request: whom to ask, what went before, and where the answer goes.
type Exchange struct {
	Origin   origin.Origin // as listed; the scheme may be Auto
	Target   Target        // what to ask now
	Lookup   Lookup        // of Target's host
	Past     Past          // updated by the exchange
	Response *Response     // overwritten by the exchange; owned by whoever owns the Exchange

	// Patience is how long the host may be silent: before it takes the connection, then before the first byte of TLS, and
	// then between the request and the first byte of a response. Whoever is silent for longer, or until a time-out, is put
	// off (see Next). 0: as long as the time-outs allow.
	Patience time.Duration
}

// Response is what an origin's last exchange left, and the way to it. All byte slices are views of memory that the
// Response owns, valid until the next Reset.
type Response struct {
	Outcome   Outcome
	Cause     Cause
	Status    int            // of the last response; 0 where none came
	Answered  origin.Origin  // the origin that answered, or was tried first; never Auto
	Final     Target         // of the last exchange
	Hops      []Hop          // redirects followed, of the last attempt; aliases a Trail
	Attempts  int            // exchanges; hops, a host's further addresses and what was put off are not counted
	Remote    netip.AddrPort // dialled in the last exchange; invalid where nothing was
	FetchedAt time.Time      // of the last exchange; zero where we never asked
	Timing    Timing

	TLSVersion  uint16 // as in crypto/tls; 0 on plain connections
	TLSVerified Tristate

	Proto  string // "HTTP/1.1", "HTTP/1.0", or "" (interned, no view)
	Fields Fields

	Body      []byte   // decoded, at most --max-body bytes; nil unless the outcome is answered and the status 2xx
	BodyFrom  Recycler // gets Body's memory back at Reset; nil: nobody wants it
	Truncated bool     // the body was cut at --max-body, and its unfinished last line dropped
	CutAt     int      // how many decoded bytes there were where it was cut; 0 unless Truncated, and of stored answers

	arena []byte // what Fields view
}

// Fields are the response header fields that a survey keeps, each at most MaxField bytes, nil where absent.
type Fields struct {
	Server, ContentType, ETag, LastModified, CacheControl, XRobotsTag, ContentUsage []byte

	// CDN is which delivery network answered, told by header fields; "" where none is known (interned, no view).
	CDN string
}

// MaxField bounds what is kept of one header field, in bytes.
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
		// Growing must not move what earlier Fields view: begin a new block, the old one lives on through its views.
		r.arena = make([]byte, 0, max(1024, 2*cap(r.arena), len(value)))
		n = 0
	}
	r.arena = append(r.arena, value...)
	return r.arena[n:len(r.arena):len(r.arena)]
}

// Recycler takes back the memory of a body, whole: the slice that it gave out, in any length.
type Recycler interface{ Recycle(body []byte) }

// Reset makes the Response ready for another exchange. It keeps the memory that it owns, up to a bound, and gives the
// body back to whom it came from.
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

// Timing is how long the parts of the last exchange took, and all exchanges of the origin together. Zero: it did not
// happen, or was not measured (a cached DNS answer).
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
