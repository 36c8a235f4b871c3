package fetcher

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// serve runs a raw TCP server on loopback until the test ends. handle gets each connection and may do as it likes with
// it; the connection is closed after it. A test fails if a handler outlives it.
func serve(tb testing.TB, handle func(net.Conn)) netip.AddrPort {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		handlers.Wait()
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}

// readRequest reads a request's head, and nothing where the client says nothing.
func readRequest(conn net.Conn) string {
	br := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String()
		}
	}
}

// reply is a handler that reads the request, writes the parts one by one, and closes. Writing ends at the first error,
// so that endless replies end with the client.
func reply(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	}
}

// endless is a handler that writes a beginning and then a part for ever.
func endless(begin, part string) func(net.Conn) {
	return func(conn net.Conn) {
		reply(begin)(conn)
		for {
			if _, err := io.WriteString(conn, part); err != nil {
				return
			}
		}
	}
}

// hold is a handler that writes the parts and then keeps the connection open until the client closes it.
func hold(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		reply(parts...)(conn)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// reset is a handler that writes the parts and then resets the connection.
func reset(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		reply(parts...)(conn)
		raw := conn
		if t, ok := conn.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		_ = raw.(*net.TCPConn).SetLinger(0)
		_ = raw.Close()
	}
}

// testConfig is a Config for loopback: every target is dialled at addr, and nothing is tried twice.
func testConfig(addr netip.AddrPort) Config {
	return Config{
		Timeout:      5 * time.Second,
		MaxRedirects: DefaultMaxRedirects,
		UserAgent:    "bulkscan/test (+https://bulkscan.example/)",
		AllowPrivate: true,
		NoFallback:   true,
		ConnectTo:    []ConnectTo{{Addr: addr.Addr(), ToPort: addr.Port()}},
		Resolver:     noDNS{},
	}
}

// noDNS is a Resolver for tests that must not need one.
type noDNS struct{}

func (noDNS) Lookup(context.Context, string, time.Duration) resolve.Answer {
	return resolve.Answer{Outcome: exchange.DNSFailed, Cause: exchange.CauseDNSNetwork}
}

// names is a Resolver of a fixed table.
type names map[string][]string

func (n names) Lookup(_ context.Context, host string, _ time.Duration) resolve.Answer {
	var answer resolve.Answer
	for _, text := range n[host] {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(text))
	}
	if answer.Addrs == nil {
		answer.Outcome, answer.Cause = exchange.DNSNotFound, exchange.CauseNoSuchName
	}
	return answer
}

func newFetcher(tb testing.TB, cfg Config) *Fetcher {
	tb.Helper()
	f, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func parse(tb testing.TB, s string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// fetch takes an origin through all its exchanges, as the pipeline does but without waiting, and returns the Response
// and the targets that were asked.
func fetch(tb testing.TB, f *Fetcher, entry string) (*exchange.Response, []string) {
	tb.Helper()
	x := exchange.Exchange{Origin: parse(tb, entry), Response: new(exchange.Response)}
	var asked []string
	x.Target = f.First(x.Origin, x.Past)
	for range 50 {
		asked = append(asked, x.Target.String())
		x.Lookup = f.Resolve(tb.Context(), x.Target, 0)
		next := f.Do(tb.Context(), &x)
		if !next.Again {
			return x.Response, asked
		}
		if first := f.First(x.Origin, x.Past); first.String() != next.Target.String() {
			tb.Errorf("First says %s after Next said %s", first, next.Target)
		}
		x.Target = next.Target
	}
	tb.Fatal("the origin is never done")
	return nil, nil
}

// noLeaks fails the test if goroutines of this package, or sockets that were not there before, are left when it ends. It
// is called first, so that the servers' clean-up comes before it.
func noLeaks(t *testing.T) {
	t.Helper()
	before := sockets()
	t.Cleanup(func() {
		buf := make([]byte, 1<<20)
		var left string
		for range 200 {
			left = ""
			if now := sockets(); now > before {
				left = fmt.Sprintf("%d sockets, of %d before", now, before)
			}
			for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
				if strings.Contains(stack, "bulkscan/fetcher.") && !strings.Contains(stack, "testing.") {
					left = stack
				}
			}
			if left == "" {
				return
			}
			time.Sleep(5 * time.Millisecond) // for goroutines that are about to end
		}
		t.Errorf("left behind:\n%s", left)
	})
}

// sockets returns how many sockets this process has open, 0 where the system does not tell.
func sockets() (n int) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	for _, file := range files {
		if to, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// authority is a certificate authority for tests.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	above [][]byte // certificates that its servers send behind their own
}

// newAuthority returns a root. Its key is of the slow kind that roots have.
func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{key: newKeyOn(tb, elliptic.P384())}
	a.cert = a.sign(tb, authorityTemplate("test root"), a.key)
	return a
}

func authorityTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

// issuer returns an authority below this one, as nearly all of the web's servers have theirs from. edit changes its
// certificate.
func (a *authority) issuer(tb testing.TB, name string, edit func(*x509.Certificate)) *authority {
	tb.Helper()
	template := authorityTemplate(name)
	if edit != nil {
		edit(template)
	}
	i := &authority{key: newKey(tb)}
	i.cert = a.sign(tb, template, i.key)
	i.above = append([][]byte{i.cert.Raw}, a.above...)
	return i
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	return newKeyOn(tb, elliptic.P256())
}

func newKeyOn(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// sign completes and signs a certificate; an authority without one signs its own.
func (a *authority) sign(tb testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber = serial
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// certificate returns a server certificate for a host, changed by edit.
func (a *authority) certificate(tb testing.TB, host string, edit func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	if edit != nil {
		edit(template)
	}
	key := newKey(tb)
	cert := a.sign(tb, template, key)
	return tls.Certificate{Certificate: append([][]byte{cert.Raw}, a.above...), PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// overTLS is a handler that speaks TLS and hands the inside to handle, if the handshake succeeds.
func overTLS(cfg *tls.Config, handle func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		server := tls.Server(conn, cfg)
		if server.Handshake() != nil {
			return
		}
		handle(server)
		_ = server.CloseWrite()
	}
}
