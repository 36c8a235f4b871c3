package simweb

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// plugs reports that the system has black holes: addresses where a client's first packet is lost.
const plugs = true

// reserve binds a socket to an address without listening, so that connections are refused and no other program can
// listen there until release.
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

// plug makes a listener a black hole, without root. If the queue of unaccepted connections is full, Linux drops further
// ones (unless tcp_abort_on_overflow is set). plug shortens the queue to the minimum; the returned connection fills it
// while it is open.
func plug(l net.Listener) (net.Conn, error) {
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	// Listening again sets the queue's length; it holds one more than the given number.
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot shorten the queue of %v: %w", l.Addr(), err)
	}
	return net.DialTimeout("tcp4", l.Addr().String(), 10*time.Second)
}
