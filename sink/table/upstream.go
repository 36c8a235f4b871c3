package table

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"

	"github.com/bulkscan/bulkscan/sink/schema"
	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file works around bugs of parquet-go v0.32.0. Numbers are those of its issues and pull requests, at
// https://github.com/parquet-go/parquet-go.
//
//   - Nulls become zeros and empty strings (523): misread, and Writer.writePieces.
//   - Column indexes have false bounds (similar: 314), or are not read: completeBounds.
//   - A reused writer leaves out the names of columns (602): tailedWriter.Close sets them.
//   - Pages that are compressed by LZ4 are misread (608): List refuses them.
//   - Damaged files cause panics (537): rescue.
//   - Encoders of zstd take 8 MB each: codec.
//   - What a file claims is allocated before it is read: footer.go, guard.go and contents.go check it first.

// rescue turns a panic into an error.
func rescue(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrPage, p)
	}
}

// The library finds the runs of values in an optional column 64 rows at a time. If a run of y values begins at row y of
// the 64 and no value follows, it takes the remaining rows for values, and their nulls become zeros and empty strings.
// The cause is writeRowsFuncOfOptional, which compares the bits after y with 1<<y - 1 instead of 1<<(64-y) - 1. Batches
// with such a column are halved until none is left. Two rows are never affected.

// optional is a column whose null is its type's zero.
type optional struct {
	offset uintptr // of what is zero: a number, or the length of a string
	size   uintptr // 4 or 8 bytes
}

// optionalsOf lists the columns of a row that parquet-go writes in runs. It writes pointers one by one, so they are not
// affected.
func optionalsOf(row reflect.Type) []optional {
	var all []optional
	for i := range row.NumField() {
		field := row.Field(i)
		if field.Anonymous {
			for _, o := range optionalsOf(field.Type) {
				all = append(all, optional{field.Offset + o.offset, o.size})
			}
		}
		if !schema.HasOption(field, "optional") || field.Type.Kind() == reflect.Pointer {
			continue
		}
		o := optional{field.Offset, field.Type.Size()}
		if field.Type.Kind() == reflect.String { // its length is its second word
			o = optional{field.Offset + unsafe.Sizeof(uintptr(0)), unsafe.Sizeof(0)}
		}
		if o.size != 4 && o.size != 8 {
			panic("sink: an optional column of type " + field.Type.String())
		}
		all = append(all, o)
	}
	return all
}

// values returns a bit for each of n rows, at most 64, that has a value in the column.
func (o optional) values(first unsafe.Pointer, row uintptr, n int) (has uint64) {
	field := unsafe.Add(first, o.offset)
	if o.size == 4 {
		return valuesOf[uint32](field, row, n)
	}
	return valuesOf[uint64](field, row, n)
}

func valuesOf[T uint32 | uint64](field unsafe.Pointer, row uintptr, n int) (has uint64) {
	offset := uintptr(0) // not a pointer: after the last row it would point outside of the slice
	for range n {
		// Branch-free, since whether a value is null is not predictable.
		var bit uint64
		if *(*T)(unsafe.Add(field, offset)) != 0 {
			bit = 1 << 63
		}
		has = has>>1 | bit
		offset += row
	}
	return has >> (-n & 63)
}

// misread reports whether parquet-go would lose nulls of these rows.
func misread[T any](rows []T, columns []optional) bool {
	for _, column := range columns {
		for word := 0; word < len(rows); word += 64 {
			if losesNulls(column.values(unsafe.Pointer(&rows[word]), unsafe.Sizeof(rows[word]), min(64, len(rows)-word))) {
				return true
			}
		}
	}
	return false
}

// losesNulls reports whether a run of y values begins at bit y of the 64, y from 1 to 31, and no value follows.
func losesNulls(values uint64) bool {
	y := bits.LeadingZeros64(values) // bits after the last run
	end := 64 - y
	return end > 0 && end < 64 && end%2 == 0 && values>>(end/2) == 1<<(end/2)-1 && values>>(end/2-1)&1 == 0
}

// A column index has the bounds of the values of each page, and readers skip pages by it. For columns without bounds
// the library writes an index, too, whose bounds are zero or empty: a reader that looks for any other value skips every
// page. Such an index is left out. Its chunk has no minimum, which distinguishes it.
//
// The library reads the column indexes of a file only if the first column has one. Otherwise it returns indexes without
// pages for all columns, and finds no value in them. The first columns of bulkscan's tables have no bounds. So if
// another column has some, the first one gets an index that includes all values.

// hasBounds reports whether the column index of a chunk has true bounds.
func hasBounds(m *format.ColumnMetaData) bool { return m.Statistics.MinValue != nil }

// completeBounds removes false column indexes, and adds one for the first column if another column has one.
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
	k := 0 // index of the first column's chunk
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

// highest sorts after every text of the first columns, scan ids and origins, which are ASCII. Bounds must be valid
// UTF-8.
const highest = "\U0010FFFF"

// widestBounds returns a column index that includes all texts. The column has no nulls.
func widestBounds(of format.Type, offsets []byte) ([]byte, error) {
	if of != format.ByteArray {
		return nil, fmt.Errorf("the first column is of type %v, for which there are no widest bounds", of)
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

// codec compresses pages with zstd. Its output equals that of parquet-go's codec, which pools encoders of a fixed
// window: 8 MB each, up to six in a run with many tables. Pages have at most 1 MiB, so a window of 1 MiB suffices.
type codec struct {
	zstd.Codec // names and decoding
	encoder    *kzstd.Encoder
}

// Encode implements compress.Codec. It may be called from several goroutines.
func (c *codec) Encode(dst, src []byte) ([]byte, error) {
	return c.encoder.EncodeAll(src, dst[:0]), nil
}

// compression is the codec of every file. Two encoders are enough: one goroutine fills a part while another seals one.
// The encoder makes a channel at its first use. A channel that is made in the bubble of a test in virtual time ends the
// process when it is used outside, so the first use is here.
var compression = func() compress.Codec {
	encoder, err := kzstd.NewWriter(nil,
		kzstd.WithEncoderConcurrency(2), kzstd.WithWindowSize(1<<20),
		kzstd.WithLowerEncoderMem(true), kzstd.WithZeroFrames(true), kzstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // the options are constants
	}
	encoder.EncodeAll(nil, nil)
	return &codec{encoder: encoder}
}()
