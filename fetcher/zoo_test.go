package fetcher

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

const okHead = "HTTP/1.1 200 OK\r\n"

// row is what a test expects of a Response: outcome, cause, status, body.
type row struct {
	outcome exchange.Outcome
	cause   exchange.Cause
	status  int
	body    string
}

func rowOf(r *exchange.Response) row { return row{r.Outcome, r.Cause, r.Status, string(r.Body)} }

func answers(status int, body string) row { return row{exchange.Answered, 0, status, body} }

// Every fault of a server leads to one row, within the deadline, with the right cause. simweb has more such
// servers, and whole scans of them; causes are tested here only.
func TestZoo(t *testing.T) {
	f := func(name string, handle func(net.Conn), want row) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			cfg := site(t, 0, handle)
			cfg.MaxBody = 100_000
			var tapes recordings
			cfg.Record = tapes.add
			fetcher := newFetcher(t, cfg)
			r, _ := fetch(t, fetcher, "http://example.com")
			tapes.check(t, fetcher, r)
			if got := rowOf(r); got != want {
				t.Errorf("got %v (%v) %d %.80q, want %v (%v) %d %.80q", got.outcome, got.cause, got.status, got.body,
					want.outcome, want.cause, want.status, want.body)
			}
			after := time.Duration(0)
			if want.outcome == exchange.Timeout {
				after = 15 * time.Second
			}
			if r.Attempts != 1 || r.Timing.Total != after {
				t.Errorf("%d attempts, %v", r.Attempts, r.Timing.Total)
			}
			r.Reset()
		})
	}
	lines := strings.Repeat("Disallow: /x\n", 8000) // 104,000 bytes
	kept := lines[:100_000/13*13]
	// Bodies.
	f("until close, empty", reply(okHead+"\r\n"), answers(200, ""))
	f("chunked", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"),
		answers(200, "abc0123456789"))
	f("chunked, padded, bare LF, trailer",
		reply(okHead+"transfer-encoding:Chunked\r\n\r\n3  \r\nabc\n1\nd\r\n0\r\nX: y\r\n\r\n"), answers(200, "abcd"))
	f("chunked in 1.0", reply("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"),
		answers(200, "abcde"))
	f("chunked, never closed", hold(okHead+"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"), answers(200, "a"))
	f("large by length", reply(okHead+"Content-Length: 91000\r\n\r\n"+lines[:91000]), answers(200, lines[:91000]))
	f("exactly the bound", reply(okHead+"\r\n"+lines[:100_000]), answers(200, lines[:100_000]))
	f("one more than the bound", reply(okHead+"\r\n"+lines[:100_001]), answers(200, kept))
	f("over the bound by length", hold(okHead+"Content-Length: 104000\r\n\r\n"+lines), answers(200, kept))
	f("endless chunk extension", endless(okHead+"Transfer-Encoding: chunked\r\n\r\n1;",
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("many chunk extensions", endless(okHead+"Transfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("x", 1000)+
		"\r\nx\r\n"), row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("short of its length", reply(okHead+"Content-Length: 50\r\n\r\nabc"),
		row{exchange.ClosedEarly, exchange.CauseClosedInBody, 200, ""})
	f("cut mid-chunk", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
		row{exchange.ClosedEarly, exchange.CauseClosedInBody, 200, ""})
	f("cut before last chunk", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"),
		row{exchange.ClosedEarly, exchange.CauseClosedInBody, 200, ""})
	f("bad chunk size", reply(okHead+"Transfer-Encoding: chunked\r\n\r\nzz\r\nab"),
		row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("negative chunk size", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n-5\r\nab"),
		row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("huge chunk size", reply(okHead+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab"),
		row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("chunk longer than said", reply(okHead+"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n"),
		row{exchange.BadResponse, exchange.CauseBadChunk, 200, ""})
	f("unknown transfer coding", reply(okHead+"Transfer-Encoding: gzip\r\n\r\nabc"),
		row{exchange.BadEncoding, exchange.CauseUnknownTransfer, 200, ""})
	f("identity transfer coding", reply(okHead+"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nabc"),
		answers(200, "ab"))
	f("little by little", later(0, time.Second, 40, okHead+"Content-Length: 1000\r\n\r\n"+strings.Repeat("x", 1000)),
		row{exchange.Timeout, exchange.CauseBodyTimeout, 200, ""})
	f("reset in the body", reset(okHead+"Content-Length: 100\r\n\r\nabc"), row{exchange.Reset, exchange.CauseResetBody,
		200, ""})
	f("silence in the body", hold(okHead+"Content-Length: 100\r\n\r\nabc"),
		row{exchange.Timeout, exchange.CauseBodyTimeout, 200, ""})
	f("NULs and UTF-16", reply(okHead+"Content-Length: 6\r\n\r\n\xff\xfeU\x00:\x00"), answers(200, "\xff\xfeU\x00:\x00"))

	// Heads.
	f("endless head", endless(okHead, "X-Filler: 0123456789\r\n"), row{exchange.HeaderTooLarge, exchange.CauseHeadTooLarge,
		0, ""})
	f("endless line in the head", endless(okHead+"X: ", "0123456789"), row{exchange.HeaderTooLarge,
		exchange.CauseHeadTooLarge, 0, ""})
	f("endless line ends", endless("", "\r\n"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("103, 100, 200", reply("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"+okHead+
		"Content-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("endless interim", endless("", "HTTP/1.1 100 Continue\r\n\r\n"),
		row{exchange.BadResponse, exchange.CauseTooManyInterim, 0, ""})
	f("101", reply("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
		row{exchange.BadResponse, exchange.CauseBadStatus, 101, ""})
	f("line ends mixed", reply("HTTP/1.1 200 OK\nContent-Length: 2\r\n\nab"), answers(200, "ab"))
	f("line end first", reply("\r\n"+okHead+"Content-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("folded field", reply(okHead+"X: a\r\n b\r\nContent-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("line that is no field", reply(okHead+"nonsense\r\nContent-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("control bytes in a field", reply(okHead+"X: a\x00b\x01\r\nContent-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("bad trailer field", reply(okHead+"Trailer: Content-Length\r\nContent-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("status 999", reply("HTTP/1.1 999 Denied\r\n\r\n"), row{exchange.BadResponse, exchange.CauseBadStatus, 999, ""})
	f("status 600", reply("HTTP/1.1 600 x\r\n\r\n"), row{exchange.BadResponse, exchange.CauseBadStatus, 600, ""})
	f("status 599", reply("HTTP/1.1 599 x\r\n\r\n"), answers(599, ""))
	f("status 0", reply("HTTP/1.1 000 x\r\n\r\n"), row{exchange.BadResponse, exchange.CauseBadStatus, 0, ""})
	f("status of two digits", reply("HTTP/1.1 20 OK\r\n\r\n"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("status of letters", reply("HTTP/1.1 abc OK\r\n\r\n"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("negative length", reply(okHead+"Content-Length: -1\r\n\r\nab"), row{exchange.BadResponse, exchange.CauseBadLength,
		200, ""})
	f("length beyond numbers", reply(okHead+"Content-Length: 9223372036854775808\r\n\r\nab"),
		row{exchange.BadResponse, exchange.CauseBadLength, 200, ""})
	f("two equal lengths in a list", reply(okHead+"Content-Length: 2, 2\r\n\r\nab"), answers(200, "ab"))
	f("two different lengths", reply(okHead+"Content-Length: 2\r\nContent-Length: 3\r\n\r\nab"),
		row{exchange.BadResponse, exchange.CauseBadLength, 200, ""})
	f("a broken length of an interim response", reply("HTTP/1.1 103 x\r\nContent-Length: x\r\n\r\n"+okHead+
		"Content-Length: 2\r\n\r\nab"), answers(200, "ab"))
	f("HTTP/0.9", reply("User-agent: *\n"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("HTTP/2 frames", hold("\x00\x00\x12\x04\x00\x00\x00\x00\x00"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0,
		""})
	f("SSH banner", hold("SSH-2.0-OpenSSH_9.9\r\n"), row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("TLS alert on the plain port", reply("\x15\x03\x01\x00\x02\x02\x46"),
		row{exchange.BadResponse, exchange.CauseNotHTTP, 0, ""})
	f("silence", hold(), row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""})
	f("silence in the head", hold(okHead), row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""})
	f("head one byte at a time", later(0, time.Second, 1, okHead+strings.Repeat("X: y\r\n", 100)),
		row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""})
	// Closing outright would reset the connection if the request has arrived.
	closed := func(conn net.Conn) {
		_ = conn.(stream).CloseWrite()
		silent(conn)
	}
	f("closed at once", closed, row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0, ""})
	f("closed without a word", reply(), row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0, ""})
	f("reset without a word", reset(), row{exchange.Reset, exchange.CauseResetHead, 0, ""})
	const small = okHead + "Content-Length: 2\r\n\r\n"
	for i := 1; i < len(small); i++ {
		f(fmt.Sprintf("closed at byte %d", i), reply(small[:i]), row{exchange.ClosedEarly, exchange.CauseClosedInHead, 0, ""})
	}

	// Codings that were not asked for.
	coded := func(name string, body []byte) func(net.Conn) {
		return reply(fmt.Sprintf("%sContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", okHead, name, len(body)),
			string(body))
	}
	const file = "User-agent: *\nDisallow: /\n"
	bomb := bytes.Repeat([]byte("Disallow: /x\n"), 1<<20)
	corrupt := row{exchange.BadEncoding, exchange.CauseCorruptCoding, 200, ""}
	for name, encode := range encoders {
		whole := encode([]byte(file))
		header, _, _ := strings.Cut(name, "/")
		f(name, coded(header, whole), answers(200, file))
		f(name+" bomb", coded(header, encode(bomb)), answers(200, kept))
		f(name+" cut short", coded(header, whole[:len(whole)-3]), corrupt)
		f(name+" of noise", coded(header, []byte("\xff\xff\xff\xffnoise")), corrupt)
		f(name+" of nothing", coded(header, nil), answers(200, ""))
	}
	f("gzip in gzip", coded("gzip, gzip", encoders["gzip"](encoders["gzip"]([]byte(file)))), answers(200, file))
	packed := encoders["gzip"]([]byte(file))
	f("gzip and zeros after it", coded("gzip", append(packed[:len(packed):len(packed)], make([]byte, 500)...)),
		answers(200, file))
	f("gzip and a line end after it", coded("gzip", append(packed[:len(packed):len(packed)], "\r\n"...)),
		answers(200, file))
	f("gzip and a page after it", coded("gzip", append(packed[:len(packed):len(packed)], "<html>"...)), answers(200, file))
	f("gzip and the beginning of another member", coded("gzip", append(packed[:len(packed):len(packed)], packed[:5]...)),
		row{exchange.BadEncoding, exchange.CauseCorruptCoding, 200, ""})
	f("gzip with a wrong sum", coded("gzip", append(packed[:len(packed)-5:len(packed)-5], 1, 2, 3, 4, 5)),
		row{exchange.BadEncoding, exchange.CauseCorruptCoding, 200, ""})
	f("three codings", coded("gzip, gzip, gzip", nil), answers(200, ""))
	f("three codings on a body", coded("gzip, gzip, gzip", []byte("x")),
		row{exchange.BadEncoding, exchange.CauseNestedCoding, 200, ""})
	f("unknown coding", coded("compress", []byte(file)), row{exchange.BadEncoding, exchange.CauseUnknownCoding, 200, ""})
}

// encoders write the codings. The name up to a slash is that of the Content-Encoding.
var encoders = map[string]func([]byte) []byte{
	"gzip": func(b []byte) []byte {
		return encode(b, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	},
	"deflate/zlib": func(b []byte) []byte {
		return encode(b, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	},
	"deflate/raw": func(b []byte) []byte {
		return encode(b, func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 5); return f })
	},
	"br": func(b []byte) []byte {
		return encode(b, func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 5) })
	},
	"zstd": func(b []byte) []byte {
		return encode(b, func(w io.Writer) io.WriteCloser { e, _ := zstd.NewWriter(w); return e })
	},
}

func encode(b []byte, open func(io.Writer) io.WriteCloser) []byte {
	var out bytes.Buffer
	w := open(&out)
	if _, err := w.Write(b); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	good := ca.certificate(t, "example.com", nil)
	expired := ca.certificate(t, "example.com", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Unix(1, 0)
	})
	wrongName := ca.certificate(t, "example.org", nil)
	unknown := newAuthority(t).certificate(t, "example.com", nil)
	self := &authority{key: newKey(t)}
	selfSigned := self.sign(t, &x509.Certificate{DNSNames: []string{"example.com"}}, self.key)
	long := good
	for range 100 {
		long.Certificate = append(long.Certificate[:len(long.Certificate):len(long.Certificate)], ca.cert.Raw)
	}
	ok := reply(okHead + "Content-Length: 2\r\n\r\nab")
	with := func(c tls.Certificate, edit func(*tls.Config)) func(net.Conn) {
		cfg := &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS10}
		if edit != nil {
			edit(cfg)
		}
		return overTLS(cfg, ok)
	}

	f := func(name string, handle func(net.Conn), want row, version uint16, verified exchange.Tristate) {
		t.Helper()
		for _, strict := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, strict %v", name, strict), func(t *testing.T) {
				t.Helper()
				cfg := site(t, time.Second, handle)
				cfg.Roots = ca.pool()
				cfg.StrictTLS = strict
				want := want
				if strict && verified == exchange.No {
					want = row{exchange.TLSFailed, exchange.CauseTLSUnverified, 0, ""}
				}
				r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
				timing := exchange.Timing{Connect: time.Second, TLS: time.Second, TTFB: time.Second, Total: 3 * time.Second}
				switch {
				case want.outcome == exchange.Timeout:
					timing = exchange.Timing{Connect: time.Second, Total: 15 * time.Second}
				case want.outcome != exchange.Answered:
					timing = r.Timing
				case version == tls.VersionTLS12, strings.Contains(name, "P-521"): // another round trip
					timing.TLS, timing.Total = 2*time.Second, 4*time.Second
				}
				if r.Timing != timing {
					t.Errorf("took %+v, want %+v", r.Timing, timing)
				}
				if rowOf(r) != want || r.TLSVersion != version || r.TLSVerified != verified {
					t.Errorf("got %v %v (%v) version %x verified %v", rowOf(r), r.Cause, r.Outcome, r.TLSVersion, r.TLSVerified)
				}
				r.Reset()
			})
		}
	}
	f("1.3", with(good, nil), answers(200, "ab"), tls.VersionTLS13, exchange.Yes)
	f("1.2 only", with(good, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), answers(200, "ab"),
		tls.VersionTLS12, exchange.Yes)
	f("1.0 only", with(good, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS10 }),
		row{exchange.TLSFailed, exchange.CauseTLSVersion, 0, ""}, 0, exchange.Unknown)
	f("no curve but P-521", with(good, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} }),
		answers(200, "ab"), tls.VersionTLS13, exchange.Yes)
	f("other protocol only", with(good, func(c *tls.Config) { c.NextProtos = []string{"other"} }),
		row{exchange.TLSFailed, exchange.CauseTLSAlert, 0, ""}, 0, exchange.Unknown)
	f("expired", with(expired, nil), answers(200, "ab"), tls.VersionTLS13, exchange.No)
	f("wrong name", with(wrongName, nil), answers(200, "ab"), tls.VersionTLS13, exchange.No)
	f("unknown authority", with(unknown, nil), answers(200, "ab"), tls.VersionTLS13, exchange.No)
	f("self-signed", with(tls.Certificate{Certificate: [][]byte{selfSigned.Raw}, PrivateKey: self.key}, nil),
		answers(200, "ab"), tls.VersionTLS13, exchange.No)
	f("a hundred certificates", with(long, nil), answers(200, "ab"), tls.VersionTLS13, exchange.Yes)
	f("client certificate wanted", with(good, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }),
		row{exchange.TLSFailed, exchange.CauseTLSAlert, 0, ""}, tls.VersionTLS13, exchange.Yes)
	f("until close without close_notify", func(conn net.Conn) {
		server := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{good}})
		if server.Handshake() == nil {
			reply(okHead + "\r\nab")(server)
		}
	}, answers(200, "ab"), tls.VersionTLS13, exchange.Yes)
	none := exchange.Unknown
	f("silent", silent, row{exchange.Timeout, exchange.CauseTLSTimeout, 0, ""}, 0, none)
	f("one byte a time", func(conn net.Conn) {
		_, _ = io.WriteString(&slow{conn, time.Second, 1}, "\x16\x03\x03\x10\x00"+strings.Repeat("\x02", 100))
	}, row{exchange.Timeout, exchange.CauseTLSTimeout, 0, ""}, 0, none)
	f("closed", func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) },
		row{exchange.ClosedEarly, exchange.CauseTLSClosed, 0, ""}, 0, none)
	f("reset", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_ = conn.(stream).SetLinger(0)
	}, row{exchange.Reset, exchange.CauseTLSReset, 0, ""}, 0, none)
	f("alert after hello", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "\x15\x03\x03\x00\x02\x02\x28")
		silent(conn)
	}, row{exchange.TLSFailed, exchange.CauseTLSAlert, 0, ""}, 0, none)
	f("plain HTTP", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		silent(conn)
	}, row{exchange.TLSFailed, exchange.CauseTLSNotTLS, 0, ""}, 0, none)

	t.Run("older by wish", func(t *testing.T) {
		for version := uint16(tls.VersionTLS10); version <= tls.VersionTLS13; version++ {
			only := func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }
			addr := serve(t, with(good, only))
			for least := uint16(tls.VersionTLS10); least <= tls.VersionTLS13; least++ {
				cfg := testConfig(addr)
				cfg.Roots, cfg.TLSMin = ca.pool(), least
				r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
				want, spoken := answers(200, "ab"), version
				if version < least {
					want, spoken = row{exchange.TLSFailed, exchange.CauseTLSVersion, 0, ""}, 0
				}
				if rowOf(r) != want || r.TLSVersion != spoken {
					t.Errorf("a server of %#x, at least %#x: got %v (%v), version %#x", version, least, rowOf(r), r.Cause,
						r.TLSVersion)
				}
				r.Reset()
			}
		}
	})
	bubble(t, "without verification", func(t *testing.T) {
		for _, certificate := range []tls.Certificate{good, expired, wrongName, unknown} {
			cfg := site(t, 0, with(certificate, nil))
			cfg.Roots, cfg.SkipVerify = ca.pool(), true
			r, _ := fetch(t, newFetcher(t, cfg), "https://example.com")
			if rowOf(r) != answers(200, "ab") || r.TLSVerified != exchange.Unknown || r.TLSVersion != tls.VersionTLS13 {
				t.Errorf("got %v (%v), verified %v", rowOf(r), r.Cause, r.TLSVerified)
			}
			r.Reset()
		}
	})
	bubble(t, "address as host", func(t *testing.T) {
		cfg := site(t, 0, with(ca.certificate(t, "127.0.0.1", nil), nil))
		cfg.ConnectTo, cfg.Roots, cfg.StrictTLS = nil, ca.pool(), true
		r, _ := fetch(t, newFetcher(t, cfg), "https://127.0.0.1:80")
		if rowOf(r) != answers(200, "ab") {
			t.Errorf("got %+v", rowOf(r))
		}
	})
}

