package table

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// This file reads columns without making rows. Rows rebuilds each row from its values and makes a string of each of
// them; on the lists of a typical site that is two hundred strings. A Cursor goes through the pages of the columns that
// it was asked for, side by side, and works on a dictionary's texts once a dictionary: for a row it copies numbers.
//
// Levels. A value stands at its column's highest definition level; whatever stands lower is an absent value or an
// empty list. An entry of repetition level 0 begins a row.

// Field binds a column to a variable that every Next sets. Into is a pointer: *bool, *int32, *int64, *float32 or
// *float64 of the column's very type, *string or *[]byte for a text, *[]string for a list of texts, or *[]int32 for one of
// which it gets the numbers that Index returns for them; without Index, for a list of numbers. Absent values are zeros; of
// **bool, **int32 and **float64 they are nil. Lists, and what such a pointer points to, last until the next Next. Texts stay,
// and nobody may change them; they share their memory with those of their page or dictionary: whoever keeps one for long should clone it.
type Field struct {
	Name  string // of a list of structs, with a point and the name of the struct's field behind it
	Into  any
	Index func(text string) int32 // of a list's texts: called once a dictionary entry, or once a value without one
}

// Place is where rows of a table are: so many rows of a file, from one on.
type Place struct {
	Object      store.Object
	File        schema.File
	First, Rows int64
}

// Opened is what became of opening a place.
type Opened struct {
	Place
	Err error
}

// Cursor reads some columns of a table, row after row.
type Cursor struct {
	ctx   context.Context
	again func() Opened
	given []Field

	name   string
	object store.Object
	groups []parquet.RowGroup // still to begin
	left   int64              // rows of the group that is being read
	row    int64              // rows begun
	told   int64              // rows that Next has set the variables to
	fields []*fieldReader
	err    error
}

// NewCursor reads what has been opened, and closes it. Where the file has gone or is another one since, again opens the place
// that has the rows now; nil is nowhere. A column that the file does not have is always absent. A file with another number of rows than
// its record says is an error.
func NewCursor(ctx context.Context, at Opened, again func() Opened, fields ...Field) (*Cursor, error) {
	c := &Cursor{ctx: ctx, again: again, given: fields}
	if err := c.open(at); err != nil {
		return nil, err
	}
	return c, nil
}

// Name is the name of the file that is being read.
func (c *Cursor) Name() string { return c.name }

// Row is the number of the row that Next has set the variables to, from 1 on.
func (c *Cursor) Row() int64 { return c.row }

// open goes to the file that has been opened, or to the one that has the rows now.
func (c *Cursor) open(at Opened) error {
	for was := ""; ; was, at = c.name, c.again() {
		if at.Err != nil {
			return at.Err
		}
		p := at.Place
		c.name, c.object = p.File.Name, p.Object
		err := c.openAt(p)
		if err == nil {
			return nil
		}
		c.object = nil
		closed := p.Object.Close()
		if !errors.Is(err, store.ErrChanged) || c.name == was || c.again == nil {
			return errors.Join(fmt.Errorf("cannot read %s: %w", c.name, err), closed)
		}
	}
}

func (c *Cursor) openAt(p Place) (err error) {
	defer rescue(&err)
	file, err := OpenFile(c.object)
	if err != nil {
		return err
	}
	if n := file.NumRows(); n != p.File.Rows {
		return fmt.Errorf("it has %d rows, its commit says %d", n, p.File.Rows)
	}
	if c.groups, err = groupsOf(file, p.First, p.Rows); err != nil {
		return err
	}
	c.fields = c.fields[:0]
	for _, f := range c.given {
		reader, err := newFieldReader(file, f)
		if err != nil {
			return err
		}
		c.fields = append(c.fields, reader)
	}
	return nil
}

// reopen goes on in another file, where a compaction has put the rows while they were read, in a store that does not keep
// what is deleted for those who read it.
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
		return store.ErrChanged // it is still the one that cannot be read
	}
	for c.row = 0; c.row < c.told; {
		if more, err := c.next(); !more || err != nil {
			return cmp.Or(err, errEntries)
		}
	}
	return nil
}

