package fetcher

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// scripted is a connection to a server that ignores requests. Reads return given bytes, in given sizes, and then an
// error.
type scripted struct {
	net.Conn // nil: other methods are not called
	to       netip.AddrPort
	rest     []byte
	sizes    []int // of the reads in turn; the last is that of all further reads; 0: as many bytes as fit
	end      error
}

// Read implements io.Reader.
func (s *scripted) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, s.end
	}
	size := s.sizes[0]
	if len(s.sizes) > 1 {
		s.sizes = s.sizes[1:]
	}
	if size == 0 || size > len(p) {
		size = len(p)
	}
	n := copy(p[:size], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(s.to) }

// ends are the ways in which a connection may end.
var ends = []error{io.EOF, syscall.ECONNRESET, os.ErrDeadlineExceeded, io.ErrUnexpectedEOF}

// exchanged performs an exchange and returns its whole result as a text.
func exchanged(t *testing.T, f *Fetcher, entry string) (*exchange.Response, string) {
	t.Helper()
	x := exchange.Exchange{Origin: parse(t, entry), Response: new(exchange.Response)}
	x.Target = f.First(x.Origin, x.Past)
	x.Lookup = exchange.Lookup{Addr: netip.MustParseAddr("127.0.0.1")}
	next := f.Do(t.Context(), &x)
	r := x.Response
	if !next.Again && (r.Outcome == 0 || r.Attempts != 1) {
		t.Fatalf("%+v after %+v", next, r)
	}
	if r.Outcome != exchange.Answered && r.Body != nil {
		t.Fatalf("%v with a body of %d bytes", r.Outcome, len(r.Body))
	}
	if len(r.Body) > f.cfg.MaxBody {
		t.Fatalf("%d bytes are kept", len(r.Body))
	}
	return r, fmt.Sprintf("%v (%v) %d %q truncated %v, %s, fields %q, hops %v, again %v %s",
		r.Outcome, r.Cause, r.Status, r.Body, r.Truncated, r.Proto, r.Fields, r.Hops, next.Again, next.Target)
}

// allocated returns how many bytes this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// askWithin asks, and fails the test if that allocates more than most bytes. The count includes the whole process, so
// it makes up to three attempts.
func askWithin(t *testing.T, most uint64, ask func(sizes ...int) (*exchange.Response, string)) (*exchange.Response,
	string) {
	t.Helper()
	for try := 1; ; try++ {
		before := allocated()
		r, whole := ask(0)
		took := allocated() - before
		if took <= most {
			return r, whole
		}
		if try == 3 {
			t.Errorf("%d bytes were allocated, of at most %d", took, most)
			return r, whole
		}
		r.Reset()
	}
}

// Any bytes from a server lead to one outcome, which does not depend on the packets. Reading them takes bounded
// memory and returns all lent memory. If net/http reads a final response, too, it is the same.
func FuzzResponse(f *testing.F) {
	for _, reading := range readings() {
		if len(reading.wire) < 2000 {
			f.Add([]byte(reading.wire), uint16(0), uint8(0))
		}
	}
	f.Add([]byte(okHead+"Content-Length: 2, 2\r\nX: a\r\n b\r\nX-Robots-Tag: y\r\n\r\nab"), uint16(9), uint8(1))
	f.Add([]byte("HTTP/1.0 301 Moved\r\nLocation: /x\r\n\r\n"), uint16(1), uint8(2))
	f.Add([]byte("HTTP/1.1 503 x\r\nRetry-After: 120\r\n\r\n"), uint16(20), uint8(3))
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 100_000
	var conn *scripted
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	fetcher := newFetcher(f, cfg)
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16, end uint8) {
		ask := func(sizes ...int) (*exchange.Response, string) {
			conn = &scripted{rest: wire, sizes: sizes, end: ends[int(end)%len(ends)]}
			return exchanged(t, fetcher, "http://example.com")
		}
		// The decoders (TestBombs), a large head, and the test, which prints the body, need memory, too.
		most := uint64(1<<20 + 8*len(wire))
		if bytes.Contains(bytes.ToLower(wire), []byte("content-encoding")) {
			most += 48 << 20
		}
		r, whole := askWithin(t, most, ask)
		for _, sizes := range [][]int{{1}, {int(cut) + 1, 0}, {int(cut)%100 + 1}} {
			other, otherwise := ask(sizes...)
			if other.Reset(); otherwise != whole {
				t.Errorf("read by %v: %s\nread at once: %s", sizes, otherwise, whole)
			}
		}
		likeNetHTTP(t, wire, r)
		r.Reset()
		allBack(t, fetcher)
		if len(fetcher.decoders) != cap(fetcher.decoders) {
			t.Fatal("a decoder is lost")
		}
	})
}

