// Package sink answers one question: what do we keep? It keeps judged sites as a dataset: tables in Parquet, written
// in parts, each part committed as a whole; and it reads them back.
//
// The package is laid out as a site's way into the dataset is: rows.go is the schema and schema.go describes it;
// copy.go turns a site into rows; part.go is a set of open files; this file decides when a part is full, seals it and
// commits it; commit.go and manifest.go are the records beside the tables, record.go how they are sealed; read.go and
// cursor.go read; rejudge.go makes a scan of a stored one, whose bodies it has judged again (stored.go reads
// its parts); compact.go merges parts, whose pages splice.go copies; tail.go ends every file of a table; verify.go
// holds all of it against the records; views.go writes the views for DuckDB; jsonl.go is the other sink, a JSON line a site.
//
// What may be relied on. A file that a commit names is complete and stays as it is. A scan that is killed at any moment
// loses at most one part, which was open or being sealed; what it left without a commit is deleted when the scan
// resumes. Resuming skips exactly the union of the commits' bitmaps.
package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	PartRows int           // a part is full at so many origins, or earlier where they are large; 0 is 50,000
	PartAge  time.Duration // or so long after its first; 0 is 5 minutes

	ToolVersion string
	Registry    *tokens.Registry // that judged the sites; nil is tokens.Default()

	Config  []Setting // as given, for the manifest
	Inputs  []Input   // for the manifest
	Restart bool      // delete what the scan has written before, and begin anew
	Repair  bool      // take out what of it is damaged or lost, so that it is asked again (see repair.go)
	Beside  Beside    // nil: nothing is kept beside the tables

	rejudged   *RejudgedScan // what the scan is made of; nil where sites are asked
	groupBytes int           // 0 is the constant; tests have smaller ones
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

// Beside keeps what belongs to a scan and stands in no table, and commits it with the parts: what it has when a part is
// cut is published before the part is committed.
type Beside interface {
	// Begin is called once, with the scan's lock held, before the first Add. What was published with parts that do not
	// count is to be deleted.
	Begin(ctx context.Context, of BesideScan) error
	// Cut ends what is kept with the part of that number, whose rows have all been added. What it returns publishes it, and
	// is called once, in the order of the parts, or not at all.
	Cut(part int) (publish func(ctx context.Context) error)
}

// BesideScan is the scan that something is kept beside.
type BesideScan struct {
	ID, Shard string
	StartedAt time.Time // tells it from others of that name; a resumed scan's is that of its first run
	Restarted bool      // what an earlier one of that name has left is to be deleted
	Next      int       // number of the first part that will be cut; each is one more
	Counts    func(part int) bool
}

// void is what a record of no part has in common with the commits of the scan.
func (o *Options) void(why Void) Commit {
	return Commit{SchemaVersion: SchemaVersion, ToolVersion: o.ToolVersion, RegistryVersion: o.Registry.Version, ScanID: o.ScanID, Void: why}
}

