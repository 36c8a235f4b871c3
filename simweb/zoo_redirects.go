package simweb

import (
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// once redirects to a URL of the same host with ?hop=1, and answers there with the file.
func once(to string) func(*ask) reply {
	return func(a *ask) reply {
		if a.hop() > 0 {
			return a.ok()
		}
		return a.redirect(to)
	}
}

// moves redirects to the host's file under another URL, with these framing fields and three bytes of a body.
func moves(framing string, ends ending) func(*ask) reply {
	const to = "/robots.txt?hop=1"
	return func(a *ask) reply {
		if a.hop() > 0 {
			return a.ok()
		}
		raw := "HTTP/1.1 301 Moved Permanently\r\nLocation: " + to + "\r\n" + framing + "Connection: close\r\n\r\nno\n"
		return reply{status: 301, location: to, raw: []byte(raw), ends: ends}
	}
}

// invalid redirects to a URL that scanners must not follow.
func invalid(to string) func(*ask) reply {
	return says("HTTP/1.1 302 Found\r\nLocation: "+to+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 302,
		exchange.RedirectInvalid)
}

// toHTTPS redirects http to https, and answers there with the file.
func toHTTPS(a *ask) reply {
	if a.scheme == origin.HTTP {
		return a.redirect(a.url(origin.HTTPS, a.host, "/robots.txt"))
	}
	return a.ok()
}

var redirectRows = []Behaviour{
	{Name: "to-https", Share: 0.03, Does: "http redirects to https", Ends: "answered 200 (1 hop from http)",
		reply: toHTTPS},
	{Name: "to-www", Share: 0.05, Does: "the bare name redirects to www.", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if strings.HasPrefix(a.host, "www.") {
				return a.ok()
			}
			return a.redirect(a.url(a.scheme, "www."+a.host, "/robots.txt"))
		}},
	{Name: "to-bare", Share: 0.01, Does: "www. redirects to the bare name", Ends: "answered 200 (1 hop from www.)",
		reply: func(a *ask) reply {
			if bare, ok := strings.CutPrefix(a.host, "www."); ok {
				return a.redirect(a.url(a.scheme, bare, "/robots.txt"))
			}
			return a.ok()
		}},
	{Name: "to-http", Share: 0.001, Does: "https redirects to http", Ends: "answered 200 by http, 1 hop",
		reply: func(a *ask) reply {
			if a.scheme == origin.HTTPS {
				return a.redirect(a.url(origin.HTTP, a.host, "/robots.txt"))
			}
			return a.ok()
		}},
	{Name: "to-other", Share: 0.01, Does: "redirects to one of a hundred other hosts", Ends: "answered 200, 1 hop",
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
		reply: says("HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 301,
			exchange.RedirectInvalid)},
	{Name: "redirect-empty", Does: "301 with an empty Location", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 301 Moved Permanently\r\nLocation: \r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 301,
			exchange.RedirectInvalid)},
	{Name: "redirect-nowhere-transfer", Does: "302 without Location, Transfer-Encoding: gzip", Ends: "redirect_invalid",
		reply: says("HTTP/1.1 302 Found\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n\r\nno\n", 302,
			exchange.RedirectInvalid)},
	{Name: "redirect-two-lengths", Does: "301, two different Content-Lengths", Ends: "answered 200, 1 hop",
		reply: moves("Content-Length: 3\r\nContent-Length: 12\r\n", endClose)},
	{Name: "redirect-silent-body", Does: "301, silent within its body", Ends: "answered 200, 1 hop",
		reply: moves("Content-Length: 12\r\n", endHang)},
	{Name: "redirect-file", Share: 0.0002, Does: "redirects to file:", Ends: "redirect_invalid",
		reply: invalid("file:///etc/passwd")},
	{Name: "redirect-script", Does: "redirects to javascript:", Ends: "redirect_invalid",
		reply: invalid("javascript:alert(1)")},
	{Name: "redirect-schemeless", Does: "redirects to //host/path", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if a.hop() > 0 {
				return a.ok()
			}
			_, to, _ := strings.Cut(a.url(a.scheme, a.host, "/robots.txt?hop=1"), ":")
			return a.redirect(to)
		}},
	{Name: "redirect-fragment", Does: "redirects to a URL with a fragment", Ends: "answered 200, 1 hop",
		reply: once("/robots.txt?hop=1#top")},
	{Name: "redirect-relative", Does: "redirects to a path relative to its own", Ends: "answered 200, 1 hop",
		reply: once("./a/../robots.txt?hop=1")},
	{Name: "redirect-query", Does: "redirects to a query alone", Ends: "answered 200, 1 hop", reply: once("?hop=1")},
	{Name: "redirect-crlf", Does: "redirects to a URL with an escaped CR LF and a header field",
		Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			const injected = "/robots.txt?%0d%0aSet-Cookie:%20a=b"
			if a.path == injected {
				return a.ok()
			}
			return a.redirect(injected)
		}},
	{Name: "redirect-long", Does: "redirects to a URL of 8 kB", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			long := "/robots.txt?" + strings.Repeat("x", 8000)
			if a.path == long {
				return a.ok()
			}
			return a.redirect(long)
		}},
	{Name: "redirect-too-long", Does: "redirects to a URL of 9 kB", Ends: "redirect_invalid",
		reply: invalid("/robots.txt?" + strings.Repeat("x", 9000))},
	{Name: "redirect-userinfo", Does: "redirects to a URL with user and password", Ends: "redirect_invalid",
		reply: invalid("https://user:secret@example.com/robots.txt")},
	{Name: "redirect-ftp", Does: "redirects to ftp:", Ends: "redirect_invalid",
		reply: invalid("ftp://example.com/robots.txt")},
	{Name: "redirect-back", Does: "redirects to the other scheme, which redirects back", Ends: "answered 200, 2 hops",
		reply: func(a *ask) reply {
			hop := a.hop()
			if hop >= 2 {
				return a.ok()
			}
			other := origin.HTTPS
			if a.scheme == origin.HTTPS {
				other = origin.HTTP
			}
			return a.redirect(a.url(other, a.host, "/robots.txt?hop="+strconv.Itoa(hop+1)))
		}},
	{Name: "redirect-port", Does: "redirects to another port, same scheme", Ends: "answered 200, 1 hop",
		reply: func(a *ask) reply {
			if a.hop() > 0 {
				return a.ok()
			}
			a.port = a.w.tlsPort // makes url name the scheme's port
			return a.redirect(a.url(a.scheme, a.host, "/robots.txt?hop=1"))
		}},
	{Name: "redirect-private", Does: "redirects to a loopback address without a listener",
		Ends:  "connect_refused, 1 hop; blocked_address without --allow-private",
		reply: func(a *ask) reply { return a.redirect("http://" + a.w.unused().String() + "/robots.txt") }},
	{Name: "redirect-private-name", Does: "redirects to a name of such an address",
		Ends:  "connect_refused, 1 hop; blocked_address without --allow-private",
		reply: func(a *ask) reply { return a.redirect("http://dns-private" + zooSuffix + "/robots.txt") }},
}