// groupsOf returns the row groups that hold so many rows from first on: they begin and end there.
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

// contextRows is how often Next looks whether its context has ended.
const contextRows = 1024

// Next sets the variables of all fields to the next row, and reports false at the end or after an error.
func (c *Cursor) Next() bool {
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
		c.err = fmt.Errorf("cannot read %s: %w", c.name, err)
	}
	if !more || err != nil {
		return false
	}
	c.told++
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
		if err := c.beginGroup(c.groups[0]); err != nil {
			return false, err
		}
		c.groups = c.groups[1:]
	}
	c.left--
	c.row++
	for _, f := range c.fields {
		if err := f.next(); err != nil {
			return false, fmt.Errorf("row %d, column %s: %w", c.row, f.name, err)
		}
	}
	return true, nil
}

func (c *Cursor) beginGroup(group parquet.RowGroup) error {
	c.left = group.NumRows()
	if c.left < 0 {
		return fmt.Errorf("a row group of %d rows", c.left)
	}
	chunks := group.ColumnChunks()
	for _, f := range c.fields {
		if f.leaf != nil {
			if err := f.begin(chunks[f.leaf.Index()]); err != nil {
				return fmt.Errorf("column %s: %w", f.name, err)
			}
		}
	}
	return nil
}

// finish reports columns that have more than the rows.
func (c *Cursor) finish() error {
	for _, f := range c.fields {
		if err := f.finish(); err != nil {
			return fmt.Errorf("column %s: %w", f.name, err)
		}
	}
	return nil
}

// Err is the error that ended the rows; nil where they were all read.
func (c *Cursor) Err() error { return c.err }

// Close closes the file. What its columns hold goes back to parquet-go's pools.
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

// fieldReader reads one column, of which it holds one page at a time.
type fieldReader struct {
	name  string
	index func(text string) int32
	set   func(at int)       // sets the variable to the value at that place of the page; absent: to nothing
	list  func(at, many int) // of a list: appends so many values from that place on; nil of others

	leaf    *parquet.Column // nil where the file has no such column
	maximum byte            // definition level of a value

	pages  parquet.Pages
	page   parquet.Page
	repeat []byte // levels of the page's entries; empty where all begin a row
	define []byte // empty where all are values
	entry  int    // the next one
	length int    // entries of the page
	value  int    // values before entry

	// The page's values, by its type. Those of texts are places in texts.
	bools      []byte
	int32s     []int32
	looked     []int32 // what a dictionary has for them
	int64s     []int64
	floats     []float32
	doubles    []float64
	texts      []string
	numbers    []int32            // what index says of texts
	dictionary parquet.Dictionary // that texts is of; nil where they are the page's own, in order
}

// absent is where a value stands that does not.
const absent = -1