// Writer writes one scan's dataset. Its methods may be called from several goroutines.
type Writer struct {
	store    store.Store
	options  Options
	manifest *Manifest
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
	lock, err := takeLock(ctx, st, o.ScanID, "", now)
	if err != nil {
		return nil, BrokenOff(o.ScanID, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(BrokenOff(o.ScanID, err), lock.Unlock())
		}
	}()
	manifest, err := loadManifest(ctx, st, &o, now)
	if err != nil {
		return nil, remedied(err, manifestRemedy)
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
	past, err := readHistory(ctx, st, o.ScanID)
	if err != nil {
		return nil, remedied(err, o.remedy())
	}
	if manifest.ResumedAt == nil && !manifest.Restarting { // there was none
		if n := len(past.current) + len(past.replaced); n > 0 {
			return nil, fmt.Errorf("cannot resume scan %s: %s is missing, and there are %d commits; %s", o.ScanID, manifestName(o.ScanID), n, manifestRemedy)
		}
		if lease, ok := lock.(store.Lease); ok {
			lease.Fenced() // nobody writes a scan that has no manifest
		}
	}
	if past, err = fence(ctx, st, lock, o.void(TakenOver), o.Date, past, o.Shard, compactedShard); err != nil {
		return nil, err
	}
	if lost := past.lost(manifest); lost != nil && !o.Repair { // before anything is deleted because no commit names it
		if o.rejudged == nil {
			return nil, fmt.Errorf("cannot resume scan %s: %w", o.ScanID, lost)
		}
		// What is made of stored sites is made of them again.
		if err := repair(ctx, st, lock, &o, manifest); err != nil {
			return nil, err
		}
		if past, err = readHistory(ctx, st, o.ScanID); err != nil {
			return nil, err
		}
	}
	if err := cleanShard(ctx, st, &o, past); err != nil {
		return nil, err
	}
	w := &Writer{store: st, options: o, manifest: manifest, lock: lock, next: past.next(o.Shard), spare: make(chan *part, 1)}
	if w.done, err = sitesOf(past.current); err != nil {
		return nil, fmt.Errorf("%w; %s", err, o.remedy())
	}
	if manifest.Counts != nil {
		w.lost = max(0, manifest.Counts.Rows-int64(w.done.GetCardinality()))
	}
	manifest.State, manifest.FinishedAt, manifest.Counts, manifest.Recorded = Running, nil, nil, nil
	manifest.Repairing = manifest.Repairing || o.Repair
	if err := w.announce(ctx, past); err != nil {
		return nil, err
	}
	if err := writeViews(ctx, st, o.Registry); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.spare <- nil
	return w, nil
}

// remedy is what to do about records and files of the scan that are damaged.
func (o *Options) remedy() string {
	if o.rejudged != nil {
		return manifestRemedy // whose sites are not asked
	}
	return damageRemedy
}

// remedied says what to do about a record, or a file, that is not as it was written.
func remedied(err error, remedy string) error {
	if _, damaged := errors.AsType[*damagedError](err); damaged || errors.Is(err, errRecord) {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

// announce writes the manifest of the scan that runs from now on, and begins what is kept beside it. Begin comes second, since
// it goes by when the scan was started; and a restart is one until Begin has heard of it, whenever it is killed.
func (w *Writer) announce(ctx context.Context, past *history) error {
	o, m := &w.options, w.manifest
	restarted := m.Restarting
	m.Restarting = restarted && o.Beside != nil
	if err := m.write(ctx, w.store); err != nil || o.Beside == nil {
		return err
	}
	err := o.Beside.Begin(ctx, BesideScan{
		ID: o.ScanID, Shard: o.Shard, StartedAt: m.StartedAt, Restarted: restarted, Next: w.next,
		Counts: func(part int) bool { return past.counts(o.Shard, part) },
	})
	if err != nil || !restarted {
		return err
	}
	m.Restarting = false
	return m.write(ctx, w.store)
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
	Doing     string    `json:"doing,omitempty"` // "compact", "stats"; "" is to scan
}

func (e *HeldError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("scan %s is being written by another process; wait for it, or give another --scan-id", e.ScanID)
	}
	what, remedy := "is being written", "wait for it, or give another --scan-id"
	switch e.Holder.Doing {
	case doingCompact:
		what, remedy = "is being compacted", "wait for it"
	case doingStats:
		what, remedy = "is being counted for its statistics", "wait for it"
	}
	return fmt.Sprintf("scan %s %s by process %d on %.100q since %s; %s",
		e.ScanID, what, e.Holder.PID, e.Holder.Host, e.Holder.StartedAt.Format(time.RFC3339), remedy)
}

// StoreError says that a scan broke off because its dataset could not be written, which is nothing that is wrong with the
// dataset.
type StoreError struct {
	ScanID string
	Err    error
}

func (e *StoreError) Error() string {
	if errors.Is(e.Err, store.ErrLockLost) {
		return fmt.Sprintf("%v; everything committed is kept, and that one goes on with scan %s", e.Err, e.ScanID)
	}
	remedy, _ := remedyFor(e.Err)
	return fmt.Sprintf("%v; %severything committed is kept, and the same command resumes scan %s", e.Err, remedy, e.ScanID)
}

func (e *StoreError) Unwrap() error { return e.Err }

// BrokenOff makes an error a *StoreError where it is one for certain: that there is no room, or that one may not write.
// What else goes wrong with a dataset may be damage, which is there to stay.
func BrokenOff(scanID string, err error) error {
	_, is := errors.AsType[*StoreError](err)
	if _, certain := remedyFor(err); is || !certain || errors.Is(err, store.ErrLockLost) {
		return err
	}
	return &StoreError{ScanID: scanID, Err: err}
}

// remedyFor says what to do about an error of the operating system before a scan is resumed, and whether an error is for
// certain one of the store's. What a server refuses or does not answer names its remedy itself.
func remedyFor(err error) (remedy string, certain bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room there: ", true
	case errors.Is(err, store.ErrUnavailable):
		return "", true
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		if _, local := errors.AsType[syscall.Errno](err); local {
			remedy = "make it writable: "
		}
		return remedy, true
	}
	return "", false
}

// What to do about records and files that are missing, or not as they were written; and about a manifest, without which
// nothing tells of which lists the scan is.
const (
	damageRemedy   = "put back what was there, see bulkscan verify; or have what is lost asked again by scan --repair; or begin the scan anew with --restart"
	manifestRemedy = "put back what was there, see bulkscan verify, or begin the scan anew with --restart"
)

// What is done with the lock, but to scan.
const (
	doingCompact = "compact"
	doingStats   = "stats"
)

// lockScan takes the lock of a scan that is there, to do something else with it than to scan, and reads its manifest.
func lockScan(ctx context.Context, st store.Store, scanID, doing string) (store.Unlocker, *Manifest, error) {
	// Before the lock, which would make a folder for a scan that is none.
	if _, err := ReadManifest(ctx, st, scanID); err != nil {
		return nil, nil, err
	}
	lock, err := takeLock(ctx, st, scanID, doing, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	m, err := ReadManifest(ctx, st, scanID)
	if err == nil && m.Restarting {
		err = fmt.Errorf("scan %s is being begun anew, and that was broken off; give the command that scans it again", scanID)
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return lock, m, nil
}

func takeLock(ctx context.Context, st store.Store, scanID, doing string, now time.Time) (store.Unlocker, error) {
	host, _ := os.Hostname() // a lock without a host still says the process
	text, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, StartedAt: now, Doing: doing})
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

// deleteScan deletes all that a scan has written but its new manifest, which first of all says so: if it is broken off here,
// whoever opens the scan next goes on with it. What counts at any moment is the scan as it was, perhaps without the
// statistics that were computed from it, or nothing of it: one record of no part takes all commits out at once, and stays.
func deleteScan(ctx context.Context, st store.Store, lock store.Unlocker, o *Options, m *Manifest) error {
	fail := func(err error) error { return fmt.Errorf("cannot restart scan %s: %w", o.ScanID, err) }
	if err := m.write(ctx, st); err != nil {
		return fail(err)
	}
	lease, leased := lock.(store.Lease)
	late := leased && lease.Late()
	past, parts := usedNumbers(ctx, st, o.ScanID)
	past, err := fence(ctx, st, lock, o.void(Restarted), "", past, o.Shard, compactedShard)
	if err != nil {
		return fail(err)
	}
	// Nor is a number given again that a part has, which may have been the late one's.
	for shard, last := range parts {
		for late && past.next(shard) <= last+1 {
			void, err := voidRecord(o.void(Restarted), shard, past.next(shard))
			if err == nil {
				err = void.write(ctx, st)
			}
			if err != nil && !errors.Is(err, store.ErrExist) {
				return fail(err)
			}
			past.void = append(past.void, *void)
		}
	}
	remove := func(prefix string, ours func(name string) bool) error {
		names, err := sweepAndList(ctx, st, prefix, ours)
		for _, name := range names {
			if err == nil {
				err = st.Delete(ctx, name)
			}
		}
		return err
	}
	// Statistics go by records and files of their own: while they count, so do the commits that they are of.
	for _, table := range []string{TableTokenStats, TableRecordStats} {
		record := fileRecordName(o.ScanID, table)
		err := remove(record, func(name string) bool { return name == record })
		if err == nil {
			// These names have no shard and no number, so that the id of another scan may look like ours with both.
			err = remove(table+"/", func(name string) bool { return path.Base(name) == path.Base(StatsName(table, "", o.ScanID)) })
		}
		if err != nil {
			return fail(err)
		}
	}
	records, err := takeOutAll(ctx, st, o, past)
	if err != nil {
		return fail(err)
	}
	for _, table := range AllTables {
		err := remove(table+"/", func(name string) bool {
			id, _, _, ok := splitPart(path.Base(name))
			return ok && id == o.ScanID
		})
		if err != nil {
			return fail(err)
		}
	}
	if err := remove(filesFolder(o.ScanID), everything); err != nil {
		return fail(err)
	}
	for _, name := range append(records, rejectsName(o.ScanID)) {
		if err := st.Delete(ctx, name); err != nil {
			return fail(err)
		}
	}
	return nil
}

// takeOutAll takes out all commits of a scan that is begun anew, and returns all its records but those that are of no part, to be
// deleted.
func takeOutAll(ctx context.Context, st store.Store, o *Options, past *history) (records []string, err error) {
	keeps := map[string]bool{}
	for i := range past.void {
		keeps[past.void[i].name()] = true
	}
	names, err := sweepAndList(ctx, st, commitsFolder(o.ScanID), everything)
	if err != nil {
		return nil, err
	}
	counts := past.stale() // what compactions had replaced is taken out too
	for _, name := range names {
		if keeps[name] {
			continue
		}
		records = append(records, name)
		// What is called otherwise is no record of ours.
		if key, ok := commitKeyOf(name); ok {
			counts[key] = true
		}
	}
	for key := range (&history{void: past.void}).stale() { // by restarts and repairs before
		delete(counts, key)
	}
	if len(counts) == 0 {
		return records, nil
	}
	record, err := takeOut(ctx, st, o.void(Restarted), past, counts)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(name string) bool { return name == record.name() }), nil
}

// sweepAndList removes what drafts of these objects have left behind, and lists the objects.
func sweepAndList(ctx context.Context, st store.Store, prefix string, ours func(name string) bool) (names []string, err error) {
	if err := st.Sweep(ctx, prefix, ours); err != nil {
		return nil, err
	}
	for entry, err := range st.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if ours(entry.Name) {
			names = append(names, entry.Name)
		}
	}
	return names, nil
}

