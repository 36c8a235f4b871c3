package main

import (
	"bufio"
	"bytes"
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
	"time"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/simweb"
	"github.com/bulkscan/bulkscan/internal/simweb/compare"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

// lab is where the experiments are done.
type lab struct {
	sizes
	runs   int
	dir    string   // for lists, binaries and a dataset; deleted at the end
	shared string   // the optional folder ../shared
	flags  []string // of every scan

	bulkscan, simweb string // what was built

	truths map[string]string // truth files, by the command that wrote them
	rows   int               // of runs since mustBeTrue was last asked
	untrue []*compare.Result // those of them in which a row was not true
	report *bytes.Buffer     // Markdown
	failed bool

	stdout, stderr io.Writer
}

// build compiles the program and the web, as a user gets them.
func (l *lab) build(ctx context.Context) error {
	l.bulkscan, l.simweb = filepath.Join(l.dir, "bulkscan"), filepath.Join(l.dir, "simweb")
	for path, pkg := range map[string]string{l.bulkscan: "./cmd/bulkscan", l.simweb: "./internal/simweb/cmd/simweb"} {
		c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", pkg, err, text)
		}
	}
	return nil
}

// pace are flags for a web that is next to us: no rates but those that an experiment is about, short waits. Later flags
// count, so that an experiment can say otherwise.
var pace = []string{"--ip-rate", "0", "--timeout", "4s", "--connect-timeout", "2s", "--retry-after", "2s", "--max-retry-after", "5s"}

// trial is one scan of a list, against a web that nobody has asked before.
type trial struct {
	list    string   // its path
	web     []string // flags of the web
	policy  []string // flags by which the truth's writer learns how the scanner is set
	scan    []string // flags of the scan, after pace
	trusted bool     // the scanner trusts the web's authority
}

// outcome is what the system, the web and the dataset say of a trial. The dataset is there until the next trial.
type outcome struct {
	wall, cpu time.Duration
	webCPU    time.Duration
	peak      int64 // bytes of memory at most
	live      int   // MB of live heap after a collection, at most
	scan      *sink.Scan
	came      simweb.Record
	held      *compare.Result
}

// try does a trial, and holds its rows against the truth.
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
	w, err := l.start(ctx, webFlags...)
	if err != nil {
		return nil, err
	}
	o, err := l.scan(ctx, w, t.list, scanFlags...)
	if err = errors.Join(err, w.stop()); err != nil {
		return nil, err
	}
	o.webCPU = w.process.ProcessState.UserTime() + w.process.ProcessState.SystemTime()
	text, err := os.ReadFile(record)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &o.came); err != nil {
		return nil, fmt.Errorf("cannot read what came to the web: %w", err)
	}
	if o.held, err = held(ctx, o.scan, truth); err != nil {
		return nil, err
	}
	l.rows += o.held.Rows
	if !o.held.OK() {
		l.untrue = append(l.untrue, o.held)
	}
	return o, nil
}

// truthOf writes down what a trial must find, once for all trials alike, and returns the file's path.
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

func held(ctx context.Context, scan *sink.Scan, truth string) (*compare.Result, error) {
	file, err := os.Open(truth)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return compare.Compare(ctx, scan, file)
}

// web is a running simulated web.
type web struct {
	process *exec.Cmd
	stderr  *bytes.Buffer // what it says when it ends
	flags   []string      // of a scan that reaches it

	resolver  string // of those flags
	connectTo []string
}

