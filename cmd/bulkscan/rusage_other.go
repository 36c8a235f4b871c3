//go:build !unix

package main

// peakMemory is the most memory that the process has held, in bytes; 0: this system does not say.
func peakMemory() uint64 { return 0 }

// raiseFiles returns how many files the process may hold; 0: there is no telling.
func raiseFiles() uint64 { return 0 }
