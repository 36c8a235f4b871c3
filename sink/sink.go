// Package sink answers one question: what do we keep? It keeps judged sites as a dataset: tables in Parquet, written
// in parts, each part committed as a whole; and it reads them back.
//
// copy.go turns a site into rows, part.go is a set of open files, and this file decides when a part is full, seals it and commits it.
// resume.go and repair.go open a scan that is there. remade.go is how package reaudit writes. read.go reads; jsonl.go is the
// other sink, a JSON line a site.
//
// What may be relied on. A file that a commit names is complete and stays as it is. A scan that is killed at any moment
// loses at most one part, which was open or being sealed; what it left without a commit is deleted when the scan
// resumes. Resuming skips exactly the union of the commits' bitmaps.
package sink

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
)

// Options say which scan is written, and how.
type Options struct {
	ScanID string // see CheckScanID
	Date   string // scan_date of a scan that starts now, YYYY-MM-DD; "" is today in UTC; a resumed scan keeps its own
	Shard  string // letters and digits; "" is "0"

	Tables   []string      // of TableSites, TableVerdicts, TableEvidence, TableBodies; nil is all four
	PartRows int           // a part is full at so many origins, or earlier where they are large; 0 is 50,000
	PartAge  time.Duration // or so long after its first; 0 is 5 minutes

	ToolVersion string
	Registry    *tokens.Registry // that judged the sites; nil is tokens.Default()

	Config  []commit.Setting     // as given, for the manifest
	Inputs  []commit.Input       // for the manifest
	Restart bool                 // delete what the scan has written before, and begin anew
	Repair  bool                 // take out what of it is damaged or lost, so that it is asked again (see repair.go)
	Sidecar Sidecar              // nil: nothing is kept beside the tables
	Source  *commit.RejudgedScan // the stored scan that this one is made of (see Remade); nil where sites are asked

	groupBytes int // 0 is the constant; tests have smaller ones
}

// The defaults of Options.
const (
	DefaultPartRows = 50_000
	DefaultPartAge  = 5 * time.Minute
)

// complete fills in defaults and checks the rest.
func (o *Options) complete(now time.Time) error {
	if o.Shard == "" {
		o.Shard = "0"
	}
	if o.Date == "" {
		o.Date = now.UTC().Format(time.DateOnly)
	}
	if o.Tables == nil {
		o.Tables = schema.AllTables
	}
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.PartRows == 0 {
		o.PartRows = DefaultPartRows
	}
	if o.PartAge == 0 {
		o.PartAge = DefaultPartAge
	}
	if err := errors.Join(commit.CheckScanID(o.ScanID), commit.CheckShard(o.Shard), commit.CheckDate(o.Date)); err != nil {
		return err
	}
	if len(o.Tables) == 0 {
		return errors.New("no table to write")
	}
	for i, t := range o.Tables {
		if !slices.Contains(schema.AllTables, t) || slices.Contains(o.Tables[:i], t) {
			return fmt.Errorf("cannot write table %.40q: the tables are %s, each once", t, strings.Join(schema.AllTables, ", "))
		}
	}
	if o.PartRows < 0 || o.PartAge < 0 {
		return fmt.Errorf("a part of %d rows or %v", o.PartRows, o.PartAge)
	}
	return nil
}

// Sidecar keeps what belongs to a scan and stands in no table, and commits it with the parts: what it has when a part is
// cut is published before the part is committed.
type Sidecar interface {
	// Begin is called once, with the scan's lock held, before the first Add. What was published with parts that do not
	// count is to be deleted.
	Begin(ctx context.Context, of SidecarScan) error
	// Cut ends what is kept with the part of that number, whose rows have all been added. What it returns publishes it, and
	// is called once, in the order of the parts, or not at all.
	Cut(part int) (publish func(ctx context.Context) error)
}

// SidecarScan is the scan that something is kept beside.
type SidecarScan struct {
	ID, Shard string
	StartedAt time.Time // tells it from others of that name; a resumed scan's is that of its first run
	Restarted bool      // what an earlier one of that name has left is to be deleted
	Next      int       // number of the first part that will be cut; each is one more
	Counts    func(part int) bool
}

// tombstone is what a record of no part has in common with the commits of the scan.
func (o *Options) tombstone(why commit.Tombstone) commit.Commit {
	return commit.Commit{SchemaVersion: schema.Version, ToolVersion: o.ToolVersion, RegistryVersion: o.Registry.Version, ScanID: o.ScanID, Tombstone: why}
}

