// Command lookups answers one question: what does it cost to look names up, ours and others', and does a name get lost? In
// one run, on one machine, bulkscan's resolver and others ask the same name server on loopback for names that are all
// different and whose addresses are known before:
//
//	speed   200,000 names, by each in turn: look-ups a second, CPU seconds per 10,000, allocations
//	loss    1,000,000 names, 10,000 a second, of a server that drops 5 % of the packets and answers 5 % three seconds
//	        late: is one lost?
//	memory  5,000,000 names as fast as it goes: does what the process holds grow?
//
// From the project's root:
//
//	go run ./bench/cmd/lookups                           # some five minutes
//	go run ./bench/cmd/lookups -o FILE                   # keeps the report
//	go run ./bench/cmd/lookups -only loss -names 50000   # a smaller one
//	go run ./bench/cmd/lookups -only speed -contenders bulkscan -runs 1 -cpuprofile DIR
//
// The marks are those of the sizes above, on a machine that does nothing else; other sizes are for trying out.
//
// Every contender runs in a process of its own each time, and so does the server, so that the system itself tells what each
// used. The command starts itself again for both. The files in that order: packet.go is what both sides know of names and
// packets, server.go answers, child.go is the measuring process, contenders.go is who is measured, lab.go starts them,
// experiments.go is what is asked of them, and marks.go what must come of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

