package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// listRow has a column of each readable kind, in each encoding that parquet-go writes for it.
type listRow struct {
	Plain    string   `parquet:"plain,plain"`
	Dict     string   `parquet:"dict,dict"`
	Lengths  string   `parquet:"lengths,delta"`
	Nullable *string  `parquet:"nullable,optional,dict"`
	Bytes    []byte   `parquet:"bytes,optional"`
	Fixed    [5]byte  `parquet:"fixed"`
	I32      int32    `parquet:"i32"`
	I64      int64    `parquet:"i64,delta"`
	U32      uint32   `parquet:"u32,dict"`
	U64      *uint64  `parquet:"u64,optional"`
	F32      float32  `parquet:"f32"`
	Split32  float32  `parquet:"split32,split"`
	Split64  *float64 `parquet:"split64,split,optional"`
	F64      float64  `parquet:"f64,dict"`
	Truth    bool     `parquet:"truth"`
	Inner    struct {
		Host *string `parquet:"host,optional"`
	} `parquet:"inner,optional"`
	List []string `parquet:"list,list"`
}

// listRows returns rows with awkward values, with single nulls and runs of nulls.
func listRows(n int) []listRow {
	random := rand.New(rand.NewPCG(7, uint64(n)))
	rows := make([]listRow, n)
	for i := range rows {
		r := &rows[i]
		r.Plain = strings.Repeat("x", random.IntN(40))
		r.Dict = "tag" + strconv.Itoa(random.IntN(1+i%300))
		r.Lengths = fmt.Sprintf("host-%d.example", random.IntN(1<<20))
		if random.IntN(3) > 0 && i/100%4 != 1 {
			s := "n" + strconv.Itoa(i%70)
			r.Nullable, r.Inner.Host = &s, &s
			u := random.Uint64()
			r.U64 = &u
			r.Bytes = []byte(s)
			d := random.Float64()
			r.Split64 = &d
		}
		copy(r.Fixed[:], strconv.Itoa(10000+i%90000))
		r.I32, r.I64, r.U32 = int32(random.Uint32()), int64(random.Uint64()), random.Uint32()
		r.F32, r.F64 = float32(i)/10, float64(i)+random.Float64()*float64(i%2)
		r.Split32 = r.F32
		r.Truth = random.IntN(2) == 0
		r.List = []string{r.Dict}
	}
	return rows
}

func writeList[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// mostCells bounds readList, since a few bytes may claim any number of rows.
const mostCells = 50_000

// readList reads all readable columns as lines of cells; null is "∅".
func readList(content []byte) (names []string, cells [][]string, err error) {
	f, err := OpenList(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, nil, err
	}
	var chosen []int
	for i := range f.Columns() {
		switch name, holds := f.Column(i); holds {
		case HoldsText, HoldsNumbers, HoldsTruths:
			chosen, names = append(chosen, i), append(names, name)
		}
	}
	if err := f.Select(chosen...); err != nil {
		return names, nil, err
	}
	for {
		if err := f.Next(); err == io.EOF {
			return names, cells, nil
		} else if err != nil {
			return names, cells, err
		}
		if len(cells) == mostCells {
			return names, cells, nil
		}
		row := make([]string, len(chosen))
		for i := range chosen {
			row[i] = "∅"
			if value, ok := f.Text(i); ok {
				row[i] = string(value)
			}
		}
		cells = append(cells, row)
	}
}

// TestList writes rows with every compression and both versions of pages, in short pages, and reads them back.
func TestList(t *testing.T) {
	rows := listRows(1200)
	f := func(codec compress.Codec, version, pageBytes int) {
		t.Helper()
		options := []parquet.WriterOption{parquet.Compression(codec), parquet.DataPageVersion(version),
			parquet.PageBufferSize(pageBytes), parquet.MaxRowsPerRowGroup(500)}
		names, cells, err := readList(writeList(t, rows, options...))
		if err != nil || len(cells) != len(rows) {
			t.Errorf("%v, pages of version %d: %d rows, %v", codec, version, len(cells), err)
			return
		}
		if got := strings.Join(names,
			" "); got != "plain dict lengths nullable bytes fixed i32 i64 u32 u64 f32 split32 split64 f64 truth inner.host" {
			t.Errorf("columns: %s", got)
		}
		for i := range rows {
			r := &rows[i]
			optional := func(s *string) string {
				if s == nil {
					return "∅"
				}
				return *s
			}
			u64 := "∅"
			if r.U64 != nil {
				u64 = strconv.FormatUint(*r.U64, 10)
			}
			split := "∅"
			if r.Split64 != nil {
				split = strconv.FormatFloat(*r.Split64, 'g', -1, 64)
			}
			f32 := strings.TrimSuffix(fmt.Sprintf("%.1f", r.F32), ".0")
			want := []string{
				r.Plain, r.Dict, r.Lengths, optional(r.Nullable), optional(r.Nullable), string(r.Fixed[:]),
				fmt.Sprint(r.I32), fmt.Sprint(r.I64), fmt.Sprint(r.U32), u64,
				f32, f32, split, string(appendFloat(nil, r.F64, 64)), fmt.Sprint(r.Truth), optional(r.Inner.Host),
			}
			if got := cells[i]; strings.Join(got, "|") != strings.Join(want, "|") {
				t.Fatalf("%v, pages of version %d, row %d:\ngot  %q\nwant %q", codec, version, i, got, want)
			}
		}
	}
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd,
		&parquet.Brotli} {
		for version := 1; version <= 2; version++ {
			f(codec, version, 1<<10)
			f(codec, version, 1<<20)
		}
	}
}

