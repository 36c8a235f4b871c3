package fetcher

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// scripts returns a Fetcher whose connections are scripted by next, one after the other, and its recordings.
func scripts(t *testing.T, next func() (answer string, end error), edit func(*Config)) (*Fetcher, *recordings) {
	t.Helper()
	cfg := testConfig(netip.MustParseAddrPort("127.0.0.1:80"))
	tapes := new(recordings)
	cfg.MaxBody, cfg.Record = 1000, tapes.add
	if edit != nil {
		edit(&cfg)
	}
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
		answer, end := next()
		return &scripted{rest: []byte(answer), sizes: []int{0}, end: end}, nil
	}
	return newFetcher(t, cfg), tapes
}

// life asks for a site until it is done, and returns the waits before its retries. The recordings are those of the last
// attempt.
func life(t *testing.T, f *Fetcher, tapes *recordings) (r *exchange.Response, waits []time.Duration) {
	t.Helper()
	x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
	x.Target = f.First(x.Origin, x.Past)
	for range 50 {
		x.Lookup = f.Resolve(t.Context(), x.Target)
		next := f.Do(t.Context(), &x)
		if !next.Again {
			return x.Response, waits
		}
		if next.After > 0 {
			waits = append(waits, next.After)
			tapes.list = nil
		}
		x.Target = next.Target
	}
	t.Fatal("the origin is not done after 50 exchanges")
	return nil, nil
}

// endingOf is the ending of a site: outcome, status, access, finding, retries, and the cause if there is one.
func endingOf(r *exchange.Response, retries int) string {
	site := audit.Site{Fetch: *r}
	audit.Judge(&site)
	text := fmt.Sprintf("%v %d %v %v", r.Outcome, r.Status, site.Report.Access, site.Report.Finding)
	if r.Truncated {
		text += " truncated"
	}
	if len(r.Hops) > 0 {
		text += fmt.Sprintf(" hops %d", len(r.Hops))
	}
	if retries > 0 {
		text += fmt.Sprintf(" retries %d", retries)
	}
	if r.Cause != 0 {
		text += fmt.Sprintf(" (%v)", r.Cause)
	}
	return text
}

// fault is something wrong with a body's framing or coding.
type fault struct {
	name, fields, body string
	end                error  // of the connection
	want               string // the ending with status 200
}

