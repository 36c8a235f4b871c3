package sink

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/internal/store"
)

// Commit is the record that makes a part count: it is written after all of the part's files, and a file that no commit
// names is none of the dataset.
type Commit struct {
	SchemaVersion   int       `json:"schema_version"`
	ToolVersion     string    `json:"tool_version"`
	RegistryVersion string    `json:"registry_version"`
	ScanID          string    `json:"scan_id"`
	Shard           string    `json:"shard"`
	N               int       `json:"n"`
	CommittedAt     time.Time `json:"committed_at"`
	Rows            int64     `json:"rows"` // finished origins
	Files           []File    `json:"files"`
	Finished        []byte    `json:"finished_seq"` // bitmap of their seq: 64-bit Roaring, portable format
}

// File is one file of a commit.
type File struct {
	Table  string `json:"table"`
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bitmap returns the finished seq.
func (c *Commit) Bitmap() (*roaring64.Bitmap, error) {
	b, err := readBitmap(c.Finished)
	if err != nil {
		return nil, fmt.Errorf("cannot read the bitmap of commit %s: %w", c.name(), err)
	}
	if n := b.GetCardinality(); n != uint64(c.Rows) {
		return nil, fmt.Errorf("cannot read the bitmap of commit %s: it has %d entries for %d rows", c.name(), n, c.Rows)
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
func (c *Commit) File(table string) (file File, ok bool) {
	i := slices.IndexFunc(c.Files, func(f File) bool { return f.Table == table })
	if i < 0 {
		return File{}, false
	}
	return c.Files[i], true
}

func (c *Commit) name() string { return commitName(c.ScanID, c.Shard, c.N) }

func (c *Commit) write(ctx context.Context, st store.Store) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", c.name(), err)
	}
	return st.CreateIfAbsent(ctx, c.name(), append(data, '\n'))
}

const maxCommit = 256 << 20

// Commits reads the commits of a scan, ordered by shard and number.
func Commits(ctx context.Context, st store.Store, scanID string) ([]Commit, error) {
	if err := CheckScanID(scanID); err != nil {
		return nil, err
	}
	var commits []Commit
	for entry, err := range st.List(ctx, commitsFolder(scanID)) {
		if err != nil {
			return nil, fmt.Errorf("cannot read the commits of scan %s: %w", scanID, err)
		}
		if !strings.HasSuffix(entry.Name, ".json") || entry.Size == 0 {
			continue // an empty record is a name that was claimed by a process that died: nothing was committed
		}
		data, err := store.ReadAll(ctx, st, entry.Name, maxCommit)
		if err != nil {
			return nil, fmt.Errorf("cannot read the commits of scan %s: %w", scanID, err)
		}
		var c Commit
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", entry.Name, err)
		}
		if c.name() != entry.Name || c.ScanID != scanID {
			return nil, fmt.Errorf("cannot read %s: it calls itself %.200q", entry.Name, c.name())
		}
		for _, f := range c.Files {
			if err := store.CheckName(f.Name); err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", entry.Name, err)
			}
		}
		commits = append(commits, c)
	}
	slices.SortFunc(commits, func(a, b Commit) int {
		if order := strings.Compare(a.Shard, b.Shard); order != 0 {
			return order
		}
		return a.N - b.N
	})
	return commits, nil
}
