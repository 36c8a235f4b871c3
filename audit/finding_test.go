package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestFinding shows which answers have which finding.
func TestFinding(t *testing.T) {
	site := func(outcome exchange.Outcome, status int, body string) *Site {
		return &Site{Fetch: exchange.Response{Outcome: outcome, Status: status, Body: []byte(body)}}
	}
	f := func(s *Site, want Finding) {
		t.Helper()
		if Judge(s); s.Report.Finding != want {
			t.Errorf("%v %d %.60q: %v, want %v", s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body, s.Report.Finding, want)
		}
	}
	status := func(n int, want Finding) { t.Helper(); f(site(exchange.Answered, n, ""), want) }
	body := func(text string, want Finding) { t.Helper(); f(site(exchange.Answered, 200, text), want) }

	f(site(exchange.OptedOut, 0, ""), FindingNotAsked)
	f(site(exchange.BlockedAddress, 0, ""), FindingNotAsked)
	f(site(exchange.NotArchived, 301, ""), FindingNotAsked)
	f(site(exchange.Carried, 0, ""), FindingNotAsked)
	f(site(exchange.DNSNotFound, 0, ""), FindingUnreachable)
	f(site(exchange.Timeout, 0, ""), FindingUnreachable)
	f(site(exchange.ClosedEarly, 200, ""), FindingUnreachable)
	f(site(exchange.BadEncoding, 404, ""), FindingUnreachable)
	f(site(exchange.ClosedEarly, 429, ""), FindingRateLimited)
	f(site(exchange.RedirectLimit, 301, ""), FindingNone)
	f(site(exchange.RedirectInvalid, 302, ""), FindingNone)
	status(101, FindingUnreachable)
	status(999, FindingUnreachable)
	status(400, FindingRefused)
	status(401, FindingRefused)
	status(403, FindingRefused)
	status(404, FindingNone)
	status(408, FindingServerError)
	status(410, FindingNone)
	status(429, FindingRateLimited)
	status(451, FindingRefused)
	status(500, FindingServerError)
	status(503, FindingServerError)
	status(599, FindingServerError)
	status(204, FindingNoRules)

	for _, n := range []int{200, 202, 301, 403, 405, 408, 429, 503} {
		s := site(exchange.Answered, n, "User-agent: *\nDisallow: /\n")
		s.Fetch.Fields.Challenge = "vercel"
		f(s, FindingChallenged)
	}
	unread := site(exchange.ClosedEarly, 200, "")
	unread.Fetch.Fields.Challenge = "vercel"
	f(unread, FindingChallenged)
	opted := site(exchange.OptedOut, 0, "")
	opted.Fetch.Fields.Challenge = "vercel"
	f(opted, FindingNotAsked)

	body("", FindingNoRules)
	body("# nothing\n", FindingNoRules)
	body("just text\n", FindingNoRules)
	body("noindex: /x\n", FindingNoRules) // legacy
	body("foo: bar\n", FindingNoRules)
	body("\xff\xfeU\x00s\x00e\x00r\x00", FindingNoRules) // UTF-16
	body("User-agent: *\n", FindingRules)
	body("Disallow: /x\n", FindingRules)                   // before any group
	body("Sitemap: /relative\n", FindingRules)             // invalid, and known
	body("Crawl-delay: 5\n", FindingRules)                 // a known extension
	body("Disalow /x\n", FindingRules)                     // as Google's matcher reads it
	body("\x00User-agent: a\nDisallow: /\n", FindingRules) // one stray NUL
	body("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", FindingHTML)
	body("<!DOCTYPE html><title>x</title>", FindingHTML)
	body("<!DOCTYPE html>\nUser-agent: *\nDisallow: /\n", FindingHTML)

	// Output of a server before the first record is no page, unless the output has a page's mark or the record is far.
	const rules = "User-agent: *\nDisallow: /\n"
	for _, noise := range []string{
		"<br />\n<b>Warning</b>:  Undefined variable $x in <b>/home/x/a.php</b> on line <b>12</b><br />\n",
		"<!-- cached -->\n", "<!-- cached -->",
		"\xEF\xBB\xBF\r\n  <br>\n", "<?xml version=\"1.0\"?>\n<p>\n", "<script>var body = 1</script>\n",
		"<style>body { color: red }</style>", "<a>\nx: y\nNoindex: /\n",
		"<pre>\n<b>\n", "<header>\n", "<br />" + strings.Repeat(" ", 4000) + "\n",
	} {
		body(noise+rules, FindingRules)
		if strings.HasSuffix(noise, "\n") { // else it hides the first key
			body(noise+"Crawl-delay: 5\n", FindingRules)
		}
		body(noise+rules+"</body></html>", FindingRules)
		if strings.HasPrefix(noise, "<pre") || strings.HasPrefix(noise, "<header") {
			continue // not what browsers recognize as HTML
		}
		body(noise, FindingHTML)
		body(noise+"foo: bar\nNoindex: /\n", FindingHTML)
		body(noise+strings.Repeat(" ", 4096)+"\n"+rules, FindingHTML)
		for _, mark := range []string{"<!DOCTYPE html>", "<html lang=en>", "<HEAD>", "<body\n>"} {
			body(noise+mark+"\n"+rules, FindingHTML)
			body(mark+noise+rules, FindingHTML)
		}
	}

	file := &Site{IsFile: true, Fetch: exchange.Response{Body: []byte("User-agent: *\n")}}
	f(file, FindingRules)
}

