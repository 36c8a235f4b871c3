package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// This file reads columns of Parquet files that anybody may have written: lists of sites. It is laid out from the file down
// to a value: Foreign finds the columns, foreignReader goes through the pages of one of them, a page is unpacked, and
// foreignvalues.go takes its values out one by one.
//
// The Parquet reader is not used for it. What that reader makes room for is what headers, runs and shared prefixes say,
// and a guard that knows only what bulkscan writes cannot stand before it. Here nothing is decoded before it is asked for:
// of a column there are at most one page, packed and unpacked, and one dictionary with the places of its texts in memory,
// each of these of at most maxForeignPage bytes, and one value.

const (
	maxForeignPage    = 128 << 20 // bytes of a page, before compression; DuckDB's are the longest, with up to 100 MB
	maxForeignHeader  = 16 << 20  // bytes of a page's header, which may repeat the least and the greatest text
	maxForeignValues  = 1 << 24   // values of a page
	maxForeignColumns = 10_000
	maxForeignName    = 200 // bytes of a column's name that are kept
)

// plainDictionary is what writers of Parquet 1.0 say for both Plain, in a dictionary's page, and RLEDictionary, in others.
const plainDictionary format.Encoding = 2

// ErrForeign is of a Parquet file that is sound, and that bulkscan does not read.
var ErrForeign error = foreignError("bulkscan cannot read it")

type foreignError string

func (e foreignError) Error() string { return string(e) }

// Remedy says what to do about it.
func (e foreignError) Remedy() string {
	return "write it anew without encryption, with snappy or zstd, in the encodings of Parquet 1.0"
}

// Foreign reads some columns of a Parquet file, row after row. It is not safe for concurrent use.
type Foreign struct {
	file    *tailed
	end     int64 // where the footer begins
	footer  *format.FileMetaData
	columns []foreignColumn

	selected []*foreignReader
	group    int   // that is begun next
	left     int64 // rows of the one before it
	row      int64 // rows begun
}

// foreignColumn is what the schema says of a column.
type foreignColumn struct {
	shape
	name     string
	holds    string
	length   int // of a text of fixed length
	unsigned bool
}

// What a column holds that can be read.
const (
	HoldsText    = "text"
	HoldsNumbers = "numbers"
	HoldsTruths  = "truths" // true and false
)

// OpenForeign reads the footer of a file of that size. The file stays the caller's, who closes it after the last use.
func OpenForeign(file io.ReaderAt, size int64) (*Foreign, error) {
	t, encoded, err := openTail(readerOnly{file, size})
	if err != nil {
		return nil, err
	}
	footer, err := decodeFooter(encoded)
	if err != nil {
		return nil, err
	}
	f := &Foreign{file: t, end: size - 8 - int64(len(encoded)), footer: footer}
	if f.columns, err = foreignColumns(footer.Schema); err != nil {
		return nil, err
	}
	for i := range footer.RowGroups {
		if g := &footer.RowGroups[i]; g.NumRows < 0 || len(g.Columns) != len(f.columns) {
			return nil, fmt.Errorf("%w: row group %d has %d columns and %d rows", errFooter, i, len(g.Columns), g.NumRows)
		}
	}
	return f, nil
}

// readerOnly is a file that its owner closes.
type readerOnly struct {
	io.ReaderAt
	size int64
}

func (r readerOnly) Size() int64  { return r.size }
func (r readerOnly) Close() error { return nil }

func foreignColumns(schema []format.SchemaElement) ([]foreignColumn, error) {
	shapes, err := shapesOf(schema)
	if err != nil {
		return nil, err
	}
	if len(shapes) > maxForeignColumns {
		return nil, fmt.Errorf("%w: it has %d columns", ErrForeign, len(shapes))
	}
	paths := leafPaths(schema)
	if len(paths) != len(shapes) {
		return nil, fmt.Errorf("%w: its columns are nested too deep", ErrForeign)
	}
	var columns []foreignColumn
	for i := range schema[1:] {
		e := &schema[i+1]
		if e.NumChildren.V > 0 {
			continue
		}
		c := foreignColumn{shape: shapes[len(columns)], length: int(e.TypeLength.V)}
		name := strings.Join(paths[len(columns)], ".")
		c.name = strings.Clone(name[:min(len(name), maxForeignName)])
		c.holds, c.unsigned = holds(e, c.shape)
		columns = append(columns, c)
	}
	return columns, nil
}

