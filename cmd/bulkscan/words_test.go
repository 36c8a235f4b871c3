package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// unclear are words that hide who acts, replace a standard term, or must be read twice.
var unclear = regexp.MustCompile(
	`(?i)\b(?:told|nobody|whoever|strangers?|comes? home|go(?:es)? on|befalls?|(?:a|each) (?:JSON )?(?:row|line|object) an? \w+)\b`)

// TestPlainWords finds unclear words in the text of the documents and of the help.
func TestPlainWords(t *testing.T) {
	pages := documents(t)
	for name, page := range pages {
		if strings.HasSuffix(name, "CHANGELOG.md") || strings.Contains(filepath.ToSlash(name), "/adr/") {
			// decisions and release notes stay as they were written
			delete(pages, name)
			continue
		}
		for _, code := range []*regexp.Regexp{fenced, indented, inline} {
			page = code.ReplaceAllString(page, "")
		}
		pages[name] = page
	}
	for _, c := range append((&app{}).root().Commands(), (&app{}).root()) {
		text := []string{c.Short, c.Long}
		c.Flags().VisitAll(func(f *pflag.Flag) { text = append(text, f.Usage) })
		pages["bulkscan "+c.Name()+" --help"] = strings.Join(text, "\n")
	}
	for name, page := range pages {
		for _, at := range unclear.FindAllStringIndex(page, -1) {
			begin, end := max(0, at[0]-60), min(len(page), at[1]+40)
			t.Errorf("%s: %q is unclear: …%s…", name, page[at[0]:at[1]], strings.ReplaceAll(page[begin:end], "\n", " "))
		}
	}
}
