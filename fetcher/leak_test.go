package fetcher

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Hundreds of concurrent exchanges with all kinds of ends leave no goroutine and no connection, return all lent memory,
// and end at once, with their time-out, or when they are cancelled.
func TestNothingIsLeft(t *testing.T) {
	const timeout = 300 * time.Millisecond
	ca := newAuthority(t)
	cert := ca.issuer(t, "issuer", nil).certificate(t, "example.com", nil)
	large := strings.Repeat("Disallow: /x\n", 9000)
	over := func(handle func(net.Conn)) func(net.Conn) {
		return overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, handle)
	}
	synctest.Test(t, func(t *testing.T) {
		var wait sync.WaitGroup
		for i, kind := range []struct {
			entry  string
			handle func(net.Conn)
			after  time.Duration
		}{
			{"http://example.com", nil, 0},
			{"http://example.com", reply(okHead + "\r\n" + large), 0},
			{"http://example.com", reply(okHead + "Content-Encoding: gzip\r\n\r\n" + string(encoders["gzip"]([]byte(large)))),
				0},
			{"http://example.com", reply(okHead + "Content-Encoding: gzip\r\n\r\n" + large), 0},
			{"http://example.com", hold(okHead + "Content-Length: 200000\r\n\r\n" + large), timeout},
			{"http://example.com", reset(okHead + "Content-Length: 200000\r\n\r\n" + large), 0},
			{"http://example.com", endless(okHead, "X: y\r\n"), 0},
			{"http://example.com", hold(), timeout},
			{"https://example.com", over(reply(okHead + "\r\n" + large)), 0},
			{"https://example.com", over(hold(okHead + "\r\n" + large)), timeout},
			{"https://example.com", hold(), timeout},
			{"https://example.com", func(conn net.Conn) { _, _ = io.WriteString(conn, "what?") }, 0},
			{"example.com", reply(okHead + "Content-Length: 2\r\n\r\nab"), timeout}, // waits for more of a TLS handshake
			{"ftp://example.com", ftpServer(large, nil), 0},
			{"ftp://example.com", hold(), timeout},
		} {
			cfg := site(t, 0, kind.handle)
			if kind.handle == nil {
				cfg.ConnectTo[0].ToPort++
			}
			cfg.Timeout, cfg.NoFallback, cfg.Roots, cfg.BodyBudget = timeout, false, ca.pool(), 4<<20
			f := newFetcher(t, cfg)
			defer allBack(t, f)
			for j := range 20 {
				wait.Go(func() {
					began, after := time.Now(), kind.after
					if j%2 == 0 {
						r, _ := fetch(t, f, kind.entry)
						r.Reset()
					} else { // half of them are cancelled, at different times
						bound := time.Duration(i*j) * time.Millisecond
						after = min(after, bound)
						ctx, cancel := context.WithTimeout(t.Context(), bound)
						defer cancel()
						x := exchange.Exchange{Origin: parse(t, kind.entry), Response: new(exchange.Response)}
						x.Target = f.First(x.Origin, x.Past)
						x.Lookup = f.Resolve(ctx, x.Target)
						f.Do(ctx, &x)
						x.Response.Reset()
					}
					if took := time.Since(began); took != after {
						t.Errorf("%d, %s: took %v, want %v", i, kind.entry, took, after)
					}
				})
			}
		}
		wait.Wait()
	})
}
