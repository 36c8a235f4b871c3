package main

import (
	"bytes"
	"errors"
	"fmt"
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
		"truth,dead,chaos": {
			`## truth: 1000 origins`: 1, `## dead: 564 origins .* with and without 36 silent ones.*`: 1, `## chaos: \d+ origins .*`: 1, all: 2,
			`- every origin has exactly one row, which is true or explained by a fault of its connection, and was in time: yes`: 1,
		},
		"zoo,shares": {
			fmt.Sprintf(`## zoo: 1000 healthy origins, with and without %d others .*`, 2*len(simweb.Behaviours())): 1,
			`## shares: 10000 origins, of which 5 % share one address, .*`:                                         1,
			`\| (one process|8 tasks, one after another) \| .* \| 1\d{4} \| .*`:                                    2, // a busy machine asks some again
			`\| 8 tasks at once, [1-9]\d* kills \| .* \| 1\d{4} \| .*`:                                             1, all: 2,
		},
		"hot,inflight,cpu,soak": {
			`## hot: 100 plain origins, with and without 100 more .*`: 1, `## inflight: .*`: 1, `## cpu: 500 healthy origins.*`: 1, `## soak: 3000 origins, .*`: 1, all: 4,
			`- every connection was counted \(0 were not\): yes`:                                                   1,
			`- any host took at most 2.1 connections in any second and 11.0 in any ten \(1, 1\): yes`:              1,
			`\| https? \| 200 \| (9\d|1\d\d) \| .*`:                                                                2, // in flight
			`stage: Total .*`:                                                                                      2,
			`- (go_goroutines|process_open_fds|process_resident_memory_bytes|live heap, MB): .*: (yes|\*\*NO\*\*)`: 4,
			`- no temporary file is left \(0 are\): yes`:                                                           1,
		},
	} {
		t.Run(only, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), []string{"-only", only, "-runs", "1", "-scale", "0.01", "-duration", "3s"}, &out, os.Stderr)
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
	f("-runs, -scale and -duration are more than 0", "-runs", "0")
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

// TestFlat tells what grows from what comes and goes.
func TestFlat(t *testing.T) {
	f := func(name string, value func(i int) float64, want bool) {
		t.Helper()
		var all []float64
		for i := range 15 {
			all = append(all, value(i))
		}
		if _, last, bound := flat(all, 0.05, 1); (last <= bound) != want {
			t.Errorf("%s: %v, at most %v: want %v", name, last, bound, want)
		}
	}
	f("flat", func(int) float64 { return 20 }, true)
	f("up and down", func(i int) float64 { return 20 + float64(i%2) }, true)
	f("warming up", func(i int) float64 { return min(30, 10+10*float64(i)) }, true)
	f("one that is odd", func(i int) float64 { return 20 + float64(i/14*50) }, true)
	f("a tenth a step", func(i int) float64 { return 20 + 2*float64(i) }, false)
	f("slowly", func(i int) float64 { return 20 + 0.5*float64(i) }, false)
	if _, last, bound := flat([]float64{1, 1}, 0, 0); last <= bound {
		t.Error("two values are enough to say that nothing grows")
	}
}
