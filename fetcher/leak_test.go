package fetcher

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Hundreds of concurrent exchanges with all kinds of ends leave no goroutine and no socket, and return all lent memory.
func TestNothingIsLeft(t *testing.T) {
	noLeaks(t)
	ca := newAuthority(t)
	cert := ca.issuer(t, "issuer", nil).certificate(t, "example.com", nil)
	large := strings.Repeat("Disallow: /x\n", 9000)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := netip.MustParseAddrPort(listener.Addr().String())
	_ = listener.Close()
	over := func(handle func(net.Conn)) func(net.Conn) {
		return overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, handle)
	}
	kinds := []struct {
		entry string
		addr  netip.AddrPort
	}{
		{"http://example.com", closed},
		{"http://example.com", serve(t, reply(okHead+"\r\n"+large))},
		{"http://example.com", serve(t, reply(okHead+"Content-Encoding: gzip\r\n\r\n"+string(encoders["gzip"]([]byte(large)))))},
		{"http://example.com", serve(t, reply(okHead+"Content-Encoding: gzip\r\n\r\n"+large))},
		{"http://example.com", serve(t, hold(okHead+"Content-Length: 200000\r\n\r\n"+large))},
		{"http://example.com", serve(t, reset(okHead+"Content-Length: 200000\r\n\r\n"+large))},
		{"http://example.com", serve(t, endless(okHead, "X: y\r\n"))},
		{"http://example.com", serve(t, hold())},
		{"https://example.com", serve(t, over(reply(okHead+"\r\n"+large)))},
		{"https://example.com", serve(t, over(hold(okHead+"\r\n"+large)))},
		{"https://example.com", serve(t, hold())},
		{"https://example.com", serve(t, reply("what?"))},
		{"example.com", serve(t, reply(okHead+"Content-Length: 2\r\n\r\nab"))},
		{"ftp://example.com", serve(t, ftpServer(large, nil))},
		{"ftp://example.com", serve(t, hold())},
	}
	goroutines := runtime.NumGoroutine()
	var wait sync.WaitGroup
	for i, kind := range kinds {
		cfg := testConfig(kind.addr)
		cfg.Timeout, cfg.NoFallback, cfg.Roots, cfg.BodyBudget = 300*time.Millisecond, false, ca.pool(), 4<<20
		f := newFetcher(t, cfg)
		defer allBack(t, f)
		for j := range 20 {
			wait.Go(func() {
				if j%2 == 0 {
					r, _ := fetch(t, f, kind.entry)
					r.Reset()
					return
				}
				// Half of them are cancelled, at different times.
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*j)*time.Millisecond)
				defer cancel()
				x := exchange.Exchange{Origin: parse(t, kind.entry), Response: new(exchange.Response)}
				x.Target = f.First(x.Origin, x.Past)
				x.Lookup = f.Resolve(ctx, x.Target, 0)
				f.Do(ctx, &x)
				x.Response.Reset()
			})
		}
	}
	wait.Wait()
	// The servers see the end of their connections soon after.
	for range 1000 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, of %d before", runtime.NumGoroutine(), goroutines)
}
