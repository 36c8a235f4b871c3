package table

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go"
)

// FileRows yields the rows of one Parquet file. It reads the columns that T has. A row is valid until the next. A copy
// stays valid.
func FileRows[T any](ctx context.Context, st store.Store, name string) iter.Seq2[*T, error] {
	return RecordedRows[T](ctx, st, schema.File{Name: name})
}

// RecordedRows is FileRows for a file that has a record. It reads the columns that T has, or some of these.
func RecordedRows[T any](ctx context.Context, st store.Store, file schema.File, some ...string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		row := new(T)
		cursor, err := OpenRecorded(ctx, st, file, FieldsOf(row, true, Some(some...))...)
		if err != nil {
			yield(nil, err)
			return
		}
		Each(cursor, row, yield)
	}
}

// OpenRecorded opens a file to read all rows.
func OpenRecorded(ctx context.Context, st store.Store, file schema.File, fields ...Field) (*Cursor, error) {
	object, err := st.Open(ctx, file.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file.Name, err)
	}
	return NewCursor(ctx, Opened{Place: Place{Object: object, File: file, Rows: allRows}}, nil, fields...)
}

// Each calls yield for each row of a Cursor, whose fields are those of row, and closes it. The last call has the error,
// if there is one. more is false after an error, and if yield returned false.
func Each[T any](cursor *Cursor, row *T, yield func(*T, error) bool) (more bool) {
	for cursor.Next() {
		if !yield(row, nil) {
			_ = cursor.Close() // it was only read
			return false
		}
	}
	err := errors.Join(cursor.Err(), cursor.Close())
	if err != nil {
		yield(nil, err)
	}
	return err == nil
}

// OpenFile checks the footer of a Parquet file and opens it.
func OpenFile(object store.Object) (*parquet.File, error) { return (&Place{Object: object}).file() }

// file opens the file if it matches its record. With Whole, or if the record has no hash of the footer, it compares the
// hash of all bytes. Otherwise the footer's hash is enough, since each page has a checksum.
func (p *Place) file() (*parquet.File, error) {
	differs := func(what, expected, found string) error {
		if expected == "" || found == expected {
			return nil
		}
		return &schema.DamagedError{What: what, Expected: expected, Found: found}
	}
	if p.File.Bytes != 0 {
		if err := differs("bytes", fmt.Sprint(p.File.Bytes), fmt.Sprint(p.Object.Size())); err != nil {
			return nil, err
		}
	}
	if p.File.SHA256 != "" && (p.Whole || p.File.Footer == "") {
		found, err := store.SumOf(p.Object)
		if err == nil {
			err = differs("sha256", p.File.SHA256, found)
		}
		if err != nil {
			return nil, err
		}
	}
	t, encoded, err := OpenTail(p.Object)
	if err == nil {
		err = differs("sha256 of its footer", p.File.Footer, schema.SumOf(t.tail[len(t.tail)-8-len(encoded):]))
	}
	if err != nil {
		return nil, err
	}
	footer, err := DecodeFooter(encoded)
	if err != nil {
		return nil, err
	}
	g, err := newGuard(t, footer, t.Size()-8-int64(len(encoded)))
	if err != nil {
		return nil, err
	}
	return parquet.OpenFile(g, g.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.ReadBufferSize(64<<10))
}
