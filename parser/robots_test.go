package parser_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/parser"
)

func TestRobotsTest(t *testing.T) {
	f := func(status int, body, agent, url, want string) {
		t.Helper()
		r := parser.Parse(status, []byte(body))
		a := r.Test(agent, url)
		if got := fmt.Sprintf("%t %d %s (%s)", a.Allowed, a.Rule.Line, a.Rule, a.Agent); got != want {
			t.Errorf("%d %q: %q on %q: %s, want %s", status, body, agent, url, got, want)
		}
		if got := r.Allows(agent, url); got != a.Allowed {
			t.Errorf("%d %q: Allows(%q, %q) = %t", status, body, agent, url, got)
		}
	}
	const all = "user-agent: *\ndisallow: /"
	f(200, all, "a", "https://a.example/b", "false 2 Disallow: / (*)")
	f(200, all, "a", "", "false 2 Disallow: / (*)")
	f(200, all, "a", "https://a.example/robots.txt#x", "true 0  ()") // RFC 9309 §2.2.2
	f(200, all, "a", "/robots.txt/", "false 2 Disallow: / (*)")
	f(200, "", "a", "/", "true 0  ()")
	f(200, "disallow: /", "a", "/", "true 0  ()") // before any group
	f(200, "user-agent: b\ndisallow: /", "a", "/", "true 0  ()")
	f(200, all+"\nallow: /a\n\nuser-agent: Foo\nuser-agent: B/2\ndisallow: /b\nallow: /b", "a", "/a",
		"true 3 Allow: /a (*)")
	// The product token counts, in any case, and shadows `*`. Groups of one agent are merged.
	const two = "user-agent: *\ndisallow: /\nuser-agent: FooBot/1\ndisallow: /a # x\ncrawl-delay: 1\nuser-agent: b\nuser-agent: foobot\nallow: /a/b\n"
	f(200, two, "fooBOT/2.1 (+https://foo.example)", "/a", "false 4 Disallow: /a (FooBot)")
	f(200, two, "foobot", "/a/b", "true 8 Allow: /a/b (FooBot)")
	f(200, two, "foobot", "/", "true 0  (FooBot)")
	f(200, two, "foo", "/", "false 2 Disallow: / (*)")
	f(200, two, "foobots", "/", "false 2 Disallow: / (*)")
	f(200, two, "*", "/", "false 2 Disallow: / (*)")
	f(200, two, "", "/", "false 2 Disallow: / (*)")
	f(200, two, "2bot", "/", "false 2 Disallow: / (*)")
	f(200, "user-agent: MJ12bot\ndisallow: /", "MJ12bot", "/", "false 2 Disallow: / (MJ)")
	// Escapes are compared as the matcher does: octets above 0x7F are escaped, nothing is decoded.
	f(200, "user-agent: *\ndisallow: /\xC3\xA9", "a", "/\xC3\xA9", "false 2 Disallow: /\xC3\xA9 (*)")
	f(200, "user-agent: *\ndisallow: /%c3%a9", "a", "/\xC3\xA9", "false 2 Disallow: /%c3%a9 (*)")
	f(200, "user-agent: *\ndisallow: /a", "a", "/%61", "true 0  (*)")
	f(200, all+"\nallow: /b/index.html", "a", "/b/", "true 3 Allow: /b/index.html (*)")
	// Before any rule, the status decides.
	for _, status := range []int{201, 299} {
		f(status, all, "a", "/", "false 2 Disallow: / (*)")
	}
	for _, status := range []int{301, 400, 401, 403, 404, 410, 429, 499} {
		f(status, all, "a", "/", "true 0  ()")
	}
	for _, status := range []int{-1, 0, 100, 199, 500, 503, 599, 600} {
		f(status, "user-agent: *\nallow: /", "a", "/", "false 0  ()")
		f(status, "", "a", "/robots.txt", "true 0  ()")
	}
	if zero := new(parser.Robots); zero.Allows("a", "/") || !zero.Allows("a", "/robots.txt") {
		t.Error("the zero Robots does not disallow everything")
	}
}

