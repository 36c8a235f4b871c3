package sink

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

// deleteScan deletes a scan's data except its new manifest. The manifest is written first and marks the restart: if the
// process is killed here, the next one that opens the scan continues the deletion. At every moment either the old scan
// counts, perhaps without its statistics, or nothing of it. One tombstone takes out all commits at once, and stays.
func deleteScan(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *commit.Manifest) error {
	fail := func(err error) error { return fmt.Errorf("cannot restart scan %s: %w", o.ScanID, err) }
	if err := m.Write(ctx, st); err != nil {
		return fail(err)
	}
	if err := index.Update(ctx, st); err != nil { // before files that it names are deleted
		return fail(err)
	}
	past, err := commit.UsedNumbers(ctx, st, o.ScanID, "")
	if err == nil {
		past, err = commit.Fence(ctx, st, lock, m, commit.Restarted, past, o.Shard, commit.CompactedShard)
	}
	if err != nil {
		return fail(err)
	}
	if err := removeStats(ctx, st, o); err != nil {
		return fail(err)
	}
	records, err := takeOutAll(ctx, st, o, m, past)
	if err != nil {
		return fail(err)
	}
	for _, table := range schema.AllTables {
		err := removeAll(ctx, st, table+"/", func(name string) bool {
			_, _, ok := commit.ShardOf(o.ScanID, path.Base(name))
			return ok
		})
		if err != nil {
			return fail(err)
		}
	}
	isRecord := func(name string) bool { return commit.IsRecord(o.ScanID, name) }
	for _, folder := range []string{commit.FilesFolder(o.ScanID), commit.SharesFolder(o.ScanID)} {
		if err := removeAll(ctx, st, folder, isRecord); err != nil {
			return fail(err)
		}
	}
	for _, name := range append(records, commit.RejectsName(o.ScanID)) {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// removeStats deletes the statistics of a scan. They have records and files of their own, and are deleted while the
// commits still count.
func removeStats(ctx context.Context, st store.Store, o *Options) error {
	for _, table := range []string{schema.TokenStats, schema.RecordStats} {
		record := commit.FileRecordName(o.ScanID, table)
		err := removeAll(ctx, st, record, func(name string) bool { return name == record })
		if err == nil {
			// The names of statistics have no shard and no number, so another scan's id may end like both.
			err = removeAll(ctx, st, table+"/",
				func(name string) bool { return path.Base(name) == path.Base(commit.StatsName(table, "", o.ScanID)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes these objects and their drafts.
func removeAll(ctx context.Context, st store.Store, prefix string, ours func(name string) bool) error {
	names, err := commit.SweepAndList(ctx, st, prefix, ours)
	for _, name := range names {
		if err == nil {
			err = st.Delete(ctx, name)
		}
	}
	return err
}

// everything selects the drafts of all objects of a folder that belongs to one scan.
func everything(string) bool { return true }

// takeOutAll takes out all commits of a scan that is restarted. It returns the names of all records except tombstones,
// for deletion.
func takeOutAll(ctx context.Context, st store.Store, o *Options, m *commit.Manifest,
	past *commit.History) (records []string, err error) {
	keeps := map[string]bool{}
	for i := range past.Tombstones {
		keeps[past.Tombstones[i].Name()] = true
	}
	names, err := commit.SweepAndList(ctx, st, commit.CommitsFolder(o.ScanID),
		func(name string) bool { return commit.IsRecord(o.ScanID, name) })
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
