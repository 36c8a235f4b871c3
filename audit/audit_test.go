package audit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// answered returns a judged site with status 200 and the body.
func answered(body string) *Site {
	s := new(Site)
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, []byte(body)
	Judge(s)
	return s
}

// lines makes a body of lines written as `ua: x | d: /y`.
func lines(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, " | ") {
		if i > 0 {
			b.WriteByte('\n')
		}
		key, value, ok := strings.Cut(line, ":")
		switch {
		case ok && key == "ua":
			line = "User-agent:" + value
		case ok && key == "d":
			line = "Disallow:" + value
		case ok && key == "a":
			line = "Allow:" + value
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestAccess(t *testing.T) {
	f := func(outcome exchange.Outcome, status int, want parser.Access) {
		t.Helper()
		s := new(Site)
		s.Fetch.Outcome, s.Fetch.Status = outcome, status
		Judge(s)
		if s.Report.Access != want {
			t.Errorf("%v %d: %v, want %v", outcome, status, s.Report.Access, want)
		}
	}
	f(exchange.Answered, 200, parser.AccessConditional)
	f(exchange.Answered, 204, parser.AccessConditional)
	f(exchange.Answered, 299, parser.AccessConditional)
	f(exchange.Answered, 304, parser.AccessFullAllow)
	f(exchange.Answered, 400, parser.AccessFullAllow)
	f(exchange.Answered, 401, parser.AccessFullAllow)
	f(exchange.Answered, 403, parser.AccessFullAllow)
	f(exchange.Answered, 404, parser.AccessFullAllow)
	f(exchange.Answered, 408, parser.AccessFullAllow)
	f(exchange.Answered, 429, parser.AccessFullAllow)
	f(exchange.Answered, 500, parser.AccessFullDisallow)
	f(exchange.Answered, 503, parser.AccessFullDisallow)
	f(exchange.RedirectLimit, 301, parser.AccessFullAllow)
	f(exchange.RedirectInvalid, 302, parser.AccessFullAllow)
	f(exchange.OptedOut, 0, parser.AccessUnknown)
	f(exchange.NotArchived, 0, parser.AccessUnknown)
	f(exchange.Carried, 0, parser.AccessUnknown)
	f(exchange.BlockedAddress, 0, parser.AccessUnknown)
	f(0, 0, parser.AccessUnknown)
	for _, outcome := range []exchange.Outcome{
		exchange.DNSNotFound, exchange.DNSFailed, exchange.DNSTimeout, exchange.ConnectRefused, exchange.ConnectTimeout,
		exchange.ConnectFailed, exchange.TLSFailed, exchange.Timeout, exchange.Reset, exchange.ClosedEarly,
		exchange.BadResponse, exchange.BadEncoding, exchange.HeaderTooLarge,
	} {
		f(outcome, 0, parser.AccessFullDisallow)
		f(outcome, 200, parser.AccessFullDisallow) // the status arrived, the body did not
	}
}

func TestScore(t *testing.T) {
	judge := func(outcome exchange.Outcome, status int, body string) *Report {
		s := new(Site)
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = outcome, status, []byte(body)
		Judge(s)
		return &s.Report
	}
	check := func(r *Report, what, status string, score float64, steps string) {
		t.Helper()
		got := fmt.Sprint(r.Steps[0], r.Steps[1], r.Steps[2])
		if r.Status.String() != status || math.Abs(r.Score-score) > 1e-12 || got != steps {
			t.Errorf("%q: %v %v %v, want %v %v %v", what, r.Status, r.Score, got, status, score, steps)
		}
	}
	f := func(text, status string, score float64, steps string) {
		t.Helper()
		check(judge(exchange.Answered, 200, lines(text)), text, status, score, steps)
	}
	f("ua: * | d: /x", "pass", 1, "pass pass pass")
	f("ua: *", "pass", 1, "pass pass pass") // a group needs no rules
	f("ua: *\r\n", "pass", 1, "pass pass pass")
	f("ua: FooBot | d:", "pass", 1, "pass pass pass")
	f("ua: * | noindex: /x", "warn", 1, "pass pass warn")
	f("NoFollow: /x | ua: *", "warn", 1, "pass pass warn")
	f("ua: * | noarchive: /", "warn", 1, "pass pass warn")
	f("ua: * | foo: bar | crawl-delay: x", "pass", 1, "pass pass pass")
	f("ua: MJ12bot", "pass", 1, "pass pass pass") // a registry name
	f("ua: screaming frog seo spider", "pass", 1, "pass pass pass")
	f("ua: googlebot/1.2", "fail", 0.3, "pass fail skipped")
	f("ua: * x", "fail", 0.3, "pass fail skipped")
	f("ua: 2bot", "fail", 0.3, "pass fail skipped")
	f("ua:", "fail", 0.3, "pass fail skipped")
	f("useragent: *", "fail", 0.3, "pass fail skipped") // a typo is tolerated, not valid
	f("user-agent *", "fail", 0.3, "pass fail skipped")
	f("user-agents: *", "fail", 0.3, "pass fail skipped")
	f("useragent: * | ua: *", "pass", 1, "pass pass pass")
	f("noindex: /", "fail", 0.3, "pass fail skipped")
	f("d: /", "fail", 0.3, "pass fail skipped")
	f("", "fail", 0.3, "pass fail skipped")
	f("<!doctype html><html></html>", "fail", 0.3, "pass fail skipped")

	check(judge(exchange.Answered, 204, ""), "204", "fail", 0.3, "pass fail skipped")
	check(judge(exchange.Answered, 404, ""), "404", "fail", 0, "fail skipped skipped")
	check(judge(exchange.Answered, 503, ""), "503", "fail", 0, "fail skipped skipped")
	check(judge(exchange.Answered, 304, ""), "304", "fail", 0, "fail skipped skipped")
	check(judge(exchange.RedirectLimit, 302, ""), "limit", "fail", 0, "fail skipped skipped")
	check(judge(exchange.Timeout, 200, "User-agent: *"), "timeout", "fail", 0, "fail skipped skipped")
	check(judge(exchange.OptedOut, 0, ""), "opted out", "fail", 0, "fail skipped skipped")
}

func TestWeights(t *testing.T) {
	sum := 0.0
	for _, step := range steps {
		sum += step.weight
	}
	if sum != 1 {
		t.Errorf("the weights sum up to %v", sum)
	}
}

func TestEvidence(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		var got []string
		for _, e := range answered(lines(text)).Report.Evidence {
			got = append(got, fmt.Sprintf("%d %v %s=%s", e.Line, e.Kind, e.Key, e.Value))
		}
		if joined := strings.Join(got, "; "); joined != want {
			t.Errorf("%q:\n got %s\nwant %s", text, joined, want)
		}
	}
	f("ua: * | d: /", "")
	f("ua: * |  | # comment | d:", "")
	f("ua: * | Sitemap: https://a/ | sitemap: /s.xml", "2 sitemap Sitemap=https://a/; 3 invalid sitemap=/s.xml")
	f("ua: * | Crawl-delay: 5", "2 extension Crawl-delay=5")
	f("Request-rate: 1/5 | Visit-time: 0600-0845 | Host: a | Clean-param: a /b",
		"1 extension Request-rate=1/5; 2 extension Visit-time=0600-0845; 3 extension Host=a; 4 extension Clean-param=a /b")
	f("Crawl-delay: 5s | Request-rate: 5 | Visit-time: 6-8",
		"1 invalid Crawl-delay=5s; 2 invalid Request-rate=5; 3 invalid Visit-time=6-8")
	f("Content-Signal: search=maybe | Content-Usage: train-ai= | License: /l.xml",
		"1 invalid Content-Signal=search=maybe; 2 invalid Content-Usage=train-ai=; 3 invalid License=/l.xml")
	f("Crawl-delay: | Content-Usage: | Sitemap:", "1 invalid Crawl-delay=; 2 invalid Content-Usage=; 3 invalid Sitemap=")
	// no syntax is known
	f("Host: | Clean-param: | IndexNow-Key:", "1 extension Host=; 2 extension Clean-param=; 3 extension IndexNow-Key=")
	f("IndexNow-Key: x | Revisit-after: 1 | Domain: a",
		"1 extension IndexNow-Key=x; 2 extension Revisit-after=1; 3 extension Domain=a")
	f("ua: * | Content-Signal: search=yes", "2 signal Content-Signal=search=yes")
	f("Content-Signal: search=yes", "1 signal Content-Signal=search=yes")
	f("ua: * | Content-Usage: train-ai=n", "2 usage Content-Usage=train-ai=n")
	f("License: https://a/l.xml", "1 license License=https://a/l.xml")
	f("noindex: /a | nofollow: /b | NOARCHIVE: /c", "1 legacy noindex=/a; 2 legacy nofollow=/b; 3 legacy NOARCHIVE=/c")
	f("foo: bar | users-agent: x | diallow: /", "1 unknown foo=bar; 2 unknown users-agent=x; 3 unknown diallow=/")
	f("d: /x | ua: * | d: /y", "1 orphan Disallow=/x")
	f("d: x | ua: *", "1 orphan Disallow=x") // one row for each line
	f("ua: * | d: x | a: http://a/", "2 invalid Disallow=x; 3 invalid Allow=http://a/")
	f("ua: * | d: | a: *x", "") // empty values and those of `*` are valid
	f("some text here", "1 invalid =some text here")
	f("ua: googlebot/2.1 | ua: 2bot | ua: | ua: * x",
		"1 invalid User-agent=googlebot/2.1; 2 invalid User-agent=2bot; 3 invalid User-agent=; 4 invalid User-agent=* x")
	f("ua: MJ12bot", "")
	f("ua: * | dissallow: /x", "2 typo dissallow=/x")
	f("ua: * | disallow /x", "2 typo disallow=/x")
	f("ua: * | disallows: x", "2 typo disallows=x; 2 invalid disallows=x") // Typo counts in addition to the kind
	f("sitemaps: https://a/", "1 typo sitemaps=https://a/; 1 sitemap sitemaps=https://a/")
	f("useragent: *", "1 typo useragent=*")
}

func TestEvidenceScope(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		var got []string
		for _, e := range answered(lines(text)).Report.Evidence {
			got = append(got, fmt.Sprintf("%d:%d", e.Line, e.GroupLine))
		}
		if joined := strings.Join(got, " "); joined != want {
			t.Errorf("%q: %s, want %s", text, joined, want)
		}
	}
	f("Content-Signal: a=b | ua: x | Content-Signal: a=b | ua: y | Sitemap: https://a/ | d: | ua: z | noindex: /",
		"1:0 3:2 5:2 8:7")
	f("foo: | useragent: x | foo: | d: y", "1:0 2:2 3:2 4:2")
	f("d: / | ua: x | d: | ua: 2 | ua: y | foo:", "1:0 4:4 6:4")
}