// TestRobotsIsFile compares a Robots with the File of the same body.
func TestRobotsIsFile(t *testing.T) {
	bodies := generated(100)
	for _, v := range readVectors(t) {
		bodies = append(bodies, v.body)
	}
	for _, seed := range seeds {
		bodies = append(bodies, []byte(seed))
	}
	for _, body := range hostile() {
		bodies = append(bodies, body[:min(len(body), 1<<14)])
	}
	for _, body := range bodies {
		checkRobots(t, body, "https://example.com/wp-admin/\xC3\xA9?q=%61")
		checkRobots(t, body, "/search/private/index.html")
	}
}

// FuzzRobots is TestRobotsIsFile for any body and URL.
func FuzzRobots(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), "/a/index.html")
	}
	f.Fuzz(checkRobots)
}

// checkRobots compares the answers for all agents of a body with those of a File, and the groups with its records. The
// Robots' body is overwritten after Parse.
func checkRobots(t *testing.T, body []byte, url string) {
	if len(body) > parser.MaxBody {
		return
	}
	var file parser.File
	file.Parse(body)
	overwritten := bytes.Clone(body)
	r := parser.Parse(200, overwritten)
	for i := range overwritten {
		overwritten[i] = '*'
	}
	path := parser.AppendEscapedPath(nil, url)
	agents := []string{"", "*", "nobody", "Googlebot", "x2"}
	for i := range min(file.Agents(), 50) {
		agents = append(agents, string(file.Agent(i).Name))
	}
	for _, agent := range agents {
		want := parser.Answer{Allowed: true}
		token := string(parser.AgentName([]byte(agent), parser.Google))
		if d := file.Decide(token, path); string(path) != "/robots.txt" {
			want.Allowed = d.Allow
			if d.Agent >= 0 {
				want.Agent = string(file.Agent(d.Agent).Name)
			}
			if d.Record >= 0 {
				want.Rule = ruleOf(file.Record(d.Record))
			}
		}
		if got := r.Test(agent, url); got != want {
			t.Errorf("%q on %q: %+v, want %+v", agent, url, got, want)
		}
		r.CrawlDelay(agent)
	}
	checkGroups(t, r, &file)
}

// checkGroups compares groups, rules and sitemaps with the records of a File.
func checkGroups(t *testing.T, r *parser.Robots, file *parser.File) {
	var want []parser.Group
	var sitemaps []string
	for i := range file.Records() {
		rec := file.Record(i)
		if rec.Group == len(want) {
			want = append(want, parser.Group{Line: rec.Line})
		}
		switch name := parser.AgentName(rec.Value, parser.Google); {
		case rec.Key == parser.KeyUserAgent && len(name) > 0:
			want[rec.Group].Agents = append(want[rec.Group].Agents, string(name))
		case (rec.Key == parser.KeyAllow || rec.Key == parser.KeyDisallow) && rec.Group >= 0:
			want[rec.Group].Rules = append(want[rec.Group].Rules, ruleOf(rec))
		case rec.Key == parser.KeySitemap && len(rec.Value) > 0:
			sitemaps = append(sitemaps, string(rec.Value))
		}
	}
	same := func(a, b parser.Group) bool {
		return a.Line == b.Line && slices.Equal(a.Agents, b.Agents) && slices.Equal(a.Rules, b.Rules)
	}
	if got := r.Groups(); !slices.EqualFunc(got, want, same) {
		t.Errorf("groups %+v, want %+v", got, want)
	}
	if got := r.Sitemaps(); !slices.Equal(got, sitemaps) {
		t.Errorf("sitemaps %q, want %q", got, sitemaps)
	}
}

func ruleOf(r parser.Record) parser.Rule {
	return parser.Rule{Line: r.Line, Allow: r.Key == parser.KeyAllow, Path: string(r.Value)}
}