// TestManagedBy shows which service counts as the writer of a file: only exact comments decide.
func TestManagedBy(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		s := &Site{Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200, Body: []byte(body)}}
		if Judge(s); s.Report.ManagedBy != want || s.Report.ManagedBlock != (want == "cloudflare") {
			t.Errorf("%.60q: %q, managed block %v; want %q", body, s.Report.ManagedBy, s.Report.ManagedBlock, want)
		}
	}
	f("# BEGIN Cloudflare Managed content\nUser-agent: *\n", "cloudflare")
	f("# we use Shopify as our ecommerce platform\nUser-agent: *\n", "shopify")
	f("# Squarespace Robots Txt\n", "squarespace")
	f("User-agent: *\nAllow: /\n# Auto generated, go to SEO Tools > Robots.txt Editor to change this\n", "wix")
	f("# If you are regularly crawling WordPress.com sites, please use our firehose\n", "wordpress.com")
	f("# robots.txt automaticaly generated by PrestaShop e-commerce open-source solution\n", "prestashop")
	f("# START YOAST BLOCK\n# ---\nUser-agent: *\n", "yoast")
	f("# START YOAST BLOCK\n# BEGIN Cloudflare Managed content\n", "cloudflare") // the first of the table
	f("# our shop uses Shopify\n", "")
	f("# not a Squarespace robots txt\n", "")
	f("User-agent: Shopify\n", "")
	f("", "")
}

// TestHTMLTitle reads the titles of pages, unchanged.
func TestHTMLTitle(t *testing.T) {
	f := func(page, want string) {
		t.Helper()
		s := &Site{Fetch: exchange.Response{Outcome: exchange.Answered, Status: 200, Body: []byte(page)}}
		if Judge(s); string(s.Report.HTMLTitle) != want {
			t.Errorf("%.60q: %q, want %q", page, s.Report.HTMLTitle, want)
		}
	}
	f("<!DOCTYPE html><html><head><title>404 Not Found</title></head>", "404 Not Found")
	f("<html><HEAD>\n<TITLE lang=en>\n  Access &amp; Denied\n</Title >", "Access &amp; Denied")
	f("<html><title>a <b> c</title>", "a <b> c")
	f("<html><titles>x</titles><title>y</title>", "y")
	f("<html><title></title>", "")
	f("<html><title>cut", "cut")
	f("<html><title", "")
	f("<html><body>none", "")
	f("<title>first in the file</title>", "first in the file")
	f("User-agent: *\n# <title>x</title>\n", "") // no page
	f("<html>"+strings.Repeat(" ", maxTitleAt)+"<title>far</title>", "")
}

// TestFindingDocument shows that each finding has a name and a meaning of its own.
func TestFindingDocument(t *testing.T) {
	seen := map[string]bool{}
	for f := range NumFindings {
		if f.String() == "" || f.Meaning() == "" || seen[f.String()] || seen[f.Meaning()] {
			t.Errorf("%d: %q, %q", f, f, f.Meaning())
		}
		seen[f.String()], seen[f.Meaning()] = true, true
	}
	if got := fmt.Sprint(NumFindings); got != "?" || NumFindings.Meaning() != "" {
		t.Errorf("%q", got)
	}
}
