package terminal

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// NightRow is a night in a table. Figures of a night without a scan are 0.
type NightRow struct {
	Date, State     string
	Sites, NoAnswer int64
	Rules, Blocked  int64
	Changed         int64 // -1 if it was not compared
	Bytes           int64
	Took            time.Duration
	Note            string // why it is not published
}

// maxNote bounds a note in bytes.
const maxNote = 200

// ScanRow is a scan or a night in the table of a dataset.
type ScanRow struct {
	Date, ScanID, State string
	Observer, List      string
	Sites               int64 // 0 if they are not counted yet
	Published, Pruned   string
	Bytes               int64
	Note                string // what is wrong with it
}

// Nights shows nights, a line each, and below them why some are not published. Those that block are a share of those that have rules.
func Nights(w io.Writer, nights []NightRow, when Color) error {
	rows := make([]listed, 0, len(nights))
	for _, n := range nights {
		numbers := []string{"-", "-", "-", "-", "-", "-", "-"}
		if n.Sites > 0 {
			numbers = []string{number(n.Sites), percentOf(n.NoAnswer, n.Sites), percentOf(n.Rules, n.Sites), percentOf(n.Blocked, n.Rules), "-", bytesText(n.Bytes), n.Took.String()}
		}
		if n.Changed >= 0 {
			numbers[4] = number(n.Changed)
		}
		rows = append(rows, listed{first: []string{n.Date}, state: n.State, numbers: numbers, name: n.Date, note: n.Note})
	}
	return list(w, when, []string{"date"}, []string{"sites", "no answer", "rules", "blocking", "changed", "size", "took"}, nil, rows)
}

// Scans shows the scans and nights of a dataset, a line each, and below them what is wrong with some.
func Scans(w io.Writer, scans []ScanRow, when Color) error {
	rows := make([]listed, 0, len(scans))
	for _, s := range scans {
		sites := "-"
		if s.Sites > 0 {
			sites = number(s.Sites)
		}
		rows = append(rows, listed{
			first: []string{cmp.Or(s.Date, "-"), s.ScanID}, state: s.State, numbers: []string{sites, bytesText(s.Bytes)},
			last: []string{cmp.Or(s.Published, "-"), cmp.Or(s.Pruned, "-"), cmp.Or(s.List, "-"), cmp.Or(s.Observer, "-")}, name: s.ScanID, note: s.Note,
		})
	}
	return list(w, when, []string{"date", "scan"}, []string{"sites", "size"}, []string{"published", "pruned", "list", "observer"}, rows)
}

// listed is a row of list: words, a state, numbers, and further words.
type listed struct {
	first         []string
	state         string
	numbers, last []string
	name, note    string // a line below the table
}

// list shows a table of nights or scans by the heads of its columns, and below it the notes.
func list(w io.Writer, when Color, first, numbers, last []string, rows []listed) error {
	p := newPage(w, when)
	t := &table{whole: true}
	var head []piece
	for _, name := range slices.Concat(first, []string{"state"}) {
		head = append(head, styled(dim, "%s", name))
	}
	for _, name := range numbers {
		head = append(head, piece{text: name, style: dim, right: true})
	}
	for _, name := range last {
		head = append(head, styled(dim, "%s", name))
	}
	t.add(append(head, piece{})...)
	noted := false
	for _, r := range rows {
		var row []piece
		for _, word := range r.first {
			row = append(row, text(word))
		}
		row = append(append(row, styled(stateStyles[r.state], "%s", r.state)), right(r.numbers...)...)
		for _, word := range r.last {
			row = append(row, text(word))
		}
		t.add(append(row, piece{})...)
		noted = noted || r.note != ""
	}
	p.table(t)
	if noted {
		p.line()
	}
	for _, r := range rows {
		if r.note != "" {
			p.flow(indent, words(styled(bold, "%s:", r.name), text(printable.Clip(r.note, maxNote))))
		}
	}
	return p.end()
}

var stateStyles = map[string]style{"published": green, "held": yellow, "running": bold, "incomplete": yellow, "failed": red, "missing": yellow, "damaged": red, "newer": red}
