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

// A question's random id and source port make its answer hard to forge (RFC 5452 §9.2). So each socket, whose port is
// random, is replaced after a number of questions or a time.
const (
	questionsPerSocket = 1024
	socketLife         = 10 * time.Second
	socketsPerServer   = 8
	readBuffer         = 1 << 20
	maxPacket          = 4096 // above ednsSize, for servers that exceed it
	maxReceived        = 16   // packets that one call of a socket receives
)

// mux sends the questions of all look-ups to all servers through a few sockets, and delivers each answer to its call.
// A question in flight is an entry in a table; it has no socket and no reading goroutine of its own.
//
// A socket accepts questions until its time is up, and is closed when its last question has ended. If many retired
// sockets wait for their last answers, the others serve longer, so that the bound on sockets holds.
type mux struct {
	perServer int // sockets that accept questions, of each server
	each      int // questions that a socket accepts
	retirable int // bound of retired sockets

	unexpected *atomic.Uint64 // packets that answer no question in flight

	mu      sync.Mutex
	open    map[*socket]struct{}
	retired int // open sockets that accept no more questions
}

// newMux returns a mux for a number of servers with at most bound sockets, but two at least for each server.
func newMux(servers, bound int, unexpected *atomic.Uint64) *mux {
	per := min(max(1, bound/(2*servers)), socketsPerServer)
	return &mux{perServer: per, each: questionsPerSocket, retirable: max(servers, bound-servers*per),
		unexpected: unexpected, open: make(map[*socket]struct{})}
}

// socket is a connected UDP socket: the kernel drops packets from other addresses than the server's.
type socket struct {
	server *server
	conn   Packets
	end    time.Time     // of accepting questions
	done   chan struct{} // closed when its reader has ended

	mu      sync.Mutex
	calls   map[uint16]waiter // by the id of the question
	asked   int
	retired bool // it accepts no more questions; guarded by server.mu, too
	closed  bool
}

// call is one question of one look-up. It may be sent several times, to several servers, with several ids. Each
// sending stays valid until the call ends, so that a late answer still counts.
type call struct {
	message  dns.Msg
	buf      [headerSize + 255 + 4 + optSize]byte
	packet   []byte // what is sent, in buf; each sending has an id of its own
	batch    [1][]byte
	question []byte // name, type and class in packet; an answer must repeat them
	edns     bool   // the packet has EDNS
	sendings []sending
	arrivals chan arrival // has room for one of each sending
	waits    int          // sendings without an arrival
	timer    *time.Timer
	server   *server   // of the first sending, if the call continues a Query
	sent     time.Time // when that was
}

// waiter waits for the answer to a sending: it is a call, or a Query of a batch.
type waiter struct {
	call  *call
	query *Query
	edns  bool // the sending had EDNS
}

// question returns what the answer must repeat.
func (w waiter) question() []byte {
	if w.query != nil {
		return w.query.question
	}
	return w.call.question
}

type sending struct {
	socket *socket
	id     uint16
}

// arrival is the result of a sending.
type arrival struct {
	server *server
	packet []byte // the answer, with matching id and question; nil if err says why none will come
	edns   bool   // the question was sent with EDNS
	err    error
}

// maxSendings bounds the sendings of a call. It is twice the number that fits into a look-up's time, with default
// waits.
const maxSendings = 16