func TestEvidenceBounds(t *testing.T) {
	text := strings.Repeat("foo: bar\nno key at all here\nSitemap: https://a/\n", 50)
	s := answered(text)
	rows := func(kind Kind) (n int) {
		for _, e := range s.Report.Evidence {
			if e.Kind == kind {
				n++
			}
		}
		return n
	}
	f := func(kind Kind, wantRows, count, wantCount int) {
		t.Helper()
		if got := rows(kind); got != wantRows || count != wantCount {
			t.Errorf("%v: %d rows, count %d; want %d, %d", kind, got, count, wantRows, wantCount)
		}
	}
	f(KindUnknown, MaxEvidenceRows, s.Report.Counts.Unknown, 50)
	f(KindInvalid, MaxEvidenceRows, s.Report.Counts.Invalid, 50)
	f(KindSitemap, MaxEvidenceRows, s.Report.Counts.Sitemaps, 50)

	s = answered("<html>\n" + text)
	f(KindUnknown, 0, s.Report.Counts.Unknown, 50)
	f(KindInvalid, 0, s.Report.Counts.Invalid, 51)
	f(KindSitemap, MaxEvidenceRows, s.Report.Counts.Sitemaps, 50)

	s = answered(strings.Repeat("k", 300) + ": " + strings.Repeat("é", 400))
	e := s.Report.Evidence[0]
	if len(e.Key) != MaxEvidenceKey || len(e.Value) != MaxEvidenceValue {
		t.Errorf("key of %d bytes, value of %d", len(e.Key), len(e.Value))
	}
	s = answered("foo: x" + strings.Repeat("é", 400))
	if n := len(s.Report.Evidence[0].Value); n != MaxEvidenceValue-1 {
		t.Errorf("a character was torn: %d bytes", n)
	}
}

func TestCounts(t *testing.T) {
	s := answered(
		lines(
			"d: /o | ua: * | ua: a | ua: A | ua: 2bot | a: | d: /x | d: y | Sitemap: x | Sitemap: https://a/ | Crawl-delay: 1 | " +
				"Content-Signal: a=b | License: x | Host: | noindex: | foo: | junk | dissallow: /z | ua: b"))
	want := Counts{
		Lines: 19, Records: 18, Groups: 2, Agents: 3, Allow: 1, Disallow: 4,
		Sitemaps: 1, Extensions: 3, Legacy: 1, Unknown: 1, Orphan: 1, Invalid: 5, Typo: 1,
	}
	if s.Report.Counts != want {
		t.Errorf("got  %+v\nwant %+v", s.Report.Counts, want)
	}
}

// TestInvalidUTF8IsFound shows that one octet that is not UTF-8 is found at every position.
func TestInvalidUTF8IsFound(t *testing.T) {
	for length := range 100 {
		for at := range length {
			body := []byte(strings.Repeat("a", length))
			body[at] = 0xC3
			if r := answered(string(body)).Report; r.ValidUTF8 != exchange.No {
				t.Fatalf("the octet at %d of %d was not seen", at, length)
			}
		}
		want := exchange.Yes
		if length == 0 { // an empty body is neither
			want = exchange.Unknown
		}
		if r := answered(strings.Repeat("a", length)).Report; r.ValidUTF8 != want {
			t.Fatalf("%d octets of ASCII are UTF-8: %v, want %v", length, r.ValidUTF8, want)
		}
	}
}

func TestBodyFacts(t *testing.T) {
	f := func(body string, bom, html, utf, managed bool) {
		t.Helper()
		r := answered(body).Report
		if r.HasBOM != bom || r.IsHTML != html || (r.ValidUTF8 == exchange.Yes) != utf ||
			(r.ValidUTF8 == exchange.Unknown) != (body == "") || r.ManagedBlock != managed {
			t.Errorf("%.40q: bom %v html %v utf8 %v managed %v", body, r.HasBOM, r.IsHTML, r.ValidUTF8, r.ManagedBlock)
		}
		if (r.BodyHash != 0) != (len(body) > 0) {
			t.Errorf("%.40q: hash %x", body, r.BodyHash)
		}
	}
	f("", false, false, false, false)
	f("User-agent: *", false, false, true, false)
	f("\xEF\xBB\xBFUser-agent: *", true, false, true, false)
	f("\xEF\xBBUser-agent: *", false, false, false, false)
	f("User-agent: \xff", false, false, false, false)
	f("<!DOCTYPE html><html>", false, true, true, false)
	f("\xEF\xBB\xBF \r\n<!doctype HTML>", true, true, true, false)
	f("<html lang=en>", false, true, true, false)
	f("<HTML>", false, true, true, false)
	f("<htmlx>", false, false, true, false)
	f("<html", false, false, true, false)
	f("<!-- x", false, true, true, false)
	f("<?xml version='1.0'?>\n<!DOCTYPE html>", false, true, true, false)
	f("<?xml version='1.0'?>\n<urlset>", false, false, true, false)
	f("# <html>\n", false, false, true, false)
	f("User-agent: *\n<html>", false, false, true, false)
	f("# BEGIN Cloudflare Managed content\n\nUser-agent: *", false, false, true, true)
	f("User-agent: *\n#  begin CLOUDFLARE managed Content", false, false, true, true)
	f("# end Cloudflare Managed Content", false, false, true, false)
	f("BEGIN Cloudflare Managed content", false, false, true, false)
}

