package fetcher

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Deadlines are exact, however a server spends the time: each stage has its own, and one covers all.
func TestDeadlines(t *testing.T) {
	const (
		total   = 15 * time.Second
		never   = time.Hour
		aTime   = 700 * time.Millisecond // divides no time-out
		plain   = "http://example.com"
		secure  = "https://example.com"
		file    = "User-agent: *\n"
		goodish = okHead + "Content-Length: 14\r\n\r\n"
	)
	connectTimeout := row{exchange.ConnectTimeout, exchange.CauseConnectTimeout, 0, ""}
	tlsTimeout := row{exchange.Timeout, exchange.CauseTLSTimeout, 0, ""}
	writeTimeout := row{exchange.Timeout, exchange.CauseWriteTimeout, 0, ""}
	headTimeout := row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""}
	bodyTimeout := row{exchange.Timeout, exchange.CauseBodyTimeout, 200, ""}

	f := func(name, entry string, edit func(*Config), roundTrip time.Duration, handle func(net.Conn), want row,
		after time.Duration) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			t.Helper()
			cfg := site(t, roundTrip, handle)
			cfg.SkipVerify = true
			if edit != nil {
				edit(&cfg)
			}
			began := time.Now()
			r, _ := fetch(t, newFetcher(t, cfg), entry)
			if got := rowOf(r); got != want {
				t.Errorf("got %v (%v) %d %q", got.outcome, got.cause, got.status, got.body)
			}
			if took := time.Since(began); took != after || r.Timing.Total != after {
				t.Errorf("took %v, Timing.Total %v, want %v", took, r.Timing.Total, after)
			}
		})
	}
	cert := newAuthority(t).certificate(t, "example.com", nil)
	// over returns a handler with slow TLS, in the handshake and afterwards.
	over := func(pause time.Duration, piece int, handle func(net.Conn)) func(net.Conn) {
		cfg := &tls.Config{Certificates: []tls.Certificate{cert}}
		return func(conn net.Conn) { overTLS(cfg, handle)(&slow{conn, pause, piece}) }
	}
	deaf := func(conn net.Conn) { time.Sleep(2 * total) }
	long := strings.Repeat("x", 1000)
	connectIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.ConnectTimeout = d } }
	tlsIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.TLSTimeout = d } }
	huge := func(c *Config) { c.UserAgent = strings.Repeat("x", 100_000) } // no window holds the request
	headIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.HeaderTimeout = d } }

	f("nothing is late", plain, nil, 0, later(0, 0, whole, goodish, file), answers(200, file), 0)

	f("connect", plain, nil, never, silent, connectTimeout, 5*time.Second)
	f("connect, its own", plain, connectIn(3*time.Second), never, silent, connectTimeout, 3*time.Second)
	f("connect, beyond the total", plain, connectIn(total+1), never, silent, connectTimeout, total)
	f("connect, just in time", plain, connectIn(3*time.Second+1), 3*time.Second, later(0, 0, whole, goodish, file),
		answers(200, file), 2*3*time.Second)

	f("TLS silent", secure, nil, 0, silent, tlsTimeout, total)
	f("TLS silent, its own", secure, tlsIn(2*time.Second), 0, silent, tlsTimeout, 2*time.Second)
	f("TLS silent, its own after a connect", secure, tlsIn(2*time.Second), aTime, silent, tlsTimeout, aTime+2*time.Second)
	f("TLS silent, beyond the total", secure, tlsIn(total), aTime, silent, tlsTimeout, total)
	f("TLS dripping", secure, nil, 0, over(aTime, 1, silent), tlsTimeout, total)
	f("TLS dripping, its own", secure, tlsIn(2*time.Second), 0, over(aTime, 1, silent), tlsTimeout, 2*time.Second)
	f("TLS deaf", secure, tlsIn(2*time.Second), 0, deaf, tlsTimeout, 2*time.Second)
	f("TLS slow, then in time", secure, tlsIn(2*time.Second), 0, over(aTime, whole, later(3*time.Second, 0, whole, goodish+
		file)),
		answers(200, file), aTime+3*time.Second+aTime)

	f("deaf", plain, huge, 0, deaf, writeTimeout, total)
	f("deaf, whatever the head may take", plain, func(c *Config) { huge(c); headIn(2 * time.Second)(c) }, 0, deaf,
		writeTimeout, total)

	f("head silent", plain, nil, 0, silent, headTimeout, total)
	f("head silent, its own", plain, headIn(2*time.Second), 0, silent, headTimeout, 2*time.Second)
	f("head silent, its own after a connect", plain, headIn(2*time.Second), aTime, silent, headTimeout, aTime+
		2*time.Second)
	f("head silent, beyond the total", plain, headIn(total), aTime, silent, headTimeout, total)
	f("head silent over TLS, its own", secure, headIn(2*time.Second), 0, over(aTime, whole, silent), headTimeout, aTime+
		2*time.Second)
	f("head dripping", plain, nil, 0, later(0, aTime, 1, okHead+"X: "+long), headTimeout, total)
	f("head dripping, its own", plain, headIn(2*time.Second), 0, later(0, aTime, 1, okHead+"X: "+long), headTimeout,
		2*time.Second)
	f("head of interim heads, its own", plain, headIn(2*time.Second), 0, later(0, aTime, whole, "HTTP/1.1 100 x\r\n\r\n",
		"HTTP/1.1 100 x\r\n\r\n", goodish), headTimeout, 2*time.Second)

	f("body silent", plain, nil, 0, later(0, 0, whole, goodish), bodyTimeout, total)
	f("body dripping", plain, nil, 0, later(0, aTime, 1, goodish[:1]) /* the head's first byte */, headTimeout, total)
	f("body dripping by length", plain, nil, 0, later(0, aTime, 10, okHead+"Content-Length: 1000\r\n\r\n"+long),
		bodyTimeout, total)
	f("body dripping until close", plain, nil, 0, later(0, aTime, 10, okHead+"\r\n"+long), bodyTimeout, total)
	f("body dripping by chunks", plain, nil, 0, later(0, aTime, 10, okHead+"Transfer-Encoding: chunked\r\n\r\n"+
		strings.Repeat("1\r\nx\r\n", 200)), bodyTimeout, total)
	f("body slower than the head may be", plain, headIn(2*time.Second), 0, later(time.Second, 5*time.Second, whole,
		goodish, file), headTimeout, 2*time.Second)
	f("body late, head in time", plain, headIn(6*time.Second), 0, later(0, 5*time.Second, whole, goodish, file),
		answers(200, file), 10*time.Second)
	f("body over TLS", secure, nil, aTime, over(aTime, whole, later(0, 0, whole, goodish)), bodyTimeout, total)

	f("all of it slow", secure, nil, time.Second, over(3*time.Second, whole, later(2*time.Second, 0, whole, goodish)),
		bodyTimeout, total)

	const ftp = "ftp://example.com"
	f("ftp silent", ftp, nil, aTime, silent, headTimeout, total)
	f("ftp deaf", ftp, nil, 0, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "220 hello\r\n")
		deaf(conn)
	}, headTimeout, total)
	f("ftp dripping", ftp, nil, aTime, func(conn net.Conn) {
		_, _ = io.WriteString(&slow{conn, aTime, 1}, "220 "+long+"\r\n")
	}, headTimeout, total)
}

