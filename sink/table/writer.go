// Package table answers one question: how do rows become Parquet and come back? It writes files of a table (writer.go);
// reads them by rows (reader.go) or by columns (cursor.go); reads lists of any writer (list.go); and concatenates files
// (concat.go). guard.go checks each page before parquet-go decodes it.
package table

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"reflect"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go"
)

const (
	// GroupRows bounds the rows of a row group.
	GroupRows = 65536
	// MinPageBytes is the minimum size of a page's buffer.
	MinPageBytes = 4 << 10
	// PageBytes bounds the raw bytes of a page. Every column of every table has a buffer of this size. Twice as much saves
	// 3 % of the files, and adds a fifth to the memory of a scan.
	PageBytes    = 256 << 10
	dictionaries = 1 << 20 // bytes of a column's dictionary; larger ones are abandoned for plain encoding
)

// Writer writes Parquet files of a table, one after the other.
type Writer[T any] struct {
	name   string
	writer *tailedWriter[T]
	Out    digest
	batch  []T // fixed capacity; Flush writes it
	nulls  []optional
	rows   int64
	group  int // rows of the open row group
	groups int // row groups, including the open one
}

// digest is the destination of a file: the draft, with its size and hash.
type digest struct {
	Name  string
	draft store.Draft
	hash  hash.Hash
	Size  int64
}

func (d *digest) Write(b []byte) (int, error) {
	n, err := d.draft.Write(b)
	d.hash.Write(b[:n])
	d.Size += int64(n)
	return n, Writing(err)
}

// describe returns the entry of the sealed file for its commit.
func (d *digest) describe(table string, rows int64, footer string, groups int) schema.File {
	return schema.File{Table: table, Name: d.Name, Rows: rows, Bytes: d.Size,
		SHA256: hex.EncodeToString(d.hash.Sum(nil)), Footer: footer, Groups: groups}
}

// NewWriter returns a writer of a table that buffers batch rows, and pages of page bytes. Begin opens its first file.
func NewWriter[T any](name string, batch, page int, metadata map[string]string) *Writer[T] {
	t := &Writer[T]{name: name, batch: make([]T, 0, batch)}
	t.Out.hash = sha256.New()
	t.nulls = optionalsOf(reflect.TypeFor[T]())
	t.writer = &tailedWriter[T]{GenericWriter: newParquetWriter[T](io.Discard, page, metadata)}
	return t
}

// TableName is the name of the table.
func (t *Writer[T]) TableName() string { return t.name }

// RowGroups is the number of row groups of the file so far.
func (t *Writer[T]) RowGroups() int { return t.groups }

// Begin begins a file as a draft in a store.
func (t *Writer[T]) Begin(ctx context.Context, st store.Store, name string) error {
	draft, err := st.Create(ctx, name)
	if err != nil {
		return err
	}
	t.Out.Name, t.Out.draft, t.Out.Size = name, draft, 0
	t.Out.hash.Reset()
	t.rows, t.group, t.groups, t.batch = 0, 0, 0, t.batch[:0]
	t.writer.Reset(&t.Out)
	return nil
}

// Next returns the next row. The caller fills it before it calls another method.
func (t *Writer[T]) Next() (*T, error) {
	if len(t.batch) == cap(t.batch) {
		if err := t.Flush(); err != nil {
			return nil, err
		}
	}
	t.batch = t.batch[:len(t.batch)+1]
	return &t.batch[len(t.batch)-1], nil
}

// Add copies rows.
func (t *Writer[T]) Add(rows []T) error {
	for i := range rows {
		row, err := t.Next()
		if err != nil {
			return err
		}
		*row = rows[i]
	}
	return nil
}

// Flush hands the buffered rows to the Parquet writer.
func (t *Writer[T]) Flush() error {
	if len(t.batch) == 0 {
		return nil
	}
	err := t.Write(t.batch)
	t.batch = t.batch[:0]
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", t.Out.Name, err)
	}
	return nil
}

