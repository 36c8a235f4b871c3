package sink

import (
	"fmt"
	"os"
	"testing"

	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/parquet-go/parquet-go/format"
)

// flip changes one byte of a file.
func flip(t testing.TB, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 0x10
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// decodeOffsetsInto appends the positions of pages in an offset index.
func decodeOffsetsInto(t testing.TB, encoded []byte, places *[]string, first int64) error {
	t.Helper()
	var offsets format.OffsetIndex
	if err := table.DecodeOffsets(encoded, &offsets); err != nil {
		return err
	}
	for _, at := range offsets.PageLocations {
		at.Offset -= first
		*places = append(*places, fmt.Sprint(at.Offset, at.CompressedPageSize, at.FirstRowIndex))
	}
	return nil
}
