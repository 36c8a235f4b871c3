package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/compare"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// lab has the common parts of the experiments.
type lab struct {
	runs  int
	scale float64
	flags []string // of every scan
	ref   string   // an earlier version, for whole

	dir              string // for lists, programs and a dataset; deleted at the end
	bulkscan, simweb string // programs

	truths map[string]string // truth files, by the flags that they were written with
	rows   int               // of runs since mustBeTrue was last called
	untrue []*compare.Result // those of them in which a row was not true
	failed bool

	stdout, stderr io.Writer
}

// n is a number of origins, scaled.
func (l *lab) n(origins int) int { return max(1, int(float64(origins)*l.scale)) }

// tmp is where the program keeps temporary files.
func (l *lab) tmp() string { return filepath.Join(l.dir, "tmp") }

func (l *lab) printf(format string, args ...any) { fmt.Fprintf(l.stdout, format, args...) }

// must reports whether a result is as it must be.
func (l *lab) must(ok bool, format string, args ...any) {
	mark := "yes"
	if !ok {
		mark, l.failed = "**NO**", true
	}
	l.printf("- %s: %s\n", fmt.Sprintf(format, args...), mark)
}

// mustBeTrue reports whether every row of every run since the last call was true, and shows what was not.
func (l *lab) mustBeTrue() {
	l.must(len(l.untrue) == 0, "every origin of every run has exactly one row, equal to the truth (%d rows)", l.rows)
	for _, result := range l.untrue {
		l.printf("\n```\n%s\n```\n", result)
	}
	l.rows, l.untrue = 0, nil
}

// pace are flags for a web on the same machine: no rates but those that an experiment is about, short waits. Later
// flags win, so that an experiment can say otherwise.
var pace = []string{"--ip-rate", "0", "--timeout", "4s", "--connect-timeout", "2s", "--retry-after", "2s",
	"--max-retry-after", "5s"}

// trial is one scan of a list, against a web that has had no visitor before.
type trial struct {
	list    string   // its path
	web     []string // flags of the web
	policy  []string // flags that tell the truth's writer how the scanner is set
	scan    []string // flags of the scan, after pace
	trusted bool     // the scanner trusts the web's authority
}

// outcome has the figures of a trial from the system, the web and the dataset. The dataset is there until the next
// trial.
type outcome struct {
	wall, cpu time.Duration
	peak      int64  // most memory of the process, in bytes
	live      []live // of each collection
	scan      *commit.Scan
	came      simweb.Record
}

// live is the live heap after a collection.
type live struct {
	at time.Time
	mb int
}

// liveMost is the largest live heap, in MB.
func (o *outcome) liveMost() (most int) {
	for _, at := range o.live {
		most = max(most, at.mb)
	}
	return most
}

// try does a trial, and compares its rows with the truth.
func (l *lab) try(ctx context.Context, t trial) (*outcome, error) {
	truth, err := l.truthOf(ctx, t)
	if err != nil {
		return nil, err
	}
	record := filepath.Join(l.dir, "accepts.json")
	webFlags, scanFlags := slices.Concat(t.web, []string{"--record-accepts", record}), slices.Concat(pace, t.scan, l.flags)
	if t.trusted {
		ca := filepath.Join(l.dir, "ca.pem")
		webFlags, scanFlags = append(webFlags, "--ca", ca), append(scanFlags, "--ca-file", ca)
	}
	w, err := built.StartWeb(ctx, l.simweb, webFlags...)
	if err != nil {
		return nil, err
	}
	o, err := l.scan(ctx, t.list, slices.Concat(w.Flags(), scanFlags)...)
	_, stopErr := w.Stop()
	if err = errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(record)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &o.came); err != nil {
		return nil, fmt.Errorf("cannot read what came to the web: %w", err)
	}
	file, err := os.Open(truth)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	held, err := compare.Compare(ctx, o.scan, file)
	if err != nil {
		return nil, err
	}
	l.rows += held.Rows
	if !held.OK() {
		l.untrue = append(l.untrue, held)
	}
	return o, nil
}

// truthOf writes what a trial must find into a file, once for all trials alike, and returns its path.
func (l *lab) truthOf(ctx context.Context, t trial) (string, error) {
	args := slices.Concat(t.web, t.policy, []string{"--list", t.list})
	if t.trusted {
		args = append(args, "--trust-ca")
	}
	key := strings.Join(args, "\x00")
	path, ok := l.truths[key]
	if !ok {
		path = filepath.Join(l.dir, fmt.Sprintf("truth-%d.jsonl", len(l.truths)))
		if text, err := exec.CommandContext(ctx, l.simweb, append(args, "--truth", path)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot write the truth: %w\n%s", err, text)
		}
		l.truths[key] = path
	}
	return path, nil
}

var gcLine = regexp.MustCompile(`^gc \d+ @.* \d+->\d+->(\d+) MB,`)

// scan runs the program over a list. What the program says, apart from its collections, goes to standard error.
func (l *lab) scan(ctx context.Context, list string, flags ...string) (*outcome, error) {
	dir := filepath.Join(l.dir, "dataset")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(l.tmp(), 0o700)); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, l.bulkscan, slices.Concat([]string{"scan", list, "-o", dir, "--scan-id", "bench",
		"--progress", "none", "--log-level", "warn"}, flags)...)
	c.Env = append(os.Environ(), "GODEBUG=gctrace=1", "TMPDIR="+l.tmp())
	stderr, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := c.Start(); err != nil {
		return nil, err
	}
	o := &outcome{}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		m := gcLine.FindStringSubmatch(lines.Text())
		if m == nil {
			fmt.Fprintln(l.stderr, lines.Text())
			continue
		}
		mb, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		o.live = append(o.live, live{time.Now(), mb})
	}
	if err := errors.Join(lines.Err(), c.Wait()); err != nil {
		return nil, err
	}
	o.wall, o.cpu, o.peak = time.Since(begun), built.CPU(c.ProcessState), maxRSS(c.ProcessState)
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, err
	}
	o.scan, err = commit.ReadScan(ctx, st, "bench")
	return o, err
}

// hosts are the first n of the real list, or made-up ones where it is absent.
func hosts(n int) (all []string) {
	_ = sharedtest.Try(func(tb testing.TB) {
		for line := range strings.Lines(string(sharedtest.Unpacked(tb, "lists", "merged-origins.csv.zst"))) {
			if fields := strings.Split(strings.TrimSpace(line), ","); len(fields) > 1 && strings.Contains(fields[1], ".") &&
				len(all) < n {
				all = append(all, fields[1])
			}
		}
	})
	if len(all) == n {
		return all
	}
	all = all[:0]
	for _, host := range simweb.Names(1, n) {
		all = append(all, host)
	}
	return all
}

// corpus is the flag with which the web serves real bodies, where there are any.
func corpus() (flags []string) {
	_ = sharedtest.Try(func(tb testing.TB) {
		flags = []string{"--corpus", sharedtest.Path(tb, "corpus", "mix12k.bin.zst")}
	})
	return flags
}

// write writes a list under a name that no other list has: truth files are known by their lists' names.
func (l *lab) write(name string, lines []string) (path string, err error) {
	path = filepath.Join(l.dir, name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(file, strings.Join(lines, "\n")+"\n")
	return path, errors.Join(err, file.Close())
}

// named returns n entries of hosts with this prefix and suffix.
func named(n int, prefix, suffix string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%sh%d%s", prefix, i, suffix)
	}
	return all
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
