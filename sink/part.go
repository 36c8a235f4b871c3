package sink

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file has the open files of one part, one Parquet file for each table. They are filled and sealed together.

const (
	// rows of sites passed to parquet-go at once: fewer than 64 cost time, and each batch allocates twice
	batchRows  = 128
	detailRows = 512      // the same for rows of verdicts and evidence
	batchBytes = 1 << 20  // copied bytes after which a batch is written early
	groupBytes = 48 << 20 // raw bytes after which a row group is ended early, which bounds memory for hostile sites
	partGroups = 256      // row groups of a file after which a part is full, since its footer grows with them
)

// part is a set of open files. Between begin and discard or seal it belongs to one goroutine.
type part struct {
	copier *siterows.Copier
	n      int      // number of the part in its shard
	seqs   []uint64 // of its rows
	weight int      // raw bytes in the open row groups
	limit  int      // maximum of weight

	sites    *table.Writer[schema.SiteRow]
	verdicts *table.Writer[schema.VerdictRow]
	evidence *table.Writer[schema.EvidenceRow]
	bodies   *table.Writer[schema.BodyRow]
	hashes   map[uint64]struct{} // hashes of the bodies already written
	policies *table.Writer[schema.PolicyRow]
	ids      map[int64]struct{} // of the policies already written
	rejudged *commit.Rejudged   // set for a part made from a stored one

	files []file // the tables to write, in the order of publishing: sites last
}

// file is a table without its row type.
type file interface {
	TableName() string
	RowGroups() int
	Begin(ctx context.Context, st store.Store, name string) error
	Flush() error
	EndGroup() error
	Seal() error
	Publish(ctx context.Context) error
	Discard() error
	Describe() schema.File
}

func newPart(o *Options) *part {
	p := &part{
		copier: siterows.New(o.ScanID, o.Registry),
		seqs:   make([]uint64, 0, min(o.PartRows, 1<<20)),
		hashes: map[uint64]struct{}{},
		ids:    map[int64]struct{}{},
		limit:  cmp.Or(o.groupBytes, groupBytes),
	}
	p.bodies = newTable[schema.BodyRow](o, schema.Bodies, batchRows)
	p.policies = newTable[schema.PolicyRow](o, schema.Policies, batchRows)
	p.evidence = newTable[schema.EvidenceRow](o, schema.Evidence, detailRows)
	p.verdicts = newTable[schema.VerdictRow](o, schema.Verdicts, detailRows)
	p.sites = newTable[schema.SiteRow](o, schema.Sites, batchRows)
	p.files = p.tables()
	return p
}

// newTable returns a writer of a table, nil if the scan does not have it.
func newTable[T any](o *Options, name string, batch int) *table.Writer[T] {
	if !slices.Contains(o.Tables, name) {
		return nil
	}
	return table.NewWriter[T](name, batch, max(table.MinPageBytes, min(16*o.PartRows, table.PageBytes)), o.metadata())
}

// tables returns the part's tables in the order of publishing.
func (p *part) tables() (files []file) {
	if p.bodies != nil {
		files = append(files, p.bodies)
	}
	if p.evidence != nil {
		files = append(files, p.evidence)
	}
	if p.verdicts != nil {
		files = append(files, p.verdicts)
	}
	files = append(files, p.policies)
	if p.sites != nil {
		files = append(files, p.sites)
	}
	return files
}

func (p *part) begin(ctx context.Context, st store.Store, o *Options, n int) error {
	p.n, p.weight = n, 0
	p.seqs = p.seqs[:0]
	clear(p.hashes)
	clear(p.ids)
	for _, f := range p.files {
		if err := f.Begin(ctx, st, commit.PartName(f.TableName(), o.Date, o.ScanID, o.Shard, n)); err != nil {
			return errors.Join(err, p.discard())
		}
	}
	return nil
}

