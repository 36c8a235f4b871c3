package fetcher

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Bounds of the bytes before the body.
const (
	maxHead    = 64 << 10 // bytes of one response head
	maxInterim = 10       // 1xx responses before the final one
	maxLeading = 8        // stray line ends before a status line
	readBuffer = 4 << 10  // bytes; nearly every head fits
)

// readHead skips interim responses (RFC 9110 §15.2), reads the final response head into w.res and leaves w.br at the
// body's first byte. first is when the first byte came.
func (w *wire) readHead() (first time.Time, err error) {
	if _, err := w.br.Peek(1); err != nil {
		return first, err
	}
	first = time.Now()
	for range maxInterim + 1 {
		w.headBegins()
		head, err := w.peekHead()
		if err != nil {
			return first, err
		}
		if err := w.parseHead(head); err != nil {
			return first, err
		}
		// 101 is final: we asked for no other protocol.
		if status := w.res.StatusCode(); status < 100 || status > 199 || status == 101 {
			w.headEnds()
			return first, nil
		}
	}
	return first, protocolError(exchange.CauseTooManyInterim)
}

// peekHead returns the next complete head, with its empty line, as a view of w.br's buffer. It examines each byte
// once, however slowly bytes come, and fails as soon as the first ones are not HTTP. A head that outgrows the small
// buffer moves to a large one.
func (w *wire) peekHead() ([]byte, error) {
	scan := headScanner{}
	for {
		seen, _ := w.br.Peek(w.br.Buffered())
		if end, err := scan.advance(seen); err != nil {
			return nil, err
		} else if end > 0 {
			w.folded = scan.folded
			return seen[:end], nil
		}
		if len(seen) == w.br.Size() {
			if w.br == w.large {
				return nil, protocolError(exchange.CauseHeadTooLarge)
			}
			w.enlarge()
		}
		if _, err := w.br.Peek(len(seen) + 1); err != nil {
			if len(seen) > 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return nil, protocolError(exchange.CauseClosedInHead)
			}
			return nil, err
		}
	}
}

// larges holds the buffers of big heads.
var larges = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxHead) }}

// enlarge puts a large buffer in front of the small one, whose bytes it reads first.
func (w *wire) enlarge() {
	w.large = larges.Get().(*bufio.Reader)
	w.large.Reset(w.small)
	w.br = w.large
}

// shrink drops the memory of a big head once the head is read, so that a slow body after it holds no more memory than
// any other. It moves the body's received bytes to back.
func (w *wire) shrink() {
	if w.large != nil {
		first, _ := w.large.Peek(w.large.Buffered())
		second, _ := w.small.Peek(w.small.Buffered())
		w.back.Reset(append(bytes.Clone(first), second...))
		w.small.Reset(io.MultiReader(&w.back, w.src))
		w.br, w.fields = w.small, nil
	}
	w.dropLarge()
}

func (w *wire) dropLarge() {
	if w.large != nil {
		w.large.Reset(nil)
		larges.Put(w.large)
		w.large = nil
	}
	if w.grew {
		w.res, w.grew = newHead(), false
	}
}

// newHead returns an empty response head.
func newHead() *fasthttp.ResponseHeader {
	head := new(fasthttp.ResponseHeader)
	head.SetNoDefaultContentType(true)
	return head
}

// headScanner finds the end of a head in a buffer that grows.
type headScanner struct {
	start   int  // of the status line
	started bool // the status line's first byte was seen
	line    int  // start of the unfinished line
	at      int  // first byte not examined
	folded  bool // a line continues the one before it
}

// advance returns the length of the head, or 0 if it is not complete.
func (s *headScanner) advance(b []byte) (int, error) {
	for !s.started && s.at < len(b) {
		if b[s.at] != '\r' && b[s.at] != '\n' {
			s.started, s.start, s.line = true, s.at, s.at
		} else if s.at++; s.at > maxLeading {
			return 0, protocolError(exchange.CauseNotHTTP)
		}
	}
	if !s.started {
		return 0, nil
	}
	const name = "HTTP/" // in either case, as curl reads it
	if n := min(len(name), len(b)-s.start); !bytes.EqualFold(b[s.start:s.start+n], []byte(name)[:n]) {
		return 0, protocolError(exchange.CauseNotHTTP)
	}
	for {
		i := bytes.IndexByte(b[s.at:], '\n')
		if i < 0 {
			s.at = len(b)
			return 0, nil
		}
		end := s.at + i
		if length := end - s.line; length == 0 || length == 1 && b[s.line] == '\r' {
			return end + 1, nil
		}
		s.folded = s.folded || b[s.line] == ' ' || b[s.line] == '\t'
		s.line, s.at = end+1, end+1
	}
}

