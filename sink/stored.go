package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file reads a stored part as what it was made of: site after site its row, its rows of the other tables, and its
// body. All tables of a part are in the order of its sites, and a body stands where the first site has it, so that they are
// read side by side. Only bodies that a later site has too are kept until then.

// storedPart reads the tables of a commit side by side.
type storedPart struct {
	sites    *aheadRows[schema.SiteRow]
	verdicts *aheadRows[schema.VerdictRow] // nil where the scan has no such table; so are the next two
	evidence *aheadRows[schema.EvidenceRow]
	bodies   *storedBodies

	// Of the site. What rows of the other tables repeat of that of sites is taken from there.
	named, blocked, partial []int32 // as names numbers them; the row's own lists are empty
	oldVerdicts             []schema.VerdictRow
	oldEvidence             []schema.EvidenceRow

	names numbered
}

// numbered gives names numbers: those of the registry their own, and others further ones. The lists of sites are long, and mostly
// compared.
type numbered struct {
	numbers map[string]int32
	names   []string
	over    bool // there were more names than any registry has
}

// Bounds of what is held of a stored part, which somebody else may have made: names in the lists of sites, and rows of one site.
const (
	maxNames    = 1 << 16
	maxSiteRows = 1 << 20
)

func (n *numbered) number(name string) int32 {
	number, ok := n.numbers[name]
	if n.over = n.over || !ok && len(n.names) == maxNames; n.over {
		return 0
	}
	if !ok {
		number = int32(len(n.names))
		name = strings.Clone(name)
		n.numbers[name] = number
		n.names = append(n.names, name)
	}
	return number
}

// DamagedPartError says that what is stored of a part is not what a scan writes.
type DamagedPartError struct {
	Part string // its commit record, or the file of rejects
	Err  error
}

func (e *DamagedPartError) Error() string { return fmt.Sprintf("%s: %v", e.Part, e.Err) }
func (e *DamagedPartError) Unwrap() error { return e.Err }

// openStored opens the files of a commit. Of the facts in sites only those are read that a judgement needs, unless all are wanted.
func openStored(ctx context.Context, s *commit.Scan, c *commit.Commit, known []tokenText, facts bool) (_ *storedPart, err error) {
	p := &storedPart{names: numbered{numbers: map[string]int32{}}}
	for _, token := range known {
		p.names.number(token.name)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	lists := map[string]*[]int32{"named": &p.named, "blocked": &p.blocked, "partial": &p.partial}
	p.sites, err = openAhead[schema.SiteRow](ctx, s, c, schema.Sites, func(f reflect.StructField, whole table.Field) (table.Field, bool) {
		if list, ok := lists[whole.Name]; ok {
			return table.Field{Name: whole.Name, Into: list, Index: p.names.number}, true
		}
		return whole, facts || f.Tag.Get("judged") != "" || slices.Contains(factsOfAll, whole.Name) || slices.Contains(factsToJudge, whole.Name)
	})
	if err != nil {
		return nil, err
	}
	notOfSite := func(_ reflect.StructField, whole table.Field) (table.Field, bool) {
		return whole, !slices.Contains(factsOfAll, whole.Name)
	}
	if s.Has(schema.Verdicts) {
		if p.verdicts, err = openAhead[schema.VerdictRow](ctx, s, c, schema.Verdicts, notOfSite); err != nil {
			return nil, err
		}
	}
	if s.Has(schema.Evidence) {
		if p.evidence, err = openAhead[schema.EvidenceRow](ctx, s, c, schema.Evidence, notOfSite); err != nil {
			return nil, err
		}
	}
	if s.Has(schema.Bodies) {
		p.bodies, err = openBodies(ctx, s, c)
	}
	return p, err
}

// unharmed holds the bytes of a commit's file against the record: what is damaged and can be read all the same, such as a
// footer that calls a column otherwise, would come to stand in a file with a hash of its own.
func unharmed(ctx context.Context, s *commit.Scan, c *commit.Commit, table string) error {
	file, ok := c.File(table)
	if !ok {
		return nil // who opens it says so
	}
	err := commit.HoldAgainst(ctx, s.Store, file)
	// It is missing, which who opens it says, or a compaction has copied it, which has looked.
	if err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrChanged) {
		return fmt.Errorf("cannot read %s: %w", file.Name, err)
	}
	return nil
}

