package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/simweb"
)

// TestExperiments does small experiments with the real program and the real web. What they say of time is not looked at:
// it is this machine's, at this moment. That each scan was as it was meant to be is.
func TestExperiments(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and scans for half a minute")
	}
	t.Chdir("../../..")
	l, err := run(t.Context(), []string{
		"-only", "polite,dead,inflight,cpu", "-runs", "1", "-polite", "120", "-hot", "40", "-ip-rate", "20",
		"-dead", "100", "-concurrency", "20", "-timeout", "3s", "-inflight", "40", "-answers", "500ms", "-cpu", "200",
	}, io.Discard, io.Discard)
	report := l.report.String()
	if err != nil && !errors.Is(err, errMissed) {
		t.Fatalf("%v\n%s", err, report)
	}
	f := func(pattern string, n int) {
		t.Helper()
		if got := len(regexp.MustCompile(`(?m)^`+pattern+`$`).FindAllString(report, -1)); got != n {
			t.Errorf("%d lines are %q, want %d", got, pattern, n)
		}
	}
	f(`## polite: 80 plain origins, with and without 40 more that share one address.*`, 1)
	f(`## dead: 94 origins that answer after 300ms, with and without 6 silent ones.*`, 1)
	f(`## inflight: .--concurrency 40., answers after 500ms`, 1)
	f(`## cpu: 200 origins .*`, 1)
	f(`- every origin of every run has exactly one row, equal to the truth \(\d+ rows\): yes`, 4)
	f(`- every connection was counted \(0 were not\): yes`, 1)
	f(`\| the hot address \| 4\d \| \d+ \| 23.0 \| \d+ \| 201.0 \|`, 1)
	f(`\| any host \| \d \| \d \| 2.1 \| \d \| 11.0 \|`, 1)
	f(`\| https? \| 80 \| [34]\d \| .*`, 2) // in flight
	f(`- .*: (yes|\*\*NO\*\*)`, 6+2+3+3)
	if (err != nil) != strings.Contains(report, "**NO**") {
		t.Errorf("the run ended with %v:\n%s", err, report)
	}
	if t.Failed() {
		t.Log(report)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the experiments is still there: %v", err)
	}
}

// TestZoo scans everything that can go wrong on one web, by the program as users have it: two of each behaviour among 2,000
// healthy hosts. Every row is true, also in how often the host was asked.
func TestZoo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and scans for half a minute")
	}
	t.Chdir("../../..")
	l, err := run(t.Context(), []string{"-only", "zoo", "-zoo-bounds", "rate", "-runs", "1", "-zoo", "2", "-well", "2000", "-well-answers", "300ms", "-retries", "0"}, io.Discard, io.Discard)
	report := l.report.String()
	if err != nil && !errors.Is(err, errMissed) {
		t.Fatalf("%v\n%s", err, report)
	}
	rows := 2000 + 2000 + 2*len(simweb.Behaviours())
	if want := fmt.Sprintf("exactly one row, equal to the truth (%d rows): yes\n", rows); !strings.Contains(report, want) {
		t.Errorf("nothing of %q in\n%s", want, report)
	}
	if !regexp.MustCompile(`(?m)^- the zoo takes at most 512 MB more memory \(.*\): yes$`).MatchString(report) {
		t.Errorf("the zoo takes too much memory:\n%s", report)
	}
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

func TestZooEntries(t *testing.T) {
	n := len(simweb.Behaviours())
	all := zooEntries(3)
	if len(all) != 3*n || all[0] != "c0.ok.zoo.test" || all[n] != "https://c1.ok.zoo.test" || all[2*n] != "c2.ok.zoo.test" {
		t.Errorf("%d entries, %q …", len(all), all[:1])
	}
}

func TestUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if _, err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("endtoend %v: %v, want %q", args, err, want)
		}
	}
	f(`no experiment "nonsense"`, "-only", "truth,nonsense")
	f("-runs 0: at least 1", "-runs", "0")
	f("-timeout 0s: more than 0s", "-timeout", "0s")
	f("-hot 200000: less than -polite 200000", "-hot", "200000")
	f("-dead 33: of so few too few are dead", "-dead", "33")
	f(`no bound "nonsense"`, "-zoo-bounds", "rate,nonsense")
	f("-origins 19: at least 20", "-origins", "19")
	if _, err := run(t.Context(), []string{"-help"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
}

func TestNeighbours(t *testing.T) {
	f := func(all, hot, apart int) {
		t.Helper()
		others, mixed := neighbours(all, hot)
		var kept []string
		last, most := -1, 0
		for i, host := range mixed {
			if strings.HasSuffix(host, hotSuffix) {
				most, last = max(most, i-last), i
			} else {
				kept = append(kept, host)
			}
		}
		if len(mixed) != all || len(others) != all-hot || !slices.Equal(kept, others) || most != apart {
			t.Errorf("%d of %d: %d others, %d mixed, at most %d apart, want %d", hot, all, len(others), len(mixed), most, apart)
		}
	}
	f(200_000, 50_000, 4)
	f(10, 3, 4)
	f(4, 3, 2)
	f(2, 1, 2)
}

func TestDying(t *testing.T) {
	f := func(all, silent, hole int) {
		t.Helper()
		count := map[string]int{}
		hosts := dying(all)
		for _, host := range hosts {
			_, suffix, _ := strings.Cut(host, ".")
			count["."+suffix]++
		}
		if count[silentSuffix] != silent || count[holeSuffix] != hole || count[lateSuffix] != all-silent-hole || len(hosts) != all {
			t.Errorf("of %d: %v", all, count)
		}
	}
	f(60_000, 1800, 1800)
	f(100, 3, 3)
	f(34, 1, 1)
}

func TestVerdicts(t *testing.T) {
	load := func(total, second, ten int) *simweb.Load {
		return &simweb.Load{Total: total, Second: second, TenSeconds: ten}
	}
	f := func(want string, rate float64, came ...simweb.Record) {
		t.Helper()
		p := politeness{rate: rate}
		for _, r := range came {
			p.add(r)
		}
		got := ""
		for _, v := range p.verdicts() {
			got += fmt.Sprintf("%d/%d/%d %v ", v.total, v.second, v.ten, v.ok())
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", came, got, want)
		}
	}
	fine := simweb.Record{Hot: load(50_000, 551, 5001), Address: load(300, 2, 20), AddressOfTen: load(299, 1, 21), Host: load(1, 1, 1), HostOfTen: load(1, 1, 1)}
	f("50000/551/5001 true 300/2/21 true 1/1/1 true ", 500, fine)
	f("50000/552/5001 false 300/2/21 true 1/1/1 true ", 500, fine, simweb.Record{Hot: load(9, 552, 552)})
	f("50000/551/5002 false 300/2/21 true 1/1/1 true ", 500, simweb.Record{Hot: load(5002, 1, 5002)}, fine)
	f("50000/551/5001 true 600/1/5002 false 11/2/11 true ", 500, simweb.Record{Hot: fine.Hot, Address: load(600, 1, 1), AddressOfTen: load(1, 1, 5002), Host: load(11, 2, 2), HostOfTen: load(1, 1, 11)})
	f("50000/551/5001 true 300/2/21 true 3/3/3 false ", 500, fine, simweb.Record{Host: load(3, 3, 3)})
	// Where nobody came, nothing was kept.
	f("0/0/0 false 0/0/0 false 0/0/0 false ", 500, simweb.Record{})
}

func TestWorkIn(t *testing.T) {
	at := func(seconds ...int) (all []time.Time) {
		for _, s := range seconds {
			all = append(all, time.Unix(int64(s), 0))
		}
		return all
	}
	s, err := spanOf(at(5, 3, 9))
	if err != nil || s.took() != 6*time.Second {
		t.Errorf("span %v, %v", s, err)
	}
	if work, rate := workIn(s, 4, at(1, 3, 9, 11)); work != 1.5 || rate != 0.4 {
		t.Errorf("work %v, rate %v", work, rate)
	}
	if _, err := spanOf(nil); err == nil {
		t.Error("there is a span of nothing")
	}
}

func TestParseTags(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		got, err := parseTags(text)
		if err != nil {
			t.Error(err)
		}
		if s := fmt.Sprint([]tag(got)); s != want {
			t.Errorf("%q: %s, want %s", text, s, want)
		}
	}
	f("", "[]")
	f(" stage: Total 160ms of 180ms (88.89%)\n        100ms (55.56%): keep\n         30ms (16.67%): ask\n\n step: Total 180ms of 180ms (  100%)\n       20ms (11.11%): dial and wait\n",
		"[{stage keep 55.56} {stage ask 16.67} {stage without 11.11} {step dial and wait 11.11}]")
	f(" stage: Total 2s of 2s (100%)\n   1.50s (75.00%): ask\n   0.50s (  25%): keep\n", "[{stage ask 75} {stage keep 25}]")
}
