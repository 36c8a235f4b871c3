// Package sink answers one question: what do we keep? It keeps judged sites as a dataset: tables in Parquet, written
// in parts, each part committed as a whole; and it reads them back.
//
// The package is laid out as a site's way into the dataset is: rows.go is the schema and schema.go describes it;
// copy.go turns a site into rows; part.go is a set of open files; this file decides when a part is full, seals it and
// commits it; commit.go and manifest.go are the records beside the tables; read.go reads; jsonl.go is the other sink,
// a JSON line a site.
//
// What may be relied on. A file that a commit names is complete and stays as it is. A scan that is killed at any moment
// loses at most its open part and the one that is being sealed; what it left without a commit is deleted when the scan
// resumes. Resuming skips exactly the union of the commits' bitmaps.
package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/store"
)

// Options say which scan is written, and how.
type Options struct {
	ScanID string // see CheckScanID
	Date   string // scan_date of a scan that starts now, YYYY-MM-DD; "" is today in UTC; a resumed scan keeps its own
	Shard  string // letters and digits; "" is "0"

	Tables   []string      // of TableSites, TableVerdicts, TableEvidence, TableBodies; nil is all four
	PartRows int           // a part is full at so many origins; 0 is 50,000
	PartAge  time.Duration // or so long after its first; 0 is 5 minutes

	ToolVersion string
	Registry    *tokens.Registry // that judged the sites; nil is tokens.Default()

	Config  []Setting // as given, for the manifest
	Inputs  []Input   // for the manifest
	Restart bool      // delete what the scan has written before, and begin anew
}

// The defaults of Options.
const (
	DefaultPartRows = 50_000
	DefaultPartAge  = 5 * time.Minute
)

// AllTables are the tables that a scan writes.
var AllTables = []string{TableSites, TableVerdicts, TableEvidence, TableBodies}

// complete fills in defaults and checks the rest.
func (o *Options) complete(now time.Time) error {
	if o.Shard == "" {
		o.Shard = "0"
	}
	if o.Date == "" {
		o.Date = now.UTC().Format(time.DateOnly)
	}
	if o.Tables == nil {
		o.Tables = AllTables
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
	if err := errors.Join(CheckScanID(o.ScanID), checkShard(o.Shard), checkDate(o.Date)); err != nil {
		return err
	}
	if len(o.Tables) == 0 {
		return errors.New("no table to write")
	}
	for i, t := range o.Tables {
		if !slices.Contains(AllTables, t) || slices.Contains(o.Tables[:i], t) {
			return fmt.Errorf("cannot write table %.40q: the tables are %s, each once", t, strings.Join(AllTables, ", "))
		}
	}
	if o.PartRows < 0 || o.PartAge < 0 {
		return fmt.Errorf("a part of %d rows or %v", o.PartRows, o.PartAge)
	}
	return nil
}

// Writer writes one scan's dataset. Its methods may be called from several goroutines.
type Writer struct {
	store    store.Store
	options  Options
	manifest *Manifest
	lock     store.Unlocker
	done     *roaring64.Bitmap // finished before this Writer

	ctx    context.Context // of all writing; ends with Abort
	cancel context.CancelFunc
	spare  chan *part // parts that are neither filled nor sealed; both, when the Writer is at rest; nil: not made yet

	mu     sync.Mutex
	open   *part         // being filled; nil before the first row after a seal
	next   int           // number of the next part
	sealed chan struct{} // closed when the part rolled last is committed; nil before the first
	age    *time.Timer
	closed bool

	fail sync.Mutex
	err  error // the first failure; every later call returns it
}

// Open takes the scan's lock, begins its manifest or compares it, deletes what its shard left without a commit, and
// returns a Writer. The context bounds the opening; its values, not its end, go with the Writer.
//
// The errors to tell apart: *HeldError where another process writes the scan, *ChangedError where it cannot be
// resumed.
func Open(ctx context.Context, st store.Store, o Options) (_ *Writer, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	if err := o.complete(now); err != nil {
		return nil, fmt.Errorf("cannot open the dataset: %w", err)
	}
	lock, err := takeLock(ctx, st, o.ScanID, now)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Unlock())
		}
	}()
	if o.Restart {
		if err := deleteScan(ctx, st, o.ScanID); err != nil {
			return nil, err
		}
	}
	manifest, err := loadManifest(ctx, st, &o, now)
	if err != nil {
		return nil, err
	}
	o.Date = manifest.ScanDate
	commits, err := Commits(ctx, st, o.ScanID)
	if err != nil {
		return nil, err
	}
	if err := cleanShard(ctx, st, &o, commits); err != nil {
		return nil, err
	}
	w := &Writer{store: st, options: o, manifest: manifest, lock: lock, done: roaring64.New(), spare: make(chan *part, 2)}
	for i := range commits {
		finished, err := commits[i].Bitmap()
		if err != nil {
			return nil, err
		}
		w.done.Or(finished)
		if commits[i].Shard == o.Shard {
			w.next = max(w.next, commits[i].N+1)
		}
	}
	manifest.State, manifest.FinishedAt, manifest.Counts = Running, nil, nil
	if err := manifest.write(ctx, st); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.spare <- nil
	w.spare <- nil
	return w, nil
}

