package tables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// This file counts, for the report page, which crawlers sites block: by operator and purpose, together, and behind
// delivery networks.

// surveyedToken is the token of managed-blocks and blocked-by-cdn.
const surveyedToken = "GPTBot"

// maxPaired bounds the AI tokens that are paired; the registry has 167.
const maxPaired = 1 << 10

// blockTables counts the sites with rules by what they block.
type blockTables struct {
	policies *survey.Policies
	surveyed *survey.TokenCells // of surveyedToken
	managed  *cells[measure]    // by network, and 1 for a managed block
	networks *cells[network]
}

type network struct {
	rules, answered int64
	blocking        [len(audit.Definitions)]int64
	ttfb, total     survey.Histogram
}

func newBlockTables(policies *survey.Policies) *blockTables {
	return &blockTables{policies: policies, surveyed: policies.Token(surveyedToken),
		managed: newCells[measure](survey.MaxValues), networks: newCells[network](survey.MaxValues)}
}

// networkName is the name of a site's network in tables.
func networkName(cdn string) string { return cmp.Or(cdn, "none") }

func (t *blockTables) site(r *summary.Columns, s *surveyColumns) {
	rules := r.Finding == survey.FindingRules
	cell := t.surveyed.Of(r.PolicyID, r.Access, s.Origin)
	n := t.networks.at(key{a: networkName(s.CDN)})
	n.rules += survey.One(rules)
	if r.Status != 0 {
		n.answered++
		n.ttfb.Add(float64(s.TTFBMillis))
		n.total.Add(float64(r.TotalMillis))
	}
	definitions := survey.Definitions()
	for i := range definitions {
		d := &definitions[i]
		blocks := rules && d.Blocks(cell)
		if d.Answered() {
			blocks = r.Status != 0 && (r.Access == survey.FullDisallow || r.Access == survey.Conditional && d.Blocks(cell))
		}
		n.blocking[i] += survey.One(blocks)
	}
	if rules {
		managed := t.managed.at(key{a: networkName(s.CDN), n: float64(survey.One(r.Managed))})
		managed.of++
		managed.blocking += survey.One(cell&audit.CellBlocked != 0)
	}
}

func (t *blockTables) tables(s *Survey, sites survey.SitesByPolicy) error {
	registry := t.policies.Registry
	operators, purposes := newStrictest(registry, tokens.Operator), newStrictest(registry, tokens.Purpose)
	pairs := newPairs(registry)
	numbers, aiAndSearch := map[int64]int64{}, [2][2]int64{}
	err := t.policies.Each(sites, func(_ *audit.Policy, cells []audit.Cell, n *survey.SitesOf) {
		operators.count(cells, n.Rules)
		purposes.count(cells, n.Rules)
		ai, search := int64(0), int64(0)
		for id, cell := range cells {
			if cell&audit.CellBlocked != 0 {
				ai += survey.One(registry.Tokens[id].Category == surveyCategory)
				search |= survey.One(registry.Tokens[id].Category == "search")
			}
		}
		numbers[ai] += n.Rules
		aiAndSearch[min(ai, 1)][search] += n.Rules
		pairs.count(cells, n.Rules)
	})
	if err != nil {
		return err
	}
	rules := s.Summaries[0].Rules
	operators.table(s, "operators", "operator", rules)
	purposes.table(s, "purposes", "purpose", rules)
	pairs.table(s)
	table := s.add("ai-tokens-blocked", []string{"tokens_blocked", "sites"}, nil)
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[n] > 0 {
			table.Rows = append(table.Rows, []any{n, numbers[n]})
		}
	}
	both := s.add("ai-and-search", []string{"ai_blocked", "search_blocked", "sites", "share"}, nil)
	for ai, bySearch := range aiAndSearch {
		for search, sites := range bySearch {
			if sites > 0 {
				both.Rows = append(both.Rows, []any{ai == 1, search == 1, sites, survey.Share(sites, rules)})
			}
		}
	}
	t.networkTables(s)
	return nil
}

// strictest counts sites by the strictest verdict on the tokens that share a property.
type strictest struct {
	values           []string                          // of the property
	places           []int                             // of the tokens of the registry, in values
	blocked, partial []int64                           // sites, by index in values
	here             []struct{ blocked, partial bool } // of the current policy, by index in values
}

func newStrictest(registry *tokens.Registry, property tokens.Field) *strictest {
	g := &strictest{}
	g.values, g.places = survey.GroupTokens(registry, property)
	g.blocked, g.partial = make([]int64, len(g.values)), make([]int64, len(g.values))
	g.here = make([]struct{ blocked, partial bool }, len(g.values))
	return g
}

func (g *strictest) count(cells []audit.Cell, sites int64) {
	clear(g.here)
	for id, cell := range cells {
		switch here := &g.here[g.places[id]]; cell.Decision() {
		case audit.Blocked:
			here.blocked = true
		case audit.Partial:
			here.partial = true
		}
	}
	for i, here := range g.here {
		g.blocked[i] += survey.One(here.blocked) * sites
		g.partial[i] += survey.One(here.partial && !here.blocked) * sites
	}
}

