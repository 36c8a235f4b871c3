package scan

import (
	"context"
	"errors"
	"time"

	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// reportEvery is how often a share reports its progress.
const reportEvery = 30 * time.Second

// reportTime is how long a report may take. The end of the scan does not cut it off: a report that was cut off could
// arrive after the last record.
const reportTime = 10 * time.Second

// reportShare writes the progress into the share's record, until the context ends. A report that fails is not repeated:
// if the store is unavailable, the next commit says so.
func (j *Job) reportShare(ctx context.Context, p *pipeline.Progress) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		read, total := j.reader.Progress()
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
		if err := j.writer.ReportShare(once, read, total, int64(p.Kept.Load())); err != nil {
			j.Log.Debug("cannot report how far the share is", "error", err)
		}
		cancel()
	}
}

// endShare marks the share as done, or as left unfinished for the reason of err.
func (j *Job) endShare(ctx context.Context, complete bool, err error) error {
	if complete && err == nil {
		s := j.reader.Stats()
		return j.writer.FinishShare(ctx, s.Entries, commit.ShareResult{
			Duplicates: int64(s.Duplicates), LeftOut: int64(s.LeftOut), Elsewhere: int64(s.Elsewhere),
			Invalid: int64(s.Rejects - s.Duplicates), Skipped: int64(s.Skipped), Lines: int64(s.Lines),
			Rejects: j.rejects.File(),
		})
	}
	state, reason := commit.ShareInterrupted, "a signal"
	if !j.Interrupted() {
		state, reason = commit.ShareFailed, "its list could not be read to the end"
	}
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrLockLost):
		return err // nothing can be told
	case err != nil:
		reason = err.Error()
	}
	if leaveErr := j.writer.LeaveShare(ctx, state, reason); leaveErr != nil {
		j.Log.Debug("cannot tell that the share is left unfinished", "error", leaveErr)
	}
	return err
}

// Collect makes one scan of its shares, and publishes it. It completes the work of a killed Collect, and does no harm
// if nothing is left to do. The error is a *shares.NotDoneError if shares are missing.
func Collect(ctx context.Context, st store.Store, scanID string, o Publishing) (_ *commit.Manifest, err error) {
	// First without the lock: several processes may finish the last shares, and each that takes the lock collects.
	m, err := commit.ReadManifest(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	if m.Uncollected() {
		records, err := commit.Shares(ctx, st, m)
		if err != nil {
			return nil, err
		}
		if missing := shares.NotDone(m, records); len(missing) > 0 {
			return nil, &shares.NotDoneError{ScanID: scanID, N: m.Shares, Shares: missing}
		}
	}
	c, err := sink.OpenCollection(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fresh := !c.Collected()
	if fresh {
		if err := shares.Check(c.Manifest, c.Shares); err != nil {
			return nil, err
		}
		pruned, err := commit.ReadPruned(ctx, st)
		if err == nil && !o.NoPublish {
			err = pruned.Refuses(scanID, m.ScanDate)
		}
		if err != nil {
			return nil, err
		}
		if err := c.Gather(ctx); err != nil {
			return nil, err
		}
		err = stats.Write(ctx, st, scanID, survey.Options{Registry: o.Registry, ToolVersion: o.ToolVersion, Log: o.Log})
		if err != nil && !errors.Is(err, commit.ErrNoTable) {
			return nil, err
		}
	}
	if fresh || c.Manifest.Publication == commit.PublicationEmpty && o.AllowEmpty {
		as, err := o.publication(ctx, st, scanID)
		if err != nil {
			return nil, err
		}
		if err := c.Complete(ctx, o.Log, as); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.Clean(ctx), c.Close()); err != nil {
		return nil, err
	}
	return c.Manifest, Publish(ctx, st, scanID, o)
}

// publication returns the publication of a collected scan.
func (o *Publishing) publication(ctx context.Context, st store.Store, scanID string) (commit.Publication, error) {
	if !o.AllowEmpty {
		e, err := Collected(ctx, st, scanID)
		if err != nil {
			return "", err
		}
		if e.Empty() != "" {
			return commit.PublicationEmpty, nil
		}
	}
	if o.NoPublish {
		return commit.PublicationPending, nil
	}
	return commit.PublicationDone, nil
}

// Collected says how a scan in shares went. If --tables leaves out the table that shows answers, the scan counts as
// having some.
func Collected(ctx context.Context, st store.Store, scanID string) (*summary.Ending, error) {
	outcomes, err := summary.CountOutcomes(ctx, st, scanID)
	if errors.Is(err, commit.ErrNoTable) {
		return &summary.Ending{ScanID: scanID, AlreadyKept: 1, Entries: 1, Stored: true}, nil
	}
	if err != nil {
		return nil, err
	}
	e := &summary.Ending{ScanID: scanID, Outcomes: outcomes, Stored: true}
	for _, c := range outcomes {
		e.Kept += c.Rows
	}
	e.Entries, e.Lines = e.Kept, e.Kept
	return e, nil
}
