package commit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Fence prevents a late commit of an earlier lock holder from counting. A late commit is possible only if the lock is a
// lease (store.Lease). The history was read with the lock held; Fence returns the history as it is then. It fences the
// given shards, those that have records, and those that have parts of that date ("" is any date): if a shard's first
// commit is still on its way, only its parts show the shard. With a history of one shard (ReadShard) it fences that shard
// alone.
//
// A late commit would count although its sites have been fetched again. So the new holder creates a tombstone under the
// number that such a commit would have. A shard commits one part at a time, so there is only one such number. If the
// tombstone comes first, the store refuses the late commit. If the commit comes first, it counts. Tombstones stay.
func Fence(ctx context.Context, st store.Store, lock store.Unlocker, like Commit, date string, past *History, shards ...string) (*History, error) {
	lease, ok := lock.(store.Lease)
	if !ok || !lease.Late() {
		return past, nil
	}
	parts, err := partNumbers(ctx, st, like.ScanID, date, past.shard)
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
				arrived = true // the only late commit of this shard
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
		if past, err = ReadShard(ctx, st, like.ScanID, past.shard); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("cannot take over scan %s: the store has records that it does not list", like.ScanID)
}

// fenceRounds bounds how often Fence starts again because a record has arrived. One late commit for each shard is
// possible.
const fenceRounds = 5

// NewTombstone returns a record without a part that occupies a number.
func NewTombstone(like Commit, shard string, n int) (*Commit, error) {
	nothing, err := roaring64.New().ToBytes()
	like.Shard, like.N, like.Files, like.Finished = shard, n, []schema.File{}, nothing
	like.CommittedAt = time.Now().UTC().Truncate(time.Millisecond)
	return &like, err
}
