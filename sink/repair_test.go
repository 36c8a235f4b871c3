package sink

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// repairOptions are the options for repairing a scan of crashSites.
func repairOptions() Options {
	o := crashOptions
	o.Repair = true
	return o
}

// objects returns all files of a dataset except locks, with their bytes.
func objects(t testing.TB, dir *store.Dir) map[string]string {
	t.Helper()
	all := map[string]string{}
	for entry, err := range dir.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir.Root(), filepath.FromSlash(entry.Name)))
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name] = string(data)
	}
	return all
}

// losses are ways in which a complete scan of three parts loses data. Left is the number of remaining sites.
var losses = []struct {
	name    string
	left    int
	records bool // the records show the loss, not only the files
	silent  bool // the sizes of files, which a resumed scan checks, do not show the loss
	damage  func(t *testing.T, dir *store.Dir)
}{
	{"last record", 8, true, false, func(t *testing.T, dir *store.Dir) { remove(t, dir, crashCommit(2)) }},
	{"last record and its files", 8, true, false, func(t *testing.T, dir *store.Dir) {
		remove(t, dir, crashCommit(2))
		for _, table := range schema.AllTables {
			remove(t, dir, crashPart(table, 2))
		}
	}},
	{"first record", 6, true, false, func(t *testing.T, dir *store.Dir) { remove(t, dir, crashCommit(0)) }},
	{"two records", 2, true, false, func(t *testing.T, dir *store.Dir) {
		remove(t, dir, crashCommit(0))
		remove(t, dir, crashCommit(1))
	}},
	{"all records", 0, true, false, func(t *testing.T, dir *store.Dir) {
		for n := range 3 {
			remove(t, dir, crashCommit(n))
		}
	}},
	{"everything but the manifest", 0, true, false, func(t *testing.T, dir *store.Dir) {
		for name := range objects(t, dir) {
			if name != commit.ManifestName(crashOptions.ScanID) {
				remove(t, dir, name)
			}
		}
	}},
	{"a file", 6, false, false, func(t *testing.T, dir *store.Dir) { remove(t, dir, crashPart(schema.Bodies, 1)) }},
	{"all files of a table", 0, false, false, func(t *testing.T, dir *store.Dir) {
		for n := range 3 {
			remove(t, dir, crashPart(schema.Verdicts, n))
		}
	}},
	{"bytes of a file", 6, false, true, func(t *testing.T, dir *store.Dir) {
		flip(t, filepath.Join(dir.Root(), crashPart(schema.Sites, 0)), 200)
	}},
	{"bytes of a record", 6, true, false,
		func(t *testing.T, dir *store.Dir) { flip(t, filepath.Join(dir.Root(), crashCommit(1)), 40) }},
	{"bytes of the last record", 8, true, false,
		func(t *testing.T, dir *store.Dir) { flip(t, filepath.Join(dir.Root(), crashCommit(2)), 40) }},
	{"all bytes of a record", 6, true, false, func(t *testing.T, dir *store.Dir) {
		if err := os.Truncate(filepath.Join(dir.Root(), crashCommit(1)), 0); err != nil {
			t.Fatal(err)
		}
	}},
	{"a record, and one is there twice", 6, true, false, func(t *testing.T, dir *store.Dir) {
		copyObject(t, dir, crashCommit(1), crashCommit(7))
		remove(t, dir, crashCommit(0))
	}},
	{"a record, and a file is there twice", 8, true, false, func(t *testing.T, dir *store.Dir) {
		copyObject(t, dir, crashPart(schema.Sites, 1), crashPart(schema.Sites, 6))
		remove(t, dir, crashCommit(2))
	}},
	{"one of its two merged parts", 2, true, false, func(t *testing.T, dir *store.Dir) {
		compactTwo(t, dir)
		remove(t, dir, commit.RecordName(crashOptions.ScanID, commit.CompactedShard, 0))
	}},
	{"the part beside a merged one", 8, true, false, func(t *testing.T, dir *store.Dir) {
		compactTwo(t, dir)
		remove(t, dir, crashCommit(2))
	}},
	{"a file of a merged part", 2, false, false, func(t *testing.T, dir *store.Dir) {
		compactTwo(t, dir)
		remove(t, dir, commit.PartName(schema.Evidence, crashOptions.Date, crashOptions.ScanID, commit.CompactedShard, 0))
	}},
}

func crashCommit(n int) string { return commit.RecordName(crashOptions.ScanID, "0", n) }
func crashPart(table string, n int) string {
	return commit.PartName(table, crashOptions.Date, crashOptions.ScanID, "0", n)
}

func copyObject(t *testing.T, dir *store.Dir, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir.Root(), from))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir.Root(), to), data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// compactTwo merges the first two of three parts.
func compactTwo(t *testing.T, dir *store.Dir) {
	t.Helper()
	size := mustReadScan(t, dir, crashOptions.ScanID).Commits[0].Bytes()
	if done := mustCompact(t, dir, compact.Options{PartBytes: 2*size + 100}); done.PartsAfter != 2 {
		t.Fatalf("%+v", done)
	}
}

