package report

import (
	"testing"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/table"
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
