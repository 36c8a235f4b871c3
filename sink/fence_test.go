package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// leased is a Dir whose locks are leases that an earlier holder has lost. A request of that holder may still arrive.
type leased struct {
	*store.Dir
	late     bool
	onCreate func(name string) // if not nil, called before each CreateIfAbsent
}

func (l *leased) Lock(ctx context.Context, name string, holder []byte) (store.Unlocker, error) {
	lock, err := l.Dir.Lock(ctx, name, holder)
	return &lateLease{lock, l}, err
}

func (l *leased) CreateIfAbsent(ctx context.Context, name string, data []byte) error {
	if l.onCreate != nil {
		l.onCreate(name)
	}
	return l.Dir.CreateIfAbsent(ctx, name, data)
}

type lateLease struct {
	store.Unlocker
	l *leased
}

func (l *lateLease) Late() bool { return l.l.late }
func (l *lateLease) Fenced()    { l.l.late = false }

// TestFence shows that a commit which arrives after the lock has passed counts if the new holder has not looked yet,
// and is refused afterwards. It shows that later numbers follow it, and that a tombstone is never taken for a part.
func TestFence(t *testing.T) {
	for _, early := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			t.Run(fmt.Sprintf("early %v, restart %v", early, restart), func(t *testing.T) {
				dir := newDir(t)
				sites := typicalSites(t, crashSites)
				options := crashOptions
				w := mustOpen(t, dir, options)
				for _, s := range sites[:8] {
					if err := w.Add(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				// The late commit has not arrived yet.
				record := filepath.Join(dir.Root(), commit.RecordName(options.ScanID, "0", 1))
				late, err := os.ReadFile(record)
				if err == nil {
					err = os.Remove(record)
				}
				if err != nil {
					t.Fatal(err)
				}
				arrive := func() error {
					return dir.CreateIfAbsent(t.Context(), commit.RecordName(options.ScanID, "0", 1), late)
				}
				st := &leased{Dir: dir, late: true}
				if early {
					st.onCreate = func(name string) {
						if name == commit.RecordName(options.ScanID, "0", 1) {
							st.onCreate = nil
							if err := arrive(); err != nil {
								t.Error(err)
							}
						}
					}
				}
				options.Restart = restart
				w = mustOpen(t, st, options)
				if want := map[bool]uint64{true: 8, false: 4}[early]; !restart && w.DoneCount() != want {
					t.Errorf("%d done, want %d", w.DoneCount(), want)
				}
				if st.late {
					t.Error("the next holder is told of a late request")
				}
				if !early {
					if err := arrive(); !errors.Is(err, store.ErrExist) {
						t.Errorf("a commit that is late: %v", err)
					}
				}
				if err := finish(w, sites); err != nil {
					t.Fatal(err)
				}
				for range 2 { // also after a compaction
					everySiteOnce(t, dir)
					found, err := verify.Dataset(t.Context(), dir, verify.Options{Report: func(f verify.Finding) { t.Error(f) }})
					if err != nil || found.Scans != 1 {
						t.Errorf("%+v, %v", found, err)
					}
					st.late = true
					if _, err := compact.Scan(t.Context(), st, options.ScanID, compact.Options{}); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// TestFenceOfNewShard shows the same for a shard without records, which only its parts show. They stay until the shard
// is written again or the scan is restarted, and Verify reports them.
func TestFenceOfNewShard(t *testing.T) {
	for _, then := range []string{"resumed", "restarted", "compacted"} {
		for _, next := range []string{"0", "3"} {
			t.Run(then+" as "+next, func(t *testing.T) {
				dir := newDir(t)
				sites := typicalSites(t, crashSites)
				options := crashOptions
				options.Shard = "3"
				name := commit.RecordName(options.ScanID, "3", 0)
				w := mustOpen(t, dir, options)
				for _, s := range sites[:4] {
					if err := w.Add(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				// The late commit has not arrived yet.
				record := filepath.Join(dir.Root(), name)
				late, err := os.ReadFile(record)
				if err == nil {
					err = os.Remove(record)
				}
				if err != nil {
					t.Fatal(err)
				}
				st := &leased{Dir: dir, late: true}
				if then == "compacted" { // the next holder then has nothing to fence
					mustCompact(t, st, compact.Options{})
				}
				options.Shard, options.Restart = next, then == "restarted"
				w = mustOpen(t, st, options)
				if err := dir.CreateIfAbsent(t.Context(), name, late); !errors.Is(err, store.ErrExist) {
					t.Errorf("the late commit: %v", err)
				}
				if err := finish(w, sites); err != nil {
					t.Fatal(err)
				}
				everySiteOnce(t, dir)
				left := 0
				if next == "0" && then != "restarted" {
					left = len(schema.AllTables)
				}
				found, err := verify.Dataset(t.Context(), dir, verify.Options{Report: func(f verify.Finding) {
					if f.Kind != verify.Leftover || left == 0 || !strings.Contains(f.What, "its writer lost the lock") {
						t.Error(f)
					}
				}})
				if err != nil || found.Scans != 1 || found.Leftovers != left {
					t.Errorf("%+v, %v", found, err)
				}
			})
		}
	}
}

// TestRestartKeepsNumbers shows that the tombstone of a restart stays, so that later numbers follow those that it took
// out. It harms nothing, also after further restarts: each tombstone names what it took out itself.
func TestRestartKeepsNumbers(t *testing.T) {
	dir := newDir(t)
	sites := typicalSites(t, crashSites)
	options := crashOptions
	options.Restart = true
	for n := range 3 {
		w := mustOpen(t, dir, options)
		if w.DoneCount() != 0 {
			t.Errorf("%d done", w.DoneCount())
		}
		if err := finish(w, sites); err != nil {
			t.Fatal(err)
		}
		past, err := commit.ReadHistory(t.Context(), dir, options.ScanID)
		if err != nil || len(past.Current) != 3 || past.Current[0].N != 3*n || len(past.Tombstones) != n {
			t.Errorf("restarted %d times: %d commits from %+v on, %d tombstones, %v", n, len(past.Current),
				past.Current[0].Key(), len(past.Tombstones), err)
		}
		if n > 0 {
			if took := past.Tombstones[n-1].Replaces; len(took) != 2+n || took[0].N != 3*n-3 {
				t.Errorf("restarted %d times: it took out %+v", n, took)
			}
		}
		if n == 1 { // the same for compacted parts
			mustCompact(t, dir, compact.Options{})
		}
		everySiteOnce(t, dir)
		if lines, _ := findings(t, dir); len(lines) > 0 {
			t.Errorf("restarted %d times: %q", n, lines)
		}
	}
}

// TestRestartAfterTakeover restarts a scan whose last record is a tombstone, and which has lost the commit before it or
// has a part of a far number. It blocks the numbers that a late commit may have, and no others.
func TestRestartAfterTakeover(t *testing.T) {
	for _, late := range []bool{true, false} {
		for what, damage := range map[string]func(t *testing.T, dir *store.Dir){
			"nothing":            func(*testing.T, *store.Dir) {},
			"the commit is lost": func(t *testing.T, dir *store.Dir) { remove(t, dir, crashCommit(0)) },
			"a far part": func(t *testing.T, dir *store.Dir) {
				if err := dir.Put(t.Context(), commit.PartName(schema.Sites, crashOptions.Date, crashOptions.ScanID, "0", 500),
					[]byte("x")); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(fmt.Sprintf("%s, late %v", what, late), func(t *testing.T) {
				dir := newDir(t)
				sites := typicalSites(t, crashSites)
				for _, st := range []store.Store{dir, &leased{Dir: dir, late: true}} {
					w := mustOpen(t, st, crashOptions)
					if st == store.Store(dir) {
						if err := w.Add(sites[0]); err != nil {
							t.Fatal(err)
						}
					}
					if err := w.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				damage(t, dir)
				options := crashOptions
				options.Restart = true
				if err := finish(mustOpen(t, &leased{Dir: dir, late: late}, options), sites); err != nil {
					t.Fatal(err)
				}
				everySiteOnce(t, dir)
				if lines, _ := findings(t, dir); len(lines) > 0 {
					t.Errorf("%q", lines)
				}
				past, err := commit.ReadHistory(t.Context(), dir, options.ScanID)
				if err != nil || len(past.Tombstones) > 6 {
					t.Errorf("%d tombstones, %v", len(past.Tombstones), err)
				}
			})
		}
	}
}
