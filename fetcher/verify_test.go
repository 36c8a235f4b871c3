package fetcher

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// parsed returns a server's chain as a handshake returns it.
func parsed(t testing.TB, certificate tls.Certificate) (chain []*x509.Certificate) {
	t.Helper()
	for _, der := range certificate.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	return chain
}

// Cached issuers change no result: an empty verifier, and one that has seen the other chains, agree on each chain.
func TestVerifierCaches(t *testing.T) {
	root := newAuthority(t)
	issuer := root.issuer(t, "issuer", nil)
	deep := issuer.issuer(t, "deep issuer", nil)
	for name, f := range map[string]struct {
		chain tls.Certificate
		want  exchange.Tristate
	}{
		"root's own":   {root.certificate(t, "example.com", nil), exchange.Yes},
		"issuer's":     {issuer.certificate(t, "example.com", nil), exchange.Yes},
		"issuer's too": {issuer.certificate(t, "example.com", nil), exchange.Yes},
		"deep":         {deep.certificate(t, "example.com", nil), exchange.Yes},
		"another name": {issuer.certificate(t, "example.org", nil), exchange.No},
		"expired": {issuer.certificate(t, "example.com", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		}), exchange.No},
		"for clients": {issuer.certificate(t, "example.com", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), exchange.No},
		"namesake of the issuer": {newAuthority(t).issuer(t, "issuer", nil).certificate(t, "example.com", nil), exchange.No},
		"no authority":           {below(t, issuer, nil).certificate(t, "example.com", nil), exchange.No},
	} {
		warm := newVerifier(root.pool())
		for _, authority := range []*authority{issuer, deep} {
			for range 2 {
				if got := warm.verify("known.example",
					parsed(t, authority.certificate(t, "known.example", nil))); got != exchange.Yes {
					t.Fatalf("%s: a good chain got %v", name, got)
				}
			}
		}
		if n := len(*warm.known.Load()); n != 2 {
			t.Fatalf("%d issuers are cached", n)
		}
		chain := parsed(t, f.chain)
		if cold, got := newVerifier(root.pool()).verify("example.com", chain),
			warm.verify("example.com", chain); cold != f.want || got != f.want {
			t.Errorf("%s: got %v cold, %v warm, want %v", name, cold, got, f.want)
		}
	}
}

// below returns an authority that signs with a server's certificate, which is not allowed to sign.
func below(t *testing.T, above *authority, edit func(*x509.Certificate)) *authority {
	certificate := above.certificate(t, "example.com", edit)
	return &authority{cert: parsed(t, certificate)[0], key: certificate.PrivateKey.(*ecdsa.PrivateKey),
		above: certificate.Certificate}
}

