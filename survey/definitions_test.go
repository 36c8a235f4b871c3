package survey

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDefinitions compares the definitions with the table in docs/definitions.md.
func TestDefinitions(t *testing.T) {
	page, err := os.ReadFile("../docs/definitions.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range regexp.MustCompile(
		"(?m)^\\| \\[(\\w+)\\]\\(#\\w+\\) \\| (.*) \\| `(\\w+)` \\| `(\\w+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		got = append(got, strings.Join(row[1:], " | "))
	}
	var want []string
	for _, d := range Definitions() {
		want = append(want, strings.Join([]string{d.Name, strings.Replace(d.Question, "deny it /?", "deny it `/`?", 1),
			d.Over, d.Name}, " | "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
