package commit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Scan is one scan of a dataset, opened for reading: what had been committed when it was opened.
type Scan struct {
	Manifest *Manifest
	Commits  []Commit // ordered by shard and number

	Store store.Store
	lost  *LostError // nil: its records tell of nothing that is missing
	later later
}

// later is what a compaction has made of a scan's commits since they were read.
type later struct {
	mu     sync.Mutex
	past   *History // nil before anybody has asked
	number int      // of readings
}

// after returns the history, read again unless that has been done after the reading of that number; and its own number.
// Reading every record takes as long as there are records: what serves one commit serves the others that went with it.
func (l *later) after(ctx context.Context, st store.Store, scanID string, number int) (*History, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.past == nil || l.number <= number {
		past, err := ReadHistory(ctx, st, scanID)
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
		past, err := ReadHistory(ctx, st, scanID)
		if err != nil {
			return nil, Remedied(err, DamageRemedy)
		}
		s := &Scan{Manifest: manifest, Commits: past.Current, Store: st, lost: past.Lost(manifest)}
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
	for entry, err := range st.List(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the scans: %w", err)
		}
		id, ok := strings.CutSuffix(strings.TrimPrefix(entry.Name, schema.ScansFolder), "/manifest.json")
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

// Place is where a commit's rows of a table are: so many rows of a file, from one on.
type Place struct {
	Object      store.Object
	File        schema.File
	First, Rows int64
}

// ReadAtOnce is how many records or files are read at a time, or wait to be read with what came with opening them: each
// may wait for a server.
const ReadAtOnce = 8

// Ahead reads each of some things, and yields what it has read in their order. While one is being looked at the next ones
// are read. What has been read and is not asked for any more goes to drop. The context of a reading lasts until the end.
func Ahead[T, R any](ctx context.Context, items []T, read func(context.Context, T) R, drop func(R)) iter.Seq2[T, R] {
	return func(yield func(T, R) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var results [ReadAtOnce]chan R // of those that have begun, in a ring
		begun, taken := 0, 0
		defer func() {
			cancel() // nobody waits for a server that nothing is wanted from
			for ; taken < begun; taken++ {
				drop(<-results[taken%ReadAtOnce])
			}
		}()
		for taken < len(items) {
			for ; begun < min(len(items), taken+ReadAtOnce); begun++ {
				result, item := make(chan R, 1), items[begun]
				results[begun%ReadAtOnce] = result
				go func() { result <- read(ctx, item) }()
			}
			item, result := items[taken], <-results[taken%ReadAtOnce]
			if taken++; !yield(item, result) {
				return
			}
		}
	}
}

// Open opens the file of a table in a commit. Where a compaction has taken the file away since the commits were read,
// its rows are in the compacted file: whole row groups, in the same order.
func (s *Scan) Open(ctx context.Context, c *Commit, table string) (Place, error) {
	file, ok := c.File(table)
	if !ok {
		return Place{}, fmt.Errorf("cannot read table %s of commit %s: %w", table, c.Name(), ErrNoTable)
	}
	object, err := s.Store.Open(ctx, file.Name)
	if err == nil {
		return Place{Object: object, File: file, Rows: file.Rows}, nil
	}
	rows := file.Rows
	for number, fresh := 0, false; errors.Is(err, store.ErrNotExist); {
		past, is, errHistory := s.later.after(ctx, s.Store, c.ScanID, number)
		if errHistory != nil {
			return Place{}, errors.Join(err, errHistory)
		}
		fresh, number = is != number && number > 0, is
		by, where, ok := past.replacement(c)
		i := -1
		if ok {
			i = slices.IndexFunc(by.Files, func(f schema.File) bool { return f.Table == table })
		}
		if i < 0 || where.Rows[i] != rows || by.Files[i].Name == file.Name {
			if fresh && !ok && past.Stale()[c.Key()] {
				return Place{}, fmt.Errorf("%w: its scan has been begun anew, or repaired", err)
			}
			if fresh {
				return Place{}, err // nothing has replaced it, the record makes no sense, or its file is missing too
			}
			continue
		}
		// That one may be replaced in turn before it is opened.
		file = by.Files[i]
		if object, err = s.Store.Open(ctx, file.Name); err == nil {
			return Place{Object: object, File: file, First: where.First[i], Rows: rows}, nil
		}
	}
	return Place{}, err
}
