package simweb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// authority issues certificates on demand. All leaves share one key, since making a key costs as much as a handshake.
type authority struct {
	key, leafKey  *ecdsa.PrivateKey
	cert, unknown *x509.Certificate // unknown: of an authority outside pool, with the same key
	pool          *x509.CertPool
	born          time.Time

	mu    sync.RWMutex
	cache map[leafName]*tls.Certificate
}

// leafName identifies a certificate.
type leafName struct {
	host string
	kind helloKind // helloFine, helloExpired, helloSelfSigned, helloUnknownCA, helloLongChain, helloStall
}

// maxLeaves bounds the cache of certificates, about 1.5 kB each. A full cache is emptied: a scan asks each host about
// once, so no entry is better than another.
const maxLeaves = 4096

// chainLength lists chains padded with copies of the authority's certificate: one that clients accept, and one of about
// 200 kB, near the most that they accept.
var chainLength = map[helloKind]int{helloLongChain: 100, helloStall: 500}

const stallAfter = 180_000 // bytes of the handshake that helloStall sends at once

func newAuthority(now time.Time) (*authority, error) {
	a := &authority{born: now, cache: map[leafName]*tls.Certificate{}, pool: x509.NewCertPool()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("cannot make the authority's key: %w", err)
	}
	if a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("cannot make the certificates' key: %w", err)
	}
	if a.cert, err = a.root("simweb test authority"); err != nil {
		return nil, err
	}
	if a.unknown, err = a.root("simweb unknown authority"); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

func (a *authority) root(name string) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             a.born.Add(-24 * time.Hour),
		NotAfter:              a.born.Add(365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot make the authority's certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// pem returns the authority's certificate as PEM.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// leaf returns a host's certificate of the given kind.
func (a *authority) leaf(host string, kind helloKind) (*tls.Certificate, error) {
	name := leafName{host, kind}
	a.mu.RLock()
	c := a.cache[name]
	a.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetUint64(mix(uint64(len(host)) + uint64(kind)<<32)),
		Subject:      pkix.Name{Organization: []string{"simweb"}},
		NotBefore:    a.born.Add(-24 * time.Hour),
		NotAfter:     a.born.Add(90 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	issuer, key := a.cert, a.key
	switch kind {
	case helloExpired:
		template.NotBefore = a.born.Add(-100 * 24 * time.Hour)
		template.NotAfter = a.born.Add(-10 * 24 * time.Hour)
	case helloSelfSigned:
		issuer, key = template, a.leafKey
	case helloUnknownCA:
		issuer = a.unknown
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, a.leafKey.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	c = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}
	for len(c.Certificate) < chainLength[kind] {
		c.Certificate = append(c.Certificate, a.cert.Raw)
	}
	a.mu.Lock()
	if len(a.cache) >= maxLeaves {
		clear(a.cache)
	}
	a.cache[name] = c
	a.mu.Unlock()
	return c, nil
}

// helloConn is a connection on the TLS port. The client's hello sets its host and kind. It can discard or delay what
// the TLS library writes, for hosts that do not complete the handshake.
type helloConn struct {
	net.Conn
	host string
	kind helloKind
	mute bool
	drip *Web // if set, writes a byte a second until this web ends
	free int  // bytes written at once before that
}

func (c *helloConn) Write(p []byte) (int, error) {
	if c.mute {
		return len(p), nil
	}
	if c.drip == nil {
		return c.Conn.Write(p)
	}
	now := min(c.free, len(p))
	if n, err := c.Conn.Write(p[:now]); err != nil {
		return n, err
	}
	c.free -= now
	if now < len(p) {
		c.drip.silent(c.Conn)
	}
	for i := now; i < len(p); i++ {
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
		if !c.drip.sleep(time.Second) {
			return i + 1, errNoHandshake
		}
	}
	return len(p), nil
}

var errNoHandshake = errors.New("this host refuses the handshake")

// tlsConfig returns the server's configuration, which depends on the name in the hello.
func (w *Web) tlsConfig() *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// X25519 is a third cheaper than the hybrid that Go prefers, and the same processors serve and scan.
		CurvePreferences:       []tls.CurveID{tls.X25519, tls.CurveP256},
		SessionTicketsDisabled: true,
		NextProtos:             []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, ok := hello.Conn.(*helloConn)
			if !ok {
				return nil, errNoHandshake
			}
			switch c.kind {
			case helloExpired, helloSelfSigned, helloUnknownCA, helloLongChain, helloStall:
				return w.authority.leaf(c.host, c.kind)
			case helloWrongName:
				return w.authority.leaf("some-other-name.test", helloFine)
			}
			return w.authority.leaf(c.host, helloFine)
		},
	}
	only12, only10, noHTTP := base.Clone(), base.Clone(), base.Clone()
	noHTTP.NextProtos = []string{"imap"}
	only12.MaxVersion = tls.VersionTLS12
	only10.MinVersion, only10.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	front := base.Clone()
	front.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, ok := hello.Conn.(*helloConn)
		if !ok {
			return nil, errNoHandshake
		}
		c.host, _ = splitHost(hello.ServerName)
		if c.host == "" {
			// A client that dials an address sends no name (RFC 6066 §3).
			c.host = localHost(c.Conn)
		}
		c.kind = w.world.behaviour(c.host).hello
		switch c.kind {
		case hello12Only:
			return only12, nil
		case hello10Only:
			return only10, nil
		case helloOtherProtocol:
			return noHTTP, nil
		case helloDrip, helloStall:
			c.drip = w
			if c.kind == helloStall {
				c.free = stallAfter
			}
		case helloHang, helloReset, helloClose, helloPlain, helloGarbage:
			c.mute = true
			return nil, errNoHandshake
		case helloAlert:
			return nil, errNoHandshake
		}
		return nil, nil
	}
	return front
}

// localHost returns the address that the client dialled, as a host.
func localHost(c net.Conn) string {
	if addr, ok := c.LocalAddr().(*net.TCPAddr); ok {
		return addr.AddrPort().Addr().Unmap().String()
	}
	return ""
}
