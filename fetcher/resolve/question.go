package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"time"

	"github.com/miekg/dns"

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

// withEDNS puts EDNS into the packet or takes it out. The bytes that answers are held against stay what they are.
func (c *call) withEDNS(yes bool) {
	c.edns = yes
	c.packet = c.packet[:headerSize+len(c.question)]
	c.packet[11] = 0 // the number of additional records
	if yes {
		c.packet = c.packet[:len(c.packet)+optSize]
		c.packet[11] = 1
	}
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

// question asks the servers one question, each in turn, until one answers it, all refuse to, or the look-up's time is up.
// Where there is no message, the cause is what they said, with the server that said it last; else that they were out of reach
// all the time, and otherwise that no answer came in time.
func (r *Resolver) question(ctx context.Context, l *lookup, name string, qtype uint16) (*dns.Msg, *server, exchange.Cause) {
	c := r.calls.Get().(*call)
	defer r.calls.Put(c)
	defer c.end()
	if c.put(name, qtype) != nil {
		return nil, nil, exchange.CauseNoSuchName
	}
	var (
		n              = len(r.servers)
		at             = r.first()
		wait           = r.opts.First
		crowded        = r.crowded() // and not asked
		unable, absent servers       // those that have refused, and those that are out of reach for the moment
		asked, plain   servers       // those that were asked at all, and those that were without EDNS
		silent         bool          // one was asked, and has not answered
		allRefused     bool          // each has, once
		refused        refusal       // the last
		final          bool          // it will be believed
	)
	if crowded.has(at) {
		at = crowded.next(at, n)
	}
	for range maxSendings {
		s := r.servers[at]
		came, err := c.turn(ctx, l, s)
		sent := time.Now()
		if err == nil && !came {
			// A repetition goes without EDNS, which may be why no answer came.
			c.withEDNS(!asked.has(at) && s.edns.Load() != ednsFails)
			asked.add(at)
			if !c.edns {
				plain.add(at)
			}
			err = s.send(c)
			l.asked()
		}
		again := sent.Add(wait)
		for waiting := true; waiting; {
			waiting = false
			var m *dns.Msg
			a := arrival{server: s}
			if err == nil {
				m, a, err = r.await(ctx, l, c, again)
			}
			switch {
			case ctx.Err() != nil:
				return nil, nil, exchange.CauseDNSTimeout
			case err == nil && (m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError):
				a.server.learn(r.log, a.edns, 1)
				if refused.by != nil {
					refused.by.revoked(r.log, refused.sent)
				}
				return m, a.server, 0
			case err == nil && a.edns && a.server.disputesEDNS(m.Rcode):
				if waiting = plain.has(a.server.index); !waiting {
					at, wait = a.server.index, r.opts.First
				}
			case errors.Is(err, errInVain):
				if final && !refused.by.pacer.doubted() {
					return nil, refused.by, refused.cause
				}
				final = false
				if c.waits > 0 {
					silent = true
					s.inVain(r)
				}
				if wait += wait / 2; allRefused {
					unable = 0
				}
				absent = 0
				at = (unable | crowded).next(at, n)
				if crowded.has(at) {
					at = crowded.next(at, n)
				}
			case isTimeout(err): // of TCP, with the look-up's
				silent = true
			case err != nil && !errors.Is(err, errRefused):
				// Where nobody listens, or nothing leads, that may be so for a moment: a server starts anew, a cable is put
				// back. The others are asked at once, and when there is none left, all of them again at the time for that.
				a.server.inVain(r)
				absent.add(a.server.index)
				asked.remove(a.server.index) // it was not there to say anything about EDNS
				err, waiting = nil, (unable | absent | crowded).all(n)
				at = (unable | absent | crowded).next(at, n)
			default:
				// The others are asked at once, and when all have refused, all of them again later: what a server refuses
				// because it is asked too much, it answers then. What it refuses even then is the name's fault, unless it
				// is doubted by then, or soon, for what others that ask at that time hear.
				a.server.failures.Add(1)
				if refused.by == nil {
					a.server.refuses()
				}
				doubted := a.server.pacer.doubted()
				refused = refusal{a.server, sent, causeOf(m)}
				unable.add(a.server.index)
				if final = allRefused && !doubted; final {
					again = time.Now().Add(r.opts.First / believePart)
				} else if allRefused {
					crowded = 0
				}
				allRefused = allRefused || (unable | crowded).all(n)
				err, waiting = nil, final || (unable|absent|crowded).all(n)
				if waiting && !final && !doubted {
					again = time.Now().Add(r.opts.First / refusedPart)
				}
				at = (unable | absent | crowded).next(at, n)
			}
		}
		if l.over() {
			break
		}
	}
	switch {
	case l.patient && refused.by != nil && (allRefused || !silent):
		return nil, refused.by, refused.cause
	case silent || !l.patient:
		return nil, nil, exchange.CauseDNSTimeout
	}
	return nil, nil, exchange.CauseDNSNetwork
}

// refusal is that a server has said that it cannot answer.
type refusal struct {
	by    *server
	sent  time.Time // when the last question before it was
	cause exchange.Cause
}

// Parts of the first wait: after the one a name is asked again that a server in good repute has refused, after the other
// its second refusal is believed.
const (
	refusedPart = 4
	believePart = 8
)

// errRefused stands for an answer that is none: one that does not unpack, or what a server has begun to say by TCP.
var errRefused = errors.New("no answer that can be read")

// causeOf is the cause of a server's answer that is none; without a message, of one that cannot be read.
func causeOf(m *dns.Msg) exchange.Cause {
	switch {
	case m == nil:
		return exchange.CauseDNSMalformed
	case m.Rcode == dns.RcodeRefused:
		return exchange.CauseDNSRefused
	case m.Rcode == dns.RcodeFormatError, m.Rcode == dns.RcodeNotImplemented, m.Rcode == dns.RcodeBadVers:
		return exchange.CauseDNSMalformed
	}
	return exchange.CauseServFail
}

// turn waits until another question may go to a server, by its rate. It reports whether something arrived before that.
func (c *call) turn(ctx context.Context, l *lookup, s *server) (came bool, err error) {
	if s.pacer.open.Load() {
		return false, ctx.Err()
	}
	began := time.Now()
	came, err = s.pacer.wait(ctx, c.timer, c.arrivals)
	// The look-up has all its time whatever our rate. How long it took is another matter: what was under way meanwhile
	// was under way.
	l.delay(time.Since(began), c.waits > 0)
	return came, err
}

// errInVain is that nothing has arrived in time.
var errInVain = errors.New("no answer in time")

// await returns the next message that arrives, of whichever sending, or how a sending failed. It waits until the next may go,
// or the look-up's time is up.
func (r *Resolver) await(ctx context.Context, l *lookup, c *call, again time.Time) (*dns.Msg, arrival, error) {
	c.timer.Reset(time.Until(l.until(again)))
	select {
	case a := <-c.arrivals:
		c.waits--
		if a.err != nil {
			return nil, a, a.err
		}
		a.server.hear(r.log)
		m, err := unpack(a.packet)
		if err == nil && m.Truncated {
			m, err = r.askTCP(ctx, l, c, a.server)
			a.edns = c.edns
		}
		return m, a, err
	case <-c.timer.C:
		return nil, arrival{}, errInVain
	case <-ctx.Done():
		return nil, arrival{}, ctx.Err()
	}
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
		return nil, errRefused
	}
	return m, nil
}

