package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/terminal"
)

// judgeRun reports the result of a scan, on a page for a person and in one line for programs. Its error says whether
// the scan kept to the bounds that the user set.
func (f *scanFlags) judgeRun(ctx context.Context, j *scan.Job, p *pipeline.Progress, names resolve.Stats,
	stderr io.Writer, log *slog.Logger) error {
	took := time.Since(j.Begun)
	whole := f.share.Whole() // collect judges shares: all sites of a small one may be silent
	page := f.show != nil || whole && j.Nights < 2 && terminal.Speaks(stderr, f.logFormat) &&
		log.Enabled(ctx, slog.LevelInfo)
	e := j.Ending(ctx, p, page)
	a, empty := summary.AnswersOf(e.Outcomes), e.Empty()
	if f.show != nil {
		f.show(e, took)
	} else if page {
		o := terminal.EndingOptions{Out: f.out, Took: took}
		if empty == "" && e.Stored {
			o.Next = []terminal.Fact{{Name: "next", Text: "bulkscan summary " + terminal.Quoted(f.out)}}
		}
		if err := terminal.Ending(stderr, e, o); err != nil {
			return err
		}
	} else {
		if j.Nights > 1 {
			log = log.With("nights", j.Nights)
		}
		log.Info("done",
			"kept", e.Kept, "already_kept", e.AlreadyKept, "answered", a.Answered, "failed", a.Failed, "not_asked", a.NotAsked,
			"rejected", e.Rejected, "duplicates", e.Duplicates, "throttled", e.Throttled, "took", took.Round(time.Millisecond),
			"per_second", int(float64(e.Kept)/took.Seconds()), "peak_memory_mb", limits.PeakMemory()>>20,
			terminal.DNSGroup(&names))
	}
	terminal.LogServers(log, &names)
	if u := j.Unsound(); u.Members > 0 {
		return &exitError{exitDamaged,
			fmt.Errorf(
				"%s: the gzip member at byte %d is damaged, which was found after records of it had been judged: their rows may be wrong (%d such members in all; each is a rejected line)", u.File, u.Offset, u.Members)}
	}
	if empty != "" && !whole {
		log.Warn(empty)
		empty = ""
	}
	return f.judge(e, empty, a, log)
}

// endBounds are the flags that say which end of a scan is a failure.
type endBounds struct {
	maxErrorRate float64
	allowEmpty   bool
}

func (b *endBounds) add(flags *pflag.FlagSet) {
	flags.Float64Var(&b.maxErrorRate, "max-error-rate", 0,
		"exit with 3 when more than this share of the origins got no answer (0: never)")
	flags.BoolVar(&b.allowEmpty, "allow-empty", false,
		"exit with 0 and publish the scan, also when the list has no usable site, or no site answered (else 3)")
}

func (b *endBounds) check() error {
	if !(b.maxErrorRate >= 0 && b.maxErrorRate <= 1) {
		return usagef("--max-error-rate %v: a share from 0 to 1", b.maxErrorRate)
	}
	return nil
}

// judge returns an error if the scan has no results, for the reason in empty, or if more origins of this run were
// silent than is allowed.
func (b *endBounds) judge(e *summary.Ending, empty string, a summary.Answers, log *slog.Logger) error {
	switch {
	case empty != "" && b.allowEmpty:
		log.Warn(empty)
	case empty != "" && e.Stored:
		return &exitError{exitThreshold, fmt.Errorf("%s (--allow-empty publishes the scan and ends with 0)", empty)}
	case empty != "":
		return &exitError{exitThreshold, fmt.Errorf("%s (--allow-empty ends with 0)", empty)}
	}
	if share := float64(e.Kept-a.Answered) / float64(max(e.Kept, 1)); b.maxErrorRate > 0 && share > b.maxErrorRate {
		return &exitError{exitThreshold,
			fmt.Errorf("%.1f %% of the origins got no answer, more than --max-error-rate %v allows", 100*share, b.maxErrorRate)}
	}
	return nil
}
