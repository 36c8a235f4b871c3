package commit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
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

// replacement says where the rows of a commit are now; ok is false if no compaction has them.
func (h *History) replacement(key Key) (by *Commit, where Replaced, ok bool) {
	for i := range h.Current {
		for _, r := range h.Current[i].Replaces {
			if r.Key() == key {
				return &h.Current[i], r, true
			}
		}
	}
	return nil, Replaced{}, false
}

// Keys yields the key of each record, and of each commit that one of them replaces, whether or not its record still
// exists.
func (h *History) Keys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
			for i := range commits {
				if !yield(commits[i].Key()) {
					return
				}
			}
		}
		for key := range h.Stale() {
			if !yield(key) {
				return
			}
		}
	}
}

// Next is the number after the highest that any record of a shard has or mentions.
func (h *History) Next(shard string) int {
	next := 0
	for key := range h.Keys() {
		if key.Shard == shard {
			next = max(next, key.N+1)
		}
	}
	return next
}

// shards returns the given shards and those that any record belongs to or mentions, sorted, each once.
func (h *History) shards(and ...string) []string {
	shards := slices.Clone(and)
	for key := range h.Keys() {
		shards = append(shards, key.Shard)
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
	return ReadShard(ctx, st, scanID, "")
}

// ReadShard reads every record of one shard; "" is all. Changes that are based on that History leave other shards
// alone.
func ReadShard(ctx context.Context, st store.Store, scanID, shard string) (*History, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	h, err := GatherHistory(ctx, st, scanID, shard, func(name string, c *Commit, err error) (*Commit, error) {
		if err != nil {
			err = &recordError{name, err}
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the commits of scan %s: %w", scanID, err)
	}
	return h, nil
}

// recordError is an error of reading the record of that name.
type recordError struct {
	name string
	error
}

func (e *recordError) Unwrap() error { return e.error }

// GatherHistory lists the records of one shard, or of all (""), and reads each once. It passes each result of reading
// to judge, in the order of the names of one listing, and leaves out records for which judge returns nil.
//
// A compaction, restart or repair publishes its record before it deletes those that it replaces; one listing may miss
// both. So GatherHistory repeats the listing of the shard "compacted" until two in a row are equal. It does not repeat
// that of other shards, which a running scan extends until its end. If a record vanishes before it is read, all records
// are listed again; if the same record vanishes twice, its error is returned.
func GatherHistory(ctx context.Context, st store.Store, scanID, shard string, judge func(name string, c *Commit,
	err error) (*Commit, error)) (*History, error) {
	read := func(ctx context.Context, name string) (*Commit, error) { return ReadCommit(ctx, st, scanID, name) }
	records := map[string]*Commit{} // by name; nil: left out
	gone := map[string]bool{}       // listed, and deleted before they were read
	all, compactions := CommitsFolder(scanID), CommitsFolder(scanID)+CompactedShard+"-"
	if shard != "" {
		all += shard + "-"
	}
	var before []store.Entry // of compactions
	h := &History{shard: shard}
	for prefix := all; ; {
		var listed []store.Entry
		var unread []string
		h.Claimed = slices.DeleteFunc(h.Claimed, func(name string) bool { return strings.HasPrefix(name, prefix) })
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if !IsRecord(scanID, entry.Name) {
				continue
			}
			if strings.HasPrefix(entry.Name, compactions) {
				listed = append(listed, store.Entry{Name: entry.Name, Size: entry.Size})
			}
			if _, known := records[entry.Name]; entry.Size == 0 {
				h.Claimed = append(h.Claimed, entry.Name)
			} else if !known {
				unread = append(unread, entry.Name)
			}
		}
		if prefix == compactions && slices.Equal(before, listed) {
			break
		}
		prefix, before = compactions, listed
		for name, r := range store.ReadAhead(ctx, unread, read) {
			c, err := judge(name, r.Value, r.Err)
			if vanished := errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged); vanished && !gone[name] {
				gone[name], prefix = true, all
				continue
			} else if err != nil {
				return nil, err
			}
			records[name] = c
		}
	}
	h.sort(records)
	return h, nil
}

// Counts reports whether the scan has rows of that part: its commit counts, or a compaction has them.
func (h *History) Counts(shard string, n int) bool {
	key := Key{shard, n}
	_, _, merged := h.replacement(key)
	return merged || slices.ContainsFunc(h.Current, func(c Commit) bool { return c.Key() == key })
}

// Stale returns every commit that a compaction replaced, or that a restart or repair took out, whether or not its
// record still exists.
func (h *History) Stale() map[Key]bool {
	stale := map[Key]bool{}
	for _, commits := range [][]Commit{h.Current, h.Replaced, h.Tombstones} {
		for i := range commits {
			for _, r := range commits[i].Replaces {
				stale[r.Key()] = true
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
	for i := range h.Tombstones {
		c := &h.Tombstones[i]
		if c.Tombstone == Restarted {
			first[c.Shard] = max(first[c.Shard], c.N)
			for _, r := range c.Replaces {
				first[r.Shard] = max(first[r.Shard], r.N+1)
			}
		}
	}
	var gaps []Gap
	shard, next := "", 0
	for _, key := range slices.SortedFunc(slices.Values(slices.AppendSeq(slices.Clone(more), h.Keys())), Key.Compare) {
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

// sort divides the records, by name, into commits that count, replaced commits, and tombstones.
func (h *History) sort(records map[string]*Commit) {
	stale := map[Key]bool{}
	for _, c := range records {
		if c != nil {
			for _, r := range c.Replaces {
				stale[r.Key()] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		switch c := records[name]; {
		case c == nil:
		case c.Tombstone != "":
			h.Tombstones = append(h.Tombstones, *c)
		case stale[c.Key()]:
			h.Replaced = append(h.Replaced, *c)
		default:
			h.Current = append(h.Current, *c)
		}
	}
	// A compaction takes the place of its first row.
	first := func(c *Commit) Key {
		if len(c.Replaces) > 0 {
			return c.Replaces[0].Key()
		}
		return c.Key()
	}
	slices.SortFunc(h.Current, func(a, b Commit) int { return first(&a).Compare(first(&b)) })
}