// send sends the call's question to the server. The answer arrives at c.arrivals.
func (s *server) send(c *call) error {
	for len(c.sendings) < maxSendings {
		k, err := s.socket()
		if err != nil {
			return err
		}
		id, err := k.enter(waiter{call: c, edns: c.edns})
		if errors.Is(err, net.ErrClosed) {
			continue // the socket was closed meanwhile
		}
		if err != nil {
			return err
		}
		s.questions.Add(1)
		c.sendings = append(c.sendings, sending{k, id})
		c.packet[0], c.packet[1] = byte(id>>8), byte(id)
		c.batch[0] = c.packet
		if _, err = k.conn.Send(c.batch[:]); err != nil {
			// The kernel may report an earlier question's failure here. Then this one was not sent.
			_, err = k.conn.Send(c.batch[:])
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

// end removes the call from all tables. Nothing arrives afterwards.
func (c *call) end() {
	c.timer.Stop()
	for _, at := range c.sendings {
		at.socket.leave(at.id, c, nil)
	}
	clear(c.sendings)
	c.sendings, c.waits = c.sendings[:0], 0
	for len(c.arrivals) > 0 {
		<-c.arrivals
	}
}

// socket returns one of the server's sockets at random. It replaces one that has served its time.
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

// open opens a socket with a random port, which the kernel chooses.
func (s *server) open() (*socket, error) {
	conn, err := s.network.Packets(s.addr)
	if err != nil {
		return nil, err
	}
	k := &socket{server: s, conn: conn, end: time.Now().Add(socketLife), done: make(chan struct{}),
		calls: make(map[uint16]waiter)}
	_ = conn.SetReadDeadline(k.end)
	m := s.mux
	m.mu.Lock()
	m.open[k] = struct{}{}
	m.mu.Unlock()
	go k.read()
	return k, nil
}

// served reports whether the socket has served its time, or its number of questions.
func (k *socket) served() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed || k.asked >= k.server.mux.each || !time.Now().Before(k.end)
}

// retire makes the socket close with its last question. It returns false if too many sockets are retired already. The
// caller holds server.mu.
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
	_ = k.conn.Close() // before another one may take its place
	m := k.server.mux
	m.mu.Lock()
	delete(m.open, k)
	if k.retired {
		m.retired--
	}
	m.mu.Unlock()
}

// errFull means that a socket has too few free ids, or that a call has reached maxSendings.
var errFull = errors.New("too many questions in flight")

// enter puts a waiter into the table under an unpredictable id.
func (k *socket) enter(w waiter) (id uint16, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return 0, net.ErrClosed
	case len(k.calls) >= 1<<15:
		return 0, errFull
	}
	for {
		// The generator is ChaCha8, seeded by the system: earlier ids do not reveal later ones.
		id = uint16(rand.Uint32())
		if _, taken := k.calls[id]; !taken {
			break
		}
	}
	if w.query != nil {
		w.query.id = id
	}
	k.calls[id] = w
	k.asked++
	return id, nil
}

// leave removes a waiter from the table. It reports whether it did: the waiter's answer may have removed it before.
func (k *socket) leave(id uint16, c *call, q *Query) (left bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.calls[id]; w.call != c || w.query != q {
		return false
	}
	delete(k.calls, id)
	k.server.unheard.Add(1)
	k.closeIfIdle()
	return true
}

// read delivers answers to their calls until the socket is closed.
func (k *socket) read() {
	defer close(k.done)
	buffers, sizes := slices.Collect(slices.Chunk(make([]byte, maxReceived*maxPacket), maxPacket)),
		make([]int, maxReceived)
	var answered []*Query
	for {
		n, err := k.conn.Receive(buffers, sizes)
		switch {
		case err == nil:
			now := time.Now()
			for i := range n {
				packet := buffers[i][:sizes[i]]
				w, ok := k.deliver(packet)
				switch {
				case !ok:
					k.server.mux.unexpected.Add(1)
				case w.query != nil && w.query.read(packet, w.edns, now):
					answered = append(answered, w.query)
				}
			}
			done(answered)
			clear(answered)
			answered = answered[:0]
		case errors.Is(err, net.ErrClosed):
			return
		case isTimeout(err):
			if k.expire() {
				return
			}
		default:
			// No process listens on the server's port, or there is no route to the server. The error does not name a
			// question, and applies to all.
			k.fail(err)
		}
	}
}

// deliver passes a packet to the call that it answers, or returns the Query. It returns false for any other packet,
// which is ignored: a late or forged answer must not end the wait for the right one.
func (k *socket) deliver(packet []byte) (w waiter, ok bool) {
	if len(packet) < headerSize {
		return w, false
	}
	id := uint16(packet[0])<<8 | uint16(packet[1])
	k.mu.Lock()
	defer k.mu.Unlock()
	w, ok = k.calls[id]
	if !ok || !answers(packet, w.question()) {
		return w, false
	}
	delete(k.calls, id)
	if w.call != nil {
		w.call.arrivals <- arrival{server: k.server, packet: slices.Clone(packet), edns: w.edns} // never blocks, see call
	}
	k.closeIfIdle()
	return w, true
}

// expire retires a socket at the end of its time. It is called again after each further socketLife, and reports
// whether the socket is closed.
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

// fail ends the wait of every call of the socket. After ECONNREFUSED the socket stays open: the server may only be
// restarting.
func (k *socket) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.calls {
		a := arrival{server: k.server, err: err}
		if w.query != nil {
			w.query.alone(w.query.continued(w.edns, a))
		} else {
			w.call.arrivals <- a
		}
	}
	k.server.unheard.Add(uint64(len(k.calls)))
	clear(k.calls)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		k.close()
	}
	k.closeIfIdle()
}

// close closes all open sockets and waits for their readers. A call that waits for an answer through one of them
// sends its question again when its wait ends.
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
