package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Scan is one scan of a dataset, opened for reading. It has what was committed when it was opened.
type Scan struct {
	Manifest *Manifest
	Commits  []Commit // ordered by shard and number; of a unit, those of one scan after the other
	Unit     Unit     // which rows count for readers of package sink; by default all

	// Sealing says that the rows read are written to files with hashes of their own, or are deleted. So readers first
	// compare the hash of all bytes of each file.
	Sealing bool

	Store store.Store
	lost  *LostError // nil if the records show no loss
	later later
	of    map[string]*Scan // see Together
}

// later caches a scan's history as it is now, for commits that a compaction replaced after they were read.
type later struct {
	mu     sync.Mutex
	past   *History // nil before the first reading
	number int      // of the last reading
}

// after returns the history and the number of its reading. It reads again unless there was a reading after the given
// number. Reading takes time proportional to the number of records, so one reading serves all commits that were
// replaced together.
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

// ErrNoTable says that the scan was written without the requested table.
var ErrNoTable = errors.New("the scan has no such table")

// ReadScan opens a complete or incomplete scan for reading.
func ReadScan(ctx context.Context, st store.Store, scanID string) (*Scan, error) {
	s, err := ReadStoredScan(ctx, st, scanID)
	if err == nil {
		err = s.Manifest.current()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ReadStoredScan is ReadScan for scans of earlier schema versions, too. Columns that they lack are read as null.
func ReadStoredScan(ctx context.Context, st store.Store, scanID string) (*Scan, error) {
	m, err := ReadStoredManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	return openScan(ctx, st, m)
}

// Scan is ReadScan with this head, or with the newest one if the scan was begun anew since.
func (h *Head) Scan(ctx context.Context, scanID string) (*Scan, error) {
	m, err := h.Manifest(ctx, scanID)
	if errors.Is(err, ErrRecord) {
		return ReadScan(ctx, h.store, scanID)
	}
	if err == nil {
		err = m.current()
	}
	if err != nil {
		return nil, err
	}
	return openScan(ctx, h.store, m)
}

func openScan(ctx context.Context, st store.Store, manifest *Manifest) (*Scan, error) {
	for {
		past, err := ReadHistory(ctx, st, manifest.ScanID)
		if err != nil {
			return nil, manifest.Remedied(err)
		}
		s := &Scan{Manifest: manifest, Commits: past.Current, Store: st, lost: past.Lost(manifest)}
		manifest.Without(s.Commits)
		if unlike := manifest.Unlike(past.Current); s.lost == nil && unlike != "" {
			s.lost = &LostError{Records: []string{unlike}, Remedy: manifest.Remedy()}
		}
		if s.lost == nil {
			return s, nil
		}
		// The scan may have been restarted or repaired between the two readings.
		if manifest, err = ReadStoredManifest(ctx, st, manifest.ScanID); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(manifest, s.Manifest) {
			return s, nil
		}
	}
}

// Lost returns what is missing of a complete scan, or nil. Readers may continue with the rest, and should report the
// loss.
func (s *Scan) Lost() *LostError {
	if s.Manifest.State != Complete {
		return nil // another process may still write it
	}
	return s.lost
}

// Whole returns a *LostError if the scan, complete or not, has lost data. For an incomplete scan the answer is reliable
// only while no process writes it.
func (s *Scan) Whole() error {
	if s.lost == nil {
		return nil // an untyped nil
	}
	return s.lost
}

// DamagedScansError lists the scans of a dataset whose manifests cannot be read.
type DamagedScansError struct{ Scans []DamagedScan }

// DamagedScan is a scan whose manifest cannot be read.
type DamagedScan struct {
	ScanID string
	Err    error
}

func (e *DamagedScansError) Error() string {
	return fmt.Sprintf("%d of the scans cannot be read, see bulkscan verify: %v", len(e.Scans), e.Unwrap()[0])
}

// Unwrap returns the error of each scan.
func (e *DamagedScansError) Unwrap() []error {
	errs := make([]error, 0, len(e.Scans))
	for _, s := range e.Scans {
		errs = append(errs, s.Err)
	}
	return errs
}

// Scans reads the manifests of a dataset, ordered by start. If some are damaged, or the head names missing scans, it
// returns the others with a *DamagedScansError, and the caller decides whether they suffice. If one has another schema
// version, that is the error.
func Scans(ctx context.Context, st store.Store) ([]*Manifest, error) {
	return current(StoredScans(ctx, st))
}

// LastScans reads the manifests of ids, and of the head's scans from the date of the n-th last published scan on.
// Without a head it is Scans.
func LastScans(ctx context.Context, st store.Store, n int, ids ...string) ([]*Manifest, error) {
	h, err := ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	if h.Number == 0 {
		return current(h.Manifests(ctx))
	}
	months := slices.Sorted(maps.Keys(h.months))
	for published := 0; published < n && len(months) > 0; months = months[:len(months)-1] {
		m, err := h.in(ctx, months[len(months)-1])
		if err != nil {
			return nil, err
		}
		for i := len(m.scans) - 1; i >= 0; i-- {
			if published >= n && m.scans[i].ScanDate < m.scans[i+1].ScanDate {
				break
			}
			ids = append(ids, m.scans[i].ScanID)
			if m.scans[i].Publication == PublicationDone {
				published++
			}
		}
	}
	return current(h.ManifestsOf(ctx, ids))
}

func current(all []*Manifest, err error) ([]*Manifest, error) {
	if damaged, ok := errors.AsType[*DamagedScansError](err); ok {
		for _, s := range damaged.Scans {
			if schema.OfOtherVersion(s.Err) {
				return nil, s.Err
			}
		}
	}
	for _, m := range all {
		if err := m.current(); err != nil {
			return nil, err
		}
	}
	return all, err
}

// StoredScans is Scans for scans of all schema versions. Scans of later versions are among the damaged.
func StoredScans(ctx context.Context, st store.Store) ([]*Manifest, error) {
	h, err := ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	return h.Manifests(ctx)
}

// Manifests is StoredScans with the publications that this head says.
func (h *Head) Manifests(ctx context.Context) ([]*Manifest, error) {
	named, err := h.All(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := ScanIDs(ctx, h.store)
	if err != nil {
		return nil, err
	}
	for _, s := range named {
		ids = append(ids, s.ScanID)
	}
	return h.ManifestsOf(ctx, ids)
}

// ManifestsOf is Manifests for the scans with these ids.
func (h *Head) ManifestsOf(ctx context.Context, ids []string) ([]*Manifest, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var all []*Manifest
	damaged := &DamagedScansError{}
	readOne := func(ctx context.Context, id string) (*Manifest, error) {
		m, err := h.Manifest(ctx, id)
		if errors.Is(err, ErrRecord) || errors.Is(err, store.ErrNotExist) { // the head may be an older one by now
			m, err = readNamed(ctx, h.store, id)
		}
		return m, err
	}
	for id, r := range store.ReadAhead(ctx, ids, readOne) {
		switch {
		case errors.Is(r.Err, store.ErrNotExist): // a restart or pruning deleted it after it was listed
		case r.Err != nil && ctx.Err() != nil:
			return nil, r.Err
		case r.Err != nil:
			damaged.Scans = append(damaged.Scans, DamagedScan{id, r.Err})
		default:
			all = append(all, r.Value)
		}
	}
	slices.SortStableFunc(all, func(a, b *Manifest) int { return a.StartedAt.Compare(b.StartedAt) })
	if len(damaged.Scans) > 0 {
		return all, damaged
	}
	return all, nil
}

// readNamed is ReadManifest, except that a missing scan which the head names counts as damaged.
func readNamed(ctx context.Context, st store.Store, scanID string) (*Manifest, error) {
	m, err := ReadStoredManifest(ctx, st, scanID)
	if !errors.Is(err, store.ErrNotExist) {
		return m, err
	}
	h, errHead := ReadHead(ctx, st)
	if errHead != nil {
		return nil, errHead
	}
	named, errHead := h.Needs(ctx, scanID)
	if named {
		err = fmt.Errorf("cannot read %s: %w: it is missing, and %s names the scan; %s", ManifestName(scanID), ErrRecord,
			h.Name(), LostRemedy)
	}
	return nil, cmp.Or(errHead, err)
}

// Default returns the scan that a command reads if the user names none: the published scan with sites that has the
// newest date, and among several the one that started last. It returns nil if there is none. latest() in views.sql has
// the same rule. The scans must be in the order of their start.
func Default(scans []*Manifest) (of *Manifest) {
	for _, m := range scans {
		if m.Published() && m.Counts != nil && m.Counts.Files[schema.Sites] > 0 && (of == nil || m.ScanDate >= of.ScanDate) {
			of = m
		}
	}
	return of
}

// ScanIDs lists the scans that have a folder for records, in the order of their names. It may be empty.
func ScanIDs(ctx context.Context, st store.Store) ([]string, error) {
	var ids []string
	for name, err := range st.Folders(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, fmt.Errorf("cannot find the scans: %w", err)
		}
		if id := strings.TrimPrefix(name, schema.ScansFolder); CheckScanID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Has reports whether the scan was written with the table.
func (s *Scan) Has(table string) bool { return slices.Contains(s.Manifest.Tables, table) }

// ByOtherRegistry counts the sites of a re-evaluated scan whose groups were evaluated with another registry than the
// scan's.
func (s *Scan) ByOtherRegistry() (sites int64) {
	for i := range s.Commits {
		if again := s.Commits[i].Rejudged; again != nil {
			sites += again.Other
		}
	}
	return sites
}

// Place says where a commit's rows of a table are: Rows rows of File, from row First on.
type Place struct {
	Object      store.Object
	File        schema.File
	First, Rows int64
	Whole       bool
	Damaged     func(err error) error
}

// Open opens a commit's file of a table. If a compaction has deleted the file since the commits were read, its rows are
// in the compacted file: the same row groups, in the same order.
func (s *Scan) Open(ctx context.Context, c *Commit, table string) (Place, error) {
	if one := s.of[c.ScanID]; one != nil {
		at, err := one.Open(ctx, c, table)
		at.Whole = s.Sealing
		return at, err
	}
	file, ok := c.File(table)
	if !ok {
		return Place{}, fmt.Errorf("cannot read table %s of commit %s: %w", table, c.Name(), ErrNoTable)
	}
	object, err := s.Store.Open(ctx, file.Name)
	if err == nil {
		return s.place(c, object, file, 0, file.Rows), nil
	}
	rows := file.Rows
	for number, fresh := 0, false; errors.Is(err, store.ErrNotExist); {
		past, is, errHistory := s.later.after(ctx, s.Store, c.ScanID, number)
		if errHistory != nil {
			return Place{}, errors.Join(err, errHistory)
		}
		fresh, number = is != number && number > 0, is
		by, where, ok := past.replacement(c.Key())
		i := -1
		if ok {
			i = slices.IndexFunc(by.Files, func(f schema.File) bool { return f.Table == table })
		}
		if i < 0 || where.Rows[i] != rows || by.Files[i].Name == file.Name {
			if fresh && !ok && past.Stale()[c.Key()] {
				return Place{}, fmt.Errorf("%w: the scan has been restarted or repaired", err)
			}
			if fresh { // nothing replaced it, the record is inconsistent, or the compacted file is missing, too
				missing := &schema.DamagedError{What: "bytes", Expected: fmt.Sprint(file.Bytes), Found: "no file"}
				return Place{}, s.place(c, nil, file, 0, rows).Damaged(fmt.Errorf("%w: %w", err, missing))
			}
			continue
		}
		// A further compaction may delete this file before it is opened.
		file = by.Files[i]
		if object, err = s.Store.Open(ctx, file.Name); err == nil {
			return s.place(c, object, file, where.First[i], rows), nil
		}
	}
	return Place{}, err
}

func (s *Scan) place(c *Commit, object store.Object, file schema.File, first, rows int64) Place {
	return Place{Object: object, File: file, First: first, Rows: rows, Whole: s.Sealing, Damaged: func(err error) error {
		return fmt.Errorf("scan %s is damaged: %w; %s", c.ScanID, err, s.Manifest.Remedy(c.Shard))
	}}
}
