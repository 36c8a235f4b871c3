package commit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/store"
)

// History is every commit record of a scan.
type History struct {
	Current    []Commit // the commits that count, in the order of their rows
	Replaced   []Commit // replaced by a compaction, restart or repair that was killed, or has not yet deleted them
	Claimed    []string // empty records: names that a killed process claimed
	Tombstones []Commit // records without a part

	shard string // the only shard whose records were read; "" for all
}

// replacement says where a commit's rows are now; ok is false if no compaction has them.
func (h *History) replacement(c *Commit) (by *Commit, where Replaced, ok bool) {
	for i := range h.Current {
		for _, r := range h.Current[i].Replaces {
			if r.Shard == c.Shard && r.N == c.N {
				return &h.Current[i], r, true
			}
		}
	}
	return nil, Replaced{}, false
}

// Next is the lowest number that no commit of a shard has reached yet.
func (h *History) Next(shard string) int {
	next := 0
	for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
		for i := range commits {
			if commits[i].Shard == shard {
				next = max(next, commits[i].N+1)
			}
			for _, r := range commits[i].Replaces {
				if r.Shard == shard {
					next = max(next, r.N+1)
				}
			}
		}
	}
	return next
}

// shards returns the given shards and those that any record belongs to or mentions, sorted, each once.
func (h *History) shards(and ...string) []string {
	shards := slices.Clone(and)
	for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
		for i := range commits {
			shards = append(shards, commits[i].Shard)
			for _, r := range commits[i].Replaces {
				shards = append(shards, r.Shard)
			}
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// Commits reads the commits of a scan that count, in the order of their rows: by shard and number, with a compaction at
// the place of the commits that it replaced.
func Commits(ctx context.Context, st store.Store, scanID string) ([]Commit, error) {
	h, err := ReadHistory(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	return h.Current, nil
}

// ReadHistory reads every record of a scan.
func ReadHistory(ctx context.Context, st store.Store, scanID string) (*History, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	h, err := GatherHistory(ctx, st, scanID, func(_ string, c *Commit, err error) (*Commit, error) { return c, err })
	if err != nil {
		return nil, fmt.Errorf("cannot read the commits of scan %s: %w", scanID, err)
	}
	return h, nil
}

// ReadShard reads every record of one shard. What is done with that History leaves other shards alone.
func ReadShard(ctx context.Context, st store.Store, scanID, shard string) (*History, error) {
	h, err := gather(ctx, st, scanID, CommitsFolder(scanID)+shard+"-", func(_ string, c *Commit, err error) (*Commit, error) { return c, err })
	if err != nil {
		return nil, fmt.Errorf("cannot read the commits of scan %s: %w", scanID, err)
	}
	h.shard = shard
	return h, nil
}

// again reads the same records as they are now.
func (h *History) again(ctx context.Context, st store.Store, scanID string) (*History, error) {
	if h.shard != "" {
		return ReadShard(ctx, st, scanID, h.shard)
	}
	return ReadHistory(ctx, st, scanID)
}

// GatherHistory lists the records until two listings in a row show no compaction, and reads each record once. A listing
// that overlaps a compaction may show neither the old records nor the new one. The new record is published before the
// old ones are deleted, so a second listing shows it. New records of a running scan do not cause another listing, which
// would otherwise go on until the scan ends. Each result of reading goes through judge, in the order of the names; a
// record for which judge returns nil is left out.
func GatherHistory(ctx context.Context, st store.Store, scanID string, judge func(name string, c *Commit, err error) (*Commit, error)) (*History, error) {
	return gather(ctx, st, scanID, CommitsFolder(scanID), judge)
}

// gather is GatherHistory for the records whose names begin with a prefix.
func gather(ctx context.Context, st store.Store, scanID, prefix string, judge func(name string, c *Commit, err error) (*Commit, error)) (*History, error) {
	type record struct {
		size   int64
		commit *Commit
	}
	known := map[string]record{} // by name
	var before []store.Entry
	for {
		var listed []store.Entry
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if IsRecord(scanID, entry.Name) {
				listed = append(listed, store.Entry{Name: entry.Name, Size: entry.Size})
			}
		}
		vanished := false
		var unread []store.Entry
		for _, entry := range listed {
			if r, ok := known[entry.Name]; ok && r.size == entry.Size {
				continue
			}
			if known[entry.Name] = (record{size: entry.Size}); entry.Size != 0 {
				unread = append(unread, entry)
			}
		}
		for entry, result := range readCommits(ctx, st, scanID, unread) {
			commit, err := judge(entry.Name, result.commit, result.err)
			if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) {
				vanished = true
				delete(known, entry.Name)
				continue
			} else if err != nil {
				return nil, err
			}
			known[entry.Name] = record{entry.Size, commit}
		}
		if before != nil && !vanished && !compactedBetween(before, listed) {
			before = listed
			break
		}
		if before = listed; before == nil {
			before = []store.Entry{}
		}
	}
	h := &History{}
	var commits []*Commit
	for _, entry := range before {
		if r := known[entry.Name]; r.commit != nil {
			commits = append(commits, r.commit)
		} else if entry.Size == 0 {
			h.Claimed = append(h.Claimed, entry.Name)
		}
	}
	h.sort(commits)
	return h, nil
}

// compactedBetween reports whether a record vanished between two listings, or a record of a compaction appeared.
func compactedBetween(before, listed []store.Entry) bool {
	sizes := make(map[string]int64, len(before))
	for _, entry := range before {
		sizes[entry.Name] = entry.Size
	}
	for _, entry := range listed {
		size, ok := sizes[entry.Name]
		if delete(sizes, entry.Name); strings.HasPrefix(path.Base(entry.Name), CompactedShard+"-") && (!ok || size != entry.Size) {
			return true
		}
	}
	return len(sizes) > 0
}

// readResult is the result of reading a record.
type readResult struct {
	commit *Commit
	err    error
}

// readCommits reads records, ReadAtOnce at a time, and yields them in their order.
func readCommits(ctx context.Context, st store.Store, scanID string, entries []store.Entry) iter.Seq2[store.Entry, readResult] {
	read := func(ctx context.Context, entry store.Entry) (r readResult) {
		r.commit, r.err = ReadCommit(ctx, st, scanID, entry.Name)
		return r
	}
	return Ahead(ctx, entries, read, func(readResult) {})
}

// Counts reports whether the scan has rows of that part: its commit counts, or a compaction holds its rows. It is false
// after a restart or repair took the part out.
func (h *History) Counts(shard string, n int) bool {
	for i := range h.Tombstones {
		v := &h.Tombstones[i]
		if v.Shard == shard && (v.N == n || v.Tombstone == Restarted && n < v.N) {
			return false
		}
		if slices.ContainsFunc(v.Replaces, func(r Replaced) bool {
			return r.Shard == shard && (n == r.N || v.Tombstone == Restarted && n < r.N)
		}) {
			return false
		}
	}
	return n < h.Next(shard)
}

// Stale returns every commit that a compaction replaced, or that a restart or repair took out, whether or not its
// record still exists.
func (h *History) Stale() map[Key]bool {
	stale := map[Key]bool{}
	for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
		for i := range commits {
			for _, r := range commits[i].Replaces {
				stale[Key{r.Shard, r.N}] = true
			}
		}
	}
	return stale
}

