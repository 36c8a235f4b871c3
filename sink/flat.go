package sink

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// This file writes tables without lists, of which a scan has many rows a site. It knows what parquet-go cannot: that the
// rows of a site stand together and say much the same, so that most texts are those of the row before or of a few rows
// before, and need no map to be found; and which columns are worth how much of zstd, which takes a third of the time.
//
// A writer takes 64 rows at a time apart, column by column, while they lie in the nearest cache. Each column has an open
// page, which is encoded when it is full, and the finished pages of the open row group, which are written one column
// behind the other at its end. Schema and metadata are taken from parquet-go, which writes the other tables: readers
// and compaction see no difference.
//
// Columns without `stats` have no column index, as it would have to bound their values; all have an offset index.

// rowWriter is what a table needs of a Parquet writer.
type rowWriter[T any] interface {
	Write(rows []T) (int, error)
	Flush() error // ends the row group
	Close() error // ends the file
	Reset(w io.Writer)
}

// flatWriter writes rows of a struct of numbers, truths and texts.
type flatWriter[T any] struct{ flatFile }

// flatFile is a flatWriter without its row type.
type flatFile struct {
	out     *bufio.Writer
	at      int64 // bytes written
	page    int   // bytes after which a page ends
	columns []*flatColumn
	rows    int                 // in the open row group
	footer  format.FileMetaData // with the row groups written
	indexes []pageIndexes       // by row group and column

	raw, packed, scratch []byte
	touched              uint64
}

// pageIndexes say where the pages of a chunk lie, and between what bounds their values are.
type pageIndexes struct {
	bounds  *format.ColumnIndex // nil without stats
	offsets format.OffsetIndex
}

// isFlat reports whether flatWriter can write such rows.
func isFlat(row reflect.Type) bool {
	for i := range row.NumField() {
		kind := row.Field(i).Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		default:
			return false
		}
	}
	return true
}

func newFlatWriter[T any](w io.Writer, page int, metadata map[string]string) *flatWriter[T] {
	// An empty file says what stands in every footer.
	model := newParquetWriter[T](io.Discard, minPageBytes, metadata)
	if err := model.Close(); err != nil {
		panic(fmt.Sprintf("sink: %v", err)) // it writes nowhere
	}
	f := &flatWriter[T]{flatFile: flatFile{out: bufio.NewWriterSize(w, 256<<10), page: page, footer: *model.File().Metadata()}}
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		f.columns = append(f.columns, newFlatColumn(row.Field(i), &f.footer.Schema[i+1]))
	}
	f.Reset(w)
	return f
}

func (f *flatFile) Reset(w io.Writer) {
	f.out.Reset(w)
	f.at, f.rows = 0, 0
	f.footer.RowGroups, f.footer.NumRows = nil, 0
	f.indexes = f.indexes[:0]
	for _, c := range f.columns {
		c.reset()
	}
}

// Write takes rows, which it does not keep.
func (f *flatWriter[T]) Write(rows []T) (written int, err error) {
	for len(rows) > 0 {
		n := min(len(rows), 64, groupRows-f.rows)
		f.touched += touch(unsafe.Slice((*byte)(unsafe.Pointer(&rows[0])), uintptr(n)*unsafe.Sizeof(rows[0])))
		for _, c := range f.columns {
			c.take(c, fieldOf{unsafe.Add(unsafe.Pointer(&rows[0]), c.offset), unsafe.Sizeof(rows[0]), n})
			c.rows += n
			if c.bytes() >= f.page || c.overflows() {
				if err := f.endPage(c); err != nil {
					return written, err
				}
			}
		}
		f.rows += n
		if f.rows == groupRows {
			if err := f.Flush(); err != nil {
				return written, err
			}
		}
		written += n
		rows = rows[n:]
	}
	return written, nil
}

// touch brings memory into the nearest cache, in the order in which it lies: that is what memory is fast at, and column by
// column it is not. The sum is there so that the reading is.
func touch(memory []byte) (sum uint64) {
	for i := 0; i < len(memory); i += 64 {
		sum += uint64(memory[i])
	}
	return sum
}

// flatColumn is a column of the open row group.
type flatColumn struct {
	name     string
	offset   uintptr // in a row
	nullable bool
	stats    bool
	physical format.Type
	encoding format.Encoding                 // as its tag says
	take     func(c *flatColumn, f fieldOf)  // appends to the open page
	has      func(f fieldOf) (values uint64) // which rows are not null, in nullable columns

	// The open page.
	rows, nulls int
	levels      bitmap  // which rows have a value
	plain       []byte  // values, as they are written
	truths      bitmap  // values of truth
	numbers     []int32 // indexes, or values of a delta column
	longs       []int64 // values of a delta column
	prefixes    []int32 // bytes that texts of a delta column share with those before; numbers has how many follow
	before      []byte  // the last text of a delta column
	least, most int64   // with stats

	// The open row group.
	dictionary *dictionary // nil where there is none
	full       bool        // the dictionary is, and values are plain
	pages      []byte      // with headers, compressed
	chunk      format.ColumnMetaData
	index      pageIndexes
}

