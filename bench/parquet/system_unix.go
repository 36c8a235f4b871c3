//go:build unix

package main

import (
	"syscall"
	"time"
)

// usage is the processor time that this process has used so far, user's and system's.
func usage() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
