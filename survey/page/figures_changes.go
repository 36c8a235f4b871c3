package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// changes is the list of the sites that began or ceased to block a token.
func (b *builder) changes() figure {
	const id, short = "changes", "Which sites changed"
	t, all := b.table("changed-sites"), b.survey.Changes
	dates, _, _ := strings.Cut(t.note(b), ",")
	v := variant{By: survey.Full, Sites: b.full().Rules,
		Subtitle: "Everything forbidden, sites with rules before and after, and the AI crawlers that most files name, " +
			dates,
		Caveat: "A site changed after the first date, and by the second: in between its rules were not seen. A failure is no change, and neither is what another observer or registry sees. The lines decide whether / may be fetched: in the last file before, and in the last one of the time that followed. Rank and label are of this scan's list."}
	if all == 0 {
		return missing(id, short, map[bool]string{true: noHistory,
			false: "no site had other rules for these crawlers than before"}[len(t.Columns) == 0])
	}
	v.Headline = fmt.Sprintf("%s a site began or ceased to block one of %s", printable.Count(all, "time"),
		printable.Count(len(b.survey.Lines), "AI crawler"))
	var rows [][]any
	for _, row := range t.Rows {
		if token := t.text(row, "token"); len(rows) < tables.ShownChanges && slices.Contains(b.survey.Lines, token) {
			site := strings.TrimSuffix(fmt.Sprintf("%s:%d (%s)", t.text(row, "host"), t.number(row, "port"),
				t.text(row, "requested")), ":443 (auto)")
			rows = append(rows, []any{site, token, t.text(row, "change"), t.text(row, "last_before"), t.text(row, "first_after"),
				t.line(row, "_before"), t.line(row, "_after"), t.value(row, "rank"), t.value(row, "label")})
		}
	}
	note := fmt.Sprintf("The newest %s of %s changes; --csv writes more, and those of all AI tokens.", printable.Number(len(rows)),
		printable.Number(all))
	columns := []string{"site", "token", "change", "last seen before", "first seen after", "line before", "line after",
		"rank", "label"}
	for n := len(columns) - 1; n > 0 && !slices.ContainsFunc(rows, func(row []any) bool {
		return row[n] != nil && row[n] != ""
	}); n-- {
		columns = columns[:n] // a list may have no ranks and labels
	}
	for i := range rows {
		rows[i] = rows[i][:len(columns)]
	}
	table := newSheet("changed-sites", short, columns, rows, note)
	if last := columns[len(columns)-1]; last == "label" {
		table.Filter = last
	}
	f := b.single(id, short, v)
	f.Open, f.Tables, f.Queries = true, []sheet{table}, sqlOf("changed-sites")
	return f
}

// line says which line of a file decided.
func (f frame) line(row []any, when string) string {
	switch verdict, line := f.text(row, "verdict"+when), f.number(row, "line"+when); {
	case verdict == "":
		return "not known: no file is stored, or only --csv reads so old a one"
	case line == 0:
		return verdict + ", no group names it"
	default:
		return fmt.Sprintf("%s, line %d: %s, under %s", verdict, line, cmp.Or(f.text(row, "rule"+when), "no rule for /"),
			f.text(row, "group"+when))
	}
}
