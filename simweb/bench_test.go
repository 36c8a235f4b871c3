package simweb

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// BenchmarkServePlain measures how fast the web answers, with the client in the same process as in the demonstration:
//
//	go test ./simweb -run '^$' -bench 'Serve|Truth|Certificate' -benchtime 2s -cpuprofile cpu.out
func BenchmarkServePlain(b *testing.B) { benchmarkServe(b, false) }

func BenchmarkServeTLS(b *testing.B) { benchmarkServe(b, true) }

func benchmarkServe(b *testing.B, secure bool) {
	w, err := Start(b.Context(), Config{Addresses: 512, Only: []string{"ok"}})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	var next atomic.Uint64
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		buffer := make([]byte, 64<<10)
		for pb.Next() {
			host := fmt.Sprintf("host%d.example.com", next.Add(1))
			addr, port := w.Lookup(host).Addr, w.HTTPPort()
			if secure {
				port = w.TLSPort()
			}
			c, err := net.Dial("tcp", netip.AddrPortFrom(addr, uint16(port)).String())
			if err != nil {
				b.Error(err)
				return
			}
			if secure {
				c = tls.Client(c, &tls.Config{ServerName: host, InsecureSkipVerify: true})
			}
			if _, err := io.WriteString(c, "GET /robots.txt HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
				b.Error(err)
				return
			}
			for {
				if _, err := c.Read(buffer); err == io.EOF {
					break
				} else if err != nil {
					b.Error(err)
					return
				}
			}
			c.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func BenchmarkTruth(b *testing.B) {
	w := testWeb(b, Config{})
	o := mustOrigin(b, "example.com")
	b.ReportAllocs()
	for b.Loop() {
		w.Expect(o, DefaultPolicy())
	}
}

func BenchmarkCertificate(b *testing.B) {
	w := testWeb(b, Config{})
	for i := 0; b.Loop(); i++ {
		if _, err := w.authority.leaf(fmt.Sprintf("host%d.example.com", i), helloFine); err != nil {
			b.Fatal(err)
		}
	}
}
