package commit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Fence prevents a late commit of an earlier lock holder from counting. A late commit is possible only if the lock is a
// lease (store.Lease). The caller has read the history with the lock held; Fence returns the history after fencing. It
// fences the given shards and those that have records or parts: if a shard's first commit is still on its way, only its
// parts show the shard. With a history of one shard (ReadShard) it fences that shard alone.
//
// A late commit would count although its sites have been fetched again. So the new holder creates a tombstone under the
// number that such a commit would have. A shard commits one part at a time, so there is only one such number: the next,
// or, if a restart finds records lost, that of the last part. If the tombstone comes first, the store refuses the late
// commit. If the commit comes first, it counts. Tombstones stay.
func Fence(ctx context.Context, st store.Store, lock store.Unlocker, m *Manifest, why Tombstone, past *History,
	shards ...string) (*History, error) {
	lease, ok := lock.(store.Lease)
	if !ok || !lease.Late() {
		return past, nil
	}
	date := m.ScanDate
	if why == Restarted {
		date = "" // the scan may have had another
	}
	parts, err := partNumbers(ctx, st, m.ScanID, date, past.shard)
	if err != nil {
		return nil, err
	}
	arrived := false
	for _, shard := range past.shards(slices.AppendSeq(shards, maps.Keys(parts))...) {
		numbers := []int{past.Next(shard)}
		if last := parts[shard]; why == Restarted && last > numbers[0] {
			numbers = append(numbers, last) // records are lost, and the late commit may be that of the last part
		}
		for _, n := range numbers {
			tombstone, err := NewTombstone(m, why, shard, n)
			if err == nil {
				err = tombstone.Write(ctx, st)
			}
			switch {
			case errors.Is(err, store.ErrExist):
				arrived = true // the only late commit of this shard
			case err != nil:
				return nil, err
			default:
				past.Tombstones = append(past.Tombstones, *tombstone)
			}
		}
	}
	if lease.Fenced(); arrived {
		return ReadShard(ctx, st, m.ScanID, past.shard)
	}
	return past, nil
}

// NewTombstone returns a record without a part that occupies a number.
func NewTombstone(m *Manifest, why Tombstone, shard string, n int) (*Commit, error) {
	nothing, err := roaring64.New().ToBytes()
	return &Commit{
		SchemaVersion: m.SchemaVersion, ToolVersion: m.ToolVersion, RegistryVersion: m.RegistryVersion, ScanID: m.ScanID,
		Shard: shard, N: n, Tombstone: why, Files: []schema.File{}, Finished: nothing,
		CommittedAt: time.Now().UTC().Truncate(time.Millisecond),
	}, err
}
