package survey

import (
	"testing"

	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

func fileRows[T any](t *testing.T, st store.Store, name string) (rows []T) {
	t.Helper()
	for row, err := range table.FileRows[T](t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}
