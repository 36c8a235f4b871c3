package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var here, there, hole = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
	netip.MustParseAddr("10.0.0.3")

// in runs a test in a bubble, with a network whose hosts are 10 ms apart and whose third host loses everything. since
// is the time that has passed.
func in(t *testing.T, do func(client, server Host, since func() time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		n := New(func(_, to netip.Addr) Link {
			if to == hole {
				return Link{Latency: -1}
			}
			return Link{Latency: 10 * time.Millisecond}
		})
		do(Host{n, here}, Host{n, there}, func() time.Duration { return time.Since(begun) })
	})
}

// said compares events and their times with the expected ones.
func said(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPackets(t *testing.T) {
	in(t, func(client, server Host, since func() time.Duration) {
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
			got = append(got, strings.TrimSpace(word+" "+cause(err)))
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
		said(t, got, "20ms 3 one two th", "1.02s 0 i/o timeout", "1.04s 0 connection refused",
			"1.04s 0 use of closed network connection")
	})
}

// TestStreams shows what the client of a stream sees, and when, while each end performs its steps.
func TestStreams(t *testing.T) {
	f := func(what, serve, ask string, want ...string) {
		t.Helper()
		in(t, func(client, server Host, since func() time.Duration) {
			l, _ := server.Listen(80)
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					play(c.(*Conn), serve, since)
				}
			}()
			c, err := client.DialContext(context.Background(), "tcp", "10.0.0.2:80")
			if err != nil {
				t.Fatal(err)
			}
			said(t, append([]string{what}, play(c.(*Conn), ask+", close", since)...), append([]string{what}, want...)...)
			time.Sleep(time.Hour) // the other end may not have ended
		})
	}
	f("half-close", "read, read, write 5, close", "write 3, half, read, read", "20ms write 3", "40ms read 5",
		"40ms read 0 EOF")
	f("reset", "reset", "read, write 1", "30ms read 0 connection reset by peer", "30ms write 0 connection reset by peer")
	f("written to a closed end", "close", "write 1, read, sleep 20ms, write 1", "20ms write 1", "30ms read 0 EOF",
		"50ms write 0 connection reset by peer")
	f("written without end to a closed end", "close", "sleep 1s, write 1000000",
		"1.04s write 65536 connection reset by peer")
	f("closed with unread bytes", "sleep 50ms, close", "write 1, read", "20ms write 1",
		"80ms read 0 connection reset by peer")
	f("the window", "sleep 1s, read, read, close", "write 65537", "1.02s write 65537")
	f("deadlines", "sleep 1m, close", "deadline 1s, write 100000, read", "1.02s write 65536 i/o timeout",
		"1.02s read 0 i/o timeout")
}

// play does one thing after the other at an end of a stream, and returns how reads and writes ended, and when.
func play(c *Conn, steps string, since func() time.Duration) (got []string) {
	b := make([]byte, 1<<20)
	for step := range strings.SplitSeq(steps, ", ") {
		do, argument, _ := strings.Cut(step, " ")
		pause, _ := time.ParseDuration(argument)
		size, _ := strconv.Atoi(argument)
		n, err := 0, error(nil)
		switch do {
		case "read":
			n, err = c.Read(b)
		case "write":
			n, err = c.Write(b[:size])
		case "sleep":
			time.Sleep(pause)
		case "deadline":
			_ = c.SetDeadline(time.Now().Add(pause))
		case "half":
			_ = c.CloseWrite()
		case "reset":
			_ = c.SetLinger(0)
			_ = c.Close()
		case "close":
			_ = c.Close()
		}
		if do == "read" || do == "write" {
			got = append(got, strings.TrimSpace(fmt.Sprint(since(), " ", do, " ", n, " ", cause(err))))
		}
	}
	return got
}

// cause returns the cause of an error as text.
func cause(err error) string {
	for _, known := range []error{io.EOF, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.ECONNREFUSED,
		net.ErrClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return ""
}

func TestDial(t *testing.T) {
	in(t, func(client, _ Host, since func() time.Duration) {
		var got []string
		for _, at := range []string{"10.0.0.2:1", "10.0.0.3:1"} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := client.DialContext(ctx, "tcp", at)
			cancel()
			got = append(got, fmt.Sprint(since(), " ", cause(err)))
		}
		said(t, got, "20ms connection refused", "1.02s i/o timeout")
	})
}
