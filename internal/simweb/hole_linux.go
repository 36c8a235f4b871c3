package simweb

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// blackHoles is the number of addresses where a client's first packet is lost.
const blackHoles = 4

// reserve keeps everybody on this machine from listening at an address: a socket is bound to it that does not listen itself.
// Who knocks there is refused. The function returned ends it.
func reserve(at netip.AddrPort) (release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot reserve %v: %w", at, err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("cannot reserve %v: %w", at, err)
	}
	return func() { _ = syscall.Close(fd) }, nil
}

// plug makes a black hole of a listener, without root: where the queue of connections that nobody accepts is full, Linux
// drops whoever knocks (tcp_abort_on_overflow is 0 unless somebody asks for it). The queue is made as short as it gets,
// and the connection returned fills it for as long as it is open.
func plug(l *net.TCPListener) (net.Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Listening again sets the queue's length anew: there is room for one more than it says.
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot shorten the queue of %v: %w", l.Addr(), err)
	}
	return net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second)
}
