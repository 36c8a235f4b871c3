// Command endtoend answers one question: what does a whole scan cost, and is it true? It runs the built program against
// a simulated web in a process of its own, and reads what the system and the dataset say of the run:
//
//	truth  100,000 origins with real bodies: one row each, as the web says it behaved; time, CPU and memory
//	hot    20,000 origins of which half share one address, at --ip-rate 500: is the other half slowed down?
//	heap   20,000 and 100,000 origins at --concurrency 1000: is the live heap the same?
//
// From the project's root:
//
//	go run ./bench/cmd/endtoend -o bench/results/$(date +%F)-$(hostname)
//	go run ./bench/cmd/endtoend -only hot
//
// Lists and bodies come from ../shared where that is present, and are made up where it is not.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/compare"
	"github.com/bulkscan/bulkscan/bench/simweb"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "endtoend: %v\n", err)
		os.Exit(1)
	}
}

// lab is where the experiments are done.
type lab struct {
	dir      string // for lists, datasets and binaries; deleted at the end
	shared   string // the optional folder ../shared
	bulkscan string
	simweb   string
	runs     int
	report   *bytes.Buffer // Markdown
	failed   bool
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("endtoend", flag.ExitOnError)
	out := f.String("o", "", "also write the report to `DIR`/README.md")
	only := f.String("only", "truth,hot,heap", "experiments to do")
	runs := f.Int("runs", 3, "runs of each command whose times are compared")
	shared := f.String("shared", "../shared", "folder of real lists and bodies")
	if err := f.Parse(args); err != nil {
		return err
	}
	l := &lab{shared: *shared, runs: *runs, report: &bytes.Buffer{}}
	if l.dir, err = os.MkdirTemp("", "bulkscan-endtoend-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if err := l.build(ctx); err != nil {
		return err
	}
	l.head(ctx)
	for _, name := range strings.Split(*only, ",") {
		experiment, ok := map[string]func(context.Context) error{"truth": l.truth, "hot": l.hot, "heap": l.heap}[name]
		if !ok {
			return fmt.Errorf("no experiment %q: truth, hot or heap", name)
		}
		if err := experiment(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if *out != "" {
		if err := os.MkdirAll(*out, 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*out, "README.md"), l.report.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if l.failed {
		return errors.New("some result is not as it must be: see above")
	}
	return nil
}

// build compiles the program and the web, as a user gets them.
func (l *lab) build(ctx context.Context) error {
	l.bulkscan, l.simweb = filepath.Join(l.dir, "bulkscan"), filepath.Join(l.dir, "simweb")
	for path, pkg := range map[string]string{l.bulkscan: "./cmd/bulkscan", l.simweb: "./bench/cmd/simweb"} {
		c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", pkg, err, text)
		}
	}
	return nil
}

func (l *lab) head(ctx context.Context) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	l.printf("# End-to-end runs, %s\n\n", time.Now().UTC().Format(time.DateOnly))
	l.printf("bulkscan %s, %s %s/%s, %d processors, %s. The simulated web runs beside the scan, in a process of its own.\nMade by `go run ./bench/cmd/endtoend`.\n",
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel())
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// printf adds to the report and shows it as it grows.
func (l *lab) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.report.WriteString(text)
	fmt.Print(text)
}

// must notes a result that is not as it must be.
func (l *lab) must(ok bool, format string, args ...any) {
	mark := "yes"
	if !ok {
		mark, l.failed = "**NO**", true
	}
	l.printf("- %s: %s\n", fmt.Sprintf(format, args...), mark)
}

// web is a running simulated web.
type web struct {
	process *exec.Cmd
	flags   []string // of a scan that reaches it
}

// start runs a simulated web until stop.
func (l *lab) start(ctx context.Context, args ...string) (*web, error) {
	c := exec.CommandContext(ctx, l.simweb, append([]string{"--json"}, args...)...)
	c.Stderr = os.Stderr
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
		return nil, errors.Join(fmt.Errorf("cannot start the simulated web: %w", err), c.Process.Kill(), c.Wait())
	}
	w := &web{process: c, flags: []string{"--resolver", where.Resolver, "--allow-private", "--dns-rate", "0"}}
	for _, to := range where.ConnectTo {
		w.flags = append(w.flags, "--connect-to", to)
	}
	return w, nil
}

