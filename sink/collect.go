package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Collection makes one scan of its shares. It holds the scan's lock, which excludes other collections and compactions.
// The processes of shares have locks of their own, and no process writes a share that is done.
type Collection struct {
	Manifest *commit.Manifest
	Shares   map[int]*commit.Share // the shares that have begun, by number

	store store.Store
	lock  store.Unlocker
}

// OpenCollection takes the lock of a scan in shares, and reads their records. Close the Collection after use.
func OpenCollection(ctx context.Context, st store.Store, scanID string) (*Collection, error) {
	lock, m, err := commit.LockScan(ctx, st, scanID, commit.DoingCollect)
	if err != nil {
		return nil, err
	}
	c := &Collection{Manifest: m, store: st, lock: lock}
	switch {
	case m.Shares == 0:
		err = fmt.Errorf("scan %s is not in shares; the command that scans it continues it", scanID)
	case m.Repairing:
		err = fmt.Errorf("scan %s is being repaired; scan --repair continues that", scanID)
	case m.Uncollected():
		if lease, ok := lock.(store.Lease); ok {
			lease.Fenced() // earlier holders of this lock have committed nothing: shares have locks of their own
		}
		c.Shares, err = commit.Shares(ctx, st, m)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Collected reports whether the shares have been made one scan already.
func (c *Collection) Collected() bool { return !c.Manifest.Uncollected() }

// Gather checks that the commits match the records of the shares, which are all done. Then it writes the rejects of all
// shares.
func (c *Collection) Gather(ctx context.Context) error {
	m := c.Manifest
	fail := func(err error) error { return fmt.Errorf("cannot collect scan %s: %w", m.ScanID, err) }
	if err := c.store.Sweep(ctx, commit.ScanFolder(m.ScanID), everything); err != nil {
		return fail(err)
	}
	past, err := commit.ReadHistory(ctx, c.store, m.ScanID)
	if err != nil {
		return fail(m.Remedied(err))
	}
	if lost := past.Lost(m); lost != nil {
		return fail(lost)
	}
	lost, broken := &commit.LostError{}, []string(nil)
	if lost.Files, err = commit.DamagedFiles(ctx, c.store, m.ScanID, m.ScanDate, past); err != nil {
		return fail(err)
	}
	for _, name := range lost.Files {
		_, shard := commit.WrittenBy(name)
		broken = append(broken, shard)
	}
	of := map[string][]commit.Commit{}
	for _, c := range past.Current {
		m.WrittenToo(c.ToolVersion)
		of[c.Shard] = append(of[c.Shard], c)
	}
	for i, s := range c.Shares {
		sound, err := table.IsSound(ctx, c.store, s.Result.Rejects)
		if err != nil {
			return fail(err)
		}
		shard := strconv.Itoa(i)
		switch {
		case !sound:
			lost.Files = append(lost.Files, s.Result.Rejects.Name)
		case !s.Result.HasSites(of[shard]):
			lost.Records = append(lost.Records, commit.ShareName(m.ScanID, shard)+": of some of its sites there is no commit")
		default:
			continue
		}
		broken = append(broken, shard)
	}
	if len(broken) > 0 {
		lost.Remedy = m.Remedy(broken...)
		return fail(lost)
	}
	found, err := commit.SitesOf(past.Current)
	if rows := commit.CountCommits(past.Current).Rows; err == nil && found.GetCardinality() != uint64(rows) {
		err = fmt.Errorf("its shares have %d rows of %d sites; scan anew with another --scan-id", rows,
			found.GetCardinality())
	}
	if err != nil {
		return fail(err)
	}
	return c.rejects(ctx)
}

// rejects joins the rejects of the shares, by number.
func (c *Collection) rejects(ctx context.Context) (err error) {
	all, err := commit.OpenRejects(ctx, c.store, c.Manifest.ScanID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Discard()) }()
	for _, i := range slices.Sorted(maps.Keys(c.Shares)) {
		if err := all.Copy(ctx, c.store, c.Shares[i].Result.Rejects.Name); err != nil {
			return err
		}
	}
	return all.Close(ctx)
}

// Complete marks the scan as complete, with this publication. The caller has published rejects and statistics. log may
// be nil.
func (c *Collection) Complete(ctx context.Context, log *slog.Logger, as commit.Publication) error {
	if c.Manifest.FinishedAt == nil {
		now := time.Now().UTC().Truncate(time.Millisecond)
		c.Manifest.FinishedAt = &now
	}
	for _, i := range slices.Sorted(maps.Keys(c.Shares)) {
		c.Manifest.Changes = commit.AddChanges(c.Manifest.Changes, c.Shares[i].Changes...)
	}
	return complete(ctx, c.store, log, c.Manifest, as)
}

// Clean deletes what a collected scan does not need any more.
func (c *Collection) Clean(ctx context.Context) error {
	return commit.RemoveAll(ctx, c.store, commit.SharesFolder(c.Manifest.ScanID),
		func(name string) bool { return path.Ext(name) == ".jsonl" })
}

// Close releases the lock. Further calls do nothing.
func (c *Collection) Close() error { return c.lock.Unlock() }