// usedNumbers is a scan's history as far as it can be told from the names of records too, where they cannot be read: which
// shards there are, and which numbers they have had. Parts are the last numbers, by shard, that files have. Whatever is wrong
// with the store is seen by who deletes there.
func usedNumbers(ctx context.Context, st store.Store, scanID string) (past *history, parts map[string]int) {
	past, err := gatherHistory(ctx, st, scanID, func(_ string, c *Commit, err error) (*Commit, error) {
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) || ctx.Err() != nil {
			return nil, err
		}
		return c, nil // a damaged one is left out
	})
	if err != nil {
		past = &history{}
	}
	for entry, err := range st.List(ctx, commitsFolder(scanID)) {
		if err != nil {
			break
		}
		shard, n, ok := shardOf(scanID, "part-"+scanID+"-"+strings.TrimSuffix(path.Base(entry.Name), ".json")+".parquet")
		if ok && n >= past.next(shard) {
			past.current = append(past.current, Commit{ScanID: scanID, Shard: shard, N: n})
		}
	}
	parts, _ = partNumbers(ctx, st, scanID, "")
	return past, parts
}

// partNumbers returns the last numbers, by shard, that files of a scan's parts have, in the partition of a date; "" is any.
func partNumbers(ctx context.Context, st store.Store, scanID, date string) (map[string]int, error) {
	parts := map[string]int{}
	for _, table := range AllTables {
		prefix := table + "/"
		if date != "" {
			prefix = partitionFolder(table, date) + "part-" + scanID + "-"
		}
		for entry, err := range st.List(ctx, prefix) {
			if err != nil {
				return parts, err
			}
			if shard, n, ok := shardOf(scanID, path.Base(entry.Name)); ok {
				parts[shard] = max(parts[shard], n)
			}
		}
	}
	return parts, nil
}

