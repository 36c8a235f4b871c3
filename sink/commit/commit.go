// Package commit answers one question: what counts? It has the records beside the tables: a scan's manifest, the commits that make parts
// count, the tombstones that take some out, and the rejects; the lock of a scan, what is missing of it (account.go), and the scan
// opened for reading (scan.go). Names of files are in names.go.
package commit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file is the records that make parts count. A commit is written after all of its part's files and never changed; a
// file that no commit names is none of the dataset. A compaction (compact.go) writes a commit that names others, whose
// rows it holds: from then on those are history, whether or not their records and files are still there.
//
// Where a lock is a lease (store.Lease), the commit of a writer that has lost it may arrive at any later time. It would count,
// though its sites have been asked again. So who takes the lock first creates a tombstone, which is a record of no part, under the
// number that such a commit would have: a shard commits one part at a time, so that there is one such number. Either the
// tombstone is there first, and the late commit is refused; or the commit is, and it counts. Tombstones stay.

// Commit is the record that makes a part count: it is written after all of the part's files, and a file that no commit
// names is none of the dataset.
type Commit struct {
	SchemaVersion   int           `json:"schema_version"`
	ToolVersion     string        `json:"tool_version"`
	RegistryVersion string        `json:"registry_version"`
	ScanID          string        `json:"scan_id"`
	Shard           string        `json:"shard"`
	N               int           `json:"n"`
	CommittedAt     time.Time     `json:"committed_at"`
	Rows            int64         `json:"rows"` // finished origins
	Files           []schema.File `json:"files"`
	Finished        []byte        `json:"finished_seq"` // bitmap of their seq: 64-bit Roaring, portable format

	// Of a compaction: the commits whose rows it holds, in the order of the rows, each before the one that had replaced
	// it; and how many bytes the files of those that a scan wrote had together.
	Replaces    []Replaced `json:"replaces,omitempty"`
	MergedBytes int64      `json:"merged_bytes,omitempty"`

	Rejudged *Rejudged `json:"judged_again,omitempty"` // of a part that was made of a stored one (package reaudit)

	// Tombstone says why the record is that of no part: it keeps the number from a writer that has lost the scan's lock; or it
	// takes out the commits that it replaces, whose scan is being deleted, or which are damaged or lost.
	Tombstone Tombstone `json:"tombstone,omitempty"`

	Sum string `json:"sum,omitempty"` // see sealRecord
}

// Tombstone is why a record has no part.
type Tombstone string

// The kinds of tombstones.
const (
	TakenOver Tombstone = "taken over"
	LeftOut   Tombstone = "left out"  // of the part that it would have been made of, which is damaged (package reaudit)
	Restarted Tombstone = "restarted" // and the numbers before it are those of a scan that was deleted; or it is one that takes out
	Repaired  Tombstone = "repaired"  // it takes out what is damaged, and numbers that are missing; their sites are asked again
)

// Replaced says where a compaction keeps the rows of a commit: in each of its Files, in their order, Rows[i] rows from
// First[i] on. A reader that had listed the commit before finds its rows there.
type Replaced struct {
	Shard string  `json:"shard"`
	N     int     `json:"n"`
	First []int64 `json:"first"`
	Rows  []int64 `json:"rows"`
}

// Bitmap returns the finished seq.
func (c *Commit) Bitmap() (*roaring64.Bitmap, error) {
	b, err := readBitmap(c.Finished)
	if err != nil {
		return nil, fmt.Errorf("cannot read the bitmap of commit %s: %w", c.Name(), err)
	}
	if n := b.GetCardinality(); n != uint64(c.Rows) {
		return nil, fmt.Errorf("cannot read the bitmap of commit %s: it has %d entries for %d rows", c.Name(), n, c.Rows)
	}
	return b, nil
}

// readBitmap reads a bitmap that may be damaged: the reader makes room for as many containers as the first 8 bytes say,
// and panics on some damage. A container takes its key (4 bytes) and a header (8 bytes) at least.
func readBitmap(data []byte) (b *roaring64.Bitmap, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("it is damaged: %v", p)
		}
	}()
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8)/12 {
		return nil, fmt.Errorf("it is damaged: %d bytes hold no such number of containers", len(data))
	}
	b = roaring64.New()
	n, err := b.ReadFrom(bytes.NewReader(data))
	if err == nil && n != int64(len(data)) {
		err = fmt.Errorf("it is damaged: it ends after %d of %d bytes", n, len(data))
	}
	return b, err
}

// File returns the commit's file of a table; ok is false where it has none.
func (c *Commit) File(table string) (file schema.File, ok bool) {
	i := slices.IndexFunc(c.Files, func(f schema.File) bool { return f.Table == table })
	if i < 0 {
		return schema.File{}, false
	}
	return c.Files[i], true
}

