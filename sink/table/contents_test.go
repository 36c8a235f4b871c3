package table

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/format"
)

// TestDeltas decodes numbers that parquet-go has encoded, and returns the bytes after them.
func TestDeltas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values := make([]int64, rng.IntN(300))
		width := rng.IntN(64)
		for i := range values {
			values[i] = rng.Int64() >> width
		}
		want := make([]int32, len(values))
		for i, v := range values {
			want[i] = int32(v)
		}
		narrow, err := new(delta.BinaryPackedEncoding).EncodeInt32(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		wide, err := new(delta.BinaryPackedEncoding).EncodeInt64(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, encoded := range [][]byte{narrow, wide} {
			got := []int32{}
			rest, err := eachDelta(append(encoded, "behind"...), int64(len(values)), func(v int32) { got = append(got, v) })
			if err != nil || string(rest) != "behind" || !slices.Equal(got, want) {
				t.Fatalf("%d values, width %d: %q is left, %v", len(values), 64-width, rest, err)
			}
			if len(values) == 0 {
				continue
			}
			if _, err := eachDelta(encoded, int64(len(values)-1), func(int32) {}); err == nil {
				t.Fatal("one value more than there should be is taken")
			}
			if _, err := eachDelta(encoded[:rng.IntN(len(encoded))], int64(len(values)), func(int32) {}); err == nil &&
				len(values) > 1 {
				t.Fatal("an end that is missing is not missed")
			}
		}
	}
}

// TestShapes compares the shapes of columns with parquet-go's, and refuses a schema that is not a tree.
func TestShapes(t *testing.T) {
	f := func(schema *parquet.Schema, elements []format.SchemaElement) {
		t.Helper()
		shapes, err := shapesOf(elements)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range schema.Columns() {
			leaf, _ := schema.Lookup(path...)
			if got, want := shapes[i], (shape{shapes[i].physical, leaf.MaxRepetitionLevel,
				leaf.MaxDefinitionLevel}); got != want {
				t.Errorf("%v: %v, want %v", path, got, want)
			}
		}
		for n := range elements {
			if _, err := shapesOf(elements[:n]); err == nil {
				t.Errorf("%d elements of %d are a tree", n, len(elements))
			}
		}
		if _, err := shapesOf(append(elements, elements[len(elements)-1])); err == nil {
			t.Error("one element more is a tree")
		}
	}
	type nested struct {
		Number int64
		List   []string `parquet:",list"`
		Maybe  *struct {
			Deep []struct{ Deeper *int32 }
		}
	}
	file := newParquetWriter[nested](io.Discard, MinPageBytes, nil)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	f(parquet.SchemaOf(nested{}), file.File().Metadata().Schema)
}
