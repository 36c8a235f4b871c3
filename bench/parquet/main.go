// Command parquet answers one question: how fast and how small do rows become files, ours and others'? In one run bulkscan's
// table writer and arrow-go take turns at the same rows, with the same settings; statistics are computed of a scan, and its
// parts merged; and a replayed scan is weighed column by column:
//
//	make parquet                                   # from the project's root; four minutes
//	make parquet OUT=bench/results/…/parquet.md
//	go -C bench/parquet run . -tables verdicts -rounds 1 -sites 20000
//
// It is a module of its own, so that what bulkscan is compared with is not among what bulkscan is made of. Its test reads
// every column of every table with arrow-go.
//
// Every turn is a process of its own, so that the system tells what it used: the command starts itself again. The files in
// that order: replay.go makes sites, size.go weighs them, columns.go takes rows apart, contenders.go is who writes,
// dataset.go is what is done with a whole scan, turn.go is the measuring process, and report.go writes down what came of it.
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
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/sink"
)

// part is the first argument of a measuring process.
const part = "turn"

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == part {
		err = turnPart(os.Stdin, os.Stdout)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "parquet: %v\n", err)
		os.Exit(1)
	}
}

// Plan is what is measured.
type Plan struct {
	Sites  int // of the dataset that rows are read from
	Weigh  int // sites that are weighed, of each kind; 0: none
	Rounds int
	Tables []string
	Scan   int // rows of the scan that statistics are computed of, and whose parts are merged; 0: none
}

// turnRows is how many rows of a table a turn writes at least: about a second's worth of ours.
var turnRows = map[string]int{sink.TableSites: 250_000, sink.TableVerdicts: 5_000_000, sink.TableEvidence: 5_000_000}

// theirShare is what others write of it: they need longer for a row.
const theirShare = 4

// errMarks says that a run went well and its figures are not as they must be.
var errMarks = errors.New("some result is not as it must be: see above")

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	f := flag.NewFlagSet("parquet", flag.ContinueOnError)
	f.SetOutput(notes)
	plan := Plan{}
	f.IntVar(&plan.Sites, "sites", 60_000, "sites of the dataset that rows are read from")
	f.IntVar(&plan.Weigh, "weigh", 200_000, "sites that are weighed, of each kind; 0 for none")
	f.IntVar(&plan.Rounds, "rounds", 5, "turns of each contender with each table; 0 for none")
	f.IntVar(&plan.Scan, "scan", compactedRows, "rows of the scan that statistics are computed of, and whose parts are merged; 0 for none")
	tables := f.String("tables", "sites,verdicts,evidence", "tables that are written")
	markdown := f.String("o", "", "also write the report to `FILE`")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	plan.Tables = strings.Split(*tables, ",")
	for _, table := range plan.Tables {
		if turnRows[table] == 0 {
			return fmt.Errorf("-tables: %q is not measured", table)
		}
	}
	if plan.Sites < 1000 || plan.Rounds < 0 || plan.Weigh < 0 || plan.Scan < 0 {
		return errors.New("-sites must be 1000 at least, -rounds, -weigh and -scan not negative")
	}
	if err := os.MkdirAll(filepath.Dir(*markdown), 0o777); err != nil { // now, not after minutes of work
		return fmt.Errorf("cannot make room for the report: %w", err)
	}
	var text bytes.Buffer
	report := &Report{out: io.MultiWriter(out, &text), notes: notes}
	report.Head(plan, facts.Command("parquet", f))
	if err := compare(ctx, report, plan); err != nil {
		return err
	}
	if err := measureDataset(ctx, report, plan); err != nil {
		return err
	}
	report.Marks()
	if plan.Weigh > 0 {
		var all []*Weights
		for _, kind := range kinds {
			report.note("weighing: %s\n", kind)
			w, err := weigh(plan.Weigh, kind)
			if err != nil {
				return err
			}
			all = append(all, w)
		}
		report.Weights(all)
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

// whole is not compared: it is all that a scan does with a judged site.
const whole = "bulkscan, from judged sites"

// compare lets the contenders take turns.
func compare(ctx context.Context, report *Report, plan Plan) error {
	if plan.Rounds == 0 {
		return nil
	}
	dir, remove, err := temporary()
	if err != nil {
		return fmt.Errorf("cannot write a dataset: %w", err)
	}
	defer remove()
	replay, err := newReplay(plan.Sites, Simulated)
	if err != nil {
		return err
	}
	report.note("writing %d sites to read rows from\n", plan.Sites)
	if _, err := writeScan(dir, replay, plan.Sites); err != nil {
		return err
	}
	for _, table := range plan.Tables {
		results := map[string][]Measured{}
		for round := range plan.Rounds {
			for _, contender := range append([]string{whole}, names()...) {
				rows := turnRows[table]
				if contender != ours && contender != whole {
					rows /= theirShare
				}
				m, err := takeTurn(ctx, &job{Contender: contender, Table: table, Dir: dir, Rows: rows})
				if err != nil {
					return fmt.Errorf("%s, %s: %w", table, contender, err)
				}
				report.note("%s, round %d, %s: %.0f rows/s\n", table, round+1, contender, m.rate())
				results[contender] = append(results[contender], *m)
			}
		}
		report.Table(table, results, replay.Real)
	}
	return nil
}

func names() (all []string) {
	for _, c := range contenders {
		all = append(all, c.Name)
	}
	return all
}

// takeTurn starts this program again, to measure.
func takeTurn(ctx context.Context, j *job) (*Measured, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start a measuring process: %w", err)
	}
	input, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, part)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	cmd.Env = slices.Concat(os.Environ(), childEnvironment)
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the measuring process failed: %w", err)
	}
	m := &Measured{}
	if err := json.Unmarshal(output, m); err != nil {
		return nil, fmt.Errorf("cannot read what was measured: %w", err)
	}
	return m, nil
}

// childEnvironment is what a test adds, so that its binary measures.
var childEnvironment []string
