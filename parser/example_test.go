package parser_test

import (
	"fmt"

	"github.com/bulkscan/bulkscan/parser"
)

// Can I read many files without allocating? Use one File for all, in one goroutine.
func ExampleFile() {
	var file parser.File
	for _, body := range []string{"User-agent: *\nDisallow: /\n", "User-agent: *\nDisallow: /private/\n"} {
		file.Parse([]byte(body)) // the answers so far are views of the last body
		fmt.Println(file.Allows("ExampleBot", "https://example.com/"))
	}
	// Output:
	// false
	// true
}

// Decide also returns the reason.
func ExampleFile_Decide() {
	var file parser.File
	file.Parse([]byte("User-agent: *\nDisallow: /private/\n\nUser-agent: GPTBot\nDisallow: /\n"))

	path := parser.AppendEscapedPath(nil, "https://example.com/public/page?id=1")
	for _, token := range []string{"GPTBot", "ExampleBot"} {
		d := file.Decide(token, path)
		fmt.Printf("%s follows %s: allowed %t", token, file.Agent(d.Agent).Name, d.Allow)
		if d.Record >= 0 {
			rule := file.Record(d.Record)
			fmt.Printf(" by line %d, %s: %s", d.Line, rule.KeyText, rule.Value)
		}
		fmt.Println()
	}
	// Output:
	// GPTBot follows GPTBot: allowed false by line 5, Disallow: /
	// ExampleBot follows *: allowed true
}

// A crawler with documented fallbacks uses the first of its names that is in the file.
func ExampleFile_Find() {
	var file parser.File
	file.Parse([]byte("User-agent: googlebot\nDisallow: /photos/\n\nUser-agent: *\nDisallow: /\n"))

	token := "*"
	for _, name := range []string{"Googlebot-Image", "Googlebot"} {
		if file.Find(name) >= 0 {
			token = name
			break
		}
	}
	fmt.Println(token, file.Allows(token, "/photos/1.jpg"), file.Allows(token, "/1.jpg"))
	// Output:
	// Googlebot false true
}

// The verdict on the whole site for each agent that the file names.
func ExampleFile_AgentSurvey() {
	var file parser.File
	file.Parse(
		[]byte(
			"User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n\nUser-agent: *\nDisallow: /search\n\nUser-agent: bingbot\n"))

	for i := range file.Agents() {
		fmt.Printf("%s is %v\n", file.Agent(i).Name, file.AgentSurvey(i).Verdict)
	}
	// Output:
	// GPTBot is blocked
	// CCBot is blocked
	// * is partial
	// bingbot is allowed
}

// Records of any kind stand in the file's order. Sitemaps belong to no group.
func ExampleFile_Record() {
	var file parser.File
	file.Parse([]byte("User-agent: *\nCrawl-delay: 10\nDisallow:\nSitemap: https://example.com/sitemap.xml\n"))

	for i := range file.Records() {
		switch r := file.Record(i); r.Key {
		case parser.KeySitemap:
			fmt.Printf("line %d: a sitemap at %s\n", r.Line, r.Value)
		case parser.KeyCrawlDelay:
			fmt.Printf("line %d: group %d is asked to wait for %s s\n", r.Line, r.Group, r.Value)
		}
	}
	// Output:
	// line 2: group 0 is asked to wait for 10 s
	// line 4: a sitemap at https://example.com/sitemap.xml
}

func ExampleAccessFor() {
	for _, status := range []int{200, 403, 404, 503} {
		fmt.Println(status, parser.AccessFor(status))
	}
	// Output:
	// 200 conditional
	// 403 full_allow
	// 404 full_allow
	// 503 full_disallow
}

func ExampleMatch() {
	for _, path := range []string{"/photo.gif", "/photo.gif?size=2", "/a/b.gif"} {
		fmt.Println(path, parser.Match([]byte("/*.gif$"), []byte(path)))
	}
	// Output:
	// /photo.gif true
	// /photo.gif?size=2 false
	// /a/b.gif true
}

func ExampleScanner() {
	scanner := parser.NewScanner([]byte("# hello\nUser-agent: *\nDisalow: /a\nNoindex: /b\n"), parser.Google)
	for scanner.Next() {
		line := scanner.Line()
		fmt.Printf("%d %v %q %q\n", line.Number, line.Kind, line.KeyText, line.Value)
	}
	// Output:
	// 1 comment "" ""
	// 2 core "User-agent" "*"
	// 3 typo "Disalow" "/a"
	// 4 legacy "Noindex" "/b"
}
