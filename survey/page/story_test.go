package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// TestStory has surveys with and without labels, and with nights that observed few sites: the story has the figures
// that they can show, in its order. Under each figure it says what the figure means and what it does not.
func TestStory(t *testing.T) {
	f := func(want string, change func(*tables.Survey)) {
		t.Helper()
		b := groupsOf(10_000, 0, 30, 5000)
		b.survey.Tables["first-blocked"] = &tables.Table{Columns: []string{"token", "first_blocked", "censoring", "sites"},
			Rows: [][]any{{"GPTBot", "2026-11-21", "interval", int64(4)}, {"GPTBot", "2026-11-22", "interval", int64(6)}}}
		change(b.survey)
		groups, _ := b.shown()
		var names, all []string
		for _, f := range groups[0].Figures {
			names = append(names, f.ID)
			for _, v := range f.Variants {
				if sentences := len(regexp.MustCompile(`\.( [A-Z]|$)`).FindAllString(v.Caveat, -1)); sentences != 2 {
					t.Errorf("%s says %d sentences: %s", v.ID, sentences, v.Caveat)
				}
			}
		}
		for _, g := range groups {
			for _, f := range g.Figures {
				all = append(all, f.ID)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the story is %s, want %s", got, want)
		}
		if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("a figure stands twice: %v", all)
		}
	}
	even := func(s *tables.Survey) { // equally many sites on each date
		for _, row := range s.Tables["blocked-over-time"].Rows {
			row[4] = int64(5000)
		}
	}
	f("tokens time ranks labels purposes", even)
	f("tokens first ranks labels purposes", func(*tables.Survey) {})
	f("tokens time ranks tlds purposes", func(s *tables.Survey) { even(s); delete(s.Tables, "blocked-by-label") })
	f("tokens ranks purposes", func(s *tables.Survey) {
		for _, name := range []string{"blocked-by-label", "blocked-by-tld", "blocked-over-time", "first-blocked"} {
			delete(s.Tables, name)
		}
	})
}

// TestNotShown has surveys that can show little: no figure is empty, and each missing figure is in the list once.
func TestNotShown(t *testing.T) {
	for name, b := range map[string]*builder{"empty": seen(0, 0), "answers": seen(3, 3),
		"hostile": {survey: hostileSurvey(), on: survey.Full}, "groups": groupsOf(5000, 0, 5000)} {
		groups, missing := b.shown()
		said := map[string]int{}
		for _, reason := range missing {
			names, since, _ := strings.Cut(reason, ", since ")
			if since == "" || strings.ToLower(since[:1]) != since[:1] {
				t.Errorf("%s: %s", name, reason)
			}
			for _, short := range strings.Split(names, ", ") {
				said[short]++
			}
		}
		for _, g := range groups {
			for _, f := range g.Figures {
				said[f.Short]++
				if !slices.ContainsFunc(f.Variants, func(v variant) bool { return len(v.Plots)+len(f.Tables) > 0 }) {
					t.Errorf("%s: %s is empty", name, f.ID)
				}
			}
		}
		for _, g := range b.groups() {
			for _, f := range g.Figures {
				if said[f.Short] != 1 {
					t.Errorf("%s: %s is shown or said to be missing %d times", name, f.ID, said[f.Short])
				}
			}
		}
	}
}

