package reaudit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file reads a stored part site by site: the site's row, its rows of the other tables, and its body. All tables of
// a part are in the order of its sites, and a body is at its first site. So the tables are read side by side, and only
// bodies of several sites are kept.

// storedPart reads the tables of a commit side by side.
type storedPart struct {
	sites    *aheadRows[schema.SiteRow]
	verdicts *aheadRows[schema.VerdictRow] // nil if the scan has no such table, like the next two
	evidence *aheadRows[schema.EvidenceRow]
	bodies   *storedBodies
	kept     map[int64][]byte                            // by hash, where there is no table
	policies func() (map[int64]*schema.PolicyRow, error) // by id, read when a site keeps its judgement

	now siterows.Rows // of the current site, until the next call of next

	once   bool   // no row has differed so far, so that a repeated answer need not be judged
	print  uint64 // fingerprint of the current site; 0: its body is not that of several sites
	buffer []byte // of fingerprint
	known  bool   // the rows of an earlier site with this fingerprint did not differ
}

// maxSiteRows bounds the rows that one site may have in a table of a stored part, which may come from elsewhere.
const maxSiteRows = 1 << 20

// DamagedPartError says that a stored part has changed since a scan wrote it.
type DamagedPartError struct {
	Part string // name of its commit record, or of the file of rejects
	Err  error
}

func (e *DamagedPartError) Error() string { return fmt.Sprintf("%s: %v", e.Part, e.Err) }
func (e *DamagedPartError) Unwrap() error { return e.Err }

// readPolicies reads the policies of a commit.
func readPolicies(ctx context.Context, s *commit.Scan, c *commit.Commit) (map[int64]*schema.PolicyRow, error) {
	policies := map[int64]*schema.PolicyRow{}
	for row, err := range read.CommitRows[schema.PolicyRow](ctx, s, c, schema.Policies, 0, math.MaxInt64) {
		if err != nil {
			return nil, err
		}
		kept := *row
		for _, list := range []*[]string{&kept.Own, &kept.OwnBlocked, &kept.OwnPartial, &kept.OwnRootDenied,
			&kept.OwnDPIAll} {
			*list = slices.Clone(*list)
		}
		policies[kept.PolicyID] = &kept
	}
	return policies, nil
}

// keepPolicies adds the policies of the current site, which keeps its judgement, to the part that is made. A scan of
// schema version 1 has no policies: the policy is derived from the site's verdicts. The policy by the dialect rfc is
// left out, since it would need the body.
func (p *storedPart) keepPolicies(to *sink.Remade, auditor *audit.Auditor) error {
	if site := &p.now.Site; site.PolicyID == 0 && site.Access == parser.AccessConditional.String() &&
		len(p.now.Verdicts) > 0 {
		made := audit.Report{Policy: siterows.PolicyOfVerdicts(&p.now, auditor)}
		site.PolicyID = int64(made.Policy.ID)
		return to.AddPolicies(&made)
	}
	for _, id := range [...]int64{p.now.Site.PolicyID, p.now.Site.RFCPolicyID} {
		if id == 0 {
			continue
		}
		policies, err := p.policies()
		if err != nil {
			return err
		}
		if policies[id] == nil {
			return fmt.Errorf("cannot read table %s: it has no policy %d, which seq %d (%.100q) has", schema.Policies, id,
				p.now.Site.Seq, p.now.Site.Host)
		}
		if err := to.KeepPolicy(policies[id]); err != nil {
			return err
		}
	}
	return nil
}

