package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/repair"
	"github.com/bulkscan/bulkscan/sink/restart"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// Open takes the scan's lock, begins or compares its manifest, deletes files of its shard without a commit, and returns
// a Writer. Cancelling the context ends Open, but not the Writer, which keeps only the context's values.
//
// With Options.Shares, Open takes the share's lock, and leaves the files of other shares alone (see share.go).
//
// Errors to distinguish: *commit.HeldError if another process writes the scan, *commit.ChangedError if it cannot be
// resumed, *commit.LostError if data is missing, *repair.IntactError if there is nothing to repair, *commit.StoreError
// if the store is full or not writable.
func Open(ctx context.Context, st store.Store, o Options) (_ *Writer, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if err := o.complete(now); err != nil {
		return nil, fmt.Errorf("cannot open the dataset: %w", err)
	}
	if o.Shares > 0 {
		return openShare(ctx, st, &o, now)
	}
	lock, err := commit.TakeLock(ctx, st, o.ScanID, "", now)
	if err != nil {
		return nil, commit.BrokenOff(o.ScanID, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(commit.BrokenOff(o.ScanID, err), lock.Unlock())
		}
	}()
	manifest, err := loadManifest(ctx, st, &o, now)
	if err != nil {
		return nil, commit.Remedied(err, commit.ManifestRemedy)
	}
	if manifest.Restarting {
		if err := commit.Forget(ctx, st, o.Log, o.ScanID); err != nil {
			return nil, err
		}
		if err := restart.Scan(ctx, st, lock, manifest, o.Shard); err != nil {
			return nil, err
		}
	} else if err := manifest.Changing(ctx, st, o.Log); err != nil {
		return nil, err
	}
	o.Date = manifest.ScanDate
	if o.Repair {
		if err := repair.Run(ctx, st, lock, manifest, o.Shard, false, (*repair.Found).Intact); err != nil {
			return nil, err
		}
	}
	past, err := takeOver(ctx, st, lock, &o, manifest)
	if err != nil {
		return nil, err
	}
	if err := cleanShard(ctx, st, &o, past); err != nil {
		return nil, err
	}
	w := &Writer{store: st, options: o, manifest: manifest, lock: lock, next: past.Next(o.Shard),
		spare: make(chan *part, 1)}
	if w.done, err = commit.SitesOf(past.Current); err != nil {
		return nil, fmt.Errorf("%w; %s", err, o.remedy())
	}
	if manifest.Counts != nil {
		w.lost = max(0, manifest.Counts.Rows-int64(w.done.GetCardinality()))
	}
	w.begun, w.finished = w.next, manifest.FinishedAt
	manifest.State, manifest.FinishedAt, manifest.Counts, manifest.Recorded = commit.Running, nil, nil, nil
	manifest.Repairing = manifest.Repairing || o.Repair
	if err := w.announce(ctx, past); err != nil {
		return nil, err
	}
	if w.viewed = o.Unlisted; !o.Unlisted {
		if err := errors.Join(index.Update(ctx, st), views.Write(ctx, st, o.Registry)); err != nil {
			return nil, err
		}
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.spare <- nil
	return w, nil
}

// takeOver reads the scan's history, prevents late commits of an earlier lock holder, and checks that nothing is lost.
func takeOver(ctx context.Context, st store.Store, lock store.Unlocker, o *Options,
	manifest *commit.Manifest) (*commit.History, error) {
	past, err := readPast(ctx, st, o, manifest)
	if err != nil {
		return nil, err
	}
	if lease, ok := lock.(store.Lease); ok && isNew(manifest) {
		lease.Fenced() // without a manifest there was no earlier writer
	}
	if past, err = commit.Fence(ctx, st, lock, manifest, commit.TakenOver, past, o.Shard,
		commit.CompactedShard); err != nil {
		return nil, err
	}
	if lost := past.Lost(manifest); lost != nil && !o.Repair { // checked before files without a commit are deleted
		if o.Source == nil {
			return nil, o.cannotGoOn(lost)
		}
		// Lost parts that were made from stored sites are made again from the same sites.
		if err := repair.Run(ctx, st, lock, manifest, o.Shard, false, (*repair.Found).Intact); err != nil {
			return nil, err
		}
		if past, err = commit.ReadHistory(ctx, st, o.ScanID); err != nil {
			return nil, err
		}
	}
	return past, nil
}

// isNew reports whether loadManifest has made a manifest because there was none.
func isNew(m *commit.Manifest) bool { return m.ResumedAt == nil && !m.Restarting }

// readPast reads the scan's history, which must have a manifest.
func readPast(ctx context.Context, st store.Store, o *Options, manifest *commit.Manifest) (*commit.History, error) {
	past, err := commit.ReadHistory(ctx, st, o.ScanID)
	if err != nil {
		return nil, commit.Remedied(err, o.remedy())
	}
	if n := len(past.Current) + len(past.Replaced); isNew(manifest) && n > 0 {
		return nil, o.cannotGoOn(fmt.Errorf("%s: %w: it is missing, and there are %d commits; %s",
			commit.ManifestName(o.ScanID), commit.ErrRecord, n, commit.ManifestRemedy))
	}
	return past, nil
}

// Preview is what Open would find.
type Preview struct {
	Kept     int64 // sites
	Restarts bool  // they would be deleted
}

// Look returns what Open would find, or its error, as far as this can be known without the lock and without writing.
func Look(ctx context.Context, st store.Store, o Options) (p Preview, err error) {
	now := time.Now().UTC()
	if err := o.complete(now); err != nil {
		return p, fmt.Errorf("cannot open the dataset: %w", err)
	}
	share := ""
	if o.Shares > 0 {
		share = o.Shard
	}
	if err := commit.Held(ctx, st, o.ScanID, share); err != nil {
		return p, err
	}
	var manifest *commit.Manifest
	var past *commit.History
	if o.Shares > 0 {
		manifest, past, err = lookShare(ctx, st, &o, now)
	} else {
		manifest, err = loadManifest(ctx, st, &o, now)
		if err != nil {
			return p, commit.Remedied(err, commit.ManifestRemedy)
		}
		past, err = readPast(ctx, st, &o, manifest)
		if p.Restarts = manifest.Restarting; p.Restarts && err != nil {
			return p, nil // damaged records are deleted like the rest
		}
	}
	if err != nil {
		return p, err
	}
	if !o.Repair && !p.Restarts && manifest != nil {
		var damaged []string
		if lost := past.Lost(manifest); lost != nil {
			err = lost
		} else if damaged, err = commit.DamagedFiles(ctx, st, o.ScanID, manifest.ScanDate, past); err == nil {
			err = commit.LostFiles(damaged, o.remedy())
		}
		if err != nil {
			return p, o.cannotGoOn(err)
		}
	}
	sites, err := commit.SitesOf(past.Current)
	if err != nil && !p.Restarts {
		return p, fmt.Errorf("%w; %s", err, o.remedy())
	}
	p.Kept = int64(sites.GetCardinality())
	return p, nil
}

// announce writes the manifest of the running scan and then begins the Sidecar. Sidecar.Begin comes second, since it
// needs the start of the scan. A restart stays marked in the manifest until Begin has returned, in case the process is
// killed.
func (w *Writer) announce(ctx context.Context, past *commit.History) error {
	o, m := &w.options, w.manifest
	restarted := m.Restarting
	m.Restarting = restarted && o.Sidecar != nil
	if err := m.Write(ctx, w.store); err != nil || o.Sidecar == nil {
		return err
	}
	if err := w.beginSidecar(ctx, past, restarted); err != nil || !restarted {
		return err
	}
	m.Restarting = false
	return m.Write(ctx, w.store)
}

func (w *Writer) beginSidecar(ctx context.Context, past *commit.History, restarted bool) error {
	o := &w.options
	return o.Sidecar.Begin(ctx, SidecarScan{
		ID: o.ScanID, Shard: o.Shard, StartedAt: w.manifest.StartedAt, Restarted: restarted, Next: w.next,
		Counts: func(part int) bool { return past.Counts(o.Shard, part) },
	})
}

// cleanShard deletes files of this shard without a commit, and leftovers of a compaction. It checks that committed
// files exist: resuming a damaged dataset would hide the damage.
func cleanShard(ctx context.Context, st store.Store, o *Options, past *commit.History) error {
	if err := st.Sweep(ctx, commit.ScanFolder(o.ScanID), everything); err != nil {
		return o.cannotGoOn(err)
	}
	if err := commit.SweepFiles(ctx, st, commit.StatsName(schema.TokenStats, o.Date, o.ScanID),
		commit.StatsName(schema.RecordStats, o.Date, o.ScanID), views.Name, index.Name, schema.PackageName); err != nil {
		return o.cannotGoOn(err)
	}
	if err := index.BeforeClearing(ctx, st, o.ScanID, o.Date, past); err != nil {
		return o.cannotGoOn(err)
	}
	damaged, err := commit.ClearParts(ctx, st, o.ScanID, o.Date, past, []string{o.Shard, commit.CompactedShard})
	if err = cmp.Or(err, commit.LostFiles(damaged, o.remedy())); err != nil {
		return o.cannotGoOn(err)
	}
	return nil
}

// everything selects the drafts of all objects of a folder that belongs to one scan.
func everything(string) bool { return true }
