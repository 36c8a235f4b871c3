//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// spare is how many files a process has open besides its connections, at most.
const spare = 128

// enoughFiles raises the soft file limit as far as it goes, which the Go runtime may have done already, and says where that
// does not suffice.
func enoughFiles(connections int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < limit.Max {
		raised := limit
		raised.Cur = limit.Max
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	if float64(limit.Cur) < float64(connections+spare) {
		return fmt.Errorf("cannot have %d connections: the file limit is %d (ulimit -Hn)", connections, limit.Cur)
	}
	return nil
}
