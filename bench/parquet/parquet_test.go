package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/bulkscan/bulkscan/internal/rowtest"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// TestMain lets the test's own binary be the measuring process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == part {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEveryColumn writes rows of every table that hold all that is hard to keep, and reads every column with arrow-go: its
// values, and which of them are absent.
func TestEveryColumn(t *testing.T) {
	everyColumn[sink.SiteRow](t, ours, sink.TableSites, 8000)
	everyColumn[sink.VerdictRow](t, ours, sink.TableVerdicts, groupRows+2000)
	everyColumn[sink.EvidenceRow](t, ours, sink.TableEvidence, 8000)
	everyColumn[sink.BodyRow](t, ours, sink.TableBodies, 2000)
	everyColumn[sink.TokenStatsRow](t, ours, sink.TableTokenStats, 8000)
	everyColumn[sink.RecordStatsRow](t, ours, sink.TableRecordStats, 8000)
}

// TestContenders shows that those whom we compare ourselves with write the same, as arrow-go and as our reader read it.
func TestContenders(t *testing.T) {
	for _, contender := range []string{columns, records} {
		everyColumn[sink.SiteRow](t, contender, sink.TableSites, 3000)
		everyColumn[sink.VerdictRow](t, contender, sink.TableVerdicts, 3000)
		everyColumn[sink.EvidenceRow](t, contender, sink.TableEvidence, 3000)
	}
}

func everyColumn[T any](t *testing.T, contender, table string, n int) {
	t.Helper()
	dir, rows := t.TempDir(), rowtest.Rows[T](n)
	path := filepath.Join(dir, table+".parquet")
	writeRows(t, ours, table, dir, nil, rows)
	if contender != ours {
		from, err := readSource[T](path)
		if err != nil {
			t.Fatal(err)
		}
		dir = t.TempDir()
		theirs := filepath.Join(dir, table+".parquet")
		writeRows(t, contender, table, dir, from, rows)
		sameSettings(t, contender, theirs, path)
		path = theirs
	}
	readColumns(t, path, rows)
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for row, err := range sink.FileRows[T](t.Context(), st, table+".parquet") {
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%+v", plain(*row)), fmt.Sprintf("%+v", plain(rows[i])); got != want {
			t.Fatalf("%s, %s, row %d:\n got %s\nwant %s", contender, table, i, got, want)
		}
		i++
	}
	if i != n {
		t.Errorf("%s, %s: %d rows, want %d", contender, table, i, n)
	}
}

// sameSettings shows that a contender has as much to do for each column as ours, and no more.
func sameSettings(t *testing.T, contender, theirs, path string) {
	t.Helper()
	got, want := settingsOf(t, theirs), settingsOf(t, path)
	if len(got) != len(want) {
		t.Fatalf("%s, %s: %d columns, want %d", contender, filepath.Base(path), len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s, %s: got %s, want %s", contender, filepath.Base(path), got[i], want[i])
		}
	}
}

// settingsOf says of each column of a file how it is written.
func settingsOf(t *testing.T, path string) (all []string) {
	t.Helper()
	reader, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	group := reader.MetaData().RowGroup(0)
	for i := range group.NumColumns() {
		chunk, err := group.ColumnChunk(i)
		if err != nil {
			t.Fatal(err)
		}
		has := func(e parquet.Encoding) bool { return slices.Contains(chunk.Encodings(), e) }
		all = append(all, fmt.Sprintf("%s: %s, dictionary %v, delta %v, bounds %v", chunk.PathInSchema(), chunk.Compression(), chunk.HasDictionaryPage(),
			has(parquet.Encodings.DeltaBinaryPacked) || has(parquet.Encodings.DeltaByteArray), hasBounds(chunk)))
	}
	return all
}

// plain replaces pointers by what they point to, which is what can be compared as text.
func plain(row any) (fields []any) {
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			fields = append(fields, f.Elem().Interface())
		} else {
			fields = append(fields, f.Interface())
		}
	}
	return fields
}

