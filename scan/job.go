// Package scan answers one question: what is one scan, from its lists to its last commit? It opens the lists (lists.go)
// and the dataset, passes the lists through the pipeline into the dataset, and ends the scan: complete, to be resumed,
// or broken off.
package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/pipeline"
	"github.com/bulkscan/bulkscan/scan/shares"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/jsonlines"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/warc/archive"
	"github.com/bulkscan/bulkscan/warc/replay"
)

// Options say what a scan reads, fetches and writes.
type Options struct {
	Lists  []string       // as given; "-" is Inputs.Stdin
	Names  []string       // what records and messages call the lists; nil: as given
	Inputs inputs.Options // Job sets Reject and Parquet
	Replay replay.Options // of archives and bodies; Job sets Parquet and Now
	DryRun bool           // Count instead of Run
	// AcceptList scans lists that are in doubt, with a warning; else Run refuses them with a DoubtError.
	AcceptList bool
	Fetch      *fetcher.Fetcher
	Pipeline   pipeline.Config // Job sets Skip and Rates

	Store   store.Store // of the dataset; nil: one JSON line per site goes to Stdout instead
	Out     string      // the name of Store, for the log
	Stdout  io.Writer
	Fields  []string      // of JSON lines; nil: all
	Sites   pipeline.Sink // gets the sites instead of Stdout; nil: none
	Sink    sink.Options  // Job sets ScanID and Date where they are empty, and Inputs, Shard and Shares
	Share   shares.Share  // of the scan; the zero Share is all of it
	Compact bool          // at the end, merge the parts
	// AllowEmpty publishes a scan also if it has no site, or if none answered. For the scan of a night, the night decides.
	AllowEmpty bool
	Quiet      bool                   // as in Publishing
	OptOut     *inputs.FollowedOptOut // of Fetch; its changes are logged and recorded; nil: none
	Rates      *inputs.Rates          // nil: none
	Archive    *archive.Archive       // of the exchanges; nil: none
	Begun      time.Time
	Until      time.Time // the scan ends in order then; zero: never
	Log        *slog.Logger

	// Show shows the progress of the scan, until the context ends; kept is how many sites earlier runs have kept.
	Show func(ctx context.Context, scanID string, p *pipeline.Progress, read func() (done, total int64), kept uint64)
	// ShowReading shows how far archives and bodies are read, until the context ends.
	ShowReading func(ctx context.Context, read func() (done, total int64))
	// Interrupted reports whether a signal has come.
	Interrupted func() bool
}

// Job is one scan, or for archives and bodies one scan for each night (import.go).
type Job struct {
	Options

	paths        []string             // of the files that are read: standard input is spooled
	spooled      []string             // the paths to be deleted at the end
	fingerprints []inputs.Fingerprint // of each list; nil where nothing is resumed
	scanID       string
	mark         string // the part of the scan's name about its lists

	writer  *sink.Writer // nil without Store
	rejects *commit.Rejects
	lines   *jsonlines.Writer // nil with Store
	reader  listReader
	nights  *replay.Nights // of archives and bodies, whose readers are nights; else nil
	Nights  int            // how many of them were read; 0 for lists

	stopReading context.CancelFunc                // makes the reader give up
	asking      atomic.Pointer[pipeline.Pipeline] // nil before there is one
}

// New returns a scan that has not begun.
func New(o Options) *Job { return &Job{Options: o} }

// Stop ends the scan in order: the exchanges in flight may finish. If no requests have begun, it does nothing and
// returns false.
func (j *Job) Stop() bool {
	p := j.asking.Load()
	if p == nil {
		return false
	}
	p.Stop()
	j.stopReading() // which may be waiting for a line that never comes
	return true
}

