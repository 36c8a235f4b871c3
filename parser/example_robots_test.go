package parser_test

import (
	"bytes"
	"fmt"

	"github.com/bulkscan/bulkscan/parser"
)

// May I fetch this URL?
func Example() {
	robots := parser.Parse(200, []byte("User-agent: *\nDisallow: /private/\nAllow: /private/press/\n"))

	fmt.Println(robots.Allows("ExampleBot", "https://example.com/"))
	fmt.Println(robots.Allows("ExampleBot", "https://example.com/private/diary"))
	fmt.Println(robots.Allows("ExampleBot", "https://example.com/private/press/kit.zip"))
	// Output:
	// true
	// false
	// true
}

// Which line decides, and whose rules are these?
func ExampleRobots_Test() {
	robots := parser.Parse(200,
		[]byte("User-agent: *\nDisallow: /private/\n\nUser-agent: ExampleBot\nDisallow: /\nAllow: /$\n"))

	for _, url := range []string{"https://example.com/", "https://example.com/public"} {
		a := robots.Test("ExampleBot", url)
		fmt.Printf("%t by line %d of %s, %s\n", a.Allowed, a.Rule.Line, a.Agent, a.Rule)
	}
	if a := robots.Test("OtherBot", "/public"); a.Rule.Line == 0 {
		fmt.Printf("%t: no rule of %s matches\n", a.Allowed, a.Agent)
	}
	// Output:
	// true by line 6 of ExampleBot, Allow: /$
	// false by line 5 of ExampleBot, Disallow: /
	// true: no rule of * matches
}

// May several agents fetch it? A crawler with several names follows the first that the file has.
func ExampleRobots_Test_agents() {
	robots := parser.Parse(200, []byte("User-agent: ExampleBot\nDisallow: /photos/\n\nUser-agent: *\nDisallow: /\n"))

	for _, agent := range []string{"ExampleBot", "OtherBot"} {
		fmt.Println(agent, robots.Allows(agent, "/news"))
	}

	var a parser.Answer
	for _, name := range []string{"ExampleBot-Image", "ExampleBot"} {
		if a = robots.Test(name, "/photos/1.jpg"); a.Agent != "*" && a.Agent != "" {
			break
		}
	}
	fmt.Println("as", a.Agent, a.Allowed)
	// Output:
	// ExampleBot true
	// OtherBot false
	// as ExampleBot false
}

// How long should I wait between two requests?
func ExampleRobots_CrawlDelay() {
	robots := parser.Parse(200,
		[]byte("User-agent: *\nCrawl-delay: 2.5\nDisallow: /search\n\nUser-agent: OtherBot\nDisallow:\n"))

	delay, ok := robots.CrawlDelay("ExampleBot")
	fmt.Println(delay, ok)
	delay, ok = robots.CrawlDelay("OtherBot") // its own group shadows that of *
	fmt.Println(delay, ok)
	// Output:
	// 2.5s true
	// 0s false
}

// Where are the sitemaps? They belong to no group.
func ExampleRobots_Sitemaps() {
	robots := parser.Parse(200,
		[]byte(
			"User-agent: OtherBot\nDisallow: /\nSitemap: https://example.com/a.xml\nSitemap: https://cdn.example.net/b.xml\n"))

	fmt.Println(robots.Sitemaps())
	// Output:
	// [https://example.com/a.xml https://cdn.example.net/b.xml]
}

// What if there is no file, the server fails, or it cannot be reached?
func ExampleParse_status() {
	body := []byte("User-agent: *\nDisallow: /private/\n")
	for _, status := range []int{200, 404, 403, 500, 0} {
		robots := parser.Parse(status, body)
		fmt.Println(status, robots.Access(), robots.Allows("ExampleBot", "/public"), robots.Allows("ExampleBot", "/private/"))
	}
	// Output:
	// 200 conditional true false
	// 404 full_allow true true
	// 403 full_allow true true
	// 500 full_disallow false false
	// 0 full_disallow false false
}

// What if the file is huge? The first 500 KiB count, and the line that this cuts is dropped: here it would be /pri.
func ExampleParse_limit() {
	body := []byte("User-agent: *\nDisallow: /a\n#")
	body = append(body, bytes.Repeat([]byte("x"), parser.MaxBody-len(body)-len("\nDisallow: /pri"))...)
	body = append(body, "\nDisallow: /private/\nDisallow: /b\n"...)
	robots := parser.Parse(200, body)

	for _, path := range []string{"/a", "/b", "/prices"} {
		fmt.Println(path, robots.Allows("ExampleBot", path))
	}
	// Output:
	// /a false
	// /b true
	// /prices true
}

// Do wildcards work? `*` stands for any octets, a final `$` for the end. The longest rule wins, whatever the order.
func ExampleRobots_Allows_wildcards() {
	robots := parser.Parse(200, []byte("User-agent: *\nDisallow: /*.pdf$\nDisallow: /*?session=\nAllow: /free/*.pdf$\n"))

	for _, path := range []string{"/a.pdf", "/a.pdf?page=2", "/shop?session=1", "/free/a.pdf"} {
		fmt.Println(path, robots.Allows("ExampleBot", path))
	}
	// Output:
	// /a.pdf false
	// /a.pdf?page=2 true
	// /shop?session=1 false
	// /free/a.pdf true
}

// Which name does my bot go by? By its product token: the version and what follows do not matter, nor does case.
func ExampleRobots_Allows_userAgent() {
	robots := parser.Parse(200, []byte("User-agent: mybot/2.0\nDisallow: /\n"))

	for _, agent := range []string{"MyBot", "MyBot/1.0", "MyBot/1.0 (+https://example.com/bot)", "MyBots",
		"Mozilla/5.0 (compatible; MyBot/1.0)"} {
		fmt.Println(agent, robots.Allows(agent, "/"))
	}
	// Output:
	// MyBot false
	// MyBot/1.0 false
	// MyBot/1.0 (+https://example.com/bot) false
	// MyBots true
	// Mozilla/5.0 (compatible; MyBot/1.0) true
}

// What does the file say? All groups and rules in order, with their lines.
func ExampleRobots_Groups() {
	robots := parser.Parse(200,
		[]byte(
			"User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: *\nAllow: /search/about # help\nDisallow: /search\n"))

	for _, group := range robots.Groups() {
		fmt.Println(group.Agents, "from line", group.Line)
		for _, rule := range group.Rules {
			fmt.Println("  ", rule.Line, rule)
		}
	}
	// Output:
	// [GPTBot CCBot] from line 1
	//    3 Disallow: /
	// [*] from line 5
	//    6 Allow: /search/about
	//    7 Disallow: /search
}
