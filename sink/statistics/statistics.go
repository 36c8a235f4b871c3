// Package statistics answers one question: how is a table written that is computed from all parts of a scan?
package statistics

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

const batchRows = 512 // rows passed to parquet-go at once

// Writer writes one file of such a table.
type Writer[T any] struct {
	table  *table.Writer[T]
	store  store.Store
	record commit.FileRecord

	unlisted bool // the index does not list the scan
}

// Lock takes a scan's lock for computing statistics (see Create). While it is held, no commit is added, so the
// statistics cover all of the scan, and no other process writes them or deletes their drafts. A sink.Writer of the scan
// holds it already. The error is a *commit.HeldError if another process has the lock.
func Lock(ctx context.Context, st store.Store, scanID string) (store.Unlocker, error) {
	lock, m, err := commit.LockScan(ctx, st, scanID, commit.DoingStats)
	if err != nil {
		return nil, err
	}
	// A killed process may have left drafts of them.
	err = errors.Join(m.Changing(ctx, st, nil),
		commit.SweepFiles(ctx, st, commit.StatsName(schema.TokenStats, m.ScanDate, scanID),
			commit.StatsName(schema.RecordStats, m.ScanDate, scanID)),
		st.Sweep(ctx, commit.FilesFolder(scanID), func(string) bool { return true }))
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// Create begins the file of a table that is computed from all parts of a scan (see commit.StatsName). The caller has
// held the scan's lock since before it read the commits (see Lock). Close publishes the file and replaces an earlier
// one.
func Create[T any](ctx context.Context, st store.Store, scan *commit.Scan, name, tableName,
	toolVersion string) (*Writer[T], error) {
	m := scan.Manifest
	t := table.NewWriter[T](tableName, batchRows, table.PageBytes, map[string]string{
		table.MetaSchema:   strconv.Itoa(schema.Version),
		table.MetaTool:     toolVersion,
		table.MetaRegistry: m.RegistryVersion,
		table.MetaScan:     m.ScanID,
	})
	if err := t.Begin(ctx, st, name); err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(scan.Commits), func(c commit.Commit) bool { return c.ScanID != m.ScanID })
	sites := commit.CountCommits(own).Rows
	record := commit.FileRecord{ScanID: m.ScanID, Observer: m.Observer.String(), SchemaVersion: schema.Version,
		Sites: &sites, Unit: scan.Unit.Sum}
	return &Writer[T]{table: t, store: st, record: record, unlisted: !m.Published()}, nil
}

// Add writes a row.
func (w *Writer[T]) Add(row T) error { return w.table.Add([]T{row}) }

// Close publishes the file and writes its record with its hash and number of sites.
func (w *Writer[T]) Close(ctx context.Context) error {
	err := w.table.Seal()
	if err == nil {
		w.record.File = w.table.Describe()
		err = commit.PublishRecorded(ctx, w.store, w.record, w.table.Publish)
	}
	if err == nil && !w.unlisted {
		err = errors.Join(index.Update(ctx, w.store), views.Write(ctx, w.store, nil))
	}
	return errors.Join(err, w.table.Discard())
}

// Discard drops the file. After Close it does nothing.
func (w *Writer[T]) Discard() error { return w.table.Discard() }
