package sink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/internal/store"
)

// This file makes a scan that has lost something one that may go on (Options.Repair): its sites that no sound commit has are
// asked again, and then it is complete again.
//
// A commit is not believed if its record cannot be read, if a file of it is missing or has other bytes, or if a commit before it
// has one of its sites. One record of no part takes out all of these, together with the numbers of the records that are missing
// (see takeOut). From that moment the scan has what is sound, and those numbers are not given again. Killed before it, a repair
// has changed nothing; killed after it, the same command finds the rest still missing. What it has taken out is deleted
// afterwards, as what a compaction has replaced.

// IntactError says that a scan that was to be repaired has lost nothing.
type IntactError struct {
	ScanID string
	State  State
	Sites  uint64
}

func (e *IntactError) Error() string {
	if e.State == Complete {
		return fmt.Sprintf("nothing of scan %s is missing: all its %d sites are there", e.ScanID, e.Sites)
	}
	return fmt.Sprintf("nothing to repair: scan %s is not complete, and nothing that it has committed is missing; the same command without --repair goes on with it", e.ScanID)
}

// maxLost bounds how many numbers of parts one record takes out: a record that was copied to a far number would lead to more.
const maxLost = 100_000

// repair takes out of the scan what cannot be believed. The scan's lock is held. The error is an *IntactError where there is
// nothing to repair.
func repair(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *Manifest) error {
	fail := func(err error) error { return fmt.Errorf("cannot repair scan %s: %w", o.ScanID, err) }
	used, _ := usedNumbers(ctx, st, o.ScanID)
	if _, err := fence(ctx, st, lock, o.void(TakenOver), m.ScanDate, used, o.Shard, compactedShard); err != nil {
		return fail(err)
	}
	r := &repairing{store: st, options: o, manifest: m, lost: map[commitKey]bool{}}
	if err := r.find(ctx); err != nil {
		return fail(err)
	}
	switch {
	case len(r.lost) > maxLost:
		return fail(fmt.Errorf("more than %d parts are missing by their numbers, up to %s; move records and files away that do not belong there", maxLost, r.last()))
	case len(r.lost) > 0:
	case m.Repairing || r.stale:
		return nil
	default:
		sites, _ := sitesOf(r.past.current)
		return &IntactError{ScanID: o.ScanID, State: m.State, Sites: sites.GetCardinality()}
	}
	if _, err := takeOut(ctx, st, o.void(Repaired), r.past, r.lost); err != nil {
		return fail(err)
	}
	for _, name := range r.unreadable {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// repairing is one run of repair.
type repairing struct {
	store    store.Store
	options  *Options
	manifest *Manifest

	past       *history           // of the records that can be read
	unreadable []string           // names of those that cannot
	lost       map[commitKey]bool // commits that are not believed, and numbers of those that are missing
	stale      bool               // totals, statistics or rejects are not those of the commits
}

// find says what is lost.
func (r *repairing) find(ctx context.Context) (err error) {
	var unreadable []commitKey
	r.past, err = gatherHistory(ctx, r.store, r.options.ScanID, func(name string, c *Commit, err error) (*Commit, error) {
		key, ok := commitKeyOf(name)
		if !errors.Is(err, errRecord) || !ok {
			return c, err
		}
		unreadable, r.unreadable = append(unreadable, key), append(r.unreadable, name)
		return nil, nil
	})
	if err != nil {
		return err
	}
	if err := r.distrust(ctx); err != nil {
		return err
	}
	for _, key := range unreadable {
		r.lost[key] = true
	}
	if r.manifest.State == Complete {
		if err := errors.Join(r.unseen(ctx), r.check(ctx)); err != nil {
			return err
		}
	}
	for _, g := range r.past.gaps(slices.Collect(maps.Keys(r.lost))...) {
		for n := g.from; n < g.until && len(r.lost) <= maxLost; n++ {
			r.lost[commitKey{g.shard, n}] = true
		}
	}
	return nil
}

// distrust looks for commits whose files are not what they say, or whose sites another has.
func (r *repairing) distrust(ctx context.Context) error {
	all := roaring64.New()
	for i := range r.past.current {
		c := &r.past.current[i]
		seqs, err := c.Bitmap()
		sound := err == nil && !seqs.Intersects(all) && len(misnamed(c, r.manifest)) == 0
		for k := 0; sound && k < len(c.Files); k++ {
			err := holdAgainst(ctx, r.store, c.Files[k])
			_, damaged := errors.AsType[*damagedError](err)
			if sound = err == nil; err != nil && !damaged && !errors.Is(err, store.ErrNotExist) {
				return fmt.Errorf("cannot read %s: %w", c.Files[k].Name, err) // it may be read later
			}
		}
		if sound {
			all.Or(seqs)
			continue
		}
		r.lost[c.key()] = true
		for _, replaced := range c.Replaces { // whose rows are in these files, if anywhere
			r.lost[commitKey{replaced.Shard, replaced.N}] = true
		}
	}
	return nil
}

// unseen adds the numbers of the last commits of a complete scan, of which only their files or the totals tell, so that they are
// not given again.
func (r *repairing) unseen(ctx context.Context) error {
	known := r.past.stale()
	for _, commits := range [][]Commit{r.past.current, r.past.replaced, r.past.void} {
		for i := range commits {
			known[commits[i].key()] = true
		}
	}
	files, err := partFiles(ctx, r.store, r.options.ScanID, r.manifest.ScanDate)
	if err != nil {
		return err
	}
	for _, entry := range files {
		if shard, n, _ := shardOf(r.options.ScanID, path.Base(entry.Name)); !known[commitKey{shard, n}] {
			r.lost[commitKey{shard, n}] = true
		}
	}
	if r.manifest.Counts == nil {
		return nil
	}
	next := r.past.next(r.options.Shard)
	for key := range r.lost {
		if key.shard == r.options.Shard {
			next = max(next, key.n+1)
		}
	}
	for n := len(r.past.current) + len(r.lost); n < r.manifest.Counts.Parts && len(r.lost) <= maxLost; n++ {
		r.lost[commitKey{r.options.Shard, next}] = true
		next++
	}
	return nil
}

// check says whether what goes by the commits goes by those that there are.
func (r *repairing) check(ctx context.Context) error {
	r.stale = len(r.manifest.unaccounted(r.past.current)) > 0
	v := &verifier{store: r.store, committed: map[string]bool{}}
	for _, table := range recordedFiles {
		_, findings, err := v.recordAndFile(ctx, r.options.ScanID, table, r.manifest)
		if err != nil {
			return err
		}
		r.stale = r.stale || !sound(findings)
	}
	return nil
}

// last is the greatest of the numbers that are missing.
func (r *repairing) last() string {
	key := slices.MaxFunc(slices.Collect(maps.Keys(r.lost)), commitKey.compare)
	return commitName(r.options.ScanID, key.shard, key.n)
}

// takeOut creates a record of no part that takes the place of others, so that none of them counts any more, from one moment to the
// next. The record stays, so that numbers go on behind those that it took out: a name that was given again would show a reader
// who has opened the scan before rows of the scan after; and where the lock is a lease, a deletion that is late might hit it.
func takeOut(ctx context.Context, st store.Store, like Commit, past *history, keys map[commitKey]bool) (*Commit, error) {
	n := past.next(compactedShard)
	for key := range keys {
		if key.shard == compactedShard {
			n = max(n, key.n+1)
		}
	}
	record, err := voidRecord(like, compactedShard, n)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), commitKey.compare) {
		record.Replaces = append(record.Replaces, Replaced{Shard: key.shard, N: key.n})
	}
	if slices.Contains(past.claimed, record.name()) { // by a process that died
		if err := st.Delete(ctx, record.name()); err != nil {
			return nil, err
		}
	}
	return record, record.write(ctx, st)
}

// holdAgainst holds a file's bytes against its record; the error is a *damagedError where they are others.
func holdAgainst(ctx context.Context, st store.Store, file File) error {
	object, err := st.Open(ctx, file.Name)
	if err != nil {
		return err
	}
	defer object.Close()
	if object.Size() != file.Bytes {
		return &damagedError{what: "bytes", expected: fmt.Sprint(file.Bytes), found: fmt.Sprint(object.Size())}
	}
	sum := sha256.New()
	if _, err = io.CopyBuffer(sum, io.NewSectionReader(object, 0, object.Size()), make([]byte, 1<<20)); err != nil {
		return err
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != file.SHA256 {
		return &damagedError{what: "sha256", expected: file.SHA256, found: found}
	}
	return nil
}
