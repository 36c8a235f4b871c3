package inputs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestDoubts checks which lists are in doubt, and what is said of them.
func TestDoubts(t *testing.T) {
	f := func(what string, lines []string, opt Options, want string) {
		t.Helper()
		path := listFile(t, "list", []byte(strings.Join(lines, "\n")+"\n"))
		doubts, err := Doubts(t.Context(), []string{path, path}, opt)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if want == "" {
			if len(doubts) > 0 {
				t.Errorf("%s: %v", what, doubts[0])
			}
			return
		}
		if len(doubts) != 2 || doubts[0].File != path || !strings.Contains(doubts[0].String(), want) ||
			len(doubts[0].Samples) != min(5, int(doubts[0].Lines)) {
			t.Errorf("%s: %v, want %s", what, doubts, want)
		}
	}
	many := func(n int, pattern string) (lines []string) {
		for i := range n {
			lines = append(lines, strings.NewReplacer("SITE", nameOf(i), "PORT", fmt.Sprint(8000+i), "FEW", nameOf(i%3), "N",
				fmt.Sprint(i)).Replace(pattern))
		}
		return lines
	}
	head := []string{"# a comment", ""}
	one := "lines are of one site, one.example, as line "
	f("nothing", nil, Options{}, "")
	f("comments", head, Options{}, "")
	f("one line", many(1, "one.example"), Options{}, "")
	f("two lines of a site", many(2, "one.example"), Options{}, "")
	f("URLs of a site", many(3, "https://one.example/N"), Options{}, "3 of its 3 "+one+
		`1 "https://one.example/0", 2 "https://one.example/1", 3 "https://one.example/2"`)
	f("many URLs of a site", many(5000, "https://one.example/N"), Options{}, "5000 of its 5000 "+one)
	f("with and without a scheme", append(many(50, "one.example"), many(50, "http://one.example/N")...), Options{},
		"100 of its 100 "+one)
	f("half of the lines", append(many(100, "SITE"), many(100, "one.example")...), Options{}, "")
	f("more than half", append(many(100, "SITE"), many(101, "one.example")...), Options{}, "101 of its 201 "+one+
		`101 "one.example"`)
	f("comments are no lines", append(append(head, many(100, "SITE")...), many(101, "one.example")...), Options{},
		"101 of its 201 "+one+`103 "one.example"`)
	f("far more sites than are counted at once", append(many(20_000, "SITE"), many(21_000, "https://one.example/N")...),
		Options{}, " "+one)
	f("the same, the site first", append(many(21_000, "https://one.example/N"), many(20_000, "SITE")...), Options{}, " "+
		one)
	f("many URLs of a few sites", many(999, "https://FEW/N"), Options{}, "")
	f("many URLs of many sites", append(many(500, "https://SITE/N"), many(500, "https://SITE/again")...), Options{}, "")
	f("every site twice", append(many(5000, "SITE"), many(5000, "SITE")...), Options{}, "")
	f("ports of a machine", many(100, "127.0.0.1:PORT"), Options{}, "")
	f("a column with one site", many(10, "https://one.example/N,https://SITE/"), Options{Column: "1"}, "10 of its 10 "+one)
	f("the other column", many(10, "https://one.example/N,https://SITE/"), Options{Column: "2"}, "")

	none := "lines are no sites, as line "
	f("half are no sites", append(many(10, "SITE"), many(10, "no site N")...), Options{}, "")
	f("more than half are no sites", append(many(10, "SITE"), many(11, "no site N")...), Options{}, "11 of its 21 "+none+
		`11 "no site 0": not a host name`)
	f("words", append(many(10, "SITE"), many(11, "N/A")...), Options{}, `11 "0/A": write the address in full`)
	f("internal names", append(many(10, "SITE"), many(11, "hostN")...), Options{}, "11 of its 21 "+none+
		`11 "host0": a name without a top-level domain (--allow-private takes internal names), 12 "host1", 13 `)
	f("internal names that are allowed", append(many(10, "SITE"), many(11, "hostN")...), Options{LocalNames: true}, "")
	f("no site at all", many(11, "no site N"), Options{}, "")
	f("what may be anything", append(many(10, "SITE"), many(11, "\x1b[31m\xffN")...), Options{},
		`11 "\x1b[31m�0": not valid UTF-8, 12 `)

	ctx, path := t.Context(), listFile(t, "cut.gz", packed(t, "gzip", strings.Repeat("https://one.example/x\n", 100))[:40])
	if _, err := Doubts(ctx, []string{path}, Options{}); err == nil {
		t.Error("a list that is cut off is judged")
	} else if _, ok := errors.AsType[*Error](err); !ok {
		t.Errorf("a list that is cut off: %v", err)
	}
}
