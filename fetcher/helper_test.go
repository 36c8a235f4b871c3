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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// hang is the time after which a test on real sockets fails because something hangs. It bounds no speed.
const hang = waittest.Hanging

// serve runs a raw TCP server on loopback until the test ends, and returns its address; see accept.
func serve(tb testing.TB, handle func(net.Conn)) netip.AddrPort {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	accept(tb, listener, handle)
	return netip.MustParseAddrPort(listener.Addr().String())
}

// accept passes each connection of a listener to handle, and closes it afterwards. The test ends only when all handlers
// have.
func accept(tb testing.TB, listener net.Listener, handle func(net.Conn)) {
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
}

// web is a network in memory: for a bubble, where all that waits is tested.
type web struct {
	t    *testing.T
	net  *memnet.Network
	open atomic.Int32 // connections of the scanner

	mu      sync.Mutex
	dialled []string // by the scanner, in order
}

// nowhere is an address to which all is lost.
const nowhere = "6.0.0.0:80"

// newWeb returns a network whose hosts are a round trip apart. The test fails if the scanner leaves a connection open.
func newWeb(t *testing.T, roundTrip time.Duration) *web {
	t.Helper()
	lost := netip.MustParseAddrPort(nowhere).Addr()
	w := &web{t: t, net: memnet.New(func(_, to netip.Addr) memnet.Link {
		if to == lost {
			return memnet.Link{Latency: -1}
		}
		return memnet.Link{Latency: roundTrip / 2}
	})}
	t.Cleanup(func() {
		if n := w.open.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
	return w
}

// serve serves an address of the web; see accept. The connections are *visit.
func (w *web) serve(at string, handle func(net.Conn)) {
	w.t.Helper()
	addr := netip.MustParseAddrPort(at)
	host := memnet.Host{Net: w.net, Addr: addr.Addr()}
	listener, err := host.Listen(addr.Port())
	if err != nil {
		w.t.Fatal(err)
	}
	accept(w.t, listener, func(conn net.Conn) { handle(&visit{conn.(*memnet.Conn), host}) })
}

// visit is a connection of the web at the server's end.
type visit struct {
	*memnet.Conn
	host memnet.Host // the server
}

// dial is a Config.Dial.
func (w *web) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, address)
	w.mu.Unlock()
	conn, err := memnet.Host{Net: w.net, Addr: netip.MustParseAddr("1.0.0.1")}.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	return &dialled{conn.(*memnet.Conn), w}, nil
}

// dialled is a connection of the web at the scanner's end.
type dialled struct {
	*memnet.Conn
	web *web
}

// Close implements net.Conn.
func (d *dialled) Close() error {
	err := d.Conn.Close()
	if err == nil {
		d.web.open.Add(-1)
	}
	return err
}

// site returns a testConfig with a web in which one host serves all targets, and with the default time-outs.
func site(t *testing.T, roundTrip time.Duration, handle func(net.Conn)) Config {
	t.Helper()
	const at = "127.0.0.1:80"
	w := newWeb(t, roundTrip)
	w.serve(at, handle)
	cfg := testConfig(netip.MustParseAddrPort(at))
	cfg.Timeout, cfg.ConnectTimeout, cfg.Dial = 0, 0, w.dial
	return cfg
}

// bubble runs a subtest in a bubble.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		synctest.Test(t, test)
	})
}

// stream is a connection with what TCP has beyond net.Conn: of the system, or of a web.
type stream interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

// slow is a connection that writes in pieces, with a pause before each.
type slow struct {
	net.Conn
	pause time.Duration
	piece int
}

const whole = 1 << 20 // a piece that has all bytes

// Write implements io.Writer.
func (s *slow) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		time.Sleep(s.pause)
		m, err := s.Conn.Write(p[:min(s.piece, len(p))])
		if n += m; err != nil {
			return n, err
		}
		p = p[m:]
	}
	return n, nil
}

// readRequest reads a request's head, or what the client has sent when it closes.
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

// reply returns a handler that reads the request, writes the parts one by one, and closes. It stops at the first
// error, so that endless replies end with the client.
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

// endless returns a handler that writes a beginning, and then a part until the client closes.
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

// hold returns a handler that writes the parts, and then keeps the connection open until the client closes it.
func hold(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		reply(parts...)(conn)
		silent(conn)
	}
}

