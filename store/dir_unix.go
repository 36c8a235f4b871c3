//go:build unix && !solaris && !aix

package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// noWait are flags of open: do not wait for the other end of a named pipe, and take no terminal as one's own.
const noWait = unix.O_NONBLOCK | unix.O_NOCTTY

// takeLock takes the lock of an open file. It reports false if another process holds it.
func takeLock(file *os.File, alone bool) (bool, error) {
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(file.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("flock: %w", err)
		}
	}
}

// syncFolder makes a folder's names durable. File systems that cannot, such as some network mounts, return EINVAL or
// ENOTSUP. Nothing can make a rename more durable there.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}

// mayWrite returns an error if this process may not make files in a folder.
func mayWrite(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