func TestRobotsCrawlDelay(t *testing.T) {
	f := func(body, agent string, want time.Duration, ok bool) {
		t.Helper()
		got, has := parser.Parse(200, []byte(strings.ReplaceAll(body, " | ", "\n"))).CrawlDelay(agent)
		if got != want || has != ok {
			t.Errorf("%s: %s: %v %t, want %v %t", body, agent, got, has, want, ok)
		}
	}
	f("", "a", 0, false)
	f("crawl-delay: 5 | user-agent: a", "a", 0, false) // before any group
	f("user-agent: * | crawl-delay: 5", "a/1.0", 5*time.Second, true)
	f("user-agent: * | crawl-delay: 5 | user-agent: a", "a", 0, false) // the agents so far
	f("user-agent: * | crawl-delay: 5 | disallow: | user-agent: a", "a", 0, false)
	f("user-agent: a | crawl-delay: 5 | user-agent: b | crawl-delay: 7", "a", 5*time.Second, true)
	f("user-agent: a | crawl-delay: 5 | user-agent: b | crawl-delay: 7", "b", 7*time.Second, true)
	f("user-agent: a | crawl-delay: x | crawl-delay: -1 | crawl-delay: 1.001", "A", 1001*time.Millisecond, true)
	f("user-agent: a | disallow: | user-agent: b | disallow: | user-agent: a | crawl-delay: 0", "a", 0, true)
	f("user-agent: a | crawl-delay: 999999999", "a", 999999999*time.Second, true)
	if _, ok := parser.Parse(503, []byte("user-agent: *\ncrawl-delay: 5")).CrawlDelay("a"); ok {
		t.Error("a delay from the body of a 503")
	}
}

// TestRobotsIsCut checks that MaxBody octets are read, without the line that this cuts.
func TestRobotsIsCut(t *testing.T) {
	head := "user-agent: *\n"
	fill := strings.Repeat("#", parser.MaxBody-len(head)-len("\ndisallow: /a\ndisallow: /"))
	body := head + fill + "\ndisallow: /a\ndisallow: /"
	if r := parser.Parse(200, []byte(body)); r.Allows("a", "/b") {
		t.Error("the last line of a body of MaxBody octets is not read")
	}
	if r := parser.Parse(200, []byte(body+"private\ndisallow: /b")); !r.Allows("a", "/b") || r.Allows("a", "/a") {
		t.Error("the line that is cut was read, or the one before it was not")
	}
	if r := parser.Parse(200, bytes.Repeat([]byte("x"), parser.MaxBody+1)); !r.Allows("a", "/") {
		t.Error("a line without end was read")
	}
}

// TestRobotsOwnsResults checks that a caller who changes results changes no Robots.
func TestRobotsOwnsResults(t *testing.T) {
	r := parser.Parse(200, []byte("user-agent: a\nuser-agent: b\ndisallow: /\nsitemap: https://example.com/s.xml\n"))
	r.Sitemaps()[0] = "x"
	groups := r.Groups()
	groups[0].Agents[0], groups[0].Rules[0] = "x", parser.Rule{}
	if got := fmt.Sprint(r.Groups(), r.Sitemaps()); got != "[{1 [a b] [Disallow: /]}] [https://example.com/s.xml]" {
		t.Error(got)
	}
}

// TestRobotsMemory checks what a Robots keeps: less than twice a typical body, nothing of a page, and at most four
// megabytes of a body that is made to be expensive. A longer body changes nothing.
func TestRobotsMemory(t *testing.T) {
	size := func(body []byte) int {
		sum, _ := parser.Owned(parser.Parse(200, body))
		return sum
	}
	bodies, kept := generated(500), 0
	for _, body := range bodies {
		kept += size(body)
	}
	if all := int(total(bodies)); kept > 2*all {
		t.Errorf("%d bytes are kept of %d", kept, all)
	}
	if n := size(bytes.Repeat([]byte("<p class=\"x\">text: more\n"), 20000)); n > 0 {
		t.Errorf("%d bytes are kept of a page", n)
	}
	expensive := hostile()
	var groups []byte // as many names, groups and rules as fit
	for i := range 26 * 26 * 26 {
		groups = fmt.Appendf(groups, "useragent:%c%c%c\nallow:\n", 'a'+i%26, 'a'+i/26%26, 'a'+i/676)
	}
	expensive["short-groups"] = append(groups, bytes.Repeat([]byte("useragent:a\nallow:\n"), 7000)...)
	for name, body := range expensive {
		n := size(body)
		if n > 4<<20 {
			t.Errorf("%s: %d bytes are kept", name, n)
		}
		if len(body) > parser.MaxBody-1000 && size(bytes.Repeat(body, 3)) > n+n/2 {
			t.Errorf("%s: more is kept of a longer body", name)
		}
	}
}

