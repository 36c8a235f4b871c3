//go:build unix

package main

import (
	"runtime"
	"syscall"
)

// peakMemory is the most memory that the process has held, in bytes, as the system counts it; 0 where it does not say.
func peakMemory() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return uint64(u.Maxrss) // bytes there, kilobytes elsewhere
	}
	return uint64(u.Maxrss) << 10
}

// openFiles is how many files the process may hold, 0 where there is no telling. The runtime has raised the soft limit
// as far as it goes.
func openFiles() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return uint64(l.Cur) //nolint:unconvert // signed on FreeBSD
}