// Writer writes one scan's dataset. Its methods may be called from several goroutines.
type Writer struct {
	store    store.Store
	options  Options
	manifest *commit.Manifest
	lock     store.Unlocker
	done     *roaring64.Bitmap // finished before this Writer
	lost     int64             // sites that the scan had when it was complete, and has not now

	viewed bool // views.sql knows the tables; of who seals, and they seal one after the other

	ctx    context.Context // of all writing; ends with GiveUp
	cancel context.CancelFunc
	spare  chan *part // the part, while it is neither filled nor sealed; nil: not made yet

	mu     sync.Mutex
	open   *part // being filled; nil before the first row after a seal
	next   int   // number of the next part
	age    *time.Timer
	closed bool

	fail sync.Mutex
	err  error // the first failure; every later call returns it
}

// Open takes the scan's lock, begins its manifest or compares it, deletes what its shard left without a commit, and
// returns a Writer. The context bounds the opening; its values, not its end, go with the Writer.
//
// The errors to tell apart: *HeldError where another process writes the scan, *ChangedError where it cannot be
// resumed, *LostError where something of it is missing, *IntactError where there is nothing to repair, *StoreError where
// there is no room, or it may not be written to.
func Open(ctx context.Context, st store.Store, o Options) (_ *Writer, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if err := o.complete(now); err != nil {
		return nil, fmt.Errorf("cannot open the dataset: %w", err)
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
		if err := deleteScan(ctx, st, lock, &o, manifest); err != nil {
			return nil, err
		}
	}
	o.Date = manifest.ScanDate
	if o.Repair {
		if err := repair(ctx, st, lock, &o, manifest); err != nil {
			return nil, err
		}
	}
	past, err := commit.ReadHistory(ctx, st, o.ScanID)
	if err != nil {
		return nil, commit.Remedied(err, o.remedy())
	}
	if manifest.ResumedAt == nil && !manifest.Restarting { // there was none
		if n := len(past.Current) + len(past.Replaced); n > 0 {
			return nil, fmt.Errorf("cannot resume scan %s: %s is missing, and there are %d commits; %s", o.ScanID, commit.ManifestName(o.ScanID), n, commit.ManifestRemedy)
		}
		if lease, ok := lock.(store.Lease); ok {
			lease.Fenced() // nobody writes a scan that has no manifest
		}
	}
	if past, err = commit.Fence(ctx, st, lock, o.tombstone(commit.TakenOver), o.Date, past, o.Shard, commit.CompactedShard); err != nil {
		return nil, err
	}
	if lost := past.Lost(manifest); lost != nil && !o.Repair { // before anything is deleted because no commit names it
		if o.Source == nil {
			return nil, fmt.Errorf("cannot resume scan %s: %w", o.ScanID, lost)
		}
		// What is made of stored sites is made of them again.
		if err := repair(ctx, st, lock, &o, manifest); err != nil {
			return nil, err
		}
		if past, err = commit.ReadHistory(ctx, st, o.ScanID); err != nil {
			return nil, err
		}
	}
	if err := cleanShard(ctx, st, &o, past); err != nil {
		return nil, err
	}
	w := &Writer{store: st, options: o, manifest: manifest, lock: lock, next: past.Next(o.Shard), spare: make(chan *part, 1)}
	if w.done, err = commit.SitesOf(past.Current); err != nil {
		return nil, fmt.Errorf("%w; %s", err, o.remedy())
	}
	if manifest.Counts != nil {
		w.lost = max(0, manifest.Counts.Rows-int64(w.done.GetCardinality()))
	}
	manifest.State, manifest.FinishedAt, manifest.Counts, manifest.Recorded = commit.Running, nil, nil, nil
	manifest.Repairing = manifest.Repairing || o.Repair
	if err := w.announce(ctx, past); err != nil {
		return nil, err
	}
	if err := views.Write(ctx, st, o.Registry); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.spare <- nil
	return w, nil
}

// remedy is what to do about records and files of the scan that are damaged.
func (o *Options) remedy() string {
	if o.Source != nil {
		return commit.ManifestRemedy // whose sites are not asked
	}
	return commit.DamageRemedy
}

// announce writes the manifest of the scan that runs from now on, and begins what is kept beside it. Begin comes second, since
// it goes by when the scan was started; and a restart is one until Begin has heard of it, whenever it is killed.
func (w *Writer) announce(ctx context.Context, past *commit.History) error {
	o, m := &w.options, w.manifest
	restarted := m.Restarting
	m.Restarting = restarted && o.Sidecar != nil
	if err := m.Write(ctx, w.store); err != nil || o.Sidecar == nil {
		return err
	}
	err := o.Sidecar.Begin(ctx, SidecarScan{
		ID: o.ScanID, Shard: o.Shard, StartedAt: m.StartedAt, Restarted: restarted, Next: w.next,
		Counts: func(part int) bool { return past.Counts(o.Shard, part) },
	})
	if err != nil || !restarted {
		return err
	}
	m.Restarting = false
	return m.Write(ctx, w.store)
}

