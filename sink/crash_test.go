package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/internal/store/storetest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// crashOptions divide crashSites into two full parts and a partial one.
var crashOptions = Options{ScanID: "crash-1", Date: "2026-11-21", PartRows: 4}

const crashSites = 10

// scanAll writes the sites that are not done yet and completes the scan.
func scanAll(st store.Store, sites []*audit.Site) error {
	w, err := Open(context.Background(), st, crashOptions)
	if err != nil {
		return err
	}
	return finish(w, sites)
}

func finish(w *Writer, sites []*audit.Site) error {
	ctx := context.Background()
	for _, s := range sites {
		if w.Done(s.Seq) {
			continue
		}
		if err := w.Add(s); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	if err := w.Complete(ctx); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Close(ctx)
}

// noOrphans checks that commits name exactly the existing files.
func noOrphans(t *testing.T, dir *store.Dir) {
	t.Helper()
	commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	var committed []string
	for _, c := range commits {
		for _, f := range c.Files {
			committed = append(committed, f.Name)
		}
	}
	slices.Sort(committed)
	var there []string
	err = filepath.WalkDir(dir.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(entry.Name(), ".parquet") && entry.Name() != filepath.Base(index.Name) {
			name, _ := filepath.Rel(dir.Root(), path)
			there = append(there, filepath.ToSlash(name))
		}
		if err == nil && strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(there)
	if !slices.Equal(there, committed) {
		t.Errorf("files %q, committed %q", there, committed)
	}
}

func everySiteOnce(t *testing.T, st store.Store) {
	t.Helper()
	count := func(seqs map[int64]int, want int) {
		t.Helper()
		if len(seqs) != crashSites {
			t.Errorf("%d sites", len(seqs))
		}
		for seq, n := range seqs {
			if n != want {
				t.Errorf("seq %d: %d rows, want %d", seq, n, want)
			}
		}
	}
	seqs := map[int64]int{}
	for _, row := range readAll[schema.SiteRow](t, st, crashOptions.ScanID, schema.Sites) {
		seqs[row.Seq]++
	}
	count(seqs, 1)
	clear(seqs)
	for _, row := range readAll[schema.VerdictRow](t, st, crashOptions.ScanID, schema.Verdicts) {
		seqs[row.Seq]++
	}
	count(seqs, 4)
	clear(seqs)
	for _, row := range readAll[schema.EvidenceRow](t, st, crashOptions.ScanID, schema.Evidence) {
		seqs[row.Seq]++
	}
	count(seqs, 3)
	hashes := map[int64]int{}
	for _, row := range readAll[schema.BodyRow](t, st, crashOptions.ScanID, schema.Bodies) {
		hashes[row.BodyHash]++
	}
	count(hashes, 1)
	m, err := commit.ReadManifest(context.Background(), st, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	if m.State != commit.Complete || m.Counts.Rows != crashSites || m.Counts.Files[schema.Verdicts] != 4*crashSites || m.FinishedAt == nil {
		t.Errorf("manifest %+v, counts %+v", m, m.Counts)
	}
}

// TestErrorSticks lets one step fail. All later calls return that failure, nothing is committed after it, and the scan
// can be resumed.
func TestErrorSticks(t *testing.T) {
	broken := errors.New("disk full")
	for _, step := range []string{"create", "write", "seal", "publish", "create-if-absent"} {
		t.Run(step, func(t *testing.T) {
			dir := newDir(t)
			failing := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
				if s.Op == step {
					return broken
				}
				return nil
			}}
			w := mustOpen(t, failing, crashOptions)
			var err error
			for seq := uint64(0); err == nil && seq < 1000; seq++ {
				err = w.Add(typicalSite(t, seq))
			}
			if !errors.Is(err, broken) {
				t.Fatalf("Add: %v", err)
			}
			if err := w.Add(typicalSite(t, 1001)); !errors.Is(err, broken) {
				t.Errorf("the next Add: %v", err)
			}
			if err := w.Close(t.Context()); !errors.Is(err, broken) {
				t.Errorf("Close: %v", err)
			}
			if err := w.Add(typicalSite(t, 1002)); err == nil {
				t.Error("Add after Close")
			}
			if commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID); err != nil || len(commits) > 0 {
				t.Errorf("%d commits, %v", len(commits), err)
			}
			after := mustOpen(t, dir, crashOptions)
			noOrphans(t, dir)
			if after.DoneCount() != 0 {
				t.Errorf("%d done", after.DoneCount())
			}
		})
	}
}

