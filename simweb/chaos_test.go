package simweb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// askFor is how long an answer is awaited.
const askFor = 10 * time.Second

// askAt asks a host by plain HTTP at an address, and returns the bytes received, the time taken, and the error.
func askAt(t *testing.T, w *Web, addr, host string) (answer []byte, took time.Duration, err error) {
	t.Helper()
	begun := time.Now()
	c, err := clientOf(w).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, time.Since(begun), err
	}
	defer c.Close()
	_ = c.SetDeadline(begun.Add(askFor))
	if _, err := fmt.Fprintf(c, "GET /robots.txt HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return nil, time.Since(begun), err
	}
	answer, err = io.ReadAll(c)
	return answer, time.Since(begun), err
}

// TestChaosFaults checks the effect of each kind of fault by itself, and a complete answer without one: what came, and
// when.
func TestChaosFaults(t *testing.T) {
	const most = 400 * time.Millisecond
	// The relay doubles the ways of SYN, its answer, request and answer.
	const direct, relayed = 4 * trip, 8 * trip
	f := func(name string, cfg ChaosConfig, want func(f Fault, whole int) (bytes int, took time.Duration, err error)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			web := testWeb(t, Config{Seed: 5, Addresses: 4, Bodies: 64, Hold: time.Minute, Only: []string{"ok"}})
			cfg.Seed, cfg.MostDelay, cfg.LeastBytes = 7, most, 20_000
			bad, err := StartChaos(web, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer bad.Close()
			for i := range 10 { // none has a file longer than a window
				host := fmt.Sprintf("h%d.example.com", i)
				addr := web.world.address(host, web.world.behaviour(host)).String()
				whole, took, err := askAt(t, web, net.JoinHostPort(addr, fmt.Sprint(web.HTTPPort())), host)
				if err != nil || took != direct {
					t.Errorf("the web itself fails after %v: %v", took, err)
				}
				got, took, err := askAt(t, web, net.JoinHostPort(addr, strings.TrimPrefix(bad.ConnectTo()[0], ":80::")), host)
				fault := cfg.FaultOf(host, 0)
				if faced := bad.Faced(host); len(faced) != 1 || faced[0] != fault {
					t.Errorf("%s: %s faced %v, want %v", name, host, faced, fault)
				}
				n, wantTook, wantErr := want(fault, len(whole))
				if !bytes.Equal(got, whole[:n]) || took != wantTook || !errors.Is(err, wantErr) {
					t.Errorf("%s: %s (%v): %d of %d bytes in %v, %v; want %d in %v, %v", name, host, fault, len(got), len(whole), took,
						err, n, wantTook, wantErr)
				}
			}
		})
	}
	f("nothing", ChaosConfig{}, func(_ Fault, whole int) (int, time.Duration, error) { return whole, relayed, nil })
	f("latency", ChaosConfig{Latency: 1}, func(f Fault, whole int) (int, time.Duration, error) {
		return whole, relayed + 2*f.Delay, nil
	})
	f("bandwidth", ChaosConfig{Bandwidth: 1}, func(f Fault, whole int) (int, time.Duration, error) {
		took := relayed
		for left, size := whole, f.Rate/20; left > 0; left -= size {
			took += time.Duration(min(size, left)) * time.Second / time.Duration(f.Rate)
		}
		return whole, took, nil
	})
	f("blackhole", ChaosConfig{Blackhole: 1}, func(f Fault, whole int) (int, time.Duration, error) {
		if f.After > whole {
			return whole, relayed, nil
		}
		return f.After, askFor, os.ErrDeadlineExceeded
	})
	f("close", ChaosConfig{Close: 1}, func(f Fault, whole int) (int, time.Duration, error) {
		return min(f.After, whole), relayed, nil
	})
	f("reset", ChaosConfig{Reset: 1}, func(f Fault, whole int) (int, time.Duration, error) {
		if f.After > whole {
			return whole, relayed, nil
		}
		return f.After, relayed, syscall.ECONNRESET
	})
}

// TestHoles dials black holes of the web, and of the bad network in front of it, on sockets: no answer comes.
func TestHoles(t *testing.T) {
	if !plugs {
		t.Skip("SKIPPED: only Linux has black holes")
	}
	web, err := Start(t.Context(), Config{Addresses: 4, Only: []string{"ok"}})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	bad, err := StartChaos(web, ChaosConfig{Holes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	f := func(addr netip.Addr, port int) {
		t.Helper()
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, uint16(port)).String(), 200*time.Millisecond)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v: %v", addr, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	f(web.world.holes[0], web.HTTPPort())
	f(web.world.holes[1], web.TLSPort())
	f(web.world.ordinary[0], int(bad.ports[0]))
	f(web.world.ordinary[0], int(bad.ports[1]))
}

// TestChaosShares checks that faults have their shares, and follow from the seed.
func TestChaosShares(t *testing.T) {
	cfg, n := DefaultChaos(3), 100_000
	count := map[FaultKind]int{}
	afters := 0
	for i := range n {
		f := cfg.FaultOf(fmt.Sprintf("h%d.test", i/3), i%3)
		if f != cfg.FaultOf(fmt.Sprintf("h%d.test", i/3), i%3) {
			t.Fatal("the same connection has another fault")
		}
		count[f.Kind]++
		if f.After > 0 {
			afters++
		}
	}
	for kind, share := range map[FaultKind]float64{FaultLatency: cfg.Latency, FaultBandwidth: cfg.Bandwidth,
		FaultBlackhole: cfg.Blackhole, FaultReset: cfg.Reset, FaultClose: cfg.Close} {
		if got := float64(count[kind]) / float64(n); got < 0.95*share || got > 1.05*share {
			t.Errorf("%v has %.3f of the connections, want %.3f", kind, got, share)
		}
	}
	lost := 0
	for i := range n {
		if cfg.loses(fmt.Sprintf("h%d.test", i/4), i%4) {
			lost++
		}
	}
	if got := float64(lost) / float64(n); got < 0.95*cfg.Loss || got > 1.05*cfg.Loss {
		t.Errorf("%.3f of the packets are lost, want %.3f", got, cfg.Loss)
	}
	other, same := DefaultChaos(4), 0
	for i := range 1000 {
		if cfg.FaultOf(fmt.Sprint(i), 0) == other.FaultOf(fmt.Sprint(i), 0) {
			same++
		}
	}
	if same > 500 || afters == 0 {
		t.Errorf("another seed is the same network for %d of 1000", same)
	}
}

// TestChaosCloses closes a network in mid-connection, and finds no connection open.
func TestChaosCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := testWeb(t, Config{Seed: 5, Addresses: 4, Bodies: 64, Only: []string{"silent"}})
		bad, err := StartChaos(web, DefaultChaos(1))
		if err != nil {
			t.Fatal(err)
		}
		var clients []net.Conn
		for i := range 20 {
			c, err := clientOf(web).DialContext(t.Context(), "tcp", net.JoinHostPort(web.HotAddr().String(),
				strings.TrimPrefix(bad.ConnectTo()[0], ":80::")))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if i%2 == 0 { // the others stay silent
				fmt.Fprintf(c, "GET /robots.txt HTTP/1.1\r\nHost: h%d.test\r\n\r\n", i)
			}
			clients = append(clients, c)
		}
		time.Sleep(10 * time.Second)
		bad.Close()
		for _, c := range clients {
			_ = c.SetReadDeadline(time.Now().Add(trip + 1))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a connection is still open")
			}
		}
	})
}
