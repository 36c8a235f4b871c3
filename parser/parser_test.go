package parser_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// TestRecords checks what a File keeps of each line: line, group, key, flags, texts.
func TestRecords(t *testing.T) {
	f := func(d parser.Dialect, body string, want ...string) {
		t.Helper()
		var file parser.File
		file.ParseDialect([]byte(body), d)
		var got []string
		for i := range file.Records() {
			r := file.Record(i)
			var flags string
			for bit, name := range map[parser.Flags]string{parser.FlagTypo: "T", parser.FlagOrphan: "O"} {
				if r.Flags&bit != 0 {
					flags += name
				}
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("%d %d %v %q %q %s", r.Line, r.Group, r.Key, r.KeyText, r.Value,
				flags)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q in %v:\n%s\nwant\n%s", body, d, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f(parser.Google, "")
	f(parser.Google, " \n\t# c\n")
	f(parser.Google, "User-Agent : a b # c", `1 0 user-agent "User-Agent" "a b"`)
	f(parser.Google, "Disallow: /\nuser-agent:a\nDisallow:\nuser-agent:b", `1 -1 disallow "Disallow" "/" O`,
		`2 0 user-agent "user-agent" "a"`, `3 0 disallow "Disallow" ""`, `4 1 user-agent "user-agent" "b"`)
	f(parser.Google, "user-agent:a\nSitemap: x\nuser-agent:b", `1 0 user-agent "user-agent" "a"`,
		`2 0 sitemap "Sitemap" "x"`, `3 0 user-agent "user-agent" "b"`)
	f(parser.Google, "Useragent: a", `1 0 user-agent "Useragent" "a" T`)
	f(parser.RFC, "Useragent: a", `1 -1 unknown "Useragent" "a"`)
	f(parser.Google, "user-agent \t a", `1 0 user-agent "user-agent" "a" T`)
	f(parser.RFC, "user-agent a\nDisallow /", `1 0 user-agent "user-agent" "a" T`, `2 0 disallow "Disallow" "/" T`)
	f(parser.RFC, "useragent a\nuser-agent a b", `1 -1 none "useragent a" ""`, `2 -1 none "user-agent a b" ""`)
	f(parser.Google, "Crawl-delay 10", `1 -1 crawl-delay "Crawl-delay" "10" T`)
	f(parser.Google, "hello world", `1 -1 none "hello world" ""`)
	f(parser.Google, "sitemaps: x", `1 -1 sitemap "sitemaps" "x" T`)
	f(parser.Google, "Sitemap https://x", `1 -1 sitemap "Sitemap https" "//x" T`)
	f(parser.RFC, "Sitemap https://x", `1 -1 unknown "Sitemap https" "//x"`)
	f(parser.Google, "crawl-delays: 1", `1 -1 unknown "crawl-delays" "1"`)
	f(parser.Google, "users-agent: 1\ndiallow: 2", `1 -1 unknown "users-agent" "1"`, `2 -1 unknown "diallow" "2"`)
	f(parser.Google, " : x", `1 -1 none ": x" ""`)
	f(parser.Google, "a:", `1 -1 unknown "a" ""`)
	f(parser.Google, "<a href=\"http://x\">", `1 -1 unknown "<a href=\"http" "//x\">"`)
	f(parser.Google, "NoIndex:/a\rnofollow:/b\r\nNoarchive: /c", `1 -1 noindex "NoIndex" "/a"`,
		`2 -1 nofollow "nofollow" "/b"`, `3 -1 noarchive "Noarchive" "/c"`)
	f(parser.Google,
		"Request-rate: 1/5\nVisit-time: 1\nHost: h\nClean-param: p\nContent-Signal: s\nIndexNow-Key: k\nContent-Usage: u\nLicense: l\nRevisit-After: r\nDomain: d",
		`1 -1 request-rate "Request-rate" "1/5"`, `2 -1 visit-time "Visit-time" "1"`, `3 -1 host "Host" "h"`,
		`4 -1 clean-param "Clean-param" "p"`,
		`5 -1 content-signal "Content-Signal" "s"`, `6 -1 indexnow-key "IndexNow-Key" "k"`,
		`7 -1 content-usage "Content-Usage" "u"`,
		`8 -1 license "License" "l"`, `9 -1 revisit-after "Revisit-After" "r"`, `10 -1 domain "Domain" "d"`)
	f(parser.Google, "Schemamap: s\nschemamaps: s", `1 -1 schemamap "Schemamap" "s"`, `2 -1 unknown "schemamaps" "s"`)
	const usage = "user-agent: a\nDisallowAITraining: /\nallowaitraining /b\nuser-agent: b\nDisallowAITrainings: /c\nAllowAI: /d"
	f(parser.Google, usage, `1 0 user-agent "user-agent" "a"`, `2 0 disallowaitraining "DisallowAITraining" "/"`,
		`3 0 allowaitraining "allowaitraining" "/b" T`,
		`4 0 user-agent "user-agent" "b"`, `5 0 disallow "DisallowAITrainings" "/c" T`, `6 0 allow "AllowAI" "/d" T`)
	f(parser.GoogleExact, usage, `1 0 user-agent "user-agent" "a"`, `2 0 disallow "DisallowAITraining" "/" T`,
		`3 0 allow "allowaitraining" "/b" T`,
		`4 1 user-agent "user-agent" "b"`, `5 1 disallow "DisallowAITrainings" "/c" T`, `6 1 allow "AllowAI" "/d" T`)
	f(parser.RFC, usage, `1 0 user-agent "user-agent" "a"`, `2 0 disallowaitraining "DisallowAITraining" "/"`,
		`3 0 allowaitraining "allowaitraining" "/b" T`,
		`4 0 user-agent "user-agent" "b"`, `5 0 unknown "DisallowAITrainings" "/c"`, `6 0 unknown "AllowAI" "/d"`)
}

// TestLineKinds checks the Scanner's kinds of lines, and the number of lines.
func TestLineKinds(t *testing.T) {
	f := func(body string, want ...parser.LineKind) {
		t.Helper()
		scanner := parser.NewScanner([]byte(body), parser.Google)
		var got []parser.LineKind
		for scanner.Next() {
			got = append(got, scanner.Line().Kind)
		}
		var file parser.File
		if file.Parse([]byte(body)); file.Lines() != len(want) || !slices.Equal(got, want) {
			t.Errorf("%q: %v in %d lines, want %v", body, got, file.Lines(), want)
		}
	}
	f("")
	f("\n", parser.LineBlank)
	f("\r\n \r\r\n", parser.LineBlank, parser.LineBlank, parser.LineBlank)
	f("\xEF\xBB\xBF", parser.LineBlank)
	f(" # x\n#\x00", parser.LineComment, parser.LineComment)
	f("\x00# x", parser.LineBlank)
	f("Disallow: /\nUser-agent: a\nDisallow: /", parser.LineOrphan, parser.LineCore, parser.LineCore)
	f("Disalow: /\nUseragent: a\nDisalow: /", parser.LineOrphan, parser.LineTypo, parser.LineTypo)
	f("Sitemap: a\nNoindex: /\nFoo: bar\nfoo", parser.LineExtension, parser.LineLegacy, parser.LineUnknown,
		parser.LineInvalid)
}

// TestAgents checks the names and their groups.
func TestAgents(t *testing.T) {
	f := func(d parser.Dialect, body string, want ...string) {
		t.Helper()
		var file parser.File
		file.ParseDialect([]byte(body), d)
		var got []string
		for i := range file.Agents() {
			a := file.Agent(i)
			got = append(got, fmt.Sprintf("%s %q %d %v", a.Name, a.Value, a.Line, file.AgentGroups(i)))
			if file.Find(strings.ToUpper(string(a.Name))) != i || a.Star != (i == file.Star()) ||
				a.Star != (string(a.Name) == "*") {
				t.Errorf("%q: agent %d is not found", body, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q in %v: %q, want %q", body, d, got, want)
		}
		if file.Find("") >= 0 || file.Find("nobody") >= 0 || file.Find("\u212A") >= 0 {
			t.Errorf("%q: found who is not there", body)
		}
	}
	f(parser.Google, "")
	f(parser.Google, "user-agent: \nuser-agent: 2\nuser-agent: *x")
	f(parser.Google, "user-agent: Foo/1.0 x\nUSER-AGENT: foo\nallow:\nuser-agent: *\nuser-agent: fOO*",
		`Foo "Foo/1.0 x" 1 [0 1]`, `* "*" 4 [1]`)
	f(parser.RFC, "user-agent: Foo/1.0 x\nUSER-AGENT: foo\nallow:\nuser-agent: *\nuser-agent: fOO*",
		`Foo "Foo/1.0 x" 1 [0 1]`, `* "*" 4 [1]`)
	f(parser.Google, "user-agent: * all", `* "* all" 1 [0]`)
	f(parser.RFC, "user-agent: * all")
	f(parser.Google, "user-agent: a_b\nuser-agent: a-b\nuser-agent: K", `a_b "a_b" 1 [0]`, `a-b "a-b" 2 [0]`,
		`K "K" 3 [0]`)
}

// TestManyAgents makes the table of names grow many times.
func TestManyAgents(t *testing.T) {
	const n = 20000
	var body []byte
	name := func(i int) string {
		return "bot-" + strings.Map(func(r rune) rune { return r + 'a' - '0' }, fmt.Sprint(i)) + strings.Repeat("x", i%40)
	}
	for i := range n {
		body = fmt.Appendf(body, "User-agent: %s\nDisallow: /%d\n", strings.ToUpper(name(i)), i)
	}
	var file parser.File
	file.Parse(body)
	if file.Agents() != n || file.Groups() != n {
		t.Fatalf("%d agents in %d groups", file.Agents(), file.Groups())
	}
	for i := range n {
		if d := file.Decide(name(i), fmt.Appendf(nil, "/%d", i)); d.Allow || d.Line != 2*i+2 || d.Agent != i {
			t.Fatalf("agent %d: %+v", i, d)
		}
	}
	file.Parse([]byte("user-agent: a"))
	if file.Find(name(7)) >= 0 || file.Find("A") != 0 {
		t.Error("the table of the body before is still in use")
	}
}

// TestSurvey checks the verdict on files for `a`.
func TestSurvey(t *testing.T) {
	f := func(rules string, want parser.SiteVerdict, rootAllowed bool, nAllow, nDisallow int) {
		t.Helper()
		var file parser.File
		for _, d := range dialects {
			file.ParseDialect([]byte("user-agent: a\n"+strings.ReplaceAll(rules, " ", "\n")), d)
			s := file.Survey(file.AgentGroups(0))
			if s.Verdict != want || s.RootAllowed != rootAllowed || s.NAllow != nAllow || s.NDisallow != nDisallow || s.Limited {
				t.Errorf("%q in %v: %+v, want %v, root %v, %d allow, %d disallow", rules, d, s, want, rootAllowed, nAllow,
					nDisallow)
			}
		}
	}
	f("", parser.SiteAllowed, true, 0, 0)
	f("disallow: allow:", parser.SiteAllowed, true, 1, 1)
	f("disallow:fish disallow:https://x/", parser.SiteAllowed, true, 0, 2)
	f("allow:/a allow:/b", parser.SiteAllowed, true, 2, 0)
	f("disallow:/", parser.SiteBlocked, false, 0, 1)
	f("disallow:*", parser.SiteBlocked, false, 0, 1)
	f("disallow:/ disallow:/a disallow:/b$", parser.SiteBlocked, false, 0, 3)
	f("disallow:/ allow:", parser.SiteBlocked, false, 1, 1)
	f("disallow:/ allow:b", parser.SiteBlocked, false, 1, 1)
	f("disallow:/a", parser.SitePartial, true, 0, 1)
	f("disallow:/$", parser.SitePartial, false, 0, 1)
	f("disallow:/?", parser.SitePartial, true, 0, 1)
	f("disallow:/ allow:/a", parser.SitePartial, false, 1, 1)
	f("disallow:/ allow:/$", parser.SitePartial, true, 1, 1)
	f("disallow:/ allow:/", parser.SiteAllowed, true, 1, 1)
	f("disallow:/a allow:/a", parser.SiteAllowed, true, 1, 1)
	f("disallow:/a allow:/", parser.SitePartial, true, 1, 1)
	f("disallow:/* allow:/a$ disallow:/a*$", parser.SiteBlocked, false, 1, 2)
	f("disallow:/dummy-testing-path-54321", parser.SitePartial, true, 0, 1)
	f("disallow:/ allow:/dummy", parser.SitePartial, false, 1, 1)

	g := func(rules string, root, allow, disallow bool) {
		t.Helper()
		var file parser.File
		file.Parse([]byte("user-agent: a\n" + strings.ReplaceAll(rules, " ", "\n")))
		s := file.Survey(file.AgentGroups(0))
		if s.HasDisallowRoot != root || s.PlainAllow != allow || s.PlainDisallow != disallow {
			t.Errorf("%q: %+v, want root %v, without ? %v and %v", rules, s, root, allow, disallow)
		}
	}
	g("disallow:/ allow:/?a disallow:/?b", true, false, true)
	g("disallow:/* allow:", false, true, true)
	g("disallow: disallow:/$ allow:/ allow:/x", false, true, true)
	g("disallow: disallow:/?a", false, false, false)
}

// TestSurveyRFCRobots: in the RFC dialect /robots.txt is always allowed, so no rule names it.
func TestSurveyRFCRobots(t *testing.T) {
	f := func(d parser.Dialect, rules string, want parser.SiteVerdict) {
		t.Helper()
		var file parser.File
		file.ParseDialect([]byte("user-agent: a\n"+rules), d)
		if s := file.Survey(file.AgentGroups(0)); s.Verdict != want {
			t.Errorf("%v %q: %v, want %v", d, rules, s.Verdict, want)
		}
	}
	f(parser.Google, "disallow: /robots.txt", parser.SitePartial)
	f(parser.RFC, "disallow: /robots.txt", parser.SiteAllowed)
	f(parser.RFC, "disallow: /\ndisallow: /robots.txt", parser.SiteBlocked)
	f(parser.RFC, "disallow: /robots%2Etxt", parser.SiteAllowed)
	// Without its `*` a value may name a path that it does not match: /%4*1 names /A, /%e*9 names /%E9.
	f(parser.RFC, "disallow: /%4*1", parser.SiteAllowed)
	f(parser.RFC, "disallow: /%e*9", parser.SiteAllowed)
	f(parser.RFC, "disallow: /$\ndisallow: /dummy\ndisallow: /%4*1", parser.SitePartial)
	f(parser.Google, "disallow: /$\ndisallow: /dummy\ndisallow: /%4*1", parser.SiteBlocked)
	// With `*` it may match other paths, too, and override a rule or be overridden there.
	f(parser.RFC, "disallow: *robots.txt**\nallow: /xrobots.txt", parser.SitePartial)
	f(parser.RFC, "disallow: /\ndisallow: /xrobots.txt\nallow: *robots.txt**", parser.SitePartial)
	f(parser.RFC, "disallow: /xrobots.txt\nallow: *robots.txt**", parser.SiteAllowed)
}

// TestRFCRobotsEscaped: both sides are normalised, so /robots.txt may be spelled with escapes.
func TestRFCRobotsEscaped(t *testing.T) {
	var file parser.File
	file.ParseDialect([]byte("user-agent: *\ndisallow: /"), parser.RFC)
	for path, want := range map[string]bool{"/robots.txt": true, "/robots%2Etxt": true, "/%72obots.txt": true,
		"/robots%2etxt/": false, "/Robots.txt": false} {
		if got := file.Decide("a", []byte(path)); got.Allow != want || got.Exempt() != want {
			t.Errorf("%s: %+v, want %v", path, got, want)
		}
	}
}

// TestSurveyBound: 47,000 rules, none of whose paths differs from `/`, reach the bound, and the Survey is Limited.
func TestSurveyBound(t *testing.T) {
	body := []byte("user-agent: a\ndisallow: /\n")
	for i := range 23500 {
		body = fmt.Appendf(body, "allow: /%d/\ndisallow: /%d/*\n", i, i)
	}
	var file parser.File
	file.Parse(body)
	s := file.Survey(file.AgentGroups(0))
	if s.Verdict != parser.SitePartial || !s.Limited || s.NAllow != 23500 || s.NDisallow != 23501 {
		t.Errorf("%+v", s)
	}
	// The deciding path is among the first that are tried.
	file.Parse(append(body, "allow: /0/x\n"...))
	if s := file.Survey(file.AgentGroups(0)); s.Verdict != parser.SitePartial {
		t.Errorf("%+v", s)
	}
	// A new body has its own allowance.
	file.Parse([]byte("user-agent: a\ndisallow: /*\nallow: /a\ndisallow: /a*\n"))
	if s := file.Survey(file.AgentGroups(0)); s.Verdict != parser.SiteBlocked || s.Limited {
		t.Errorf("%+v", s)
	}
}

// TestSurveyVisits: many agents that share many rules reach the bound, too.
func TestSurveyVisits(t *testing.T) {
	const agents, rules = 2000, 10000
	var body []byte
	name := func(i int) string { return strings.Repeat("a", i%50) + strings.Repeat("b", i/50+1) }
	for i := range agents {
		body = fmt.Appendf(body, "user-agent:%s\n", name(i))
	}
	body = append(append(body, bytes.Repeat([]byte("allow:/\n"), rules)...), "disallow:/a\n"...)
	for i := range agents {
		body = fmt.Appendf(body, "user-agent:%s\nallow:\n", name(i))
	}
	var file parser.File
	file.Parse(body)
	limited := 0
	for i := range file.Agents() {
		if s := file.Survey(file.AgentGroups(i)); s.Verdict != parser.SitePartial {
			t.Fatalf("agent %d: %+v", i, s)
		} else if s.Limited {
			limited++
		}
	}
	if file.Agents() != agents || limited == 0 || limited == agents {
		t.Errorf("%d of %d agents limited", limited, file.Agents())
	}
}

// TestSurveyLongPaths: the cost of a long path is charged, whether it is tried first or later.
func TestSurveyLongPaths(t *testing.T) {
	f := func(d parser.Dialect, rules string) {
		t.Helper()
		const agents = 200
		name := func(i int) string { return "x" + strings.Repeat("y", i) }
		var names, own strings.Builder
		for i := range agents {
			fmt.Fprintf(&names, "user-agent:%s\n", name(i))
			fmt.Fprintf(&own, "user-agent:%s\nallow:\n", name(i))
		}
		var file parser.File
		file.ParseDialect([]byte(names.String()+rules+own.String()), d)
		limited := 0
		for i := range agents {
			if file.AgentSurvey(i).Limited {
				limited++
			}
		}
		if limited < agents*3/4 {
			t.Errorf("%v, %.30q: %d of %d are limited", d, rules, limited, agents)
		}
	}
	long := strings.Repeat("\xC3", 16000)
	f(parser.Google, "disallow:/\nallow:/"+long+"\n"+strings.Repeat("disallow:*%D\n", 30000))
	f(parser.Google, "disallow:/\nallow:/"+long+"\n"+strings.Repeat("disallow:/*ab*ab\n", 20000))
	f(parser.RFC, "disallow:/robots.txt\nallow:/robots.txt"+strings.Repeat("*", 450000)+"\n")
}

// TestAppendRulePath checks the path that a value names; "" for none.
func TestAppendRulePath(t *testing.T) {
	f := func(value, want string) {
		t.Helper()
		got, ok := parser.AppendRulePath([]byte("~"), []byte(value))
		if string(got) != "~"+want || ok != (want != "") {
			t.Errorf("AppendRulePath(%q) = %q, %v, want %q", value, got, ok, want)
		}
	}
	f("", "")
	f("a", "")
	f("?", "")
	f("/", "/")
	f("*", "/")
	f("*$", "/")
	f("/$", "/")
	f("*.gif$", "/.gif")
	f("*/a", "/a")
	f("/*a*$b*", "/a$b")
	f("/é%c3", "/%C3%A9%C3")
}

// TestAppendPath checks the path of a URL, as given and escaped.
func TestAppendPath(t *testing.T) {
	f := func(url, want, escaped string) {
		t.Helper()
		if got := string(parser.AppendPath([]byte("~"), url)); got != "~"+want {
			t.Errorf("AppendPath(%q) = %q, want %q", url, got, want)
		}
		if got := string(parser.AppendEscapedPath([]byte("\xFF"), url)); got != "\xFF"+escaped {
			t.Errorf("AppendEscapedPath(%q) = %q, want %q", url, got, escaped)
		}
	}
	f("", "/", "/")
	f("https://example.com", "/", "/")
	f("https://example.com#a/b", "/", "/")
	f("https://example.com/a/é#b", "/a/é", "/a/%C3%A9")
	f("https://example.com?q=\xFF", "/?q=\xFF", "/?q=%FF")
	f("ツ/ツ%20x", "/ツ%20x", "/%E3%83%84%20x")
	f("/x://y", "/x://y", "/x://y")
	f("//a/b", "/b", "/b")
	f("mailto:a@b", "/", "/")
}

// TestAllowsEscapes checks the package comment on octets above 0x7F and escapes in a URL.
func TestAllowsEscapes(t *testing.T) {
	f := func(d parser.Dialect, rule, url string, want bool) {
		t.Helper()
		var file parser.File
		file.ParseDialect([]byte("User-agent: a\nDisallow: "+rule), d)
		if got := file.Allows("a", url); got != want {
			t.Errorf("%v, rule %s: %s is allowed: %v, want %v", d, rule, url, got, want)
		}
	}
	for _, rule := range []string{"/é", "/%C3%A9", "/%c3%a9"} {
		f(parser.Google, rule, "https://example.com/é", false)
		f(parser.Google, rule, "/%C3%A9", false)
		f(parser.Google, rule, "/%c3%a9", true)
		f(parser.RFC, rule, "/%c3%a9", false)
	}
}

// TestNoise: lines without a known key are kept up to a bound, and all are counted; later lines are read.
func TestNoise(t *testing.T) {
	body := append(bytes.Repeat([]byte("<p>\na:b\n"), 50000), "User-agent: a\nDisallow: /x\n"...)
	var file parser.File
	file.Parse(body)
	if file.Records() != 1<<16+2 || file.Count(parser.KeyNone) != 50000 || file.Count(parser.KeyUnknown) != 50000 ||
		file.Lines() != 100002 {
		t.Errorf("%d records, %d and %d lines of noise of %d", file.Records(), file.Count(parser.KeyNone),
			file.Count(parser.KeyUnknown), file.Lines())
	}
	if d := file.Decide("a", []byte("/x")); d.Allow || d.Line != 100002 {
		t.Errorf("%+v", d)
	}
}

// TestResetGivesBack: Reset releases the memory of unusually large files of every kind.
func TestResetGivesBack(t *testing.T) {
	f := func(name, body string) {
		t.Helper()
		var file parser.File
		for _, d := range dialects {
			file.ParseDialect([]byte(body), d)
			for i := range file.Agents() {
				file.AgentSurvey(i)
				file.Decide(string(file.Agent(i).Name), []byte("/"))
			}
			file.Decide("nobody", bytes.Repeat([]byte("/"), 1<<20))
		}
		if _, most := parser.Owned(&file); most <= parser.Keep {
			t.Errorf("%s is not unusually large: %d bytes", name, most)
		}
		file.Reset()
		if sum, most := parser.Owned(&file); most > parser.Keep || sum > 1<<20 {
			t.Errorf("%s: %d bytes in one slice, %d in all are kept", name, most, sum)
		}
	}
	letters := func(i int) string {
		return strings.Map(func(r rune) rune { return r + 'a' - '0' }, fmt.Sprint(i))
	}
	var agents, groups, together strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&agents, "user-agent: %s\n", letters(i))
		fmt.Fprintf(&groups, "user-agent: %s\nuser-agent: %s\ndisallow: /a\nallow: /b\n", letters(i), letters(i/2))
		fmt.Fprintf(&together, "user-agent: %s\n%s", letters(i/4), strings.Repeat("allow:\n", i%2))
	}
	f("rules", "user-agent: a\n"+strings.Repeat("disallow: /x\n", 100000))
	f("noise", strings.Repeat("<p>\n", 100000))
	f("long value", "user-agent: *\nallow: /%C3*"+strings.Repeat("\xC3", 16000)+"\n")
	f("agents", agents.String())
	f("groups", groups.String())
	f("sets of groups", together.String())
}

// TestComplete: a million records are kept; a file with more has only Limited surveys.
func TestComplete(t *testing.T) {
	body := append([]byte("user-agent: a\n"), bytes.Repeat([]byte("allow:/\n"), parser.MaxRecords-1)...)
	f := func(body []byte, records, allow int, complete bool) {
		t.Helper()
		var file parser.File
		file.Parse(body)
		s := file.AgentSurvey(0)
		if file.Records() != records || file.Count(parser.KeyAllow) != allow || file.Complete() != complete ||
			s.Limited == complete {
			t.Errorf("%d records, %d allow, complete: %v, %+v", file.Records(), file.Count(parser.KeyAllow), file.Complete(), s)
		}
	}
	f(body, parser.MaxRecords, parser.MaxRecords-1, true)
	f(append(body, "foo: bar\n<p>\n"...), parser.MaxRecords, parser.MaxRecords-1, true)
	f(append(body, "user-agent: b\nfoo: bar\nallow /\n"...), parser.MaxRecords, parser.MaxRecords, false)
}

// TestSurveyIsShared: agents with the same groups share one survey, so that many agents do not exhaust the work.
func TestSurveyIsShared(t *testing.T) {
	var body []byte
	for i := range 1000 {
		body = fmt.Appendf(body, "user-agent: %c%c%c\n", 'a'+i/100, 'a'+i/10%10, 'a'+i%10)
	}
	for i := range 500 {
		body = fmt.Appendf(body, "allow: /%d/\ndisallow: /%d/*\n", i, i)
	}
	body = append(body, "disallow: /\n"...)
	var file parser.File
	file.Parse(body)
	for i := range file.Agents() {
		if s := file.AgentSurvey(i); s.Verdict != parser.SiteBlocked || s.Limited {
			t.Fatalf("agent %d: %+v", i, s)
		}
	}
	if s := file.Survey([]uint32{0}); s.Verdict != parser.SiteBlocked || s.Limited {
		t.Errorf("%+v", s)
	}
}

// TestReset: after Reset a File is like a new one.
func TestReset(t *testing.T) {
	var file parser.File
	check := func(when string) {
		t.Helper()
		if file.Records() != 0 || file.Agents() != 0 || file.Groups() != 0 || file.Lines() != 0 || file.HasBOM() ||
			file.Star() >= 0 ||
			file.Find("a") >= 0 || file.Count(parser.KeyAllow) != 0 || !file.Decide("a", []byte("/")).Allow ||
			!file.DecideIn(nil, nil).Allow ||
			file.Survey(nil) != (parser.Survey{RootAllowed: true}) {
			t.Errorf("%s: not empty", when)
		}
	}
	check("zero value")
	file.ParseDialect([]byte("\xEF\xBB\xBFuser-agent: *\nuser-agent: a\nallow: /b\ndisallow: /\n"), parser.RFC)
	if !file.HasBOM() || file.Dialect() != parser.RFC || file.Decide("a", nil).Allow {
		t.Error("not parsed")
	}
	file.Reset()
	check("Reset")
	if file.Dialect() != parser.Google {
		t.Error("the dialect stayed")
	}
}

// TestSurveyAfterPanic: a panic over a group that does not exist leaves no trace.
func TestSurveyAfterPanic(t *testing.T) {
	var file parser.File
	file.Parse([]byte("user-agent: a\ndisallow: /\nuser-agent: b\nallow: /"))
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			file.Survey([]uint32{7})
		}()
	}
	if got := file.Survey([]uint32{0}); got.Verdict != parser.SiteBlocked {
		t.Errorf("%+v", got)
	}
}

// TestPrefixedKeys shows which keys are read only because another one is their beginning.
func TestPrefixedKeys(t *testing.T) {
	f := func(body string, want bool) {
		t.Helper()
		var file parser.File
		file.ParseDialect([]byte(body), parser.GoogleExact)
		if record := file.Record(0); record.IsPrefixed() != want {
			t.Errorf("%q: %v", body, !want)
		}
	}
	f("allowed: /", true)
	f("Disallow-AI: /", true)
	f("DisallowAITraining: /", true)
	f("user-agents: a", true)
	f("dissallows: /", true)
	f("Sitemap https://x", true)
	f("Disallow /a: b", true)
	f("allow: /", false)
	f("dissallow: /", false)
	f("user agent: a", false)
	f("allow /", false)
	f("crawl-delays: 1", false)
	f("foo", false)
}

// TestUnknownDialect: an unknown dialect is read as Google's.
func TestUnknownDialect(t *testing.T) {
	var file parser.File
	file.ParseDialect([]byte("useragent: a\ndisalow: /index.html"), parser.Dialect(7))
	scanner := parser.NewScanner([]byte("useragent: a"), parser.Dialect(7))
	if scanner.Next(); file.Dialect() != parser.Google || file.Decide("a", []byte("/index.html")).Allow ||
		scanner.Line().Key != parser.KeyUserAgent {
		t.Error("neither dialect")
	}
}

// TestStarIsNotStale: the kept decision of `*` is that of the current body and path.
func TestStarIsNotStale(t *testing.T) {
	var file parser.File
	f := func(path string, want bool) {
		t.Helper()
		if got := file.Decide("x", []byte(path)).Allow; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	file.Parse([]byte("user-agent: *\ndisallow: /a"))
	f("/a", false)
	f("/b", true)
	f("/a", false)
	file.Parse([]byte("user-agent: *\ndisallow: /b"))
	f("/a", true)
	f("/b", false)
}

// TestNoAllocations: a File that has read bodies as large allocates nothing.
func TestNoAllocations(t *testing.T) {
	bodies := generated(200)
	for _, seed := range seeds {
		bodies = append(bodies, []byte(seed))
	}
	bodies = append(bodies, bytes.Repeat([]byte("<p class=\"x\">\n"), 5000),
		[]byte(strings.Repeat("user-agent: "+strings.Repeat("x", 300)+"\nallow: /é\n", 300)))
	var file parser.File
	path, tokens := make([]byte, 0, 256), []string{"Googlebot", "GPTBot", "a", "nobody"}
	for _, d := range dialects {
		pass := func() {
			for _, body := range bodies {
				file.Reset()
				file.ParseDialect(body, d)
				for _, token := range tokens {
					path = parser.AppendEscapedPath(path[:0], "https://example.com/wp-admin/é%61?q=*#x")
					file.Allows(token, "https://example.com/é")
					file.Decide(token, path)
					file.Decide(token, []byte("/private/index.html"))
				}
				for i := range file.Agents() {
					file.AgentSurvey(i)
					file.Survey(file.AgentGroups(i))
					parser.LenientNames(file.Agent(i).Value)
				}
				for i := range file.Records() {
					if r := file.Record(i); r.Key == parser.KeyDisallow {
						path, _ = parser.AppendRulePath(path[:0], r.Value)
					}
				}
				scanner := parser.NewScanner(body, d)
				for scanner.Next() {
				}
			}
		}
		if n := testing.AllocsPerRun(3, pass); n != 0 {
			t.Errorf("%v: %v allocations in a pass over %d bodies", d, n, len(bodies))
		}
	}
}
