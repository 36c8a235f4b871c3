package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
)

// Network opens the sockets of a Resolver.
type Network interface {
	// Packets opens a connected socket of datagrams, on an unpredictable port.
	Packets(server netip.AddrPort) (Packets, error)
	// DialContext opens a stream, as net.Dialer does.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Packets is a connected socket of datagrams. One goroutine receives; others may send and close meanwhile. Errors are
// those of a *net.UDPConn.
type Packets interface {
	// Send sends a batch, and returns how many of it were sent before an error.
	Send(packets [][]byte) (sent int, err error)
	// Receive waits for a datagram, and fills a buffer for each that has arrived. A datagram longer than its buffer is
	// cut.
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
	return &udp{UDPConn: conn, batches: ipv4.NewPacketConn(conn)}, nil
}

// udp sends and receives a batch with one system call where the system has one, else with one for each datagram.
type udp struct {
	*net.UDPConn
	batches *ipv4.PacketConn // of IPv6, too
	in      []ipv4.Message   // of Receive
}

const (
	hasBatches = runtime.GOOS == "linux"
	// WSAEMSGSIZE: the datagram was longer than the buffer. No other system has this number.
	windowsCut = syscall.Errno(10040)
)

// Send implements Packets.
func (u *udp) Send(packets [][]byte) (sent int, err error) {
	if !hasBatches || len(packets) == 1 {
		for ; sent < len(packets); sent++ {
			if _, err = u.Write(packets[sent]); err != nil {
				return sent, err
			}
		}
		return sent, nil
	}
	out := make([]ipv4.Message, len(packets))
	for i := range packets {
		out[i].Buffers = packets[i : i+1]
	}
	for sent < len(packets) && err == nil {
		var n int
		n, err = u.batches.WriteBatch(out[sent:], 0)
		sent += max(0, n)
	}
	return sent, err
}

// Receive implements Packets.
func (u *udp) Receive(buffers [][]byte, sizes []int) (n int, err error) {
	if !hasBatches {
		sizes[0], err = u.Read(buffers[0])
		if errors.Is(err, windowsCut) {
			err = nil
		}
		return 1, err
	}
	if len(u.in) != len(buffers) {
		u.in = make([]ipv4.Message, len(buffers))
	}
	for i := range u.in {
		u.in[i].Buffers = buffers[i : i+1]
	}
	n, err = u.batches.ReadBatch(u.in, 0)
	for i := range max(0, n) {
		sizes[i] = u.in[i].N
	}
	return n, err
}
