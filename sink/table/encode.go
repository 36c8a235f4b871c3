package table

import (
	"bytes"
	"fmt"
	"io"
)

// Encode returns rows as a Parquet file in memory. The rows have no optional columns.
func Encode[T any](rows []T, page int, metadata map[string]string) ([]byte, error) {
	var file bytes.Buffer
	w := &tailedWriter[T]{GenericWriter: newParquetWriter[T](io.Discard, page, metadata)}
	w.Reset(&file)
	if _, err := w.Write(rows); err != nil {
		return nil, fmt.Errorf("cannot encode rows: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot encode rows: %w", err)
	}
	return file.Bytes(), nil
}