// verdicts writes the rows as `token decision via`, with the line of the group.
func verdicts(s *Site) string {
	var rows []string
	for _, v := range s.Report.Verdicts {
		row := fmt.Sprintf("%s %v %v", v.Token, v.Decision, v.Via)
		if v.Line > 0 {
			row += fmt.Sprintf(" @%d", v.Line)
		}
		if v.Lenient {
			row += " lenient"
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, "; ")
}

func TestVerdictRows(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := verdicts(answered(lines(text))); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
	f("", "* allowed none")
	f("d: /", "* allowed none")
	f("ua: * | d: /", "* blocked star @1")
	f("ua: * | d:", "* allowed star @1")
	f("ua: * | d: /x", "* partial star @1")
	f("ua: * | d: / | a: /x", "* partial star @1")
	f("ua: FooBot | d: /", "* allowed none; foobot blocked own @1")
	f("ua: GPTBOT | d: / | ua: *", "* allowed star @3; GPTBot blocked own @1")
	f("ua: a | ua: b | d: /", "* allowed none; a blocked own @1; b blocked own @2")
	f("ua: a | d: /x | ua: a | d: /", "* allowed none; a blocked own @1") // merged
	f("ua: a | d: / | ua: A | a: /", "* allowed none; a allowed own @1")
	f("ua: a", "* allowed none; a allowed own @1") // the last group may be empty
	f("ua: * | d: / | ua: a", "* blocked star @1; a allowed own @3")
	f("ua: GPTBot/1.0 | d: /", "* allowed none; GPTBot blocked own @1")

	// A token that reaches a group by fallback has a row of its own.
	googlebot := "Applebot partial fallback @1; Google-InspectionTool partial fallback @1; Googlebot-Image partial fallback @1; " +
		"Googlebot-News partial fallback @1; Googlebot-Video partial fallback @1; KagiBot partial fallback @1; Google-CloudVertexBot partial fallback @1"
	f("ua: Googlebot | d: /x", "* allowed none; Googlebot partial own @1; "+googlebot)
	f("ua: msnbot | d: / | ua: bingbot | d:", "* allowed none; msnbot blocked own @1; bingbot allowed own @3")
	f("ua: msnbot | d: /", "* allowed none; msnbot blocked own @1; bingbot blocked fallback @1")

	// The second reading finds the meant token where Google's code reads a fragment.
	f("ua: MJ12bot | d: /", "* allowed none; MJ12bot blocked own @1 lenient")
	f("ua: mj12BOT/v1.4 | d: /", "* allowed none; MJ12bot blocked own @1 lenient")
	f("ua: MJ12bot; x | d: /", "* allowed none; MJ12bot blocked own @1 lenient")
	f("ua: MJ12bot v1 | d: /", "* allowed none; MJ12bot blocked own @1 lenient")
	f("ua: MJ | ua: MJ12bot | d: /", "* allowed none; mj blocked own @1; MJ12bot blocked own @2 lenient")
	f("ua: MJ12bot | d: /x | ua: MJ12bot/2 | d: /", "* allowed none; MJ12bot blocked own @1 lenient")
	f("ua: Screaming Frog SEO Spider | d: /", "* allowed none; Screaming Frog SEO Spider blocked own @1 lenient")
	f("ua: AI2Bot | d: / | ua: Ai2Bot-Dolma | d: /x",
		"* allowed none; AI2Bot blocked own @1 lenient; Ai2Bot-Dolma partial own @3 lenient")
	f("ua: img2dataset | d: / | ua: *", "* allowed star @3; img2dataset blocked own @1 lenient")
	f("ua: iaskspider/2.0 | d: /", "* allowed none; iaskspider blocked own @1") // the strict reading knows it
	f("ua: Sogou web spider | d: /", "* allowed none; Sogou blocked own @1")
	f("ua: Terra Cotta | d: / | ua: TerraCotta | d: /x",
		"* allowed none; TerraCotta partial own @3; TerraCotta blocked own @1 lenient")
	f("ua: 2bot | d: /", "* allowed none")
	f("ua: *foo | d: /", "* allowed none")
	f("ua: * foo | d: /", "* blocked star @1")
	f("ua: * | d: /x | ua: *foo | d: / | ua: *", "* partial star @1")
}

// TestLongNames shows that a token has one row for a site, even if long names are equal up to the bound.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", MaxToken)
	f := func(want int, names ...string) {
		t.Helper()
		s := answered("User-agent: " + strings.Join(names, "\nDisallow: /\nUser-agent: ") + "\n")
		seen := map[string]bool{}
		for _, v := range s.Report.Verdicts {
			if seen[string(v.Token)] {
				t.Errorf("%q has two rows", v.Token)
			}
			seen[string(v.Token)] = true
		}
		if len(seen) != want {
			t.Errorf("%d names have %d rows, want %d, `*` included", len(names), len(seen), want)
		}
	}
	f(2, long)
	f(2, long, long+"a", long+"b")
	f(2, long+"a", long)
	f(3, long+"a", long[1:]+"a", long[1:]+"ab")
	f(3, long[1:], long)
}

