package parser_test

import (
	"fmt"

	"github.com/bulkscan/bulkscan/parser"
)

func ExampleFile_Decide() {
	var file parser.File
	file.Parse([]byte("User-agent: *\nDisallow: /private/\n\nUser-agent: GPTBot\nDisallow: /\n"))

	path := parser.AppendPath(nil, "https://example.com/public/page?id=1")
	for _, token := range []string{"GPTBot", "ExampleBot"} {
		d := file.Decide(token, path)
		fmt.Printf("%s: allowed %t, by line %d, as %s\n", token, d.Allow, d.Line, file.Agent(d.Agent).Name)
	}
	// Output:
	// GPTBot: allowed false, by line 5, as GPTBot
	// ExampleBot: allowed true, by line 0, as *
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
