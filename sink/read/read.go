// Package read answers one question: which rows does a scan have? It opens the files that its commits name, and passes
// over rows that do not count in its unit. statistics.go opens tables that were computed from all parts of a scan.
package read

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Rows yields the rows of a committed table, part after part, in the order of writing. T is the table's row type, or a
// struct with some of its columns; only these are read. A row is valid until the next; a copy stays valid. The
// iteration ends after the first error, which is commit.ErrNoTable if the scan does not have the table.
func Rows[T any](ctx context.Context, s *commit.Scan, tableName string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if !s.Has(tableName) {
			yield(nil, fmt.Errorf("cannot read table %s of scan %s: %w", tableName, s.Manifest.ScanID, commit.ErrNoTable))
			return
		}
		row := new(T)
		for cursor, err := range Cursors(ctx, s, tableName, table.FieldsOf(row, true, nil)...) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !table.Each(cursor, row, yield) {
				return
			}
		}
	}
}

// CommitRows yields rows of a table's file in one commit of the scan, like Rows: from row `from`, counted from 0, up to
// the row before `to`, or up to the last one.
func CommitRows[T any](ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string, from,
	to int64) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		row := new(T)
		cursor, err := OpenCursor(ctx, s, c, tableName, table.FieldsOf(row, true, nil)...)
		if err != nil {
			yield(nil, err)
			return
		}
		cursor.Skip(from)
		table.Each(cursor, row, func(row *T, err error) bool { return yield(row, err) && cursor.Row() < to })
	}
}

// OpenCursor opens a commit's file of a table. The error is commit.ErrNoTable if the commit does not have the table.
// Rows of sites that do not count in the scan's unit are passed over. If several scans are read as one, seq has the
// number of the scan above its lower 40 bits.
func OpenCursor(ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string,
	fields ...table.Field) (*table.Cursor, error) {
	return openCursor(ctx, s, c, tableName, openNow(ctx, s, c, tableName), fields)
}

func openCursor(ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string, at table.Opened,
	fields []table.Field) (*table.Cursor, error) {
	again := func() table.Opened { return openNow(ctx, s, c, tableName) }
	superseded := s.Unit.Superseded[c.ScanID]
	if superseded == nil && s.Unit.Sum == "" || !schema.HasSeq(tableName) {
		return table.NewCursor(ctx, at, again, fields...)
	}
	var seqs []*int64
	for _, f := range fields {
		if f.Name == "seq" {
			seqs = append(seqs, f.Into.(*int64))
		}
	}
	if len(seqs) == 0 {
		seqs = append(seqs, new(int64))
		fields = append(slices.Clip(fields), table.Field{Name: "seq", Into: seqs[0]})
	}
	rows, err := table.NewCursor(ctx, at, again, fields...)
	if err != nil {
		return nil, err
	}
	above := int64(0)
	if s.Unit.Sum != "" {
		above = int64(slices.IndexFunc(s.Unit.Scans,
			func(m *commit.Manifest) bool { return m.ScanID == c.ScanID })) << seqBits
	}
	rows.Passes = func() bool {
		passes := superseded != nil && superseded.Contains(uint64(*seqs[0]))
		for _, seq := range seqs {
			*seq += above
		}
		return passes
	}
	return rows, nil
}

// seqBits is how many bits of seq are a row's number in its scan, where several scans are read as one.
const seqBits = 40

// Cursors opens the files of a table like OpenCursor, commit after commit in the order of Rows. It opens the next files
// while one is read, which matters if each open asks a server. The caller closes each Cursor before the next. The
// iteration ends after the first error.
func Cursors(ctx context.Context, s *commit.Scan, tableName string,
	fields ...table.Field) iter.Seq2[*table.Cursor, error] {
	return func(yield func(*table.Cursor, error) bool) {
		for c, first := range opened(ctx, s, tableName) {
			cursor, err := openCursor(ctx, s, c, tableName, first, fields)
			if !yield(cursor, err) || err != nil {
				return
			}
		}
	}
}

func openNow(ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string) table.Opened {
	at, err := s.Open(ctx, c, tableName)
	return table.Opened{Place: table.Place(at), Err: err}
}

// opened yields the opened files of a table and opens some ahead. The receiver closes each.
func opened(ctx context.Context, s *commit.Scan, tableName string) iter.Seq2[*commit.Commit, table.Opened] {
	commits := make([]*commit.Commit, 0, len(s.Commits))
	for i := range s.Commits {
		commits = append(commits, &s.Commits[i])
	}
	open := func(ctx context.Context, c *commit.Commit) table.Opened { return openNow(ctx, s, c, tableName) }
	return store.Ahead(ctx, commits, open, func(o table.Opened) {
		if o.Err == nil {
			_ = o.Object.Close() // not read
		}
	})
}
