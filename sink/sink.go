// Package sink answers one question: what do we keep? It keeps judged sites as a dataset: tables in Parquet, written in
// parts, each committed at once.
//
// part.go has the open files of a part, which package siterows fills. This file decides when a part is full, seals it
// and commits it. options.go, open.go and resume.go prepare a scan for writing; share.go and collect.go handle a scan
// in shares; remade.go is how package reaudit writes.
//
// Guarantees. A file that a commit names is complete and never changes. A scan that is killed loses at most one part,
// which was open or being sealed. When the scan resumes, it deletes files without a commit, and skips exactly the union
// of the commits' bitmaps.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// Writer writes one scan's dataset. Its methods are safe for concurrent use.
type Writer struct {
	store    store.Store
	options  Options
	manifest *commit.Manifest
	lock     store.Unlocker
	share    *commit.Share     // nil for a whole scan
	done     *roaring64.Bitmap // sites of earlier runs
	lost     int64             // sites that the complete scan had and has lost
	begun    int               // number of the first part
	finished *time.Time        // when the scan was complete before

	viewed bool // views.sql has the tables; used by seal only, which runs once at a time

	ctx    context.Context // for all writing; GiveUp cancels it
	cancel context.CancelFunc
	spare  chan *part // holds the part while it is neither filled nor sealed; nil until it is made

	mu     sync.Mutex
	open   *part // being filled; nil before the first row after a seal
	next   int   // number of the next part
	age    *time.Timer
	closed bool

	fail sync.Mutex
	err  error // the first failure; every later call returns it
}

// ScanDate is the partition of the scan's parts.
func (w *Writer) ScanDate() string { return w.options.Date }

// Done reports whether an earlier run of the scan has committed the site of that line.
func (w *Writer) Done(seq uint64) bool { return w.done.Contains(seq) }

// DoneAmong returns how many of these lines earlier runs have committed.
func (w *Writer) DoneAmong(seqs *roaring64.Bitmap) uint64 { return w.done.AndCardinality(seqs) }

// DoneCount is the number of sites that earlier runs have committed.
func (w *Writer) DoneCount() uint64 { return w.done.GetCardinality() }

// LostCount is the number of sites that the complete scan had lost when it was opened.
func (w *Writer) LostCount() int64 { return w.lost }

// failure returns the first failure of any goroutine.
func (w *Writer) failure() error {
	w.fail.Lock()
	defer w.fail.Unlock()
	return w.err
}

func (w *Writer) setFailure(err error) error {
	w.fail.Lock()
	defer w.fail.Unlock()
	if w.err == nil {
		w.err = &commit.StoreError{ScanID: w.options.ScanID, Err: err}
	}
	return w.err
}

// Add keeps a site. It copies all that it needs, so the caller may reuse the site afterwards. It waits while the
// previous part is being sealed, so that at most one part can be lost; GiveUp ends the wait. An error ends the run:
// later calls return it, too.
func (w *Writer) Add(s *audit.Site) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	if err := w.failure(); err != nil {
		return err
	}
	if w.open == nil {
		if err := w.begin(); err != nil {
			return w.setFailure(err)
		}
	}
	if err := w.open.add(s); err != nil {
		return w.setFailure(err)
	}
	if len(w.open.seqs) >= w.options.PartRows || w.open.full() {
		w.roll()
	}
	return nil
}

// begin opens a part once the previous part is sealed. The lock is held.
func (w *Writer) begin() error {
	p := <-w.spare
	if err := w.failure(); err != nil {
		w.spare <- p
		return err
	}
	if p == nil {
		p = newPart(&w.options)
	}
	if err := p.begin(w.ctx, w.store, &w.options, w.next); err != nil {
		w.spare <- p
		return err
	}
	w.open = p
	n := p.n
	w.next++
	w.age = time.AfterFunc(w.options.PartAge, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open != nil && w.open.n == n {
			w.roll()
		}
	})
	return nil
}

// roll detaches the open part and seals it in the background. The part returns to spare only after its commit, so
// commits are in order, and none follows a failed one. The caller holds the lock.
func (w *Writer) roll() {
	p := w.open
	w.open = nil
	w.age.Stop()
	publish := func(context.Context) error { return nil }
	if w.options.Sidecar != nil {
		publish = w.options.Sidecar.Cut(p.n)
	}
	go func() {
		if err := w.seal(p, publish); err != nil {
			_ = w.setFailure(err) // the next Add, or Close, returns it
		}
		w.spare <- p
	}()
}

// seal publishes the files of a part and the data of its Sidecar, and then commits the part.
func (w *Writer) seal(p *part, publish func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, p.discard()) }()
	if err := w.failure(); err != nil {
		return err
	}
	files, err := p.seal(w.ctx)
	if err != nil {
		return err
	}
	if err := publish(w.ctx); err != nil {
		return err
	}
	finished := roaring64.BitmapOf(p.seqs...)
	finished.RunOptimize()
	bitmap, err := finished.ToBytes()
	if err != nil {
		return fmt.Errorf("cannot commit part %d: %w", p.n, err)
	}
	commit := commit.Commit{
		SchemaVersion: schema.Version, ToolVersion: w.options.ToolVersion, RegistryVersion: w.options.Registry.Version,
		ScanID: w.options.ScanID, Shard: w.options.Shard, N: p.n,
		CommittedAt: time.Now().UTC().Truncate(time.Millisecond),
		Rows:        int64(finished.GetCardinality()), Files: files, Finished: bitmap, Rejudged: p.rejudged,
	}
	if err := commit.Write(w.ctx, w.store); err != nil || w.viewed {
		return err
	}
	w.viewed = true // the tables have files from now on
	return views.Write(w.ctx, w.store, w.options.Registry)
}

