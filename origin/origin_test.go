package origin

import (
	"errors"
	"math/big"
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	f := func(in, want string, scheme Scheme, port uint16) {
		t.Helper()
		o, err := Parse(in)
		if err != nil {
			t.Errorf("Parse(%.80q): %v", in, err)
			return
		}
		if o.Host() != want || o.Scheme() != scheme || o.Port() != port || !o.IsValid() {
			t.Errorf("Parse(%.80q) = %v host %q port %d, want %v host %q port %d", in, o.Scheme(), o.Host(), o.Port(), scheme,
				want, port)
		}
	}

	// Hosts without a scheme.
	f("example.com", "example.com", Auto, 443)
	f("  example.com\t\r\n", "example.com", Auto, 443)
	f("EXAMPLE.Com", "example.com", Auto, 443)
	f("example.com.", "example.com", Auto, 443)
	f("com", "com", Auto, 443)
	f("localhost", "localhost", Auto, 443)
	f("//example.com", "example.com", Auto, 443)
	f("//example.com/a//b", "example.com", Auto, 443)
	f("my_shop.example.com", "my_shop.example.com", Auto, 443)
	f("-a-.example.com", "-a-.example.com", Auto, 443)
	f("r3---sn-4g5e.example.com", "r3---sn-4g5e.example.com", Auto, 443)
	f("R3---SN-4G5E.example.com", "r3---sn-4g5e.example.com", Auto, 443)
	f("7-eleven.com", "7-eleven.com", Auto, 443)
	f("example.com/a?b#c", "example.com", Auto, 443)
	f("example.com?next=http://other.example/", "example.com", Auto, 443)
	f("example.com#@evil.example", "example.com", Auto, 443)
	f(`example.com\@evil.example`, "example.com", Auto, 443)

	// Ports.
	f("example.com:443", "example.com", Auto, 443)
	f("example.com:80", "example.com", Auto, 80)
	f("example.com:", "example.com", Auto, 443)
	f("example.com:08080", "example.com", Auto, 8080)
	f("example.com:65535", "example.com", Auto, 65535)
	f("http://example.com:443", "example.com", HTTP, 443)
	f("http:8080", "http", Auto, 8080)

	// URLs.
	f("https://example.com", "example.com", HTTPS, 443)
	f("HTTPS://example.com/", "example.com", HTTPS, 443)
	f("http://example.com", "example.com", HTTP, 80)
	f("http://example.com:80", "example.com", HTTP, 80)
	f("ftp://example.com", "example.com", FTP, 21)
	f("http://example.com:8080/a/b?c=d#e", "example.com", HTTP, 8080)
	f("http://example.com?x", "example.com", HTTP, 80)
	f(`http://example.com\a`, "example.com", HTTP, 80)
	f("http://example.com/user@host", "example.com", HTTP, 80)

	// Addresses.
	f("192.0.2.1", "192.0.2.1", Auto, 443)
	f("192.0.2.1.", "192.0.2.1", Auto, 443)
	f("192.0.2.1:8080", "192.0.2.1", Auto, 8080)
	f("２０３.0.113.9", "203.0.113.9", Auto, 443)
	f("[2001:DB8:0:0::1]", "2001:db8::1", Auto, 443)
	f("[2001:db8::1]:8443", "2001:db8::1", Auto, 8443)
	f("[2001:db8::1]:", "2001:db8::1", Auto, 443)
	f("2001:db8::1", "2001:db8::1", Auto, 443)
	f("https://[2001:db8::1]/a", "2001:db8::1", HTTPS, 443)
	f("[::ffff:192.0.2.1]", "192.0.2.1", Auto, 443)

	// Odd spellings of addresses, as browsers parse them.
	f("127.1", "127.0.0.1", Auto, 443)
	f("127.0.1", "127.0.0.1", Auto, 443)
	f("127.1.", "127.0.0.1", Auto, 443)
	f("0x7f.1", "127.0.0.1", Auto, 443)
	f("0X7F.0.0.0X1:8080", "127.0.0.1", Auto, 8080)
	f("http://0x7F000001/", "127.0.0.1", HTTP, 80)
	f("2130706433", "127.0.0.1", Auto, 443)
	f("017700000001", "127.0.0.1", Auto, 443)
	f("0177.0.0.01", "127.0.0.1", Auto, 443)
	f("127.0.0.0x1", "127.0.0.1", Auto, 443)
	f("127.0x000000000000000000001", "127.0.0.1", Auto, 443)
	f("127。0。0。1", "127.0.0.1", Auto, 443)
	f("１２７．１", "127.0.0.1", Auto, 443)
	f("①②⑦.1", "127.0.0.1", Auto, 443)
	f("http://%31%32%37.%30x1", "127.0.0.1", HTTP, 80)
	f("010.8.8.8", "8.8.8.8", Auto, 443)
	f("1.2.3", "1.2.0.3", Auto, 443)
	f("1.2.65535", "1.2.255.255", Auto, 443)
	f("1.16777215", "1.255.255.255", Auto, 443)
	f("4294967295", "255.255.255.255", Auto, 443)
	f("0", "0.0.0.0", Auto, 443)
	f("0x", "0.0.0.0", Auto, 443)
	f("0x.0x.0", "0.0.0.0", Auto, 443)
	// Names that look similar.
	f("0x7f.1.example", "0x7f.1.example", Auto, 443)
	f("1.0xg", "1.0xg", Auto, 443)
	f("1.2.3.4x", "1.2.3.4x", Auto, 443)

	// Percent-encoded names.
	f("ex%61mple.com", "example.com", Auto, 443)
	f("https://%45xample%2ecom:8443/%61", "example.com", HTTPS, 8443)
	f("https://m%C3%BCller.eu/", "xn--mller-kva.eu", HTTPS, 443)
	f("http://example.com%E3%80%82", "example.com", HTTP, 80)

	// Internationalised names (UTS 46, as browsers look them up).
	f("www.müller.eu", "www.xn--mller-kva.eu", Auto, 443)
	f("WWW.MÜLLER.EU", "www.xn--mller-kva.eu", Auto, 443)
	f("www.mu\u0308ller.eu", "www.xn--mller-kva.eu", Auto, 443)
	f("www.xn--mller-kva.eu", "www.xn--mller-kva.eu", Auto, 443)
	f("WWW.XN--MLLER-KVA.EU", "www.xn--mller-kva.eu", Auto, 443)
	f("www.muller.eu", "www.muller.eu", Auto, 443)
	f("straße.de", "xn--strae-oqa.de", Auto, 443)
	f("例え。テスト", "xn--r8jz45g.xn--zckzah", Auto, 443)
	f("例え.テスト。", "xn--r8jz45g.xn--zckzah", Auto, 443)
	f("exa\u00admple.com", "example.com", Auto, 443)

	// The longest names.
	label := strings.Repeat("a", 63)
	f(label+".com", label+".com", Auto, 443)
	name := label + "." + label + "." + label + "." + label[:61]
	f(name, name, Auto, 443)
	f(name+".", name, Auto, 443)
}

