//go:build unix

package nightly

import (
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether a file or folder belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