// parseHead parses one complete head and consumes it from w.br. fasthttp is stricter than real servers. A head that
// it refuses is repaired, as RFC 9112 allows a client to do, and parsed again.
func (w *wire) parseHead(head []byte) error {
	if len(head) > readBuffer {
		w.grew = true
	}
	if zeroStatus(head) {
		return protocolError(exchange.CauseBadStatus)
	}
	// fasthttp must find the end inside the head. Otherwise it would wait for more bytes and move the buffer under our
	// view. It also joins folded lines in place: mend would see them joined and partly twice.
	strict := bytes.HasSuffix(head, []byte("\r\n\r\n")) && !w.folded && !oldFraming(head)
	before := w.br.Buffered()
	w.broken = 0
	if strict && w.res.Read(w.br) == nil && before-w.br.Buffered() == len(head) {
		w.proto, w.fields = protocol(head), head
		return nil
	}
	if w.br.Buffered() != before {
		// fasthttp found another end of the head than headScanner: neither reading can be trusted.
		return protocolError(exchange.CauseNotHTTP)
	}
	mended, cause := mend(head)
	if mended == nil {
		return protocolError(cause)
	}
	w.broken = cause
	w.proto, w.fields = protocol(head), mended
	if _, err := w.br.Discard(len(head)); err != nil {
		return err
	}
	if err := w.res.Read(bufio.NewReaderSize(bytes.NewReader(mended), len(mended)+1)); err != nil {
		return protocolError(exchange.CauseNotHTTP)
	}
	return nil
}

// zeroStatus reports whether a head's status is 000. fasthttp would return its default, 200, for it.
func zeroStatus(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(head, "\r\n"), []byte{'\n'})
	_, status, _ := bytes.Cut(line, []byte{' '})
	return bytes.HasPrefix(bytes.TrimLeft(status, " "), []byte("000"))
}

// protocol returns the HTTP version in a head, interned; "" for another version than 1.1 and 1.0.
func protocol(head []byte) string {
	head = bytes.TrimLeft(head, "\r\n")
	for _, version := range [...]string{"HTTP/1.1", "HTTP/1.0"} {
		if len(head) > len(version) && bytes.EqualFold(head[:len(version)], []byte(version)) {
			return version
		}
	}
	return ""
}

// oldFraming reports whether a head of another version than HTTP/1.1 has a Transfer-Encoding. fasthttp ignores it, as
// RFC 9112 §6.1 allows for HTTP/1.0, but servers that send it do send chunks.
func oldFraming(head []byte) bool {
	if protocol(head) == "HTTP/1.1" {
		return false
	}
	for line := range bytes.Lines(head) {
		if name, _, ok := bytes.Cut(line, []byte{':'}); ok && bytes.EqualFold(bytes.TrimSpace(name),
			[]byte("transfer-encoding")) {
			return true
		}
	}
	return false
}

// mend rewrites a head so that fasthttp accepts it. Lines end in CR LF (RFC 9112 §2.2), folded lines are joined
// (§5.2), lines that are no field are dropped, control bytes in values become spaces (RFC 9110 §5.5), equal lengths
// become one (§8.6), and the version becomes 1.1, so that framing counts. A field that makes the body's end uncertain
// is dropped, and its cause returned. If the head is not HTTP, mend returns nil. docs/divergences.md lists the
// differences from the standards; TestReadings compares with curl.
func mend(head []byte) ([]byte, exchange.Cause) {
	const notHTTP, badLength = exchange.CauseNotHTTP, exchange.CauseBadLength
	head = bytes.TrimLeft(head, "\r\n")
	status, rest, _ := bytes.Cut(head, []byte{'\n'})
	status = bytes.TrimRight(status, "\r")
	version, status, _ := bytes.Cut(status, []byte{' '})
	if !httpVersion(version) {
		return nil, notHTTP
	}
	// A reason phrase may follow without a space (`200OK`), a fourth digit may not.
	status = bytes.TrimLeft(status, " ")
	if len(status) < 3 || !digit(status[0]) || !digit(status[1]) || !digit(status[2]) || len(status) > 3 &&
		digit(status[3]) {
		return nil, notHTTP
	}
	out := make([]byte, 0, len(head)+64)
	out = append(out, "HTTP/1.1 "...)
	out = append(out, status[:3]...)
	out = append(out, " \r\n"...)

	var length []byte
	chunked := false
	var broken exchange.Cause // the first
	for line := range bytes.Lines(unfold(rest)) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		name, value = bytes.TrimRight(name, " \t"), bytes.Trim(value, " \t")
		if !ok || !token(name) {
			continue
		}
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			// A list of equal numbers is one number.
			for part := range bytes.SplitSeq(value, []byte{','}) {
				part = bytes.Trim(part, " \t")
				if (!number(part) || length != nil && !bytes.Equal(part, length)) && broken == 0 {
					broken = badLength
				}
				length = part
			}
			continue
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			// Chunked twice, in a list or in two lines, means once.
			for part := range bytes.SplitSeq(value, []byte{','}) {
				switch part = bytes.Trim(part, " \t"); {
				case bytes.EqualFold(part, []byte("chunked")):
					chunked = true
				case bytes.EqualFold(part, []byte("identity")) || len(part) == 0:
				case broken == 0:
					broken = exchange.CauseUnknownTransfer
				}
			}
			continue
		case bytes.EqualFold(name, []byte("trailer")):
			continue
		}
		out = append(append(out, name...), ": "...)
		out = append(appendValue(out, value), "\r\n"...)
	}
	switch {
	case broken != 0:
	case chunked:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case length != nil:
		out = append(append(append(out, "Content-Length: "...), length...), "\r\n"...)
	}
	return append(out, "\r\n"...), broken
}

