package page

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sheet is a table under a figure. The script of the page saves it as CSV.
type sheet struct {
	Name    string // of the file
	Caption string
	Columns []heading
	Rows    [][]entry
	Note    string
}

type heading struct {
	Name string
	Text bool // the others are numbers
}

// entry is a cell. Exact is its value where the text rounds it.
type entry struct{ Text, Exact string }

// portion is a share in a column whose name does not say so.
type portion float64

// maxSheet bounds the rows that the page shows of a table. Further ones are in the files of --csv.
const maxSheet = 1000

// sheetOf shows a table of the survey.
func sheetOf(f frame, name string) sheet { return newSheet(name, name, f.Columns, f.Rows, f.Note) }

func newSheet(name, caption string, columns []string, rows [][]any, note string) sheet {
	s := sheet{Name: name + ".csv", Caption: caption, Note: note}
	if len(rows) > maxSheet {
		s.Note = strings.TrimPrefix(fmt.Sprintf("%s; the first %s of %s rows: --csv writes all", note, grouped(maxSheet), grouped(len(rows))), "; ")
		rows = rows[:maxSheet]
	}
	for i, column := range columns {
		text := true
		for _, row := range rows {
			switch row[i].(type) {
			case int64, float64, portion:
				text = false
			}
		}
		s.Columns = append(s.Columns, heading{column, text})
	}
	divided := slices.Contains(columns, "blocking") && slices.Contains(columns, "of") // the script divides them, too
	for _, row := range rows {
		cells := make([]entry, len(row))
		for i, v := range row {
			cells[i].Text = shown(columns[i], v)
			switch v := v.(type) {
			case portion:
				cells[i].Exact = strconv.FormatFloat(float64(v), 'g', 4, 64)
			case float64:
				if !divided || columns[i] != "share" {
					cells[i].Exact = strconv.FormatFloat(v, 'g', 6, 64)
				}
			}
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}

// shown is a cell of the page.
func shown(column string, v any) string {
	switch v := v.(type) {
	case nil:
		return "–"
	case string:
		return plain(v)
	case int64:
		return grouped(v)
	case portion:
		return percent(float64(v))
	case float64:
		if strings.HasPrefix(column, "share") || column == "change" {
			return percent(v)
		}
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return fmt.Sprint(v)
}

// writeCSV writes rows as CSV (RFC 4180, lines end with a line feed). Null is an empty cell.
func writeCSV(w *strings.Builder, columns []string, rows [][]any) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	cells := make([]string, len(columns))
	for _, row := range rows {
		for i, v := range row {
			cells[i] = raw(v)
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
