package sink

import (
	"context"
	"errors"
	"strconv"

	"github.com/bulkscan/bulkscan/internal/store"
)

// TableWriter writes one file of a table outside of the parts: what is computed from a scan.
type TableWriter[T any] struct{ table *table[T] }

// CreateTable begins the file of a table that is computed from a whole scan (see StatsName). It appears at Close,
// replacing the one before.
func CreateTable[T any](ctx context.Context, st store.Store, m *Manifest, name, table, toolVersion string) (*TableWriter[T], error) {
	t := newTable[T](table, detailRows, pageBytes, map[string]string{
		metaSchema:   strconv.Itoa(SchemaVersion),
		metaTool:     toolVersion,
		metaRegistry: m.RegistryVersion,
		metaScan:     m.ScanID,
	})
	if err := t.begin(ctx, st, name); err != nil {
		return nil, err
	}
	return &TableWriter[T]{t}, nil
}

// Add writes a row.
func (w *TableWriter[T]) Add(row T) error {
	next, err := w.table.next()
	if err != nil {
		return err
	}
	*next = row
	return nil
}

// Close publishes the file.
func (w *TableWriter[T]) Close(ctx context.Context) error {
	err := w.table.flush()
	if err == nil {
		err = w.table.seal()
	}
	if err == nil {
		err = w.table.publish(ctx)
	}
	return errors.Join(err, w.table.discard())
}

// Discard drops the file. After Close it does nothing.
func (w *TableWriter[T]) Discard() error { return w.table.discard() }
