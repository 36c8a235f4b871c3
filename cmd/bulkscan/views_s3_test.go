//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestViewsOnS3 scans to an object store, and compares the dataset with DuckDB's answers by its views.sql. The server
// keeps objects as files, so DuckDB can read them without the server.
func TestViewsOnS3(t *testing.T) {
	notShort(t)
	tools := duckDB(t)
	g := startGateway(t)
	w := newKillWorld(t, 60)
	const place = "s3://" + storetest.Bucket + "/with views/it's one"
	w.scan(t, place, "--part-rows", "8", "--no-compact", "--retries", "0").exits(t, 0)
	folder := filepath.Join(g.Folder, storetest.Bucket, "with views/it's one")
	look := func(when, script string, args ...string) {
		t.Helper()
		text, err := exec.Command("node", append([]string{filepath.Join(tools, script)}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s, %s: %v\n%s", when, script, err, text)
		}
	}
	for _, when := range []string{"scanned", "compacted"} {
		look(when, "objects.mjs", folder, place)
		look(when, "check.mjs", folder)
		if when == "scanned" {
			start(t, "compact", place, "--grace", "0s").exits(t, 0)
		}
	}
}
