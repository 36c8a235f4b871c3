package parser_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/parser"
)

// Every `go test` runs the seeds of the fuzz targets. To search further:
//
//	go test -run '^$' -fuzz FuzzParse -fuzztime 60s ./parser

// seeds are bodies, each with something unusual.
var seeds = []string{
	"",
	"User-agent: *\nDisallow: /\n",
	"\xEF\xBB\xBFUser-agent: a\r\nDisallow: /x # y\r\n\r\nSitemap: https://example.com/s.xml\r\n",
	"\xEF\xBBuser-agent a\rdisallow /\r\r\nallow: /index.html",
	"User-agent: a\x00b\nDisallow: /\x00c\nNoindex: /\n: nothing\nCrawl-delay 10\n",
	"<html>\n<body class=\"x\">a: b</body>\nDisallow: /orphan\nUser\ragent: a\nuser\x0dagent: b",
	"disallow\x1a /\nuser-agent\x1a a\nallow\x1a/\nsitemap\x1ax",
	"User-agent: googlebot/2.1\nUser-agent:\nUser-agent: *\v\nDisallow:\nAllow: /*.php$\nDisalow: /%c3%a9\xC3\xA9$",
	"Useragent: b\nSITE-MAP: x\nAllowed: /a/index.htm\nDisallow: *a*b*$\nlicense: x\nHost: y\nclean-param: z",
}

// checkScan checks that the Scanner's lines partition the body, and that their texts are parts of them.
func checkScan(t *testing.T, body []byte, d parser.Dialect) {
	t.Helper()
	scanner := parser.NewScanner(body, d)
	end, lines := 0, 0
	for scanner.Next() {
		line := scanner.Line()
		lines++
		if line.Start != end || line.End <= line.Start || line.Number != lines {
			t.Fatalf("line %d is [%d, %d) after %d: %+v", lines, line.Start, line.End, end, line)
		}
		end = line.End
		text := body[line.Start:line.End]
		if !bytes.Contains(text, line.KeyText) || !bytes.Contains(text, line.Value) {
			t.Fatalf("%q has a key %q and a value %q", text, line.KeyText, line.Value)
		}
		if empty := line.Kind == parser.LineBlank || line.Kind == parser.LineComment; empty != (len(line.KeyText) == 0) {
			t.Fatalf("%q is %v, with the key %q", text, line.Kind, line.KeyText)
		}
		if bytes.ContainsAny(line.Value, "#\n\r\x00") || bytes.ContainsAny(line.KeyText, "#\n\r\x00") {
			t.Fatalf("%q: key %q, value %q", text, line.KeyText, line.Value)
		}
	}
	if end != len(body) {
		t.Fatalf("%v: lines end at %d of %d\n%q", d, end, len(body), body)
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkScan(t, body, parser.Google)
		checkScan(t, body, parser.RFC)
	})
}

// checkParse checks that a File has the records that the Scanner sees, that its groups and agents are in range and
// consistent, and that a reused File gives the same results.
func checkParse(t *testing.T, used *parser.File, body []byte, d parser.Dialect) {
	t.Helper()
	var file parser.File
	file.ParseDialect(body, d)
	scanner := parser.NewScanner(body, d)
	lines, record := 0, 0
	for scanner.Next() {
		line := scanner.Line()
		lines++
		if line.Kind == parser.LineBlank || line.Kind == parser.LineComment {
			continue
		}
		if record >= file.Records() {
			t.Fatalf("line %d is no record: %+v", lines, line)
		}
		r := file.Record(record)
		record++
		if r.Line != line.Number || r.Key != line.Key || r.Flags != line.Flags ||
			!bytes.Equal(r.KeyText, line.KeyText) || !bytes.Equal(r.Value, line.Value) {
			t.Fatalf("%v: record %+v, line %+v\n%q", d, r, line, body)
		}
		if r.Group >= 0 {
			if start, stop := file.GroupRecords(uint32(r.Group)); record-1 < start || record-1 >= stop {
				t.Fatalf("record %d of group %d is not in [%d, %d)", record-1, r.Group, start, stop)
			}
		}
	}
	if lines != file.Lines() || record != file.Records() || !file.Complete() {
		t.Fatalf("%v: %d lines, not %d; %d records, not %d\n%q", d, lines, file.Lines(), record, file.Records(), body)
	}
	for i := range file.Agents() {
		a := file.Agent(i)
		if file.Find(string(a.Name)) != i || len(file.AgentGroups(i)) == 0 || !slices.IsSorted(file.AgentGroups(i)) ||
			!bytes.Equal(a.Name, parser.AgentName(a.Value, d)) {
			t.Fatalf("agent %q is not found, or in no group", a.Name)
		}
	}
	used.ParseDialect(body, d)
	if got, want := told(used), told(&file); got != want {
		t.Fatalf("%v: the second parse tells\n%s\nthe first\n%s\n%q", d, got, want, body)
	}
}

