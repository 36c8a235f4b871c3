package resolve

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// scripted is a name server of UDP and TCP. Its script determines each byte of an answer, unlike a library's server.
type scripted struct {
	addr     string
	packets  net.PacketConn
	listener net.Listener
	script   script
	done     chan struct{} // closed when the test ends

	mu    sync.Mutex
	asked map[string]int
	ids   map[uint16]bool // of all questions so far
}

// script answers one question. The scripts of several questions run concurrently.
type script func(*query)

// query is one question as it reached the server.
type query struct {
	*dns.Msg
	nth    int    // counts questions of the same name, type and transport, from 1
	tcp    bool   // by TCP, not UDP
	packet []byte // as received
	server *scripted
	from   net.Addr
	conn   net.Conn // of TCP; closed when the script ends
}

// serve runs a name server at a socket and a listener, which have the same address, until the test ends.
func serve(tb testing.TB, packets net.PacketConn, listener net.Listener, script script) *scripted {
	tb.Helper()
	s := &scripted{addr: packets.LocalAddr().String(), packets: packets, listener: listener, script: script,
		done: make(chan struct{}), asked: map[string]int{}, ids: map[uint16]bool{}}
	var running sync.WaitGroup
	running.Go(func() { s.serveUDP(&running) })
	running.Go(func() { s.serveTCP(&running) })
	tb.Cleanup(func() {
		close(s.done)
		_ = packets.Close()
		_ = listener.Close()
		running.Wait()
	})
	return s
}

func (s *scripted) serveUDP(running *sync.WaitGroup) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.packets.ReadFrom(buf)
		if err != nil {
			return
		}
		if q := s.query("udp", buf[:n]); q != nil {
			q.from = from
			running.Go(func() { s.script(q) })
		}
	}
}

func (s *scripted) serveTCP(running *sync.WaitGroup) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			ended := make(chan struct{})
			defer close(ended)
			running.Go(func() {
				select {
				case <-s.done:
				case <-ended:
				}
				_ = conn.Close()
			})
			size := make([]byte, 2)
			for {
				if _, err := io.ReadFull(conn, size); err != nil {
					return
				}
				packet := make([]byte, binary.BigEndian.Uint16(size))
				if _, err := io.ReadFull(conn, packet); err != nil {
					return
				}
				q := s.query("tcp", packet)
				if q == nil {
					return
				}
				q.tcp, q.conn = true, conn
				s.script(q)
			}
		})
	}
}

// query parses a question. It returns nil for any other packet, which the resolver never sends.
func (s *scripted) query(transport string, packet []byte) *query {
	q := &query{Msg: new(dns.Msg), packet: slices.Clone(packet), server: s}
	if q.Unpack(q.packet) != nil || len(q.Question) != 1 {
		return nil
	}
	q.nth = s.count(transport, q.Msg)
	return q
}

func (s *scripted) count(transport string, m *dns.Msg) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(transport, m.Question[0])
	s.ids[m.Id] = true
	s.asked[key]++
	return s.asked[key]
}

// send answers with any packet.
func (q *query) send(packet []byte) {
	if q.tcp {
		_, _ = q.conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...))
		return
	}
	_, _ = q.server.packets.WriteTo(packet, q.from)
}

// reply returns a correct answer, with records in master file format.
func (q *query) reply(records ...string) *dns.Msg {
	m := new(dns.Msg).SetReply(q.Msg)
	m.RecursionAvailable = true
	m.Answer = parsed(records...)
	return m
}

func parsed(records ...string) (all []dns.RR) {
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		all = append(all, rr)
	}
	return all
}

func packed(m *dns.Msg) []byte {
	packet, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packet
}

// The functions that make up scripts:

// says answers correctly, with the records.
func says(records ...string) script { return edited(func(*dns.Msg) {}, records...) }

// edited answers with the records after an edit of the message.
func edited(edit func(*dns.Msg), records ...string) script {
	return func(q *query) {
		m := q.reply(records...)
		edit(m)
		q.send(packed(m))
	}
}

