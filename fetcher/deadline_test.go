package fetcher

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// network is a fake network for synctest bubbles. Dialling an address takes latency, or fails at its deadline. It
// connects by a pipe to handle.
func network(t *testing.T, latency time.Duration, handle func(netip.AddrPort, net.Conn)) func(context.Context, netip.AddrPort) (net.Conn, error) {
	var servers sync.WaitGroup
	t.Cleanup(servers.Wait)
	return func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		if deadline.Before(time.Now().Add(latency)) {
			time.Sleep(time.Until(deadline))
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}
		time.Sleep(latency)
		client, server := net.Pipe()
		servers.Go(func() {
			defer server.Close()
			handle(to, server)
		})
		return &piped{client, to}, nil
	}
}

// piped is the client's end of a pipe, with a remote address.
type piped struct {
	net.Conn
	to netip.AddrPort
}

// RemoteAddr implements net.Conn.
func (p *piped) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.to) }

// slow is a connection that writes in pieces, with a pause before each.
type slow struct {
	net.Conn
	pause time.Duration
	piece int
}

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

const whole = 1 << 20 // a piece that has all bytes

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

	f := func(name, entry string, edit func(*Config), latency time.Duration, handle func(net.Conn), want row, after time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:1"))
				cfg.Timeout = total
				cfg.SkipVerify = true
				if edit != nil {
					edit(&cfg)
				}
				fetcher := newFetcher(t, cfg)
				fetcher.dial = network(t, latency, func(_ netip.AddrPort, conn net.Conn) { handle(conn) })
				began := time.Now()
				r, _ := fetch(t, fetcher, entry)
				if got := rowOf(r); got != want {
					t.Errorf("got %v (%v) %d %q", got.outcome, got.cause, got.status, got.body)
				}
				if took := time.Since(began); took != after || r.Timing.Total != after {
					t.Errorf("took %v, Timing.Total %v, want %v", took, r.Timing.Total, after)
				}
			})
		})
	}
	cert := newAuthority(t).certificate(t, "example.com", nil)
	// over returns a handler with slow TLS, in the handshake and afterwards.
	over := func(pause time.Duration, piece int, handle func(net.Conn)) func(net.Conn) {
		// Tickets would be sent while the client still writes. A pipe has no buffer, so that would deadlock.
		cfg := &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}
		return func(conn net.Conn) { overTLS(cfg, handle)(&slow{conn, pause, piece}) }
	}
	// later returns a handler that answers after a time, in pieces.
	later := func(first, pause time.Duration, piece int, parts ...string) func(net.Conn) {
		return func(conn net.Conn) {
			readRequest(conn)
			time.Sleep(first)
			reply := &slow{conn, pause, piece}
			for _, part := range parts {
				if _, err := io.WriteString(reply, part); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	silent := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	deaf := func(conn net.Conn) { time.Sleep(2 * total) }
	long := strings.Repeat("x", 1000)
	connectIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.ConnectTimeout = d } }
	tlsIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.TLSTimeout = d } }
	headIn := func(d time.Duration) func(*Config) { return func(c *Config) { c.HeaderTimeout = d } }

	f("nothing is late", plain, nil, 0, later(0, 0, whole, goodish, file), answers(200, file), 0)

	f("connect", plain, nil, never, silent, connectTimeout, 5*time.Second)
	f("connect, its own", plain, connectIn(3*time.Second), never, silent, connectTimeout, 3*time.Second)
	f("connect, beyond the total", plain, connectIn(total+1), never, silent, connectTimeout, total)
	f("connect, just in time", plain, connectIn(3*time.Second), 3*time.Second, later(0, 0, whole, goodish, file), answers(200, file), 3*time.Second)

	f("TLS silent", secure, nil, 0, silent, tlsTimeout, total)
	f("TLS silent, its own", secure, tlsIn(2*time.Second), 0, silent, tlsTimeout, 2*time.Second)
	f("TLS silent, its own after a connect", secure, tlsIn(2*time.Second), aTime, silent, tlsTimeout, aTime+2*time.Second)
	f("TLS silent, beyond the total", secure, tlsIn(total), aTime, silent, tlsTimeout, total)
	f("TLS dripping", secure, nil, 0, over(aTime, 1, silent), tlsTimeout, total)
	f("TLS dripping, its own", secure, tlsIn(2*time.Second), 0, over(aTime, 1, silent), tlsTimeout, 2*time.Second)
	f("TLS deaf", secure, tlsIn(2*time.Second), 0, deaf, tlsTimeout, 2*time.Second)
	f("TLS slow, then in time", secure, tlsIn(2*time.Second), 0, over(aTime, whole, later(3*time.Second, 0, whole, goodish+file)),
		answers(200, file), aTime+3*time.Second+aTime)

	f("deaf", plain, nil, 0, deaf, writeTimeout, total)
	f("deaf, whatever the head may take", plain, headIn(2*time.Second), 0, deaf, writeTimeout, total)

	f("head silent", plain, nil, 0, silent, headTimeout, total)
	f("head silent, its own", plain, headIn(2*time.Second), 0, silent, headTimeout, 2*time.Second)
	f("head silent, its own after a connect", plain, headIn(2*time.Second), aTime, silent, headTimeout, aTime+2*time.Second)
	f("head silent, beyond the total", plain, headIn(total), aTime, silent, headTimeout, total)
	f("head silent over TLS, its own", secure, headIn(2*time.Second), 0, over(aTime, whole, silent), headTimeout, aTime+2*time.Second)
	f("head dripping", plain, nil, 0, later(0, aTime, 1, okHead+"X: "+long), headTimeout, total)
	f("head dripping, its own", plain, headIn(2*time.Second), 0, later(0, aTime, 1, okHead+"X: "+long), headTimeout, 2*time.Second)
	f("head of interim heads, its own", plain, headIn(2*time.Second), 0, later(0, aTime, whole, "HTTP/1.1 100 x\r\n\r\n", "HTTP/1.1 100 x\r\n\r\n", goodish), headTimeout, 2*time.Second)

	f("body silent", plain, nil, 0, later(0, 0, whole, goodish), bodyTimeout, total)
	f("body dripping", plain, nil, 0, later(0, aTime, 1, goodish[:1]) /* the head's first byte */, headTimeout, total)
	f("body dripping by length", plain, nil, 0, later(0, aTime, 10, okHead+"Content-Length: 1000\r\n\r\n"+long), bodyTimeout, total)
	f("body dripping until close", plain, nil, 0, later(0, aTime, 10, okHead+"\r\n"+long), bodyTimeout, total)
	f("body dripping by chunks", plain, nil, 0, later(0, aTime, 10, okHead+"Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat("1\r\nx\r\n", 200)), bodyTimeout, total)
	f("body slower than the head may be", plain, headIn(2*time.Second), 0, later(time.Second, 5*time.Second, whole, goodish, file), headTimeout, 2*time.Second)
	f("body late, head in time", plain, headIn(6*time.Second), 0, later(0, 5*time.Second, whole, goodish, file), answers(200, file), 10*time.Second)
	f("body over TLS", secure, nil, aTime, over(aTime, whole, later(0, 0, whole, goodish)), bodyTimeout, total)

	f("all of it slow", secure, nil, 4*time.Second, over(4*time.Second, whole, later(2*time.Second, 0, whole, goodish)), bodyTimeout, total)

	const ftp = "ftp://example.com"
	f("ftp silent", ftp, nil, aTime, silent, headTimeout, total)
	f("ftp deaf", ftp, nil, 0, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "220 hello\r\n")
		deaf(conn)
	}, headTimeout, total)
	f("ftp dripping", ftp, nil, aTime, func(conn net.Conn) {
		go silent(conn)
		_, _ = io.WriteString(&slow{conn, aTime, 1}, "220 "+long+"\r\n")
	}, headTimeout, total)
}