// fieldOf is a field of up to 64 rows.
type fieldOf struct {
	first unsafe.Pointer
	step  uintptr
	n     int
}

func at[V any](f fieldOf, i int) *V { return (*V)(unsafe.Add(f.first, uintptr(i)*f.step)) }

func newFlatColumn(field reflect.StructField, schema *format.SchemaElement) *flatColumn {
	c := &flatColumn{
		name: columnName(field), offset: field.Offset, stats: field.Tag.Get("stats") != "",
		nullable: hasOption(field, "optional"), physical: schema.Type.V,
	}
	if c.name != schema.Name {
		panic("sink: column " + c.name + " is not where the schema has it")
	}
	switch {
	case hasOption(field, "dict"):
		c.encoding, c.dictionary = format.RLEDictionary, &dictionary{ids: map[string]int32{}}
	case hasOption(field, "delta"):
		c.encoding = format.DeltaBinaryPacked
		if field.Type.Kind() == reflect.String {
			c.encoding = format.DeltaByteArray
		}
	}
	kind := field.Type
	pointer := kind.Kind() == reflect.Pointer
	if pointer {
		kind = kind.Elem()
		c.has = func(f fieldOf) uint64 {
			return valuesOf(f.first, f.step, f.n, func(p *unsafe.Pointer) bool { return *p != nil })
		}
	} else if c.nullable {
		c.has = func(f fieldOf) uint64 { return optional{0, kind.Kind()}.values(f.first, f.step, f.n) }
	}
	switch kind.Kind() {
	case reflect.String:
		c.take = (*flatColumn).takeTexts
	case reflect.Bool:
		c.take = (*flatColumn).takeTruths
	case reflect.Int32:
		c.take = taker(pointer, (*flatColumn).addInt32s)
	case reflect.Int64:
		c.take = taker(pointer, (*flatColumn).addInt64s)
	case reflect.Float64:
		c.take = taker(pointer, (*flatColumn).addFloat64s)
	default:
		panic("sink: column " + c.name + " of kind " + kind.String())
	}
	return c
}

// reset begins a row group.
func (c *flatColumn) reset() {
	c.chunk = format.ColumnMetaData{
		Type: c.physical, PathInSchema: []string{c.name}, Codec: format.Zstd, Encoding: []format.Encoding{c.encoding},
	}
	if c.nullable {
		c.chunk.Encoding = append(c.chunk.Encoding, format.RLE)
	}
	c.index = pageIndexes{}
	if c.stats {
		c.index.bounds = &format.ColumnIndex{}
	}
	if cap(c.pages) > slabKeep {
		c.pages = nil
	}
	c.pages, c.full = c.pages[:0], false
	if c.dictionary != nil {
		c.dictionary.reset()
		c.chunk.Encoding = append(c.chunk.Encoding, format.Plain)
	}
	c.resetPage()
}

func (c *flatColumn) resetPage() {
	c.rows, c.nulls = 0, 0
	c.levels.reset()
	c.truths.reset()
	c.plain, c.numbers, c.longs = c.plain[:0], c.numbers[:0], c.longs[:0]
	c.prefixes, c.before = c.prefixes[:0], c.before[:0]
	c.least, c.most = math.MaxInt64, math.MinInt64
}

// bytes is what the open page holds, before it is encoded.
func (c *flatColumn) bytes() int {
	return len(c.plain) + 4*(len(c.numbers)+len(c.prefixes)) + 8*len(c.longs)
}

// overflows reports whether the dictionary has become too big in the open page.
func (c *flatColumn) overflows() bool {
	return c.dictionary != nil && !c.full && len(c.dictionary.page) > dictionaries
}

// present notes which of the rows have a value, and returns them.
func (c *flatColumn) present(f fieldOf) uint64 {
	all := ^uint64(0) >> (64 - f.n)
	if c.has == nil {
		return all
	}
	values := c.has(f)
	c.levels.add(values, f.n)
	c.nulls += f.n - bits.OnesCount64(values)
	return values
}

