package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

func TestDir(t *testing.T) {
	storetest.Run(t, nil, func(t *testing.T) func() store.Store {
		root := filepath.Join(t.TempDir(), "not", "there", "yet")
		return func() store.Store {
			dir, err := store.NewDir(root)
			if err != nil {
				t.Fatal(err)
			}
			return dir
		}
	})
}

// TestWritable checks what is certain about a place without writing there.
func TestWritable(t *testing.T) {
	folder := t.TempDir()
	file, closed := filepath.Join(folder, "file"), filepath.Join(folder, "closed")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Mkdir(closed, 0o500)); err != nil {
		t.Fatal(err)
	}
	f := func(path, want string) {
		t.Helper()
		dir, err := store.NewDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Writable(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	f(folder, "")
	f(filepath.Join(folder, "not", "there", "yet"), "")
	f(file, file+" is no folder")
	f(filepath.Join(file, "below"), file+" is no folder")
	if runtime.GOOS != "windows" && os.Geteuid() != 0 {
		f(closed, "permission denied")
		f(filepath.Join(closed, "below"), closed+": permission denied")
	}
	if made, err := os.ReadDir(folder); err != nil || len(made) != 2 {
		t.Errorf("it made something: %v, %v", made, err)
	}
}

// TestDirInMemory checks that the tests' disk behaves like the real one.
func TestDirInMemory(t *testing.T) {
	for _, links := range []bool{true, false} {
		t.Run(fmt.Sprintf("links %v", links), func(t *testing.T) {
			storetest.Run(t, nil, func(t *testing.T) func() store.Store {
				disk := storetest.NewDisk()
				disk.NoLinks = !links
				return func() store.Store {
					dir, err := store.NewDirOn(disk, "/not/there/yet")
					if err != nil {
						t.Fatal(err)
					}
					return dir
				}
			})
		})
	}
}

// TestDirLeavesNothing checks that no temporary names and locks are left.
func TestDirLeavesNothing(t *testing.T) {
	root := t.TempDir()
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := dir.Put(ctx, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := dir.CreateIfAbsent(ctx, "b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := dir.CreateIfAbsent(ctx, "b", []byte("y")); err == nil {
		t.Fatal("created twice")
	}
	lock, err := dir.Lock(ctx, "lock", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if len(names) != 2 || names[0] != "a" || names[1] != "b" {
		t.Errorf("left: %q", names)
	}
}

// TestDirRemoveEmpty checks that only empty folders are removed, and that they can be written to again.
func TestDirRemoveEmpty(t *testing.T) {
	root := t.TempDir()
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"a/b/c/x", "a/file/x", "a/draft/x", "a/lock/x", "ab/x"} {
		if err := errors.Join(dir.Put(ctx, name, nil), dir.Delete(ctx, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := dir.Put(ctx, "a/file/y", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Create(ctx, "a/draft/y"); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Lock(ctx, "a/lock/lock", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(dir.RemoveEmpty(ctx, "a"), dir.RemoveEmpty(ctx, "missing")); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := filepath.WalkDir(root, func(path string, file fs.DirEntry, err error) error {
			if err == nil && file.IsDir() {
				got = append(got, strings.TrimPrefix(filepath.ToSlash(path[len(root):]), "/"))
			}
			return err
		})
		if want := []string{"", "a", "a/draft", "a/file", "a/lock", "ab"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q, %v", got, want, err)
		}
		if err := errors.Join(dir.Put(ctx, "a/b/c/x", nil), dir.Delete(ctx, "a/b/c/x")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirSweepsOnlyDrafts shows that Sweep removes drafts, and no file that another program may have named.
func TestDirSweepsOnlyDrafts(t *testing.T) {
	root := t.TempDir()
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, goes bool) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := dir.Sweep(t.Context(), "", func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) != goes {
			t.Errorf("%s: %v", name, err)
		}
	}
	draft, err := dir.Create(t.Context(), "a.json")
	if err != nil || draft.Seal() != nil {
		t.Fatal(err)
	}
	drafts, err := filepath.Glob(filepath.Join(root, ".a.json.*"))
	if err != nil || len(drafts) != 1 {
		t.Fatal(drafts, err)
	}
	f(filepath.Base(drafts[0]), true)
	f(".a.json.ABCD2345.bulkscan.tmp", true)
	f(".a.json.ABCD2345.tmp", false)
	f(".a.json.abcdefgh.bulkscan.tmp", false)
	f(".a.json.ABCD2345.bulkscan.tmp~", false)
	f(".a.json.bulkscan.tmp", false)
	f(".notes.20261126.tmp", false)
	f(".syncthing.a.json.tmp", false)
	f(".a.json.Xy12Zw", false) // rsync
	f("a.json.ABCD2345.bulkscan.tmp", false)
}

// TestDirStaleLock checks that the lock file of a dead process locks nothing.
func TestDirStaleLock(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "lock"), []byte(`{"pid":1}`), 0o666); err != nil {
		t.Fatal(err)
	}
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock(t.Context(), "lock", []byte("me"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "lock")); err != nil || string(text) != "me" {
		t.Errorf("the lock says %q, %v", text, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// A free lock is taken although others call Held meanwhile; the file is that of a dead process.
func TestDirLockWhileOthersLook(t *testing.T) {
	root := t.TempDir()
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var lookers sync.WaitGroup
	defer lookers.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lookers.Go(func() {
		for ctx.Err() == nil {
			_ = dir.Held(ctx, "lock") // now nil, now a *HeldError
		}
	})
	for range 200 {
		if err := os.WriteFile(filepath.Join(root, "lock"), []byte("dead"), 0o600); err != nil {
			t.Fatal(err)
		}
		lock, err := dir.Lock(t.Context(), "lock", []byte("me"))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirAfterTheDead checks that changes of a killed process become durable with the next one: names added and names
// removed.
func TestDirAfterTheDead(t *testing.T) {
	f := func(op string, dying func(*store.Dir) error, next func(*store.Dir) error, want string) {
		t.Helper()
		disk := storetest.NewDisk()
		dir := func() *store.Dir {
			d, err := store.NewDirOn(disk, "/out")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if err := dir().Put(t.Context(), "a/old", []byte("old")); err != nil {
			t.Fatal(err)
		}
		killed := false
		disk.Fail = func(_ int, c storetest.Call) error {
			if killed {
				return storetest.ErrCrashed
			}
			killed = c.Op == op // the last call that has its effect
			return nil
		}
		if err := dying(dir()); err == nil {
			t.Errorf("%s: no process was killed", op)
		}
		disk = disk.Restart(storetest.Nothing)
		if err := next(dir()); err != nil {
			t.Errorf("after %s: %v", op, err)
		}
		disk = disk.Restart(storetest.Unsynced)
		var names []string
		for entry, err := range dir().List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, entry.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("killed after %s, continued, and without power: %q, want %q", op, got, want)
		}
	}
	put := func(d *store.Dir) error { return d.Put(t.Context(), "a/new", []byte("new")) }
	create := func(d *store.Dir) error { return d.CreateIfAbsent(t.Context(), "a/new", []byte("new")) }
	remove := func(d *store.Dir) error { return d.Delete(t.Context(), "a/old") }
	sweep := func(d *store.Dir) error { return d.Sweep(t.Context(), "a/", func(string) bool { return true }) }
	f("rename", put, sweep, "a/new a/old")
	f("rename", put, remove, "a/new")
	f("link", create, sweep, "a/new a/old")
	f("remove", remove, remove, "")
	f("remove", remove, sweep, "")
	f("remove", remove, put, "a/new")
}

// TestDirClaims ends CreateIfAbsent at each of its changes, on a file system without hard links. A list shows the
// complete file or none, before and after a Sweep, and then the name can be created, unless it was.
func TestDirClaims(t *testing.T) {
	ctx := t.Context()
	sweep := func(d *store.Dir) error { return d.Sweep(ctx, "a/", func(string) bool { return true }) }
	for _, loss := range []storetest.Loss{storetest.Nothing, storetest.Unsynced, storetest.Contents, storetest.Scrambled,
		storetest.Scrambled + 1, storetest.Scrambled + 2, storetest.Scrambled + 3} {
		for n, off := 1, true; off; n++ {
			for _, effect := range []bool{false, true} {
				disk := storetest.NewDisk()
				on := func() *store.Dir {
					dir, err := store.NewDirOn(disk, "/data")
					if err != nil {
						t.Fatal(err)
					}
					return dir
				}
				look := func(when string) (there bool) {
					for entry, err := range on().List(ctx, "a/") {
						if err != nil || entry.Name != "a/b" || entry.Size != 3 {
							t.Errorf("%v, %d changes, %s: %+v, %v", loss, n, when, entry, err)
						}
						there = true
					}
					return there
				}
				disk.NoLinks = true
				if err := on().Put(ctx, "a/b", nil); err != nil { // the folder is there
					t.Fatal(err)
				}
				if err := on().Delete(ctx, "a/b"); err != nil {
					t.Fatal(err)
				}
				before := 0
				for _, call := range disk.Calls() {
					if call.Changes() {
						before++
					}
				}
				disk.CutAt(before+n, effect)
				_ = on().CreateIfAbsent(ctx, "a/b", []byte("new"))
				off = disk.Off()
				disk = disk.Restart(loss)
				look("after it")
				if err := sweep(on()); err != nil {
					t.Fatal(err)
				}
				there := look("after a sweep")
				if err := on().CreateIfAbsent(ctx, "a/b", []byte("new")); errors.Is(err, store.ErrExist) != there ||
					!there && err != nil {
					t.Errorf("%v, %d changes: created again: %v", loss, n, err)
				}
				look("after another one")
			}
		}
	}
}

// TestDirNoPlace checks that errors name what failed.
func TestDirNoPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	dir, err := store.NewDir(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Put(t.Context(), "a/b", nil); err == nil {
		t.Error("put below a file")
	}
	if _, err := dir.Lock(t.Context(), "a/lock", nil); err == nil {
		t.Error("lock below a file")
	}
}

// TestDirLinks checks that a dataset, or a folder of it, may be behind a symbolic link.
func TestDirLinks(t *testing.T) {
	place, elsewhere := t.TempDir(), t.TempDir()
	root := filepath.Join(place, "link")
	if err := os.Symlink(elsewhere, root); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(elsewhere, "sites")); err != nil {
		t.Fatal(err)
	}
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "sites/b/c", "sites/d"} {
		if err := dir.Put(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dir.Create(t.Context(), "sites/dead"); err != nil {
		t.Fatal(err)
	}
	f := func(prefix string, want ...string) {
		t.Helper()
		var got []string
		for entry, err := range dir.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, entry.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%q) = %q, want %q", prefix, got, want)
		}
	}
	f("a", "a")
	f("sites/", "sites/b/c", "sites/d")
	f("sites/b", "sites/b/c")
	f("sites/b/", "sites/b/c")
	swept := ""
	if err := dir.Sweep(t.Context(), "sites/", func(name string) bool { swept = name; return true }); err != nil {
		t.Fatal(err)
	}
	if err := dir.RemoveEmpty(t.Context(), "sites"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(root, "sites"))
	if err != nil || len(left) != 2 || swept != "sites/dead" {
		t.Errorf("swept %q, left %v, %v", swept, left, err)
	}
}
