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

// RaiseFiles raises the limit of open files as far as the process may, and returns what it is then; 0 where there is no
// telling. The runtime does the same when it starts, but no promise of its says so.
func RaiseFiles() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	soft := l.Cur
	if l.Cur < l.Max {
		// Some systems refuse a limit that they themselves call the hard one; then the soft one stays.
		if l.Cur = l.Max; syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
			l.Cur = soft
		}
	}
	return uint64(l.Cur) //nolint:unconvert // signed on FreeBSD
}
