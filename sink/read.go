package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/parquet-go/parquet-go"
)

// Scan is one scan of a dataset, opened for reading: what had been committed when it was opened.
type Scan struct {
	Manifest *Manifest
	Commits  []Commit // ordered by shard and number

	store store.Store
	lost  *LostError // nil: its records tell of nothing that is missing
	later later
}

// later is what a compaction has made of a scan's commits since they were read.
type later struct {
	mu     sync.Mutex
	past   *history // nil before anybody has asked
	number int      // of readings
}

// after returns the history, read again unless that has been done after the reading of that number; and its own number.
// Reading every record takes as long as there are records: what serves one commit serves the others that went with it.
func (l *later) after(ctx context.Context, st store.Store, scanID string, number int) (*history, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.past == nil || l.number <= number {
		past, err := readHistory(ctx, st, scanID)
		if err != nil {
			return nil, 0, err
		}
		l.past, l.number = past, l.number+1
	}
	return l.past, l.number, nil
}

// ErrNoTable says that the scan was written without a table.
var ErrNoTable = errors.New("the scan has no such table")

// ReadScan opens a scan for reading, complete or not.
func ReadScan(ctx context.Context, st store.Store, scanID string) (*Scan, error) {
	manifest, err := ReadManifest(ctx, st, scanID)
	for err == nil {
		past, err := readHistory(ctx, st, scanID)
		if err != nil {
			return nil, remedied(err, damageRemedy)
		}
		s := &Scan{Manifest: manifest, Commits: past.current, store: st, lost: past.lost(manifest)}
		if s.lost == nil {
			return s, nil
		}
		// The scan may have been begun anew, or repaired, between one reading and the other.
		if manifest, err = ReadManifest(ctx, st, scanID); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(manifest, s.Manifest) {
			return s, nil
		}
	}
	return nil, err
}

// Lost says what is missing of a complete scan; nil is nothing. Readers may go on with the rest, and should say so.
func (s *Scan) Lost() *LostError {
	if s.Manifest.State != Complete {
		return nil // it is being written, maybe
	}
	return s.lost
}

// Whole is an error, *LostError, where something is missing of a scan, complete or not. Of one that is not, that can be told while
// it is not written.
func (s *Scan) Whole() error {
	if s.lost == nil {
		return nil // and no *LostError
	}
	return s.lost
}

// DamagedScansError names the scans of a dataset whose manifests cannot be read.
type DamagedScansError struct{ Scans []DamagedScan }

// DamagedScan is one of them.
type DamagedScan struct {
	ScanID string
	Err    error
}

func (e *DamagedScansError) Error() string {
	return fmt.Sprintf("%d of the scans cannot be read, see bulkscan verify: %v", len(e.Scans), e.Unwrap()[0])
}

// Unwrap returns what is wrong with each.
func (e *DamagedScansError) Unwrap() []error {
	errs := make([]error, 0, len(e.Scans))
	for _, s := range e.Scans {
		errs = append(errs, s.Err)
	}
	return errs
}

// Scans reads the manifests of a dataset, the latest start last. Where some are damaged, it returns the others with a
// *DamagedScansError, and the caller decides whether they are enough.
func Scans(ctx context.Context, st store.Store) ([]*Manifest, error) {
	ids, err := scanIDs(ctx, st)
	if err != nil {
		return nil, err
	}
	var all []*Manifest
	damaged := &DamagedScansError{}
	for _, id := range ids {
		manifest, err := ReadManifest(ctx, st, id)
		switch {
		case errors.Is(err, store.ErrNotExist): // deleted since it was listed, by a restart
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			damaged.Scans = append(damaged.Scans, DamagedScan{id, err})
		default:
			all = append(all, manifest)
		}
	}
	slices.SortStableFunc(all, func(a, b *Manifest) int { return a.StartedAt.Compare(b.StartedAt) })
	if len(damaged.Scans) > 0 {
		return all, damaged
	}
	return all, nil
}

