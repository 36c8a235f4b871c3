package table

import (
	"github.com/bulkscan/bulkscan/sink/schema"
	"math/bits"
	"reflect"
	"unsafe"
)

// This file keeps nulls null. parquet-go v0.32.0 finds the runs of values in an optional column 64 rows at a time. If a
// run of y values begins at row y of the 64 and no value follows, it takes the remaining rows for values, and their
// nulls become zeros and empty strings. The cause is writeRowsFuncOfOptional, which compares the bits after y with 1<<y
// - 1 instead of 1<<(64-y) - 1; https://github.com/parquet-go/parquet-go/pull/523 brought it back. Batches with such a
// column are halved until none is left. Two rows are never affected.

// optional is a column whose null is its type's zero.
type optional struct {
	offset uintptr
	kind   reflect.Kind
}

// optionalsOf lists the columns of a row that parquet-go writes in runs. It writes pointers one by one, so they are not
// affected.
func optionalsOf(row reflect.Type) []optional {
	var all []optional
	for i := range row.NumField() {
		field := row.Field(i)
		if field.Anonymous {
			for _, o := range optionalsOf(field.Type) {
				all = append(all, optional{field.Offset + o.offset, o.kind})
			}
		}
		if schema.HasOption(field, "optional") && field.Type.Kind() != reflect.Pointer {
			all = append(all, optional{field.Offset, field.Type.Kind()})
		}
	}
	return all
}

// values returns a bit for each of n rows, at most 64, that has a value in the column. It has one loop for each kind,
// since it runs for every row.
func (o optional) values(first unsafe.Pointer, size uintptr, n int) (has uint64) {
	field := unsafe.Add(first, o.offset)
	switch o.kind {
	case reflect.String:
		return valuesOf(field, size, n, func(s *string) bool { return len(*s) != 0 })
	case reflect.Int64:
		return valuesOf(field, size, n, func(i *int64) bool { return *i != 0 })
	case reflect.Int32:
		return valuesOf(field, size, n, func(i *int32) bool { return *i != 0 })
	case reflect.Float32:
		return valuesOf(field, size, n, func(f *float32) bool { return *f != 0 })
	case reflect.Float64:
		return valuesOf(field, size, n, func(f *float64) bool { return *f != 0 })
	}
	panic("sink: an optional column of kind " + o.kind.String())
}

func valuesOf[T any](field unsafe.Pointer, size uintptr, n int, isValue func(*T) bool) (has uint64) {
	offset := uintptr(0) // not a pointer: after the last row it would point outside of the slice
	for range n {
		// Branch-free, since whether a value is null is not predictable.
		var bit uint64
		if isValue((*T)(unsafe.Add(field, offset))) {
			bit = 1 << 63
		}
		has = has>>1 | bit
		offset += size
	}
	return has >> (-n & 63)
}

// misread reports whether parquet-go would lose nulls of these rows.
func misread[T any](rows []T, columns []optional) bool {
	for _, column := range columns {
		for word := 0; word < len(rows); word += 64 {
			if losesNulls(column.values(unsafe.Pointer(&rows[word]), unsafe.Sizeof(rows[word]), min(64, len(rows)-word))) {
				return true
			}
		}
	}
	return false
}

// losesNulls reports whether a run of y values begins at bit y of the 64, y from 1 to 31, and no value follows.
func losesNulls(values uint64) bool {
	y := bits.LeadingZeros64(values) // bits after the last run
	end := 64 - y
	return end > 0 && end < 64 && end%2 == 0 && values>>(end/2) == 1<<(end/2)-1 && values>>(end/2-1)&1 == 0
}
