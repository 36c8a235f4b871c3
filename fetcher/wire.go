package fetcher

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// wire performs one exchange: it holds the connection and the reused memory around it. One goroutine at a time owns it.
//
//	conn ─► (tape) ─► small ─► (large, once the head outgrows small) ─► br ─► head ─► framing ─► memory ─► Response.Body
type wire struct {
	f        *Fetcher
	dialer   net.Dialer
	tls      *tls.Config // ServerName is rewritten for each handshake
	src      io.Reader   // of the answer: conn, the tape over it, or the replay
	small    *bufio.Reader
	large    *bufio.Reader // from larges while it is needed, else nil
	back     bytes.Reader  // bytes moved out of large; read before src
	br       *bufio.Reader // small or large
	req      fasthttp.RequestHeader
	res      *fasthttp.ResponseHeader
	out      []byte // the request
	host     []byte
	codings  []coding
	body     framing
	proto    string
	folded   bool           // the head that was peeked last has folded lines
	fields   []byte         // the head that was read last, without folded lines; a view, valid until the next read
	grew     bool           // the head was big, and the memory that it took is dropped
	broken   exchange.Cause // why the head that was read last does not define the body's end; 0: it does
	lost     error          // how the connection ended before the body's announced end; nil: it did not
	hints    hints
	deadline time.Time // of the whole exchange

	connectFor time.Duration // how long connecting to the target may take

	raw      net.Conn
	flights  gathered // between raw and TLS
	conn     net.Conn // raw, or TLS over it
	complete bool     // the answer was read as far as needed

	tape   *tape  // nil without recording
	replay replay // the reader of a recorded answer; its end is nil if the answer comes from the network
}

func (f *Fetcher) newWire() *wire {
	w := &wire{
		f:     f,
		tls:   f.tls.Clone(),
		small: bufio.NewReaderSize(nil, readBuffer),
		res:   newHead(),
	}
	if f.tapes != nil {
		w.tape = &tape{budget: f.tapes, limit: int(f.tapeLimit())}
		w.tape.reset()
	}
	// A connection serves one exchange and needs no keep-alive probes.
	w.dialer.KeepAlive = -1
	if f.cfg.SourceIP.IsValid() {
		w.dialer.LocalAddr = &net.TCPAddr{IP: f.cfg.SourceIP.AsSlice()}
		w.dialer.Control = bindAddressNoPort
	}
	return w
}

// release returns a wire to the pool.
func (f *Fetcher) release(w *wire) {
	w.dropLarge()
	w.small.Reset(nil)
	if cap(w.out) > 4<<10 {
		w.out = nil
		w.req = fasthttp.RequestHeader{}
	}
	w.flights.Conn, w.flights.held = nil, w.flights.held[:0]
	if cap(w.flights.held) > 4<<10 {
		w.flights.held = nil
	}
	w.back.Reset(nil)
	w.src, w.br, w.raw, w.conn, w.complete, w.hints, w.body, w.fields = nil, nil, nil, nil, false, hints{}, framing{}, nil
	w.lost = nil
	w.replay = replay{}
	if w.tape != nil {
		w.tape.reset()
	}
	f.wires.Put(w)
}