// FTP's data connection has the same deadlines as its control connection.
func TestDeadlinesOfFTPData(t *testing.T) {
	f := func(name string, replies map[string]string, send func(net.Conn), want row, after time.Duration) {
		t.Helper()
		bubble(t, name, func(t *testing.T) {
			cfg := site(t, time.Second, func(conn net.Conn) { playFTP(conn, replies, send, nil) })
			cfg.ConnectTimeout = 3 * time.Second
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if strings.HasSuffix(address, ":5000") {
					address = nowhere
				}
				return dial(ctx, network, address)
			}
			began := time.Now()
			r, _ := fetch(t, newFetcher(t, cfg), "ftp://example.com")
			if got, took := rowOf(r), time.Since(began); got != want || took != after {
				t.Errorf("got %v (%v) %d after %v", got.outcome, got.cause, got.status, took)
			}
		})
	}
	// Before the data connection come a connection, a greeting half a round trip later, and five commands.
	f("no connect", map[string]string{"EPSV": "229 (|||5000|)"}, nil, row{exchange.Timeout, exchange.CauseHeadTimeout, 0,
		""}, 6500*time.Millisecond+3*time.Second)
	f("dripping", nil, func(conn net.Conn) {
		_, _ = io.WriteString(&slow{conn, time.Second, 1}, strings.Repeat("x", 100))
	}, row{exchange.Timeout, exchange.CauseBodyTimeout, 0, ""}, 15*time.Second)
}