// holds says what a column holds. What is neither text nor a number can be named, and not read.
func holds(e *format.SchemaElement, s shape) (what string, unsigned bool) {
	if s.repetition > 0 {
		return "lists", false
	}
	annotated := e.ConvertedType.Valid
	kind := e.ConvertedType.V
	if annotated && kind == deprecated.Decimal {
		return "decimals", false
	}
	switch e.Type.V {
	case format.ByteArray:
		return HoldsText, false
	case format.FixedLenByteArray:
		if annotated || e.LogicalType.Value != nil || e.TypeLength.V <= 0 {
			return "binary data", false
		}
		return HoldsText, false
	case format.Int32, format.Int64:
		switch {
		case !annotated, kind >= deprecated.Int8 && kind <= deprecated.Int64:
			if !annotated && e.LogicalType.Value != nil {
				return "dates or times", false // INTEGER has a converted type too
			}
			return HoldsNumbers, false
		case kind >= deprecated.Uint8 && kind <= deprecated.Uint64:
			return HoldsNumbers, true
		}
		return "dates or times", false
	case format.Float, format.Double:
		return HoldsNumbers, false
	case format.Boolean:
		return HoldsTruths, false
	}
	return "binary data", false
}

// Columns returns how many columns there are, those inside of structs included.
func (f *Foreign) Columns() int { return len(f.columns) }

// Column returns a column's name, which is `struct.field` inside of a struct, and what it holds: HoldsText, HoldsNumbers,
// HoldsTruths, or in words something that Select refuses.
func (f *Foreign) Column(i int) (name, holds string) { return f.columns[i].name, f.columns[i].holds }

// Select chooses the columns that Next reads, before the first Next.
func (f *Foreign) Select(columns ...int) error {
	f.selected = f.selected[:0]
	for _, i := range columns {
		c := &f.columns[i]
		switch c.holds {
		case HoldsText, HoldsNumbers, HoldsTruths:
		default:
			return fmt.Errorf("%w: column %q holds %s", ErrForeign, c.name, c.holds)
		}
		for j := range f.footer.RowGroups {
			if codec := f.footer.RowGroups[j].Columns[i].MetaData.Codec; !slices.Contains(foreignCodecs, codec) {
				return fmt.Errorf("%w: column %q is compressed by %v", ErrForeign, c.name, codec)
			}
		}
		f.selected = append(f.selected, &foreignReader{column: c, index: i, file: f.file})
	}
	return nil
}

// Next goes on to the next row, and returns io.EOF behind the last. An error is one of the file: of reading it, of damage,
// or ErrForeign.
func (f *Foreign) Next() (err error) {
	for f.left == 0 {
		if f.group == len(f.footer.RowGroups) {
			return io.EOF
		}
		group := &f.footer.RowGroups[f.group]
		f.group++
		f.left = group.NumRows
		if f.left == 0 {
			continue // some writers leave a group that is empty without any place in the file
		}
		for _, r := range f.selected {
			if err := r.begin(&group.Columns[r.index], group.NumRows, f.end); err != nil {
				return fmt.Errorf("row group %d, column %q: %w", f.group-1, r.column.name, err)
			}
		}
	}
	f.left--
	f.row++
	for _, r := range f.selected {
		if err := r.next(); err != nil {
			return fmt.Errorf("row %d, column %q: %w", f.row, r.column.name, err)
		}
	}
	return nil
}

// Text returns the present row's value of the i-th of the selected columns, ok with a value and not null. A number is
// spelled in decimal digits. The bytes may be anything, and are valid until the next Next.
func (f *Foreign) Text(i int) (value []byte, ok bool) {
	r := f.selected[i]
	return r.value, r.ok
}

// foreignReader goes through the pages of one column.
type foreignReader struct {
	column *foreignColumn
	index  int
	file   *tailed

	// The chunk: its pages from at to end hold so many values more.
	at, end int64
	codec   format.CompressionCodec
	more    int64

	// The page: values left in it, nulls included.
	left       int64
	levels     hybrid
	nullable   bool
	values     foreignValues
	dictionary foreignDictionary

	header, packed, raw []byte

	value []byte
	ok    bool
}