// told writes everything that a File says about a body.
func told(file *parser.File) string {
	var b strings.Builder
	fmt.Fprint(&b, file.Lines(), file.HasBOM(), file.Dialect(), file.Star(), file.Complete(), "\n")
	for i := range file.Records() {
		fmt.Fprintf(&b, "%+v %v\n", file.Record(i), file.Count(file.Record(i).Key))
	}
	for g := range file.Groups() {
		start, end := file.GroupRecords(uint32(g))
		fmt.Fprintf(&b, "%d-%d %+v\n", start, end, file.Survey([]uint32{uint32(g)}))
	}
	for i := range file.Agents() {
		fmt.Fprintf(&b, "%+v %v %+v\n", file.Agent(i), file.AgentGroups(i), file.AgentSurvey(i))
	}
	for _, token := range []string{"a", "googlebot", "nobody", "*"} {
		for _, path := range []string{"/", "/index.html", "/a/b", "/%c3%a9"} {
			fmt.Fprintf(&b, "%s %s %+v\n", token, path, file.Decide(token, []byte(path)))
		}
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	var used parser.File
	f.Fuzz(func(t *testing.T, body []byte) {
		checkParse(t, &used, body, parser.Google)
		checkParse(t, &used, body, parser.RFC)
	})
}

// FuzzTokens compares the names in user-agent values with those of the reference.
func FuzzTokens(f *testing.F) {
	for _, value := range []string{"", "*", "* x", "*x", "a", "A-b_C/1.0 (x)", "2bot", "MJ12bot", "AI2Bot/1.0; x",
		"Screaming Frog SEO Spider", "a;b/c d", "/x", "\u212A"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, d := range dialects {
			if got, want := strings.ToLower(string(parser.AgentName([]byte(value), d))), slowName(value, d); got != want {
				t.Errorf("%v: %q names %q, want %q", d, value, got, want)
			}
		}
		got := parser.LenientNames([]byte(value))
		for i, want := range slowLenient(value) {
			if string(got[i]) != want {
				t.Errorf("%q: lenient name %d is %q, want %q", value, i, got[i], want)
			}
		}
	})
}

// TestParseCorpus is FuzzScan and FuzzParse over some real bodies.
func TestParseCorpus(t *testing.T) {
	notUnderRace(t)
	every := 16
	if testing.Short() {
		every = 48
	}
	var used parser.File
	for i, body := range bodiesOf(t, "mix12k") {
		if i%every == 0 && len(body) < 1<<15 {
			for _, d := range dialects {
				checkScan(t, body, d)
				checkParse(t, &used, body, d)
			}
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, pattern := range []string{"", "/", "$", "*", "/*", "/*$", "/a*b$", "*a*a*a", "/a$b", "/**b", "*$", "/ab*ba$"} {
		for _, path := range []string{"/", "/a", "/ab", "/aba", "/a/b", "/aaab", "/a$b"} {
			f.Add(pattern, path)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 200 || len(path) > 200 {
			return
		}
		if got, want := parser.Match([]byte(pattern), []byte(path)), slowMatch(pattern, path); got != want {
			t.Errorf("Match(%q, %q) = %v, want %v", pattern, path, got, want)
		}
	})
}

func FuzzDecide(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, "a", "/x")
		f.Add(seed, "googlebot", "/index.html")
		f.Add(seed, "B", "/a/")
		f.Add(seed, "zz", "/%C3%A9\xC3\xA9*$")
	}
	f.Fuzz(func(t *testing.T, body, agent, path string) {
		if len(body) > 4096 || len(path) > 100 || agent == "" {
			return
		}
		path = "/" + path
		for _, d := range dialects {
			var file parser.File
			file.ParseDialect([]byte(body), d)
			// One question must not change the answer to the next.
			for _, agent := range []string{agent, "a", "nobody", agent} {
				for _, path := range []string{path, "/", path} {
					checkDecide(t, &file, body, agent, path, d)
				}
			}
		}
	})
}

// checkDecide compares a decision and its rule with the reference.
func checkDecide(t *testing.T, file *parser.File, body, agent, path string, d parser.Dialect) {
	t.Helper()
	got := file.Decide(agent, []byte(path))
	if allow, line := slowDecide(body, agent, path, d); got.Allow != allow || got.Line != line {
		t.Errorf("%v: %q on %q: %v by line %d, want %v by line %d\n%q", d, agent, path, got.Allow, got.Line, allow, line,
			body)
	}
	if (got.Record < 0) != (got.Line == 0) {
		t.Errorf("%+v", got)
	}
	if got.Record >= 0 {
		r := file.Record(got.Record)
		wanted := parser.KeyDisallow
		if got.Allow {
			wanted = parser.KeyAllow
		}
		if r.Line != got.Line || r.Key != wanted || !slices.Contains(file.AgentGroups(got.Agent), uint32(r.Group)) {
			t.Errorf("%+v by %+v of group %d, %v", got, r, r.Group, file.AgentGroups(got.Agent))
		}
	}
}