// FTP's data connection has the same deadlines as its control connection.
func TestDeadlinesOfFTPData(t *testing.T) {
	f := func(name string, connects bool, want row, after time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control := network(t, time.Second, func(_ netip.AddrPort, conn net.Conn) {
					ftpControl(conn, 5000, nil)
				})
				data := network(t, time.Second, func(_ netip.AddrPort, conn net.Conn) {
					_, _ = io.WriteString(&slow{conn, time.Second, 1}, strings.Repeat("x", 100))
				})
				if !connects {
					data = network(t, time.Hour, nil)
				}
				cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:21"))
				cfg.Timeout, cfg.ConnectTimeout = 15*time.Second, 3*time.Second
				fetcher := newFetcher(t, cfg)
				fetcher.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
					if to.Port() == 5000 {
						return data(ctx, to)
					}
					return control(ctx, to)
				}
				began := time.Now()
				r, _ := fetch(t, fetcher, "ftp://example.com")
				if got, took := rowOf(r), time.Since(began); got != want || took != after {
					t.Errorf("got %v (%v) %d after %v", got.outcome, got.cause, got.status, took)
				}
			})
		})
	}
	f("no connect", false, row{exchange.Timeout, exchange.CauseHeadTimeout, 0, ""}, 4*time.Second)
	f("dripping", true, row{exchange.Timeout, exchange.CauseBodyTimeout, 0, ""}, 15*time.Second)
}

