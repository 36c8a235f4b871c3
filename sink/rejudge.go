package sink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file makes a scan of a stored one: its sites with their facts as they are, and what was judged of them judged anew.
//
// A part becomes a part, with the same rows of sites in the same order. Its tables are read side by side (stored.go), and
// what is not judged is carried over: a row's other columns by value, the table of bodies by its pages. Where a site cannot be
// judged, as its body was not stored, its rows stay what they were, the version of the registry included.
//
// Parts are made side by side, and committed in their order. So a run that was killed has committed the first ones, and the
// same run again goes on behind them.

// RejudgeOptions say how a stored scan is judged again.
type RejudgeOptions struct {
	Judge       func(*audit.Site) // fills Robots and Report; called by several goroutines
	Registry    *tokens.Registry  // that it judges by; nil is tokens.Default()
	ToolVersion string
	Workers     int  // parts that are made at a time; 0 is as many as processors, up to 8
	Restart     bool // delete what has been made before, and begin anew

	// Finish writes what is computed from the whole scan, before it is complete; nil is nobody. The scan's lock is held.
	Finish func(ctx context.Context) error
	// Opened is told how many sites earlier runs have left; nil is nobody.
	Opened func(sites int64)
	// Done counts sites as they are made; nil is nobody.
	Done *atomic.Int64

	groupBytes, holdBytes int // 0 are the constants; tests have smaller ones
}

// maxRejudged bounds how many parts are made at a time: each has buffers of its own.
const maxRejudged = 8

// The words between which Checks and Decisions tell of changes, and the kinds of evidence.
var (
	checkWords    = []string{audit.Pass.String(), audit.Warn.String(), audit.Fail.String()}
	decisionWords = []string{audit.Allowed.String(), audit.Partial.String(), audit.Blocked.String()}
	kindWords     = func() (words []string) {
		for k := range audit.NumKinds {
			words = append(words, k.String())
		}
		return words
	}()
)

const otherWord = "other"

// word is one of the words, or that it is none.
func word(s string, words []string) string {
	if i := slices.Index(words, s); i >= 0 {
		return words[i] // not the file's memory
	}
	return otherWord
}

func change(was, is string, words []string) string {
	return word(was, words) + " to " + word(is, words)
}

// Rejudge makes a scan of the same name in another dataset of a stored one, or goes on with one that was broken off. It
// returns what all runs of it came to.
//
// The errors to tell apart: *HeldError where another process writes it; *ChangedError where what is there was made of
// other sites, by another registry or by another version; *StoreError where it cannot be written; *DamagedPartError, perhaps
// several, where stored parts or the rejects are damaged: all others have been made then, and the scan is not complete.
func Rejudge(ctx context.Context, source *commit.Scan, to store.Store, o RejudgeOptions) (_ *commit.Rejudged, err error) {
	if err := o.complete(source); err != nil {
		return nil, err
	}
	was, err := identityOf(source)
	if err != nil {
		return nil, err
	}
	m := source.Manifest
	largest := int64(1) // part, whose rows the buffers are made for
	for i := range source.Commits {
		largest = max(largest, min(source.Commits[i].Rows, DefaultPartRows))
	}
	w, err := Open(ctx, to, Options{
		ScanID: m.ScanID, Date: m.ScanDate, Tables: m.Tables, PartRows: int(largest), ToolVersion: o.ToolVersion, Registry: o.Registry,
		Config: m.Config, Inputs: m.Inputs, Restart: o.Restart, rejudged: was, groupBytes: o.groupBytes,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	defer context.AfterFunc(ctx, w.GiveUp)()
	if o.Opened != nil {
		o.Opened(was.Rows - int64(w.DoneCount()))
	}
	r := &rejudging{options: o, source: source, writer: w, spare: make(chan *part, o.Workers)}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	switch err := copyRejects(ctx, source, to); {
	case errors.Is(err, commit.ErrRecord):
		r.damaged = append(r.damaged, &DamagedPartError{commit.RejectsName(m.ScanID), err})
	case err != nil:
		return nil, commit.BrokenOff(m.ScanID, err)
	}
	if o.Finish != nil {
		if err := o.Finish(w.ctx); err != nil {
			return nil, commit.BrokenOff(m.ScanID, err)
		}
	}
	total, err := r.total(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.damaged) > 0 {
		return total, errors.Join(r.damaged...)
	}
	if m.State != commit.Complete {
		return total, w.Close(ctx)
	}
	if err := w.Complete(ctx); err != nil {
		return nil, commit.BrokenOff(m.ScanID, err)
	}
	return total, w.Close(ctx)
}

// complete fills in defaults, and refuses scans that cannot be judged again.
func (o *RejudgeOptions) complete(source *commit.Scan) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("cannot judge scan %s again: %w", source.Manifest.ScanID, fmt.Errorf(format, args...))
	}
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), maxRejudged)
	}
	if o.Done == nil {
		o.Done = new(atomic.Int64)
	}
	m := source.Manifest
	switch err := source.Whole(); {
	case err != nil: // what is made would be complete without it
		return fail("%w", err)
	case m.Restarting:
		return fail("it is being begun anew")
	case !source.Has(schema.Sites):
		return fail("%w: %s", commit.ErrNoTable, schema.Sites)
	}
	return nil
}