// begin goes to the pages of a row group.
func (r *foreignReader) begin(c *format.ColumnChunk, rows, limit int64) error {
	m := &c.MetaData
	if c.FilePath != "" {
		return fmt.Errorf("%w: its values are in another file", ErrForeign)
	}
	if c.CryptoMetadata.Value != nil {
		return fmt.Errorf("%w: it is encrypted", ErrForeign)
	}
	if m.Type != r.column.physical || m.NumValues != rows {
		return fmt.Errorf("%w: %d values of type %v, in %d rows", errFooter, m.NumValues, m.Type, rows)
	}
	first := m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 { // some writers say 0 of one that there is not, and others of one that there is
		first = min(first, d)
	}
	if length := m.TotalCompressedSize; first < int64(len(magic)) || length < 0 || length > limit || first > limit-length {
		return fmt.Errorf("%w: its %d bytes from %d on are not within the file", errFooter, length, first)
	}
	r.at, r.end, r.codec, r.more, r.left = first, first+m.TotalCompressedSize, m.Codec, rows, 0
	r.dictionary.reset()
	return nil
}

// next reads the next value.
func (r *foreignReader) next() error {
	for r.left == 0 {
		if err := r.nextPage(); err != nil {
			return err
		}
	}
	r.left--
	r.value, r.ok = nil, false
	if r.nullable {
		level, err := r.levels.next()
		if err != nil {
			return err
		}
		if int(level) < r.column.definition {
			return nil
		}
	}
	var err error
	r.value, err = r.values.next()
	r.ok = err == nil
	return err
}

// nextPage reads a page: a dictionary, of which a chunk has one at most, or values.
func (r *foreignReader) nextPage() error {
	if r.at >= r.end {
		return fmt.Errorf("%w: %d values are missing", errPage, r.more)
	}
	h, err := r.pageHeader()
	if err != nil {
		return err
	}
	size, raw := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	if size < 0 || size > r.end-r.at || raw < 0 || raw > maxForeignPage || size > maxForeignPage {
		return fmt.Errorf("%w: page at %d: it says that it has %d bytes, and %d before compression", errPage, r.at, size, raw)
	}
	r.packed = room(r.packed, int(size))
	if _, err := io.ReadFull(io.NewSectionReader(r.file, r.at, size), r.packed); err != nil {
		return err
	}
	at := r.at
	r.at += size
	switch {
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		err = r.readDictionary(&h.DictionaryPageHeader.V, int(raw))
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		err = r.readPage(&h.DataPageHeader.V, int(raw))
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		err = r.readPageV2(&h.DataPageHeaderV2.V, int(raw))
	case h.Type == format.IndexPage: // which nobody has written so far
	default:
		err = errors.New("its header does not say what it is")
	}
	if err != nil && !errors.Is(err, ErrForeign) {
		err = fmt.Errorf("%w: page at %d: %w", errPage, at, err)
	}
	return err
}

func (r *foreignReader) pageHeader() (*format.PageHeader, error) {
	for most := int64(256); ; most *= 16 { // most are short
		most = min(most, r.end-r.at, maxForeignHeader)
		r.header = room(r.header, int(most))
		if _, err := io.ReadFull(io.NewSectionReader(r.file, r.at, most), r.header); err != nil {
			return nil, err
		}
		n, err := thriftLength(r.header)
		if err != nil && most < min(r.end-r.at, maxForeignHeader) {
			continue
		}
		var h *format.PageHeader
		if err == nil {
			h, err = decodePageHeader(r.header[:n])
		}
		if err != nil {
			return nil, fmt.Errorf("%w: page at %d: %w", errPage, r.at, err)
		}
		r.at += int64(n)
		return h, nil
	}
}

func (r *foreignReader) readDictionary(h *format.DictionaryPageHeader, raw int) (err error) {
	if h.Encoding != format.Plain && h.Encoding != plainDictionary {
		return fmt.Errorf("%w: its dictionary is encoded as %v", ErrForeign, h.Encoding)
	}
	page, err := unpackForeign(r.codec, r.dictionary.memory, r.packed, raw)
	if err != nil {
		return err
	}
	r.dictionary.memory = page
	return r.dictionary.read(r.column, page, int64(h.NumValues))
}

