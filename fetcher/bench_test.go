//go:build unix

package fetcher

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// frugal is a server handler that allocates nothing a connection, so that what is measured is ours.
func frugal(response string) func(net.Conn) {
	answer := []byte(response)
	return func(conn net.Conn) {
		var buf [1024]byte
		if _, err := conn.Read(buf[:]); err != nil {
			return
		}
		_, _ = conn.Write(answer)
		_, _ = conn.Read(buf[:1]) // until the client closes
	}
}

var kilobyte = okHead + "Server: nginx\r\nContent-Type: text/plain\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("Disallow: /x\n", 77)

// An exchange, once warm, allocates little more than net.Dialer does.
func TestDoAllocatesLittle(t *testing.T) {
	f := newFetcher(t, testConfig(serve(t, frugal(kilobyte))))
	r := new(exchange.Response)
	o := parse(t, "http://example.com")
	ctx := t.Context()
	do := func() {
		x := exchange.Exchange{Origin: o, Response: r}
		x.Target = f.First(x.Origin, x.Past)
		x.Lookup = f.Resolve(ctx, x.Target)
		f.Do(ctx, &x)
		if len(r.Body) != 1001 {
			t.Fatalf("got %v (%v)", r.Outcome, r.Cause)
		}
	}
	all := testing.AllocsPerRun(200, do)
	t.Logf("%v allocations an exchange, the loopback server's included", all)
	if all > 60 {
		t.Errorf("%v allocations an exchange", all)
	}
}

// TestMain is also the server of BenchmarkDo, in a process of its own so that the benchmark's processor time is ours
// alone: with the variable set it serves until its standard input ends.
func TestMain(m *testing.M) {
	mode := os.Getenv("BULKSCAN_BENCH_SERVER")
	if mode == "" {
		os.Exit(m.Run())
	}
	handle := frugal(kilobyte)
	if mode == "tls" {
		var tb testing.TB = new(testing.B)
		ca := newAuthority(tb)
		der := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
		fmt.Printf("%q\n", der)
		handle = overTLS(&tls.Config{Certificates: []tls.Certificate{ca.certificate(tb, "example.com", nil)}}, handle)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			handle(conn)
		}()
	}
}

// An exchange with a loopback server in another process, 256 in flight; the certificate is verified. cpu-s/10k is the
// processor time of ten thousand exchanges in seconds, user and system, without the server's.
//
//	go test ./fetcher -run '^$' -bench Do -benchtime 2s
func BenchmarkDo(b *testing.B) {
	for _, mode := range []string{"plain", "tls"} {
		b.Run(mode, func(b *testing.B) {
			server := exec.Command(os.Args[0])
			server.Env = append(os.Environ(), "BULKSCAN_BENCH_SERVER="+mode)
			stop, err := server.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			out, err := server.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := server.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() {
				_ = stop.Close()
				_ = server.Wait()
			}()
			entry, address, roots := "http://example.com", "", ""
			if mode == "tls" {
				entry = "https://example.com"
				if _, err := fmt.Fscanf(out, "%q\n", &roots); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := fmt.Fscanln(out, &address); err != nil {
				b.Fatal(err)
			}
			cfg := testConfig(netip.MustParseAddrPort(address))
			cfg.Roots = x509.NewCertPool()
			cfg.Roots.AppendCertsFromPEM([]byte(roots))
			cfg.StrictTLS = true
			f := newFetcher(b, cfg)
			o := parse(b, entry)
			b.ReportAllocs()
			b.SetParallelism(256 / runtime.GOMAXPROCS(0))
			before := processorTime()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := new(exchange.Response)
				for pb.Next() {
					x := exchange.Exchange{Origin: o, Response: r}
					x.Target = f.First(x.Origin, x.Past)
					x.Lookup = f.Resolve(b.Context(), x.Target)
					f.Do(b.Context(), &x)
					if len(r.Body) != 1001 {
						b.Errorf("got %v (%v)", r.Outcome, r.Cause)
						return
					}
				}
			})
			b.ReportMetric((processorTime()-before).Seconds()/float64(b.N)*1e4, "cpu-s/10k")
		})
	}
}

// processorTime is what this process has used so far, 0 where the system does not tell.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
