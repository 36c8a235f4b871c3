package sink

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"reflect"
	"slices"
	"strconv"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/parquet-go/parquet-go"
)

// This file is one part: a Parquet file a table, filled together and sealed together. A Writer has two, so that one is
// filled while the other is sealed.

const (
	batchRows    = 128       // rows of sites handed to parquet-go at once: fewer than 64 cost time, and each batch allocates twice
	detailRows   = 512       // the same for verdicts and evidence
	batchBytes   = 1 << 20   // copied bytes after which a batch is written early
	groupRows    = 65536     // rows of a row group at most
	groupBytes   = 48 << 20  // raw bytes after which a row group is ended early, so that hostile sites cost no memory
	pageBytes    = 512 << 10 // raw bytes of a page at most; every column of every table has a buffer of that size
	minPageBytes = 4 << 10
	partGroups   = 256     // row groups of a file after which a part is full: its footer grows with them
	dictionaries = 1 << 20 // bytes of a column's dictionary, beyond which it goes on plain
)

// part is a set of open files. Between begin and discard or seal it belongs to whoever holds it.
type part struct {
	copier copier
	n      int      // its number in its shard
	seqs   []uint64 // of its rows
	weight int      // raw bytes in the open row groups
	limit  int      // of weight: groupBytes

	sites    *table[SiteRow]
	verdicts *table[VerdictRow]
	evidence *table[EvidenceRow]
	bodies   *table[BodyRow]
	hashes   map[uint64]struct{} // of the bodies that it has
	rejudged *Rejudged           // of a part that is made of a stored one

	files []file // the tables above that are written, in the order of publishing: sites last
}

// file is a table without its row type.
type file interface {
	tableName() string
	rowGroups() int
	begin(ctx context.Context, st store.Store, name string) error
	flush() error
	endGroup() error
	seal() error
	publish(ctx context.Context) error
	discard() error
	describe() File
}

func newPart(o *Options) *part {
	p := &part{
		copier: newCopier(o.ScanID, o.Registry),
		seqs:   make([]uint64, 0, min(o.PartRows, 1<<20)),
		hashes: map[uint64]struct{}{},
		limit:  cmp.Or(o.groupBytes, groupBytes),
	}
	metadata := o.metadata()
	page := max(minPageBytes, min(16*o.PartRows, pageBytes))
	if slices.Contains(o.Tables, TableBodies) {
		p.bodies = newTable[BodyRow](TableBodies, 1, page, metadata)
	}
	if slices.Contains(o.Tables, TableEvidence) {
		p.evidence = newTable[EvidenceRow](TableEvidence, detailRows, page, metadata)
	}
	if slices.Contains(o.Tables, TableVerdicts) {
		p.verdicts = newTable[VerdictRow](TableVerdicts, detailRows, page, metadata)
	}
	if slices.Contains(o.Tables, TableSites) {
		p.sites = newTable[SiteRow](TableSites, batchRows, page, metadata)
	}
	p.files = p.tables()
	return p
}

// tables are the part's tables, in the order of publishing.
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
	if p.sites != nil {
		files = append(files, p.sites)
	}
	return files
}

// begin opens the part's files.
func (p *part) begin(ctx context.Context, st store.Store, o *Options, n int) error {
	p.n, p.weight = n, 0
	p.seqs = p.seqs[:0]
	clear(p.hashes)
	for _, f := range p.files {
		if err := f.begin(ctx, st, partName(f.tableName(), o.Date, o.ScanID, o.Shard, n)); err != nil {
			return errors.Join(err, p.discard())
		}
	}
	return nil
}

// add copies a site's rows into the batches, and writes them when they are full.
func (p *part) add(s *audit.Site) error {
	k := p.copier.key(s)
	if p.verdicts != nil {
		for i := range s.Report.Verdicts {
			row, err := p.verdicts.next()
			if err != nil {
				return err
			}
			p.copier.verdict(row, k, &s.Report.Verdicts[i])
		}
	}
	if p.evidence != nil {
		for i := range s.Report.Evidence {
			row, err := p.evidence.next()
			if err != nil {
				return err
			}
			p.copier.evidence(row, k, &s.Report.Evidence[i])
		}
	}
	if p.bodies != nil && keepsBody(s) {
		if err := p.addBody(s); err != nil {
			return err
		}
	}
	if p.sites != nil {
		row, err := p.sites.next()
		if err != nil {
			return err
		}
		p.copier.site(row, k, s)
	}
	return p.added(s.Seq)
}