// TestTokenLists checks the lists. named, blocked and partial are sets of registry tokens; `rest` is all tokens that
// heed `*` and are not listed.
func TestTokenLists(t *testing.T) {
	reg := tokens.Default()
	names := func(list []uint16) string {
		if len(list) > len(reg.Tokens)/2 {
			return "rest"
		}
		var out []string
		for _, i := range list {
			out = append(out, reg.Tokens[i].Name)
		}
		return strings.Join(out, " ")
	}
	f := func(text, named, blocked, partial string) {
		t.Helper()
		r := answered(lines(text)).Report
		if got := names(r.Named); got != named {
			t.Errorf("%q: named %q, want %q", text, got, named)
		}
		if got := names(r.Blocked); got != blocked {
			t.Errorf("%q: blocked %q, want %q", text, got, blocked)
		}
		if got := names(r.Partial); got != partial {
			t.Errorf("%q: partial %q, want %q", text, got, partial)
		}
		for _, list := range [][]uint16{r.Named, r.Blocked, r.Partial} {
			if !slices.IsSorted(list) {
				t.Errorf("%q: not ascending", text)
			}
		}
	}
	f("", "", "", "")
	f("ua: FooBot | d: /", "", "", "")
	f("ua: GPTBot | ua: CCBot | d: /", "CCBot GPTBot", "CCBot GPTBot", "")
	f("ua: GPTBot | d: /x", "GPTBot", "", "GPTBot")
	const images = "Google-InspectionTool Googlebot Googlebot-Image Googlebot-News Googlebot-Video KagiBot Google-CloudVertexBot"
	f("ua: Googlebot | d: /", "Googlebot", "Applebot "+images, "")
	f("ua: Googlebot | d: / | ua: Applebot | d:", "Applebot Googlebot", images, "")
	f("ua: * | d: /", "", "rest", "")
	f("ua: * | d: /x", "", "", "rest")
	f("ua: * | d: /x | ua: GPTBot | d: /", "GPTBot", "GPTBot", "rest")
	f("ua: MJ12bot | d: /", "", "", "") // the lists have no lenient matches
	f("ua: AdsBot-Google | d: /", "AdsBot-Google", "AdsBot-Google", "")

	// Four tokens of Google ignore `*` and must be named.
	blocked := answered("User-agent: *\nDisallow: /").Report.Blocked
	for id, token := range reg.Tokens {
		ignores := slices.Contains([]string{"AdsBot-Google", "AdsBot-Google-Mobile", "Mediapartners-Google", "APIs-Google"},
			token.Name)
		if got := slices.Contains(blocked, uint16(id)); got == ignores {
			t.Errorf("%s: blocked by `*` = %v", token.Name, got)
		}
	}
}

func TestVerdictByStatus(t *testing.T) {
	f := func(outcome exchange.Outcome, status int, want string, star Decision) {
		t.Helper()
		s := new(Site)
		s.Fetch.Outcome, s.Fetch.Status = outcome, status
		s.Fetch.Body = []byte("User-agent: GPTBot\nDisallow: /\n") // must not count
		Judge(s)
		r := &s.Report
		if got := verdicts(s); got != want || r.Star != star {
			t.Errorf("%v %d: %q %v, want %q %v", outcome, status, got, r.Star, want, star)
		}
		if len(r.Named)+len(r.Blocked)+len(r.Partial)+len(r.Evidence) > 0 || r.Counts != (Counts{}) {
			t.Errorf("%v %d: a file was read: %+v", outcome, status, r)
		}
	}
	f(exchange.Answered, 404, "* allowed http", Allowed)
	f(exchange.Answered, 503, "* blocked http", Blocked)
	f(exchange.Timeout, 0, "* blocked http", Blocked)
	f(exchange.RedirectLimit, 302, "* allowed http", Allowed)
	f(exchange.OptedOut, 0, "", Allowed)
}

// TestVerdictFacts shows that a row has the facts from which every published definition can be computed.
func TestVerdictFacts(t *testing.T) {
	f := func(text string, rootAllowed bool, nAllow, nDisallow int, hasRoot bool, dpi DPI) {
		t.Helper()
		v := answered(lines("ua: x | " + text)).Report.Verdicts[1]
		if v.RootAllowed != rootAllowed || v.NAllow != nAllow || v.NDisallow != nDisallow || v.HasDisallowRoot != hasRoot ||
			v.DPI != dpi {
			t.Errorf("%q: root %v, %d allow, %d disallow, disallow root %v, dpi %v", text, v.RootAllowed, v.NAllow, v.NDisallow,
				v.HasDisallowRoot, v.DPI)
		}
	}
	f("d:", true, 0, 1, false, DPINone)
	f("a:", true, 1, 0, false, DPINone)
	f("a: /", true, 1, 0, false, DPINone)
	f("d: /", false, 0, 1, true, DPIAll)
	f("d: / | a:", false, 1, 1, true, DPISome) // an empty allow line counts
	f("d: / | a: /x", false, 1, 1, true, DPISome)
	f("d: / | a: /?x", false, 1, 1, true, DPIAll) // a value with `?` is dropped
	f("d: / | a: /", true, 1, 1, true, DPISome)
	f("d: /*", false, 0, 1, false, DPISome) // blocked, but not by a literal `/`
	f("d: *", false, 0, 1, false, DPISome)
	f("d: /x", true, 0, 1, false, DPISome)
	f("d: /?x", true, 0, 1, false, DPINone)
	f("d: x", true, 0, 1, false, DPISome)
}

