package simweb

import (
	"strconv"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// form is an answer that may break off behind any of its bytes.
type form struct {
	answer     func() (raw []byte, body string)
	head       int  // bytes of the head, with its empty line
	more       int  // bytes at the end that a client need not wait for
	untilClose bool // the end of the connection is the end of the body
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
		return []byte(chunkedHead + "e\r\n" + breaksFile[:14] + "\r\nd;x=y\r\n" + breaksFile[14:] + "\r\n0\r\n\r\n"), breaksFile
	}}
	untilCloseForm = form{head: len(untilCloseHead), untilClose: true, answer: func() ([]byte, string) {
		return []byte(untilCloseHead + breaksFile), breaksFile
	}}
	// The length of what gzip makes of the file has two digits.
	gzipForm = form{head: len(gzipHead + "Content-Length: 00\r\n\r\n"), coded: true, answer: func() ([]byte, string) {
		return []byte(sized(gzipHead+"Content-Length: {length}\r\n\r\n", string(gzippedFile()))), breaksFile
	}}
	gzipUntilCloseForm = form{head: len(gzipHead + "\r\n"), untilClose: true, coded: true, answer: func() ([]byte, string) {
		return []byte(gzipHead + "\r\n" + string(gzippedFile())), breaksFile
	}}
)

// breaks returns the answer that breaks off, one way or the other, behind the n-th byte where the host's first label is
// at and that number, at17.reset-length.zoo.test, and else behind one that the host draws, where there is something left to
// miss.
func breaks(f *form, ends ending) func(*ask) reply {
	return func(a *ask) reply {
		raw, body := f.answer()
		enough := len(raw) - f.more // bytes with which a client has everything
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
			// The close is the end. There is no telling a file that broke off from a whole one, but for its coding.
			r.body = whole(string(raw[f.head:n]))
		case n < enough && ends == endReset:
			r.yields = []exchange.Outcome{resetOutcome}
		case n < enough:
			r.yields = []exchange.Outcome{earlyOutcome}
		}
		return r
	}
}

// breaksAt is the number that the host's first label asks for.
func (a *ask) breaksAt() (int, bool) {
	label, _, _ := strings.Cut(a.host, ".")
	text, ok := strings.CutPrefix(label, "at")
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), ok && err == nil
}