// scanIDs lists the scans that have a manifest, in the order of their names.
func scanIDs(ctx context.Context, st store.Store) ([]string, error) {
	var ids []string
	for entry, err := range st.List(ctx, scansFolder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the scans: %w", err)
		}
		id, ok := strings.CutSuffix(strings.TrimPrefix(entry.Name, scansFolder), "/manifest.json")
		if ok && CheckScanID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Has reports whether the scan was written with a table.
func (s *Scan) Has(table string) bool { return slices.Contains(s.Manifest.Tables, table) }

// ByOtherRegistry is how many sites of a scan that was judged again keep what another registry than the scan's says of their groups.
func (s *Scan) ByOtherRegistry() (sites int64) {
	for i := range s.Commits {
		if again := s.Commits[i].Rejudged; again != nil {
			sites += again.Other
		}
	}
	return sites
}

// Rows yields the rows of a committed table, part after part, in the order in which they were written. T is the
// table's row type, or a struct with some of its columns, which are then all that is read. A row is valid until the
// next; its strings stay. The iteration ends after the first error; a table that the scan does not have is ErrNoTable.
func Rows[T any](ctx context.Context, s *Scan, table string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if !s.Has(table) {
			yield(nil, fmt.Errorf("cannot read table %s of scan %s: %w", table, s.Manifest.ScanID, ErrNoTable))
			return
		}
		for c, first := range s.opened(ctx, table) {
			if !commitRows(ctx, s, c, table, first, yield) {
				return
			}
		}
	}
}

// CommitRows yields the rows of a table's file in one commit of the scan, as Rows does.
func CommitRows[T any](ctx context.Context, s *Scan, c *Commit, table string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) { commitRows(ctx, s, c, table, s.openNow(ctx, c, table), yield) }
}

// commitRows yields the rows of a file that has been opened, and closes it. It returns whether there may be more of others:
// not after an error, nor where yield says so.
func commitRows[T any](ctx context.Context, s *Scan, c *Commit, table string, at opened, yield func(*T, error) bool) (more bool) {
	var n int64 // rows so far
	for was := ""; ; at = s.openNow(ctx, c, table) {
		if at.err != nil {
			yield(nil, at.err)
			return false
		}
		p, stopped := at.place, false
		err := readRows(ctx, p.object, p.first+n, p.rows-n, func(row *T, err error) bool {
			n++
			stopped = !yield(row, err)
			return !stopped
		})
		_ = p.object.Close() // it was only read: what went wrong has been told
		if stopped {
			return false
		}
		if errors.Is(err, store.ErrChanged) && p.file.Name != was {
			was = p.file.Name // a compaction has put the rows elsewhere while they were read
			continue
		}
		if err == nil && n != p.rows {
			err = fmt.Errorf("it has %d rows, its commit says %d", n, p.rows)
		}
		if err != nil {
			yield(nil, fmt.Errorf("cannot read %s: %w", p.file.Name, err))
		}
		return err == nil
	}
}

// opened is what became of opening a commit's file.
type opened struct {
	place
	err error
}

// openNow is open in one value.
func (s *Scan) openNow(ctx context.Context, c *Commit, table string) (o opened) {
	o.place, o.err = s.open(ctx, c, table)
	return o
}

// opened opens the files of a table, some ahead of the one that is yielded, which its receiver closes.
func (s *Scan) opened(ctx context.Context, table string) iter.Seq2[*Commit, opened] {
	commits := make([]*Commit, 0, len(s.Commits))
	for i := range s.Commits {
		commits = append(commits, &s.Commits[i])
	}
	open := func(ctx context.Context, c *Commit) opened { return s.openNow(ctx, c, table) }
	return ahead(ctx, commits, open, func(o opened) {
		if o.err == nil {
			_ = o.object.Close() // nobody has read it
		}
	})
}

// readAtOnce is how many records or files are read at a time, or wait to be read with what came with opening them: each
// may wait for a server.
const readAtOnce = 8

// ahead reads each of some things, and yields what it has read in their order. While one is being looked at the next ones
// are read. What has been read and is not asked for any more goes to drop. The context of a reading lasts until the end.
func ahead[T, R any](ctx context.Context, items []T, read func(context.Context, T) R, drop func(R)) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var results [readAtOnce]chan R // of those that have begun, in a ring
		begun, taken := 0, 0
		defer func() {
			cancel() // nobody waits for a server that nothing is wanted from
			for ; taken < begun; taken++ {
				drop(<-results[taken%readAtOnce])
			}
		}()
		for taken < len(items) {
			for ; begun < min(len(items), taken+readAtOnce); begun++ {
				result, item := make(chan R, 1), items[begun]
				results[begun%readAtOnce] = result
				go func() { result <- read(ctx, item) }()
			}
			item, result := items[taken], <-results[taken%readAtOnce]
			if taken++; !yield(item, result) {
				return
			}
		}
	}
}

