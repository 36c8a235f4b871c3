package terminal

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// maxNote bounds a note in bytes.
const maxNote = 200

// Nights shows at most so many nights, missing ones included: one line per night, the newest last. Blocking sites are a
// share of the sites with rules.
func Nights(w io.Writer, nights []*nightly.Night, pruned *commit.Pruned, most int, when Color) error {
	var rows []listed
	for i, n := range nights {
		for date := dayAfter(nights[max(0, i-1)].Date); date < n.Date; date = dayAfter(date) {
			rows = append(rows, listed{cells: []string{date, "missing", "-", "-", "-", "-", "-", "-", "-"}})
		}
		row := listed{cells: []string{n.Date, string(n.State), "-", "-", "-", "-", "-", "-", "-"}, note: n.Note()}
		if pruned.Has(n.ScanID) {
			row.cells[1] += ", pruned"
		}
		if f := n.Figures; f != nil && f.Sites > 0 {
			var took time.Duration
			if n.EndedAt != nil {
				took = n.EndedAt.Sub(n.StartedAt)
			}
			copy(row.cells[2:], []string{printable.Number(f.Sites), percentOf(f.Silent(), f.Sites), percentOf(f.Rules, f.Sites),
				percentOf(f.Blocked, f.Rules), "-", bytesText(n.Bytes), took.String()})
		}
		if n.Changes != nil {
			row.cells[6] = printable.Number(n.Changes.Changed)
		}
		rows = append(rows, row)
	}
	return list(w, []string{"date", "state", "sites", "no answer", "rules", "blocking", "changed", "size", "took"}, 2, 9,
		rows[max(0, len(rows)-most):], when)
}

func dayAfter(date string) string {
	day, _ := time.Parse(time.DateOnly, date) // of records, which have dates
	return day.AddDate(0, 0, 1).Format(time.DateOnly)
}

// Scans shows the scans and nights of a dataset, a line each.
func Scans(w io.Writer, scans []*nightly.Entry, when Color) error {
	var rows []listed
	for _, e := range scans {
		sites, pruned, published := "-", strings.Join(e.Pruned, ", "), string(e.Publication)
		if e.Sites > 0 {
			sites = printable.Number(e.Sites)
		}
		if len(e.Tables) == 0 && pruned != "" {
			pruned = "all"
		}
		switch e.Publication {
		case commit.PublicationDone:
			published = "yes"
		case commit.PublicationPending:
			published = "no"
		}
		row := listed{cells: []string{e.Date, e.ScanID, e.State, sites, bytesText(e.Bytes), published, pruned, e.ListID,
			e.Observer}, note: e.Note}
		for i, cell := range row.cells {
			row.cells[i] = cmp.Or(printable.Clip(cell, maxNote), "-")
		}
		rows = append(rows, row)
	}
	return list(w, []string{"date", "scan", "state", "sites", "size", "published", "pruned", "list", "observer"}, 3, 5,
		rows, when)
}

// listed is a row of list. Its note is below the table.
type listed struct {
	cells []string
	note  string
}

// list shows a table of nights or scans, and below it what is wrong with some. The columns from `from` up to `end` are
// numbers. The column before them is the state, and the column before that the name.
func list(w io.Writer, head []string, from, end int, rows []listed, when Color) error {
	p, t := newPage(w, when), &table{whole: true}
	for i, r := range append([]listed{{cells: head}}, rows...) {
		var row []piece
		for j, cell := range r.cells {
			c := piece{text: cell, right: from <= j && j < end}
			switch {
			case i == 0:
				c.style = dim
			case j == from-1:
				c.style = stateStyles[cell]
			}
			row = append(row, c)
		}
		t.add(append(row, piece{})...)
	}
	p.table(t)
	noted := false
	for _, r := range rows {
		if r.note == "" {
			continue
		}
		if !noted {
			p.line()
			noted = true
		}
		p.flow(indent, words(styled(bold, "%s:", r.cells[from-2]), text(printable.Clip(r.note, maxNote))))
	}
	return p.end()
}

var stateStyles = map[string]style{"published": green, "held": yellow, "running": bold, "incomplete": yellow,
	"failed": red, "missing": yellow, "damaged": red, "newer": red}