// HeldError says that another process writes the scan.
type HeldError struct {
	ScanID string
	Holder Holder
}

// Holder is who holds a scan's lock, as it said itself.
type Holder struct {
	PID       int       `json:"pid"`
	Host      string    `json:"host"`
	StartedAt time.Time `json:"started_at"`
}

func (e *HeldError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("scan %s is being written by another process; wait for it, or give another --scan-id", e.ScanID)
	}
	return fmt.Sprintf("scan %s is being written by process %d on %.100q since %s; wait for it, or give another --scan-id",
		e.ScanID, e.Holder.PID, e.Holder.Host, e.Holder.StartedAt.Format(time.RFC3339))
}

func takeLock(ctx context.Context, st store.Store, scanID string, now time.Time) (store.Unlocker, error) {
	host, _ := os.Hostname() // a lock without a host still says the process
	text, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, StartedAt: now})
	if err != nil {
		return nil, fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	lock, err := st.Lock(ctx, lockName(scanID), text)
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		e := &HeldError{ScanID: scanID}
		// Its holder may be about to write the text, so that it cannot be read: then the error names nobody.
		_ = json.Unmarshal(held.Holder, &e.Holder)
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock scan %s: %w", scanID, err)
	}
	return lock, nil
}

// deleteScan deletes all that a scan has written, in an order that leaves a valid dataset at every moment: a scan that
// was complete is so no more, without its commits no file of the scan counts, and without its manifest there is no scan.
func deleteScan(ctx context.Context, st store.Store, scanID string) error {
	fail := func(err error) error { return fmt.Errorf("cannot restart scan %s: %w", scanID, err) }
	// A manifest that cannot be read calls nothing complete, and goes like the rest.
	if m, err := ReadManifest(ctx, st, scanID); err == nil && m.State == Complete {
		m.State, m.FinishedAt, m.Counts = Running, nil, nil
		if err := m.write(ctx, st); err != nil {
			return fail(err)
		}
	}
	var names []string
	collect := func(prefix string, ours func(name string) bool) error {
		if err := st.Sweep(ctx, prefix, ours); err != nil {
			return fail(err)
		}
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return fail(err)
			}
			if ours(entry.Name) {
				names = append(names, entry.Name)
			}
		}
		return nil
	}
	if err := collect(commitsFolder(scanID), everything); err != nil {
		return err
	}
	for _, table := range AllTables {
		err := collect(table+"/", func(name string) bool {
			id, _, _, ok := splitPart(path.Base(name))
			return ok && id == scanID
		})
		if err != nil {
			return err
		}
	}
	for _, table := range []string{TableTokenStats, TableRecordStats} {
		// These names have no shard and no number, so that the id of another scan may look like ours with both.
		err := collect(table+"/", func(name string) bool { return path.Base(name) == path.Base(StatsName(table, "", scanID)) })
		if err != nil {
			return err
		}
	}
	names = append(names, rejectsName(scanID), manifestName(scanID))
	for _, name := range names {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// everything is for folders that are one scan's alone.
func everything(string) bool { return true }

// cleanShard deletes the files that this shard left without a commit, and checks that those with one are there: to
// resume on top of a damaged dataset would hide the damage.
func cleanShard(ctx context.Context, st store.Store, o *Options, commits []Commit) error {
	committed := map[string]int64{}
	for _, c := range commits {
		for _, f := range c.Files {
			committed[f.Name] = f.Bytes
		}
	}
	if err := st.Sweep(ctx, scanFolder(o.ScanID), everything); err != nil {
		return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
	}
	for _, table := range []string{TableTokenStats, TableRecordStats} {
		statistics := StatsName(table, o.Date, o.ScanID)
		if err := st.Sweep(ctx, statistics, func(name string) bool { return name == statistics }); err != nil {
			return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
		}
	}
	claimed := commitsFolder(o.ScanID) + o.Shard + "-"
	for entry, err := range st.List(ctx, claimed) {
		if err == nil && entry.Size == 0 {
			err = st.Delete(ctx, entry.Name)
		}
		if err != nil {
			return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
		}
	}
	ours := func(name string) bool {
		id, shard, _, ok := splitPart(path.Base(name))
		return ok && id == o.ScanID && shard == o.Shard
	}
	for _, table := range AllTables {
		prefix := partitionFolder(table, o.Date) + "part-" + o.ScanID + "-"
		if err := st.Sweep(ctx, prefix+o.Shard+"-", ours); err != nil {
			return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
		}
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
			}
			if size, ok := committed[entry.Name]; ok {
				if size == entry.Size {
					delete(committed, entry.Name)
				}
				continue
			}
			if ours(entry.Name) {
				if err := st.Delete(ctx, entry.Name); err != nil {
					return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err)
				}
			}
		}
	}
	if len(committed) == 0 {
		return nil
	}
	damaged := make([]string, 0, len(committed))
	for name := range committed {
		damaged = append(damaged, name)
	}
	return fmt.Errorf("cannot resume scan %s: %d committed files are missing or have another size, the first is %s; see bulkscan verify",
		o.ScanID, len(damaged), slices.Min(damaged))
}

