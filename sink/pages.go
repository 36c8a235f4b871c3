package sink

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file is the way of flat columns into a file: a full page is encoded and compressed, the pages of a row group are written
// one column behind the other, and behind the last stand the indexes of all pages and the footer.

// endPage encodes and compresses the open page.
func (f *flatFile) endPage(c *flatColumn) error {
	if c.rows == 0 {
		return nil
	}
	raw := f.raw[:0]
	if c.nullable {
		raw = c.levels.appendLevels(append(raw, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(raw, uint32(len(raw)-4))
	}
	encoding, err := c.encoding, error(nil)
	switch {
	case c.dictionary != nil && !c.full:
		raw = appendIndexes(raw, c.indexes)
	case encoding == format.DeltaBinaryPacked && c.physical == format.Int32:
		f.scratch, err = new(delta.BinaryPackedEncoding).EncodeInt32(f.scratch[:0], c.numbers)
		raw = append(raw, f.scratch...)
	case encoding == format.DeltaBinaryPacked:
		f.scratch, err = new(delta.BinaryPackedEncoding).EncodeInt64(f.scratch[:0], c.longs)
		raw = append(raw, f.scratch...)
	case encoding == format.DeltaByteArray:
		for _, lengths := range [][]int32{c.prefixes, c.numbers} {
			if f.scratch, err = new(delta.BinaryPackedEncoding).EncodeInt32(f.scratch[:0], lengths); err != nil {
				return err
			}
			raw = append(raw, f.scratch...)
		}
		raw = append(raw, c.plain...)
	case c.physical == format.Boolean:
		encoding = format.Plain
		raw = c.truths.appendBytes(raw)
	default:
		encoding = format.Plain
		if c.physical == format.ByteArray {
			c.chunk.SizeStatistics.UnencodedByteArrayDataBytes += int64(len(c.plain) - 4*(c.rows-c.nulls))
		}
		raw = append(raw, c.plain...)
		raw = appendPlain(appendPlain(appendPlain(raw, c.numbers), c.longs), c.doubles) // one of them
	}
	if f.raw = raw; err != nil {
		return err
	}
	header := format.PageHeader{Type: format.DataPage, DataPageHeader: thrift.New(format.DataPageHeader{
		NumValues: int32(c.rows), Encoding: encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
	})}
	first := c.chunk.NumValues
	at := int64(len(c.pages))
	if c.pages, err = f.appendPage(c.pages, c, &header, raw); err != nil {
		return err
	}
	c.index.offsets.PageLocations = append(c.index.offsets.PageLocations, format.PageLocation{
		Offset: at, CompressedPageSize: int32(int64(len(c.pages)) - at), FirstRowIndex: first,
	})
	c.chunk.NumValues += int64(c.rows)
	c.chunk.Statistics.NullCount += int64(c.nulls)
	if c.stats {
		c.boundPage()
	}
	c.full = c.full || c.overflows()
	c.resetPage()
	return nil
}

// appendPage appends a page's header and its compressed bytes, and counts it.
func (f *flatFile) appendPage(to []byte, c *flatColumn, header *format.PageHeader, raw []byte) (_ []byte, err error) {
	if f.packed, err = hastyCompression().Encode(f.packed, raw); err != nil {
		return to, err
	}
	header.UncompressedPageSize, header.CompressedPageSize = int32(len(raw)), int32(len(f.packed))
	header.CRC = int32(crc32.ChecksumIEEE(f.packed))
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), header)
	if err != nil {
		return to, err
	}
	c.chunk.TotalUncompressedSize += int64(len(encoded) + len(raw))
	c.chunk.TotalCompressedSize += int64(len(encoded) + len(f.packed))
	encoding := header.DataPageHeader.V.Encoding // Plain, the zero, of dictionaries
	stats := &c.chunk.EncodingStats
	i := slices.IndexFunc(*stats, func(s format.PageEncodingStats) bool { return s.PageType == header.Type && s.Encoding == encoding })
	if i < 0 {
		i = len(*stats)
		*stats = append(*stats, format.PageEncodingStats{PageType: header.Type, Encoding: encoding})
	}
	(*stats)[i].Count++
	return append(append(to, encoded...), f.packed...), nil
}

// boundPage notes the bounds of a page's values.
func (c *flatColumn) boundPage() {
	b := c.index.bounds
	null := c.nulls == c.rows
	b.NullPages, b.NullCounts = append(b.NullPages, null), append(b.NullCounts, int64(c.nulls))
	if null {
		b.MinValues, b.MaxValues = append(b.MinValues, []byte{}), append(b.MaxValues, []byte{})
		return
	}
	b.MinValues, b.MaxValues = append(b.MinValues, c.number(c.least)), append(b.MaxValues, c.number(c.most))
	s := &c.chunk.Statistics
	if s.MinValue == nil || c.least < numberOf(s.MinValue) {
		s.MinValue = c.number(c.least)
	}
	if s.MaxValue == nil || c.most > numberOf(s.MaxValue) {
		s.MaxValue = c.number(c.most)
	}
}

