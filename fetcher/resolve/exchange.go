package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

const (
	// ednsSize is the largest answer that we ask for by UDP, in bytes: what passes every path whole (DNS flag day 2020).
	ednsSize = 1232
)

// server is one name server.
type server struct {
	addr    netip.AddrPort
	silent  atomic.Int32 // questions in vain since its last answer
	sockets *sockets
	idle    []*socket // connected to it, and waiting for their next question; guarded by sockets.mu
}

// socket is a connected UDP socket: the kernel drops what comes from anybody but the server.
type socket struct {
	conn net.Conn
	used int
	buf  [4096]byte
}

// errMalformed stands for an answer that does not unpack.
var errMalformed = errors.New("malformed answer")

// causeOf says in the dataset's words why a server gave no answer.
func causeOf(err error) exchange.Cause {
	var n net.Error
	switch {
	case errors.Is(err, errMalformed):
		return exchange.CauseDNSMalformed
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &n) && n.Timeout():
		return exchange.CauseDNSTimeout
	}
	return exchange.CauseDNSNetwork
}

// ask sends one question and returns the answer to it, whatever its code: by UDP, and by TCP where it was truncated
// (RFC 7766 §5). The caller has entered sockets.
func (s *server) ask(ctx context.Context, name string, qtype uint16, deadline time.Time) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype) // with a random id
	q.SetEdns0(ednsSize, false)
	m, err := s.askUDP(ctx, q, deadline)
	if err == nil && m.Rcode == dns.RcodeFormatError {
		// A server older than EDNS (RFC 6891 §7).
		q.Extra = nil
		m, err = s.askUDP(ctx, q, deadline)
	}
	if err != nil || !m.Truncated {
		return m, err
	}
	return s.askTCP(ctx, q, deadline)
}

func (s *server) askUDP(ctx context.Context, q *dns.Msg, deadline time.Time) (*dns.Msg, error) {
	k, err := s.sockets.take(ctx, s)
	if err != nil {
		return nil, err
	}
	m, err := k.ask(ctx, q, deadline)
	if err != nil {
		s.sockets.drop(k.conn)
		return nil, err
	}
	s.sockets.put(s, k)
	return m, nil
}

// ask sends q and waits for its answer until the deadline. Whatever else arrives is passed over: an answer to an earlier
// question of this socket, or a forgery, must not end the wait for the right one.
func (k *socket) ask(ctx context.Context, q *dns.Msg, deadline time.Time) (*dns.Msg, error) {
	k.used++
	packet, err := q.PackBuffer(k.buf[:])
	if err != nil {
		return nil, err
	}
	if err := k.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = k.conn.Close() })
	defer func() {
		if !stop() {
			k.used = questionsPerSocket // it is closed, or about to be
		}
	}()
	if _, err := k.conn.Write(packet); err != nil {
		return nil, err
	}
	for {
		n, err := k.conn.Read(k.buf[:])
		if err != nil {
			return nil, err
		}
		if !answers(k.buf[:n], q.Id) {
			continue
		}
		m := new(dns.Msg)
		if m.Unpack(k.buf[:n]) != nil && !m.Truncated {
			return nil, errMalformed
		}
		if !sameQuestion(m, q) {
			continue
		}
		return m, nil
	}
}

// answers reports whether a packet is a response with the id: what can be told before it is unpacked.
func answers(packet []byte, id uint16) bool {
	return len(packet) >= 12 && packet[0] == byte(id>>8) && packet[1] == byte(id) && packet[2]&0x80 != 0
}

// sameQuestion reports whether m answers q. Servers that refuse may leave the question out.
func sameQuestion(m, q *dns.Msg) bool {
	if len(m.Question) == 0 {
		return m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError
	}
	a, b := m.Question[0], q.Question[0]
	return len(m.Question) == 1 && a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// askTCP asks by TCP, one question a connection.
func (s *server) askTCP(ctx context.Context, q *dns.Msg, deadline time.Time) (*dns.Msg, error) {
	conn, err := s.sockets.dial(ctx, &net.Dialer{Deadline: deadline}, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	defer s.sockets.drop(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c := dns.Conn{Conn: conn}
	if err := c.WriteMsg(q); err != nil {
		return nil, err
	}
	packet, err := c.ReadMsgHeader(nil)
	if err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if !answers(packet, q.Id) || m.Unpack(packet) != nil || !sameQuestion(m, q) {
		return nil, errMalformed
	}
	return m, nil
}
