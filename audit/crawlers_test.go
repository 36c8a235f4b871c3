package audit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// TestCrawler shows which crawler a user's name means.
func TestCrawler(t *testing.T) {
	f := func(name string, literal bool, want string, known bool, wrong error) {
		t.Helper()
		c, err := standard().Crawler(name, literal)
		if c.Token != want || !errors.Is(err, wrong) || err == nil && (c.id >= 0) != known {
			t.Errorf("%q, literal %v: %+v, %v; want %q, known %v, %v", name, literal, c, err, want, known, wrong)
		}
	}
	f("*", false, "*", false, nil)
	f("gptbot", false, "GPTBot", true, nil)
	f("gptbot", true, "gptbot", false, nil)
	f("Yahoo! Slurp", false, "Slurp", true, nil)
	f("MJ12bot/v1.4", false, "MJ12bot", true, nil)
	f("MJ12bot", true, "MJ", false, nil)
	f("Mozilla/5.0 (compatible; GPTBot/1.1; +https://openai.com/gptbot)", false, "GPTBot", true, nil)
	f("nobody/1.0 (not Googlebot)", false, "nobody", false, nil)
	f("Mozilla/5.0 (X11; Linux x86_64)", false, "", false, ErrBrowser)
	f("Mozilla/5.0 (X11; Linux x86_64)", true, "Mozilla", false, nil)
	f("GPTBot CCBot", false, "", false, ErrUnknownCrawler)
	f("2bot", false, "", false, ErrNoProductToken)
	f("", false, "", false, ErrNoProductToken)
}

// TestTester shows which groups a crawler follows (its own, those of a fallback, those of `*`, or those of the second
// reading), and what it may fetch.
func TestTester(t *testing.T) {
	f := func(s *Site, name string, literal bool, url, want string) {
		t.Helper()
		c, err := standard().Crawler(name, literal)
		if err != nil {
			t.Fatal(err)
		}
		Judge(s)
		tester := standard().Tester(s, []Crawler{c})
		tester.Decide(url)
		by, a := tester.Followings[0], tester.Answer(0)
		if got := fmt.Sprint(by.Via, " ", by.Name, " ", by.Lenient, " ", by.Groups, " ", a.Allow, " ",
			a.Reason); got != want {
			t.Errorf("%q, literal %v, %s: %s; want %s", name, literal, url, got, want)
		}
	}
	file := func(text string) *Site { return answered(lines(text)) }
	robots := "ua: Googlebot | d: /img | ua: MJ12bot/1 | d: / | ua: * | d: /all | ua: mj12bot | a: /x"
	f(file(robots), "Googlebot", false, "/img/a", "own Googlebot false [0] false rule")
	f(file(robots), "Googlebot-Image", false, "/img/a", "fallback Googlebot false [0] false rule")
	f(file(robots), "Googlebot-Image", true, "/img/a", "star * false [2] true no_rule")
	f(file(robots), "MJ12bot", false, "/x", "own MJ12bot/1 true [1 3] true rule")
	f(file(robots), "MJ12bot", true, "/x", "own MJ false [1 3] true rule")
	f(file(robots), "*", false, "/all", "star * false [2] false rule")
	f(file(robots), "AdsBot-Google", false, "/all", "none  false [] true no_group")
	f(file("ua: a | d: /"), "b", false, "/", "none  false [] true no_group")

	// Decisions without rules.
	strict := file("ua: * | d: /")
	strict.Dialect = parser.RFC
	f(strict, "a", false, "/robots.txt", "star * false [0] true always_allowed")
	status := func(outcome exchange.Outcome, status int) *Site {
		s := file("ua: a | d: /")
		s.Fetch.Outcome, s.Fetch.Status = outcome, status
		return s
	}
	f(status(exchange.Answered, 404), "a", false, "/", "http  false [] true no_file")
	f(status(exchange.Answered, 503), "a", false, "/", "http  false [] false unavailable")
	f(status(exchange.Timeout, 0), "a", false, "/", "http  false [] false unavailable")
}

func TestCheckURL(t *testing.T) {
	for url, want := range map[string]bool{
		"/a?b": true, "//example.com/a": true, "https://example.com": true, "ftp://example.com/x": true, "HTTP://a/": true,
		"private/x": false, "example.com": false, "": false, "https:///a": false, "https://": false, "/a\x00": false,
		"1x://a": false,
	} {
		if err := CheckURL(url); (err == nil) != want {
			t.Errorf("%q: %v", url, err)
		}
	}
}
