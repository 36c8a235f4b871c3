package fetcher

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// This file performs exchanges that have taken place already, from what was recorded of them: the head, the body and the
// policy are those of Do, so that what was archived is judged as if it came now.

// Ending is how the recording of an answer ends.
type Ending uint8

// The endings of a recording.
const (
	Whole        Ending = iota // with the answer
	CutOff                     // whoever recorded it kept no more
	TimedOut                   // the answer's time had run out
	Disconnected               // the connection was closed, before the answer's end
)

// Recorded is an exchange as it was recorded.
type Recorded struct {
	Block      []byte // the response as received, head and body
	Undone     bool   // whoever recorded it may have undone its codings, and left the fields that name them; see leftOver
	Ending     Ending
	At         time.Time  // zero: unknown
	Addr       netip.Addr // that answered; invalid: unknown
	TLSVersion uint16     // as in crypto/tls; 0: none, or unknown
	Proto      string     // "HTTP/2"; "": what the status line says
}

// Replay is Do of an exchange that has taken place: x.Target was asked, and rec is what came; nil where nobody has kept it,
// which is an outcome of its own. x.Origin has a scheme. Nothing is ever tried again: what is Again is a redirect's hop.
//
// What Replay tells of times is when, not how long.
func (f *Fetcher) Replay(ctx context.Context, x *exchange.Exchange, rec *Recorded) exchange.Next {
	r, past := x.Response, &x.Past
	r.Reset()
	past.Scheme = x.Origin.Scheme()
	r.Final = exchange.Target{Origin: x.Target.Origin, Path: x.Target.Path}
	r.Answered = x.Origin
	if past.Trail != nil {
		r.Hops = past.Trail.Hops
	}
	past.Attempts = 1
	r.Attempts = 1
	if rec == nil {
		r.Outcome, r.Cause = exchange.NotArchived, exchange.CauseNotArchived
		return exchange.Done
	}
	r.FetchedAt, r.TLSVersion = rec.At, rec.TLSVersion
	if rec.Addr.IsValid() {
		r.Remote = netip.AddrPortFrom(rec.Addr.Unmap(), x.Target.Origin.Port())
	}
	w := f.wires.Get().(*wire)
	defer f.release(w)
	w.deadline = time.Now().Add(f.cfg.Timeout)
	at, err := w.recall(ctx, r, rec)
	r.Outcome = exchange.Answered
	if err != nil {
		r.Outcome, r.Cause = classify(at, err)
	}
	policy := f.policy
	policy.retries, policy.noFallback = 0, true
	return policy.next(x.Origin, x.Target, past, r, w.hints, 0)
}

// recall reads a recorded answer as ask reads one from the network.
func (w *wire) recall(ctx context.Context, r *exchange.Response, rec *Recorded) (stage, error) {
	w.replay = rec.open()
	w.readFrom(&w.replay)
	if _, err := w.readHead(); err != nil {
		return readingHead, err
	}
	if err := w.keepHead(r); err != nil {
		return readingHead, err
	}
	if w.replay.proto != "" {
		r.Proto = w.replay.proto
	}
	if r.Status/100 != 2 {
		return 0, nil
	}
	r.Body = []byte{}
	if r.Status == 204 || r.Status == 205 {
		return 0, nil
	}
	// The recording's end is the body's where the head names another length: that may be of the body before a coding was
	// undone. Only what is too short for it, and does not say why, has lost its end.
	length, have := w.res.ContentLength(), w.small.Buffered()+len(w.replay.rest)
	if w.large != nil {
		have += w.large.Buffered()
	}
	if rec.Undone && w.leftOver(length) {
		length = untilClose
	}
	switch {
	case length == 0 && have == 0:
		return 0, nil
	case length < 0 || length == have:
	case length > have && w.replay.ending == Whole:
		w.replay.ending = Disconnected
		fallthrough
	default:
		length = untilClose
	}
	if err := w.keepBody(ctx, r, length); err != nil {
		return readingBody, err
	}
	return 0, nil
}

// The lengths of a body that ends with its connection, and of one in chunks, as fasthttp tells them.
const (
	untilClose = -2
	inChunks   = -1
)

