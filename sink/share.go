package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// This file writes one share of a scan (Options.Shares). Its process holds the share's lock, not the scan's. Other
// processes write their shares meanwhile, so it changes only files with the name of its shard. collect.go makes one
// scan of all shares.

// openShare is Open for a share. The error is a *commit.ShareDoneError if nothing is left to do.
func openShare(ctx context.Context, st store.Store, o *Options, now time.Time) (_ *Writer, err error) {
	lock, err := commit.LockShare(ctx, st, o.ScanID, o.Shard, now)
	if err != nil {
		return nil, commit.BrokenOff(o.ScanID, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(commit.BrokenOff(o.ScanID, err), lock.Unlock())
		}
	}()
	manifest, err := joinScan(ctx, st, o, now)
	if err != nil {
		return nil, err
	}
	o.Date = manifest.ScanDate
	share, before, err := beginShare(ctx, st, o, now)
	if err == nil && o.Repair {
		err = repair.Run(ctx, st, lock, manifest, o.Shard, true, o.mayReopen(ctx, st, share, before))
	}
	if err != nil {
		return nil, err
	}
	past, err := takeOverShare(ctx, st, lock, o, manifest, before == nil)
	if err != nil {
		return nil, err
	}
	w := &Writer{store: st, options: *o, manifest: manifest, lock: lock, next: past.Next(o.Shard), share: share,
		spare: make(chan *part, 1)}
	if w.done, err = commit.SitesOf(past.Current); err != nil {
		return nil, err
	}
	if before != nil && before.Result != nil {
		w.lost = max(0, before.Result.Sites-int64(w.done.GetCardinality()))
	}
	share.Earlier = int64(w.done.GetCardinality())
	if err := share.Write(ctx, st); err != nil {
		return nil, err
	}
	if o.Sidecar != nil {
		if err := w.beginSidecar(ctx, past, false); err != nil {
			return nil, err
		}
	}
	if err := views.Write(ctx, st, o.Registry); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.spare <- nil
	return w, nil
}

// joinScan creates the manifest of the scan, or compares the options with the manifest of the first process, whose date
// all shares have. If the share is done, joinScan writes nothing, since another process may be collecting the shares.
func joinScan(ctx context.Context, st store.Store, o *Options, now time.Time) (*commit.Manifest, error) {
	m, err := commit.ReadManifest(ctx, st, o.ScanID)
	if errors.Is(err, store.ErrNotExist) && !o.Repair {
		if err := notPruned(ctx, st, o.ScanID, o.Date); err != nil {
			return nil, err
		}
		m = newManifest(o, now)
		if err := m.Create(ctx, st); !errors.Is(err, store.ErrExist) {
			return m, err
		}
		m, err = commit.ReadManifest(ctx, st, o.ScanID)
	}
	if err := mayJoin(m, err, o, now); err != nil {
		return nil, err
	}
	return m, notPruned(ctx, st, o.ScanID, m.ScanDate)
}

// mayJoin returns the error if a share with these options cannot be written to the scan whose manifest was read.
func mayJoin(m *commit.Manifest, err error, o *Options, now time.Time) error {
	if errors.Is(err, store.ErrNotExist) {
		return o.nothingToRepair()
	}
	if err != nil {
		return commit.Remedied(err, "restore it, or scan anew with another --scan-id")
	}
	if err := resume(m, o, now); err != nil {
		return err
	}
	if !m.Uncollected() {
		return o.collected()
	}
	return nil
}

// collected is the error of a share whose scan is collected.
func (o *Options) collected() error {
	if o.Repair {
		return fmt.Errorf("scan %s is collected, and repaired as a whole: give --repair without --shard", o.ScanID)
	}
	return o.shareDone()
}