// deleteScan deletes all that a scan has written but its new manifest, which first of all says so: if it is broken off here,
// whoever opens the scan next goes on with it. What counts at any moment is the scan as it was, perhaps without the
// statistics that were computed from it, or nothing of it: one record of no part takes all commits out at once, and stays.
func deleteScan(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *commit.Manifest) error {
	fail := func(err error) error { return fmt.Errorf("cannot restart scan %s: %w", o.ScanID, err) }
	if err := m.Write(ctx, st); err != nil {
		return fail(err)
	}
	lease, leased := lock.(store.Lease)
	late := leased && lease.Late()
	past, parts := commit.UsedNumbers(ctx, st, o.ScanID)
	past, err := commit.Fence(ctx, st, lock, o.tombstone(commit.Restarted), "", past, o.Shard, commit.CompactedShard)
	if err != nil {
		return fail(err)
	}
	// Nor is a number given again that a part has, which may have been the late one's.
	for shard, last := range parts {
		for late && past.Next(shard) <= last+1 {
			tombstone, err := commit.NewTombstone(o.tombstone(commit.Restarted), shard, past.Next(shard))
			if err == nil {
				err = tombstone.Write(ctx, st)
			}
			if err != nil && !errors.Is(err, store.ErrExist) {
				return fail(err)
			}
			past.Tombstones = append(past.Tombstones, *tombstone)
		}
	}
	remove := func(prefix string, ours func(name string) bool) error {
		names, err := commit.SweepAndList(ctx, st, prefix, ours)
		for _, name := range names {
			if err == nil {
				err = st.Delete(ctx, name)
			}
		}
		return err
	}
	// Statistics go by records and files of their own: while they count, so do the commits that they are of.
	for _, table := range []string{schema.TokenStats, schema.RecordStats} {
		record := commit.FileRecordName(o.ScanID, table)
		err := remove(record, func(name string) bool { return name == record })
		if err == nil {
			// These names have no shard and no number, so that the id of another scan may look like ours with both.
			err = remove(table+"/", func(name string) bool { return path.Base(name) == path.Base(commit.StatsName(table, "", o.ScanID)) })
		}
		if err != nil {
			return fail(err)
		}
	}
	records, err := takeOutAll(ctx, st, o, past)
	if err != nil {
		return fail(err)
	}
	for _, table := range schema.AllTables {
		err := remove(table+"/", func(name string) bool {
			id, _, _, ok := commit.SplitPart(path.Base(name))
			return ok && id == o.ScanID
		})
		if err != nil {
			return fail(err)
		}
	}
	if err := remove(commit.FilesFolder(o.ScanID), commit.Everything); err != nil {
		return fail(err)
	}
	for _, name := range append(records, commit.RejectsName(o.ScanID)) {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// takeOutAll takes out all commits of a scan that is begun anew, and returns all its records but those that are of no part, to be
// deleted.
func takeOutAll(ctx context.Context, st store.Store, o *Options, past *commit.History) (records []string, err error) {
	keeps := map[string]bool{}
	for i := range past.Tombstones {
		keeps[past.Tombstones[i].Name()] = true
	}
	names, err := commit.SweepAndList(ctx, st, commit.CommitsFolder(o.ScanID), commit.Everything)
	if err != nil {
		return nil, err
	}
	counts := past.Stale() // what compactions had replaced is taken out too
	for _, name := range names {
		if keeps[name] {
			continue
		}
		records = append(records, name)
		// What is called otherwise is no record of ours.
		if key, ok := commit.KeyOf(name); ok {
			counts[key] = true
		}
	}
	for key := range (&commit.History{Tombstones: past.Tombstones}).Stale() { // by restarts and repairs before
		delete(counts, key)
	}
	if len(counts) == 0 {
		return records, nil
	}
	record, err := commit.TakeOut(ctx, st, o.tombstone(commit.Restarted), past, counts)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(name string) bool { return name == record.Name() }), nil
}

// cleanShard deletes the files that this shard left without a commit, and what a compaction left, and checks that those
// with a commit are there: to resume on top of a damaged dataset would hide the damage.
func cleanShard(ctx context.Context, st store.Store, o *Options, past *commit.History) error {
	fail := func(err error) error { return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err) }
	if err := st.Sweep(ctx, commit.ScanFolder(o.ScanID), commit.Everything); err != nil {
		return fail(err)
	}
	if err := commit.SweepFiles(ctx, st, commit.StatsName(schema.TokenStats, o.Date, o.ScanID), commit.StatsName(schema.RecordStats, o.Date, o.ScanID), views.Name); err != nil {
		return fail(err)
	}
	damaged, err := commit.ClearParts(ctx, st, o.ScanID, o.Date, past, []string{o.Shard, commit.CompactedShard})
	if err != nil {
		return fail(err)
	}
	if len(damaged) > 0 {
		return fail(fmt.Errorf("%d committed files are missing or have another size, the first is %s; %s", len(damaged), damaged[0], o.remedy()))
	}
	return nil
}

