package sink

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// TestEveryColumn writes rows of every table with values that are hard to keep in every column, over more than one row
// group, and reads them back.
func TestEveryColumn(t *testing.T) {
	rows, few := table.GroupRows+3000, 9000
	if raceEnabled {
		rows, few = 3000, 1500 // the race detector finds nothing here and makes each row thirty times slower
	}
	everyColumn(t, schema.Sites, hardRows[schema.SiteRow](few))
	everyColumn(t, schema.Verdicts, hardRows[schema.VerdictRow](rows))
	everyColumn(t, schema.Evidence, hardRows[schema.EvidenceRow](rows))
	everyColumn(t, schema.Bodies, hardRows[schema.BodyRow](few))
	everyColumn(t, schema.TokenStats, hardRows[schema.TokenStatsRow](few))
	everyColumn(t, schema.RecordStats, hardRows[schema.RecordStatsRow](few))
}

func everyColumn[T any](t *testing.T, table string, rows []T) {
	t.Helper()
	dir := newDir(t)
	// Single rows and batches, so that batches begin at any row of a group.
	writePieces(t, dir, table, slices.AppendSeq(slices.Collect(slices.Chunk(rows[:777], 1)),
		slices.Chunk(rows[777:], detailRows))...)
	compareRows(t, dir, table, rows)
}

// writePieces writes a file, and hands each of these pieces to the Parquet writer at once.
func writePieces[T any](t *testing.T, st store.Store, name string, pieces ...[]T) {
	t.Helper()
	w := table.NewWriter[T](name, detailRows, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(schema.Version)})
	err := w.Begin(t.Context(), st, name)
	for _, piece := range pieces {
		err = errors.Join(err, w.Write(piece))
	}
	if err := errors.Join(err, w.Seal(), w.Publish(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// compareRows reads a file and compares it with the expected rows, column by column.
func compareRows[T any](t *testing.T, st store.Store, tableName string, rows []T) {
	t.Helper()
	n := 0
	row := reflect.TypeFor[T]()
	wrong := make([]int, row.NumField())
	for got, err := range table.FileRows[T](t.Context(), st, tableName) {
		if err != nil {
			t.Fatal(err)
		}
		g, w := reflect.ValueOf(got).Elem(), reflect.ValueOf(&rows[n]).Elem()
		for i := range row.NumField() {
			a, b := g.Field(i), w.Field(i)
			if same(a, b) {
				continue
			}
			if wrong[i]++; wrong[i] == 1 {
				t.Errorf("%s.%s, row %d: %+v, want %+v", tableName, schema.ColumnName(row.Field(i)), n, a, b)
			}
		}
		n++
	}
	if n != len(rows) {
		t.Errorf("%s: %d rows, want %d", tableName, n, len(rows))
	}
	for i, n := range wrong {
		if n > 0 {
			t.Errorf("%s.%s: %d rows differ", tableName, schema.ColumnName(row.Field(i)), n)
		}
	}
}

// same reports whether two columns of a row are equal; a nil list equals an empty one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
