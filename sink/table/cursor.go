package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go"
)

// This file reads columns without making rows. parquet-go rebuilds each row from its values and allocates a string for
// each: two hundred for the lists of a typical site. A Cursor reads the pages of the requested columns side by side and
// handles each dictionary entry once. For a row it copies numbers.
//
// Levels. A value has its column's highest definition level; an entry with a lower one is an absent value or an empty
// list. An entry with repetition level 0 begins a row.

// Field binds a column to a variable that every Next sets. Into is a pointer. For numbers and booleans it has the
// column's exact type: *bool, *int32, *int64, *float32 or *float64. For texts it is *string or *[]byte, for lists of
// texts *[]string, or *[]int32 for the numbers that Index returns. Without Index, *[]int32 is for a list of numbers. An
// absent value is zero, or nil with **bool, **int32 and **float64. Lists and the targets of such pointers are valid
// until the next Next. Texts stay valid and must not be changed. They share memory with their page or dictionary, so
// clone those that are kept for long.
type Field struct {
	Name  string // for a field of a list of structs: column.field
	Into  any
	Index func(text string) int32 // called once per dictionary entry, or per value without a dictionary

	own  bool         // each row has lists and targets of pointers of its own
	then func() error // called when the variable is set; may be nil
}

// FieldsOf binds the variables of a row's struct, which row points to, to the columns that their parquet tags name.
// wanted chooses columns; nil is all. With own, each row has lists and targets of pointers of its own, so that a copy
// of the row stays valid.
func FieldsOf(row any, own bool, wanted func(f reflect.StructField, column string) bool) (fields []Field) {
	value := reflect.ValueOf(row).Elem()
	for i := range value.NumField() {
		f := value.Type().Field(i)
		name, into := schema.ColumnName(f), value.Field(i).Addr()
		if f.Anonymous {
			fields = append(fields, FieldsOf(into.Interface(), own, wanted)...)
			continue
		}
		if name == "" || wanted != nil && !wanted(f, name) {
			continue
		}
		if hops, ok := into.Interface().(*[]schema.HopRow); ok {
			fields = append(fields, hopFields(name, hops, own)...)
			continue
		}
		if basic := basicKinds[f.Type.Kind()]; basic != nil {
			into = into.Convert(reflect.PointerTo(basic)) // of a named type
		}
		fields = append(fields, Field{Name: name, Into: into.Interface(), own: own})
	}
	return fields
}

// Some wants the columns of these names, for FieldsOf; without a name all.
func Some(names ...string) func(f reflect.StructField, column string) bool {
	return func(_ reflect.StructField, column string) bool {
		return len(names) == 0 || slices.Contains(names, column)
	}
}

// basicKinds are the types of columns that may have a name of their own.
var basicKinds = map[reflect.Kind]reflect.Type{reflect.Int32: reflect.TypeFor[int32](),
	reflect.Int64: reflect.TypeFor[int64](), reflect.String: reflect.TypeFor[string]()}

// hopFields reads a list of structs as lists of their fields.
func hopFields(name string, hops *[]schema.HopRow, own bool) []Field {
	var statuses []int32
	var urls []string
	return []Field{{Name: name + ".status", Into: &statuses}, {Name: name + ".url", Into: &urls, then: func() error {
		if len(statuses) != len(urls) {
			return errors.New("status or URL is missing")
		}
		emptier(hops, own)(absent)
		for i, url := range urls {
			*hops = append(*hops, schema.HopRow{Status: statuses[i], URL: url})
		}
		return nil
	}}}
}

// Place says where rows of a table are: Rows rows of File, from row First on.
type Place struct {
	Object      store.Object
	File        schema.File // its empty fields are not compared
	First, Rows int64
	Whole       bool                  // compare the hash of all bytes, not only the footer's
	Damaged     func(err error) error // adds to an error of damage which scan is damaged and what to do; may be nil
}

// allRows is the Place.Rows of a file without a record: all its rows are read.
const allRows = math.MinInt64

// Opened is the result of opening a Place.
type Opened struct {
	Place
	Err error
}