// ScanDate is the partition that the scan's parts go to.
func (w *Writer) ScanDate() string { return w.options.Date }

// Done reports whether an earlier run of the scan has committed the origin of that line.
func (w *Writer) Done(seq uint64) bool { return w.done.Contains(seq) }

// DoneAmong returns how many of these lines an earlier run has committed.
func (w *Writer) DoneAmong(seqs *roaring64.Bitmap) uint64 { return w.done.AndCardinality(seqs) }

// DoneCount is how many origins earlier runs have committed.
func (w *Writer) DoneCount() uint64 { return w.done.GetCardinality() }

// LostCount is how many sites the scan had when it was complete and had lost when it was opened.
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

// Add keeps a site: it copies all that it needs, so the site may be reused when it returns. It waits while the part before is
// being sealed, so that there is never more than one part to lose, and GiveUp ends that. An error is the run's: nothing is kept
// after it, and every later Add returns it.
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

// begin opens a part, as soon as the one before is sealed. The lock is held.
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

// roll takes the open part away and seals it in the background. It is spare again when it is committed: so commits are in
// order, and none follows one that failed. The lock is held.
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

// seal publishes a part's files, and what is kept beside them, and then commits them.
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

// Flush commits the open part, whatever its size, and waits until every part is committed. When the context ends
// before, what is being sealed is given up, as by Abort.
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
		w.cancel() // at once: what AfterFunc starts may come when all is sealed
	}
	defer context.AfterFunc(ctx, w.cancel)()
	if w.open != nil {
		w.roll()
	}
	w.rest()
	return w.failure()
}

// rest waits until no part is being sealed. The lock is held, and no part is open.
func (w *Writer) rest() {
	w.spare <- <-w.spare
}

// Complete commits the open part and marks the scan as complete in its manifest: every line of its inputs is a row or
// a reject, and whatever else is written of the scan, its rejects and statistics, has been published. What drafts have left
// behind is removed: on a remote, one whose beginning was heard and not answered.
func (w *Writer) Complete(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return commit.ErrClosed
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	id, date := w.options.ScanID, w.options.Date
	err := errors.Join(
		commit.SweepParts(ctx, w.store, id, date),
		commit.SweepFiles(ctx, w.store, commit.RejectsName(id), commit.StatsName(schema.TokenStats, date, id), commit.StatsName(schema.RecordStats, date, id), views.Name))
	if err != nil {
		return err
	}
	commits, err := commit.Commits(ctx, w.store, id)
	if err != nil {
		return err
	}
	recorded, err := commit.ListFileRecords(ctx, w.store, id)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	w.manifest.State, w.manifest.FinishedAt, w.manifest.Counts, w.manifest.Recorded = commit.Complete, &now, commit.CountCommits(commits), recorded
	w.manifest.Repairing = false
	return w.manifest.Write(ctx, w.store)
}

// Close commits the open part and gives the scan's lock back. It does not complete the scan: one that was interrupted
// resumes. Closing again does nothing.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	err := w.flush(ctx)
	return errors.Join(err, w.end())
}

// GiveUp ends the waiting for the store: what is open or being sealed is not committed any more, unless it is at this moment,
// and an Add that waits for it returns, as every later one does, an error that is context.Canceled. It waits for nobody, so
// that it may be called while an Add does. Close or Abort is still to be called.
func (w *Writer) GiveUp() {
	_ = w.setFailure(context.Canceled) // the next Add, or Close, returns it
	w.cancel()
}

// Abort drops the open part, gives up what is being sealed, and gives the lock back. What was committed stays.
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
	w.rest()
	return errors.Join(err, w.end())
}

// end closes the Writer for good. The lock is held, and no part is open or being sealed.
func (w *Writer) end() error {
	w.closed = true
	w.cancel()
	return w.lock.Unlock()
}
