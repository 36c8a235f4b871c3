package fetcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/textproto"
	"runtime"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// maxReplies bounds the bytes that an FTP server may send on the control connection of one exchange.
const maxReplies = 64 << 10

// runFTP fetches an origin's file by FTP: anonymous login, passive mode. An FTP reply becomes the equivalent HTTP
// status: 200 for a received file, 404 for a 550 about the file, 503 for a transient refusal, 500 for any other
// refusal. A malformed reply, or one that FTP does not allow at that point, is a failure.
//
// FTP sends a file over a second connection to the same address. Both connections are one exchange and take one token
// of each rate: the server itself requests the second connection.
func (w *wire) runFTP(ctx context.Context, x *exchange.Exchange) (at stage, err error) {
	at = connecting
	// The client library slices some replies without a bounds check. A hostile reply must not end the process. Any
	// other panic is a bug of ours.
	defer func() {
		if cause := recover(); cause != nil {
			if !panickedIn("github.com/jlaffaye/ftp.") {
				panic(cause)
			}
			err = protocolError(exchange.CauseOther)
		}
	}()
	r := x.Response
	began := time.Now()
	session := &ftpSession{w: w, ctx: ctx, remote: r.Remote}
	defer session.close()
	client, err := ftp.Dial(r.Remote.String(), ftp.DialWithDialFunc(session.dial), ftp.DialWithDisabledUTF8(true),
		ftp.DialWithDisabledMLSD(true))
	if session.control != nil {
		at = readingHead
		r.Timing.Connect = session.connected.Sub(began)
		r.Timing.TTFB = time.Since(session.connected)
	}
	if err != nil {
		return at, session.refusal(r, err)
	}
	// By convention the password identifies the client.
	if err := client.Login("anonymous", w.f.cfg.UserAgent); err != nil {
		return at, session.refusal(r, err)
	}
	session.passive = true
	file, err := client.Retr(pathOf(x.Target)[1:])
	if err != nil {
		return at, session.refusal(r, err)
	}
	at = readingBody
	m := w.f.memory
	body, cut, err := m.collect(ctx, file, w.f.cfg.MaxBody, w.deadline)
	if err == nil && !cut {
		// An aborted transfer ends like a complete one. Only the server's last reply distinguishes them.
		if err = file.Close(); err != nil {
			var refused *textproto.Error
			switch {
			case errors.As(err, &refused) && refused.Code/100 == 2:
				err = nil // RFC 959 §5.4 allows 226 and 250; the library accepts only 226
			case refused != nil && refused.Code == ftp.StatusFileUnavailable && len(body) == 0:
				m.Recycle(body)
				r.Status, w.complete = 404, true // some servers announce a file before they look for it
				return 0, nil
			case refused != nil:
				err = io.ErrUnexpectedEOF
			case session.ended != nil:
				err = session.ended
			}
		}
	}
	if err != nil {
		m.Recycle(body)
		return at, err
	}
	if cut {
		r.CutAt = len(body)
		body = WholeLines(body)
	}
	r.Status = 200
	r.Body, r.BodyFrom, r.Truncated = body, m, cut
	w.complete = true
	return 0, nil
}

// panickedIn reports whether the panicking function is in a package. A deferred function calls it after recover.
func panickedIn(prefix string) bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for panicking := false; ; {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(frame.Function, "runtime."):
			return strings.HasPrefix(frame.Function, prefix)
		}
		if !more {
			return false
		}
	}
}

// refusal turns an error that is a server's reply into the Response's status, and returns any other error.
func (s *ftpSession) refusal(r *exchange.Response, err error) error {
	var own protocolError
	var network net.Error
	var malformed textproto.ProtocolError
	switch {
	case s.ended != nil: // the client library may return another error then
		return s.ended
	case errors.As(err, &own), errors.As(err, &network), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &malformed):
		return protocolError(exchange.CauseOther)
	}
	code := s.reply
	var reply *textproto.Error
	if errors.As(err, &reply) {
		code = reply.Code
	} else if s.passive && code/100 == 2 {
		// The reply to PASV names no valid address.
		return protocolError(exchange.CauseOther)
	}
	switch {
	case code == ftp.StatusFileUnavailable && s.transfer:
		r.Status = 404
	case code/100 == 4: // RFC 959 §4.2: a transient negative reply
		r.Status = 503
	default:
		r.Status = 500
	}
	return nil
}