// Cursor reads some columns of a table, row after row.
type Cursor struct {
	ctx   context.Context
	again func() Opened
	given []Field

	// Passes, if not nil, is called for each row, with its fields set: Next passes over the row if it returns true.
	Passes func() bool

	name    string
	damaged func(err error) error
	object  store.Object
	groups  []parquet.RowGroup // not yet begun
	left    int64              // rows left in the current group
	row     int64              // rows begun
	skipped int64              // the first rows of the group, see Skip
	passed  int64              // rows that advance has returned
	fields  []*fieldReader
	err     error
}

// NewCursor reads an opened file and closes it. If the file was deleted or replaced in the meantime, again opens the
// place that has the rows now; nil means that there is none. It is an error if the file does not match its record, or
// lacks a column that its schema version has. The values of a newer column are always absent.
func NewCursor(ctx context.Context, at Opened, again func() Opened, fields ...Field) (*Cursor, error) {
	c := &Cursor{ctx: ctx, again: again, given: fields}
	if err := c.open(at); err != nil {
		return nil, err
	}
	return c, nil
}

// Name is the name of the file that is being read.
func (c *Cursor) Name() string { return c.name }

// Row is the number of the current row, counted from 1.
func (c *Cursor) Row() int64 { return c.row }

// Skip passes over the first rows, before the first Next.
func (c *Cursor) Skip(rows int64) { c.skipped = rows }

// open begins to read the opened file, or the one that has the rows now.
func (c *Cursor) open(at Opened) error {
	for was := ""; ; was, at = c.name, c.again() {
		if at.Err != nil {
			return at.Err
		}
		p := at.Place
		c.name, c.damaged, c.object = p.File.Name, p.Damaged, p.Object
		err := c.openAt(p)
		if err == nil {
			return nil
		}
		c.object = nil
		closed := p.Object.Close()
		if !errors.Is(err, store.ErrChanged) || c.name == was || c.again == nil {
			return errors.Join(c.failed(err), closed)
		}
	}
}

// damage is an error of a dataset's file, as opposed to one of a list.
type damage struct{ error }

func (d damage) Unwrap() error { return d.error }

// IsDamage reports whether an error says that a file of a dataset has changed since it was written.
func IsDamage(err error) bool {
	_, read := errors.AsType[damage](err)
	_, differs := errors.AsType[*schema.DamagedError](err)
	_, irregular := errors.AsType[*store.IrregularError](err)
	return read || differs || irregular
}

func (c *Cursor) failed(err error) error {
	damaged := IsDamage(err) || errors.Is(err, ErrPage)
	err = fmt.Errorf("cannot read %s: %w", c.name, err)
	if damaged {
		err = damage{err}
	}
	if damaged && c.damaged != nil {
		err = c.damaged(err)
	}
	return err
}

func (c *Cursor) openAt(p Place) (err error) {
	defer rescue(&err)
	file, err := p.file()
	if err != nil {
		return err
	}
	if n := file.NumRows(); p.Rows == allRows {
		p.Rows = n
	} else if n != p.File.Rows {
		return &schema.DamagedError{What: "rows", Expected: fmt.Sprint(p.File.Rows), Found: fmt.Sprint(n)}
	}
	if c.groups, err = groupsOf(file, p.First, p.Rows); err != nil {
		return err
	}
	c.fields = c.fields[:0]
	recorded, _ := file.Lookup(MetaSchema)
	version, _ := strconv.Atoi(recorded)
	for _, f := range c.given {
		reader, err := newFieldReader(file, f)
		if err != nil {
			return err
		}
		if reader.leaf == nil && version >= schema.Version {
			return fmt.Errorf("%w: it has no column %s, which schema version %d has", ErrPage, f.Name, version)
		}
		c.fields = append(c.fields, reader)
	}
	return nil
}