// TestListFiles reads files of other writers (the test files of the Parquet project, from the library's module) and
// compares every value with the library's.
func TestListFiles(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/parquet-go/parquet-go").Output()
	if err != nil {
		t.Skipf("the library's source is not there: %v", err)
	}
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "*.parquet"))
	if err != nil || len(paths) < 20 {
		t.Skipf("%d files come with the library, %v", len(paths), err)
	}
	compared := 0
	for _, path := range paths {
		if filepath.Base(path) == "lz4_raw_compressed_larger.parquet" {
			continue // the library returns empty texts for its dictionary
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names, cells, err := readList(content)
		if err != nil {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
			continue
		}
		for i, name := range names {
			want, err := libraryColumn(content, name)
			if err != nil {
				t.Logf("%s: the library cannot read %s: %v", filepath.Base(path), name, err)
				continue
			}
			if len(want) != len(cells) {
				t.Errorf("%s, column %s: %d rows, want %d", filepath.Base(path), name, len(cells), len(want))
				continue
			}
			for row := range want {
				if cells[row][i] != want[row] {
					t.Errorf("%s, column %s, row %d: %q, want %q", filepath.Base(path), name, row, cells[row][i], want[row])
					break
				}
			}
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d columns were compared", compared)
	}
}

// libraryColumn reads a column through the library.
func libraryColumn(content []byte, name string) (cells []string, err error) {
	defer rescue(&err)
	file, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	column, ok := file.Schema().Lookup(strings.Split(name, ".")...)
	if !ok {
		return nil, errors.New("no such column")
	}
	for _, group := range file.RowGroups() {
		pages := group.ColumnChunks()[column.ColumnIndex].Pages()
		for {
			page, err := pages.ReadPage()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			values := make([]parquet.Value, page.NumValues())
			if n, err := page.Values().ReadValues(values); n != len(values) {
				return nil, fmt.Errorf("%d values of %d: %w", n, len(values), err)
			}
			for _, v := range values {
				switch {
				case v.IsNull():
					cells = append(cells, "∅")
				case v.Kind() == parquet.Float:
					cells = append(cells, string(appendFloat(nil, float64(v.Float()), 32)))
				case v.Kind() == parquet.Double:
					cells = append(cells, string(appendFloat(nil, v.Double(), 64)))
				case v.Kind() == parquet.ByteArray, v.Kind() == parquet.FixedLenByteArray:
					cells = append(cells, string(v.ByteArray()))
				default:
					cells = append(cells, fmt.Sprint(v))
				}
			}
		}
		if err := pages.Close(); err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// TestListBounds damages files at every position, and lets them claim more memory than exists.
func TestListBounds(t *testing.T) {
	content := writeList(t, listRows(8), parquet.Compression(&parquet.Snappy))
	step := 1
	if testing.Short() {
		step = 11
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read := uint64(0)
	for i := 0; i < len(content); i += step {
		for _, flip := range []byte{0x01, 0xff} {
			broken := bytes.Clone(content)
			broken[i] ^= flip
			_, _, _ = readList(broken) // a changed value is fine
			read++
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / read; each > 4<<20 {
		t.Errorf("a broken file of %d bytes takes %d bytes", len(content), each)
	}
	for n := 0; n < len(content); n += step {
		if _, _, err := readList(content[:n]); err == nil {
			t.Fatalf("%d bytes of %d are no error", n, len(content))
		}
	}
}

// remade returns a file with one page of ten hosts, whose footer and page header were changed.
func remade(t *testing.T, change func(*format.FileMetaData, *format.PageHeader)) []byte {
	t.Helper()
	type host struct {
		Host string `parquet:"host,dict"`
	}
	content := writeList(t, slices.Repeat([]host{{"a.example"}}, 10), parquet.Compression(&parquet.Uncompressed),
		parquet.DataPageVersion(1))
	file, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	footer := file.Metadata()
	m := &footer.RowGroups[0].Columns[0].MetaData
	at := m.DataPageOffset
	n, err := thriftLength(content[at:])
	if err != nil {
		t.Fatal(err)
	}
	header, err := decodePageHeader(content[at:][:n])
	if err != nil {
		t.Fatal(err)
	}
	body := content[at+int64(n):][:header.CompressedPageSize]
	change(footer, header)
	encoded, err := thrift.Marshal(new(thrift.CompactProtocol), header)
	if err != nil {
		t.Fatal(err)
	}
	m.TotalCompressedSize += int64(len(encoded) - n)
	content = slices.Concat(content[:at], encoded, body)
	if encoded, err = thrift.Marshal(new(thrift.CompactProtocol), footer); err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(append(content, encoded...), uint32(len(encoded))), Magic...)
}

// TestListHeaders tries values that no page of a list has, in otherwise valid headers.
func TestListHeaders(t *testing.T) {
	f := func(change func(*format.FileMetaData, *format.PageHeader), rows int, want string) {
		t.Helper()
		_, cells, err := readList(remade(t, change))
		if len(cells) != rows || want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d rows, %v, want %d rows and %s", len(cells), err, rows, want)
		}
	}
	many := func(n int64) func(*format.FileMetaData, *format.PageHeader) {
		return func(footer *format.FileMetaData, header *format.PageHeader) {
			footer.NumRows, footer.RowGroups[0].NumRows, footer.RowGroups[0].Columns[0].MetaData.NumValues = n, n, n
			header.DataPageHeader.V.NumValues = int32(n)
		}
	}
	f(func(*format.FileMetaData, *format.PageHeader) {}, 10, "")
	f(many(9), 9, "") // readers stop at the number of values
	f(many(1<<30), 0, "it claims 1073741824 values")
	f(many(11), 0, "its values are invalid: 10 instead of 11")
	f(func(footer *format.FileMetaData, _ *format.PageHeader) { footer.RowGroups[0].NumRows = 11 }, 0,
		"10 values, in 11 rows")
	f(func(_ *format.FileMetaData, header *format.PageHeader) { header.DataPageHeader.V.NumValues = 11 }, 0,
		"it claims 11 values, its column has 10 left")
	f(func(_ *format.FileMetaData, header *format.PageHeader) { header.DataPageHeader.V.NumValues = 9 }, 9,
		"its values are missing")
	f(func(_ *format.FileMetaData, header *format.PageHeader) {
		header.UncompressedPageSize = maxPage + 1
	}, 0, "it claims 134217729 bytes before compression")
	f(func(_ *format.FileMetaData, header *format.PageHeader) { header.UncompressedPageSize++ }, 0,
		"it has 2 bytes and claims 3")
	f(func(_ *format.FileMetaData, header *format.PageHeader) { header.CompressedPageSize = 1 << 20 }, 0,
		"its length of 1048576 bytes is not within its column")
	f(func(footer *format.FileMetaData, _ *format.PageHeader) {
		m := &footer.RowGroups[0].Columns[0].MetaData
		m.DataPageOffset, m.DictionaryPageOffset = 1<<40, 0
	}, 0, "not within the file")
	f(func(footer *format.FileMetaData, _ *format.PageHeader) { // a group without rows has no position
		full := footer.RowGroups[0]
		empty := format.RowGroup{Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{Type: format.ByteArray}}}}
		footer.RowGroups = []format.RowGroup{empty, full, empty}
	}, 10, "")
	f(func(footer *format.FileMetaData, _ *format.PageHeader) { footer.RowGroups[0].Columns = nil }, 0, "has 0 columns")
}

// TestListRefuses checks the errors for what List does not read.
func TestListRefuses(t *testing.T) {
	f := func(content []byte, want string) {
		t.Helper()
		if _, _, err := readList(content); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	encodedAnew := func(_ *format.FileMetaData, header *format.PageHeader) {
		header.DataPageHeader.V.Encoding = format.BitPacked
	}
	f(remade(t, encodedAnew), "encoded as BIT_PACKED")
	lzo := func(footer *format.FileMetaData, _ *format.PageHeader) {
		footer.RowGroups[0].Columns[0].MetaData.Codec = format.LZO
	}
	f(remade(t, lzo), `column "host" is compressed by LZO`)
	elsewhere := func(footer *format.FileMetaData, _ *format.PageHeader) { footer.RowGroups[0].Columns[0].FilePath = "x" }
	f(remade(t, elsewhere), "in another file")

	content := writeList(t, listRows(1))
	list, err := OpenList(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Select(list.Columns() - 1); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(),
		"holds lists") {
		t.Errorf("a list: %v", err)
	}
}

// FuzzList checks that nothing panics, whatever the bytes are, and that there are no more rows than in the footer.
//
//	go test -run - -fuzz FuzzList -fuzztime 10s -fuzzminimizetime 10x ./sink/table
func FuzzList(f *testing.F) {
	type row struct {
		Rank *int64 `parquet:"rank,optional"`
		Host string `parquet:"host,dict"`
		Name string `parquet:"name,delta"`
	}
	one := int64(1)
	rows := []row{{&one, "a.example", "a"}, {nil, "a.example", "ab"}, {&one, "b.example", ""}}
	f.Add(writeList(f, rows))
	f.Add(writeList(f, rows, parquet.DataPageVersion(2), parquet.Compression(&parquet.Zstd)))
	f.Add(writeList(f, rows, parquet.Compression(&parquet.Snappy)))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, cells, err := readList(content)
		if err == nil {
			list, err := OpenList(bytes.NewReader(content), int64(len(content)))
			if err != nil {
				t.Fatal(err)
			}
			rows := int64(0)
			for _, group := range list.file.RowGroups() {
				rows += group.NumRows()
			}
			if int64(len(cells)) != min(rows, mostCells) {
				t.Fatalf("%d rows of %d", len(cells), rows)
			}
		}
	})
}
