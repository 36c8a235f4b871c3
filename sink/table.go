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
	record FileRecord
}

// LockStats takes a scan's lock for tables that are computed from it (see CreateTable): nothing is committed meanwhile, so
// that they are of the whole scan, and nobody else writes them or takes their drafts for those of the dead. Who has a Writer of
// the scan has the lock. The error is a *HeldError where another process has it.
func LockStats(ctx context.Context, st store.Store, scanID string) (store.Unlocker, error) {
	lock, _, err := lockScan(ctx, st, scanID, doingStats)
	return lock, err
}

// CreateTable begins the file of a table that is computed from a whole scan (see StatsName): from all of its Commits, with the
// scan's lock held since before they were read (see LockStats). It appears at Close, replacing the one before.
func CreateTable[T any](ctx context.Context, st store.Store, scan *Scan, name, table, toolVersion string) (*TableWriter[T], error) {
	m := scan.Manifest
	t := newTable[T](table, detailRows, pageBytes, map[string]string{
		metaSchema:   strconv.Itoa(SchemaVersion),
		metaTool:     toolVersion,
		metaRegistry: m.RegistryVersion,
		metaScan:     m.ScanID,
	})
	if err := t.begin(ctx, st, name); err != nil {
		return nil, err
	}
	sites := countCommits(scan.Commits).Rows
	return &TableWriter[T]{t, st, FileRecord{ScanID: m.ScanID, Sites: &sites}}, nil
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

// Close publishes the file, and notes beside the scan's manifest its hash, and how many sites it is of.
func (w *TableWriter[T]) Close(ctx context.Context) error {
	err := w.table.flush()
	if err == nil {
		err = w.table.seal()
	}
	if err == nil {
		w.record.File = w.table.describe()
		err = publishRecorded(ctx, w.store, w.record, w.table.publish)
	}
	if err == nil {
		err = writeViews(ctx, w.store, nil)
	}
	return errors.Join(err, w.table.discard())
}

// Discard drops the file. After Close it does nothing.
func (w *TableWriter[T]) Discard() error { return w.table.discard() }
