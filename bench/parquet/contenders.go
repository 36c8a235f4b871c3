package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// This file is who writes rows. All write the same rows into the same columns with the same settings, which are read
// from the file that the rows come from: zstd at its default level (its lowest where ours takes that), data pages v1, 65,536
// rows a group, a dictionary, delta encoding and statistics for the same columns and for no others.

// Contender writes rows.
type Contender struct {
	Name, Does string
}

// The contenders.
const (
	ours    = "bulkscan"
	columns = "arrow-go, columns"
	records = "arrow-go, records"
)

var contenders = []Contender{
	{ours, "the table writer of `sink`, as a scan uses it: hash, fsync and rename included"},
	{columns, "`parquet/file`: each column of 65,536 rows is gathered and given to its column writer with `WriteBatch`, the shortest way in"},
	{records, "`parquet/pqarrow`, as documented: rows go through a `RecordBuilder` into records of 65,536 rows"},
}

const groupRows = 65536

// rowWriter writes rows of a table to one file.
type rowWriter[T any] interface {
	write(rows []T) error
	close() error
}

// source is the file that the rows come from, as arrow-go reads it.
type source struct {
	schema *schema.Schema
	leaves []leaf
	props  *parquet.WriterProperties
}

// readSource reads a file's schema and settings.
func readSource[T any](path string) (*source, error) {
	reader, err := file.OpenParquetFile(path, false)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	s := &source{schema: reader.MetaData().Schema}
	if s.leaves, err = leavesOf(reflect.TypeFor[T](), s.schema); err != nil {
		return nil, err
	}
	props := []parquet.WriterProperty{
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageVersion(parquet.DataPageV1), parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithDataPageSize(512 << 10), parquet.WithMaxRowGroupLength(groupRows), parquet.WithBatchSize(8192),
		parquet.WithDictionaryDefault(false), parquet.WithDictionaryPageSizeLimit(1 << 20), parquet.WithStats(false),
	}
	// A file does not say how hard its writer tried: ours does not try hard where rows have no lists.
	if reflect.TypeFor[T]() != reflect.TypeFor[sink.SiteRow]() {
		const fastest = 1
		props = append(props, parquet.WithCompressionLevel(fastest))
	}
	group := reader.MetaData().RowGroup(0)
	for i := range group.NumColumns() {
		chunk, err := group.ColumnChunk(i)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		column := s.leaves[i].path
		if chunk.HasDictionaryPage() {
			props = append(props, parquet.WithDictionaryFor(column, true))
		}
		if slices.Contains(chunk.Encodings(), parquet.Encodings.DeltaBinaryPacked) {
			props = append(props, parquet.WithEncodingFor(column, parquet.Encodings.DeltaBinaryPacked))
		}
		if slices.Contains(chunk.Encodings(), parquet.Encodings.DeltaByteArray) {
			props = append(props, parquet.WithEncodingFor(column, parquet.Encodings.DeltaByteArray))
		}
		if hasBounds(chunk) {
			props = append(props, parquet.WithStatsFor(column, true))
		}
	}
	s.props = parquet.NewWriterProperties(props...)
	// The schema views the reader's memory, which stays as long as it is not closed.
	return s, nil
}

// hasBounds reports whether a chunk says between what bounds its values are. All count their nulls, which arrow-go calls
// statistics too: told to write these, it would compare every text with the least and the greatest, as ours does not.
func hasBounds(chunk *metadata.ColumnChunkMetaData) bool {
	stats, err := chunk.Statistics()
	return err == nil && stats != nil && stats.HasMinMax()
}

