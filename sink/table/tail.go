package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file writes the end of a Parquet file: column indexes, offset indexes, footer. All files of a dataset end like
// this, those of parts and statistics as well as merged ones, so that their bounds of pages are true (see
// completeBounds).

// encodedIndexes are the page indexes of a column chunk, encoded.
type encodedIndexes struct {
	bounds  []byte // column index, or nil
	offsets []byte // offset index, with the final positions of the pages
}

// writeTail writes the end of a file whose pages end at position at, and sets the positions of the indexes in the
// footer. The indexes are in the order of row groups and columns. It returns schema.File.Footer.
func writeTail(w io.Writer, at int64, footer *format.FileMetaData, indexes []encodedIndexes) (sum string, err error) {
	if err := completeBounds(footer, indexes); err != nil {
		return "", err
	}
	write := func(b []byte) (place int64, length int32, err error) {
		if b == nil {
			return 0, 0, nil
		}
		place = at
		n, err := w.Write(b)
		at += int64(n)
		return place, int32(len(b)), err
	}
	for k, c := range chunksOf(footer) {
		if c.ColumnIndexOffset, c.ColumnIndexLength, err = write(indexes[k].bounds); err != nil {
			return "", err
		}
	}
	for k, c := range chunksOf(footer) {
		if c.OffsetIndexOffset, c.OffsetIndexLength, err = write(indexes[k].offsets); err != nil {
			return "", err
		}
	}
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), footer)
	if err != nil {
		return "", err
	}
	if len(encoded) > MaxFooter {
		return "", fmt.Errorf("the footer would have %d bytes, more than %d", len(encoded), MaxFooter)
	}
	encoded = binary.LittleEndian.AppendUint32(encoded, uint32(len(encoded)))
	encoded = append(encoded, Magic...)
	_, _, err = write(encoded)
	return schema.SumOf(encoded), err
}

// chunksOf yields the column chunks of a file, numbered through all row groups.
func chunksOf(footer *format.FileMetaData) func(yield func(int, *format.ColumnChunk) bool) {
	return func(yield func(int, *format.ColumnChunk) bool) {
		k := 0
		for i := range footer.RowGroups {
			for j := range footer.RowGroups[i].Columns {
				if !yield(k, &footer.RowGroups[i].Columns[j]) {
					return
				}
				k++
			}
		}
	}
}

// tailedWriter is a Parquet writer whose files end with writeTail. It holds back what parquet-go writes at the end of a
// file: some MB at most, with hostile sites.
type tailedWriter[T any] struct {
	*parquet.GenericWriter[T]
	out heldWriter
	sum string // schema.File.Footer, once the file is closed
}

// heldWriter passes writes on and counts them; after holds is set, it keeps them in held.
type heldWriter struct {
	out   io.Writer
	at    int64
	holds bool
	held  bytes.Buffer
}

func (h *heldWriter) Write(b []byte) (int, error) {
	if h.holds {
		return h.held.Write(b)
	}
	n, err := h.out.Write(b)
	h.at += int64(n)
	return n, err
}

func (t *tailedWriter[T]) Reset(w io.Writer) {
	t.out.out, t.out.at, t.out.holds = w, 0, false
	t.out.held.Reset()
	t.GenericWriter.Reset(&t.out)
}

// Close ends the file.
func (t *tailedWriter[T]) Close() error {
	if err := t.Flush(); err != nil { // so that held has no complete row group
		return err
	}
	t.out.holds = true
	if err := t.GenericWriter.Close(); err != nil {
		return err
	}
	// held may begin with pages that the writer had still buffered.
	held, from := t.out.held.Bytes(), t.out.at
	footer := *t.File().Metadata()
	footer.RowGroups = slices.Clone(footer.RowGroups)
	end, err := endOfPages(&footer, from+int64(len(held)))
	if err != nil {
		return err
	}
	if end < from {
		return errors.New("pages and indexes are mixed")
	}
	if _, err := t.out.out.Write(held[:end-from]); err != nil {
		return err
	}
	piece := func(at int64, length int32) []byte {
		if length == 0 {
			return nil
		}
		return held[at-from:][:length:length]
	}
	var indexes []encodedIndexes
	paths := t.Schema().Columns() // see upstream.go
	for i := range footer.RowGroups {
		group := &footer.RowGroups[i]
		group.Columns = slices.Clone(group.Columns) // the originals belong to the writer
		for j := range group.Columns {
			c := &group.Columns[j]
			c.MetaData.PathInSchema = paths[j]
			indexes = append(indexes, encodedIndexes{piece(c.ColumnIndexOffset, c.ColumnIndexLength),
				piece(c.OffsetIndexOffset, c.OffsetIndexLength)})
		}
	}
	t.sum, err = writeTail(t.out.out, end, &footer, indexes)
	return err
}
