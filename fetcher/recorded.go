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

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file replays recorded exchanges. Head, body and policy are handled by the code of Do, so an archived answer is
// judged like one from the network.

// Ending is how the recording of an answer ends.
type Ending uint8

// The endings of a recording.
const (
	Whole        Ending = iota // complete
	CutOff                     // the recorder kept no more
	TimedOut                   // the answer timed out
	Disconnected               // the connection was closed before the answer's end
)

// Recorded is a recorded exchange.
type Recorded struct {
	Block      []byte // the response as received, head and body
	Undone     bool   // the recorder may have decoded the body and kept the fields that name its codings; see leftOver
	Ending     Ending
	At         time.Time  // zero: unknown
	Addr       netip.Addr // of the server; invalid: unknown
	TLSVersion uint16     // as in crypto/tls; 0: none, or unknown
	Proto      string     // "HTTP/2"; "": the version in the status line
}

// Replay is Do for a recorded exchange: rec is the answer to the request for x.Target. If rec is nil, no answer was
// archived, which is an outcome of its own. x.Origin has a scheme. There are no retries: Again means a redirect hop.
//
// Replay sets the Response's FetchedAt, but no durations.
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
	at, err := w.replayed(ctx, r, rec)
	r.Outcome = exchange.Answered
	if err != nil {
		r.Outcome, r.Cause = classify(at, err)
	}
	policy := f.policy
	policy.retries, policy.noFallback = 0, true
	return policy.next(x.Origin, x.Target, past, r, w.hints, 0)
}

// replayed reads a recorded answer as ask reads one from the network.
func (w *wire) replayed(ctx context.Context, r *exchange.Response, rec *Recorded) (stage, error) {
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
	// If the recording has another length than the head names, the body ends with the recording: the head may mean the
	// coded body. A recording marked Whole that is too short has lost its end.
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

// Values of fasthttp's ContentLength.
const (
	untilClose = -2 // the body ends with the connection
	inChunks   = -1 // the body is chunked
)

// leftOver reports whether the head names codings that the recorder has undone, so that its length is not the body's.
// Crawlers that store decoded bodies kept Transfer-Encoding and Content-Encoding for years (Common Crawl's until 2018
// and, of news, 2019: https://github.com/commoncrawl/news-crawl/issues/30). The beginning of a body shows whether it
// is coded; if it is not, it is not decoded. A server that says gzip and sends text cannot be distinguished from such
// a crawler.
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
		return false // no recorder decodes the content and keeps the chunks
	}
	w.replay.decoded = coded && len(begin) > 0 && !codings[len(codings)-1].begins(begin)
	return w.replay.decoded || length == inChunks
}

// ahead appends the recording's next bytes to dst, up to its capacity, without consuming them.
func (w *wire) ahead(dst []byte) []byte {
	for _, br := range [...]*bufio.Reader{w.large, w.small} {
		if br != nil {
			next, _ := br.Peek(min(br.Buffered(), cap(dst)-len(dst))) // no error: the bytes are buffered
			dst = append(dst, next...)
		}
	}
	return append(dst, w.replay.rest[:min(len(w.replay.rest), cap(dst)-len(dst))]...)
}

// beginsChunk reports whether a body may be chunked. A size comes first (RFC 9112 §7.1), padded perhaps, as nextChunk
// accepts it, then an extension or the line's end.
func beginsChunk(body []byte) bool {
	rest := bytes.TrimLeft(body, "0123456789abcdefABCDEF")
	digits := len(body) - len(rest)
	rest = bytes.TrimLeft(rest, " \t\r")
	return digits > 0 && (len(rest) == 0 || rest[0] == ';' || rest[0] == '\n')
}

// replay is a recorded answer as an io.Reader. At the end Read returns the error of the recorded connection.
type replay struct {
	begin  string // replaces the recorded beginning of the head; "": nothing is replaced
	rest   []byte // recorded bytes not read yet
	end    error
	ending Ending
	proto  string // of the answer, if the status line does not name it

	decoded bool // the body was decoded before it was recorded, whatever the head says
}

// open begins to read the recorded answer. A status line of HTTP/2 or HTTP/3, which only recorders write, is read as
// one of HTTP/1.1.
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

// ended returns how a recorded body ended, given how reading it ended. A body that was cut when it was recorded is cut.
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

// ParseTarget parses an absolute http or https URL like a redirect's Location, and reports whether it is a valid
// target.
func ParseTarget(url string) (exchange.Target, bool) {
	scheme, _, absolute := cutScheme(url)
	if !absolute || scheme != "http" && scheme != "https" {
		return exchange.Target{}, false
	}
	target, cause := follow(exchange.Target{}, url)
	return target, cause == 0
}
