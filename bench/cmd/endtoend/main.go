// Command endtoend answers one question: what does a whole scan cost, and is it true, polite and undisturbed? It runs the
// built program against a simulated web in a process of its own, and reads what the system, the web and the dataset say
// of the run:
//
//	truth     100,000 origins with real bodies: time, CPU and memory
//	polite    200,000 origins of which 50,000 share one address, at --ip-rate 500: is the rate kept where connections are
//	          accepted, and are the other 150,000 slowed down?
//	dead      60,000 origins of which 6 % are silent, at --concurrency 1000: what do these cost the others?
//	inflight  10,000 exchanges in flight whose answers take 4 s, plain and by TLS: in how much memory?
//	cpu       50,000 origins that are well, plain and by TLS: CPU seconds per 10,000, and in which stages
//	heap      20,000 and 100,000 origins at --concurrency 1000: is the live heap the same?
//
// Three more are done only where they are asked for, with `make zoo`, `make soak` and `make chaos`:
//
//	zoo       100,000 healthy origins among 200 copies of every behaviour: is each row true, and what does the zoo cost the
//	          healthy?
//	soak      10,000 origins again and again in one process, for a quarter of an hour: does anything grow?
//	chaos     20,000 origins through a bad network: is each row true, or what the network has made of it?
//
// In each of them every origin must have one row, as the web says it behaved. From the project's root:
//
//	go run ./bench/cmd/endtoend -o bench/results/$(date +%F)-$(hostname)
//	go run ./bench/cmd/endtoend -only polite -runs 1
//	go run ./bench/cmd/endtoend -only zoo -o zoo.md
//
// The marks are those of the sizes above, on a machine that does nothing else; other sizes are for trying out. Lists and
// bodies come from ../shared where that is present, and are made up where it is not.
//
// The files are laid out by that: main.go is the order of things and the report, lab.go runs a web and a scan, and each
// experiment has a file of its own.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "endtoend: %v\n", err)
		os.Exit(1)
	}
}

// sizes are how big the experiments are.
type sizes struct {
	origins int // truth; the longer list of heap

	polite, hot int // origins in all, and those of them that share one address
	ipRate      int

	dead        int // origins in all
	concurrency int // of dead
	timeout     time.Duration
	healthy     time.Duration // what the answers of the others take

	inflight int
	answers  time.Duration // what the answers of inflight take

	cpu int

	duration    time.Duration // of soak
	soakOrigins int           // of each of its scans
	chaos       int           // origins
	copies      int           // of each behaviour in the zoo
	well        int           // healthy origins beside it
	wellAnswers time.Duration
	bounds      string
	zooRate     int // exchanges a second to the address that the healthy share
	retries     int // of zoo
}

// experiment is one question asked of the program.
type experiment struct {
	name string
	do   func(*lab, context.Context) error
}

var experiments = []experiment{
	{"truth", (*lab).truth},
	{"polite", (*lab).polite},
	{"dead", (*lab).dead},
	{"inflight", (*lab).inflight},
	{"cpu", (*lab).cpu},
	{"heap", (*lab).heap},
}

// aside are those that are done only where they are asked for.
var aside = []experiment{
	{"zoo", (*lab).zoo},
	{"soak", (*lab).soak},
	{"chaos", (*lab).chaos},
}

// errMissed says that some mark was missed; the report says which.
var errMissed = errors.New("some result is not as it must be: see above")

