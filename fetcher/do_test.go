package fetcher

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

func TestClassify(t *testing.T) {
	f := func(at stage, err error, outcome exchange.Outcome, cause exchange.Cause) {
		t.Helper()
		if o, c := classify(at, err); o != outcome || c != cause {
			t.Errorf("stage %d, %v: got %v (%v), want %v (%v)", at, err, o, c, outcome, cause)
		}
	}
	system := func(call string, errno syscall.Errno) error {
		return &net.OpError{Op: call, Net: "tcp", Err: os.NewSyscallError(call, errno)}
	}
	late := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}

	f(connecting, system("connect", syscall.ECONNREFUSED), exchange.ConnectRefused, exchange.CauseRefused)
	f(connecting, system("connect", syscall.ETIMEDOUT), exchange.ConnectTimeout, exchange.CauseConnectTimeout)
	f(connecting, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, exchange.ConnectTimeout,
		exchange.CauseConnectTimeout)
	f(connecting, late, exchange.ConnectTimeout, exchange.CauseConnectTimeout)
	f(connecting, system("connect", syscall.EHOSTUNREACH), exchange.ConnectFailed, exchange.CauseUnreachable)
	f(connecting, system("connect", syscall.ENETUNREACH), exchange.ConnectFailed, exchange.CauseUnreachable)
	f(connecting, system("connect", syscall.EADDRNOTAVAIL), exchange.ConnectFailed, exchange.CauseNoLocalResource)
	f(connecting, system("socket", syscall.EMFILE), exchange.ConnectFailed, exchange.CauseNoLocalResource)
	f(connecting, system("connect", syscall.ECONNRESET), exchange.Reset, exchange.CauseResetHead)
	f(connecting, system("connect", syscall.EPERM), exchange.ConnectFailed, exchange.CauseOther)

	f(handshaking, late, exchange.Timeout, exchange.CauseTLSTimeout)
	f(handshaking, io.EOF, exchange.ClosedEarly, exchange.CauseTLSClosed)
	f(handshaking, io.ErrUnexpectedEOF, exchange.ClosedEarly, exchange.CauseTLSClosed)
	f(handshaking, system("read", syscall.ECONNRESET), exchange.Reset, exchange.CauseTLSReset)
	f(handshaking, system("write", syscall.EPIPE), exchange.Reset, exchange.CauseTLSReset)
	f(handshaking, tls.RecordHeaderError{Msg: "x"}, exchange.TLSFailed, exchange.CauseTLSNotTLS)
	f(handshaking, &net.OpError{Op: "remote error", Err: tls.AlertError(40)}, exchange.TLSFailed, exchange.CauseTLSAlert)
	f(handshaking, &net.OpError{Op: "remote error", Err: tls.AlertError(70)}, exchange.TLSFailed, exchange.CauseTLSVersion)
	f(handshaking, errors.New("x"), exchange.TLSFailed, exchange.CauseTLSOther)
	f(handshaking, protocolError(exchange.CauseTLSUnverified), exchange.TLSFailed, exchange.CauseTLSUnverified)

	f(writing, late, exchange.Timeout, exchange.CauseWriteTimeout)
	f(writing, system("write", syscall.EPIPE), exchange.Reset, exchange.CauseResetHead)
	f(readingHead, late, exchange.Timeout, exchange.CauseHeadTimeout)
	f(readingHead, system("read", syscall.ECONNRESET), exchange.Reset, exchange.CauseResetHead)
	f(readingHead, system("read", syscall.EHOSTUNREACH), exchange.Reset, exchange.CauseResetHead)
	// FTP's data connection
	f(readingHead, system("connect", syscall.ECONNREFUSED), exchange.Reset, exchange.CauseResetHead)
	f(readingHead, system("read", syscall.ETIMEDOUT), exchange.Timeout, exchange.CauseHeadTimeout)
	f(readingHead, io.EOF, exchange.ClosedEarly, exchange.CauseClosedBeforeHead)
	f(readingHead, &net.OpError{Op: "remote error", Err: tls.AlertError(116)}, exchange.TLSFailed, exchange.CauseTLSAlert)
	f(readingHead, errors.New("x"), exchange.BadResponse, exchange.CauseOther)
	f(readingBody, late, exchange.Timeout, exchange.CauseBodyTimeout)
	f(readingBody, system("read", syscall.ECONNRESET), exchange.Reset, exchange.CauseResetBody)
	f(readingBody, &net.OpError{Op: "remote error", Err: tls.AlertError(80)}, exchange.ClosedEarly,
		exchange.CauseClosedInBody)
	f(readingBody, io.ErrUnexpectedEOF, exchange.ClosedEarly, exchange.CauseClosedInBody)
	for cause, outcome := range protocolOutcome {
		f(readingBody, protocolError(cause), outcome, cause)
	}
}

