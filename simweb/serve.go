package simweb

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/origin"
)

// This file serves connections, in the order of their life: accept, handshake, request, answer, end. It writes bytes
// itself, since an HTTP library does not write wrong ones.

const (
	maxHead   = 16 << 10 // bytes of a request's head
	smallBody = 32 << 10 // bytes of a body that is sent with its head in one write
)

var (
	heads   = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}
	outs    = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}
	tlsFail = []byte(
		"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 16\r\nConnection: close\r\n\r\nwrong protocol.\n")
)

// accept serves a listener's connections until it is closed.
func (w *Web) accept(l net.Listener, at *place, secure bool) {
	defer w.running.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || w.closed() {
				return
			}
			// Out of files, or the client has closed: accept continues.
			w.sleep(5 * time.Millisecond)
			continue
		}
		row := -1
		if w.cfg.RecordAccepts {
			row = w.ledger.note(at, waited(c))
		}
		w.accepts.Add(1)
		if !w.enter(c) {
			_ = c.Close()
			return
		}
		go w.serve(c, at, secure, row)
	}
}

// serve serves one connection, and adds the host to its row in the ledger.
func (w *Web) serve(c net.Conn, at *place, secure bool, row int) {
	defer w.leave(c)
	// One deadline bounds the whole connection, silent hosts included.
	if c.SetDeadline(time.Now().Add(w.cfg.Hold)) != nil {
		return
	}
	l := line{web: w, tcp: c, conn: c, scheme: origin.HTTP}
	if secure {
		if !l.handshake() {
			return
		}
	}
	a, ok := l.readAsk()
	if !ok {
		return
	}
	w.requests.Add(1)
	w.ledger.name(row, a.host)
	b := w.world.behaviour(a.host)
	if b.counts {
		a.nth = w.count(a.host, a.scheme)
	}
	if b.limits {
		a.rushed = at.overLimit(time.Now())
	}
	r := reply{status: 404, body: errorPage(404), fields: "Content-Type: text/html\r\n"}
	if a.path == "/robots.txt" || strings.HasPrefix(a.path, "/robots.txt?") {
		r = b.answer(&a)
	}
	l.send(&a, &r)
}

// An address with a limit answers a request every limitEvery, and limitBurst at once after a pause.
const (
	limitEvery = 20 * time.Millisecond
	limitBurst = 10
)

// overLimit counts a request, and reports whether it exceeds the address's limit.
func (p *place) overLimit(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.Sub(now) > (limitBurst-1)*limitEvery {
		return true
	}
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(limitEvery)
	return false
}

// line is one connection, plain or not.
type line struct {
	web    *Web
	tcp    net.Conn
	conn   net.Conn // tcp, or the TLS connection over it
	scheme origin.Scheme
	host   string // of the client's hello, or ""
}

// handshake behaves as the host's TLS port, and reports whether a TLS connection was made.
func (l *line) handshake() bool {
	hello := &helloConn{Conn: l.tcp}
	conn := tls.Server(hello, l.web.tls)
	err := conn.Handshake()
	if err == nil {
		l.web.handshakes.Add(1)
		l.conn, l.scheme, l.host = conn, origin.HTTPS, hello.host
		return true
	}
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &noTLS) && hello.host == "":
		// Plain HTTP on the TLS port, answered as by ordinary servers.
		l.drain()
		l.write(tlsFail)
	case hello.kind == helloPlain:
		l.write(tlsFail)
	case hello.kind == helloGarbage:
		l.write([]byte("\x00\x01\x02\xff\xfe\x04\x05\x06\x07\x08\r\n"))
	case hello.kind == helloHang:
		l.hang()
	case hello.kind == helloReset:
		l.reset()
	}
	return false
}

// drain reads what the client has sent, so that closing does not reset an answer in flight.
func (l *line) drain() {
	var b [4096]byte
	if l.tcp.SetReadDeadline(time.Now().Add(20*time.Millisecond)) == nil {
		_, _ = l.tcp.Read(b[:])
	}
}