// shardOf reads the name of a part's file; ok is false where it is none of that scan's.
func shardOf(scanID, base string) (shard string, n int, ok bool) {
	id, shard, n, ok := splitPart(base)
	return shard, n, ok && id == scanID && (shard == compactedShard || checkShard(shard) == nil)
}

// everything is for folders that are one scan's alone.
func everything(string) bool { return true }

// cleanShard deletes the files that this shard left without a commit, and what a compaction left, and checks that those
// with a commit are there: to resume on top of a damaged dataset would hide the damage.
func cleanShard(ctx context.Context, st store.Store, o *Options, past *history) error {
	fail := func(err error) error { return fmt.Errorf("cannot resume scan %s: %w", o.ScanID, err) }
	if err := st.Sweep(ctx, scanFolder(o.ScanID), everything); err != nil {
		return fail(err)
	}
	if err := sweepFiles(ctx, st, StatsName(TableTokenStats, o.Date, o.ScanID), StatsName(TableRecordStats, o.Date, o.ScanID), ViewsName); err != nil {
		return fail(err)
	}
	damaged, err := clearParts(ctx, st, o.ScanID, o.Date, past, []string{o.Shard, compactedShard})
	if err != nil {
		return fail(err)
	}
	if len(damaged) > 0 {
		return fail(fmt.Errorf("%d committed files are missing or have another size, the first is %s; %s", len(damaged), damaged[0], o.remedy()))
	}
	return nil
}

// sweepFiles removes what drafts of these files have left behind. There is none in the making, but of the views: who
// writes those minds (see writeViews).
func sweepFiles(ctx context.Context, st store.Store, files ...string) error {
	for _, file := range files {
		if err := st.Sweep(ctx, file, func(name string) bool { return name == file }); err != nil {
			return err
		}
	}
	return nil
}

