//go:build !unix

package main

// enoughFiles has nothing to raise here.
func enoughFiles(int) error { return nil }
