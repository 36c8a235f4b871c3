// Command year answers one question: does the ledger find every change of policy, and no other? It scans lists of sites night
// after night, while a script changes their files, fails them, and takes them off the list; and holds the ledger against
// the script. It prints a report in Markdown, and fails if a change is missing or false.
//
//	sockets    the built program scans a simulated web, a process a night
//	generated  made exchanges are judged and written, without a network
//	nightly    bulkscan nightly takes nights in which much goes wrong, and must hold those that do not count (month.go)
//	hours      bulkscan nightly takes night after night, and nothing may grow (hours.go)
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
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/store"
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

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("year", flag.ContinueOnError)
	f.SetOutput(stderr)
	overSockets := f.String("sockets", "2000x365", "`SITESxNIGHTS` over sockets; empty for none")
	made := f.String("generated", "100000x365", "`SITESxNIGHTS` of generated exchanges; empty for none")
	unattended := f.String("nightly", "", "`SITESxNIGHTS` by bulkscan nightly, over sockets; empty for none")
	backToBack := f.String("hours", "", "`SITESxNIGHTS` by bulkscan nightly, back to back; empty for none")
	lasting := f.Duration("for", 2*time.Hour, "of -hours: no night begins later")
	seed := f.Uint64("seed", 1, "of the script: another seed is another year")
	if err := f.Parse(args); err != nil {
		return err
	}
	web, errWeb := sizeOf(*overSockets, 10) // each of the three nights of the second observer needs a quarter of the nights
	none, errNone := sizeOf(*made, 10)
	month, errMonth := sizeOf(*unattended, 3)
	several, errHours := sizeOf(*backToBack, 3)
	if err := errors.Join(errWeb, errNone, errMonth, errHours); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bulkscan-year-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	commit, _ := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output() // empty without git
	fmt.Fprintf(stdout, "# Simulated years, %s\n\nbulkscan %s, %s %s/%s, %d processors, `year %s`.\n", time.Now().UTC().Format(time.DateOnly),
		strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.Join(args, " "))
	for i, of := range []size{web, none} {
		if of.nights > 0 {
			err = errors.Join(err, one(ctx, *seed, of, i == 0, filepath.Join(dir, fmt.Sprint("year-", i)), stdout))
		}
	}
	if month.nights > 0 {
		err = errors.Join(err, unattendedMonth(ctx, *seed, month, filepath.Join(dir, "month"), stdout))
	}
	if several.nights > 0 {
		err = errors.Join(err, hours(ctx, *seed, several, *lasting, filepath.Join(dir, "hours"), stdout))
	}
	return err
}

// one does a year of a size, in a folder of its own.
func one(ctx context.Context, seed uint64, of size, overSockets bool, dir string, out io.Writer) error {
	s, err := newScript(seed, of, func(night int) bool { return !overSockets || silentOn(night) })
	if err != nil {
		return err
	}
	y, name := &year{script: s, out: out}, "generated"
	if y.store, err = store.NewDir(filepath.Join(dir, "out")); err != nil {
		return err
	}
	if overSockets {
		name = "sockets"
		if err := y.start(ctx, dir); err != nil {
			return err
		}
		defer y.web.Close()
	}
	fmt.Fprintf(out, "\n## %s: %d sites, %d nights\n\n", name, of.sites, of.nights)
	return y.run(ctx)
}

// sizeOf parses a flag's value.
func sizeOf(text string, leastNights int) (of size, err error) {
	if text == "" {
		return size{}, nil
	}
	if _, err := fmt.Sscanf(text, "%dx%d", &of.sites, &of.nights); err != nil || of.sites < 1 || of.nights < leastNights {
		return size{}, fmt.Errorf("cannot understand %q: SITESxNIGHTS, from 1x%d", text, leastNights)
	}
	return of, nil
}

// cpuTime is the processor time of this process so far, user's and system's.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
