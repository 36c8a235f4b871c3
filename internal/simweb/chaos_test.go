package simweb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// askAt asks a host by plain HTTP at an address, and returns the bytes received, the time taken, and the error.
func askAt(t *testing.T, addr, host string) (answer []byte, took time.Duration, err error) {
	t.Helper()
	begun := time.Now()
	c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
	if err != nil {
		return nil, time.Since(begun), err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(1500 * time.Millisecond))
	if _, err := fmt.Fprintf(c, "GET /robots.txt HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return nil, time.Since(begun), err
	}
	answer, err = io.ReadAll(c)
	return answer, time.Since(begun), err
}

// TestChaosFaults checks the effect of each kind of fault by itself, and a whole answer without one.
func TestChaosFaults(t *testing.T) {
	const most = 400 * time.Millisecond
	f := func(name string, cfg ChaosConfig, holds func(f Fault, whole, got []byte, took time.Duration, err error) bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web, err := Start(t.Context(), Config{Seed: 5, Addresses: 4, Bodies: 64, Hold: 5 * time.Second, Only: []string{"ok"}})
			if err != nil {
				t.Fatal(err)
			}
			defer web.Close()
			cfg.Seed, cfg.MostDelay, cfg.LeastBytes = 7, most, 20_000
			bad, err := StartChaos(web, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer bad.Close()
			ask := func(host string) {
				addr := web.world.address(host, web.world.behaviour(host)).String()
				whole, _, err := askAt(t, net.JoinHostPort(addr, fmt.Sprint(web.HTTPPort())), host)
				if err != nil || len(whole) == 0 {
					t.Errorf("the web itself fails: %v", err)
					return
				}
				port := strings.TrimPrefix(bad.ConnectTo()[0], ":80::")
				got, took, err := askAt(t, net.JoinHostPort(addr, port), host)
				want := cfg.FaultOf(host, 0)
				if faced := bad.Faced(host); cfg.Holes == 0 && (len(faced) != 1 || faced[0] != want) {
					t.Errorf("%s: %s faced %v, want %v", name, host, faced, want)
				}
				if !holds(want, whole, got, took, err) {
					t.Errorf("%s: %s (%v): %d of %d bytes in %v, %v", name, host, want, len(got), len(whole), took, err)
				}
			}
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() { ask(fmt.Sprintf("h%d.example.com", i)) })
			}
			all.Wait()
		})
	}
	isTimeout := func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
	cut := func(f Fault, whole, got []byte) bool {
		return bytes.Equal(got, whole[:min(f.After, len(whole))]) && f.After < 10_000
	}
	f("nothing", ChaosConfig{}, func(f Fault, whole, got []byte, _ time.Duration, err error) bool {
		return f == Fault{} && bytes.Equal(got, whole) && err == nil
	})
	f("latency", ChaosConfig{Latency: 1}, func(f Fault, whole, got []byte, took time.Duration, err error) bool {
		return f.Kind == FaultLatency && f.Delay < most && bytes.Equal(got, whole) && err == nil && took >= 2*f.Delay
	})
	f("bandwidth", ChaosConfig{Bandwidth: 1}, func(f Fault, whole, got []byte, took time.Duration, err error) bool {
		least := time.Duration(len(got)-f.Rate/10) * time.Second / time.Duration(f.Rate)
		return f.Kind == FaultBandwidth && bytes.HasPrefix(whole, got) && (err == nil && len(got) == len(whole) || isTimeout(err)) && took >= least
	})
	f("blackhole", ChaosConfig{Blackhole: 1}, func(f Fault, whole, got []byte, _ time.Duration, err error) bool {
		return cut(f, whole, got) && (isTimeout(err) || f.After >= len(whole))
	})
	f("close", ChaosConfig{Close: 1}, func(f Fault, whole, got []byte, _ time.Duration, err error) bool {
		return cut(f, whole, got) && err == nil
	})
	f("reset", ChaosConfig{Reset: 1}, func(f Fault, whole, got []byte, _ time.Duration, err error) bool {
		// A reset may also drop bytes that arrived before it.
		return f.After >= len(whole) || bytes.HasPrefix(whole, got) && errors.Is(err, syscall.ECONNRESET)
	})
	if runtime.GOOS == "linux" {
		f("holes", ChaosConfig{Holes: 1}, func(_ Fault, whole, got []byte, took time.Duration, err error) bool {
			var dial net.Error // all addresses but the hot one are black holes
			return err == nil && bytes.Equal(got, whole) || errors.As(err, &dial) && dial.Timeout() && len(got) == 0
		})
	}
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
	for kind, share := range map[FaultKind]float64{FaultLatency: cfg.Latency, FaultBandwidth: cfg.Bandwidth, FaultBlackhole: cfg.Blackhole, FaultReset: cfg.Reset, FaultClose: cfg.Close} {
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
	web, err := Start(t.Context(), Config{Seed: 5, Addresses: 4, Bodies: 64, Only: []string{"silent"}})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	bad, err := StartChaos(web, DefaultChaos(1))
	if err != nil {
		t.Fatal(err)
	}
	var clients []net.Conn
	for i := range 20 {
		c, err := net.Dial("tcp", net.JoinHostPort(web.HotAddr().String(), strings.TrimPrefix(bad.ConnectTo()[0], ":80::")))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 { // the others stay silent
			fmt.Fprintf(c, "GET /robots.txt HTTP/1.1\r\nHost: h%d.test\r\n\r\n", i)
		}
		clients = append(clients, c)
	}
	for end := time.Now().Add(5 * time.Second); bad.Stats().Connections == [len(faultNames)]int64{} && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan struct{})
	go func() { bad.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the network does not end")
	}
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is still open")
		}
	}
}
