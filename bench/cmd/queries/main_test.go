package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/integration/queries"
)

// TestTabulate shows what is told of queries that are fast, too slow and wrong.
func TestTabulate(t *testing.T) {
	var b bytes.Buffer
	late, slowest, failed := tabulate(&b, []queries.Answer{
		{Name: "fast", Millis: []float64{5, 1, 3}},
		{Name: "slow", Millis: []float64{900, 1200, 900, 1101}, Rows: [][]any{{}}},
		{Name: "wrong", Error: "Binder Error"},
	})
	if late != 2 || slowest.Name != "slow" || failed == nil || !strings.Contains(failed.Error(), "wrong: Binder Error") {
		t.Errorf("%d late, slowest %s, %v", late, slowest.Name, failed)
	}
	for _, line := range []string{"| fast | 3 | 1 | 5 | 0 |  |", "| slow | 1000 | 900 | 1200 | 1 | too slow |", "| wrong | | | | | failed |"} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}

// TestRun shows that a small dataset is made, asked and reported, and that it is used again.
func TestRun(t *testing.T) {
	const tools = "../../duckdb"
	switch err := queries.Ready(tools); {
	case err != nil && os.Getenv("BULKSCAN_TEST_DUCKDB") == "required":
		t.Fatal(err)
	case err != nil:
		t.Skipf("SKIPPED: %v", err)
	case testing.Short():
		t.Skip("SKIPPED: it waits for DuckDB, which -short leaves out")
	}
	dir, report := t.TempDir(), t.TempDir()+"/report.md"
	f := func(want string, args ...string) {
		t.Helper()
		var stdout bytes.Buffer
		err := run(t.Context(), append([]string{"-queries", "../../../docs/queries", "-duckdb", tools, "-keep", dir, "-runs", "1", "-o", report}, args...), &stdout)
		if want == "" && err != nil && !errors.Is(err, errMissed) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	f("", "-sites", "300", "-only", "scores,operators")
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"# Queries: 2 on two scans of 300 sites each\n", "\n| operators | ", "\n| scores | ", "\nThe slowest, "} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	f("", "-sites", "300", "-only", "scores")
	f("has another dataset", "-sites", "301", "-only", "scores")
	f("no query is called x", "-sites", "300", "-only", "x")
}