// place is where a commit's rows of a table are: so many rows of a file, from one on.
type place struct {
	object      store.Object
	file        File
	first, rows int64
}

// open opens the file of a table in a commit. Where a compaction has taken the file away since the commits were read,
// its rows are in the compacted file: whole row groups, in the same order.
func (s *Scan) open(ctx context.Context, c *Commit, table string) (place, error) {
	file, ok := c.File(table)
	if !ok {
		return place{}, fmt.Errorf("cannot read table %s of commit %s: %w", table, c.name(), ErrNoTable)
	}
	object, err := s.store.Open(ctx, file.Name)
	if err == nil {
		return place{object, file, 0, file.Rows}, nil
	}
	rows := file.Rows
	for number, fresh := 0, false; errors.Is(err, store.ErrNotExist); {
		past, is, errHistory := s.later.after(ctx, s.store, c.ScanID, number)
		if errHistory != nil {
			return place{}, errors.Join(err, errHistory)
		}
		fresh, number = is != number && number > 0, is
		by, where, ok := past.replacement(c)
		i := -1
		if ok {
			i = slices.IndexFunc(by.Files, func(f File) bool { return f.Table == table })
		}
		if i < 0 || where.Rows[i] != rows || by.Files[i].Name == file.Name {
			if fresh && !ok && past.stale()[c.key()] {
				return place{}, fmt.Errorf("%w: its scan has been begun anew, or repaired", err)
			}
			if fresh {
				return place{}, err // nothing has replaced it, the record makes no sense, or its file is missing too
			}
			continue
		}
		// That one may be replaced in turn before it is opened.
		file = by.Files[i]
		if object, err = s.store.Open(ctx, file.Name); err == nil {
			return place{object, file, where.First[i], rows}, nil
		}
	}
	return place{}, err
}

// FileRows yields the rows of one Parquet file of the dataset, as Rows does.
func FileRows[T any](ctx context.Context, st store.Store, name string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		object, err := st.Open(ctx, name)
		if err == nil {
			defer object.Close()
			err = readRows(ctx, object, 0, math.MaxInt64, yield)
		}
		if err != nil {
			yield(nil, fmt.Errorf("cannot read %s: %w", name, err))
		}
	}
}

const readRowsAtOnce = 256

// readRows calls yield for rows of a file, from first on and at most so many, until that says stop. The Parquet reader
// panics on some damaged files; for whoever reads a dataset that is an error like others.
func readRows[T any](ctx context.Context, object store.Object, first, rows int64, yield func(*T, error) bool) (err error) {
	reader, err := openReader[T](object, first)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }() // it only reads: what went wrong has been told
	batch := make([]T, readRowsAtOnce)
	for rows > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch = batch[:min(rows, readRowsAtOnce)]
		clear(batch)
		n, err := readBatch(reader, batch)
		rows -= int64(n)
		for i := range batch[:n] {
			if !yield(&batch[i], nil) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n == 0 {
			err = io.ErrNoProgress // a damaged file may promise rows without end
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func openReader[T any](object store.Object, first int64) (_ *parquet.GenericReader[T], err error) {
	defer rescue(&err)
	file, err := openFile(object)
	if err != nil {
		return nil, err
	}
	reader := parquet.NewGenericReader[T](file)
	if first > 0 {
		if err := reader.SeekToRow(first); err != nil {
			return nil, errors.Join(err, reader.Close())
		}
	}
	return reader, nil
}

func openFile(object store.Object) (*parquet.File, error) {
	t, encoded, err := openTail(object)
	if err != nil {
		return nil, err
	}
	footer, err := decodeFooter(encoded)
	if err == nil {
		err = checkFooter(footer)
	}
	if err != nil {
		return nil, err
	}
	g, err := newGuard(t, footer, t.Size()-8-int64(len(encoded)))
	if err != nil {
		return nil, err
	}
	return parquet.OpenFile(g, g.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
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
