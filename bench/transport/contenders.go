package main

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
	"time"

	"github.com/valyala/fasthttp"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// Contender is who is measured.
type Contender struct {
	Name   string
	Group  Group
	Does   string                                                // how it is used here
	Leaves string                                                // what ours does and this one does not; "" for nothing, or where Does says so
	Module string                                                // the path by which the build knows its version; "" for the standard library's
	New    func(ctx context.Context, w *Web, n int) (Run, error) // makes exchanges 0 to n-1 ready; ctx ends them
	Tool   *Tool                                                 // for programs of others, instead of New
}

// Group is what contenders have in common that are compared with each other.
type Group string

// The groups. In each ours comes first, and ratios are of it to the others.
const (
	Plain      Group = "plain"
	Unverified Group = "TLS, chain not verified"
	Verified   Group = "TLS, chain verified"
)

// Secure reports whether a group's exchanges are over TLS.
func (g Group) Secure() bool { return g != Plain }

var groups = []Group{Plain, Unverified, Verified}

// The names that marks are set for.
const (
	ours      = "bulkscan"
	stock     = "net/http"
	asItComes = " (as it comes)"
	floor     = "raw epoll"
)

// contenders returns all, in reading order.
func contenders() []Contender {
	var all []Contender
	for _, g := range groups {
		name := func(name string) string {
			switch g {
			case Unverified:
				return name + " TLS"
			case Verified:
				return name + " TLS verified"
			}
			return name
		}
		all = append(all,
			Contender{Name: name(ours), Group: g, Module: "github.com/bulkscan/bulkscan",
				Does: "`fetcher.First`, `Resolve`, `Do` as a scan calls them: address guard, redirect policy, all limits, header fields and timing kept, body in pooled memory",
				New:  func(ctx context.Context, w *Web, n int) (Run, error) { return newBulkscan(ctx, w, n, g) }},
			Contender{Name: name(stock), Group: g,
				Does: "`http.Client` with `DisableKeepAlives`, no redirects, requests made ready before, body through a `LimitReader` into reused memory",
				New:  func(ctx context.Context, w *Web, n int) (Run, error) { return newStock(ctx, w, n, g) }},
		)
		if g != Unverified {
			all = append(all, Contender{Name: name(stock + asItComes), Group: g,
				Does: "as its documentation uses it: `http.NewRequestWithContext` for each URL, `http.DefaultTransport` but for the dialling, with `DisableKeepAlives`, `io.ReadAll`; over TLS with the hybrid key exchange X25519MLKEM768, crypto/tls's own choice",
				New:  func(ctx context.Context, w *Web, n int) (Run, error) { return newStockAsItComes(ctx, w, n, g) }})
		}
		switch g {
		case Plain:
			all = append(all, Contender{Name: floor, Group: g, Module: "golang.org/x/sys", New: newEpoll,
				Does:   "one thread and the kernel: socket, connect, write of one fixed request, read to the body's end, close",
				Leaves: "names, all parsing but for status and length, deadlines, limits"})
		case Verified:
			continue // the rest verifies no chains, or only as net/http does
		}
		all = append(all,
			Contender{Name: name("fasthttp.HostClient"), Group: g, Module: "github.com/valyala/fasthttp",
				Does:   "one for each worker, which dials whoever is next; `DoTimeout`, `SetConnectionClose`, `MaxResponseBodySize`",
				Leaves: "heads over 4 KB, bodies over the limit (refused, not cut), a bound of its own for chunk extensions",
				New:    func(ctx context.Context, w *Web, n int) (Run, error) { return newHostClient(ctx, w, n, g) }},
			Contender{Name: name("fasthttp.Client"), Group: g, Module: "github.com/valyala/fasthttp",
				Does:   "one for all workers, as it is meant to be used; it keeps a HostClient for each host that it was asked for",
				Leaves: "as fasthttp.HostClient",
				New:    func(ctx context.Context, w *Web, n int) (Run, error) { return newClient(ctx, w, n, g) }},
		)
		for _, t := range tools {
			all = append(all, Contender{Name: name(t.Name), Group: g, Does: t.Does, Leaves: t.Leaves, Tool: t})
		}
	}
	return all
}

// find returns the contender with this name.
func find(name string) (Contender, bool) {
	for _, c := range contenders() {
		if c.Name == name {
			return c, true
		}
	}
	return Contender{}, false
}

// clientTLS is how others shake hands: with the key exchange that ours prefers, which costs half of the default one, and
// with the chain verified or not.
func clientTLS(w *Web, g Group) (*tls.Config, error) {
	roots, err := w.pool()
	return &tls.Config{
		RootCAs:                roots,
		InsecureSkipVerify:     g == Unverified,
		NextProtos:             []string{"http/1.1"},
		CurvePreferences:       []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		SessionTicketsDisabled: true,
	}, err
}

