package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestOptOutWhileScanning adds every host to the list of --opt-out while a slow scan runs. Waiting hosts are not
// contacted any more, and the log and the manifest say so.
func TestOptOutWhileScanning(t *testing.T) {
	inBubble(t, 30, simweb.Config{Seed: 9, Only: []string{"ok"}}, func(t *testing.T, w *world) {
		dir := t.TempDir()
		list, out := filepath.Join(dir, "optout.txt"), filepath.Join(dir, "out")
		if err := os.WriteFile(list, []byte("# nobody yet\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		p := w.scan(t, out, "--opt-out", list, "--rate", "0.75")
		time.Sleep(8 * time.Second) // the file is looked at every 5 s
		if err := os.WriteFile(list, []byte("127.0.0.0/8\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		p.exits(t, 0)
		p.says(t, "sites were added to the list of --opt-out")
		scan, err := commit.ReadScan(t.Context(), mustPlace(t, out), "s")
		if err != nil {
			t.Fatal(err)
		}
		if changes := scan.Manifest.Changes; len(changes) != 1 || changes[0].Flag != "opt-out" || changes[0].Added != 1 ||
			changes[0].Entries != 1 {
			t.Errorf("the manifest has %+v", changes)
		}
		outcomes := map[string]int{}
		for row, err := range read.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
			if err != nil {
				t.Fatal(err)
			}
			outcomes[row.Outcome]++
		}
		if outcomes["answered"] != 8 || outcomes["opted_out"] != 22 {
			t.Errorf("outcomes %v", outcomes)
		}
	})
}
