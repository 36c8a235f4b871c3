package simweb

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// Behaviour is one way in which a host of the simulated web behaves, from its name in the DNS to its last byte.
//
// A behaviour is told in four steps, each a column of the table: how the name resolves, where it leads, what the TLS
// port does, and what is answered over HTTP. Steps left out are in order.
type Behaviour struct {
	Name  string
	Share float64 // of all hosts, 0 to 1; 0: only where a name or the configuration asks for it
	Does  string  // what happens, for readers
	Ends  string  // how a scan that knows no scheme, with a later try, ends it, for readers

	name   nameKind
	place  placeKind
	hello  helloKind
	reply  func(*ask) reply // nil: (*ask).ok
	counts bool             // the answer depends on how often the host was asked before
}

// answer is what the behaviour answers to one request.
func (b *Behaviour) answer(a *ask) reply {
	if b.reply == nil {
		return a.ok()
	}
	return b.reply(a)
}

// nameKind is how the DNS answers for a name.
type nameKind uint8

const (
	nameFine nameKind = iota
	nameMissing
	nameServFail
	nameRefused
	nameSilent
	nameNoAddress
	nameTruncated // over UDP, whole over TCP
	nameAlias     // by two CNAME records
	nameAliasLoop
	nameSlow
	nameLate          // later than a resolver waits before it asks again
	nameLost          // the first question about it goes unanswered
	nameWrongID       // before the answer comes a lie with another id
	nameWrongQuestion // before the answer comes a lie to another question
	nameMany          // a thousand addresses, by TCP
	nameChanging      // other addresses with each question, and no time to live
	nameZero          // 0.0.0.0
	nameSix           // only AAAA
)

// placeKind is what listens where the name leads.
type placeKind uint8

const (
	placeFull placeKind = iota
	placePlainOnly
	placeNobody
	placeHole // nobody, and not even a refusal
)

// helloKind is what the TLS port does with a client's hello.
type helloKind uint8

const (
	helloFine helloKind = iota
	helloExpired
	helloSelfSigned
	helloWrongName
	helloUnknownCA
	hello12Only
	hello10Only
	helloHang
	helloReset
	helloClose
	helloAlert
	helloPlain // answers in plain HTTP
)

const nameOK = "ok"

// Behaviours returns the whole table, in its order. The first is ok, which takes the share that the others leave.
func Behaviours() []Behaviour { return slices.Clone(behaviours) }

// behaviourNamed finds a behaviour; nil where there is none.
func behaviourNamed(name string) *Behaviour { return behavioursByName[name] }

var behavioursByName = func() map[string]*Behaviour {
	m := make(map[string]*Behaviour, len(behaviours))
	for i := range behaviours {
		m[behaviours[i].Name] = &behaviours[i]
	}
	return m
}()