// askTCP asks a call's question by TCP, one question a connection (RFC 7766 §5), as far as the rate and the connections allow.
// Errors of a server that has begun to speak are errRefused.
func (r *Resolver) askTCP(ctx context.Context, l *lookup, c *call, s *server) (*dns.Msg, error) {
	began := time.Now()
	select {
	case r.tcp <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.tcp }()
	if _, err := s.pacer.wait(ctx, c.timer, nil); err != nil {
		return nil, err
	}
	l.delay(time.Since(began), false)
	s.questions.Add(1)
	s.tcp.Add(1)
	m, err := s.exchangeTCP(ctx, c, l.until(time.Now().Add(tcpTime)))
	switch {
	case err == nil:
		s.answers.Add(1)
	case isTimeout(err) && !l.over():
		err = errRefused // it speaks by UDP, and had its time by TCP
	}
	return m, err
}

func (s *server) exchangeTCP(ctx context.Context, c *call, deadline time.Time) (*dns.Msg, error) {
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.DialContext(ctx, "tcp", s.addr.String())
	if isTimeout(err) {
		return nil, err
	}
	if err != nil {
		return nil, errRefused // it listens by UDP
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stream := dns.Conn{Conn: conn}
	_, err = stream.Write(c.packet)
	var packet []byte
	if err == nil {
		packet, err = stream.ReadMsgHeader(nil)
	}
	if isTimeout(err) {
		return nil, err
	}
	if err != nil || len(packet) < headerSize || packet[0] != c.packet[0] || packet[1] != c.packet[1] || !answers(packet, c.question) {
		return nil, errRefused
	}
	m, err := unpack(packet)
	if err == nil && m.Truncated {
		return nil, errRefused
	}
	return m, err
}
