package sink

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/statistics"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestStatsExcludeOthers shows that computing statistics of a scan excludes writing, merging and other computations of
// statistics, until the lock is released.
func TestStatsExcludeOthers(t *testing.T) {
	dir := newDir(t)
	alone := func(want string) {
		t.Helper()
		if _, err := statistics.Lock(t.Context(), dir, crashOptions.ScanID); !isHeld(err, want) {
			t.Errorf("statistics.Lock: %v", err)
		}
		if _, err := Open(t.Context(), dir, crashOptions); !isHeld(err, want) {
			t.Errorf("Open: %v", err)
		}
		if _, err := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{}); !isHeld(err, want) {
			t.Errorf("Compact: %v", err)
		}
	}
	w := mustOpen(t, dir, crashOptions)
	alone("is being written by process")
	if err := finish(w, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	merging := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
		if s.Op == "publish" {
			alone("is being compacted by process")
		}
		return nil
	}}
	mustCompact(t, merging, compact.Options{})
	for range 2 {
		lock, err := statistics.Lock(t.Context(), dir, crashOptions.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		alone("is being counted for its statistics by process")
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	}
	if err := mustOpen(t, dir, crashOptions).Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStatsOfNoScan shows that there are no statistics of a missing scan, or of one that is being restarted, and that
// the attempt leaves neither a folder nor a lock.
func TestStatsOfNoScan(t *testing.T) {
	dir := newDir(t)
	if _, err := statistics.Lock(t.Context(), dir, "none"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("statistics.Lock of no scan: %v", err)
	}
	if entries, err := os.ReadDir(dir.Root()); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	writeSites(t, dir, crashOptions.ScanID, typicalSites(t, 3)...)
	restarted := crashOptions
	restarted.Restart = true
	dying := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
		if s.Op == "delete" {
			return storetest.ErrCrashed
		}
		return nil
	}}
	if _, err := Open(t.Context(), dying, restarted); !errors.Is(err, storetest.ErrCrashed) {
		t.Fatal(err)
	}
	for _, doing := range []string{commit.DoingStats, commit.DoingCompact} {
		if _, _, err := commit.LockScan(t.Context(), dir, crashOptions.ScanID, doing); err == nil ||
			!strings.Contains(err.Error(), "scan crash-1 is being restarted") {
			t.Errorf("%s of a restart that was broken off: %v", doing, err)
		}
	}
	if err := mustOpen(t, dir, crashOptions).Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDraftsOfKilledCommands shows that compact and stats remove the drafts that such a command left when it was
// killed.
func TestDraftsOfKilledCommands(t *testing.T) {
	dir := smallDataset(t)
	id := crashOptions.ScanID
	m := mustReadScan(t, dir, id).Manifest
	f := func(name string, sweep func() error) {
		t.Helper()
		folder, base := filepath.Split(filepath.Join(dir.Root(), name))
		draft := filepath.Join(folder, "."+base+".ABCDEFGH.bulkscan.tmp")
		if err := errors.Join(os.MkdirAll(folder, 0o777), os.WriteFile(draft, []byte("{"), 0o666), sweep()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", draft, err)
		}
	}
	merge := func() error {
		_, err := compact.Scan(t.Context(), dir, id, compact.Options{})
		return err
	}
	count := func() error {
		lock, err := statistics.Lock(t.Context(), dir, id)
		if err != nil {
			return err
		}
		return lock.Unlock()
	}
	f(commit.ManifestName(id), merge)
	f(commit.RecordName(id, commit.CompactedShard, 0), merge)
	f(commit.StatsName(schema.TokenStats, m.ScanDate, id), count)
	f(commit.FileRecordName(id, schema.RecordStats), count)
}