func TestSpelling(t *testing.T) {
	f := func(in string, want Spelling, noPublic bool) {
		t.Helper()
		o, got, err := ParseSpelling(in)
		if err != nil || got != want || o.IsSpecial() != noPublic {
			t.Errorf("ParseSpelling(%q) = %v, %d, %v, not public %v; want %d, %v", in, o, got, err, o.IsSpecial(), want,
				noPublic)
		}
	}
	f("example.com", Full, false)
	f("7.example", Full, false)
	f("[2001:db8::1]", Full, false)
	f("[::ffff:8.8.8.8]", Full, false)
	f("8.8.8.8.", Full, false)
	f("http://%38.8.8.8:80/1.1", Full, false)
	f("８.8。8.8", Full, false)
	f("8.8.8", Odd, false)
	f("010.8.8.8", Odd, false)
	f("http://0x8.8/8.0.0.8", Odd, false)
	f("0X08080808", Odd, false)
	f("134744072", Number, false)
	f("01002004010", Number, false)

	f("9.255.255.255", Full, false)
	f("10.0.0.0", Full, true)
	f("127.1", Odd, true)
	f("2130706433", Number, true)
	f("0", Number, true)
	f("0.255.255.255", Full, true)
	f("1.0.0.0", Full, false)
	f("100.63.255.255", Full, false)
	f("100.64.0.0", Full, true)
	f("100.128.0.0", Full, false)
	f("169.254.169.254", Full, true)
	f("172.16.0.1", Full, true)
	f("192.168.1", Odd, true)
	f("223.255.255.255", Full, false)
	f("224.0.0.1", Full, true)
	f("240.0.0.1", Full, true)
	f("4294967295", Number, true)
}