// added ends the adding of a site.
func (p *part) added(seq uint64) error {
	p.seqs = append(p.seqs, seq)
	// Bodies have been written already, and a few of them may weigh as much as a row group.
	if len(p.seqs)%batchRows == 0 || len(p.copier.bytes.block) > batchBytes || p.weight >= p.limit {
		return p.flush()
	}
	return nil
}

// full reports whether a file has as many row groups as it may have.
func (p *part) full() bool {
	return slices.ContainsFunc(p.files, func(f file) bool { return f.rowGroups() >= partGroups })
}

// keepsBody reports whether the table bodies keeps a site's body: a file of robots records. HTML and other texts that
// servers send for missing files would be most of the bytes.
func keepsBody(s *audit.Site) bool {
	return s.Report.BodyHash != 0 && len(s.Fetch.Body) > 0 && !s.Report.IsHTML && s.Report.Counts.Records > 0
}

// addBody writes a body at once: it is too big to be copied twice.
func (p *part) addBody(s *audit.Site) error {
	if _, has := p.hashes[s.Report.BodyHash]; has {
		return nil
	}
	p.hashes[s.Report.BodyHash] = struct{}{}
	row, err := p.bodies.next()
	if err != nil {
		return err
	}
	*row = BodyRow{BodyHash: int64(s.Report.BodyHash), Body: s.Fetch.Body}
	p.weight += len(s.Fetch.Body)
	return p.bodies.flush()
}

// flush writes the batches, after which the rows' memory is free again.
func (p *part) flush() error {
	for _, f := range p.files {
		if err := f.flush(); err != nil {
			return err
		}
	}
	p.weight += len(p.copier.bytes.block)
	p.copier.reset()
	if p.weight < p.limit {
		return nil
	}
	p.weight = 0
	for _, f := range p.files {
		if err := f.endGroup(); err != nil {
			return err
		}
	}
	return nil
}

// seal makes the part's files durable and gives them their names, sites last.
func (p *part) seal(ctx context.Context) ([]File, error) {
	if err := p.flush(); err != nil {
		return nil, err
	}
	for _, f := range p.files {
		if err := f.seal(); err != nil {
			return nil, err
		}
	}
	files := make([]File, 0, len(p.files))
	for _, f := range p.files {
		if err := f.publish(ctx); err != nil {
			return nil, err
		}
		files = append(files, f.describe())
	}
	return files, nil
}

// discard drops the files that have no name yet, and the rows in memory.
func (p *part) discard() error {
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.discard())
	}
	p.copier.reset()
	p.seqs = p.seqs[:0]
	return errors.Join(errs...)
}

// table is one Parquet file of a part, and the writer that makes one file after the other.
type table[T any] struct {
	name   string
	writer *tailedWriter[T]
	out    digest
	batch  []T // at most its capacity; written by flush
	nulls  []optional
	rows   int64
	group  int // rows of the row group that is being written
	groups int // row groups, with that one
}

// digest is where a Parquet writer writes to: the draft, with its size and hash on the way.
type digest struct {
	name  string
	draft store.Draft
	hash  hash.Hash
	size  int64
}

func (d *digest) Write(b []byte) (int, error) {
	n, err := d.draft.Write(b)
	d.hash.Write(b[:n])
	d.size += int64(n)
	return n, err
}

func newTable[T any](name string, batch, page int, metadata map[string]string) *table[T] {
	t := &table[T]{name: name, batch: make([]T, 0, batch)}
	t.out.hash = sha256.New()
	t.nulls = optionalsOf(reflect.TypeFor[T]())
	// It writes nowhere until begin says where to.
	t.writer = &tailedWriter[T]{GenericWriter: newParquetWriter[T](io.Discard, page, metadata)}
	return t
}

func (t *table[T]) tableName() string { return t.name }

func (t *table[T]) rowGroups() int { return t.groups }

func (t *table[T]) begin(ctx context.Context, st store.Store, name string) error {
	draft, err := st.Create(ctx, name)
	if err != nil {
		return err
	}
	t.out.name, t.out.draft, t.out.size = name, draft, 0
	t.out.hash.Reset()
	t.rows, t.group, t.groups, t.batch = 0, 0, 0, t.batch[:0]
	t.writer.Reset(&t.out)
	return nil
}

