//go:build !unix

package nightly

import "io/fs"

// owned is always true: each user has a temporary folder of their own.
func owned(fs.FileInfo) bool { return true }
