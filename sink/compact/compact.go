// Package compact answers one question: how do small parts become large ones? See Scan.
package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// A merged part is made as any part is: its files are published, sites last, and count once a commit record names them.
// That record also names the commits that it replaces, so one write replaces them by the merged part. The replaced
// commits are deleted afterwards, files first.
//
// A compaction that is killed leaves either files that no commit names, or commits and files that another commit has
// replaced. Readers of records ignore both, and the next compaction or scan of that id deletes them.
// docs/adr/0012-a-merged-part-takes-over-by-its-record.md has the alternatives.

// Options say how to merge parts.
type Options struct {
	// PartBytes is the maximum size of a merged part, in bytes of all its tables together; 0 is 512 MiB. A larger part
	// stays as it is.
	PartBytes int64
	// Grace is how long replaced files stay for readers that have listed them. In the meantime, programs that read
	// whole folders instead of records find rows twice.
	Grace time.Duration
	// Log gets an entry for each merged part; may be nil.
	Log *slog.Logger
}

// DefaultPartBytes is the default of Options.PartBytes.
const DefaultPartBytes = 512 << 20

// maxUnmerged is the number of failed runs after which a compaction gives up, since the cause is then probably the
// store.
const maxUnmerged = 8

// maxMerged bounds how many parts become one, since the footer lists the row groups of each.
const maxMerged = 256

// MaxGroups bounds the row groups of a file of a merged part, unless a single part has more.
const MaxGroups = 1024

// Result counts what a compaction did.
type Result struct {
	ScanID      string `json:"scan_id"`
	PartsBefore int    `json:"parts_before"`
	PartsAfter  int    `json:"parts_after"`
	Rows        int64  `json:"rows"`  // of all tables, in the parts that were merged
	Bytes       int64  `json:"bytes"` // of the merged parts' files
}

// Scan merges adjacent parts of a scan into parts of up to PartBytes. It holds the scan's lock; the error is a
// *commit.HeldError if another process holds it. Rows, their order and their row groups stay the same. A second
// compaction finds nothing to merge.
func Scan(ctx context.Context, st store.Store, scanID string, o Options) (_ *Result, err error) {
	if o.PartBytes == 0 {
		o.PartBytes = DefaultPartBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	lock, manifest, err := commit.LockScan(ctx, st, scanID, commit.DoingCompact)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	c := &compaction{store: st, lock: lock, options: o, manifest: manifest, done: Result{ScanID: scanID}}
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("cannot compact scan %s: %w", scanID, err)
	}
	return &c.done, nil
}

type compaction struct {
	store    store.Store
	lock     store.Unlocker
	options  Options
	manifest *commit.Manifest
	next     int       // number of the next merged part
	waiting  []retired // replaced but not yet deleted; oldest first
	done     Result
}

// retired has the commits that a merged part replaced.
type retired struct {
	commits []commit.Commit
	since   time.Time
}

func (c *compaction) run(ctx context.Context) error {
	past, err := c.begin(ctx)
	if err != nil {
		return err
	}
	var runs [][]commit.Commit
	if len(c.manifest.Pruned) == 0 { // else the record of a merged part could not say where each file's rows are
		runs = c.plan(past.Current)
	}
	if len(runs) > 0 {
		if err := c.manifest.Changing(ctx, c.store, c.options.Log); err != nil {
			return err
		}
	}
	// If a part cannot be read, the others are still merged. Replaced files are deleted in any case, since programs
	// that read whole folders find their rows twice.
	var errs []error
	var doubtful bool // a record was written that may not be durable
	for _, run := range runs {
		begun, err := c.merge(ctx, run)
		if err != nil {
			errs = append(errs, err)
			doubtful = begun
			if begun || ctx.Err() != nil || len(errs) == maxUnmerged {
				break
			}
		}
		if err := c.deleteWhatIsDue(ctx, false); err != nil {
			errs = append(errs, err)
			break
		}
	}
	if err := c.deleteWhatIsDue(ctx, true); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := commit.SweepParts(ctx, c.store, c.done.ScanID, c.manifest.ScanDate, ""); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if !doubtful { // else the totals could count a part that does not exist
		errs = append(errs, c.end(ctx))
	}
	return errors.Join(errs...)
}

