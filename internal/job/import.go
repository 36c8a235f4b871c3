package job

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/bodies"
	"github.com/bulkscan/bulkscan/internal/replay"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/views"
)

// ErrSeveralNights says that one scan was named for several nights.
var ErrSeveralNights = errors.New("the inputs have several nights, and one scan is named: leave the name out, or make them one night by a date")

// Nights is how many nights the archives and bodies have; 0 for lists.
func (j *Job) Nights() int {
	if j.nights == nil {
		return 0
	}
	return len(j.nights.List())
}

// readNights reads archives and bodies, once.
func (j *Job) readNights(ctx context.Context) (err error) {
	o := j.Replay
	o.MaxBody, o.Limit, o.Sample, o.Parquet, o.Now, o.Date, o.LocalNames = j.MaxBody, j.Inputs.Limit, j.Inputs.Sample, openParquet, j.Begun, j.Sink.Date, j.Inputs.LocalNames
	var showing sync.WaitGroup
	defer showing.Wait()
	shown, hide := context.WithCancel(ctx)
	defer hide()
	j.nights, err = replay.Read(ctx, j.paths, j.Fetch, o, func(read func() (done, total int64)) {
		showing.Go(func() { j.ShowReading(shown, read) })
	})
	return j.unspooled(err)
}

// importNights makes a scan of each night. All are published at the end, together: a killed import leaves complete scans that are not
// published, and the same command goes on behind them.
func (j *Job) importNights(ctx context.Context) (*pipeline.Progress, error) {
	j.logNights()
	switch n := j.Nights(); {
	case n == 0:
		var first sync.Once
		return &pipeline.Progress{}, j.nights.Rest(func(r inputs.Reject) error { // no night keeps the rejects
			first.Do(func() { j.Log.Warn("the first reject", "input", j.called(r.Input), "line", r.Line, "reason", r.Reason) })
			return nil
		})
	case n > 1 && j.scanID != "":
		return nil, ErrSeveralNights
	}
	publish, allowEmpty := !j.Sink.NoPublish, j.AllowEmpty
	j.Sink.NoPublish, j.Sink.Unlisted, j.AllowEmpty, j.Quiet = true, true, true, true
	progress := &pipeline.Progress{}
	j.Pipeline.Progress = progress
	var scans []string
	for night := j.nights.Next(); night != nil; night = j.nights.Next() {
		if j.Sink.Date = night.Date; j.Sink.ScanID == "" {
			j.scanID = j.datedName()
		}
		if slices.Contains(scans, j.scanID) { // two crawls may end on one day
			j.scanID += fmt.Sprintf("-%d", len(scans))
		}
		scans = append(scans, j.scanID)
		if err := j.judgeNight(ctx, night); err != nil {
			return nil, err
		}
	}
	if j.Store == nil {
		return progress, nil
	}
	if !publish || !allowEmpty && j.Ending(ctx, progress, false).Empty() != "" {
		return progress, errors.Join(index.Update(ctx, j.Store), views.Write(ctx, j.Store, j.Sink.Registry))
	}
	for _, scanID := range scans {
		m, err := commit.ReadManifest(ctx, j.Store, scanID)
		if err == nil && m.Publication == commit.PublicationPending { // a person may have discarded it
			err = commit.SetPublication(ctx, j.Store, scanID, commit.PublicationDone)
		}
		if err != nil {
			return nil, unpublished(scanID, err)
		}
	}
	return progress, j.publish(ctx)
}

// judgeNight makes the scan of a night.
func (j *Job) judgeNight(ctx context.Context, night *replay.Night) error {
	err := j.openSink(ctx)
	if intact, ok := errors.AsType[*sink.IntactError](err); ok && intact.State == commit.Complete {
		j.Log.Info("nothing to repair", "scan", intact.ScanID, "already_kept", intact.Sites)
		j.Pipeline.Progress.Skipped.Add(uint64(intact.Sites))
		return night.Skip()
	}
	if err != nil {
		return err
	}
	j.reader, night.Reject = night, j.reject
	_, err = j.run(ctx)
	return errors.Join(err, night.Close())
}

// logNights says what was read, before it is judged.
func (j *Job) logNights() {
	nights, found := j.nights.List(), j.nights.Found()
	if len(nights) == 0 {
		return
	}
	facts := []any{"nights", len(nights), "first", nights[0].Date, "last", nights[len(nights)-1].Date}
	for _, c := range []report.Count{
		{Value: "captures", Rows: found.Captures}, {Value: "rows", Rows: found.Rows}, {Value: "rows_without_status_count_as_200", Rows: found.NoStatus},
		{Value: "rows_without_body_not_observed", Rows: found.NoBody}, {Value: "rows_carried_not_observed", Rows: found.Carried},
	} {
		if c.Rows > 0 {
			facts = append(facts, c.Value, c.Rows)
		}
	}
	j.Log.Info("read", facts...)
}

// fingerprintInputs is inputs.Fingerprints, of files and of folders. A folder is identified by its files and their names.
func fingerprintInputs(ctx context.Context, paths []string) (all inputs.Fingerprint, each []inputs.Fingerprint, err error) {
	together := sha256.New()
	for _, path := range paths {
		files, names := []string{path}, sha256.New()
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = bodies.Files(path); err != nil {
				return all, nil, &inputs.Error{File: path, Err: err}
			}
			for _, file := range files {
				_, _ = io.WriteString(names, filepath.ToSlash(strings.TrimPrefix(file, path))+"\x00")
			}
		}
		one, err := inputs.FingerprintOf(ctx, files)
		if err != nil {
			return all, nil, err
		}
		one = sha256.Sum256(names.Sum(one[:]))
		each = append(each, one)
		_, _ = together.Write(one[:])
	}
	return inputs.Fingerprint(together.Sum(nil)), each, nil
}
