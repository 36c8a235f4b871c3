package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
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
	State  commit.State
	Sites  uint64
}

func (e *IntactError) Error() string {
	if e.State == commit.Complete {
		return fmt.Sprintf("nothing of scan %s is missing: all its %d sites are there", e.ScanID, e.Sites)
	}
	return fmt.Sprintf("nothing to repair: scan %s is not complete, and nothing that it has committed is missing; the same command without --repair goes on with it", e.ScanID)
}

// maxLost bounds how many numbers of parts one record takes out: a record that was copied to a far number would lead to more.
const maxLost = 100_000

// repair takes out of the scan what cannot be believed. The scan's lock is held. The error is an *IntactError where there is
// nothing to repair.
func repair(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *commit.Manifest) error {
	fail := func(err error) error { return fmt.Errorf("cannot repair scan %s: %w", o.ScanID, err) }
	used, _ := commit.UsedNumbers(ctx, st, o.ScanID)
	if _, err := commit.Fence(ctx, st, lock, o.tombstone(commit.TakenOver), m.ScanDate, used, o.Shard, commit.CompactedShard); err != nil {
		return fail(err)
	}
	r := &repairing{store: st, options: o, manifest: m, lost: map[commit.Key]bool{}}
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
		sites, _ := commit.SitesOf(r.past.Current)
		return &IntactError{ScanID: o.ScanID, State: m.State, Sites: sites.GetCardinality()}
	}
	if _, err := commit.TakeOut(ctx, st, o.tombstone(commit.Repaired), r.past, r.lost); err != nil {
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
	manifest *commit.Manifest

	past       *commit.History     // of the records that can be read
	unreadable []string            // names of those that cannot
	lost       map[commit.Key]bool // commits that are not believed, and numbers of those that are missing
	stale      bool                // totals, statistics or rejects are not those of the commits
}

// find says what is lost.
func (r *repairing) find(ctx context.Context) (err error) {
	var unreadable []commit.Key
	r.past, err = commit.GatherHistory(ctx, r.store, r.options.ScanID, func(name string, c *commit.Commit, err error) (*commit.Commit, error) {
		key, ok := commit.KeyOf(name)
		if !errors.Is(err, commit.ErrRecord) || !ok {
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
	if r.manifest.State == commit.Complete {
		if err := errors.Join(r.unseen(ctx), r.check(ctx)); err != nil {
			return err
		}
	}
	for _, g := range r.past.Gaps(slices.Collect(maps.Keys(r.lost))...) {
		for n := g.From; n < g.Until && len(r.lost) <= maxLost; n++ {
			r.lost[commit.Key{Shard: g.Shard, N: n}] = true
		}
	}
	return nil
}

// distrust looks for commits whose files are not what they say, or whose sites another has.
func (r *repairing) distrust(ctx context.Context) error {
	all := roaring64.New()
	for i := range r.past.Current {
		c := &r.past.Current[i]
		seqs, err := c.Bitmap()
		sound := err == nil && !seqs.Intersects(all) && len(verify.Misnamed(c, r.manifest)) == 0
		for k := 0; sound && k < len(c.Files); k++ {
			err := commit.HoldAgainst(ctx, r.store, c.Files[k])
			_, damaged := errors.AsType[*schema.DamagedError](err)
			if sound = err == nil; err != nil && !damaged && !errors.Is(err, store.ErrNotExist) {
				return fmt.Errorf("cannot read %s: %w", c.Files[k].Name, err) // it may be read later
			}
		}
		if sound {
			all.Or(seqs)
			continue
		}
		r.lost[c.Key()] = true
		for _, replaced := range c.Replaces { // whose rows are in these files, if anywhere
			r.lost[commit.Key{Shard: replaced.Shard, N: replaced.N}] = true
		}
	}
	return nil
}

// unseen adds the numbers of the last commits of a complete scan, of which only their files or the totals tell, so that they are
// not given again.
func (r *repairing) unseen(ctx context.Context) error {
	known := r.past.Stale()
	for _, commits := range [][]commit.Commit{r.past.Current, r.past.Replaced, r.past.Tombstones} {
		for i := range commits {
			known[commits[i].Key()] = true
		}
	}
	files, err := commit.PartFiles(ctx, r.store, r.options.ScanID, r.manifest.ScanDate)
	if err != nil {
		return err
	}
	for _, entry := range files {
		if shard, n, _ := commit.ShardOf(r.options.ScanID, path.Base(entry.Name)); !known[commit.Key{Shard: shard, N: n}] {
			r.lost[commit.Key{Shard: shard, N: n}] = true
		}
	}
	if r.manifest.Counts == nil {
		return nil
	}
	next := r.past.Next(r.options.Shard)
	for key := range r.lost {
		if key.Shard == r.options.Shard {
			next = max(next, key.N+1)
		}
	}
	for n := len(r.past.Current) + len(r.lost); n < r.manifest.Counts.Parts && len(r.lost) <= maxLost; n++ {
		r.lost[commit.Key{Shard: r.options.Shard, N: next}] = true
		next++
	}
	return nil
}

// check says whether what goes by the commits goes by those that there are.
func (r *repairing) check(ctx context.Context) error {
	r.stale = len(r.manifest.Unaccounted(r.past.Current)) > 0
	for _, table := range commit.RecordedFiles {
		sound, err := verify.RecordedIsSound(ctx, r.store, r.options.ScanID, table, r.manifest)
		if err != nil {
			return err
		}
		r.stale = r.stale || !sound
	}
	return nil
}

// last is the greatest of the numbers that are missing.
func (r *repairing) last() string {
	key := slices.MaxFunc(slices.Collect(maps.Keys(r.lost)), commit.Key.Compare)
	return commit.RecordName(r.options.ScanID, key.Shard, key.N)
}