func TestParseRefuses(t *testing.T) {
	f := func(in string, want error) {
		t.Helper()
		o, err := Parse(in)
		if !errors.Is(err, want) {
			t.Errorf("Parse(%.80q) = %v, %v, want error %v", in, o, err, want)
		}
		if o != (Origin{}) {
			t.Errorf("Parse(%.80q) returns %v with its error", in, o)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("Parse(%.80q): an error of %d bytes", in, len(err.Error()))
		}
	}

	f("", ErrEmpty)
	f(" \t ", ErrEmpty)

	f("gopher://example.com", ErrScheme)
	f("://example.com", ErrScheme)
	f("ht tp://example.com", ErrScheme)
	f("http:/example.com", ErrScheme)
	f(`http:\\example.com`, ErrScheme)
	f("HTTPS:", ErrScheme)
	f("//http://example.com", ErrScheme)
	f(strings.Repeat("x", 10_000)+"://example.com", ErrScheme)

	f("user@example.com", ErrUserInfo)
	f("http://user:pass@example.com/", ErrUserInfo)
	f("http://@example.com/", ErrUserInfo)
	f("mailto:someone@example.com", ErrUserInfo)

	f("http://", ErrHost)
	f("http:///a", ErrHost)
	f("/", ErrHost)
	f("//", ErrHost)
	f("http://:80", ErrHost)
	f(".", ErrHost)
	f("..", ErrHost)
	f(".example.com", ErrHost)
	f("example..com", ErrHost)
	f("example.com..", ErrHost)
	f("example.com。.", ErrHost)
	f("exam ple.com", ErrHost)
	f("exam\tple.com", ErrHost)
	f("example.com\x00", ErrHost)
	// An escape cannot hide a port, a path, user info, an address in brackets or another escape.
	f("example.com%3A8080", ErrHost)
	f("%3A%3A1", ErrHost)
	f("%5B%3A%3A1%5D", ErrHost)
	f("example.com%2Fa", ErrHost)
	f("user%40example.com", ErrHost)
	f("example.com%23a", ErrHost)
	f("ex%2561mple.com", ErrHost)
	f("example.com%00", ErrHost)
	f("exa%20mple.com", ErrHost)
	f("%C3%28.com", ErrHost)
	f("%FF.com", ErrHost)
	f("%EF%BC%85.com", ErrHost)
	f("ex%6", ErrHost)
	f("ex%", ErrHost)
	f("ex%zzmple.com", ErrHost)
	f("ex%+1mple.com", ErrHost)
	f("[::1%25eth0]", ErrHost)
	f("*.example.com", ErrHost)
	f("a,b", ErrHost)
	f("\xff.com", ErrHost)
	f("ü\xff.com", ErrHost)
	f("\ufffd.com", ErrHost)
	f("\u00ad", ErrHost)
	f(strings.Repeat("a", 64)+".com", ErrHost)
	f(strings.Repeat("abcdefg.", 32)[:254], ErrHost)
	f(strings.Repeat("ü", 60)+".com", ErrHost)
	f(strings.Repeat("日本語", 20_000), ErrHost)

	// A host that ends in a number is an address or invalid, so that it cannot pass a guard for private addresses.
	f("127.0.0.08", ErrHost)
	f("127.0.0.09", ErrHost)
	f("08", ErrHost)
	f("1.2.3.256", ErrHost)
	f("1.2.65536", ErrHost)
	f("1.16777216", ErrHost)
	f("4294967296", ErrHost)
	f("0x100000000", ErrHost)
	f("040000000000", ErrHost)
	f("0xffffffffffffffffffffff", ErrHost)
	f("99999999999999999999", ErrHost)
	f("1.2.3.4.5", ErrHost)
	f("0.0.0.0.0", ErrHost)
	f("256.1.1.1", ErrHost)
	f("1.256.1", ErrHost)
	f("1..1", ErrHost)
	f(".1", ErrHost)
	f("1.1..", ErrHost)
	f("example.1", ErrHost)
	f("example.0x", ErrHost)
	f("a.b.c.d.1", ErrHost)

	f("[2001:db8::1", ErrHost)
	f("[2001:db8::1]x", ErrHost)
	f("[192.0.2.1]", ErrHost)
	f("[example.com]", ErrHost)
	f("[fe80::1%eth0]", ErrHost)
	f("[]", ErrHost)

	f("example.com:0", ErrPort)
	f("example.com:65536", ErrPort)
	f("example.com:-1", ErrPort)
	f("example.com:+80", ErrPort)
	f("example.com:8 0", ErrPort)
	f("example.com:https", ErrPort)
	f("example.com:80:80", ErrPort)
	f("fe80::1%eth0", ErrPort)
	f("[2001:db8::1]:99999", ErrPort)
	f("https:example.com", ErrPort)
	f("javascript:alert(1)", ErrPort)
}