// TestRobotsConcurrently asks one Robots from many goroutines. Run it under the race detector.
func TestRobotsConcurrently(t *testing.T) {
	r := parser.Parse(200,
		[]byte(
			"user-agent: *\ndisallow: /%c3%a9*a\nallow: /a/index.html\ncrawl-delay: 2\nsitemap: https://example.com/s\nuser-agent: B\ndisallow: /\n"))
	urls := []string{"/a/", "/\xC3\xA9/a", "https://example.com/x?y", "/robots.txt", "/" + strings.Repeat("\xC3", 1<<13)}
	ask := func() string {
		var said strings.Builder
		for _, agent := range []string{"a", "b/1", "*"} {
			for _, url := range urls {
				fmt.Fprint(&said, r.Test(agent, url), r.Allows(agent, url))
			}
			delay, ok := r.CrawlDelay(agent)
			fmt.Fprint(&said, delay, ok)
		}
		fmt.Fprint(&said, r.Groups(), r.Sitemaps(), r.Access())
		return said.String()
	}
	want := ask()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 20 {
				if got := ask(); got != want {
					t.Errorf("%s, want %s", got, want)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestRobotsAllocations checks that questions allocate nothing.
func TestRobotsAllocations(t *testing.T) {
	r := parser.Parse(200,
		[]byte("user-agent: *\ndisallow: /%c3%a9*a\nallow: /a/index.html\ncrawl-delay: 2\nuser-agent: B\ndisallow: /\n"))
	pass := func() {
		for _, url := range []string{"/a/", "https://example.com/\xC3\xA9/a", "/robots.txt"} {
			r.Allows("a", url)
			r.Allows("B/1.0 (+https://example.com)", url)
			r.Test("*", url)
		}
		r.CrawlDelay("b")
	}
	// The race detector drops some of what is put into a sync.Pool.
	if n := testing.AllocsPerRun(100, pass); n != 0 && !underRace {
		t.Errorf("%v allocations", n)
	}
}

func TestCrawlDelayValues(t *testing.T) {
	f := func(value string, want float64, ok bool) {
		t.Helper()
		if got, valid := parser.ParseCrawlDelay([]byte(value)); got != want || valid != ok {
			t.Errorf("%q: %v %v, want %v %v", value, got, valid, want, ok)
		}
	}
	f("10", 10, true)
	f("0", 0, true)
	f("0.5", 0.5, true)
	f(".5", 0.5, true)
	f("5.", 5, true)
	f("007", 7, true)
	f("999999999", 999999999, true)
	f("1000000000", 0, false)
	f("0."+strings.Repeat("0", 38), 0, true)
	f("0."+strings.Repeat("0", 39), 0, false)
	f("+5", 0, false)
	f("1e2", 0, false)
	f("1E-2", 0, false)
	f("", 0, false)
	f(".", 0, false)
	f("+", 0, false)
	f("-1", 0, false)
	f("-0", 0, false)
	f("1,5", 0, false)
	f("1.2.3", 0, false)
	f("10s", 0, false)
	f("10 20", 0, false)
	f("1e", 0, false)
	f("1e+", 0, false)
	f("e5", 0, false)
	f("1e999", 0, false)
	f("1_0", 0, false)
	f("0x10", 0, false)
	f("inf", 0, false)
	f("NaN", 0, false)
}