// faults lists every kind of fault. A good one is among them, to show what the others change.
func faults() []fault {
	const (
		file      = "User-agent: *\nDisallow: /\n"
		failed    = "full_disallow unreachable"
		good      = "answered 200 conditional rules"
		chunked   = "Transfer-Encoding: chunked\r\n"
		badLength = "bad_response 200 " + failed + " (broken Content-Length)"
		badChunk  = "bad_response 200 " + failed + " (broken chunked body)"
		transfer  = "bad_encoding 200 " + failed + " (unknown Transfer-Encoding)"
		corrupt   = "bad_encoding 200 " + failed + " (the body's Content-Encoding is corrupt)"
		unknown   = "bad_encoding 200 " + failed + " (unknown Content-Encoding)"
		nested    = "bad_encoding 200 " + failed + " (too many Content-Encodings on one body)"
		closed    = "closed_early 200 " + failed + " retries 1 (connection closed before the body's end)"
		wasReset  = "reset 200 " + failed + " retries 1 (connection reset in the body)"
		timeout   = "timeout 200 " + failed + " retries 1 (the body did not end in time)"
		tooLong   = "answered 200 conditional rules truncated"
		more      = "Content-Length: 500\r\n"
	)
	length := func(value string) string { return "Content-Length:" + value + "\r\n" }
	list := []fault{
		{"nothing", length("26"), file, io.EOF, good},
		{"a negative length", length(" -1"), file, io.EOF, badLength},
		{"a length of letters", length(" x"), file, io.EOF, badLength},
		{"a length with a sign", length(" +26"), file, io.EOF, badLength},
		{"a hexadecimal length", length(" 0x1a"), file, io.EOF, badLength},
		{"an empty length", length(""), file, io.EOF, badLength},
		{"a length of 2⁶³", length(" 9223372036854775808"), file, io.EOF, badLength},
		{"a length of 2⁶³-1", length(" 9223372036854775807"), file, io.EOF, closed},
		{"a length of 1,000 digits", length(" " + strings.Repeat("9", 1000)), file, io.EOF, badLength},
		{"two lengths", length(" 26") + length(" 27"), file, io.EOF, badLength},
		{"two lengths in a list", length(" 26, 27"), file, io.EOF, badLength},
		{"an unknown transfer coding", "Transfer-Encoding: x\r\n", file, io.EOF, transfer},
		{"a transfer coding of escapes", "Transfer-Encoding: \x1b[31m\r\n", file, io.EOF, transfer},
		{"gzip as transfer coding", "Transfer-Encoding: gzip\r\n", file, io.EOF, transfer},
		{"gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", io.EOF, transfer},
		{"an unknown transfer coding and a length", "Transfer-Encoding: x\r\n" + length("26"), file, io.EOF, transfer},
		{"a broken length and chunks", length(" x") + chunked, "1a\r\n" + file + "\r\n0\r\n\r\n", io.EOF, badLength},
		{"chunks and a length", chunked + length(" 3"), "1a\r\n" + file + "\r\n0\r\n\r\n", io.EOF, good},
		{"a chunk's size of letters", chunked, "zz\r\n" + file, io.EOF, badChunk},
		{"a negative chunk", chunked, "-5\r\n" + file, io.EOF, badChunk},
		{"a chunk's size of 72 bits", chunked, "ffffffffffffffffff\r\n" + file, io.EOF, badChunk},
		{"closed in a chunk", chunked, "ff\r\n" + file, io.EOF, closed},
		{"closed before the last chunk", chunked, "1a\r\n" + file + "\r\n", io.EOF, closed},
		{"closed in the body", more, file, io.EOF, closed},
		{"closed before the body", more, "", io.EOF, closed},
		{"reset in the body", more, file, syscall.ECONNRESET, wasReset},
		{"reset before the body", more, "", syscall.ECONNRESET, wasReset},
		{"reset without a length", "", file, syscall.ECONNRESET, wasReset},
		{"stalled in the body", more, file, os.ErrDeadlineExceeded, timeout},
		{"stalled before the body", more, "", os.ErrDeadlineExceeded, timeout},
		{"stalled in a chunk", chunked, "ff\r\n" + file, os.ErrDeadlineExceeded, timeout},
		{"stalled without a length", "", file, os.ErrDeadlineExceeded, timeout},
		{"an unknown coding", "Content-Encoding: rot13\r\n" + length("26"), file, io.EOF, unknown},
		{"three codings", "Content-Encoding: gzip, br, zstd\r\n" + length("26"), file, io.EOF, nested},
		{"longer than it says", length("14"), file, io.EOF, good},
		{"over-long", length("1040"), strings.Repeat("Disallow: /x\n", 80), io.EOF, tooLong},
	}
	for name, encode := range encoders {
		coding, _, _ := strings.Cut(name, "/")
		packed := string(encode([]byte(file)))
		fields := "Content-Encoding: " + coding + "\r\n"
		list = append(list,
			fault{name + " of text", fields + length("26"), file, io.EOF, corrupt},
			fault{name + " without its end", fields + length(fmt.Sprint(len(packed)-3)), packed[:len(packed)-3], io.EOF,
				corrupt},
			fault{name + " in a bad chunk", fields + chunked, "zz\r\n" + packed, io.EOF, badChunk},
			fault{name + " of a broken length", fields + length("-1"), packed, io.EOF, badLength},
		)
	}
	return list
}

// TestStatusBeforeFraming has every fault of a body with every kind of status: a redirect is followed and an error
// counts as such, whatever is wrong with its body. A 2xx needs its body. Each is replayed with the same ending.
func TestStatusBeforeFraming(t *testing.T) {
	statuses := []struct {
		line, fields string
		want         string // "": that of the fault
	}{
		{"200 OK", "", ""},
		{"301 Moved", "Location: /moved\r\n", "answered 200 conditional rules hops 1"},
		{"302 Found", "", "redirect_invalid 302 full_allow none (redirect without a location)"},
		{"403 Forbidden", "", "answered 403 full_allow refused"},
		{"404 Not Found", "", "answered 404 full_allow none"},
		{"408 Request Timeout", "", "answered 408 full_allow server_error retries 1"},
		{"429 Too Many Requests", "", "answered 429 full_allow rate_limited retries 1"},
		{"500 Internal Server Error", "", "answered 500 full_disallow server_error retries 1"},
		{"503 Service Unavailable", "", "answered 503 full_disallow server_error retries 1"},
	}
	for _, fault := range faults() {
		for _, status := range statuses {
			exchanges := 0
			f, tapes := scripts(t, func() (string, error) {
				if exchanges++; exchanges == 2 && strings.HasPrefix(status.line, "301") {
					return okHead + "Content-Length: 12\r\n\r\nAllow: /new\n", io.EOF
				}
				return "HTTP/1.1 " + status.line + "\r\nServer: s\r\nRetry-After: 120\r\n" + status.fields + fault.fields + "\r\n" +
					fault.body, fault.end
			}, func(cfg *Config) { cfg.Retries, cfg.RetryAfter, cfg.MaxRetryAfter = 1, time.Second, 10*time.Minute })
			r, waits := life(t, f, tapes)
			want := status.want
			if want == "" {
				want = fault.want
			} else if len(waits) > 0 && waits[0] != 2*time.Minute {
				t.Errorf("%s, %s: retried after %v, not the Retry-After of 2m", fault.name, status.line, waits[0])
			}
			if got := endingOf(r, len(waits)); got != want {
				t.Errorf("%s, %s:\n got %s\nwant %s", fault.name, status.line, got, want)
			}
			tapes.check(t, f, r)
			r.Reset()
			allBack(t, f)
		}
	}
}

