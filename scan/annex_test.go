package scan

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
)

// annexed returns a dataset of these files as git-annex keeps it: each file is a read-only object in .git/annex, and a
// relative link to it is in its place. objects has the paths of the objects by the names of the files.
func annexed(t *testing.T, files map[string][]byte) (root string, st *changedStore, objects map[string]string) {
	t.Helper()
	root, objects = t.TempDir(), map[string]string{}
	var folders []string
	for name, data := range files {
		key := fmt.Sprintf("SHA256E-s%d--%x%s", len(data), sha256.Sum256(data), path.Ext(name))
		folder := filepath.Join(root, ".git", "annex", "objects", key[len(key)-12:len(key)-10], key)
		object, link := filepath.Join(folder, key), filepath.Join(root, filepath.FromSlash(name))
		to, err := filepath.Rel(filepath.Dir(link), object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(object); err != nil {
			if err := errors.Join(os.MkdirAll(folder, 0o777), os.WriteFile(object, data, 0o444)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o777), os.Symlink(to, link)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		objects[name], folders = object, append(folders, folder)
	}
	for _, folder := range folders {
		if err := os.Chmod(folder, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(folder, 0o777) })
	}
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, &changedStore{Store: dir}, objects
}

// answered returns a reader's answer about a dataset.
func answered(t *testing.T, a asker, st store.Store) (text string, err error) {
	t.Helper()
	got, err := a.ask(t.Context(), st)
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(got)
	return string(encoded), err
}

// contents are the bytes of the files below a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			found[path] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAnnexed shows that all readers, and commands that delete or seal, give the same answers for a dataset under
// git-annex as for the same dataset in plain files; that verify has the same findings; and that the objects stay
// unchanged.
func TestAnnexed(t *testing.T) {
	files, nights := newDoor(t, -1)
	plain, st := newDisk(t), store.Store(nil)
	for name, data := range files {
		if err := plain.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	want := findings(t, plain, verify.Damaged, verify.Leftover, verify.Newer)
	for _, a := range askers(nights) {
		root, linked, _ := annexed(t, files)
		st = linked
		objects := contents(t, filepath.Join(root, ".git"))
		before := findings(t, st, verify.Damaged, verify.Leftover, verify.Newer)
		if !slices.Equal(before, want) {
			t.Errorf("verify: %q, want %q", before, want)
		}
		expected, err := answered(t, a, placed(t, files))
		if err != nil {
			t.Fatal(a.name, err)
		}
		if got, err := answered(t, a, st); got != expected || err != nil {
			t.Errorf("%s: another answer, %v", a.name, err)
		}
		if found := findings(t, st, verify.Damaged); len(found) > 0 {
			t.Errorf("after %s: %q", a.name, found)
		}
		if !maps.Equal(contents(t, filepath.Join(root, ".git")), objects) {
			t.Errorf("%s has changed objects", a.name)
		}
	}
}

// TestAnnexedWithout removes the content of each file of a dataset under git-annex, as in a clone without the contents.
// Every reader gives the same answer, or an error that names the file. The error says how to get the file, or names
// verify, which says so.
func TestAnnexedWithout(t *testing.T) {
	files, nights := newDoor(t, -1)
	all, want := askers(nights), map[string]string{}
	for _, a := range all {
		var err error
		if want[a.name], err = answered(t, a, placed(t, files)); err != nil {
			t.Fatal(a.name, err)
		}
	}
	turns := 1
	if testing.Short() {
		turns = 6
	}
	refused, recorded := 0, string(files[schema.LedgerName])
	for name, data := range files {
		if commit.IsHead(name) {
			recorded += string(data)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(files)) {
		var st *changedStore
		for k, a := range all {
			if (i+k)%turns != 0 {
				continue
			}
			if st == nil || st.changed.Load() {
				var objects map[string]string
				_, st, objects = annexed(t, files)
				if err := errors.Join(os.Chmod(filepath.Dir(objects[name]), 0o777), os.Remove(objects[name])); err != nil {
					t.Fatal(err)
				}
				found := strings.Join(findings(t, st, verify.Damaged), "\n")
				// the next merge deletes the others
				verified := name != "README.md" && (!strings.HasPrefix(name, "history/") || name == schema.LedgerName ||
					strings.Contains(recorded, name))
				if verified && !(strings.Contains(found, name) && strings.Contains(found, "git annex get")) {
					t.Errorf("verify without %s: %s", name, found)
				}
			}
			got, err := answered(t, a, st)
			if err != nil {
				refused++
			}
			if err != nil && !(strings.Contains(err.Error(), name) && (strings.Contains(err.Error(), "git annex get") ||
				strings.Contains(err.Error(), "bulkscan verify"))) {
				t.Errorf("%s without %s: %v", a.name, name, err)
			} else if err == nil && got != want[a.name] && !(a.name == "report" && strings.HasSuffix(name, "/manifest.json")) {
				// it lists the scans that can be read, and the command warns of others
				t.Errorf("%s without %s: another answer", a.name, name)
			}
		}
	}
	t.Logf("%d files, %d refused", len(files), refused)
}
