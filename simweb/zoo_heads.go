package simweb

import (
	"strings"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

var statusRows = []Behaviour{
	{Name: "not-found", Share: 0.1265, Does: "404", Ends: "answered 404", reply: status(404)},
	{Name: "not-found-chunked", Share: 0.0035, Does: "404, chunked", Ends: "answered 404",
		reply: func(a *ask) reply { r := status(404)(a); r.framing = byChunks; return r }},
	{Name: "unauthorized", Share: 0.0005, Does: "401", Ends: "answered 401",
		reply: status(401, "WWW-Authenticate: Basic realm=\"site\"\r\n")},
	{Name: "request-timeout", Does: "408, Retry-After: 1", Ends: "answered 408", reply: status(408, "Retry-After: 1\r\n")},
	{Name: "forbidden", Share: 0.005, Does: "403", Ends: "answered 403", reply: status(403)},
	{Name: "gone", Share: 0.0007, Does: "410", Ends: "answered 410", reply: status(410)},
	{Name: "too-many", Share: 0.0003, Does: "429, Retry-After: 1", Ends: "answered 429", slows: true,
		reply: status(429, "Retry-After: 1\r\n")},
	{Name: "legal", Does: "451", Ends: "answered 451", reply: status(451)},
	{Name: "error-500", Share: 0.001, Does: "500", Ends: "answered 500", reply: status(500)},
	{Name: "error-502", Share: 0.0004, Does: "502", Ends: "answered 502", reply: status(502)},
	{Name: "error-503", Share: 0.0004, Does: "503", Ends: "answered 503", reply: status(503)},
	{Name: "retry-after", Share: 0.0002, Does: "503, Retry-After: 1", Ends: "answered 503", slows: true,
		reply: status(503, "Retry-After: 1\r\n")},
	{Name: "throttling", Does: "429, Retry-After: 1, while its address gets more than 50 requests a second",
		Ends: "answered 200", limits: true, slows: true,
		reply: func(a *ask) reply {
			if a.rushed {
				return status(429, "Retry-After: 1\r\n")(a)
			}
			return a.ok()
		}},
}

// challengeRows are answers that a network gives in the site's place. The field alone marks a challenge: a status of
// 429 or 503 beside it does not ask for a slower rate.
var challengeRows = []Behaviour{
	{Name: "challenge-cloudflare", Share: 0.001, Does: "403, CF-Mitigated: challenge", Ends: "answered 403",
		reply: challenges("cloudflare", 403, "Server: cloudflare\r\nCF-Mitigated: challenge\r\n")},
	{Name: "challenge-429", Share: 0.0002, Does: "429, Retry-After: 1, cf-mitigated: Challenge", Ends: "answered 429",
		reply: challenges("cloudflare", 429, "Retry-After: 1\r\ncf-mitigated: Challenge\r\n")},
	{Name: "challenge-503", Share: 0.0002, Does: "503, Retry-After: 1, CF-Mitigated: challenge", Ends: "answered 503",
		reply: challenges("cloudflare", 503, "Retry-After: 1\r\nCF-Mitigated: challenge\r\n")},
	{Name: "challenge-aws", Share: 0.0004, Does: "202, x-amzn-waf-action: challenge", Ends: "answered 202",
		reply: challenges("aws-waf", 202, "x-amzn-waf-action: challenge\r\n")},
	{Name: "captcha-aws", Share: 0.0002, Does: "405, x-amzn-waf-action: captcha", Ends: "answered 405",
		reply: challenges("aws-waf", 405, "x-amzn-waf-action: captcha\r\n")},
	{Name: "challenge-vercel", Share: 0.0002, Does: "429, X-Vercel-Mitigated: challenge", Ends: "answered 429",
		reply: challenges("vercel", 429, "Server: Vercel\r\nX-Vercel-Mitigated: challenge\r\n")},
	{Name: "denied-vercel", Share: 0.0002, Does: "403, X-Vercel-Mitigated: deny, which is no challenge",
		Ends:  "answered 403",
		reply: status(403, "Server: Vercel\r\nX-Vercel-Mitigated: deny\r\n")},
	{Name: "challenge-in-words", Share: 0.0002, Does: "403, a page that only says that it is a challenge",
		Ends: "answered 403",
		reply: func(*ask) reply {
			return reply{status: 403, fields: "Content-Type: text/html\r\n",
				body: whole("<!DOCTYPE html>\n<html><head><title>Just a moment...</title></head><body>challenge</body></html>\n")}
		}},
	{Name: "maintenance", Share: 0.0005, Does: "200, a maintenance page", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, fields: "Content-Type: text/html\r\n",
				body: whole(
					"<!DOCTYPE html>\n<html><head>\n<title>\n Down for maintenance </title></head><body>Back soon.</body></html>\n")}
		}},
	{Name: "picture", Share: 0.0001, Does: "200, a picture", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, fields: "Content-Type: image/gif\r\n",
				body: whole(
					"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")}
		}},
}

