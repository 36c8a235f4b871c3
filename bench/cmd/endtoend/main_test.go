package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestExperiments does each experiment at a hundredth of its size, with the real program and the real web. It checks
// that the scans are right, and ignores their time and memory.
func TestExperiments(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program and scans for minutes, which -short leaves out")
	}
	all := `- every origin of every run has exactly one row, equal to the truth \(\d+ rows\): yes`
	// Groups mostly wait for time-outs, so they run at the same time.
	for only, want := range map[string]map[string]int{
		"truth": {
			`## truth: 1000 origins`: 1, all: 1,
		},
		"shares": {
			`## shares: 10000 origins, of which 5 % share one address, .*`:      1,
			`\| (one process|8 tasks, one after another) \| .* \| 1\d{4} \| .*`: 2, // a busy machine repeats some requests
			`\| 8 tasks at once, [1-9]\d* kills \| .* \| 1\d{4} \| .*`:          1, all: 1,
		},
		"inflight,whole": {
			`## inflight: .*`: 1, `## whole: 500 healthy origins.*`: 1, all: 2,
			`\| (raw|nethttp|fasthttp|bulkscan), exchanges alone \| [\d.]+ \| .*`: 4,
			`\| \*\*whole scan\*\* \| [\d.]+ \| .*`:                               1,
			`\| https? \| 200 \| (9\d|[12]\d\d) \| .*`:                            2, // in flight
			`stage: Total .*`: 2,
		},
	} {
		t.Run(only, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), []string{"-only", only, "-runs", "1", "-scale", "0.01"}, &out, os.Stderr)
			report := out.String()
			if err != nil && !errors.Is(err, errMissed) || (err != nil) != strings.Contains(report, "**NO**") {
				t.Errorf("the run ended with %v", err)
			}
			for pattern, n := range want {
				if got := len(regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllString(report, -1)); got != n {
					t.Errorf("%d lines are %q, want %d", got, pattern, n)
				}
			}
			if t.Failed() {
				t.Log(report)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("endtoend %v: %v, want %q", args, err, want)
		}
	}
	f(`no experiment "nonsense"`, "-only", "truth,nonsense")
	f("-runs and -scale are more than 0", "-runs", "0")
	f("there are no arguments", "truth")
}
