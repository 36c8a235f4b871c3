package sink

import (
	"reflect"
	"testing"

	"github.com/bulkscan/bulkscan/internal/rowtest"
	"github.com/bulkscan/bulkscan/internal/store"
)

// TestEveryColumn writes rows of every table whose columns hold all that is hard to keep, over more than one row group,
// and reads them back.
func TestEveryColumn(t *testing.T) {
	rows, few := groupRows+3000, 9000
	if raceEnabled {
		rows, few = 3000, 1500 // the detector has nothing to see here, and makes each row thirty times as dear
	}
	everyColumn(t, TableSites, rowtest.Rows[SiteRow](few))
	everyColumn(t, TableVerdicts, rowtest.Rows[VerdictRow](rows))
	everyColumn(t, TableEvidence, rowtest.Rows[EvidenceRow](rows))
	everyColumn(t, TableBodies, rowtest.Rows[BodyRow](few))
	everyColumn(t, TableTokenStats, rowtest.Rows[TokenStatsRow](few))
	everyColumn(t, TableRecordStats, rowtest.Rows[RecordStatsRow](few))
}

func everyColumn[T any](t *testing.T, table string, rows []T) {
	t.Helper()
	dir := newDir(t)
	w, err := CreateTable[T](t.Context(), dir, &Scan{Manifest: &Manifest{ScanID: "every"}}, table, table, "test")
	if err != nil {
		t.Fatal(err)
	}
	// Row by row and many at once, so that batches begin anywhere in a group.
	for i := range 777 {
		if err := w.Add(rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(rows[777:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareRows(t, dir, table, rows)
}

// compareRows reads a file and compares it with the rows that it should have, column by column.
func compareRows[T any](t *testing.T, st store.Store, table string, rows []T) {
	t.Helper()
	n := 0
	row := reflect.TypeFor[T]()
	wrong := make([]int, row.NumField())
	for got, err := range FileRows[T](t.Context(), st, table) {
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
				t.Errorf("%s.%s, row %d: %+v, want %+v", table, columnName(row.Field(i)), n, a, b)
			}
		}
		n++
	}
	if n != len(rows) {
		t.Errorf("%s: %d rows, want %d", table, n, len(rows))
	}
	for i, n := range wrong {
		if n > 0 {
			t.Errorf("%s.%s: %d rows differ", table, columnName(row.Field(i)), n)
		}
	}
}

// same reports whether two columns of a row are equal; a list that is not there is an empty one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
