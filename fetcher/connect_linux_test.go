package fetcher

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// newTestWire returns a wire whose exchange has a deadline only for a test that hangs.
func newTestWire(t *testing.T, cfg Config) *wire {
	t.Helper()
	w := newFetcher(t, cfg).newWire()
	w.deadline, w.connectFor = time.Now().Add(hang), hang
	return w
}

// connected returns a connection made by direct. It is open until the test ends.
func connected(ctx context.Context, t *testing.T, to netip.AddrPort) *socket {
	t.Helper()
	w := newTestWire(t, testConfig(to))
	conn, stop, err := w.direct(ctx, to, w.deadline)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = conn.Close()
	})
	return conn.(*socket)
}

// closedPort returns an address whose port is closed.
func closedPort(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Logf("cannot listen at %s: %v", ip, err)
		return netip.AddrPortFrom(netip.MustParseAddr(ip), 1)
	}
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// A failed connect has the same outcome, and wraps the same error of the kernel, as with net.Dialer. It leaves no
// descriptor.
func TestDirectFailsAsDialer(t *testing.T) {
	noLeaks(t)
	const (
		refused     = exchange.CauseRefused
		unreachable = exchange.CauseUnreachable
		late        = exchange.CauseConnectTimeout
		resource    = exchange.CauseNoLocalResource
		other       = exchange.CauseOther
	)
	f := func(name string, to netip.AddrPort, source string, errno error, want exchange.Cause) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			cfg := testConfig(to)
			if source != "" {
				cfg.SourceIP = netip.MustParseAddr(source)
			}
			before := descriptors(t)
			fails := func(by func(*wire, time.Time) (net.Conn, error)) (exchange.Outcome, exchange.Cause, error) {
				w := newTestWire(t, cfg)
				end := w.deadline
				if want == late {
					end = time.Now().Add(50 * time.Millisecond)
				}
				if errno == syscall.EMFILE {
					defer noDescriptors(t)()
				}
				conn, err := by(w, end)
				if err == nil {
					_ = conn.Close()
					t.Fatal("connected")
				}
				if early := time.Until(end); want == late && early > 0 {
					t.Errorf("%v before the deadline", early)
				}
				outcome, cause := classify(connecting, err)
				return outcome, cause, err
			}
			outcome, cause, err := fails(func(w *wire, end time.Time) (net.Conn, error) {
				conn, _, err := w.direct(t.Context(), to, end)
				return conn, err
			})
			if !errors.Is(err, errno) || cause != want {
				t.Errorf("got %v: %v", cause, err)
			}
			var network net.Error
			if !errors.As(err, &network) || network.Timeout() != (want == late) {
				t.Errorf("package net would not return %#v", err)
			}
			thatOutcome, thatCause, thatErr := fails(func(w *wire, end time.Time) (net.Conn, error) {
				return w.indirect(t.Context(), to, end)
			})
			if outcome != thatOutcome || cause != thatCause {
				t.Errorf("got %v (%v): %v; net.Dialer has %v (%v): %v", outcome, cause, err, thatOutcome, thatCause, thatErr)
			}
			if after := descriptors(t); after > before {
				t.Errorf("%d descriptors, of %d before", after, before)
			}
		})
	}
	at := netip.MustParseAddrPort
	here := serve(t, hold())
	f("refused", closedPort(t, "127.0.0.1"), "", syscall.ECONNREFUSED, refused)
	f("refused, privileged port", at("127.0.0.1:1"), "", syscall.ECONNREFUSED, refused)
	f("refused, source address", closedPort(t, "127.0.0.1"), "127.0.0.7", syscall.ECONNREFUSED, refused)
	full := stuffed(t)
	f("no answer", full, "", os.ErrDeadlineExceeded, late)
	f("no answer, source address", full, "127.0.0.7", os.ErrDeadlineExceeded, late)
	f("broadcast", at("255.255.255.255:80"), "", syscall.ENETUNREACH, unreachable)
	f("multicast", at("224.0.0.1:80"), "", syscall.ENETUNREACH, unreachable)
	f("foreign source address", here, "192.0.2.1", syscall.EADDRNOTAVAIL, resource)
	f("no descriptors", here, "", syscall.EMFILE, resource)
	if listener, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Logf("SKIPPED: the cases of IPv6: %v", err)
	} else {
		_ = listener.Close()
		f("refused, IPv6", closedPort(t, "::1"), "", syscall.ECONNREFUSED, refused)
		f("refused, IPv6, source address", closedPort(t, "::1"), "::1", syscall.ECONNREFUSED, refused)
		f("multicast, IPv6", at("[ff02::1]:80"), "", syscall.ENETUNREACH, unreachable)
		f("link-local without a zone", at("[fe80::1]:80"), "", syscall.EINVAL, other)
		f("foreign source address, IPv6", closedPort(t, "::1"), "2001:db8::1", syscall.EADDRNOTAVAIL, resource)
	}
}

