// Command transport answers one question: what does an exchange cost, ours and others'? In one run, on one machine, against
// one server, bulkscan's fetcher and other HTTP clients take turns at the same exchanges, each over a fresh connection, 256
// in flight; and it is measured what each has used:
//
//	go -C bench/transport run .                       # from the project's root; some minutes
//	go -C bench/transport run . -markdown FILE -json FILE
//	go -C bench/transport run . -inflight             # memory while 1,000 and 10,000 exchanges are in flight
//
// It is a module of its own, so that what bulkscan is compared with is not among what bulkscan is made of. README.md says
// what each contender does and what it leaves out.
//
// Every contender runs in a process of its own, and so does the server, so that the system itself tells what each used. The
// command starts itself again for both. The files in that order: web.go is what both sides know of the server, server.go
// answers, child.go is the measuring process, contenders.go, epoll_linux.go and tools.go are who is measured, lab.go lets
// them take turns, held.go is the -inflight mode, and report.go writes down what came of it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if part, ok := parts[first(os.Args[1:])]; ok {
		exit(part(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// parts are what the command is when it starts itself again. They hear and tell JSON.
var parts = map[string]func(io.Reader, io.Writer) error{
	"server":    serverPart,
	"contender": contenderPart,
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "transport: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// errMarks says that a run went well and its figures are not as they must be.
var errMarks = errors.New("some result is not as it must be: see above")

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	f := flag.NewFlagSet("transport", flag.ContinueOnError)
	f.SetOutput(notes)
	plan := DefaultPlan
	f.IntVar(&plan.N, "n", plan.N, "exchanges a round")
	f.IntVar(&plan.Warm, "warm", plan.Warm, "exchanges before them that do not count, of contenders that are made of Go")
	f.IntVar(&plan.Rounds, "rounds", plan.Rounds, "turns of each contender")
	f.IntVar(&plan.InFlight, "c", plan.InFlight, "exchanges in flight")
	f.IntVar(&plan.Addresses, "addresses", plan.Addresses, "addresses that the server listens on, 127.0.0.1 and following")
	f.IntVar(&plan.Certificates, "certificates", plan.Certificates, "certificates that the hosts share; one for each host where there are as many as exchanges")
	f.StringVar(&plan.Profiles, "profile", "", "write a CPU profile of each contender's last turn into `DIR`")
	only := f.String("only", "", "measure only contenders with these `NAMES`, comma-separated; what is no whole name means all with it in theirs")
	held := f.Bool("inflight", false, "measure memory in flight instead")
	sizes := f.String("held", "1000,10000", "with -inflight: how many exchanges in flight")
	f.DurationVar(&plan.Hold, "hold", plan.Hold, "with -inflight: how long the server holds answers once all are asked")
	jsonFile := f.String("json", "", "write all figures to `FILE`")
	markdown := f.String("markdown", "", "also write the report to `FILE`")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var err error
	if plan.Held, err = numbers(*sizes); err != nil {
		return fmt.Errorf("-held: %w", err)
	}
	if err := plan.check(); err != nil {
		return err
	}
	for _, file := range []string{*jsonFile, *markdown, filepath.Join(plan.Profiles, "x")} { // now, not after minutes of work
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return fmt.Errorf("cannot make room for the report: %w", err)
		}
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}

	var text bytes.Buffer
	report := &Report{out: io.MultiWriter(out, &text), notes: notes}
	mode := compare
	if *held {
		mode = compareHeld
	}
	figures, err := mode(ctx, report, plan, chosen, command(f))
	if err != nil {
		return err
	}
	if *jsonFile != "" {
		data, err := json.MarshalIndent(figures, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot write the figures: %w", err)
		}
		if err := os.WriteFile(*jsonFile, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("cannot write the figures: %w", err)
		}
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	if report.failed {
		return errMarks
	}
	return nil
}

// Plan is what is measured.
type Plan struct {
	N, Warm, Rounds, InFlight int
	Addresses, Certificates   int
	Profiles                  string `json:",omitempty"`
	Held                      []int
	Hold                      time.Duration

	fault string // of the server, for tests
}

// DefaultPlan is what committed results are measured by.
var DefaultPlan = Plan{N: 10_000, Warm: 2000, Rounds: 5, InFlight: 256, Addresses: 32, Certificates: 1, Hold: 4 * time.Second}

func (p *Plan) check() error {
	switch {
	case p.N < 1 || p.N > 1_000_000:
		return errors.New("-n must be from 1 to 1000000")
	case p.Warm < 0 || p.Warm > 1_000_000:
		return errors.New("-warm must be from 0 to 1000000")
	case p.Rounds < 1:
		return errors.New("-rounds must be 1 at least")
	case p.InFlight < 1 || p.InFlight > 10_000:
		return errors.New("-c must be from 1 to 10000")
	case p.Addresses < 1 || p.Addresses > 250:
		return errors.New("-addresses must be from 1 to 250")
	case p.Certificates < 1 || p.Certificates > 100_000:
		return errors.New("-certificates must be from 1 to 100000")
	case p.Hold < 0:
		return errors.New("-hold must not be negative")
	}
	return nil
}

func numbers(list string) (all []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > 100_000 {
			return nil, fmt.Errorf("%q is no number from 1 to 100000", word)
		}
		all = append(all, n)
	}
	return all, nil
}

// choose returns the contenders that are wanted, in their order.
func choose(words string) ([]Contender, error) {
	if words == "" {
		return contenders(), nil
	}
	var chosen []Contender
	for _, c := range contenders() {
		for word := range strings.SplitSeq(words, ",") {
			if _, whole := find(word); c.Name == word || !whole && strings.Contains(c.Name, word) {
				chosen = append(chosen, c)
				break
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %s: no contender is called so", words)
	}
	return chosen, nil
}

// command returns what to type for the same report.
func command(flags *flag.FlagSet) string {
	typed := "go -C bench/transport run ."
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "json", "markdown", "profile":
		case "inflight":
			typed += " -inflight"
		default:
			typed += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	return typed
}
