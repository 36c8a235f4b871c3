package simweb

import (
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

var bodyRows = []Behaviour{
	{Name: nameOK, Share: 0.4425, Does: "200, Content-Length", Ends: "answered 200"},
	{Name: "ok-chunked", Share: 0.06, Does: "200, chunked, in uneven chunks", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.framing = byChunks })},
	{Name: "ok-until-close", Share: 0.02, Does: "200 without a length; the body ends with the connection",
		Ends:  "answered 200",
		reply: with(func(a *ask, r *reply) { r.framing = byClose })},
	{Name: "ok-gzip", Share: 0.02, Does: "200, gzip, unasked", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.codings = []coding{gzipped} })},
	{Name: "ok-gzip-chunked", Share: 0.005, Does: "200, gzip and chunked", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.codings, r.framing = []coding{gzipped}, byChunks })},
	{Name: "ok-http10", Share: 0.002, Does: "HTTP/1.0, the body ends with the connection", Ends: "answered 200",
		reply: answers("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", "User-agent: *\nDisallow: /old/\n")},
	{Name: "empty", Share: 0.003, Does: "200 with an empty body", Ends: "answered 200, no body",
		reply: func(*ask) reply { return reply{status: 200, fields: "Content-Type: text/plain\r\n"} }},
	{Name: "no-content", Share: 0.001, Does: "204", Ends: "answered 204, no body",
		reply: func(*ask) reply { return reply{status: 204} }},
	{Name: "slow", Share: 0.01, Does: "200 after up to a second (Config.Slow)", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) {
			r.wait = a.w.cfg.Slow/20 + time.Duration(unit(a.draw(streamDetail))*0.95*float64(a.w.cfg.Slow))
		})},
	{Name: "late", Does: "200 after exactly a second (Config.Slow)", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.wait = a.w.cfg.Slow })},
	{Name: "drip", Share: 0.002, Does: "200, the body in eight pieces over a second (Config.Slow)", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.pause = a.w.cfg.Slow / dripPieces })},
	{Name: "huge", Share: 0.0005, Does: "200, a body of 600 kB to 3.7 MB", Ends: "answered 200, truncated",
		reply: with(func(a *ask, r *reply) {
			r.body = content{block: hugeBlock, total: 600_000 + int64(a.draw(streamDetail)%3_100_000)}
		})},
	{Name: "endless", Share: 0.0002, Does: "200, an endless body without a length", Ends: "answered 200, truncated",
		reply: func(*ask) reply { return reply{status: 200, framing: byClose, body: content{hugeBlock, -1}} }},
	{Name: "endless-chunked", Share: 0.0001, Does: "200, endless chunks", Ends: "answered 200, truncated",
		reply: func(*ask) reply { return reply{status: 200, framing: byChunks, body: content{hugeBlock, -1}} }},
	{Name: "endless-length", Does: "200, Content-Length 2^63-1 and an endless body", Ends: "answered 200, truncated",
		reply: func(*ask) reply {
			return reply{status: 200, body: content{hugeBlock, -1},
				raw: []byte("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n"), loop: hugeBlock}
		}},
	{Name: "html", Does: "200, a web page instead of the file", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, fields: "Content-Type: text/html; charset=utf-8\r\n",
				body: whole(
					"<!DOCTYPE html>\n<html><head><title>Welcome</title></head>\n<body><p>User-agent: *</p>\n</body></html>\n")}
		}},
	{Name: "utf16", Does: "200, UTF-16 with a byte order mark", Ends: "answered 200",
		reply: func(*ask) reply { return reply{status: 200, body: whole(utf16("User-agent: *\r\nDisallow: /\r\n"))} }},
	{Name: "nul", Does: "200, NULs in its lines", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, body: whole("User-agent: *\x00x\nDisallow: /\x00private\n")}
		}},
	{Name: "endless-line-body", Does: "200, one endless line", Ends: "answered 200, truncated",
		reply: func(*ask) reply {
			return reply{status: 200, framing: byClose, body: content{[]byte(strings.Repeat("x", 16<<10)), -1}}
		}},
	{Name: "longer-than-said", Does: "200, more bytes than its Content-Length", Ends: "answered 200",
		reply: answersAs("HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\nUser-agent: *\nDisallow: /\n",
			"User-agent: *\n")},
	{Name: "chunked-and-length", Does: "200, chunked, with a wrong Content-Length", Ends: "answered 200",
		reply: answersAs(
			"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\ne\r\nUser-agent: *\n\r\n0\r\n\r\n", "User-agent: *\n")},
	{Name: "error-endless", Does: "404 with an endless page", Ends: "answered 404",
		reply: func(*ask) reply { return reply{status: 404, framing: byClose, body: content{hugeBlock, -1}} }},
}