func TestNew(t *testing.T) {
	if o, err := New(HTTP, "Example.COM", 0); err != nil || o.String() != "http://example.com" {
		t.Errorf("New: %v, %v", o, err)
	}
	if o, err := New(HTTPS, "2001:DB8::1", 8443); err != nil || o.String() != "https://[2001:db8::1]:8443" {
		t.Errorf("New: %v, %v", o, err)
	}
	for _, host := range []string{"", "[2001:db8::1]", "example.com:80", "a/b", "a@b"} {
		if o, err := New(HTTP, host, 0); !errors.Is(err, ErrHost) {
			t.Errorf("New(%q) = %v, %v", host, o, err)
		}
	}
	for _, scheme := range []Scheme{0, FTP + 1} {
		if o, err := New(scheme, "example.com", 0); !errors.Is(err, ErrScheme) {
			t.Errorf("New(%v) = %v, %v", scheme, o, err)
		}
	}
}

// TestString also checks that default ports are left out.
func TestString(t *testing.T) {
	f := func(in, want, hostHeader string) {
		t.Helper()
		o, err := Parse(in)
		if err != nil || o.String() != want || string(o.AppendHostTo(nil)) != hostHeader {
			t.Errorf("Parse(%q) = %q, host %q, %v, want %q, host %q", in, o.String(), o.AppendHostTo(nil), err, want, hostHeader)
		}
	}
	f("Example.com", "example.com", "example.com")
	f("example.com:443", "example.com", "example.com")
	f("example.com:80", "example.com:80", "example.com:80")
	f("http://example.com:80/x", "http://example.com", "example.com")
	f("https://example.com:443", "https://example.com", "example.com")
	f("https://example.com:80", "https://example.com:80", "example.com:80")
	f("ftp://example.com:21", "ftp://example.com", "example.com")
	f("2001:db8::1", "[2001:db8::1]", "[2001:db8::1]")
	f("http://[2001:db8::1]:8080", "http://[2001:db8::1]:8080", "[2001:db8::1]:8080")
	for scheme, want := range map[Scheme]string{0: "invalid", Auto: "auto", HTTPS: "https", HTTP: "http", FTP: "ftp",
		9: "invalid"} {
		if scheme.String() != want {
			t.Errorf("Scheme(%d) = %q", scheme, scheme.String())
		}
	}
}

func TestAs(t *testing.T) {
	f := func(in string, scheme Scheme, want string) {
		t.Helper()
		o, err := Parse(in)
		if err != nil || o.As(scheme).String() != want {
			t.Errorf("%q as %v = %q, %v, want %q", in, scheme, o.As(scheme), err, want)
		}
	}
	f("example.com", HTTPS, "https://example.com")
	f("example.com", HTTP, "http://example.com")
	f("example.com:443", HTTP, "http://example.com")
	f("example.com:80", HTTP, "http://example.com")
	f("example.com:80", HTTPS, "https://example.com:80")
	f("example.com:8080", HTTP, "http://example.com:8080")
	f("http://example.com", HTTPS, "http://example.com")
	f("https://example.com", HTTP, "https://example.com")
}