// slowSurvey tries every path, without shortcuts.
func slowSurvey(file *parser.File, groups []uint32) (s parser.Survey) {
	paths := [][]byte{[]byte("/"), []byte("/dummy-testing-path-54321")}
	for _, g := range groups {
		start, end := file.GroupRecords(g)
		for i := start; i < end; i++ {
			r := file.Record(i)
			plain := !strings.Contains(string(r.Value), "?")
			switch r.Key {
			case parser.KeyAllow:
				s.NAllow++
				s.PlainAllow = s.PlainAllow || plain
			case parser.KeyDisallow:
				s.NDisallow++
				s.PlainDisallow = s.PlainDisallow || plain && string(r.Value) != ""
				s.HasDisallowRoot = s.HasDisallowRoot || string(r.Value) == "/"
			default:
				continue
			}
			if path := slowRulePath(string(r.Value), file.Dialect()); path != "" {
				paths = append(paths, []byte(path))
			}
		}
	}
	denied := 0
	for _, path := range paths {
		if !file.DecideIn(groups, path).Allow {
			denied++
		}
	}
	s.RootAllowed = file.DecideIn(groups, paths[0]).Allow
	switch denied {
	case 0:
		s.Verdict = parser.SiteAllowed
	case len(paths):
		s.Verdict = parser.SiteBlocked
	default:
		s.Verdict = parser.SitePartial
	}
	return s
}

func FuzzSurvey(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Add([]byte("User-agent: *\nDisallow: /\nAllow: /a\nDisallow: /a*\nAllow: /*$\nDisallow: /dummy-testing-path-54321"))
	f.Add([]byte("User-agent: a\nDisallow: *robots.txt**\nAllow: /xrobots.txt\nAllow: /%4*a*b*\nDisallow: /robots%2Etxt"))
	f.Add([]byte("User-Agent 0\nDisAllow *%0*a"))
	f.Add([]byte("User-agent: a\nDisallow: /$\nDisallow: /dummy\nDisallow: /%4*1"))
	f.Add([]byte("User-agent: a\nDisallow: /robots.txt\nAllow: /a"))
	f.Add([]byte("User-agent: a\nDisallow: /b\nDisallow: /\nDisallow: /%4*1"))
	f.Add(
		[]byte(
			"User-agent: a\nDisallow: /\nDisallow: /**a/$\nAllow: /***a/index.html\nUser-agent: b\nUser-agent: a\nAllow: *a*b$\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 4096 {
			return
		}
		for _, d := range dialects {
			var file parser.File
			file.ParseDialect(body, d)
			checkSurveys(t, &file)
		}
	})
}

// checkSurveys surveys each agent, and all groups at once.
func checkSurveys(t *testing.T, file *parser.File) {
	t.Helper()
	wants := make([]parser.Survey, file.Agents())
	for i := range wants {
		wants[i] = slowSurvey(file, file.AgentGroups(i))
		checkSurvey(t, wants[i], *file.AgentSurvey(i))
		checkSurvey(t, wants[i], file.Survey(file.AgentGroups(i)))
	}
	all := make([]uint32, file.Groups())
	for g := range all {
		all[g] = uint32(g)
	}
	checkSurvey(t, slowSurvey(file, all), file.Survey(all))
	for i, want := range wants {
		checkSurvey(t, want, *file.AgentSurvey(i))
	}
}

func checkSurvey(t *testing.T, want, got parser.Survey) {
	t.Helper()
	if got.Limited {
		want.Verdict, want.Limited = parser.SitePartial, true
	}
	if got != want {
		t.Errorf("Survey = %+v, want %+v", got, want)
	}
}

// TestSurveyCorpus is FuzzSurvey over real bodies.
func TestSurveyCorpus(t *testing.T) {
	notUnderRace(t)
	var file parser.File
	for i, body := range bodiesOf(t, "modern-ai") {
		file.ParseDialect(body, dialects[i%len(dialects)])
		if file.Count(parser.KeyAllow)+file.Count(parser.KeyDisallow) > 200 {
			continue
		}
		checkSurveys(t, &file)
	}
}

// TestDecideCorpus compares both dialects with the reference on real bodies.
func TestDecideCorpus(t *testing.T) {
	var file parser.File
	for i, body := range bodiesOf(t, "modern-ai") {
		if i%16 != 0 || len(body) > 1<<13 {
			continue
		}
		for _, d := range dialects {
			file.ParseDialect(body, d)
			for _, agent := range []string{"GPTBot", "nobody"} {
				for _, path := range []string{"/", "/index.html", "/wp-admin/%61dmin-ajax.php?a=*", "/search/"} {
					checkDecide(t, &file, string(body), agent, path, d)
				}
			}
		}
	}
}