// add copies a site's rows into the batches and flushes full batches.
func (p *part) add(s *audit.Site) error {
	k := p.copier.Key(s)
	if p.verdicts != nil {
		for i := range s.Report.Verdicts {
			row, err := p.verdicts.Next()
			if err != nil {
				return err
			}
			p.copier.Verdict(row, k, &s.Report.Verdicts[i])
		}
	}
	if p.evidence != nil {
		for i := range s.Report.Evidence {
			row, err := p.evidence.Next()
			if err != nil {
				return err
			}
			p.copier.Evidence(row, k, &s.Report.Evidence[i])
		}
	}
	if p.bodies != nil && keepsBody(s) {
		if err := p.addBody(s.Report.BodyHash, s.Fetch.Body); err != nil {
			return err
		}
	}
	if p.sites != nil {
		row, err := p.sites.Next()
		if err != nil {
			return err
		}
		p.copier.Site(row, k, s)
	}
	if err := p.addPolicies(&s.Report); err != nil {
		return err
	}
	return p.added(s.Seq)
}

// addPolicies adds the policies of a site that the part does not have.
func (p *part) addPolicies(r *audit.Report) error {
	for _, policy := range [...]*audit.Policy{&r.Policy, &r.RFCPolicy} {
		row, err := p.nextPolicy(int64(policy.ID))
		if err != nil {
			return err
		}
		if row != nil {
			p.copier.Policy(row, policy)
		}
	}
	return nil
}

// nextPolicy returns the row for a policy, nil if there is none (0) or the part has it.
func (p *part) nextPolicy(id int64) (*schema.PolicyRow, error) {
	if _, has := p.ids[id]; has || id == 0 {
		return nil, nil
	}
	p.ids[id] = struct{}{}
	return p.policies.Next()
}

// added records a site whose rows have been added, and flushes if a batch is full.
func (p *part) added(seq uint64) error {
	p.seqs = append(p.seqs, seq)
	// A few bodies may fill a row group.
	texts, bodies := p.copier.Copied()
	if len(p.seqs)%batchRows == 0 || max(texts, bodies) > batchBytes || p.weight >= p.limit {
		return p.flush()
	}
	return nil
}

func (p *part) full() bool {
	return slices.ContainsFunc(p.files, func(f file) bool { return f.RowGroups() >= partGroups })
}

// keepsBody reports whether the table bodies keeps a site's body: only a body with robots records. Pages and other
// texts that servers send for missing files would be most of the bytes.
func keepsBody(s *audit.Site) bool {
	return s.Report.BodyHash != 0 && len(s.Fetch.Body) > 0 && !s.Report.IsHTML && s.Report.Counts.Records > 0
}

func (p *part) addBody(hash uint64, body []byte) error {
	if _, has := p.hashes[hash]; has {
		return nil
	}
	p.hashes[hash] = struct{}{}
	row, err := p.bodies.Next()
	if err != nil {
		return err
	}
	p.copier.Body(row, hash, body)
	p.weight += len(body)
	return nil
}

// each calls do for all files at the same time: encoding is most of the work.
func (p *part) each(do func(file) error) error {
	errs := make([]error, len(p.files))
	var group sync.WaitGroup
	for i, f := range p.files {
		group.Go(func() { errs[i] = do(f) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// flush writes the batches and frees the rows' memory.
func (p *part) flush() error {
	if err := p.each(file.Flush); err != nil {
		return err
	}
	texts, _ := p.copier.Copied()
	p.weight += texts
	p.copier.Reset()
	if p.weight < p.limit {
		return nil
	}
	p.weight = 0
	return p.each(file.EndGroup)
}

// seal makes the part's files durable and publishes them, sites last.
func (p *part) seal(ctx context.Context) ([]schema.File, error) {
	if err := p.each(file.Seal); err != nil {
		return nil, err
	}
	files := make([]schema.File, 0, len(p.files))
	for _, f := range p.files {
		if err := f.Publish(ctx); err != nil {
			return nil, err
		}
		files = append(files, f.Describe())
	}
	return files, nil
}

func (p *part) discard() error {
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.Discard())
	}
	p.copier.Reset()
	p.seqs = p.seqs[:0]
	return errors.Join(errs...)
}

func (o *Options) metadata() map[string]string {
	return map[string]string{
		table.MetaSchema:   strconv.Itoa(schema.Version),
		table.MetaTool:     o.ToolVersion,
		table.MetaRegistry: o.Registry.Version,
		table.MetaScan:     o.ScanID,
	}
}
