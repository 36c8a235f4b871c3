package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// This file takes rows, which are structs of the sink, apart into columns as the Parquet format has them: values, and how
// deep each stands. It finds fields by their offset, not by reflection, so that whoever is compared is not slowed down.

// leaf is a column of values: a field of the row, or of the elements of a list in it.
type leaf struct {
	path     string // dotted, as the schema spells it
	kind     reflect.Kind
	offset   uintptr // of the field in the row
	size     uintptr // of the row
	list     bool
	pointer  bool
	optional bool // null where it is zero, or where its pointer is nil

	elemSize, elemOffset uintptr // in a list
}

// leavesOf returns the columns of a row type, in the order of the schema.
func leavesOf(row reflect.Type, sc *schema.Schema) ([]leaf, error) {
	var leaves []leaf
	for i := range row.NumField() {
		field := row.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("parquet"), ",")
		l := leaf{path: name, kind: field.Type.Kind(), offset: field.Offset, size: row.Size(), optional: slices.Contains(strings.Split(options, ","), "optional")}
		switch {
		case l.kind == reflect.Pointer:
			l.pointer, l.kind = true, field.Type.Elem().Kind()
			leaves = append(leaves, l)
		case l.kind == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			elem := field.Type.Elem()
			for k := range elem.NumField() {
				inner := elem.Field(k)
				innerName, _, _ := strings.Cut(inner.Tag.Get("parquet"), ",")
				leaves = append(leaves, leaf{path: name + ".list.element." + innerName, kind: inner.Type.Kind(), offset: field.Offset, size: row.Size(),
					list: true, elemSize: elem.Size(), elemOffset: inner.Offset})
			}
		case l.kind == reflect.Slice && field.Type.Elem().Kind() == reflect.String:
			l.list, l.kind, l.elemSize, l.path = true, reflect.String, field.Type.Elem().Size(), name+".list.element"
			leaves = append(leaves, l)
		default:
			leaves = append(leaves, l)
		}
	}
	if sc.NumColumns() != len(leaves) {
		return nil, fmt.Errorf("%s has %d columns, the file %d", row.Name(), len(leaves), sc.NumColumns())
	}
	for i := range leaves {
		column := sc.Column(i)
		depth := int16(0)
		if leaves[i].list || leaves[i].optional {
			depth = 1
		}
		if column.Path() != leaves[i].path || column.MaxDefinitionLevel() != depth || (column.MaxRepetitionLevel() == 1) != leaves[i].list {
			return nil, fmt.Errorf("column %d of %s is %s, the file has %s (levels %d and %d)", i, row.Name(), leaves[i].path, column.Path(), column.MaxDefinitionLevel(), column.MaxRepetitionLevel())
		}
	}
	return leaves, nil
}

// columnValues is a column of some rows. Only the slice of its type is filled; those of levels are empty where every row
// has one value. Texts view the rows.
type columnValues struct {
	texts   []parquet.ByteArray
	bools   []bool
	int32s  []int32
	int64s  []int64
	floats  []float32
	doubles []float64
	define  []int16
	repeat  []int16
}

func (v *columnValues) reset() {
	v.texts, v.bools, v.int32s, v.int64s = v.texts[:0], v.bools[:0], v.int32s[:0], v.int64s[:0]
	v.floats, v.doubles, v.define, v.repeat = v.floats[:0], v.doubles[:0], v.define[:0], v.repeat[:0]
}

// levels returns the levels as arrow-go takes them: nil where every row has one value.
func (v *columnValues) levels() (define, repeat []int16) {
	if len(v.define) > 0 {
		define = v.define
	}
	if len(v.repeat) > 0 {
		repeat = v.repeat
	}
	return define, repeat
}

// gather fills v with the column of n rows from a first one on.
func (l *leaf) gather(first unsafe.Pointer, n int, v *columnValues) {
	v.reset()
	switch l.kind {
	case reflect.String:
		v.texts = gatherOf(l, first, n, v, v.texts, func(s *string) parquet.ByteArray { return unsafe.Slice(unsafe.StringData(*s), len(*s)) })
	case reflect.Slice:
		v.texts = gatherOf(l, first, n, v, v.texts, func(b *[]byte) parquet.ByteArray { return *b })
	case reflect.Bool:
		v.bools = gatherOf(l, first, n, v, v.bools, func(b *bool) bool { return *b })
	case reflect.Int32:
		v.int32s = gatherOf(l, first, n, v, v.int32s, func(i *int32) int32 { return *i })
	case reflect.Int64:
		v.int64s = gatherOf(l, first, n, v, v.int64s, func(i *int64) int64 { return *i })
	case reflect.Float32:
		v.floats = gatherOf(l, first, n, v, v.floats, func(f *float32) float32 { return *f })
	case reflect.Float64:
		v.doubles = gatherOf(l, first, n, v, v.doubles, func(f *float64) float64 { return *f })
	default:
		panic("parquet: a column of kind " + l.kind.String())
	}
}

func gatherOf[F, V any](l *leaf, first unsafe.Pointer, n int, v *columnValues, values []V, value func(*F) V) []V {
	type list struct {
		base     unsafe.Pointer
		len, cap int
	}
	field := unsafe.Add(first, l.offset)
	for range n {
		switch {
		case l.list:
			all := (*list)(field)
			for k := range all.len {
				values = append(values, value((*F)(unsafe.Add(all.base, uintptr(k)*l.elemSize+l.elemOffset))))
				v.define, v.repeat = append(v.define, 1), append(v.repeat, int16(min(k, 1)))
			}
			if all.len == 0 {
				v.define, v.repeat = append(v.define, 0), append(v.repeat, 0)
			}
		case l.pointer:
			at := *(**F)(field)
			if at != nil {
				values = append(values, value(at))
			}
			v.define = append(v.define, level(at != nil))
		case l.optional:
			has := !l.isZero(field)
			if has {
				values = append(values, value((*F)(field)))
			}
			v.define = append(v.define, level(has))
		default:
			values = append(values, value((*F)(field)))
		}
		field = unsafe.Add(field, l.size)
	}
	return values
}

func level(has bool) int16 {
	if has {
		return 1
	}
	return 0
}

func (l *leaf) isZero(field unsafe.Pointer) bool {
	switch l.kind {
	case reflect.String:
		return len(*(*string)(field)) == 0
	case reflect.Int32:
		return *(*int32)(field) == 0
	case reflect.Int64:
		return *(*int64)(field) == 0
	case reflect.Float32:
		return *(*float32)(field) == 0
	case reflect.Float64:
		return *(*float64)(field) == 0
	}
	panic("parquet: an optional column of kind " + l.kind.String())
}
