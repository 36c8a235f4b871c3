//go:build unix

package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkscan/bulkscan/internal/waittest"
	"github.com/bulkscan/bulkscan/store"
)

// hanging bounds a call that must not wait.
const hanging = waittest.Hanging

// kind is a kind of file in the place of an object.
type kind struct {
	name string
	put  func(path string) error
	size int64  // as listed
	is   string // what the error of Open calls it; "" if it is read
}

// target is the content of what links lead to; nothing may change it.
const target = "of somebody else"

// linkTo puts a link. Its target lies outside of the folder of the path, and is made by another kind.
func linkTo(put func(path string) error) func(path string) error {
	return func(path string) error {
		return errors.Join(put(filepath.Join(filepath.Dir(filepath.Dir(path)), ".target")), os.Symlink("../.target", path))
	}
}

func putFile(path string) error {
	return errors.Join(os.WriteFile(path, []byte(target), 0o444), os.Chmod(path, 0o444))
}
func putFolder(path string) error { return os.Mkdir(path, 0o777) }
func putPipe(path string) error   { return unix.Mkfifo(path, 0o666) }
func putSocket(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
}

const unlisted = -2 // a folder without objects

func kinds() []kind {
	return []kind{
		{"file", putFile, int64(len(target)), ""},
		{"link to a file", linkTo(putFile), int64(len(target)), ""},
		{"link to a link to a file", linkTo(func(path string) error {
			return errors.Join(putFile(path+"2"), os.Symlink(".target2", path))
		}), int64(len(target)), ""},
		{"folder", putFolder, unlisted, " is a folder"},
		{"link to a folder", linkTo(putFolder), unlisted, " is a folder"},
		{"link to its folder", func(path string) error { return os.Symlink(".", path) }, store.Irregular, " is a folder"},
		{"link to itself", func(path string) error { return os.Symlink(filepath.Base(path), path) }, store.Irregular,
			"too many levels"},
		{"link to nothing", func(path string) error { return os.Symlink("../.gone", path) }, store.Irregular,
			` is a link to "../.gone", which is not there`},
		{"link to a link to nothing", linkTo(func(path string) error { return os.Symlink("gone", path) }), store.Irregular,
			` is a link to "../.target", which is not there`},
		{"named pipe", putPipe, store.Irregular, " is a named pipe"},
		{"link to a named pipe", linkTo(putPipe), store.Irregular, " is a named pipe"},
		{"socket", putSocket, store.Irregular, " is a socket"},
		{"link to a socket", linkTo(putSocket), store.Irregular, " is a socket"},
		{"link to a device", func(path string) error { return os.Symlink("/dev/zero", path) }, store.Irregular,
			" is a device"},
	}
}

// behind describes the targets of the kinds' links.
func behind(root string) (text string) {
	for _, name := range []string{".target", ".target2", ".gone"} {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil {
			text += fmt.Sprintln(name, info.Mode())
			if info.Mode().IsRegular() {
				content, err := os.ReadFile(filepath.Join(root, name))
				text += fmt.Sprintf("%q %v\n", content, err)
			}
		}
	}
	return text
}

