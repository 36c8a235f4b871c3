package survey

import (
	"context"
	"fmt"
	"slices"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file counts sites by their policies, which are few, and then computes how each policy treats crawlers.

// policySet has the policies of a scan by policy_id.
type policySet struct {
	registry *tokens.Registry
	policies map[int64]audit.Policy
	cells    []audit.Cell // scratch, see cellsOf
}

// readPolicies reads the policies of a scan. Tokens that the registry lacks are left out.
func readPolicies(ctx context.Context, scan *commit.Scan, registry *tokens.Registry) (*policySet, error) {
	s := &policySet{registry: registry, policies: map[int64]audit.Policy{}}
	for row, err := range read.Rows[schema.PolicyRow](ctx, scan, schema.Policies) {
		if err != nil {
			return nil, err
		}
		if _, known := s.policies[row.PolicyID]; !known {
			s.policies[row.PolicyID] = siterows.PolicyOf(row, registry)
		}
	}
	return s, nil
}

// cellsOf returns the cell of each token of the registry by a policy, valid until the next call.
func (s *policySet) cellsOf(p *audit.Policy) []audit.Cell {
	s.cells = p.Cells(s.cells[:0], s.registry)
	return s.cells
}

// each calls do for each policy that sites have, with the cell of each token of the registry, which is valid during the
// call.
func (s *policySet) each(sites sitesByPolicy, do func(p *audit.Policy, cells []audit.Cell, n *sitesOf)) error {
	for id, n := range sites {
		p, known := s.policies[id]
		if !known {
			return fmt.Errorf(
				"%d sites have a file, and no policy that the scan has; bulkscan reaudit makes it of their verdicts or bodies",
				n.file)
		}
		do(&p, s.cellsOf(&p), n)
	}
	return nil
}

// names reports whether a group of a policy names a token.
func (s *policySet) names(policy int64, id int32) bool {
	return slices.ContainsFunc(s.policies[policy].Named, func(n audit.NamedCell) bool { return int32(n.Token) == id })
}

// token returns the cells of a token by policy_id. What the registry lacks has no facts.
func (s *policySet) token(name string) *tokenCells {
	t := &tokenCells{id: s.registry.Lookup(name), cells: map[int64]audit.Cell{}}
	for id, p := range s.policies {
		t.cells[id] = 0
		if t.id >= 0 {
			t.cells[id] = s.cellsOf(&p)[t.id]
		}
	}
	return t
}

// BlockingPolicies reports by policy_id whether a policy of the scan blocks a token of the registry, by the definition
// Full.
func BlockingPolicies(ctx context.Context, scan *commit.Scan, o Options) (map[int64]bool, error) {
	s, err := readPolicies(ctx, scan, o.withDefaults().Registry)
	if err != nil {
		return nil, err
	}
	blocking := map[int64]bool{}
	for id, p := range s.policies {
		blocking[id] = slices.ContainsFunc(s.cellsOf(&p), func(c audit.Cell) bool { return c.Decision() == audit.Blocked })
	}
	return blocking, nil
}

// tokenCells are what the policies of a scan make of one token, by policy_id.
type tokenCells struct {
	id    int // of the token in the registry; below 0: the registry lacks it
	cells map[int64]audit.Cell
	err   error // of a site with a file and without a policy
}

// of returns the cell of a site's policy. It notes an error if a site has a file and no policy.
func (t *tokenCells) of(policy int64, access, site string) audit.Cell {
	cell, known := t.cells[policy]
	if !known && access == conditional && t.err == nil {
		t.err = fmt.Errorf(
			"%.200q has a file, and no policy that the scan has; bulkscan reaudit makes it of the site's verdicts or of its body", site)
	}
	return cell
}

// Values in sites: the access of sites with a file in force, which have a policy; the access of failing sites; and the
// finding of the sites that most definitions count.
var (
	conditional  = parser.AccessConditional.String()
	fullDisallow = parser.AccessFullDisallow.String()
	findingRules = audit.FindingRules.String()
)

// sitesOf counts sites with a file in force: all, those with finding rules, and those that answered with a status.
type sitesOf struct{ file, rules, answered int64 }

// over returns the sites that a definition is over.
func (n sitesOf) over(d *Definition) int64 {
	if d.Answered() {
		return n.answered
	}
	return n.rules
}

func (n *sitesOf) add(m sitesOf) {
	n.file += m.file
	n.rules += m.rules
	n.answered += m.answered
}

func siteOf(rules, answered bool) sitesOf { return sitesOf{1, one(rules), one(answered)} }

// sitesByPolicy counts the sites of each policy_id.
type sitesByPolicy map[int64]*sitesOf

// at returns what counts the sites of a policy.
func (s sitesByPolicy) at(policy int64) *sitesOf {
	n := s[policy]
	if n == nil {
		n = &sitesOf{}
		s[policy] = n
	}
	return n
}

// via says whose group decides, by index: own, fallback, star. It is below 0 if none does.
func via(c audit.Cell) int {
	return slices.IndexFunc([]audit.Cell{audit.CellOwn, audit.CellFallback, audit.CellStar},
		func(fact audit.Cell) bool { return c&fact != 0 })
}

// The indexes that via returns.
const (
	viaOwn = iota
	viaFallback
	viaStar
	numVias
)

// tally counts sites by what they make of one token.
type tally struct {
	blocks  [len(definitions)]int64 // by definition
	partial int64
	// sites with rules by whose group decides: all, those that block the token, and those that block at least a part
	via, full, any [numVias]int64
}

func (t *tally) add(c audit.Cell, n sitesOf) {
	for i := range definitions {
		if blocksBy[c]>>i&1 == 1 {
			t.blocks[i] += n.over(&definitions[i])
		}
	}
	by := via(c)
	if by < 0 {
		return
	}
	t.via[by] += n.rules
	switch c.Decision() {
	case audit.Blocked:
		t.full[by] += n.rules
		t.any[by] += n.rules
	case audit.Partial:
		t.partial += n.rules
		t.any[by] += n.rules
	}
}

// merge adds the counts of another tally, so many times.
func (t *tally) merge(o *tally, times int64) {
	for i, n := range o.blocks {
		t.blocks[i] += n * times
	}
	t.partial += o.partial * times
	for i := range numVias {
		t.via[i] += o.via[i] * times
		t.full[i] += o.full[i] * times
		t.any[i] += o.any[i] * times
	}
}

// blocksBy has for each cell a bit for each definition by which it blocks.
var blocksBy = func() (m [1 << 8]uint16) {
	for c := range m {
		for i, d := range definitions {
			m[c] |= uint16(one(d.Blocks(audit.Cell(c)))) << i
		}
	}
	return m
}()

// traces notes which tokens occur in a scan that another registry has judged. A token that its registry lacked leaves
// no trace; counting it as not blocked would be false. nil: the registry is ours.
type traces struct {
	tokens                  []bool
	named, blocked, partial []int32 // of the current site
}

func newTraces(registry *tokens.Registry, foreign bool) *traces {
	if !foreign {
		return nil
	}
	return &traces{tokens: make([]bool, len(registry.Tokens))}
}

// fields are the columns of sites that have traces.
func (t *traces) fields(registry *tokens.Registry) []table.Field {
	if t == nil {
		return nil
	}
	index := func(name string) int32 { return int32(registry.Lookup(name)) }
	return []table.Field{
		{Name: "named", Into: &t.named, Index: index}, {Name: "blocked", Into: &t.blocked, Index: index},
		{Name: "partial", Into: &t.partial, Index: index},
	}
}

func (t *traces) site() {
	if t == nil {
		return
	}
	for _, list := range [][]int32{t.named, t.blocked, t.partial} {
		for _, id := range list {
			t.token(id)
		}
	}
}

func (t *traces) token(id int32) {
	if t != nil && id != noToken {
		t.tokens[id] = true
	}
}

// lack reports whether a token does not occur in the scan.
func (t *traces) lack(id int) bool { return t != nil && !t.tokens[id] }
