package simweb

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Network is where a web, and a bad network in front of it, have their sockets. A Network other than the system's loses
// all packets to addresses that BlackHole reports, and refuses what nothing listens for.
type Network interface {
	// Listen accepts streams at an address. Port 0 is any free one.
	Listen(at netip.AddrPort) (net.Listener, error)
	// ListenPacket opens a socket of datagrams. All its addresses are *net.UDPAddr. Port 0 is any free one.
	ListenPacket(at netip.AddrPort) (net.PacketConn, error)
	// Dial opens a stream.
	Dial(to netip.AddrPort) (net.Conn, error)
}

// BlackHole reports whether an address of a web is a black hole.
func BlackHole(addr netip.Addr) bool {
	return addr.Is4() && addr.As4()[0] == 127 && addr.As4()[1] == holeNet
}

// loopback is the system's Network.
type loopback struct{}

// Listen implements Network.
func (loopback) Listen(at netip.AddrPort) (net.Listener, error) {
	// Without keep-alive: its two system calls matter to a connection of a millisecond.
	lc := net.ListenConfig{KeepAlive: -1}
	return lc.Listen(context.Background(), "tcp", at.String())
}

// ListenPacket implements Network.
func (loopback) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	// The socket must hold bursts of a thousand questions.
	if err := c.SetReadBuffer(4 << 20); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Dial implements Network.
func (loopback) Dial(to netip.AddrPort) (net.Conn, error) {
	return net.DialTimeout("tcp", to.String(), 10*time.Second)
}

// abort ends a connection with a reset.
func abort(c net.Conn) {
	if c, ok := c.(interface{ SetLinger(seconds int) error }); ok && c.SetLinger(0) != nil {
		return // closed
	}
	_ = c.Close()
}

// closeWrite ends what this side of a connection sends.
func closeWrite(c net.Conn) {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}