// TestDirIrregular calls every method for each kind of file in the place of an object. No call waits. Regular files,
// and links to them, are read; the error about any other kind names it, and is not that of a missing file. Links are
// replaced and deleted themselves: their targets stay. Nothing else is deleted.
func TestDirIrregular(t *testing.T) {
	// A call gets the kind, the path of f/x.lock or f/x, and the Dir. It returns what is wrong.
	type call func(ctx context.Context, d *store.Dir, k kind, path string) error
	refused := func(k kind, path string, err error) error {
		irregular := &store.IrregularError{}
		text := path + k.is
		if k.name == "link to itself" {
			text = k.is // said by the system
		} else if k.is != "" && !errors.As(err, &irregular) {
			return fmt.Errorf("not an IrregularError: %w", err)
		}
		if (err == nil) != (k.is == "") || err != nil && (errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
			text)) {
			return fmt.Errorf("got error %w", err)
		}
		return nil
	}
	// replaced returns an error unless the path is a regular file with that content.
	replaced := func(path, content string) error {
		info, err := os.Lstat(path)
		if err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("it is %s", info.Mode())
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != content {
			return fmt.Errorf("content %q, %w", data, err)
		}
		return err
	}
	isLink := func(k kind) bool { return strings.HasPrefix(k.name, "link") }
	calls := map[string]call{
		"f/x Open": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			object, err := d.Open(ctx, "f/x")
			if err == nil {
				data := make([]byte, object.Size())
				if n, err := object.ReadAt(data, 0); string(data[:n]) != target {
					return fmt.Errorf("content %q, %w", data[:n], err)
				}
				object.Close()
			}
			return refused(k, path, err)
		},
		"f/x ReadAll": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			_, err := store.ReadAll(ctx, d, "f/x", 100)
			return refused(k, path, err)
		},
		"f/x List": func(ctx context.Context, d *store.Dir, k kind, _ string) error {
			for _, prefix := range []string{"", "f/", "f/x"} {
				size := int64(unlisted)
				for entry, err := range d.List(ctx, prefix) {
					if err != nil || entry.Name != "f/x" {
						return fmt.Errorf("%q: %+v, %w", prefix, entry, err)
					}
					size = entry.Size
				}
				if size != k.size {
					return fmt.Errorf("%q: size %d", prefix, size)
				}
			}
			return nil
		},
		"f/x Put": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			err := d.Put(ctx, "f/x", []byte("new"))
			if k.name == "folder" {
				if err == nil {
					return errors.New("it replaced a folder")
				}
				return nil
			}
			return errors.Join(err, replaced(path, "new"))
		},
		"f/x CreateIfAbsent": func(ctx context.Context, d *store.Dir, _ kind, path string) error {
			was, _ := os.Lstat(path)
			if err := d.CreateIfAbsent(ctx, "f/x", []byte("new")); !errors.Is(err, store.ErrExist) {
				return fmt.Errorf("got error %w", err)
			}
			if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
				return errors.New("it was replaced")
			}
			return nil
		},
		"f/x Delete": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			err := d.Delete(ctx, "f/x")
			if k.is != "" && !isLink(k) {
				_, there := os.Lstat(path)
				return errors.Join(refused(k, path, err), there)
			}
			if _, there := os.Lstat(path); err != nil || !errors.Is(there, fs.ErrNotExist) {
				return fmt.Errorf("error %w, and then %w", err, there)
			}
			return nil
		},
		"f/.x.ABCDEFGH.bulkscan.tmp Sweep": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			err := d.Sweep(ctx, "f/", func(string) bool { return true })
			if _, there := os.Lstat(path); err != nil || (there == nil) != (k.name != "file") {
				return fmt.Errorf("error %w, and then %w", err, there)
			}
			return nil
		},
		"f/x.lock Lock": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			if k.name == "file" {
				return os.Chmod(path, 0o666) // a lock that a killed process left
			}
			_, err := d.Lock(ctx, "f/x.lock", []byte("me"))
			if isLink(k) {
				k = kind{is: " is a link in the place of a file; move it away"}
			}
			return refused(k, path, err)
		},
		"f/x.lock Held": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			return refused(k, path, d.Held(ctx, "f/x.lock"))
		},
		"f/x RemoveEmpty": func(ctx context.Context, d *store.Dir, k kind, path string) error {
			err := d.RemoveEmpty(ctx, "f")
			if _, there := os.Lstat(path); err != nil || (there == nil) != (k.name != "folder") {
				return fmt.Errorf("error %w, and then %w", err, there)
			}
			return nil
		},
	}
	for _, k := range kinds() {
		for name, do := range calls {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				root, err := os.MkdirTemp("", "store") // t.TempDir is too long for a socket
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(root)
				object, _, _ := strings.Cut(name, " ")
				path := filepath.Join(root, filepath.FromSlash(object))
				if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o777), k.put(path)); err != nil {
					t.Fatal(err)
				}
				dir, err := store.NewDir(root)
				if err != nil {
					t.Fatal(err)
				}
				was := behind(root)
				ended := make(chan error, 1)
				go func() { ended <- do(t.Context(), dir, k, path) }()
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(hanging):
					t.Fatal("it hangs")
				}
				if is := behind(root); is != was {
					t.Errorf("behind the link was\n%s, and is\n%s", was, is)
				}
			})
		}
	}
}
