package resolve

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Network opens the sockets of a Resolver.
type Network interface {
	// Packets opens a connected socket of datagrams, on an unpredictable port.
	Packets(server netip.AddrPort) (Packets, error)
	// DialContext opens a stream, as net.Dialer does.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Packets is a connected socket of datagrams. One goroutine receives; others may send and close meanwhile. Errors are those of a
// *net.UDPConn.
type Packets interface {
	// Send sends a batch, and returns how many of it were sent before an error.
	Send(packets [][]byte) (sent int, err error)
	// Receive waits for a datagram, and fills as many buffers as have arrived. What is longer than its buffer is cut.
	Receive(buffers [][]byte, sizes []int) (n int, err error)
	SetReadDeadline(t time.Time) error
	Close() error
}

// system is the Network of this machine.
type system struct{ net.Dialer }

// Packets implements Network.
func (*system) Packets(server netip.AddrPort) (Packets, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return nil, err
	}
	// A thousand answers may come at once. Each takes nearly 800 bytes of the kernel's buffer, whose default size
	// holds 280. The system may grant less than is asked for.
	_ = conn.SetReadBuffer(readBuffer)
	return udp{conn}, nil
}

// udp sends and receives with one system call a datagram.
type udp struct{ *net.UDPConn }

// Send implements Packets.
func (u udp) Send(packets [][]byte) (sent int, err error) {
	for _, packet := range packets {
		if _, err := u.Write(packet); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// Receive implements Packets.
func (u udp) Receive(buffers [][]byte, sizes []int) (n int, err error) {
	sizes[0], err = u.Read(buffers[0])
	if err != nil {
		return 0, err
	}
	return 1, nil
}
