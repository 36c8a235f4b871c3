package hostiletest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// raw matches what a person must not read: notation that should have become the character or the value that it stands
// for.
var raw = regexp.MustCompile(strings.Join([]string{
	// escapes of Go, JSON and shells
	`\\u[0-9A-Fa-f]{4}`, `\\u\{`, `\\U[0-9A-Fa-f]{8}`, `\\x[0-9A-Fa-f]{2}`, `\\[0-7]{3}`, `\\[abfnrtv]`,
	// references of HTML, which a reader sees only if they were escaped twice
	`&(?:[A-Za-z]{2,8}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});`,
	// directives and templates that were not filled in
	`%!`, `%[-+#0-9.*]*[dsvqTfgxXc]\b`, `%%`, `\{\{|\}\}`, `#?ZgotmplZ`, `\$\{`,
	// values without a text of their own
	`<nil>`, `<no value>`, `<invalid [^>]*>`, `\bNaN\b`, `[+-]Inf\b`, `\[object `, `map\[`, `\b0x[0-9a-f]{6,}`,
	`\x{FFFD}`, `[ÃÂ][\x{80}-\x{BF}]`, `â€`, // broken UTF-8, or UTF-8 read as Latin-1
}, "|"))

// Shown checks a text as a person reads it (what a browser shows of a page, what a terminal shows): it contains no raw
// notation, unless a foreign text contains that notation or is escaped to it.
func Shown(tb testing.TB, what, shown string, foreign ...string) {
	tb.Helper()
	for _, at := range raw.FindAllStringIndex(shown, -1) {
		if found := shown[at[0]:at[1]]; !comesFrom(found, foreign) {
			tb.Errorf("%s shows %q in %q", what, found, shown[max(0, at[0]-60):min(len(shown), at[1]+60)])
		}
	}
}

// comesFrom reports whether notation is part of a foreign text, as it is or as it is printed, in any case. A shown part
// of a text that is not ASCII may be invalid UTF-8; its escape is that of U+FFFD.
func comesFrom(found string, foreign []string) bool {
	found = strings.ToLower(found)
	for _, text := range foreign {
		printed := strings.ToLower(printable.Line(text))
		if strings.Contains(strings.ToLower(text), found) || strings.Contains(printed, found) ||
			printed != strings.ToLower(text) && found == `\ufffd` {
			return true
		}
	}
	return false
}
