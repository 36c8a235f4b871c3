package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/store"
)

// nested are the names of a small dataset.
var nested = []string{"_scans/s/commits/0-0.json", "_scans/s/manifest.json", "sites/scan_date=1/a",
	"sites/scan_date=1/b", "sites/scan_date=2/a"}

// newNested writes a file for each name of nested.
func newNested(t *testing.T) (root string, dir *store.Dir) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "out")
	dir, err := store.NewDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range nested {
		if err := dir.Put(t.Context(), name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	return root, dir
}

// moved moves folders of a dataset elsewhere, and puts links to them in their place.
func moved(t *testing.T, root string, folders ...string) (elsewhere string) {
	t.Helper()
	elsewhere = t.TempDir()
	for i, folder := range folders {
		// a hidden folder may be led to
		from, to := filepath.Join(root, filepath.FromSlash(folder)), filepath.Join(elsewhere, fmt.Sprintf(".%d", i))
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, from); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	return elsewhere
}

// list returns the names and sizes of a list, and its error.
func list(t *testing.T, dir *store.Dir, prefix string) (text string, err error) {
	t.Helper()
	for entry, err := range dir.List(t.Context(), prefix) {
		if err != nil {
			return text, err
		}
		text += fmt.Sprintln(entry.Name, entry.Size)
	}
	return text, nil
}

// prefixes are all beginnings of names.
func prefixes() (all []string) {
	for _, name := range nested {
		for i := range len(name) + 1 {
			all = append(all, name[:i])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestDirMovedFolders shows that folders of a dataset may be links, also in each other: lists and files are unchanged,
// and deleting, sweeping or writing behind a link works as in a folder. The links stay.
func TestDirMovedFolders(t *testing.T) {
	for _, folders := range [][]string{{"sites"}, {"sites/scan_date=1"}, {"sites/scan_date=1", "sites/scan_date=2",
		"sites"}, {"_scans/s/commits", "_scans/s", "_scans"}} {
		t.Run(strings.Join(folders, " "), func(t *testing.T) {
			root, dir := newNested(t)
			want := map[string]string{}
			for _, prefix := range prefixes() {
				want[prefix], _ = list(t, dir, prefix)
			}
			moved(t, root, folders...)
			for _, prefix := range prefixes() {
				if got, err := list(t, dir, prefix); got != want[prefix] || err != nil {
					t.Errorf("List(%q) = %s, %v; want %s", prefix, got, err, want[prefix])
				}
			}
			ours := []string{"sites/scan_date=1/c", "sites/scan_date=1/draft", "_scans/s/commits/draft"}
			if err := dir.Put(t.Context(), ours[0], nil); err != nil {
				t.Error(err)
			}
			for _, name := range ours[1:] {
				if _, err := dir.Create(t.Context(), name); err != nil { // by a process that was killed
					t.Error(err)
				}
			}
			var swept []string
			if err := dir.Sweep(t.Context(), "",
				func(name string) bool { swept = append(swept, name); return true }); err != nil || len(swept) != 2 {
				t.Errorf("swept %q, %v", swept, err)
			}
			for _, name := range append(nested, ours[0]) {
				if err := dir.Delete(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
			for _, folder := range []string{"sites/scan_date=1", "sites/scan_date=2", "_scans/s"} {
				if err := dir.RemoveEmpty(t.Context(), folder); err != nil {
					t.Error(err)
				}
			}
			if got, err := list(t, dir, ""); got != "" || err != nil {
				t.Errorf("left %s, %v", got, err)
			}
			for _, folder := range folders[len(folders)-1:] {
				if info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(folder))); err != nil ||
					info.Mode()&fs.ModeSymlink == 0 {
					t.Errorf("%s: %v", folder, err)
				}
			}
		})
	}
}

// TestDirEmptyFoldersBehindLinks shows that RemoveEmpty does not follow a link in the folder that it is to remove.
func TestDirEmptyFoldersBehindLinks(t *testing.T) {
	root, dir := newNested(t)
	foreign := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(foreign, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(foreign), filepath.Join(root, "sites", "scan_date=1", "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := dir.RemoveEmpty(t.Context(), "sites"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// TestDirLostFolders shows that a link to a missing folder, as on a disk that is not mounted, does not count as a
// missing folder: every call about a name behind it fails and names the link. A list of the folder above has an entry
// for it.
func TestDirLostFolders(t *testing.T) {
	for _, folder := range []string{"sites", "sites/scan_date=1", "_scans/s", "_scans/s/commits"} {
		t.Run(folder, func(t *testing.T) {
			root, dir := newNested(t)
			if err := os.RemoveAll(moved(t, root, folder)); err != nil {
				t.Fatal(err)
			}
			f := func(what string, err error) {
				t.Helper()
				irregular := &store.IrregularError{}
				if !errors.As(err, &irregular) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
					filepath.Join(root, filepath.FromSlash(folder))+" is a link to ") {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, prefix := range prefixes() {
				switch got, err := list(t, dir, prefix); {
				case strings.HasPrefix(prefix, folder+"/"):
					f("List "+prefix, err)
				case strings.HasPrefix(folder, prefix):
					if err != nil || !strings.Contains(got, fmt.Sprintln(folder, store.Irregular)) {
						t.Errorf("List(%q) = %s, %v", prefix, got, err)
					}
				case err != nil:
					t.Error(err)
				}
			}
			for _, name := range nested {
				if !strings.HasPrefix(name, folder+"/") {
					continue
				}
				_, err := dir.Open(t.Context(), name)
				f("Open", err)
				f("Put", dir.Put(t.Context(), name, nil))
				f("CreateIfAbsent", dir.CreateIfAbsent(t.Context(), name, nil))
				f("Delete", dir.Delete(t.Context(), name))
			}
			f("Sweep", dir.Sweep(t.Context(), folder+"/", func(string) bool { return true }))
			_, err := dir.Lock(t.Context(), folder+"/lock", nil)
			f("Lock", err)
			f("Held", dir.Held(t.Context(), folder+"/lock"))
		})
	}
}

// TestDirLoops shows that a list ends although links to folders lead back. A link to a folder that contains it is
// listed and not followed. Links into each other are followed some times, until the system or maxLinks says that they
// are too many.
func TestDirLoops(t *testing.T) {
	t.Parallel()
	for _, to := range []string{".", "..", "../..", "../sites/scan_date=1"} {
		root, dir := newNested(t)
		before, err := list(t, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		name := "sites/scan_date=1/x"
		if err := os.Symlink(to, filepath.Join(root, filepath.FromSlash(name))); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		got, err := list(t, dir, "")
		if want := strings.Replace(before, "sites/scan_date=2", fmt.Sprintln(name, store.Irregular)+"sites/scan_date=2",
			1); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", to, got, err, want)
		}
	}
	if testing.Short() {
		return
	}
	root, dir := newNested(t)
	const rooms = 9 // with links to each other, which makes 9! paths
	for from := range rooms {
		for to := range rooms {
			room := filepath.Join(root, "sites", fmt.Sprint("room", from))
			if err := errors.Join(os.MkdirAll(room, 0o777), os.Symlink(fmt.Sprint("../room", to),
				filepath.Join(room, fmt.Sprint(to)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := list(t, dir, "sites/"); err == nil || !strings.Contains(err.Error(), "lead into each other") {
		t.Error(err)
	}
	if got, err := list(t, dir, "sites/scan_date=2"); got == "" || err != nil {
		t.Error(got, err)
	}
}