var headRows = []Behaviour{
	{Name: "bare-lf", Share: 0.0003, Does: "head lines that end in LF alone", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: {length}\n\n",
			"User-agent: *\nDisallow: /b\n")},
	{Name: "no-reason", Share: 0.0003, Does: "a status line without a reason phrase", Ends: "answered 200",
		reply: answers("HTTP/1.1 200\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
			"User-agent: *\nDisallow: /n\n")},
	{Name: "early-hints", Share: 0.0003, Does: "103, then 200", Ends: "answered 200",
		reply: answers(
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /h\n")},
	{Name: "same-lengths", Does: "two equal Content-Lengths", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
			"User-agent: *\nDisallow: /l\n")},
	{Name: "two-lengths", Does: "two different Content-Lengths", Ends: "bad_response",
		reply: says(sized("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: 12\r\nConnection: close\r\n\r\n",
			"User-agent: *\nDisallow: /l\n"), 200, badOutcome)},
	{Name: "negative-length", Does: "Content-Length: -1", Ends: "bad_response",
		reply: says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\nConnection: close\r\n\r\nUser-agent: *\n", 200, badOutcome)},
	{Name: "bad-chunk", Does: "a chunk size that is not a number", Ends: "bad_response",
		reply: says(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nUser-agent: *\r\n0\r\n\r\n", 200,
			badOutcome)},
	{Name: "negative-chunk", Does: "a chunk size of -5", Ends: "bad_response",
		reply: says(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n-5\r\nUser-agent: *\r\n0\r\n\r\n", 200,
			badOutcome)},
	{Name: "huge-chunk", Does: "a chunk size of 72 bits", Ends: "bad_response",
		reply: says(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nffffffffffffffffff\r\nUser-agent: *\r\n",
			200, badOutcome)},
	{Name: "long-chunk", Does: "a chunk longer than its size", Ends: "bad_response",
		reply: says(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nUser-agent: *\r\n0\r\n\r\n", 200,
			badOutcome)},
	{Name: "endless-extension", Does: "an endless chunk extension", Ends: "bad_response",
		reply: func(*ask) reply {
			return reply{status: 200, raw: []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne;"),
				loop: []byte(strings.Repeat("x", 4096)), yields: []exchange.Outcome{badOutcome}}
		}},
	{Name: "endless-extensions", Does: "endless one-byte chunks, each with 1 kB of extension", Ends: "bad_response",
		reply: func(*ask) reply {
			return reply{status: 200, raw: []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
				loop: []byte("1;" + strings.Repeat("x", 1024) + "\r\n#\r\n"), yields: []exchange.Outcome{badOutcome}}
		}},
	{Name: "huge-length", Does: "Content-Length 2^63", Ends: "bad_response",
		reply: says("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\nConnection: close\r\n\r\nUser-agent: *\n", 200,
			badOutcome)},
	{Name: "transfer-unknown", Does: "Transfer-Encoding: gzip", Ends: "bad_encoding",
		reply: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n\r\nUser-agent: *\n", 200,
			codingOutcome)},
	{Name: "not-found-two-lengths", Does: "404, two different Content-Lengths", Ends: "answered 404",
		reply: says("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nContent-Length: 12\r\nConnection: close\r\n\r\nno\n",
			404)},
	{Name: "not-found-bad-length", Does: "404, a Content-Length that is not a number", Ends: "answered 404",
		reply: says("HTTP/1.1 404 Not Found\r\nContent-Length: x\r\nConnection: close\r\n\r\nno\n", 404)},
	{Name: "not-found-bad-chunk", Does: "404, a chunk size that is not a number", Ends: "answered 404",
		reply: says(
			"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nno\n\r\n0\r\n\r\n", 404)},
	{Name: "forbidden-transfer-unknown", Does: "403, Transfer-Encoding: gzip", Ends: "answered 403",
		reply: says("HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n\r\nno\n", 403)},
	{Name: "error-huge-length", Does: "503, Content-Length 2^63", Ends: "answered 503",
		reply: says(
			"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9223372036854775808\r\nConnection: close\r\n\r\nno\n", 503)},
	{Name: "status-101", Does: "101, unasked", Ends: "bad_response",
		reply: says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: upgrade\r\n\r\n", 101, badOutcome)},
	{Name: "status-600", Does: "status 600", Ends: "bad_response",
		reply: says("HTTP/1.1 600 Beyond\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 600, badOutcome)},
	{Name: "status-20", Does: "a two-digit status", Ends: "bad_response",
		reply: says("HTTP/1.1 20 OK\r\nConnection: close\r\n\r\n", 0, badOutcome)},
	{Name: "http2", Does: "HTTP/2, unasked", Ends: "bad_response",
		reply: says(
			"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00\x00\x05\x00\xff\xff\xff", 0,
			badOutcome, earlyOutcome)},
	{Name: "endless-line-ends", Does: "endless empty lines before the head", Ends: "bad_response",
		reply: func(*ask) reply {
			return reply{raw: []byte{}, loop: []byte(strings.Repeat("\r\n", 512)), yields: []exchange.Outcome{badOutcome}}
		}},
	{Name: "endless-1xx", Does: "endless 102 responses", Ends: "bad_response",
		reply: func(*ask) reply {
			return reply{raw: []byte{}, loop: []byte("HTTP/1.1 102 Processing\r\n\r\n"), yields: []exchange.Outcome{badOutcome}}
		}},
	{Name: "endless-head", Does: "endless header lines", Ends: "header_too_large",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\n"), loop: []byte("X-More: and-more-and-more-and-more\r\n"),
				yields: []exchange.Outcome{tooLargeOutcome}}
		}},
	{Name: "endless-line", Does: "one endless header line", Ends: "header_too_large",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nX-Long: "), loop: []byte(strings.Repeat("x", 4096)),
				yields: []exchange.Outcome{tooLargeOutcome}}
		}},
	{Name: "long-head", Does: "a head of 60 kB", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\r\n"+strings.Repeat("Set-Cookie: a=0123456789012345678901234567890123456789\r\n",
			1110)+"Content-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /long\n")},
	{Name: "chunk-extensions", Does: "chunks with extensions and padded sizes", Ends: "answered 200",
		reply: answersAs(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n00e;a=b;c=\"d\"\r\nUser-agent: *\n\r\nd;x\r\nDisallow: /e\n\r\n0\r\n\r\n", "User-agent: *\nDisallow: /e\n")},
	{Name: "status-999", Does: "status 999", Ends: "bad_response",
		reply: says("HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 999, badOutcome)},
	{Name: "ssh", Share: 0.0001, Does: "an SSH banner", Ends: "bad_response", reply: says("SSH-2.0-OpenSSH_9.6\r\n", 0,
		badOutcome, earlyOutcome)},
	{Name: "http09", Does: "a body without a head", Ends: "bad_response", reply: says("User-agent: *\r\nDisallow:\r\n\r\n",
		0, badOutcome)},
	{Name: "binary", Does: "bytes that are not text", Ends: "bad_response",
		reply: says("\x00\x01\x02\xff\xfe\x15\x03\x01\x00\r\n\r\n", 0, badOutcome, earlyOutcome)},
}
