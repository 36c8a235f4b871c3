package memnet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// window is how many bytes of a direction are on their way or unread at most. Further writes wait.
const window = 64 << 10

// Listener accepts streams.
type Listener struct {
	end
	queue []*Conn
}

// Listen accepts streams at a port of the host; 0 chooses one.
func (h Host) Listen(port uint16) (*Listener, error) {
	h.Net.mu.Lock()
	defer h.Net.mu.Unlock()
	l := &Listener{end: end{waiter: newWaiter(), net: h.Net, at: h.Net.bind(netip.AddrPortFrom(h.Addr, port))}}
	if h.Net.listeners[l.at] != nil {
		return nil, failed("bind", l.at, syscall.EADDRINUSE)
	}
	h.Net.listeners[l.at] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.Lock()
	defer l.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.wait()
	}
	if l.closed {
		return nil, failed("accept", l.at, net.ErrClosed)
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Close implements net.Listener. Streams that were not accepted are reset.
func (l *Listener) Close() error {
	l.net.mu.Lock()
	if l.net.listeners[l.at] == l {
		delete(l.net.listeners, l.at)
	}
	l.net.mu.Unlock()
	l.Lock()
	queue := l.queue
	l.closed, l.queue = true, nil
	l.cond.Broadcast()
	l.Unlock()
	for _, c := range queue {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// DialContext opens a stream, as net.Dialer does: a SYN goes there, and its answer comes back. It ends with the
// context's deadline also where the context does not.
func (h Host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	switch to.Addr() { // as on Linux
	case netip.IPv4Unspecified():
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
	case netip.IPv6Unspecified():
		to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
	}
	var answered, over <-chan time.Time
	if there, back := h.Net.link(h.Addr, to.Addr()), h.Net.link(to.Addr(), h.Addr); there.Latency >= 0 &&
		back.Latency >= 0 {
		answered = time.After(there.Latency + back.Latency)
	}
	if deadline, ok := ctx.Deadline(); ok {
		over = time.After(time.Until(deadline))
	}
	select {
	case <-over:
		return nil, failed("connect", to, ended(ctx))
	case <-ctx.Done():
		return nil, failed("connect", to, ended(ctx))
	case <-answered:
	}
	h.Net.mu.Lock()
	defer h.Net.mu.Unlock()
	l := h.Net.listeners[to]
	if l == nil {
		return nil, failed("connect", to, syscall.ECONNREFUSED)
	}
	w, at := newWaiter(), h.Net.bind(netip.AddrPortFrom(h.Addr, 0))
	client := &Conn{end: end{waiter: w, net: h.Net, at: at, peer: to}, in: &half{}, out: &half{}, reset: &time.Time{},
		linger: -1}
	l.Lock()
	defer l.Unlock()
	l.queue = append(l.queue, &Conn{end: end{waiter: w, net: h.Net, at: to, peer: at}, in: client.out, out: client.in,
		reset: client.reset, linger: -1})
	l.cond.Broadcast()
	return client, nil
}

// half is one direction of a stream.
type half struct {
	queue []segment
	size  int       // bytes on their way or unread
	last  time.Time // when the last of them arrives
	end   time.Time // when the writer's end of the stream arrives; zero: it has not ended it
	gone  bool      // the reader has closed
}

type segment struct {
	due  time.Time
	data []byte
}

// Conn is one end of a stream. Both ends share a lock.
type Conn struct {
	end
	in, out *half
	reset   *time.Time // of both directions: when it arrives; zero: none was sent
	linger  int
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.Lock()
	defer c.Unlock()
	for h := c.in; ; {
		var first segment
		if len(h.queue) > 0 {
			first = h.queue[0]
		}
		switch {
		case c.closed:
			return 0, failed("read", c.peer, net.ErrClosed)
		case past(c.reading):
			return 0, failed("read", c.peer, os.ErrDeadlineExceeded)
		case past(first.due): // what has arrived before a reset is read, as on Linux
			n := copy(b, first.data)
			if h.queue[0].data = first.data[n:]; n == len(first.data) {
				h.queue = h.queue[1:]
			}
			h.size -= n
			c.cond.Broadcast() // the writer may wait for room
			return n, nil
		case past(*c.reset):
			return 0, failed("read", c.peer, syscall.ECONNRESET)
		case len(h.queue) == 0 && past(h.end):
			return 0, io.EOF
		}
		c.wait(first.due, h.end, *c.reset, c.reading)
	}
}

// Write implements net.Conn. It waits while the window is full.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.Lock()
	defer c.Unlock()
	for h := c.out; ; {
		switch {
		case c.closed || !h.end.IsZero():
			return n, failed("write", c.peer, net.ErrClosed)
		case past(c.writing):
			return n, failed("write", c.peer, os.ErrDeadlineExceeded)
		case past(*c.reset):
			return n, failed("write", c.peer, syscall.ECONNRESET)
		case n == len(b):
			return n, nil
		case h.size >= window:
			c.wait(c.writing, *c.reset)
			continue
		}
		l := c.net.link(c.at.Addr(), c.peer.Addr())
		piece := b[n:min(len(b), n+window-h.size)]
		n += len(piece)
		h.size += len(piece) // bytes that are lost, or go to a closed end, are never acknowledged
		switch due := h.arrival(l); {
		case l.Latency < 0:
		case h.gone: // the answer is a reset
			c.broken(due.Add(l.Latency))
		default:
			h.queue = append(h.queue, segment{due, slices.Clone(piece)})
		}
		c.cond.Broadcast()
	}
}

// arrival is when bytes that are sent now arrive: not before bytes sent earlier.
func (h *half) arrival(l Link) time.Time {
	if due := time.Now().Add(l.Latency); due.After(h.last) {
		h.last = due
	}
	return h.last
}

// broken resets the stream, from a time on. The lock is held.
func (c *Conn) broken(at time.Time) {
	if c.reset.IsZero() {
		*c.reset = at
	}
}

// CloseWrite ends the writing of this end: the other end reads io.EOF after the last byte.
func (c *Conn) CloseWrite() error {
	c.Lock()
	defer c.Unlock()
	c.finish()
	return nil
}

// finish ends the outgoing direction. On a link that loses everything, the end never arrives.
func (c *Conn) finish() {
	l := c.net.link(c.at.Addr(), c.peer.Addr())
	if at := c.out.arrival(l); c.out.end.IsZero() {
		if c.out.end = at; l.Latency < 0 {
			c.out.end = at.AddDate(100, 0, 0)
		}
	}
	c.cond.Broadcast()
}

// SetLinger with 0 makes Close reset the stream, as it does for a *net.TCPConn.
func (c *Conn) SetLinger(seconds int) error {
	c.linger = seconds
	return nil
}

// Close implements net.Conn. If bytes are unread or still on their way, it resets the stream, as Linux does.
func (c *Conn) Close() error {
	c.Lock()
	defer c.Unlock()
	if c.closed {
		return failed("close", c.peer, net.ErrClosed)
	}
	unread := c.in.queue
	c.closed, c.in.gone, c.in.queue = true, true, nil
	c.finish()
	switch {
	case c.linger == 0, len(unread) > 0 && past(unread[0].due):
		c.broken(c.out.end)
	case len(unread) > 0:
		c.broken(unread[0].due.Add(time.Until(c.out.end)))
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.at) }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.peer) }