// dialer dials the host of an exchange for everybody else, as ours dials for itself: no probes of idle connections, and a
// reset instead of a farewell on close.
type dialer struct {
	net.Dialer
	at map[string]string // host:port to address:port
}

func newDialer(w *Web, n int, secure bool) *dialer {
	d := &dialer{at: w.dialled(n, secure)}
	d.Timeout, d.KeepAlive = connectTimeout, -1
	return d
}

func (d *dialer) DialContext(ctx context.Context, network, to string) (net.Conn, error) {
	at, ok := d.at[to]
	if !ok {
		return nil, fmt.Errorf("no host %q", to)
	}
	c, err := d.Dialer.DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetLinger(0)
}

// names answers for all hosts without asking anybody: name servers are not what is measured.
type names map[string]resolve.Answer

// Lookup implements fetcher.Resolver.
func (n names) Lookup(_ context.Context, host string, _ time.Duration) resolve.Answer {
	if a, ok := n[host]; ok {
		return a
	}
	return resolve.Answer{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName}
}

// newBulkscan is ours. A chain is always looked at and the result kept. What the group Unverified leaves out is that the
// authority is known: then no signature of the chain needs checking to tell that it is not.
func newBulkscan(ctx context.Context, w *Web, n int, g Group) (Run, error) {
	roots, want := x509.NewCertPool(), exchange.Unknown
	var err error
	switch g {
	case Unverified:
		want = exchange.No
	case Verified:
		want = exchange.Yes
		if roots, err = w.pool(); err != nil {
			return nil, err
		}
	}
	hosts := make(names, n)
	origins := make([]origin.Origin, n)
	addrs := make([][]netip.Addr, len(w.Addrs))
	for i := range addrs {
		addrs[i] = w.Addrs[i : i+1]
	}
	for i := range n {
		hosts[hostOf(i)] = resolve.Answer{Addrs: addrs[i%len(addrs)]}
		if origins[i], err = origin.Parse(fmt.Sprintf("%s://%s:%d", schemeOf(g.Secure()), hostOf(i), w.port(g.Secure()))); err != nil {
			return nil, err
		}
	}
	f, err := fetcher.New(fetcher.Config{
		Timeout: w.Timeout, ConnectTimeout: min(w.Timeout, connectTimeout), MaxBody: maxBody, UserAgent: agent,
		MaxRedirects: fetcher.DefaultMaxRedirects, Retries: fetcher.DefaultRetries, RetryAfter: fetcher.DefaultRetryAfter, MaxRetryAfter: fetcher.DefaultMaxRetryAfter,
		AllowPrivate: true, Roots: roots, Resolver: hosts,
	})
	if err != nil {
		return nil, err
	}
	return workers(func() func(int) error {
		r := new(exchange.Response)
		return func(i int) error {
			x := exchange.Exchange{Origin: origins[i], Response: r}
			x.Target = f.First(x.Origin, x.Past)
			x.Lookup = f.Resolve(ctx, x.Target, 0)
			next := f.Do(ctx, &x)
			defer r.Reset()
			switch {
			case r.Outcome != exchange.Answered:
				return fmt.Errorf("%v: %v", r.Outcome, r.Cause)
			case next != exchange.Done:
				return errors.New("asked for more")
			case r.TLSVerified != want:
				return errors.New("the chain is not what it should be")
			}
			return check(r.Status, r.Body)
		}
	}), nil
}

// reader is what a worker of net/http reads bodies with.
type reader struct {
	limited io.LimitedReader
	body    []byte
}

// read reads to the end or to the limit, whichever comes first.
func (r *reader) read(from io.Reader) ([]byte, error) {
	r.limited = io.LimitedReader{R: from, N: maxBody}
	r.body = r.body[:0]
	for {
		if len(r.body) == cap(r.body) {
			r.body = append(r.body, 0)[:len(r.body)]
		}
		n, err := r.limited.Read(r.body[len(r.body):cap(r.body)])
		r.body = r.body[:len(r.body)+n]
		if errors.Is(err, io.EOF) {
			return r.body, nil
		}
		if err != nil {
			return r.body, err
		}
	}
}