// TestLost shows for each kind of loss that no command takes the rest for the complete scan or changes anything. A
// repair restores the missing sites, fetches no others, and leaves a sound dataset.
func TestLost(t *testing.T) {
	sites := typicalSites(t, crashSites)
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			dir := smallDataset(t)
			want := mustReadScan(t, dir, crashOptions.ScanID).Manifest.Counts
			loss.damage(t, dir)
			before := objects(t, dir)

			_, errCompact := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{})
			errOpen := errors.New("--repair")
			if !loss.silent {
				_, errOpen = Open(t.Context(), dir, crashOptions)
				checkLoss(t, "compact", errCompact)
				checkLoss(t, "scan", errOpen)
			}
			for what, err := range map[string]error{"compact": errCompact, "scan": errOpen} {
				if err == nil || !strings.Contains(err.Error(), "--repair") {
					t.Errorf("%s: %v", what, err)
				}
			}
			// Readers of unreadable data fail without a check of completeness.
			scan, err := commit.ReadScan(t.Context(), dir, crashOptions.ScanID)
			if loss.records && err == nil && (scan.Lost() == nil || scan.Whole() == nil) {
				t.Error("the reader gets no error")
			}
			if after := objects(t, dir); !reflect.DeepEqual(after, before) {
				t.Errorf("what was refused has changed something: %d objects, %d before", len(after), len(before))
			}

			w := mustOpen(t, dir, repairOptions())
			if got := w.DoneCount(); got != uint64(loss.left) {
				t.Errorf("%d sites are left, want %d", got, loss.left)
			}
			if got := w.LostCount(); got != int64(crashSites-loss.left) {
				t.Errorf("%d sites are lost", got)
			}
			if err := w.Abort(); err != nil {
				t.Fatal(err)
			}
			// An interrupted repair is continued by the same command, or by that of the scan.
			for _, o := range []Options{repairOptions(), crashOptions} {
				w := mustOpen(t, dir, o)
				if got := w.DoneCount(); got != uint64(loss.left) {
					t.Errorf("%d sites are left, want %d", got, loss.left)
				}
				if err := w.Abort(); err != nil {
					t.Fatal(err)
				}
			}
			smallDatasetIn(t, dir) // completes the scan
			if lines, v := findings(t, dir); len(lines) > 0 || v.Files == 0 {
				t.Errorf("repaired: %q", lines)
			}
			repaired := mustReadScan(t, dir, crashOptions.ScanID)
			if m := repaired.Manifest; m.State != commit.Complete || m.Repairing || m.Counts.Rows != want.Rows ||
				!reflect.DeepEqual(m.Counts.Files, want.Files) {
				t.Errorf("%+v, counts %+v, want %+v", m, m.Counts, want)
			}
			var seqs []int64
			for _, row := range collect[schema.SiteRow](t, repaired, schema.Sites) {
				seqs = append(seqs, row.Seq)
			}
			if slices.Sort(seqs); len(seqs) != len(sites) || seqs[0] != 0 || seqs[len(seqs)-1] != int64(len(sites)-1) ||
				len(slices.Compact(seqs)) != len(sites) {
				t.Errorf("sites %v", seqs)
			}
			// Names of earlier parts are not reused.
			for name, data := range objects(t, dir) {
				if was := before[name]; slices.Contains([]string{crashCommit(0), crashCommit(1), crashCommit(2)}, name) &&
					was != data {
					t.Errorf("%s is another record than before", name)
				}
			}
			mustCompact(t, dir, compact.Options{})
			if lines, _ := findings(t, dir); len(lines) > 0 {
				t.Errorf("merged: %q", lines)
			}
			if _, err := Open(t.Context(), dir, repairOptions()); !isIntact(err) {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

func isIntact(err error) bool {
	_, ok := errors.AsType[*repair.IntactError](err)
	return ok
}

// TestRepairRefuses shows which scans are not repaired, with which errors.
func TestRepairRefuses(t *testing.T) {
	sites, o := typicalSites(t, crashSites), repairOptions()
	f := func(want string, damage func(dir *store.Dir)) {
		t.Helper()
		dir := newDir(t)
		if err := scanAll(dir, sites); err != nil {
			t.Fatal(err)
		}
		damage(dir)
		before := objects(t, dir)
		if _, err := Open(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if after := objects(t, dir); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: something has changed", want)
		}
	}
	f("nothing to repair: scan crash-1 has all its 10 sites", func(*store.Dir) {})
	f("nothing to repair: there is no scan crash-1; name the scan with --scan-id",
		func(dir *store.Dir) { remove(t, dir, commit.ManifestName(crashOptions.ScanID)) })
	f(commit.ManifestRemedy, func(dir *store.Dir) {
		flip(t,
			filepath.Join(dir.Root(), commit.ManifestName(crashOptions.ScanID)), 40)
	})
	f(
		"nothing to repair: scan crash-1 is not complete and has lost nothing; the same command without --repair continues it", func(dir *store.Dir) {
			if err := mustOpen(t, dir, crashOptions).Abort(); err != nil {
				t.Fatal(err)
			}
		})
	f("more than 100000 part numbers are missing, up to _scans/crash-1/commits/0-1000000.json", func(dir *store.Dir) {
		copyObject(t, dir, crashPart(schema.Sites, 1), crashPart(schema.Sites, 1_000_000))
	})
	f(`--tables was "sites,verdicts,evidence,bodies,policies" and is now "sites,policies"`, func(dir *store.Dir) {
		remove(t, dir, crashCommit(1))
		o.Tables = []string{schema.Sites}
	})
}

// TestCompactKeepsWhatIsLeft shows that nothing is deleted if a compaction was killed before it deleted the replaced
// parts, and its merged part was lost.
func TestCompactKeepsWhatIsLeft(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	old := objects(t, dir)
	mustCompact(t, dir, compact.Options{})
	for name, data := range old {
		if name != commit.ManifestName(crashOptions.ScanID) {
			if err := os.WriteFile(filepath.Join(dir.Root(), name), []byte(data), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(t, dir, commit.PartName(schema.Sites, crashOptions.Date, crashOptions.ScanID, commit.CompactedShard, 0))
	before := objects(t, dir)
	if _, err := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{}); err == nil ||
		!strings.Contains(err.Error(), "1 committed files are missing") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), dir, crashOptions); err == nil || !strings.Contains(err.Error(),
		"1 committed files are missing") {
		t.Errorf("%v", err)
	}
	if after := objects(t, dir); !reflect.DeepEqual(after, before) {
		t.Errorf("%d objects are left of %d", len(after), len(before))
	}
	// Without the record of the merged part, the replaced parts count again.
	remove(t, dir, commit.RecordName(crashOptions.ScanID, commit.CompactedShard, 0))
	if scan := mustReadScan(t, dir, crashOptions.ScanID); scan.Commits[0].Shard != "0" ||
		len(readAll[schema.SiteRow](t, dir, crashOptions.ScanID, schema.Sites)) != crashSites {
		t.Errorf("%d commits", len(scan.Commits))
	}
}

// TestCompactedTotals shows that the totals of a scan hold however much of it has been merged, also if a compaction was
// killed before it wrote the totals.
func TestCompactedTotals(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, 24)); err != nil { // six parts
		t.Fatal(err)
	}
	first := mustReadScan(t, dir, crashOptions.ScanID)
	manifests := []*commit.Manifest{first.Manifest}
	for parts := int64(2); parts <= 6; parts += 2 {
		mustCompact(t, dir, compact.Options{PartBytes: parts * first.Commits[0].Bytes()})
		now := mustReadScan(t, dir, crashOptions.ScanID)
		if manifests = append(manifests, now.Manifest); now.Manifest.Counts.Parts != len(now.Commits) {
			t.Errorf("%d parts, counted %d", len(now.Commits), now.Manifest.Counts.Parts)
		}
		for _, m := range manifests {
			if wrong := m.Unaccounted(now.Commits); wrong != nil {
				t.Errorf("%d parts, counted %d: %v", len(now.Commits), m.Counts.Parts, wrong)
			}
		}
	}
	now := mustReadScan(t, dir, crashOptions.ScanID)
	for parts, want := range map[int]int{0: 1, len(now.Commits): 0, 6: 0, 7: 1} {
		m, counts := *now.Manifest, *now.Manifest.Counts
		m.Counts, counts.Parts = &counts, parts
		if wrong := m.Unaccounted(now.Commits); len(wrong) != want {
			t.Errorf("%d parts: %v", parts, wrong)
		}
	}
}

// TestRepairTakesOver shows that a scan is also repaired if its lock is a lease and a request of an earlier holder may
// still arrive.
func TestRepairTakesOver(t *testing.T) {
	dir := smallDataset(t)
	remove(t, dir, crashCommit(0))
	flip(t, filepath.Join(dir.Root(), crashCommit(2)), 40)
	st := &leased{Dir: dir, late: true}
	w := mustOpen(t, st, repairOptions())
	if w.DoneCount() != 4 || st.late {
		t.Errorf("%d done, fenced %v", w.DoneCount(), !st.late)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	smallDatasetIn(t, dir)
	if lines, _ := findings(t, dir); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
	if rows := readAll[schema.SiteRow](t, dir, crashOptions.ScanID, schema.Sites); len(rows) != crashSites {
		t.Errorf("%d sites", len(rows))
	}
}