// lookShare returns the manifest and the history that openShare would find. As openShare does, it leaves the records
// and files of other shares unread. The manifest is nil if there is none.
func lookShare(ctx context.Context, st store.Store, o *Options, now time.Time) (m *commit.Manifest,
	past *commit.History, err error) {
	m, err = commit.ReadManifest(ctx, st, o.ScanID)
	if errors.Is(err, store.ErrNotExist) && !o.Repair {
		return nil, &commit.History{}, notPruned(ctx, st, o.ScanID, o.Date)
	}
	if err := mayJoin(m, err, o, now); err != nil {
		return nil, nil, err
	}
	if err := notPruned(ctx, st, o.ScanID, m.ScanDate); err != nil {
		return nil, nil, err
	}
	if _, err = o.readShare(ctx, st); err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, nil, err
	}
	past, err = commit.ReadShard(ctx, st, o.ScanID, o.Shard)
	return m, past, m.Remedied(err)
}

func (o *Options) shareDone() error {
	i, _ := strconv.Atoi(o.Shard)
	return &commit.ShareDoneError{ScanID: o.ScanID, I: i, N: o.Shares}
}

// readShare reads the record of the share. It is an error if the share is done. Only a repair continues with a record
// that is done or damaged, and writes it anew.
func (o *Options) readShare(ctx context.Context, st store.Store) (*commit.Share, error) {
	s, err := commit.ReadShareRecord(ctx, st, o.ScanID, o.Shard)
	if err == nil && s.N != o.Shares {
		err = fmt.Errorf("cannot read %s: %w: it is of %d shares, and the manifest of %d",
			commit.ShareName(o.ScanID, o.Shard), commit.ErrRecord, s.N, o.Shares)
	}
	switch {
	case o.Repair && errors.Is(err, commit.ErrRecord):
		return &commit.Share{N: o.Shares, State: commit.ShareFailed}, nil
	case err == nil && s.State == commit.ShareDone && !o.Repair:
		err = o.shareDone()
	}
	return s, commit.Remedied(err, o.remedy())
}

// beginShare returns the share's record for this process, and the record before it. The latter is nil if no process had
// begun the share. Then an earlier process can have no commit, not even a late one, since a process commits only after
// it has created the record.
func beginShare(ctx context.Context, st store.Store, o *Options, now time.Time) (s, before *commit.Share, err error) {
	i, err := strconv.Atoi(o.Shard)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open share %q of scan %s: it is not a number", o.Shard, o.ScanID)
	}
	s = &commit.Share{
		SchemaVersion: schema.Version, ScanID: o.ScanID, I: i, N: o.Shares, State: commit.ShareRunning,
		Holder: commit.ThisProcess(now, ""), Attempt: 1, UpdatedAt: now,
		ToolVersion: o.ToolVersion, RegistryVersion: o.Registry.Version, Check: siterows.Check(), Inputs: o.Inputs,
	}
	before, err = o.readShare(ctx, st)
	if errors.Is(err, store.ErrNotExist) {
		if err := s.Create(ctx, st); !errors.Is(err, store.ErrExist) {
			return s, nil, err
		}
		before, err = o.readShare(ctx, st)
	}
	if err != nil {
		return nil, nil, err
	}
	s.Attempt, s.Changes = before.Attempt+1, before.Changes
	return s, before, nil
}

// mayReopen returns a function for repair.Run. If a share that was done has lost data, the function marks it as not
// done, before any commit is taken out. It holds the scan's lock, so that no process collects the shares meanwhile.
func (o *Options) mayReopen(ctx context.Context, st store.Store, share,
	before *commit.Share) func(*repair.Found) error {
	return func(found *repair.Found) error {
		if before == nil || before.State != commit.ShareDone {
			return nil
		}
		sound, err := table.IsSound(ctx, st, before.Result.Rejects)
		if err != nil {
			return err
		}
		if sound && found.NoPart() && before.Result.HasSites(found.Past.Current) {
			return o.shareDone()
		}
		collecting, m, err := commit.LockScan(ctx, st, o.ScanID, commit.DoingCollect)
		if err != nil {
			return err
		}
		if err = o.collected(); m.Uncollected() {
			err = share.Write(ctx, st)
		}
		return errors.Join(err, collecting.Unlock())
	}
}

