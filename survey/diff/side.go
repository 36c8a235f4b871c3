package diff

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/survey"
)

// siteState is the part of a site that stays in memory.
type siteState struct {
	fetched, body int64

	unmanaged int64  // id of the policy of the file without its managed blocks
	policy    uint32 // of comparison.policies
	judge     uint32 // of comparison.judges
	cdn       uint32 // of comparison.cdns
	finding   audit.Finding
}

// siteName is how a scan calls a site.
type siteName struct {
	Host, Requested string
	Port            int32
	Rank            int64
}

// siteRow is a row of one of the scans, on the way from its reader to join, which numbers the texts.
type siteRow struct {
	siteState
	siteName
	key           int64
	CDN, Registry string
}

func (s *siteState) ruled() bool { return s.finding == audit.FindingRules }

// verdict is what a cell of the site's policy says; "" without a file.
func (s *siteState) verdict(c audit.Cell) string {
	if !s.ruled() {
		return ""
	}
	return c.Decision().String()
}

// interned numbers distinct values.
type interned struct {
	ids    map[string]uint32
	values []string
}

// id returns the number of a value, and adds a new value.
func (t *interned) id(value []byte) uint32 {
	if id, ok := t.ids[string(value)]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = map[string]uint32{}
	}
	id := uint32(len(t.values))
	t.values = append(t.values, string(value))
	t.ids[t.values[id]] = id
	return id
}

type side struct {
	c        *comparison
	scan     *commit.Scan
	archive  bool
	traces   *survey.Traces
	policies map[int64]uint32 // of the scan: the number in comparison.policies

	row     columns
	unknown *string // a finding that this version does not have
	unnamed error   // of a site that has rules and lacks a policy

	rows  chan []siteRow // from the reader to join
	err   error          // of the reader, once rows is closed
	ended bool           // join has all rows

	sites, rules int64
}

// columns are the columns of sites that a comparison needs.
type columns struct {
	siteName
	Fetched, BodyHash      int64
	Finding, Registry, CDN string
	PolicyID, Unmanaged    int64
}

// open opens a scan and reads its policies. If another registry has judged the scan, open also finds the tokens that
// the scan mentions.
func (s *side) open(ctx context.Context, c *comparison, at ScanAt) error {
	c.o.Alone = at.Alone
	scan, err := c.o.Open(ctx, at.Store, at.ScanID)
	if err != nil {
		return err
	}
	policies, err := survey.ReadPolicies(ctx, scan, c.o.Registry)
	if err != nil {
		return fmt.Errorf("cannot compare scan %s: %w", at.ScanID, err)
	}
	foreign := c.o.Foreign(scan, "tokens of which it says nothing are not compared")
	*s = side{
		c: c, scan: scan, archive: scan.Manifest.Observer.Source == commit.Archive,
		traces: survey.NewTraces(c.o.Registry, foreign), policies: map[int64]uint32{},
	}
	of := make([]byte, len(c.chosen))
	for id, p := range policies.ByID {
		cells := policies.CellsOf(&p)
		for place, token := range c.chosen {
			of[place] = byte(cells[token])
		}
		s.policies[id] = c.policies.id(of)
	}
	if !foreign {
		return nil
	}
	fields := s.traces.Fields(c.o.Registry)
	if c.o.Panel != nil {
		fields = append(fields, table.Field{Name: "host", Into: &s.row.Host})
	}
	if err := s.readSites(ctx, fields, s.traces.Site); err != nil {
		return fmt.Errorf("cannot compare scan %s: %w", at.ScanID, err)
	}
	return nil
}

// keyFields are the columns of the site and of what was seen.
func (s *side) keyFields() []table.Field {
	r := &s.row
	return []table.Field{
		{Name: "host", Into: &r.Host}, {Name: "port", Into: &r.Port}, {Name: "requested", Into: &r.Requested},
		{Name: "fetched_at", Into: &r.Fetched}, {Name: "finding", Into: &r.Finding}, {Name: "body_hash", Into: &r.BodyHash},
	}
}

