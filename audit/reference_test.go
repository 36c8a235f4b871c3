package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// The reference computes a second time, as plainly as possible, what a body means for crawlers. It shares no code with
// parser and audit, except types of results and the registry's rows.
//
// reference_lines_test.go reads lines, records, groups and names; reference_rules_test.go matches rules;
// reference_values_test.go reads extension records of agents; reference_site_test.go judges a site. This file has the
// tests that compare all of it with Judge: on single cases, on random files, and on all real bodies.

// corpora are the packs of real bodies.
var corpora = []string{"mix12k", "typical12k", "modern-ai"}

// reportedRows are the rows of a Report.
func reportedRows(r *Report) (rows []verdictRow) {
	for _, v := range r.Verdicts {
		rows = append(rows, verdictRow{
			string(v.Token), v.ID, v.Lenient, v.Via, v.Decision, v.RootAllowed, v.NAllow, v.NDisallow, v.HasDisallowRoot, v.DPI,
			v.Line,
			plainValues{v.CrawlDelay, v.RequestRate, v.HasCrawlDelay, int(v.Visit.From), int(v.Visit.To), v.HasVisit,
				string(v.ContentSignal), v.ContentUsage.String()},
		})
	}
	return rows
}

// reportedDefinitions computes the six definitions from a Report for every registry token, like queries do: from its
// lists, and from the token's row or, if there is none, from that of `*`.
func reportedDefinitions(s *Site) []definitions {
	r, all := &s.Report, make([]definitions, len(tokens.Default().Tokens))
	set := func(list []uint16, mark func(*definitions)) {
		for _, id := range list {
			mark(&all[id])
		}
	}
	for id := range all {
		all[id].dpiAll = len(r.Verdicts) > 0 && r.Verdicts[0].DPI == DPIAll
		all[id].rfcEffective = s.Fetch.Status != 0 && r.Access == parser.AccessFullDisallow
	}
	for _, v := range r.Verdicts {
		if v.ID >= 0 && !v.Lenient {
			all[v.ID].dpiAll = v.DPI == DPIAll
			all[v.ID].explicitRoot = v.Via == ViaOwn && !v.RootAllowed
		}
	}
	set(r.Named, func(d *definitions) { d.mention = true })
	set(r.Partial, func(d *definitions) { d.any = true })
	set(r.Blocked, func(d *definitions) { d.full, d.any, d.rfcEffective = true, true, s.Fetch.Status != 0 })
	return all
}

// differences judges the site and compares everything with the reference. It returns "" if they agree.
func differences(s *Site) string {
	Judge(s)
	var text strings.Builder
	differ := func(what string, got, want any) {
		fmt.Fprintf(&text, "%s:\n got %+v\nwant %+v\n", what, got, want)
	}
	r, p := &s.Report, newPlainSite(&s.Fetch)
	if r.Access != p.access {
		differ("access", r.Access, p.access)
	}
	named, blocked, partial := p.tokenLists()
	if !slices.Equal(r.Named, named) {
		differ("named", r.Named, named)
	}
	if !slices.Equal(r.Blocked, blocked) {
		differ("blocked", r.Blocked, blocked)
	}
	if !slices.Equal(r.Partial, partial) {
		differ("partial", r.Partial, partial)
	}
	for id, got := range reportedDefinitions(s) {
		if want := p.definitions(plainRegistry().crawlers[id]); got != want {
			differ("definitions of "+tokens.Default().Tokens[id].Name, got, want)
		}
	}
	compareRows(reportedRows(r), p.rows(), differ)
	if len(r.Verdicts) > 0 && (r.Star != r.Verdicts[0].Decision || string(r.Verdicts[0].Token) != "*") {
		differ("star", r.Star, r.Verdicts[0])
	}
	return text.String()
}

// compareRows compares rows in any order.
func compareRows(got, want []verdictRow, differ func(what string, got, want any)) {
	byToken := func(a, b verdictRow) int {
		return cmp.Or(strings.Compare(a.token, b.token), strings.Compare(fmt.Sprint(a.lenient), fmt.Sprint(b.lenient)))
	}
	slices.SortStableFunc(got, byToken)
	slices.SortStableFunc(want, byToken)
	if slices.Equal(got, want) {
		return
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			differ("row of "+row.token, row, "none such")
		}
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			differ("row of "+row.token, "none such", row)
		}
	}
	if len(got) != len(want) {
		differ("number of rows", len(got), len(want))
	}
}