// WriteTable writes the table as Markdown, as the package's README shows it.
func WriteTable(out io.Writer) error {
	var b strings.Builder
	b.WriteString("| behaviour | share | what happens | how a scan ends |\n|---|---|---|---|\n")
	for i := range behaviours {
		row := &behaviours[i]
		share := "–"
		if row.Share > 0 {
			share = strconv.FormatFloat(row.Share*100, 'g', 4, 64) + " %"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", row.Name, share, row.Does, row.Ends)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("cannot write the table: %w", err)
	}
	return nil
}

// Short names for the table.
const (
	timeoutOutcome  = exchange.Timeout
	resetOutcome    = exchange.Reset
	earlyOutcome    = exchange.ClosedEarly
	badOutcome      = exchange.BadResponse
	codingOutcome   = exchange.BadEncoding
	tooLargeOutcome = exchange.HeaderTooLarge
)

// behaviours is the table. Shares follow the wild: 85 % of the hosts end with 200, 13 % with 404, 0.5 % with 403, 1 % in
// a time-out. Rows without a share are the zoo: they exist where they are asked for by name.
var behaviours = []Behaviour{
	// Well, in several ways.
	{Name: nameOK, Share: 0.4457, Does: "200, Content-Length", Ends: "answered 200"},
	{Name: "ok-chunked", Share: 0.06, Does: "200, chunked, in uneven chunks", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.framing = byChunks })},
	{Name: "ok-until-close", Share: 0.02, Does: "200 without a length: the body ends with the connection", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.framing = byClose })},
	{Name: "ok-gzip", Share: 0.02, Does: "200, gzip though nobody asked for it", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.coding = gzipped })},
	{Name: "ok-gzip-chunked", Share: 0.005, Does: "200, gzip and chunked", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.coding, r.framing = gzipped, byChunks })},
	{Name: "ok-deflate", Does: "200, deflate in a zlib wrapper, unasked", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.coding = deflated })},
	{Name: "ok-http10", Share: 0.002, Does: "answers as HTTP/1.0, the body ends with the connection", Ends: "answered 200",
		reply: answers("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", "User-agent: *\nDisallow: /old/\n")},
	{Name: "empty", Share: 0.003, Does: "200 with an empty body", Ends: "answered 200, no body",
		reply: func(*ask) reply { return reply{status: 200, fields: "Content-Type: text/plain\r\n"} }},
	{Name: "no-content", Share: 0.001, Does: "204", Ends: "answered 204, no body",
		reply: func(*ask) reply { return reply{status: 204} }},
	{Name: "slow", Share: 0.01, Does: "200 after up to Config.Slow", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) {
			r.wait = a.w.cfg.Slow/20 + time.Duration(unit(a.draw(streamDetail))*0.95*float64(a.w.cfg.Slow))
		})},
	{Name: "late", Does: "200 after exactly Config.Slow", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.wait = a.w.cfg.Slow })},
	{Name: "drip", Share: 0.002, Does: "200, the body in eight pieces over Config.Slow", Ends: "answered 200",
		reply: with(func(a *ask, r *reply) { r.pause = a.w.cfg.Slow / dripPieces })},
	{Name: "huge", Share: 0.0005, Does: "200, a body of 600 kB to 3.7 MB", Ends: "answered 200, truncated",
		reply: with(func(a *ask, r *reply) {
			r.body = content{block: hugeBlock, total: 600_000 + int64(a.draw(streamDetail)%3_100_000)}
		})},
	{Name: "endless", Share: 0.0002, Does: "200, a body without end until the connection's", Ends: "answered 200, truncated",
		reply: func(*ask) reply { return reply{status: 200, framing: byClose, body: content{hugeBlock, -1}} }},
	{Name: "endless-chunked", Share: 0.0001, Does: "200, chunks without end", Ends: "answered 200, truncated",
		reply: func(*ask) reply { return reply{status: 200, framing: byChunks, body: content{hugeBlock, -1}} }},
	{Name: "endless-length", Does: "200, Content-Length 2^63-1, and the body to go with it", Ends: "answered 200, truncated",
		reply: func(*ask) reply {
			return reply{status: 200, body: content{hugeBlock, -1}, raw: []byte("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n"), loop: hugeBlock}
		}},
	{Name: "html", Does: "200, a web page where the file should be", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, fields: "Content-Type: text/html; charset=utf-8\r\n",
				body: whole("<!DOCTYPE html>\n<html><head><title>Welcome</title></head>\n<body><p>User-agent: *</p>\n</body></html>\n")}
		}},
	{Name: "utf16", Does: "200, the file in UTF-16 with its mark", Ends: "answered 200",
		reply: func(*ask) reply { return reply{status: 200, body: whole(utf16("User-agent: *\r\nDisallow: /\r\n"))} }},
	{Name: "nul", Does: "200, NULs within the lines", Ends: "answered 200",
		reply: func(*ask) reply {
			return reply{status: 200, body: whole("User-agent: *\x00x\nDisallow: /\x00private\n")}
		}},

	// Names.
	{Name: "alias", Share: 0.03, Does: "the name leads over two CNAME records", Ends: "answered 200", name: nameAlias},
	{Name: "dns-truncated", Share: 0.002, Does: "the answer is truncated over UDP, whole over TCP", Ends: "answered 200", name: nameTruncated},
	{Name: "dns-slow", Share: 0.002, Does: "the answer comes after 200 ms", Ends: "answered 200", name: nameSlow},
	{Name: "nxdomain", Share: 0.003, Does: "the name does not exist", Ends: "dns_not_found", name: nameMissing},
	{Name: "no-address", Share: 0.001, Does: "the name exists and has neither A nor AAAA", Ends: "dns_not_found", name: nameNoAddress},
	{Name: "servfail", Share: 0.001, Does: "SERVFAIL", Ends: "dns_failed", name: nameServFail},
	{Name: "dns-refused", Does: "REFUSED", Ends: "dns_failed", name: nameRefused},
	{Name: "dns-silent", Share: 0.0003, Does: "the name server keeps silent", Ends: "dns_timeout", name: nameSilent},
	{Name: "dns-late", Does: "the answer comes after 600 ms, when resolvers ask again", Ends: "answered 200", name: nameLate},
	{Name: "dns-lost", Does: "the first question over UDP goes unanswered, for A and for AAAA", Ends: "answered 200", name: nameLost},
	{Name: "dns-wrong-id", Does: "before the answer over UDP comes another with a wrong id and an address where nobody listens", Ends: "answered 200", name: nameWrongID},
	{Name: "dns-wrong-question", Does: "before the answer over UDP comes one to another question, with an address where nobody listens", Ends: "answered 200", name: nameWrongQuestion},
	{Name: "dns-many", Does: "1,000 A records, by TCP", Ends: "answered 200", name: nameMany},
	{Name: "dns-changing", Does: "with each question another address, TTL 0", Ends: "answered 200", name: nameChanging},
	{Name: "dns-ipv6", Does: "no A, only AAAA: ::1", Ends: "answered 200", name: nameSix},
	{Name: "dns-zero", Does: "the address is 0.0.0.0, where nobody listens", Ends: "connect_refused; blocked_address without --allow-private", name: nameZero,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // the last two only where there is one address
	{Name: "dns-private", Does: "the address is one of loopback, where nobody listens", Ends: "connect_refused; blocked_address without --allow-private", place: placeNobody,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // as above
	{Name: "alias-loop", Share: 0.0001, Does: "two CNAME records point at each other", Ends: "dns_failed or dns_not_found", name: nameAliasLoop},

	// Connections.
	{Name: "refuse", Share: 0.003, Does: "nobody listens, on either port", Ends: "connect_refused", place: placeNobody,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // the last two only where there is one address
	{Name: "http-only", Share: 0.02, Does: "nobody listens on the TLS port", Ends: "answered 200 by http", place: placePlainOnly, hello: helloReset},
	{Name: "silent", Share: 0.0095, Does: "takes the connection and keeps silent, on both ports", Ends: "timeout", hello: helloHang,
		reply: fails(endHang, timeoutOutcome)},
	{Name: "black-hole", Does: "the first packet is lost, on either port", Ends: "connect_timeout", place: placeHole,
		hello: helloHang, reply: fails(endHang, timeoutOutcome)}, // the last two only where no packet can be lost

	// TLS. None of these concerns a scan by http.
	{Name: "tls-expired", Share: 0.008, Does: "an expired certificate", Ends: "answered 200, unverified", hello: helloExpired},
	{Name: "tls-self-signed", Share: 0.006, Does: "a certificate signed by itself", Ends: "answered 200, unverified", hello: helloSelfSigned},
	{Name: "tls-wrong-name", Share: 0.015, Does: "a certificate for another name", Ends: "answered 200, unverified", hello: helloWrongName},
	{Name: "tls-unknown-ca", Share: 0.002, Does: "a certificate of an authority that nobody knows", Ends: "answered 200, unverified", hello: helloUnknownCA},
	{Name: "tls-12", Share: 0.05, Does: "TLS 1.2 at most", Ends: "answered 200", hello: hello12Only},
	{Name: "tls-10", Share: 0.001, Does: "TLS 1.0 at most", Ends: "answered 200 by http", hello: hello10Only},
	{Name: "tls-silent", Share: 0.0005, Does: "the TLS port keeps silent", Ends: "answered 200 by http", hello: helloHang},
	{Name: "tls-reset", Share: 0.003, Does: "the TLS port resets after the hello", Ends: "answered 200 by http", hello: helloReset},
	{Name: "tls-close", Share: 0.002, Does: "the TLS port closes after the hello", Ends: "answered 200 by http", hello: helloClose},
	{Name: "tls-alert", Share: 0.002, Does: "the TLS port ends the handshake with an alert", Ends: "answered 200 by http", hello: helloAlert},
	{Name: "tls-plain", Share: 0.003, Does: "the TLS port speaks plain HTTP", Ends: "answered 200 by http", hello: helloPlain},

	// Statuses.
	{Name: "not-found", Share: 0.1265, Does: "404", Ends: "answered 404", reply: status(404)},
	{Name: "not-found-chunked", Share: 0.0035, Does: "404, chunked", Ends: "answered 404",
		reply: func(a *ask) reply { r := status(404)(a); r.framing = byChunks; return r }},
	{Name: "unauthorized", Share: 0.0005, Does: "401", Ends: "answered 401", reply: status(401, "WWW-Authenticate: Basic realm=\"site\"\r\n")},
	{Name: "forbidden", Share: 0.005, Does: "403", Ends: "answered 403", reply: status(403)},
	{Name: "gone", Share: 0.0007, Does: "410", Ends: "answered 410", reply: status(410)},
	{Name: "too-many", Share: 0.0003, Does: "429, Retry-After: 1", Ends: "answered 429", reply: status(429, "Retry-After: 1\r\n")},
	{Name: "legal", Does: "451", Ends: "answered 451", reply: status(451)},
	{Name: "error-500", Share: 0.001, Does: "500", Ends: "answered 500", reply: status(500)},
	{Name: "error-502", Share: 0.0004, Does: "502", Ends: "answered 502", reply: status(502)},
	{Name: "error-503", Share: 0.0004, Does: "503", Ends: "answered 503", reply: status(503)},
	{Name: "retry-after", Share: 0.0002, Does: "503, Retry-After: 1", Ends: "answered 503", reply: status(503, "Retry-After: 1\r\n")},

	// Redirects.
	{Name: "to-https", Share: 0.03, Does: "http is redirected to https", Ends: "answered 200 (1 hop from http)",
		reply: func(a *ask) reply {
			if a.scheme == origin.HTTP {
				return a.redirect(a.url(origin.HTTPS, a.host, "/robots.txt"))
			}
			return a.ok()
		}},
	{Name: "to-www", Share: 0.05, Does: "the bare name is redirected to www.", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if strings.HasPrefix(a.host, "www.") {
				return a.ok()
			}
			return a.redirect(a.url(a.scheme, "www."+a.host, "/robots.txt"))
		}},
	{Name: "to-bare", Share: 0.01, Does: "www. is redirected to the bare name", Ends: "answered 200 (1 hop from www.)",
		reply: func(a *ask) reply {
			if bare, ok := strings.CutPrefix(a.host, "www."); ok {
				return a.redirect(a.url(a.scheme, bare, "/robots.txt"))
			}
			return a.ok()
		}},
	{Name: "to-http", Share: 0.001, Does: "https is redirected to http", Ends: "answered 200 by http, 1 hop",
		reply: func(a *ask) reply {
			if a.scheme == origin.HTTPS {
				return a.redirect(a.url(origin.HTTP, a.host, "/robots.txt"))
			}
			return a.ok()
		}},
	{Name: "to-other", Share: 0.01, Does: "redirected to one of a hundred other hosts", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			n := strconv.FormatUint(a.draw(streamDetail)%100, 10)
			return a.redirect(a.url(a.scheme, "site-"+n+landingSuffix, "/robots.txt"))
		}},
	{Name: "redirect-1", Share: 0.01, Does: "1 hop on its own host", Ends: "answered 200, 1 hop", reply: chain(1)},
	{Name: "redirect-2", Share: 0.004, Does: "2 hops", Ends: "answered 200, 2 hops", reply: chain(2)},
	{Name: "redirect-3", Share: 0.001, Does: "3 hops", Ends: "answered 200, 3 hops", reply: chain(3)},
	{Name: "redirect-4", Share: 0.0004, Does: "4 hops", Ends: "answered 200, 4 hops", reply: chain(4)},
	{Name: "redirect-5", Share: 0.0004, Does: "5 hops", Ends: "answered 200, 5 hops", reply: chain(5)},
	{Name: "redirect-6", Share: 0.0004, Does: "6 hops", Ends: "redirect_limit", reply: chain(6)},
	{Name: "redirect-7", Share: 0.0002, Does: "7 hops", Ends: "redirect_limit", reply: chain(7)},
	{Name: "redirect-loop", Share: 0.0005, Does: "two URLs redirect to each other", Ends: "redirect_limit",
		reply: func(a *ask) reply { return a.redirect("/robots.txt?hop=" + strconv.Itoa(1+a.hop()%2)) }},
	{Name: "redirect-self", Share: 0.0003, Does: "redirects to itself", Ends: "redirect_limit",
		reply: func(a *ask) reply { return a.redirect(a.url(a.scheme, a.host, "/robots.txt")) }},
	{Name: "redirect-bounce", Share: 0.0002, Does: "https redirects to http and http to https", Ends: "redirect_limit",
		reply: func(a *ask) reply {
			if a.scheme == origin.HTTPS {
				return a.redirect(a.url(origin.HTTP, a.host, "/robots.txt"))
			}
			return a.redirect(a.url(origin.HTTPS, a.host, "/robots.txt"))
		}},
	{Name: "redirect-nowhere", Share: 0.0004, Does: "301 without Location", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 301, exchange.RedirectInvalid)},
	{Name: "redirect-empty", Does: "301 with an empty Location", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 301 Moved Permanently\r\nLocation: \r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 301, exchange.RedirectInvalid)},
	{Name: "redirect-file", Share: 0.0002, Does: "redirects to file:", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 302, exchange.RedirectInvalid)},
	{Name: "redirect-script", Does: "redirects to javascript:", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 302 Found\r\nLocation: javascript:alert(1)\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 302, exchange.RedirectInvalid)},
	{Name: "redirect-schemeless", Does: "redirects to //host/path", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if a.hop() > 0 {
				return a.ok()
			}
			_, to, _ := strings.Cut(a.url(a.scheme, a.host, "/robots.txt?hop=1"), ":")
			return a.redirect(to)
		}},
	{Name: "redirect-fragment", Does: "redirects to a URL with a fragment", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if a.hop() > 0 {
				return a.ok()
			}
			return a.redirect("/robots.txt?hop=1#top")
		}},

	// Broken off.
	{Name: "reset-head", Share: 0.001, Does: "reset after the request", Ends: "reset", reply: fails(endReset, resetOutcome)},
	{Name: "close-head", Share: 0.001, Does: "closed after the request", Ends: "closed_early", reply: fails(endAbort, earlyOutcome, resetOutcome)},
	{Name: "close-in-head", Share: 0.0001, Does: "closed in the middle of the head", Ends: "closed_early",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nContent-Type: te"), ends: endAbort, yields: []exchange.Outcome{earlyOutcome}}
		}},
	{Name: "reset-body", Share: 0.0003, Does: "reset in the body", Ends: "reset",
		reply: with(func(a *ask, r *reply) {
			r.cut, r.ends, r.yields = true, endReset, []exchange.Outcome{resetOutcome, earlyOutcome}
		})},
	{Name: "close-body", Share: 0.0005, Does: "closed short of its Content-Length", Ends: "closed_early",
		reply: with(func(a *ask, r *reply) { r.cut, r.ends, r.yields = true, endAbort, []exchange.Outcome{earlyOutcome} })},
	{Name: "close-chunk", Share: 0.0001, Does: "closed in the middle of a chunk", Ends: "closed_early",
		reply: with(func(a *ask, r *reply) {
			r.framing, r.cut, r.ends, r.yields = byChunks, true, endAbort, []exchange.Outcome{earlyOutcome}
		})},
	{Name: "silent-body", Share: 0.0003, Does: "falls silent in the body", Ends: "timeout",
		reply: with(func(a *ask, r *reply) { r.cut, r.ends, r.yields = true, endHang, []exchange.Outcome{timeoutOutcome} })},
	{Name: "drip-head", Share: 0.0001, Does: "a byte of the head each 300 ms", Ends: "timeout or header_too_large",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nX-Slow: "), loop: []byte("z"), pause: 300 * time.Millisecond, yields: []exchange.Outcome{timeoutOutcome, tooLargeOutcome}}
		}},

	// Once failing, then well.
	{Name: "flaky-503", Share: 0.002, Does: "503 at the first request by a scheme, then well", Ends: "answered 200 at a later try", counts: true,
		reply: func(a *ask) reply {
			if a.nth == 1 {
				return status(503)(a)
			}
			return a.ok()
		}},
	{Name: "flaky-reset", Share: 0.002, Does: "reset at the first request by a scheme, then well", Ends: "answered 200 at a later try", counts: true,
		reply: func(a *ask) reply {
			if a.nth == 1 {
				return fails(endReset, resetOutcome)(a)
			}
			return a.ok()
		}},

	// Codings.
	{Name: "gzip-corrupt", Share: 0.0001, Does: "says gzip, sends text", Ends: "bad_encoding",
		reply: says(sized("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /\n\n"), 200, codingOutcome)},
	{Name: "gzip-bomb", Does: "40 MB of lines in 40 kB of gzip", Ends: "answered 200, truncated",
		reply: func(*ask) reply {
			return reply{status: 200, coding: gzipped, body: content{hugeBlock, 40_000_000}}
		}},
	{Name: "coding-unknown", Share: 0.0001, Does: "an unknown Content-Encoding", Ends: "bad_encoding",
		reply: says(sized("HTTP/1.1 200 OK\r\nContent-Encoding: rot13\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "Hfre-ntrag: *\n"), 200, codingOutcome)},

	// Heads.
	{Name: "bare-lf", Share: 0.0003, Does: "the head's lines end with LF alone", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: {length}\n\n", "User-agent: *\nDisallow: /b\n")},
	{Name: "no-reason", Share: 0.0003, Does: "a status line without a reason phrase", Ends: "answered 200",
		reply: answers("HTTP/1.1 200\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /n\n")},
	{Name: "early-hints", Share: 0.0003, Does: "103, then 200", Ends: "answered 200",
		reply: answers("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /h\n")},
	{Name: "same-lengths", Does: "Content-Length twice, equal", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /l\n")},
	{Name: "two-lengths", Does: "Content-Length twice, different", Ends: "bad_response",
		reply: says(sized("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: 12\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /l\n"), 0, badOutcome)},
	{Name: "negative-length", Does: "Content-Length: -1", Ends: "bad_response",
		reply: says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\nConnection: close\r\n\r\nUser-agent: *\n", 0, badOutcome)},
	{Name: "bad-chunk", Does: "a chunk size that is no number", Ends: "bad_response",
		reply: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nUser-agent: *\r\n0\r\n\r\n", 200, badOutcome)},
	{Name: "endless-1xx", Does: "102 without end", Ends: "bad_response, header_too_large or timeout",
		reply: func(*ask) reply {
			return reply{raw: []byte{}, loop: []byte("HTTP/1.1 102 Processing\r\n\r\n"), yields: []exchange.Outcome{badOutcome, tooLargeOutcome, timeoutOutcome}}
		}},
	{Name: "endless-head", Does: "header lines without end", Ends: "header_too_large",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\n"), loop: []byte("X-More: and-more-and-more-and-more\r\n"), yields: []exchange.Outcome{tooLargeOutcome}}
		}},
	{Name: "endless-line", Does: "one header line without end", Ends: "header_too_large",
		reply: func(*ask) reply {
			return reply{raw: []byte("HTTP/1.1 200 OK\r\nX-Long: "), loop: []byte(strings.Repeat("x", 4096)), yields: []exchange.Outcome{tooLargeOutcome}}
		}},
	{Name: "long-head", Does: "a head of 40 kB", Ends: "answered 200",
		reply: answers("HTTP/1.1 200 OK\r\n"+strings.Repeat("Set-Cookie: a=0123456789012345678901234567890123456789\r\n", 740)+"Content-Length: {length}\r\nConnection: close\r\n\r\n", "User-agent: *\nDisallow: /long\n")},
	{Name: "chunk-extensions", Does: "chunks with extensions and padded sizes", Ends: "answered 200",
		reply: answersAs("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n00e;a=b;c=\"d\"\r\nUser-agent: *\n\r\nd;x\r\nDisallow: /e\n\r\n0\r\n\r\n", "User-agent: *\nDisallow: /e\n")},
	{Name: "status-999", Does: "status 999", Ends: "bad_response",
		reply: says("HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 999, badOutcome)},
	{Name: "ssh", Share: 0.0001, Does: "an SSH banner", Ends: "bad_response", reply: says("SSH-2.0-OpenSSH_9.6\r\n", 0, badOutcome, earlyOutcome)},
	{Name: "http09", Does: "a body without a head", Ends: "bad_response", reply: says("User-agent: *\r\nDisallow:\r\n\r\n", 0, badOutcome)},
	{Name: "binary", Does: "bytes that are no text", Ends: "bad_response", reply: says("\x00\x01\x02\xff\xfe\x15\x03\x01\x00\r\n\r\n", 0, badOutcome, earlyOutcome)},
}

// hugeBlock is what huge bodies repeat: lines of a file, so that a cut is told from a whole line.
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

// utf16 writes ASCII as little-endian UTF-16 with its mark.
func utf16(s string) string {
	b := []byte{0xff, 0xfe}
	for i := 0; i < len(s); i++ {
		b = append(b, s[i], 0)
	}
	return string(b)
}