// ftpControl plays an FTP server's control connection up to a transfer from a port. instead, if not nil, is called
// before each reply ("" is the greeting). If it returns true, it has replied itself.
func ftpControl(conn net.Conn, port int, instead func(command string) bool) {
	say := func(command, answer string) bool {
		if instead != nil && instead(command) {
			return true
		}
		_, err := io.WriteString(conn, answer+"\r\n")
		return err == nil
	}
	ok := say("", "220 ready")
	for lines := bufio.NewScanner(conn); ok && lines.Scan(); {
		answer := "200 fine"
		command, _, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "USER":
			answer = "331 password"
		case "PASS":
			answer = "230 welcome"
		case "FEAT":
			answer = "500 what?"
		case "EPSV":
			answer = fmt.Sprintf("229 Entering (|||%d|)", port)
		case "RETR":
			answer = "150 here it comes"
		}
		ok = say(command, answer)
	}
}

// At any point of the dialogue, a silent FTP server uses up the exchange's deadline, and a closed connection ends the
// exchange at once.
func TestDeadlinesOfFTP(t *testing.T) {
	const file = "User-agent: *\n"
	f := func(at, what string, fall func(net.Conn), want row, after time.Duration) {
		t.Run(what+" at "+at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:21"))
				cfg.Timeout, cfg.ConnectTimeout = 15*time.Second, 3*time.Second
				fetcher := newFetcher(t, cfg)
				fetcher.dial = network(t, time.Second, func(to netip.AddrPort, conn net.Conn) {
					if to.Port() == 5000 {
						_, _ = io.WriteString(conn, file)
						return
					}
					ftpControl(conn, 5000, func(command string) bool {
						switch {
						case command == at:
							fall(conn)
							return true
						case command == "RETR": // and the reply after the transfer
							_, _ = io.WriteString(conn, "150 here it comes\r\n")
							time.Sleep(time.Second)
							if at == "226" {
								fall(conn)
							} else {
								_, _ = io.WriteString(conn, "226 done\r\n")
							}
							return true
						case command == "EPSV" && at == "PASV":
							_, _ = io.WriteString(conn, "500 no\r\n")
							return true
						}
						return false
					})
				})
				began := time.Now()
				r, _ := fetch(t, fetcher, "ftp://example.com")
				if got, took := rowOf(r), time.Since(began); got != want || took != after {
					t.Errorf("got %v (%v) %d after %v, want %v (%v) after %v", got.outcome, got.cause, got.status, took, want.outcome, want.cause, after)
				}
				if len(fetcher.ftpData) != 0 {
					t.Errorf("%d transfers are still counted", len(fetcher.ftpData))
				}
			})
		})
	}
	silent := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	drip := func(conn net.Conn) {
		go silent(conn)
		_, _ = io.WriteString(&slow{conn, 700 * time.Millisecond, 1}, "200-"+strings.Repeat("x", 1000))
	}
	ends := func(conn net.Conn) { _ = conn.Close() }
	f("never", "nothing", nil, answers(200, file), 3*time.Second)
	for _, at := range []string{"", "USER", "PASS", "FEAT", "TYPE", "EPSV", "PASV", "RETR", "226"} {
		late, early, after := exchange.CauseHeadTimeout, exchange.CauseClosedBeforeHead, time.Second
		switch at {
		case "RETR":
			after = 2 * time.Second
		case "226":
			late, early, after = exchange.CauseBodyTimeout, exchange.CauseClosedInBody, 3*time.Second
		}
		f(at, "silent", silent, row{exchange.Timeout, late, 0, ""}, 15*time.Second)
		f(at, "dripping", drip, row{exchange.Timeout, late, 0, ""}, 15*time.Second)
		f(at, "closed", ends, row{exchange.ClosedEarly, early, 0, ""}, after)
	}
}

