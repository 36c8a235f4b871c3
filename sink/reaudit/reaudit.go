// Package reaudit answers one question: how would today's rules and registry judge a stored scan? It reads the scan,
// judges its stored bodies again, writes the result as a scan of the same name to another dataset, and counts the
// differences. It makes no network requests.
//
// A stored part becomes one part, with the same sites in the same order. stored.go reads the tables of a part side by
// side; this file judges each site and adds its rows; compare.go counts the differences. Columns that are not judged
// keep their values. A site whose body was not stored keeps its rows, and the registry version in them.
//
// Parts are made at the same time and committed in order. So a killed run leaves the first parts, and the same command
// makes the others.
package reaudit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Options say how a stored scan is judged again.
type Options struct {
	Judge       func(*audit.Site) // fills Robots and Report, by Fetch alone; called by several goroutines
	Registry    *tokens.Registry  // of Judge; nil is tokens.Default()
	ToolVersion string
	Workers     int  // parts that are made at the same time; 0 is the number of processors, at most 8
	Restart     bool // delete what earlier runs made, and begin anew

	// Kept are bodies of sites, by their hashes, for a scan without the table bodies.
	Kept map[int64][]byte
	// Finish computes tables from all parts before the scan is complete, with the scan's lock held. nil: there are none.
	Finish func(ctx context.Context) error
	// Opened is called once, with the number of sites that earlier runs have left. It may be nil.
	Opened func(sites int64)
	// Done counts sites as they are made. It may be nil.
	Done *atomic.Int64
	Log  *slog.Logger // of waiting for other processes; may be nil

	holdBytes int // tests: of bodies that several sites have, in memory; 0 is holdBodies
}

// maxWorkers bounds the parts that are made at the same time, since each has buffers of its own.
const maxWorkers = 8

// Scan makes a scan of the same name as source in another dataset, or continues with one that was interrupted. It
// returns the counts of all its runs.
//
// The errors to tell apart: *commit.HeldError where another process writes the scan; *commit.ChangedError where earlier
// runs used other sites, another registry or another version; *commit.StoreError where it cannot be written; one or
// more *DamagedPartError where stored parts or the rejects are damaged. In the last case all other parts are made, and
// the scan is not complete.
func Scan(ctx context.Context, source *commit.Scan, to store.Store, o Options) (_ *commit.Rejudged, err error) {
	if err := o.complete(source); err != nil {
		return nil, err
	}
	identity, err := identityOf(source)
	if err != nil {
		return nil, err
	}
	m := source.Manifest
	largest := int64(1) // part, for which the buffers are made
	for i := range source.Commits {
		largest = max(largest, min(source.Commits[i].Rows, sink.DefaultPartRows))
	}
	w, err := sink.Open(ctx, to, sink.Options{
		ScanID: m.ScanID, Date: m.ScanDate, Tables: m.Tables, PartRows: int(largest), ToolVersion: o.ToolVersion,
		Registry: o.Registry,
		Observer: m.Observer, ListID: m.ListID, Config: m.Config, Inputs: m.Inputs, Restart: o.Restart, Source: identity,
		NoPublish: m.Withheld(), Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	defer context.AfterFunc(ctx, w.GiveUp)()
	if o.Opened != nil {
		o.Opened(identity.Rows - int64(w.DoneCount()))
	}
	r := &run{options: o, source: source, to: to, writer: w, spare: make(chan *sink.Remade, o.Workers)}
	if err := r.parts(ctx); err != nil {
		return nil, err
	}
	if err := r.rest(ctx); err != nil {
		return nil, commit.BrokenOff(m.ScanID, err)
	}
	total, err := r.total(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.damaged) > 0 {
		return total, errors.Join(r.damaged...)
	}
	if m.State == commit.Complete {
		if err := w.Complete(ctx); err != nil {
			return nil, commit.BrokenOff(m.ScanID, err)
		}
	}
	return total, w.Close(ctx)
}

// complete fills in defaults, and refuses scans that cannot be judged again.
func (o *Options) complete(source *commit.Scan) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("cannot judge scan %s again: %w", source.Manifest.ScanID, fmt.Errorf(format, args...))
	}
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	if o.Done == nil {
		o.Done = new(atomic.Int64)
	}
	switch err := source.Whole(); {
	case err != nil: // the result would be complete, but lack the missing data
		return fail("%w", err)
	case source.Manifest.Restarting:
		return fail("it is being begun anew")
	case !source.Has(schema.Sites):
		return fail("%w: %s", commit.ErrNoTable, schema.Sites)
	}
	return nil
}

