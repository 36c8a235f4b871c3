// Package repair answers one question: what has a scan lost? It finds the parts of a scan, or of a share of one, that
// are damaged or missing, and takes them out. Sites without a sound commit are fetched again when the scan continues,
// and then it is complete again.
//
// A commit is distrusted if its record cannot be read, if one of its files is missing or has other bytes, or if an
// earlier commit has one of its sites. One tombstone takes out all of these, and the numbers of missing records, which
// are not reused (see commit.TakeOut). From then on the scan has only sound data. A repair that is killed before the
// tombstone has taken out nothing. If it is killed afterwards, the same command fetches the remaining sites. The files
// of commits that were taken out are deleted later, like those that a compaction replaced.
package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// IntactError says that there is nothing to repair.
type IntactError struct {
	ScanID string
	State  commit.State
	Sites  uint64
}

func (e *IntactError) Error() string {
	if e.State == commit.Complete {
		return fmt.Sprintf("nothing to repair: scan %s has all its %d sites", e.ScanID, e.Sites)
	}
	return fmt.Sprintf(
		"nothing to repair: scan %s is not complete and has lost nothing; the same command without --repair continues it",
		e.ScanID)
}

// maxLost bounds the numbers that one tombstone takes out. A stray record with a far number would otherwise imply any
// number of missing parts.
const maxLost = 100_000

