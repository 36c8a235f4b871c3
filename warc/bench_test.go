package warc

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// archive returns an archive of exchanges, one for each body.
func archive(tb testing.TB, bodies [][]byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := NewWriter("test")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	if err := w.Begin(&out, "test.warc.gz", at); err != nil {
		tb.Fatal(err)
	}
	for i, body := range bodies {
		host := fmt.Sprintf("site-%d.example", i)
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
			len(body))
		x := Exchange{
			URI: "https://" + host + "/robots.txt", Date: at, IP: netip.MustParseAddr("192.0.2.1"),
			Protocols: []string{"http/1.1", "tls/1.3"},
			Request:   fmt.Appendf(nil, "GET /robots.txt HTTP/1.1\r\nHost: %s\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n", host),
			Response:  append([]byte(head), body...), Payload: len(head),
		}
		if err := w.Write(&x); err != nil {
			tb.Fatal(err)
		}
	}
	return out.Bytes()
}

// BenchmarkReader reads records of real files:
//
//	go test ./warc -run xxx -bench Reader -benchmem
func BenchmarkReader(b *testing.B) {
	bodies := sharedtest.Bodies(b, "typical12k")
	file := archive(b, bodies)
	r := NewReader(512000)
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if rec.Type == Response {
				n++
			}
		}
		if n != len(bodies) {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(len(bodies))*float64(b.N)/b.Elapsed().Seconds(), "captures/s")
}