// openStored opens the files of a commit. All columns of sites are read if facts, otherwise only those that a judgement
// needs.
func openStored(ctx context.Context, s *commit.Scan, c *commit.Commit, facts bool) (_ *storedPart, err error) {
	p := &storedPart{policies: sync.OnceValues(func() (map[int64]*schema.PolicyRow, error) {
		return readPolicies(ctx, s,
			c)
	})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.sites, err = openAhead(ctx, s, c, schema.Sites, &p.now.Site, func(f reflect.StructField, name string) bool {
		return facts || f.Tag.Get("judged") != "" || slices.Contains(siterows.Shared, name) ||
			slices.Contains(factsToJudge, name)
	})
	if err != nil {
		return nil, err
	}
	notOfSite := func(_ reflect.StructField, name string) bool {
		return name == "seq" || !slices.Contains(siterows.Shared, name)
	}
	if s.Has(schema.Verdicts) {
		if p.verdicts, err = openAhead(ctx, s, c, schema.Verdicts, new(schema.VerdictRow), notOfSite); err != nil {
			return nil, err
		}
	}
	if s.Has(schema.Evidence) {
		if p.evidence, err = openAhead(ctx, s, c, schema.Evidence, new(schema.EvidenceRow), notOfSite); err != nil {
			return nil, err
		}
	}
	if s.Has(schema.Bodies) {
		p.bodies, err = openBodies(ctx, s, c)
	}
	return p, err
}

// factsToJudge are the columns that a judgement needs, beside the keys.
var factsToJudge = []string{"outcome", "status", "truncated", "body_hash", "challenge", "x_robots_tag"}

func (p *storedPart) close() error {
	errs := []error{p.sites.close(), p.verdicts.close(), p.evidence.close()}
	if p.bodies != nil {
		errs = append(errs, p.bodies.close())
	}
	return errors.Join(errs...)
}

// rows returns the rows of the current site, valid until the next call of next.
func (p *storedPart) rows() *siterows.Rows { return &p.now }

// next advances to the next site.
func (p *storedPart) next() (more bool, err error) {
	if more, err = p.sites.next(); !more || err != nil {
		return false, errors.Join(err, p.atEnd(err))
	}
	site := &p.now.Site
	p.now.Verdicts, p.now.Evidence = p.now.Verdicts[:0], p.now.Evidence[:0]
	for v := p.verdicts; v != nil && v.has && v.row.Seq == site.Seq; {
		if len(p.now.Verdicts) == maxSiteRows {
			return false, fmt.Errorf("cannot read %s: seq %d has more than %d rows", v.cursor.Name(), site.Seq, maxSiteRows)
		}
		row := *v.row
		row.Origin, row.Host, row.Port, row.Requested, row.Rank, row.TLD = site.Origin, site.Host, site.Port, site.Requested,
			site.Rank, site.TLD
		row.CrawlDelay, row.VisitFrom, row.VisitTo = cloned(row.CrawlDelay), cloned(row.VisitFrom), cloned(row.VisitTo)
		p.now.Verdicts = append(p.now.Verdicts, row)
		if _, err := v.next(); err != nil {
			return false, err
		}
	}
	for e := p.evidence; e != nil && e.has && e.row.Seq == site.Seq; {
		if len(p.now.Evidence) == maxSiteRows {
			return false, fmt.Errorf("cannot read %s: seq %d has more than %d rows", e.cursor.Name(), site.Seq, maxSiteRows)
		}
		row := *e.row
		row.Origin = site.Origin
		p.now.Evidence = append(p.now.Evidence, row)
		if _, err := e.next(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// atEnd reports rows that belong to no site.
func (p *storedPart) atEnd(err error) error {
	switch {
	case err != nil:
		return nil
	case p.verdicts != nil && p.verdicts.has:
		return fmt.Errorf("cannot read %s: a row of seq %d stands where no site of the part has it", p.verdicts.cursor.Name(),
			p.verdicts.row.Seq)
	case p.evidence != nil && p.evidence.has:
		return fmt.Errorf("cannot read %s: a row of seq %d stands where no site of the part has it", p.evidence.cursor.Name(),
			p.evidence.row.Seq)
	}
	return nil
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// aheadRows reads the rows of a commit's file, one row ahead.
type aheadRows[T any] struct {
	cursor *table.Cursor
	row    *T // its lists, and what it points to, are valid until next
	has    bool
}

// openAhead opens a file and, except for sites, reads its first row into row. Only wanted columns are read; nil is all.
func openAhead[T any](ctx context.Context, s *commit.Scan, c *commit.Commit, tableName string, row *T,
	wanted func(f reflect.StructField, column string) bool) (_ *aheadRows[T], err error) {
	a := &aheadRows[T]{row: row}
	if a.cursor, err = read.OpenCursor(ctx, s, c, tableName, table.FieldsOf(row, false, wanted)...); err != nil {
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
	return true, nil
}

func (a *aheadRows[T]) close() error {
	if a == nil {
		return nil
	}
	return a.cursor.Close()
}

// storedBodies finds the bodies of a part's sites, which are requested in the order of the sites.
type storedBodies struct {
	rows  *aheadRows[schema.BodyRow]
	again map[int64]repeated // by hash of several sites
	kept  map[int64]keptBody
	held  int // bytes of the bodies in memory
	hold  int // maximum of held; further bodies go to a file

	spill *os.File // nil before its first body
	end   int64    // its size
	read  []byte
}

// repeated describes a body that several sites have.
type repeated struct {
	left      int    // how many of these sites are still to come
	unchanged uint64 // fingerprint of the last one whose rows did not differ; 0 before
}

// keptBody is a body in memory, or in the file.
type keptBody struct {
	body   []byte
	at     int64
	length int
}

// holdBodies bounds the bytes of repeated bodies in memory.
const holdBodies = 64 << 20

func openBodies(ctx context.Context, s *commit.Scan, c *commit.Commit) (_ *storedBodies, err error) {
	b := &storedBodies{kept: map[int64]keptBody{}, hold: holdBodies}
	if b.again, err = repeatedHashes(ctx, s, c); err != nil {
		return nil, err
	}
	b.rows, err = openAhead(ctx, s, c, schema.Bodies, new(schema.BodyRow), nil)
	return b, err
}

// repeatedHashes returns the hashes that several sites of a part have, with the number of these sites.
func repeatedHashes(ctx context.Context, s *commit.Scan, c *commit.Commit) (map[int64]repeated, error) {
	var hash int64
	rows, err := read.OpenCursor(ctx, s, c, schema.Sites, table.Field{Name: "body_hash", Into: &hash})
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
	again := map[int64]repeated{}
	for i := 1; i < len(hashes); i++ {
		if hashes[i] == hashes[i-1] {
			again[hashes[i]] = repeated{left: max(2, again[hashes[i]].left+1)}
		}
	}
	return again, nil
}

// find returns the body of a hash, read-only and valid until the next call. If the body is not the next one, find
// searches further only if must is set.
func (b *storedBodies) find(hash int64, must bool) (body []byte, found bool, err error) {
	of, several := b.again[hash]
	if several {
		b.again[hash] = repeated{of.left - 1, of.unchanged}
	}
	for {
		if b.rows.has && b.rows.row.BodyHash == hash {
			body = b.rows.row.Body
			if several && of.left > 1 {
				if err := b.keep(hash, body); err != nil {
					return nil, false, err
				}
			} else {
				b.drop(hash) // a merged part may repeat it
			}
			_, err := b.rows.next()
			return body, err == nil, err
		}
		if kept, ok := b.kept[hash]; ok {
			return b.take(hash, kept, of.left > 1)
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

// pass skips the body of a site whose rows have this fingerprint. It returns false unless a site with the same body and
// fingerprint was judged before and did not differ, and if the body is stored at this site.
func (b *storedBodies) pass(hash int64, print uint64) bool {
	of := b.again[hash]
	if of.unchanged != print || b.rows.has && b.rows.row.BodyHash == hash {
		return false
	}
	b.again[hash] = repeated{of.left - 1, of.unchanged}
	if of.left == 1 {
		b.drop(hash)
	}
	return true
}

// keep keeps a body that a later site needs.
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
		_ = os.Remove(file.Name()) // on systems that cannot remove an open file, close removes it
		b.spill = file
	}
	if _, err := b.spill.WriteAt(body, b.end); err != nil {
		return &spillError{err}
	}
	b.kept[hash] = keptBody{at: b.end, length: len(body)}
	b.end += int64(len(body))
	return nil
}

// take returns a kept body. If again is false, it forgets the body.
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

// drop forgets a kept body that no later site needs.
func (b *storedBodies) drop(hash int64) {
	b.held -= len(b.kept[hash].body)
	delete(b.kept, hash)
}

// spillError says that the temporary file of bodies failed. The stored part is intact.
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

// unchanged records that the rows of the current site, which was judged, do not differ.
func (p *storedPart) unchanged() {
	if p.print != 0 {
		of := p.bodies.again[p.now.Site.BodyHash]
		of.unchanged = p.print
		p.bodies.again[p.now.Site.BodyHash] = of
	}
}

// Reasons why a site keeps its old judgement, the keys of commit.Rejudged.Carried.
const (
	CarriedHTML      = "html"       // bodies of HTML are not stored
	CarriedNoRecords = "no_records" // bodies without records are not stored
	CarriedNotStored = "not_stored" // the scan was written without bodies, or they were pruned
	CarriedNotRead   = "not_read"   // the row has a value that this version does not know
)

var outcomesByText = func() map[string]exchange.Outcome {
	all := map[string]exchange.Outcome{}
	for _, o := range exchange.Outcomes() {
		all[o.String()] = o
	}
	return all
}()

// restore sets the parts of a site that a judgement needs, from its stored row and body. If the site cannot be judged,
// it returns the reason. A missing body that should be stored is an error.
func (p *storedPart) restore(s *audit.Site) (carried string, err error) {
	row := &p.now.Site
	outcome, known := outcomesByText[row.Outcome]
	if !known || row.Seq < 0 || row.AccessSource != audit.AccessSource {
		return CarriedNotRead, nil
	}
	s.Seq = uint64(row.Seq)
	s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Truncated = outcome, int(row.Status), row.Truncated
	s.Fetch.Fields.Challenge = row.Challenge
	s.Fetch.Fields.XRobotsTag = s.Fetch.Keep([]byte(row.XRobotsTag))
	p.print, p.known = 0, false
	if row.BodyHash == 0 {
		return "", nil
	}
	if p.bodies == nil {
		if body, ok := p.kept[row.BodyHash]; ok {
			s.Fetch.Body = body
			return "", nil
		}
		return CarriedNotStored, nil
	}
	must := !row.IsHTML && row.NGroups+row.NAllow+row.NDisallow+row.NSitemaps+row.NExtensions+row.NLegacy+row.NUnknown > 0
	if _, several := p.bodies.again[row.BodyHash]; several && must && p.once {
		p.print, p.buffer = fingerprint(&p.now, p.buffer)
		if p.known = p.bodies.pass(row.BodyHash, p.print); p.known {
			return "", nil
		}
	}
	body, found, err := p.bodies.find(row.BodyHash, must)
	switch {
	case err != nil:
		return "", err
	case found:
		s.Fetch.Body = body
	case must:
		return "", fmt.Errorf("cannot read %s: it has no body %d, which seq %d (%.100q) has", p.bodies.rows.cursor.Name(),
			row.BodyHash, row.Seq, row.Host)
	case row.IsHTML:
		return CarriedHTML, nil
	default:
		return CarriedNoRecords, nil
	}
	return "", nil
}
