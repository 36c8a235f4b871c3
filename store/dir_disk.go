package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Disk is the calls of a Dir to the operating system. Paths are absolute, errors are the system's. Tests replace the
// one real disk, since it cannot fail a chosen call, be full, or lose unsynced changes at will (storetest.Disk).
type Disk interface {
	// Create makes a new file for writing; fs.ErrExist if the path exists.
	Create(path string) (DiskFile, error)
	// Open opens a regular file, or a link to one, for reading. Anything else in its place is an *IrregularError; Open
	// does not wait for it.
	Open(path string) (DiskFile, error)
	// Stat follows links.
	Stat(path string) (fs.FileInfo, error)
	// Walk is filepath.WalkDir, except that it follows a root that is a link.
	Walk(root string, visit fs.WalkDirFunc) error

	Mkdir(path string) error
	// Link gives a file a second name; fs.ErrExist where the name is taken.
	Link(path, second string) error
	// Rename replaces a file with the new name.
	Rename(path, to string) error
	// Remove removes a regular file, or a link. Anything else stays, and is an error.
	Remove(path string) error
	// RemoveFolder removes an empty folder. A link to a folder stays.
	RemoveFolder(path string) error
	// SyncFolder makes the names in a folder durable, if the system can.
	SyncFolder(path string) error

	// Lock locks the file of that path without waiting and writes holder to it. If the lock is held, the error is a
	// *HeldError with the file's content.
	Lock(path string, holder []byte) (Unlocker, error)
	// Held returns that *HeldError, or nil, and changes nothing.
	Held(path string) error
}

// DiskFile is a file of a Disk.
type DiskFile interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Sync() error
	Stat() (fs.FileInfo, error)
}

// system is the Disk of the operating system.
type system struct{}

func (system) Create(path string) (DiskFile, error) {
	created, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	return file(created, unlessDangling(path, err))
}

func (system) Open(path string) (DiskFile, error) { return file(openRegular(path, os.O_RDONLY)) }

// openRegular opens a regular file. It does not wait, as opening a named pipe does until another process opens its
// other end.
func openRegular(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag|noWait, 0o666) // #nosec G304 -- within the dataset
	if err != nil {
		if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() { // no system opens a socket
			err = irregular(path, info)
		}
		return nil, unlessDangling(path, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// irregular returns the error that says what is in a file's place.
func irregular(path string, info fs.FileInfo) error {
	what := "no regular file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSymlink != 0:
		what = "a link"
	}
	return &IrregularError{fmt.Sprintf("%s is %s in the place of a file; move it away", path, what)}
}

// unlessDangling returns an error about a path. If a link to nothing causes fs.ErrNotExist, it returns another error:
// the target of the link may exist again later.
func unlessDangling(path string, err error) error {
	for at := path; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); at = filepath.Dir(at) {
		to, linkErr := os.Readlink(at)
		if errors.Is(linkErr, fs.ErrNotExist) {
			continue
		}
		if _, statErr := os.Stat(at); linkErr == nil && errors.Is(statErr, fs.ErrNotExist) {
			return &IrregularError{fmt.Sprintf(
				"%s is a link to %.100q, which is not there; bring it back (git-annex: `git annex get`; a disk: mount it)", at, to)}
		}
		break
	}
	return err
}

// file keeps a nil *os.File from becoming a DiskFile that is not nil.
func file(f *os.File, err error) (DiskFile, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (system) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

func (system) Walk(root string, visit fs.WalkDirFunc) error {
	const behind = string(filepath.Separator) // a path with this end means the link's target
	return filepath.WalkDir(root+behind, func(path string, entry fs.DirEntry, err error) error {
		return visit(strings.TrimSuffix(path, behind), entry, unlessDangling(path, err))
	})
}

func (system) Mkdir(path string) error        { return unlessDangling(path, os.Mkdir(path, 0o777)) }
func (system) Link(path, second string) error { return os.Link(path, second) }
func (system) Rename(path, to string) error   { return os.Rename(path, to) }
func (system) Remove(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return unlessDangling(path, err)
	}
	if mode := info.Mode(); !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
		return irregular(path, info)
	}
	return os.Remove(path)
}

func (system) RemoveFolder(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return err
	}
	return os.Remove(path)
}
func (system) SyncFolder(path string) error { return syncFolder(path) }

// A Held at the same moment makes a Lock fail, too. So Lock tries again while Held finds no holder. It does so for a
// second at most, since a process may have been stopped within its Held.
const (
	lockTries = 100
	lockWait  = 10 * time.Millisecond
)

func (d system) Lock(path string, holder []byte) (Unlocker, error) {
	for try := 1; ; try++ {
		lock, err := d.lock(path, holder)
		if _, held := errors.AsType[*HeldError](err); !held || try == lockTries || d.Held(path) != nil {
			return lock, err
		}
		time.Sleep(lockWait)
	}
}

func (system) lock(path string, holder []byte) (Unlocker, error) {
	for {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, irregular(path, info) // a lock is written to, and a link's target is not ours
		}
		file, err := openRegular(path, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, err
		}
		if err := tryLock(file, exclusive); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		// The previous holder may have removed the file between our opening and our locking. A lock on that file
		// excludes no other process.
		ours, err1 := file.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(ours, there) {
			err := file.Truncate(0)
			if err == nil {
				_, err = file.WriteAt(holder, 0)
			}
			if err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return &dirLock{path: path, file: file}, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// Held takes the lock for a moment. Other calls of Held may take it at the same time.
func (system) Held(path string) error {
	file, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(tryLock(file, shared), file.Close())
}

// The ways to take the lock of a file.
const (
	exclusive = true
	shared    = false
)

// tryLock takes the lock of an open file. The error is a *HeldError if another process holds it.
func tryLock(file *os.File, alone bool) error {
	free, err := takeLock(file, alone)
	if err != nil || free {
		return err
	}
	held := &HeldError{}
	held.Holder, err = io.ReadAll(io.LimitReader(file, MaxHolder))
	return errors.Join(held, err)
}

type dirLock struct {
	path string
	file *os.File
}

func (l *dirLock) Unlock() error {
	if l.file == nil {
		return nil
	}
	// Remove while locked, so that no new lock file is removed instead.
	err := os.Remove(l.path)
	closed := l.file.Close()
	l.file = nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(l.path) // Windows removes no open file
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the file was removed with its folder
	}
	if err = errors.Join(err, closed); err != nil {
		return fmt.Errorf("cannot unlock: %w", err)
	}
	return nil
}