// newStock is net/http. What a list's URLs are made of is parsed before, and a request that only differs in its URL is
// not made anew.
func newStock(ctx context.Context, w *Web, n int, g Group) (Run, error) {
	config, err := clientTLS(w, g)
	if err != nil {
		return nil, err
	}
	d := newDialer(w, n, g.Secure())
	client := &http.Client{
		Timeout: w.Timeout,
		Transport: &http.Transport{
			DialContext: d.DialContext, TLSClientConfig: config,
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	urls := make([]*url.URL, n)
	for i := range urls {
		if urls[i], err = url.Parse(w.urlOf(i, g.Secure())); err != nil {
			return nil, err
		}
	}
	header := http.Header{"User-Agent": {agent}, "Accept": {"text/plain,*/*;q=0.8"}, "Accept-Encoding": {"identity"}}
	return workers(func() func(int) error {
		r := reader{body: make([]byte, 0, 4<<10)}
		return func(i int) error {
			request := (&http.Request{Method: http.MethodGet, URL: urls[i], Host: urls[i].Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			got, err := r.read(response.Body)
			if err != nil {
				return err
			}
			return check(response.StatusCode, got)
		}
	}), nil
}

// newStockAsItComes is net/http as most programs use it. Only names are looked up as for everybody, without DNS.
func newStockAsItComes(ctx context.Context, w *Web, n int, g Group) (Run, error) {
	roots, err := w.pool()
	if err != nil {
		return nil, err
	}
	at := w.dialled(n, g.Secure())
	var d net.Dialer
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.ForceAttemptHTTP2 = false
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, at[to])
		if err != nil {
			return nil, err
		}
		return c, c.(*net.TCPConn).SetLinger(0) // all do
	}
	client := &http.Client{Timeout: w.Timeout, Transport: transport}
	urls := make([]string, n)
	for i := range urls {
		urls[i] = w.urlOf(i, g.Secure())
	}
	return workers(func() func(int) error {
		return func(i int) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, urls[i], nil)
			if err != nil {
				return err
			}
			request.Header.Set("User-Agent", agent)
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			got, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
			if err != nil {
				return err
			}
			return check(response.StatusCode, got)
		}
	}), nil
}

// asks is a worker of fasthttp: do sends the request that it is given.
func asks(w *Web, secure bool, do func(i int, request *fasthttp.Request, response *fasthttp.Response) error) func(int) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	request.Header.SetUserAgent(agent)
	request.Header.Set("Accept", "text/plain,*/*;q=0.8")
	request.Header.Set("Accept-Encoding", "identity")
	request.SetConnectionClose()
	var b []byte
	return func(i int) error {
		b = fmt.Appendf(b[:0], "%s://h%d.%s:%d/robots.txt", schemeOf(secure), i, domain, w.port(secure))
		request.SetRequestURIBytes(b)
		if err := do(i, request, response); err != nil {
			return err
		}
		return check(response.StatusCode(), response.Body())
	}
}

// newHostClient is fasthttp without its map of hosts: a HostClient for each worker, which never keeps a connection and
// dials whoever is next.
func newHostClient(ctx context.Context, w *Web, n int, g Group) (Run, error) {
	config, err := clientTLS(w, g)
	if err != nil {
		return nil, err
	}
	d := newDialer(w, n, g.Secure())
	return workers(func() func(int) error {
		var to string // whoever is next
		config := config.Clone()
		dial := func(string) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", to)
			if err != nil || !g.Secure() {
				return c, err
			}
			if err := c.SetDeadline(time.Now().Add(w.Timeout)); err != nil { // the handshake reads where only writing has a deadline
				return nil, errors.Join(err, c.Close())
			}
			config.ServerName, _, _ = net.SplitHostPort(to)
			return tls.Client(c, config), nil
		}
		client := &fasthttp.HostClient{
			Addr: domain + ":80", IsTLS: g.Secure(), Dial: dial, MaxConns: 1, NoDefaultUserAgentHeader: true,
			ReadTimeout: w.Timeout, WriteTimeout: w.Timeout, MaxResponseBodySize: maxBody, MaxIdemponentCallAttempts: 1,
		}
		return asks(w, g.Secure(), func(i int, request *fasthttp.Request, response *fasthttp.Response) error {
			to = string(request.URI().Host())
			return client.DoTimeout(request, response, w.Timeout)
		})
	}), nil
}

// newClient is fasthttp as it is meant to be used.
func newClient(ctx context.Context, w *Web, n int, g Group) (Run, error) {
	config, err := clientTLS(w, g)
	if err != nil {
		return nil, err
	}
	d := newDialer(w, n, g.Secure())
	client := &fasthttp.Client{
		Dial:      func(to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) },
		TLSConfig: config, NoDefaultUserAgentHeader: true,
		ReadTimeout: w.Timeout, WriteTimeout: w.Timeout, MaxResponseBodySize: maxBody, MaxIdemponentCallAttempts: 1,
	}
	return workers(func() func(int) error {
		return asks(w, g.Secure(), func(_ int, request *fasthttp.Request, response *fasthttp.Response) error {
			return client.DoTimeout(request, response, w.Timeout)
		})
	}), nil
}
