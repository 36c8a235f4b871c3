package commit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TakeOut creates a record of no part that takes the place of others, so that none of them counts any more, from one moment to the
// next. The record stays, so that numbers go on behind those that it took out: a name that was given again would show a reader
// who has opened the scan before rows of the scan after; and where the lock is a lease, a deletion that is late might hit it.
func TakeOut(ctx context.Context, st store.Store, like Commit, past *History, keys map[Key]bool) (*Commit, error) {
	n := past.Next(CompactedShard)
	for key := range keys {
		if key.Shard == CompactedShard {
			n = max(n, key.N+1)
		}
	}
	record, err := NewTombstone(like, CompactedShard, n)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), Key.Compare) {
		record.Replaces = append(record.Replaces, Replaced{Shard: key.Shard, N: key.N})
	}
	if slices.Contains(past.Claimed, record.Name()) { // by a process that died
		if err := st.Delete(ctx, record.Name()); err != nil {
			return nil, err
		}
	}
	return record, record.Write(ctx, st)
}

// HoldAgainst holds a file's bytes against its record; the error is a *damagedError where they are others.
func HoldAgainst(ctx context.Context, st store.Store, file schema.File) error {
	object, err := st.Open(ctx, file.Name)
	if err != nil {
		return err
	}
	defer object.Close()
	if object.Size() != file.Bytes {
		return &schema.DamagedError{What: "bytes", Expected: fmt.Sprint(file.Bytes), Found: fmt.Sprint(object.Size())}
	}
	sum := sha256.New()
	if _, err = io.CopyBuffer(sum, io.NewSectionReader(object, 0, object.Size()), make([]byte, 1<<20)); err != nil {
		return err
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != file.SHA256 {
		return &schema.DamagedError{What: "sha256", Expected: file.SHA256, Found: found}
	}
	return nil
}
