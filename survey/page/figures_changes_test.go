package page

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/survey/tables"
)

// TestChanges shows what the page says of each kind of row.
func TestChanges(t *testing.T) {
	row := func(token, host string, port int, requested string, before, after []any) []any {
		return append(append([]any{token, "began", host, int64(port), requested, "2026-11-20", "2026-11-22", int64(7),
			"news"}, before...), after...)
	}
	lines := func(verdict, line, group, rule any) []any { return []any{verdict, line, group, rule} }
	unknown := lines(nil, nil, nil, nil)
	s := hostileSurvey()
	s.Changes = 1234
	s.Tables["changed-sites"] = &tables.Table{Name: "changed-sites",
		Note: "from 2026-11-20 to 2026-11-22, the newest 500 at most", Columns: changedColumns, Rows: [][]any{
			row("GPTBot", "a.test", 443, "auto", lines("allowed", nil, nil, nil), lines("blocked", int64(2), "User-agent: GPTBot",
				"Disallow: /")),
			row("CCBot", "not-shown.test", 443, "auto", unknown, unknown), // another token
			row("GPTBot", "b.test", 8443, "https", lines("partial", int64(1), "User-agent: *", nil), unknown),
		}}
	f := (&builder{survey: s}).changes()
	v := f.Variants[0]
	if want := "1,234 times a site began or ceased to block one of 6 AI crawlers"; v.Headline != want ||
		!strings.HasSuffix(v.Subtitle, ", from 2026-11-20 to 2026-11-22") {
		t.Errorf("%q, %q", v.Headline, v.Subtitle)
	}
	table := f.Tables[0]
	if !f.Open || table.Filter != "label" ||
		table.Note != "The newest 2 of 1,234 changes; --csv writes more, and those of all AI tokens." {
		t.Errorf("open %v, filter %q, note %q", f.Open, table.Filter, table.Note)
	}
	want := []string{
		"a.test|GPTBot|began|2026-11-20|2026-11-22|allowed, no group names it|blocked, line 2: Disallow: /, under User-agent: GPTBot|7|news",
		"b.test:8443 (https)|GPTBot|began|2026-11-20|2026-11-22|partial, line 1: no rule for /, under User-agent: *|not known: no file is stored, or only --csv reads so old a one|7|news",
	}
	if len(table.Rows) != len(want) {
		t.Fatalf("%d rows", len(table.Rows))
	}
	for i, cells := range table.Rows {
		var texts []string
		for _, cell := range cells {
			texts = append(texts, cell.Text)
		}
		if got := strings.Join(texts, "|"); got != want[i] {
			t.Errorf("got %s\nwant %s", got, want[i])
		}
	}
	for range 2 * tables.ShownChanges {
		s.Tables["changed-sites"].Rows = append(s.Tables["changed-sites"].Rows, row("GPTBot", "c.test", 443, "auto", unknown,
			unknown))
	}
	if got := (&builder{survey: s}).changes().Tables[0]; len(got.Rows) != tables.ShownChanges ||
		!strings.HasPrefix(got.Note, "The newest 500 of 1,234") {
		t.Errorf("%d rows, %s", len(got.Rows), got.Note)
	}
	var classes []string
	for _, column := range table.Columns {
		classes = append(classes, column.Class)
	}
	if got := strings.Join(classes, ","); got != "t,t,t,t day,t day,t,t,,t" {
		t.Errorf("the columns are %s", got)
	}
	if empty := newSheet("", "", []string{"date"}, [][]any{{nil}}, ""); empty.Columns[0].Class != "t" {
		t.Errorf("a column without values is %q", empty.Columns[0].Class)
	}
	for _, row := range s.Tables["changed-sites"].Rows {
		row[7], row[8] = nil, nil
	}
	if got := (&builder{survey: s}).changes().Tables[0]; got.Filter != "" ||
		got.Columns[len(got.Columns)-1].Name != "line after" || len(got.Rows[0]) != len(got.Columns) {
		t.Errorf("a list without ranks and labels has the columns %v, filter %q", got.Columns, got.Filter)
	}
	s.Changes = 0
	none := (&builder{survey: s}).changes().Since
	delete(s.Tables, "changed-sites")
	if single := (&builder{survey: s}).changes().Since; single != noHistory || none == single || none == "" {
		t.Errorf("without changes %q, with one night %q", none, single)
	}
}
