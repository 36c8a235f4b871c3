package memnet

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// Packets is a socket of datagrams: a net.PacketConn. A connected one also sends and receives batches.
type Packets struct {
	end              // the peer is invalid unless it is connected; sending never waits
	queue []datagram // by due time; those of one instant in the order in which they were sent
}

// datagram is a datagram on its way, or the error that comes back for one.
type datagram struct {
	due  time.Time
	from netip.AddrPort
	data []byte
	err  error
}

// maxQueue bounds what waits at a socket, in datagrams. Further ones are lost.
const maxQueue = 1 << 14

// ListenPacket opens a socket on a port of the host; 0 chooses one.
func (h Host) ListenPacket(port uint16) (*Packets, error) { return h.packets(port, netip.AddrPort{}) }

// DialPackets opens a connected socket.
func (h Host) DialPackets(to netip.AddrPort) (*Packets, error) { return h.packets(0, to) }

func (h Host) packets(port uint16, peer netip.AddrPort) (*Packets, error) {
	h.Net.mu.Lock()
	defer h.Net.mu.Unlock()
	p := &Packets{end: end{waiter: newWaiter(), net: h.Net, at: h.Net.bind(netip.AddrPortFrom(h.Addr, port)), peer: peer}}
	if h.Net.packets[p.at] != nil {
		return nil, failed("bind", p.at, syscall.EADDRINUSE)
	}
	h.Net.packets[p.at] = p
	return p, nil
}

// Send sends a batch to the peer, and returns how many it sent.
func (p *Packets) Send(batch [][]byte) (sent int, err error) {
	for ; sent < len(batch) && err == nil; sent++ {
		err = p.send(batch[sent], p.peer)
	}
	return sent, err
}

// send sends one datagram. A connected socket gets the refusal of a port that is not open.
func (p *Packets) send(data []byte, to netip.AddrPort) error {
	p.Lock()
	closed := p.closed
	p.Unlock()
	if closed {
		return failed("write", to, net.ErrClosed)
	}
	p.net.mu.Lock()
	target := p.net.packets[to]
	p.net.mu.Unlock()
	there := p.net.link(p.at.Addr(), to.Addr())
	due := time.Now().Add(there.Latency)
	switch {
	case there.Latency < 0:
	case target != nil:
		target.arrive(datagram{due: due, from: p.at, data: slices.Clone(data)})
	case p.peer.IsValid():
		if back := p.net.link(to.Addr(), p.at.Addr()); back.Latency >= 0 {
			p.arrive(datagram{due: due.Add(back.Latency), from: to, err: syscall.ECONNREFUSED})
		}
	}
	return nil
}

func (p *Packets) arrive(d datagram) {
	p.Lock()
	defer p.Unlock()
	if p.closed || p.peer.IsValid() && d.from != p.peer || len(p.queue) >= maxQueue {
		return
	}
	i := len(p.queue)
	for i > 0 && d.due.Before(p.queue[i-1].due) {
		i--
	}
	p.queue = slices.Insert(p.queue, i, d)
	p.cond.Broadcast()
}

// Receive waits for a datagram, and fills as many buffers as datagrams have arrived. A datagram that is longer than its
// buffer is cut.
func (p *Packets) Receive(buffers [][]byte, sizes []int) (n int, err error) {
	p.Lock()
	defer p.Unlock()
	for n < len(buffers) && (n == 0 || len(p.queue) > 0 && past(p.queue[0].due) && p.queue[0].err == nil) {
		d, err := p.next()
		if err != nil {
			return 0, err
		}
		sizes[n] = copy(buffers[n], d.data)
		n++
	}
	return n, nil
}

// next waits for the next datagram. The lock is held.
func (p *Packets) next() (d datagram, err error) {
	for {
		if len(p.queue) > 0 {
			d = p.queue[0]
		}
		switch {
		case p.closed:
			return d, failed("read", p.at, net.ErrClosed)
		case past(d.due):
			if p.queue = p.queue[1:]; d.err != nil {
				d.err = failed("read", p.at, d.err)
			}
			return d, d.err
		case past(p.reading):
			return d, failed("read", p.at, os.ErrDeadlineExceeded)
		}
		p.wait(d.due, p.reading)
	}
}

// ReadFrom implements net.PacketConn.
func (p *Packets) ReadFrom(b []byte) (int, net.Addr, error) {
	p.Lock()
	defer p.Unlock()
	d, err := p.next()
	return copy(b, d.data), net.UDPAddrFromAddrPort(d.from), err
}

// WriteTo implements net.PacketConn; the address is a *net.UDPAddr.
func (p *Packets) WriteTo(b []byte, to net.Addr) (int, error) {
	return len(b), p.send(b, to.(*net.UDPAddr).AddrPort())
}

// Close implements net.PacketConn.
func (p *Packets) Close() error {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.Lock()
	defer p.Unlock()
	if !p.closed {
		delete(p.net.packets, p.at)
	}
	p.closed, p.queue = true, nil
	p.cond.Broadcast()
	return nil
}

// LocalAddr implements net.PacketConn.
func (p *Packets) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.at) }
