package page

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/survey"
)

// sheet is a table under a figure. The script of the page saves it as CSV.
type sheet struct {
	Name    string // of the file
	Caption string
	Columns []heading
	Rows    [][]entry
	Note    string
	Filter  string // a column: the script offers its values, of which one may be shown alone
	Drawn   bool   // drawn in place of the plot: the page shows it once

	columns []string // as a file has them
	rows    [][]any
}

type heading struct {
	Name  string // in words
	Class string // "t" of texts, "t day" of dates, "" of numbers
	Exact string // as of an entry
}

// entry is a cell. Exact is its text in a file, if that differs: a number that Text rounds, or a text that a
// spreadsheet would run.
type entry struct{ Text, Exact string }

// maxSheet bounds the rows that the page shows of a table. Further ones are in the files of --csv.
const maxSheet = 1000

// sheetOf shows a table of the survey.
func sheetOf(f frame, name string) sheet {
	question, _ := about(name)
	return newSheet(name, question, f.Columns, f.Rows, f.Note)
}

func newSheet(name, caption string, columns []string, rows [][]any, note string) sheet {
	s := sheet{Name: name + ".csv", Caption: caption, Note: note, columns: columns, rows: rows}
	if len(rows) > maxSheet {
		s.Note = strings.TrimPrefix(fmt.Sprintf("%s; the first %s of %s rows: --csv writes all", note, printable.Number(maxSheet),
			printable.Number(len(rows))), "; ")
		rows = rows[:maxSheet]
	}
	for i, column := range columns {
		class, texts := "t day", 0
		for _, row := range rows {
			switch v := row[i].(type) {
			case int64, float64:
				class = ""
			case string:
				if texts++; len(v) != len(time.DateOnly) || !days.MatchString(v) {
					class = "t"
				}
			}
		}
		if texts == 0 && class != "" {
			class = "t"
		}
		s.Columns = append(s.Columns, heading{columnInWords(column), class, otherwise(inert(column), columnInWords(column))})
	}
	for _, row := range rows {
		cells := make([]entry, len(row))
		for i, v := range row {
			cells[i].Text = shown(columns[i], v)
			switch v := v.(type) {
			case string:
				cells[i].Exact = otherwise(inert(plain(v)), cells[i].Text)
			case float64:
				cells[i].Exact = strconv.FormatFloat(v, 'g', 6, 64)
			}
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}

// inWords writes a name of the program's own, such as a finding, for a reader.
func inWords(name string) string { return strings.ReplaceAll(name, "_", " ") }

// columnInWords writes the name of a column for a reader.
func columnInWords(name string) string {
	if d, ok := survey.DefinitionNamed(name); ok {
		return d.Words
	}
	return cmp.Or(columnWords[name], inWords(name))
}

// faultInWords writes a kind of fault for a reader.
func faultInWords(kind string) string { return cmp.Or(faultWords[kind], inWords(kind)) }

// ownNames are the columns whose values are names of the program's own.
var ownNames = []string{"finding", "step", "advice", "before", "after"}

// columnWords are for names that say too little with blanks in them.
var columnWords = map[string]string{
	"blocking": "sites that block", "of": "of sites", "sites_rules": "sites with rules", "share_full": "share",
	"ranks_to": "among the first", "scan_date": "date", "star": "*",
}

var faultWords = map[string]string{
	"invalid": "a line that is no record", "unknown": "a key that no specification defines",
	"legacy": "a key that a specification defined once", "typo": "a misspelt key",
	"orphan": "rules before any User-agent", "bom": "a byte order mark", "not_utf8": "text that is not UTF-8",
	"no_group": "no group at all",
}

// otherwise returns a text unless it is the usual one.
func otherwise(text, usual string) string {
	if text == usual {
		return ""
	}
	return text
}

// shown is a cell of the page.
func shown(column string, v any) string {
	switch v := v.(type) {
	case nil:
		return "–"
	case string:
		switch {
		case column == "kind":
			v = faultInWords(v)
		case slices.Contains(ownNames, column):
			v = inWords(v)
		}
		return plain(v)
	case int64:
		return printable.Number(v)
	case float64:
		if strings.HasPrefix(column, "share") || column == "change" {
			return percent(v)
		}
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return fmt.Sprint(v)
}

// writeCSV writes rows as CSV (RFC 4180, lines end with a line feed). Null is an empty cell. No cell is a formula.
func writeCSV(w *strings.Builder, columns []string, rows [][]any) error {
	out := csv.NewWriter(w)
	cells := make([]string, len(columns))
	for i, column := range columns {
		cells[i] = inert(column)
	}
	if err := out.Write(cells); err != nil {
		return err
	}
	for _, row := range rows {
		for i, v := range row {
			cells[i] = inert(raw(v))
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// raw is a cell of a CSV.
func raw(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// numeral matches cells that spreadsheets read as numbers, and do not run.
var numeral = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// inert returns a cell of a CSV with a single quote before each character by which a spreadsheet would take it, or a
// piece of it, for a formula (OWASP, CSV Injection). CSV's own quotes do not help: a spreadsheet removes them before it
// looks at the cell. Spreadsheets for languages with a decimal comma split lines at semicolons, even within a quoted
// cell. Numbers stay as they are.
func inert(cell string) string {
	const begins = "=+-@＝＋－＠\t\r\n" // the wide ones count in East Asian editions
	if numeral.MatchString(cell) || !strings.ContainsAny(cell, begins) {
		return cell
	}
	var b strings.Builder
	first := true // nothing but white space and quotes lies between here and the beginning of a piece
	for _, r := range cell {
		if first && strings.ContainsRune(begins, r) {
			b.WriteByte('\'')
		}
		b.WriteRune(r)
		first = strings.ContainsRune(";\t\r\n", r) || first && (r == '"' || r == '\ufeff' || unicode.IsSpace(r))
	}
	return b.String()
}