// silent is a handler that says nothing until the client closes.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// later returns a handler that waits before it answers, writes the parts in pieces with a pause before each, and then
// keeps the connection open.
func later(first, pause time.Duration, piece int, parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		time.Sleep(first)
		for _, part := range parts {
			if _, err := io.WriteString(&slow{conn, pause, piece}, part); err != nil {
				return
			}
		}
		silent(conn)
	}
}

// reset returns a handler that writes the parts, and then resets the connection.
func reset(parts ...string) func(net.Conn) {
	return func(conn net.Conn) {
		reply(parts...)(conn)
		raw := conn
		if t, ok := conn.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		_ = raw.(stream).SetLinger(0)
		_ = raw.Close()
	}
}

// testConfig returns a Config for loopback: every target is dialled at addr, without retries. Its time-outs are those
// of a test that hangs.
func testConfig(addr netip.AddrPort) Config {
	return Config{
		Timeout:        hang,
		ConnectTimeout: hang,
		MaxRedirects:   DefaultMaxRedirects,
		UserAgent:      "bulkscan/test (+https://bulkscan.example/)",
		AllowPrivate:   true,
		NoFallback:     true,
		ConnectTo:      []ConnectTo{{Addr: addr.Addr(), ToPort: addr.Port()}},
		Resolver:       noDNS{},
	}
}

// noDNS is a Resolver for tests without DNS. Its look-ups fail.
type noDNS struct{}

func (noDNS) Lookup(context.Context, string) resolve.Answer {
	return resolve.Answer{Outcome: exchange.DNSFailed, Cause: exchange.CauseDNSNetwork}
}

// names is a Resolver with a fixed table.
type names map[string][]string

func (n names) Lookup(_ context.Context, host string) resolve.Answer {
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

// fetch performs all exchanges of an origin, like the pipeline but without waiting. It returns the Response and the
// targets that were asked.
func fetch(tb testing.TB, f *Fetcher, entry string) (*exchange.Response, []string) {
	tb.Helper()
	x := exchange.Exchange{Origin: parse(tb, entry), Response: new(exchange.Response)}
	var asked []string
	x.Target = f.First(x.Origin, x.Past)
	for range 50 {
		asked = append(asked, x.Target.String())
		x.Lookup = f.Resolve(tb.Context(), x.Target)
		next := f.Do(tb.Context(), &x)
		if !next.Again {
			return x.Response, asked
		}
		if first := f.First(x.Origin, x.Past); first.String() != next.Target.String() {
			tb.Errorf("First says %s after Next said %s", first, next.Target)
		}
		x.Target = next.Target
	}
	tb.Fatal("the origin is not done after 50 exchanges")
	return nil, nil
}

// noLeaks fails the test if it leaves goroutines of this package, or sockets. It is called first, so that the
// servers' clean-up precedes the check. TestMain checks what the parallel tests leave.
func noLeaks(t *testing.T) {
	t.Helper()
	before := sockets()
	t.Cleanup(func() {
		if left := leaks(before); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
}

// leaks returns a goroutine of this package that does not end, or how many sockets there are beyond those before; ""
// if there are none.
func leaks(before int) (left string) {
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(hang); ; {
		left = ""
		if now := sockets(); now > before {
			left = fmt.Sprintf("%d sockets, of %d before", now, before)
		}
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "bulkscan/fetcher.") && !strings.Contains(stack, "testing.") &&
				!strings.Contains(stack, "fetcher.leaks(") {
				left = stack
			}
		}
		if left == "" || time.Now().After(end) {
			return left
		}
		time.Sleep(time.Millisecond) // for goroutines that are about to end
	}
}

// sockets returns how many sockets this process has open; 0 if the system does not tell.
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
	above [][]byte // certificates that its servers send after their own
}

// newAuthority returns a root. Its key is P-384, like that of many roots, which is slow to verify.
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

// issuer returns an authority below this one, like those that sign nearly all certificates of the web. edit changes
// its certificate.
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

// sign completes and signs a certificate. An authority without a certificate signs its own.
func (a *authority) sign(tb testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber = serial
	if template.NotAfter.IsZero() { // valid today, and in a bubble, where it is the year 2000
		template.NotBefore, template.NotAfter = time.Unix(0, 0), time.Unix(1<<32, 0)
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
	template := &x509.Certificate{Subject: pkix.Name{CommonName: host},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
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

// overTLS returns a handler that performs a TLS handshake, and passes the TLS connection to handle if it succeeds.
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