// readAsk reads a request's head. It accepts any method, lines that end in LF or CR LF, and absolute targets.
func (l *line) readAsk() (ask, bool) {
	pooled := heads.Get().(*[]byte)
	defer heads.Put(pooled)
	b, n := *pooled, 0
	for {
		if n == len(b) {
			if n >= maxHead {
				return ask{}, false
			}
			b = append(b, make([]byte, maxHead-n)...)
		}
		m, err := l.conn.Read(b[n:])
		n += m
		if n > 0 && b[0] == 0x16 && l.scheme == origin.HTTP {
			l.write(tlsFail) // a TLS hello on the plain port
			return ask{}, false
		}
		if m > 0 && headEnds(b[:n], n-m) {
			return l.parseAsk(b[:n])
		}
		if err != nil {
			return ask{}, false
		}
	}
}

// headEnds reports whether b contains an empty line. The first from bytes were searched before.
func headEnds(b []byte, from int) bool {
	b = b[max(0, from-3):]
	return bytes.Contains(b, []byte("\r\n\r\n")) || bytes.Contains(b, []byte("\n\n"))
}

func (l *line) parseAsk(head []byte) (ask, bool) {
	first, rest, _ := bytes.Cut(head, []byte{'\n'})
	_, target, ok := bytes.Cut(first, []byte{' '})
	if !ok {
		return ask{}, false
	}
	target, _, _ = bytes.Cut(bytes.TrimRight(target, "\r"), []byte{' '})
	a := ask{w: l.web.world, scheme: l.scheme, host: l.host, path: "/robots.txt"}
	if i := bytes.Index(target, []byte("://")); i >= 0 {
		target = target[i+3:]
		if i = bytes.IndexByte(target, '/'); i >= 0 {
			target = target[i:]
		}
	}
	if string(target) != a.path {
		a.path = string(target)
	}
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if len(field) > 5 && field[4] == ':' && bytes.EqualFold(field[:4], []byte("host")) {
			if host, port := splitHost(string(bytes.TrimSpace(field[5:]))); host != "" {
				a.host, a.port = host, port
			}
			break
		}
	}
	if a.host == "" {
		a.host = localHost(l.tcp)
	}
	return a, true
}

// send sends an answer and ends the connection as it says.
func (l *line) send(a *ask, r *reply) {
	if r.wait > 0 && !l.web.sleep(r.wait) {
		return
	}
	pooled := outs.Get().(*[]byte)
	sent := l.sendBytes(a, r, pooled)
	if cap(*pooled) <= 2*smallBody {
		outs.Put(pooled)
	}
	if !sent {
		return
	}
	switch r.ends {
	case endReset:
		if r.cut || len(r.raw) > 0 {
			// Systems other than Linux drop unread bytes when a reset arrives.
			l.web.sleep(20 * time.Millisecond)
		}
		l.reset()
	case endHang:
		l.hang()
	case endClose:
		if l.conn != l.tcp {
			l.conn.Close() // sends close_notify, which a body without a length needs
		}
	}
}

func (l *line) sendBytes(a *ask, r *reply, pooled *[]byte) bool {
	if r.raw != nil {
		return (len(r.raw) == 0 || l.write(r.raw)) && (r.loop == nil || l.writeForEver(r.loop, r.pause))
	}
	data, streamed := r.encode()
	out := appendHead((*pooled)[:0], a, r, int64(len(data)), streamed)
	defer func() { *pooled = out[:0] }()
	if streamed {
		return l.write(out) && l.stream(r)
	}
	switch {
	case r.framing == byChunks && r.cut:
		out = append(strconv.AppendInt(out, int64(len(data)), 16), "\r\n"...)
	case r.framing == byChunks:
		data = chunked(data)
	}
	if r.cut {
		data = data[:r.body.sentOfCut()]
	}
	if r.pause > 0 {
		return l.write(out) && l.drip(data, r.pause)
	}
	if len(data) <= smallBody {
		out = append(out, data...)
		return l.write(out)
	}
	return l.write(out) && l.write(data)
}

// encode returns the coded body without framing, or reports that it is streamed, since it is too long for memory.
func (r *reply) encode() (data []byte, streamed bool) {
	switch {
	case r.wire != nil:
		return r.wire, false
	case len(r.codings) > 0:
		return encoded(r.body, r.codings...), false
	case r.body.total != int64(len(r.body.block)):
		return nil, true
	}
	return r.body.block, false
}

