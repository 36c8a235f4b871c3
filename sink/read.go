package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/parquet-go/parquet-go"
)

// Scan is one scan of a dataset, opened for reading: what had been committed when it was opened.
type Scan struct {
	Manifest *Manifest
	Commits  []Commit // ordered by shard and number

	store store.Store
}

// ErrNoTable says that the scan was written without a table.
var ErrNoTable = errors.New("the scan has no such table")

// ReadScan opens a scan for reading, complete or not.
func ReadScan(ctx context.Context, st store.Store, scanID string) (*Scan, error) {
	manifest, err := ReadManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	commits, err := Commits(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	return &Scan{Manifest: manifest, Commits: commits, store: st}, nil
}

// Scans reads the manifests of a dataset, the latest start last.
func Scans(ctx context.Context, st store.Store) ([]*Manifest, error) {
	var all []*Manifest
	for entry, err := range st.List(ctx, scansFolder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the scans: %w", err)
		}
		id, ok := strings.CutSuffix(strings.TrimPrefix(entry.Name, scansFolder), "/manifest.json")
		if !ok || CheckScanID(id) != nil {
			continue
		}
		manifest, err := ReadManifest(ctx, st, id)
		if err != nil {
			return nil, err
		}
		all = append(all, manifest)
	}
	slices.SortStableFunc(all, func(a, b *Manifest) int { return a.StartedAt.Compare(b.StartedAt) })
	return all, nil
}

// Has reports whether the scan was written with a table.
func (s *Scan) Has(table string) bool { return slices.Contains(s.Manifest.Tables, table) }

// Rows yields the rows of a committed table, part after part, in the order in which they were written. T is the
// table's row type, or a struct with some of its columns, which are then all that is read. A row is valid until the
// next; its strings stay. The iteration ends after the first error; a table that the scan does not have is ErrNoTable.
func Rows[T any](ctx context.Context, s *Scan, table string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if !s.Has(table) {
			yield(nil, fmt.Errorf("cannot read table %s of scan %s: %w", table, s.Manifest.ScanID, ErrNoTable))
			return
		}
		for i := range s.Commits {
			for row, err := range CommitRows[T](ctx, s, &s.Commits[i], table) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// CommitRows yields the rows of a table's file in one commit of the scan, as Rows does.
func CommitRows[T any](ctx context.Context, s *Scan, c *Commit, table string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		file, ok := c.File(table)
		if !ok {
			yield(nil, fmt.Errorf("cannot read table %s of commit %s: %w", table, c.name(), ErrNoTable))
			return
		}
		var n int64
		for row, err := range FileRows[T](ctx, s.store, file.Name) {
			if n++; !yield(row, err) || err != nil {
				return
			}
		}
		if n != file.Rows {
			yield(nil, fmt.Errorf("cannot read %s: it has %d rows, its commit says %d", file.Name, n, file.Rows))
		}
	}
}

// FileRows yields the rows of one Parquet file of the dataset, as Rows does.
func FileRows[T any](ctx context.Context, st store.Store, name string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if err := readRows(ctx, st, name, yield); err != nil {
			yield(nil, fmt.Errorf("cannot read %s: %w", name, err))
		}
	}
}

const readRowsAtOnce = 256

// readRows calls yield for every row of a file until that says stop. The Parquet reader panics on some damaged files;
// for whoever reads a dataset that is an error like others.
func readRows[T any](ctx context.Context, st store.Store, name string, yield func(*T, error) bool) (err error) {
	object, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer object.Close()
	reader, err := openReader[T](object)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }() // it only reads: what went wrong has been told
	batch := make([]T, readRowsAtOnce)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		clear(batch)
		n, err := readBatch(reader, batch)
		for i := range batch[:n] {
			if !yield(&batch[i], nil) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func openReader[T any](object store.Object) (_ *parquet.GenericReader[T], err error) {
	defer rescue(&err)
	file, err := openFile(object)
	if err != nil {
		return nil, err
	}
	return parquet.NewGenericReader[T](file), nil
}

func openFile(object store.Object) (*parquet.File, error) {
	return parquet.OpenFile(object, object.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
}

func readBatch[T any](reader *parquet.GenericReader[T], batch []T) (n int, err error) {
	defer rescue(&err)
	return reader.Read(batch)
}

// rescue turns a panic into an error.
func rescue(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged Parquet file: %v", p)
	}
}