// leftOver reports whether the head speaks of codings that are undone, so that its length is not the body's. Crawlers that
// store bodies decoded have long left Transfer-Encoding and Content-Encoding as they were (Common Crawl's until 2018 and, of
// news, 2019: https://github.com/commoncrawl/news-crawl/issues/30). A body tells by its beginning whether it is coded; where
// that is not so, the codings are not looked for. A server that says gzip and sends text is taken for such a crawler.
func (w *wire) leftOver(length int) bool {
	codings, _, err := contentCodings(w.codings[:0], w.fields)
	w.codings = codings
	coded := err == nil && len(codings) > 0
	if !coded && length != inChunks {
		return false
	}
	var memory [512]byte
	begin := w.ahead(memory[:0])
	if length == inChunks && beginsChunk(begin) {
		return false // nobody undoes what is inside, and leaves the chunks
	}
	w.replay.decoded = coded && len(begin) > 0 && !codings[len(codings)-1].begins(begin)
	return w.replay.decoded || length == inChunks
}

// ahead appends what of the recording comes next to dst, up to its capacity, without reading it.
func (w *wire) ahead(dst []byte) []byte {
	for _, br := range [...]*bufio.Reader{w.large, w.small} {
		if br != nil {
			next, _ := br.Peek(min(br.Buffered(), cap(dst)-len(dst))) // which is there
			dst = append(dst, next...)
		}
	}
	return append(dst, w.replay.rest[:min(len(w.replay.rest), cap(dst)-len(dst))]...)
}

// beginsChunk reports whether a body can be one in chunks: a size comes first (RFC 9112 §7.1), maybe padded, as nextChunk
// reads it, and then an extension or the line's end.
func beginsChunk(body []byte) bool {
	rest := bytes.TrimLeft(body, "0123456789abcdefABCDEF")
	digits := len(body) - len(rest)
	rest = bytes.TrimLeft(rest, " \t\r")
	return digits > 0 && (len(rest) == 0 || rest[0] == ';' || rest[0] == '\n')
}

// replay is a recorded answer as an io.Reader. Its Read fails at the end as the connection did.
type replay struct {
	begin  string // of the head, where it is not as recorded
	rest   []byte // as recorded
	end    error
	ending Ending
	proto  string // of the answer, where the status line does not say it

	decoded bool // before it was recorded, whatever the head says
}

// open begins to read the recorded answer. A status line of HTTP/2 or 3, of which there is none on the wire, is read as
// one of 1.1.
func (rec *Recorded) open() replay {
	p := replay{rest: rec.Block, end: io.EOF, ending: rec.Ending, proto: rec.Proto}
	if rec.Ending == TimedOut {
		p.end = os.ErrDeadlineExceeded
	}
	version, _, _ := bytes.Cut(rec.Block[:min(len(rec.Block), len("HTTP/2.0 "))], []byte{' '})
	switch string(version) {
	case "HTTP/2", "HTTP/2.0":
		p.proto = "HTTP/2"
	case "HTTP/3", "HTTP/3.0":
		p.proto = "HTTP/3"
	default:
		return p
	}
	p.begin, p.rest = "HTTP/1.1", rec.Block[len(version):]
	return p
}

// Read implements io.Reader.
func (p *replay) Read(b []byte) (n int, err error) {
	if p.begin != "" {
		n = copy(b, p.begin)
		p.begin = p.begin[n:]
		return n, nil
	}
	if len(p.rest) == 0 {
		return 0, p.end
	}
	n = copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// ended says how a recorded body ended, given how reading it did: what was cut when it was recorded is cut now.
func (p *replay) ended(cut bool, err error) (bool, error) {
	ended := err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case cut || !ended:
		return cut, err
	case p.ending == CutOff:
		return true, nil
	case p.ending == TimedOut:
		return false, os.ErrDeadlineExceeded
	case p.ending == Disconnected:
		return false, io.ErrUnexpectedEOF
	}
	return false, err
}

// ParseTarget reads an absolute http or https URL as a redirect's Location is read, and reports whether it can be asked.
func ParseTarget(url string) (exchange.Target, bool) {
	scheme, _, absolute := cutScheme(url)
	if !absolute || scheme != "http" && scheme != "https" {
		return exchange.Target{}, false
	}
	target, cause := follow(exchange.Target{}, url)
	return target, cause == 0
}
