package siterows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestStarVerdict shows that nothing is known to be allowed with unknown access.
func TestStarVerdict(t *testing.T) {
	f := func(access parser.Access, star audit.Decision, want string) {
		t.Helper()
		var row schema.SiteRow
		c := New("s", tokens.Default())
		s := &audit.Site{Origin: sitetest.Origin(t, "example.com")}
		s.Report.Access, s.Report.Star = access, star
		if c.Site(&row, c.Key(s), s); row.StarVerdict != want {
			t.Errorf("access %v, %v: %s, want %s", access, star, row.StarVerdict, want)
		}
	}
	f(parser.AccessUnknown, audit.Allowed, "unknown")
	f(parser.AccessFullAllow, audit.Allowed, "allowed")
	f(parser.AccessFullDisallow, audit.Blocked, "blocked")
	f(parser.AccessConditional, audit.Partial, "partial")
}

func TestOriginWithoutRequest(t *testing.T) {
	c := &Copier{}
	s := &audit.Site{Origin: sitetest.Origin(t, "Example.com")}
	if k := c.Key(s); k.origin != "https://example.com" || k.requested != origin.Auto.String() {
		t.Errorf("%+v", k)
	}
}

// TestRedirectScope shows how far redirects are said to lead.
func TestRedirectScope(t *testing.T) {
	f := func(from, to, want string) {
		t.Helper()
		s := &audit.Site{}
		s.SetOrigin(sitetest.Origin(t, from))
		if to != "" {
			s.Fetch.Hops = []exchange.Hop{{Status: 301, URL: to}}
			s.Fetch.Final.Origin = sitetest.Origin(t, to)
		}
		if got := redirectScope(s); got != want {
			t.Errorf("%s to %s: %s, want %s", from, to, got, want)
		}
	}
	f("a.com", "", "none")
	f("http://a.com", "https://a.com", "same_host")
	f("a.com", "https://a.com:8443", "same_host")
	f("a.com", "https://www.a.com", "www")
	f("www.a.com", "https://a.com", "www")
	f("a.com", "https://shop.a.com", "same_domain")
	f("x.a.co.uk", "https://www.a.co.uk", "same_domain")
	f("a.co.uk", "https://b.co.uk", "other_domain")
	f("a.github.io", "https://b.github.io", "other_domain") // a private suffix
	f("192.0.2.1", "https://192.0.2.1", "same_host")
	f("192.0.2.1", "https://192.0.2.2", "other_domain")
	f("a.com", "https://b.com", "other_domain")
}

// FuzzText compares the repair of texts with that of the standard library, and checks the bounds.
func FuzzText(f *testing.F) {
	f.Add([]byte("plain"), 10)
	f.Add([]byte("a\xffb\xe2\x82"), 4)
	f.Add([]byte("€€€"), 7)
	f.Add([]byte("\xf0\x9f\x92\xa9\xed\xa0\x80"), 500)
	f.Fuzz(func(t *testing.T, raw []byte, limit int) {
		if limit < 1 || limit > 5000 {
			return
		}
		c := &Copier{}
		got := c.text(raw, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("text(%q, %d) = %q", raw, limit, got)
		}
		var whole strings.Builder
		for _, r := range string(raw) { // range yields U+FFFD for each invalid byte
			whole.WriteRune(r)
		}
		want := whole.String()
		if !strings.HasPrefix(want, got) {
			t.Fatalf("text(%q, %d) = %q, no prefix of %q", raw, limit, got, want)
		}
		if len(raw) < limit && len(want) <= limit && got != want {
			t.Fatalf("text(%q, %d) = %q, want %q", raw, limit, got, want)
		}
		if again := c.text([]byte(got), limit); again != got && len(got) < limit {
			t.Fatalf("text(%q) = %q", got, again)
		}
		second := c.text([]byte("second"), 10)
		if second != "second" || got != c.ours(got, limit) {
			t.Fatalf("texts overlap: %q", second)
		}
	})
}
