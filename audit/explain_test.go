package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// TestExplainGolden explains a file with a bit of everything, except tokens with the verdict of `*`.
func TestExplainGolden(t *testing.T) {
	body, err := os.ReadFile(filepath.Join("testdata", "everything.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := new(Site)
	if s.Origin, err = origin.Parse("https://example.com"); err != nil {
		t.Fatal(err)
	}
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
	Judge(s)
	out := Explain(s)
	if len(out.Tokens) != len(standard().Registry().Tokens) {
		t.Errorf("%d tokens", len(out.Tokens))
	}
	out.Tokens = slices.DeleteFunc(out.Tokens, func(token TokenResult) bool { return token.Via == "star" })
	out.RegistryVersion = "(version)"
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "everything.json"), string(text)+"\n")
}

func TestExplainWithoutFile(t *testing.T) {
	f := func(outcome exchange.Outcome, status int, cause exchange.Cause, message, verdict, via string) {
		t.Helper()
		s := new(Site)
		s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Cause = outcome, status, cause
		out := Explain(s) // judges first
		if !strings.Contains(out.Steps[StepFetch].Message, message) || out.Steps[StepCoreSyntax].Status != "skipped" {
			t.Errorf("%v %d: %+v", outcome, status, out.Steps)
		}
		for _, token := range append(out.Tokens, *out.Star) {
			if token.Verdict != verdict || token.Via != via || token.RootAllowed != (verdict == "allowed") {
				t.Fatalf("%v %d: %+v", outcome, status, token)
			}
		}
		text, err := json.Marshal(out)
		if err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%v %d: %v %s", outcome, status, err, text)
		}
	}
	f(exchange.Answered, 404, 0, "404", "allowed", "http")
	f(exchange.Answered, 503, 0, "503", "blocked", "http")
	f(exchange.ClosedEarly, 200, exchange.CauseNoSuchName, "NXDOMAIN", "blocked", "http") // the head came
	f(exchange.RedirectLimit, 302, exchange.CauseRedirectLoop, "redirect_limit (redirect loop)", "allowed", "http")
}

// TestExplainWithoutStatus has every outcome without a status: there is no result, not even in JSON, whatever values
// the dataset has.
func TestExplainWithoutStatus(t *testing.T) {
	for _, outcome := range exchange.Outcomes() {
		if outcome == exchange.Answered || outcome == exchange.RedirectLimit || outcome == exchange.RedirectInvalid {
			continue // a status came
		}
		s := new(Site)
		s.Fetch.Outcome = outcome
		out := Explain(s)
		if out.Known || out.Status != "" || out.Score != nil || out.Star != nil || len(out.Steps)+len(out.Advice)+
			len(out.Tokens)+len(out.Verdicts) > 0 {
			t.Errorf("%v has the result %q, steps %v, advice %v, %d tokens", outcome, out.Status, out.Steps, out.Advice,
				len(out.Tokens))
		}
		text, err := json.Marshal(out)
		if err != nil || strings.Contains(string(text), "null") || !strings.Contains(string(text), `"known":false`) {
			t.Errorf("%v: %v %s", outcome, err, text)
		}
		for _, absent := range []string{`"status"`, `"score"`, `"star"`, "blocked\""} {
			if strings.Contains(string(text), absent) {
				t.Errorf("%v has %s: %s", outcome, absent, text)
			}
		}
	}
}