// newTLSConfig returns the configuration of all handshakes. The verifier verifies certificates after the handshake,
// because an invalid certificate is a fact to record and does not end the exchange.
func newTLSConfig(min uint16) *tls.Config {
	c := &tls.Config{
		InsecureSkipVerify: true, // see verifier
		MinVersion:         min,
		NextProtos:         []string{"http/1.1"},
		// The hybrid post-quantum exchange is left out: it takes a third of a handshake's time, and the file is public.
		CurvePreferences:       []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		SessionTicketsDisabled: true,
	}
	for _, suite := range tls.CipherSuites() {
		c.CipherSuites = append(c.CipherSuites, suite.ID)
	}
	// Some old servers offer only the RSA key exchange, which crypto/tls no longer offers by default.
	c.CipherSuites = append(c.CipherSuites, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
	if min < tls.VersionTLS12 {
		// Servers limited to TLS 1.1 often lack AES.
		c.CipherSuites = append(c.CipherSuites, tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA)
	}
	return c
}

// run performs the stages of the exchange. With an error it returns the stage that failed.
func (w *wire) run(ctx context.Context, x *exchange.Exchange) (stage, error) {
	defer label(ctx)
	if x.Target.Origin.Scheme() == origin.FTP {
		label(ftpLabel)
		return w.runFTP(ctx, x)
	}
	label(dialLabel)
	stop, err := w.dial(ctx, x.Response)
	if err != nil {
		return connecting, err
	}
	defer w.close()
	defer stop()

	if x.Target.Origin.Scheme() == origin.HTTPS {
		label(tlsLabel)
		if err := w.handshake(x); err != nil {
			return handshaking, err
		}
	}
	return w.ask(ctx, x)
}

// ask sends the request over the connection and reads the answer.
func (w *wire) ask(ctx context.Context, x *exchange.Exchange) (stage, error) {
	label(headLabel)
	w.readFrom(w.conn)
	// A server may answer and close before it reads the request. Sending then fails, but the answer can be read.
	unsent := w.send(x.Target)
	if err := w.head(x.Response); err != nil {
		if unsent != nil {
			return writing, unsent
		}
		return readingHead, err
	}
	if x.Response.Status/100 == 2 {
		label(bodyLabel)
		if err := w.readBody(ctx, x.Response); err != nil {
			return readingBody, err
		}
	}
	w.complete = true
	return 0, nil
}

// readFrom begins to read an answer from src, through the tape if there is one.
func (w *wire) readFrom(src io.Reader) {
	if w.tape != nil {
		w.tape.src, src = src, w.tape
	}
	w.src, w.br = src, w.small
	w.small.Reset(src)
}

func closer(c net.Conn) func() { return func() { _ = c.Close() } }

// within returns the deadline of a stage that begins now.
func (w *wire) within(d time.Duration) time.Time {
	if at := time.Now().Add(d); at.Before(w.deadline) {
		return at
	}
	return w.deadline
}

// dial connects to the Response's Remote.
func (w *wire) dial(ctx context.Context, r *exchange.Response) (stop func() bool, err error) {
	began := time.Now()
	if w.raw, stop, err = w.connect(ctx, r.Remote); err != nil {
		return nil, err
	}
	r.Timing.Connect = time.Since(began)
	w.conn = w.raw
	return stop, nil
}

// connect connects to an address. From then on the end of ctx closes the connection, which unblocks reads and writes,
// unless stop was called before.
func (w *wire) connect(ctx context.Context, to netip.AddrPort) (conn net.Conn, stop func() bool, err error) {
	end := w.within(w.connectFor)
	if w.f.cfg.Dial != nil {
		// until hides ctx's own deadline from Dial: Dial could fail at that deadline before ctx has an error.
		before, cancel := context.WithDeadline(&until{ctx, end, w.f.never}, end)
		conn, err = w.f.cfg.Dial(before, "tcp", to.String())
		cancel()
	} else {
		if conn, stop, err = w.direct(ctx, to, end); err != errIndirect {
			return conn, stop, err
		}
		conn, err = w.indirect(ctx, to, end)
	}
	if err != nil {
		return nil, nil, err
	}
	return conn, context.AfterFunc(ctx, closer(conn)), nil
}

// errIndirect means that connect must use net.Dialer.
var errIndirect = errors.New("cannot connect without a dialer")

// indirect connects with net.Dialer, which makes no DNS look-up for a literal. (DialTCP with an empty local address
// would bind a port before it connects, and run out of ports.)
func (w *wire) indirect(ctx context.Context, to netip.AddrPort, end time.Time) (net.Conn, error) {
	return w.dialer.DialContext(&until{ctx, end, w.f.never}, "tcp", to.String())
}

// until is a context that has a deadline, but does not end at it: net.Dialer passes the deadline to the poller. A
// timer would cost more than everything else around connect.
type until struct {
	context.Context
	deadline time.Time
	never    <-chan struct{} // a channel that nothing closes
}

// Deadline implements context.Context.
func (u *until) Deadline() (time.Time, bool) { return u.deadline, true }

// Done implements context.Context. It never returns nil, because net.Dialer would then ignore the deadline.
func (u *until) Done() <-chan struct{} {
	if done := u.Context.Done(); done != nil {
		return done
	}
	return u.never
}

// close closes the connection. After a complete answer it resets the connection, which leaves no TIME_WAIT on either
// side: at thousands of connections a second to one address they would exhaust the ports.
func (w *wire) close() {
	if !w.complete {
		_ = w.flights.flush() // of a TLS alert
	}
	if tcp, ok := w.raw.(interface{ SetLinger(seconds int) error }); ok && w.complete {
		_ = tcp.SetLinger(0)
	}
	_ = w.raw.Close()
}

// handshake performs the TLS handshake and verifies the certificate.
func (w *wire) handshake(x *exchange.Exchange) error {
	if err := w.raw.SetDeadline(w.within(w.f.cfg.TLSTimeout)); err != nil {
		return err
	}
	began := time.Now()
	w.tls.ServerName = x.Target.Origin.Host()
	w.flights.Conn = w.raw
	conn := tls.Client(&w.flights, w.tls)
	if err := conn.Handshake(); err != nil {
		return err
	}
	r := x.Response
	r.Timing.TLS = time.Since(began)
	state := conn.ConnectionState()
	r.TLSVersion = state.Version
	if !w.f.cfg.SkipVerify {
		r.TLSVerified = w.f.verifier.verify(x.Target.Origin.Host(), state.PeerCertificates)
	}
	if r.TLSVerified != exchange.Yes && w.f.cfg.StrictTLS {
		return protocolError(exchange.CauseTLSUnverified)
	}
	w.conn = conn
	return nil
}

// gathered is a connection that holds written bytes until the next read. So the end of a handshake and the request
// after it leave in one packet.
type gathered struct {
	net.Conn
	held []byte
}

// Write implements io.Writer.
func (g *gathered) Write(p []byte) (int, error) {
	g.held = append(g.held, p...)
	return len(p), nil
}

// Read implements io.Reader.
func (g *gathered) Read(p []byte) (int, error) {
	if err := g.flush(); err != nil {
		return 0, err
	}
	return g.Conn.Read(p)
}

// flush sends the held bytes.
func (g *gathered) flush() error {
	if len(g.held) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.held)
	g.held = g.held[:0]
	return err
}