// The request has these bytes.
func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string, 1)
		cfg := site(t, 0, func(conn net.Conn) {
			seen <- readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 404 x\r\n\r\n")
		})
		f := newFetcher(t, cfg)
		check := func(entry string, edit func(*exchange.Target), want string) {
			t.Helper()
			x := exchange.Exchange{Origin: parse(t, entry), Response: new(exchange.Response)}
			x.Target = f.First(x.Origin, x.Past)
			if edit != nil {
				edit(&x.Target)
			}
			x.Lookup = f.Resolve(t.Context(), x.Target)
			f.Do(t.Context(), &x)
			if x.Response.Status != 404 {
				t.Fatalf("got %+v", x.Response)
			}
			want += "Accept: text/plain,*/*;q=0.8\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
			if got := <-seen; got != want {
				t.Errorf("asked\n%s\nwant\n%s", got, want)
			}
		}
		agent := "User-Agent: " + cfg.UserAgent + "\r\n"
		check("http://example.com", nil, "GET /robots.txt HTTP/1.1\r\n"+agent+"Host: example.com\r\n")
		check("http://example.com:8080", nil, "GET /robots.txt HTTP/1.1\r\n"+agent+"Host: example.com:8080\r\n")
		check("http://[2001:db8::1]", nil, "GET /robots.txt HTTP/1.1\r\n"+agent+"Host: [2001:db8::1]\r\n")
		check("http://example.com", func(x *exchange.Target) { x.Path = "/a/../b//c%2f?d=%00&e" },
			"GET /a/../b//c%2f?d=%00&e HTTP/1.1\r\n"+agent+"Host: example.com\r\n")
	})
}