// identityOf is what the scan is that is judged again.
func identityOf(s *commit.Scan) (*commit.RejudgedScan, error) {
	m := s.Manifest
	all, err := commit.SitesOf(s.Commits)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s %d ", m.ScanID, m.StartedAt.UTC().Format(time.RFC3339Nano), m.Rejudged.Identity(), m.SchemaVersion)
	// The numbers themselves: how a bitmap is written depends on how it came to be.
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
		Fingerprint: hex.EncodeToString(sum.Sum(nil))[:32], State: m.State, Rows: int64(all.GetCardinality()), StartedAt: m.StartedAt,
		SchemaVersion: m.SchemaVersion, ToolVersion: m.ToolVersion, RegistryVersion: m.RegistryVersion,
	}, nil
}

// rejudging is one run of Rejudge.
type rejudging struct {
	options RejudgeOptions
	source  *commit.Scan
	writer  *Writer
	spare   chan *part // parts that are not in use
	damaged []error    // of the parts that are left out; appended to in the order of parts
}

// run makes a part of each part that is not done. It returns when none is being made any more.
func (r *rejudging) run(ctx context.Context) error {
	w := r.writer
	turns := make(chan struct{}, r.options.Workers)
	var running sync.WaitGroup
	before := make(chan struct{})
	close(before)
	for i := range r.source.Commits {
		c := &r.source.Commits[i]
		finished, err := c.Bitmap()
		if err != nil {
			_ = w.setFailure(err)
			break
		}
		if finished.AndCardinality(w.done) == finished.GetCardinality() {
			continue
		}
		turns <- struct{}{}
		if w.failure() != nil {
			break
		}
		previous, committed, n := before, make(chan struct{}), w.next
		before = committed
		w.next++
		whole := !finished.Intersects(w.done)
		running.Go(func() {
			defer func() {
				close(committed)
				<-turns
			}()
			if err := r.remake(ctx, c, n, whole, previous); err != nil {
				_ = w.setFailure(err)
			}
		})
	}
	running.Wait()
	return w.failure()
}

// remake makes the part of that number of a stored one, and commits it after the one before. An error is the run's. A stored
// part that is damaged is none: it is left out.
func (r *rejudging) remake(ctx context.Context, c *commit.Commit, n int, whole bool, before <-chan struct{}) error {
	w := r.writer
	var p *part
	select {
	case p = <-r.spare:
	default:
		p = newPart(&w.options)
	}
	err := r.fill(ctx, p, c, n, whole)
	<-before
	if w.failure() != nil {
		return p.discard()
	}
	if err != nil && r.fatal(ctx, err) {
		return errors.Join(err, p.discard())
	}
	if err == nil {
		err = w.seal(p, func(context.Context) error { return nil })
		r.spare <- p
		return err
	}
	r.damaged = append(r.damaged, &DamagedPartError{c.Name(), err})
	tombstone, err := commit.NewTombstone(w.options.tombstone(commit.LeftOut), w.options.Shard, n)
	if err == nil {
		err = tombstone.Write(w.ctx, w.store)
	}
	err = errors.Join(err, p.discard())
	r.spare <- p
	return err
}