// unfold joins field lines with their continuation lines. It drops a continuation line without a field before it.
func unfold(fields []byte) []byte {
	out := make([]byte, 0, len(fields))
	for line := range bytes.Lines(fields) {
		if line[0] != ' ' && line[0] != '\t' {
			out = append(out, line...)
		} else if len(out) > 0 {
			out = append(append(bytes.TrimRight(out, "\r\n"), ' '), bytes.TrimLeft(line, " \t")...)
		}
	}
	return out
}

// appendValue appends a field value with spaces in place of control bytes.
func appendValue(out, value []byte) []byte {
	for _, c := range value {
		if c < 0x20 || c == 0x7f {
			c = ' '
		}
		out = append(out, c)
	}
	return out
}

// httpVersion reports whether b is a version that may begin a status line. HTTP/2 has no status lines, but some
// programs write one.
func httpVersion(b []byte) bool {
	switch {
	case len(b) < len("HTTP/2"):
		return false
	case string(b[5:]) == "2":
		return true
	}
	return len(b) == len("HTTP/1.1") && digit(b[5]) && b[6] == '.' && digit(b[7])
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number reports whether b is a decimal number that fits in an int64.
func number(b []byte) bool {
	if len(b) == 0 || len(b) > 18 && (len(b) > 19 || string(b) > "9223372036854775807") {
		return false
	}
	for _, c := range b {
		if !digit(c) {
			return false
		}
	}
	return true
}

// token reports whether b is a field name (RFC 9110 §5.6.2).
func token(b []byte) bool {
	for _, c := range b {
		if c <= 0x20 || c >= 0x7f || bytes.IndexByte([]byte(`"(),/:;<=>?@[\]{}`), c) >= 0 {
			return false
		}
	}
	return len(b) > 0
}

// keepFields copies the fields that the dataset keeps from the head into the Response, and returns the policy's hints.
func (w *wire) keepFields(r *exchange.Response, now time.Time) (h hints) {
	cdn := len(cdnNames)
	for key, value := range w.res.All() {
		if rules, ok := cdnFields[string(key)]; ok {
			cdn = min(cdn, matchCDN(rules, value))
		}
		switch string(key) {
		case "Server":
			r.Fields.Server = r.Keep(value)
		case "Content-Type":
			r.Fields.ContentType = r.Keep(value)
		case "Etag":
			r.Fields.ETag = r.Keep(value)
		case "Last-Modified":
			r.Fields.LastModified = r.Keep(value)
		case "Cache-Control":
			r.Fields.CacheControl = keepList(r, r.Fields.CacheControl, value)
		case "X-Robots-Tag":
			r.Fields.XRobotsTag = keepList(r, r.Fields.XRobotsTag, value)
		case "Content-Usage":
			r.Fields.ContentUsage = keepList(r, r.Fields.ContentUsage, value)
		case "Location":
			if h.location == "" && r.Status/100 == 3 {
				h.location = string(value[:min(len(value), maxLocation+1)])
			}
		case "Retry-After":
			h.retryAfter = retryAfter(value, now)
		case "Cf-Mitigated", "X-Amzn-Waf-Action", "X-Vercel-Mitigated":
			if vendor := challengeOf(string(key), value); vendor != "" && r.Fields.Challenge == "" {
				r.Fields.Challenge = vendor
			}
		}
	}
	if cdn < len(cdnNames) {
		r.Fields.CDN = cdnNames[cdn]
	}
	return h
}

// keepList keeps a field whose lines together are one list (RFC 9110 §5.3).
func keepList(r *exchange.Response, before, value []byte) []byte {
	if before == nil || len(before) >= exchange.MaxField {
		if before != nil {
			return before
		}
		return r.Keep(value)
	}
	joined := make([]byte, 0, len(before)+2+len(value))
	joined = append(append(append(joined, before...), ", "...), value...)
	return r.Keep(joined)
}

// retryAfter parses both forms of Retry-After (RFC 9110 §10.2.3). An invalid value, or a time in the past, is 0.
func retryAfter(value []byte, now time.Time) time.Duration {
	const far = 365 * 24 * time.Hour // longer than any wait, and far from overflow
	value = bytes.TrimSpace(value)
	if len(value) > 0 && digit(value[0]) {
		seconds := 0
		for _, c := range value {
			if !digit(c) {
				return 0
			}
			if seconds = seconds*10 + int(c-'0'); seconds > int(far/time.Second) {
				return far
			}
		}
		return time.Duration(seconds) * time.Second
	}
	if len(value) > 64 {
		return 0
	}
	// The three date formats that a client must accept (RFC 9110 §5.6.7).
	for _, form := range []string{time.RFC1123, time.RFC850, time.ANSIC} {
		if at, err := time.Parse(form, string(value)); err == nil {
			return min(max(at.Sub(now), 0), far)
		}
	}
	return 0
}
