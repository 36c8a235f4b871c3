package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestFoldersAreMadeDurable checks that an existing folder is synced like a new one, once, and again after it was
// deleted.
func TestFoldersAreMadeDurable(t *testing.T) {
	dir, err := NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{filepath.Join(dir.root, "a"), filepath.Join(dir.root, "a", "b")}
	if err := os.MkdirAll(folders[1], 0o777); err != nil { // by a process that was killed before its sync
		t.Fatal(err)
	}
	for range 2 {
		if err := dir.Put(t.Context(), "a/b/c", nil); err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			if _, done := dir.durable.LoadAndDelete(folder); !done {
				t.Errorf("%s was not made durable", folder)
			}
		}
		if err := os.RemoveAll(folders[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// forgetful is a disk whose Link succeeds but reports that the name exists, as NFS does if an answer is lost.
type forgetful struct{ system }

func (d forgetful) Link(path, second string) error {
	if err := d.system.Link(path, second); err != nil {
		return err
	}
	return fs.ErrExist
}

// TestLinkMadeTwice checks that such a link counts as success, and a name of another file as existing.
func TestLinkMadeTwice(t *testing.T) {
	dir, err := NewDirOn(forgetful{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.CreateIfAbsent(t.Context(), "a", []byte("ours")); err != nil {
		t.Error(err)
	}
	if err := dir.CreateIfAbsent(t.Context(), "a", []byte("ours")); !errors.Is(err, ErrExist) {
		t.Errorf("created again: %v", err)
	}
}

// TestSyncWhereItCannotBe checks that a file system without fsync of folders causes no error.
func TestSyncWhereItCannotBe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc is such a file system")
	}
	if err := syncFolder("/proc"); err != nil {
		t.Error(err)
	}
}
