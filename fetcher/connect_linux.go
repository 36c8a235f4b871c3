package fetcher

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// This file connects without net.Dialer, which takes nearly half of a plain exchange's cost: it asks the kernel for
// addresses that we know, sets options that we do not need, and watches a context of its own. The steps are
//
//	socket ─► (bind) ─► connect ─► to the poller ─► connected? ─► (wait ─► connected?)
//
// The connection is an os.File, because the standard library offers its poller only through one.

// unprivilegedPort is the lowest port that the kernel may choose for the local end of a connection.
const unprivilegedPort = 1024

// direct connects by system calls, until end at the latest. When ctx ends, the connection is closed, unless stop was
// called before. For an address that needs net.Dialer direct returns errIndirect.
func (w *wire) direct(ctx context.Context, to netip.AddrPort, end time.Time) (_ net.Conn, stop func() bool, err error) {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	source := w.f.cfg.SourceIP
	if !to.IsValid() || to.Addr().Zone() != "" || source.IsValid() && (source.Is4() != to.Addr().Is4() ||
		source.Zone() != "") {
		return nil, nil, errIndirect
	}
	s := &socket{remote: to, sockaddr: sockaddr(to)}
	if err := ctx.Err(); err != nil {
		return nil, nil, s.netError("dial", err)
	}
	err = s.begin(source)
	// When ports are scarce, the kernel may miss the last free ones. net.Dialer makes as many attempts.
	for tries := 1; tries < 3 && errors.Is(err, syscall.EADDRNOTAVAIL); tries++ {
		err = s.begin(source)
	}
	if err != nil {
		return nil, nil, s.netError("dial", err)
	}
	stop = context.AfterFunc(ctx, closer(s))
	if err := s.finish(end); err != nil {
		stop()
		_ = s.Close()
		return nil, nil, s.netError("dial", err)
	}
	return s, stop, nil
}

// socket is a TCP connection made by direct. Its methods may be called concurrently where those of os.File may.
type socket struct {
	file     *os.File
	raw      syscall.RawConn // of file
	remote   netip.AddrPort
	sockaddr syscall.Sockaddr // remote
	failed   error            // how connecting ended
}

// begin starts connecting. It leaves no descriptor open when it fails.
func (s *socket) begin(source netip.Addr) error {
	family := syscall.AF_INET6
	if s.remote.Addr().Is4() {
		family = syscall.AF_INET
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if source.IsValid() {
		chooseLate(fd)
		if err := syscall.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0))); err != nil {
			_ = syscall.Close(fd)
			return os.NewSyscallError("bind", err)
		}
	}
	if err := syscall.Connect(fd, s.sockaddr); err != nil && err != syscall.EINPROGRESS && err != syscall.EINTR {
		_ = syscall.Close(fd)
		return os.NewSyscallError("connect", err)
	}
	s.file = os.NewFile(uintptr(fd), "")
	return nil
}

// finish waits until connecting has ended.
func (s *socket) finish(end time.Time) (err error) {
	if s.raw, err = s.file.SyscallConn(); err != nil {
		return err
	}
	if err := s.file.SetDeadline(end); errors.Is(err, os.ErrNoDeadline) {
		return os.NewSyscallError("epoll_ctl", syscall.ENOMEM) // NewFile hides that the poller was full
	} else if err != nil {
		return net.ErrClosed
	}
	switch err := s.raw.Write(s.connected); {
	case err == nil:
		return s.failed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return net.ErrClosed
}

// connected reports whether connecting has ended, and sets failed to the result. RawConn.Write calls it also before the
// first wait. It must detect the end at that call: the poller reports the end only once, and may have done so.
//
// On Linux a second connect reports the state: EALREADY while connecting, nothing (then EISCONN) after success, else
// the error. SO_ERROR alone cannot distinguish success from a spurious wake-up.
func (s *socket) connected(fd uintptr) bool {
	for {
		switch err := syscall.Connect(int(fd), s.sockaddr); err {
		case syscall.EINTR:
		case syscall.EALREADY, syscall.EINPROGRESS:
			return false
		case nil, syscall.EISCONN:
			// A connect to an unused port of this machine connects the socket to itself if the kernel chooses that port
			// as the local one.
			if s.remote.Port() >= unprivilegedPort && local(fd) == s.remote {
				s.failed = os.NewSyscallError("connect", syscall.ECONNREFUSED)
			}
			return true
		default:
			s.failed = os.NewSyscallError("connect", err)
			return true
		}
	}
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.file.Read(p)
	return n, s.netError("read", err)
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	return n, s.netError("write", err)
}

// Close implements net.Conn. It unblocks other goroutines.
func (s *socket) Close() error { return s.netError("close", s.file.Close()) }

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(t time.Time) error { return s.set(s.file.SetDeadline(t)) }

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.set(s.file.SetReadDeadline(t)) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.set(s.file.SetWriteDeadline(t)) }

// set returns the error of setting an option. Only a closed connection fails; package os does not export that error.
func (s *socket) set(err error) error {
	if err != nil {
		err = net.ErrClosed
	}
	return s.netError("set", err)
}

// SetLinger is like that of net.TCPConn. It uses the RawConn: the end of ctx may have closed the descriptor, whose
// number may then belong to another exchange.
func (s *socket) SetLinger(seconds int) error {
	linger := &syscall.Linger{}
	if seconds >= 0 {
		linger.Onoff, linger.Linger = 1, int32(seconds)
	}
	var err error
	if gone := s.raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, linger)
	}); gone != nil {
		return s.set(gone)
	}
	return s.netError("set", os.NewSyscallError("setsockopt", err))
}

// RemoteAddr implements net.Conn.
func (s *socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote) }

// LocalAddr implements net.Conn. It returns nil once the connection is closed.
func (s *socket) LocalAddr() net.Addr {
	var addr netip.AddrPort
	if err := s.raw.Control(func(fd uintptr) { addr = local(fd) }); err != nil || !addr.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(addr)
}

// netError wraps an error as package net would.
func (s *socket) netError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var inFile *fs.PathError
	if errors.As(err, &inFile) {
		err = os.NewSyscallError(op, inFile.Err)
	}
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: s.RemoteAddr(), Err: err}
}

// sockaddr returns an address without zone in the kernel's form.
func sockaddr(a netip.AddrPort) syscall.Sockaddr {
	if a.Addr().Is4() {
		return &syscall.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &syscall.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// local returns the local address of a descriptor, without zone. It is invalid if the kernel does not tell it.
func local(fd uintptr) netip.AddrPort {
	name, _ := syscall.Getsockname(int(fd))
	switch name := name.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr), uint16(name.Port))
	}
	return netip.AddrPort{}
}
