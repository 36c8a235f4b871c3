package fetcher

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/textproto"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// maxReplies bounds what an FTP server may say on its control connection in one exchange, in bytes.
const maxReplies = 64 << 10

// runFTP fetches an origin's file by FTP: anonymous login, passive mode. An FTP reply becomes the HTTP status that
// counts the same: 200 where the file came, 404 for 550, 503 for what the server calls transient, 500 for all else.
//
// FTP sends a file over a second connection, to the same address. Both are one exchange, which takes one token of each
// rate: rates bound how often a server is asked, and it is the server that asks for the second connection.
func (w *wire) runFTP(ctx context.Context, x *exchange.Exchange) (at stage, err error) {
	at = connecting
	// The client library slices some replies without looking; a hostile one must not end the process.
	defer func() {
		if recover() != nil {
			err = protocolError(exchange.CauseOther)
		}
	}()
	r := x.Response
	began := time.Now()
	session := &ftpSession{w: w, ctx: ctx, remote: r.Remote}
	defer session.close()
	client, err := ftp.Dial(r.Remote.String(), ftp.DialWithDialFunc(session.dial), ftp.DialWithDisabledUTF8(true), ftp.DialWithDisabledMLSD(true))
	if session.control != nil {
		at = readingHead
		r.Timing.Connect = session.connected.Sub(began)
		r.Timing.TTFB = time.Since(session.connected)
	}
	if err != nil {
		return at, ftpStatus(r, err)
	}
	// By convention the password says who is asking.
	if err := client.Login("anonymous", w.f.cfg.UserAgent); err != nil {
		return at, ftpStatus(r, err)
	}
	file, err := client.Retr(pathOf(x.Target)[1:])
	if err != nil {
		return at, ftpStatus(r, err)
	}
	at = readingBody
	m := w.f.memory
	body, cut, err := m.collect(ctx, file, w.f.cfg.MaxBody, w.deadline)
	if err == nil && !cut {
		// A transfer that the server gave up ends like one that is whole; only its last reply tells.
		if err = file.Close(); err != nil {
			var refused *textproto.Error
			switch {
			case errors.As(err, &refused) && refused.Code/100 == 2:
				err = nil // RFC 959 §5.4 has 226 and 250; the library knows the first
			case refused != nil:
				err = io.ErrUnexpectedEOF
			}
		}
	}
	if err != nil {
		m.Recycle(body)
		return at, err
	}
	if cut {
		body = WholeLines(body)
	}
	r.Status = 200
	r.Body, r.BodyFrom, r.Truncated = body, m, cut
	w.complete = true
	return 0, nil
}

// ftpStatus makes an error that is a server's reply the Response's status, and returns any other.
func ftpStatus(r *exchange.Response, err error) error {
	var own protocolError
	var network net.Error
	var malformed textproto.ProtocolError
	switch {
	case errors.As(err, &own), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &malformed):
		return protocolError(exchange.CauseOther)
	}
	r.Status = 500
	var reply *textproto.Error
	if errors.As(err, &reply) {
		switch {
		case reply.Code == ftp.StatusFileUnavailable:
			r.Status = 404
		case reply.Code >= 400 && reply.Code <= 499: // RFC 959 §4.2: a transient negative reply
			r.Status = 503
		}
	}
	return nil
}

// ftpSession is the connections of one FTP exchange. All end at the exchange's deadline, and with its context.
type ftpSession struct {
	w         *wire
	ctx       context.Context
	remote    netip.AddrPort
	control   net.Conn
	connected time.Time
	conns     []net.Conn
	data      int // data connections that it may have open
	stops     []func() bool
}

// dial connects the control connection, then the data connection, once there is a file for it: to the same address,
// whatever a reply says, since no other has passed the guard.
func (s *ftpSession) dial(_, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || to.Port() == 0 {
		return nil, protocolError(exchange.CauseOther)
	}
	if to.Addr().Unmap() != s.remote.Addr() {
		return nil, protocolError(exchange.CausePrivateAddress)
	}
	if s.control != nil {
		s.w.patience = 0 // the host has spoken
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
	if err := conn.SetDeadline(s.w.listen(s.w.deadline)); err != nil {
		return nil, err
	}
	if s.control != nil {
		return conn, nil
	}
	s.control, s.connected, s.w.raw = conn, time.Now(), conn
	return &bounded{Conn: conn, left: maxReplies, w: s.w}, nil
}

// enterData waits for one of the data connections that may be open at once.
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

// bounded is a connection that stops reading after so many bytes.
type bounded struct {
	net.Conn
	left int
	w    *wire // is told of what comes
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, protocolError(exchange.CauseHeadTooLarge)
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	if n > 0 {
		if err := b.w.heard(); err != nil {
			return n, err
		}
	}
	return n, err
}