// descriptors returns how many descriptors this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// noDescriptors prevents this process from opening descriptors until the returned function is called.
func noDescriptors(t *testing.T) func() {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(now uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: now, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	return func() { set(limit.Cur) }
}

// Addresses with a zone, of two families, or invalid ones are left to net.Dialer.
func TestIndirect(t *testing.T) {
	noLeaks(t)
	f := func(to, source string) {
		t.Helper()
		addr := netip.MustParseAddrPort(to)
		w := newTestWire(t, testConfig(addr))
		if source != "" {
			w.f.cfg.SourceIP = netip.MustParseAddr(source)
		}
		if _, _, err := w.direct(t.Context(), addr, w.deadline); err != errIndirect {
			t.Errorf("to %s from %q: got %v", to, source, err)
		}
	}
	f("[fe80::1%lo]:1", "")
	f("[::1]:1", "fe80::1%lo")
	f("[::1]:1", "127.0.0.1")
	f("127.0.0.1:1", "::1")
	if _, _, err := newTestWire(t, testConfig(netip.AddrPort{})).direct(t.Context(), netip.AddrPort{},
		time.Now()); err != errIndirect {
		t.Errorf("to nowhere: got %v", err)
	}
}

// A connection has its socket options, and both its addresses are those that the server sees.
func TestDirectConnection(t *testing.T) {
	noLeaks(t)
	f := func(to netip.AddrPort, source string) {
		t.Helper()
		cfg := testConfig(to)
		if source != "" {
			cfg.SourceIP = netip.MustParseAddr(source)
		}
		w := newTestWire(t, cfg)
		conn, stop, err := w.connect(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		defer stop()
		if got := conn.RemoteAddr().(*net.TCPAddr).AddrPort(); got.Addr() != to.Addr().Unmap() || got.Port() != to.Port() {
			t.Errorf("to %v", got)
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		seen, err := io.ReadAll(conn)
		if got := conn.LocalAddr(); err != nil || got.String() != string(seen) {
			t.Errorf("%v: from %v, seen from %s", err, got, seen)
		}
		option := func(name string, get func(fd int) (int, error), want int) {
			t.Helper()
			var got int
			var err error
			if gone := conn.(*socket).raw.Control(func(fd uintptr) { got, err = get(int(fd)) }); gone != nil || err != nil ||
				got != want {
				t.Errorf("%s: got %d, %v, %v", name, got, err, gone)
			}
		}
		late := 0
		if source != "" {
			late = 1
		}
		option("IP_BIND_ADDRESS_NO_PORT", func(fd int) (int, error) {
			return unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT)
		}, late)
		option("close-on-exec", func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) },
			unix.FD_CLOEXEC)
		_ = conn.Close()
		if got := conn.LocalAddr(); got != nil {
			t.Errorf("the local address of a closed connection is %v", got)
		}
	}
	mirror := func(conn net.Conn) { reply(conn.RemoteAddr().String())(conn) }
	four := serve(t, mirror)
	f(four, "")
	f(four, "127.0.0.7")
	f(netip.AddrPortFrom(netip.AddrFrom16(four.Addr().As16()), four.Port()), "")
	six := serveAt(t, "[::1]:0", mirror)
	if !six.IsValid() {
		t.Skip("SKIPPED: the cases of IPv6")
	}
	f(six, "")
	f(six, "::1")
}

// serveAt serves each connection to an address with handle until the test ends. If it cannot listen there, it returns
// no address.
func serveAt(t *testing.T, at string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Logf("cannot listen at %s: %v", at, err)
		return netip.AddrPort{}
	}
	var server sync.WaitGroup
	server.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		server.Wait()
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}

// Cancelling ends the wait for a connection at once, and leaves no descriptor. With a cancelled context there is no
// wait.
func TestDirectCancelled(t *testing.T) {
	noLeaks(t)
	to := stuffed(t)
	before := descriptors(t)
	w := newTestWire(t, testConfig(to))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Millisecond, cancel)
		if _, _, err := w.direct(&begun{Context: ctx}, to, time.Now().Add(time.Hour)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("cancelled while it waits: got %v", err)
		}
		if _, _, err := w.direct(ctx, to, time.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: got %v", err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, of %d before", after, before)
	}
}

// begun is a context that has not ended when it is asked for the first time, however late that is.
type begun struct {
	context.Context
	asked atomic.Bool
}

// Err implements context.Context.
func (b *begun) Err() error {
	if !b.asked.Swap(true) {
		return nil
	}
	return b.Context.Err()
}