// answer sets the site's answer to the body.
func answer(s *Site, body []byte) {
	s.Reset()
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.Answered, 200, body
}

// compare judges a body, reports whether the reference agrees, and fails if it does not.
func compare(t *testing.T, s *Site, body []byte) (agree bool) {
	t.Helper()
	answer(s, body)
	if differences(s) == "" {
		return true
	}
	least, text := shortest(body)
	t.Errorf("%.300q, of which this is enough:\n%.2000q\n%.5000s", body, least, text)
	return false
}

// shortest drops lines from a body as long as Judge and the reference still differ. It returns the rest and the
// differences.
func shortest(body []byte) (least []byte, text string) {
	s := new(Site)
	differ := func(lines [][]byte) bool {
		answer(s, bytes.Join(lines, nil))
		return differences(s) != ""
	}
	lines := bytes.SplitAfter(body, []byte("\n"))
	for size := len(lines) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(lines); {
			if fewer := slices.Concat(lines[:from], lines[from+size:]); differ(fewer) {
				lines = fewer
			} else {
				from += size
			}
		}
	}
	least = bytes.Join(lines, nil)
	answer(s, least)
	return least, differences(s)
}

// TestDefinitions has the result of each definition for small files, in the order above.
func TestDefinitions(t *testing.T) {
	f := func(text, token string, want definitions) {
		t.Helper()
		s, id := new(Site), tokens.Default().Lookup(token)
		compare(t, s, []byte(lines(text)))
		if got := reportedDefinitions(s)[id]; got != want {
			t.Errorf("%q, %s:\n got %+v\nwant %+v", text, token, got, want)
		}
	}
	nothing := definitions{}
	all := definitions{true, true, true, true, true, true}
	allButDPI := definitions{mention: true, explicitRoot: true, full: true, any: true, rfcEffective: true}
	named := definitions{mention: true}
	partly := definitions{mention: true, any: true}
	root := definitions{mention: true, explicitRoot: true, any: true}
	byOther := definitions{full: true, any: true, dpiAll: true, rfcEffective: true}
	someByOther := definitions{any: true}

	// Own groups, those of `*`, none.
	f("", "GPTBot", nothing)
	f("ua: GPTBot | d: /", "GPTBot", all)
	f("ua: GPTBot | d: /", "CCBot", nothing)
	f("ua: GPTBot | d:", "GPTBot", named)
	f("ua: GPTBot", "GPTBot", named)
	f("ua: GPTBot | d: /x", "GPTBot", partly)
	f("ua: * | d: /", "GPTBot", byOther)
	f("ua: * | d: /x", "GPTBot", someByOther)
	f("ua: * | d: / | ua: GPTBot", "GPTBot", named)
	f("d: / | ua: GPTBot", "GPTBot", named) // an orphan
	f("ua: GPTBot | d: /x | ua: x | d: | ua: gptbot | d: /", "GPTBot", all)
	f("ua: GPTBot | ua: CCBot | Sitemap: x | d: /", "GPTBot", all)
	f("ua: GPTBot | d: | ua: CCBot | d: /", "GPTBot", named) // an empty rule ends the list of agents
	f("ua: GPTBot | x: y | ua: CCBot | d: /", "GPTBot", all) // an unknown record does not

	// Cases in which definitions differ.
	f("ua: GPTBot | d: / | a: /robots.txt", "GPTBot", root)
	f("ua: GPTBot | d: / | a:", "GPTBot", allButDPI)
	f("ua: GPTBot | a: | d: /", "GPTBot", allButDPI)
	f("ua: GPTBot | d: /*", "GPTBot", allButDPI)
	f("ua: GPTBot | d: *", "GPTBot", allButDPI)
	f("ua: GPTBot | d: /$", "GPTBot", root)
	f("ua: GPTBot | d: / | a: /$", "GPTBot", partly)
	f("ua: GPTBot | d: / | a: /", "GPTBot", named) // allow wins a tie
	f("ua: GPTBot | d: /x | a: /x", "GPTBot", named)
	f("ua: GPTBot | d: /* | a: /", "GPTBot", allButDPI) // a `*` counts an octet
	f("ua: GPTBot | a: /$ | d: /*", "GPTBot", partly)
	f("ua: GPTBot | d: /a$b", "GPTBot", partly) // a literal `$`
	f("ua: GPTBot | d: /a$", "GPTBot", partly)
	f("ua: GPTBot | d: /é%c3", "GPTBot", partly)
	f("ua: GPTBot | d: /é | a: /%C3%a9", "GPTBot", named) // both are /%C3%A9
	f("ua: GPTBot | d: /é | a: /*A9", "GPTBot", partly)   // of seven octets
	f("ua: GPTBot | d: /%a | a: /%A", "GPTBot", partly)   // no escapes
	f("ua: GPTBot | d: x", "GPTBot", named)               // matches nothing
	f("ua: GPTBot | d: / | a: x", "GPTBot", allButDPI)
	f("ua: GPTBot | d: /*a*b | a: /ab*** | d: acb", "GPTBot", named) // and names no path
	f("ua: GPTBot | d: https://example.com/", "GPTBot", named)

	// A query string hides a rule only from the Data Provenance Initiative.
	f("ua: GPTBot | d: / | a: /?x", "GPTBot", definitions{mention: true, explicitRoot: true, any: true, dpiAll: true})
	f("ua: GPTBot | a: / | d: /*?", "GPTBot", partly)
	f("ua: GPTBot | d: /? | d: /", "GPTBot", all)
	f("ua: GPTBot | d: /?", "GPTBot", partly)

	// Google's code reads `/index.html` of an allow as its folder, too.
	f("ua: GPTBot | d: / | a: /index.html", "GPTBot", partly)
	f("ua: GPTBot | d: / | a: /a/index.htm", "GPTBot", root)
	f("ua: GPTBot | d: / | a: /index.php", "GPTBot", root)
	f("ua: GPTBot | d: /index.html", "GPTBot", partly)

	// Tokens that ignore `*` inherit its rules only by the Data Provenance Initiative.
	f("ua: * | d: /", "AdsBot-Google", definitions{dpiAll: true})
	f("ua: * | d: /x", "AdsBot-Google", nothing)
	f("ua: * | d: / | a:", "AdsBot-Google", nothing)
	f("ua: * | d: / | ua: AdsBot-Google | d: /x", "AdsBot-Google", partly)
	f("ua: * | d: / | ua: AdsBot-Google", "AdsBot-Google", named)
	f("ua: * | ua: AdsBot-Google | d: /", "AdsBot-Google", all)
	f("ua: Googlebot | d: /", "AdsBot-Google", nothing)

	// Fallbacks: the first name of the chain with a group.
	f("ua: Googlebot | d: /", "Googlebot-News", byOther)
	f("ua: Googlebot | d: /x | ua: * | d: /", "Googlebot-News", someByOther)
	f("ua: Googlebot | ua: * | d: / | ua: Googlebot-News", "Googlebot-News", named)
	f("ua: Googlebot-News | d: /", "Googlebot", nothing)
	f("ua: Googlebot | ua: * | d: / | ua: Googlebot | a: /x", "Googlebot-News", someByOther)
	f("ua: msnbot | d: / | ua: *", "bingbot", byOther)
	f("ua: Googlebot | d: / | ua: *", "Applebot", byOther)

	// Names that the strict reading does not find do not count: `*` is followed.
	f("ua: MJ12bot | d: /", "MJ12bot", nothing)
	f("ua: MJ12bot | d: | ua: * | d: /", "MJ12bot", byOther)
	f("ua: MJ12bot/1.4 | d: / | ua: *", "MJ12bot", nothing)
	f("ua: MJ12bot v1.4 | d: / | ua: MJ | d: /x", "MJ12bot", nothing)
	f("ua: MJ | ua: MJ12bot | d: / | ua: MJ12bot | d: /x", "MJ12bot", nothing)
	f("ua: Screaming Frog SEO Spider | d: /", "Screaming Frog SEO Spider", nothing)
	f("ua: Yahoo! Slurp | d: /", "Slurp", nothing)
	f("ua: Terra Cotta | d: / | ua: TerraCotta | d: /x", "TerraCotta", partly)
	f("ua: Terra Cotta | ua: TerraCotta | d: / | ua: Terra Cotta | d: /x", "TerraCotta", all)
	f("ua: GPTBot/1.2 (+https://openai.com/gptbot) | d: /", "GPTBot", all)
	f("ua: GPTBot* | d: /", "GPTBot", all)
	f("ua: *GPTBot | d: /", "GPTBot", nothing)
	f("ua: GPTBot2 | d: /", "GPTBot", all)
	f("ua: XGPTBot | d: /", "GPTBot", nothing)
	f("ua: * GPTBot | d: /", "GPTBot", byOther)

	// Lines as in real files.
	f("\xEF\xBB\xBFUser-agent: GPTBot\nDisallow: /", "GPTBot", all)
	f("\xEF\xBBUser-agent: GPTBot\nDisallow: /", "GPTBot", all)
	f("\xEF\xBB\xBF\xEF\xBB\xBFUser-agent: GPTBot\nDisallow: /", "GPTBot", nothing)
	f("User-agent: GPTBot\rDisallow: /\r", "GPTBot", all)
	f("User-agent: GPTBot\r\n\r\nDisallow: / # all of it", "GPTBot", all)
	f("User-agent: GPTBot\r\r\nDisallow: /", "GPTBot", all)
	f("User-agent: GPTBot\vDisallow: /", "GPTBot", named)
	f("User-agent: GPTBot\x00x\nDisallow: /\x00x", "GPTBot", all)
	f("User-agent: GPTBot # \rDisallow: /", "GPTBot", all)
	f("#"+strings.Repeat(" ", 16_662)+"\rUser-agent: GPTBot\nDisallow: /", "GPTBot", all)
	f(strings.Repeat(" ", 16_663)+"User-agent: GPTBot\nDisallow: /", "GPTBot", nothing)
	f("ua: GPTBot | d: /"+strings.Repeat("x", 16_653)+"y", "GPTBot", partly)
	for _, key := range []string{"dissallow", "dissalow", "disalow", "diasllow", "disallaw", "disallowed", "Disallow ",
		"DISALLOW"} {
		f("ua: GPTBot | "+key+": /", "GPTBot", all)
	}
	for _, key := range []string{"useragent", "user agent", "User-agents", "USER-AGENT", "Useragent-x"} {
		f(key+": GPTBot | d: /", "GPTBot", all)
	}
	for _, key := range []string{"users-agent", "user_agent", "user  agent", "agent", "x-user-agent"} {
		f(key+": GPTBot | d: /", "GPTBot", nothing)
	}
	f("User-agent GPTBot | Disallow /", "GPTBot", all)
	f("User-agent GPTBot | Disallow / all", "GPTBot", named)
	f("ua: GPTBot | diallow: /", "GPTBot", named)
	f("ua: GPTBot | alow: / | d: /", "GPTBot", all)
	f("ua: GPTBot | allows: / | d: /", "GPTBot", named)
	f("User-agent : GPTBot\n\tDISALLOW\t:\t/\t", "GPTBot", all)
}