// send writes the request: an unconditional GET.
func (w *wire) send(t exchange.Target) error {
	w.req.Reset()
	w.req.SetProtocol("HTTP/1.1")
	w.req.SetRequestURI(pathOf(t))
	w.host = t.Origin.AppendHostTo(w.host[:0])
	w.req.SetHostBytes(w.host)
	w.req.SetUserAgent(w.f.cfg.UserAgent)
	w.req.SetCanonical(acceptField, acceptValue)
	w.req.SetCanonical(acceptEncodingField, identityValue)
	w.req.SetConnectionClose()
	w.out = w.req.AppendBytes(w.out[:0])
	if err := w.raw.SetDeadline(w.deadline); err != nil {
		return err
	}
	if w.tape != nil {
		w.tape.asked = true
	}
	if _, err := w.conn.Write(w.out); err != nil {
		return err
	}
	return w.flights.flush()
}

var (
	acceptField         = []byte("Accept")
	acceptValue         = []byte("text/plain,*/*;q=0.8")
	acceptEncodingField = []byte("Accept-Encoding")
	identityValue       = []byte("identity")
)

// head reads the final response head into the Response.
func (w *wire) head(r *exchange.Response) error {
	began := time.Now()
	if w.f.cfg.HeaderTimeout < w.f.cfg.Timeout {
		if err := w.raw.SetReadDeadline(w.within(w.f.cfg.HeaderTimeout)); err != nil {
			return err
		}
	}
	first, err := w.readHead()
	if !first.IsZero() {
		r.Timing.TTFB = first.Sub(began)
	}
	if err != nil {
		return err
	}
	return w.keepHead(r)
}

// keepHead copies the head that was read into the Response, as far as the dataset needs it.
func (w *wire) keepHead(r *exchange.Response) error {
	r.Status = w.res.StatusCode()
	r.Proto = w.proto
	w.hints = w.keepFields(r, time.Now())
	switch {
	case r.Status < 200 || r.Status > 599:
		return protocolError(exchange.CauseBadStatus)
	case w.broken != 0 && r.Status/100 == 2:
		// Only a 2xx needs its body. Any other status counts by itself.
		return protocolError(w.broken)
	}
	return nil
}

// readBody reads the body of a 2xx response into the Response.
func (w *wire) readBody(ctx context.Context, r *exchange.Response) (err error) {
	if w.f.cfg.HeaderTimeout < w.f.cfg.Timeout {
		if err := w.raw.SetReadDeadline(w.deadline); err != nil {
			return err
		}
	}
	r.Body = []byte{}
	length := w.res.ContentLength()
	if length == 0 || r.Status == 204 || r.Status == 205 {
		return nil
	}
	return w.keepBody(ctx, r, length)
}

// keepBody reads and decodes the body and keeps it in the Response. length is fasthttp's ContentLength.
func (w *wire) keepBody(ctx context.Context, r *exchange.Response, length int) (err error) {
	doubtful := false
	if w.codings, doubtful, err = contentCodings(w.codings[:0], w.fields); err != nil {
		r.Body = nil
		return err
	}
	if w.replay.decoded {
		w.codings = w.codings[:0]
	}
	w.shrink()
	w.body = frame(w.br, length)
	m := w.f.memory
	body, cut, err := m.collect(ctx, &w.body, w.f.cfg.MaxBody, w.deadline)
	if w.replay.end != nil {
		cut, err = w.replay.ended(cut, err)
	}
	if w.brokeOff(err) {
		w.lost = err
	}
	if (err == nil || w.lost != nil) && len(w.codings) > 0 && len(body) > 0 {
		proven := false
		body, cut, proven, err = w.f.decode(ctx, body, w.codings, cut, w.deadline)
		switch {
		case w.lost != nil && !proven:
			err = w.lost
		case err == errEndsEarly:
			// If the connection's end is the body's, only the coding shows that it came too early.
			err = protocolError(exchange.CauseCorruptCoding)
			if w.body.kind == byClose {
				err = protocolError(exchange.CauseClosedInBody)
			}
		}
	}
	if err == nil && doubtful && (!text(body) || beginsChunk(body)) {
		err = protocolError(exchange.CauseUnknownCoding)
	}
	if err != nil {
		m.Recycle(body)
		r.Body = nil
		return err
	}
	if cut {
		r.CutAt = len(body)
		body = WholeLines(body)
	}
	r.Body, r.BodyFrom, r.Truncated = body, m, cut
	return nil
}

// brokeOff reports whether a body's error says that the connection ended, or fell silent, before the announced end. The
// bytes before it may still be the complete body.
func (w *wire) brokeOff(err error) bool {
	if err == nil {
		return false
	}
	switch _, cause := classify(readingBody, err); cause {
	case exchange.CauseClosedInBody, exchange.CauseResetBody, exchange.CauseBodyTimeout:
		return true
	}
	return false
}