// start runs a simulated web until stop.
func (l *lab) start(ctx context.Context, args ...string) (*web, error) {
	c := exec.CommandContext(ctx, l.simweb, append([]string{"--json"}, args...)...)
	stderr := &bytes.Buffer{}
	c.Stderr = stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	var where struct {
		Resolver  string   `json:"resolver"`
		ConnectTo []string `json:"connect_to"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		err = fmt.Errorf("cannot start the simulated web: %w", err)
		return nil, errors.Join(err, c.Process.Kill(), c.Wait(), errors.New(stderr.String()))
	}
	w := &web{process: c, stderr: stderr, resolver: where.Resolver, connectTo: where.ConnectTo, flags: []string{"--resolver", where.Resolver, "--allow-private", "--dns-rate", "0"}}
	for _, to := range where.ConnectTo {
		w.flags = append(w.flags, "--connect-to", to)
	}
	return w, nil
}

func (w *web) stop() error {
	if err := w.process.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := w.process.Wait(); err != nil {
		return fmt.Errorf("the simulated web ended badly: %w\n%s", err, w.stderr)
	}
	return nil
}

var gcLine = regexp.MustCompile(`^gc \d+ @.* (\d+)->(\d+)->(\d+) MB,`)

// scan runs the program over a list.
func (l *lab) scan(ctx context.Context, w *web, list string, args ...string) (*outcome, error) {
	dir := filepath.Join(l.dir, "dataset")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, l.bulkscan, slices.Concat([]string{"scan", list, "-o", dir, "--scan-id", "bench", "--progress", "none", "--log-level", "warn"}, w.flags, args)...)
	c.Env = append(os.Environ(), "GODEBUG=gctrace=1")
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
		if m := gcLine.FindStringSubmatch(lines.Text()); m != nil {
			live, err := strconv.Atoi(m[3])
			if err == nil {
				o.live = max(o.live, live)
			}
		} else {
			fmt.Fprintln(l.stderr, lines.Text())
		}
	}
	if err := errors.Join(lines.Err(), c.Wait()); err != nil {
		return nil, err
	}
	o.wall = time.Since(begun)
	o.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	o.peak = maxRSS(c.ProcessState)
	st, err := store.NewDir(dir)
	if err != nil {
		return nil, err
	}
	o.scan, err = sink.ReadScan(ctx, st, "bench")
	return o, err
}

// hosts yields the list to scan: the first n hosts of the real list, or made-up ones.
func (l *lab) hosts(ctx context.Context, n int) (hosts []string, real bool, err error) {
	path := filepath.Join(l.shared, "lists", "merged-origins.csv.zst")
	if _, err := os.Stat(path); err != nil {
		for _, host := range simweb.Names(1, n) {
			hosts = append(hosts, host)
		}
		return hosts, false, nil
	}
	r, err := inputs.Open(ctx, []string{path}, inputs.Options{Limit: uint64(n)})
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = r.Close() }() // it only reads
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return hosts, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		hosts = append(hosts, e.Input)
	}
}

// corpus is the flag with which the web serves real bodies, where there are any.
func (l *lab) corpus() []string {
	path := filepath.Join(l.shared, "corpus", "mix12k.bin.zst")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []string{"--corpus", path}
}

// write writes a list under a name that no other list has: the truth about a list is told by its name.
func (l *lab) write(name string, lines []string) (path string, err error) {
	path = filepath.Join(l.dir, name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(file, strings.Join(lines, "\n")+"\n")
	return path, errors.Join(err, file.Close())
}

// span is a time in which hosts were last asked.
type span struct{ first, last time.Time }

func (s span) took() time.Duration { return s.last.Sub(s.first) }

// asked returns when the hosts of a scan that a filter passes were last asked, in no order.
func asked(ctx context.Context, scan *sink.Scan, filter func(host string) bool) ([]time.Time, error) {
	type row struct {
		Host      string `parquet:"host"`
		FetchedAt *int64 `parquet:"fetched_at,optional"`
	}
	var all []time.Time
	for r, err := range sink.Rows[row](ctx, scan, sink.TableSites) {
		if err != nil {
			return nil, err
		}
		if r.FetchedAt != nil && filter(r.Host) {
			all = append(all, time.UnixMilli(*r.FetchedAt))
		}
	}
	return all, nil
}

// spanOf is the span from the first to the last of some instants, of which there must be one.
func spanOf(all []time.Time) (span, error) {
	if len(all) == 0 {
		return span{}, errors.New("none of the hosts was asked")
	}
	return span{slices.MinFunc(all, time.Time.Compare), slices.MaxFunc(all, time.Time.Compare)}, nil
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}