// fatal reports whether what went wrong with a part is nothing that is wrong with what is stored of it.
func (r *rejudging) fatal(ctx context.Context, err error) bool {
	_, certain := commit.RemedyFor(err)
	_, spilling := errors.AsType[*spillError](err)
	_, writing := errors.AsType[*table.WriteError](err)
	_, newer := errors.AsType[*schema.NewerError](err)
	return certain || spilling || writing || newer || ctx.Err() != nil || errors.Is(err, store.ErrLockLost)
}

// fill makes a part, up to its commit. It supposes that no row of a table differs from what is stored, so that the table's
// pages can be copied as they lie, until it finds otherwise: then it begins anew, and writes that table. Where all rows differ it
// finds it at the first; and the bodies never do.
func (r *rejudging) fill(ctx context.Context, p *part, c *commit.Commit, n int, whole bool) error {
	copied := map[string]bool{}
	for _, table := range r.writer.options.Tables {
		copied[table] = whole
	}
	copied[schema.Sites] = copied[schema.Sites] && c.RegistryVersion == r.options.Registry.Version
	for _, table := range r.writer.options.Tables {
		if copied[table] {
			continue // who copies it looks at each byte
		}
		if err := unharmed(ctx, r.source, c, table); err != nil {
			return err
		}
	}
	for {
		sites, err := r.attempt(ctx, p, c, n, whole, copied)
		if err == nil {
			return nil
		}
		r.options.Done.Add(-sites)
		writes, ok := errors.AsType[*mustWrite](err)
		if !ok {
			return err
		}
		copied[writes.table] = false
		if err := unharmed(ctx, r.source, c, writes.table); err != nil {
			return errors.Join(err, p.discard())
		}
		if err := p.discard(); err != nil {
			return table.Writing(err)
		}
	}
}

// mustWrite says that the pages of a table cannot be copied.
type mustWrite struct{ table string }

func (e *mustWrite) Error() string { return e.table + " cannot be copied" }

// attempt is fill with some tables copied. It returns how many sites it has added.
func (r *rejudging) attempt(ctx context.Context, p *part, c *commit.Commit, n int, whole bool, copied map[string]bool) (sites int64, err error) {
	stored, err := openStored(ctx, r.source, c, p.copier.tokens, !copied[schema.Sites])
	if err != nil {
		return 0, err
	}
	defer func() { _ = stored.close() }() // it was only read: what went wrong has been told
	if r.options.holdBytes > 0 && stored.bodies != nil {
		stored.bodies.hold = r.options.holdBytes
	}
	if err := r.begin(p, c, n, copied); err != nil {
		return 0, table.Writing(err)
	}
	again := newRejudgement(p, copied)
	site := new(audit.Site)
	for rows := int64(0); ; rows++ {
		more, err := stored.next()
		if err != nil {
			return sites, err
		}
		if !more {
			if rows != c.Rows {
				return sites, fmt.Errorf("cannot read %s: it has %d rows, its commit says %d sites", stored.sites.cursor.Name(), rows, c.Rows)
			}
			return sites, r.end(p, again.came)
		}
		site.Reset()
		carried, err := stored.restore(site)
		if err != nil {
			return sites, err
		}
		if !whole && r.writer.Done(uint64(stored.sites.row.Seq)) {
			continue
		}
		if carried == "" {
			r.options.Judge(site)
			if is, was := int64(site.Report.BodyHash), stored.sites.row.BodyHash; is != was {
				return sites, fmt.Errorf("cannot read %s: the body that is called %d has the hash %d", stored.bodies.rows.cursor.Name(), was, is)
			}
		}
		if err := again.add(stored, site, carried); err != nil {
			return sites, err
		}
		sites++
		r.options.Done.Add(1)
	}
}

// begin opens a part's files.
func (r *rejudging) begin(p *part, c *commit.Commit, n int, copied map[string]bool) error {
	w := r.writer
	p.rejudged = nil
	p.files = p.tables()
	for i, f := range p.files {
		if source, ok := c.File(f.TableName()); ok && copied[f.TableName()] {
			p.files[i] = &copiedFile{from: r.source.Store, source: source, metadata: w.options.metadata()}
		}
	}
	return p.begin(w.ctx, w.store, &w.options, n)
}

