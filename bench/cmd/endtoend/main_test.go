package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// TestExperiments does each experiment at a hundredth of its size, with the real program and the real web. What they say of
// time and memory is not looked at. That each scan was as it was meant to be is.
func TestExperiments(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program and scans for minutes, which -short leaves out")
	}
	all := `- every origin of every run has exactly one row, equal to the truth \(\d+ rows\): yes`
	// What is in one group waits for time-outs, mostly, so groups run at a time.
	for only, want := range map[string]map[string]int{
		"truth,dead": {
			`## truth: 1000 origins`: 1, `## dead: 564 origins .* with and without 36 silent ones.*`: 1, all: 2,
		},
		"shares": {
			`## shares: 10000 origins, of which 5 % share one address, .*`:      1,
			`\| (one process|8 tasks, one after another) \| .* \| 1\d{4} \| .*`: 2, // a busy machine asks some again
			`\| 8 tasks at once, [1-9]\d* kills \| .* \| 1\d{4} \| .*`:          1, all: 1,
		},
		"hot,inflight,cpu": {
			`## hot: 100 plain origins, with and without 100 more .*`: 1, `## inflight: .*`: 1, `## cpu: 500 healthy origins.*`: 1, all: 3,
			`- every connection was counted \(0 were not\): yes`:                                      1,
			`- any host took at most 2.1 connections in any second and 11.0 in any ten \(1, 1\): yes`: 1,
			`\| https? \| 200 \| (9\d|[12]\d\d) \| .*`:                                                2, // in flight
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

func TestMixed(t *testing.T) {
	f := func(a, b, want string) {
		t.Helper()
		if got := strings.Join(mixed(strings.Fields(a), strings.Fields(b)), " "); got != want {
			t.Errorf("%q and %q: %q, want %q", a, b, got, want)
		}
	}
	f("1 2 3 4", "x y", "1 2 x 3 4 y")
	f("1 2", "", "1 2")
	f("", "x y", "x y")
	f("1", "x y z", "1 x y z")
}

// TestBusy holds what came against a rate of 500: 551 in a second, 5,001 in ten.
func TestBusy(t *testing.T) {
	f := func(want bool, loads ...*simweb.Load) {
		t.Helper()
		b := busy{rate: 500}
		b.add(loads...)
		if b.ok() != want {
			t.Errorf("%+v: %v", b, b.ok())
		}
	}
	load := func(second, ten int) *simweb.Load { return &simweb.Load{Total: ten, Second: second, TenSeconds: ten} }
	f(true, load(551, 5001))
	f(true, load(551, 600), nil, load(1, 5001))
	f(false, load(552, 5001))
	f(false, load(551, 5001), load(552, 552))
	f(false, load(551, 5002))
	f(false, nil) // nothing came
}
