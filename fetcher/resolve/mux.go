package resolve

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// What makes an answer hard to forge is that nobody else knows the question's id and the port that it came from (RFC 5452
// §9.2), so that a socket, whose port is random, serves only so many questions and for so long.
const (
	questionsPerSocket = 1024
	socketLife         = 10 * time.Second
	socketsPerServer   = 8
	readBuffer         = 1 << 20
	maxPacket          = 4096 // a server that sends more by UDP than ednsSize does not do as it was told
)

// mux sends the questions of all look-ups to all servers through a few sockets and hands each answer to whom it is for. A
// question under way is an entry in a table; it has no socket of its own and nobody who reads for it alone.
//
// A socket takes questions until its time is up, and is closed when the last of them has ended. The bound on sockets is
// kept by letting them serve longer while many wait for their last.
type mux struct {
	perServer int // sockets that take questions, of each server
	each      int // questions that one takes
	retirable int // sockets that may wait for their last answers

	strangers *atomic.Uint64

	mu      sync.Mutex
	open    map[*socket]struct{}
	retired int // of those
}

// newMux returns a mux for so many servers with at most bound sockets, though not less than two for each server.
func newMux(servers, bound int, strangers *atomic.Uint64) *mux {
	per := min(max(1, bound/(2*servers)), socketsPerServer)
	return &mux{perServer: per, each: questionsPerSocket, retirable: max(servers, bound-servers*per), strangers: strangers, open: make(map[*socket]struct{})}
}

// socket is a connected UDP socket, so that the kernel drops what comes from anybody but the server.
type socket struct {
	server *server
	conn   *net.UDPConn
	end    time.Time     // of taking questions
	done   chan struct{} // closed when nobody reads it any more

	mu      sync.Mutex
	calls   map[uint16]waiter // by the id of the question
	asked   int
	retired bool // it takes no more questions; guarded by server.mu too
	closed  bool
}

// call is one question of one look-up, which may be sent several times: to several servers, with several ids. Each sending
// stays good until the call ends, so that a late answer still counts.
type call struct {
	message  dns.Msg
	buf      [headerSize + 255 + 4 + optSize]byte
	packet   []byte // what is sent, in buf; each sending has an id of its own
	question []byte // name, type and class in it: how an answer is recognised
	edns     bool   // the packet has EDNS
	sendings []sending
	arrivals chan arrival // has room for one of each sending
	waits    int          // sendings that nothing has arrived of yet
	timer    *time.Timer
}

// waiter is a call that waits for the answer to a sending.
type waiter struct {
	*call
	edns bool // the sending had EDNS
}

type sending struct {
	socket *socket
	id     uint16
}

// arrival is what came of a sending.
type arrival struct {
	server *server
	packet []byte // the answer, whose id and question are right; nil where err says why there will be none
	edns   bool   // the sending had EDNS
	err    error
}

// maxSendings bounds those of a call. With the usual waits, which grow by half, twice as many as fit into a look-up's time.
const maxSendings = 16

// send sends the call's question to a server once more. The answer arrives at c.arrivals.
func (s *server) send(c *call) error {
	for len(c.sendings) < maxSendings {
		k, err := s.socket()
		if err != nil {
			return err
		}
		id, err := k.enter(c)
		if errors.Is(err, net.ErrClosed) {
			continue // just now
		}
		if err != nil {
			return err
		}
		s.questions.Add(1)
		c.sendings = append(c.sendings, sending{k, id})
		c.packet[0], c.packet[1] = byte(id>>8), byte(id)
		if _, err = k.conn.Write(c.packet); err != nil {
			// It may be the failure of an earlier question that the kernel tells here, and then this one was not sent.
			_, err = k.conn.Write(c.packet)
		}
		if errors.Is(err, net.ErrClosed) {
			continue
		}
		if err == nil {
			c.waits++
		}
		return err
	}
	return errFull
}

// end takes the call out of all tables. Nothing arrives any more.
func (c *call) end() {
	c.timer.Stop()
	for _, at := range c.sendings {
		at.socket.leave(at.id, c)
	}
	clear(c.sendings)
	c.sendings, c.waits = c.sendings[:0], 0
	for len(c.arrivals) > 0 {
		<-c.arrivals
	}
}

// socket returns one of the server's sockets, at random, in place of one that has served its time a new one.
func (s *server) socket() (*socket, error) {
	i := rand.IntN(s.mux.perServer)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.sockets[i]
	if k != nil && (!k.served() || !k.retire()) {
		return k, nil
	}
	k, err := s.open()
	s.sockets[i] = k
	return k, err
}