func TestBelongings(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		var got []string
		for _, v := range answered(lines(text)).Report.Verdicts {
			said := ""
			if v.HasCrawlDelay {
				said += fmt.Sprintf(" delay %v", v.CrawlDelay)
			}
			if v.RequestRate > 0 {
				said += fmt.Sprintf(" rate %v", v.RequestRate)
			}
			if v.HasVisit {
				said += fmt.Sprintf(" from %d to %d", v.Visit.From, v.Visit.To)
			}
			if v.ContentSignal != nil {
				said += fmt.Sprintf(" signal %s", v.ContentSignal)
			}
			if v.ContentUsage != (Preferences{}) {
				said += fmt.Sprintf(" usage %v", v.ContentUsage)
			}
			if said != "" && v.Via != ViaFallback {
				got = append(got, string(v.Token)+said)
			}
		}
		if joined := strings.Join(got, "; "); joined != want {
			t.Errorf("%q:\n got %s\nwant %s", text, joined, want)
		}
	}
	f("ua: * | crawl-delay: 5", "* delay 5")
	f("ua: * | d: / | crawl-delay: 0.5", "* delay 0.5")
	f("ua: * | crawl-delay: 0", "* delay 0")
	f("crawl-delay: 5 | ua: *", "")                                              // before any group
	f("ua: a | crawl-delay: 5 | ua: b | d: /", "a delay 5")                      // the agents so far
	f("ua: a | crawl-delay: 5 | ua: b | crawl-delay: 7", "a delay 5; b delay 7") // the first wins, for each
	f("ua: a | ua: b | crawl-delay: 5", "a delay 5; b delay 5")
	f("ua: a | crawl-delay: x | crawl-delay: -1 | crawl-delay: 3", "a delay 3") // the first valid one
	f("ua: a | d: / | ua: b | crawl-delay: 2", "b delay 2")
	f("ua: a | d: / | ua: a | crawl-delay: 2 | d: / | ua: a | crawl-delay: 9", "a delay 2") // over all of its groups
	f("ua: MJ12bot | crawl-delay: 4", "MJ12bot delay 4")
	// the second reading assigns the first line to it, too
	f("ua: Slurp | crawl-delay: 2 | ua: Yahoo! Slurp", "Slurp delay 2; Slurp delay 2")
	f("ua: Yahoo! Slurp | crawl-delay: 2 | ua: Slurp | crawl-delay: 3 | request-rate: 1/1",
		"Slurp delay 3 rate 1; Slurp delay 2 rate 1")
	f("ua: Slurp | Content-Usage: search=n | d: | ua: Yahoo! Slurp | Content-Usage: train-ai=n",
		"Slurp usage search=n; Slurp usage train-ai=n, search=n")

	f("ua: a | request-rate: 1/5", "a rate 0.2")
	f("ua: a | request-rate: 5/0 | request-rate: 30/1m 0600-0845 | request-rate: 1/1", "a rate 0.5")
	f("request-rate: 1/5 | ua: a", "")
	f("ua: a | visit-time: 0600-0845", "a from 360 to 525")
	f("ua: a | visit-time: 6am | visit-time: 2300-0100 | visit-time: 0000-2400", "a from 1380 to 60")
	f("ua: a | visit-time: 0000-0000 | ua: b | d: /", "a from 0 to 0")
	f("ua: a | visit-time: 0100-0200 | request-rate: 1/1 | crawl-delay: 1 | ua: b | crawl-delay: 2 | request-rate: 2/1",
		"a delay 1 rate 1 from 60 to 120; b delay 2 rate 2")

	f("ua: * | Content-Signal: search=yes, ai-train=no", "* signal search=yes, ai-train=no")
	f("ua: * | Content-Signal: nonsense | Content-Signal: ai-train=no", "* signal ai-train=no")
	f("ua: a | Content-Signal: search=no | ua: b | Content-Signal: search=yes", "a signal search=no; b signal search=yes")
	f("Content-Signal: search=yes | ua: *", "")

	// The longest path of all Content-Usage records that matches `/` wins, and `n` wins a tie.
	f("ua: * | Content-Usage: train-ai=n", "* usage train-ai=n")
	f("ua: * | Content-Usage: search=y,train-ai=n", "* usage train-ai=n, search=y")
	f("ua: * | Content-Usage: other=y", "")
	f("ua: * | Content-Usage: /**********************$ train-ai=n | Content-Usage: / search=y", "* usage train-ai=n")
	f("ua: * | Content-Usage: /a train-ai=n", "") // says nothing of `/`
	f("ua: * | Content-Usage: train-ai=n | Content-Usage: / train-ai=y", "* usage train-ai=y")
	// not the shorter one's search
	f("ua: * | Content-Usage: / train-ai=y | Content-Usage: train-ai=n, search=n", "* usage train-ai=y")
	f("ua: * | Content-Usage: /$ train-ai=n | Content-Usage: / train-ai=y", "* usage train-ai=n")
	f("ua: * | Content-Usage: /* train-ai=n | Content-Usage: / train-ai=y", "* usage train-ai=n")
	f("ua: * | Content-Usage: /ai-ok/ train-ai=y | Content-Usage: train-ai=n", "* usage train-ai=n")
	f("ua: * | Content-Usage: train-ai=y | Content-Usage: train-ai=n", "* usage train-ai=n")
	f("ua: * | Content-Usage: train-ai=n | Content-Usage: train-ai=y, search=y", "* usage train-ai=n, search=y")
	f("ua: a | Content-Usage: train-ai=y | ua: b | Content-Usage: / train-ai=n", "a usage train-ai=n; b usage train-ai=n")
	f("ua: a | Content-Usage: / train-ai=y | ua: b | Content-Usage: train-ai=n", "a usage train-ai=y; b usage train-ai=n")
	f("ua: a | Content-Usage: train-ai=y | d: | ua: b | ua: a | Content-Usage: train-ai=n",
		"a usage train-ai=n; b usage train-ai=n")
	f("Content-Usage: train-ai=n | ua: *", "")
	f("ua: MJ12bot | ua: x | Content-Usage: train-ai=n", "x usage train-ai=n; MJ12bot usage train-ai=n")
	// the draft's own example
	f(
		"ua: * | d: /never/ | Content-Usage: train-ai=n | Content-Usage: /ai-ok/ train-ai=y | ua: ExampleBot | Content-Usage: train-ai=y", "* usage train-ai=n; examplebot usage train-ai=y")
}

