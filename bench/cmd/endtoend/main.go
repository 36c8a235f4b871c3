// Command endtoend answers one question: what does a whole scan cost, and is it true? It runs the built program against
// a simulated web in another process, and reads what the system, the web and the dataset say of the run. It prints a
// report in Markdown.
//
//	truth     100,000 origins with real bodies: time, processor time and memory
//	inflight  10,000 exchanges in flight whose answers take 4 s, plain and by TLS: in how much memory?
//	whole     50,000 healthy origins, plain and by TLS: processor time per 10,000, and in which stages, beside what
//	          exchanges alone cost other clients, and beside an earlier version
//	shares    a million origins of which 50,000 share one address, by one process, by eight one after another, and by eight at
//	          once that are killed 20 times: is each row true, does the address get its rate at most, and what do shares cost?
//
// In each of them every origin must have exactly one row. The last is done only where -only names it. From the
// project's root:
//
//	go -C bench run ./cmd/endtoend -only truth,whole -runs 1
//
// The bounds that the report holds results against are for these sizes, on a machine that does nothing else. The files
// of ../shared, beside the project, are served and scanned where they are there; otherwise they are made up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "endtoend: %v\n", err)
		os.Exit(1)
	}
}

// experiments are in the order in which they are done.
var experiments = []struct {
	name  string
	do    func(*lab, context.Context) error
	asked bool // done only where -only names it
}{
	{"truth", (*lab).truth, false},
	{"inflight", (*lab).inflight, false},
	{"whole", (*lab).whole, false},
	{"shares", (*lab).shares, true},
}

// errMissed says that a result is not as it must be; the report says which.
var errMissed = errors.New("some result is not as it must be: see above")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var usual, all []string
	for _, e := range experiments {
		all = append(all, e.name)
		if !e.asked {
			usual = append(usual, e.name)
		}
	}
	l := &lab{stdout: stdout, stderr: stderr, truths: map[string]string{}}
	f := flag.NewFlagSet("endtoend", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", strings.Join(usual, ","), "`NAMES` of experiments to do, of "+strings.Join(all, ","))
	f.IntVar(&l.runs, "runs", 3, "runs of each scan; the median counts")
	f.Float64Var(&l.scale, "scale", 1, "multiplies how many origins there are, to try something out")
	f.StringVar(&l.ref, "ref", "", "`COMMIT` beside which whole measures (default: the last tag)")
	f.Func("scan", "further `FLAGS` of every scan, as in \"--retries 0\"", func(s string) error {
		l.flags = strings.Fields(s)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	names := strings.Split(*only, ",")
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("no experiment %q", name)
		}
	}
	if l.runs < 1 || l.scale <= 0 || f.NArg() > 0 {
		return errors.New("-runs and -scale are more than 0, and there are no arguments")
	}
	if l.dir, err = os.MkdirTemp("", "bulkscan-endtoend-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if l.bulkscan, err = built.Command(ctx, l.dir, built.Bulkscan); err != nil {
		return err
	}
	if l.simweb, err = built.Command(ctx, l.dir, built.Simweb); err != nil {
		return err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	l.printf("# End-to-end runs, %s\n\nbulkscan %s, %s %s/%s, %d processors, scale %v, further flags %q.\n",
		time.Now().UTC().Format(time.DateOnly),
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), l.scale,
		l.flags)
	for _, e := range experiments {
		if slices.Contains(names, e.name) {
			if err := e.do(l, ctx); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
	}
	if l.failed {
		return errMissed
	}
	return nil
}
