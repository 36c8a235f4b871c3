package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go"
)

// FileRows yields the rows of one Parquet file. A row is valid until the next; its strings stay valid.
func FileRows[T any](ctx context.Context, st store.Store, name string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		object, err := st.Open(ctx, name)
		if err == nil {
			defer object.Close()
			err = ReadRows(ctx, object, 0, math.MaxInt64, yield)
		}
		if err != nil {
			yield(nil, fmt.Errorf("cannot read %s: %w", name, err))
		}
	}
}

const readRowsAtOnce = 256

// ReadRows calls yield for at most rows rows of a file, from row first on, until yield returns false. parquet-go panics
// on some damaged files; ReadRows returns such a panic as an error.
func ReadRows[T any](ctx context.Context, object store.Object, first, rows int64, yield func(*T, error) bool) (err error) {
	reader, err := openReader[T](object, first)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }() // it only reads: the read has returned any error
	// parquet-go looks for another page in every column for each row that is asked for past the end of the file.
	rows = min(rows, reader.NumRows()-first)
	batch := make([]T, max(0, min(rows, readRowsAtOnce)))
	for rows > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch = batch[:min(rows, readRowsAtOnce)]
		clear(batch)
		n, err := readBatch(reader, batch)
		rows -= int64(n)
		for i := range batch[:n] {
			if !yield(&batch[i], nil) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n == 0 {
			err = io.ErrNoProgress // a damaged file may promise rows without end
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func openReader[T any](object store.Object, first int64) (_ *parquet.GenericReader[T], err error) {
	defer rescue(&err)
	file, err := OpenFile(object)
	if err != nil {
		return nil, err
	}
	reader := parquet.NewGenericReader[T](file)
	if first > 0 {
		if err := reader.SeekToRow(first); err != nil {
			return nil, errors.Join(err, reader.Close())
		}
	}
	return reader, nil
}

// OpenFile checks the footer of a Parquet file and opens it.
func OpenFile(object store.Object) (*parquet.File, error) {
	t, encoded, err := OpenTail(object)
	if err != nil {
		return nil, err
	}
	footer, err := DecodeFooter(encoded)
	if err == nil {
		err = checkFooter(footer)
	}
	if err != nil {
		return nil, err
	}
	g, err := newGuard(t, footer, t.Size()-8-int64(len(encoded)))
	if err != nil {
		return nil, err
	}
	return parquet.OpenFile(g, g.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
}

func readBatch[T any](reader *parquet.GenericReader[T], batch []T) (n int, err error) {
	defer rescue(&err)
	return reader.Read(batch)
}

// rescue turns a panic into an error.
func rescue(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged Parquet file: %v", p)
	}
}