// run does the experiments that the arguments ask for, and returns the lab, with its report, once there is one.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (l *lab, err error) {
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	l = &lab{stdout: stdout, stderr: stderr, report: &bytes.Buffer{}, truths: map[string]string{}}
	f := flag.NewFlagSet("endtoend", flag.ContinueOnError)
	f.SetOutput(stderr)
	out := f.String("o", "", "also write the report to `FILE`.md, or to README.md in the folder of another name")
	only := f.String("only", strings.Join(names, ","), "experiments to do")
	f.IntVar(&l.runs, "runs", 3, "runs of each command whose times are compared; the median counts")
	f.StringVar(&l.shared, "shared", "../shared", "folder of real lists and bodies")
	f.Func("scan", "further `FLAGS` of every scan, as in \"--patience 1s\"", func(s string) error {
		l.flags = strings.Fields(s)
		return nil
	})
	f.IntVar(&l.origins, "origins", 100_000, "truth, heap: origins")
	f.IntVar(&l.sizes.polite, "polite", 200_000, "polite: origins")
	f.IntVar(&l.hot, "hot", 50_000, "polite: those of them that share one address")
	f.IntVar(&l.ipRate, "ip-rate", 500, "polite: exchanges a second to one address")
	f.IntVar(&l.sizes.dead, "dead", 60_000, "dead: origins")
	f.IntVar(&l.concurrency, "concurrency", 1000, "dead, zoo: exchanges in flight")
	f.DurationVar(&l.timeout, "timeout", 15*time.Second, "dead: time-out of an exchange; at most 5s of it to take the connection")
	f.DurationVar(&l.healthy, "healthy", 300*time.Millisecond, "dead: what a healthy host takes to answer")
	f.IntVar(&l.sizes.inflight, "inflight", 10_000, "inflight: exchanges in flight")
	f.DurationVar(&l.answers, "answers", 4*time.Second, "inflight: what each answer takes")
	f.IntVar(&l.sizes.cpu, "cpu", 50_000, "cpu: origins")
	f.DurationVar(&l.duration, "duration", 15*time.Minute, "soak: for so long")
	f.IntVar(&l.soakOrigins, "soak", 10_000, "soak: origins of each scan")
	f.IntVar(&l.sizes.chaos, "chaos", 20_000, "chaos: origins")
	f.IntVar(&l.copies, "zoo", 200, "zoo: copies of each behaviour")
	f.IntVar(&l.well, "well", 100_000, "zoo: healthy origins")
	f.DurationVar(&l.wellAnswers, "well-answers", 800*time.Millisecond, "zoo: what a healthy host takes to answer")
	f.StringVar(&l.bounds, "zoo-bounds", "rate,places,processors", "zoo: by what the healthy are bounded, one run with and one without the zoo for each")
	f.IntVar(&l.zooRate, "zoo-rate", 1000, "zoo: exchanges a second to an address that all healthy origins share")
	f.IntVar(&l.retries, "retries", 2, "zoo: later tries")
	if err := f.Parse(args); err != nil {
		return l, err
	}
	if err := l.check(f); err != nil {
		return l, err
	}
	todo, err := chosen(*only)
	if err != nil {
		return l, err
	}
	if l.dir, err = os.MkdirTemp("", "bulkscan-endtoend-*"); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if err := l.build(ctx); err != nil {
		return l, err
	}
	l.head()
	for _, e := range todo {
		if err := e.do(l, ctx); err != nil {
			return l, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if *out != "" {
		path := *out
		if filepath.Ext(path) != ".md" {
			path = filepath.Join(path, "README.md")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return l, err
		}
		if err := os.WriteFile(path, l.report.Bytes(), 0o644); err != nil {
			return l, err
		}
	}
	if l.failed {
		return l, errMissed
	}
	return l, nil
}

// chosen finds experiments by their names.
func chosen(names string) ([]experiment, error) {
	var all []experiment
next:
	for _, name := range strings.Split(names, ",") {
		for _, e := range slices.Concat(experiments, aside) {
			if e.name == name {
				all = append(all, e)
				continue next
			}
		}
		return nil, fmt.Errorf("no experiment %q", name)
	}
	return all, nil
}

// check refuses sizes with which an experiment would say nothing.
func (l *lab) check(f *flag.FlagSet) error {
	var errs []error
	f.VisitAll(func(f *flag.Flag) {
		getter, ok := f.Value.(flag.Getter)
		if !ok {
			return
		}
		switch v := getter.Get().(type) {
		case int:
			if v < 1 && f.Name != "retries" {
				errs = append(errs, fmt.Errorf("-%s %d: at least 1", f.Name, v))
			}
		case time.Duration:
			if v <= 0 {
				errs = append(errs, fmt.Errorf("-%s %v: more than 0s", f.Name, v))
			}
		}
	})
	if l.origins < 20 {
		errs = append(errs, fmt.Errorf("-origins %d: at least 20", l.origins))
	}
	if l.hot >= l.sizes.polite {
		errs = append(errs, fmt.Errorf("-hot %d: less than -polite %d", l.hot, l.sizes.polite))
	}
	if l.sizes.dead*deadShare/100 < 2 {
		errs = append(errs, fmt.Errorf("-dead %d: of so few too few are dead", l.sizes.dead))
	}
	if _, err := l.zooBounds(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (l *lab) head() {
	l.printf("# End-to-end runs, %s\n\n", time.Now().UTC().Format(time.DateOnly))
	l.printf("bulkscan %s, %s %s/%s, %d processors, %s. The simulated web runs beside the scan, in a process of its own.\nMade by `go run ./bench/cmd/endtoend`%s.\n",
		facts.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), facts.Processor(),
		kind(len(l.flags) > 0, " with the further flags `"+strings.Join(l.flags, " ")+"`", ""))
}

// printf adds to the report and shows it as it grows.
func (l *lab) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.report.WriteString(text)
	fmt.Fprint(l.stdout, text)
}

// must notes a result that is not as it must be.
func (l *lab) must(ok bool, format string, args ...any) {
	mark := "yes"
	if !ok {
		mark, l.failed = "**NO**", true
	}
	l.printf("- %s: %s\n", fmt.Sprintf(format, args...), mark)
}

// mustBeTrue notes whether every row of every run since it was last asked was true, and shows what was not.
func (l *lab) mustBeTrue() {
	l.must(len(l.untrue) == 0, "every origin of every run has exactly one row, equal to the truth (%d rows)", l.rows)
	for _, result := range l.untrue {
		l.printf("\n```\n%s\n```\n", result)
	}
	l.rows, l.untrue = 0, nil
}

func kind(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