func main() {
	if len(os.Args) > 1 {
		if part, ok := parts[os.Args[1]]; ok {
			exit(part(os.Stdin, os.Stdout))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	_, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		err = nil
	}
	exit(err)
}

// parts are what the command is when it starts itself again. They hear and tell JSON.
var parts = map[string]func(io.Reader, io.Writer) error{
	"server":    serverPart,
	"contender": contenderPart,
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "lookups: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// plan is how big the experiments are.
type plan struct {
	speed, warm, runs int // names a turn; names before them; turns
	inFlight          int // look-ups at a time; 0: what each contender has

	names, few  int     // loss: names for ours, and for the others
	pace        float64 // look-ups that begin a second
	rate        float64 // questions a second that ours may send
	drop, delay float64 // of a hundred packets
	late        time.Duration

	memory, steps int // names, and how many times it is looked at what is held

	contenders []contender // of speed
	profiles   string
}

var defaults = plan{
	speed: 200_000, warm: 20_000, runs: 3,
	names: 1_000_000, few: 50_000, pace: 10_000, rate: 15_000, drop: 5, delay: 5, late: 3 * time.Second,
	memory: 5_000_000, steps: 5,
}

// experiment is one question asked of the resolvers.
type experiment struct {
	name string
	do   func(*lab, context.Context) error
}

var experiments = []experiment{
	{"speed", (*lab).speed},
	{"loss", (*lab).loss},
	{"memory", (*lab).memory},
}

// errMissed says that some mark was missed; the report says which.
var errMissed = errors.New("some result is not as it must be: see above")

// run does the experiments that the arguments ask for, and returns the lab, with its report, once there is one.
func run(ctx context.Context, args []string, stdout, notes io.Writer) (*lab, error) {
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	l := &lab{plan: defaults, stdout: stdout, notes: notes}
	p := &l.plan
	f := flag.NewFlagSet("lookups", flag.ContinueOnError)
	f.SetOutput(notes)
	out := f.String("o", "", "also write the report to `FILE`")
	only := f.String("only", strings.Join(names, ","), "experiments to do")
	who := f.String("contenders", "", "speed: only contenders with these `NAMES`, comma-separated")
	f.IntVar(&p.speed, "speed", p.speed, "speed: names a turn")
	f.IntVar(&p.warm, "warm", p.warm, "speed: names before them that do not count")
	f.IntVar(&p.runs, "runs", p.runs, "speed: turns of each contender; medians count")
	f.IntVar(&p.inFlight, "c", p.inFlight, "speed, memory: look-ups at a time; 0: as many as stand beside each contender in the report")
	f.IntVar(&p.names, "names", p.names, "loss: names")
	f.IntVar(&p.few, "few", p.few, "loss: names for the others")
	f.Float64Var(&p.pace, "pace", p.pace, "loss: look-ups that begin a second")
	f.Float64Var(&p.rate, "dns-rate", p.rate, "loss: questions a second that ours may send; 0: any")
	f.Float64Var(&p.drop, "drop", p.drop, "loss: packets of a hundred that the server does not answer")
	f.Float64Var(&p.delay, "delay", p.delay, "loss: packets of a hundred that it answers late")
	f.DurationVar(&p.late, "late", p.late, "loss: how late")
	f.IntVar(&p.memory, "memory", p.memory, "memory: names")
	f.IntVar(&p.steps, "steps", p.steps, "memory: parts they are looked up in")
	f.StringVar(&p.profiles, "cpuprofile", "", "write a CPU profile of the last turn of each contender in each experiment into `DIR`")
	if err := f.Parse(args); err != nil {
		return l, err
	}
	if f.NArg() > 0 {
		return l, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := p.check(); err != nil {
		return l, err
	}
	todo, err := chosen(*only)
	if err != nil {
		return l, err
	}
	if p.contenders, err = wanted(*who); err != nil {
		return l, err
	}
	for _, file := range []string{*out, filepath.Join(p.profiles, "x")} { // now, not after minutes of work
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return l, fmt.Errorf("cannot make room for the report: %w", err)
		}
	}
	if l.self, err = os.Executable(); err != nil {
		return l, fmt.Errorf("cannot find this program: %w", err)
	}
	l.head(ctx, typed(f))
	for _, e := range todo {
		if err := e.do(l, ctx); err != nil {
			return l, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if *out != "" {
		if err := os.WriteFile(*out, l.report.Bytes(), 0o644); err != nil {
			return l, fmt.Errorf("cannot write the report: %w", err)
		}
	}
	if l.failed {
		return l, errMissed
	}
	return l, nil
}

// check refuses sizes with which an experiment would say nothing, or this machine could not bear.
func (p *plan) check() error {
	var errs []error
	number := func(name string, value, least, most float64) {
		if !(value >= least && value <= most) {
			errs = append(errs, fmt.Errorf("-%s %v: from %v to %.0f", name, value, least, most))
		}
	}
	number("speed", float64(p.speed), 1, 1e8)
	number("warm", float64(p.warm), 0, 1e8)
	number("runs", float64(p.runs), 1, 1000)
	number("c", float64(p.inFlight), 0, 1e5)
	number("names", float64(p.names), 1, 1e8)
	number("few", float64(p.few), 1, 1e7)
	number("pace", p.pace, 1, 1e6)
	number("dns-rate", p.rate, 0, 1e9)
	number("drop", p.drop, 0, 100)
	number("delay", p.delay, 0, 100-p.drop)
	number("late", p.late.Seconds(), 0, 60)
	number("steps", float64(p.steps), 2, 1000)
	number("memory", float64(p.memory), float64(p.steps), 1e9)
	return errors.Join(errs...)
}

// chosen finds experiments by their names.
func chosen(names string) (all []experiment, err error) {
next:
	for name := range strings.SplitSeq(names, ",") {
		for _, e := range experiments {
			if e.name == name {
				all = append(all, e)
				continue next
			}
		}
		return nil, fmt.Errorf("no experiment %q", name)
	}
	return all, nil
}

// wanted finds contenders by their names; all that take part in speed where none is named.
func wanted(names string) (all []contender, err error) {
	if names == "" {
		for _, c := range contenders {
			if c.name != miekgTries { // of a server that answers everything it asks no more than the one without
				all = append(all, c)
			}
		}
		return all, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		c, ok := find(name)
		if !ok {
			return nil, fmt.Errorf("no contender %q", name)
		}
		all = append(all, c)
	}
	return all, nil
}

// typed returns what to type for the same report.
func typed(flags *flag.FlagSet) string {
	line := "go run ./bench/cmd/lookups"
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "o" && f.Name != "cpuprofile" {
			line += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	return line
}

// head says who is measured, where.
func (l *lab) head(ctx context.Context, command string) {
	l.printf("# What it costs to look names up, %s\n\n", time.Now().UTC().Format(time.DateOnly))
	l.printf("bulkscan %s, %s %s/%s, %d processors, %s, kernel %s, load %s at the start.\nMade by `%s`.\n\n",
		facts.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), facts.Processor(), facts.Kernel(), facts.Load(), command)
	l.printf("| contender | version | what it does here |\n|---|---|---|\n")
	for _, c := range contenders {
		l.printf("| %s | %s | %s |\n", c.name, version(ctx, c.module), c.does)
	}
	l.printf(`
Every turn is a process of its own, and so is the name server, which has one processor. CPU seconds are user and system
time of the contender's process alone; on loopback the system does some of the receiver's work in the sender's time, for
all alike. No name is asked for twice, and each answer is held against the address that is the name's.
`)
}

// version is what the build knows of a module; of our own what git does, and of the standard library the toolchain's.
func version(ctx context.Context, module string) string {
	switch module {
	case "":
		return runtime.Version()
	case moduleOurs:
		return facts.Commit()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "unknown"
}
