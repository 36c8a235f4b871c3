package store

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Within reports whether a place is the place dir, or inside it: a folder, or the prefix of a bucket.
func Within(place, dir string) bool {
	key, isKey := strings.CutPrefix(place, "s3://")
	prefix, isPrefix := strings.CutPrefix(dir, "s3://")
	if isKey || isPrefix {
		key, prefix = path.Clean(key), path.Clean(prefix)
		return isKey && isPrefix && (key == prefix || strings.HasPrefix(key, prefix+"/"))
	}
	folder, err := os.Stat(dir)
	if err != nil {
		return false // there is nothing to be read
	}
	at, err := filepath.Abs(place)
	if err != nil {
		return false
	}
	for there := false; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil && !there {
			at, there = real, true // the rest of the path does not exist yet, and has no link
		}
		if info, err := os.Stat(at); err == nil && os.SameFile(info, folder) {
			return true
		}
		if filepath.Dir(at) == at {
			return false
		}
	}
}