// TestStatusNeedsWholeHead shows which heads have a status that counts: they are complete, and not too large. Lines in
// it that are no fields do not matter.
func TestStatusNeedsWholeHead(t *testing.T) {
	const line = "HTTP/1.1 404 Not Found\r\n"
	f := func(head string, end error, want string) {
		t.Helper()
		fetcher, tapes := scripts(t, func() (string, error) { return head, end }, nil)
		r, _ := life(t, fetcher, tapes)
		if got := endingOf(r, 0); got != want {
			t.Errorf("%.60q, then %v: %s, want %s", head, end, got, want)
		}
		tapes.check(t, fetcher, r)
		r.Reset()
	}
	for _, fields := range []string{
		"", "nonsense\r\n", ": no name\r\n", "A b: c\r\n", "A\x00: b\r\n", "A: \x00\x1b\xff\r\n", " folded\r\n", "A: b\n",
		"Trailer: Content-Length\r\n",
		"A: b\r\n c\r\n", "Content-Length : -1\r\n", "Content-Length\r\n", "A: " + strings.Repeat("x", 60_000) + "\r\n",
	} {
		for _, end := range ends {
			f(line+fields+"\r\n", end, "answered 404 full_allow none")
		}
	}
	const failed = " 0 full_disallow unreachable "
	f(line+"Server: s", io.EOF, "closed_early"+failed+"(connection closed in the response head)")
	f(line+"Server: s", syscall.ECONNRESET, "reset"+failed+"(connection reset before the response head ended)")
	f(line+"Server: s", os.ErrDeadlineExceeded, "timeout"+failed+"(no response head in time)")
	f(line+strings.Repeat("A: b\r\n", 20_000)+"\r\n", io.EOF, "header_too_large"+failed+"(the response head is too large)")
}

