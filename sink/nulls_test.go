package sink

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/parquet-go/parquet-go"
)

// TestNullsStayNull writes a sparse column in every shape of one run of values within 64 rows.
func TestNullsStayNull(t *testing.T) {
	dir := newDir(t)
	var sites []*audit.Site
	want := map[int64]string{}
	for y := range 34 {
		for i := range batchRows {
			seq := uint64(len(sites))
			s := deadSite(t, seq)
			if i >= y && i < 2*y {
				s.Label = "value"
				want[int64(seq)] = s.Label
			}
			sites = append(sites, s)
		}
	}
	writeSites(t, dir, "nulls", sites...)
	type row struct {
		Seq   int64   `parquet:"seq"`
		Label *string `parquet:"label,optional"`
	}
	for _, r := range readAll[row](t, dir, "nulls", schema.Sites) {
		text, has := want[r.Seq]
		if (r.Label != nil) != has || has && *r.Label != text {
			t.Errorf("row %d of its batch of %d: label null %v, want null %v", r.Seq%batchRows, r.Seq/batchRows, r.Label == nil,
				!has)
			return
		}
	}
}

// TestNullsAtGroupEnd does the same after the end of a row group, which is not always a multiple of 64 rows.
func TestNullsAtGroupEnd(t *testing.T) {
	for _, y := range []int{1, 2, 15, 31} {
		rows := make([]schema.TokenStatsRow, table.GroupRows+128)
		for i := range y {
			rows[table.GroupRows+y+i].Category = "value"
		}
		dir := newDir(t)
		const before = table.GroupRows - 32 // the last batch begins in one group and ends in the next
		writePieces(t, dir, "file", slices.AppendSeq(slices.Collect(slices.Chunk(rows[:before], detailRows)),
			slices.Chunk(rows[before:], detailRows))...)
		type row struct {
			Category *string `parquet:"category,optional"`
		}
		n := 0
		for got, err := range table.FileRows[row](t.Context(), dir, "file") {
			if err != nil {
				t.Fatal(err)
			}
			if want := rows[n].Category; (got.Category != nil) != (want != "") {
				t.Errorf("y = %d, row %d of its group: null %v, want null %v", y, n-table.GroupRows, got.Category == nil,
					want == "")
				break
			}
			n++
		}
	}
}

// fillInRuns fills a row at random. Optional columns are absent or present for runs of rows, which parquet-go's writer
// of optional values must handle. run has the rows left in the current run, by column; it is positive for present
// values.
func fillInRuns(r *rand.Rand, row reflect.Value, run []int) {
	for i := range row.NumField() {
		field := row.Field(i)
		if schema.HasOption(row.Type().Field(i), "optional") && field.Kind() != reflect.Pointer {
			if run[i] == 0 {
				run[i] = (1 + r.IntN(40)) * (1 - 2*r.IntN(2))
			}
			if run[i] < 0 {
				run[i]++
				continue
			}
			run[i]--
		}
		switch field.Kind() {
		case reflect.String:
			field.SetString(fmt.Sprintf("v%d", r.IntN(50)))
		case reflect.Int32, reflect.Int64:
			field.SetInt(int64(1 + r.IntN(1000)))
		case reflect.Float32, reflect.Float64:
			field.SetFloat(float64(1 + r.IntN(1000)))
		case reflect.Bool:
			field.SetBool(r.IntN(2) == 0)
		case reflect.Pointer:
			if r.IntN(2) == 0 {
				field.Set(reflect.New(field.Type().Elem()))
			}
		case reflect.Slice:
			if field.Type().Elem().Kind() == reflect.String {
				for range r.IntN(4) {
					field.Set(reflect.Append(field, reflect.ValueOf(fmt.Sprintf("l%d", r.IntN(9)))))
				}
			}
		}
	}
}

// nullsOf writes random rows in random batches and compares each optional column's levels with them, page by page.
func nullsOf[T any](t *testing.T, tableName string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	dir := newDir(t)
	rows := make([]T, 3000+r.IntN(500))
	run := make([]int, reflect.TypeFor[T]().NumField())
	for i := range rows {
		fillInRuns(r, reflect.ValueOf(&rows[i]).Elem(), run)
	}
	var pieces [][]T
	for left := rows; len(left) > 0; {
		n := min(len(left), 1+r.IntN(700))
		pieces = slices.AppendSeq(pieces, slices.Chunk(left[:n], detailRows))
		left = left[n:]
	}
	writePieces(t, dir, "file", pieces...)
	object, err := dir.Open(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	file, err := table.OpenFile(object)
	if err != nil {
		t.Fatal(err)
	}
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		if !schema.HasOption(row.Field(i), "optional") {
			continue
		}
		name, at := schema.ColumnName(row.Field(i)), 0
		for _, group := range file.RowGroups() {
			pages := group.ColumnChunks()[file.Root().Column(name).Index()].Pages()
			for {
				page, err := pages.ReadPage()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				for _, level := range page.DefinitionLevels() {
					if there := !reflect.ValueOf(rows[at]).Field(i).IsZero(); (level == 1) != there {
						t.Fatalf("seed %d, %s.%s, row %d: level %d, the row has a value: %v", seed, tableName, name, at, level, there)
					}
					at++
				}
				parquet.Release(page)
			}
			if err := pages.Close(); err != nil {
				t.Error(err)
			}
		}
		if at != len(rows) {
			t.Errorf("seed %d, %s.%s: %d of %d rows", seed, tableName, name, at, len(rows))
		}
	}
}

// TestNullsOfEveryTable is TestNullsStayNull for all optional columns, in runs of any length.
func TestNullsOfEveryTable(t *testing.T) {
	for seed := range uint64(4) {
		nullsOf[schema.SiteRow](t, schema.Sites, seed)
		nullsOf[schema.VerdictRow](t, schema.Verdicts, seed)
		nullsOf[schema.EvidenceRow](t, schema.Evidence, seed)
		nullsOf[schema.TokenStatsRow](t, schema.TokenStats, seed)
	}
}
