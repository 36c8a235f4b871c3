// Package memnet answers one question: which network do tests have? It is one in memory, whose clock is the bubble's
// (see testing/synctest): datagrams and streams between hosts, with latency, loss, windows, deadlines, half-close,
// refusal, resets and black holes. Its events depend only on the order of calls and the bubble's time: a run can be
// repeated.
package memnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Link is the way from one host to another. The zero value delivers at once.
type Link struct {
	Latency time.Duration // of a datagram, a segment, a SYN; below zero: it is lost
}

// Network is a network in memory. It is made and used within one bubble.
type Network struct {
	link func(from, to netip.Addr) Link

	mu        sync.Mutex
	packets   map[netip.AddrPort]*Packets
	listeners map[netip.AddrPort]*Listener
	port      uint16 // the last one that a caller did not choose
}

// New returns a network. The link is called for each datagram, each segment and each SYN; nil delivers all at once. A
// host to and from which all is lost is a black hole.
func New(link func(from, to netip.Addr) Link) *Network {
	if link == nil {
		link = func(_, _ netip.Addr) Link { return Link{} }
	}
	return &Network{link: link, packets: map[netip.AddrPort]*Packets{}, listeners: map[netip.AddrPort]*Listener{},
		port: 1<<15 - 1}
}

// bind returns the address with a port that is free, if it has none. The lock is held.
func (n *Network) bind(at netip.AddrPort) netip.AddrPort {
	for at.Port() == 0 {
		n.port = max(n.port+1, 1<<15)
		if free := netip.AddrPortFrom(at.Addr(), n.port); n.packets[free] == nil && n.listeners[free] == nil {
			return free
		}
	}
	return at
}

// Host is a host of the network: where its sockets are.
type Host struct {
	Net  *Network
	Addr netip.Addr
}

// Listen accepts streams at an address; port 0 chooses one.
func (n *Network) Listen(at netip.AddrPort) (net.Listener, error) {
	return Host{n, at.Addr()}.Listen(at.Port())
}

// ListenPacket opens a socket of datagrams at an address; port 0 chooses one.
func (n *Network) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	return Host{n, at.Addr()}.ListenPacket(at.Port())
}

// Dial opens a stream from 127.0.0.1.
func (n *Network) Dial(to netip.AddrPort) (net.Conn, error) {
	return Host{n, netip.AddrFrom4([4]byte{127, 0, 0, 1})}.DialContext(context.Background(), "tcp", to.String())
}

// failed is the error of a call of the system.
func failed(op string, at netip.AddrPort, err error) error {
	if errno, ok := err.(syscall.Errno); ok { //nolint:errorlint // it is ours, and not wrapped
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "memory", Addr: net.TCPAddrFromAddrPort(at), Err: err}
}

// waiter waits under its lock for a Broadcast of another goroutine, or for a time.
type waiter struct {
	sync.Mutex
	cond sync.Cond
}

func newWaiter() *waiter {
	w := &waiter{}
	w.cond.L = w
	return w
}

// wait waits until a Broadcast, or until the first of some times; zero times never come.
func (w *waiter) wait(times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		timer := time.AfterFunc(time.Until(first), func() { // under the lock, so that it is not before the wait
			w.Lock()
			defer w.Unlock()
			w.cond.Broadcast()
		})
		defer timer.Stop()
	}
	w.cond.Wait()
}

// end is an end of a stream, or a socket of datagrams: where it is, and until when it waits.
type end struct {
	*waiter
	net              *Network
	at, peer         netip.AddrPort
	reading, writing time.Time // deadlines
	closed           bool
}

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error { return e.set(t, &e.reading) }

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error { return e.set(t, &e.writing) }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.set(t, &e.reading, &e.writing) }

func (e *end) set(t time.Time, deadlines ...*time.Time) error {
	e.Lock()
	defer e.Unlock()
	for _, d := range deadlines {
		*d = t
	}
	e.cond.Broadcast()
	return nil
}

// past reports whether a time has come; the zero time never does.
func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// ended is the error of a wait that its context has ended.
func ended(ctx context.Context) error {
	if ctx.Err() == nil || ctx.Err() == context.DeadlineExceeded {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}