// begin reads the scan's history and deletes what a killed compaction left.
func (c *compaction) begin(ctx context.Context) (*commit.History, error) {
	id := c.done.ScanID
	past, err := commit.ReadHistory(ctx, c.store, id)
	if err != nil {
		return nil, commit.Remedied(err, commit.DamageRemedy)
	}
	if past, err = commit.Fence(ctx, c.store, c.lock, c.manifest, commit.TakenOver, past,
		commit.CompactedShard); err != nil {
		return nil, err
	}
	if lost := past.Lost(c.manifest); lost != nil {
		return nil, lost
	}
	c.manifest.Without(past.Current)
	if err := commit.SweepFiles(ctx, c.store, views.Name, index.Name, schema.PackageName,
		commit.ManifestName(id)); err != nil {
		return nil, err
	}
	// The sweep also makes listed records durable before anything is deleted because of them.
	err = c.store.Sweep(ctx, commit.CommitsFolder(id), func(name string) bool { return commit.IsRecord(id, name) })
	if err != nil {
		return nil, err
	}
	if err := index.BeforeClearing(ctx, c.store, id, c.manifest.ScanDate, past); err != nil {
		return nil, err
	}
	damaged, err := commit.ClearParts(ctx, c.store, id, c.manifest.ScanDate, past, []string{commit.CompactedShard})
	if err = cmp.Or(err, commit.LostFiles(damaged, c.manifest.Remedy())); err != nil {
		return nil, err
	}
	c.next = past.Next(commit.CompactedShard)
	c.done.PartsBefore = len(past.Current)
	c.done.PartsAfter = len(past.Current)
	return past, nil
}

// plan divides the commits, in the order of their rows, into runs that become one part each. The size of a run counts
// the bytes that the scan wrote, which merging does not change. So no two runs of a plan fit together, and the next
// plan has nothing to merge.
func (c *compaction) plan(commits []commit.Commit) [][]commit.Commit {
	var runs [][]commit.Commit
	var bytes int64
	merged, begin := 0, 0
	var groups []int // by file
	end := func(i int) {
		if i-begin > 1 {
			runs = append(runs, commits[begin:i])
		}
		bytes, merged, begin, groups = 0, 0, i, nil
	}
	for i := range commits {
		ofBytes, ofMerged := commits[i].Written()
		if i > begin && (bytes+ofBytes > c.options.PartBytes || merged+ofMerged > maxMerged ||
			tooMany(groups, commits[i].Files) || !alike(&commits[begin], &commits[i])) {
			end(i)
		}
		bytes += ofBytes
		merged += ofMerged
		groups = append(groups, make([]int, len(commits[i].Files)-min(len(groups), len(commits[i].Files)))...)
		for k := range commits[i].Files {
			groups[k] += commits[i].Files[k].Groups
		}
	}
	end(len(commits))
	return runs
}

// tooMany reports whether concatenated files would have too many row groups.
func tooMany(groups []int, files []schema.File) bool {
	for k := range min(len(groups), len(files)) {
		if groups[k]+files[k].Groups > MaxGroups {
			return true
		}
	}
	return false
}

// alike reports whether the files of two commits can be concatenated: same tables, same versions.
func alike(a, b *commit.Commit) bool {
	return a.SchemaVersion == b.SchemaVersion && a.ToolVersion == b.ToolVersion &&
		a.RegistryVersion == b.RegistryVersion &&
		slices.EqualFunc(a.Files, b.Files, func(x, y schema.File) bool { return x.Table == y.Table })
}

// merge makes one part of a run of commits. All its files are durable before the first is published, so they coexist
// with the replaced files only briefly. Once the first file is published, the merged part's number is used, even if an
// error follows; begun reports that.
func (c *compaction) merge(ctx context.Context, run []commit.Commit) (begun bool, err error) {
	record, err := c.record(run)
	if err != nil {
		return false, err
	}
	var drafts []store.Draft
	defer func() {
		for _, draft := range drafts {
			err = errors.Join(err, draft.Discard())
		}
	}()
	for i, f := range run[0].Files {
		sources := make([]schema.File, 0, len(run))
		for k := range run {
			sources = append(sources, run[k].Files[i])
		}
		name := commit.PartName(f.Table, c.manifest.ScanDate, record.ScanID, commit.CompactedShard, record.N)
		draft, file, err := table.Concat(ctx, c.store, c.store, name, sources, nil)
		if err != nil {
			err = commit.Remedied(err, commit.DamageRemedy)
			return false, err
		}
		drafts = append(drafts, draft)
		record.Files = append(record.Files, file)
	}
	for _, draft := range drafts {
		if err := draft.Publish(ctx); err != nil {
			return true, err
		}
	}
	record.CommittedAt = time.Now().UTC().Truncate(time.Millisecond)
	if err := record.Write(ctx, c.store); err != nil {
		return true, err
	}
	c.next++
	c.done.PartsAfter -= len(run) - 1
	c.done.Bytes += record.Bytes()
	for _, f := range record.Files {
		c.done.Rows += f.Rows
	}
	if err := index.Update(ctx, c.store); err != nil { // readers must find the merged part before the others go
		return true, err
	}
	c.waiting = append(c.waiting, retired{run, time.Now()})
	c.options.Log.Info("merged", "scan", record.ScanID, "parts", len(run), "into", record.Key().String(), "sites",
		record.Rows, "bytes", record.Bytes())
	return true, nil
}