// identityOf returns what identifies a stored scan, so that an interrupted run continues only with the same one.
func identityOf(s *commit.Scan) (*commit.RejudgedScan, error) {
	m := s.Manifest
	all, err := commit.SitesOf(s.Commits)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s %d ", m.ScanID, m.StartedAt.UTC().Format(time.RFC3339Nano), m.Rejudged.Identity(),
		m.SchemaVersion)
	// The bytes of a bitmap depend on how it was built, so the numbers themselves are summed.
	var numbers [512]uint64
	var bytes []byte
	for all := all.ManyIterator(); ; {
		n := all.NextMany(numbers[:])
		if n == 0 {
			break
		}
		bytes = bytes[:0]
		for _, number := range numbers[:n] {
			bytes = binary.LittleEndian.AppendUint64(bytes, number)
		}
		sum.Write(bytes)
	}
	return &commit.RejudgedScan{
		Fingerprint: hex.EncodeToString(sum.Sum(nil))[:32], State: m.State, Rows: int64(all.GetCardinality()),
		StartedAt:     m.StartedAt,
		SchemaVersion: m.SchemaVersion, ToolVersion: m.ToolVersion, RegistryVersion: m.RegistryVersion,
	}, nil
}

// run is one run of Scan.
type run struct {
	options Options
	source  *commit.Scan
	to      store.Store
	writer  *sink.Writer
	spare   chan *sink.Remade // not in use
	damaged []error           // of the parts that are left out; appended to in the order of the parts
}

// parts makes a part of each stored part that earlier runs have not made. It returns when none is being made any more.
func (r *run) parts(ctx context.Context) error {
	w := r.writer
	workers := make(chan struct{}, r.options.Workers)
	var running sync.WaitGroup
	before := make(chan struct{}) // closed when the part before is committed or left out
	close(before)
	for i := range r.source.Commits {
		c := &r.source.Commits[i]
		sites, err := c.Bitmap()
		if err != nil {
			_ = w.Fail(err)
			break
		}
		done := w.DoneAmong(sites)
		if done == sites.GetCardinality() {
			continue
		}
		workers <- struct{}{}
		if w.Err() != nil {
			break
		}
		p := &making{run: r, stored: c, n: w.NextNumber(), whole: done == 0, before: before, committed: make(chan struct{})}
		before = p.committed
		running.Go(func() {
			if err := p.make(ctx); err != nil {
				_ = w.Fail(err)
			}
			close(p.committed)
			<-workers
		})
	}
	running.Wait()
	return w.Err()
}

// making is the making of one part.
type making struct {
	*run
	stored    *commit.Commit
	n         int  // number of the part that is made
	whole     bool // no site of the stored part is done
	before    <-chan struct{}
	committed chan struct{}
}

// make makes a part, and commits it after the one before. An error ends the run. A damaged stored part is left out,
// which is no error.
func (m *making) make(ctx context.Context) error {
	var p *sink.Remade
	select {
	case p = <-m.spare:
	default:
		p = m.writer.NewRemade()
	}
	came, err := m.fill(ctx, p)
	<-m.before
	switch {
	case m.writer.Err() != nil:
		return p.Discard()
	case err == nil:
		err = p.Commit(came)
	case endsRun(ctx, err):
		return errors.Join(err, p.Discard())
	default:
		m.damaged = append(m.damaged, &DamagedPartError{m.stored.Name(), err})
		err = p.LeaveOut(m.n)
	}
	m.spare <- p
	return err
}