// servers are Server fields, with the fields that identify a delivery network.
var servers = [...]string{
	"Server: nginx\r\n", "Server: nginx\r\n", "Server: nginx/1.24.0\r\n", "Server: Apache\r\n",
	"Server: Apache/2.4.57 (Debian)\r\n",
	"Server: cloudflare\r\nCF-RAY: 8f1b2c3d4e5f6a7b-FRA\r\n", "Server: cloudflare\r\nCF-RAY: 8f1b2c3d4e5f6a7c-AMS\r\n",
	"Server: Microsoft-IIS/10.0\r\n", "Server: LiteSpeed\r\n", "Server: openresty\r\n", "Server: Pepyaka\r\n",
	"Server: AmazonS3\r\nVia: 1.1 0a1b2c.cloudfront.net (CloudFront)\r\nX-Amz-Cf-Id: abc==\r\n",
	"X-Served-By: cache-fra-eddf8230041-FRA\r\nVia: 1.1 varnish\r\n", "",
}

// appendHead appends an answer's head.
func appendHead(out []byte, a *ask, r *reply, length int64, streamed bool) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(r.status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(r.status)...)
	out = append(out, "\r\n"...)
	h := a.draw(streamServer)
	out = append(out, servers[h%uint64(len(servers))]...)
	out = append(out, r.fields...)
	if r.fields == "" && r.status != 204 {
		out = append(out, "Content-Type: text/plain; charset=utf-8\r\n"...)
		if h>>32%4 == 0 {
			out = append(out, "Last-Modified: Wed, 05 Nov 2025 08:00:00 GMT\r\nETag: \""...)
			out = strconv.AppendUint(out, h>>40, 16)
			out = append(out, "\"\r\nCache-Control: max-age=3600\r\n"...)
		}
		if h>>36%60 == 0 {
			out = append(out, "X-Robots-Tag: noai, noimageai\r\n"...)
		}
		if h>>42%90 == 0 {
			out = append(out, "Content-Usage: train-ai=n\r\n"...)
		}
	}
	out = append(out, contentEncoding(r.codings)...)
	switch {
	case r.framing == byChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.framing == byLength && r.status != 204:
		if streamed {
			length = r.body.total
		}
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, length, 10)
		out = append(out, "\r\n"...)
	}
	return append(out, "Connection: close\r\n\r\n"...)
}

// chunked wraps a body in chunks of uneven sizes.
func chunked(data []byte) []byte {
	out := make([]byte, 0, len(data)+len(data)/64+32)
	for size := 7; len(data) > 0; size = min(size*3+1, 8000) {
		n := min(size, len(data))
		out = append(strconv.AppendInt(out, int64(n), 16), "\r\n"...)
		out = append(append(out, data[:n]...), "\r\n"...)
		data = data[n:]
	}
	return append(out, "0\r\n\r\n"...)
}

// stream sends a body block by block.
func (l *line) stream(r *reply) bool {
	block := r.body.block
	if r.framing == byChunks {
		block = append(append([]byte(strconv.FormatInt(int64(len(block)), 16)+"\r\n"), block...), "\r\n"...)
	}
	if r.body.endless() {
		return l.writeForEver(block, 0)
	}
	for left := r.body.total; left > 0; left -= int64(len(block)) {
		if !l.write(block[:min(left, int64(len(block)))]) {
			return false
		}
	}
	return true
}

// writeForEver repeats b until the client closes. It returns false.
func (l *line) writeForEver(b []byte, pause time.Duration) bool {
	if pause > 0 {
		l.web.silent(l.tcp)
	}
	for l.write(b) {
		if pause > 0 && !l.web.sleep(pause) {
			return false
		}
	}
	return false
}

// drip writes b in dripPieces, with a pause before each.
func (l *line) drip(b []byte, pause time.Duration) bool {
	piece := len(b)/dripPieces + 1
	for len(b) > 0 {
		if !l.web.sleep(pause) {
			return false
		}
		n := min(piece, len(b))
		if !l.write(b[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

func (l *line) write(b []byte) bool {
	_, err := l.conn.Write(b)
	return err == nil
}

// hang reads and stays silent until the client closes or the connection's deadline passes.
func (l *line) hang() {
	l.web.silent(l.tcp)
	var b [256]byte
	for {
		if _, err := l.tcp.Read(b[:]); err != nil {
			return
		}
	}
}

// reset ends the connection with a TCP reset.
func (l *line) reset() { abort(l.tcp) }