func newFieldReader(file *parquet.File, f Field) (*fieldReader, error) {
	r := &fieldReader{name: f.Name, index: f.Index}
	var kind parquet.Kind
	switch into := f.Into.(type) {
	case *bool:
		kind, r.set = parquet.Boolean, func(at int) { *into = at != absent && r.truth(at) }
	case *int32:
		kind, r.set = parquet.Int32, setter(into, &r.int32s)
	case *int64:
		kind, r.set = parquet.Int64, setter(into, &r.int64s)
	case *float32:
		kind, r.set = parquet.Float, setter(into, &r.floats)
	case *float64:
		kind, r.set = parquet.Double, setter(into, &r.doubles)
	case **bool:
		kind, r.set = parquet.Boolean, pointer(into, func(at int) bool { return r.truth(at) })
	case **int32:
		kind, r.set = parquet.Int32, pointer(into, func(at int) int32 { return r.int32s[at] })
	case **float64:
		kind, r.set = parquet.Double, pointer(into, func(at int) float64 { return r.doubles[at] })
	case *string:
		kind, r.set = parquet.ByteArray, func(at int) { *into = r.text(at) }
	case *[]byte:
		kind, r.set = parquet.ByteArray, func(at int) {
			text := r.text(at)
			*into = unsafe.Slice(unsafe.StringData(text), len(text))
		}
	case *[]string:
		kind, r.set = parquet.ByteArray, func(int) { *into = (*into)[:0] }
		r.list = func(at, many int) {
			for i := range many {
				*into = append(*into, r.text(at+i))
			}
		}
	case *[]int32:
		r.set = func(int) { *into = (*into)[:0] }
		if f.Index == nil {
			kind, r.list = parquet.Int32, func(at, many int) { *into = append(*into, r.int32s[at:at+many]...) }
			break
		}
		kind, r.list = parquet.ByteArray, func(at, many int) {
			for i := at; i < at+many; i++ {
				if r.dictionary != nil {
					*into = append(*into, r.numbers[r.int32s[i]])
				} else {
					*into = append(*into, r.numbers[i])
				}
			}
		}
	default:
		return nil, fmt.Errorf("column %s cannot be read into a %T", f.Name, f.Into)
	}
	if _, numbers := f.Into.(*[]int32); f.Index != nil && !numbers {
		return nil, fmt.Errorf("column %s: Index is for lists of texts", f.Name)
	}
	name, part, _ := strings.Cut(f.Name, ".")
	if r.leaf = file.Root().Column(name); r.leaf == nil {
		return r, nil
	}
	for !r.leaf.Leaf() {
		children := r.leaf.Columns()
		if i := slices.IndexFunc(children, func(c *parquet.Column) bool { return c.Name() == part }); i >= 0 {
			children = children[i : i+1]
		}
		if len(children) != 1 {
			return nil, fmt.Errorf("column %s has columns of its own", f.Name)
		}
		r.leaf = children[0]
	}
	repeated := r.leaf.MaxRepetitionLevel()
	if r.leaf.Type().Kind() != kind || repeated > 1 || (repeated == 1) != (r.list != nil) {
		return nil, fmt.Errorf("column %s cannot be read into a %T: it is of type %s", f.Name, f.Into, r.leaf.Type())
	}
	r.maximum = byte(r.leaf.MaxDefinitionLevel())
	return r, nil
}

// truth is the truth at a place of the page.
func (r *fieldReader) truth(at int) bool { return r.bools[at/8]>>(at%8)&1 == 1 }

// text is the text at a place of the page; "" where it is absent.
func (r *fieldReader) text(at int) string {
	switch {
	case at == absent:
		return ""
	case r.dictionary != nil:
		return r.texts[r.int32s[at]]
	}
	return r.texts[at]
}

// pointer sets a pointer to a place of its own.
func pointer[T any](into **T, value func(at int) T) func(at int) {
	place := new(T)
	return func(at int) {
		if *into = nil; at != absent {
			*place = value(at)
			*into = place
		}
	}
}

func setter[T any](into *T, values *[]T) func(at int) {
	return func(at int) {
		var nothing T
		if *into = nothing; at != absent {
			*into = (*values)[at]
		}
	}
}

// begin goes on to the column's chunk in the next row group.
func (r *fieldReader) begin(chunk parquet.ColumnChunk) error {
	if err := r.finish(); err != nil {
		return err
	}
	r.dictionary = nil
	r.pages = chunk.Pages()
	return nil
}

// finish releases what is held of the chunk, and reports entries that belong to no row.
func (r *fieldReader) finish() error {
	if r.pages == nil {
		return nil
	}
	more, err := r.entries()
	if more && err == nil {
		err = errEntries
	}
	return errors.Join(err, r.close())
}

func (r *fieldReader) close() error {
	if r.page != nil {
		parquet.Release(r.page)
		r.page = nil
	}
	r.entry, r.length = 0, 0
	if r.pages == nil {
		return nil
	}
	pages := r.pages
	r.pages = nil
	return pages.Close()
}

var errEntries = errors.New("damaged Parquet file: a column has another number of entries than its group has rows")