func TestReportValues(t *testing.T) {
	f := func(text, signal, usage, license, sitemaps string) {
		t.Helper()
		r := answered(lines(text)).Report
		var urls []string
		for _, u := range r.Sitemaps {
			urls = append(urls, string(u))
		}
		if string(r.ContentSignal) != signal || string(r.ContentUsage) != usage || string(r.License) != license ||
			strings.Join(urls, " ") != sitemaps {
			t.Errorf("%q: %q %q %q %q", text, r.ContentSignal, r.ContentUsage, r.License, urls)
		}
	}
	f("ua: *", "", "", "", "")
	f("Content-Signal: search=no | ua: * | Content-Signal: search=yes", "search=no", "", "", "")
	f("Content-Signal: search=perhaps | Content-Signal: SEARCH = Yes", "search=yes", "", "", "")
	f("Content-Usage: train-ai=n | Content-Usage: train-ai=y", "", "train-ai=n", "", "")
	f("Content-Usage: =n | Content-Usage: /a train-ai=y", "", "/a train-ai=y", "", "")
	f("License: /l.xml | License: https://a/l.xml | License: https://b/", "", "", "https://a/l.xml", "")
	f("Sitemap: /a | Sitemap: https://a/s.xml | SITEMAP: http://b", "", "", "", "https://a/s.xml http://b")

	r := answered(strings.Repeat("Sitemap: https://a/\n", 150)).Report
	if len(r.Sitemaps) != MaxSitemaps || r.Counts.Sitemaps != 150 {
		t.Errorf("%d sitemaps of %d", len(r.Sitemaps), r.Counts.Sitemaps)
	}
	r = answered("User-agent: *\nCrawl-delay: 7").Report
	if !r.HasCrawlDelay || r.CrawlDelay != 7 {
		t.Errorf("crawl delay of `*`: %v %v", r.CrawlDelay, r.HasCrawlDelay)
	}
	r = answered("User-agent: a\nCrawl-delay: 7").Report
	if r.HasCrawlDelay {
		t.Error("the crawl delay of another agent counts for `*`")
	}

	// The response field is about the file itself (draft-ietf-aipref-attach §2), not about the site.
	s := new(Site)
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Fields.ContentUsage = exchange.Answered, 200, []byte("train-ai=n")
	if Judge(s); s.Report.ContentUsage != nil {
		t.Errorf("the response field is taken for the site's: %q", s.Report.ContentUsage)
	}
}

// TestUsageAgents shows that preferences in user-agent lines (draft-kelley-aipref-training-preference-signal) are
// evidence, and no agents; that preferences in records of their own are no rules; and that other names and keys are
// read as before.
func TestUsageAgents(t *testing.T) {
	f := func(text, rows string, agents, extensions int, kinds string) {
		t.Helper()
		r := &answered(lines(text)).Report
		var got, evidence []string
		for _, v := range r.Verdicts[1:] {
			got = append(got, fmt.Sprintf("%s %v", v.Token, v.Decision))
		}
		for _, e := range r.Evidence {
			evidence = append(evidence, fmt.Sprintf("%d %v", e.Line, e.Kind))
		}
		if strings.Join(got, ", ") != rows || r.Counts.Agents != agents || r.Counts.Extensions != extensions ||
			strings.Join(evidence, ", ") != kinds {
			t.Errorf("%q: %v, %d agents, %d extensions, %v", text, got, r.Counts.Agents, r.Counts.Extensions, evidence)
		}
	}
	f("ua: __usage_training__ | d: /", "", 0, 1, "1 usage")
	f("ua: __USAGE_x/1.0 | ua: __usage_x | ua: GPTBot | d: /", "GPTBot blocked", 1, 2, "1 usage, 2 usage")
	f("ua: GPTBot | ua: __usage_x y | a: /", "GPTBot allowed", 1, 1, "2 usage")
	f("ua: _usage_x | ua: __usage | d: /", "_usage_x blocked, __usage blocked", 2, 0, "")
	f("ua: GPTBot | DisallowAITraining: / | AllowAITraining: /x | disallowaitraining:", "GPTBot allowed", 1, 3,
		"2 usage, 3 usage, 4 usage")
	f("ua: GPTBot | DisallowAITraining: x", "GPTBot allowed", 1, 0, "2 invalid")
	f("DisallowAITraining: / | ua: GPTBot | d: /x", "GPTBot partial", 1, 1, "1 usage")
	f("ua: GPTBot | DisallowAITraining / | ua: CCBot | d: /", "GPTBot blocked, CCBot blocked", 2, 1, "2 typo, 2 usage")
	f("ua: GPTBot | DisallowAI: / | ua: CCBot | d:", "GPTBot blocked, CCBot allowed", 2, 0, "2 typo")
	f("ua: GPTBot | Disallow-AI-Training: /", "GPTBot blocked", 1, 0, "2 typo")
	f("ua: GPTBot | Content-Signals: ai-train=no | Schemamap: https://a/s.xml | Schemamaps: https://a/s.xml",
		"GPTBot allowed", 1, 1,
		"2 typo, 2 unknown, 3 extension, 4 unknown")
}

