package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

const (
	// ednsSize is the largest answer accepted by UDP, in bytes: it passes every path without fragmentation (DNS flag
	// day 2020).
	ednsSize   = 1232
	headerSize = 12
	optSize    = 11              // of the OPT record without options (RFC 6891 §6.1.2)
	tcpTime    = 3 * time.Second // bound of a repetition by TCP, after a truncated answer
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

// put sets the call's question, with EDNS.
func (c *call) put(name string, qtype uint16) error {
	c.message.Question[0] = dns.Question{Name: name, Qtype: qtype, Qclass: dns.ClassINET}
	packet, err := c.message.PackBuffer(c.buf[:])
	if err != nil {
		return err
	}
	c.packet, c.question, c.edns = packet, packet[headerSize:len(packet)-optSize], true
	return nil
}

// withEDNS adds EDNS to the packet or removes it. c.question does not change.
func (c *call) withEDNS(yes bool) {
	c.edns = yes
	c.packet = c.packet[:headerSize+len(c.question)]
	c.packet[11] = 0 // the number of additional records
	if yes {
		c.packet = c.packet[:len(c.packet)+optSize]
		c.packet[11] = 1
	}
}

// answers reports whether a packet with the right id is a response to a question, without unpacking it. A refusal may
// lack the question.
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
	// The name may differ in case, because some servers change it; type and class may not. Lengths of labels are
	// below 'A'.
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

// question asks one server after the other, until one answers, all refuse, or the look-up's time is up. Without a
// message it returns the cause of the last refusal. If none refused, the cause says whether all servers were
// unreachable all the time, or no answer came in time.
func (r *Resolver) question(ctx context.Context, l *lookup, name string, qtype uint16) (*dns.Msg, exchange.Cause) {
	c := l.first
	if l.first = nil; c == nil {
		c = r.calls.Get().(*call)
	}
	defer r.calls.Put(c)
	defer c.end()
	if c.server == nil && c.put(name, qtype) != nil {
		return nil, exchange.CauseNoSuchName
	}
	var (
		n              = len(r.servers)
		crowded        = r.crowded() // not asked
		at             = r.first(crowded)
		wait           = r.opts.First
		unable, absent servers // that refused, and that are unreachable for the moment
		asked, plain   servers // that were asked, and that were asked without EDNS
		silent         bool    // a server was asked and did not answer
		allRefused     bool    // each server has refused once
		refused        refusal // the last
		final          bool    // the last refusal will be believed
	)
	if c.server != nil {
		at = c.server.index
	}
	for range maxSendings {
		s := r.servers[at]
		// A repetition goes without EDNS, which may be the reason for the silence.
		sent, came, err := c.ask(ctx, l, s, !asked.has(at) && s.edns.Load() != ednsFails)
		if !came {
			asked.add(at)
			if !c.edns {
				plain.add(at)
			}
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
				return nil, exchange.CauseDNSTimeout
			case err == nil && (m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError):
				a.server.learn(r.log, a.edns, 1)
				if refused.by != nil {
					refused.by.revoked(r.log, refused.sent)
				}
				return m, 0
			case err == nil && a.edns && a.server.disputesEDNS(m.Rcode):
				if waiting = plain.has(a.server.index); !waiting {
					at, wait = a.server.index, r.opts.First
				}
			case errors.Is(err, errInVain):
				if final && !refused.by.pacer.doubted() {
					return nil, refused.cause
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
			case isTimeout(err): // of TCP, at the end of the look-up's time
				silent = true
			case err != nil && !errors.Is(err, errRefused):
				// A server may be unreachable only for a moment, as while it restarts. The other servers get the question at once.
				// When no server is left, all get the question again after the wait.
				a.server.inVain(r)
				absent.add(a.server.index)
				asked.remove(a.server.index) // its silence says nothing about EDNS
				err, waiting = nil, (unable | absent | crowded).all(n)
				at = (unable | absent | crowded).next(at, n)
			default:
				// After a refusal the other servers get the question at once. When all have refused, all get it again
				// later, since a server that refused for the rate answers then. A second refusal is due to the name,
				// unless the server is doubted by then. It counts only after a short wait: other look-ups may show
				// meanwhile that the server refuses for the rate.
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
	case refused.by != nil && (allRefused || !silent):
		return nil, refused.cause
	case silent:
		return nil, exchange.CauseDNSTimeout
	}
	return nil, exchange.CauseDNSNetwork
}

// refusal is a server's answer that it cannot answer.
type refusal struct {
	by    *server
	sent  time.Time // when the last question before it was sent
	cause exchange.Cause
}

// Parts of Options.First. A name that an undoubted server refused is asked again after First/refusedPart. Its second
// refusal is believed after First/believePart.
const (
	refusedPart = 4
	believePart = 8
)

// errRefused means that an answer cannot be read: it does not unpack, or its transfer by TCP failed.
var errRefused = errors.New("no answer that can be read")

// causeOf returns the cause of a refusal; a nil message could not be read.
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

// ask sends the question to a server in its turn, unless a batch has sent it. came reports that something arrived
// before.
func (c *call) ask(ctx context.Context, l *lookup, s *server, edns bool) (sent time.Time, came bool, err error) {
	if c.server != nil {
		c.server = nil
		return c.sent, false, nil
	}
	came, err = c.turn(ctx, l, s)
	sent = time.Now()
	if err == nil && !came {
		c.withEDNS(edns)
		err = s.send(c)
		l.asked = true
	}
	return sent, came, err
}

// turn waits until the server's rate allows another question. came reports that something arrived before.
func (c *call) turn(ctx context.Context, l *lookup, s *server) (came bool, err error) {
	if s.pacer.open.Load() {
		return false, ctx.Err()
	}
	began := time.Now()
	came, err = s.pacer.wait(ctx, c.timer, c.arrivals, 1)
	// Waits for the rate extend the deadline. They count in Took only if a question was in flight meanwhile.
	l.delay(time.Since(began), c.waits > 0)
	return came, err
}

// errInVain means that nothing arrived in time.
var errInVain = errors.New("no answer in time")

// await returns the next arrival of any sending: a message, or the sending's error. It waits until again, or until
// the look-up's time is up.
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

// unpack unpacks a packet that has a header at least. Unless it was truncated, it must have as many records as its
// header announces. Otherwise a packet cut between two records would pass for an answer with fewer.
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

// askTCP asks a call's question by TCP, one question a connection (RFC 7766 §5). It waits for a free connection and
// for the rate. Any failure other than the end of the look-up's time, or of ctx, is errRefused.
func (r *Resolver) askTCP(ctx context.Context, l *lookup, c *call, s *server) (*dns.Msg, error) {
	began := time.Now()
	select {
	case r.tcp <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.tcp }()
	if _, err := s.pacer.wait(ctx, c.timer, nil, 1); err != nil {
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
		err = errRefused // the server answers by UDP, but not by TCP within tcpTime
	}
	return m, err
}

func (s *server) exchangeTCP(ctx context.Context, c *call, deadline time.Time) (*dns.Msg, error) {
	dialing, cancel := context.WithDeadline(ctx, deadline)
	conn, err := s.network.DialContext(dialing, "tcp", s.addr.String())
	cancel()
	if isTimeout(err) {
		return nil, err
	}
	if err != nil {
		return nil, errRefused // the server is reachable by UDP
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
	if err != nil || len(packet) < headerSize || packet[0] != c.packet[0] || packet[1] != c.packet[1] ||
		!answers(packet, c.question) {
		return nil, errRefused
	}
	m, err := unpack(packet)
	if err == nil && m.Truncated {
		return nil, errRefused
	}
	return m, err
}
