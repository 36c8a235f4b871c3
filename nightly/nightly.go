// Package nightly answers one question: does tonight count? It takes a night from its list to its publication. The
// dataset is its only state: the next run finds there what a killed run has left, and continues.
//
// nightly.go has Run, with the steps of a night in their order; list.go takes the list; figures.go counts and judge.go
// decides; publish.go writes the pages, publishes the night, and has Release and Discard; prune.go deletes what is too
// old; night.go is the record of a night, and listing.go lists all nights; tell.go posts to a webhook.
package nightly

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/verify"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// Options describe a night.
type Options struct {
	Store store.Store
	Date  string                          // of the night; "" is today in UTC
	Now   func() time.Time                // nil is time.Now
	Until func(begun time.Time) time.Time // the deadline of the scan of a night that began then; nil: none
	List  ListOptions

	// Scan scans a list under the id and the date of the night, without publishing, and resumes what an earlier run has
	// left. It ends in order when the deadline passes (zero: none), and then the error wraps ErrDeadline. After a signal
	// it wraps ErrInterrupted.
	Scan func(ctx context.Context, s Scan) error

	Bounds     map[string]Bound
	Keep       Keep
	Publishing scan.Publishing
	Report     survey.Options
	Show       func(n *Night)                      // called with each state of a night; may be nil
	Tell       func(ctx context.Context, n *Night) // called when a night has ended; may be nil
	Log        *slog.Logger

	vouched bool // a server has confirmed the clock
}

// Scan describes a night's scan to Options.Scan.
type Scan struct {
	ScanID, Date string
	List         string // path of the file
	Name         string // what it is called
	Until        time.Time
}

// ParseUntil returns Options.Until for a time of day, HH:MM in local time: the deadline is the next such time after a
// night began. Without a time it returns nil.
func ParseUntil(clock string) (func(begun time.Time) time.Time, error) {
	if clock == "" {
		return nil, nil
	}
	at, err := time.Parse("15:04", clock)
	return func(begun time.Time) time.Time { return nextTime(begun.Local(), at) }, err
}

// nextTime returns the next moment at which the clock shows the time of at, in the time zone of now.
func nextTime(now, at time.Time) time.Time {
	next := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
	if !next.After(now) {
		next = time.Date(now.Year(), now.Month(), now.Day()+1, at.Hour(), at.Minute(), 0, 0, now.Location())
	}
	return next
}

// ErrDeadline says that a scan ended in order before the end of its list.
var ErrDeadline = errors.New("the deadline has come before the end of the list")

// ErrInterrupted says that a person or the system has ended a run, and that the next one continues the night.
var ErrInterrupted = errors.New("interrupted")

// RunningError says that another process works on the nights of the dataset.
type RunningError struct{ Holder commit.Holder }

func (e *RunningError) Error() string {
	return fmt.Sprintf("another night is under way: process %d on %.100q since %s", e.Holder.PID, e.Holder.Host,
		e.Holder.StartedAt.Format(time.RFC3339))
}

// For resumeTime after the start of a night without a deadline, runs of a later date continue it.
const resumeTime = 20 * time.Hour

// Run takes a night from its current state to its end. First it settles earlier nights that a killed process has left:
// if the scan of such a night is complete or its time is not over, Run continues it; otherwise the night stays
// incomplete. The returned night says how it ended; its state is Running only together with an error.
func Run(ctx context.Context, o Options) (n *Night, err error) {
	unlock, err := o.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock.Unlock()) }()
	if n, err = o.begin(ctx); err != nil {
		return n, err
	}
	fenced(unlock)
	if !n.State.final() {
		return n, o.run(ctx, n)
	}
	before := *n
	err = o.prune(ctx, n)
	if n.Error == before.Error && n.PruneError == before.PruneError && n.Pruned == before.Pruned {
		o.show(n)
		return n, err
	}
	return n, errors.Join(err, o.write(ctx, n))
}

// lock excludes other processes that work on nights.
func (o *Options) lock(ctx context.Context) (store.Unlocker, error) {
	if err := scan.CheckVersions(ctx, o.Store); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // a lock without a host still says the process
	text, err := json.Marshal(commit.Holder{PID: os.Getpid(), Host: host, StartedAt: o.now()})
	if err != nil {
		return nil, err
	}
	lock, err := o.Store.Lock(ctx, lockName, text)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		e := &RunningError{}
		_ = json.Unmarshal(held.Holder, &e.Holder) // the holder may not have written its text yet
		return nil, e
	}
	_, o.vouched = lock.(store.Lease)
	return lock, err
}

// fenced tells the lock that late requests of an earlier holder do no harm: this process has written the record of that
// holder's night again. All other writes are under the lock of the scan, or are repeated.
func fenced(lock store.Unlocker) {
	if lease, ok := lock.(store.Lease); ok && lease.Late() {
		lease.Fenced()
	}
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		o.Now = time.Now
	}
	return o.Now().UTC().Truncate(time.Second)
}

