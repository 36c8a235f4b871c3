package audit

import (
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
)

// TestOutcomesDocument compares the table of docs/outcomes.md with the code: each outcome has one row with its access,
// and whether the origin is retried, also with the other scheme.
func TestOutcomesDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "<!-- outcomes -->\n")
	table, _, _ = strings.Cut(table, "<!-- /outcomes -->")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 6 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		outcome := strings.Trim(cells[0], "`")
		if rows[outcome] != nil {
			t.Errorf("%s has two rows", outcome)
		}
		rows[outcome] = cells
	}
	yesNo := map[bool]string{true: "yes", false: "no"}
	for _, o := range exchange.Outcomes() {
		cells := rows[o.String()]
		if cells == nil {
			t.Errorf("%s has no row", o)
			continue
		}
		access, again := "`"+AccessOf(o, 0).String()+"`", yesNo[o.Transient()]
		switch o {
		case exchange.Answered:
			access, again = "", "if 408, 429 or 5xx"
			for _, class := range []struct {
				name   string
				status int
			}{{"2xx", 200}, {"4xx", 404}, {"5xx", 503}} {
				access += ", " + class.name + " `" + parser.AccessFor(class.status).String() + "`"
			}
			access = access[2:]
		case exchange.ConnectFailed:
			again = "only if `error` says that this machine was short of something"
			if !(exchange.Failure{Outcome: o, Cause: exchange.CauseNoLocalResource}).Transient() {
				t.Error("a shortage of this machine's own is final")
			}
		}
		for i, want := range map[int]string{2: access, 3: again, 4: yesNo[o.FallsBack()]} {
			if cells[i] != want {
				t.Errorf("%s: %q, want %q", o, cells[i], want)
			}
		}
		delete(rows, o.String())
	}
	for outcome := range rows {
		t.Errorf("%s is no outcome", outcome)
	}
}
