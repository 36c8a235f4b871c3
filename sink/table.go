package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/bulkscan/bulkscan/internal/store"
)

// TableWriter writes one file of a table outside of the parts: what is computed from a scan.
type TableWriter[T any] struct {
	table  *table[T]
	store  store.Store
	scanID string
}

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
	return &TableWriter[T]{t, st, m.ScanID}, nil
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

// Write writes rows, which it does not keep.
func (w *TableWriter[T]) Write(rows []T) error {
	if err := w.table.flush(); err != nil {
		return err
	}
	for piece := range slices.Chunk(rows, detailRows) {
		if err := w.table.write(piece); err != nil {
			return fmt.Errorf("cannot write %s: %w", w.table.out.name, err)
		}
	}
	return nil
}

// Close publishes the file, and notes its hash beside the scan's manifest.
func (w *TableWriter[T]) Close(ctx context.Context) error {
	err := w.table.flush()
	if err == nil {
		err = w.table.seal()
	}
	if err == nil {
		err = publishRecorded(ctx, w.store, w.scanID, w.table.describe(), w.table.publish)
	}
	if err == nil {
		err = writeViews(ctx, w.store)
	}
	return errors.Join(err, w.table.discard())
}

// Discard drops the file. After Close it does nothing.
func (w *TableWriter[T]) Discard() error { return w.table.discard() }