// begin ends or continues what earlier runs have left, and returns the night of this run.
func (o *Options) begin(ctx context.Context) (*Night, error) {
	now := o.now()
	date := o.Date
	if date == "" {
		date = now.Format(time.DateOnly)
	}
	nights, err := Nights(ctx, o.Store, recent)
	if err != nil {
		return nil, err
	}
	n := &Night{SchemaVersion: schema.Version, Date: date, ScanID: scanOf(date), ToolVersion: o.Publishing.ToolVersion,
		StartedAt: now}
	if o.Date == "" && !o.vouched {
		n.DoubtedAfter = doubt(nights, date, now)
	}
	// A wrong clock leaves nights with later dates. If such a night has no scan, or its scan does not count, it does not
	// prevent nights of earlier dates.
	nights = slices.DeleteFunc(nights, func(n *Night) bool {
		return n.Date > date && (n.State == Held || n.State == Discarded || n.State != Published &&
			(n.List == nil || !n.sure()))
	})
	if len(nights) > 0 {
		last := nights[len(nights)-1]
		switch {
		case last.Date == date && last.refuted(nights, now):
			o.Log.Warn("the scan of this date was made under a wrong clock: it is discarded, and the night begins anew", "date",
				date, "scan", last.ScanID)
			if err := commit.SetPublication(ctx, o.Store, o.Log, last.ScanID, commit.PublicationDiscarded); err != nil &&
				!errors.Is(err, store.ErrNotExist) {
				return nil, err
			}
			n.ScanID = last.ScanID + "-again"
		case last.Date > date && !(o.Date == "" && !last.State.final() && o.continues(ctx, last, now)):
			return nil, fmt.Errorf("today is %s, and there is a night of %s: the clock is wrong, or was", date, last.Date)
		case o.Date == "" && !o.vouched && last.State.final() && last.sure() && last.endedAfter(now):
			return nil, fmt.Errorf("it is %s, and the night of %s ended at %s: the clock is wrong, or was",
				now.Format(time.RFC3339), last.Date, last.EndedAt.Format(time.RFC3339))
		case last.State.final() && last.Date == date:
			return last, nil
		case last.Date != date && !last.State.final() && o.continues(ctx, last, now):
			o.Log.Info("continuing the night that an earlier run has left", "date", last.Date, "state", last.State)
			if date <= last.Date || !o.complete(ctx, last) { // it is this run's night
				return last, o.again(ctx, last)
			}
			if err := errors.Join(o.again(ctx, last), o.run(ctx, last)); err != nil {
				return last, err
			}
		case last.Date != date && last.State == Running:
			last.State, last.Error = Incomplete, "the process was killed, and no run continued it in time"
			if err := o.end(ctx, last); err != nil {
				return nil, err
			}
		case last.Date == date:
			if last.List == nil || o.Date != "" {
				last.DoubtedAfter = n.DoubtedAfter
			}
			return last, o.again(ctx, last)
		}
	}
	return n, o.again(ctx, n)
}

// continues reports whether a run of another date continues a night. It does if the night's scan is complete. Otherwise
// it does only without a given date, before the night's deadline, and if the night is not Incomplete.
func (o *Options) continues(ctx context.Context, n *Night, now time.Time) bool {
	if o.Date != "" || n.State == Incomplete || n.Until != nil && !n.Until.After(now) || n.Until == nil &&
		now.Sub(n.StartedAt) > resumeTime {
		return o.complete(ctx, n)
	}
	return true
}

// complete reports whether the scan of a night has reached the end of its list.
func (o *Options) complete(ctx context.Context, n *Night) bool {
	m, err := commit.ReadManifest(ctx, o.Store, n.ScanID)
	return err == nil && m.State == commit.Complete
}

// again begins another run of a night.
func (o *Options) again(ctx context.Context, n *Night) error {
	n.State, n.Error, n.EndedAt = Running, "", nil
	n.Runs++
	if n.Until = nil; o.Until != nil { // a night keeps its deadline, however often it is continued
		until := o.Until(n.StartedAt).UTC()
		n.Until = &until
	}
	return o.write(ctx, n)
}

// write writes the record of a night, and shows it.
func (o *Options) write(ctx context.Context, n *Night) error {
	err := n.write(ctx, o.Store)
	o.show(n)
	return err
}

func (o *Options) show(n *Night) {
	if o.Show != nil {
		o.Show(n)
	}
}

// run takes a night to its end. It records the error of a failed night, unless the context has ended: then the next run
// continues.
func (o *Options) run(ctx context.Context, n *Night) error {
	err := remedied(o.steps(ctx, n), n.Date)
	switch {
	case ctx.Err() != nil, errors.Is(err, ErrInterrupted):
		return cmp.Or(err, ctx.Err())
	case errors.Is(err, ErrDeadline):
		n.State, n.Error, err = Incomplete, ErrDeadline.Error(), nil
	case err != nil:
		n.State, n.Error = Failed, bounded(err)
	}
	err = errors.Join(err, o.prune(ctx, n))
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, o.end(ctx, n))
}

