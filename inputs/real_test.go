package inputs

import (
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// TestRealList reads a list that was merged from a dozen public sources. Its hosts are distinct and in lower case, so
// every line is an entry, even names that DNS may not know (`www.example.com_443`).
func TestRealList(t *testing.T) {
	path := sharedtest.Path(t, "lists", "merged-origins.csv.zst")
	var rejects []Reject
	r, err := Open(t.Context(), []string{path}, Options{
		LabelColumn: "3",
		Reject:      func(r Reject) error { rejects = append(rejects, r); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	labels := map[string]int{}
	entries, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		labels[e.Label]++
		if !strings.EqualFold(e.Input, e.Origin.Host()) || e.Rank != int64(e.Seq)+1 {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	for _, reject := range rejects {
		t.Errorf("reject: line %d %q: %s", reject.Line, reject.Text, reject.Reason)
	}
	s := r.Stats()
	if len(entries) != 353_933 || len(rejects) != 0 || s.Lines != 353_933 {
		t.Errorf("%d entries and %d rejects of %d lines", len(entries), len(rejects), s.Lines)
	}
	if layout := s.Files[0].Layout; layout != "csv (comma), host in column 2, rank in column 1, label in column 3" {
		t.Errorf("layout: %s", layout)
	}
	if labels["faf65k"] != 65_535 || labels["dotgov"] != 15_376 {
		t.Errorf("labels: %v", labels)
	}
}
