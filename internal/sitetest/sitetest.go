// Package sitetest answers one question: which sites do tests keep? It makes judged sites with every column filled,
// with none, and of all kinds.
package sitetest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// Origin parses an origin.
func Origin(tb testing.TB, text string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// TokenID returns the index of a token in the default registry.
func TokenID(tb testing.TB, name string) int {
	tb.Helper()
	id := tokens.Default().Lookup(name)
	if id < 0 {
		tb.Fatalf("the registry has no %s", name)
	}
	return id
}

// Typical is a site with every column filled.
func Typical(tb testing.TB, seq uint64) *audit.Site {
	host := fmt.Sprintf("www%d.example.co.uk", seq)
	s := &audit.Site{
		Seq: seq, Input: host, Label: "news", Rank: int64(seq) + 1,
	}
	s.SetOrigin(Origin(tb, host))
	s.ICANN = "co.uk" // as if a company had listed it
	answered := s.Origin.As(origin.HTTPS)
	s.Fetch = exchange.Response{
		Outcome: exchange.Answered, Status: 200,
		Answered:  answered,
		Final:     exchange.Target{Origin: answered, Path: "/static/robots.txt"},
		Hops:      []exchange.Hop{{Status: 301, URL: answered.String() + "/static/robots.txt"}},
		Attempts:  1,
		Remote:    netip.MustParseAddrPort("192.0.2.7:443"),
		FetchedAt: time.Date(2026, 11, 21, 4, 5, 6, 789e6, time.UTC).Add(time.Duration(seq) * time.Millisecond),
		Timing: exchange.Timing{DNS: 1500 * time.Microsecond, Connect: 20 * time.Millisecond, TLS: 30 * time.Millisecond,
			TTFB: 40 * time.Millisecond, Total: 100 * time.Millisecond},
		TLSVersion: 0x0304, TLSVerified: exchange.Yes, Proto: "HTTP/1.1",
		Fields: exchange.Fields{
			Server: []byte("nginx"), ContentType: []byte("text/plain; charset=utf-8"), ETag: fmt.Appendf(nil, `"%x"`,
				seq*2654435761),
			LastModified: []byte("Sat, 21 Nov 2026 04:05:06 GMT"), CacheControl: []byte("max-age=3600"),
			XRobotsTag: []byte("noai"), ContentUsage: []byte("search=y"), CDN: "cloudflare", Challenge: "vercel",
		},
		Body: fmt.Appendf(nil, "User-agent: GPTBot\nDisallow: /\n# %d\n", seq),
	}
	gptbot, googlebot := TokenID(tb, "GPTBot"), TokenID(tb, "Googlebot")
	s.Report = audit.Report{
		Access: parser.AccessConditional, Finding: audit.FindingRules, Status: audit.Warn, Score: 0.75,
		Steps: [3]audit.Status{audit.Pass, audit.Warn, audit.Skipped},
		Counts: audit.Counts{Lines: 1, Records: 1, Groups: 2, Agents: 3, Allow: 4, Disallow: 5, Sitemaps: 6, Extensions: 7,
			Legacy: 8, Unknown: 9, Orphan: 10, Invalid: 11, Typo: 12},
		HasBOM: true, ValidUTF8: exchange.Yes, ManagedBlock: true, ManagedBy: "cloudflare", HTMLTitle: []byte("a title"),
		CrawlDelay: 0, HasCrawlDelay: true,
		ContentSignal: []byte("ai-train=no"), ContentUsage: []byte("train-ai=n"),
		License:  []byte("https://example.com/license.xml"),
		Sitemaps: [][]byte{[]byte("https://" + host + "/sitemap.xml"), []byte("https://" + host + "/news.xml")},
		BodyHash: 1<<63 + seq,
		Star:     audit.Partial,
		Named:    []uint16{uint16(min(gptbot, googlebot)), uint16(max(gptbot, googlebot))},
		Blocked:  []uint16{uint16(gptbot)},
		Partial:  []uint16{uint16(googlebot)},
		Advice:   1<<audit.AdviceNoindex | 1<<audit.AdviceXRobotsTag,
		Policy: audit.Policy{
			ID: 1<<63 + 5, Star: audit.CellPartial | audit.CellStar | audit.CellRoot | audit.CellDPIAll,
			Named: []audit.NamedCell{
				{Token: uint16(googlebot), Cell: audit.CellOwn | audit.CellPartial | audit.CellRoot},
				{Token: uint16(gptbot), Cell: audit.CellOwn | audit.CellBlocked | audit.CellRoot | audit.CellDPIAll},
			},
			ContentSignal: []byte("ai-train=no"), ContentUsage: audit.Preferences{TrainAI: audit.UseRefused}, Licensed: true,
			ManagedBy: "cloudflare",
		},
		Unmanaged: 7,
		RFCPolicy: audit.Policy{ID: 6, Named: []audit.NamedCell{{Token: uint16(gptbot), Cell: audit.CellOwn}},
			Lenient: []uint16{uint16(googlebot)}},
		Verdicts: []audit.Verdict{
			{Token: []byte("GPTBot"), ID: gptbot, Decision: audit.Blocked, Via: audit.ViaOwn, NDisallow: 1,
				HasDisallowRoot: true, DPI: audit.DPIAll, Line: 1, ContentSignal: []byte("ai-train=no")},
			{Token: []byte("Googlebot"), ID: googlebot, Decision: audit.Partial, Via: audit.ViaOwn, RootAllowed: true, NAllow: 2,
				NDisallow: 3, DPI: audit.DPISome, CrawlDelay: 2.5, HasCrawlDelay: true, RequestRate: 0.2,
				Visit: audit.Hours{To: 525}, HasVisit: true, ContentUsage: audit.Preferences{TrainAI: audit.UseRefused,
					Search: audit.UseAllowed}, Line: 4, Limited: true},
			{Token: []byte("mybot"), ID: -1, Decision: audit.Allowed, Via: audit.ViaOwn, RootAllowed: true, Line: 9,
				Lenient: true},
			{Token: []byte("*"), ID: -1, Decision: audit.Partial, Via: audit.ViaStar, RootAllowed: true, NDisallow: 1,
				DPI: audit.DPISome, Line: 12},
		},
		Evidence: []audit.Evidence{
			{Line: 3, Kind: audit.KindSitemap, Key: []byte("Sitemap"), Value: []byte("https://" + host + "/sitemap.xml")},
			{Line: 7, GroupLine: 5, Kind: audit.KindUnknown, Key: []byte("users-agent"), Value: []byte("x")},
			{Line: 8, Kind: audit.KindTypo, Key: []byte("dissallow"), Value: []byte("/a")},
		},
	}
	return s
}

// Dead is a site that never answered: every nullable column is null.
func Dead(tb testing.TB, seq uint64) *audit.Site {
	s := &audit.Site{Seq: seq, Input: "http://dead.invalid:8080/"}
	s.SetOrigin(Origin(tb, "http://dead.invalid:8080"))
	s.Fetch = exchange.Response{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName, Answered: s.Origin,
		Final: exchange.Target{Origin: s.Origin}, Attempts: 2}
	s.Report = audit.Report{Access: parser.AccessFullDisallow, Finding: audit.FindingUnreachable, Status: audit.Fail,
		Steps: [3]audit.Status{audit.Fail, audit.Skipped, audit.Skipped},
		// Present although access is not conditional: the table must not say so.
		Blocked:  []uint16{1},
		Verdicts: []audit.Verdict{{Token: []byte("*"), ID: -1, Decision: audit.Blocked, Via: audit.ViaHTTP}},
	}
	return s
}

// bodies are the answers of sites; some of them are not stored.
var bodies = []string{
	"User-agent: *\nDisallow: /private/\nSitemap: https://example.com/s.xml\n",
	"User-agent: GPTBot\nDisallow: /\nCrawl-delay: 2.5\nVisit-time: 0100-0200\n\nUser-agent: *\nAllow: /\nCrawl-delay: 3\nVisit-time: 0300-0400\nRequest-rate: 1/5\nnoindex: /x\n",
	"User-agent: mybot\nDisallow: /\n\nUser-agent: Googlebot\nDisallow: /g\n",
	"", // an answer without a body
	// not stored
	"<!DOCTYPE html><html><body>User-agent: *\nDisallow: /\n</body></html>",
	// HTML too, and has rules
	"<!DOCTYPE html>\nUser-agent: *\nDisallow: /\nCrawl-delay: 7\nSitemap: https://example.com/a.xml\nSitemap: https://example.com/b.xml\n",
	"<!doctype html>\nUser-agent: *\nCrawl-delay: 8\nSitemap: https://example.com/c.xml\n",
	"# nothing but a comment\n", // not stored
	"no record at all\n",        // not stored
	"Sitemap: /relative\n",      // stored, and all it has is invalid
	"\ufeffUser-agent: *\nDisallow: /a\xff\nUnknown: 1\nUser-agent: strange-bot\nDisallow:\n",
	"User-agent: *\nContent-Signal: ai-train=no\nContent-Usage: train-ai=n\nLicense: https://example.com/l\nDisallow: /\nDisalow: /b\n",
}

// Judged are sites of all kinds, as many as wanted, judged by the default registry. Bodies repeat, and some sites have
// one of their own.
func Judged(t testing.TB, n int) []*audit.Site {
	sites := make([]*audit.Site, n)
	for i := range n {
		s := Typical(t, uint64(i))
		body := bodies[i*7%len(bodies)]
		if i%4 == 1 && body != "" {
			body += fmt.Sprintf("# %d\n", i)
		}
		s.Fetch.Body = []byte(body)
		s.Fetch.Truncated = i%5 == 0
		if i%13 > 0 {
			s.Fetch.Fields.Challenge = ""
		}
		s.Fetch.TLSVerified = exchange.Tristate(i % 3)
		switch i % 11 {
		case 3:
			s = Dead(t, uint64(i))
		case 7:
			s.Fetch.Status, s.Fetch.Body, s.Fetch.Hops = 404, nil, nil
		case 8:
			s.Fetch.Status, s.Fetch.Body = 503, nil
		case 9:
			s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.OptedOut, 0, nil
		}
		audit.Judge(s)
		sites[i] = s
	}
	return sites
}
