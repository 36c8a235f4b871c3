package inputs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is a file of columns, such as Parquet's. Its errors concern the file. An error may have a method Remedy, which
// says what to do.
type Table interface {
	// Columns and Rows return how many there are.
	Columns() int
	Rows() int64
	// Column returns a column's name and its contents: "text", "numbers" or "truths", or in words contents that cannot be
	// selected.
	Column(i int) (name, holds string)
	// Select chooses the columns that are read, before the first Next.
	Select(columns ...int) error
	// Next advances to the next row, and returns io.EOF after the last.
	Next() error
	// Text returns the row's value of the i-th of the selected columns, valid until the next Next; ok is false for a
	// null.
	Text(i int) (value []byte, ok bool)
}

// rowsBetween is how many rows may pass between two checks whether the context has ended: a few bytes of a table may
// stand for millions of rows.
const rowsBetween = 1 << 10

// beginTable opens a table, and finds its columns.
func (r *Reader) beginTable(stream stream) error {
	switch {
	case r.opt.Parquet == nil:
		return damaged(r.name, 0, &layoutError{"it is a Parquet file, which cannot be read here",
			"export the column of hosts as CSV"})
	case r.opt.Format != Auto && r.opt.Format != Parquet:
		return damaged(r.name, 0, &layoutError{"it is a Parquet file", "pass --format auto"})
	}
	table, err := r.opt.Parquet(stream.table, stream.size)
	if err == nil {
		r.layout, err = detectTable(table, r.opt)
	}
	if err == nil {
		err = table.Select(slices.DeleteFunc([]int{r.layout.host, r.layout.rank, r.layout.label},
			func(i int) bool { return i < 0 })...)
	}
	if err != nil {
		return damaged(r.name, 0, err)
	}
	r.table = table
	r.of.Store(table.Rows())
	r.bytes.Store(stream.size)
	return nil
}

// detectTable finds the columns by the flags or by their names.
func detectTable(table Table, opt Options) (layout, error) {
	l := layout{format: Parquet, header: true, host: -1, fallback: -1, rank: -1, label: -1}
	var kinds []string
	var texts []int
	for i := range table.Columns() {
		name, holds := table.Column(i)
		l.names, kinds = append(l.names, strings.ToValidUTF8(name, "\uFFFD")), append(kinds, holds)
		if holds == "text" {
			texts = append(texts, i)
		}
	}
	holding := func(kind ...string) []string { // the names, "" for columns of another kind
		names := slices.Clone(l.names)
		for i := range names {
			if !slices.Contains(kind, kinds[i]) {
				names[i] = ""
			}
		}
		return names
	}
	var err error
	l.rank = named(holding("numbers", "text"), RankNames)
	if err = l.findLabel(len(l.names), opt); err != nil {
		return l, err
	}
	switch {
	case opt.Column != "":
		if l.host, err = l.column(opt.Column, len(l.names), "--column"); err != nil {
			return l, err
		}
	case named(holding("text"), HostNames) >= 0:
		l.host = named(holding("text"), HostNames)
	case len(texts) == 1:
		l.host = texts[0]
	default:
		return l, &layoutError{fmt.Sprintf("none of its %d columns is known to hold hosts (%s)", len(l.names),
			l.list(upTo(len(l.names)))), "choose one with --column"}
	}
	for _, i := range []int{l.host, l.label} {
		if i >= 0 && !slices.Contains([]string{"text", "numbers", "truths"}, kinds[i]) {
			return l, &layoutError{fmt.Sprintf("its column %s holds %s", l.columnName(i), kinds[i]),
				"choose one of text or numbers, or write its values one a row"}
		}
	}
	return l, nil
}

// nextRow takes the next row: its host as the line.
func (r *Reader) nextRow() (line []byte, reason string, err error) {
	if r.line%rowsBetween == 0 {
		if err := r.src.ctx.Err(); err != nil {
			return nil, "", err
		}
	}
	if err := r.table.Next(); err != nil {
		return nil, "", err
	}
	i := 0
	cell := func(column int) []byte {
		if column < 0 {
			return nil
		}
		value, _ := r.table.Text(i)
		i++
		if len(value) > MaxLine {
			// too long for a host and long enough for a label: a page may repeat it for each of its rows
			return value[:MaxLine+1]
		}
		return trimSpace(bytes.TrimRight(value, "\x00")) // texts of a fixed length are filled up
	}
	c := &r.take
	c.host = cell(r.layout.host)
	c.rank = Number(cell(r.layout.rank))
	c.label = cell(r.layout.label)
	switch {
	case len(c.host) == 0:
		reason = "the cell of the host is empty"
	case len(c.host) > MaxLine:
		reason = "the cell of the host is longer than 64 KiB"
	case !utf8.Valid(c.host):
		reason = "not valid UTF-8"
	case !utf8.Valid(c.label):
		c.label = bytes.ToValidUTF8(c.label, []byte("\uFFFD"))
	}
	return c.host, reason, nil
}
