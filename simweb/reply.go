package simweb

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// ask holds those parts of an HTTP request that an answer depends on.
type ask struct {
	w      *world
	host   string // lower case, without port
	port   uint16 // of the Host header, or 0
	scheme origin.Scheme
	path   string // with its query
	nth    int    // number of this request to the host by this scheme, from 1; set only where Behaviour.counts
	rushed bool   // the address gets too many requests; set only where Behaviour.limits
}

func (a *ask) draw(stream uint64) uint64 { return a.w.draw(a.host, stream) }

// hop returns N of the path /robots.txt?hop=N, or 0.
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

// url returns an absolute URL of this web. It names the web's own port if the request did so, without --connect-to.
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

// reply describes one answer. The server sends it, and Expect derives from it what a client finds.
type reply struct {
	wait    time.Duration // before the first byte
	status  int           // that a client sees; 0: none
	fields  string        // further header lines, each with its CR LF
	body    content       // decoded
	codings []coding      // in the order in which they are applied
	framing framing
	pause   time.Duration // between the dripPieces of the body

	wire []byte // the coded body, if it is not made from body and codings

	// raw replaces head and body where the fields above cannot describe them. loop is sent after it until the client
	// closes.
	raw, loop []byte

	cut  bool // only half of the body is sent, at most cutBytes
	sent int  // bytes of the body in raw, if raw ends within it
	ends ending

	yields   []exchange.Outcome // how the exchange ends; nil: answered
	location string

	challenge string // whose bot challenge it is
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
	endAbort               // closed, under TLS without close_notify
	endHang                // silence until the client closes, or for Config.Hold
)

const (
	cutBytes   = 512
	dripPieces = 8
)

// content is a body: a block of bytes, repeated up to a total; a negative total never ends.
type content struct {
	block []byte
	total int64
}

func whole(s string) content { return content{block: []byte(s), total: int64(len(s))} }

func (c content) endless() bool { return c.total < 0 }

// kept returns what a client keeps that cuts bodies at most bytes and drops the unfinished last line of a cut one.
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

// sentOfCut returns how many bytes of a cut body are sent.
func (c content) sentOfCut() int { return min(len(c.block)/2, cutBytes) }

// ok answers 200 with the host's file.
func (a *ask) ok() reply { return reply{status: 200, body: a.w.body(a.host)} }

// with answers like ok, with a change.
func with(change func(a *ask, r *reply)) func(*ask) reply {
	return func(a *ask) reply {
		r := a.ok()
		change(a, &r)
		return r
	}
}

// status answers with a status other than a redirect, and an error page.
func status(code int, fields ...string) func(*ask) reply {
	page := errorPage(code)
	all := strings.Join(fields, "")
	return func(*ask) reply { return reply{status: code, body: page, fields: "Content-Type: text/html\r\n" + all} }
}

// challenges answers with a vendor's challenge page.
func challenges(vendor string, code int, fields ...string) func(*ask) reply {
	answer := status(code, fields...)
	return func(a *ask) reply {
		r := answer(a)
		r.challenge = vendor
		return r
	}
}

func errorPage(code int) content {
	text := strconv.Itoa(code) + " " + http.StatusText(code)
	return whole("<!DOCTYPE html>\r\n<html><head><title>" + text + "</title></head>\r\n<body><h1>" + text +
		"</h1></body></html>\r\n")
}

// redirect answers with a redirect, whose status is drawn from the host.
func (a *ask) redirect(to string) reply {
	codes := [...]int{301, 301, 301, 301, 301, 301, 302, 302, 302, 307, 308, 303}
	return reply{
		status:   codes[a.draw(streamStatus)%uint64(len(codes))],
		location: to,
		fields:   "Location: " + to + "\r\nContent-Type: text/html\r\n",
		body:     whole("<html><body>Moved.</body></html>\n"),
	}
}

// chain redirects n times on one host, and then answers with the file.
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

// fails sends nothing, and ends the connection as given.
func fails(ends ending, yields ...exchange.Outcome) func(*ask) reply {
	return func(*ask) reply { return reply{raw: []byte{}, ends: ends, yields: yields} }
}

// says answers with exactly these bytes, which a client reads as the given status and outcome.
func says(raw string, status int, yields ...exchange.Outcome) func(*ask) reply {
	return func(*ask) reply { return reply{raw: []byte(raw), status: status, yields: yields} }
}

// answers sends exactly this head and body, which a tolerant client reads as an ordinary answer.
func answers(head, body string) func(*ask) reply {
	return answersAs(sized(head, body), body)
}

// answersAs is answers with a body that is framed in raw.
func answersAs(raw, body string) func(*ask) reply {
	r := reply{raw: []byte(raw), status: 200, body: whole(body)}
	return func(*ask) reply { return r }
}

// sized joins a head and a body, with the body's length for {length} in the head.
func sized(head, body string) string {
	return strings.ReplaceAll(head, "{length}", strconv.Itoa(len(body))) + body
}

// splitHost splits a Host header into the host, in lower case without brackets and final dot, and the port or 0.
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
