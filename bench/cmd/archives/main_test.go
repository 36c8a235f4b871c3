package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// TestReport measures a small archive: each capture must give a row, and the report tell every part of the time. How fast
// it is on a machine that runs tests says nothing.
func TestReport(t *testing.T) {
	sharedtest.Path(t, "corpus")
	t.Chdir("../../..")
	path := filepath.Join(t.TempDir(), "report.md")
	if err := run(t.Context(), []string{"-captures", "3000", "-files", "2", "-runs", "1", "-o", path}, io.Discard); err != nil && !errors.Is(err, errMissed) {
		t.Fatal(err)
	}
	report, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"3000 captures, 9002 records in 2 files", "the mark, 25", "the mark, 18", "| one file | 1500 |",
		"| nothing has changed |", "| another registry |", "The mark, 100000"}, "% "+parts[0].name, "% "+parts[len(parts)-1].name) {
		if !strings.Contains(string(report), want) {
			t.Errorf("nothing of %q in\n%s", want, report)
		}
	}
}