// end writes what is left to be written, and copies what is to be copied.
func (r *rejudging) end(p *part, came *commit.Rejudged) error {
	p.rejudged = came
	if err := p.flush(); err != nil {
		return table.Writing(err)
	}
	for _, f := range p.files {
		if f, ok := f.(*copiedFile); ok {
			err := f.copy()
			_, ours := errors.AsType[*table.WriteError](err)
			if !ours && (errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged)) {
				return &mustWrite{f.source.Table} // a compaction has taken it away; its rows are elsewhere
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// copiedFile is a part's file whose pages are those of a stored one.
type copiedFile struct {
	from     store.Store
	source   schema.File
	metadata map[string]string

	ctx   context.Context // of begin
	to    store.Store
	name  string
	draft store.Draft // nil before copy
	file  schema.File
}

func (f *copiedFile) Begin(ctx context.Context, st store.Store, name string) error {
	f.ctx, f.to, f.name = ctx, st, name
	return nil
}

func (f *copiedFile) copy() (err error) {
	f.draft, f.file, err = table.Concat(f.ctx, f.from, f.to, f.name, []schema.File{f.source}, table.MaxFooter, f.metadata)
	return err
}

func (f *copiedFile) TableName() string                 { return f.source.Table }
func (f *copiedFile) RowGroups() int                    { return 0 } // it has as many as before
func (f *copiedFile) Flush() error                      { return nil }
func (f *copiedFile) EndGroup() error                   { return nil }
func (f *copiedFile) Seal() error                       { return nil } // it is
func (f *copiedFile) Publish(ctx context.Context) error { return f.draft.Publish(ctx) }
func (f *copiedFile) Describe() schema.File             { return f.file }

func (f *copiedFile) Discard() error {
	if f.draft == nil {
		return nil
	}
	err := f.draft.Discard()
	f.draft = nil
	return err
}

// rejudgement adds the sites of a stored part to one that is being made, and counts in what they differ.
type rejudgement struct {
	part     *part
	came     *commit.Rejudged
	verdicts []schema.VerdictRow // of the site, as judged now
	evidence []schema.EvidenceRow

	columns []judgedColumn
	seen    map[string]int

	copied map[string]bool // tables that are not written
	fresh  schema.SiteRow  // where sites are not
}

func newRejudgement(p *part, copied map[string]bool) *rejudgement {
	return &rejudgement{part: p, came: commit.NewRejudged(), columns: judgedColumns(), seen: map[string]int{}, copied: copied}
}

// add adds a site that has been judged, or one whose rows stay what they were. The error is *mustWrite where a row differs in a
// table that is copied, otherwise *writeError.
func (r *rejudgement) add(stored *storedPart, s *audit.Site, carried string) error {
	p, row := r.part, &stored.sites.row
	verdicts, evidence := stored.oldVerdicts, stored.oldEvidence
	made := &r.fresh
	if carried == "" {
		verdicts, evidence = r.rows(keyOf(row), s)
	}
	if !r.copied[schema.Sites] {
		var err error
		if made, err = p.sites.Next(); err != nil {
			return table.Writing(err)
		}
		r.carry(made, row)
	}
	if carried == "" {
		p.copier.judgement(made, &s.Report)
		if table := r.compare(stored, made, verdicts, evidence, s); table != "" {
			return &mustWrite{table}
		}
	} else {
		r.came.Carried[carried]++
		if row.NGroups > 0 && row.RegistryVersion != p.copier.registryVersion {
			r.came.Other++
		}
		if !r.copied[schema.Sites] {
			r.carryJudgement(made, row, stored)
		}
	}
	if err := r.addRows(verdicts, evidence, s); err != nil {
		return table.Writing(err)
	}
	if err := p.added(uint64(row.Seq)); err != nil {
		return table.Writing(err)
	}
	return nil
}

// carry makes a row of another with all of its facts.
func (r *rejudgement) carry(made, row *schema.SiteRow) {
	*made = *row
	made.Redirects = r.part.copier.hops.copy(row.Redirects)
	made.TLSVerified = lastingTruth(row.TLSVerified)
	r.part.weight += textsOf(row)
}

// carryJudgement sets what was judged, too.
func (r *rejudgement) carryJudgement(made, row *schema.SiteRow, stored *storedPart) {
	lists := &r.part.copier.lists
	names := func(numbers []int32) []string {
		list := lists.take(len(numbers))
		for i, n := range numbers {
			list[i] = stored.names.names[n]
		}
		return list
	}
	made.Named, made.Blocked, made.Partial = names(stored.named), names(stored.blocked), names(stored.partial)
	made.Sitemaps, made.CrawlDelay, made.ValidUTF8 = lists.copy(row.Sitemaps), cloned(row.CrawlDelay), lastingTruth(row.ValidUTF8)
	r.part.weight += judgedTextsOf(row)
}

// addRows adds a site's rows of the other tables that are written.
func (r *rejudgement) addRows(verdicts []schema.VerdictRow, evidence []schema.EvidenceRow, s *audit.Site) error {
	p := r.part
	if p.bodies != nil && !r.copied[schema.Bodies] && len(s.Fetch.Body) > 0 {
		if err := p.addBody(s); err != nil {
			return err
		}
	}
	if !r.copied[schema.Verdicts] {
		for i := range verdicts {
			next, err := p.verdicts.Next()
			if err != nil {
				return err
			}
			*next = verdicts[i]
		}
	}
	if !r.copied[schema.Evidence] {
		for i := range evidence {
			next, err := p.evidence.Next()
			if err != nil {
				return err
			}
			*next = evidence[i]
			p.weight += len(next.Value)
		}
	}
	return nil
}

// copy is a slice that stays where it is.
func (s *slab[T]) copy(list []T) []T {
	kept := s.take(len(list))
	copy(kept, list)
	return kept
}

// rows makes the site's rows of the other tables, which last until the copier is reset.
func (r *rejudgement) rows(k key, s *audit.Site) ([]schema.VerdictRow, []schema.EvidenceRow) {
	p := r.part
	r.verdicts, r.evidence = r.verdicts[:0], r.evidence[:0]
	if p.verdicts != nil {
		n := len(s.Report.Verdicts)
		r.verdicts = slices.Grow(r.verdicts, n)[:n]
		for i := range s.Report.Verdicts {
			p.copier.verdict(&r.verdicts[i], k, &s.Report.Verdicts[i])
		}
	}
	if p.evidence != nil {
		n := len(s.Report.Evidence)
		r.evidence = slices.Grow(r.evidence, n)[:n]
		for i := range s.Report.Evidence {
			p.copier.evidence(&r.evidence[i], k, &s.Report.Evidence[i])
		}
	}
	return r.verdicts, r.evidence
}

// compare counts in what a site's rows differ from those that were stored. It returns a table that is copied and should not be.
func (r *rejudgement) compare(stored *storedPart, is *schema.SiteRow, verdicts []schema.VerdictRow, evidence []schema.EvidenceRow, s *audit.Site) (table string) {
	was, report := &stored.sites.row, &s.Report
	if len(s.Fetch.Body) > 0 {
		r.came.Bodies++
	} else {
		r.came.Answers++
	}
	sites := false
	column := func(name string) {
		r.came.Columns[name]++
		sites = true
	}
	for i := range r.columns {
		if c := &r.columns[i]; c.differs(was, is) {
			column(c.name)
		}
	}
	if was.CheckStatus != is.CheckStatus {
		r.came.Checks[change(was.CheckStatus, is.CheckStatus, checkWords)]++
	}
	blocked, partial := report.Blocked, report.Partial
	if report.Access != parser.AccessConditional {
		blocked, partial = nil, nil
	}
	for _, list := range [...]struct {
		name string
		was  []int32
		is   []uint16
	}{{"named", stored.named, report.Named}, {"blocked", stored.blocked, blocked}, {"partial", stored.partial, partial}} {
		if !sameNumbers(list.was, list.is) {
			column(list.name)
		}
	}
	verdictsBefore, evidenceBefore := r.came.Verdicts, r.came.Evidence
	sameVerdicts := r.compareVerdicts(stored.oldVerdicts, verdicts)
	sameEvidence := r.compareEvidence(stored.oldEvidence, evidence)
	if sites || verdictsBefore != r.came.Verdicts || evidenceBefore != r.came.Evidence {
		r.came.Sites++
	}
	switch {
	case r.copied[schema.Sites] && (sites || was.RegistryVersion != is.RegistryVersion):
		return schema.Sites
	case r.copied[schema.Verdicts] && !sameVerdicts:
		return schema.Verdicts
	case r.copied[schema.Evidence] && !sameEvidence:
		return schema.Evidence
	}
	return ""
}

func sameNumbers(was []int32, is []uint16) bool {
	if len(was) != len(is) {
		return false
	}
	for i, n := range is {
		if was[i] != int32(n) {
			return false
		}
	}
	return true
}

// compareVerdicts counts in what a site's rows differ, and reports whether they are the same, in the same order.
func (r *rejudgement) compareVerdicts(was, is []schema.VerdictRow) (same bool) {
	d := &r.came.Verdicts
	same = true
	both := func(was, is *schema.VerdictRow) {
		if !verdictDiffers(was, is) {
			return
		}
		same = false
		if d.Changed++; was.Verdict != is.Verdict {
			r.came.Decisions[change(was.Verdict, is.Verdict, decisionWords)]++
		}
	}
	for len(was) > 0 && len(is) > 0 && was[0].Token == is[0].Token {
		both(&was[0], &is[0])
		was, is = was[1:], is[1:]
	}
	if len(was) == 0 || len(is) == 0 {
		d.Vanished += int64(len(was))
		d.Appeared += int64(len(is))
		return same && len(was)+len(is) == 0
	}
	clear(r.seen)
	for i := range was {
		r.seen[was[i].Token] = i
	}
	paired := 0
	for i := range is {
		k, ok := r.seen[is[i].Token]
		if !ok {
			d.Appeared++
			continue
		}
		delete(r.seen, is[i].Token)
		paired++
		both(&was[k], &is[i])
	}
	d.Vanished += int64(len(was) - paired)
	return false
}

func verdictDiffers(was, is *schema.VerdictRow) bool {
	a, b := *was, *is
	same := sameValue(a.CrawlDelay, b.CrawlDelay) && sameValue(a.VisitFrom, b.VisitFrom) && sameValue(a.VisitTo, b.VisitTo)
	a.CrawlDelay, a.VisitFrom, a.VisitTo = nil, nil, nil
	b.CrawlDelay, b.VisitFrom, b.VisitTo = nil, nil, nil
	return !same || a != b
}

func sameValue[T comparable](a, b *T) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// compareEvidence is compareVerdicts for evidence.
func (r *rejudgement) compareEvidence(was, is []schema.EvidenceRow) (same bool) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	if len(was)+len(is) == 0 {
		return true
	}
	left := map[schema.EvidenceRow]int64{}
	for i := range was {
		left[was[i]]++
	}
	for i := range is {
		left[is[i]]--
	}
	for e, n := range left {
		if n == 0 {
			continue
		}
		d := commit.Difference{Appeared: max(0, -n), Vanished: max(0, n)}
		r.came.Evidence = r.came.Evidence.And(d)
		kind := word(e.Kind, kindWords)
		r.came.Kinds[kind] = r.came.Kinds[kind].And(d)
	}
	return false
}

// judgedColumn is a column of sites that is judged.
type judgedColumn struct {
	name    string
	differs func(a, b *schema.SiteRow) bool
}

// notCompared are the version of the registry, which is a reason to differ and no difference, and the lists that are compared
// by numbers.
var notCompared = []string{"registry_version", "named", "blocked", "partial"}

// judgedColumns are those of sites, but for those above.
func judgedColumns() (columns []judgedColumn) {
	row := reflect.TypeFor[schema.SiteRow]()
	for i := range row.NumField() {
		field := row.Field(i)
		c := judgedColumn{name: schema.ColumnName(field)}
		if field.Tag.Get("judged") == "" || slices.Contains(notCompared, c.name) {
			continue
		}
		switch reflect.New(field.Type).Interface().(type) {
		case *string:
			c.differs = differing(field.Offset, func(a, b *string) bool { return *a == *b })
		case *bool:
			c.differs = differing(field.Offset, func(a, b *bool) bool { return *a == *b })
		case *int32:
			c.differs = differing(field.Offset, func(a, b *int32) bool { return *a == *b })
		case *float64:
			c.differs = differing(field.Offset, func(a, b *float64) bool { return *a == *b })
		case **bool:
			c.differs = differing(field.Offset, func(a, b **bool) bool { return sameValue(*a, *b) })
		case **float64:
			c.differs = differing(field.Offset, func(a, b **float64) bool { return sameValue(*a, *b) })
		case *[]string:
			c.differs = differing(field.Offset, func(a, b *[]string) bool { return slices.Equal(*a, *b) })
		default:
			panic("sink: column " + c.name + " cannot be compared")
		}
		columns = append(columns, c)
	}
	return columns
}

// differing compares the field at an offset.
func differing[T any](offset uintptr, same func(a, b *T) bool) func(a, b *schema.SiteRow) bool {
	return func(a, b *schema.SiteRow) bool {
		return !same((*T)(unsafe.Add(unsafe.Pointer(a), offset)), (*T)(unsafe.Add(unsafe.Pointer(b), offset)))
	}
}

// total is what all runs came to: each commit says it of its part.
func (r *rejudging) total(ctx context.Context) (*commit.Rejudged, error) {
	commits, err := commit.Commits(ctx, r.writer.store, r.source.Manifest.ScanID)
	if err != nil {
		return nil, err
	}
	total := &commit.Rejudged{}
	for i := range commits {
		total = total.And(commits[i].Rejudged)
	}
	return total, nil
}

// copyRejects copies the lines that were no origins. The error is errRecord where they are not what was written.
func copyRejects(ctx context.Context, source *commit.Scan, to store.Store) error {
	id := source.Manifest.ScanID
	record, err := commit.ReadFileRecord(ctx, source.Store, id, commit.FileRejects)
	recorded := err == nil
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return err
	}
	object, err := source.Store.Open(ctx, commit.RejectsName(id))
	if errors.Is(err, store.ErrNotExist) && !recorded {
		return nil
	}
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: %s has its hash, and it is missing", commit.ErrRecord, commit.FileRecordName(id, commit.FileRejects))
	}
	if err != nil {
		return err
	}
	defer object.Close()
	rejects, err := commit.OpenRejects(ctx, to, id)
	if err != nil {
		return err
	}
	err = rejects.Copy(io.NewSectionReader(object, 0, object.Size()))
	if err == nil && recorded {
		if found := hex.EncodeToString(rejects.Hash.Sum(nil)); found != record.File.SHA256 && !slices.Contains(record.Earlier, found) {
			err = fmt.Errorf("%w: %w", commit.ErrRecord, &schema.DamagedError{What: "sha256", Expected: record.File.SHA256, Found: found})
		}
	}
	if err != nil {
		return errors.Join(err, rejects.Discard())
	}
	return rejects.Close(ctx)
}

