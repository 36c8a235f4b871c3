package fetcher

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// readAnswer reads a response as an exchange does, without a network.
func readAnswer(f *Fetcher, src io.Reader) (status int, body []byte, cut bool, err error) {
	w := f.wires.Get().(*wire)
	defer f.release(w)
	w.small.Reset(src)
	w.br = w.small
	if _, err := w.readHead(); err != nil {
		return 0, nil, false, err
	}
	var r exchange.Response
	r.Status = w.res.StatusCode()
	w.keepFields(&r, time.Now())
	length := w.res.ContentLength()
	if length == 0 || r.Status == 204 {
		return r.Status, nil, false, nil
	}
	w.body = frame(w.br, length)
	lent, cut, err := f.memory.collect(context.Background(), &w.body, f.cfg.MaxBody, time.Now().Add(time.Minute))
	body = bytes.Clone(lent)
	f.memory.Recycle(lent)
	return r.Status, body, cut, err
}

// What comes over the wire cannot break us, is read the same however it is cut into packets, and where net/http reads
// it as a final response too, as the same one.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		okHead + "Content-Length: 5\r\n\r\nabcde",
		okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
		"HTTP/1.0 301 Moved\r\nLocation: /x\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\nServer: x\n\nabc",
		okHead + "Content-Length: 2, 2\r\nX: a\r\n b\r\nX-Robots-Tag: y\r\n\r\nab",
	} {
		f.Add([]byte(seed))
	}
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 1 << 20
	fetcher := newFetcher(f, cfg)
	f.Fuzz(func(t *testing.T, wire []byte) {
		status, body, cut, err := readAnswer(fetcher, bytes.NewReader(wire))
		status1, body1, cut1, err1 := readAnswer(fetcher, iotest.OneByteReader(bytes.NewReader(wire)))
		if status != status1 || !bytes.Equal(body, body1) || cut != cut1 || (err == nil) != (err1 == nil) {
			t.Fatalf("whole: %d %q %v %v; by bytes: %d %q %v %v", status, body, cut, err, status1, body1, cut1, err1)
		}
		if err != nil || status < 200 {
			return
		}
		plain, plainErr := http.ReadResponse(bufio.NewReader(bytes.NewReader(wire)), nil)
		if plainErr != nil || plain.StatusCode != status || plain.StatusCode == http.StatusNotModified {
			// net/http is the stricter of the two, and returns interim responses.
			if plainErr == nil && plain.StatusCode >= 200 && plain.StatusCode != status {
				t.Fatalf("status %d, net/http says %d", status, plain.StatusCode)
			}
			return
		}
		if plain.ProtoMajor != 1 || len(plain.TransferEncoding) == 0 && strings.Contains(strings.ToLower(string(wire)), "transfer-encoding") {
			return // framing that net/http ignores
		}
		want, plainErr := io.ReadAll(plain.Body)
		if plainErr == nil && !bytes.Equal(body, want) {
			t.Fatalf("body %q, net/http says %q", body, want)
		}
	})
}

// Whatever a body claims to be coded in, decoding ends within its bound, gives its memory back, and agrees with the
// standard library where that has the format.
func FuzzDecode(f *testing.F) {
	for name, encode := range encoders {
		header, _, _ := strings.Cut(name, "/")
		f.Add(header, encode([]byte("User-agent: *\nDisallow: /\n")))
		f.Add(header+", gzip", encoders["gzip"](encode([]byte("User-agent: *\n"))))
	}
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 100_000
	fetcher := newFetcher(f, cfg)
	f.Fuzz(func(t *testing.T, header string, coded []byte) {
		codings, err := parseCodings(nil, []byte(header))
		if err != nil || len(coded) == 0 || len(coded) > cfg.MaxBody {
			return
		}
		deadline := time.Now().Add(time.Minute)
		body, err := fetcher.memory.take(context.Background(), len(coded), deadline)
		if err != nil {
			t.Fatal(err)
		}
		body, cut, err := fetcher.decode(context.Background(), append(body, coded...), codings, false, deadline)
		if len(body) > cfg.MaxBody || err != nil && body != nil {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if len(codings) == 1 && codings[0] == gzipCoding && err == nil && !cut {
			r, err := gzip.NewReader(bytes.NewReader(coded))
			if err != nil {
				t.Fatalf("the standard library says %v", err)
			}
			want, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(body, want) {
				t.Fatalf("got %q, the standard library %q, %v", body, want, err)
			}
		}
		fetcher.memory.Recycle(body)
		allBack(t, fetcher)
		if len(fetcher.decoders) != cap(fetcher.decoders) {
			t.Fatal("a decoder is lost")
		}
	})
}
