package fetcher

import (
	"net/url"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

func TestFollow(t *testing.T) {
	base := exchange.Target{Origin: parse(t, "https://example.com:8443"), Path: "/a/b/c?q=1"}
	f := func(location, want string) {
		t.Helper()
		got, cause := follow(base, location)
		if cause != 0 || got.String() != want {
			t.Errorf("%q: got %s (%v), want %s", location, got, cause, want)
		}
	}
	f("http://other.com/robots.txt", "http://other.com/robots.txt")
	f("HTTP://Other.COM:80/Robots.txt", "http://other.com/Robots.txt")
	f("https://other.com", "https://other.com/")
	f("https://other.com?x", "https://other.com/?x")
	f("https://other.com:444/x?y#z", "https://other.com:444/x?y")
	f("//other.com/x", "https://other.com/x")
	f("/x", "https://example.com:8443/x")
	f("x", "https://example.com:8443/a/b/x")
	f("./x", "https://example.com:8443/a/b/x")
	f("../x", "https://example.com:8443/a/x")
	f("../../../x", "https://example.com:8443/x")
	f("..", "https://example.com:8443/a/")
	f(".", "https://example.com:8443/a/b/")
	f("/x/./y/../z", "https://example.com:8443/x/z")
	f("/x/..", "https://example.com:8443/")
	f("?z", "https://example.com:8443/a/b/c?z")
	f("#z", "https://example.com:8443/a/b/c?q=1")
	f("/x?../y", "https://example.com:8443/x?../y")
	f(" /x\t", "https://example.com:8443/x")
	f("/a b", "https://example.com:8443/a%20b")
	f("/%61%zz%", "https://example.com:8443/%61%zz%")
	f("/m\xc3\xbcller\xff", "https://example.com:8443/m%C3%BCller%FF")
	f("/<\"^`{|}>?\"", "https://example.com:8443/%3C%22%5E%60%7B%7C%7D%3E?%22")
	f("https://www.m\xc3\xbcller.eu/", "https://www.xn--mller-kva.eu/")
	f("https://m%C3%BCller.eu/%61", "https://xn--mller-kva.eu/%61")
	f("https://ex%61mple.org/", "https://example.org/")
	f("//%65xample.org:444?x", "https://example.org:444/?x")
	f("https://[2001:db8::1]:99/x", "https://[2001:db8::1]:99/x")
	f("https://127.1/", "https://127.0.0.1/")
	f("https://2130706433/x", "https://127.0.0.1/x")
	f("https://0x7F.1:99/x", "https://127.0.0.1:99/x")
	f("https://017700000001/", "https://127.0.0.1/")
	f("https://%30x7f.1/", "https://127.0.0.1/")
	f(`\\other.com\x`, "https://other.com/x")
	f(`/x\..\y`, "https://example.com:8443/y")
	f("/"+strings.Repeat("x", maxLocation-1), "https://example.com:8443/"+strings.Repeat("x", maxLocation-1))
}

func TestFollowInvalid(t *testing.T) {
	base := exchange.Target{Origin: parse(t, "https://example.com")}
	f := func(location string, want exchange.Cause) {
		t.Helper()
		if got, cause := follow(base, location); cause != want {
			t.Errorf("%q: got %s (%v), want %v", location, got, cause, want)
		}
	}
	f("", exchange.CauseNoLocation)
	f("  ", exchange.CauseNoLocation)
	const scheme, invalid = exchange.CauseLocationScheme, exchange.CauseLocationInvalid
	f("file:///etc/passwd", scheme)
	f("javascript:alert(1)", scheme)
	f("ftp://example.com/", scheme)
	f("x:80/y", scheme)
	f("https:x", invalid)
	f("https:/x", invalid)
	f("https://", invalid)
	f("https:///x", invalid)
	f("https://user@example.org/", invalid)
	f("https://user:pw@example.org/", invalid)
	f("https://example.org:0/", invalid)
	f("https://example.org:99999/", invalid)
	f("https://exa mple.org/", invalid)
	f("https://exa%zzple.org/", invalid)
	f("https://example.org%2fx/", invalid)
	f("https://example.org%3a444/", invalid)
	f("https://user%40example.org/", invalid)
	f("https://example.org%0d%0aSet-Cookie/", invalid)
	f("https://\xff\xfe/", invalid)
	f("https://127.0.0.256/", invalid)
	f("https://1.2.3.4.5/", invalid)
	f("https://"+strings.Repeat("a.", 1000)+"org/", invalid)
	f("https://"+strings.Repeat("%61", 2000)+".org/", invalid)
	f("/a\r\nSet-Cookie: x", invalid)
	f("/a\x00", invalid)
	f("/"+strings.Repeat("x", maxLocation), invalid)
}

// robots.txt has one spelling as a target, so that loops are detected.
func TestFollowCanonical(t *testing.T) {
	base := exchange.Target{Origin: parse(t, "https://example.com")}
	for _, location := range []string{"/robots.txt", "robots.txt", "https://example.com:443/robots.txt",
		"/x/../robots.txt#y", "#"} {
		if got, cause := follow(base, location); cause != 0 || got != base {
			t.Errorf("%q: got %#v", location, got)
		}
	}
}

// For any Location, follow's result is valid in a request line. If the standard library accepts the reference, too,
// both have the same host.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{"/x", "//h/y", "https://a.b:1/c?d#e", "../\xff \\x", "a:b", "?", "https://[::1]/"} {
		f.Add(seed)
	}
	base := exchange.Target{Origin: parse(f, "https://example.com"), Path: "/a/b?c"}
	f.Fuzz(func(t *testing.T, location string) {
		got, cause := follow(base, location)
		if cause != 0 {
			return
		}
		if !strings.HasPrefix(pathOf(got), "/") || strings.ContainsAny(pathOf(got), " #\\") {
			t.Fatalf("%q: path %q", location, got.Path)
		}
		for i := range len(got.Path) {
			if got.Path[i] <= 0x20 || got.Path[i] >= 0x7f {
				t.Fatalf("%q: path %q", location, got.Path)
			}
		}
		u, err := url.Parse(strings.Trim(location, " \t"))
		if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(location, `\%`) {
			return
		}
		if _, isAddress := got.Origin.Addr(); isAddress {
			return // addresses have more spellings than the standard library accepts
		}
		if want := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); isASCII(want) && !strings.Contains(want, ":") &&
			got.Origin.Host() != want {
			t.Fatalf("%q: host %q, want %q", location, got.Origin.Host(), want)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
