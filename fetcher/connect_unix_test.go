//go:build unix

package fetcher

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// A connect without an answer ends at its deadline, although only the poller has that deadline.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	cfg := testConfig(stuffed(t))
	cfg.ConnectTimeout = 100 * time.Millisecond
	f := newFetcher(t, cfg)
	for _, ctx := range []context.Context{t.Context(), context.Background()} {
		x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
		x.Target = f.First(x.Origin, x.Past)
		x.Lookup = f.Resolve(ctx, x.Target)
		began := time.Now()
		f.Do(ctx, &x)
		if got := x.Response; got.Outcome != exchange.ConnectTimeout || got.Cause != exchange.CauseConnectTimeout {
			t.Errorf("got %v (%v)", got.Outcome, got.Cause)
		}
		if took := time.Since(began); took < cfg.ConnectTimeout {
			t.Errorf("took %v", took)
		}
	}
	// Cancelling ends it at once.
	cfg.ConnectTimeout = hang
	f = newFetcher(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
	x.Target = f.First(x.Origin, x.Past)
	x.Lookup = f.Resolve(ctx, x.Target)
	if f.Do(ctx, &x); x.Response.Outcome != 0 {
		t.Errorf("cancelled: got %v (%v)", x.Response.Outcome, x.Response.Cause)
	}
}

// stuffed returns an address on loopback that does not answer a connect: a listener with a full queue, which accepts
// nothing.
func stuffed(t *testing.T) netip.AddrPort {
	t.Helper()
	_, addr := stuffedListener(t)
	return addr
}

// stuffedListener is stuffed that also returns the listener's descriptor.
func stuffedListener(t *testing.T) (int, netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	for range 20 {
		conn, err := net.DialTimeout("tcp", addr.String(), 200*time.Millisecond)
		if err != nil {
			return fd, addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("SKIPPED: this system queues connections without end")
	return fd, addr
}