// Reads and writes end when the connection is closed, when its context ends, and at its deadlines, with the errors of
// package net.
func TestDirectEnds(t *testing.T) {
	noLeaks(t)
	f := func(name string, end func(s *socket, cancel func()), want error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			to := serve(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := connected(ctx, t, to)
			if err := s.SetDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			var ends sync.WaitGroup
			for range 2 {
				ends.Go(func() {
					_, err := s.Read(make([]byte, 1))
					var network net.Error
					if !errors.Is(err, want) || !errors.As(err, &network) || network.Timeout() != (want == os.ErrDeadlineExceeded) {
						t.Errorf("reading: got %v", err)
					}
				})
			}
			end(s, cancel)
			ends.Wait()
			if want != net.ErrClosed {
				return
			}
			if _, err := s.Write([]byte{0}); !errors.Is(err, want) {
				t.Errorf("writing after it: got %v", err)
			}
			// The descriptor's number may belong to another file by now.
			for _, err := range []error{s.SetLinger(0), s.SetDeadline(time.Now()), s.Close()} {
				if !errors.Is(err, want) {
					t.Errorf("after it: got %v", err)
				}
			}
		})
	}
	f("closed", func(s *socket, _ func()) { _ = s.Close() }, net.ErrClosed)
	f("cancelled", func(_ *socket, cancel func()) { cancel() }, net.ErrClosed)
	f("deadline", func(s *socket, _ func()) { _ = s.SetDeadline(time.Now().Add(time.Millisecond)) },
		os.ErrDeadlineExceeded)
	f("read deadline", func(s *socket, _ func()) { _ = s.SetReadDeadline(time.Now().Add(time.Millisecond)) },
		os.ErrDeadlineExceeded)

	// A write deadline, with a server that does not read.
	release := make(chan struct{})
	s := connected(t.Context(), t, serve(t, func(net.Conn) { <-release }))
	defer close(release)
	if err := s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = s.Write(make([]byte, 1<<20))
	}
	if outcome, cause := classify(writing, err); outcome != exchange.Timeout || cause != exchange.CauseWriteTimeout {
		t.Errorf("writing: got %v", err)
	}
}

// The wait also ends when the host answers a repeated packet of the same connect: it takes the connection, or refuses
// it.
func TestDirectWaits(t *testing.T) {
	t.Parallel()
	f := func(name string, then func(listener int), want error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			t.Parallel()
			listener, to := stuffedListener(t)
			w := newTestWire(t, testConfig(to))
			s := &socket{remote: to, sockaddr: sockaddr(to)}
			began := time.Now()
			if err := s.begin(netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			then(listener)
			if err := s.finish(w.deadline); !errors.Is(err, want) {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
			if time.Since(began) < 100*time.Millisecond {
				t.Error("it did not wait")
			}
		})
	}
	f("taken", func(listener int) {
		// Room for one is enough.
		conn, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
		if err != nil {
			t.Error(err)
		}
		_ = syscall.Close(conn)
	}, nil)
	f("refused", func(listener int) { _ = syscall.Shutdown(listener, syscall.SHUT_RDWR) }, syscall.ECONNREFUSED)
}

// A socket that the kernel connects to itself counts as refused.
func TestSelfConnect(t *testing.T) {
	noLeaks(t)
	to := closedPort(t, "127.0.0.1")
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	// The kernel would choose that port once in 28,000 times. Here the port is set.
	if err := syscall.Bind(fd, sockaddr(to)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(fd, sockaddr(to)); err != nil && err != syscall.EINPROGRESS {
		t.Fatal(err)
	}
	s := &socket{remote: to, sockaddr: sockaddr(to)}
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(hang.Milliseconds())); err != nil ||
		!s.connected(uintptr(fd)) {
		t.Fatalf("not connected: %v", err)
	}
	if _, cause := classify(connecting, s.netError("dial", s.failed)); cause != exchange.CauseRefused {
		t.Errorf("got %v", s.failed)
	}
}

// Hundreds of concurrent connects, accepted or refused at once, all end: none misses an event that came before its
// wait.
func TestDirectMany(t *testing.T) {
	noLeaks(t)
	there, gone := serve(t, hold()), closedPort(t, "127.0.0.1")
	f := newFetcher(t, testConfig(there))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 20 {
				w := f.newWire()
				w.deadline, w.connectFor = time.Now().Add(hang), hang
				to := there
				if (i+j)%4 == 0 {
					to = gone
				}
				conn, stop, err := w.connect(t.Context(), to)
				if to == gone {
					if _, cause := classify(connecting, err); cause != exchange.CauseRefused {
						t.Errorf("got %v", err)
					}
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				stop()
				_ = conn.(*socket).SetLinger(0)
				_ = conn.Close()
			}
		})
	}
	all.Wait()
}
