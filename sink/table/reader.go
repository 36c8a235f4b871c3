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

// FileRows yields the rows of one Parquet file, of which it reads the columns that T has, or of these some. A row is valid until the
// next. A copy stays valid.
func FileRows[T any](ctx context.Context, st store.Store, name string, some ...string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		object, err := st.Open(ctx, name)
		if err != nil {
			yield(nil, fmt.Errorf("cannot read %s: %w", name, err))
			return
		}
		row := new(T)
		cursor, err := NewCursor(ctx, Opened{Place: Place{Object: object, File: schema.File{Name: name}, Rows: allRows}}, nil, FieldsOf(row, true, Some(some...))...)
		if err != nil {
			yield(nil, err)
			return
		}
		Each(cursor, row, yield)
	}
}

// Each calls yield for each row of a Cursor, whose fields are those of row, and closes it. The last call has the error, if there is
// one. more is false after an error, and if yield returned false.
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
func OpenFile(object store.Object) (*parquet.File, error) {
	t, encoded, err := OpenTail(object)
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
	return parquet.OpenFile(g, g.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
}

// rescue turns a panic into an error.
func rescue(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged Parquet file: %v", p)
	}
}
