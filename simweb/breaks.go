package simweb

import (
	"strconv"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// form is an answer that can end after any of its bytes.
type form struct {
	answer     func() (raw []byte, body string)
	head       int  // bytes of the head, with its empty line
	more       int  // last bytes that a client does not need
	untilClose bool // the connection's end is the body's end
	coded      bool
}

const (
	breaksFile = "User-agent: *\nDisallow: /b\n"

	byLengthHead   = "HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n"
	chunkedHead    = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	untilCloseHead = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
	gzipHead       = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
)

var gzippedFile = sync.OnceValue(func() []byte { return encoded(whole(breaksFile), gzipped) })

var (
	byLengthForm = form{head: len(byLengthHead), answer: func() ([]byte, string) {
		return []byte(byLengthHead + breaksFile), breaksFile
	}}
	chunkedForm = form{head: len(chunkedHead), more: len("\r\n"), answer: func() ([]byte, string) {
		return []byte(chunkedHead + "e\r\n" + breaksFile[:14] + "\r\nd;x=y\r\n" + breaksFile[14:] + "\r\n0\r\n\r\n"),
			breaksFile
	}}
	untilCloseForm = form{head: len(untilCloseHead), untilClose: true, answer: func() ([]byte, string) {
		return []byte(untilCloseHead + breaksFile), breaksFile
	}}
	// The length of the coded file has two digits.
	gzipForm = form{head: len(gzipHead + "Content-Length: 00\r\n\r\n"), coded: true, answer: func() ([]byte, string) {
		return []byte(sized(gzipHead+"Content-Length: {length}\r\n\r\n", string(gzippedFile()))), breaksFile
	}}
	gzipUntilCloseForm = form{head: len(gzipHead + "\r\n"), untilClose: true, coded: true,
		answer: func() ([]byte, string) {
			return []byte(gzipHead + "\r\n" + string(gzippedFile())), breaksFile
		}}
)

// breaks answers with a form that ends after its n-th byte. A first label such as in at17.reset-length.zoo.test gives
// n; otherwise n is drawn from the host, so that something is missing.
func breaks(f *form, ends ending) func(*ask) reply {
	return func(a *ask) reply {
		raw, body := f.answer()
		enough := len(raw) - f.more // bytes that a client needs
		n, ok := a.breaksAt()
		if !ok {
			n = int(a.draw(streamDetail) % uint64(enough))
			if f.untilClose && ends == endAbort {
				n %= f.head
			}
		}
		n = min(n, len(raw))
		r := reply{raw: raw[:n], ends: ends}
		if n >= f.head {
			r.status, r.body = 200, whole(body)
		}
		switch {
		case f.untilClose && ends == endReset, n < f.head:
			r.yields = []exchange.Outcome{earlyOutcome}
			if ends == endReset {
				r.yields = []exchange.Outcome{resetOutcome}
			}
		case f.untilClose && n < len(raw) && (n == f.head || !f.coded):
			// The close is the body's end. Only a coding could tell a cut file from a whole one.
			r.body = whole(string(raw[f.head:n]))
		case n < enough && ends == endReset:
			r.yields = []exchange.Outcome{resetOutcome}
		case n < enough:
			r.yields = []exchange.Outcome{earlyOutcome}
		}
		return r
	}
}

// breaksAt returns the number in the host's first label, if it is one for breaks.
func (a *ask) breaksAt() (int, bool) {
	label, _, _ := strings.Cut(a.host, ".")
	text, ok := strings.CutPrefix(label, "at")
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), ok && err == nil
}
