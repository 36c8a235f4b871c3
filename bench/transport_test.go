package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// The limits that every client has: those of a scan.
const (
	connectTimeout = 5 * time.Second
	timeout        = 15 * time.Second
	maxBody        = 512_000
	agent          = "bulkscan-bench/1 (+https://github.com/bulkscan/bulkscan)"
)

// web is what a client knows of the simulated web. All hosts live at one address, so that DNS is not measured.
type web struct {
	*built.Web
	secure bool
	roots  *x509.CertPool
}

func (w *web) url(host int64) string { return w.origin(host) + "/robots.txt" }

func (w *web) origin(host int64) string {
	if w.secure {
		return fmt.Sprintf("https://h%d.hot.test:%d", host, w.TLSPort)
	}
	return fmt.Sprintf("http://h%d.hot.test:%d", host, w.HTTPPort)
}

// tls is how other clients shake hands: with the key exchange that ours prefers, which costs half of Go's default.
func (w *web) tls() *tls.Config {
	return &tls.Config{
		RootCAs: w.roots, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	}
}

// dial connects other clients as ours connects: without keep-alive probes, and with a reset in place of TIME_WAIT on
// close.
func (w *web) dial(ctx context.Context, network, to string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectTimeout, KeepAlive: -1}
	c, err := d.DialContext(ctx, network, net.JoinHostPort(w.Hot, port))
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetLinger(0)
}

// clients are the HTTP clients that are compared. Each makes functions that fetch the file of a host over a fresh
// connection.
var clients = []struct {
	name string
	open func(b *testing.B, w *web) func() func(host int64) error
}{
	{"bulkscan", openFetcher},
	{"raw", openRaw},
	{"nethttp", openNetHTTP},
	{"fasthttp", openFastHTTP},
}

// only answers for all hosts with one address.
type only []netip.Addr

// Lookup implements fetcher.Resolver.
func (o only) Lookup(context.Context, string) resolve.Answer {
	return resolve.Answer{Addrs: o}
}

// openFetcher does what a scan does between the address of a name and a judgement: address guard, redirect policy, all
// limits, header fields and timing kept, the chain verified, the body in pooled memory.
func openFetcher(b *testing.B, w *web) func() func(int64) error {
	f, err := fetcher.New(fetcher.Config{
		Timeout: timeout, ConnectTimeout: connectTimeout, MaxBody: maxBody, UserAgent: agent, StrictTLS: true,
		MaxRedirects: fetcher.DefaultMaxRedirects, Retries: fetcher.DefaultRetries,
		AllowPrivate: true, Roots: w.roots, Resolver: only{netip.MustParseAddr(w.Hot)},
	})
	if err != nil {
		b.Fatal(err)
	}
	return func() func(int64) error {
		r := new(exchange.Response)
		return func(host int64) error {
			defer r.Reset()
			x := exchange.Exchange{Response: r}
			var err error
			if x.Origin, err = origin.Parse(w.origin(host)); err != nil {
				return err
			}
			x.Target = f.First(x.Origin, x.Past)
			x.Lookup = f.Resolve(b.Context(), x.Target)
			f.Do(b.Context(), &x)
			if r.Outcome != exchange.Answered {
				return fmt.Errorf("%v: %v", r.Outcome, r.Cause)
			}
			return check(r.Status, r.Body)
		}
	}
}

// openRaw writes a request and reads until the server closes, a goroutine for each connection. It parses nothing.
func openRaw(b *testing.B, w *web) func() func(int64) error {
	return func() func(int64) error {
		buffer := make([]byte, 64<<10)
		return func(host int64) error {
			at, err := url.Parse(w.url(host))
			if err != nil {
				return err
			}
			c, err := w.dial(b.Context(), "tcp", at.Host)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
				return err
			}
			if w.secure {
				config := w.tls()
				config.ServerName = at.Hostname()
				c = tls.Client(c, config)
			}
			if _, err := fmt.Fprintf(c, "GET /robots.txt HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nConnection: close\r\n\r\n",
				at.Host, agent); err != nil {
				return err
			}
			n := 0
			for err == nil {
				var read int
				read, err = c.Read(buffer)
				n += read
			}
			if err != io.EOF {
				return err
			}
			return check(http.StatusOK, buffer[:min(n, len(buffer))])
		}
	}
}

// openNetHTTP is net/http without keep-alive, compression and redirects.
func openNetHTTP(b *testing.B, w *web) func() func(int64) error {
	client := &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext: w.dial, TLSClientConfig: w.tls(), DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func() func(int64) error {
		return func(host int64) error {
			request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.url(host), nil)
			if err != nil {
				return err
			}
			request.Header.Set("User-Agent", agent)
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
			if err != nil {
				return err
			}
			return check(response.StatusCode, body)
		}
	}
}

// openFastHTTP is one fasthttp.Client for all. It does not bound heads or chunk extensions as ours does.
func openFastHTTP(b *testing.B, w *web) func() func(int64) error {
	client := &fasthttp.Client{
		Dial:      func(to string) (net.Conn, error) { return w.dial(b.Context(), "tcp", to) },
		TLSConfig: w.tls(), NoDefaultUserAgentHeader: true,
		ReadTimeout: timeout, WriteTimeout: timeout, MaxResponseBodySize: maxBody, MaxIdemponentCallAttempts: 1,
	}
	return func() func(int64) error {
		request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		request.Header.SetUserAgent(agent)
		request.SetConnectionClose()
		return func(host int64) error {
			request.SetRequestURI(w.url(host))
			if err := client.DoTimeout(request, response, timeout); err != nil {
				return err
			}
			return check(response.StatusCode(), response.Body())
		}
	}
}

func check(status int, body []byte) error {
	if status != http.StatusOK || len(body) == 0 {
		return fmt.Errorf("status %d, a body of %d bytes", status, len(body))
	}
	return nil
}

// BenchmarkTransport fetches one of 64 files, in the sizes of real ones, from each host over a fresh connection, plain
// and by TLS with a verified chain, 256 exchanges in flight. The web is a process of its own. Its processor time does
// not count, but on the loopback interface the kernel does some of the receiver's work in the sender's time, for all
// clients alike.
//
//	make compare BENCH=Transport TIME=10000x COUNT=6
func BenchmarkTransport(b *testing.B) {
	ca := filepath.Join(b.TempDir(), "ca.pem")
	server := startWeb(b, "--only", "ok", "--bodies", "64", "--ca", ca)
	text, err := os.ReadFile(ca)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		b.Fatal(errors.New("cannot read the authority's certificate"))
	}
	for _, scheme := range []string{"http", "https"} {
		for _, c := range clients {
			b.Run("scheme="+scheme+"/by="+c.name, func(b *testing.B) {
				parallel(b, c.open(b, &web{server, scheme == "https", roots}))
			})
		}
	}
}