// Gap is a range of missing numbers of a shard: From to Until-1.
type Gap struct {
	Shard       string
	From, Until int
}

// Gaps returns the missing records: a shard numbers its commits without gaps. The keys in more count as present: their
// records exist and cannot be read.
func (h *History) Gaps(more ...Key) []Gap {
	first := map[string]int{} // by shard: the first number that counts; after a restart, earlier ones are not missing
	var there []Key
	for i := range h.Tombstones {
		c := &h.Tombstones[i]
		if c.Tombstone == Restarted {
			first[c.Shard] = max(first[c.Shard], c.N)
			for _, r := range c.Replaces {
				first[r.Shard] = max(first[r.Shard], r.N+1)
			}
		}
	}
	for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
		for i := range commits {
			there = append(there, commits[i].Key())
		}
	}
	there = slices.AppendSeq(append(there, more...), maps.Keys(h.Stale()))
	slices.SortFunc(there, Key.Compare)
	var gaps []Gap
	shard, next := "", 0
	for _, key := range there {
		if key.Shard != shard {
			shard, next = key.Shard, first[key.Shard]
		}
		if key.Shard != CompactedShard && key.N > next { // a killed compaction may leave a gap
			gaps = append(gaps, Gap{shard, next, key.N})
		}
		next = max(next, key.N+1)
	}
	return gaps
}

// Missing describes the gap, as text that follows the name of its first record.
func (g Gap) Missing() string {
	if g.Until-g.From > 1 {
		return fmt.Sprintf("it is missing, and so are the %d after it: its shard has later commits", g.Until-g.From-1)
	}
	return "it is missing: its shard has later commits"
}

// sort divides the records into commits that count, replaced commits, and tombstones.
func (h *History) sort(commits []*Commit) {
	for _, c := range commits {
		if c.Tombstone != "" {
			h.Tombstones = append(h.Tombstones, *c)
		} else {
			h.Current = append(h.Current, *c)
		}
	}
	stale := h.Stale()
	h.Current = h.Current[:0]
	for _, c := range commits {
		switch {
		case c.Tombstone != "":
		case stale[c.Key()]:
			h.Replaced = append(h.Replaced, *c)
		default:
			h.Current = append(h.Current, *c)
		}
	}
	// A compaction takes the place of its first row.
	first := func(c *Commit) Key {
		if len(c.Replaces) > 0 {
			return Key{c.Replaces[0].Shard, c.Replaces[0].N}
		}
		return c.Key()
	}
	slices.SortFunc(h.Current, func(a, b Commit) int { return first(&a).Compare(first(&b)) })
}