// newRowWriter opens a file in dir for a contender. The file's name is the table's.
func newRowWriter[T any](contender, table, dir string, from *source) (rowWriter[T], error) {
	switch contender {
	case ours:
		st, err := store.NewDir(dir)
		if err != nil {
			return nil, err
		}
		manifest := &sink.Manifest{ScanID: "bench", RegistryVersion: "bench"}
		w, err := sink.CreateTable[T](context.Background(), st, &sink.Scan{Manifest: manifest}, table+".parquet", table, "bench")
		return &ourWriter[T]{w}, err
	case columns:
		out, err := newOutput(dir, table)
		if err != nil {
			return nil, err
		}
		w, err := file.NewParquetWriterWithError(out, from.schema.Root(), file.WithWriterProps(from.props))
		return &columnWriter[T]{from: from, w: w, out: out}, err
	case records:
		out, err := newOutput(dir, table)
		if err != nil {
			return nil, err
		}
		return newRecordWriter[T](from, out)
	}
	return nil, fmt.Errorf("nobody is called %q", contender)
}

type ourWriter[T any] struct{ w *sink.TableWriter[T] }

func (w *ourWriter[T]) write(rows []T) error { return w.w.Write(rows) }
func (w *ourWriter[T]) close() error         { return w.w.Close(context.Background()) }

// output is a buffered file.
type output struct {
	*bufio.Writer
	file *os.File
}

func newOutput(dir, table string) (*output, error) {
	f, err := os.Create(filepath.Join(dir, table+".parquet"))
	if err != nil {
		return nil, err
	}
	return &output{bufio.NewWriterSize(f, 256<<10), f}, nil
}

// Close is called by arrow-go's writers.
func (o *output) Close() error {
	if err := o.Flush(); err != nil {
		return err
	}
	return o.file.Close()
}

// columnWriter writes row groups column by column.
type columnWriter[T any] struct {
	from   *source
	w      *file.Writer
	out    io.Closer
	values columnValues
}

func (w *columnWriter[T]) write(rows []T) error {
	for group := range slices.Chunk(rows, groupRows) {
		if err := w.writeGroup(group); err != nil {
			return err
		}
	}
	return nil
}

func (w *columnWriter[T]) writeGroup(rows []T) error {
	group, err := w.w.AppendRowGroupChecked()
	if err != nil {
		return err
	}
	v := &w.values
	for i := range w.from.leaves {
		w.from.leaves[i].gather(unsafe.Pointer(&rows[0]), len(rows), v)
		define, repeat := v.levels()
		column, err := group.NextColumn()
		if err != nil {
			return err
		}
		switch c := column.(type) {
		case *file.ByteArrayColumnChunkWriter:
			_, err = c.WriteBatch(v.texts, define, repeat)
		case *file.BooleanColumnChunkWriter:
			_, err = c.WriteBatch(v.bools, define, repeat)
		case *file.Int32ColumnChunkWriter:
			_, err = c.WriteBatch(v.int32s, define, repeat)
		case *file.Int64ColumnChunkWriter:
			_, err = c.WriteBatch(v.int64s, define, repeat)
		case *file.Float32ColumnChunkWriter:
			_, err = c.WriteBatch(v.floats, define, repeat)
		case *file.Float64ColumnChunkWriter:
			_, err = c.WriteBatch(v.doubles, define, repeat)
		default:
			err = fmt.Errorf("a column writer of type %T", column)
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", w.from.leaves[i].path, err)
		}
		if err := column.Close(); err != nil {
			return err
		}
	}
	return group.Close()
}

func (w *columnWriter[T]) close() error { return w.w.Close() }

// recordWriter goes through Arrow records.
type recordWriter[T any] struct {
	from    *source
	builder *array.RecordBuilder
	w       *pqarrow.FileWriter
	values  columnValues
}

