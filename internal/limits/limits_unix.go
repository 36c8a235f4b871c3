//go:build unix

package limits

import (
	"runtime"
	"syscall"
)

// PeakMemory is the most memory that the process has held, in bytes, as the system counts it; 0 where it does not say.
func PeakMemory() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return uint64(u.Maxrss) // bytes there, kilobytes elsewhere
	}
	return uint64(u.Maxrss) << 10
}

// RaiseFiles raises the limit of open files as far as the process may, and returns the new limit; 0 if it is unknown.
// The runtime does the same when it starts, but does not promise it.
func RaiseFiles() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	soft := l.Cur
	if l.Cur < l.Max {
		// Some systems refuse even their own hard limit; then the soft limit stays.
		if l.Cur = l.Max; syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
			l.Cur = soft
		}
	}
	return uint64(l.Cur) //nolint:unconvert // signed on FreeBSD
}