// TestExplainFile shows that a local file has no status, and that it was cut at the limit if it was cut.
func TestExplainFile(t *testing.T) {
	f := func(s *Site, message, outcome string, status int) {
		t.Helper()
		out := Explain(s)
		if out.Steps[StepFetch].Message != message || out.Outcome != outcome || out.HTTPStatus != status ||
			out.Access != "conditional" || *out.Score != 1 {
			t.Errorf("%q, %q %d, access %s, score %v; want %q, %q %d", out.Steps[StepFetch].Message, out.Outcome, out.HTTPStatus,
				out.Access, *out.Score, message, outcome, status)
		}
	}
	file := &Site{IsFile: true}
	file.Fetch.Body = []byte("User-agent: *\n")
	f(file, "It was read from a file; it has 14 bytes.", "", 0)
	file = &Site{IsFile: true}
	file.Fetch.Body, file.Fetch.Truncated, file.Fetch.CutAt = []byte("User-agent: *\n"), true, 20
	f(file, "It was read from a file, and cut at 20 bytes.", "", 0)
	site := new(Site)
	site.Fetch.Outcome, site.Fetch.Status = exchange.Answered, 200
	site.Fetch.Body, site.Fetch.Truncated, site.Fetch.CutAt = []byte("User-agent: *\n"), true, 20
	f(site, "The final status is 200; the body was cut at 20 bytes.", "answered", 200)
}

func TestExplainMessages(t *testing.T) {
	f := func(text string, step int, want string) {
		t.Helper()
		if got := Explain(answered(lines(text))).Steps[step].Message; !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	f("ua: *", StepFetch, "200; the body has 13 bytes")
	f("# x | ua: *", StepCoreSyntax, "line 2")
	f("useragent: *", StepCoreSyntax, "no user-agent line is spelled")
	f("", StepCoreSyntax, "There is no user-agent line")
	f("", StepExtensions, "Skipped")
	f("ua: * | Sitemap: https://a/ | noindex: /", StepExtensions, "Sitemaps: 1;")
	f("ua: * | Sitemap: https://a/ | noindex: /", StepExtensions, "legacy records: 1")
}

// FuzzExplain shows that texts of sites are valid UTF-8 in a Result, and that Explain agrees with the Report on every
// token.
func FuzzExplain(f *testing.F) {
	f.Add([]byte("User-agent: *\nDisallow: /\xff\n"))
	f.Add([]byte("User-agent: MJ12bot\nUser-agent: Googlebot\nCrawl-delay: 1e5\nDisallow: /\nContent-Signal: a=b"))
	f.Add([]byte("<html>\nSitemap: https://a/\xc3\nContent-Usage: /\xff a=(1"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := answered(string(body))
		out := Explain(s)
		text, err := json.Marshal(out)
		if err != nil || !utf8.Valid(text) {
			t.Fatalf("not JSON: %v", err)
		}
		for _, e := range out.Evidence {
			if !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value) {
				t.Errorf("not UTF-8: %+q", [2]string{e.Key, e.Value})
			}
		}
		named, blocked, partial := 0, 0, 0
		for _, token := range out.Tokens {
			switch token.Verdict {
			case "blocked":
				blocked++
			case "partial":
				partial++
			}
			if token.Via == "own" {
				named++
			}
		}
		r := &s.Report
		if named != len(r.Named) || blocked != len(r.Blocked) || partial != len(r.Partial) {
			t.Errorf("named %d, blocked %d, partial %d; the report has %d, %d, %d", named, blocked, partial, len(r.Named),
				len(r.Blocked), len(r.Partial))
		}
		n := r.Counts
		rows := [NumKinds]int{}
		for _, e := range r.Evidence {
			rows[e.Kind]++
		}
		totals := map[Kind]int{KindSitemap: n.Sitemaps, KindLegacy: n.Legacy, KindOrphan: n.Orphan, KindTypo: n.Typo}
		if !r.IsHTML {
			totals[KindInvalid], totals[KindUnknown] = n.Invalid, n.Unknown
		}
		for kind, total := range totals {
			if rows[kind] != min(total, MaxEvidenceRows) {
				t.Errorf("%v: %d rows of %d", kind, rows[kind], total)
			}
		}
		if kept := rows[KindExtension] + rows[KindSignal] + rows[KindUsage] + rows[KindLicense]; kept > n.Extensions ||
			n.Extensions <= MaxEvidenceRows && kept != n.Extensions {
			t.Errorf("extensions: %d rows of %d", kept, n.Extensions)
		}
		compare(t, s, body)
	})
}
