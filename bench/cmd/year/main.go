// Command year answers one question: does the ledger find every change of policy, and no other? It scans lists of sites night
// after night, while a script changes their files, fails them, and takes them off the list; and holds the ledger against
// the script. It prints a report in Markdown, and fails if a change is missing or false.
//
//	sockets    the built program scans a simulated web, a process a night
//	generated  made exchanges are judged and written, without a network
//
// The script: 0.3 % of the sites a night change their file, 2 % of the sites change it often; comments change without the
// rules; 2.3 % fail; two delivery networks with a tenth of the sites each challenge, throttle, refuse or show a page for
// maintenance on one night of ten; 1 % leave the list. After 60 % of the nights another observer takes over, and on three nights
// a second one scans beside the first, whose scans must stay outside the ledger. From the project's root:
//
//	go -C bench run ./cmd/year -sockets 60x20 -generated 2000x30
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
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
	"github.com/bulkscan/bulkscan/internal/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "year: %v\n", err)
		os.Exit(1)
	}
}

// errMissed says that a ledger is not as it must be; the report says which.
var errMissed = errors.New("some ledger is not as it must be: see above")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("year", flag.ContinueOnError)
	f.SetOutput(stderr)
	overSockets := f.String("sockets", "2000x365", "`SITESxNIGHTS`,… over sockets")
	made := f.String("generated", "100000x365", "`SITESxNIGHTS`,… of generated exchanges")
	seed := f.Uint64("seed", 1, "of the script: another seed is another year")
	if err := f.Parse(args); err != nil {
		return err
	}
	web, err := sizes(*overSockets)
	if err != nil {
		return err
	}
	none, err := sizes(*made)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bulkscan-year-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	fmt.Fprintf(stdout, "# Simulated years, %s\n\nbulkscan %s, %s %s/%s, %d processors, `year %s`.\n", time.Now().UTC().Format(time.DateOnly),
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.Join(args, " "))
	good := true
	for i, of := range slices.Concat(web, none) {
		place := filepath.Join(dir, fmt.Sprint("year-", i))
		ok, err := one(ctx, *seed, of, i < len(web), place, stdout)
		if err != nil {
			return err
		}
		good = good && ok
		if err := os.RemoveAll(place); err != nil {
			return err
		}
	}
	if !good {
		return errMissed
	}
	return nil
}

// one does a year of a size, in a folder of its own.
func one(ctx context.Context, seed uint64, of size, overSockets bool, dir string, out io.Writer) (ok bool, err error) {
	s, err := newScript(seed, of, func(night int) bool { return !overSockets || silentOn(night) })
	if err != nil {
		return false, err
	}
	y, name := &year{script: s, dir: filepath.Join(dir, "out"), out: out}, "generated"
	if y.store, err = store.NewDir(y.dir); err != nil {
		return false, err
	}
	if overSockets {
		name = "sockets"
		if y.program, err = built.Command(ctx, dir, built.Bulkscan); err == nil {
			err = y.start(ctx)
		}
		if err != nil {
			return false, err
		}
		defer y.web.Close()
	}
	fmt.Fprintf(out, "\n## %s: %d sites, %d nights\n\n", name, of.sites, of.nights)
	return y.run(ctx)
}

// sizes parses a flag's value. Each of the three nights of the second observer needs a quarter of the nights.
func sizes(text string) (all []size, err error) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		var of size
		if _, err := fmt.Sscanf(word, "%dx%d", &of.sites, &of.nights); err != nil || of.sites < 1 || of.nights < 10 {
			return nil, fmt.Errorf("cannot understand %q: SITESxNIGHTS, from 1x10", word)
		}
		all = append(all, of)
	}
	return all, nil
}

func median(all []time.Duration) float64 {
	return slices.Sorted(slices.Values(all))[len(all)/2].Seconds()
}

// cpuTime is the processor time of this process so far, user's and system's.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
