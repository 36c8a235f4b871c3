package sink

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"

	"github.com/parquet-go/parquet-go/format"
)

// This file writes tables without lists, of which a scan has many rows a site. It knows what parquet-go cannot: that the
// rows of a site stand together and say much the same, so that most texts are those of the row before or of a few rows
// before, and need no map to be found; and how little it is worth to try hard at zstd, which takes a third of the time and more.
//
// A writer takes 64 rows at a time apart, column by column, while they lie in the nearest cache. Each column has an open
// page, which is encoded when it is full (encodings.go), and the finished pages of the open row group, which are written one
// column behind the other at its end (pages.go); some have a dictionary besides (dictionary.go). Schema and metadata are
// taken from parquet-go, which writes the other tables: readers and compaction see no difference.
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
	for _, c := range f.columns {
		if c.dictionary != nil {
			c.dictionary.writes++
		}
	}
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
	levels      bitmap // which rows have a value
	plain       []byte // texts, as they are written
	truths      bitmap
	indexes     []uint16 // which are fewer than a row group has rows
	strangers   int      // texts that lay where none was met before
	numbers     []int32
	longs       []int64
	doubles     []float64
	prefixes    []int32 // bytes that texts of a delta column share with those before; numbers has how many follow
	before      []byte  // the last text of a delta column
	least, most int64   // with stats

	room [64]string // of texts without the nulls between them

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
		c.encoding, c.dictionary = format.RLEDictionary, newDictionary()
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
	if c.dictionary != nil && kind.Kind() != reflect.String && (field.Type.Kind() != reflect.Int32 || c.nullable || c.stats) {
		panic("sink: column " + c.name + " cannot have a dictionary: of numbers, only int32 without nulls and stats has one")
	}
	if c.stats && kind.Kind() != reflect.Int32 && kind.Kind() != reflect.Int64 {
		panic("sink: column " + c.name + " cannot have stats: only whole numbers are bounded")
	}
	switch kind.Kind() {
	case reflect.String:
		c.take = (*flatColumn).takeTexts
	case reflect.Bool:
		c.take = (*flatColumn).takeTruths
	case reflect.Int32:
		c.take = takeNumbers(pointer, func(c *flatColumn) *[]int32 { return &c.numbers })
		if c.dictionary != nil {
			c.take = (*flatColumn).takeIndexes
		}
	case reflect.Int64:
		c.take = takeNumbers(pointer, func(c *flatColumn) *[]int64 { return &c.longs })
	case reflect.Float64:
		c.take = takeNumbers(pointer, func(c *flatColumn) *[]float64 { return &c.doubles })
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
	c.indexes, c.plain, c.numbers, c.longs, c.doubles = c.indexes[:0], c.plain[:0], c.numbers[:0], c.longs[:0], c.doubles[:0]
	c.prefixes, c.before = c.prefixes[:0], c.before[:0]
	c.least, c.most = math.MaxInt64, math.MinInt64
	c.strangers = 0
}

