package bodies

import (
	"context"
	"io"
	"slices"

	"github.com/bulkscan/bulkscan/inputs"
)

// table are the rows of Parquet.
type table struct {
	inputs.Table
	ctx      context.Context
	row      uint64
	selected [numColumns]int // in the order of Select; -1: none
}

// rowsBetween is how many rows may pass before the end of the context is looked at: a few bytes may stand for millions of rows.
const rowsBetween = 1 << 10

func newTable(ctx context.Context, in inputs.Stream, columns Columns, open func(io.ReaderAt, int64) (inputs.Table, error)) (*table, error) {
	opened, err := open(in.At, in.Size)
	if err != nil {
		return nil, err
	}
	t := &table{Table: opened, ctx: ctx}
	var names []string
	var kinds []string
	for i := range t.Columns() {
		name, holds := t.Column(i)
		names, kinds = append(names, name), append(kinds, holds)
	}
	readable := []string{"text", "numbers", "truths", "times"}
	var chosen []int
	for column := range numColumns {
		t.selected[column] = -1
		for _, want := range columns.names(column) {
			i := slices.IndexFunc(names, func(name string) bool { return inputs.NormalName(name) == inputs.NormalName(want) })
			_, given := columns[known[column].name]
			if i >= 0 && (given || slices.Contains(readable, kinds[i])) { // Select refuses others with a remedy
				t.selected[column] = len(chosen)
				chosen = append(chosen, i)
				break
			}
			if given {
				return nil, columns.unknown(names, column, "column", "schema")
			}
		}
	}
	if t.selected[site] < 0 {
		return nil, columns.unknown(names, site, "column", "schema")
	}
	if t.selected[body] < 0 && t.selected[status] < 0 {
		return nil, columns.unknown(names, body, "column", "schema")
	}
	return t, t.Select(chosen...)
}

func (t *table) layout() string { return "parquet" }

func (t *table) next() (line uint64, text []byte, reason string, err error) {
	if t.row%rowsBetween == 0 {
		if err := t.ctx.Err(); err != nil {
			return t.row, nil, "", err
		}
	}
	t.row++
	return t.row, nil, "", t.Next()
}

func (t *table) cell(column int) ([]byte, bool) {
	if t.selected[column] < 0 {
		return nil, false
	}
	return t.Text(t.selected[column])
}