func (o *Options) cannotGoOn(err error) error {
	if o.Shares == 0 {
		return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
	}
	return fmt.Errorf("cannot resume share %s of scan %s: %w", o.Shard, o.ScanID, err)
}

// takeOverShare is takeOver and cleanShard for a share: it reads the history of the shard, prevents late commits, and
// deletes what a killed process left of this shard.
func takeOverShare(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *commit.Manifest,
	first bool) (*commit.History, error) {
	past, err := commit.ReadShard(ctx, st, o.ScanID, o.Shard)
	if err != nil {
		return nil, m.Remedied(err)
	}
	if lease, ok := lock.(store.Lease); ok && first && past.Next(o.Shard) == 0 {
		lease.Fenced()
	}
	if past, err = commit.Fence(ctx, st, lock, m, commit.TakenOver, past, o.Shard); err != nil {
		return nil, o.cannotGoOn(err)
	}
	if lost := past.Lost(m); lost != nil {
		return nil, o.cannotGoOn(lost)
	}
	err = errors.Join(
		st.Sweep(ctx, commit.CommitsFolder(o.ScanID)+o.Shard+"-", everything),
		st.Sweep(ctx, commit.SharesFolder(o.ScanID)+o.Shard+".", everything))
	if err != nil {
		return nil, o.cannotGoOn(err)
	}
	damaged, err := commit.ClearParts(ctx, st, o.ScanID, o.Date, past, []string{o.Shard})
	if err = cmp.Or(err, commit.LostFiles(damaged, o.remedy())); err != nil {
		return nil, o.cannotGoOn(err)
	}
	return past, nil
}

// Share returns the number of the share that is written, and how many there are; n is 0 for a scan without shares.
func (w *Writer) Share() (i, n int) {
	if w.share == nil {
		return 0, 0
	}
	return w.share.I, w.share.N
}

// ReportShare writes how far the share is: bytes of the list, and sites that this process has kept. Calls of it, of
// FinishShare and of LeaveShare must not overlap.
func (w *Writer) ReportShare(ctx context.Context, read, total, kept int64) error {
	w.mu.Lock()
	s := w.share
	s.ReadBytes, s.TotalBytes, s.Kept, s.UpdatedAt = read, total, kept, time.Now().UTC().Truncate(time.Millisecond)
	report := *s
	w.mu.Unlock()
	return report.Write(ctx, w.store)
}

// LeaveShare writes why the process leaves the share unfinished.
func (w *Writer) LeaveShare(ctx context.Context, state commit.ShareState, reason string) error {
	s := w.share
	s.State, s.Reason, s.UpdatedAt = state, schema.Bounded(reason, schema.MaxReject),
		time.Now().UTC().Truncate(time.Millisecond)
	return s.Write(ctx, w.store)
}

// FinishShare commits the open part, whatever its size, and marks the share as done. result has the counts of the list.
// entries is the number of origins that belong to the share; each must have been committed once.
func (w *Writer) FinishShare(ctx context.Context, entries uint64, result commit.ShareResult) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	o, s := &w.options, w.share
	if err := commit.SweepParts(ctx, w.store, o.ScanID, o.Date, o.Shard); err != nil {
		return err
	}
	past, err := commit.ReadShard(ctx, w.store, o.ScanID, o.Shard)
	if err != nil {
		return w.manifest.Remedied(err)
	}
	if result.Sites = int64(entries); !result.HasSites(past.Current) {
		return fmt.Errorf("share %d/%d of scan %s has %d rows, and the list %d sites; %s", s.I, s.N, o.ScanID,
			commit.CountCommits(past.Current).Rows, entries, o.remedy())
	}
	s.Result, s.State, s.Reason, s.UpdatedAt = &result, commit.ShareDone, "", time.Now().UTC().Truncate(time.Millisecond)
	s.Kept = result.Sites - s.Earlier
	return s.Write(ctx, w.store)
}
