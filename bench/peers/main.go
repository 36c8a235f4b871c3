// Command peers answers one question: how do bulkscan's parser and the other robots.txt parsers in Go compare? In one run
// it measures speed, ours and theirs in turns, and truth, by the decisions of Google's open-source matcher on the same
// files:
//
//	make peers                          # from the project's root; some minutes
//	make peers OUT=bench/results/…/parsers.md
//
// or, in this folder, to try something out:
//
//	go run . -packs modern-ai -rounds 3
//
// It is a module of its own, so that what bulkscan is compared with is not among what bulkscan is made of. The files are
// those of ../shared/corpus, beside the project; where that is absent, made-up ones are measured and truth is left out.
//
// peers.go says how each parser is asked, packs.go where the files come from, speed.go and truth.go do the two
// comparisons, and report.go writes them down.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// MinTimesTemoto is how many times as fast as temoto/robotstxt the parser must be, on every pack of real files and with every workload,
// by the best passes of both. Single rounds are shown beside it, but a busy machine decides how the worst of them ends.
const MinTimesTemoto = 20

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("peers", flag.ExitOnError)
	file := f.String("o", "", "also write the report to `FILE`")
	names := f.String("packs", "typical12k,mix12k,modern-ai", "packs of ../shared/corpus to measure")
	plan := DefaultPlan
	f.IntVar(&plan.Rounds, "rounds", plan.Rounds, "turns of each parser with each pack and workload")
	f.DurationVar(&plan.Budget, "budget", plan.Budget, "a parser that would take longer than this for its turns gets fewer")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*file), 0o777); err != nil { // now, not after minutes of work
		return fmt.Errorf("cannot make room for the report: %w", err)
	}
	var text bytes.Buffer
	report := &Report{out: io.MultiWriter(out, &text)}

	// A peer prints what it cannot compile, which is what strangers wrote.
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
		defer null.Close()
		os.Stdout = null
	}

	report.Head(time.Now(), plan, facts.Command("peers", f))
	found, err := compareSpeed(report, strings.Split(*names, ","), plan)
	if err != nil {
		return err
	}
	if found {
		if err := compareTruth(report, []string{"typical12k", "modern-ai"}); err != nil {
			return err
		}
	}
	report.Claims(found)
	if *file != "" {
		if err := os.WriteFile(*file, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	if report.failed {
		return errors.New("some result is not as it must be: see above")
	}
	return nil
}

// compareSpeed measures every workload on each pack, or on made-up files where ../shared is absent. One pack is held at a
// time, for what is held delays the garbage collector, to the advantage of whoever makes garbage.
func compareSpeed(report *Report, names []string, plan Plan) (found bool, err error) {
	for _, name := range names {
		pack, found, err := readPack(name)
		if err != nil {
			return false, err
		}
		report.Pack(pack)
		for _, load := range Workloads() {
			report.Speed(load, measure(pack, load.Questions, plan, append([]Peer{lineLoop}, peers...)))
		}
		if !found {
			return false, nil
		}
	}
	return true, nil
}

// compareTruth asks every parser all that Google's matcher was asked.
func compareTruth(report *Report, names []string) error {
	scores := make([]Score, 1+len(peers))
	for _, name := range names {
		pack, _, err := readPack(name)
		if err != nil {
			return err
		}
		truth, err := readTruth(pack)
		if err != nil {
			return err
		}
		for i, peer := range append([]Peer{bulkscan}, peers...) {
			scores[i].Peer = peer
			scores[i].add(pack, truth, maxTime)
		}
	}
	report.Truth(names, scores)
	return nil
}