// endsRun reports whether an error has another cause than damage of the stored part.
func endsRun(ctx context.Context, err error) bool {
	_, ofStore := commit.RemedyFor(err)
	_, spilling := errors.AsType[*spillError](err)
	_, writing := errors.AsType[*table.WriteError](err)
	_, newer := errors.AsType[*schema.NewerError](err)
	return ofStore || spilling || writing || newer || ctx.Err() != nil || errors.Is(err, store.ErrLockLost)
}

// fill makes the files of a part. It first assumes that no row of a table differs from the stored one, so that the
// table's pages can be copied: that halves the time if nothing differs. When a row differs, it begins anew and writes
// that table. Where another registry judges, nearly every row of sites differs. Bodies never differ.
func (m *making) fill(ctx context.Context, p *sink.Remade) (*commit.Rejudged, error) {
	copied := map[string]bool{}
	for _, name := range m.source.Manifest.Tables {
		switch name {
		case schema.Policies: // written anew: no site may have some of its policies any more
		case schema.Sites:
			copied[name] = m.whole && m.stored.RegistryVersion == m.options.Registry.Version &&
				m.stored.SchemaVersion == schema.Version
		default:
			copied[name] = m.whole
		}
		if !copied[name] {
			if err := m.unharmed(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	for {
		came, written, err := m.attempt(ctx, p, copied)
		if err == nil && written == "" {
			return came, nil
		}
		if err != nil {
			return nil, err
		}
		copied[written] = false
		if err := errors.Join(m.unharmed(ctx, written), table.Writing(p.Discard())); err != nil {
			return nil, err
		}
	}
}

// unharmed compares the hash of a stored file that is not copied with its record. A damaged file may be readable, for
// instance where its footer has another column name; its contents must not get a new, valid hash.
func (m *making) unharmed(ctx context.Context, tableName string) error {
	file, ok := m.stored.File(tableName)
	if !ok {
		return nil // opening it says so
	}
	err := table.CompareHash(ctx, m.source.Store, file)
	// Opening it says that it is missing. A compaction that has replaced it has checked it.
	if err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrChanged) {
		return err
	}
	return nil
}

// attempt is fill with some tables copied. It returns the name of a copied table that has to be written, if it finds
// one.
func (m *making) attempt(ctx context.Context, p *sink.Remade, copied map[string]bool) (came *commit.Rejudged,
	written string, err error) {
	came, added := commit.NewRejudged(), int64(0)
	defer func() {
		if err != nil || written != "" {
			m.options.Done.Add(-added)
		}
	}()
	stored, err := openStored(ctx, m.source, m.stored, !copied[schema.Sites])
	if err != nil {
		return came, "", err
	}
	defer func() { _ = stored.close() }() // it was only read
	stored.kept = m.options.Kept
	stored.once = true
	for _, name := range m.source.Manifest.Tables {
		stored.once = stored.once && (copied[name] || name == schema.Policies)
	}
	if m.options.holdBytes > 0 && stored.bodies != nil {
		stored.bodies.hold = m.options.holdBytes
	}
	var files []schema.File
	for _, f := range m.stored.Files {
		if copied[f.Table] {
			files = append(files, f)
		}
	}
	if err := p.Begin(m.n, m.source.Store, files); err != nil {
		return came, "", err
	}
	diff := newDifferences(came, m.stored.SchemaVersion)
	site, judged, auditor := new(audit.Site), new(siterows.Rows), audit.New(m.options.Registry)
	for n := int64(0); ; n++ {
		more, err := stored.next()
		switch {
		case err != nil:
			return came, "", err
		case !more && n != m.stored.Rows:
			return came, "", fmt.Errorf("cannot read %s: it has %d rows, its commit says %d sites", stored.sites.cursor.Name(),
				n, m.stored.Rows)
		case !more:
			written, err = p.Finish()
			return came, written, err
		}
		site.Reset()
		kept, err := stored.restore(site)
		if err != nil {
			return came, "", err
		}
		rows := stored.rows()
		if !m.whole && m.writer.Done(uint64(rows.Site.Seq)) {
			continue
		}
		switch {
		case kept != "":
			came.Carried[kept]++
			if rows.Site.NGroups > 0 && rows.Site.RegistryVersion != m.options.Registry.Version {
				came.Other++
			}
			if err := stored.keepPolicies(p, auditor); err != nil {
				return came, "", err
			}
		case stored.known:
			came.Bodies++ // its policies were added with those of the earlier site
		default:
			if err := m.judge(stored, site); err != nil {
				return came, "", err
			}
			judged.Site = rows.Site
			p.Judge(judged, &site.Report)
			if name := diff.count(rows, judged, site, copied); name != "" {
				return came, name, nil
			}
			if err := p.AddPolicies(&site.Report); err != nil {
				return came, "", err
			}
			stored.unchanged()
			rows = judged
		}
		if err := p.Add(rows, site.Fetch.Body); err != nil {
			return came, "", err
		}
		m.options.Done.Add(1)
		added++
	}
}

// judge judges a restored site. A body with another hash than its row says is an error.
func (m *making) judge(stored *storedPart, site *audit.Site) error {
	m.options.Judge(site)
	if hash, was := int64(site.Report.BodyHash), stored.now.Site.BodyHash; hash != was {
		from := "the kept bodies"
		if stored.bodies != nil {
			from = stored.bodies.rows.cursor.Name()
		}
		return fmt.Errorf("cannot read %s: the body that is called %d has the hash %d", from, was, hash)
	}
	return nil
}

// rest writes the files outside of parts: the rejects, and the tables of Finish.
func (r *run) rest(ctx context.Context) error {
	switch err := copyRejects(ctx, r.source, r.to); {
	case errors.Is(err, commit.ErrRecord):
		r.damaged = append(r.damaged, &DamagedPartError{commit.RejectsName(r.source.Manifest.ScanID), err})
	case err != nil:
		return err
	}
	if r.options.Finish == nil {
		return nil
	}
	return r.options.Finish(ctx)
}

// total returns the counts of all runs. Each commit has the counts of its part.
func (r *run) total(ctx context.Context) (*commit.Rejudged, error) {
	commits, err := commit.Commits(ctx, r.to, r.source.Manifest.ScanID)
	if err != nil {
		return nil, err
	}
	total := &commit.Rejudged{}
	for i := range commits {
		total = total.And(commits[i].Rejudged)
	}
	return total, nil
}

// copyRejects copies the rejected lines of the lists. The error is commit.ErrRecord where they are damaged or missing.
func copyRejects(ctx context.Context, source *commit.Scan, to store.Store) error {
	id := source.Manifest.ScanID
	record, err := commit.ReadFileRecord(ctx, source.Store, id, commit.FileRejects)
	recorded := err == nil
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return err
	}
	rejects, err := commit.OpenRejects(ctx, to, id)
	if err != nil {
		return err
	}
	err = rejects.Copy(ctx, source.Store, commit.RejectsName(id))
	switch {
	case errors.Is(err, store.ErrNotExist) && !recorded:
		return rejects.Discard()
	case errors.Is(err, store.ErrNotExist):
		err = fmt.Errorf("%w: %s has its hash, and it is missing", commit.ErrRecord,
			commit.FileRecordName(id, commit.FileRejects))
	case err == nil && recorded:
		if found := hex.EncodeToString(rejects.Hash.Sum(nil)); found != record.File.SHA256 && !slices.Contains(record.Earlier,
			found) {
			err = fmt.Errorf("%w: %w", commit.ErrRecord, &schema.DamagedError{What: "sha256", Expected: record.File.SHA256,
				Found: found})
		}
	}
	if err != nil {
		return errors.Join(err, rejects.Discard())
	}
	return rejects.Close(ctx)
}