func (r *foreignReader) readPage(h *format.DataPageHeader, raw int) (err error) {
	if r.raw, err = unpackForeign(r.codec, r.raw, r.packed, raw); err != nil {
		return err
	}
	page := r.raw
	var levels []byte
	if r.column.definition > 0 {
		if h.DefinitionLevelEncoding != format.RLE {
			return fmt.Errorf("%w: its levels are encoded as %v", ErrForeign, h.DefinitionLevelEncoding)
		}
		if len(page) < 4 || int64(binary.LittleEndian.Uint32(page)) > int64(len(page)-4) {
			return errors.New("its levels are longer than the page")
		}
		n := 4 + binary.LittleEndian.Uint32(page)
		levels, page = page[4:n], page[n:]
	}
	return r.beginPage(int64(h.NumValues), levels, h.Encoding, page)
}

func (r *foreignReader) readPageV2(h *format.DataPageHeaderV2, raw int) (err error) {
	repeated, levels := int64(h.RepetitionLevelsByteLength), int64(h.DefinitionLevelsByteLength)
	before := repeated + levels
	if repeated < 0 || levels < 0 || before > int64(len(r.packed)) || before > int64(raw) {
		return errors.New("its levels are longer than the page")
	}
	page := r.packed[before:]
	if !h.IsCompressed.Valid || h.IsCompressed.V {
		if r.raw, err = unpackForeign(r.codec, r.raw, page, raw-int(before)); err != nil {
			return err
		}
		page = r.raw
	}
	return r.beginPage(int64(h.NumValues), r.packed[repeated:before], h.Encoding, page)
}

// beginPage makes ready to read the values of a page.
func (r *foreignReader) beginPage(values int64, levels []byte, encoding format.Encoding, page []byte) error {
	if values < 0 || values > maxForeignValues || values > r.more {
		return fmt.Errorf("it says that it has %d values, of %d", values, r.more)
	}
	r.more -= values
	r.left = values
	if r.nullable = r.column.definition > 0; r.nullable {
		r.levels = hybrid{b: levels, width: uint(bits.Len(uint(r.column.definition)))}
	}
	if values == 0 {
		return nil
	}
	return r.values.begin(r.column, &r.dictionary, encoding, page, values)
}

// foreignCodecs are the compressions that unpackForeign knows.
var foreignCodecs = []format.CompressionCodec{format.Uncompressed, format.Snappy, format.Gzip, format.Zstd, format.Brotli, format.Lz4Raw}

// unpackForeign unpacks a page that says that it has so many bytes, into the room of another.
func unpackForeign(codec format.CompressionCodec, to, packed []byte, raw int) (_ []byte, err error) {
	if raw == 0 {
		return to[:0], nil
	}
	to = room(to, raw)
	n := 0
	switch codec {
	case format.Uncompressed:
		n = copy(to, packed)
		if len(packed) > raw {
			n = len(packed)
		}
	case format.Snappy:
		if n, err = snappy.DecodedLen(packed); err == nil && n == raw {
			_, err = snappy.Decode(to, packed)
		}
	case format.Gzip:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(packed)); err == nil {
			n, err = io.ReadFull(z, to)
		}
	case format.Zstd:
		var out []byte
		out, err = inflater().DecodeAll(packed, to[:0:raw])
		n = len(out)
	case format.Brotli:
		n, err = io.ReadFull(brotli.NewReader(bytes.NewReader(packed)), to)
	case format.Lz4Raw:
		n, err = lz4.UncompressBlock(packed, to)
	default:
		return to, fmt.Errorf("%w: it is compressed by %v", ErrForeign, codec)
	}
	if err == nil && n != raw {
		err = fmt.Errorf("it has %d bytes before compression, and says %d", n, raw)
	}
	return to, err
}

// room returns n bytes of no certain contents, in the memory of b where it is enough.
func room(b []byte, n int) []byte { return slices.Grow(b[:0], n)[:n] }

// appendFloat spells a number of so many bits in as few digits as tell it, and one that is whole without an exponent.
func appendFloat(b []byte, v float64, bits int) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits)
}