func newRecordWriter[T any](from *source, out io.Writer) (*recordWriter[T], error) {
	columns, err := pqarrow.FromParquet(from.schema, nil, nil)
	if err != nil {
		return nil, err
	}
	w, err := pqarrow.NewFileWriter(columns, out, from.props, pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	return &recordWriter[T]{from: from, builder: array.NewRecordBuilder(memory.NewGoAllocator(), columns), w: w}, nil
}

func (w *recordWriter[T]) write(rows []T) error {
	for group := range slices.Chunk(rows, groupRows) {
		if err := w.writeRecord(group); err != nil {
			return err
		}
	}
	return nil
}

func (w *recordWriter[T]) writeRecord(rows []T) error {
	w.builder.Reserve(len(rows))
	for at, field := 0, 0; at < len(w.from.leaves); field++ {
		l := &w.from.leaves[at]
		builder := w.builder.Field(field)
		lists, ok := builder.(*array.ListBuilder)
		if !ok {
			l.gather(unsafe.Pointer(&rows[0]), len(rows), &w.values)
			if err := appendValues(builder, &w.values); err != nil {
				return fmt.Errorf("column %s: %w", l.path, err)
			}
			at++
			continue
		}
		elements := []array.Builder{lists.ValueBuilder()}
		structs, ok := lists.ValueBuilder().(*array.StructBuilder)
		if ok {
			elements = elements[:0]
			for k := range structs.NumField() {
				elements = append(elements, structs.FieldBuilder(k))
			}
		}
		for k, element := range elements {
			w.from.leaves[at].gather(unsafe.Pointer(&rows[0]), len(rows), &w.values)
			if k == 0 {
				w.appendLists(lists, structs)
			}
			w.values.define, w.values.repeat = w.values.define[:0], w.values.repeat[:0]
			if err := appendValues(element, &w.values); err != nil {
				return fmt.Errorf("column %s: %w", w.from.leaves[at].path, err)
			}
			at++
		}
	}
	record := w.builder.NewRecordBatch()
	defer record.Release()
	return w.w.Write(record)
}

// appendLists begins the lists, and the structs in them, whose leaves follow.
func (w *recordWriter[T]) appendLists(lists *array.ListBuilder, structs *array.StructBuilder) {
	offsets, valid := make([]int32, 0, len(w.values.repeat)), make([]bool, 0, len(w.values.repeat))
	n := int32(0)
	for i, repeat := range w.values.repeat {
		if repeat == 0 {
			offsets, valid = append(offsets, n), append(valid, true)
		}
		if w.values.define[i] == 1 {
			n++
		}
	}
	lists.AppendValues(offsets, valid)
	if structs != nil {
		for range n {
			structs.Append(true)
		}
	}
}

// appendValues appends a column, absent values as nulls.
func appendValues(builder array.Builder, v *columnValues) error {
	var valid []bool // nil: all
	for _, define := range v.define {
		valid = append(valid, define == 1)
	}
	switch b := builder.(type) {
	case *array.StringBuilder:
		next := 0
		each(len(v.texts), valid, b.AppendNull, func() {
			b.BinaryBuilder.Append(v.texts[next])
			next++
		})
	case *array.BinaryBuilder:
		next := 0
		each(len(v.texts), valid, b.AppendNull, func() { b.Append(v.texts[next]); next++ })
	case *array.BooleanBuilder:
		next := 0
		each(len(v.bools), valid, b.AppendNull, func() { b.Append(v.bools[next]); next++ })
	case *array.Int32Builder:
		next := 0
		each(len(v.int32s), valid, b.AppendNull, func() { b.Append(v.int32s[next]); next++ })
	case *array.Int64Builder:
		next := 0
		each(len(v.int64s), valid, b.AppendNull, func() { b.Append(v.int64s[next]); next++ })
	case *array.TimestampBuilder:
		next := 0
		each(len(v.int64s), valid, b.AppendNull, func() { b.Append(arrow.Timestamp(v.int64s[next])); next++ })
	case *array.Float32Builder:
		next := 0
		each(len(v.floats), valid, b.AppendNull, func() { b.Append(v.floats[next]); next++ })
	case *array.Float64Builder:
		next := 0
		each(len(v.doubles), valid, b.AppendNull, func() { b.Append(v.doubles[next]); next++ })
	default:
		return fmt.Errorf("a builder of type %T", builder)
	}
	return nil
}

func each(n int, valid []bool, null, value func()) {
	if valid == nil {
		for range n {
			value()
		}
		return
	}
	for _, ok := range valid {
		if ok {
			value()
		} else {
			null()
		}
	}
}

func (w *recordWriter[T]) close() error { return w.w.Close() }
