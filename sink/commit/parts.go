package commit

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// SweepAndList removes leftover drafts of these objects and lists the objects.
func SweepAndList(ctx context.Context, st store.Store, prefix string, ours func(name string) bool) (names []string,
	err error) {
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

// RemoveAll deletes these objects and their drafts.
func RemoveAll(ctx context.Context, st store.Store, prefix string, ours func(name string) bool) error {
	names, err := SweepAndList(ctx, st, prefix, ours)
	for _, name := range names {
		if err == nil {
			err = st.Delete(ctx, name)
		}
	}
	return err
}

// UsedNumbers returns the history of one shard of a scan, or of all (""), in which unreadable records have only their
// numbers.
func UsedNumbers(ctx context.Context, st store.Store, scanID, shard string) (*History, error) {
	return GatherHistory(ctx, st, scanID, shard, func(name string, c *Commit, err error) (*Commit, error) {
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) || ctx.Err() != nil {
			return nil, err
		}
		if c == nil {
			key, _ := KeyOf(name)
			c = &Commit{ScanID: scanID, Shard: key.Shard, N: key.N}
		}
		return c, nil
	})
}

// partNumbers returns the highest number among the part files of each shard, in the partition of a date or in all ("").
// It looks at one shard only, unless that is "".
func partNumbers(ctx context.Context, st store.Store, scanID, date, only string) (map[string]int, error) {
	parts := map[string]int{}
	for _, table := range schema.AllTables {
		prefix := table + "/"
		if date != "" {
			prefix = partsPrefix(table, date, scanID, only)
		}
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return parts, err
			}
			if shard, n, ok := ShardOf(scanID, path.Base(entry.Name)); ok && (only == "" || shard == only) {
				parts[shard] = max(parts[shard], n)
			}
		}
	}
	return parts, nil
}

// ShardOf reads the name of a part's file; ok is false if it is not a part of that scan.
func ShardOf(scanID, base string) (shard string, n int, ok bool) {
	id, shard, n, ok := SplitPart(base)
	return shard, n, ok && id == scanID && isShard(shard)
}

// SweepFiles removes leftover drafts of these files. The caller holds the lock, so no other process is writing them,
// except the views: a process whose draft of them is removed writes them again (see views.Write).
func SweepFiles(ctx context.Context, st store.Store, files ...string) error {
	for _, file := range files {
		if err := st.Sweep(ctx, file, func(name string) bool { return name == file }); err != nil {
			return err
		}
	}
	return nil
}

// SweepParts removes leftover drafts of a scan's parts, of one shard or of all (""). A holder of the scan's lock sweeps
// all shards, also those that are no longer written; a holder of a share's lock sweeps its own shard.
func SweepParts(ctx context.Context, st store.Store, scanID, date, only string) error {
	ours := func(name string) bool {
		shard, _, ok := ShardOf(scanID, path.Base(name))
		return ok && (only == "" || shard == only)
	}
	for _, table := range schema.AllTables {
		if err := st.Sweep(ctx, partsPrefix(table, date, scanID, only), ours); err != nil {
			return err
		}
	}
	return nil
}

// PartFiles lists the files of a scan's parts in the partition of a date, table after table: those of one shard, or all
// ("").
func PartFiles(ctx context.Context, st store.Store, scanID, date, only string) (files []store.Entry, err error) {
	for _, table := range schema.AllTables {
		for entry, err := range st.List(ctx, partsPrefix(table, date, scanID, only)) {
			if err != nil {
				return nil, err
			}
			if shard, _, ok := ShardOf(scanID, path.Base(entry.Name)); ok && (only == "" || shard == only) {
				files = append(files, entry)
			}
		}
	}
	return files, nil
}

// ClearParts deletes what a killed process left: all drafts; the parts and claimed records of these shards that no
// commit names; and the parts and records of any shard that a compaction replaced. The caller holds the scan's lock, or
// that of the share whose history it has read. If files of current commits are missing or have another size, ClearParts
// deletes only drafts and returns the names of these files, sorted: the replaced files may be the only copy left.
func ClearParts(ctx context.Context, st store.Store, scanID, date string, past *History,
	shards []string) (damaged []string, err error) {
	stale := past.Stale()
	if err := SweepParts(ctx, st, scanID, date, past.shard); err != nil {
		return nil, err
	}
	damaged, further, err := heldAgainst(ctx, st, scanID, date, past)
	if err != nil || len(damaged) > 0 {
		return damaged, err
	}
	var dead []string
	for _, name := range further {
		shard, n, _ := ShardOf(scanID, path.Base(name))
		if slices.Contains(shards, shard) || stale[Key{shard, n}] {
			dead = append(dead, name)
		}
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

// DamagedFiles returns the names of files of current commits that are missing or have another size, sorted. It changes
// nothing.
func DamagedFiles(ctx context.Context, st store.Store, scanID, date string, past *History) ([]string, error) {
	damaged, _, err := heldAgainst(ctx, st, scanID, date, past)
	return damaged, err
}

// heldAgainst compares the files of a scan's parts with its current commits. damaged is the result of DamagedFiles;
// further are the files that no current commit names.
func heldAgainst(ctx context.Context, st store.Store, scanID, date string, past *History) (damaged, further []string,
	err error) {
	committed := map[string]int64{}
	for i := range past.Current {
		for _, f := range past.Current[i].Files {
			committed[f.Name] = f.Bytes
		}
	}
	files, err := PartFiles(ctx, st, scanID, date, past.shard)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range files {
		switch size, ok := committed[entry.Name]; {
		case !ok:
			further = append(further, entry.Name)
		case size == entry.Size:
			delete(committed, entry.Name)
		}
	}
	return slices.Sorted(maps.Keys(committed)), further, nil
}

// ErrClosed is the error of writing after Close.
var ErrClosed = errors.New("the dataset is closed")
