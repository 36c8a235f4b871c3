package commit

import (
	"context"
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/store"
)

// TakeOut creates a tombstone that takes out other commits: at one moment all of them cease to count. The tombstone
// stays, so that no later commit reuses their names. Else a reader of the old scan would find rows of the new one, and
// a late deletion by an earlier holder of a lease might delete the new file. The tombstone has a number of
// CompactedShard, or of the only shard whose commits it takes out.
func TakeOut(ctx context.Context, st store.Store, m *Manifest, why Tombstone, shard string, past *History,
	keys map[Key]bool) (*Commit, error) {
	n := past.Next(shard)
	for key := range keys {
		if key.Shard == shard {
			n = max(n, key.N+1)
		}
	}
	record, err := NewTombstone(m, why, shard, n)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), Key.Compare) {
		record.Replaces = append(record.Replaces, Replaced{Shard: key.Shard, N: key.N})
	}
	if slices.Contains(past.Claimed, record.Name()) { // a killed process claimed the name
		if err := st.Delete(ctx, record.Name()); err != nil {
			return nil, err
		}
	}
	return record, record.Write(ctx, st)
}
