package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// fieldReader reads one column and holds one page at a time.
type fieldReader struct {
	name  string
	index func(text string) int32
	set   func(at int)       // sets the variable to the value at that index of the page; absent: to zero or nil
	then  func() error       // see Field
	list  func(at, many int) // for a list: appends many values from that index on; nil for others

	leaf    *parquet.Column // nil if the file has no such column
	maximum byte            // definition level of a value

	pages  parquet.Pages
	page   parquet.Page
	repeat []byte // repetition levels of the page's entries; empty if each begins a row
	define []byte // definition levels; empty if all are values
	entry  int    // the next one
	length int    // entries of the page
	value  int    // values before entry

	// The page's values, by type. Those of texts with a dictionary are indexes into texts.
	bools      []byte
	int32s     []int32
	looked     []int32 // int32s replaced by their dictionary entries
	lookedWide []int64 // the same, of int64s
	int64s     []int64
	floats     []float32
	doubles    []float64
	texts      []string
	numbers    []int32            // results of index for texts
	dictionary parquet.Dictionary // source of texts; nil if texts are the page's own, in order
}

// absent is the index of an absent value.
const absent = -1

func newFieldReader(file *parquet.File, f Field) (*fieldReader, error) {
	r := &fieldReader{name: f.Name, index: f.Index, then: f.then}
	kind, err := r.bind(f)
	if err != nil {
		return nil, err
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

// bind makes set and list for the type of the field's variable, and returns the kind of column that it needs.
func (r *fieldReader) bind(f Field) (kind parquet.Kind, err error) {
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
		kind, r.set = parquet.Boolean, pointer(into, f.own, r.truth)
	case **int32:
		kind, r.set = parquet.Int32, pointer(into, f.own, func(at int) int32 { return r.int32s[at] })
	case **int64:
		kind, r.set = parquet.Int64, pointer(into, f.own, func(at int) int64 { return r.int64s[at] })
	case **float64:
		kind, r.set = parquet.Double, pointer(into, f.own, func(at int) float64 { return r.doubles[at] })
	case **string:
		kind, r.set = parquet.ByteArray, pointer(into, f.own, r.text)
	case *string:
		kind, r.set = parquet.ByteArray, func(at int) { *into = r.text(at) }
	case *[]byte:
		kind, r.set = parquet.ByteArray, func(at int) {
			text := r.text(at)
			*into = unsafe.Slice(unsafe.StringData(text), len(text))
		}
	case *[]string:
		kind, r.set = parquet.ByteArray, emptier(into, f.own)
		r.list = func(at, many int) {
			for i := range many {
				*into = append(*into, r.text(at+i))
			}
		}
	case *[]int32:
		r.set = emptier(into, false)
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
		return 0, fmt.Errorf("column %s cannot be read into a %T", f.Name, f.Into)
	}
	if _, numbers := f.Into.(*[]int32); f.Index != nil && !numbers {
		return 0, fmt.Errorf("column %s: Index is for lists of texts", f.Name)
	}
	return kind, nil
}

func (r *fieldReader) truth(at int) bool { return r.bools[at/8]>>(at%8)&1 == 1 }

// text returns the text at an index of the page, or "" if absent.
func (r *fieldReader) text(at int) string {
	switch {
	case at == absent:
		return ""
	case r.dictionary != nil:
		return r.texts[r.int32s[at]]
	}
	return r.texts[at]
}

// pointer returns a setter that points `into` to a variable: the same one for all rows, or with own a new one for each
// row.
func pointer[T any](into **T, own bool, value func(at int) T) func(at int) {
	place := new(T)
	return func(at int) {
		if *into = nil; at != absent {
			if own {
				place = new(T)
			}
			*place = value(at)
			*into = place
		}
	}
}

// emptier returns a setter that empties a list: the same list for all rows, or with own a new one for each row.
func emptier[T any](into *[]T, own bool) func(int) {
	return func(int) {
		if *into = (*into)[:0]; own {
			*into = []T{}
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

func (r *fieldReader) begin(chunk parquet.ColumnChunk) error {
	if err := r.finish(); err != nil {
		return err
	}
	r.dictionary = nil
	r.pages = chunk.Pages()
	return nil
}

// finish releases the page and reports entries that belong to no row.
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

// nextList is next for a list, whose entries may continue in further pages.
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

// entries reports whether the chunk has another entry, and loads its page.
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

func (r *fieldReader) load() (err error) {
	r.repeat, r.define, r.length = r.page.RepetitionLevels(), r.page.DefinitionLevels(), int(r.page.NumValues())
	if r.list != nil && len(r.repeat) != r.length || len(r.define) != 0 && len(r.define) != r.length {
		return errEntries
	}
	values, dictionary := r.page.Data(), r.page.Dictionary()
	kind := r.leaf.Type().Kind()
	if dictionary != nil {
		r.int32s = values.Int32()
		entries := dictionary.Page().Data()
		switch kind {
		case parquet.Int32: // the counts of verdicts
			r.looked, err = lookUp(r.looked, r.int32s, entries.Int32())
			r.int32s = r.looked
			return err
		case parquet.Int64: // the ids of policies
			r.lookedWide, err = lookUp(r.lookedWide, r.int32s, entries.Int64())
			r.int64s = r.lookedWide
			return err
		case parquet.ByteArray:
		default:
			return fmt.Errorf("its values, of the type %s, are in a dictionary, which bulkscan does not write", kind)
		}
		if dictionary != r.dictionary {
			r.dictionary = dictionary
			r.loadTexts(entries)
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

// lookUp returns the dictionary's numbers at these indexes, in the memory given.
func lookUp[T any](looked []T, indexes []int32, numbers []T) ([]T, error) {
	looked = looked[:0]
	for _, index := range indexes {
		if uint(index) >= uint(len(numbers)) {
			return looked, fmt.Errorf("damaged Parquet file: entry %d of a dictionary of %d", index, len(numbers))
		}
		looked = append(looked, numbers[index])
	}
	return looked, nil
}

// loadTexts copies all texts as one string and slices it.
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
