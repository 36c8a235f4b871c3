//go:build !unix

package limits

// PeakMemory is the most memory that the process has held, in bytes; 0: this system does not say.
func PeakMemory() uint64 { return 0 }

// RaiseFiles returns how many files the process may hold; 0: it is unknown.
func RaiseFiles() uint64 { return 0 }