// Name is the name of the commit's record in the dataset.
func (c *Commit) Name() string { return RecordName(c.ScanID, c.Shard, c.N) }

// Bytes is the size of all the commit's files.
func (c *Commit) Bytes() (n int64) {
	for _, f := range c.Files {
		n += f.Bytes
	}
	return n
}

func (c *Commit) Write(ctx context.Context, st store.Store) error {
	data, err := SealRecord(c, &c.Sum)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", c.Name(), err)
	}
	return st.CreateIfAbsent(ctx, c.Name(), data)
}

// ReadCommit reads a record, and checks all that can be told from the record alone. That of a later version comes with a
// *NewerError.
func ReadCommit(ctx context.Context, st store.Store, scanID, name string) (*Commit, error) {
	data, err := store.ReadAll(ctx, st, name, schema.MaxCommit)
	if err != nil {
		return nil, err
	}
	c := &Commit{}
	if err := OpenRecord(data, c, &c.Sum); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if c.Name() != name || c.ScanID != scanID || CheckShard(c.Shard) != nil && c.Shard != CompactedShard {
		return nil, fmt.Errorf("cannot read %s: %w: it calls itself %.200q", name, ErrRecord, c.Name())
	}
	for _, f := range c.Files {
		if err := store.CheckName(f.Name); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
	}
	takesOut := (c.Tombstone == Restarted || c.Tombstone == Repaired) && c.Shard == CompactedShard
	if c.Tombstone != "" && (c.Rows != 0 || len(c.Files) > 0 || len(c.Replaces) > 0 && !takesOut) {
		return nil, fmt.Errorf("cannot read %s: it is of no part, and has one", name)
	}
	if c.Tombstone == "" && (c.Shard == CompactedShard) != (len(c.Replaces) > 0) {
		return nil, fmt.Errorf("cannot read %s: %d commits replaced", name, len(c.Replaces))
	}
	for _, r := range c.Replaces {
		if len(r.First) != len(c.Files) || len(r.Rows) != len(c.Files) || r.Shard == c.Shard && r.N >= c.N {
			return nil, fmt.Errorf("cannot read %s: it does not say where the rows of commit %.40q %d are", name, r.Shard, r.N)
		}
	}
	if err := schema.CheckVersion(c.SchemaVersion); err != nil {
		return c, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return c, nil
}

// History is every commit record of a scan.
type History struct {
	Current    []Commit // those that count, in the order of their rows
	Replaced   []Commit // those whose rows a compaction has, or that a restart or repair deletes; it was killed, or is about to
	Claimed    []string // empty records: names that were claimed by a process that died
	Tombstones []Commit // records of no part
}

// replacement is where the rows of a commit are now; ok is false where no compaction has them.
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

// Next is the first number that no commit of a shard has ever had.
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

// shards are those that any record is of or mentions, and the ones given, each once and in order.
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

// Commits reads the commits of a scan that count, in the order of their rows: by shard and number, a compaction in the
// place of what it replaced.
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

// GatherHistory lists the records until no compaction shows, and reads each once. A listing that runs while a compaction
// replaces records may show neither the old ones nor the new one: the new one had its name before the old ones lost
// theirs, so a second listing shows it. Records that a scan has added in between are no reason to list again: that would
// not end before the scan does. What was read of each record, or why it was not, goes through judge, one
// after the other in the order of their names; a record that it returns as nil is left out.
func GatherHistory(ctx context.Context, st store.Store, scanID string, judge func(name string, c *Commit, err error) (*Commit, error)) (*History, error) {
	type record struct {
		size   int64
		commit *Commit
	}
	known := map[string]record{} // by name
	var before []store.Entry
	for {
		var listed []store.Entry
		for entry, err := range st.List(ctx, CommitsFolder(scanID)) {
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(entry.Name, ".json") {
				listed = append(listed, store.Entry{Name: entry.Name, Size: entry.Size})
			}
		}
		vanished := false
		var unread []store.Entry
		for _, entry := range listed {
			if r, ok := known[entry.Name]; ok && r.size == entry.Size {
				continue
			}
			if known[entry.Name] = (record{size: entry.Size}); entry.Size > 0 {
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

// compactedBetween reports whether a record of one listing is not in the next, or the next has a record of a compaction
// that the one before has not.
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

// readResult is what became of reading a record.
type readResult struct {
	commit *Commit
	err    error
}

// readCommits reads records, some at a time, and yields them in their order.
func readCommits(ctx context.Context, st store.Store, scanID string, entries []store.Entry) iter.Seq2[store.Entry, readResult] {
	read := func(ctx context.Context, entry store.Entry) (r readResult) {
		r.commit, r.err = ReadCommit(ctx, st, scanID, entry.Name)
		return r
	}
	return Ahead(ctx, entries, read, func(readResult) {})
}

// Key is a commit's name within its scan.
type Key struct {
	Shard string
	N     int
}

// Key returns the commit's key.
func (c *Commit) Key() Key { return Key{c.Shard, c.N} }

// Compare orders keys as parts are ordered: by shard and number.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Shard, other.Shard), cmp.Compare(k.N, other.N))
}

// Counts reports whether there has been a commit of that number whose rows are those of the scan: also where a compaction has
// them now, but not where a restart or repair has taken them out since.
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

// Stale is every commit whose rows a compaction has, or that a restart or repair has taken out, whether or not its record is still there.
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

// Gap is numbers from one on and before another that must have been those of commits, and are not.
type Gap struct {
	Shard       string
	From, Until int
}

// Gaps are the records that must have been there: a shard numbers its commits without gaps. Some more are there for
// certain, though they cannot be read.
func (h *History) Gaps(more ...Key) []Gap {
	first := map[string]int{} // number that a shard has begun with: what was missing before a restart is not missed after it
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
		if key.Shard != CompactedShard && key.N > next { // a killed compaction leaves gaps
			gaps = append(gaps, Gap{shard, next, key.N})
		}
		next = max(next, key.N+1)
	}
	return gaps
}

// Missing says what is missing of a gap behind the first record of that name.
func (g Gap) Missing() string {
	if g.Until-g.From > 1 {
		return fmt.Sprintf("it is missing, and so are the %d behind it: its shard has later commits", g.Until-g.From-1)
	}
	return "it is missing: its shard has later commits"
}

// sort tells the commits that count from those whose rows others have.
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
	// A compaction stands where the first of its rows stood.
	first := func(c *Commit) Key {
		if len(c.Replaces) > 0 {
			return Key{c.Replaces[0].Shard, c.Replaces[0].N}
		}
		return c.Key()
	}
	slices.SortFunc(h.Current, func(a, b Commit) int { return first(&a).Compare(first(&b)) })
}

// Fence keeps what an earlier holder of the scan's lock may still have on its way from counting, where the lock is a
// lease and there may be such a thing. The history is what was read with the lock held; it returns what there is now. The
// shards are those that are given, those that have records, and those that have parts of that date ("" is any): of a shard's
// first commit, which is sent when its files have their names, nothing else tells.
func Fence(ctx context.Context, st store.Store, lock store.Unlocker, like Commit, date string, past *History, shards ...string) (*History, error) {
	lease, ok := lock.(store.Lease)
	if !ok || !lease.Late() {
		return past, nil
	}
	parts, err := partNumbers(ctx, st, like.ScanID, date)
	if err != nil {
		return nil, err
	}
	shards = slices.AppendSeq(shards, maps.Keys(parts))
	fenced := map[string]bool{}
	for range fenceRounds {
		arrived := false
		for _, shard := range past.shards(shards...) {
			if fenced[shard] {
				continue
			}
			tombstone, err := NewTombstone(like, shard, past.Next(shard))
			if err == nil {
				err = tombstone.Write(ctx, st)
			}
			if errors.Is(err, store.ErrExist) {
				arrived = true // which is the one that there may be
				continue
			}
			if err != nil {
				return nil, err
			}
			fenced[shard] = true
			past.Tombstones = append(past.Tombstones, *tombstone)
		}
		if !arrived {
			lease.Fenced()
			return past, nil
		}
		if past, err = ReadHistory(ctx, st, like.ScanID); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("cannot take over scan %s: the store has records that it does not list", like.ScanID)
}

// fenceRounds bounds how often a record may arrive while a scan is taken over. Once is all that can be.
const fenceRounds = 5

// NewTombstone is the record of no part that keeps a number.
func NewTombstone(like Commit, shard string, n int) (*Commit, error) {
	nothing, err := roaring64.New().ToBytes()
	like.Shard, like.N, like.Files, like.Finished = shard, n, []schema.File{}, nothing
	like.CommittedAt = time.Now().UTC().Truncate(time.Millisecond)
	return &like, err
}

// Written is how many bytes the files had in which a scan wrote the commit's rows, and how many parts they were.
func (c *Commit) Written() (bytes int64, parts int) {
	if c.Shard != CompactedShard {
		return c.Bytes(), 1
	}
	for _, r := range c.Replaces {
		if r.Shard != CompactedShard {
			parts++
		}
	}
	return c.MergedBytes, parts
}

// String is how a commit's record is called, without its folder.
func (k Key) String() string { return fmt.Sprintf("%s-%d", k.Shard, k.N) }
