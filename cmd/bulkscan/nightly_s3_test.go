//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// TestNightlyInObjectStore runs nights whose list and dataset are in an object store, kills one, and prunes one.
func TestNightlyInObjectStore(t *testing.T) {
	notShort(t)
	g := startGateway(t)
	w := newWorld(t, 100, simweb.Config{Seed: 3, Only: []string{"ok", "not-found"}})
	list, err := os.ReadFile(w.list)
	if err != nil {
		t.Fatal(err)
	}
	const place = "s3://" + storetest.Bucket + "/survey"
	st, err := openPlace(place)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Put(t.Context(), "lists/top.csv", list); err != nil {
		t.Fatal(err)
	}
	from := []string{"--list", place + "/lists/top.csv"}
	w.nightOf(t, place, "2026-11-20", 0, from...).exits(t, 0)
	p := w.nightOf(t, place, "2026-11-21", 3, from...)
	p.await(t, "commit", func() bool {
		scan, err := commit.ReadScan(t.Context(), st, "night-2026-11-21")
		return err == nil && len(scan.Commits) > 0
	})
	w.nightOf(t, place, "2026-11-21", 0, from...).exits(t, 75)
	p.signal(t, syscall.SIGKILL)
	p.exits(t, -1)
	if err := st.Delete(t.Context(), "lists/top.csv"); err != nil { // the night has a copy
		t.Fatal(err)
	}
	p = w.nightOf(t, place, "2026-11-21", 0, from...)
	p.exits(t, 0)
	p.says(t, "resuming")
	n, err := nightly.ReadNight(t.Context(), st, "2026-11-21")
	if err != nil || n.State != nightly.Published || n.Runs != 2 || n.Figures.Sites != 100 {
		t.Errorf("%+v, %v", n, err)
	}
	start(t, "nightly", "-o", place, "--date", "2026-11-21", "--prune", "--keep-nights", "1d").exits(t, 0)
	if _, err := commit.ReadManifest(t.Context(), st, "night-2026-11-20"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("the first night is still there: %v", err)
	}
	for _, args := range [][]string{{"verify", place}, {"history", place, "--rebuild"}, {"verify", place}} {
		if text, err := exec.Command("bulkscan", args...).CombinedOutput(); err != nil || strings.Contains(string(text),
			"leftover:") {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(g.Folder, storetest.Bucket, "survey/report.html")); err != nil {
		t.Error(err)
	}
}