// Close releases what is still open. All files that matter were closed before, and their errors checked.
func (j *Job) Close() {
	if j.reader != nil {
		_ = j.reader.Close()
	}
	if j.writer != nil {
		_ = j.writer.Abort()
	}
	if j.Archive != nil {
		_ = j.Archive.Close()
	}
	if j.nights != nil {
		_ = j.nights.Close()
	}
	j.removeSpooled()
}

// Run scans. The lists come first: an unreadable list should leave no dataset behind.
func (j *Job) Run(ctx context.Context) (*pipeline.Progress, error) {
	if err := j.openLists(ctx); err != nil {
		return nil, err
	}
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	j.stopReading = stopReading
	if j.Inputs.Format == inputs.WARC {
		if err := j.readNights(reading); err != nil {
			return nil, err
		}
		return j.importNights(ctx)
	}
	doubts, err := j.doubts(ctx)
	if err != nil {
		return nil, err
	}
	if len(doubts) > 0 && !j.AcceptList {
		return nil, &DoubtError{doubts}
	}
	if err := j.openReader(reading); err != nil {
		return nil, err
	}
	if err := j.openSink(ctx); err != nil {
		if intact, ok := errors.AsType[*repair.IntactError](err); ok && intact.State == commit.Complete {
			err = cmp.Or(j.publish(ctx), err) // the repair may have been killed before readers had it
		}
		return nil, err
	}
	return j.run(ctx)
}

// ScanID is the name of the scan, or of the last night's, once Run has returned.
func (j *Job) ScanID() string { return j.scanID }

// Unsound returns the damage of archives that was found only after records had been judged, and in which lists.
func (j *Job) Unsound() replay.Unsound {
	if j.nights == nil {
		return replay.Unsound{}
	}
	u := j.nights.Unsound()
	u.File = j.called(u.File)
	return u
}

func (j *Job) date() string {
	if j.Sink.Date != "" {
		return j.Sink.Date
	}
	return j.Begun.UTC().Format(time.DateOnly)
}

// sinkOptions are those of the dataset, once the lists are fixed.
func (j *Job) sinkOptions() sink.Options {
	o := j.Sink
	o.ScanID, o.Date, o.Inputs, o.Log = j.scanID, j.date(), j.listed(), j.Log
	if !j.Share.Whole() {
		o.Shard, o.Shares = j.Share.Name(), j.Share.N
	}
	return o
}

// openSink opens the dataset, or standard output.
func (j *Job) openSink(ctx context.Context) error {
	o := j.sinkOptions()
	if j.Archive != nil {
		o.Sidecar = j.Archive
	}
	if j.Store == nil {
		j.lines = jsonlines.New(j.Stdout, j.scanID, cmp.Or(o.Registry, tokens.Default()), j.Fields...)
		return nil
	}
	told := j.tellOfLock()
	var err error
	j.writer, err = sink.Open(ctx, j.Store, o)
	told()
	if err != nil {
		return err
	}
	if done := j.writer.DoneCount(); o.Repair {
		j.Log.Info("repairing", "scan", j.scanID, "already_kept", done, "lost", j.writer.LostCount())
	} else if done > 0 {
		j.Log.Info("resuming", "scan", j.scanID, "already_kept", done)
	} else {
		j.Log.Info("scanning", "scan", j.scanID, "out", j.Out)
	}
	if j.Share.Whole() {
		j.rejects, err = commit.OpenRejects(ctx, j.Store, j.scanID)
	} else {
		j.rejects, err = commit.OpenShareRejects(ctx, j.Store, j.scanID, j.Share.Name())
	}
	return commit.BrokenOff(j.scanID, err)
}

// tellOfLock logs after a while why the dataset is not open yet: in an object store, the lock of a killed process ends
// only after some time. The returned function ends the wait.
func (j *Job) tellOfLock() (end func()) {
	told := make(chan struct{})
	patience := time.AfterFunc(3*time.Second, func() {
		defer close(told)
		j.Log.Info("opening the dataset takes a while: another process may hold the scan's lock, or have been killed with it",
			"scan", j.scanID, "out", j.Out)
	})
	return func() {
		if !patience.Stop() {
			<-told // the line is written before any other
		}
	}
}