// TestAbort shows that an aborted Writer keeps committed parts and nothing of the open part.
func TestAbort(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, crashOptions)
	add := func(w *Writer, seqs ...uint64) {
		for _, seq := range seqs {
			if err := w.Add(typicalSite(t, seq)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(w, 1, 2)
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(w, 3)
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	noOrphans(t, dir)
	w = mustOpen(t, dir, crashOptions)
	done := map[uint64]bool{}
	for seq := range uint64(5) {
		done[seq] = w.Done(seq)
	}
	if want := map[uint64]bool{0: false, 1: true, 2: true, 3: false, 4: false}; !maps.Equal(done, want) {
		t.Errorf("done %v", done)
	}
	// Numbers continue, and a cancelled Flush abandons the part.
	add(w, 4)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Flush(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
	if err := w.Close(t.Context()); err == nil {
		t.Error("Close after a failed Flush")
	}
	w = mustOpen(t, dir, crashOptions)
	add(w, 4)
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID)
	if err != nil || len(commits) != 2 || commits[1].N != 1 {
		t.Errorf("%+v, %v", commits, err)
	}
}

// TestRestartIsAllOrNothing kills a restart before and after each of its steps, on another day than the scan's. Readers
// then find the whole scan or nothing of it, and no statistics without their sites. Verify finds no damage. The same
// command, or the command without --restart, continues.
func TestRestartIsAllOrNothing(t *testing.T) {
	t.Parallel()
	sites := typicalSites(t, crashSites)
	stride := 1
	if testing.Short() {
		stride = 11
	}
	for _, compacted := range []bool{false, true} {
		disk := storetest.NewDisk()
		dirOn := func(disk *storetest.Disk) *store.Dir {
			dir, err := store.NewDirOn(disk, "/data/out")
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}
		whole := dirOn(disk)
		smallDatasetIn(t, whole)
		if compacted { // all except a later part
			mustCompact(t, whole, compact.Options{})
			sites = typicalSites(t, crashSites+1)
			scanWithStats(t, whole, crashOptions, sites...)
		}
		want := readScan(t, mustReadScan(t, whole, crashOptions.ScanID))
		outcomes := map[string]int{}
		for n, over := 1, false; !over; n += stride {
			for _, effect := range []bool{false, true} {
				dir := dirOn(disk.Restart(storetest.Nothing))
				options := crashOptions
				options.Restart, options.Date = true, "2026-11-22"
				dying := &storetest.Faults{Store: dir}
				dying.CrashAt(n, effect)
				_, err := Open(t.Context(), dying, options)
				over = err == nil
				step := dying.Steps()[len(dying.Steps())-1]
				if err := dying.Kill(); err != nil {
					t.Fatal(err)
				}
				outcome := "nothing"
				if _, err := commit.ReadManifest(t.Context(), dir, options.ScanID); err == nil {
					switch got := readScan(t, mustReadScan(t, dir, options.ScanID)); {
					case reflect.DeepEqual(got, want):
						outcome = "whole"
					case !reflect.DeepEqual(got, rowsOf{}):
						t.Errorf("killed at %v: %d sites, %d verdicts, %d lines, %d bodies", step, len(got.Sites), len(got.Verdicts), len(got.Evidence), len(got.Bodies))
					}
				}
				outcomes[outcome]++
				for _, table := range []string{schema.TokenStats, schema.RecordStats} {
					_, errRecord := commit.ReadFileRecord(t.Context(), dir, options.ScanID, table)
					_, errFile := store.ReadAll(t.Context(), dir, commit.StatsName(table, crashOptions.Date, options.ScanID), 1<<20)
					if errFile == nil && outcome == "nothing" || errRecord == nil && errFile != nil {
						t.Errorf("killed at %v: %s: record %v, file %v, of the scan %s", step, table, errRecord, errFile, outcome)
					}
				}
				if lines, v := findings(t, dir); v.Damaged > 0 {
					t.Errorf("killed at %v: %q", step, lines)
				}
				options.Restart = n%2 == 0
				w, err := Open(t.Context(), dir, options)
				if err != nil {
					t.Fatalf("killed at %v: %v", step, err)
				}
				if done := w.DoneCount(); done != 0 && (options.Restart || outcome != "whole" || done != uint64(len(sites))) {
					t.Errorf("killed at %v, which left %s: %d done", step, outcome, done)
				}
				if err := finish(w, sites); err != nil {
					t.Fatal(err)
				}
				if got := readScan(t, mustReadScan(t, dir, options.ScanID)); !reflect.DeepEqual(got, want) {
					t.Errorf("killed at %v, and scanned again: %d sites", step, len(got.Sites))
				}
				if lines, v := findings(t, dir); v.Damaged+v.Leftovers > 0 {
					t.Errorf("killed at %v, and scanned again: %q", step, lines)
				}
			}
		}
		t.Logf("compacted %v: %v", compacted, outcomes)
		if outcomes["whole"] < 5/stride || outcomes["nothing"] < 20/stride {
			t.Errorf("the test saw too little: %v", outcomes)
		}
	}
}

// TestStoreError shows the error for a dataset that could not be written: the cause, the remedy, and that the scan can
// be resumed.
func TestStoreError(t *testing.T) {
	f := func(cause error, opening bool, want string) {
		t.Helper()
		failing := &storetest.Faults{Store: newDir(t), Fail: func(s storetest.Step) error {
			if opening == strings.HasPrefix(s.Name, "_scans/") && (s.Op == "create" || s.Op == "put") {
				return &fs.PathError{Op: "write", Path: "/out/x.tmp", Err: cause}
			}
			return nil
		}}
		w, err := Open(t.Context(), failing, crashOptions)
		if err == nil {
			err = w.Add(typicalSite(t, 1))
			if closed := w.Close(t.Context()); closed == nil || err == nil || closed.Error() != err.Error() {
				t.Errorf("%v: Add says %v, and Close %v", cause, err, closed)
			}
		}
		broken, ok := errors.AsType[*commit.StoreError](err)
		if ok != (want != "") || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
		if ok && (broken.ScanID != crashOptions.ScanID || broken.Error() != "write /out/x.tmp: "+cause.Error()+"; "+want+"everything committed is kept, and the same command resumes scan crash-1") {
			t.Errorf("%v: %v", cause, err)
		}
	}
	for _, opening := range []bool{true, false} {
		f(syscall.ENOSPC, opening, "make room there: ")
		f(syscall.EDQUOT, opening, "make room there: ")
		f(syscall.EROFS, opening, "make it writable: ")
		f(syscall.EACCES, opening, "make it writable: ")
	}
	// Errors of a server name their remedies themselves. A scan whose lock has passed to another process is not to be
	// resumed.
	says := func(err error, want string) {
		t.Helper()
		if got := commit.BrokenOff("s", err).Error(); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	const resumes = "; everything committed is kept, and the same command resumes scan s"
	refused, silent, lost := fmt.Errorf("refused; get the right: %w", fs.ErrPermission), fmt.Errorf("given up: %w", store.ErrUnavailable), fmt.Errorf("write x: %w", store.ErrLockLost)
	says(refused, refused.Error()+resumes)
	says(silent, silent.Error()+resumes)
	says(lost, lost.Error())
	if got := (&commit.StoreError{ScanID: "s", Err: lost}).Error(); got != lost.Error()+"; everything committed is kept, and that one goes on with scan s" {
		t.Error(got)
	}
	// On opening a scan, any other error may be damage, which repeating the command does not mend.
	broken := errors.New("broken")
	f(broken, true, "")
	failing := &storetest.Faults{Store: newDir(t), Fail: func(s storetest.Step) error {
		if s.Op == "write" {
			return broken
		}
		return nil
	}}
	if err := scanAll(failing, []*audit.Site{typicalSite(t, 1)}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "the same command resumes scan crash-1") {
		t.Errorf("while it is written: %v", err)
	}
}
