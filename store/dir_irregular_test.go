//go:build unix

package store_test

import (
	"context"
	"errors"
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

// irregulars put what is no file under a path.
var irregulars = map[string]func(path string) error{
	"a named pipe": func(path string) error { return unix.Mkfifo(path, 0o666) },
	"a folder":     func(path string) error { return os.Mkdir(path, 0o777) },
	"a socket": func(path string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
	},
	"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	"a named pipe behind a link": func(path string) error {
		pipe := filepath.Join(filepath.Dir(path), ".pipe")
		return errors.Join(unix.Mkfifo(pipe, 0o666), os.Symlink(pipe, path))
	},
}

// TestDirIrregular shows that what is no file, in the place of one, is never waited for and never taken for a missing file, and
// that the error of each call names it.
func TestDirIrregular(t *testing.T) {
	calls := map[string]func(ctx context.Context, d *store.Dir) error{
		"open": func(ctx context.Context, d *store.Dir) error { _, err := d.Open(ctx, "f/lock"); return err },
		"readall": func(ctx context.Context, d *store.Dir) error {
			_, err := store.ReadAll(ctx, d, "f/lock", 100)
			return err
		},
		"held": func(ctx context.Context, d *store.Dir) error { return d.Held(ctx, "f/lock") },
		"lock": func(ctx context.Context, d *store.Dir) error {
			_, err := d.Lock(ctx, "f/lock", []byte("me"))
			return err
		},
	}
	for kind, put := range irregulars {
		for call, do := range calls {
			t.Run(kind+"/"+call, func(t *testing.T) {
				root, err := os.MkdirTemp("", "store") // t.TempDir is too long for a socket
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(root)
				path := filepath.Join(root, "f", "lock")
				if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o777), put(path)); err != nil {
					t.Fatal(err)
				}
				dir, err := store.NewDir(root)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- do(t.Context(), dir) }()
				select {
				case err := <-ended:
					what, _, _ := strings.Cut(kind, " behind")
					if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path+" is "+what) {
						t.Errorf("%v", err)
					}
				case <-time.After(hanging):
					t.Fatal("it hangs")
				}
			})
		}
	}
}

// TestDirIrregularStays shows that what is no file is listed under its name, unless it is a link or a folder, and that neither
// Delete nor Sweep removes it.
func TestDirIrregularStays(t *testing.T) {
	for kind, put := range irregulars {
		t.Run(kind, func(t *testing.T) {
			root, err := os.MkdirTemp("", "store")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(root)
			draft := filepath.Join(root, ".x.ABCDEFGH.bulkscan.tmp")
			if err := errors.Join(put(filepath.Join(root, "x")), unix.Mkfifo(draft, 0o666)); err != nil {
				t.Fatal(err)
			}
			dir, err := store.NewDir(root)
			if err != nil {
				t.Fatal(err)
			}
			listed := false
			for entry, err := range dir.List(t.Context(), "") {
				if err != nil || entry.Name != "x" || entry.Size != store.Irregular {
					t.Errorf("%+v, %v", entry, err)
				}
				listed = true
			}
			if want := kind == "a named pipe" || kind == "a socket"; listed != want {
				t.Errorf("listed: %v", listed)
			}
			if err := dir.Sweep(t.Context(), "", func(string) bool { return true }); err != nil {
				t.Error(err)
			}
			stays := []string{draft}
			if err := dir.Delete(t.Context(), "x"); listed || kind == "a folder" {
				stays = append(stays, filepath.Join(root, "x"))
				if err == nil || !strings.Contains(err.Error(), "x is "+kind) {
					t.Errorf("Delete: %v", err)
				}
			} else if err != nil {
				t.Errorf("Delete of a link: %v", err)
			}
			for _, path := range stays {
				if _, err := os.Lstat(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