// Every protocolError has an outcome. Otherwise its row would have none.
func TestProtocolErrorsHaveOutcomes(t *testing.T) {
	for _, file := range []string{"head.go", "body.go", "coding.go", "wire.go", "verify.go", "ftp.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known := ""
		for cause := range protocolOutcome {
			known += causeNames[cause] + " "
		}
		for _, part := range strings.Split(string(source), "protocolError(exchange.")[1:] {
			if name, _, _ := strings.Cut(part, ")"); !strings.Contains(known, name+" ") {
				t.Errorf("%s: %s has no outcome", file, name)
			}
		}
	}
}

var causeNames = map[exchange.Cause]string{
	exchange.CauseTLSUnverified: "CauseTLSUnverified", exchange.CauseNotHTTP: "CauseNotHTTP",
	exchange.CauseBadChunk:  "CauseBadChunk",
	exchange.CauseBadLength: "CauseBadLength", exchange.CauseBadStatus: "CauseBadStatus",
	exchange.CauseTooManyInterim: "CauseTooManyInterim",
	exchange.CauseHeadTooLarge:   "CauseHeadTooLarge", exchange.CauseUnknownTransfer: "CauseUnknownTransfer",
	exchange.CauseUnknownCoding: "CauseUnknownCoding", exchange.CauseCorruptCoding: "CauseCorruptCoding",
	exchange.CauseNestedCoding: "CauseNestedCoding", exchange.CauseClosedInHead: "CauseClosedInHead",
	exchange.CauseClosedInBody:    "CauseClosedInBody",
	exchange.CauseNoLocalResource: "CauseNoLocalResource", exchange.CausePrivateAddress: "CausePrivateAddress",
	exchange.CauseOther: "CauseOther",
}

func TestConnectFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:80"))
		cfg.Dial = newWeb(t, time.Second).dial
		r, _ := fetch(t, newFetcher(t, cfg), "http://example.com")
		if got, want := rowOf(r), (row{exchange.ConnectRefused, exchange.CauseRefused, 0, ""}); got != want ||
			r.Timing.Total != time.Second {
			t.Errorf("got %v (%v) after %v", got, r.Cause, r.Timing.Total)
		}
	})
}

