package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file writes what stands behind the pages of a Parquet file: column indexes, offset indexes, footer. All files of a
// dataset end here, those of parts and statistics as well as merged ones, so that what they say of their pages is true.
//
// A column index says between which bounds the values of each page are, and readers leave out pages by it. For columns
// whose bounds it is told not to compute, parquet-go writes one all the same, in which they are zero or empty: who looks
// for anything else finds no page (https://github.com/parquet-go/parquet-go/issues/314 has the like). Such an index is left
// out. What tells it from a true one is that its chunk has no minimum either.
//
// The first column is another trap. parquet-go reads the column indexes of a file only if its first column has one, and
// else says of all columns that they have indexes of no pages, in which no value is found. No first column of ours is worth
// bounds; where others have some it gets an index that is true of all values, and leaves out no page.

// encodedIndexes are the page indexes of a column chunk, as they are written.
type encodedIndexes struct {
	bounds  []byte // column index; none is nil
	offsets []byte // offset index, with the places that the pages have
}

// hasBounds reports whether the bounds of a chunk's pages are those of their values, where it has any.
func hasBounds(m *format.ColumnMetaData) bool { return m.Statistics.MinValue != nil }

// writeTail writes what stands behind the pages, which end at that place, and puts its own places into the footer. The
// indexes are in the order of row groups and columns. It returns errTooLarge where the footer would be longer than most.
func writeTail(w io.Writer, at int64, footer *format.FileMetaData, indexes []encodedIndexes, most int) error {
	if err := nameChunks(footer); err != nil {
		return err
	}
	if err := completeBounds(footer, indexes); err != nil {
		return err
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
	var err error
	for k, c := range chunksOf(footer) {
		if c.ColumnIndexOffset, c.ColumnIndexLength, err = write(indexes[k].bounds); err != nil {
			return err
		}
	}
	for k, c := range chunksOf(footer) {
		if c.OffsetIndexOffset, c.OffsetIndexLength, err = write(indexes[k].offsets); err != nil {
			return err
		}
	}
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), footer)
	if err != nil {
		return err
	}
	if len(encoded) > most {
		return fmt.Errorf("%w: its footer would have %d bytes, more than %d", ErrTooLarge, len(encoded), most)
	}
	encoded = binary.LittleEndian.AppendUint32(encoded, uint32(len(encoded)))
	_, _, err = write(append(encoded, Magic...))
	return err
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

// nameChunks says of each column chunk which column of the schema it belongs to: a writer that is used again forgets it
// (https://github.com/parquet-go/parquet-go/issues/602).
func nameChunks(footer *format.FileMetaData) error {
	paths := leafPaths(footer.Schema)
	for i := range footer.RowGroups {
		columns := footer.RowGroups[i].Columns
		if len(columns) != len(paths) {
			return fmt.Errorf("row group %d has %d columns, and the schema %d", i, len(columns), len(paths))
		}
		for j := range columns {
			columns[j].MetaData.PathInSchema = paths[j]
		}
	}
	return nil
}

// maxNesting is how deep the columns of a schema lie: those of lists of structs, three below the table's own.
const maxNesting = 16

// leafPaths are the columns of a schema, of each the names that lead to it; nil where the schema makes no sense.
func leafPaths(schema []format.SchemaElement) (paths [][]string) {
	var path []string // of the groups that are open, the table as a whole first
	var left []int32  // how many more elements each of them has
	for _, element := range schema {
		path = append(path, element.Name)
		if n := element.NumChildren.V; n > 0 {
			if left = append(left, n); len(left) > maxNesting {
				return nil
			}
			continue
		}
		paths = append(paths, slices.Clone(path[1:]))
		path = path[:len(path)-1]
		for len(left) > 0 {
			if left[len(left)-1]--; left[len(left)-1] > 0 {
				break
			}
			path, left = path[:len(path)-1], left[:len(left)-1]
		}
	}
	return paths
}

// completeBounds leaves the column indexes that are true, and gives the first column some where others have one.
func completeBounds(footer *format.FileMetaData, indexes []encodedIndexes) error {
	has := false
	for k, c := range chunksOf(footer) {
		if !hasBounds(&c.MetaData) {
			indexes[k].bounds = nil
		}
		has = has || indexes[k].bounds != nil
	}
	if !has {
		return nil
	}
	k := 0 // the first column's
	for i := range footer.RowGroups {
		if first := &footer.RowGroups[i].Columns[0]; indexes[k].bounds == nil {
			var err error
			if indexes[k].bounds, err = widestBounds(first.MetaData.Type, indexes[k].offsets); err != nil {
				return err
			}
		}
		k += len(footer.RowGroups[i].Columns)
	}
	return nil
}

// highest is above every text that a first column with widest bounds has: scan ids and origins, which are ASCII. Bounds must
// be UTF-8 themselves.
const highest = "\U0010FFFF"

// widestBounds is the column index of a chunk of texts, of which none is null.
func widestBounds(of format.Type, offsets []byte) ([]byte, error) {
	if of != format.ByteArray {
		return nil, fmt.Errorf("the first column is of type %v, whose widest bounds nobody has written down", of)
	}
	var pages format.OffsetIndex
	if err := DecodeOffsets(offsets, &pages); err != nil {
		return nil, err
	}
	n := len(pages.PageLocations)
	return thrift.Marshal(new(thrift.CompactProtocol), &format.ColumnIndex{
		NullPages: make([]bool, n), NullCounts: make([]int64, n),
		MinValues: slices.Repeat([][]byte{{}}, n), MaxValues: slices.Repeat([][]byte{[]byte(highest)}, n),
	})
}

// tailedWriter is a Parquet writer whose files end with writeTail. It holds back what the writer writes at the end of a
// file: some MB at most, of hostile sites.
type tailedWriter[T any] struct {
	*parquet.GenericWriter[T]
	out heldWriter
}

// heldWriter counts what it writes on, and keeps it instead once it holds.
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
	if err := t.Flush(); err != nil { // so that what is held has no row group in it
		return err
	}
	t.out.holds = true
	if err := t.GenericWriter.Close(); err != nil {
		return err
	}
	// Pages may be in it that the writer had still buffered.
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
	for i := range footer.RowGroups {
		group := &footer.RowGroups[i]
		group.Columns = slices.Clone(group.Columns) // the writer's own
		for j := range group.Columns {
			c := &group.Columns[j]
			indexes = append(indexes, encodedIndexes{piece(c.ColumnIndexOffset, c.ColumnIndexLength), piece(c.OffsetIndexOffset, c.OffsetIndexLength)})
		}
	}
	return writeTail(t.out.out, end, &footer, indexes, MaxFooter)
}