// batchRows is how many rows go between a reader and join, or a writer and its file, at once.
const batchRows = 512

// start begins to read the scan's sites in a goroutine, batch after batch.
func (s *side) start(ctx context.Context) {
	// without a buffer: the receiver of a batch is done with the batch before, which is filled next
	s.rows = make(chan []siteRow)
	go func() {
		defer close(s.rows)
		var batch, other []siteRow
		s.err = s.read(ctx, func() {
			if batch = append(batch, s.current()); len(batch) == batchRows {
				s.rows <- batch
				batch, other = other[:0], batch
			}
		})
		s.rows <- batch
	}()
}

// next counts the rows of the next batch, and returns them. They are valid until the call after.
func (s *side) next() []siteRow {
	batch, more := <-s.rows
	s.ended = !more
	for i := range batch {
		row := &batch[i]
		row.cdn = s.c.cdns.id([]byte(row.CDN))
		if row.ruled() {
			row.judge = s.c.judges.id([]byte(row.Registry))
		}
		s.sites++
		s.rules += survey.One(row.ruled())
	}
	return batch
}

// read calls do for each row, with all columns set.
func (s *side) read(ctx context.Context, do func()) error {
	r := &s.row
	return s.readSites(ctx, append(s.keyFields(),
		table.Field{Name: "policy_id", Into: &r.PolicyID}, table.Field{Name: "rank", Into: &r.Rank},
		table.Field{Name: "registry_version", Into: &r.Registry}, table.Field{Name: "cdn", Into: &r.CDN},
		table.Field{Name: "unmanaged_policy_id", Into: &r.Unmanaged},
	), do)
}

// readNames calls do for each row, with the columns of keyFields set.
func (s *side) readNames(ctx context.Context, do func()) error {
	return s.readSites(ctx, s.keyFields(), do)
}

func (s *side) readSites(ctx context.Context, fields []table.Field, do func()) error {
	return s.checked(survey.EachSite(ctx, s.scan, fields, s.inPanel(do)))
}

// inPanel returns what calls do for sites of the panel.
func (s *side) inPanel(do func()) func() {
	panel := s.c.o.Panel
	if panel == nil {
		return do
	}
	return func() {
		if panel.has[s.row.Host] {
			do()
		}
	}
}

// checked returns an error if a row had a finding of another version.
func (s *side) checked(err error) error {
	if err = cmp.Or(err, s.unnamed); err == nil && s.unknown != nil {
		err = fmt.Errorf("scan %s has the finding %.40q, which this version does not know", s.scan.Manifest.ScanID,
			*s.unknown)
	}
	return err
}

// key identifies the current site in both scans. An archive has captures by http and https, where a list has the host
// alone.
func (s *side) key() int64 {
	_, id := schema.FoldedKey(s.archive, s.row.Host, s.row.Port, s.row.Requested)
	return id
}

func (s *side) current() siteRow {
	r := &s.row
	finding, ok := audit.FindingNamed(r.Finding)
	if !ok && s.unknown == nil {
		s.unknown = new(strings.Clone(r.Finding))
	}
	now := siteState{fetched: r.Fetched, body: r.BodyHash, finding: finding}
	if now.ruled() {
		now.policy, now.unmanaged = s.policy(), cmp.Or(r.Unmanaged, r.PolicyID)
	}
	return siteRow{siteState: now, siteName: r.siteName, key: s.key(), CDN: r.CDN, Registry: r.Registry}
}

func (s *side) policy() uint32 {
	n, known := s.policies[s.row.PolicyID]
	if !known && s.unnamed == nil {
		s.unnamed = fmt.Errorf(
			"%.200q has rules, and no policy that scan %s has; bulkscan reaudit makes it of the site's verdicts or of its body",
			s.row.Host, s.scan.Manifest.ScanID)
	}
	return n
}