// run takes the lists through the pipeline, and ends the scan: complete, to be resumed, or broken off.
func (j *Job) run(ctx context.Context) (*pipeline.Progress, error) {
	cfg := j.Pipeline
	if j.Rates != nil {
		cfg.Rates = j.Rates
	}
	var keep pipeline.Sink = j.lines
	switch {
	case j.writer != nil:
		keep, cfg.Skip = j.writer, j.writer.Done
	case j.Sites != nil:
		keep = j.Sites
	}
	auditor, list := audit.New(j.Sink.Registry), source{j.reader, j.unspooled}
	p := pipeline.New(cfg, list, j.Fetch, auditor, keep)
	if j.nights != nil {
		p = pipeline.NewReplay(cfg, list, auditor, keep)
	}
	j.asking.Store(p)
	if !j.Until.IsZero() {
		defer time.AfterFunc(time.Until(j.Until), func() {
			j.Log.Info("the deadline has come: finishing what is being asked", "until", j.Until)
			j.Stop()
		}).Stop()
	}
	// Writing ends a while after the second signal, even if the pipeline waits for it.
	committing, end := lasting(ctx, abortTime)
	defer end()
	if j.writer != nil {
		defer context.AfterFunc(committing, j.writer.GiveUp)()
	}
	if j.Archive != nil {
		defer context.AfterFunc(committing, j.Archive.GiveUp)()
	}
	err := j.watch(ctx, p)
	if err != nil && !errors.Is(err, pipeline.ErrStopped) {
		// Whatever ended the run, the sites gathered so far are kept, even if a list broke off.
		commitErr := j.commit(committing, nil)
		if j.writer != nil && errors.Is(err, syscall.ENOSPC) { // the disk of temporary files may be another one
			err = commit.BrokenOff(j.scanID, err)
		}
		switch _, broken := errors.AsType[*commit.StoreError](err); {
		case broken: // closing the writer would only repeat the error
			return nil, j.unkept(err)
		case j.Interrupted() && commitErr != nil: // not everything was kept
			return nil, j.unkept(commitErr)
		}
		return nil, errors.Join(j.ended(err), commitErr)
	}
	completed := p.Progress()
	if err != nil {
		completed = nil
	}
	if commitErr := j.commit(committing, completed); commitErr != nil {
		return nil, j.unkept(commitErr)
	}
	if err != nil {
		return nil, j.ended(err)
	}
	if j.writer != nil && j.Share.Whole() {
		if err := j.publish(ctx); err != nil {
			return nil, err
		}
	}
	return completed, nil
}

// publish publishes the complete scan.
func (j *Job) publish(ctx context.Context) error {
	return Publish(ctx, j.Store, j.scanID, Publishing{Compact: j.Compact, Quiet: j.Quiet, Registry: j.Sink.Registry,
		ToolVersion: j.Sink.ToolVersion, Log: j.Log})
}

// abortTime bounds the commit of the gathered sites after the second signal.
const abortTime = 5 * time.Second