func (g *strictest) table(s *Survey, query, column string, rules int64) {
	var rows [][]any
	for i, value := range g.values {
		if blocked, partial := g.blocked[i], g.partial[i]; rules > 0 {
			rows = append(rows, []any{value, blocked, partial, rules - blocked - partial, survey.Share(blocked, rules)})
		}
	}
	s.add(query, []string{column, "blocked", "partial", "allowed", "share_blocked"}, sorted(rows, ^1, 0))
}

// pairs counts the sites that block two AI tokens. Policies that block the same ones are counted together, since their
// sets are few and pairs are many.
type pairs struct {
	ai   []string // in alphabetical order
	ids  []int    // of these in the registry
	sets map[string]int64
	set  []byte // scratch: a bit for each token
}

func newPairs(registry *tokens.Registry) *pairs {
	p := &pairs{sets: map[string]int64{}}
	for i := range registry.Tokens {
		if registry.Tokens[i].Category == surveyCategory {
			p.ai = append(p.ai, registry.Tokens[i].Name)
		}
	}
	slices.Sort(p.ai)
	for _, name := range p.ai {
		p.ids = append(p.ids, registry.Lookup(name))
	}
	p.set = make([]byte, (len(p.ai)+7)/8)
	return p
}

func (p *pairs) count(cells []audit.Cell, sites int64) {
	clear(p.set)
	for place, id := range p.ids {
		p.set[place/8] |= byte(survey.One(cells[id]&audit.CellBlocked != 0)) << (place % 8)
	}
	p.sets[string(p.set)] += sites
}

// counted returns the sites by two places in ai.
func (p *pairs) counted() func(a, b int) int64 {
	n := make([]int64, len(p.ai)*len(p.ai))
	for set, sites := range p.sets {
		var places []int
		for place := range p.ai {
			if set[place/8]>>(place%8)&1 == 1 {
				places = append(places, place)
			}
		}
		for _, a := range places {
			for _, b := range places {
				n[a*len(p.ai)+b] += sites
			}
		}
	}
	return func(a, b int) int64 { return n[a*len(p.ai)+b] }
}

// table adds blocked-together, of the tokens that most sites block.
func (p *pairs) table(s *Survey) {
	table := s.add("blocked-together", []string{"token", "other", "sites", "share"}, nil)
	if len(p.ai) > maxPaired {
		table.Note = fmt.Sprintf("the registry has more than %d tokens of category %s", maxPaired, surveyCategory)
		return
	}
	of := p.counted()
	var shown []int
	for a := range p.ai {
		if of(a, a) > 0 {
			shown = append(shown, a)
		}
	}
	if len(shown) > mostShown {
		table.Note = fmt.Sprintf("the %d that most files name, of %d", mostShown, len(shown))
		named := map[string]int64{} // tokens that no file names are blocked by * alone, all by the same sites
		for _, token := range s.Summaries[0].Blocking.MostBlocked {
			named[token.Token] = token.Named
		}
		slices.SortStableFunc(shown, func(a, b int) int {
			return cmp.Or(cmp.Compare(named[p.ai[b]], named[p.ai[a]]), cmp.Compare(of(b, b), of(a, a)))
		})
		shown = shown[:mostShown]
		slices.Sort(shown)
	}
	for _, a := range shown {
		for _, b := range shown {
			if sites := of(a, b); sites > 0 {
				table.Rows = append(table.Rows, []any{p.ai[a], p.ai[b], sites, survey.Share(sites, of(a, a))})
			}
		}
	}
}

func (t *blockTables) networkTables(s *Survey) {
	s.add("managed-blocks", []string{"cdn", "managed_block", "sites", "blocking", "share"},
		sorted(t.managed.rows(func(k key, n measure) []any {
			return []any{k.a, k.n == 1, n.of, n.blocking, survey.Share(n.blocking, n.of)}
		}), 0, 1)).Note = t.managed.note("networks")

	byCDN := s.add("blocked-by-cdn", slices.Concat([]string{"cdn", "sites", "sites_answered"}, survey.DefinitionNames(),
		[]string{"share_full"}), nil)
	if t.surveyed.Known {
		full := slices.Index(survey.DefinitionNames(), survey.Full)
		byCDN.Rows = sorted(t.networks.rows(func(k key, n network) []any {
			row := []any{k.a, n.rules, n.answered}
			for _, sites := range n.blocking {
				row = append(row, sites)
			}
			return append(row, shareOrNil(n.blocking[full], n.rules))
		}), ^1, 0)
	}
	byCDN.Note = t.networks.note("networks")

	latency := s.add("latency-by-cdn", []string{"cdn", "sites", "ttfb_p50", "ttfb_p90", "ttfb_p99", "total_p50",
		"total_p99"}, sorted(t.networks.rows(func(k key, n network) []any {
		if n.answered == 0 {
			return nil
		}
		return []any{k.a, n.answered, quantileOrNil(&n.ttfb, 0.5), quantileOrNil(&n.ttfb, 0.9),
			quantileOrNil(&n.ttfb, 0.99), quantileOrNil(&n.total, 0.5), quantileOrNil(&n.total, 0.99)}
	}), ^1, 0))
	if latency.Note = "percentiles are right within 2 %"; t.networks.rest != nil {
		latency.Note += "; " + t.networks.note("networks")
	}
}

// quantileOrNil is nil without values, as SQL has it.
func quantileOrNil(h *survey.Histogram, q float64) any {
	if v, ok := h.Quantile(q); ok {
		return v
	}
	return nil
}
