package main

import (
	"os"
	"syscall"
)

// maxRSS is the most memory that a finished process held, in bytes; 0 where the system does not say.
func maxRSS(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}
