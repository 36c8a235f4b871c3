package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Web is what a contender knows of the server: where it listens, who vouches for it, and how long to wait for it.
type Web struct {
	Addrs      []netip.Addr
	Plain, TLS uint16 // ports, the same at each address
	Roots      []byte // the authority's certificate, PEM
	Timeout    time.Duration
}

// agent is what contenders that may choose call themselves.
const agent = "bulkscan-bench/1 (+https://github.com/bulkscan/bulkscan)"

// The limits that every contender has that can be told: those of a scan.
const (
	connectTimeout = 5 * time.Second
	timeout        = 15 * time.Second
	maxBody        = 512_000
)

// domain holds the hosts. A survey asks each host once, so every exchange has a host of its own.
const domain = "survey.example"

func hostOf(i int) string { return fmt.Sprintf("h%d.%s", i, domain) }

// addr is where the host of exchange i is. Many addresses have ports for many connections: whoever closes first keeps the
// pair of ports for a minute (TIME_WAIT, RFC 9293 §3.6.1).
func (w *Web) addr(i int) netip.Addr { return w.Addrs[i%len(w.Addrs)] }

func (w *Web) port(secure bool) uint16 {
	if secure {
		return w.TLS
	}
	return w.Plain
}

func (w *Web) pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(w.Roots) {
		return nil, errors.New("cannot read the authority's certificate")
	}
	return pool, nil
}

func schemeOf(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

// urlOf is the URL of exchange i by the host's name.
func (w *Web) urlOf(i int, secure bool) string {
	return fmt.Sprintf("%s://%s:%d/robots.txt", schemeOf(secure), hostOf(i), w.port(secure))
}

// dialled maps the host and port of each exchange to address and port, for clients that dial by text.
func (w *Web) dialled(n int, secure bool) map[string]string {
	at := make(map[string]string, n)
	for i := range n {
		at[fmt.Sprintf("%s:%d", hostOf(i), w.port(secure))] = netip.AddrPortFrom(w.addr(i), w.port(secure)).String()
	}
	return at
}

// body is the file that every host has: an ordinary one of about a kilobyte.
var body = func() []byte {
	var b strings.Builder
	b.WriteString("# robots.txt of an ordinary site\nUser-agent: *\n")
	for i := range 30 {
		fmt.Fprintf(&b, "Disallow: /private/%02d/*.html$\n", i)
	}
	b.WriteString("Allow: /\n\nUser-agent: GPTBot\nDisallow: /\n\nSitemap: https://" + domain + "/sitemap.xml\n")
	return []byte(b.String())
}()

// answer is the whole response.
var answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nContent-Type: text/plain\r\n"+
	"Content-Length: %d\r\nLast-Modified: Wed, 05 Nov 2025 08:00:00 GMT\r\nConnection: close\r\nETag: \"690b1b80-3e9\"\r\nAccept-Ranges: bytes\r\n\r\n%s", len(body), body)

// check says what is wrong with an answer.
func check(status int, got []byte) error {
	switch {
	case status != 200:
		return fmt.Errorf("status %d", status)
	case len(got) != len(body):
		return fmt.Errorf("a body of %d bytes, want %d", len(got), len(body))
	case string(got) != string(body):
		return errors.New("another body")
	}
	return nil
}