// ScanDate is the partition that the scan's parts go to.
func (w *Writer) ScanDate() string { return w.options.Date }

// Done reports whether an earlier run of the scan has committed the origin of that line.
func (w *Writer) Done(seq uint64) bool { return w.done.Contains(seq) }

// DoneCount is how many origins earlier runs have committed.
func (w *Writer) DoneCount() uint64 { return w.done.GetCardinality() }

var errClosed = errors.New("the dataset is closed")

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
		w.err = err
	}
	return w.err
}

// Add keeps a site: it copies all that it needs, so the site may be reused when it returns. It waits only where a part
// is full while the part before it is still being sealed. An error is the run's: nothing is kept after it, and every
// later Add returns it.
func (w *Writer) Add(s *audit.Site) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
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
	if len(w.open.seqs) >= w.options.PartRows {
		w.roll()
	}
	return nil
}

// begin opens a part, as soon as one is spare. The lock is held.
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

// roll takes the open part away and seals it in the background, after the part before it: commits are in order, and
// none follows one that failed. The lock is held.
func (w *Writer) roll() {
	p, before, sealed := w.open, w.sealed, make(chan struct{})
	w.open, w.sealed = nil, sealed
	w.age.Stop()
	go func() {
		if before != nil {
			<-before
		}
		if err := w.seal(p); err != nil {
			_ = w.setFailure(err) // the next Add, or Close, returns it
		}
		close(sealed)
		w.spare <- p
	}()
}

// seal publishes a part's files and then commits them.
func (w *Writer) seal(p *part) (err error) {
	defer func() { err = errors.Join(err, p.discard()) }()
	if err := w.failure(); err != nil {
		return err
	}
	files, err := p.seal(w.ctx)
	if err != nil {
		return err
	}
	finished := roaring64.BitmapOf(p.seqs...)
	finished.RunOptimize()
	bitmap, err := finished.ToBytes()
	if err != nil {
		return fmt.Errorf("cannot commit part %d: %w", p.n, err)
	}
	commit := Commit{
		SchemaVersion: SchemaVersion, ToolVersion: w.options.ToolVersion, RegistryVersion: w.options.Registry.Version,
		ScanID: w.options.ScanID, Shard: w.options.Shard, N: p.n,
		CommittedAt: time.Now().UTC().Truncate(time.Millisecond),
		Rows:        int64(finished.GetCardinality()), Files: files, Finished: bitmap,
	}
	return commit.write(w.ctx, w.store)
}

// Flush commits the open part, whatever its size, and waits until every part is committed. When the context ends
// before, what is being sealed is given up, as by Abort.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	return w.flush(ctx)
}

// flush is Flush under the lock.
func (w *Writer) flush(ctx context.Context) error {
	defer context.AfterFunc(ctx, w.cancel)()
	if w.open != nil {
		w.roll()
	}
	w.rest()
	return w.failure()
}

// rest waits until no part is being sealed. The lock is held, and no part is open.
func (w *Writer) rest() {
	a, b := <-w.spare, <-w.spare
	w.spare <- a
	w.spare <- b
}

// Complete commits the open part and marks the scan as complete in its manifest: every line of its inputs is a row or
// a reject.
func (w *Writer) Complete(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	commits, err := Commits(ctx, w.store, w.options.ScanID)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	w.manifest.State, w.manifest.FinishedAt, w.manifest.Counts = Complete, &now, countCommits(commits)
	return w.manifest.write(ctx, w.store)
}

func countCommits(commits []Commit) *Counts {
	counts := &Counts{Parts: len(commits), Files: map[string]int64{}}
	for _, c := range commits {
		counts.Rows += c.Rows
		for _, f := range c.Files {
			counts.Bytes += f.Bytes
			counts.Files[f.Table] += f.Rows
		}
	}
	return counts
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
