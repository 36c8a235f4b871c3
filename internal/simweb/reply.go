package simweb

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// ask is one HTTP request as far as an answer depends on it.
type ask struct {
	w      *world
	host   string // lower case, without port
	port   uint16 // as the Host header says, 0 where it says none
	scheme origin.Scheme
	path   string // with its query
	nth    int    // number of this request to the host by this scheme, from 1; counted only where Behaviour.counts
	rushed bool   // the address is asked too often; told only where Behaviour.limits
}

func (a *ask) draw(stream uint64) uint64 { return a.w.draw(a.host, stream) }

// hop is the number in a chain's path, /robots.txt?hop=N; 0 for any other path.
func (a *ask) hop() int {
	_, n, ok := strings.Cut(a.path, "?hop=")
	if !ok || len(n) > 4 {
		return 0
	}
	i, err := strconv.Atoi(n)
	if err != nil || i < 0 {
		return 0
	}
	return i
}

// url is an absolute URL on this web. Who asked a port of ours by number, without --connect-to, is sent on by number.
func (a *ask) url(scheme origin.Scheme, host, path string) string {
	port := ""
	if a.port != 0 && (a.port == a.w.httpPort || a.port == a.w.tlsPort) {
		if scheme == origin.HTTPS {
			port = ":" + strconv.Itoa(int(a.w.tlsPort))
		} else {
			port = ":" + strconv.Itoa(int(a.w.httpPort))
		}
	}
	if strings.IndexByte(host, ':') >= 0 {
		host = "[" + host + "]"
	}
	return scheme.String() + "://" + host + port + path
}

// reply is one answer, described once: the server sends it, and the truth reads off it what a client makes of it.
type reply struct {
	wait    time.Duration // before the first byte
	status  int           // that a client sees, 0 where it gets to see none
	fields  string        // further header lines, each with its CR LF
	body    content       // decoded
	codings []coding      // in the order in which they are applied
	framing framing
	pause   time.Duration // between the dripPieces of the body

	wire []byte // the coded body, where it is not to be made of body and codings anew

	// raw stands in place of head and body where those cannot be said in the fields above, and loop is sent after it
	// until the client goes.
	raw, loop []byte

	cut  bool // only a part of the body is sent: half of it, at most cutBytes
	sent int  // how much of the body is in raw, where that breaks off in it
	ends ending

	yields   []exchange.Outcome // how the exchange ends; nil: answered
	location string
}

type framing uint8

const (
	byLength framing = iota
	byChunks
	byClose
)

type ending uint8

const (
	endClose ending = iota // in order
	endReset               // with a TCP reset
	endAbort               // closed in the middle: under TLS without its farewell
	endHang                // silence until the client goes, or for Config.Hold
)

const (
	cutBytes   = 512
	dripPieces = 8
)

// content is a body: a block of bytes, over and over up to a total; a negative total never ends.
type content struct {
	block []byte
	total int64
}

func whole(s string) content { return content{block: []byte(s), total: int64(len(s))} }

func (c content) endless() bool { return c.total < 0 }

// kept is what a client keeps that cuts bodies at most bytes and drops the unfinished last line of what it cut.
func (c content) kept(most int64) (kept []byte, truncated bool) {
	if !c.endless() && c.total <= most {
		if c.total == int64(len(c.block)) {
			return c.block, false
		}
		return c.upTo(c.total), false
	}
	kept = c.upTo(most)
	return kept[:1+bytes.LastIndexAny(kept, "\r\n")], true
}

func (c content) upTo(n int64) []byte {
	if n <= int64(len(c.block)) {
		return c.block[:n]
	}
	out := make([]byte, 0, n)
	for int64(len(out)) < n {
		out = append(out, c.block[:min(int64(len(c.block)), n-int64(len(out)))]...)
	}
	return out
}

// sentOfCut is how many bytes of a cut body are sent.
func (c content) sentOfCut() int { return min(len(c.block)/2, cutBytes) }

// ok is the answer of a host that is well.
func (a *ask) ok() reply { return reply{status: 200, body: a.w.body(a.host)} }

// with returns an answer like ok, changed.
func with(change func(a *ask, r *reply)) func(*ask) reply {
	return func(a *ask) reply {
		r := a.ok()
		change(a, &r)
		return r
	}
}

// status returns an answer with a status that is no redirect, and a page that says so.
func status(code int, fields ...string) func(*ask) reply {
	page := errorPage(code)
	all := strings.Join(fields, "")
	return func(*ask) reply { return reply{status: code, body: page, fields: "Content-Type: text/html\r\n" + all} }
}

func errorPage(code int) content {
	text := strconv.Itoa(code) + " " + http.StatusText(code)
	return whole("<!DOCTYPE html>\r\n<html><head><title>" + text + "</title></head>\r\n<body><h1>" + text + "</h1></body></html>\r\n")
}

// redirect returns the answer that sends on. A status is drawn from the host unless one is given.
func (a *ask) redirect(to string) reply {
	codes := [...]int{301, 301, 301, 301, 301, 301, 302, 302, 302, 307, 308, 303}
	return reply{
		status:   codes[a.draw(streamStatus)%uint64(len(codes))],
		location: to,
		fields:   "Location: " + to + "\r\nContent-Type: text/html\r\n",
		body:     whole("<html><body>Moved.</body></html>\n"),
	}
}

// chain is a way of n hops on one host, ending well.
func chain(n int) func(*ask) reply {
	return func(a *ask) reply {
		hop := a.hop()
		if hop >= n {
			return a.ok()
		}
		to := "/robots.txt?hop=" + strconv.Itoa(hop+1)
		if (a.draw(streamDetail)+uint64(hop))%2 == 0 {
			to = a.url(a.scheme, a.host, to)
		}
		return a.redirect(to)
	}
}

// fails returns an answer that is none: nothing at all, then the given end.
func fails(ends ending, yields ...exchange.Outcome) func(*ask) reply {
	return func(*ask) reply { return reply{raw: []byte{}, ends: ends, yields: yields} }
}

// says returns an answer byte for byte, and what a client makes of it.
func says(raw string, status int, yields ...exchange.Outcome) func(*ask) reply {
	return func(*ask) reply { return reply{raw: []byte(raw), status: status, yields: yields} }
}

// answers returns an answer byte for byte, head and body, that a tolerant client reads as an ordinary one.
func answers(head, body string) func(*ask) reply {
	return answersAs(sized(head, body), body)
}

// answersAs is answers where the body goes over the wire in another form.
func answersAs(raw, body string) func(*ask) reply {
	r := reply{raw: []byte(raw), status: 200, body: whole(body)}
	return func(*ask) reply { return r }
}

// sized joins a head and a body, with the body's length where the head says {length}.
func sized(head, body string) string {
	return strings.ReplaceAll(head, "{length}", strconv.Itoa(len(body))) + body
}

// splitHost reads a Host header: the host in lower case without brackets and final dot, and the port or 0.
func splitHost(s string) (string, uint16) {
	host, text := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i:], ']') < 0 {
		if h, p, err := net.SplitHostPort(s); err == nil {
			host, text = h, p
		}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		port = 0
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, ".")), uint16(port)
}