// taker returns what appends numbers: they are gathered first.
func taker[V any](pointer bool, add func(*flatColumn, []V)) func(*flatColumn, fieldOf) {
	return func(c *flatColumn, f fieldOf) {
		var gathered [64]V
		n := 0
		values := c.present(f)
		switch {
		case values == 0:
			return
		case pointer:
			for ; values != 0; values &= values - 1 {
				gathered[n] = **at[*V](f, bits.TrailingZeros64(values))
				n++
			}
		case bits.OnesCount64(values) == f.n:
			for i := range f.n {
				gathered[i&63] = *at[V](f, i)
			}
			n = f.n
		default:
			for ; values != 0; values &= values - 1 {
				gathered[n] = *at[V](f, bits.TrailingZeros64(values))
				n++
			}
		}
		add(c, gathered[:n])
	}
}

func (c *flatColumn) addInt32s(values []int32) {
	if c.stats {
		c.bound(int64(slices.Min(values)), int64(slices.Max(values)))
	}
	if c.encoding == format.DeltaBinaryPacked {
		c.numbers = append(c.numbers, values...)
		return
	}
	added := c.room(4 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(added[4*i:], uint32(v))
	}
}

func (c *flatColumn) addInt64s(values []int64) {
	if c.stats {
		c.bound(slices.Min(values), slices.Max(values))
	}
	if c.encoding == format.DeltaBinaryPacked {
		c.longs = append(c.longs, values...)
		return
	}
	added := c.room(8 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(added[8*i:], uint64(v))
	}
}

func (c *flatColumn) addFloat64s(values []float64) {
	added := c.room(8 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(added[8*i:], math.Float64bits(v))
	}
}

// room makes the plain values n bytes longer, and returns these.
func (c *flatColumn) room(n int) []byte {
	c.plain = slices.Grow(c.plain, n)[:len(c.plain)+n]
	return c.plain[len(c.plain)-n:]
}

func (c *flatColumn) bound(least, most int64) {
	c.least, c.most = min(c.least, least), max(c.most, most)
}

func (c *flatColumn) takeTruths(f fieldOf) {
	c.truths.add(valuesOf(f.first, f.step, f.n, func(b *bool) bool { return *b }), f.n)
}

func (c *flatColumn) takeTexts(f fieldOf) {
	values := c.present(f)
	if c.encoding == format.DeltaByteArray {
		c.takeDeltas(f, values)
		return
	}
	if c.dictionary == nil || c.full {
		for ; values != 0; values &= values - 1 {
			text := *at[string](f, bits.TrailingZeros64(values))
			c.plain = append(binary.LittleEndian.AppendUint32(c.plain, uint32(len(text))), text...)
		}
		return
	}
	d := c.dictionary
	for ; values != 0; values &= values - 1 {
		text := *at[string](f, bits.TrailingZeros64(values))
		if len(d.texts) == 0 || text != d.texts[d.last] {
			d.last = d.index(text)
		}
		c.numbers = append(c.numbers, d.last)
	}
}

// takeDeltas appends what texts have that the one before has not: of texts that are the same, nothing.
func (c *flatColumn) takeDeltas(f fieldOf, values uint64) {
	before := unsafe.String(unsafe.SliceData(c.before), len(c.before))
	for ; values != 0; values &= values - 1 {
		text := *at[string](f, bits.TrailingZeros64(values))
		shared := len(text)
		if text != before {
			shared = 0
			for shared < min(len(text), len(before)) && text[shared] == before[shared] {
				shared++
			}
			c.plain = append(c.plain, text[shared:]...)
			before = text
		}
		c.prefixes, c.numbers = append(c.prefixes, int32(shared)), append(c.numbers, int32(len(text)-shared))
	}
	if len(before) != len(c.before) || unsafe.StringData(before) != unsafe.SliceData(c.before) {
		c.before = append(c.before[:0], before...) // the rows' memory is not ours
	}
}

// dictionary numbers the texts of a column.
type dictionary struct {
	page   []byte // the texts, as they are written
	texts  []string
	memory slab[byte]
	ids    map[string]int32
	last   int32
	recent [512]int32 // indexes by slot; whatever they are, they are compared
}

func (d *dictionary) reset() {
	clear(d.ids)
	clear(d.texts)
	d.page, d.texts = d.page[:0], d.texts[:0]
	d.memory.reset()
}

// index returns a text's number. Most are found where the last text with the same ends was; who sends texts that all
// have the same ends makes it as slow as its map.
func (d *dictionary) index(text string) int32 {
	recent := &d.recent[slotOf(text)]
	if i := int(*recent); i < len(d.texts) && d.texts[i] == text {
		return *recent
	}
	i, has := d.ids[text]
	if !has {
		i = int32(len(d.texts))
		kept := d.memory.take(len(text))
		copy(kept, text)
		text = unsafe.String(unsafe.SliceData(kept), len(kept))
		d.texts, d.ids[text] = append(d.texts, text), i
		d.page = append(binary.LittleEndian.AppendUint32(d.page, uint32(len(text))), text...)
	}
	*recent = i
	return i
}

