package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
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
	if err := completeListed(ctx, w); err != nil {
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
	if m.State != commit.Complete || m.Counts.Rows != crashSites || m.Counts.Files[schema.Verdicts] != 4*crashSites ||
		m.FinishedAt == nil {
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
		if ok && (broken.ScanID != crashOptions.ScanID || broken.Error() != "write /out/x.tmp: "+cause.Error()+"; "+want+
			"everything committed is kept, and the same command resumes scan crash-1") {
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
	refused, silent, lost := fmt.Errorf("refused; get the right: %w", fs.ErrPermission),
		fmt.Errorf("given up: %w", store.ErrUnavailable), fmt.Errorf("write x: %w", store.ErrLockLost)
	says(refused, refused.Error()+resumes)
	says(silent, silent.Error()+resumes)
	says(lost, lost.Error())
	if got := (&commit.StoreError{ScanID: "s", Err: lost}).Error(); got != lost.Error()+
		"; everything committed is kept, and that one goes on with scan s" {
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
	if err := scanAll(failing, []*audit.Site{typicalSite(t, 1)}); !errors.Is(err, broken) || !strings.Contains(err.Error(),
		"the same command resumes scan crash-1") {
		t.Errorf("while it is written: %v", err)
	}
}