var brokenRows = []Behaviour{
	{Name: "reset-head", Share: 0.001, Does: "reset after the request", Ends: "reset",
		reply: fails(endReset, resetOutcome)},
	{Name: "close-head", Share: 0.001, Does: "closed after the request", Ends: "closed_early",
		reply: fails(endAbort, earlyOutcome, resetOutcome)},
	{Name: "close-in-head", Share: 0.0001, Does: "closed within the head", Ends: "closed_early",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nContent-Type: te"), ends: endAbort,
				yields: []exchange.Outcome{earlyOutcome}}
		}},
	{Name: "reset-body", Share: 0.0003, Does: "reset within the body", Ends: "reset",
		reply: with(func(a *ask, r *reply) {
			r.cut, r.ends, r.yields = true, endReset, []exchange.Outcome{resetOutcome, earlyOutcome}
		})},
	{Name: "close-body", Share: 0.0005, Does: "closed before the end of its Content-Length", Ends: "closed_early",
		reply: with(func(a *ask, r *reply) { r.cut, r.ends, r.yields = true, endAbort, []exchange.Outcome{earlyOutcome} })},
	{Name: "close-chunk", Share: 0.0001, Does: "closed within a chunk", Ends: "closed_early",
		reply: with(func(a *ask, r *reply) {
			r.framing, r.cut, r.ends, r.yields = byChunks, true, endAbort, []exchange.Outcome{earlyOutcome}
		})},
	{Name: "silent-body", Share: 0.0003, Does: "silent within the body", Ends: "timeout",
		reply: with(func(a *ask, r *reply) { r.cut, r.ends, r.yields = true, endHang, []exchange.Outcome{timeoutOutcome} })},
	{Name: "drip-head", Share: 0.0001, Does: "a byte of the head every 300 ms", Ends: "timeout",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nX-Slow: "), loop: []byte("z"), pause: 300 * time.Millisecond,
				yields: []exchange.Outcome{timeoutOutcome}}
		}},
	{Name: "drip-body", Does: "a byte of the body every 300 ms", Ends: "timeout",
		reply: func(*ask) reply {
			return reply{status: 200, raw: []byte("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nU"), loop: []byte("x"),
				pause: 300 * time.Millisecond, yields: []exchange.Outcome{timeoutOutcome}}
		}},
	{Name: "silent-large-body", Does: "silent after 100 kB of the body", Ends: "timeout",
		reply: func(*ask) reply {
			body := content{hugeBlock, 200_000}
			raw := append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"), body.upTo(100_000)...)
			return reply{status: 200, raw: raw, body: body, sent: 100_000, ends: endHang,
				yields: []exchange.Outcome{timeoutOutcome}}
		}},
	{Name: "silent-head", Does: "silent after the request", Ends: "timeout", reply: fails(endHang, timeoutOutcome)},
	{Name: "silent-in-head", Does: "silent within the head", Ends: "timeout",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nContent-Type: te"), ends: endHang,
				yields: []exchange.Outcome{timeoutOutcome}}
		}},
	{Name: "not-found-close-body", Does: "404, closed before the end of its Content-Length", Ends: "answered 404",
		reply: notFoundThat(endAbort)},
	{Name: "not-found-reset-body", Does: "404, reset within the body", Ends: "answered 404",
		reply: notFoundThat(endReset)},
	{Name: "not-found-silent-body", Does: "404, silent within the body", Ends: "answered 404",
		reply: notFoundThat(endHang)},
	{Name: "close-last-chunk", Does: "closed before the last chunk", Ends: "closed_early",
		reply: func(*ask) reply {
			return reply{status: 200,
				raw: []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\nUser-agent: *\n\r\n"), ends: endAbort,
				yields: []exchange.Outcome{earlyOutcome}}
		}},

	// These end after any byte: see breaks.
	{Name: "reset-length", Does: "reset after some byte, Content-Length", Ends: "reset", reply: breaks(&byLengthForm,
		endReset)},
	{Name: "reset-chunked", Does: "reset after some byte, chunked", Ends: "reset", reply: breaks(&chunkedForm, endReset)},
	{Name: "reset-gzip", Does: "reset after some byte, gzip", Ends: "reset", reply: breaks(&gzipForm, endReset)},
	{Name: "reset-until-close", Does: "reset after some byte, no length", Ends: "reset", reply: breaks(&untilCloseForm,
		endReset)},
	{Name: "close-length", Does: "closed after some byte, Content-Length", Ends: "closed_early",
		reply: breaks(&byLengthForm, endAbort)},
	{Name: "close-chunked", Does: "closed after some byte, chunked", Ends: "closed_early", reply: breaks(&chunkedForm,
		endAbort)},
	{Name: "close-gzip", Does: "closed after some byte, gzip", Ends: "closed_early", reply: breaks(&gzipForm, endAbort)},
	{Name: "close-until-close", Does: "closed after some byte, no length",
		Ends: "closed_early in the head, answered 200 after it", reply: breaks(&untilCloseForm, endAbort)},
	{Name: "close-gzip-until-close", Does: "closed after some byte, gzip without a length", Ends: "closed_early",
		reply: breaks(&gzipUntilCloseForm, endAbort)},
}