// damageError is the error of a night whose scan is damaged, or cannot be continued. The remedies for a scan would
// publish it without a judgement.
type damageError struct {
	err  error
	date string
}

func (e *damageError) Error() string {
	remedy := fmt.Sprintf(
		"restore the files that bulkscan verify names, or the settings, and run the night again; or let it go by bulkscan nightly --discard %s", e.date)
	return strings.NewReplacer(commit.DamageRemedy, remedy, commit.ManifestRemedy, remedy, commit.ChangedRemedy,
		remedy).Replace(e.err.Error())
}

func (e *damageError) Unwrap() error { return e.err }

// remedied replaces the remedies for a scan in an error by that for a night.
func remedied(err error, date string) error {
	if err == nil {
		return nil
	}
	return &damageError{err, date}
}

// bounded is the text of an error in a record.
func bounded(err error) string {
	text := printable.Text(err.Error())
	return text[:min(len(text), 500)]
}

// steps performs the steps of a night, in their order.
func (o *Options) steps(ctx context.Context, n *Night) error {
	if !o.complete(ctx, n) {
		if err := o.scan(ctx, n); err != nil {
			return err
		}
	}
	scan, err := commit.ReadScan(ctx, o.Store, n.ScanID)
	if err == nil {
		err = scan.Whole()
	}
	if err != nil {
		return err
	}
	if n.Figures, err = Count(ctx, scan, o.Report); err != nil {
		return err
	}
	n.Reread = scan.Manifest.Changes
	n.Bytes = commit.CountCommits(scan.Commits).Bytes
	earlier, err := o.earlier(ctx, scan.Manifest)
	if err != nil {
		return err
	}
	n.Out = Judge(n.Figures, earlier, o.Bounds)
	if n.DoubtedAfter != "" {
		n.Out = slices.Insert(n.Out, 0, late(n.DoubtedAfter, n.Date))
	}
	if err := o.verify(ctx, n); err != nil {
		return err
	}
	return o.decide(ctx, n, scan.Manifest.Publication)
}

// scan takes the list and scans it, unless the deadline has passed.
func (o *Options) scan(ctx context.Context, n *Night) error {
	if n.Until != nil && !n.Until.After(o.now()) {
		return ErrDeadline
	}
	// the system removes the folder of a killed night, like all temporary files
	folder, err := os.MkdirTemp("", "bulkscan-night-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path, err := o.takeList(ctx, n, folder)
	if err != nil {
		return err
	}
	s := Scan{ScanID: n.ScanID, Date: n.Date, List: path, Name: n.List.Source}
	if n.Until != nil {
		s.Until = *n.Until
	}
	return o.Scan(ctx, s)
}

// earlier returns the figures of published scans before one, by the same observer and of the same list, the newest
// last.
func (o *Options) earlier(ctx context.Context, m *commit.Manifest) (figures []*Figures, err error) {
	scans, err := o.before(ctx, m)
	if err != nil {
		return nil, err
	}
	if len(scans) < learnFrom {
		if figures, err = o.pruned(ctx, m, scans); err != nil {
			return nil, err
		}
	}
	for _, m := range scans[max(0, len(scans)-learnFrom):] {
		if n, err := ReadNight(ctx, o.Store, m.ScanDate); err == nil && n.ScanID == m.ScanID && n.Figures != nil {
			figures = append(figures, n.Figures)
			continue
		}
		scan, err := commit.ReadScan(ctx, o.Store, m.ScanID)
		var f *Figures
		if err == nil {
			f, err = Count(ctx, scan, o.Report)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil: // tonight's judgement does without that night
			o.Log.Warn("tonight is judged without an earlier scan that cannot be read", "scan", m.ScanID, "error", err)
		default:
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// verify compares every byte of the scan with its records.
func (o *Options) verify(ctx context.Context, n *Night) error {
	var first string
	totals, err := verify.Dataset(ctx, o.Store, verify.Options{ScanID: n.ScanID, Report: func(f verify.Finding) {
		if f.Kind == verify.Damaged && first == "" {
			first = f.String()
		}
	}})
	if err != nil {
		return err
	}
	if totals.Damaged > 0 {
		return fmt.Errorf("scan %s is damaged, and is not published: %s", n.ScanID, first)
	}
	return nil
}

// end records how the night ended, calls Tell, and deletes the copy of the list unless a run of the same date may need
// it.
func (o *Options) end(ctx context.Context, n *Night) error {
	now := o.now()
	n.EndedAt = &now
	if err := o.write(ctx, n); err != nil {
		return err
	}
	if o.Tell != nil {
		o.Tell(ctx, n)
	}
	if n.State.final() && n.List != nil {
		return o.Store.Delete(ctx, folderOf(n.Date)+n.List.Name)
	}
	return nil
}
