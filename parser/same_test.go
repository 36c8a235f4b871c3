package parser_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/parser"
)

// checkSame checks that a body which SameInRFC calls the same has the same agents in both dialects, and the same
// surveys of each.
func checkSame(t *testing.T, body []byte) (same bool) {
	t.Helper()
	var google, rfc parser.File
	google.Parse(body)
	rfc.ParseDialect(body, parser.RFC)
	if !rfc.SameInRFC() {
		t.Fatalf("a file in the RFC dialect differs from itself\n%q", body)
	}
	if !google.SameInRFC() {
		return false
	}
	if google.Agents() != rfc.Agents() || google.Star() != rfc.Star() || google.Groups() != rfc.Groups() {
		t.Fatalf("%d agents in %d groups, by the RFC %d in %d\n%.2000q", google.Agents(), google.Groups(), rfc.Agents(),
			rfc.Groups(), body)
	}
	for i := range google.Agents() {
		a, b := *google.AgentSurvey(i), *rfc.AgentSurvey(i)
		if string(google.Agent(i).Name) != string(rfc.Agent(i).Name) || !a.Limited && !b.Limited && a != b {
			t.Fatalf("agent %q: %+v, by the RFC %q: %+v\n%.2000q", google.Agent(i).Name, a, rfc.Agent(i).Name, b, body)
		}
	}
	return true
}

// TestSameInRFC names each tolerance of the Google dialect, and files without any.
func TestSameInRFC(t *testing.T) {
	f := func(body string, want bool) {
		t.Helper()
		if same := checkSame(t, []byte(body)); same != want {
			t.Errorf("%.200q: the same in the RFC dialect: %v", body, same)
		}
	}
	const group = "User-agent: *\n"
	f("", true)
	f(group+
		"Disallow: /\nAllow: /*.php$\nDisallow: /a%20b%2f\r\nAllow: /$\r\nDisallow: /\u00e9\nCrawl-delay: 1\nSitemap: https://a.example/x%41\n", true)
	f("User-agent: Bot/1.0\nDisallow: /x\n\nUser-agent: *foo\nDisallow: /\n", false)
	f("# robots.txt: /index.html\n"+group+"Disallow: /index.html\nAllow: /robots.txt.bak\nDisallow:\n", true)
	for _, tolerance := range []string{
		"Dissalow: /", "Disallow /", "Allowed: /x", "Site-map: x", "Useragent: b", "Allow: /a/index.html", "Disallow: /%41",
		"Disallow: /%4*1",
		"Disallow: /a%4", "Disallow: /a$b", "Allow: /a$b$", "Allow: /robots.txt", "Disallow: /robots.txt$",
		"Disallow: *robots.txt", "Disallow: /rob*ots.txt*",
		"Allow: */robots.txt", "Disallow: /" + strings.Repeat("x", 16_700), strings.Repeat(" ", 16_700) + "Disallow: /",
	} {
		f(group+"Disallow: /b\n"+tolerance+"\n", false)
	}
	f("User-agent: * # all\nDisallow: /\n", true)
	f("User-agent: * all\nDisallow: /\n", false)
	f(group+strings.Repeat("Disallow: /some/folder\n", 2000), true)
	f(strings.ReplaceAll(group+strings.Repeat("Disallow: /some/folder\n", 2000), "\n", "\r"), false)
}

// TestSameInRFCOfAny puts lines together by chance, and reads real bodies. Most are the same, which saves the second
// reading.
func TestSameInRFCOfAny(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lines := append(strings.Split(strings.Join(seeds, "\n"), "\n"), "User-agent: *", "User-agent: a", "User-agent: * b",
		"Disallow: /", "Allow: /", "Disallow: *robots.txt",
		"Allow: /robots.txt", "Allow: /ro*bots.txt$", "Allow: /$", "Disallow: /%64ummy", "Disallow: /%64*ummy", "Allow: /x$y",
		"Disallow: /x*y$", "Allow: /d%", "Allow: /index.htm", "Disallow: /d*", "")
	for range 30_000 {
		var body strings.Builder
		for range 1 + random.IntN(8) {
			body.WriteString(lines[random.IntN(len(lines))] + "\n")
		}
		checkSame(t, []byte(body.String()))
	}
	for _, corpus := range []string{"typical12k", "modern-ai"} {
		t.Run(corpus, func(t *testing.T) {
			same, bodies := 0, sharedtest.Bodies(t, corpus)
			for _, body := range bodies {
				if checkSame(t, body) {
					same++
				}
			}
			if t.Logf("%d of %d are the same", same, len(bodies)); same < len(bodies)*4/5 {
				t.Error("too many are read twice")
			}
		})
	}
}
