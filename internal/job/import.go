package job

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// Imported is what Import has done.
type Imported struct {
	Scans []string // by night
	Total report.Ending

	Last     *Job // the scan of the last night, to show what a single one found; nil if it had nothing to repair
	Progress *pipeline.Progress
}

// Import reads archives and files of bodies once, and makes a scan of each of their nights. All of them are published at the end,
// together; a killed import leaves complete scans that are not published, and the same command goes on behind them. Of the
// options, those of the network and of shares are without effect.
//
// reading is called with what shows how far the reading is, until its context ends; then read with what was read.
func (j *Job) Import(ctx context.Context, reading func(ctx context.Context, look func() (done, total int64)), read func(*replay.Nights) error) (*Imported, error) {
	ctx, j.stopReading = context.WithCancel(ctx)
	defer j.stopReading()
	mark, err := j.readNights(ctx, reading)
	if err != nil {
		return nil, err
	}
	if err := read(j.archives); err != nil {
		return nil, err
	}
	if j.Sink.ScanID != "" && len(j.archives.List()) > 1 {
		return nil, ErrSeveralNights
	}
	done := &Imported{Total: report.Ending{Stored: j.Store != nil, Lines: int64(j.archives.Stats().Lines)}}
	for night := j.archives.Next(); night != nil; night = j.archives.Next() {
		if err := j.importNight(ctx, night, mark, done); err != nil {
			return nil, err
		}
	}
	if len(done.Scans) == 0 { // there is no night to keep the rejects
		return done, j.archives.Rest(func(r inputs.Reject) error {
			if done.Total.Rejected++; done.Total.Rejected == 1 {
				j.Log.Warn("the first reject", "input", j.called(r.Input), "line", r.Line, "reason", r.Reason)
			}
			return nil
		})
	}
	if j.Store == nil {
		return done, nil
	}
	if j.Sink.NoPublish || !j.AllowEmpty && done.Total.Empty() != "" {
		return done, errors.Join(index.Update(ctx, j.Store), views.Write(ctx, j.Store, j.Sink.Registry))
	}
	for _, scanID := range done.Scans {
		m, err := commit.ReadManifest(ctx, j.Store, scanID)
		if err == nil && m.Publication == commit.PublicationPending { // a person may have discarded it
			err = commit.SetPublication(ctx, j.Store, scanID, commit.PublicationDone)
		}
		if err != nil {
			return nil, unpublished(scanID, err)
		}
	}
	return done, Publish(ctx, j.Store, done.Scans[len(done.Scans)-1], Publishing{Registry: j.Sink.Registry, ToolVersion: j.Sink.ToolVersion, Log: j.Log})
}

// CountNights reads the inputs as Import does, and writes nothing.
func (j *Job) CountNights(ctx context.Context) (*replay.Nights, error) {
	_, err := j.readNights(ctx, nil)
	return j.archives, err
}

// readNights reads the inputs, and returns what the names of scans have of them.
func (j *Job) readNights(ctx context.Context, reading func(ctx context.Context, look func() (done, total int64))) (mark string, err error) {
	if err := j.fixLists(ctx, true); err != nil {
		return "", err
	}
	all, err := j.fingerprintInputs(ctx)
	if err != nil {
		return "", j.unspooled(err)
	}
	o := j.Replay
	o.MaxBody, o.Limit, o.Sample, o.Parquet, o.Now, o.Date, o.LocalNames = j.MaxBody, j.Inputs.Limit, j.Inputs.Sample, openParquet, j.Begun, j.Sink.Date, j.Inputs.LocalNames
	shown, hide := context.WithCancel(ctx)
	defer hide()
	j.archives, err = replay.Read(ctx, j.paths, j.Fetch, o, func(look func() (done, total int64)) {
		if reading != nil {
			go reading(shown, look)
		}
	})
	return j.mark(all), j.unspooled(err)
}

// fingerprintInputs identifies the inputs. A folder is identified by its files and their names.
func (j *Job) fingerprintInputs(ctx context.Context) (all inputs.Fingerprint, err error) {
	together := sha256.New()
	for _, path := range j.paths {
		files, names := []string{path}, sha256.New()
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = bodies.Files(path); err != nil {
				return all, &inputs.Error{File: path, Err: err}
			}
			for _, file := range files {
				_, _ = io.WriteString(names, filepath.ToSlash(strings.TrimPrefix(file, path))+"\x00")
			}
		}
		one, err := inputs.FingerprintOf(ctx, files)
		if err != nil {
			return all, err
		}
		one = sha256.Sum256(names.Sum(one[:]))
		j.fingerprints = append(j.fingerprints, one)
		_, _ = together.Write(one[:])
	}
	return inputs.Fingerprint(together.Sum(nil)), nil
}

// importNight makes the scan of one night.
func (j *Job) importNight(ctx context.Context, night *replay.Night, mark string, done *Imported) error {
	scan := New(j.Options)
	scan.paths, scan.fingerprints, scan.archives, scan.night, scan.reader, scan.stopReading = j.paths, j.fingerprints, j.archives, night, night, j.stopReading
	scan.Sink.Date, scan.Sink.NoPublish, scan.Sink.Unlisted, scan.AllowEmpty, scan.Quiet = night.Date, true, true, true, true
	scan.scanID = cmp.Or(j.Sink.ScanID, strings.ReplaceAll(night.Date, "-", "")+"-"+mark)
	if slices.Contains(done.Scans, scan.scanID) { // two crawls may end on one day
		scan.scanID += fmt.Sprintf("-%d", len(done.Scans))
	}
	night.Reject = scan.reject
	defer scan.Close()
	err := scan.openSink(ctx)
	if intact, ok := errors.AsType[*sink.IntactError](err); ok && intact.State == commit.Complete {
		j.Log.Info("nothing to repair", "scan", intact.ScanID, "already_kept", intact.Sites)
		done.Scans, done.Total.AlreadyKept = append(done.Scans, scan.scanID), done.Total.AlreadyKept+int64(intact.Sites)
		done.Total.Entries += int64(intact.Sites)
		return night.Skip()
	}
	if err != nil {
		return err
	}
	j.current.Store(scan)
	defer j.current.Store(nil)
	progress, err := scan.run(ctx)
	if err != nil {
		return err
	}
	done.Scans = append(done.Scans, scan.scanID)
	done.Last, done.Progress = scan, progress
	done.add(scan.Ending(ctx, progress, false))
	return nil
}

// add adds what one night found.
func (d *Imported) add(e *report.Ending) {
	t := &d.Total
	t.Kept += e.Kept
	t.AlreadyKept += e.AlreadyKept
	t.Entries += e.Entries
	t.Rejected += e.Rejected
	t.Duplicates += e.Duplicates
	for _, c := range e.Outcomes {
		i := slices.IndexFunc(t.Outcomes, func(o report.Count) bool { return o.Value == c.Value })
		if i < 0 {
			t.Outcomes = append(t.Outcomes, c)
		} else {
			t.Outcomes[i].Rows += c.Rows
		}
	}
}