// bytes is what the open page holds, before it is encoded. Of the lengths of texts hardly more than half a byte stays.
func (c *flatColumn) bytes() int {
	if c.encoding == format.DeltaByteArray {
		return len(c.plain) + len(c.numbers) + len(c.prefixes)
	}
	return len(c.plain) + 2*len(c.indexes) + 4*len(c.numbers) + 8*(len(c.longs)+len(c.doubles))
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

// numeric is what columns of numbers have.
type numeric interface{ int32 | int64 | float64 }

// takeNumbers returns what appends numbers of a kind to their list.
func takeNumbers[V numeric](pointer bool, listOf func(*flatColumn) *[]V) func(*flatColumn, fieldOf) {
	return func(c *flatColumn, f fieldOf) {
		values := c.present(f)
		if values == 0 {
			return
		}
		list := listOf(c)
		start, n := len(*list), bits.OnesCount64(values)
		*list = slices.Grow(*list, 64)[:start+64]
		room := (*[64]V)((*list)[start:])
		switch {
		case n == f.n && !pointer:
			offset := uintptr(0)
			for i := range n {
				room[i&63] = *(*V)(unsafe.Add(f.first, offset))
				offset += f.step
			}
		case pointer:
			for i := 0; values != 0; i++ {
				room[i&63] = **at[*V](f, bits.TrailingZeros64(values))
				values &= values - 1
			}
		default:
			for i := 0; values != 0; i++ {
				room[i&63] = *at[V](f, bits.TrailingZeros64(values))
				values &= values - 1
			}
		}
		*list = (*list)[:start+n]
		added := room[:n]
		if c.stats {
			c.bound(int64(slices.Min(added)), int64(slices.Max(added)))
		}
	}
}

func (c *flatColumn) bound(least, most int64) {
	c.least, c.most = min(c.least, least), max(c.most, most)
}

func (c *flatColumn) takeTruths(f fieldOf) {
	c.truths.add(valuesOf(f.first, f.step, f.n, func(b *bool) bool { return *b }), f.n)
}

func (c *flatColumn) takeTexts(f fieldOf) {
	values := c.present(f)
	if values == 0 {
		return
	}
	if c.nullable {
		f = f.dense(values, &c.room)
	}
	switch {
	case c.encoding == format.DeltaByteArray:
		c.takeDeltas(f)
	case c.dictionary != nil && !c.full:
		c.takeIndexes(f)
	default:
		for i := range f.n {
			text := *at[string](f, i)
			c.plain = append(binary.LittleEndian.AppendUint32(c.plain, uint32(len(text))), text...)
		}
	}
}

// dense leaves out the nulls of a field of texts.
func (f fieldOf) dense(values uint64, room *[64]string) fieldOf {
	n := bits.OnesCount64(values)
	if n == f.n {
		return f
	}
	for i := range n {
		room[i&63] = *at[string](f, bits.TrailingZeros64(values))
		values &= values - 1
	}
	return fieldOf{unsafe.Pointer(room), unsafe.Sizeof(room[0]), n}
}

// takeIndexes appends which values of the dictionary they are. A page looks at where texts lie as long as that tells of most.
func (c *flatColumn) takeIndexes(f fieldOf) {
	start := len(c.indexes)
	c.indexes = slices.Grow(c.indexes, 64)[:start+64]
	to := (*[64]uint16)(c.indexes[start:])
	switch {
	case c.physical == format.Int32:
		c.dictionary.indexesOfNumbers(f, to)
	case c.strangers <= 64+start/8:
		c.strangers += c.dictionary.indexesByPlace(f, to)
	default:
		c.dictionary.indexesByText(f, to)
	}
	c.indexes = c.indexes[:start+f.n]
}

// sameText compares texts of the same rows. The rows of a site share most of their memory too.
func sameText(a, b string) bool {
	return len(a) == len(b) && (unsafe.StringData(a) == unsafe.StringData(b) || a == b)
}

// takeDeltas appends what texts have that the one before has not: of texts that are the same, nothing.
func (c *flatColumn) takeDeltas(f fieldOf) {
	start := len(c.numbers)
	c.prefixes, c.numbers = slices.Grow(c.prefixes, 64)[:start+64], slices.Grow(c.numbers, 64)[:start+64]
	prefixes, numbers := (*[64]int32)(c.prefixes[start:]), (*[64]int32)(c.numbers[start:])
	before := unsafe.String(unsafe.SliceData(c.before), len(c.before))
	offset := uintptr(0)
	for i := range f.n {
		text := *(*string)(unsafe.Add(f.first, offset))
		shared := len(text)
		if !sameText(text, before) {
			shared = sharedPrefix(text, before)
			c.plain = append(c.plain, text[shared:]...)
		}
		before = text
		prefixes[i&63], numbers[i&63] = int32(shared), int32(len(text)-shared)
		offset += f.step
	}
	c.prefixes, c.numbers = c.prefixes[:start+f.n], c.numbers[:start+f.n]
	if len(before) != len(c.before) || unsafe.StringData(before) != unsafe.SliceData(c.before) {
		c.before = append(c.before[:0], before...) // the rows' memory is not ours
	}
}

// sharedPrefix returns with how many same bytes two texts begin.
func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	x, y := unsafe.Slice(unsafe.StringData(a), n), unsafe.Slice(unsafe.StringData(b), n)
	i := 0
	for ; i+8 <= n; i += 8 {
		if other := binary.LittleEndian.Uint64(x[i:]) ^ binary.LittleEndian.Uint64(y[i:]); other != 0 {
			return i + bits.TrailingZeros64(other)/8
		}
	}
	for i < n && x[i] == y[i] {
		i++
	}
	return i
}