// TestProvenBody has coded bodies whose connection ends before their announced end, after each of their bytes. Only a
// checksum of the coding that ends the body shows that it is complete. Each is replayed with the same ending.
func TestProvenBody(t *testing.T) {
	const file = "User-agent: *\nDisallow: /\n"
	zstds := func(options ...zstd.EOption) func([]byte) []byte {
		return func(b []byte) []byte {
			return encode(b, func(w io.Writer) io.WriteCloser { e, _ := zstd.NewWriter(w, options...); return e })
		}
	}
	gz, zl, br, raw := encoders["gzip"], encoders["deflate/zlib"], encoders["br"], encoders["deflate/raw"]
	zs, unsummed := zstds(), zstds(zstd.WithEncoderCRC(false))
	then := func(first, second func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte { return second(first(b)) }
	}
	followed := func(by string) func([]byte) []byte { return func(b []byte) []byte { return append(gz(b), by...) } }
	changed := func(from func([]byte) []byte, at int) func([]byte) []byte { // a byte counted from the end
		return func(b []byte) []byte { b = from(b); b[len(b)-at]++; return b }
	}
	cases := []struct {
		codings string
		encode  func([]byte) []byte
		enough  int // bytes that prove the body complete, counted from the end; -1: none do
	}{
		{"gzip", gz, 0},
		{"x-gzip", gz, 0},
		{"deflate", zl, 0},
		{"zstd", zs, 0},
		{"gzip, br", then(gz, br), 0},
		{"br, gzip", then(br, gz), 0},
		{"gzip, gzip", then(gz, gz), 0},
		{"zstd, deflate", then(zs, zl), 0},
		{"gzip", followed("\r\n"), 2},
		{"gzip", followed("<html>"), 6},
		{"br", br, -1},
		{"deflate", raw, -1},
		{"zstd", unsummed, -1},
		{"br, deflate", then(br, raw), -1},
		{"zstd, br", then(unsummed, br), -1},
		{"gzip", changed(gz, 8), -1}, // CRC32
		{"gzip", changed(gz, 4), -1}, // ISIZE
		{"deflate", changed(zl, 1), -1},
		{"zstd", changed(zs, 1), -1},
		{"identity", func(b []byte) []byte { return b }, -1},
	}
	failures := map[error]string{
		io.EOF: "closed_early 200 full_disallow unreachable (connection closed before the body's end)",
		// TLS without its end
		io.ErrUnexpectedEOF:    "closed_early 200 full_disallow unreachable (connection closed before the body's end)",
		syscall.ECONNRESET:     "reset 200 full_disallow unreachable (connection reset in the body)",
		os.ErrDeadlineExceeded: "timeout 200 full_disallow unreachable (the body did not end in time)",
	}
	framings := map[string]func(string) (fields, body string){
		"a length": func(b string) (string, string) { return "Content-Length: 5000\r\n", b },
		"a chunk":  func(b string) (string, string) { return "Transfer-Encoding: chunked\r\n", "fff\r\n" + b },
		"whole chunks": func(b string) (string, string) {
			return "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n", len(b), b)
		},
		"the connection's end": func(b string) (string, string) { return "", b },
	}
	var answer string
	var end error
	f, tapes := scripts(t, func() (string, error) { return answer, end }, nil)
	for _, c := range cases {
		packed := string(c.encode([]byte(file)))
		for framed, framing := range framings {
			var failure string
			for end, failure = range failures {
				if framed == "the connection's end" && (end == io.EOF || end == io.ErrUnexpectedEOF) {
					continue // the announced end
				}
				for n := 1; n <= len(packed); n++ {
					fields, body := framing(packed[:n])
					answer, tapes.list = okHead+"Content-Encoding: "+c.codings+"\r\n"+fields+"\r\n"+body, nil
					r, _ := life(t, f, tapes)
					want := failure
					if c.enough >= 0 && n >= len(packed)-c.enough {
						want = "answered 200 conditional rules"
					}
					if got := endingOf(r, 0); got != want || r.Outcome == exchange.Answered && string(r.Body) != file {
						t.Errorf("%s by %s, %d bytes of %d, then %v:\n got %s %q\nwant %s", c.codings, framed, n, len(packed), end, got,
							r.Body, want)
					}
					tapes.check(t, f, r)
					r.Reset()
					allBack(t, f)
				}
			}
		}
	}
}

// TestProvenBodyWaits shows that a body counts only when its connection has fallen silent for all its time: more of it
// might come.
func TestProvenBodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := okHead + "Content-Encoding: gzip\r\nContent-Length: 500\r\n\r\n" +
			string(encoders["gzip"]([]byte("Allow: /\n")))
		f := newFetcher(t, site(t, 0, hold(answer)))
		x := exchange.Exchange{Origin: parse(t, "http://example.com"), Response: new(exchange.Response)}
		x.Target = f.First(x.Origin, x.Past)
		x.Lookup = f.Resolve(t.Context(), x.Target)
		began := time.Now()
		f.Do(t.Context(), &x)
		if got, want := fmt.Sprintf("%v %v %q", time.Since(began), x.Response.Outcome, x.Response.Body),
			`15s answered "Allow: /\n"`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		x.Response.Reset()
	})
}

// TestProvenBodyTakesNoMore bounds what a body may decode to: one whose end is beyond the bound is not proven.
func TestProvenBodyTakesNoMore(t *testing.T) {
	for _, lines := range []int{76, 77, 5000} { // of 13 bytes; 1,000 are kept
		packed := string(encoders["gzip"](bytes.Repeat([]byte("Disallow: /x\n"), lines)))
		f, tapes := scripts(t, func() (string, error) {
			return okHead + "Content-Encoding: gzip\r\nContent-Length: 5000000\r\n\r\n" + packed, io.EOF
		}, nil)
		r, _ := life(t, f, tapes)
		if proven := r.Outcome == exchange.Answered; proven != (lines == 76) {
			t.Errorf("%d lines in %d bytes: %v (%v)", lines, len(packed), r.Outcome, r.Cause)
		}
		tapes.check(t, f, r)
		r.Reset()
		allBack(t, f)
	}
}