// open opens a socket with a port that the kernel draws.
func (s *server) open() (*socket, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.addr))
	if err != nil {
		return nil, err
	}
	k := &socket{server: s, conn: conn, end: time.Now().Add(socketLife), done: make(chan struct{}), calls: make(map[uint16]waiter)}
	_ = conn.SetReadDeadline(k.end)
	// The answers of a thousand look-ups may come at once, and each takes the kernel nearly 800 bytes: the usual room is for
	// 280. The system may grant less than is asked for.
	_ = conn.SetReadBuffer(readBuffer)
	m := s.mux
	m.mu.Lock()
	m.open[k] = struct{}{}
	m.mu.Unlock()
	go k.read()
	return k, nil
}

// served reports whether the socket has served its time.
func (k *socket) served() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed || k.asked >= k.server.mux.each || !time.Now().Before(k.end)
}

// retire has the socket end with its last question. It reports false where too many wait for that already. The caller holds
// server.mu.
func (k *socket) retire() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.retired {
		return true
	}
	m := k.server.mux
	m.mu.Lock()
	k.retired = m.retired < m.retirable
	if k.retired {
		m.retired++
	}
	m.mu.Unlock()
	if !k.retired {
		return false
	}
	k.closeIfIdle()
	return true
}

// closeIfIdle closes a retired socket without questions. The caller holds k.mu.
func (k *socket) closeIfIdle() {
	if k.retired && len(k.calls) == 0 {
		k.close()
	}
}

// close closes the socket, which ends its reader. The caller holds k.mu.
func (k *socket) close() {
	if k.closed {
		return
	}
	k.closed = true
	m := k.server.mux
	m.mu.Lock()
	delete(m.open, k)
	if k.retired {
		m.retired--
	}
	m.mu.Unlock()
	_ = k.conn.Close()
}

// errFull is that so many questions are under way that ids, or a call's places, would run out.
var errFull = errors.New("too many questions at a time")

// enter puts a call into the table under an id that nobody can foresee.
func (k *socket) enter(c *call) (id uint16, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return 0, net.ErrClosed
	case len(k.calls) >= 1<<15:
		return 0, errFull
	}
	for {
		// The generator is ChaCha8, seeded by the system: what was seen of it does not tell what follows.
		id = uint16(rand.Uint32())
		if _, taken := k.calls[id]; !taken {
			break
		}
	}
	k.calls[id] = waiter{c, c.edns}
	k.asked++
	return id, nil
}

// leave takes a call out of the table, unless its answer has.
func (k *socket) leave(id uint16, c *call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls[id].call == c {
		delete(k.calls, id)
		k.server.unheard.Add(1)
		k.closeIfIdle()
	}
}

// read hands answers to their calls until the socket is closed.
func (k *socket) read() {
	defer close(k.done)
	buf := make([]byte, maxPacket)
	for {
		n, err := k.conn.Read(buf)
		switch {
		case err == nil:
			if !k.deliver(buf[:n]) {
				k.server.mux.strangers.Add(1)
			}
		case errors.Is(err, net.ErrClosed):
			return
		case isTimeout(err):
			if k.expire() {
				return
			}
		default:
			// The server's host has told us that nobody listens there, or our own that there is no way: which question
			// that was about is not known, and it holds for all.
			k.fail(err)
		}
	}
}

// deliver hands a packet to the call that it answers. Whatever else arrives is passed over: an answer that is too late, or
// a forgery, must not end the wait for the right one.
func (k *socket) deliver(packet []byte) bool {
	if len(packet) < headerSize {
		return false
	}
	id := uint16(packet[0])<<8 | uint16(packet[1])
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.calls[id]
	if !ok || !answers(packet, c.question) {
		return false
	}
	delete(k.calls, id)
	c.arrivals <- arrival{server: k.server, packet: append([]byte(nil), packet...), edns: c.edns} // there is room, see call
	k.closeIfIdle()
	return true
}

// expire is what happens at the end of a socket's time, and once more when those who asked through it have had theirs. It
// reports whether the socket is closed.
func (k *socket) expire() bool {
	s := k.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sockets {
		if s.sockets[i] == k && k.retire() {
			s.sockets[i] = nil
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed && k.retired && len(k.calls) == 0 {
		k.close()
	}
	_ = k.conn.SetReadDeadline(time.Now().Add(socketLife))
	return k.closed
}

// fail tells every call of the socket that no answer will come. A socket that has failed for another reason than that nobody
// listens there is not used again.
func (k *socket) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.calls {
		c.arrivals <- arrival{server: k.server, err: err}
	}
	k.server.unheard.Add(uint64(len(k.calls)))
	clear(k.calls)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		k.close()
	}
	k.closeIfIdle()
}

// close closes all sockets that are open now and waits for their readers. Who waits for an answer through one of them asks again in time.
func (m *mux) close() {
	m.mu.Lock()
	open := slices.Collect(maps.Keys(m.open))
	m.mu.Unlock()
	for _, k := range open {
		k.mu.Lock()
		k.close()
		k.mu.Unlock()
		<-k.done
	}
}