// PrintRejudged says in some lines what judging a scan again came to.
func PrintRejudged(w io.Writer, r *commit.Rejudged, scanID string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "scan %s: %d sites judged again, %d of them by a stored body\n", scanID, r.Judged(), r.Bodies)
	if n := r.Stayed(); n > 0 {
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(r.Carried)) {
			why = append(why, fmt.Sprintf("%s %d", printable.Clip(reason, maxWord), r.Carried[reason]))
		}
		fmt.Fprintf(&b, "  %d keep the judgement that they had: %s\n", n, strings.Join(why, ", "))
	}
	if r.Other > 0 {
		fmt.Fprintf(&b, "  %d of these have groups, and were judged by another registry: tokens that it did not have were not looked for there\n", r.Other)
	}
	if r.Sites == 0 {
		b.WriteString("  no differences\n")
	} else {
		fmt.Fprintf(&b, "  %d sites differ\n", r.Sites)
		for _, column := range schema.ColumnsOf(reflect.TypeFor[schema.SiteRow]()) {
			if n := r.Columns[column.Name]; n > 0 {
				fmt.Fprintf(&b, "    sites.%s: %d\n", column.Name, n)
			}
		}
		byKind(&b, "of check_status", r.Checks)
		d, e := r.Verdicts, r.Evidence
		fmt.Fprintf(&b, "    verdicts: %d rows changed, %d appeared, %d vanished\n", d.Changed, d.Appeared, d.Vanished)
		byKind(&b, "of verdict", r.Decisions)
		fmt.Fprintf(&b, "    evidence: %d rows appeared, %d vanished\n", e.Appeared, e.Vanished)
		for _, kind := range append(kindWords, otherWord) {
			if d := r.Kinds[kind]; d != (commit.Difference{}) {
				fmt.Fprintf(&b, "      %s: %d appeared, %d vanished\n", kind, d.Appeared, d.Vanished)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxWord bounds what is shown of words in commits, which somebody else may have made, in bytes.
const maxWord = 100

func byKind(b *strings.Builder, what string, kinds map[string]int64) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(b, "      %s, %s: %d\n", what, printable.Clip(kind, maxWord), kinds[kind])
	}
}
