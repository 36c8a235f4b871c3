package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/nightly"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestPruneFailedMetric shows that the metric is that of the last published night, whatever the state of later nights.
func TestPruneFailedMetric(t *testing.T) {
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &nightlyFlags{metricsFile: filepath.Join(dir, "night.prom")}
	for _, c := range []struct {
		date   string
		state  nightly.State
		failed string
		want   string
	}{
		{"2026-11-01", nightly.Published, "", "0"},
		{"2026-11-02", nightly.Failed, "no list", "0"},
		{"2026-11-03", nightly.Published, "the night of 2026-11-03 is published; cannot prune: no space left", "1"},
		{"2026-11-04", nightly.Held, "", "1"},
		{"2026-11-05", nightly.Published, "", "0"},
	} {
		ended := time.Now()
		n := &nightly.Night{SchemaVersion: schema.Version, Date: c.date, State: c.state, EndedAt: &ended, Error: c.failed}
		data, err := commit.SealRecord(n, &n.Sum)
		if err == nil {
			err = st.Put(t.Context(), nightly.Folder+c.date+"/night.json", data)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.writeMetrics(t.Context(), st, n, slog.New(slog.DiscardHandler))
		text, err := os.ReadFile(f.metricsFile)
		if err != nil || !strings.Contains(string(text), "\nbulkscan_night_prune_failed "+c.want+"\n") {
			t.Errorf("%s: want %s, got %s %v", c.date, c.want, text, err)
		}
	}
}