// TestDefinitionsByStatus checks answers without a file: the row of `*` as `verdict via`, and the result of each
// definition for GPTBot.
func TestDefinitionsByStatus(t *testing.T) {
	f := func(outcome exchange.Outcome, status int, star string, want definitions) {
		t.Helper()
		s := new(Site)
		s.Fetch.Outcome, s.Fetch.Status = outcome, status
		s.Fetch.Body = []byte("User-agent: GPTBot\nDisallow: /\n")
		if text := differences(s); text != "" {
			t.Errorf("%v %d: %s", outcome, status, text)
		}
		got := "no row"
		if rows := s.Report.Verdicts; len(rows) > 0 {
			got = fmt.Sprintf("%v %v", rows[0].Decision, rows[0].Via)
		}
		if got != star {
			t.Errorf("%v %d: %s, want %s", outcome, status, got, star)
		}
		for id, got := range reportedDefinitions(s) {
			// A file in force names only GPTBot. Without one, all crawlers have the same verdict.
			want := want
			if want.mention && tokens.Default().Tokens[id].Name != "GPTBot" {
				want = definitions{}
			}
			if got != want {
				t.Errorf("%v %d, %s:\n got %+v\nwant %+v", outcome, status, tokens.Default().Tokens[id].Name, got, want)
			}
		}
	}
	nothing := definitions{}
	failing := definitions{rfcEffective: true}
	all := definitions{true, true, true, true, true, true}
	for _, status := range []int{200, 203, 206, 299} {
		f(exchange.Answered, status, "allowed none", all)
	}
	for _, status := range []int{300, 304, 400, 401, 403, 404, 410, 429, 451, 499} {
		f(exchange.Answered, status, "allowed http", nothing)
	}
	for _, status := range []int{100, 199, 500, 503, 599, 600, 999} {
		f(exchange.Answered, status, "blocked http", failing)
	}
	f(exchange.RedirectLimit, 301, "allowed http", nothing)
	f(exchange.RedirectInvalid, 302, "allowed http", nothing)

	// An unreachable site blocks and has no policy. An answer that broke off after its status has a policy. Without a
	// request nothing is known.
	for _, outcome := range exchange.Outcomes() {
		switch {
		case !outcome.Asked():
			f(outcome, 0, "no row", nothing)
		case outcome != exchange.Answered && outcome != exchange.RedirectLimit && outcome != exchange.RedirectInvalid:
			f(outcome, 0, "blocked http", nothing)
			f(outcome, 200, "blocked http", failing)
		}
	}
	f(0, 0, "no row", nothing)
}

