package terminal

import (
	"io"
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

// Nights shows nights, a line each, and below them why some are not published. Those that block are a share of those that have rules.
func Nights(w io.Writer, nights []NightRow, when Color) error {
	p := newPage(w, when)
	t := &table{whole: true}
	head := []piece{styled(dim, "date"), styled(dim, "state")}
	for _, name := range []string{"sites", "no answer", "rules", "blocking", "changed", "size", "took"} {
		head = append(head, piece{text: name, style: dim, right: true})
	}
	t.add(append(head, piece{})...)
	for _, n := range nights {
		row := []piece{text(n.Date), styled(stateStyles[n.State], "%s", n.State)}
		cells := []string{"-", "-", "-", "-", "-", "-", "-"}
		if n.Sites > 0 {
			cells = []string{number(n.Sites), percentOf(n.NoAnswer, n.Sites), percentOf(n.Rules, n.Sites), percentOf(n.Blocked, n.Rules), "-", bytesText(n.Bytes), n.Took.String()}
		}
		if n.Changed >= 0 {
			cells[4] = number(n.Changed)
		}
		t.add(append(append(row, right(cells...)...), piece{})...)
	}
	p.table(t)
	noted := false
	for _, n := range nights {
		if n.Note == "" {
			continue
		}
		if !noted {
			p.line()
			noted = true
		}
		p.flow(indent, words(styled(bold, "%s:", n.Date), text(printable.Clip(n.Note, maxNote))))
	}
	return p.end()
}

var stateStyles = map[string]style{"published": green, "held": yellow, "running": bold, "incomplete": yellow, "failed": red, "missing": yellow}