// number writes a value as bounds have it.
func (c *flatColumn) number(v int64) []byte {
	if c.physical == format.Int32 {
		return binary.LittleEndian.AppendUint32(nil, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(v))
}

func numberOf(bound []byte) int64 {
	if len(bound) == 4 {
		return int64(int32(binary.LittleEndian.Uint32(bound)))
	}
	return int64(binary.LittleEndian.Uint64(bound))
}

// write writes bytes of the file.
func (f *flatFile) write(b []byte) error {
	n, err := f.out.Write(b)
	f.at += int64(n)
	return err
}

// start writes what a file begins with.
func (f *flatFile) start() error {
	if f.at > 0 {
		return nil
	}
	return f.write([]byte(magic))
}

// Flush writes the open row group.
func (f *flatFile) Flush() error {
	if f.rows == 0 {
		return nil
	}
	if err := f.start(); err != nil {
		return err
	}
	group := format.RowGroup{
		Columns: make([]format.ColumnChunk, len(f.columns)),
		NumRows: int64(f.rows), FileOffset: f.at, Ordinal: int16(len(f.footer.RowGroups)),
	}
	if int(group.Ordinal) != len(f.footer.RowGroups) {
		return parquet.ErrTooManyRowGroups
	}
	for i, c := range f.columns {
		if err := f.endPage(c); err != nil {
			return err
		}
		if err := f.writeChunk(c); err != nil {
			return err
		}
		group.TotalByteSize += c.chunk.TotalUncompressedSize
		group.TotalCompressedSize += c.chunk.TotalCompressedSize
		group.Columns[i].MetaData = c.chunk
		f.indexes = append(f.indexes, c.index)
		c.reset()
	}
	f.footer.RowGroups = append(f.footer.RowGroups, group)
	f.footer.NumRows += group.NumRows
	f.rows = 0
	return nil
}

// writeChunk writes a column's pages.
func (f *flatFile) writeChunk(c *flatColumn) error {
	if d := c.dictionary; d != nil {
		header := format.PageHeader{Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{
			NumValues: int32(d.n), Encoding: format.Plain,
		})}
		page, err := f.appendPage(f.scratch[:0], c, &header, d.page)
		if err != nil {
			return err
		}
		f.scratch = page
		c.chunk.DictionaryPageOffset = f.at
		if err := f.write(page); err != nil {
			return err
		}
	}
	c.chunk.DataPageOffset = f.at
	for i := range c.index.offsets.PageLocations {
		c.index.offsets.PageLocations[i].Offset += f.at
	}
	return f.write(c.pages)
}

// Close writes what stands behind the row groups.
func (f *flatFile) Close() error {
	if err := f.Flush(); err != nil {
		return err
	}
	if err := f.start(); err != nil {
		return err
	}
	message := func(v any) (at int64, length int32, err error) {
		encoded, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			return 0, 0, err
		}
		at = f.at
		return at, int32(len(encoded)), f.write(encoded)
	}
	chunk := func(i int) *format.ColumnChunk {
		return &f.footer.RowGroups[i/len(f.columns)].Columns[i%len(f.columns)]
	}
	for i := range f.indexes {
		if bounds := f.indexes[i].bounds; bounds != nil {
			bounds.BoundaryOrder = orderOf(bounds)
			at, length, err := message(bounds)
			if err != nil {
				return err
			}
			chunk(i).ColumnIndexOffset, chunk(i).ColumnIndexLength = at, length
		}
	}
	for i := range f.indexes {
		at, length, err := message(&f.indexes[i].offsets)
		if err != nil {
			return err
		}
		chunk(i).OffsetIndexOffset, chunk(i).OffsetIndexLength = at, length
	}
	_, length, err := message(&f.footer)
	if err != nil {
		return err
	}
	if err := f.write(append(binary.LittleEndian.AppendUint32(nil, uint32(length)), magic...)); err != nil {
		return err
	}
	return f.out.Flush()
}

// orderOf is how the bounds of pages follow each other, those without values left out.
func orderOf(b *format.ColumnIndex) format.BoundaryOrder {
	up, down, before := true, true, -1
	for i, null := range b.NullPages {
		if null {
			continue
		}
		if before >= 0 {
			least, most := cmp.Compare(numberOf(b.MinValues[before]), numberOf(b.MinValues[i])), cmp.Compare(numberOf(b.MaxValues[before]), numberOf(b.MaxValues[i]))
			up, down = up && least <= 0 && most <= 0, down && least >= 0 && most >= 0
		}
		before = i
	}
	switch {
	case up:
		return format.Ascending
	case down:
		return format.Descending
	}
	return format.Unordered
}
