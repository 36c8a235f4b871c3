package table

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// ErrUnsupported is the error of a valid Parquet file that bulkscan does not read.
var ErrUnsupported error = unsupportedError("bulkscan cannot read it")

type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }

// Remedy says how to write a file that bulkscan reads.
func (e unsupportedError) Remedy() string {
	return "write it anew without encryption, with snappy or zstd, in the encodings of Parquet 1.0"
}

// List reads some columns of a Parquet file of any writer, row after row. guard.go bounds the memory of its pages. It
// is not safe for concurrent use.
type List struct {
	file    *parquet.File
	columns []listColumn

	selected []*listReader
	group    int   // the next row group
	left     int64 // rows left in the current group
	row      int64 // rows begun
}

// listColumn describes a column, as the schema has it.
type listColumn struct {
	name     string
	holds    string
	unsigned bool
	kind     parquet.Type
}

// Contents of columns that can be read.
const (
	HoldsText    = "text"
	HoldsNumbers = "numbers"
	HoldsTruths  = "truths" // booleans
	HoldsTimes   = "times"  // dates, or times of UTC
)

const (
	maxListColumns = 10_000
	maxListName    = 200 // bytes of a column's name that are kept
)

// OpenList reads the footer of a file of that size. The caller owns the file and closes it after the last use of the
// List.
func OpenList(file io.ReaderAt, size int64) (_ *List, err error) {
	defer rescue(&err)
	f, err := OpenFile(readerOnly{file, size})
	if err != nil {
		return nil, err
	}
	l := &List{file: f}
	paths := f.Schema().Columns()
	if len(paths) > maxListColumns {
		return nil, fmt.Errorf("%w: it has %d columns", ErrUnsupported, len(paths))
	}
	for _, path := range paths {
		name := strings.Join(path, ".")
		c := listColumn{name: strings.Clone(name[:min(len(name), maxListName)]), holds: "lists"}
		if leaf, ok := f.Schema().Lookup(path...); ok && leaf.MaxRepetitionLevel == 0 {
			c.kind = leaf.Node.Type()
			c.holds, c.unsigned = holds(c.kind)
		}
		l.columns = append(l.columns, c)
	}
	return l, nil
}

// readerOnly adapts a file to store.Object; Close leaves it open.
type readerOnly struct {
	io.ReaderAt
	size int64
}

func (r readerOnly) Size() int64  { return r.size }
func (r readerOnly) Close() error { return nil }

// holds describes the contents of a column, in words if they cannot be read.
func holds(kind parquet.Type) (what string, unsigned bool) {
	if logical := kind.LogicalType(); logical != nil {
		switch of := logical.Value.(type) {
		case *format.DecimalType:
			return "decimals", false
		case *format.DateType, *format.TimestampType:
			return HoldsTimes, false
		case *format.TimeType:
			return "times of a day", false
		case *format.IntType:
			return HoldsNumbers, !of.IsSigned
		}
	}
	switch kind.Kind() {
	case parquet.ByteArray:
		return HoldsText, false
	case parquet.FixedLenByteArray:
		if kind.LogicalType() == nil && kind.ConvertedType() == nil && kind.Length() > 0 {
			return HoldsText, false
		}
	case parquet.Int32, parquet.Int64, parquet.Float, parquet.Double:
		return HoldsNumbers, false
	case parquet.Boolean:
		return HoldsTruths, false
	}
	return "binary data", false
}

// Columns returns the number of columns, including those inside structs.
func (l *List) Columns() int { return len(l.columns) }

// Rows returns how many rows there are, as the footer says.
func (l *List) Rows() int64 { return l.file.NumRows() }

// Column returns a column's name, which is `struct.field` inside a struct, and its contents: HoldsText, HoldsNumbers,
// HoldsTruths, HoldsTimes, or words for contents that Select refuses.
func (l *List) Column(i int) (name, holds string) { return l.columns[i].name, l.columns[i].holds }

// Select chooses the columns that Next reads, before the first Next.
func (l *List) Select(columns ...int) error {
	l.selected = l.selected[:0]
	for _, i := range columns {
		c := &l.columns[i]
		switch c.holds {
		case HoldsText, HoldsNumbers, HoldsTruths, HoldsTimes:
		default:
			return fmt.Errorf("%w: column %q holds %s", ErrUnsupported, c.name, c.holds)
		}
		for j := range l.file.Metadata().RowGroups {
			chunk := &l.file.Metadata().RowGroups[j].Columns[i]
			switch m := &chunk.MetaData; {
			case m.Codec == format.LZO, m.Codec == format.Lz4Raw: // see upstream.go
				return fmt.Errorf("%w: column %q is compressed by %v", ErrUnsupported, c.name, m.Codec)
			case chunk.FilePath != "":
				return fmt.Errorf("%w: the values of column %q are in another file", ErrUnsupported, c.name)
			case chunk.CryptoMetadata.Value != nil:
				return fmt.Errorf("%w: column %q is encrypted", ErrUnsupported, c.name)
			}
		}
		l.selected = append(l.selected, &listReader{column: c, index: i})
	}
	return nil
}

