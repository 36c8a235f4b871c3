package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// ErrSeveralNights says that the user named one scan for several nights.
var ErrSeveralNights = errors.New(
	"the inputs have several nights, and one scan is named: leave the name out, or make them one night by a date")

// readNights reads archives and bodies. At the same time it fingerprints them for the scan's name.
func (j *Job) readNights(ctx context.Context) (err error) {
	j.Replay.Parquet, j.Replay.Now = openParquet, j.Begun
	var showing sync.WaitGroup
	defer showing.Wait()
	shown, hide := context.WithCancel(ctx)
	defer hide()
	var naming sync.WaitGroup
	var unnamed error
	naming.Go(func() { unnamed = j.identify(shown) })
	j.nights, err = replay.Read(ctx, j.paths, j.Fetch, j.Replay, func(read func() (done, total int64)) {
		showing.Go(func() { j.ShowReading(shown, read) })
	})
	if err != nil {
		hide()
	}
	naming.Wait()
	if err = cmp.Or(err, unnamed); err != nil {
		return j.unspooled(err)
	}
	j.Nights = len(j.nights.List())
	return nil
}

// eachNight makes the job the scan of each night, in the order in which nights can be read, and calls f for each.
func (j *Job) eachNight(f func(*replay.Night) error) error {
	if j.Nights > 1 && j.scanID != "" {
		return ErrSeveralNights
	}
	named := map[string]bool{}
	for night := j.nights.Next(); night != nil; night = j.nights.Next() {
		if j.Sink.Date = night.Date; j.Sink.ScanID == "" {
			j.scanID = j.datedName()
		}
		if named[j.scanID] { // two crawls may end on one day
			j.scanID += fmt.Sprintf("-%d", len(named))
		}
		named[j.scanID] = true
		if err := f(night); err != nil {
			return err
		}
	}
	return nil
}

// importNights makes a scan of each night. All are published together at the end, whatever was observed. A killed
// import leaves complete scans that are not published, and the same command continues after them.
func (j *Job) importNights(ctx context.Context) (*pipeline.Progress, error) {
	if j.Nights == 0 {
		var first sync.Once
		return &pipeline.Progress{}, j.nights.Rest(func(r inputs.Reject) error { // no night keeps the rejects
			first.Do(func() { j.Log.Warn("the first reject", "input", j.called(r.Input), "line", r.Line, "reason", r.Reason) })
			return nil
		})
	}
	nights, found := j.nights.List(), j.nights.Found()
	j.Log.Info("read", "nights", j.Nights, "first", nights[0].Date, "last", nights[j.Nights-1].Date,
		"rows", found.Rows, "rows_without_status_count_as_200", found.NoStatus, "rows_without_body_not_observed",
		found.NoBody, "rows_carried_not_observed", found.Carried,
		"captures", found.Captures)
	publish := j.Store != nil && !j.Sink.NoPublish
	j.Sink.NoPublish, j.AllowEmpty, j.Quiet = true, true, true
	progress := &pipeline.Progress{}
	j.Pipeline.Progress = progress
	var scans []string
	err := j.eachNight(func(night *replay.Night) error {
		scans = append(scans, j.scanID)
		j.Sink.Unlisted = len(scans) < j.Nights // the last night's opening updates index and views
		return j.judgeNight(ctx, night)
	})
	if err != nil || !publish {
		return progress, err
	}
	if err := commit.PublishPending(ctx, j.Store, j.Log, scans); err != nil {
		return nil, fmt.Errorf("the scans are complete, but were not published in full (the same command publishes them): %w",
			err)
	}
	return progress, j.publish(ctx)
}

// judgeNight makes the scan of a night. A complete scan is passed over: opening it would take it out of the history
// until the end.
func (j *Job) judgeNight(ctx context.Context, night *replay.Night) error {
	if j.Store != nil && !j.Sink.Restart && !j.Sink.Repair {
		m, err := commit.ReadManifest(ctx, j.Store, j.scanID)
		if err == nil && m.State == commit.Complete {
			there, err := sink.Look(ctx, j.Store, j.sinkOptions()) // Look refuses a scan with other settings
			if err != nil {
				return err
			}
			return j.passOver(night, uint64(there.Kept))
		}
	}
	err := j.openSink(ctx)
	if intact, ok := errors.AsType[*repair.IntactError](err); ok && intact.State == commit.Complete {
		j.Log.Info("nothing to repair", "scan", intact.ScanID, "already_kept", intact.Sites)
		return j.passOver(night, intact.Sites)
	}
	if err != nil {
		return err
	}
	j.reader, night.Reject = night, j.reject
	_, err = j.run(ctx)
	return errors.Join(err, night.Close())
}

// passOver leaves the scan of a night as it is.
func (j *Job) passOver(night *replay.Night, sites uint64) error {
	j.Pipeline.Progress.Skipped.Add(sites)
	return night.Skip()
}
