package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/terminal"
	"github.com/bulkscan/bulkscan/pipeline"
)

// judgeRun says what came of a scan, to a person on a page and to programs in one line, and whether it kept to the bounds that
// the user set.
func (f *scanFlags) judgeRun(ctx context.Context, j *job.Job, p *pipeline.Progress, names resolve.Stats, stderr io.Writer, log *slog.Logger) error {
	took := time.Since(j.Begun)
	page := terminal.Speaks(stderr, f.logFormat) && log.Enabled(ctx, slog.LevelInfo)
	e := j.Ending(ctx, p, page)
	a, empty := report.AnswersOf(e.Outcomes), e.Empty()
	if page {
		o := terminal.EndingOptions{Out: f.out, Took: took}
		if empty == "" && e.Stored {
			o.Next = "bulkscan summary " + terminal.Quoted(f.out)
		}
		if err := terminal.Ending(stderr, e, o); err != nil {
			return err
		}
	} else {
		log.Info("done",
			"kept", e.Kept, "already_kept", e.AlreadyKept, "answered", a.Answered, "failed", a.Failed, "not_asked", a.NotAsked,
			"rejected", e.Rejected, "duplicates", e.Duplicates, "throttled", e.Throttled, "took", took.Round(time.Millisecond),
			"per_second", int(float64(e.Kept)/took.Seconds()), "peak_memory_mb", limits.PeakMemory()>>20, terminal.DNSGroup(&names))
	}
	terminal.LogServers(log, &names)
	if u := j.Unsound(); u.Members > 0 {
		return &exitError{exitDamaged, fmt.Errorf("%s: the gzip member at byte %d is damaged, which was found after records of it had been judged: their rows may be wrong (%d such members in all; each is a rejected line)", u.File, u.Offset, u.Members)}
	}
	switch {
	case empty != "" && f.allowEmpty:
		log.Warn(empty)
	case empty != "":
		return &exitError{exitThreshold, fmt.Errorf("%s (--allow-empty ends with 0 all the same)", empty)}
	}
	if f.maxErrorRate > 0 && e.Kept > 0 {
		if share := float64(e.Kept-a.Answered) / float64(e.Kept); share > f.maxErrorRate {
			return &exitError{exitThreshold, fmt.Errorf("%.1f %% of the origins got no answer, more than --max-error-rate %v allows", 100*share, f.maxErrorRate)}
		}
	}
	return nil
}