// Config.Dial opens every connection. It gets an IP address, and a context that ends when connecting must, but no
// deadline of the connection. Its error counts as that of the system.
func TestDial(t *testing.T) {
	const file = "User-agent: *\n"
	cert := newAuthority(t).certificate(t, "example.com", nil)
	answer := later(6*time.Second, 0, whole, okHead+"Content-Length: 14\r\n\r\n"+file) // later than connecting must
	for entry, f := range map[string]struct {
		handle  func(net.Conn)
		dialled []string
	}{
		"http://example.com": {answer, []string{"127.0.0.1:80"}},
		"https://example.com": {overTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, answer),
			[]string{"127.0.0.1:80"}},
		// the data connection
		"ftp://example.com": {func(conn net.Conn) { time.Sleep(6 * time.Second); ftpServer(file, nil)(conn) },
			[]string{"127.0.0.1:80", "127.0.0.1:32769"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := site(t, 0, f.handle)
			cfg.SkipVerify = true
			dial, began := cfg.Dial, time.Now()
			var dialled []string
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if end, ok := ctx.Deadline(); network != "tcp" || !ok || time.Until(end) != 5*time.Second {
					t.Errorf("%s: dialled %s until %v", entry, network, end)
				}
				dialled = append(dialled, address)
				return dial(ctx, network, address)
			}
			r, _ := fetch(t, newFetcher(t, cfg), entry)
			if rowOf(r) != answers(200, file) || time.Since(began) != 6*time.Second || !slices.Equal(dialled, f.dialled) {
				t.Errorf("%s: got %v (%v) after %v, dialled %v", entry, rowOf(r), r.Cause, time.Since(began), dialled)
			}
			cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			late := newFetcher(t, cfg)
			for _, ctx := range []context.Context{t.Context(), context.Background()} { // the second never ends
				x := exchange.Exchange{Origin: parse(t, entry), Response: r}
				x.Target = late.First(x.Origin, x.Past)
				x.Lookup = late.Resolve(ctx, x.Target)
				if late.Do(ctx, &x); r.Outcome != exchange.ConnectTimeout || r.Timing.Total != 5*time.Second {
					t.Errorf("%s: got %v (%v) after %v", entry, r.Outcome, r.Cause, r.Timing.Total)
				}
			}
		})
	}
}

// A name without an address leads to no connection. The row has the reason.
func TestLookupFailures(t *testing.T) {
	cfg := testConfig(netip.AddrPort{})
	cfg.ConnectTo = nil
	r, asked := fetch(t, newFetcher(t, cfg), "example.com")
	if got, want := rowOf(r), (row{exchange.DNSFailed, exchange.CauseDNSNetwork, 0, ""}); got != want || len(asked) != 1 ||
		r.Attempts != 1 || r.FetchedAt.IsZero() {
		t.Errorf("got %v after %v", got, asked)
	}
	cfg.Resolver = names{}
	cfg.IPv4 = true
	f := newFetcher(t, cfg)
	if r, _ = fetch(t, f, "example.com"); r.Outcome != exchange.DNSNotFound || r.Cause != exchange.CauseNoSuchName {
		t.Errorf("got %v (%v)", r.Outcome, r.Cause)
	}
	if r, _ = fetch(t, f, "[2001:db8::1]"); r.Outcome != exchange.DNSNotFound || r.Cause != exchange.CauseNoAddress {
		t.Errorf("IPv6 literal over IPv4: got %v (%v)", r.Outcome, r.Cause)
	}
}

// Cancelling ends an exchange at once, in any stage. The exchange does not count.
func TestCancel(t *testing.T) {
	f := func(name, entry string, handle func(net.Conn), edit func(*Config), after time.Duration) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			cfg := site(t, 0, handle)
			if edit != nil {
				edit(&cfg)
			}
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				// At the caller's deadline more ends than connecting. A Dial that did not wait for its ctx to end would return too
				// early.
				if end, _ := ctx.Deadline(); time.Until(end) != 5*time.Second {
					t.Errorf("dialled until %v", end)
				}
				return dial(ctx, network, address)
			}
			fetcher := newFetcher(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			x := exchange.Exchange{Origin: parse(t, entry), Response: new(exchange.Response)}
			x.Target = fetcher.First(x.Origin, x.Past)
			x.Lookup = fetcher.Resolve(ctx, x.Target)
			began := time.Now()
			next := fetcher.Do(ctx, &x)
			if next.Again || x.Response.Outcome != 0 || x.Past != (exchange.Past{}) || time.Since(began) != after {
				t.Errorf("got %+v, %v, %+v after %v", next, x.Response.Outcome, x.Past, time.Since(began))
			}
		})
	}
	const http, https, ftp = "http://example.com", "https://example.com", "ftp://example.com"
	f("before", http, silent, nil, 0)
	f("connect", http, silent, func(c *Config) { c.ConnectTo[0].Addr = netip.MustParseAddrPort(nowhere).Addr() },
		time.Second)
	f("handshake", https, silent, nil, time.Second)
	f("request", http, func(net.Conn) { time.Sleep(time.Hour) },
		func(c *Config) { c.UserAgent = strings.Repeat("x", 100_000) }, time.Second)
	f("head", http, hold(), nil, time.Second)
	f("body", http, hold(okHead+"Content-Length: 9\r\n\r\nabc"), nil, time.Second)
	f("ftp", ftp, silent, nil, time.Second)
	f("ftp's file", ftp, func(conn net.Conn) { playFTP(conn, nil, silent, nil) }, nil, time.Second)
}