func TestEqual(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		x, errX := Parse(a)
		y, errY := Parse(b)
		if errX != nil || errY != nil || (x == y) != want {
			t.Errorf("%q == %q is %v, want %v (%v, %v)", a, b, x == y, want, errX, errY)
		}
	}
	f("http://example.com", "http://example.com:80/", true)
	f("https://EXAMPLE.com.", "https://example.com", true)
	f("www.müller.eu", "www.xn--mller-kva.eu", true)
	f("www.müller.eu", "www.muller.eu", false)
	f("http://example.com", "https://example.com", false)
	f("http://example.com", "http://example.com:8080", false)
	f("example.com", "www.example.com", false)
	f("example.com", "https://example.com", false)
	f("[2001:db8:0::1]", "2001:0db8::1", true)
}

func TestICANNDomain(t *testing.T) {
	for in, want := range map[string]string{
		"a.b.example.co.uk": "", "example.com": "", "localhost": "", "a.b.unknowntld": "", "192.0.2.1": "",
		"[2001:db8::1]": "", "co.uk": "",
		"me.github.io": "github.io", "a.me.github.io": "github.io", "github.io": "github.io",
		"x.blogspot.com": "blogspot.com", "bucket.s3.dualstack.us-east-1.amazonaws.com": "amazonaws.com",
		"foo.uk.com": "uk.com",
	} {
		o, err := Parse(in)
		if err != nil || o.ICANNDomain() != want {
			t.Errorf("%q: %q, %v, want %q", in, o.ICANNDomain(), err, want)
		}
	}
}

func TestDomains(t *testing.T) {
	f := func(in, registrable, tld string) {
		t.Helper()
		o, err := Parse(in)
		if err != nil || o.RegistrableDomain() != registrable || o.TLD() != tld {
			t.Errorf("%q: %q, %q, %v, want %q, %q", in, o.RegistrableDomain(), o.TLD(), err, registrable, tld)
		}
	}
	f("example.com", "example.com", "com")
	f("a.b.example.co.uk", "example.co.uk", "uk")
	f("co.uk", "", "uk")
	f("com", "", "com")
	f("x.y.github.io", "y.github.io", "io")
	f("github.io", "", "io")
	f("www.müller.eu", "xn--mller-kva.eu", "eu")
	f("www.city.kawasaki.jp", "city.kawasaki.jp", "jp")
	f("a.b.c.kawasaki.jp", "b.c.kawasaki.jp", "jp")
	f("www.ck", "www.ck", "ck")
	f("ck", "", "ck")
	f("a.b.np", "a.b.np", "np")
	f("printer.nowhere", "printer.nowhere", "")
	f("localhost", "", "")
	f("192.0.2.1", "", "")
	f("[2001:db8::1]", "", "")
	var zero Origin
	if zero.IsValid() || zero.RegistrableDomain() != "" || zero.TLD() != "" {
		t.Errorf("the zero origin has domains")
	}
}

func TestAddr(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		o, err := Parse(in)
		addr, ok := o.Addr()
		if err != nil || ok != (want != "") || ok && addr.String() != want {
			t.Errorf("%q: %v, %v, %v, want %q", in, addr, ok, err, want)
		}
	}
	f("192.0.2.1", "192.0.2.1")
	f("[2001:db8::1]:80", "2001:db8::1")
	f("[::ffff:192.0.2.1]", "192.0.2.1")
	f("example.com", "")
	f("example.x1", "")
	f("192.0.2.1.example", "")
	if _, ok := (Origin{}).Addr(); ok {
		t.Error("the zero origin has an address")
	}
}