// reopen continues in the file that has the rows now: a compaction may move rows while they are read, and some stores
// do not keep a deleted file for its readers.
func (c *Cursor) reopen() error {
	was := c.name
	if c.again == nil {
		return store.ErrChanged
	}
	if err := c.Close(); err != nil {
		return err
	}
	if err := c.open(c.again()); err != nil {
		return err
	}
	if c.name == was {
		return store.ErrChanged // still the file that cannot be read
	}
	for c.row = 0; c.row < c.skipped+c.passed; {
		if more, err := c.next(); !more || err != nil {
			return cmp.Or(err, errEntries)
		}
	}
	return nil
}

// groupsOf returns the row groups with rows rows from row first on. Both ends must be those of groups.
func groupsOf(file *parquet.File, first, rows int64) ([]parquet.RowGroup, error) {
	var groups []parquet.RowGroup
	for _, group := range file.RowGroups() {
		switch n := group.NumRows(); {
		case first > 0:
			first -= n
		case rows > 0:
			rows -= n
			groups = append(groups, group)
		}
		if first < 0 || rows < 0 {
			break
		}
	}
	if first != 0 || rows != 0 {
		return nil, errors.New("its row groups are not those of the parts that it was made of")
	}
	return groups, nil
}

// contextRows is the number of rows after which Next checks its context.
const contextRows = 1024

// Next sets the variables of all fields to the next row, and reports false at the end or after an error.
func (c *Cursor) Next() bool {
	for c.advance() {
		if c.Passes == nil || !c.Passes() {
			return true
		}
	}
	return false
}

// advance is Next for all rows.
func (c *Cursor) advance() bool {
	if c.err != nil {
		return false
	}
	more, err := c.next()
	for errors.Is(err, store.ErrChanged) {
		if again := c.reopen(); again != nil {
			err = errors.Join(err, again)
			break
		}
		more, err = c.next()
	}
	if err != nil {
		c.err = c.failed(err)
	}
	if !more || err != nil {
		return false
	}
	c.passed++
	return true
}

func (c *Cursor) next() (more bool, err error) {
	defer rescue(&err)
	if c.row%contextRows == 0 {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
	}
	for c.left == 0 {
		if len(c.groups) == 0 {
			return false, c.finish()
		}
		group := c.groups[0]
		c.groups = c.groups[1:]
		skip := min(max(0, c.skipped-c.row), group.NumRows())
		if c.row += skip; skip > 0 && skip == group.NumRows() {
			continue
		}
		if err := c.beginGroup(group, skip); err != nil {
			return false, err
		}
	}
	c.left--
	c.row++
	for _, f := range c.fields {
		err := f.next()
		if err == nil && f.then != nil {
			err = f.then()
		}
		if err != nil {
			return false, fmt.Errorf("row %d, column %s: %w", c.row, f.name, err)
		}
	}
	return true, nil
}

// beginGroup begins a row group after its first skip rows.
func (c *Cursor) beginGroup(group parquet.RowGroup, skip int64) error {
	if c.left = group.NumRows() - skip; c.left < 0 {
		return fmt.Errorf("a row group of %d rows", c.left)
	}
	chunks := group.ColumnChunks()
	for _, f := range c.fields {
		if f.leaf != nil {
			err := f.begin(chunks[f.leaf.Index()])
			if err == nil && skip > 0 {
				err = f.pages.SeekToRow(skip)
			}
			if err != nil {
				return fmt.Errorf("column %s: %w", f.name, err)
			}
		}
	}
	return nil
}

// finish reports columns with entries beyond the last row.
func (c *Cursor) finish() error {
	for _, f := range c.fields {
		if err := f.finish(); err != nil {
			return fmt.Errorf("column %s: %w", f.name, err)
		}
	}
	return nil
}

// Err returns the error that ended the rows, or nil after the last row.
func (c *Cursor) Err() error { return c.err }

// Close closes the file and returns the pages to parquet-go's pools.
func (c *Cursor) Close() error {
	var errs []error
	for _, f := range c.fields {
		errs = append(errs, f.close())
	}
	if c.object != nil {
		errs = append(errs, c.object.Close())
	}
	c.object, c.fields, c.groups, c.left = nil, nil, nil, 0
	return errors.Join(errs...)
}
