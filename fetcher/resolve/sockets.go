package resolve

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// A socket's port is part of what a forger has to guess (RFC 5452 §9.2), so each serves only so many questions.
const questionsPerSocket = 64

// sockets are those of one Resolver, to all its servers. No more than a fixed number are open at a time, because whoever
// asks enters first: of as many as may be in, the one who wants to open another while all are open finds an idle one to
// close for it.
//
//	open = idle + held by who is in ≤ cap(places)
type sockets struct {
	places chan struct{} // one for each who is in

	mu      sync.Mutex
	open    int
	servers []*server
}

func newSockets(bound int) *sockets { return &sockets{places: make(chan struct{}, bound)} }

// enter waits for a place and reports whether it got one before ctx ended.
func (p *sockets) enter(ctx context.Context) bool {
	select {
	case p.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// leave gives the place back. Whoever leaves holds no socket any more.
func (p *sockets) leave() { <-p.places }

// take returns an idle socket connected to a server, or a new one.
func (p *sockets) take(ctx context.Context, s *server) (*socket, error) {
	p.mu.Lock()
	if n := len(s.idle); n > 0 {
		k := s.idle[n-1]
		s.idle = s.idle[:n-1]
		p.mu.Unlock()
		return k, nil
	}
	p.mu.Unlock()
	conn, err := p.dial(ctx, new(net.Dialer), "udp", s.addr)
	if err != nil {
		return nil, err
	}
	return &socket{conn: conn}, nil
}

// dial opens a connection within the bound.
func (p *sockets) dial(ctx context.Context, d *net.Dialer, network string, addr netip.AddrPort) (net.Conn, error) {
	p.mu.Lock()
	if p.open < cap(p.places) {
		p.open++
	} else {
		_ = p.oldest().conn.Close() // and open in its stead
	}
	p.mu.Unlock()
	conn, err := d.DialContext(ctx, network, addr.String())
	if err != nil {
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
	}
	return conn, err
}

// oldest takes the socket that has been idle for the longest out of the server that has the most.
func (p *sockets) oldest() *socket {
	most := p.servers[0]
	for _, s := range p.servers[1:] {
		if len(s.idle) > len(most.idle) {
			most = s
		}
	}
	k := most.idle[0]
	most.idle = append(most.idle[:0], most.idle[1:]...)
	return k
}

// put keeps a socket for its server's next question, or closes it.
func (p *sockets) put(s *server, k *socket) {
	if k.used >= questionsPerSocket {
		p.drop(k.conn)
		return
	}
	p.mu.Lock()
	s.idle = append(s.idle, k)
	p.mu.Unlock()
}

// drop closes a connection that was taken or dialled.
func (p *sockets) drop(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
}

// closeIdle closes the sockets that nobody holds.
func (p *sockets) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		for _, k := range s.idle {
			_ = k.conn.Close()
		}
		p.open -= len(s.idle)
		s.idle = nil
	}
}
