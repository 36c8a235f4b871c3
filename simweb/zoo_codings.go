package simweb

import (
	"bytes"
	"sync"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// These hosts send coded bodies although scanners ask for none. Slow encodings are made at the first request, not when
// the program starts.

// codedFile is the decoded body where it is not the host's own file.
const codedFile = "User-agent: *\nDisallow: /coded/\n"

// decodedBomb is the decoded body of bombs: one line repeated, which every coding makes small.
var decodedBomb = content{bytes.Repeat([]byte("Disallow: /page\n"), 1024), 40_000_000}

// coded answers with the host's file, coded.
func coded(codings ...coding) func(*ask) reply {
	return with(func(_ *ask, r *reply) { r.codings = codings })
}

// fixed answers with a fixed body, given decoded and as sent.
func fixed(decoded content, wire func() []byte, codings ...coding) func(*ask) reply {
	made := sync.OnceValue(wire)
	return func(*ask) reply { return reply{status: 200, codings: codings, body: decoded, wire: made()} }
}

// bomb answers with a small coded body that decodes to decodedBomb.
func bomb(c coding) func(*ask) reply {
	return fixed(decodedBomb, func() []byte { return encoded(decodedBomb, c) }, c)
}

// corrupt answers with a body that its coding cannot decode.
func corrupt(wire func() []byte, codings ...coding) func(*ask) reply {
	good := fixed(whole(codedFile), wire, codings...)
	return func(a *ask) reply {
		r := good(a)
		r.yields = []exchange.Outcome{codingOutcome}
		return r
	}
}

// plainText answers with text that is declared as coded.
func plainText(c coding) func(*ask) reply {
	return corrupt(func() []byte { return []byte(codedFile) }, c)
}

// cutShort answers with a coded body whose last bytes are missing, and an announced length without them.
func cutShort(c coding) func(*ask) reply {
	return corrupt(func() []byte {
		b := encoded(whole(codedFile), c)
		return b[:len(b)-3]
	}, c)
}

// wholeThen answers with a whole coded body that is shorter than its Content-Length, and ends the connection as given.
func wholeThen(c coding, ends ending, yields ...exchange.Outcome) func(*ask) reply {
	made := sync.OnceValue(func() []byte {
		head := "HTTP/1.1 200 OK\r\n" + contentEncoding([]coding{c}) + "Content-Length: 5000\r\nConnection: close\r\n\r\n"
		return append([]byte(head), encoded(whole(codedFile), c)...)
	})
	return func(*ask) reply {
		return reply{status: 200, raw: made(), body: whole(codedFile), ends: ends, yields: yields}
	}
}

var codingRows = []Behaviour{
	{Name: "gzip-corrupt", Share: 0.0001, Does: "text declared as gzip", Ends: "bad_encoding", reply: plainText(gzipped)},
	{Name: "coding-unknown", Share: 0.0001, Does: "an unknown Content-Encoding", Ends: "bad_encoding",
		reply: says(
			sized("HTTP/1.1 200 OK\r\nContent-Encoding: rot13\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
				"Hfre-ntrag: *\n"), 200, codingOutcome)},
	{Name: "ok-deflate", Does: "200, deflate in a zlib wrapper, unasked", Ends: "answered 200", reply: coded(deflated)},
	{Name: "ok-deflate-bare", Does: "200, deflate without a wrapper, unasked", Ends: "answered 200",
		reply: coded(deflatedBare)},
	{Name: "ok-br", Does: "200, Brotli, unasked", Ends: "answered 200", reply: coded(brotlied)},
	{Name: "ok-zstd", Does: "200, Zstandard, unasked", Ends: "answered 200", reply: coded(zstandard)},
	{Name: "ok-nested", Does: "200, Brotli within gzip", Ends: "answered 200", reply: coded(brotlied, gzipped)},
	{Name: "nested-three", Does: "three nested codings", Ends: "bad_encoding",
		reply: corrupt(func() []byte { return encoded(whole(codedFile), gzipped, gzipped, gzipped) }, gzipped, gzipped,
			gzipped)},
	{Name: "gzip-members", Does: "200, gzip in two members", Ends: "answered 200",
		reply: fixed(whole(codedFile+codedFile), func() []byte {
			b := encoded(whole(codedFile), gzipped)
			return append(b[:len(b):len(b)], b...)
		}, gzipped)},
	{Name: "coding-identity", Does: "200, Content-Encoding: identity", Ends: "answered 200",
		reply: answers(
			"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
			codedFile)},
	{Name: "coding-charset", Does: "200, Content-Encoding: UTF-8 (the character set)", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\r\nContent-Encoding: UTF-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
			codedFile)},
	{Name: "coding-upload", Does: "200, Content-Encoding: aws-chunked (from an upload)", Ends: "answered 200",
		reply: answers(
			"HTTP/1.1 200 OK\r\nContent-Encoding: aws-chunked\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
			codedFile)},
	{Name: "coding-charset-gzip", Does: "gzip declared as UTF-8", Ends: "bad_encoding",
		reply: says(
			sized("HTTP/1.1 200 OK\r\nContent-Encoding: UTF-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
				string(encoded(whole(codedFile), gzipped))), 200, codingOutcome)},
	{Name: "coding-of-nothing", Does: "200, gzip, zero bytes", Ends: "answered 200, no body",
		reply: says(
			"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
			200)},
	{Name: "br-corrupt", Does: "text declared as br", Ends: "bad_encoding", reply: plainText(brotlied)},
	{Name: "zstd-corrupt", Does: "text declared as zstd", Ends: "bad_encoding", reply: plainText(zstandard)},
	{Name: "deflate-corrupt", Does: "text declared as deflate", Ends: "bad_encoding", reply: plainText(deflated)},
	{Name: "gzip-cut", Does: "gzip without its last bytes, as long as announced", Ends: "bad_encoding",
		reply: cutShort(gzipped)},
	{Name: "br-cut", Does: "Brotli without its last bytes", Ends: "bad_encoding", reply: cutShort(brotlied)},
	{Name: "zstd-cut", Does: "Zstandard without its last bytes", Ends: "bad_encoding", reply: cutShort(zstandard)},
	{Name: "deflate-cut", Does: "deflate without its last bytes", Ends: "bad_encoding", reply: cutShort(deflated)},
	{Name: "gzip-whole-close", Does: "200, a whole gzip body, closed before the end of its Content-Length",
		Ends: "answered 200", reply: wholeThen(gzipped, endAbort)},
	{Name: "gzip-whole-reset", Does: "200, a whole gzip body, reset before the end of its Content-Length",
		Ends: "answered 200", reply: wholeThen(gzipped, endReset)},
	{Name: nameWholeSilent, Does: "200, a whole gzip body, then silent", Ends: "answered 200",
		reply: wholeThen(gzipped, endHang)},
	{Name: "zstd-whole-close", Does: "200, a whole Zstandard body with its checksum, likewise closed",
		Ends: "answered 200", reply: wholeThen(zstandard, endAbort)},
	{Name: "deflate-whole-close", Does: "200, a whole deflate body in a zlib wrapper, likewise closed",
		Ends: "answered 200", reply: wholeThen(deflated, endAbort)},
	{Name: "deflate-bare-whole-close", Does: "a whole deflate body without a checksum, likewise closed",
		Ends: "closed_early", reply: wholeThen(deflatedBare, endAbort, earlyOutcome)},
	{Name: "br-whole-close", Does: "a whole Brotli body, which has no checksum, likewise closed", Ends: "closed_early",
		reply: wholeThen(brotlied, endAbort, earlyOutcome)},
	{Name: "not-found-coding-unknown", Does: "404, an unknown Content-Encoding", Ends: "answered 404",
		reply: says(
			sized("HTTP/1.1 404 Not Found\r\nContent-Encoding: rot13\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
				"ab\n"), 404)},
	{Name: "gzip-bomb", Does: "40 MB of lines in 80 kB of gzip", Ends: "answered 200, truncated", reply: bomb(gzipped)},
	{Name: "br-bomb", Does: "40 MB of lines in 130 kB of Brotli", Ends: "answered 200, truncated", reply: bomb(brotlied)},
	{Name: "zstd-bomb", Does: "40 MB of lines in 8 kB of Zstandard", Ends: "answered 200, truncated",
		reply: bomb(zstandard)},
	{Name: "deflate-bomb", Does: "40 MB of lines in 80 kB of deflate", Ends: "answered 200, truncated",
		reply: bomb(deflated)},
}