// Bodies beyond 64 KiB share one budget. When it is used up, an exchange waits for it until its own deadline.
func TestBodyBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Repeat("x", 90_000)
		cfg := site(t, 0, reply(okHead+"Content-Length: 90000\r\n\r\n", body))
		cfg.MaxBody = 100_000
		cfg.BodyBudget = 400_000 // a quarter is for smaller bodies
		f := newFetcher(t, cfg)
		var held []*exchange.Response
		for range 3 {
			r, _ := fetch(t, f, "http://example.com")
			if string(r.Body) != body {
				t.Fatalf("got %v (%v), %d bytes", r.Outcome, r.Cause, len(r.Body))
			}
			held = append(held, r)
		}
		r, _ := fetch(t, f, "http://example.com")
		if got, want := rowOf(r), (row{exchange.Timeout, exchange.CauseNoLocalResource, 200, ""}); got != want ||
			r.Timing.Total != 15*time.Second {
			t.Errorf("over the budget: got %v (%v) after %v", got.outcome, got.cause, r.Timing.Total)
		}
		time.AfterFunc(time.Second, held[0].Reset)
		if r, _ = fetch(t, f, "http://example.com"); len(r.Body) != 90_000 || r.Timing.Total != time.Second {
			t.Errorf("after a body was recycled: got %v (%v) after %v", r.Outcome, r.Cause, r.Timing.Total)
		}
		for _, r := range append(held[1:], r) {
			r.Reset()
		}
		allBack(t, f)
	})
}

// Concurrent exchanges do not mix up their bodies, although they share memory.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		encode := encoders["gzip"]
		cfg := site(t, 0, func(conn net.Conn) {
			request := readRequest(conn)
			_, host, _ := strings.Cut(request, "Host: ")
			host, _, _ = strings.Cut(host, "\r\n")
			body, coding := strings.Repeat(host+"\n", 1+len(request)*len(host)%9000), "identity"
			if len(host)%2 == 0 {
				body, coding = string(encode([]byte(body))), "gzip"
			}
			_, _ = io.WriteString(conn, okHead+"Content-Encoding: "+coding+"\r\nServer: "+host+"\r\n\r\n"+body)
		})
		f := newFetcher(t, cfg)
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() {
				r := new(exchange.Response)
				for j := range 20 {
					host := strings.Repeat("a", 1+i) + strings.Repeat("b", 1+j) + ".example"
					x := exchange.Exchange{Origin: parse(t, "http://"+host), Response: r}
					x.Target = f.First(x.Origin, x.Past)
					x.Lookup = f.Resolve(t.Context(), x.Target)
					f.Do(t.Context(), &x)
					if rest := strings.ReplaceAll(string(r.Body), host+"\n", ""); r.Outcome != exchange.Answered || len(r.Body) == 0 ||
						rest != "" || string(r.Fields.Server) != host {
						t.Errorf("%s: got %v (%v), server %q, %.80q", host, r.Outcome, r.Cause, r.Fields.Server, rest)
						return
					}
				}
			})
		}
		wait.Wait()
	})
}

func TestFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(fields, cdn string, check func(*exchange.Response) bool) {
			t.Helper()
			cfg := site(t, 0, reply("HTTP/1.1 200 OK\r\n"+strings.ReplaceAll(fields, "\n", "\r\n")+"Content-Length: 0\r\n\r\n"))
			r, _ := fetch(t, newFetcher(t, cfg), "http://example.com")
			if r.Status != 200 || r.Fields.CDN != cdn || check != nil && !check(r) {
				t.Errorf("%q: got %d %q %q", fields, r.Status, r.Fields.CDN, r.Fields)
			}
		}
		f("", "", func(r *exchange.Response) bool {
			return r.Fields.Server == nil && r.Fields.ContentType == nil && r.Fields.ETag == nil
		})
		f(
			"server: x\ncontent-type: text/plain\nETAG: \"a\"\nlast-modified: b\ncache-control: max-age=1\ncontent-usage: train-ai=n\n", "", func(r *exchange.Response) bool {
				return string(r.Fields.Server) == "x" && string(r.Fields.ContentType) == "text/plain" &&
					string(r.Fields.ETag) == `"a"` &&
					string(r.Fields.LastModified) == "b" && string(r.Fields.CacheControl) == "max-age=1" &&
					string(r.Fields.ContentUsage) == "train-ai=n"
			})
		f("X-Robots-Tag: noindex\nX-Robots-Tag: otherbot: nofollow\n", "", func(r *exchange.Response) bool {
			return string(r.Fields.XRobotsTag) == "noindex, otherbot: nofollow"
		})
		f("Server: "+strings.Repeat("x", 9000)+"\n", "",
			func(r *exchange.Response) bool { return len(r.Fields.Server) == exchange.MaxField })
		f(strings.Repeat("X-Robots-Tag: "+strings.Repeat("x", 90)+"\n", 100), "", func(r *exchange.Response) bool {
			return len(r.Fields.XRobotsTag) == exchange.MaxField
		})
		f("Server: cloudflare\nCF-RAY: 1-FRA\nX-Vercel-Id: 1\n", "cloudflare", nil)
		f("X-Vercel-Id: 1\n", "vercel", nil)
		f("Server: AkamaiGHost\n", "akamai", nil)
		f("Via: 1.1 abc.cloudfront.net (CloudFront)\n", "cloudfront", nil)
		f("X-Served-By: cache-fra-1\n", "fastly", nil)
		f("X-CDN: Imperva\n", "imperva", nil)
		f("Server: nginx\nVia: 1.1 varnish\n", "", nil)
		challenge := func(fields, want string) {
			t.Helper()
			f(fields, "", func(r *exchange.Response) bool { return r.Fields.Challenge == want })
		}
		challenge("cf-mitigated: challenge\n", "cloudflare")
		challenge("CF-Mitigated:  Challenge \n", "cloudflare")
		challenge("cf-mitigated: block\n", "")
		challenge("cf-mitigated: challenged\n", "")
		challenge("x-amzn-waf-action: challenge\n", "aws-waf")
		challenge("X-Amzn-Waf-Action: captcha\n", "aws-waf")
		challenge("x-amzn-waf-action: block\n", "")
		challenge("x-vercel-mitigated: challenge\n", "vercel")
		challenge("x-vercel-mitigated: deny\n", "")
		challenge("x-vercel-mitigated: deny\ncf-mitigated: challenge\n", "cloudflare")
		challenge("Server: challenge\n", "")
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := func(value string, want time.Duration) {
		t.Helper()
		if got := retryAfter([]byte(value), now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
	f("120", 2*time.Minute)
	f(" 0 ", 0)
	f("99999999999999999999999", 365*24*time.Hour)
	f("Sat, 21 Nov 2026 12:05:00 GMT", 5*time.Minute)
	f("Saturday, 21-Nov-26 12:05:00 GMT", 5*time.Minute)
	f("Sat Nov 21 12:05:00 2026", 5*time.Minute)
	f("Tue Dec  1 12:00:00 2026", 10*24*time.Hour)
	f("Sat, 21 Nov 2020 12:05:00 GMT", 0)
	f("Sunday, 06-Nov-94 08:49:37 GMT", 0)
	f("Sun Nov  6 08:49:37 1994", 0)
	f("Sat, 21 Nov 9999 12:05:00 GMT", 365*24*time.Hour)
	f("1.5", 0)
	f("-5", 0)
	f("soon", 0)
	f("", 0)
}

func TestNewRefuses(t *testing.T) {
	f := func(edit func(*Config)) {
		t.Helper()
		cfg := testConfig(netip.AddrPort{})
		edit(&cfg)
		if _, err := New(cfg); err == nil {
			t.Error("an invalid configuration was accepted")
		}
	}
	f(func(c *Config) { c.UserAgent = "" })
	f(func(c *Config) { c.UserAgent = "a\r\nb" })
	f(func(c *Config) { c.Timeout = -1 })
	f(func(c *Config) { c.MaxRedirects = -1 })
	f(func(c *Config) { c.Retries = -1 })
	f(func(c *Config) { c.MaxBody = -1 })
	f(func(c *Config) { c.BodyBudget = 1000 })
	f(func(c *Config) { c.IPv4, c.IPv6 = true, true })
	f(func(c *Config) { c.Scheme = 99 })
	f(func(c *Config) { c.TLSMin = tls.VersionTLS10 - 1 })
	f(func(c *Config) { c.TLSMin = tls.VersionTLS13 + 1 })
	f(func(c *Config) { c.StrictTLS, c.SkipVerify = true, true })
	f(func(c *Config) { c.IPv6, c.SourceIP = true, netip.MustParseAddr("127.0.0.1") })
	f(func(c *Config) { c.Dial, c.SourceIP = new(web).dial, netip.MustParseAddr("127.0.0.1") })
}

// The default budget suffices for any MaxBody.
func TestDefaultBudget(t *testing.T) {
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 1 << 30
	if f := newFetcher(t, cfg); f.cfg.BodyBudget != 4<<30 {
		t.Errorf("got %d", f.cfg.BodyBudget)
	}
}

func TestSourceIP(t *testing.T) {
	noLeaks(t)
	from := make(chan string, 1)
	cfg := testConfig(serve(t, func(conn net.Conn) {
		from <- conn.RemoteAddr().String()
		reply(okHead + "Content-Length: 0\r\n\r\n")(conn)
	}))
	cfg.SourceIP = netip.MustParseAddr("127.0.0.7")
	r, _ := fetch(t, newFetcher(t, cfg), "http://example.com")
	if r.Status != 200 {
		t.Skipf("SKIPPED: cannot dial from 127.0.0.7 here: %v", r.Cause)
	}
	if got := <-from; !strings.HasPrefix(got, "127.0.0.7:") {
		t.Errorf("dialled from %s", got)
	}
}

// A 503 with a Retry-After, then a redirect to another host, then the file.
func TestRetryAndRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var visits atomic.Int32
		cfg := site(t, time.Second, func(conn net.Conn) {
			request := readRequest(conn)
			switch {
			case visits.Add(1) == 1:
				_, _ = io.WriteString(conn, "HTTP/1.1 503 x\r\nRetry-After: 90\r\n\r\n")
			case strings.Contains(request, "Host: example.com\r\n"):
				_, _ = io.WriteString(conn, "HTTP/1.1 302 x\r\nLocation: //www.example.com/r b?c#d\r\n\r\n")
			case strings.HasPrefix(request, "GET /r%20b?c HTTP/1.1\r\n") &&
				strings.Contains(request, "Host: www.example.com\r\n"):
				_, _ = io.WriteString(conn, okHead+"Content-Length: 2\r\n\r\nab")
			}
		})
		cfg.Retries, cfg.MaxRetryAfter = 1, DefaultMaxRetryAfter
		f := newFetcher(t, cfg)
		x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
		var waits []time.Duration
		for range 3 {
			x.Target = f.First(x.Origin, x.Past)
			x.Lookup = f.Resolve(t.Context(), x.Target)
			next := f.Do(t.Context(), &x)
			waits = append(waits, next.After)
		}
		r := x.Response
		if rowOf(r) != answers(200, "ab") || waits[0] != 90*time.Second || r.Attempts != 2 || x.Past.Later != 1 {
			t.Errorf("got %v (%v), waits %v, %d attempts", rowOf(r), r.Cause, waits, r.Attempts)
		}
		want := exchange.Hop{Status: 302, URL: "http://www.example.com/r%20b?c"}
		if len(r.Hops) != 1 || r.Hops[0] != want || r.Final.String() != want.URL ||
			r.Answered.String() != "http://example.com" {
			t.Errorf("got hops %v, final %s, answered %s", r.Hops, r.Final, r.Answered)
		}
		if r.Timing != (exchange.Timing{Connect: time.Second, TTFB: time.Second, Total: 6 * time.Second}) ||
			x.Past.Spent != r.Timing.Total {
			t.Errorf("got %+v", r.Timing)
		}
	})
}

