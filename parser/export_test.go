package parser

import "reflect"

// What tests in package parser_test need.
var AppendRulePath = func(dst, value []byte) ([]byte, bool) { return appendRulePath(dst, value, Google) }

// Owned returns how many bytes all slices and strings of a File or a Robots have, unused capacity included, and how
// many the largest has.
func Owned[T File | Robots](f *T) (sum, most int) {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).Name != "src" {
					walk(v.Field(i))
				}
			}
		case reflect.Slice:
			size := v.Cap() * int(v.Type().Elem().Size())
			sum, most = sum+size, max(most, size)
		case reflect.String:
			sum, most = sum+v.Len(), max(most, v.Len())
		}
	}
	walk(reflect.ValueOf(f).Elem())
	return sum, most
}

// Bounds of what a File keeps.
const (
	Keep       = keep
	MaxRecords = maxRecords
)