// At any point of the dialogue, a silent FTP server uses up the exchange's deadline, and a closed connection ends the
// exchange at once.
func TestDeadlinesOfFTP(t *testing.T) {
	const file = "User-agent: *\n"
	f := func(at, what string, fall func(net.Conn), want row, after time.Duration) {
		t.Helper()
		bubble(t, what+" at "+at, func(t *testing.T) {
			var replies map[string]string
			if at == "PASV" {
				replies = map[string]string{"EPSV": "500 no"}
			}
			fetcher := newFetcher(t, site(t, time.Second, func(conn net.Conn) {
				playFTP(conn, replies, sends(file), func(command string) bool {
					if command == at {
						fall(conn)
					}
					return command == at
				})
			}))
			began := time.Now()
			r, _ := fetch(t, fetcher, "ftp://example.com")
			if got, took := rowOf(r), time.Since(began); got != want || took != after {
				t.Errorf("got %v (%v) %d after %v, want %v (%v) after %v", got.outcome, got.cause, got.status, took, want.outcome,
					want.cause, after)
			}
			if len(fetcher.ftpData) != 0 {
				t.Errorf("%d transfers are still counted", len(fetcher.ftpData))
			}
		})
	}
	drip := func(conn net.Conn) {
		_, _ = io.WriteString(&slow{conn, 700 * time.Millisecond, 1}, "200-"+strings.Repeat("x", 1000))
	}
	ends := func(conn net.Conn) { _ = conn.Close() }
	after := 1500 * time.Millisecond // a connection, and half a round trip later the greeting
	for _, at := range []string{"", "USER", "PASS", "FEAT", "TYPE", "EPSV", "PASV", "RETR", "226"} {
		late, early := exchange.CauseHeadTimeout, exchange.CauseClosedBeforeHead
		switch at {
		case "":
		case "PASV": // instead of a data connection, which comes before RETR
			after += time.Second
		case "226": // comes with the file
			late, early = exchange.CauseBodyTimeout, exchange.CauseClosedInBody
		default:
			after += time.Second
		}
		f(at, "silent", silent, row{exchange.Timeout, late, 0, ""}, 15*time.Second)
		f(at, "dripping", drip, row{exchange.Timeout, late, 0, ""}, 15*time.Second)
		f(at, "closed", ends, row{exchange.ClosedEarly, early, 0, ""}, after)
	}
	f("never", "nothing", nil, answers(200, file), after)
}

// A wait for memory or for a decoder ends at the exchange's deadline, and at once when it is cancelled.
func TestDeadlineOfMemory(t *testing.T) {
	body := strings.Repeat("Disallow: /x\n", 2000) // larger than middleBody
	f := func(name string, exhaust func(*Fetcher), coding string) {
		bubble(t, name, func(t *testing.T) {
			coded := body
			if coding != "" {
				coded = string(encoders["gzip"]([]byte(body)))
			}
			cfg := site(t, time.Second, reply(okHead+coding+"\r\n", coded))
			cfg.Timeout = 10 * time.Second
			cfg.MaxBody, cfg.BodyBudget = 30_000, 4*30_000
			fetcher := newFetcher(t, cfg)
			exhaust(fetcher)
			began := time.Now()
			r, _ := fetch(t, fetcher, "http://example.com")
			want := row{exchange.Timeout, exchange.CauseNoLocalResource, 200, ""}
			if got, took := rowOf(r), time.Since(began); got != want || took != cfg.Timeout {
				t.Errorf("got %v (%v) after %v", got.outcome, got.cause, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: r}
			x.Target = fetcher.First(x.Origin, x.Past)
			x.Lookup = fetcher.Resolve(ctx, x.Target)
			began = time.Now()
			if fetcher.Do(ctx, &x); r.Outcome != 0 || time.Since(began) != 3*time.Second {
				t.Errorf("cancelled: got %v after %v", r.Outcome, time.Since(began))
			}
		})
	}
	f("budget", func(f *Fetcher) {
		for f.memory.tryTake(30_000) != nil {
		}
	}, "")
	f("budget for what is decoded", func(f *Fetcher) {
		for f.memory.tryTake(30_000) != nil {
		}
	}, "Content-Encoding: gzip\r\n")
	f("decoder", func(f *Fetcher) {
		for range cap(f.decoders) {
			<-f.decoders
		}
	}, "Content-Encoding: gzip\r\n")
}
