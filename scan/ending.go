package scan

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// Ending says how the finished scan went. It reads the dataset if shown is set, or if only the dataset can tell whether
// any site answered: earlier runs of the scan may have had the answers. The scan is done, so an error of reading is
// only logged.
func (j *Job) Ending(ctx context.Context, p *pipeline.Progress, shown bool) *summary.Ending {
	list := j.listStats()
	e := &summary.Ending{
		ScanID: j.scanID, Kept: int64(p.Kept.Load()), AlreadyKept: int64(p.Skipped.Load()),
		Throttled: int64(p.Throttled.Load()),
		Entries:   int64(list.Entries), Lines: int64(list.Lines), LeftOut: int64(list.LeftOut),
		Rejected: int64(list.Rejects), Duplicates: int64(list.Duplicates), Stored: j.Store != nil, Replayed: j.nights != nil,
	}
	for _, outcome := range exchange.Outcomes() {
		if n := p.Outcomes[outcome].Load(); n > 0 {
			e.Outcomes = append(e.Outcomes, survey.Count{Value: outcome.String(), Rows: int64(n)})
		}
	}
	slices.SortStableFunc(e.Outcomes, func(a, b survey.Count) int { return cmp.Compare(b.Rows, a.Rows) })
	if j.Store == nil || j.Nights > 1 || !shown && (e.AlreadyKept == 0 || e.Answers().Answered > 0) {
		return e
	}
	o := summary.Options{Options: survey.Options{Registry: j.Sink.Registry, Alone: true},
		Selection: survey.Selection{Category: "ai"}, Top: 3}
	scan, err := summary.Of(ctx, j.Store, j.scanID, o)
	if err != nil && !errors.Is(err, commit.ErrNoTable) { // --tables may leave out a table that a summary needs
		j.Log.Warn("cannot read what the scan has found", "error", err)
	}
	e.Scan = scan
	return e
}