// likeNetHTTP compares an answer with net/http's reading, where that is possible: net/http is stricter, returns
// interim responses, and knows no content coding.
func likeNetHTTP(t *testing.T, wire []byte, r *exchange.Response) {
	t.Helper()
	plain, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(wire)), nil)
	if r.Outcome != exchange.Answered || err != nil || plain.StatusCode < 200 {
		return
	}
	if plain.StatusCode != r.Status {
		t.Fatalf("status %d, net/http says %d", r.Status, plain.StatusCode)
	}
	for name := range plain.Header {
		if strings.HasSuffix(name, " ") {
			return // white space before a colon, which makes it another field
		}
	}
	switch {
	case r.Status/100 != 2 || r.Status == http.StatusResetContent, r.Truncated, plain.Header["Content-Encoding"] != nil:
		return
	case plain.ProtoMajor != 1 || len(plain.TransferEncoding) == 0 && strings.Contains(strings.ToLower(string(wire)),
		"transfer-encoding"):
		return // framing that net/http ignores
	}
	if want, err := io.ReadAll(plain.Body); err == nil && !bytes.Equal(r.Body, want) {
		t.Fatalf("body %q, net/http says %q", r.Body, want)
	}
}

// The same as FuzzResponse for the replies and the file of an FTP server.
func FuzzFTP(f *testing.F) {
	const login = "220 ready\r\n331 password\r\n230 welcome\r\n211-\r\n UTF8\r\n PRET\r\n211 end\r\n200 fine\r\n"
	f.Add([]byte(login+"200 fine\r\n229 Entering (|||2000|)\r\n150 here\r\n226 done\r\n"), []byte("User-agent: *\n"),
		uint16(3), uint8(0))
	f.Add([]byte(strings.Replace(login, " PRET\r\n", "", 1)+"500 no\r\n227 (10,0,0,1,7,208)\r\n150 here\r\n250 done\r\n"),
		[]byte(""), uint16(30), uint8(1))
	f.Add([]byte("220 ready\r\n331 password\r\n230 welcome\r\n500 what?\r\n200 fine\r\n500 no\r\n227 )(\r\n"), []byte(""),
		uint16(0), uint8(2))
	f.Add(
		[]byte("220 ready\r\n331 password\r\n230 welcome\r\n500 what?\r\n200 fine\r\n229 (|||1|)\r\n550-no\r\n550 no\r\n"),
		[]byte("x"), uint16(0), uint8(0))
	f.Add([]byte("220-hello\r\n421 later\r\n"), []byte(""), uint16(5), uint8(3))
	cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:21"))
	cfg.MaxBody = 1000
	var dial func(to netip.AddrPort) net.Conn
	cfg.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		return dial(netip.MustParseAddrPort(address)), nil
	}
	fetcher := newFetcher(f, cfg)
	f.Fuzz(func(t *testing.T, replies, file []byte, cut uint16, end uint8) {
		ask := func(sizes ...int) (*exchange.Response, string) {
			control := &scripted{rest: replies, end: ends[int(end)%len(ends)]}
			dial = func(to netip.AddrPort) net.Conn {
				if to.Addr() != cfg.ConnectTo[0].Addr {
					t.Errorf("a connection to %s", to)
				}
				conn := control
				if control.to.IsValid() {
					conn = &scripted{rest: file, end: ends[int(end/4)%len(ends)]}
				}
				conn.to, conn.sizes = to, sizes
				return conn
			}
			return exchanged(t, fetcher, "ftp://example.com")
		}
		r, whole := askWithin(t, uint64(1<<20+16*len(replies)), ask)
		for _, sizes := range [][]int{{1}, {int(cut) + 1, 0}, {int(cut)%100 + 1}} {
			other, otherwise := ask(sizes...)
			if other.Reset(); otherwise != whole {
				t.Errorf("read by %v: %s\nread at once: %s", sizes, otherwise, whole)
			}
		}
		r.Reset()
		allBack(t, fetcher)
		if len(fetcher.ftpData) != 0 {
			t.Fatal("a transfer is still counted")
		}
	})
}

// With any codings, decoding stays within the limit, returns its memory, and agrees with the standard library's gzip.
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
		codings, _, err := parseCodings(nil, []byte(header))
		if err != nil || len(coded) == 0 || len(coded) > cfg.MaxBody {
			return
		}
		deadline := time.Now().Add(time.Minute)
		body, err := fetcher.memory.take(context.Background(), len(coded), deadline)
		if err != nil {
			t.Fatal(err)
		}
		body, cut, _, err := fetcher.decode(context.Background(), append(body, coded...), codings, false, deadline)
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
