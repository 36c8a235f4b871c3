// Command queries answers one question: how long do the queries of docs/queries take on a million sites? It makes a dataset
// of two scans of a million sites each, with real files of ../shared where these are, has DuckDB run each query with two threads,
// and tells the median. A query that takes a second or more is a failure.
//
// From the project's root, with internal/integration/duckdb/node_modules (make queries installs it):
//
//	go run ./bench/cmd/queries                 # a million sites, five runs of each query
//	go run ./bench/cmd/queries -o FILE.md      # keeps the report
//	go run ./bench/cmd/queries -sites 100000 -runs 1 -only operators
//	go run ./bench/cmd/queries -keep DIR       # makes the dataset there, or uses what is there already
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
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
	"github.com/bulkscan/bulkscan/internal/integration/queries"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "queries: %v\n", err)
		os.Exit(1)
	}
}

const (
	mark    = 1000 // milliseconds that a query may take
	threads = 2
)

// dates are those of the two scans. Queries of one date are of the last.
var dates = []string{"2026-10-21", "2026-11-21"}

var errMissed = errors.New("some queries take too long: see above")

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	f := flag.NewFlagSet("queries", flag.ContinueOnError)
	out := f.String("o", "", "also write the report to `FILE`")
	sites := f.Int("sites", 1_000_000, "of each scan")
	runs := f.Int("runs", 5, "of each query; the median counts")
	only := f.String("only", "", "the queries with these `NAMES`, separated by commas; all if empty")
	keep := f.String("keep", "", "make the dataset in `DIR`, and leave it there; one that is there already is used")
	folder := f.String("queries", "docs/queries", "their `FOLDER`")
	tools := f.String("duckdb", "internal/integration/duckdb", "`FOLDER` of the programs that ask DuckDB")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *sites < 1 || *runs < 1 || f.NArg() > 0 {
		return errors.New("sites and runs are at least 1, and there are no arguments")
	}
	all, err := queries.Load(*folder)
	if err != nil {
		return err
	}
	if *only != "" {
		all = slices.DeleteFunc(all, func(q queries.Query) bool { return !slices.Contains(strings.Split(*only, ","), q.Name) })
	}
	if len(all) == 0 {
		return fmt.Errorf("no query is called %s", *only)
	}
	if err := queries.Ready(*tools); err != nil {
		return err
	}
	dir := *keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "queries-*"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	files, err := dataset(ctx, dir, *sites)
	if err != nil {
		return err
	}
	answers, err := queries.Ask(ctx, *tools, dir, all, threads, *runs)
	if err != nil {
		return err
	}
	size, err := folderSize(dir)
	if err != nil {
		return err
	}
	var report bytes.Buffer
	fmt.Fprintf(&report, "# Queries: %d on two scans of %d sites each\n\n", len(all), *sites)
	fmt.Fprintf(&report, "%s, DuckDB with %d threads, kernel %s, %s, source %s, load %s. Files: %s; the dataset has %d MB.\nOf each query the median of %d runs, in milliseconds, is held against %d.\n\n",
		facts.Processor(), threads, facts.Kernel(), runtime.Version(), facts.Commit(), facts.Load(), files, size>>20, *runs, mark)
	late, slowest, failed := tabulate(&report, answers)
	fmt.Fprintf(&report, "\nThe slowest, %s, takes %.0f ms; %d of %d reach the mark.\n", slowest.Name, median(slowest.Millis), len(answers)-late, len(answers))
	if _, err := stdout.Write(report.Bytes()); err != nil {
		return err
	}
	if *out != "" {
		if err := os.WriteFile(*out, report.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	if late > 0 {
		return errMissed
	}
	return nil
}

// tabulate writes a row a query. One that fails is late too.
func tabulate(w io.Writer, answers []queries.Answer) (late int, slowest queries.Answer, failed error) {
	fmt.Fprintf(w, "| query | median | fastest | slowest | rows | |\n|---|---|---|---|---|---|\n")
	for _, a := range answers {
		if a.Error != "" {
			late++
			failed = errors.Join(failed, fmt.Errorf("%s: %s", a.Name, a.Error))
			fmt.Fprintf(w, "| %s | | | | | failed |\n", a.Name)
			continue
		}
		verdict := ""
		if median(a.Millis) >= mark {
			late++
			verdict = "too slow"
		}
		if slowest.Name == "" || median(a.Millis) > median(slowest.Millis) {
			slowest = a
		}
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %d | %s |\n", a.Name, median(a.Millis), slices.Min(a.Millis), slices.Max(a.Millis), len(a.Rows), verdict)
	}
	return late, slowest, failed
}

func median(ms []float64) float64 {
	if len(ms) == 0 {
		return 0
	}
	ms = slices.Sorted(slices.Values(ms))
	return (ms[(len(ms)-1)/2] + ms[len(ms)/2]) / 2
}

// dataset makes one, if it is not there, and says of what files it is. Bodies are left out: no query reads them.
func dataset(ctx context.Context, dir string, sites int) (files string, err error) {
	var bodies [][]byte
	files = "real ones, made ones, HTML and large ones"
	err = sharedtest.Try(func(tb testing.TB) {
		bodies = slices.Concat(sharedtest.Bodies(tb, "typical12k"), sharedtest.Bodies(tb, "modern-ai"), sharedtest.Bodies(tb, "mix12k")[:300])
	})
	if absent, ok := errors.AsType[sharedtest.AbsentError](err); ok {
		fmt.Fprintf(os.Stderr, "%s: files are made of pieces instead\n", absent)
		files, err = "made ones only", nil
	}
	if err != nil {
		return "", err
	}
	st, err := store.NewDir(dir)
	if err != nil {
		return "", err
	}
	manifests, err := sink.Scans(ctx, st)
	if err != nil {
		return "", err
	}
	if len(manifests) > 0 {
		for _, m := range manifests {
			if m.Counts == nil || m.Counts.Rows != int64(sites) || !slices.Contains(dates, m.ScanDate) {
				return "", fmt.Errorf("%s has another dataset", dir)
			}
		}
		return files, nil
	}
	begun := time.Now()
	s := queries.Survey{Sites: sites, Dates: dates, Bodies: bodies, Tables: []string{sink.TableSites, sink.TableVerdicts, sink.TableEvidence}}
	s.Statistics = func(ctx context.Context, st store.Store, id string) error {
		return report.Stats(ctx, st, id, report.Options{})
	}
	if err := s.Write(ctx, st); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "made the dataset in %.0f s\n", time.Since(begun).Seconds())
	return files, nil
}

func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
