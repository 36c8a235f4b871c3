package sink

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestMissingCommits removes commit records and shows that neither a scan nor a compaction continues without them,
// since both would delete their parts. It shows that Verify names them, that the scan can be restarted, and that it
// continues once the records are back.
func TestMissingCommits(t *testing.T) {
	f := func(want string, gone ...int) {
		t.Helper()
		dir := newDir(t)
		sites := typicalSites(t, 23) // five full parts and a partial one
		if err := scanAll(dir, sites[:20]); err != nil {
			t.Fatal(err)
		}
		parts := func() (n int) {
			for range dir.List(t.Context(), "sites/") {
				n++
			}
			return n
		}
		hidden := t.TempDir()
		move := func(from, to func(n int) string) {
			for _, n := range gone {
				if err := os.Rename(from(n), to(n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		record := func(n int) string {
			return filepath.Join(dir.Root(), filepath.FromSlash(commit.RecordName(crashOptions.ScanID, "0", n)))
		}
		aside := func(n int) string { return filepath.Join(hidden, filepath.Base(record(n))) }
		move(record, aside)
		before := parts()
		_, err := Open(t.Context(), dir, crashOptions)
		if want == "" {
			if lost, ok := errors.AsType[*commit.LostError](err); !ok || len(lost.Records) > 0 || !slices.Contains(lost.Totals,
				commit.Total{What: "rows", Expected: 20, Found: 16}) {
				t.Errorf("without the records %v: %v", gone, err)
			}
			return
		}
		_, errCompact := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{})
		for _, err := range []error{err, errCompact} {
			if err == nil || !strings.Contains(err.Error(), "_scans/crash-1/commits/"+want) || !strings.Contains(err.Error(),
				"restore the files") || !strings.Contains(err.Error(), "--restart") {
				t.Errorf("without the records %v: %v, want %q and a remedy", gone, err, want)
			}
			if _, ok := errors.AsType[*commit.StoreError](err); ok {
				t.Errorf("%v is said to be resumable", err)
			}
		}
		if parts() != before {
			t.Errorf("%d parts are left of %d", parts(), before)
		}
		lines, _ := findings(t, dir)
		if !strings.Contains(strings.Join(lines, "\n"), "damaged: _scans/crash-1/commits/"+want) {
			t.Errorf("without the records %v: %q, want %q", gone, lines, want)
		}
		// The records are restored, and the scan continues, also under the lock that was refused. Then it is restarted
		// without them.
		move(aside, record)
		if err := scanAll(dir, sites); err != nil {
			t.Fatal(err)
		}
		if rows := readAll[schema.SiteRow](t, dir, crashOptions.ScanID, schema.Sites); len(rows) != len(sites) {
			t.Errorf("%d sites", len(rows))
		}
		move(record, aside)
		o := crashOptions
		o.Restart = true
		if err := finish(mustOpen(t, dir, o), sites); err != nil {
			t.Fatal(err)
		}
		if lines, _ := findings(t, dir); len(lines) > 0 {
			t.Errorf("begun anew: %q", lines)
		}
	}
	f("0-0.json: it is missing: its shard has later commits", 0)
	f("0-2.json: it is missing: its shard has later commits", 2)
	f("0-1.json: it is missing, and so are the 2 after it: its shard has later commits", 1, 2, 3)
	f("0-0.json: it is missing: its shard has later commits", 0, 3)
	f("", 4) // the last record: only the totals of a complete scan show the loss

	// Records that a compaction has merged are not missing.
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	mustCompact(t, dir, compact.Options{})
	if err := scanAll(dir, typicalSites(t, 2*crashSites)); err != nil {
		t.Error(err)
	}
	mustCompact(t, dir, compact.Options{})
	if rows := readAll[schema.SiteRow](t, dir, crashOptions.ScanID, schema.Sites); len(rows) != 2*crashSites {
		t.Errorf("%d sites", len(rows))
	}
	if _, err := store.ReadAll(t.Context(), dir, commit.RecordName(crashOptions.ScanID, "0", 0), 1); !errors.Is(err,
		store.ErrNotExist) {
		t.Errorf("the merged records are still there: %v", err)
	}
}