// A wait for memory or for a decoder ends at the exchange's deadline, and at once when it is cancelled.
func TestDeadlineOfMemory(t *testing.T) {
	body := strings.Repeat("Disallow: /x\n", 2000) // larger than middleBody
	f := func(name string, exhaust func(*Fetcher), coding string) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coded := body
				if coding != "" {
					coded = string(encoders["gzip"]([]byte(body)))
				}
				cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:1"))
				cfg.Timeout = 10 * time.Second
				cfg.MaxBody, cfg.BodyBudget = 30_000, 4*30_000
				fetcher := newFetcher(t, cfg)
				fetcher.dial = network(t, time.Second, func(_ netip.AddrPort, conn net.Conn) {
					reply(okHead+coding+"\r\n", coded)(conn)
				})
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
				x.Lookup = fetcher.Resolve(ctx, x.Target, 0)
				began = time.Now()
				if fetcher.Do(ctx, &x); r.Outcome != 0 || time.Since(began) != 3*time.Second {
					t.Errorf("cancelled: got %v after %v", r.Outcome, time.Since(began))
				}
			})
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

// Under load no exchange outlives its deadline by more than a second longer than bare connections with the same
// deadline and as much to compute do: the machine itself may be busy.
func TestDeadlinesUnderLoad(t *testing.T) {
	noLeaks(t)
	const each, timeout = 100, 300 * time.Millisecond
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	ca := newAuthority(t)
	drip := func(conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(&slow{conn, 50 * time.Millisecond, 1}, okHead+"\r\n"+strings.Repeat("x", 1000))
	}
	secure := overTLS(&tls.Config{Certificates: []tls.Certificate{ca.certificate(t, "example.com", nil)}}, drip)
	silent, coded := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }), serve(t, secure)
	var mu sync.Mutex
	worst := map[string]time.Duration{}
	late := func(what string, began time.Time) {
		mu.Lock()
		worst[what] = max(worst[what], time.Since(began)-timeout)
		mu.Unlock()
	}
	var wait, crowd sync.WaitGroup
	for entry, addr := range map[string]netip.AddrPort{
		"http://example.com": serve(t, drip), "https://example.com": coded,
		"http://silent.example": silent, "https://silent.example": silent, "ftp://silent.example": silent,
	} {
		cfg := testConfig(addr)
		cfg.Timeout, cfg.Roots = timeout, ca.pool()
		f := newFetcher(t, cfg)
		for range each {
			wait.Go(func() {
				for range rounds {
					began := time.Now()
					r, _ := fetch(t, f, entry)
					late("exchange", began)
					// A machine that is busy enough does not even connect to itself in time.
					if r.Outcome != exchange.Timeout && r.Outcome != exchange.ConnectTimeout {
						t.Errorf("%s: got %v (%v)", entry, r.Outcome, r.Cause)
					}
				}
			})
		}
	}
	for range each {
		wait.Go(func() {
			for range rounds {
				conn, err := net.Dial("tcp", coded.String())
				if err != nil {
					t.Error(err)
					return
				}
				began := time.Now()
				_ = conn.SetDeadline(began.Add(timeout))
				_, _ = io.Copy(io.Discard, tls.Client(conn, &tls.Config{ServerName: "example.com", RootCAs: ca.pool()}))
				late("bare", began)
				_ = conn.Close()
			}
		})
	}
	// Meanwhile quick exchanges keep the processors busy.
	quick := newFetcher(t, testConfig(serve(t, reply(okHead+"Content-Length: 2\r\n\r\nab"))))
	done := make(chan struct{})
	for range 50 {
		crowd.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r, _ := fetch(t, quick, "http://example.com")
				r.Reset()
			}
		})
	}
	wait.Wait()
	close(done)
	crowd.Wait()
	t.Logf("at most late: %v", worst)
	if worst["exchange"] > time.Second+worst["bare"] {
		t.Errorf("an exchange outlived its deadline by %v, a bare connection by %v", worst["exchange"], worst["bare"])
	}
}