// Next advances to the next row, and returns io.EOF after the last. Other errors are of reading or of damage, or
// ErrUnsupported.
func (l *List) Next() (err error) {
	defer rescue(&err)
	groups := l.file.RowGroups()
	for l.left == 0 {
		if l.group == len(groups) {
			return io.EOF
		}
		group := groups[l.group]
		l.group++
		if l.left = group.NumRows(); l.left == 0 {
			continue
		}
		for _, r := range l.selected {
			chunk := group.ColumnChunks()[r.index]
			if n := chunk.NumValues(); n != l.left {
				return fmt.Errorf("%w: row group %d, column %q: %d values, in %d rows", errFooter, l.group-1, r.column.name, n,
					l.left)
			}
			if r.pages != nil {
				if err := r.pages.Close(); err != nil {
					return err
				}
			}
			r.pages = chunk.Pages()
			r.have, r.at = r.have[:0], 0
		}
	}
	l.left--
	l.row++
	for _, r := range l.selected {
		if err := r.next(); err != nil {
			return fmt.Errorf("row %d, column %q: %w", l.row, r.column.name, err)
		}
	}
	return nil
}

// Text returns the current row's value of the i-th selected column; ok is false for null. A number is spelled in
// decimal digits. The bytes are arbitrary and valid until the next call of Next.
func (l *List) Text(i int) (value []byte, ok bool) {
	r := l.selected[i]
	return r.value, r.ok
}

// listReader reads the values of one column.
type listReader struct {
	column *listColumn
	index  int

	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader // of the page; nil before the first
	have   []parquet.Value     // read ahead; their bytes belong to the page
	at     int                 // next one in have

	text  []byte
	value []byte
	ok    bool
}

// valuesAtOnce is the number of values requested at a time.
const valuesAtOnce = 1024

func (r *listReader) next() error {
	for r.at == len(r.have) {
		if err := r.more(); err != nil {
			return err
		}
	}
	v := r.have[r.at]
	r.at++
	r.value, r.ok = r.spell(v), !v.IsNull()
	return nil
}

// more reads further values of this page or the next.
func (r *listReader) more() error {
	r.have, r.at = r.have[:0], 0
	if r.values != nil {
		if cap(r.have) == 0 {
			r.have = make([]parquet.Value, 0, valuesAtOnce)
		}
		n, err := r.values.ReadValues(r.have[:valuesAtOnce])
		if r.have = r.have[:n]; err == nil && n == 0 {
			return io.ErrNoProgress
		}
		if err != nil {
			r.values = nil
		}
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return errNotEOF(err)
		}
	}
	if r.page != nil {
		parquet.Release(r.page)
	}
	var err error
	if r.page, err = r.pages.ReadPage(); err != nil {
		if r.page = nil; errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: its values are missing", ErrPage)
		}
		return err
	}
	r.values = r.page.Values()
	return nil
}

func errNotEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// spell returns the text of a value: a number's digits.
func (r *listReader) spell(v parquet.Value) []byte {
	text := r.text[:0]
	if r.column.holds == HoldsTimes && !v.IsNull() {
		var at time.Time
		if r.column.kind.AssignValue(reflect.ValueOf(&at).Elem(), v) == nil {
			r.text = at.AppendFormat(text, time.RFC3339Nano)
			return r.text
		}
	}
	switch v.Kind() {
	case parquet.ByteArray, parquet.FixedLenByteArray:
		return v.ByteArray()
	case parquet.Boolean:
		text = strconv.AppendBool(text, v.Boolean())
	case parquet.Int32:
		if text = strconv.AppendInt(text, int64(v.Int32()), 10); r.column.unsigned {
			text = strconv.AppendUint(text[:0], uint64(v.Uint32()), 10)
		}
	case parquet.Int64:
		if text = strconv.AppendInt(text, v.Int64(), 10); r.column.unsigned {
			text = strconv.AppendUint(text[:0], v.Uint64(), 10)
		}
	case parquet.Float:
		text = appendFloat(text, float64(v.Float()), 32)
	case parquet.Double:
		text = appendFloat(text, v.Double(), 64)
	default: // null
		return nil
	}
	r.text = text
	return text
}

// appendFloat spells a number of the given bits with the fewest digits that identify it. A whole number has no
// exponent.
func appendFloat(b []byte, v float64, bits int) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits)
}
