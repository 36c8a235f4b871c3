//go:build unix

package fetcher

import (
	"context"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// frugal returns a handler that allocates nothing, so that only the client's allocations are measured.
func frugal(response string) func(net.Conn) {
	answer := []byte(response)
	return func(conn net.Conn) {
		var buf [1024]byte
		if _, err := conn.Read(buf[:]); err != nil {
			return
		}
		_, _ = conn.Write(answer)
		_, _ = conn.Read(buf[:1]) // wait until the client closes
	}
}

var kilobyte = okHead + "Server: nginx\r\nContent-Type: text/plain\r\nContent-Length: 1001\r\n\r\n" +
	strings.Repeat("Disallow: /x\n", 77)

// Once buffers are allocated, an exchange allocates little more than its connection.
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

// TestMain runs the tests. With BULKSCAN_BENCH_SERVER set it is a server instead, until its standard input ends: in
// another process, so that its processor time and memory are not measured. The modes are "plain" and "tls". The
// suffix " silent" stops after the first byte of a body; " large head," before it sends a head of 6 KB.
func TestMain(m *testing.M) {
	mode, silent := strings.CutSuffix(os.Getenv("BULKSCAN_BENCH_SERVER"), " silent")
	mode, large := strings.CutSuffix(mode, " large head,")
	if mode == "" {
		before := sockets()
		code := m.Run()
		if left := leaks(before); code == 0 && left != "" {
			fmt.Printf("left behind:\n%s\n", left)
			code = 1
		}
		os.Exit(code)
	}
	handle := frugal(kilobyte)
	if silent {
		filler := ""
		if large {
			filler = strings.Repeat("X: 0123456789012345678901234567\r\n", 200)
		}
		handle = hold(okHead + filler + "Content-Length: 500000\r\n\r\nx")
	}
	if mode == "tls" {
		var tb testing.TB = new(testing.B)
		ca := newAuthority(tb)
		der := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
		fmt.Printf("%q\n", der)
		certificate := ca.issuer(tb, "test issuer", nil).certificate(tb, "example.com", nil)
		handle = overTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}, handle)
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

// server starts TestMain's server. It returns a Config and an origin for it.
func server(tb testing.TB, mode string) (Config, origin.Origin) {
	tb.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "BULKSCAN_BENCH_SERVER="+mode)
	stop, err := process.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := process.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stop.Close()
		_ = process.Wait()
	})
	entry, address, roots := "http://example.com", "", ""
	if strings.HasPrefix(mode, "tls") {
		entry = "https://example.com"
		if _, err := fmt.Fscanf(out, "%q\n", &roots); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := fmt.Fscanln(out, &address); err != nil {
		tb.Fatal(err)
	}
	cfg := testConfig(netip.MustParseAddrPort(address))
	cfg.Roots = x509.NewCertPool()
	cfg.Roots.AppendCertsFromPEM([]byte(roots))
	return cfg, parse(tb, entry)
}

// An exchange that waits for a body's second byte holds at most 30 KB plain and 80 KB over TLS, its goroutine's stack
// included. After a large head it holds no more.
func TestMemoryInFlight(t *testing.T) {
	for mode, most := range map[string]uint64{"plain silent": 30_000, "tls silent": 80_000,
		"plain large head, silent": 30_000} {
		t.Run(mode, func(t *testing.T) {
			const many = 500
			cfg, o := server(t, mode)
			f := newFetcher(t, cfg)
			// Each body's first byte takes memory of the smallest size.
			var arrived sync.WaitGroup
			arrived.Add(many)
			made := f.memory.small.New
			f.memory.small.New = func() any {
				defer arrived.Done()
				return made()
			}
			before := inUse()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var exchanges sync.WaitGroup
			for range many {
				exchanges.Go(func() {
					x := exchange.Exchange{Origin: o, Response: new(exchange.Response)}
					x.Target = f.First(x.Origin, x.Past)
					x.Lookup = f.Resolve(ctx, x.Target)
					if f.Do(ctx, &x); x.Response.Outcome != 0 {
						t.Errorf("got %v (%v)", x.Response.Outcome, x.Response.Cause)
						arrived.Done()
					}
				})
			}
			arrived.Wait()
			each := (inUse() - before) / many
			cancel()
			exchanges.Wait()
			t.Logf("%d bytes an exchange", each)
			if each > most {
				t.Errorf("%d bytes an exchange, of at most %d", each, most)
			}
		})
	}
}

// inUse returns the bytes of this process's reachable heap and stacks.
func inUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // pools keep their elements over the first
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// Exchanges with a loopback server in another process, 256 in flight, with verified certificates. cpu-s/10k is the
// processor time of 10,000 exchanges in seconds, user and system, without the server's.
//
//	go test ./fetcher -run '^$' -bench Do -benchtime 2s
func BenchmarkDo(b *testing.B) {
	for _, mode := range []string{"plain", "tls"} {
		b.Run(mode, func(b *testing.B) {
			cfg, o := server(b, mode)
			cfg.StrictTLS = true
			f := newFetcher(b, cfg)
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

// processorTime returns the processor time of this process; 0 if the system does not tell.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A chain of a server's certificate (P-256), its issuer's (P-256) and a root (P-384), as many sites have: verified in
// full, and with a cached issuer.
//
//	go test ./fetcher -run '^$' -bench Verify
func BenchmarkVerify(b *testing.B) {
	root := newAuthority(b)
	chain := parsed(b, root.issuer(b, "issuer", nil).certificate(b, "example.com", nil))
	for name, caches := range map[string]bool{"full": false, "cached": true} {
		b.Run(name, func(b *testing.B) {
			v := newVerifier(root.pool())
			v.caches = caches
			b.ReportAllocs()
			for b.Loop() {
				if v.verify("example.com", chain) != exchange.Yes {
					b.Fatal("the chain does not verify")
				}
			}
		})
	}
}