// A cached issuer replaces the chain to the root only for servers that send the whole chain.
func TestVerifierNeedsWholeChain(t *testing.T) {
	root := newAuthority(t)
	issuer := root.issuer(t, "issuer", nil)
	deep := issuer.issuer(t, "deep issuer", nil)
	v := newVerifier(root.pool())
	f := func(name string, chain []*x509.Certificate, want exchange.Tristate) {
		t.Helper()
		if got := v.verify("example.com", chain); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	one, three := parsed(t, issuer.certificate(t, "example.com", nil)), parsed(t, deep.certificate(t, "example.com", nil))
	other := parsed(t, newAuthority(t).issuer(t, "other", nil).certificate(t, "example.com", nil))
	for _, round := range []string{"before", "after"} {
		f("without its issuer, "+round, one[:1], exchange.No)
		f("without the certificate above its issuer, "+round, three[:2], exchange.No)
		f("with another issuer, "+round, []*x509.Certificate{one[0], other[1]}, exchange.No)
		f("whole, "+round, one, exchange.Yes)
		f("deep, whole, "+round, three, exchange.Yes)
		f("out of order, "+round, []*x509.Certificate{three[0], three[2], three[1]}, exchange.Yes)
		f("with the root, "+round, append(one[:2:2], root.cert), exchange.Yes)
		f("with another one at the end, "+round, append(three[:3:3], other[1]), exchange.Yes)
	}
	v.roots = x509.NewCertPool() // from now on only cached issuers lead to Yes
	f("whole, without roots", one, exchange.Yes)
	f("deep, without roots", three, exchange.Yes)
	f("broken off, without roots", three[:2], exchange.No)
	f("signed by the root, without roots", parsed(t, root.certificate(t, "example.com", nil)), exchange.No)
	long := one
	for range maxTail {
		long = append(long[:len(long):len(long)], other[1])
	}
	f("long, without roots", long, exchange.No)
}

// An issuer is not cached if a certificate above it constrains names or policies: the next certificate may violate
// them.
func TestVerifierDoesNotCacheConstraints(t *testing.T) {
	f := func(name string, cached int, authority func(root *authority) *authority) {
		t.Helper()
		root := newAuthority(t)
		v := newVerifier(root.pool())
		if got := v.verify("example.com", parsed(t, authority(root).certificate(t, "example.com",
			nil))); got != exchange.Yes {
			t.Errorf("%s: got %v", name, got)
		}
		if n := len(*v.known.Load()); n != cached {
			t.Errorf("%s: %d issuers are cached", name, n)
		}
	}
	permit := func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.com"} }
	f("no constraints", 1, func(root *authority) *authority { return root.issuer(t, "a", nil).issuer(t, "b", nil) })
	f("the issuer's own names", 1, func(root *authority) *authority { return root.issuer(t, "a", permit) })
	f("names above", 0, func(root *authority) *authority { return root.issuer(t, "a", permit).issuer(t, "b", nil) })
	f("signed by the root", 0, func(root *authority) *authority { return root })

	// The issuer's own constraint still counts.
	root := newAuthority(t)
	issuer := root.issuer(t, "a", permit)
	v := newVerifier(root.pool())
	for host, want := range map[string]exchange.Tristate{"example.com": exchange.Yes, "example.org": exchange.No} {
		for range 2 {
			if got := v.verify(host, parsed(t, issuer.certificate(t, host, nil))); got != want {
				t.Errorf("%s: got %v", host, got)
			}
		}
	}
}

// A cached issuer expires with the certificates above it.
func TestVerifierExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newAuthority(t)
		lasting := func(d time.Duration) func(*x509.Certificate) {
			return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(d) }
		}
		chain := parsed(t, root.issuer(t, "a", lasting(20*time.Minute)).issuer(t, "b", lasting(30*time.Minute)).certificate(t,
			"example.com", nil))
		v := newVerifier(root.pool())
		if got := v.verify("example.com", chain); got != exchange.Yes || len(*v.known.Load()) != 1 {
			t.Errorf("got %v", got)
		}
		time.Sleep(19 * time.Minute)
		if got := v.verify("example.com", chain); got != exchange.Yes {
			t.Errorf("after 19 minutes: got %v", got)
		}
		time.Sleep(2 * time.Minute)
		if got := v.verify("example.com", chain); got != exchange.No {
			t.Errorf("after 21 minutes: got %v", got)
		}
	})
}

func TestVerifierIsBounded(t *testing.T) {
	root := newAuthority(t)
	v := newVerifier(root.pool())
	full := map[string]*issuer{}
	for i := range maxIssuers {
		full[strconv.Itoa(i)] = &issuer{until: time.Now().Add(time.Hour)}
	}
	v.known.Store(&full)
	if got := v.verify("example.com", parsed(t, root.issuer(t, "a", nil).certificate(t, "example.com",
		nil))); got != exchange.Yes {
		t.Errorf("got %v", got)
	}
	if v.known.Load() != &full {
		t.Error("one more issuer was cached")
	}
	full["7"].until = time.Now() // room for another
	if v.verify("example.com", parsed(t, root.issuer(t, "a", nil).certificate(t, "example.com",
		nil))); len(*v.known.Load()) != maxIssuers || v.known.Load() == &full {
		t.Error("an expired issuer was not removed")
	}
}