// Flush commits the open part, whatever its size, and waits until every part is committed. If the context ends before
// that, the part being sealed is abandoned.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	return w.flush(ctx)
}

// flush is Flush under the lock.
func (w *Writer) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		w.cancel() // at once, since AfterFunc could run after all parts are sealed
	}
	defer context.AfterFunc(ctx, w.cancel)()
	if w.open != nil {
		w.roll()
	}
	w.awaitSealed()
	return w.failure()
}

// awaitSealed waits until no part is being sealed. The lock is held, and no part is open.
func (w *Writer) awaitSealed() {
	w.spare <- <-w.spare
}

// Complete commits the open part and marks the scan as complete in its manifest. Every line of the inputs must be a row
// or a reject, and rejects and statistics published. Complete removes leftover drafts, also a remote draft whose
// creation was never acknowledged. The next index.Update lists the scan, unless Options.NoPublish is set.
func (w *Writer) Complete(ctx context.Context) error {
	return w.completeAs(ctx, publication(w.options.NoPublish))
}

// CompleteEmpty is Complete for a scan that has no site, or whose sites all gave no answer. Readers do not get it.
func (w *Writer) CompleteEmpty(ctx context.Context) error {
	return w.completeAs(ctx, commit.PublicationEmpty)
}

// publication is the publication of a scan with results.
func publication(noPublish bool) commit.Publication {
	if noPublish {
		return commit.PublicationPending
	}
	return commit.PublicationDone
}

func (w *Writer) completeAs(ctx context.Context, as commit.Publication) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	if w.finished == nil || w.next > w.begun || w.manifest.Repairing { // else no row has changed
		now := time.Now().UTC().Truncate(time.Millisecond)
		if at := w.manifest.ResumedAt; at != nil && now.Before(*at) {
			now = *at // as there
		}
		w.finished = &now
	}
	w.manifest.FinishedAt = w.finished
	return complete(ctx, w.store, w.options.Log, w.manifest, as)
}

// complete marks a scan as complete, and adds it to the head if it is to be published. The caller holds the scan's
// lock. A scan in the head keeps its publication. So does a repaired scan, since nothing has accepted it anew.
func complete(ctx context.Context, st store.Store, log *slog.Logger, m *commit.Manifest, as commit.Publication) error {
	id, date := m.ScanID, m.ScanDate
	err := errors.Join(
		commit.SweepParts(ctx, st, id, date, ""),
		commit.SweepFiles(ctx, st, commit.RejectsName(id), commit.StatsName(schema.TokenStats, date, id),
			commit.StatsName(schema.RecordStats, date, id), views.Name, index.Name, schema.PackageName))
	if err != nil {
		return err
	}
	commits, err := commit.Commits(ctx, st, id)
	if err != nil {
		return err
	}
	recorded, err := commit.ListFileRecords(ctx, st, id)
	if err != nil {
		return err
	}
	m.State, m.Counts, m.Recorded = commit.Complete, commit.CountCommits(commits), recorded
	if m.Ending != commit.PublicationDone && (!m.Repairing || m.Ending == "") {
		m.Ending = as
	}
	m.Repairing = false
	if err := m.Write(ctx, st); err != nil {
		return err
	}
	return commit.Adopt(ctx, st, log, m)
}

// FileChanged records in the manifest that a file of the scan has changed. Of a share, the next record has the change,
// and the manifest once the shares are collected.
func (w *Writer) FileChanged(ctx context.Context, change commit.FileChange) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	if w.share != nil {
		w.share.Changes = commit.AddChanges(w.share.Changes, change)
		return nil
	}
	w.manifest.Changes = commit.AddChanges(w.manifest.Changes, change)
	return w.manifest.Write(ctx, w.store)
}

// Close commits the open part and releases the scan's lock. It does not mark the scan as complete: an interrupted scan
// can be resumed. Further calls do nothing.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	err := w.flush(ctx)
	return errors.Join(err, w.end())
}

// GiveUp stops waiting for the store. A part that is open or being sealed is abandoned, unless its commit is already in
// progress. A waiting Add and all later ones return an error that is context.Canceled. GiveUp does not block, so it may
// be called during an Add. The caller still calls Close or Abort.
func (w *Writer) GiveUp() {
	_ = w.setFailure(context.Canceled) // the next Add, or Close, returns it
	w.cancel()
}

// Abort drops the open part and the part being sealed, and releases the lock. Committed parts stay.
func (w *Writer) Abort() error {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	var err error
	if w.open != nil {
		w.age.Stop()
		err = w.open.discard()
		w.spare <- w.open
		w.open = nil
	}
	w.awaitSealed()
	return errors.Join(err, w.end())
}

// end closes the Writer. The lock is held, and no part is open or being sealed.
func (w *Writer) end() error {
	w.closed = true
	w.cancel()
	return w.lock.Unlock()
}
