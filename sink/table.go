package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
)

// TableWriter writes one file of a table outside of the parts: what is computed from a scan.
type TableWriter[T any] struct {
	table  *table.Writer[T]
	store  store.Store
	record commit.FileRecord
}

// LockStats takes a scan's lock for tables that are computed from it (see CreateTable): nothing is committed meanwhile, so
// that they are of the whole scan, and nobody else writes them or takes their drafts for those of the dead. Who has a Writer of
// the scan has the lock. The error is a *HeldError where another process has it.
func LockStats(ctx context.Context, st store.Store, scanID string) (store.Unlocker, error) {
	lock, m, err := commit.LockScan(ctx, st, scanID, commit.DoingStats)
	if err != nil {
		return nil, err
	}
	// A killed process may have left drafts of them.
	err = errors.Join(
		commit.SweepFiles(ctx, st, commit.StatsName(schema.TokenStats, m.ScanDate, scanID), commit.StatsName(schema.RecordStats, m.ScanDate, scanID)),
		st.Sweep(ctx, commit.FilesFolder(scanID), commit.Everything))
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// CreateTable begins the file of a table that is computed from a whole scan (see StatsName): from all of its Commits, with the
// scan's lock held since before they were read (see LockStats). It appears at Close, replacing the one before.
func CreateTable[T any](ctx context.Context, st store.Store, scan *commit.Scan, name, tableName, toolVersion string) (*TableWriter[T], error) {
	m := scan.Manifest
	t := table.NewWriter[T](tableName, detailRows, table.PageBytes, map[string]string{
		table.MetaSchema:   strconv.Itoa(schema.Version),
		table.MetaTool:     toolVersion,
		table.MetaRegistry: m.RegistryVersion,
		table.MetaScan:     m.ScanID,
	})
	if err := t.Begin(ctx, st, name); err != nil {
		return nil, err
	}
	sites := commit.CountCommits(scan.Commits).Rows
	return &TableWriter[T]{t, st, commit.FileRecord{ScanID: m.ScanID, Sites: &sites}}, nil
}

// Add writes a row.
func (w *TableWriter[T]) Add(row T) error {
	next, err := w.table.Next()
	if err != nil {
		return err
	}
	*next = row
	return nil
}

// Write writes rows, which it does not keep.
func (w *TableWriter[T]) Write(rows []T) error {
	if err := w.table.Flush(); err != nil {
		return err
	}
	for piece := range slices.Chunk(rows, detailRows) {
		if err := w.table.Write(piece); err != nil {
			return fmt.Errorf("cannot write %s: %w", w.table.Out.Name, err)
		}
	}
	return nil
}

// Close publishes the file, and notes beside the scan's manifest its hash, and how many sites it is of.
func (w *TableWriter[T]) Close(ctx context.Context) error {
	err := w.table.Flush()
	if err == nil {
		err = w.table.Seal()
	}
	if err == nil {
		w.record.File = w.table.Describe()
		err = commit.PublishRecorded(ctx, w.store, w.record, w.table.Publish)
	}
	if err == nil {
		err = views.Write(ctx, w.store, nil)
	}
	return errors.Join(err, w.table.Discard())
}

// Discard drops the file. After Close it does nothing.
func (w *TableWriter[T]) Discard() error { return w.table.Discard() }