var flakyRows = []Behaviour{
	{Name: "flaky-503", Share: 0.002, Does: "503 to the first request by each scheme, then 200",
		Ends: "answered 200 at a retry", counts: true,
		reply: atFirst(status(503))},
	{Name: "flaky-429", Does: "429 to the first request by each scheme, then 200", Ends: "answered 200 at a retry",
		counts: true, slows: true,
		reply: atFirst(status(429))},
	{Name: "flaky-408", Does: "408 to the first request by each scheme, then 200", Ends: "answered 200 at a retry",
		counts: true,
		reply:  atFirst(status(408))},
	{Name: "flaky-retry-after", Does: "503, Retry-After: 1 to the first request by each scheme, then 200",
		Ends: "answered 200 at a retry", counts: true, slows: true,
		reply: atFirst(status(503, "Retry-After: 1\r\n"))},
	{Name: "flaky-reset", Share: 0.002, Does: "reset at the first request by each scheme, then 200",
		Ends: "answered 200 at a retry", counts: true,
		reply: atFirst(fails(endReset, resetOutcome))},
}

// notFoundThat answers 404, and ends within the body as given.
func notFoundThat(ends ending) func(*ask) reply {
	return func(*ask) reply {
		return reply{status: 404,
			raw: []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 500\r\nConnection: close\r\n\r\nno\n"), ends: ends}
	}
}

// atFirst answers the first request by each scheme by first, and all others by the file.
func atFirst(first func(*ask) reply) func(*ask) reply {
	return func(a *ask) reply {
		if a.nth == 1 {
			return first(a)
		}
		return a.ok()
	}
}

// hugeBlock is the block of huge bodies: lines of different lengths, so that a cut line differs from a whole one.
var hugeBlock = func() []byte {
	var b []byte
	b = append(b, "User-agent: *\n"...)
	for i := 0; len(b) < 16<<10; i++ {
		b = append(b, "Disallow: /archive/"...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, "/page\n"...)
	}
	return b
}()

// utf16 encodes ASCII as little-endian UTF-16 with a byte order mark.
func utf16(s string) string {
	b := []byte{0xff, 0xfe}
	for i := 0; i < len(s); i++ {
		b = append(b, s[i], 0)
	}
	return string(b)
}