// ftpSession holds the connections of one FTP exchange. All end at the exchange's deadline, and with its context.
type ftpSession struct {
	w         *wire
	ctx       context.Context
	remote    netip.AddrPort
	control   net.Conn
	connected time.Time
	conns     []net.Conn
	data      int // elements of ftpData held
	stops     []func() bool
	ended     error // the read error of the control connection
	reply     int   // the code of the last reply; the client library does not return each
	passive   bool  // the login is done
	transfer  bool  // the data connection is established: replies are about the file
}

// The first call of dial makes the control connection, the second the data connection, after a wait for ftpData. Both
// go to the same address, because no address in a reply has passed the guard.
func (s *ftpSession) dial(_, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || to.Port() == 0 {
		return nil, protocolError(exchange.CauseOther)
	}
	if to.Addr().Unmap() != s.remote.Addr() {
		return nil, protocolError(exchange.CausePrivateAddress)
	}
	if s.control != nil {
		s.w.connectFor = s.w.f.cfg.ConnectTimeout
		if err := s.enterData(); err != nil {
			return nil, err
		}
	}
	conn, stop, err := s.w.connect(s.ctx, to)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, conn)
	s.stops = append(s.stops, stop)
	if err := conn.SetDeadline(s.w.deadline); err != nil {
		return nil, err
	}
	if s.control != nil {
		s.transfer = true
		return conn, nil
	}
	s.control, s.connected, s.w.raw = conn, time.Now(), conn
	return &replies{Conn: conn, left: maxReplies, s: s}, nil
}

// enterData waits until another data connection may be opened; see Config.FTPData.
func (s *ftpSession) enterData() error {
	late := time.NewTimer(time.Until(s.w.deadline))
	defer late.Stop()
	select {
	case s.w.f.ftpData <- struct{}{}:
		s.data++
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-late.C:
		return protocolError(exchange.CauseNoLocalResource)
	}
}

func (s *ftpSession) close() {
	for _, stop := range s.stops {
		stop()
	}
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	for range s.data {
		<-s.w.f.ftpData
	}
}

// replies is a control connection. It bounds the received bytes and returns one line at a time. So the session's
// reply is the code of the last line read, even if the server has sent more lines.
type replies struct {
	net.Conn
	s       *ftpSession
	left    int // bytes that may still be received
	buf     [512]byte
	pending []byte  // received and not yet returned; in buf
	begin   [3]byte // of the line
	at      int     // bytes of the line
}

// Read implements io.Reader.
func (r *replies) Read(p []byte) (int, error) {
	if len(r.pending) == 0 {
		if err := r.receive(); err != nil {
			r.s.ended = err
			return 0, err
		}
	}
	line := r.pending
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i+1]
	}
	n := copy(p, line)
	r.pending = r.pending[n:]
	for _, c := range p[:n] {
		if c == '\n' {
			r.at = 0
			continue
		}
		if r.at < len(r.begin) {
			r.begin[r.at] = c
		}
		if r.at++; r.at == len(r.begin) {
			if a, b, c := r.begin[0], r.begin[1], r.begin[2]; digit(a) && digit(b) && digit(c) {
				r.s.reply = int(a-'0')*100 + int(b-'0')*10 + int(c-'0')
			}
		}
	}
	return n, nil
}

// receive reads the server's next bytes into buf. An error that comes with bytes is left to the next read.
func (r *replies) receive() error {
	if r.left <= 0 {
		return protocolError(exchange.CauseHeadTooLarge)
	}
	n, err := readSome(r.Conn, r.buf[:min(len(r.buf), r.left)])
	if n == 0 {
		return err
	}
	r.left -= n
	r.pending = r.buf[:n]
	return nil
}