// Write hands rows to the Parquet writer, each row group's separately. The writer would cut them there, too, and the
// cut decides which nulls it would lose (see upstream.go).
func (t *Writer[T]) Write(rows []T) error {
	for len(rows) > 0 {
		if t.group == GroupRows {
			t.group = 0
		}
		if t.group == 0 {
			t.groups++
		}
		n := min(len(rows), GroupRows-t.group)
		if err := t.writePieces(rows[:n]); err != nil {
			return err
		}
		t.group += n
		rows = rows[n:]
	}
	return nil
}

// writePieces writes rows of one row group in pieces that keep their nulls (see upstream.go).
func (t *Writer[T]) writePieces(rows []T) error {
	if len(rows) > 2 && misread(rows, t.nulls) {
		if err := t.writePieces(rows[:len(rows)/2]); err != nil {
			return err
		}
		return t.writePieces(rows[len(rows)/2:])
	}
	n, err := t.writer.Write(rows)
	t.rows += int64(n)
	return err
}

// EndGroup ends the row group.
func (t *Writer[T]) EndGroup() error {
	t.group = 0
	if err := t.writer.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", t.Out.Name, err)
	}
	return nil
}

// Seal writes what is buffered and the footer, and makes the draft durable.
func (t *Writer[T]) Seal() error {
	if err := t.Flush(); err != nil {
		return err
	}
	if err := t.writer.Close(); err != nil {
		return fmt.Errorf("cannot write %s: %w", t.Out.Name, err)
	}
	return t.Out.draft.Seal()
}

// Publish gives the sealed draft its name.
func (t *Writer[T]) Publish(ctx context.Context) error { return t.Out.draft.Publish(ctx) }

// Discard deletes the draft, if there is one, and the buffered rows.
func (t *Writer[T]) Discard() error {
	t.batch = t.batch[:0]
	if t.Out.draft == nil {
		return nil
	}
	err := t.Out.draft.Discard()
	t.Out.draft = nil
	return err
}

// Describe returns the sealed file's entry for its commit.
func (t *Writer[T]) Describe() schema.File {
	return t.Out.describe(t.name, t.rows, t.writer.sum, t.groups)
}

// newParquetWriter returns a writer of a table's rows with the settings of the dataset: data pages v1 (v2 leaves the
// levels of lists uncompressed, 25 bytes a row), zstd, bounded row groups and dictionaries, and minimum and maximum
// only for the columns that queries filter by: computing them for all took a third of the time.
func newParquetWriter[T any](w io.Writer, page int, metadata map[string]string) *parquet.GenericWriter[T] {
	options := []parquet.WriterOption{
		parquet.DataPageVersion(1),
		parquet.Compression(compression),
		parquet.PageBufferSize(page),
		parquet.WriteBufferSize(256 << 10),
		parquet.MaxRowsPerRowGroup(GroupRows),
		parquet.DictionaryMaxBytes(dictionaries),
		parquet.CreatedBy("bulkscan", metadata[MetaTool], "parquet-go"),
	}
	for key, value := range metadata {
		options = append(options, parquet.KeyValueMetadata(key, value))
	}
	filtered := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		filtered[schema.ColumnName(field)] = field.Tag.Get("stats") != ""
	}
	for _, path := range parquet.SchemaOf(new(T)).Columns() {
		if !filtered[path[0]] {
			options = append(options, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
		}
	}
	return parquet.NewGenericWriter[T](w, options...)
}

// Keys of a file's metadata.
const (
	MetaSchema   = "schema_version"
	MetaTool     = "tool_version"
	MetaRegistry = "registry_version"
	MetaScan     = "scan_id"
)

// WriteError is an error of writing the output, as opposed to reading the sources.
type WriteError struct{ err error }

func (e *WriteError) Error() string { return e.err.Error() }
func (e *WriteError) Unwrap() error { return e.err }

// Writing wraps an error in a *WriteError; nil stays nil.
func Writing(err error) error {
	if err == nil {
		return nil
	}
	return &WriteError{err}
}
