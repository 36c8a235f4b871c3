package commit

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// SweepAndList removes what drafts of these objects have left behind, and lists the objects.
func SweepAndList(ctx context.Context, st store.Store, prefix string, ours func(name string) bool) (names []string, err error) {
	if err := st.Sweep(ctx, prefix, ours); err != nil {
		return nil, err
	}
	for entry, err := range st.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if ours(entry.Name) {
			names = append(names, entry.Name)
		}
	}
	return names, nil
}

// UsedNumbers is a scan's history as far as it can be told from the names of records too, where they cannot be read: which
// shards there are, and which numbers they have had. Parts are the last numbers, by shard, that files have. Whatever is wrong
// with the store is seen by who deletes there.
func UsedNumbers(ctx context.Context, st store.Store, scanID string) (past *History, parts map[string]int) {
	past, err := GatherHistory(ctx, st, scanID, func(_ string, c *Commit, err error) (*Commit, error) {
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) || ctx.Err() != nil {
			return nil, err
		}
		return c, nil // a damaged one is left out
	})
	if err != nil {
		past = &History{}
	}
	for entry, err := range st.List(ctx, CommitsFolder(scanID)) {
		if err != nil {
			break
		}
		shard, n, ok := ShardOf(scanID, "part-"+scanID+"-"+strings.TrimSuffix(path.Base(entry.Name), ".json")+".parquet")
		if ok && n >= past.Next(shard) {
			past.Current = append(past.Current, Commit{ScanID: scanID, Shard: shard, N: n})
		}
	}
	parts, _ = partNumbers(ctx, st, scanID, "")
	return past, parts
}

// partNumbers returns the last numbers, by shard, that files of a scan's parts have, in the partition of a date; "" is any.
func partNumbers(ctx context.Context, st store.Store, scanID, date string) (map[string]int, error) {
	parts := map[string]int{}
	for _, table := range schema.AllTables {
		prefix := table + "/"
		if date != "" {
			prefix = partitionFolder(table, date) + "part-" + scanID + "-"
		}
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return parts, err
			}
			if shard, n, ok := ShardOf(scanID, path.Base(entry.Name)); ok {
				parts[shard] = max(parts[shard], n)
			}
		}
	}
	return parts, nil
}

// ShardOf reads the name of a part's file; ok is false where it is none of that scan's.
func ShardOf(scanID, base string) (shard string, n int, ok bool) {
	id, shard, n, ok := SplitPart(base)
	return shard, n, ok && id == scanID && (shard == CompactedShard || CheckShard(shard) == nil)
}

// Everything is for folders that are one scan's alone.
func Everything(string) bool { return true }

// SweepFiles removes what drafts of these files have left behind. There is none in the making, but of the views: who
// writes those minds (see writeViews).
func SweepFiles(ctx context.Context, st store.Store, files ...string) error {
	for _, file := range files {
		if err := st.Sweep(ctx, file, func(name string) bool { return name == file }); err != nil {
			return err
		}
	}
	return nil
}

// SweepParts removes what drafts of a scan's parts have left behind, of all its shards: one that appeared late, of a shard
// that nobody writes any more, would stay. There is none in the making, since the lock is that of all shards.
func SweepParts(ctx context.Context, st store.Store, scanID, date string) error {
	ours := func(name string) bool {
		_, _, ok := ShardOf(scanID, path.Base(name))
		return ok
	}
	for _, table := range schema.AllTables {
		if err := st.Sweep(ctx, partitionFolder(table, date)+"part-"+scanID+"-", ours); err != nil {
			return err
		}
	}
	return nil
}

// PartFiles lists the files of a scan's parts in the partition of a date, table after table.
func PartFiles(ctx context.Context, st store.Store, scanID, date string) (files []store.Entry, err error) {
	for _, table := range schema.AllTables {
		for entry, err := range st.List(ctx, partitionFolder(table, date)+"part-"+scanID+"-") {
			if err != nil {
				return nil, err
			}
			if _, _, ok := ShardOf(scanID, path.Base(entry.Name)); ok {
				files = append(files, entry)
			}
		}
	}
	return files, nil
}

// ClearParts deletes what died with its process: all drafts, the parts and claimed records of these shards that no commit
// names, and the parts and records of any shard whose rows a compaction has. The scan's lock is held. Where files of the commits
// that count are missing or have another size, it deletes nothing but drafts, and returns them in the order of their names: what
// has been replaced may be all that is left.
func ClearParts(ctx context.Context, st store.Store, scanID, date string, past *History, shards []string) (damaged []string, err error) {
	committed := map[string]int64{}
	for i := range past.Current {
		for _, f := range past.Current[i].Files {
			committed[f.Name] = f.Bytes
		}
	}
	stale := past.Stale()
	if err := SweepParts(ctx, st, scanID, date); err != nil {
		return nil, err
	}
	files, err := PartFiles(ctx, st, scanID, date)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, entry := range files {
		if size, ok := committed[entry.Name]; ok {
			if size == entry.Size {
				delete(committed, entry.Name)
			}
			continue
		}
		shard, n, _ := ShardOf(scanID, path.Base(entry.Name))
		if slices.Contains(shards, shard) || stale[Key{shard, n}] {
			dead = append(dead, entry.Name)
		}
	}
	if len(committed) > 0 {
		return slices.Sorted(maps.Keys(committed)), nil
	}
	for i := range past.Replaced {
		dead = append(dead, past.Replaced[i].Name())
	}
	for _, name := range past.Claimed {
		for _, shard := range shards {
			if strings.HasPrefix(name, CommitsFolder(scanID)+shard+"-") {
				dead = append(dead, name)
			}
		}
	}
	for _, name := range dead {
		if err := st.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// ErrClosed is what reading a closed scan returns.
var ErrClosed = errors.New("the dataset is closed")