func writeRows[T any](t *testing.T, contender, table, dir string, from *source, rows []T) {
	t.Helper()
	w, err := newRowWriter[T](contender, table, dir, from)
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(rows, 3001) {
		if err := w.write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
}

// readColumns reads a file with arrow-go, and compares each column of each row group with the rows.
func readColumns[T any](t *testing.T, path string, rows []T) {
	t.Helper()
	reader, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	leaves, err := leavesOf(reflect.TypeFor[T](), reader.MetaData().Schema)
	if err != nil {
		t.Fatal(err)
	}
	var want columnValues
	for g := range reader.NumRowGroups() {
		group := reader.RowGroup(g)
		n := int(group.NumRows())
		if n > len(rows) {
			t.Fatalf("%s has more rows than were written", path)
		}
		for i := range leaves {
			l := &leaves[i]
			l.gather(unsafe.Pointer(&rows[0]), n, &want)
			column, err := group.Column(i)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readColumn(column, 4*len(want.repeat)+n+10)
			if err != nil {
				t.Fatalf("%s: %v", l.path, err)
			}
			if !slices.EqualFunc(got.texts, want.texts, func(a, b parquet.ByteArray) bool { return bytes.Equal(a, b) }) ||
				!slices.Equal(got.bools, want.bools) || !slices.Equal(got.int32s, want.int32s) || !slices.Equal(got.int64s, want.int64s) ||
				!slices.Equal(got.floats, want.floats) || !slices.Equal(got.doubles, want.doubles) {
				t.Errorf("%s, group %d, column %s: other values", filepath.Base(path), g, l.path)
			}
			if !slices.Equal(got.define, want.define) || !slices.Equal(got.repeat, want.repeat) {
				t.Errorf("%s, group %d, column %s: others are absent", filepath.Base(path), g, l.path)
			}
		}
		rows = rows[n:]
	}
	if len(rows) > 0 {
		t.Errorf("%s lacks %d rows", path, len(rows))
	}
}

// readColumn reads all of a column, of at most so many entries.
func readColumn(column file.ColumnChunkReader, most int) (*columnValues, error) {
	v := &columnValues{}
	d := column.Descriptor()
	if d.MaxDefinitionLevel() > 0 {
		v.define = make([]int16, most)
	}
	if d.MaxRepetitionLevel() > 0 {
		v.repeat = make([]int16, most)
	}
	var entries int64
	var err error
	switch c := column.(type) {
	case *file.ByteArrayColumnChunkReader:
		entries, err = readBatches(v, &v.texts, most, func(n int64, values []parquet.ByteArray, define, repeat []int16) (int64, int, error) {
			total, read, err := c.ReadBatch(n, values, define, repeat)
			for i := range values[:read] {
				values[i] = bytes.Clone(values[i]) // a page's memory ends with it
			}
			return total, read, err
		})
	case *file.BooleanColumnChunkReader:
		entries, err = readBatches(v, &v.bools, most, c.ReadBatch)
	case *file.Int32ColumnChunkReader:
		entries, err = readBatches(v, &v.int32s, most, c.ReadBatch)
	case *file.Int64ColumnChunkReader:
		entries, err = readBatches(v, &v.int64s, most, c.ReadBatch)
	case *file.Float32ColumnChunkReader:
		entries, err = readBatches(v, &v.floats, most, c.ReadBatch)
	case *file.Float64ColumnChunkReader:
		entries, err = readBatches(v, &v.doubles, most, c.ReadBatch)
	default:
		err = fmt.Errorf("a column reader of type %T", column)
	}
	if v.define != nil {
		v.define = v.define[:entries]
	}
	if v.repeat != nil {
		v.repeat = v.repeat[:entries]
	}
	return v, err
}

func readBatches[V any](v *columnValues, values *[]V, most int, read func(int64, []V, []int16, []int16) (int64, int, error)) (entries int64, err error) {
	*values = make([]V, most)
	n := 0
	for {
		total, got, err := read(int64(most)-entries, (*values)[n:], from(v.define, entries), from(v.repeat, entries))
		entries, n = entries+total, n+got
		if err != nil || total == 0 {
			*values = (*values)[:n]
			return entries, err
		}
	}
}

func from(levels []int16, n int64) []int16 {
	if levels == nil {
		return nil
	}
	return levels[n:]
}

// TestReport runs the whole command, small, and looks whether it says what it must.
func TestReport(t *testing.T) {
	for table := range turnRows {
		defer func(n int) { turnRows[table] = n }(turnRows[table])
		turnRows[table] = 2000
	}
	path := filepath.Join(t.TempDir(), "report.md")
	var out, notes bytes.Buffer
	err := run(t.Context(), []string{"-rounds", "1", "-sites", "1000", "-weigh", "1000", "-scan", "60000", "-o", path}, &out, &notes)
	if err != nil && err != errMarks { // of so few rows nothing can be said
		t.Fatalf("%v\n%s", err, &notes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| arrow-go, columns |", "| bulkscan |", "## `evidence`", "## What must hold", "`sites` + `verdicts`", "| `sites.host` |", "allocations a row", "- statistics: ", "- compaction: 10.00 M rows in "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") {
		t.Errorf("a figure is none:\n%s", text)
	}
}

// TestWeights shows that no byte of a file is forgotten: its columns, and a footer.
func TestWeights(t *testing.T) {
	w, err := weigh(2000, Simulated)
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]int64{}
	for _, c := range w.Columns {
		columns[c.Table] += c.Compressed
	}
	for _, table := range sink.AllTables {
		rest := w.Files[table] - columns[table]
		if rest <= 0 || rest > 64<<10 {
			t.Errorf("%s: columns take %d of %d bytes", table, columns[table], w.Files[table])
		}
	}
}