// Run takes distrusted commits out of a scan, or, if share is set, out of the share of this shard. Otherwise shard is
// that of the writer's parts. The caller holds the lock. If due returns an error, Run returns it and takes nothing out.
func Run(ctx context.Context, st store.Store, lock store.Unlocker, m *commit.Manifest, shard string, share bool,
	due func(*Found) error) error {
	fail := func(err error) error { return fmt.Errorf("cannot repair scan %s: %w", m.ScanID, err) }
	only, fenced := "", []string{shard, commit.CompactedShard}
	if share {
		only, fenced = shard, fenced[:1]
	}
	used, err := commit.UsedNumbers(ctx, st, m.ScanID, only)
	if err == nil {
		_, err = commit.Fence(ctx, st, lock, m, commit.TakenOver, used, fenced...)
	}
	if err != nil {
		return fail(err)
	}
	r := &Found{store: st, manifest: m, shard: shard, only: only, lost: map[commit.Key]bool{}}
	if err := r.find(ctx); err != nil {
		return fail(err)
	}
	if len(r.lost) > maxLost {
		return fail(fmt.Errorf("more than %d part numbers are missing, up to %s; move stray records and files away", maxLost,
			r.last()))
	}
	if err := due(r); err != nil {
		return err
	}
	if len(r.lost) > 0 {
		if _, err := commit.TakeOut(ctx, st, m, commit.Repaired, cmp.Or(only, commit.CompactedShard), r.Past,
			r.lost); err != nil {
			return fail(err)
		}
	}
	for _, name := range r.unreadable {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// Intact returns an *IntactError if the scan needs no repair.
func (r *Found) Intact() error {
	m := r.manifest
	if len(r.lost) > 0 || m.Repairing || r.stale {
		return nil
	}
	sites, _ := commit.SitesOf(r.Past.Current)
	return &IntactError{ScanID: m.ScanID, State: m.State, Sites: sites.GetCardinality()}
}

// Found is the losses of a scan, or of a share of one.
type Found struct {
	Past *commit.History // the readable records

	store      store.Store
	manifest   *commit.Manifest
	shard      string              // of the writer's parts
	only       string              // the shard, if only this share is repaired; "" is all shards
	unreadable []string            // names of unreadable records
	lost       map[commit.Key]bool // distrusted commits and missing numbers
	stale      bool                // totals, statistics, rejects or records of shares do not match the commits
}

// NoPart reports whether no part is lost.
func (r *Found) NoPart() bool { return len(r.lost) == 0 }

// find sets Past, unreadable, lost and stale.
func (r *Found) find(ctx context.Context) (err error) {
	r.Past, err = commit.GatherHistory(ctx, r.store, r.manifest.ScanID, r.only, func(name string, c *commit.Commit,
		err error) (*commit.Commit, error) {
		key, ok := commit.KeyOf(name)
		if !errors.Is(err, commit.ErrRecord) || !ok {
			return c, err
		}
		r.lost[key], r.unreadable = true, append(r.unreadable, name)
		return nil, nil
	})
	if err != nil {
		return err
	}
	if err := r.distrust(ctx); err != nil {
		return err
	}
	if r.manifest.State == commit.Complete {
		if err := errors.Join(r.unseen(ctx), r.check(ctx)); err != nil {
			return err
		}
	}
	for _, g := range r.Past.Gaps(slices.Collect(maps.Keys(r.lost))...) {
		for n := g.From; n < g.Until && len(r.lost) <= maxLost; n++ {
			r.lost[commit.Key{Shard: g.Shard, N: n}] = true
		}
	}
	return nil
}

// distrust finds commits whose files do not match their records, or whose sites another commit has.
func (r *Found) distrust(ctx context.Context) error {
	all := roaring64.New()
	for i := range r.Past.Current {
		c := &r.Past.Current[i]
		seqs, err := c.Bitmap()
		sound := err == nil && !seqs.Intersects(all) && len(verify.Misnamed(c, r.manifest)) == 0
		for k := 0; sound && k < len(c.Files); k++ {
			if sound, err = table.IsSound(ctx, r.store, c.Files[k]); err != nil {
				return err
			}
		}
		if sound {
			all.Or(seqs)
			continue
		}
		r.lost[c.Key()] = true
		for _, replaced := range c.Replaces { // their rows were in these files
			r.lost[commit.Key{Shard: replaced.Shard, N: replaced.N}] = true
		}
	}
	return nil
}

// unseen adds the numbers of a complete scan's last commits if only their files or the totals show them, so that these
// numbers are not reused.
func (r *Found) unseen(ctx context.Context) error {
	known := map[commit.Key]bool{}
	for key := range r.Past.Keys() {
		known[key] = true
	}
	files, err := commit.PartFiles(ctx, r.store, r.manifest.ScanID, r.manifest.ScanDate, "")
	if err != nil {
		return err
	}
	for _, entry := range files {
		if shard, n, _ := commit.ShardOf(r.manifest.ScanID, path.Base(entry.Name)); !known[commit.Key{Shard: shard, N: n}] {
			r.lost[commit.Key{Shard: shard, N: n}] = true
		}
	}
	if r.manifest.Counts == nil {
		return nil
	}
	next := r.Past.Next(r.shard)
	for key := range r.lost {
		if key.Shard == r.shard {
			next = max(next, key.N+1)
		}
	}
	for n := len(r.Past.Current) + len(r.lost); n < r.manifest.Counts.Parts && len(r.lost) <= maxLost; n++ {
		r.lost[commit.Key{Shard: r.shard, N: next}] = true
		next++
	}
	return nil
}

// check sets stale if totals, statistics or rejects do not match the commits, or if the record of a share cannot be
// read.
func (r *Found) check(ctx context.Context) error {
	r.stale = len(r.manifest.Unaccounted(r.Past.Current)) > 0
	for _, name := range commit.RecordedFiles {
		sound, err := verify.RecordedIsSound(ctx, r.store, r.manifest.ScanID, name, r.manifest)
		if err != nil {
			return err
		}
		r.stale = r.stale || !sound
	}
	for i := range r.manifest.Shares {
		shard := strconv.Itoa(i)
		if _, err := commit.ReadShareRecord(ctx, r.store, r.manifest.ScanID, shard); errors.Is(err, commit.ErrRecord) {
			r.unreadable, r.stale = append(r.unreadable, commit.ShareName(r.manifest.ScanID, shard)), true
		}
	}
	return nil
}

func (r *Found) last() string {
	key := slices.MaxFunc(slices.Collect(maps.Keys(r.lost)), commit.Key.Compare)
	return commit.RecordName(r.manifest.ScanID, key.Shard, key.N)
}