// TestOwnRegistry shows that a user's own tokens are judged like any other.
func TestOwnRegistry(t *testing.T) {
	reg, err := tokens.Load(strings.NewReader("name|fallback|*\nHouse-Bot|GPTBot|yes\nHermit||no\nHouse 9||yes"))
	if err != nil {
		t.Fatal(err)
	}
	s := new(Site)
	s.Fetch.Outcome, s.Fetch.Status = exchange.Answered, 200
	s.Fetch.Body = []byte(lines("ua: GPTBot | d: / | ua: * | d: /x | ua: house 9/2.0 | d: /y"))
	New(reg).Judge(s)
	const want = "* partial star @3; GPTBot blocked own @1; House-Bot blocked fallback @1; House 9 partial own @5 lenient"
	if got := verdicts(s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if slices.Contains(s.Report.Partial, uint16(reg.Lookup("Hermit"))) {
		t.Error("a token that ignores `*` follows it")
	}
}

// TestSurveyBudget shows that a file with many combinations of large groups is judged within the bound, and known
// tokens exactly. Rules that need no path to be tried are not bounded.
func TestSurveyBudget(t *testing.T) {
	f := func(shared string, mayBeLimited bool) {
		t.Helper()
		var b strings.Builder
		for i := range 400 {
			fmt.Fprintf(&b, "User-agent: x%c%c\n", 'a'+i/26, 'a'+i%26)
		}
		b.WriteString("User-agent: GPTBot\n")
		b.WriteString(strings.Repeat(shared, 10_000))
		for i := range 400 {
			fmt.Fprintf(&b, "User-agent: x%c%c\nDisallow: /%d\n", 'a'+i/26, 'a'+i%26, i)
		}
		s := answered(b.String())
		limited := 0
		for _, v := range s.Report.Verdicts {
			if v.Limited {
				limited++
				if v.Decision != Partial || v.ID >= 0 {
					t.Fatalf("%s is limited and %v", v.Token, v.Decision)
				}
			}
		}
		if len(s.Report.Verdicts) != 402 || (limited > 0) != mayBeLimited || limited > 390 {
			t.Errorf("%q: %d rows, %d limited", shared, len(s.Report.Verdicts), limited)
		}
	}
	f("Allow: /some/folder\n", true)
	f("Disallow: /some/folder\n", false)
}

func TestResetGivesMemoryBack(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "User-agent: %s\n", strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(i)))
	}
	s := answered(b.String())
	if len(s.Report.Verdicts) != 20_001 {
		t.Fatalf("%d rows", len(s.Report.Verdicts))
	}
	s.Reset()
	if cap(s.Report.Verdicts) != 0 || cap(s.Report.scratch.agents) != 0 {
		t.Error("Reset keeps what a freak needed")
	}
}

func TestDecisionsMatchTheParser(t *testing.T) {
	f := func(v parser.SiteVerdict, want Decision) {
		t.Helper()
		if Decision(v) != want {
			t.Errorf("%d is %v, want %v", v, Decision(v), want)
		}
	}
	f(parser.SiteAllowed, Allowed)
	f(parser.SitePartial, Partial)
	f(parser.SiteBlocked, Blocked)
}

// TestGroupsThatCrawlersFollow checks the six crawlers of Google's specification with groups for googlebot-news, `*`
// and googlebot.
func TestGroupsThatCrawlersFollow(t *testing.T) {
	s := answered(lines("ua: googlebot-news | d: /1 | ua: * | d: /2 | ua: googlebot | d: /3"))
	f := func(token, follows, via string, line int) {
		t.Helper()
		out := Explain(s)
		got := out.Star
		if token != "*" {
			got = &out.Tokens[tokens.Default().Lookup(token)]
		}
		if got.Follows != follows || got.Via != via || got.Line != line {
			t.Errorf("%s follows %s (%s, line %d), want %s (%s, line %d)", token, got.Follows, got.Via, got.Line, follows, via,
				line)
		}
	}
	f("Googlebot-News", "googlebot-news", "own", 1)
	f("Googlebot", "googlebot", "own", 5)
	f("Googlebot-Image", "googlebot", "fallback", 5)
	f("Googlebot-Video", "googlebot", "fallback", 5)
	f("Applebot", "googlebot", "fallback", 5)
	f("*", "*", "star", 3)
	f("Applebot-Extended", "*", "star", 3)
	f("bingbot", "*", "star", 3)
	f("AdsBot-Google", "", "none", 0)
}

// TestSharedAuditor shows that goroutines may share an Auditor, and that earlier judgements of a Site do not affect
// later ones.
func TestSharedAuditor(t *testing.T) {
	a, bodies := New(tokens.Default()), generated(100)
	want := make([]string, len(bodies))
	for i, body := range bodies {
		want[i] = verdicts(answered(string(body)))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s := new(Site)
			for i, body := range bodies {
				s.Reset()
				s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
				a.Judge(s)
				first := verdicts(s)
				a.Judge(s) // judging again changes nothing
				if again := verdicts(s); first != want[i] || again != want[i] {
					t.Errorf("%q:\n got %s\nthen %s\nwant %s", body, first, again, want[i])
				}
			}
		})
	}
	all.Wait()
}