// sweepParts removes what drafts of a scan's parts have left behind, of all its shards: one that appeared late, of a shard
// that nobody writes any more, would stay. There is none in the making, since the lock is that of all shards.
func sweepParts(ctx context.Context, st store.Store, scanID, date string) error {
	ours := func(name string) bool {
		_, _, ok := shardOf(scanID, path.Base(name))
		return ok
	}
	for _, table := range AllTables {
		if err := st.Sweep(ctx, partitionFolder(table, date)+"part-"+scanID+"-", ours); err != nil {
			return err
		}
	}
	return nil
}

// partFiles lists the files of a scan's parts in the partition of a date, table after table.
func partFiles(ctx context.Context, st store.Store, scanID, date string) (files []store.Entry, err error) {
	for _, table := range AllTables {
		for entry, err := range st.List(ctx, partitionFolder(table, date)+"part-"+scanID+"-") {
			if err != nil {
				return nil, err
			}
			if _, _, ok := shardOf(scanID, path.Base(entry.Name)); ok {
				files = append(files, entry)
			}
		}
	}
	return files, nil
}

// clearParts deletes what died with its process: all drafts, the parts and claimed records of these shards that no commit
// names, and the parts and records of any shard whose rows a compaction has. The scan's lock is held. Where files of the commits
// that count are missing or have another size, it deletes nothing but drafts, and returns them in the order of their names: what
// has been replaced may be all that is left.
func clearParts(ctx context.Context, st store.Store, scanID, date string, past *history, shards []string) (damaged []string, err error) {
	committed := map[string]int64{}
	for i := range past.current {
		for _, f := range past.current[i].Files {
			committed[f.Name] = f.Bytes
		}
	}
	stale := past.stale()
	if err := sweepParts(ctx, st, scanID, date); err != nil {
		return nil, err
	}
	files, err := partFiles(ctx, st, scanID, date)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, entry := range files {
		if size, ok := committed[entry.Name]; ok {
			if size == entry.Size {
				delete(committed, entry.Name)
			}
			continue
		}
		shard, n, _ := shardOf(scanID, path.Base(entry.Name))
		if slices.Contains(shards, shard) || stale[commitKey{shard, n}] {
			dead = append(dead, entry.Name)
		}
	}
	if len(committed) > 0 {
		return slices.Sorted(maps.Keys(committed)), nil
	}
	for i := range past.replaced {
		dead = append(dead, past.replaced[i].name())
	}
	for _, name := range past.claimed {
		for _, shard := range shards {
			if strings.HasPrefix(name, commitsFolder(scanID)+shard+"-") {
				dead = append(dead, name)
			}
		}
	}
	for _, name := range dead {
		if err := st.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// ScanDate is the partition that the scan's parts go to.
func (w *Writer) ScanDate() string { return w.options.Date }

// Done reports whether an earlier run of the scan has committed the origin of that line.
func (w *Writer) Done(seq uint64) bool { return w.done.Contains(seq) }

// DoneCount is how many origins earlier runs have committed.
func (w *Writer) DoneCount() uint64 { return w.done.GetCardinality() }

// LostCount is how many sites the scan had when it was complete and had lost when it was opened.
func (w *Writer) LostCount() int64 { return w.lost }

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
		w.err = &StoreError{ScanID: w.options.ScanID, Err: err}
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
	if w.options.Beside != nil {
		publish = w.options.Beside.Cut(p.n)
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
	commit := Commit{
		SchemaVersion: SchemaVersion, ToolVersion: w.options.ToolVersion, RegistryVersion: w.options.Registry.Version,
		ScanID: w.options.ScanID, Shard: w.options.Shard, N: p.n,
		CommittedAt: time.Now().UTC().Truncate(time.Millisecond),
		Rows:        int64(finished.GetCardinality()), Files: files, Finished: bitmap, Rejudged: p.rejudged,
	}
	if err := commit.write(w.ctx, w.store); err != nil || w.viewed {
		return err
	}
	w.viewed = true // the tables have files from now on
	return writeViews(w.ctx, w.store, w.options.Registry)
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
		return errClosed
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	id, date := w.options.ScanID, w.options.Date
	err := errors.Join(
		sweepParts(ctx, w.store, id, date),
		sweepFiles(ctx, w.store, rejectsName(id), StatsName(TableTokenStats, date, id), StatsName(TableRecordStats, date, id), ViewsName))
	if err != nil {
		return err
	}
	commits, err := Commits(ctx, w.store, id)
	if err != nil {
		return err
	}
	recorded, err := listFileRecords(ctx, w.store, id)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	w.manifest.State, w.manifest.FinishedAt, w.manifest.Counts, w.manifest.Recorded = Complete, &now, countCommits(commits), recorded
	w.manifest.Repairing = false
	return w.manifest.write(ctx, w.store)
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