// record returns the commit of a merged part, without its files.
func (c *compaction) record(run []commit.Commit) (*commit.Commit, error) {
	record := &commit.Commit{
		SchemaVersion: run[0].SchemaVersion, ToolVersion: run[0].ToolVersion, RegistryVersion: run[0].RegistryVersion,
		ScanID: c.done.ScanID, Shard: commit.CompactedShard, N: c.next,
	}
	finished := roaring64.New()
	at := make([]int64, len(run[0].Files)) // rows of earlier commits in the run, by file
	for i := range run {
		from := &run[i]
		seqs, err := from.Bitmap()
		if err != nil {
			return nil, err
		}
		finished.Or(seqs)
		record.Rows += from.Rows
		record.Rejudged = record.Rejudged.And(from.Rejudged)
		bytes, _ := from.Written()
		record.MergedBytes += bytes
		for _, r := range from.Replaces {
			moved := commit.Replaced{Shard: r.Shard, N: r.N, First: slices.Clone(r.First), Rows: r.Rows}
			for k := range moved.First {
				moved.First[k] += at[k]
			}
			record.Replaces = append(record.Replaces, moved)
		}
		replaced := commit.Replaced{Shard: from.Shard, N: from.N, First: slices.Clone(at)}
		for k, f := range from.Files {
			replaced.Rows = append(replaced.Rows, f.Rows)
			at[k] += f.Rows
		}
		record.Replaces = append(record.Replaces, replaced)
	}
	if n := finished.GetCardinality(); n != uint64(record.Rows) {
		return nil, fmt.Errorf("commits %s to %s have %d rows of %d sites; see bulkscan verify", run[0].Name(),
			run[len(run)-1].Name(), record.Rows, n)
	}
	finished.RunOptimize()
	var err error
	record.Finished, err = finished.ToBytes()
	return record, err
}

// deleteWhatIsDue deletes replaced commits whose grace has ended. With wait, it waits for the others, too.
func (c *compaction) deleteWhatIsDue(ctx context.Context, wait bool) error {
	for len(c.waiting) > 0 {
		due := c.waiting[0].since.Add(c.options.Grace)
		if left := time.Until(due); left > 0 {
			if !wait {
				return nil
			}
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return ctx.Err() // the next compaction deletes it
			}
		}
		if err := c.delete(ctx, c.waiting[0].commits); err != nil {
			return err
		}
		c.waiting = c.waiting[1:]
	}
	return nil
}

// delete deletes replaced commits. It begins with files, sites first, since programs that read whole folders find their
// rows twice. The records, which no longer count, are last.
func (c *compaction) delete(ctx context.Context, commits []commit.Commit) error {
	names := make([]string, len(commits))
	for i := range len(commits[0].Files) {
		for k := range commits {
			files := commits[k].Files
			names[k] = files[len(files)-1-i].Name
		}
		if err := c.deleteAll(ctx, names); err != nil {
			return err
		}
	}
	for k := range commits {
		names[k] = commits[k].Name()
	}
	return c.deleteAll(ctx, names)
}

// deleteAll deletes several objects at a time, since each deletion waits for a disk or a server.
func (c *compaction) deleteAll(ctx context.Context, names []string) error {
	var errs []error
	for _, err := range store.Ahead(ctx, names, c.store.Delete, func(error) {}) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// end updates the totals of parts and bytes in the manifest of a complete scan. The number of rows does not change.
func (c *compaction) end(ctx context.Context) error {
	if c.manifest.Counts == nil {
		return nil
	}
	commits, err := commit.Commits(ctx, c.store, c.done.ScanID)
	if err != nil {
		return err
	}
	if wrong := c.manifest.Unaccounted(commits); len(wrong) > 0 {
		return &commit.LostError{Totals: wrong}
	}
	counts := commit.CountCommits(commits)
	if counts.Parts == c.manifest.Counts.Parts && counts.Bytes == c.manifest.Counts.Bytes {
		return nil
	}
	c.manifest.Counts = counts
	return c.manifest.Write(ctx, c.store)
}

// Written updates the files that tell readers which files there are: the index, and the views, which are made from the
// index. Call it once after the scans of a dataset.
func Written(ctx context.Context, st store.Store) error {
	return errors.Join(index.Renew(ctx, st), views.Write(ctx, st, nil))
}

// WriteTo prints the result in one line.
func (c *Result) WriteTo(w io.Writer) (int64, error) {
	var line strings.Builder
	if c.PartsBefore == c.PartsAfter {
		fmt.Fprintf(&line, "scan %s: %d parts, nothing to merge\n", c.ScanID, c.PartsBefore)
	} else {
		fmt.Fprintf(&line, "scan %s: %d parts are %d now; %d rows of all tables, %.1f MB\n", c.ScanID, c.PartsBefore,
			c.PartsAfter, c.Rows, float64(c.Bytes)/1e6)
	}
	n, err := io.WriteString(w, line.String())
	return int64(n), err
}