func (w *web) stop() error {
	if err := w.process.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return w.process.Wait()
}

// outcome is what the system says of a run.
type outcome struct {
	wall, cpu time.Duration
	peak      int64 // bytes of memory at most
	live      int   // MB of live heap after a collection, at most
	scan      *sink.Scan
}

var gcLine = regexp.MustCompile(`^gc \d+ @.* (\d+)->(\d+)->(\d+) MB,`)

// scan runs the program over a list.
func (l *lab) scan(ctx context.Context, w *web, list string, args ...string) (*outcome, error) {
	dir, err := os.MkdirTemp(l.dir, "dataset-*")
	if err != nil {
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
			fmt.Fprintln(os.Stderr, lines.Text())
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

func (l *lab) write(name string, lines []string) (string, error) {
	path := filepath.Join(l.dir, name)
	return path, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666)
}

// pace are flags for a web that is next to us: no rates but those that an experiment is about, short waits.
var pace = []string{"--ip-rate", "0", "--timeout", "4s", "--connect-timeout", "2s", "--retry-after", "2s", "--max-retry-after", "5s"}

// truth scans 100,000 origins and holds every row against what the web says it did.
func (l *lab) truth(ctx context.Context) error {
	hosts, real, err := l.hosts(ctx, 100_000)
	if err != nil {
		return err
	}
	list, err := l.write("truth.list", hosts)
	if err != nil {
		return err
	}
	seed := append([]string{"--seed", "7"}, l.corpus()...)
	truth := filepath.Join(l.dir, "truth.jsonl")
	if text, err := exec.CommandContext(ctx, l.simweb, append(slices.Clone(seed), "--list", list, "--truth", truth)...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot write the truth: %w\n%s", err, text)
	}
	w, err := l.start(ctx, seed...)
	if err != nil {
		return err
	}
	o, err := l.scan(ctx, w, list, pace...)
	if err = errors.Join(err, w.stop()); err != nil {
		return err
	}
	file, err := os.Open(truth)
	if err != nil {
		return err
	}
	defer file.Close()
	result, err := compare.Compare(ctx, o.scan, file)
	if err != nil {
		return err
	}
	l.printf("\n## truth: %d origins (%s), %s\n\n", len(hosts), kind(real, "real hosts", "made-up hosts"), kind(l.corpus() != nil, "real bodies", "made-up bodies"))
	l.printf("| origins | wall | origins/s | CPU s | CPU s per 10k | peak memory | live heap at most |\n|---|---|---|---|---|---|---|\n")
	l.printf("| %d | %.1f s | %.0f | %.1f | %.2f | %d MB | %d MB |\n\n", len(hosts), o.wall.Seconds(), float64(len(hosts))/o.wall.Seconds(), o.cpu.Seconds(), o.cpu.Seconds()*10_000/float64(len(hosts)), o.peak>>20, o.live)
	l.must(result.OK(), "every origin has exactly one row, equal to the truth")
	l.printf("\n```\n%s\n```\n", result)
	return nil
}

func kind(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// hot scans hosts that have addresses of their own, with and without as many that share one.
func (l *lab) hot(ctx context.Context) error {
	const n = 10_000
	others, hot := make([]string, n), make([]string, n)
	mixed := make([]string, 0, 2*n)
	for i := range n {
		others[i] = fmt.Sprintf("http://h%d.other.example", i)
		hot[i] = fmt.Sprintf("http://h%d.hot.test", i)
		mixed = append(mixed, hot[i], others[i])
	}
	alone, err := l.write("alone.list", others)
	if err != nil {
		return err
	}
	both, err := l.write("both.list", mixed)
	if err != nil {
		return err
	}
	l.printf("\n## hot: %d plain origins, with and without %d more that share one address, `--ip-rate 500`\n\n", n, n)
	l.printf("Time from the first to the last answer of the %d, median of %d runs. With `--rate 2000` the processors are not the\nlimit, and what is seen is the schedule; without it the other half also competes for them.\n\n", n, l.runs)
	l.printf("| | without | with | ratio |\n|---|---|---|---|\n")
	var paced float64
	for _, rate := range []string{"2000", "0"} {
		without, with, err := l.hotRuns(ctx, alone, both, append(slices.Clone(pace), "--ip-rate", "500", "--rate", rate))
		if err != nil {
			return err
		}
		ratio := with.Seconds() / without.Seconds()
		if rate != "0" {
			paced = ratio
		}
		l.printf("| `--rate %s` | %.2f s | %.2f s | %.3f |\n", rate, without.Seconds(), with.Seconds(), ratio)
	}
	l.printf("\n")
	l.must(paced <= 1.1, "the other half takes at most 10 %% longer (ratio %.3f)", paced)
	return nil
}

// hotRuns scans both lists in turn, and returns the median times of those that share no address.
func (l *lab) hotRuns(ctx context.Context, alone, both string, args []string) (without, with time.Duration, err error) {
	times := map[string][]time.Duration{}
	for range l.runs {
		for _, list := range []string{alone, both} {
			w, err := l.start(ctx, "--only", "ok")
			if err != nil {
				return 0, 0, err
			}
			o, err := l.scan(ctx, w, list, args...)
			if err = errors.Join(err, w.stop()); err != nil {
				return 0, 0, err
			}
			took, err := othersTook(ctx, o.scan)
			if err != nil {
				return 0, 0, err
			}
			times[list] = append(times[list], took)
		}
	}
	median := func(all []time.Duration) time.Duration {
		slices.Sort(all)
		return all[len(all)/2]
	}
	return median(times[alone]), median(times[both]), nil
}

// othersTook is the time from the first to the last answer of the hosts that share no address.
func othersTook(ctx context.Context, scan *sink.Scan) (time.Duration, error) {
	type row struct {
		Host      string `parquet:"host"`
		FetchedAt int64  `parquet:"fetched_at,optional"`
	}
	var first, last int64
	for r, err := range sink.Rows[row](ctx, scan, sink.TableSites) {
		if err != nil {
			return 0, err
		}
		if !strings.HasSuffix(r.Host, ".other.example") {
			continue
		}
		if first == 0 || r.FetchedAt < first {
			first = r.FetchedAt
		}
		last = max(last, r.FetchedAt)
	}
	return time.Duration(last-first) * time.Millisecond, nil
}

// heap scans two lists of different length and compares the most live heap of each. What a part holds until it is sealed
// is memory that a short list never comes to need, so the comparison is made with parts that both lists fill many times;
// the figures with the default parts stand beside it.
func (l *lab) heap(ctx context.Context) error {
	l.printf("\n## heap: `--concurrency 1000`\n\n| origins | `--part-rows` | live heap at most | peak memory | wall |\n|---|---|---|---|---|\n")
	live := map[int]int{}
	for _, rows := range []int{5000, sink.DefaultPartRows} {
		for _, n := range []int{20_000, 100_000} {
			o, err := l.heapRun(ctx, n, rows)
			if err != nil {
				return err
			}
			if rows != sink.DefaultPartRows {
				live[n] = o.live
			}
			l.printf("| %d | %d | %d MB | %d MB | %.1f s |\n", n, rows, o.live, o.peak>>20, o.wall.Seconds())
		}
	}
	ratio := float64(live[100_000]) / float64(live[20_000])
	l.printf("\n")
	l.must(ratio >= 0.9 && ratio <= 1.1, "with parts of 5000 rows the live heaps of both lists are equal within 10 %% (ratio %.3f)", ratio)
	return nil
}

func (l *lab) heapRun(ctx context.Context, n, rows int) (*outcome, error) {
	hosts, _, err := l.hosts(ctx, n)
	if err != nil {
		return nil, err
	}
	list, err := l.write(fmt.Sprintf("heap-%d.list", n), hosts)
	if err != nil {
		return nil, err
	}
	w, err := l.start(ctx, append([]string{"--seed", "7"}, l.corpus()...)...)
	if err != nil {
		return nil, err
	}
	o, err := l.scan(ctx, w, list, append(slices.Clone(pace), "--concurrency", "1000", "--part-rows", strconv.Itoa(rows))...)
	return o, errors.Join(err, w.stop())
}
