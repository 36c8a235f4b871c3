package report

import (
	"os"
	"testing"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// TestOldSchemas computes statistics and summaries of scans that were written with older schema versions. What they
// counted then of tokens is what is counted now.
func TestOldSchemas(t *testing.T) {
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir.Root(), os.DirFS("../../sink/testdata/versions")); err != nil {
		t.Fatal(err)
	}
	scans, err := sink.Scans(t.Context(), dir)
	if err != nil || len(scans) != 2 {
		t.Fatalf("%d scans: %v", len(scans), err)
	}
	for _, m := range scans {
		name := sink.StatsName(sink.TableTokenStats, m.ScanDate, m.ScanID)
		then := fileRows[sink.TokenStatsRow](t, dir, name)
		if err := Stats(t.Context(), dir, m.ScanID, Options{}); err != nil {
			t.Fatal(err)
		}
		now := map[statsKey]sink.TokenStatsRow{}
		for _, row := range fileRows[sink.TokenStatsRow](t, dir, name) {
			now[keyOf(&row)] = row
		}
		if len(then) < 100 {
			t.Errorf("%s: only %d rows", m.ScanID, len(then))
		}
		traced := map[string]bool{}
		for _, row := range then {
			traced[row.Token] = traced[row.Token] || row.SegmentKind == "all" && row.Mention+row.Any+row.ViaFallback > 0
		}
		for _, row := range then {
			got, counted := now[keyOf(&row)]
			if !counted && !traced[row.Token] {
				continue // by another registry than the scan's, tokens of which it says nothing have no row
			}
			// Whose token it is, the registry may have learned since.
			got.Known, got.Category, got.Operator, got.Purpose = row.Known, row.Category, row.Operator, row.Purpose
			got.Lenient = row.Lenient // which version 3 has brought
			if got != row {
				t.Errorf("%s:\n then %+v\n now  %+v", m.ScanID, row, got)
			}
		}
		s, err := Summarize(t.Context(), dir, m.ScanID, SummaryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Rows != 40 || s.WithRules == 0 {
			t.Errorf("%s: the summary has %d rows, %d with rules", m.ScanID, s.Rows, s.WithRules)
		}
	}
}

func fileRows[T any](t *testing.T, st store.Store, name string) (rows []T) {
	t.Helper()
	for row, err := range sink.FileRows[T](t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}