// Without roots of the system every certificate is Unknown. The test needs a new process, because roots are read once.
func TestMachineWithoutRoots(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere roots are found in other places")
	}
	const child = "BULKSCAN_TEST_WITHOUT_ROOTS"
	if os.Getenv(child) == "" {
		command := exec.Command(os.Args[0], "-test.run", "^TestMachineWithoutRoots$", "-test.v")
		command.Env = append(os.Environ(), child+"=1", "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	root := newAuthority(t)
	chain := parsed(t, root.certificate(t, "example.com", nil))
	if got := newVerifier(nil).verify("example.com", chain); got != exchange.Unknown {
		t.Errorf("without roots a certificate is %v", got)
	}
	if got := newVerifier(root.pool()).verify("example.com", chain); got != exchange.Yes {
		t.Errorf("with a root of our own it is %v", got)
	}
}

// Concurrent exchanges share the cache.
func TestVerifierConcurrently(t *testing.T) {
	root := newAuthority(t)
	v := newVerifier(root.pool())
	var wait sync.WaitGroup
	for range 8 {
		issuer := root.issuer(t, "issuer", nil)
		good := parsed(t, issuer.certificate(t, "example.com", nil))
		for range 4 {
			wait.Go(func() {
				for range 10 {
					if v.verify("example.com", good) != exchange.Yes || v.verify("example.org", good) != exchange.No {
						t.Error("a wrong answer")
					}
				}
			})
		}
	}
	wait.Wait()
	if n := len(*v.known.Load()); n != 8 {
		t.Errorf("%d issuers are cached", n)
	}
}

// counted is a connection that counts its writes.
type counted struct {
	net.Conn
	writes *int
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	*c.writes++
	return c.Conn.Write(p)
}

// The request is sent together with the end of the handshake.
func TestRequestWithHandshake(t *testing.T) {
	cert := newAuthority(t).certificate(t, "example.com", nil)
	for version, want := range map[uint16]int{tls.VersionTLS13: 2, tls.VersionTLS12: 3} {
		synctest.Test(t, func(t *testing.T) {
			cfg := site(t, 0, overTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version},
				reply(okHead+"Content-Length: 2\r\n\r\nab")))
			cfg.SkipVerify = true
			writes := 0
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return &counted{conn, &writes}, err
			}
			r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
			if rowOf(r) != answers(200, "ab") || writes != want {
				t.Errorf("TLS %#x: got %v (%v) with %d writes, want %d", version, r.Outcome, r.Cause, writes, want)
			}
			r.Reset()
		})
	}
}

// failing is a connection whose writes arrive but return an error, as if the server had answered and closed.
type failing struct {
	net.Conn
	after int // writes
}

// Write implements io.Writer.
func (f *failing) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	if f.after--; f.after < 0 && err == nil {
		err = syscall.EPIPE
	}
	return n, err
}

// An answer that came before the request could be sent is valid over TLS, too.
func TestAnswerBeforeRequestOverTLS(t *testing.T) {
	cert := newAuthority(t).certificate(t, "example.com", nil)
	for version, handshake := range map[uint16]int{tls.VersionTLS13: 1, tls.VersionTLS12: 2} {
		synctest.Test(t, func(t *testing.T) {
			cfg := site(t, 0, overTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version},
				reply("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")))
			cfg.SkipVerify = true
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return &failing{conn, handshake}, err
			}
			if r, _ := fetch(t, newFetcher(t, cfg), "https://example.com"); r.Outcome != exchange.Answered || r.Status != 503 {
				t.Errorf("TLS %#x: got %v (%v) %d", version, r.Outcome, r.Cause, r.Status)
			}
		})
	}
}

// A failed handshake sends the server an alert.
func TestAlertIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &tls.Config{Certificates: []tls.Certificate{newAuthority(t).certificate(t, "example.com", nil)},
			MaxVersion: tls.VersionTLS12}
		var seen error
		// The server's hello reaches the client although it names a version that was not offered.
		cfg := site(t, 0, func(conn net.Conn) {
			hello := make([]byte, 4096)
			_, _ = conn.Read(hello)
			_, _ = conn.Write([]byte("\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03" + strings.Repeat("r", 32) +
				"\x00\xc0\x2b\x00"))
			seen = tls.Server(conn, old).Handshake()
		})
		cfg.TLSMin = tls.VersionTLS13
		r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
		if rowOf(r) != (row{exchange.TLSFailed, exchange.CauseTLSVersion, 0, ""}) {
			t.Errorf("got %v (%v)", r.Outcome, r.Cause)
		}
		synctest.Wait()
		if version, ok := alert(seen); !ok || !version {
			t.Errorf("the server saw %v", seen)
		}
	})
}
