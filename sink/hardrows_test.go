package sink

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
)

// hardRows returns n rows of any struct, such as those of the tables, the same at every call, with values that are hard
// to store: none, zeros, the bounds of every type, empty and long lists and texts, and runs of absent values of every
// length. Every 192 rows, three words of 64, a column changes its pattern: absent, present, alternating, or present in
// a single run. The first values present are its special values.
func hardRows[T any](n int) []T {
	rows := make([]T, n)
	all := reflect.ValueOf(rows)
	for i := range reflect.TypeFor[T]().NumField() {
		rng := rand.New(rand.NewPCG(uint64(i), 9309))
		var present func(row int) bool
		special := specials(reflect.TypeFor[T]().Field(i).Type)
		for row := range n {
			if row%period == 0 {
				present = habit(rng)
			}
			field := all.Index(row).Field(i)
			switch {
			case row < len(special):
				field.Set(reflect.ValueOf(special[row]).Convert(field.Type()))
			case present(row % period):
				field.Set(reflect.ValueOf(draw(rng, field.Type())).Convert(field.Type()))
			}
		}
	}
	return rows
}

const period = 192

// habit returns which rows of a period have a value.
func habit(rng *rand.Rand) func(row int) bool {
	start, length := rng.IntN(64), 1+rng.IntN(64)
	switch rng.IntN(5) {
	case 0:
		return func(int) bool { return false }
	case 1:
		return func(int) bool { return true }
	case 2:
		return func(int) bool { return rng.IntN(2) == 0 }
	case 3: // in each word, as many values as absent ones before
		return func(row int) bool { return row%64 >= start && row%64 < 2*start }
	}
	return func(row int) bool { return row >= start && row < start+length }
}

// texts are hard to store, or easily lost. All are valid UTF-8, as the sink makes them.
var texts = []string{"", " ", "\x00", "a\x00b", "\ufffd", "\ufeff\ufffe", "null", "NULL", "NaN", "0", "ÿ", "例え.テスト",
	"\u202e\u0301", "\U0010ffff", "line\nbreak\r\n", `"quoted", 'twice'`, strings.Repeat("€", 682),
	strings.Repeat("x", 2048)}

// specials are the first values of a type in hardRows.
func specials(t reflect.Type) (all []any) {
	switch t.Kind() {
	case reflect.String:
		for _, s := range texts {
			all = append(all, s)
		}
	case reflect.Bool:
		all = append(all, false, true)
	case reflect.Int32:
		all = append(all, int32(math.MinInt32), int32(math.MaxInt32), int32(-1), int32(0), int32(1))
	case reflect.Int64:
		all = append(all, int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(0), int64(1), int64(1)<<53+1)
	case reflect.Float32:
		all = append(all, float32(math.MaxFloat32), float32(math.SmallestNonzeroFloat32), float32(-1.5), float32(0))
	case reflect.Float64:
		all = append(all, math.MaxFloat64, math.SmallestNonzeroFloat64, -1.5, 0.0)
	case reflect.Pointer:
		all = append(all, reflect.Zero(t).Interface())
		for _, s := range specials(t.Elem()) {
			at := reflect.New(t.Elem())
			at.Elem().Set(reflect.ValueOf(s))
			all = append(all, at.Interface())
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return append(all, []byte{}, []byte{0}, []byte("\xff\xfe not UTF-8"), []byte(strings.Repeat("Disallow: /\n", 1000)))
		}
		// Lists with no element, one zero, and more than a thousand, of which the first are special.
		for _, n := range []int{0, 1, 2, 1100} {
			list := reflect.MakeSlice(t, n, n)
			for k := 1; k < n; k++ {
				list.Index(k).Set(element(k-1, t.Elem()))
			}
			all = append(all, list.Interface())
		}
	case reflect.Struct:
	default:
		panic("a column of type " + t.String())
	}
	return all
}

// element returns the k-th element of a list: the k-th special value of its type, while there are any. The fields of a
// struct each have theirs.
func element(k int, t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			v.Field(i).Set(element(k, t.Field(i).Type))
		}
		return v
	}
	if special := specials(t); k < len(special) {
		v.Set(reflect.ValueOf(special[k]).Convert(t))
	} else {
		v.Set(reflect.ValueOf(draw(rand.New(rand.NewPCG(uint64(k), 1)), t)).Convert(t))
	}
	return v
}

// draw returns a random value of a type, rarely zero.
func draw(rng *rand.Rand, t reflect.Type) any {
	switch t.Kind() {
	case reflect.String:
		if rng.IntN(3) > 0 {
			return fmt.Sprintf("text-%d", rng.IntN(40))
		}
		return fmt.Sprintf("https://host-%x.example/%d", rng.Uint32(), rng.IntN(1000))
	case reflect.Bool:
		return rng.IntN(2) == 0
	case reflect.Int32:
		return int32(rng.Uint32() >> rng.IntN(32))
	case reflect.Int64:
		return int64(rng.Uint64() >> rng.IntN(64))
	case reflect.Float32:
		return float32(rng.NormFloat64() * 100)
	case reflect.Float64:
		return rng.NormFloat64() * 100
	case reflect.Pointer:
		at := reflect.New(t.Elem())
		at.Elem().Set(reflect.ValueOf(draw(rng, t.Elem())))
		return at.Interface()
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			body := make([]byte, rng.IntN(300))
			for i := range body {
				body[i] = byte(rng.Uint32())
			}
			return body
		}
		n := rng.IntN(5)
		list := reflect.MakeSlice(t, n, n)
		for k := range n {
			list.Index(k).Set(reflect.ValueOf(draw(rng, t.Elem())))
		}
		return list.Interface()
	case reflect.Struct:
		row := reflect.New(t).Elem()
		for i := range t.NumField() {
			row.Field(i).Set(reflect.ValueOf(draw(rng, t.Field(i).Type)))
		}
		return row.Interface()
	}
	panic("a column of type " + t.String())
}
