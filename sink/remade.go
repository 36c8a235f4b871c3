package sink

import (
	"context"
	"errors"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file lets package reaudit write a scan that is made of a stored one (Options.Source), part by part. Parts are
// filled at the same time, and committed in the order of their numbers.

// Remade is a part that is made of a stored part. The calls for each part: Begin; Judge, AddPolicies and Add for each
// site; Finish; then Commit, LeaveOut or Discard. After that it is ready for another part. One goroutine uses it at a
// time.
type Remade struct {
	writer *Writer
	part   *part
	copied map[string]bool // tables whose pages are copied, and no rows written
}

// NewRemade returns an empty part with buffers of its own.
func (w *Writer) NewRemade() *Remade { return &Remade{writer: w, part: newPart(&w.options)} }

// NextNumber returns the number of the next part. Each number must be committed or left out, in order, until the Writer
// fails.
func (w *Writer) NextNumber() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return w.next - 1
}

// Err returns the first failure of the Writer, after which nothing is committed.
func (w *Writer) Err() error { return w.failure() }

// Fail makes the Writer fail, unless it has failed, and returns its first failure.
func (w *Writer) Fail(err error) error { return w.setFailure(err) }

// Begin opens the part's files. The stored files in copied are copied page by page in Finish; their tables ignore the
// rows that Add is given.
func (r *Remade) Begin(n int, from store.Store, copied []schema.File) error {
	w, p := r.writer, r.part
	p.rejudged, r.copied = nil, map[string]bool{}
	p.files = p.tables()
	for i, f := range p.files {
		for _, source := range copied {
			if source.Table == f.TableName() {
				p.files[i] = &copiedFile{from: from, source: source, metadata: w.options.metadata()}
				r.copied[source.Table] = true
			}
		}
	}
	return table.Writing(p.begin(w.ctx, w.store, &w.options, n))
}

// Judge sets the judged columns of rows.Site, and makes the other rows, from a site's report. The rows are valid until
// Add.
func (r *Remade) Judge(rows *siterows.Rows, report *audit.Report) {
	c, k := r.part.copier, siterows.KeyOf(&rows.Site)
	c.Judge(&rows.Site, report)
	rows.Verdicts, rows.Evidence = rows.Verdicts[:0], rows.Evidence[:0]
	if r.part.verdicts != nil {
		for i := range report.Verdicts {
			rows.Verdicts = append(rows.Verdicts, schema.VerdictRow{})
			c.Verdict(&rows.Verdicts[i], k, &report.Verdicts[i])
		}
	}
	if r.part.evidence != nil {
		for i := range report.Evidence {
			rows.Evidence = append(rows.Evidence, schema.EvidenceRow{})
			c.Evidence(&rows.Evidence[i], k, &report.Evidence[i])
		}
	}
}

// AddPolicies adds the policies of a site that was judged.
func (r *Remade) AddPolicies(report *audit.Report) error {
	return table.Writing(r.part.addPolicies(report))
}

// KeepPolicy adds a stored policy of a site that keeps its judgement.
func (r *Remade) KeepPolicy(policy *schema.PolicyRow) error {
	row, err := r.part.nextPolicy(policy.PolicyID)
	if row != nil && err == nil {
		*row = *policy
	}
	return table.Writing(err)
}

// Add writes a site's rows and its body, if any, to the tables that are not copied. Of rows.Site it copies lists and
// what pointers point to. The caller must not change the other rows' pointees, nor any text.
func (r *Remade) Add(rows *siterows.Rows, body []byte) error {
	p := r.part
	if p.sites != nil && !r.copied[schema.Sites] {
		row, err := p.sites.Next()
		if err != nil {
			return table.Writing(err)
		}
		p.copier.Keep(row, &rows.Site)
		p.weight += siterows.TextsOf(row)
	}
	if p.bodies != nil && !r.copied[schema.Bodies] && len(body) > 0 {
		if err := p.addBody(uint64(rows.Site.BodyHash), body); err != nil {
			return table.Writing(err)
		}
	}
	if p.verdicts != nil && !r.copied[schema.Verdicts] {
		if err := p.verdicts.Add(rows.Verdicts); err != nil {
			return table.Writing(err)
		}
	}
	if p.evidence != nil && !r.copied[schema.Evidence] {
		if err := p.evidence.Add(rows.Evidence); err != nil {
			return table.Writing(err)
		}
		for i := range rows.Evidence {
			p.weight += len(rows.Evidence[i].Value)
		}
	}
	return table.Writing(p.added(uint64(rows.Site.Seq)))
}

// Finish writes what is buffered, and copies the pages of the copied files. If a compaction has replaced such a file
// meanwhile, gone names its table: the part has to be made again with that table written, not copied.
func (r *Remade) Finish() (gone string, err error) {
	if err := r.part.flush(); err != nil {
		return "", table.Writing(err)
	}
	for _, f := range r.part.files {
		copied, ok := f.(*copiedFile)
		if !ok {
			continue
		}
		err := copied.copy()
		_, ours := errors.AsType[*table.WriteError](err)
		if !ours && (errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged)) {
			return copied.source.Table, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// Commit commits the part, with the counts of making it.
func (r *Remade) Commit(came *commit.Rejudged) error {
	r.part.rejudged = came
	return r.writer.seal(r.part, func(context.Context) error { return nil })
}

// LeaveOut discards the part, and records that its number has no part because the stored part is damaged.
func (r *Remade) LeaveOut(n int) error {
	w := r.writer
	tombstone, err := commit.NewTombstone(w.manifest, commit.LeftOut, w.options.Shard, n)
	if err == nil {
		err = tombstone.Write(w.ctx, w.store)
	}
	return errors.Join(err, r.Discard())
}

// Discard drops the part's files, which have no name yet.
func (r *Remade) Discard() error { return r.part.discard() }

// copiedFile is a file of a part whose pages are those of a stored file.
type copiedFile struct {
	from     store.Store
	source   schema.File
	metadata map[string]string

	ctx   context.Context // of Begin
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
	f.draft, f.file, err = table.Concat(f.ctx, f.from, f.to, f.name, []schema.File{f.source}, f.metadata)
	return err
}

func (f *copiedFile) TableName() string                 { return f.source.Table }
func (f *copiedFile) RowGroups() int                    { return 0 } // it keeps those of its source
func (f *copiedFile) Flush() error                      { return nil }
func (f *copiedFile) EndGroup() error                   { return nil }
func (f *copiedFile) Seal() error                       { return nil } // Concat has sealed it
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