// next returns the row to fill next, to be filled before anything else is called.
func (t *table[T]) next() (*T, error) {
	if len(t.batch) == cap(t.batch) {
		if err := t.flush(); err != nil {
			return nil, err
		}
	}
	t.batch = t.batch[:len(t.batch)+1]
	return &t.batch[len(t.batch)-1], nil
}

func (t *table[T]) flush() error {
	if len(t.batch) == 0 {
		return nil
	}
	err := t.write(t.batch)
	t.batch = t.batch[:0]
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", t.out.name, err)
	}
	return nil
}

// write hands rows to the Parquet writer, up to the end of each row group apart: the writer would cut them there by
// itself, and where it cuts decides which nulls it keeps.
func (t *table[T]) write(rows []T) error {
	for len(rows) > 0 {
		if t.group == groupRows {
			t.group = 0
		}
		if t.group == 0 {
			t.groups++
		}
		n := min(len(rows), groupRows-t.group)
		if err := t.writePieces(rows[:n]); err != nil {
			return err
		}
		t.group += n
		rows = rows[n:]
	}
	return nil
}

// writePieces writes rows of one row group in pieces whose nulls the writer keeps.
func (t *table[T]) writePieces(rows []T) error {
	if len(rows) > 2 && misread(rows, t.nulls) {
		if err := t.writePieces(rows[:len(rows)/2]); err != nil {
			return err
		}
		return t.writePieces(rows[len(rows)/2:])
	}
	n, err := t.writer.Write(rows)
	t.rows += int64(n)
	return err
}

func (t *table[T]) endGroup() error {
	t.group = 0
	if err := t.writer.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", t.out.name, err)
	}
	return nil
}

func (t *table[T]) seal() error {
	if err := t.writer.Close(); err != nil {
		return fmt.Errorf("cannot write %s: %w", t.out.name, err)
	}
	return t.out.draft.Seal()
}

func (t *table[T]) publish(ctx context.Context) error { return t.out.draft.Publish(ctx) }

func (t *table[T]) discard() error {
	t.batch = t.batch[:0]
	if t.out.draft == nil {
		return nil
	}
	err := t.out.draft.Discard()
	t.out.draft = nil
	return err
}

func (t *table[T]) describe() File {
	return File{Table: t.name, Name: t.out.name, Rows: t.rows, Bytes: t.out.size, SHA256: hex.EncodeToString(t.out.hash.Sum(nil)), Groups: t.groups}
}

// newParquetWriter returns a writer of a table's rows with the settings of the dataset: data pages v1 (v2 leaves the
// levels of lists uncompressed, 25 bytes a row), zstd, bounded row groups and dictionaries, and minimum and maximum
// only of the columns that somebody filters by, as computing them took a third of the time.
func newParquetWriter[T any](w io.Writer, page int, metadata map[string]string) *parquet.GenericWriter[T] {
	options := []parquet.WriterOption{
		parquet.DataPageVersion(1),
		parquet.Compression(compression()),
		parquet.PageBufferSize(page),
		parquet.WriteBufferSize(256 << 10),
		parquet.MaxRowsPerRowGroup(groupRows),
		parquet.DictionaryMaxBytes(dictionaries),
		parquet.CreatedBy("bulkscan", metadata[metaTool], "parquet-go"),
	}
	for key, value := range metadata {
		options = append(options, parquet.KeyValueMetadata(key, value))
	}
	filtered := map[string]bool{}
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		filtered[columnName(row.Field(i))] = row.Field(i).Tag.Get("stats") != ""
	}
	for _, path := range parquet.SchemaOf(new(T)).Columns() {
		if !filtered[path[0]] {
			options = append(options, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
		}
	}
	return parquet.NewGenericWriter[T](w, options...)
}

// The keys of a file's metadata.
const (
	metaSchema   = "schema_version"
	metaTool     = "tool_version"
	metaRegistry = "registry_version"
	metaScan     = "scan_id"
)

func (o *Options) metadata() map[string]string {
	return map[string]string{
		metaSchema:   strconv.Itoa(SchemaVersion),
		metaTool:     o.ToolVersion,
		metaRegistry: o.Registry.Version,
		metaScan:     o.ScanID,
	}
}
