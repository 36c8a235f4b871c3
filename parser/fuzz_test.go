package parser_test

import (
	"bytes"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

// The fuzz targets run their seeds with every `go test`; to search further:
//
//	go test -run '^$' -fuzz FuzzParse -fuzztime 60s ./parser

// seeds are bodies with something unusual each.
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

// checkScan checks what the Scanner promises, and that a File reads the same records by its shortcuts.
func checkScan(t *testing.T, body []byte, d parser.Dialect) {
	t.Helper()
	var file parser.File
	file.ParseDialect(body, d)
	scanner := parser.NewScanner(body, d)
	end, lines, record := 0, 0, 0
	for scanner.Next() {
		line := scanner.Line()
		lines++
		if line.Start != end || line.End <= line.Start || line.Number != lines {
			t.Fatalf("line %d is [%d, %d) after %d: %+v", lines, line.Start, line.End, end, line)
		}
		end = line.End
		if line.Kind == parser.LineBlank || line.Kind == parser.LineComment {
			continue
		}
		if record >= file.Records() {
			t.Fatalf("line %d is no record: %+v", lines, line)
		}
		r := file.Record(record)
		record++
		if int(r.Line) != line.Number || r.Key != line.Key || r.Flags != line.Flags ||
			!bytes.Equal(r.KeyText, line.KeyText) || !bytes.Equal(r.Value, line.Value) {
			t.Fatalf("%v: record %+v, line %+v\n%q", d, r, line, body)
		}
		if r.Group >= 0 {
			if start, stop := file.GroupRecords(uint32(r.Group)); record-1 < start || record-1 >= stop {
				t.Fatalf("record %d of group %d is not in [%d, %d)", record-1, r.Group, start, stop)
			}
		}
	}
	if end != len(body) || lines != file.Lines() || record != file.Records() {
		t.Fatalf("%v: lines end at %d of %d; %d lines, not %d; %d records, not %d\n%q", d, end, len(body), lines, file.Lines(), record, file.Records(), body)
	}
	for i := range file.Agents() {
		a := file.Agent(i)
		if file.Find(string(a.Name)) != i || len(file.AgentGroups(i)) == 0 {
			t.Fatalf("agent %q is not found, or in no group", a.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkScan(t, body, parser.Google)
		checkScan(t, body, parser.RFC)
	})
}

// TestParseCorpus is FuzzParse over real bodies, a quarter of them.
func TestParseCorpus(t *testing.T) {
	for i, body := range sharedtest.Bodies(t, "mix12k") {
		if i%4 == 0 && len(body) < 1<<16 {
			checkScan(t, body, parser.Google)
			checkScan(t, body, parser.RFC)
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
		for _, d := range []parser.Dialect{parser.Google, parser.RFC} {
			var file parser.File
			file.ParseDialect([]byte(body), d)
			got := file.Decide(agent, []byte(path))
			if allow, line := slowDecide(body, agent, path, d); got.Allow != allow || got.Line != line {
				t.Errorf("%v: %q on %q: %v by line %d, want %v by line %d\n%q", d, agent, path, got.Allow, got.Line, allow, line, body)
			}
		}
	})
}

// slowSurvey tries every path, without shortcuts.
func slowSurvey(file *parser.File, groups []uint32) parser.SiteVerdict {
	paths := [][]byte{[]byte("/"), []byte("/dummy-testing-path-54321")}
	for _, g := range groups {
		start, end := file.GroupRecords(g)
		for i := start; i < end; i++ {
			r := file.Record(i)
			if r.Key != parser.KeyAllow && r.Key != parser.KeyDisallow {
				continue
			}
			if path, ok := parser.AppendRulePath(nil, r.Value); ok {
				paths = append(paths, path)
			}
		}
	}
	denied := 0
	for _, path := range paths {
		if !file.DecideIn(groups, path).Allow {
			denied++
		}
	}
	switch denied {
	case 0:
		return parser.SiteAllowed
	case len(paths):
		return parser.SiteBlocked
	}
	return parser.SitePartial
}

func FuzzSurvey(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Add([]byte("User-agent: *\nDisallow: /\nAllow: /a\nDisallow: /a*\nAllow: /*$\nDisallow: /dummy-testing-path-54321"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 4096 {
			return
		}
		var file parser.File
		file.Parse(body)
		for i := range file.Agents() {
			checkSurvey(t, &file, file.AgentGroups(i))
		}
	})
}

func checkSurvey(t *testing.T, file *parser.File, groups []uint32) {
	t.Helper()
	got := file.Survey(groups)
	if want := slowSurvey(file, groups); got.Verdict != want && !got.Limited {
		t.Errorf("Survey = %v, want %v", got.Verdict, want)
	}
	if got.RootAllowed != file.DecideIn(groups, []byte("/")).Allow {
		t.Errorf("RootAllowed = %v", got.RootAllowed)
	}
}

// TestSurveyCorpus is FuzzSurvey over real bodies.
func TestSurveyCorpus(t *testing.T) {
	var file parser.File
	for _, body := range sharedtest.Bodies(t, "modern-ai") {
		if file.Parse(body); file.Count(parser.KeyAllow)+file.Count(parser.KeyDisallow) > 200 {
			continue
		}
		for i := range file.Agents() {
			checkSurvey(t, &file, file.AgentGroups(i))
		}
	}
}

// TestDecideCorpus compares both dialects with the reference on real bodies.
func TestDecideCorpus(t *testing.T) {
	var file parser.File
	for i, body := range sharedtest.Bodies(t, "modern-ai") {
		if i%16 != 0 || len(body) > 1<<13 {
			continue
		}
		for _, d := range []parser.Dialect{parser.Google, parser.RFC} {
			file.ParseDialect(body, d)
			for _, agent := range []string{"GPTBot", "nobody"} {
				for _, path := range []string{"/", "/index.html", "/wp-admin/%61dmin-ajax.php?a=*", "/search/"} {
					got := file.Decide(agent, []byte(path))
					if allow, line := slowDecide(string(body), agent, path, d); got.Allow != allow || got.Line != line {
						t.Errorf("body %d, %v: %s on %s: %v by line %d, want %v by line %d", i, d, agent, path, got.Allow, got.Line, allow, line)
					}
				}
			}
		}
	}
}
