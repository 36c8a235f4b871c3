package resolve

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// scripted is a name server on one loopback port of UDP and TCP. Its script determines each byte of an answer, unlike
// a library's server.
type scripted struct {
	addr    string
	packets *net.UDPConn
	script  script
	done    chan struct{} // closed when the test ends

	mu    sync.Mutex
	asked map[string]int
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
	from   *net.UDPAddr
	conn   net.Conn // of TCP; closed when the script ends
}

// hostile runs a name server until the test ends.
func hostile(tb testing.TB, script script) *scripted {
	tb.Helper()
	s := &scripted{script: script, done: make(chan struct{}), asked: map[string]int{}}
	var listener net.Listener
	var err error
	for range 20 {
		// A port that is free for UDP is most likely free for TCP.
		if s.packets, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			tb.Fatal(err)
		}
		if listener, err = net.Listen("tcp4", s.packets.LocalAddr().String()); err == nil {
			break
		}
		_ = s.packets.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	s.addr = s.packets.LocalAddr().String()
	var running sync.WaitGroup
	running.Go(func() { s.serveUDP(&running) })
	running.Go(func() { s.serveTCP(&running, listener) })
	tb.Cleanup(func() {
		close(s.done)
		_ = s.packets.Close()
		_ = listener.Close()
		running.Wait()
	})
	return s
}

func (s *scripted) serveUDP(running *sync.WaitGroup) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.packets.ReadFromUDP(buf)
		if err != nil {
			return
		}
		if q := s.query("udp", buf[:n]); q != nil {
			q.from = from
			running.Go(func() { s.script(q) })
		}
	}
}

func (s *scripted) serveTCP(running *sync.WaitGroup, listener net.Listener) {
	for {
		conn, err := listener.Accept()
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

// query parses a question. It returns nil if the packet is none, which the resolver never sends.
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
	s.asked[key]++
	return s.asked[key]
}

// questions returns how many questions were asked, by both transports.
func (s *scripted) questions() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.asked {
		n += times
	}
	return n
}

// send answers with any packet.
func (q *query) send(packet []byte) {
	if q.tcp {
		_, _ = q.conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...))
		return
	}
	_, _ = q.server.packets.WriteToUDP(packet, q.from)
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

// elsewhere answers from another socket than the one that was asked: the same port of another loopback address, or
// another port of the same address.
func elsewhere(tb testing.TB, host string, records ...string) script {
	return func(q *query) {
		at := &net.UDPAddr{IP: net.ParseIP(host)}
		if host != "127.0.0.1" {
			at.Port = q.server.packets.LocalAddr().(*net.UDPAddr).Port
		}
		conn, err := net.DialUDP("udp4", at, q.from)
		if err != nil {
			tb.Logf("no packet from %v: %v", at, err) // some systems have only one loopback address
			return
		}
		defer conn.Close()
		_, _ = conn.Write(packed(q.reply(records...)))
	}
}

// quick returns options for a resolver that repeats questions soon, so that tests are short. total bounds a look-up.
func quick(total time.Duration) Options {
	return Options{First: 25 * time.Millisecond, Total: total}
}

// long is a total that is never reached, short one for look-ups without an answer.
const (
	long  = 30 * time.Second
	short = 300 * time.Millisecond
)

// waitsFor returns the total for a look-up with this result.
func waitsFor(want string) time.Duration {
	if strings.Contains(want, "dns_timeout") {
		return short
	}
	return long
}

// unhurried runs a test whose look-ups have little time. On a busy machine that time may be over before a server is heard:
// then the test names what is missing, and runs again with twice the time.
func unhurried(t *testing.T, total time.Duration, test func(total time.Duration) (missing string)) {
	t.Helper()
	missing := ""
	for range 6 {
		if missing = test(total); missing == "" || t.Failed() {
			return
		}
		total *= 2
	}
	t.Error(missing)
}

// is reports whether an answer is the wanted one: "[ADDRESS…]", an outcome, or several of these with "or" between them.
func is(a Answer, want string) bool {
	got := fmt.Sprint(a.Addrs)
	if a.Outcome != 0 {
		if len(a.Addrs) > 0 {
			return false
		}
		got = a.Outcome.String()
	}
	return slices.Contains(strings.Split(want, " or "), got)
}

// noLeaks fails the test if it leaves goroutines of the resolver, or open files. It is called first, so that all
// other clean-up precedes the check. TestMain checks what the parallel tests leave.
func noLeaks(t *testing.T) {
	t.Helper()
	before := openFiles()
	t.Cleanup(func() {
		if left := leaks(before); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
}

// leaks returns a goroutine of the resolver that does not end, or how many files are open beyond those before; "" if
// there are none.
func leaks(before int) (left string) {
	buf := make([]byte, 1<<20)
	for range 400 {
		left = ""
		if now := openFiles(); now > before {
			left = fmt.Sprintf("%d files, of %d before", now, before)
		}
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "fetcher/resolve.") && !strings.Contains(stack, "testing.") && !strings.Contains(stack, "resolve.leaks(") {
				left = stack
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(5 * time.Millisecond) // for goroutines that are about to end
	}
	return left
}

// openFiles returns how many files this process has open; 0 if the system does not tell.
func openFiles() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}
