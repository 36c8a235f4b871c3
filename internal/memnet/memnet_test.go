package memnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var here, there, hole = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")

// in runs a test in a bubble, with a network whose hosts are 10 ms apart and whose third swallows all. since is the time that has
// passed.
func in(t *testing.T, rate int, do func(client, server Host, since func() time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		n := New(func(_, to netip.Addr) Link {
			if to == hole {
				return Link{Latency: -1}
			}
			return Link{Latency: 10 * time.Millisecond, Rate: rate}
		})
		do(Host{n, here}, Host{n, there}, func() time.Duration { return time.Since(begun) })
	})
}

// said compares what happened, and when, with what must.
func said(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPackets(t *testing.T) {
	in(t, 0, func(client, server Host, since func() time.Duration) {
		echo, _ := server.ListenPacket(53)
		go func() {
			for b := make([]byte, 10); ; {
				n, from, err := echo.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = echo.WriteTo(b[:n], from)
			}
		}()
		p, _ := client.DialPackets(netip.AddrPortFrom(there, 53))
		buffers, sizes := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 2)}, make([]int, 3)
		var got []string
		receive := func() {
			n, err := p.Receive(buffers, sizes)
			word := fmt.Sprint(since(), " ", n)
			for i := range n {
				word += " " + string(buffers[i][:sizes[i]])
			}
			for _, known := range []error{os.ErrDeadlineExceeded, syscall.ECONNREFUSED, net.ErrClosed} {
				if errors.Is(err, known) {
					word += " " + known.Error()
				}
			}
			got = append(got, word)
		}
		_, _ = p.Send([][]byte{[]byte("one"), []byte("two"), []byte("three")})
		receive()
		_ = p.SetReadDeadline(time.Now().Add(time.Second))
		receive()
		_ = p.SetReadDeadline(time.Time{})
		_ = echo.Close()
		_, _ = p.Send([][]byte{[]byte("four")})
		receive()
		_ = p.Close()
		receive()
		said(t, got, "20ms 3 one two th", "1.02s 0 i/o timeout", "1.04s 0 connection refused", "1.04s 0 use of closed network connection")
	})
}

func TestStreams(t *testing.T) {
	f := func(what string, rate int, serve func(c *Conn), ask func(c *Conn, note func(string, int, error)), want ...string) {
		t.Helper()
		in(t, rate, func(client, server Host, since func() time.Duration) {
			l, _ := server.Listen(80)
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					serve(c.(*Conn))
				}
			}()
			c, err := client.DialContext(context.Background(), "tcp", "10.0.0.2:80")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			ask(c.(*Conn), func(word string, n int, err error) {
				for _, known := range []error{io.EOF, os.ErrDeadlineExceeded, syscall.ECONNRESET} {
					if errors.Is(err, known) {
						word += " " + known.Error()
					}
				}
				got = append(got, fmt.Sprint(since(), " ", word, " ", n))
			})
			_ = c.Close()
			time.Sleep(time.Hour) // the other end may not have ended
			said(t, append([]string{what}, got...), append([]string{what}, want...)...)
		})
	}
	b := make([]byte, 1<<20)
	f("half-close", 0, func(c *Conn) {
		all, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(all))
		_ = c.Close()
	}, func(c *Conn, note func(string, int, error)) {
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		n, err := c.Read(b)
		note(string(b[:n]), n, err)
		n, err = c.Read(b)
		note("", n, err)
	}, "40ms HELLO 5", "40ms  EOF 0")
	f("reset", 0, func(c *Conn) { _ = c.SetLinger(0); _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		n, err := c.Read(b)
		note("read", n, err)
		n, err = c.Write(b[:1])
		note("write", n, err)
	}, "30ms read connection reset by peer 0", "30ms write connection reset by peer 0")
	f("written to a closed end", 0, func(c *Conn) { _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		n, err := c.Write(b[:1])
		note("write", n, err)
		n, err = c.Read(b)
		note("read", n, err)
		time.Sleep(20 * time.Millisecond)
		n, err = c.Write(b[:1])
		note("write", n, err)
	}, "20ms write 1", "30ms read EOF 0", "50ms write connection reset by peer 0")
	f("written without end to a closed end", 0, func(c *Conn) { _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		time.Sleep(time.Second)
		n, err := 0, error(nil)
		for err == nil {
			var written int
			written, err = c.Write(b)
			n += written
		}
		note("write", n, err)
	}, "1.04s write connection reset by peer 65536")
	f("the window", 0, func(c *Conn) { time.Sleep(time.Second); _, _ = io.CopyN(io.Discard, c, window+1); _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		n, err := c.Write(b[:window+1])
		note("write", n, err)
	}, "1.02s write 65537")
	f("deadlines", 0, func(c *Conn) { time.Sleep(time.Minute); _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		n, err := c.Write(b[:2*window])
		note("write", n, err)
		n, err = c.Read(b)
		note("read", n, err)
	}, "1.02s write i/o timeout 65536", "1.02s read i/o timeout 0")
	f("a drip", 10, func(c *Conn) { _, _ = c.Write(b[:3]); _ = c.Close() }, func(c *Conn, note func(string, int, error)) {
		for range 4 {
			n, err := c.Read(b)
			note("read", n, err)
		}
	}, "130ms read 1", "230ms read 1", "330ms read 1", "330ms read EOF 0")
}

func TestDial(t *testing.T) {
	in(t, 0, func(client, _ Host, since func() time.Duration) {
		var got []string
		dial := func(at string, patience time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := client.DialContext(ctx, "tcp", at)
			got = append(got, fmt.Sprint(since(), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrDeadlineExceeded)))
		}
		dial("10.0.0.2:1", time.Second)
		dial("10.0.0.3:1", time.Second)
		said(t, got, "20ms true false", "1.02s false true")
	})
}