func TestFallback(t *testing.T) {
	ca := newAuthority(t)
	ok := reply(okHead + "Content-Length: 2\r\n\r\nab")
	notTLS := func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "what?\r\n")
		silent(conn)
	}
	f := func(name string, onTLS, onPlain func(net.Conn), edit func(*Config), want row, answered string, asked ...string) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			w := newWeb(t, 0)
			w.serve("127.0.0.1:443", onTLS)
			w.serve("127.0.0.1:80", onPlain)
			cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:0"))
			cfg.Dial = w.dial
			cfg.NoFallback = false
			cfg.Roots = ca.pool()
			if edit != nil {
				edit(&cfg)
			}
			r, got := fetch(t, newFetcher(t, cfg), "example.com")
			if rowOf(r) != want || r.Answered.String() != answered || strings.Join(got, " ") != strings.Join(asked, " ") ||
				r.Attempts != len(asked) {
				t.Errorf("got %v (%v) from %s after %v, %d attempts", rowOf(r), r.Cause, r.Answered, got, r.Attempts)
			}
		})
	}
	const https, http = "https://example.com/robots.txt", "http://example.com/robots.txt"
	secure := overTLS(&tls.Config{Certificates: []tls.Certificate{ca.certificate(t, "example.com", nil)}}, ok)
	notTLSRow := row{exchange.TLSFailed, exchange.CauseTLSNotTLS, 0, ""}
	httpFirst := func(c *Config) { c.Scheme = origin.HTTP }
	f("https answers", secure, ok, nil, answers(200, "ab"), "https://example.com", https)
	f("http answers", notTLS, ok, nil, answers(200, "ab"), "http://example.com", https, http)
	f("none answers", notTLS, reply(), nil, notTLSRow, "https://example.com", https, http)
	f("no fallback", notTLS, ok, func(c *Config) { c.NoFallback = true }, notTLSRow, "https://example.com", https)
	f("http first", secure, ok, httpFirst, answers(200, "ab"), "http://example.com", http)
	f("http first, https answers", secure, reply(), httpFirst, answers(200, "ab"), "https://example.com", http, https)
	f("http first, none answers", notTLS, reply(), httpFirst, row{exchange.ClosedEarly, exchange.CauseClosedBeforeHead, 0,
		""}, "http://example.com", http, https)
	f("no http after bad http", notTLS, reply("SSH-2.0\r\n"), httpFirst, row{exchange.BadResponse, exchange.CauseNotHTTP,
		0, ""}, "http://example.com", http)
}