// misdirected answers with another id, which no question has had: an earlier one may still wait for its answer.
func misdirected(id func(uint16) uint16, records ...string) script {
	return func(q *query) {
		m := q.reply(records...)
		q.server.mu.Lock()
		for m.Id = id(m.Id); q.server.ids[m.Id]; m.Id++ {
		}
		q.server.mu.Unlock()
		q.send(packed(m))
	}
}

// nextID is the id after another.
func nextID(id uint16) uint16 { return id + 1 }

// bytewise answers with the records after an edit of the packet.
func bytewise(edit func([]byte) []byte, records ...string) script {
	return func(q *query) { q.send(edit(packed(q.reply(records...)))) }
}

// raw answers NOERROR. The header announces count records; records are their bytes. They begin at 0x17 for a question
// about a.com.
func raw(count uint16, records string) script {
	return bytewise(func(p []byte) []byte {
		binary.BigEndian.PutUint16(p[6:], count)
		return append(p, records...)
	})
}

// refuses answers with a code and without records.
func refuses(rcode int) script { return edited(func(m *dns.Msg) { m.Rcode = rcode }) }

// badVersion answers that the server does not know the version of EDNS.
var badVersion = edited(func(m *dns.Msg) {
	m.SetEdns0(ednsSize, false)
	m.Rcode = dns.RcodeBadVers
})

// quiet does not answer.
func quiet(*query) {}

// together answers one question by all scripts in turn.
func together(scripts ...script) script {
	return func(q *query) {
		for _, each := range scripts {
			each(q)
		}
	}
}

// turns answers the nth question by the nth script, and all further ones by the last.
func turns(scripts ...script) script {
	return func(q *query) { scripts[min(q.nth, len(scripts))-1](q) }
}

// over answers by one script over UDP, and by the other over TCP.
func over(udp, tcp script) script {
	return func(q *query) {
		if q.tcp {
			tcp(q)
			return
		}
		udp(q)
	}
}

// byName answers by the script of the name in the question. It does not answer for other names.
func byName(scripts map[string]script) script {
	return func(q *query) {
		if each, ok := scripts[q.Question[0].Name]; ok {
			each(q)
		}
	}
}

// truncated answers that the answer is too long for UDP.
var truncated = edited(func(m *dns.Msg) { m.Truncated = true })

// late waits, and then answers by another script.
func late(after time.Duration, script script) script {
	return func(q *query) {
		time.Sleep(after)
		script(q)
	}
}

// stall does not answer, and holds a connection until the test ends.
func stall(q *query) { <-q.server.done }

// hangUp closes the connection.
func hangUp(q *query) { _ = q.conn.Close() }

// anything answers that each name has the good address.
func anything(q *query) { says(q.Question[0].Name + " 60 A " + good)(q) }

// withoutEDNS answers by one script to questions with EDNS, and by the other to those without.
func withoutEDNS(with, without script) script {
	return func(q *query) {
		if q.IsEdns0() != nil {
			with(q)
			return
		}
		without(q)
	}
}

// zone answers from records in master file format, and follows their aliases. A name without a record is NXDOMAIN.
func zone(records ...string) script {
	all := parsed(records...)
	return func(q *query) {
		m := q.reply()
		m.Rcode = dns.RcodeNameError
		for name := q.Question[0].Name; name != "" && len(m.Answer) < 20; {
			next := ""
			for _, rr := range all {
				if !strings.EqualFold(rr.Header().Name, name) {
					continue
				}
				m.Rcode = dns.RcodeSuccess
				alias, ok := rr.(*dns.CNAME)
				if ok {
					next = alias.Target
				}
				if ok || rr.Header().Rrtype == q.Question[0].Qtype {
					m.Answer = append(m.Answer, rr)
				}
			}
			name = next
		}
		q.send(packed(m))
	}
}
