package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bulkscan/bulkscan/sink/schema"
)

// Encode returns rows as a Parquet file in memory, those of all parts: the same file, however the rows are divided into
// parts. The rows have no optional columns. The file uses the memory of a slice that is no longer needed, if it is long
// enough.
func Encode[T any](memory []byte, page int, metadata map[string]string, parts ...[]T) ([]byte, error) {
	file := bytes.NewBuffer(memory[:0])
	w := &tailedWriter[T]{GenericWriter: newParquetWriter[T](io.Discard, page, metadata)}
	w.Reset(file)
	const atOnce = 64 // rows that parquet-go writes before it looks whether a page is full
	batch := make([]T, 0, atOnce)
	for _, rows := range parts {
		for i := range rows {
			if batch = append(batch, rows[i]); len(batch) < atOnce {
				continue
			}
			if _, err := w.Write(batch); err != nil {
				return nil, fmt.Errorf("cannot encode rows: %w", err)
			}
			batch = batch[:0]
		}
	}
	_, err := w.Write(batch)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot encode rows: %w", err)
	}
	return file.Bytes(), nil
}

// Decode returns the rows of a file in memory. After an error there are none.
func Decode[T any](ctx context.Context, name string, data []byte) ([]T, error) {
	row := new(T)
	file := Place{Object: inMemory{bytes.NewReader(data)}, File: schema.File{Name: name}, Rows: allRows}
	cursor, err := NewCursor(ctx, Opened{Place: file}, nil, FieldsOf(row, true, Some())...)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, group := range cursor.groups {
		n += int(group.NumRows())
	}
	rows := make([]T, 0, min(n, len(data)/64)) // a damaged footer may say any number
	for cursor.Next() {
		rows = append(rows, *row)
	}
	if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
		return nil, err
	}
	return rows, nil
}

// inMemory is a store.Object.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }
