// Package restart answers one question: how is a scan begun anew? It deletes the data of the scan so far.
package restart

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// Scan deletes a scan's data except its new manifest; the parts of its next writer belong to shard. The manifest is
// written first and marks the restart: if the process is killed here, the next one that opens the scan continues the
// deletion. At every moment either the old scan counts, perhaps without its statistics, or nothing of it. One tombstone
// takes out all commits at once, and stays.
func Scan(ctx context.Context, st store.Store, lock store.Unlocker, m *commit.Manifest, shard string) error {
	id := m.ScanID
	fail := func(err error) error { return fmt.Errorf("cannot restart scan %s: %w", id, err) }
	if err := m.Write(ctx, st); err != nil {
		return fail(err)
	}
	if err := index.Update(ctx, st); err != nil { // before files that it names are deleted
		return fail(err)
	}
	past, err := commit.UsedNumbers(ctx, st, id, "")
	if err == nil {
		past, err = commit.Fence(ctx, st, lock, m, commit.Restarted, past, shard, commit.CompactedShard)
	}
	if err != nil {
		return fail(err)
	}
	if err := removeStats(ctx, st, id); err != nil {
		return fail(err)
	}
	records, err := takeOutAll(ctx, st, m, past)
	if err != nil {
		return fail(err)
	}
	for _, table := range schema.AllTables {
		err := commit.RemoveAll(ctx, st, table+"/", func(name string) bool {
			_, _, ok := commit.ShardOf(id, path.Base(name))
			return ok
		})
		if err != nil {
			return fail(err)
		}
	}
	isRecord := func(name string) bool { return commit.IsRecord(id, name) }
	for _, folder := range []string{commit.FilesFolder(id), commit.SharesFolder(id)} {
		if err := commit.RemoveAll(ctx, st, folder, isRecord); err != nil {
			return fail(err)
		}
	}
	for _, name := range append(records, commit.RejectsName(id)) {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// removeStats deletes the statistics of a scan. They have records and files of their own, and are deleted while the
// commits still count.
func removeStats(ctx context.Context, st store.Store, id string) error {
	for _, table := range []string{schema.TokenStats, schema.RecordStats} {
		record := commit.FileRecordName(id, table)
		err := commit.RemoveAll(ctx, st, record, func(name string) bool { return name == record })
		if err == nil {
			// The names of statistics have no shard and no number. Another scan's id may end like these, so complete names are
			// compared.
			err = commit.RemoveAll(ctx, st, table+"/",
				func(name string) bool { return path.Base(name) == path.Base(commit.StatsName(table, "", id)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOutAll takes out all commits of a scan that is restarted. It returns the names of all records except tombstones,
// for deletion.
func takeOutAll(ctx context.Context, st store.Store, m *commit.Manifest,
	past *commit.History) (records []string, err error) {
	keeps := map[string]bool{}
	for i := range past.Tombstones {
		keeps[past.Tombstones[i].Name()] = true
	}
	names, err := commit.SweepAndList(ctx, st, commit.CommitsFolder(m.ScanID),
		func(name string) bool { return commit.IsRecord(m.ScanID, name) })
	if err != nil {
		return nil, err
	}
	counts := past.Stale() // includes the commits that compactions replaced
	for _, name := range names {
		key, _ := commit.KeyOf(name)
		if !keeps[name] {
			records = append(records, name)
		}
		if !keeps[name] || key.Shard != commit.CompactedShard { // a record before a shard's tombstone may be missing
			counts[key] = true
		}
	}
	for key := range (&commit.History{Tombstones: past.Tombstones}).Stale() {
		// already taken out by earlier restarts and repairs
		delete(counts, key)
	}
	if len(counts) == 0 {
		return records, nil
	}
	record, err := commit.TakeOut(ctx, st, m, commit.Restarted, commit.CompactedShard, past, counts)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(name string) bool { return name == record.Name() }), nil
}