// TestAlike finds the tokens that share a bar: they have equal numbers, and no file names them or a token that they
// follow.
func TestAlike(t *testing.T) {
	token := func(name string, named, fallback, sites, partial int64) summary.TokenCount {
		return summary.TokenCount{Token: name, Named: named, ViaFallback: fallback, Sites: sites, Partial: partial}
	}
	f := func(want string, list ...summary.TokenCount) {
		t.Helper()
		if got := strings.Join(alike(list), " "); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
	f("")
	f("", token("a", 0, 0, 9, 1)) // one is no group
	f("a b", token("a", 0, 0, 9, 1), token("b", 0, 0, 9, 1))
	f("b d", token("a", 0, 0, 9, 2), token("b", 0, 0, 9, 1), token("c", 5, 0, 9, 1), token("d", 0, 0, 9, 1),
		token("e", 0, 3, 9, 1))

	b := groupsOf(10_000, 0, 5000)
	for i := range b.survey.Summaries {
		blocking := &b.survey.Summaries[i].Blocking
		for n := range 141 {
			blocking.MostBlocked = append(blocking.MostBlocked, summary.TokenCount{Token: fmt.Sprint("unnamed-", n), Sites: 100,
				Share: 0.01, ViaStar: 100})
		}
	}
	tokens := b.tokens()
	for _, v := range tokens.Variants {
		rows := v.Plots[0].(*bars).Rows
		if last := rows[len(rows)-1]; len(rows) != 2 || last.Name != "141 others" || !strings.Contains(last.Under,
			"blocked only by *") {
			t.Errorf("%s has the bars %+v", v.ID, rows)
		}
	}
	if n := len(tokens.Tables[0].Rows); n != 2 || !strings.Contains(tokens.Tables[0].Note, "141 crawlers") {
		t.Errorf("the table has %d rows: %s", n, tokens.Tables[0].Note)
	}
}

// TestReadersSeeWords reads a page: names of columns and definitions occur only in small print, as code.
func TestReadersSeeWords(t *testing.T) {
	var page bytes.Buffer
	b := groupsOf(10_000, 0, 30, 5000)
	for _, finding := range []string{"no_rules", "rate_limited", "server_error"} {
		b.survey.Tables["findings"].Rows = append(b.survey.Tables["findings"].Rows, []any{finding, int64(0)})
	}
	if err := Write(&page, b.survey, Options{}); err != nil {
		t.Fatal(err)
	}
	document, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	for n := range document.Descendants() {
		if n.Type != html.TextNode || slices.Contains([]string{"small", "code", "pre", "script", "style"}, n.Parent.Data) {
			continue
		}
		texts++
		for _, d := range survey.Definitions() {
			if n.Data == d.Name {
				t.Errorf("the page shows the definition %q", n.Data)
			}
		}
		if found := regexp.MustCompile(`\b[a-z]+_[a-z_]+\b`).FindString(n.Data); found != "" {
			t.Errorf("the page shows %s: %.80s", found, n.Data)
		}
	}
	if texts < 500 {
		t.Errorf("%d texts", texts)
	}
}

// TestMarksWithinAxes looks at all plots of surveys: no mark is beyond its axis, and no last tick is before the last
// mark.
func TestMarksWithinAxes(t *testing.T) {
	at := func(position string) float64 {
		v, err := strconv.ParseFloat(strings.TrimSuffix(position, "%"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	began := groupsOf(10_000, 0, 5000)
	began.survey.Tables["first-blocked"] = &tables.Table{Columns: []string{"token", "first_blocked", "censoring", "sites"},
		Rows: [][]any{{"GPTBot", "2026-11-21", "interval", int64(100)}, {"GPTBot", "2026-11-22", "interval", int64(47)}}}
	for name, b := range map[string]*builder{"groups": groupsOf(10_000, 0, 3, 29, 30, 99, 100, 5000),
		"hostile": {survey: hostileSurvey(), on: survey.Full}, "one": groupsOf(8, 0, 8), "began": began} {
		for id, v := range variants(b) {
			for _, plot := range v.Plots {
				switch plot := plot.(type) {
				case *bars:
					if at(plot.Ticks[len(plot.Ticks)-1].At) != 100 {
						t.Errorf("%s: %s: the last tick is %+v", name, id, plot.Ticks)
					}
					for _, row := range slices.Concat(plot.Rows, plot.More) {
						for _, p := range row.Parts {
							if end := at(p.X) + at("0"+p.W); end > 100.02 {
								t.Errorf("%s: %s: %s ends at %v", name, id, row.Name, end)
							}
						}
					}
				case *lines:
					for _, s := range plot.Series {
						for _, number := range regexp.MustCompile(`[\d.]+ (-?[\d.]+)`).FindAllStringSubmatch(s.Path, -1) {
							if y := at(number[1]); y < 0 || y > linesHeight {
								t.Errorf("%s: %s: %s is at %v", name, id, s.Name, y)
							}
						}
					}
					if at(plot.Y[len(plot.Y)-1].At) != 0 {
						t.Errorf("%s: %s: the last level is %+v", name, id, plot.Y)
					}
				case *columns:
					for _, c := range plot.Bars {
						if at(c.X)+at(c.W) > 100.02 || at(c.Y) < 0 {
							t.Errorf("%s: %s: a column %+v", name, id, c)
						}
					}
					if id == "sizes" || id == "latency" {
						if at(plot.X[0].At) != 0 || at(plot.X[len(plot.X)-1].At) != 100 {
							t.Errorf("%s: %s: the ticks are %+v", name, id, plot.X)
						}
					}
				}
			}
		}
	}
}

// TestPictures writes every figure of surveys, one of them with hostile texts, as SVG and as CSV. The SVG is well
// formed, needs no other file, has its headline and source, and has all texts within.
func TestPictures(t *testing.T) {
	hostile := hostileSurvey()
	hostile.Tables["unknown-agents"].Rows = hostile.Tables["unknown-agents"].Rows[:100]
	elements := strings.Fields("svg g title style defs pattern rect circle line path text tspan desc")
	for name, b := range map[string]*builder{"groups": groupsOf(10_000, 0, 30, 5000), "hostile": {survey: hostile,
		on: survey.Full}} {
		pictures := 0
		var figures []figure
		for _, g := range b.groups() {
			figures = append(figures, g.Figures...)
		}
		for i := range figures {
			id := figures[i].ID
			var svg, table bytes.Buffer
			err, errTable := b.write(&svg, &figures[i], false), b.write(&table, &figures[i], true)
			if err != nil {
				if list := strings.Contains(err.Error(), id+" is a table: "); !list && !strings.Contains(err.Error(), id+
					" has nothing to show, since ") || svg.Len() > 0 || table.Len() > 0 != list {
					t.Errorf("%s: %s: %v", name, id, err)
				}
				continue
			}
			pictures++
			if rows := strings.Count(table.String(), "\n"); rows < 2 && (errTable == nil || errTable.Error() != "figure "+id+
				" has no table") {
				t.Errorf("%s: the table of %s has %d rows: %v", name, id, rows, errTable)
			}
			if name == "hostile" {
				hostiletest.Check(t, id, svg.Bytes(), 1<<20)
			}
			for _, never := range []string{"var(", "@import", "url(http", "url(data"} {
				if strings.Contains(svg.String(), never) {
					t.Errorf("%s: the picture of %s has %q", name, id, never)
				}
			}
			for _, want := range []string{`class="headline"`, ">Source: robots.txt of "} {
				if !strings.Contains(svg.String(), want) {
					t.Errorf("%s: the picture of %s has no %s", name, id, want)
				}
			}
			decoder := xml.NewDecoder(&svg)
			for {
				token, err := decoder.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Errorf("%s: %s: %v", name, id, err)
					break
				}
				start, ok := token.(xml.StartElement)
				if ok && !slices.Contains(elements, start.Name.Local) {
					t.Errorf("%s: the picture of %s has an element %s", name, id, start.Name.Local)
				}
				for _, a := range start.Attr {
					if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
						t.Errorf("%s: the picture of %s has %s=%q", name, id, a.Name.Local, a.Value)
					}
				}
			}
		}
		if pictures < 15 {
			t.Errorf("%s: %d pictures of %d figures", name, pictures, len(figures))
		}
	}
	s := groupsOf(100, 0, 100).survey
	var unknown *UnknownFigureError
	if err := WriteFigure(io.Discard, s, Options{}, "none", false); !errors.As(err, &unknown) ||
		len(unknown.Known) < 20 || unknown.Known[0] != "tokens" {
		t.Errorf("the figures are %v", err)
	}
	var svg strings.Builder
	if err := WriteFigure(&svg, s, Options{Definition: "any"}, "tokens", false); err != nil ||
		!strings.Contains(svg.String(), "Anything forbidden, of sites with rules, n = 100, 2026-11-22 (any)") {
		t.Errorf("%v: %.2000s", err, svg.String())
	}
	list := (&builder{survey: s, on: survey.Full}).single("list", "List", variant{})
	list.Tables = []sheet{newSheet("list", "List", []string{"site"}, [][]any{{"a.example"}}, "")}
	if err := (&builder{}).write(io.Discard, &list, false); err == nil || !strings.Contains(err.Error(),
		"figure list is a table: give -o a name that ends with .csv") {
		t.Errorf("the picture of a table: %v", err)
	}
	if err := WriteFigure(io.Discard, s, Options{}, "nothing", false); err == nil {
		t.Error("a figure that there is not is written")
	}
	if err := WriteFigure(io.Discard, s, Options{Definition: "nothing"}, "tokens", false); err == nil {
		t.Error("a figure by a definition that there is not is written")
	}
}

// TestWrapped divides texts into lines, and words that are too long for one.
func TestWrapped(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := strings.Join(wrapped(text, 6), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	f("", "")
	f("one two", "one|two")
	f("one to three", "one to|three")
	f("abcdefghijklmn o", "abcdef|ghijkl|mn o")
	f("a ééééééé b", "a|éééééé|é b")
}