// lasting returns a context that ends so long after another one.
func lasting(parent context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() { time.AfterFunc(more, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// watch runs the pipeline while it is shown.
func (j *Job) watch(ctx context.Context, p *pipeline.Pipeline) error {
	shown, hide := context.WithCancel(context.Background())
	var kept uint64
	if j.writer != nil {
		kept = j.writer.DoneCount()
	}
	var showing sync.WaitGroup
	showing.Go(func() { j.Show(shown, j.scanID, p.Progress(), j.reader.Progress, kept) })
	if !j.Share.Whole() {
		showing.Go(func() { j.reportShare(shown, p.Progress()) })
	}
	if j.OptOut != nil {
		showing.Go(func() { j.followOptOut(shown) })
	}
	err := p.Run(ctx)
	hide()
	showing.Wait()
	return err
}

// followOptOut reads the list of sites that are never contacted again when it changes, until the context ends. The next
// look-up, request and redirect hop use the new list.
func (j *Job) followOptOut(ctx context.Context) {
	j.OptOut.Follow(ctx, func(added int, err error) {
		entries := j.OptOut.Entries()
		switch {
		case err != nil:
			j.Log.Warn("the list of --opt-out cannot be read; it holds as it was", "error", err)
			return
		case added == 0:
			j.Log.Info("the list of --opt-out has changed, without a new entry; what was on it holds until this run ends",
				"entries", entries)
			return
		}
		j.Log.Info("sites were added to the list of --opt-out, and are not contacted from now on", "added", added, "entries",
			entries)
		if j.writer == nil {
			return
		}
		change := commit.FileChange{At: time.Now().UTC().Truncate(time.Second), Flag: "opt-out", Added: added,
			Entries: entries}
		if err := j.writer.FileChanged(ctx, change); err != nil && ctx.Err() == nil {
			j.Log.Warn("the change of --opt-out was not recorded in the manifest", "error", err)
		}
	})
}

// ended is the error of a run that did not reach the end of its list.
func (j *Job) ended(err error) error {
	switch {
	case !j.Interrupted():
		return err
	case j.writer == nil:
		return errors.New("interrupted")
	}
	return fmt.Errorf("interrupted; everything finished so far is kept, and %s", j.next())
}

// next says what the same command does after an interruption.
func (j *Job) next() string {
	if j.Sink.Restart {
		return fmt.Sprintf("the same command begins scan %s anew (without --restart a scan resumes)", j.scanID)
	}
	return "the same command resumes scan " + j.scanID
}

// unkept is the error of a run whose last part could not be committed: after a second signal that is no failure.
func (j *Job) unkept(err error) error {
	if j.Interrupted() && errors.Is(err, context.Canceled) && j.writer != nil {
		return fmt.Errorf("interrupted; what was committed is kept, and %s", j.next())
	}
	return err
}

// commit makes the kept sites durable. At the end of the list, completed is the progress of the run, and commit also
// computes the statistics and completes the scan. Before the end, completed is nil.
func (j *Job) commit(ctx context.Context, completed *pipeline.Progress) error {
	if j.writer == nil {
		return j.lines.Close(ctx)
	}
	// Sites come first, since a resumed scan continues after them. It gathers the rejects again, so after a failed Flush
	// they are discarded: a store that was given up causes no second wait.
	err := j.writer.Flush(ctx)
	if err == nil {
		err = j.rejects.Close(ctx)
	} else if discardErr := j.rejects.Discard(); discardErr != nil {
		j.Log.Debug("discarding the rejects failed too", "error", discardErr)
	}
	switch {
	case !j.Share.Whole():
		err = j.endShare(ctx, completed != nil, err)
	case completed != nil && err == nil:
		err = j.complete(ctx, completed)
	}
	closeErr := j.writer.Close(ctx)
	if err == nil {
		return closeErr
	}
	if closeErr != nil {
		j.Log.Debug("closing failed too", "error", closeErr)
	}
	return commit.BrokenOff(j.scanID, err)
}

// complete computes the statistics and completes the scan, whose list was read to its end. A scan that writes too few
// tables for any statistics has none.
func (j *Job) complete(ctx context.Context, p *pipeline.Progress) error {
	err := stats.Write(ctx, j.Store, j.scanID, survey.Options{Registry: j.Sink.Registry, ToolVersion: j.Sink.ToolVersion,
		Log: j.Log})
	if err != nil && !errors.Is(err, commit.ErrNoTable) {
		return err
	}
	if !j.AllowEmpty && j.Ending(ctx, p, false).Empty() != "" {
		return j.writer.CompleteEmpty(ctx)
	}
	return j.writer.Complete(ctx)
}
