package store

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// noWait has no flag: on Windows no folder contains named pipes.
const noWait = 0

// takeLock takes the lock of an open file. It reports false if another process holds it. Windows locks byte ranges and
// denies reading them, so the range is far after the text about the holder.
func takeLock(file *os.File, alone bool) (bool, error) {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if alone {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	at := &windows.Overlapped{OffsetHigh: 1 << 20}
	err := windows.LockFileEx(windows.Handle(file.Fd()), how, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder does nothing: Windows cannot flush a folder, and NTFS journals renames.
func syncFolder(string) error { return nil }

// mayWrite does nothing: only a write would show it.
func mayWrite(string) error { return nil }