// TestDefinitionsOnInventions compares random files of lines that are hard to read.
func TestDefinitionsOnInventions(t *testing.T) {
	chance := rand.New(rand.NewPCG(9309, 1))
	one := func(of ...string) string { return of[chance.IntN(len(of))] }
	agent := func() string {
		return one("*", "* x", "*x", "", "GPTBot", "gptbot/1.2", "Googlebot", "Googlebot-News", "msnbot", "bingbot",
			"AdsBot-Google",
			"__usage_train", "MJ12bot", "MJ12bot/1", "mj12bot v1", "MJ", "Yahoo! Slurp", "slurp", "Terra Cotta", "TerraCotta x",
			"FooBot", "foobot 2", "2bot", "Linguee",
			"Linguee Bot")
	}
	value := func() (text string) {
		for range chance.IntN(4) {
			text += one("/", "/", "*", "$", "?", "a", "b", "é", "%c3%A9", "%C3%a9", "%a", "/index.html")
		}
		return one("/", "/", "/", "*", "", "x") + text
	}
	line := func() string {
		switch chance.IntN(8) {
		case 0, 1, 2:
			return one("User-agent:", "User-agent:", "useragent :", "user agent:", "User-agent ", "users-agent:") + agent()
		case 3, 4:
			return one("Allow: ", "allows:", "Allow ") + value()
		case 5, 6:
			return one("Disallow:", "DISALLOW : ", "disalow:", "dissallow:", "Disallow\t", "diallow:") + value()
		}
		return one("", " # Disallow: /", "Sitemap: https://example.com/", "x:y", "x", "Disallow: /\x00a", "Crawl-delay: 1",
			"crawl-delay:x", "Crawl-delay:", "Crawl-delay 2", "Request-rate: 1/5", "Request-rate: 2 / 1m",
			"Visit-time:0600-0845", "Visit-time: 2300-2400", "Content-Signal: ai-train=no", "Content-Signal: search=yes, x",
			"Content-Signal: search=maybe", "Content-Signal: ai-train=yes,search=no",
			"Content-Signal: / ai-train=yes, colour=red", "Content-Signal: /a search=no",
			"Content-Signal: /* use=full, use=immediate", "Content-Signal: use=reference,,",
			"Content-Signal: /$ search=yes, Colour=blue", "content-signal: \"search=yes\"",
			"DisallowAITraining: /", "allowaitraining /", "Content-Usage: train-ai=n", "Content-Usage: train-ai=y,search=n",
			"Content-Usage: / search=y",
			"Content-Usage: /* search=n, train-ai=y", "Content-Usage: /a train-ai=n", "content-usage:/$ a=b",
			"Content-Usage: train-ai=",
			"Content-Usage: train-ai=y, train-ai=maybe", "Content-Usage:") + one("", " # x")
	}
	s, n := new(Site), 20_000
	if testing.Short() || underRace {
		n /= 10
	}
	for range n {
		body := one("", "", "", "\xEF\xBB\xBF", "\xEF")
		for range 1 + chance.IntN(10) {
			body += line() + one("\n", "\n", "\n", "\r\n", "\r")
		}
		if !compare(t, s, []byte(body)) {
			return
		}
	}
}

// TestDefinitionsOnCorpora compares every token and every row of all real bodies, or of a tenth of them in short mode.
func TestDefinitionsOnCorpora(t *testing.T) {
	for _, corpus := range corpora {
		t.Run(corpus, func(t *testing.T) {
			bodies := sharedtest.Bodies(t, corpus)
			step := int64(1)
			if testing.Short() || underRace {
				step = 10
			}
			var next, compared, differing atomic.Int64
			var workers sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				workers.Go(func() {
					for s := new(Site); differing.Load() == 0; {
						i := (next.Add(1) - 1) * step
						if i >= int64(len(bodies)) {
							return
						}
						if !compare(t, s, bodies[i]) {
							differing.Add(1)
						}
						compared.Add(1)
					}
				})
			}
			workers.Wait()
			if all := (int64(len(bodies)) + step - 1) / step; compared.Load() != all && !t.Failed() {
				t.Errorf("%d bodies were compared of %d", compared.Load(), all)
			}
		})
	}
}
