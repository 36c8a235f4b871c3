package hostiletest_test

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
)

// reported counts the errors of a check.
type reported struct {
	testing.TB
	n int
}

func (r *reported) Helper()               {}
func (r *reported) Errorf(string, ...any) { r.n++ }

func TestShown(t *testing.T) {
	f := func(shown string, want int, foreign ...string) {
		t.Helper()
		r := &reported{TB: t}
		if hostiletest.Shown(r, "it", shown, foreign...); r.n != want {
			t.Errorf("%q: %d faults, want %d", shown, r.n, want)
		}
	}
	for _, bad := range []string{`n\u00a0=\u00a05`, `\U0001f4a9`, `a\x1b[31m`, `a\nb`, `a\tb`, `\033[0m`, `&amp;`,
		`&lt;b&gt;`, `&nbsp;`, `&#39;`, `&#x27;`,
		`%!d(string=x)`, `%!(EXTRA int=1)`, `%d sites`, `%.1f`, `99 %% of`, `{{.Title}}`, `ZgotmplZ`, `${name}`,
		`<nil>`, `<no value>`, `NaN`, `+Inf`, `[object Object]`, `map[a:1]`, `0xc000123456`, "\ufffd", "Â\u00a0", "â€“"} {
		r := &reported{TB: t}
		if hostiletest.Shown(r, "it", bad); r.n == 0 {
			t.Errorf("%q passes", bad)
		}
		f(bad, 0, "User-agent: "+bad) // a foreign text may have it
	}
	for _, good := range []string{`100 % of sites, n = 5`, `99 % within 3 s`, `a & b; c`, `AT&T`, `\`, `<b>`, `{ }`,
		`Nancy`, `Information`, `50%`, `Café – „x“`} {
		f(good, 0)
	}
	f(`\u202egnp`, 0, "\u202egnp") // printed, the character is its escape
	f(`\u00a0`, 1, "\u202e")       // but only this one
	f(strings.Repeat(`\n `, 3), 3)
}