// mixer spreads what it is multiplied with over the upper bits: 2⁶⁴ by the golden ratio.
const mixer = 0x9e3779b97f4a7c15

// slotOf mixes a text's first and last bytes.
func slotOf(text string) uint64 {
	b, n := unsafe.Slice(unsafe.StringData(text), len(text)), len(text)
	mix := uint64(n)
	switch {
	case n >= 8:
		mix += binary.LittleEndian.Uint64(b) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(b[n-8:]), 29)
	case n >= 4:
		mix += uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32
	case n > 0:
		mix += uint64(b[0])<<8 | uint64(b[n/2])<<16 | uint64(b[n-1])<<24
	}
	return mix * mixer >> (64 - 9)
}

// bitmap is bits in the order in which they are added, from the lowest of each word.
type bitmap struct {
	words []uint64
	n     int
}

func (b *bitmap) reset() { b.words, b.n = b.words[:0], 0 }

// add appends n bits, 64 at most; those of more value are 0.
func (b *bitmap) add(set uint64, n int) {
	if used := b.n & 63; used == 0 {
		b.words = append(b.words, set)
	} else {
		b.words[len(b.words)-1] |= set << used
		if used+n > 64 {
			b.words = append(b.words, set>>(64-used))
		}
	}
	b.n += n
}

func (b *bitmap) appendBytes(to []byte) []byte {
	start := len(to)
	for _, word := range b.words {
		to = binary.LittleEndian.AppendUint64(to, word)
	}
	return to[:start+(b.n+7)/8]
}

// same reports whether all bits of a word are the same, and which they are.
func (b *bitmap) same(word int) (bit byte, ok bool) {
	all := ^uint64(0)
	if word == len(b.words)-1 {
		all >>= -b.n & 63
	}
	switch b.words[word] {
	case 0:
		return 0, true
	case all:
		return 1, true
	}
	return 0, false
}

// appendLevels writes the bits as runs where words of them are the same, and as they are where not.
func (b *bitmap) appendLevels(to []byte) []byte {
	for i := 0; i < len(b.words); {
		bit, run := b.same(i)
		j := i + 1
		for j < len(b.words) {
			if next, ok := b.same(j); ok != run || next != bit {
				break
			}
			j++
		}
		part := bitmap{b.words[i:j], min(64*j, b.n) - 64*i}
		if run {
			to = append(binary.AppendUvarint(to, uint64(part.n)<<1), bit)
		} else {
			to = part.appendBytes(binary.AppendUvarint(to, uint64(part.n+7)/8<<1|1))
		}
		i = j
	}
	return to
}

// appendIndexes writes dictionary indexes, as runs or bit by bit, whichever is shorter.
func appendIndexes(to []byte, indexes []int32) []byte {
	var all int32
	runs := min(1, len(indexes))
	for i, index := range indexes {
		all |= index
		if i > 0 && index != indexes[i-1] {
			runs++
		}
	}
	width := bits.Len32(uint32(all))
	bytes := (width + 7) / 8
	to = append(to, byte(width))
	if runs*(bytes+1) <= len(indexes)*width/8+8 {
		for i := 0; i < len(indexes); {
			j := i + 1
			for j < len(indexes) && indexes[j] == indexes[i] {
				j++
			}
			to = binary.AppendUvarint(to, uint64(j-i)<<1)
			for k := range bytes {
				to = append(to, byte(indexes[i]>>(8*k)))
			}
			i = j
		}
		return to
	}
	groups := (len(indexes) + 7) / 8
	to = binary.AppendUvarint(to, uint64(groups)<<1|1)
	end := len(to) + groups*width
	var word uint64
	used := 0
	for _, index := range indexes {
		word |= uint64(index) << used
		if used += width; used >= 32 {
			to = binary.LittleEndian.AppendUint32(to, uint32(word))
			word >>= 32
			used -= 32
		}
	}
	to = binary.LittleEndian.AppendUint32(to, uint32(word))
	for len(to) < end {
		to = append(to, 0)
	}
	return to[:end]
}

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
		raw = appendIndexes(raw, c.numbers)
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
	codec := compression()
	if c.physical == format.ByteArray && c.dictionary == nil {
		codec = hastyCompression()
	}
	if f.packed, err = codec.Encode(f.packed, raw); err != nil {
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
			NumValues: int32(len(d.texts)), Encoding: format.Plain,
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
