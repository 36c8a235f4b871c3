// Package commit answers one question: what counts? It keeps the records beside the tables: a scan's manifest, its
// commits, tombstones and rejects, and its lock; and the heads of a dataset. commit.go has the commit record,
// history.go all commits of a scan, fence.go the takeover of a lease, head.go and change.go what counts in the dataset,
// account.go what is missing, scan.go the scan opened for reading, names.go the names of files.
package commit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// A commit is written after all files of its part and never changed. A file that no commit names is not part of the
// dataset. The commit of a compaction names the commits whose rows it holds. From then on these do not count, even
// while their records and files still exist.

// Commit is the record that makes a part count.
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
	Finished        []byte        `json:"finished_seq"` // bitmap of the seq of these origins: 64-bit Roaring, portable format

	// Set by a compaction: the commits whose rows it holds, in the order of the rows, each before the commit that replaced
	// it. MergedBytes is the size of the files as the scan wrote them.
	Replaces    []Replaced `json:"replaces,omitempty"`
	MergedBytes int64      `json:"merged_bytes,omitempty"`

	Rejudged *Rejudged `json:"judged_again,omitempty"` // set if the part was made from a stored one

	// Tombstone says why the record has no part: it blocks a number for a writer that lost the scan's lock, or it takes
	// out the commits that it replaces.
	Tombstone Tombstone `json:"tombstone,omitempty"`

	Sum string `json:"sum,omitempty"` // see SealRecord
}

// Tombstone is the reason why a record has no part.
type Tombstone string

// The kinds of tombstones.
const (
	TakenOver Tombstone = "taken over" // the number is blocked for a writer that lost the lock
	LeftOut   Tombstone = "left out"   // the stored part that this part should be made from is damaged
	// takes out the commits of a deleted scan, or only blocks a number; lower numbers of its shard do not count
	Restarted Tombstone = "restarted"
	Repaired  Tombstone = "repaired" // takes out damaged commits and missing numbers, whose sites are fetched again
)

// Replaced says where a compaction keeps the rows of a commit: Rows[i] rows from row First[i] on, in Files[i] of the
// compaction's commit. A reader that listed the replaced commit finds its rows there.
type Replaced struct {
	Shard string  `json:"shard"`
	N     int     `json:"n"`
	First []int64 `json:"first"`
	Rows  []int64 `json:"rows"`
}

// Key returns the key of the replaced commit.
func (r *Replaced) Key() Key { return Key{r.Shard, r.N} }

// Bitmap returns the seq of the finished origins.
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

// readBitmap reads a bitmap that may be damaged. The library panics on some damage, and allocates as many containers as
// the first 8 bytes say. So the number is checked: a container takes at least 12 bytes, a key (4) and a header (8).
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

// File returns the commit's file of a table; ok is false if it has none.
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
	return WriteRecord(ctx, st.CreateIfAbsent, c.Name(), c, &c.Sum)
}

// ReadCommit reads a record and checks everything that the record alone can show. If a later version wrote it,
// ReadCommit returns it with a *schema.NewerError.
func ReadCommit(ctx context.Context, st store.Store, scanID, name string) (*Commit, error) {
	c := &Commit{}
	if err := ReadRecord(ctx, st, name, schema.MaxCommit, c, &c.Sum); err != nil {
		return nil, err
	}
	if c.Name() != name || c.ScanID != scanID || !isShard(c.Shard) {
		return nil, fmt.Errorf("cannot read %s: %w: its content is that of %.200q", name, ErrRecord, c.Name())
	}
	for _, f := range c.Files {
		if err := store.CheckName(f.Name); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
	}
	takesOut := (c.Tombstone == Restarted || c.Tombstone == Repaired) && c.Shard == CompactedShard ||
		c.Tombstone == Repaired && !slices.ContainsFunc(c.Replaces, func(r Replaced) bool { return r.Shard != c.Shard })
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

// Written returns the bytes and the number of the parts in which the scan wrote the commit's rows.
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

// String is the name of the commit's record without folder and suffix.
func (k Key) String() string { return fmt.Sprintf("%s-%d", k.Shard, k.N) }