// Responses that say that the address gets too many requests.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(head string, want bool) {
			t.Helper()
			cfg := site(t, 0, func(conn net.Conn) {
				readRequest(conn)
				_, _ = io.WriteString(conn, "HTTP/1.1 "+head+"\r\nContent-Length: 0\r\n\r\n")
			})
			x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
			client := newFetcher(t, cfg)
			x.Target = client.First(x.Origin, x.Past)
			x.Lookup = client.Resolve(t.Context(), x.Target)
			if got := client.Do(t.Context(), &x).Throttled; got != want {
				t.Errorf("%q: throttled %v; want %v", head, got, want)
			}
		}
		f("429 Too Many Requests", true)
		f("429 Too Many Requests\r\nRetry-After: 10", true)
		f("429 Too Many Requests\r\ncf-mitigated: challenge", false)
		f("503 Service Unavailable\r\nRetry-After: 10\r\nx-vercel-mitigated: challenge", false)
		f("429 Too Many Requests\r\nx-vercel-mitigated: deny", true)
		f("503 Service Unavailable\r\nRetry-After: 10", true)
		f("503 Service Unavailable", false)
		f("503 Service Unavailable\r\nRetry-After: 0", false)
		f("503 Service Unavailable\r\nRetry-After: soon", false)
		f("500 Internal Server Error\r\nRetry-After: 10", false)
		f("404 Not Found\r\nRetry-After: 10", false)
		f("408 Request Timeout\r\nRetry-After: 10", false)
		f("301 Moved\r\nLocation: /a\r\nRetry-After: 10", false)
		f("200 OK\r\nRetry-After: 10", false)
	})
}