// factsOfAll are the columns of sites that rows of other tables repeat, but for seq, by which they are found; factsToJudge those by
// which a site is judged.
var (
	factsOfAll   = []string{"origin", "host", "port", "requested", "rank", "tld"}
	factsToJudge = []string{"seq", "outcome", "status", "truncated", "body_hash"}
)

func (p *storedPart) close() error {
	errs := []error{p.sites.close(), p.verdicts.close(), p.evidence.close()}
	if p.bodies != nil {
		errs = append(errs, p.bodies.close())
	}
	return errors.Join(errs...)
}

// next goes on to the next site: its row is p.sites.row, until the next call.
func (p *storedPart) next() (more bool, err error) {
	if more, err = p.sites.next(); !more || err != nil {
		return false, errors.Join(err, p.atEnd(err))
	}
	if p.names.over {
		return false, fmt.Errorf("cannot read %s: its lists have more names than the %d that any registry may have", p.sites.cursor.Name(), maxNames)
	}
	k := keyOf(&p.sites.row)
	seq := k.seq
	p.oldVerdicts, p.oldEvidence = p.oldVerdicts[:0], p.oldEvidence[:0]
	for v := p.verdicts; v != nil && v.has && v.row.Seq == seq; {
		if len(p.oldVerdicts) == maxSiteRows {
			return false, fmt.Errorf("cannot read %s: seq %d has more than %d rows", v.cursor.Name(), seq, maxSiteRows)
		}
		row := v.row
		row.Origin, row.Host, row.Port, row.Requested, row.Rank, row.TLD = k.origin, k.host, k.port, k.requested, k.rank, k.tld
		row.CrawlDelay, row.VisitFrom, row.VisitTo = cloned(row.CrawlDelay), cloned(row.VisitFrom), cloned(row.VisitTo)
		p.oldVerdicts = append(p.oldVerdicts, row)
		if _, err := v.next(); err != nil {
			return false, err
		}
	}
	for e := p.evidence; e != nil && e.has && e.row.Seq == seq; {
		if len(p.oldEvidence) == maxSiteRows {
			return false, fmt.Errorf("cannot read %s: seq %d has more than %d rows", e.cursor.Name(), seq, maxSiteRows)
		}
		row := e.row
		row.Origin = k.origin
		p.oldEvidence = append(p.oldEvidence, row)
		if _, err := e.next(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// atEnd reports rows that are of no site.
func (p *storedPart) atEnd(err error) error {
	switch {
	case err != nil:
		return nil
	case p.verdicts != nil && p.verdicts.has:
		return fmt.Errorf("cannot read %s: a row of seq %d stands where no site of the part has it", p.verdicts.cursor.Name(), p.verdicts.row.Seq)
	case p.evidence != nil && p.evidence.has:
		return fmt.Errorf("cannot read %s: a row of seq %d stands where no site of the part has it", p.evidence.cursor.Name(), p.evidence.row.Seq)
	}
	return nil
}

// keyOf is what the rows of a site share, by its row of sites.
func keyOf(row *schema.SiteRow) key {
	return key{origin: row.Origin, host: row.Host, requested: row.Requested, tld: row.TLD, port: row.Port, seq: row.Seq, rank: row.Rank}
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// aheadRows reads whole rows of a commit's file by a Cursor, and has the one that comes next.
type aheadRows[T any] struct {
	cursor *table.Cursor
	row    T // its lists, and what it points to, stay until the next
	has    bool

	// A list of structs is read as lists of their fields.
	statuses []int32
	urls     []string
	hops     *[]schema.HopRow
}

// openAhead opens a file and, but for sites, goes to its first row. How a column is read, and whether, may be said; lists of
// structs are left out or read whole.
func openAhead[T any](ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string, how func(reflect.StructField, table.Field) (table.Field, bool)) (_ *aheadRows[T], err error) {
	a := &aheadRows[T]{}
	row := reflect.ValueOf(&a.row).Elem()
	var fields []table.Field
	for i := range row.NumField() {
		field, wanted := table.Field{Name: schema.ColumnName(row.Type().Field(i)), Into: row.Field(i).Addr().Interface()}, true
		if how != nil {
			field, wanted = how(row.Type().Field(i), field)
		}
		if !wanted {
			continue
		}
		if hops, ok := field.Into.(*[]schema.HopRow); ok {
			a.hops = hops
			fields = append(fields, table.Field{Name: field.Name + ".status", Into: &a.statuses}, table.Field{Name: field.Name + ".url", Into: &a.urls})
			continue
		}
		fields = append(fields, field)
	}
	if a.cursor, err = OpenCursor(ctx, s, c, tableName, fields...); err != nil {
		return nil, err
	}
	if tableName == schema.Sites {
		return a, nil
	}
	if _, err = a.next(); err != nil {
		return nil, errors.Join(err, a.cursor.Close())
	}
	return a, nil
}

func (a *aheadRows[T]) next() (bool, error) {
	if a.has = a.cursor.Next(); !a.has {
		return false, a.cursor.Err()
	}
	if a.hops != nil {
		if len(a.statuses) != len(a.urls) {
			return false, fmt.Errorf("cannot read %s: row %d has redirects without status or URL", a.cursor.Name(), a.cursor.Row())
		}
		*a.hops = (*a.hops)[:0]
		for i, url := range a.urls {
			*a.hops = append(*a.hops, schema.HopRow{Status: a.statuses[i], URL: url})
		}
	}
	return true, nil
}

func (a *aheadRows[T]) close() error {
	if a == nil {
		return nil
	}
	return a.cursor.Close()
}

// storedBodies finds the bodies of a part's sites, which ask for them in their order.
type storedBodies struct {
	rows  *aheadRows[schema.BodyRow]
	again map[int64]int // of the hashes that several sites have: how many of them are still to come
	kept  map[int64]keptBody
	held  int // bytes of those that are kept in memory
	hold  int // how many that may be; what is beyond goes to a file

	spill *os.File // nil before the first
	end   int64    // of what has been written to it
	read  []byte
}

// keptBody is a body in memory, or in the file.
type keptBody struct {
	body   []byte
	at     int64
	length int
}

// holdBodies is how many bytes of bodies that come again are kept in memory.
const holdBodies = 64 << 20

func openBodies(ctx context.Context, s *commit.Scan, c *commit.Commit) (_ *storedBodies, err error) {
	b := &storedBodies{kept: map[int64]keptBody{}, hold: holdBodies}
	if b.again, err = repeatedHashes(ctx, s, c); err != nil {
		return nil, err
	}
	b.rows, err = openAhead[schema.BodyRow](ctx, s, c, schema.Bodies, nil)
	return b, err
}

// repeatedHashes are the hashes that several sites of a part have, and how many.
func repeatedHashes(ctx context.Context, s *commit.Scan, c *commit.Commit) (map[int64]int, error) {
	var hash int64
	rows, err := OpenCursor(ctx, s, c, schema.Sites, table.Field{Name: "body_hash", Into: &hash})
	if err != nil {
		return nil, err
	}
	hashes := make([]int64, 0, min(c.Rows, 1<<20))
	for rows.Next() {
		if hash != 0 {
			hashes = append(hashes, hash)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	slices.Sort(hashes)
	again := map[int64]int{}
	for i := 1; i < len(hashes); i++ {
		if hashes[i] == hashes[i-1] {
			again[hashes[i]] = max(2, again[hashes[i]]+1)
		}
	}
	return again, nil
}

// find returns the body of a hash, which nobody may change, and which stays until the next call. It reads on for one that is
// not where the next body stands only if it must be somewhere.
func (b *storedBodies) find(hash int64, must bool) (body []byte, found bool, err error) {
	left, several := b.again[hash]
	if several {
		b.again[hash] = left - 1
	}
	for {
		if b.rows.has && b.rows.row.BodyHash == hash {
			body = b.rows.row.Body
			if several && left > 1 {
				if err := b.keep(hash, body); err != nil {
					return nil, false, err
				}
			} else {
				b.drop(hash) // a merged part has it again
			}
			_, err := b.rows.next()
			return body, err == nil, err
		}
		if kept, ok := b.kept[hash]; ok {
			return b.take(hash, kept, left > 1)
		}
		if !must || !b.rows.has {
			return nil, false, nil
		}
		if err := b.keep(b.rows.row.BodyHash, b.rows.row.Body); err != nil {
			return nil, false, err
		}
		if _, err := b.rows.next(); err != nil {
			return nil, false, err
		}
	}
}

// keep keeps a body that is asked for later.
func (b *storedBodies) keep(hash int64, body []byte) error {
	if _, has := b.kept[hash]; has {
		return nil
	}
	if b.held+len(body) <= b.hold {
		b.held += len(body)
		b.kept[hash] = keptBody{body: slices.Clone(body)}
		return nil
	}
	if b.spill == nil {
		file, err := os.CreateTemp("", "bulkscan-bodies-*")
		if err != nil {
			return &spillError{err}
		}
		_ = os.Remove(file.Name()) // it loses its name where an open file can; elsewhere close removes it
		b.spill = file
	}
	if _, err := b.spill.WriteAt(body, b.end); err != nil {
		return &spillError{err}
	}
	b.kept[hash] = keptBody{at: b.end, length: len(body)}
	b.end += int64(len(body))
	return nil
}

// take returns a kept body, for the last time or not.
func (b *storedBodies) take(hash int64, kept keptBody, again bool) ([]byte, bool, error) {
	if !again {
		b.drop(hash)
	}
	if kept.length == 0 {
		return kept.body, true, nil
	}
	b.read = slices.Grow(b.read[:0], kept.length)[:kept.length]
	if _, err := b.spill.ReadAt(b.read, kept.at); err != nil {
		return nil, false, &spillError{err}
	}
	return b.read, true, nil
}

// drop forgets a body that is not asked for any more, if it was kept.
func (b *storedBodies) drop(hash int64) {
	b.held -= len(b.kept[hash].body)
	delete(b.kept, hash)
}

// spillError says that the temporary file of bodies failed, which is nothing that is wrong with what is stored.
type spillError struct{ err error }

func (e *spillError) Error() string {
	return fmt.Sprintf("cannot keep bodies in a temporary file: %v", e.err)
}
func (e *spillError) Unwrap() error { return e.err }

func (b *storedBodies) close() error {
	err := b.rows.close()
	if b.spill != nil {
		err = errors.Join(err, b.spill.Close())
		_ = os.Remove(b.spill.Name())
	}
	return err
}

// Why the old judgement of a site stays: the reasons of Rejudged.Carried.
const (
	CarriedHTML      = "html"       // bodies of HTML are not stored
	CarriedNoRecords = "no_records" // nor are bodies without records
	CarriedNotStored = "not_stored" // the scan was written without bodies
	CarriedNotRead   = "not_read"   // the row says what this version does not know
)

var outcomesByText = func() map[string]exchange.Outcome {
	all := map[string]exchange.Outcome{}
	for _, o := range exchange.Outcomes() {
		all[o.String()] = o
	}
	return all
}()

// restore sets what a judgement needs of a site from its stored row and body. Where it cannot be judged, it returns why.
// A body that must be there and is not, is an error.
func (p *storedPart) restore(s *audit.Site) (carried string, err error) {
	row := &p.sites.row
	outcome, known := outcomesByText[row.Outcome]
	if !known || row.Seq < 0 || row.AccessSource != audit.AccessSource {
		return CarriedNotRead, nil
	}
	s.Seq = uint64(row.Seq)
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Truncated = outcome, int(row.Status), row.Truncated
	if row.BodyHash == 0 {
		return "", nil
	}
	if p.bodies == nil {
		return CarriedNotStored, nil
	}
	must := !row.IsHTML && row.NGroups+row.NAllow+row.NDisallow+row.NSitemaps+row.NExtensions+row.NLegacy+row.NUnknown > 0
	body, found, err := p.bodies.find(row.BodyHash, must)
	switch {
	case err != nil:
		return "", err
	case found:
		s.Fetch.Body = body
	case must:
		return "", fmt.Errorf("cannot read %s: it has no body %d, which seq %d (%.100q) has", p.bodies.rows.cursor.Name(), row.BodyHash, row.Seq, row.Host)
	case row.IsHTML:
		return CarriedHTML, nil
	default:
		return CarriedNoRecords, nil
	}
	return "", nil
}

// textsOf is how many bytes of texts a row holds.
func textsOf(r *schema.SiteRow) int {
	n := len(r.Input) + len(r.Host) + len(r.Origin) + len(r.Label) + len(r.Domain) + len(r.Error) + len(r.FinalURL) + len(r.Server) +
		len(r.ContentType) + len(r.ETag) + len(r.LastModified) + len(r.CacheControl) + len(r.XRobotsTag) + len(r.UsageHeader)
	for i := range r.Redirects {
		n += len(r.Redirects[i].URL)
	}
	return n
}

// judgedTextsOf is how many bytes of texts a row's judgement holds.
func judgedTextsOf(r *schema.SiteRow) int {
	n := len(r.ContentSignal) + len(r.ContentUsage) + len(r.License)
	for _, s := range r.Sitemaps {
		n += len(s)
	}
	return n
}
