package survey

import (
	"context"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file counts sites by their policies, which are few, and then computes how each policy treats crawlers.

// Policies are the policies of a scan. Its methods are not for several goroutines at once.
type Policies struct {
	Registry *tokens.Registry       // whose tokens cells are of
	ByID     map[int64]audit.Policy // by policy_id
	cells    []audit.Cell           // scratch, see cellsOf
}

// ReadPolicies reads the policies of a scan. Tokens that the registry lacks are left out. The error is
// commit.ErrNoTable if the scan lacks the table.
func ReadPolicies(ctx context.Context, scan *commit.Scan, registry *tokens.Registry) (*Policies, error) {
	s := &Policies{Registry: registry, ByID: map[int64]audit.Policy{}}
	for row, err := range read.Rows[schema.PolicyRow](ctx, scan, schema.Policies) {
		if err != nil {
			return nil, err
		}
		if _, known := s.ByID[row.PolicyID]; !known {
			s.ByID[row.PolicyID] = siterows.PolicyOf(row, registry)
		}
	}
	return s, nil
}

// CellsOf returns the cell of each token of the registry by a policy, valid until the next call.
func (s *Policies) CellsOf(p *audit.Policy) []audit.Cell {
	s.cells = p.Cells(s.cells[:0], s.Registry)
	return s.cells
}

// Each calls do for each policy that sites have, in any order, with the cell of each token of the registry, which is
// valid during the call. It is an error if a policy is not of the scan.
func (s *Policies) Each(sites SitesByPolicy, do func(p *audit.Policy, cells []audit.Cell, n *SitesOf)) error {
	for id, n := range sites {
		p, known := s.ByID[id]
		if !known {
			return fmt.Errorf(
				"%d sites have a file, and no policy that the scan has; bulkscan reaudit makes it of their verdicts or bodies",
				n.File)
		}
		do(&p, s.CellsOf(&p), n)
	}
	return nil
}

// Names reports whether a group of a policy names a token.
func (s *Policies) Names(policy int64, id int32) bool {
	return slices.ContainsFunc(s.ByID[policy].Named, func(n audit.NamedCell) bool { return int32(n.Token) == id })
}

// Token returns the cells of a token. One that the registry lacks has no facts.
func (s *Policies) Token(name string) *TokenCells {
	token := s.Registry.Lookup(name)
	t := &TokenCells{Known: token >= 0, ByID: map[int64]audit.Cell{}}
	for id, p := range s.ByID {
		t.ByID[id] = 0
		if t.Known {
			t.ByID[id] = s.CellsOf(&p)[token]
		}
	}
	return t
}

// BlockingPolicies reports by policy_id whether a policy of the scan blocks a token of the registry, by the definition
// Full.
func BlockingPolicies(ctx context.Context, scan *commit.Scan, o Options) (map[int64]bool, error) {
	s, err := ReadPolicies(ctx, scan, o.WithDefaults().Registry)
	if err != nil {
		return nil, err
	}
	blocking := map[int64]bool{}
	for id, p := range s.ByID {
		blocking[id] = slices.ContainsFunc(s.CellsOf(&p), func(c audit.Cell) bool { return c.Decision() == audit.Blocked })
	}
	return blocking, nil
}

// TokenCells are what the policies of a scan make of one token.
type TokenCells struct {
	Known bool                 // the registry has the token
	ByID  map[int64]audit.Cell // by policy_id
	Err   error                // of the first site with a file and without a policy; see Of
}

// Of returns the cell of a site's policy, by columns of the site. If the site has a file and no policy, it sets Err.
func (t *TokenCells) Of(policy int64, access, site string) audit.Cell {
	cell, known := t.ByID[policy]
	if !known && access == Conditional && t.Err == nil {
		t.Err = fmt.Errorf(
			"%.200q has a file, and no policy that the scan has; bulkscan reaudit makes it of the site's verdicts or of its body", site)
	}
	return cell
}

// Values in sites: the access of sites with a file in force, which have a policy; the access of failing sites; and the
// finding of the sites that most definitions count.
var (
	Conditional  = parser.AccessConditional.String()
	FullDisallow = parser.AccessFullDisallow.String()
	FindingRules = audit.FindingRules.String()
)

// SitesOf counts sites with a file in force: all, those with finding rules, and those that answered with a status.
type SitesOf struct{ File, Rules, Answered int64 }

// Over returns the sites that a definition is over.
func (n SitesOf) Over(d *Definition) int64 {
	if d.Answered() {
		return n.Answered
	}
	return n.Rules
}

// Add adds the counts of other sites.
func (n *SitesOf) Add(m SitesOf) {
	n.File += m.File
	n.Rules += m.Rules
	n.Answered += m.Answered
}

// SiteOf is one site with a file in force.
func SiteOf(rules, answered bool) SitesOf { return SitesOf{1, One(rules), One(answered)} }

// SitesByPolicy counts the sites of each policy_id.
type SitesByPolicy map[int64]*SitesOf

// Add adds sites that have a policy.
func (s SitesByPolicy) Add(policy int64, sites SitesOf) {
	n := s[policy]
	if n == nil {
		n = &SitesOf{}
		s[policy] = n
	}
	n.Add(sites)
}

// GroupTokens returns the values that the tokens of a registry have of a property, in the registry's order, and for
// each token the index of its value.
func GroupTokens(registry *tokens.Registry, property tokens.Field) (values []string, places []int) {
	for i := range registry.Tokens {
		value := property(&registry.Tokens[i])
		at := slices.Index(values, value)
		if at < 0 {
			at = len(values)
			values = append(values, value)
		}
		places = append(places, at)
	}
	return values, places
}

// Via says whose group decides, as one of the next indexes. It is below 0 if none does.
func Via(c audit.Cell) int {
	return slices.IndexFunc([]audit.Cell{audit.CellOwn, audit.CellFallback, audit.CellStar},
		func(fact audit.Cell) bool { return c&fact != 0 })
}

// The indexes that Via returns, from the nearest group on.
const (
	ViaOwn = iota
	ViaFallback
	ViaStar
	NumVias // their number
)

// Traces notes which tokens occur in a scan that another registry has judged. A token that its registry lacked leaves
// no trace; counting it as not blocked would be false. nil: the registry is ours.
type Traces struct {
	tokens                  []bool
	named, blocked, partial []int32 // of the current site
}

// NewTraces returns nil unless the registry is foreign to the scan. All methods of nil do nothing.
func NewTraces(registry *tokens.Registry, foreign bool) *Traces {
	if !foreign {
		return nil
	}
	return &Traces{tokens: make([]bool, len(registry.Tokens))}
}

// Fields are the columns of sites that have traces.
func (t *Traces) Fields(registry *tokens.Registry) []table.Field {
	if t == nil {
		return nil
	}
	index := func(name string) int32 { return int32(registry.Lookup(name)) }
	return []table.Field{
		{Name: "named", Into: &t.named, Index: index}, {Name: "blocked", Into: &t.blocked, Index: index},
		{Name: "partial", Into: &t.partial, Index: index},
	}
}

// Site notes the tokens of the current row of sites, whose columns are those of fields.
func (t *Traces) Site() {
	if t == nil {
		return
	}
	for _, list := range [][]int32{t.named, t.blocked, t.partial} {
		for _, id := range list {
			t.Token(id)
		}
	}
}

// Token notes that a token occurs, by its index in the registry.
func (t *Traces) Token(id int32) {
	if t != nil && id != NoToken {
		t.tokens[id] = true
	}
}

// Merge adds the tokens that occur in another part of the scan.
func (t *Traces) Merge(o *Traces) {
	if t == nil {
		return
	}
	for id, known := range o.tokens {
		t.tokens[id] = t.tokens[id] || known
	}
}

// Lacks reports whether a token does not occur in the scan.
func (t *Traces) Lacks(id int) bool { return t != nil && !t.tokens[id] }

// Share is part of whole, from 0 to 1; 0 of nothing.
func Share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// One counts a site that has a property: 1 if it has, else 0.
func One(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// ScanIDs returns the ids of scans, in their order.
func ScanIDs(scans []*commit.Manifest) (ids []string) {
	for _, m := range scans {
		ids = append(ids, m.ScanID)
	}
	return ids
}
