package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

const (
	// ednsSize is the largest answer that we ask for by UDP, in bytes: what passes every path whole (DNS flag day 2020).
	ednsSize   = 1232
	headerSize = 12
	optSize    = 11 // of the record that says so, without options (RFC 6891 §6.1.2)
	// tcpTime is what an answer that did not fit into a packet may take.
	tcpTime = 3 * time.Second
)

// A server is taken for down after so many waits in vain since its last answer, which is so many first waits ago at least. It
// is then asked by one question in so many, to see whether it answers again.
const (
	downAfter = 5
	downSince = 3
	probeOf   = 16
)

// health is what we think of a server.
type health struct {
	silent  atomic.Int32 // waits in vain since its last answer
	heard   atomic.Int64 // when that was, in nanoseconds since 1970; 0: it was never asked
	isDown  atomic.Bool
	limiter *rate.Limiter // nil: no limit
}

// traffic is what is counted of a server, see ServerStats.
type traffic struct {
	questions, answers, failures, unheard, tcp atomic.Uint64
}

// errMalformed stands for an answer that does not unpack.
var errMalformed = errors.New("malformed answer")

// causeOf says in the dataset's words why a server gave no answer.
func causeOf(err error) exchange.Cause {
	switch {
	case errors.Is(err, errMalformed):
		return exchange.CauseDNSMalformed
	case isTimeout(err):
		return exchange.CauseDNSTimeout
	}
	return exchange.CauseDNSNetwork
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// newCall returns a call without a question.
func newCall() *call {
	c := &call{arrivals: make(chan arrival, maxSendings), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.message.Question = make([]dns.Question, 1)
	c.message.RecursionDesired = true
	c.message.SetEdns0(ednsSize, false)
	return c
}

// put sets the call's question.
func (c *call) put(name string, qtype uint16) error {
	c.message.Question[0] = dns.Question{Name: name, Qtype: qtype, Qclass: dns.ClassINET}
	packet, err := c.message.PackBuffer(c.buf[:])
	if err != nil {
		return err
	}
	c.packet, c.question, c.edns = packet, packet[headerSize:len(packet)-optSize], true
	return nil
}

// plain takes EDNS out of the question. The bytes that answers are held against stay what they are.
func (c *call) plain() {
	c.packet, c.edns = c.packet[:len(c.packet)-optSize], false
	c.packet[10], c.packet[11] = 0, 0 // the number of additional records
}

// answers reports whether a packet is a response to a question, by what can be told before it is unpacked; that its id is
// right is known. A server that refuses may leave the question out.
func answers(packet, question []byte) bool {
	if packet[2]&0x80 == 0 || packet[2]>>3&0xf != dns.OpcodeQuery {
		return false
	}
	switch binary.BigEndian.Uint16(packet[4:]) {
	case 0:
		rcode := int(packet[3] & 0xf)
		return rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError
	case 1:
	default:
		return false
	}
	packet = packet[headerSize:]
	if len(packet) < len(question) {
		return false
	}
	// The name in any case, since some servers change it; type and class as they are. Lengths of labels are below 'A'.
	name := len(question) - 4
	for i, b := range question[:name] {
		if lower(packet[i]) != lower(b) {
			return false
		}
	}
	return string(packet[name:len(question)]) == string(question[name:])
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// first draws the server that a question begins with, by its index: any that is not down, and now and then one that is, to
// see whether it still is.
func (r *Resolver) first() int {
	lot, n := rand.IntN(probeOf*len(r.servers)), len(r.servers)
	first := lot % n
	if lot < n {
		return first
	}
	for i := range n {
		if at := (first + i) % n; !r.servers[at].isDown.Load() {
			return at
		}
	}
	return first
}

// question asks the servers one question, each in turn, until one answers it or the look-up's time is up. The cause is that
// of the last failure; 0 where there is a message.
func (r *Resolver) question(ctx context.Context, l *lookup, name string, qtype uint16) (*dns.Msg, *server, exchange.Cause) {
	c := r.calls.Get().(*call)
	defer r.calls.Put(c)
	defer c.end()
	if c.put(name, qtype) != nil {
		return nil, nil, exchange.CauseNoSuchName
	}
	cause, unable := exchange.CauseDNSTimeout, refusals(0)
	at, wait := r.first(), r.opts.First
	for range maxSendings {
		s := r.servers[at]
		at = unable.next(at, len(r.servers))
		came, err := c.turn(ctx, l, s)
		if err == nil && !came {
			err = s.send(c)
		}
		again := time.Now().Add(wait)
		wait += wait / 2
		var m *dns.Msg
		var from *server
		if err == nil {
			m, from, err = r.await(ctx, l, c, again)
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil, exchange.CauseDNSTimeout
		case err == nil && (m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError):
			return m, from, 0
		case err == nil && c.edns && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeBadVers):
			c.plain() // a server older than EDNS (RFC 6891 §7)
			at, wait = from.index, r.opts.First
			continue
		case err == nil:
			cause = failureOf(m.Rcode)
		case errors.Is(err, errInVain):
			s.inVain(r.log, r.opts.First)
			if l.over() {
				return nil, nil, cause
			}
			continue
		default:
			cause = causeOf(err)
		}
		if from == nil {
			from = s
		}
		// Who says that it cannot will say so again, and is not asked again as long as others may know; one alone is, once.
		// Where nobody listens, that may be so for a moment only.
		alone, twice := len(r.servers) == 1, unable != 0
		unable |= 1 << from.index
		if alone && twice || !alone && unable.all(len(r.servers)) {
			return nil, nil, cause
		}
		if alone && cause == exchange.CauseDNSNetwork && !l.sleep(ctx, again) {
			return nil, nil, cause
		}
		at = unable.next(from.index, len(r.servers))
	}
	return nil, nil, cause
}

// refusals are the servers, a bit each, that have said in a look-up that they cannot answer.
type refusals uint64

// maxServers is how many servers there may be.
const maxServers = 64

// all reports whether each of n servers has said so.
func (f refusals) all(n int) bool { return bits.OnesCount64(uint64(f)) == n }

// next returns the server behind the one at i, of those that may still answer; i itself where there is no other.
func (f refusals) next(i, n int) int {
	for range n {
		if i = (i + 1) % n; f&(1<<i) == 0 {
			break
		}
	}
	return i
}

// failureOf is the cause that a server's code stands for.
func failureOf(rcode int) exchange.Cause {
	switch rcode {
	case dns.RcodeRefused:
		return exchange.CauseDNSRefused
	case dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeBadVers:
		return exchange.CauseDNSMalformed
	}
	return exchange.CauseServFail
}

// turn waits until another question may go to a server, by its rate. It reports whether something arrived before that.
func (c *call) turn(ctx context.Context, l *lookup, s *server) (came bool, err error) {
	if s.limiter == nil {
		return false, ctx.Err()
	}
	place := s.limiter.Reserve()
	delay := place.Delay()
	if delay == 0 {
		return false, ctx.Err()
	}
	began := time.Now()
	c.timer.Reset(delay)
	select {
	case a := <-c.arrivals:
		c.arrivals <- a
		came = true
	case <-c.timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if came || err != nil {
		place.Cancel()
	}
	l.delay(time.Since(began))
	return came, err
}

// errInVain is that nothing has arrived in time.
var errInVain = errors.New("no answer in time")

// await returns the next message that arrives, of whichever sending, or how a sending failed. It waits until the next may go,
// or the look-up's time is up.
func (r *Resolver) await(ctx context.Context, l *lookup, c *call, again time.Time) (*dns.Msg, *server, error) {
	c.timer.Reset(time.Until(l.until(again)))
	select {
	case a := <-c.arrivals:
		if a.err != nil {
			return nil, a.server, a.err
		}
		a.server.hear(r.log)
		m, err := r.open(ctx, l, c, a)
		if err != nil || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
			a.server.failures.Add(1)
		}
		return m, a.server, err
	case <-c.timer.C:
		return nil, nil, errInVain
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// open unpacks an answer, and asks by TCP where it was truncated (RFC 7766 §5).
func (r *Resolver) open(ctx context.Context, l *lookup, c *call, a arrival) (*dns.Msg, error) {
	m, err := unpack(a.packet)
	if err == nil && m.Truncated {
		return r.askTCP(ctx, l, c, a.server)
	}
	return m, err
}

// unpack reads a packet of a header at least. One that was truncated need not be whole; another one must have as many
// records as it says, since one that breaks off between two of them would pass for an answer that has fewer.
func unpack(packet []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	err := m.Unpack(packet)
	count := func(at int) int { return int(binary.BigEndian.Uint16(packet[at:])) }
	switch {
	case m.Truncated:
		return m, nil
	case err != nil || len(m.Answer) != count(6) || len(m.Ns) != count(8) || len(m.Extra) != count(10):
		return nil, errMalformed
	}
	return m, nil
}

// hear takes note that a server answers.
func (s *server) hear(log *slog.Logger) {
	s.answers.Add(1)
	s.silent.Store(0)
	s.heard.Store(time.Now().UnixNano())
	if s.isDown.Load() && s.isDown.CompareAndSwap(true, false) {
		log.Info("name server answers again", "server", s.addr)
	}
}

// inVain takes note that a server has left a question without an answer for as long as we wait.
func (s *server) inVain(log *slog.Logger, first time.Duration) {
	if silent := s.silent.Add(1); silent >= downAfter && time.Now().UnixNano()-s.heard.Load() >= int64(downSince*first) {
		if s.isDown.CompareAndSwap(false, true) {
			log.Warn("name server does not answer", "server", s.addr, "questions", silent)
		}
	}
}

// askTCP asks a call's question by TCP, one question a connection.
func (r *Resolver) askTCP(ctx context.Context, l *lookup, c *call, s *server) (*dns.Msg, error) {
	deadline := l.until(time.Now().Add(tcpTime))
	select {
	case r.tcp <- struct{}{}:
		defer func() { <-r.tcp }()
	default:
		c.timer.Reset(time.Until(deadline))
		select {
		case r.tcp <- struct{}{}:
			defer func() { <-r.tcp }()
		case <-c.timer.C:
			return nil, os.ErrDeadlineExceeded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.questions.Add(1)
	s.tcp.Add(1)
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.DialContext(ctx, "tcp", s.addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stream := dns.Conn{Conn: conn}
	if _, err := stream.Write(c.packet); err != nil {
		return nil, err
	}
	packet, err := stream.ReadMsgHeader(nil)
	if err != nil {
		return nil, err
	}
	if len(packet) < headerSize || packet[0] != c.packet[0] || packet[1] != c.packet[1] || !answers(packet, c.question) {
		return nil, errMalformed
	}
	s.answers.Add(1)
	m, err := unpack(packet)
	if err == nil && m.Truncated {
		return nil, errMalformed
	}
	return m, err
}
