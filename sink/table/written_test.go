package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// writtenRow is a row of the files in testdata/lists, which internal/integration/readers/lists.mjs writes with DuckDB
// and Polars, and arrow-rs (parquet-wasm 0.8) has written the same way.
type writtenRow struct {
	Domain string  `parquet:"domain"`
	Label  string  `parquet:"label,dict"`
	Rank   *int64  `parquet:"rank,optional"`
	Half   *string `parquet:"half,optional,dict"`
	Kind   *string `parquet:"kind,optional,dict"`
	Early  *string `parquet:"early,optional"`
	Never  *string `parquet:"never,optional,dict"`
}

// writtenRows returns the rows of a file of n.
func writtenRows(n int) []writtenRow {
	rows := make([]writtenRow, n)
	text := func(s string, is bool) *string {
		if !is {
			return nil
		}
		return &s
	}
	for i := range rows {
		r := &rows[i]
		r.Domain, r.Label = "h"+strconv.Itoa(i)+".example", []string{"news", "shop", "blog"}[i%3]
		if rank := int64(i + 1); i%3 > 0 {
			r.Rank = &rank
		}
		r.Half, r.Kind, r.Early = text("a", i%2 == 0), text([]string{"x", "y"}[i%2], i%5 > 0), text("b", i < n/2)
	}
	return rows
}

// checkWritten reads a file of writtenRows.
func checkWritten(t *testing.T, name string, content []byte, n int) {
	t.Helper()
	list, err := OpenList(bytes.NewReader(content), int64(len(content)))
	if err == nil {
		err = list.Select(0, 1, 2, 3, 4, 5, 6)
	}
	if err != nil || list.Columns() != 7 {
		t.Errorf("%s: %v", name, err)
		return
	}
	cell := func(i int) *string {
		value, ok := list.Text(i)
		if !ok {
			return nil
		}
		text := string(value)
		return &text
	}
	same := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	for i, r := range writtenRows(n) {
		if err := list.Next(); err != nil {
			t.Errorf("%s, row %d of %d: %v", name, i, n, err)
			return
		}
		var rank *string
		if r.Rank != nil {
			text := strconv.FormatInt(*r.Rank, 10)
			rank = &text
		}
		for j, want := range []*string{&r.Domain, &r.Label, rank, r.Half, r.Kind, r.Early, r.Never} {
			if !same(cell(j), want) {
				t.Errorf("%s, row %d, column %d is wrong", name, i, j)
				return
			}
		}
	}
	if err := list.Next(); err != io.EOF {
		t.Errorf("%s: %v behind the last row", name, err)
	}
}

// TestWrittenLists reads what other writers write: the files of testdata/lists, and those of the folder in
// LISTS_WRITTEN. The number of rows ends a file's name. Writers fill the last run of a page as they like: DuckDB to 256
// values.
func TestWrittenLists(t *testing.T) {
	folders := []string{"testdata/lists"}
	if more := os.Getenv("LISTS_WRITTEN"); more != "" {
		folders = append(folders, more)
	}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.parquet"))
		if err != nil || len(paths) < 8 {
			t.Fatalf("%s has %d files, %v", folder, len(paths), err)
		}
		for _, path := range paths {
			base := strings.TrimSuffix(filepath.Base(path), ".parquet")
			n, err := strconv.Atoi(base[strings.LastIndexByte(base, '-')+1:])
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			checkWritten(t, base, content, n)
		}
	}
}

// TestWrittenLengths does the same with parquet-go's own files, of all lengths to 300 and some to 10,000, in both
// versions of pages.
func TestWrittenLengths(t *testing.T) {
	for n := 1; n <= 10_000; n += 1 + n/300*997 {
		for version := 1; version <= 2; version++ {
			checkWritten(t, fmt.Sprintf("%d rows, pages of version %d", n, version), writeList(t, writtenRows(n),
				parquet.DataPageVersion(version)), n)
		}
	}
}

// TestSpareRuns checks that values in runs beyond those of a page's header are not read, whatever writers fill the last
// run with, and that the memory for them is bounded.
func TestSpareRuns(t *testing.T) {
	run := func(n int, packed bool) (b []byte) { // of zeros, one bit each
		if packed {
			b = binary.AppendUvarint(b, uint64((n+7)/8)<<1|1)
			return append(b, make([]byte, (n+7)/8)...)
		}
		return append(binary.AppendUvarint(b, uint64(n)<<1), 0)
	}
	for _, packed := range []bool{false, true} {
		for _, values := range []int{1, 3, 8, 9, 255, 256, 10_000} {
			for _, spare := range []int{0, 1, 7, 8, 255, 256, 2048, maxSpare - 8} {
				if _, err := checkRuns(run(values+spare, packed), 1, int64(values)); err != nil {
					t.Errorf("%d values and %d more in one run, packed %v: %v", values, spare, packed, err)
				}
				if _, err := checkRuns(append(run(values, packed), run(spare, packed)...), 1, int64(values)); err != nil {
					t.Errorf("%d values and %d more behind them, packed %v: %v", values, spare, packed, err)
				}
			}
			for _, spare := range []int{maxSpare + 8, 1 << 30} {
				if packed && spare == 1<<30 {
					continue
				}
				if _, err := checkRuns(run(values+spare, packed), 1, int64(values)); err == nil {
					t.Errorf("%d values and %d more are taken", values, spare)
				}
				if _, err := checkRuns(append(run(values, packed), run(spare, packed)...), 1, int64(values)); err == nil {
					t.Errorf("%d values and %d more behind them are taken", values, spare)
				}
			}
		}
	}
}

// TestEncodeInParts: a file is the same however its rows are divided, in new memory or in that of a longer or shorter
// file.
func TestEncodeInParts(t *testing.T) {
	type row struct {
		Name string `parquet:"name,plain,uncompressed"`
		N    int64  `parquet:"n,uncompressed"`
	}
	rows := make([]row, 5000)
	for i := range rows {
		rows[i] = row{"part-" + strconv.Itoa(i) + ".parquet", int64(i)}
	}
	whole, err := Encode(nil, MinPageBytes, nil, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]int{{0, 5000}, {1, 63}, {64, 128}, {100, 4900}, {2500, 2500}} {
		for _, memory := range []int{0, 100, 1 << 20} {
			data, err := Encode(bytes.Repeat([]byte{'x'}, memory), MinPageBytes, nil, rows[:at[0]], rows[at[0]:at[1]], rows[at[1]:])
			if err != nil || !bytes.Equal(data, whole) {
				t.Errorf("cut at %v, in %d bytes: %d bytes instead of %d, %v", at, memory, len(data), len(whole), err)
			}
		}
	}
}