func TestAllocations(t *testing.T) {
	buf := make([]byte, 0, 300)
	f := func(in string) {
		t.Helper()
		var o Origin
		if n := testing.AllocsPerRun(100, func() { o, _ = Parse(in) }); n != 0 {
			t.Errorf("Parse(%q): %v allocations", in, n)
		}
		n := testing.AllocsPerRun(100, func() {
			buf = o.As(HTTP).AppendTo(buf[:0])
			_, _ = o.Addr()
		})
		if n != 0 {
			t.Errorf("%q: %v allocations", in, n)
		}
	}
	f("www.example.com")
	f("https://www.example.com:8080/path?query")
	f("www.xn--mller-kva.eu")
	f("example.area51")
}

// FuzzParse checks each accepted entry: its text parses to the same origin, and its host is bounded, canonical ASCII.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"example.com", "http://[::1]:8080/a", "www.müller.eu", "127.1", "0x7f.1", "0.0x.010",
		"%31.m%C3%BC", "a。b", "http:/x", "x@y", "[::ffff:1.2.3.4]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := Parse(s)
		if err != nil {
			if o.IsValid() {
				t.Fatalf("%q: valid with an error", s)
			}
			return
		}
		again, err := Parse(o.String())
		if err != nil || again != o {
			t.Fatalf("%q: %q reads back as %q, %v", s, o, again, err)
		}
		if made, err := New(o.Scheme(), o.Host(), o.Port()); err != nil || made != o {
			t.Fatalf("%q: New makes %q, %v", s, made, err)
		}
		if len(o.Host()) == 0 || len(o.Host()) > 253 || o.Port() == 0 {
			t.Fatalf("%q: host %q, port %d", s, o.Host(), o.Port())
		}
		for _, c := range []byte(o.Host()) {
			if !hostByte(c) && c != '.' && c != ':' {
				t.Fatalf("%q: byte %q in host", s, c)
			}
		}
		if d := o.RegistrableDomain(); d != "" && o.Host() != d && !strings.HasSuffix(o.Host(), "."+d) {
			t.Fatalf("%q: registrable domain %q", s, d)
		}
	})
}

// go test -run - -bench Parse ./origin
func BenchmarkParse(b *testing.B) {
	for _, in := range []string{"www.example.com", "https://www.example.com:8443/path", "WWW.Example.COM", "www.müller.eu",
		"192.0.2.1", "not a host"} {
		b.Run(in, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse(in)
			}
		})
	}
}

// slowIPv4 follows the standard (WHATWG URL §3.5, "IPv4 parser") step by step, without bounds.
func slowIPv4(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	address := new(big.Int)
	for i, part := range parts {
		if part == "" || strings.ContainsAny(part, "+-_") {
			return netip.Addr{}, false
		}
		base := 10
		if strings.HasPrefix(part, "0x") {
			part, base = part[2:], 16
		} else if len(part) >= 2 && part[0] == '0' {
			part, base = part[1:], 8
		}
		number, ok := new(big.Int), true
		if part != "" {
			number, ok = number.SetString(part, base)
		}
		last := i == len(parts)-1
		limit := big.NewInt(256)
		if last {
			limit.Exp(limit, big.NewInt(int64(5-len(parts))), nil)
		}
		if !ok || number.Cmp(limit) >= 0 {
			return netip.Addr{}, false
		}
		if !last {
			number.Lsh(number, uint(24-8*i))
		}
		address.Add(address, number)
	}
	var four [4]byte
	address.FillBytes(four[:])
	return netip.AddrFrom4(four), true
}

// A host that ends in a number is the address in the standard's reading, or invalid.
func FuzzIPv4(f *testing.F) {
	for _, seed := range []string{"127.1", "0x7f.1", "017700000001", "2130706433", "0x.0.08", "1.2.3.4.5", "4294967296",
		"1.2.3.256", "0x000000000000000000001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		host = strings.ToLower(host)
		for i := range len(host) {
			if !hostByte(host[i]) && host[i] != '.' {
				return
			}
		}
		got, ok := parseIPv4(host)
		want, valid := slowIPv4(host)
		if ok != valid || got != want {
			t.Fatalf("%q: got %v, %v, want %v, %v", host, got, ok, want, valid)
		}
	})
}