// next sets the variable for the next row.
func (r *fieldReader) next() error {
	if r.leaf == nil {
		r.set(absent)
		return nil
	}
	if r.entry == r.length {
		if more, err := r.entries(); err != nil {
			return err
		} else if !more {
			return errEntries
		}
	}
	if r.list != nil {
		return r.nextList()
	}
	at := absent
	if len(r.define) == 0 || r.define[r.entry] == r.maximum {
		at = r.value
		r.value++
	}
	r.entry++
	r.set(at)
	return nil
}

// nextList is next for a list, whose entries may go on in further pages.
func (r *fieldReader) nextList() error {
	if r.repeat[r.entry] != 0 {
		return errEntries
	}
	r.set(absent)
	for {
		end := r.length
		if next := bytes.IndexByte(r.repeat[r.entry+1:], 0); next >= 0 {
			end = r.entry + 1 + next
		}
		many := end - r.entry
		if len(r.define) != 0 {
			many = bytes.Count(r.define[r.entry:end], []byte{r.maximum})
		}
		r.list(r.value, many)
		r.value += many
		if r.entry = end; end < r.length {
			break
		}
		if more, err := r.entries(); err != nil {
			return err
		} else if !more || r.repeat[r.entry] == 0 {
			break
		}
	}
	return nil
}

// entries reports whether the chunk has another entry, and reads its page.
func (r *fieldReader) entries() (more bool, err error) {
	for r.entry == r.length {
		if r.page != nil {
			parquet.Release(r.page)
			r.page = nil
		}
		r.entry, r.length, r.value = 0, 0, 0
		page, err := r.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		r.page = page
		if err := r.load(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// load takes a page's levels and values.
func (r *fieldReader) load() error {
	r.repeat, r.define, r.length = r.page.RepetitionLevels(), r.page.DefinitionLevels(), int(r.page.NumValues())
	if r.list != nil && len(r.repeat) != r.length || len(r.define) != 0 && len(r.define) != r.length {
		return errEntries
	}
	values, dictionary := r.page.Data(), r.page.Dictionary()
	kind := r.leaf.Type().Kind()
	if dictionary != nil {
		switch r.int32s = values.Int32(); kind {
		case parquet.Int32: // the counts of verdicts
			numbers := dictionary.Page().Data()
			return r.lookUp(numbers.Int32())
		case parquet.ByteArray:
		default:
			return fmt.Errorf("its values, of the type %s, are in a dictionary, which bulkscan does not write", kind)
		}
		if dictionary != r.dictionary {
			r.dictionary = dictionary
			r.loadTexts(dictionary.Page().Data())
		}
		return nil
	}
	switch kind {
	case parquet.Boolean:
		r.bools = values.Boolean()
	case parquet.Int32:
		r.int32s = values.Int32()
	case parquet.Int64:
		r.int64s = values.Int64()
	case parquet.Float:
		r.floats = values.Float()
	case parquet.Double:
		r.doubles = values.Double()
	case parquet.ByteArray:
		r.dictionary = nil
		r.loadTexts(values)
	}
	return nil
}

// lookUp puts the numbers of a dictionary in the place of their indexes.
func (r *fieldReader) lookUp(numbers []int32) error {
	r.looked = r.looked[:0]
	for _, index := range r.int32s {
		if uint(index) >= uint(len(numbers)) {
			return fmt.Errorf("damaged Parquet file: entry %d of a dictionary of %d", index, len(numbers))
		}
		r.looked = append(r.looked, numbers[index])
	}
	r.int32s = r.looked
	return nil
}

// loadTexts makes one string of all texts, and cuts it.
func (r *fieldReader) loadTexts(values encoding.Values) {
	data, offsets := values.ByteArray()
	all := string(data)
	r.texts, r.numbers = r.texts[:0], r.numbers[:0]
	for i := 1; i < len(offsets); i++ {
		text := all[offsets[i-1]:offsets[i]]
		r.texts = append(r.texts, text)
		if r.index != nil {
			r.numbers = append(r.numbers, r.index(text))
		}
	}
}