// An answer that came before the request could be sent is valid, even after the connection was reset.
func TestAnswerBeforeRequest(t *testing.T) {
	noLeaks(t)
	connected, gone := make(chan struct{}), make(chan struct{})
	addr := serve(t, func(conn net.Conn) {
		<-connected
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		close(gone)
	})
	f := newFetcher(t, testConfig(addr))
	x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: &exchange.Response{Remote: addr}}
	x.Target = f.First(x.Origin, x.Past)
	w := f.newWire()
	w.deadline, w.connectFor = time.Now().Add(hang), hang
	stop, err := w.dial(t.Context(), x.Response)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	defer stop()
	close(connected)
	<-gone
	if at, err := w.ask(t.Context(), &x); err != nil || x.Response.Status != 503 {
		t.Errorf("got status %d, stage %d: %v", x.Response.Status, at, err)
	}
}

// After a complete answer the connection is reset, so that no TIME_WAIT is left.
func TestResetsAfterAnswer(t *testing.T) {
	noLeaks(t)
	ended := make(chan error, 1)
	cfg := testConfig(serve(t, func(conn net.Conn) {
		reply(okHead + "Content-Length: 2\r\n\r\nab")(conn)
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}))
	if r, _ := fetch(t, newFetcher(t, cfg), "http://example.com"); r.Status != 200 {
		t.Fatalf("got %v (%v)", r.Outcome, r.Cause)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}
}
