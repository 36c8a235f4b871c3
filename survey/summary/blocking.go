package summary

import (
	"cmp"
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/survey"
)

// This file counts, for a summary, the sites that block tokens by one definition. token_stats has all definitions in
// all segments; here are also reasons, and sites that block one of several tokens.

// Blocking counts the sites that block the selected tokens, by one definition.
type Blocking struct {
	Definition string `json:"definition" about:"--definition"`
	Question   string `json:"question" about:"question of the definition"`
	Over       string `json:"denominator" about:"column of token_stats that is the denominator: sites_rules or sites_answered"`
	Sites      int64  `json:"sites" about:"the denominator, of which all shares are"`
	Unobserved int64  `json:"unobserved" about:"sites without an observation that may belong to sites"`
	survey.Selection
	Registry string `json:"registry_version" about:"token registry that says which tokens there are: the scan's, unless --tokens gives another"`
	Selected int    `json:"tokens_selected" about:"selected tokens"`
	Blocked  int    `json:"tokens_blocked" about:"selected tokens that at least one site blocks"`

	// Sites that block at least one of the tokens, a number that grows with the registry, and its parts.
	AtLeastOne  int64            `json:"at_least_one" about:"sites blocking one: the sum of the next four; grows with the registry"`
	OneSure     survey.Certainty `json:"at_least_one_certainty" about:"of its share of blocking.sites"`
	OneByName   int64            `json:"at_least_one_by_name" about:"one by a group that names it"`
	OneFallback int64            `json:"at_least_one_by_fallback" about:"else one by its fallback's group"`
	OneByStar   int64            `json:"at_least_one_by_star" about:"else one by *"`
	OneByHTTP   int64            `json:"at_least_one_by_http" about:"sites without rules whose server fails, which forbids everything"`
	NameOne     int64            `json:"name_at_least_one" about:"sites naming one, of rules"`
	StarBlocks  int64            `json:"block_whoever_else" about:"sites that block all unnamed agents, of rules"`
	ByPurpose   []Sum            `json:"by_purpose" about:"by purpose, the largest first"`
	ByOperator  []Sum            `json:"by_operator" about:"by operator, the largest first"`
	MostBlocked []TokenCount     `json:"most_blocked" about:"the --top tokens that most sites block"`

	// The selected tokens that files name only by the lenient reading, the most common first; nil if the scan has no
	// verdicts. No definition counts such sites.
	Lenient []LenientCount `json:"lenient" about:"lenient; null without verdicts"`
}

// LenientCount is how many sites name a token only by the lenient reading: the column lenient of token_stats.
type LenientCount struct {
	Token string  `json:"token" about:"token"`
	Sites int64   `json:"sites" about:"lenient of token_stats"`
	Share float64 `json:"share" about:"of the sites with rules, whatever the definition"`
}

// Sum is how many sites block at least one of the selected tokens with a value.
type Sum struct {
	Value  string  `json:"value" about:"purpose, or operator"`
	Tokens int     `json:"tokens" about:"tokens selected"`
	Sites  int64   `json:"sites" about:"blocking one"`
	Share  float64 `json:"share" about:"of blocking.sites"`
	survey.Certainty
}

// TokenCount is how many sites block a token, and why. The four reasons add up to Sites.
type TokenCount struct {
	Token    string  `json:"token" about:"token"`
	Category string  `json:"category" about:"category"`
	Operator string  `json:"operator" about:"operator"`
	Purpose  string  `json:"purpose" about:"purpose"`
	Sites    int64   `json:"sites" about:"blocking it"`
	Share    float64 `json:"share" about:"of blocking.sites"`
	survey.Certainty

	ViaOwn      int64 `json:"via_own" about:"a group names it"`
	ViaFallback int64 `json:"via_fallback" about:"a group names a crawler that it falls back to"`
	ViaStar     int64 `json:"via_star" about:"by *"`
	ViaHTTP     int64 `json:"via_http" about:"the server fails, which forbids everything"`

	Named   int64 `json:"named" about:"sites whose file names it (mention)"`
	Partial int64 `json:"partial" about:"sites whose file denies it something, but not everything"`
}

// blockCounts are what a pass over the sites counts for Blocking by any definition.
type blockCounts struct {
	sites   survey.SitesByPolicy
	failing int64   // sites that answered and have access full_disallow: they forbid everything
	lenient []int64 // sites with rules that name a token only by the lenient reading, by registry index
	traces  *survey.Traces
}

// tokenReasons counts the sites that treat a token in a way.
type tokenReasons struct {
	blocks         [survey.NumVias]int64 // by whose group
	named, partial int64
}

// blocking counts by a definition, over so many sites. top bounds the tokens listed; 0 is all.
func (c *blockCounts) blocking(policies *survey.Policies, d *survey.Definition, about survey.Selection, s *Summary,
	top int) (Blocking, error) {
	all := Blocking{Definition: d.Name, Question: d.Question, Over: d.Over, Sites: s.Rules,
		Registry: policies.Registry.Version, Selection: about, MostBlocked: []TokenCount{}, Lenient: []LenientCount{}}
	failing := int64(0)
	if d.Answered() {
		all.Sites, failing = s.Answered, c.failing
	}
	registry := policies.Registry
	var chosen []int
	purposes, operators := newGroups(registry, tokens.Purpose), newGroups(registry, tokens.Operator)
	for id := range registry.Tokens {
		if about.Takes(&registry.Tokens[id]) && !c.traces.Lacks(id) {
			chosen = append(chosen, id)
			purposes.of(id).Tokens++
			operators.of(id).Tokens++
		}
	}
	reasons := make([]tokenReasons, len(registry.Tokens))
	var atLeastOne [survey.NumVias]int64 // by the nearest group
	err := policies.Each(c.sites, func(p *audit.Policy, cells []audit.Cell, n *survey.SitesOf) {
		over, nearest, names := n.Over(d), survey.NumVias, false
		for _, id := range chosen {
			cell, r := cells[id], &reasons[id]
			if cell&audit.CellOwn != 0 {
				r.named += n.Rules
				names = true
			}
			if cell.Decision() == audit.Partial {
				r.partial += n.Rules
			}
			if !d.Blocks(cell) {
				continue
			}
			by := survey.Via(cell)
			if by < 0 { // by dpi_all `*` also applies to tokens that ignore it
				by = survey.ViaStar
			}
			r.blocks[by] += over
			nearest = min(nearest, by)
			purposes.mark(id)
			operators.mark(id)
		}
		purposes.count(over)
		operators.count(over)
		if nearest < survey.NumVias {
			atLeastOne[nearest] += over
		}
		all.NameOne += survey.One(names) * n.Rules
		all.StarBlocks += survey.One(p.Star.Decision() == audit.Blocked) * n.Rules
	})
	if err != nil {
		return all, err
	}
	for _, id := range chosen {
		r, token := &reasons[id], &registry.Tokens[id]
		if c.lenient[id] > 0 {
			all.Lenient = append(all.Lenient, LenientCount{Token: token.Name, Sites: c.lenient[id],
				Share: survey.Share(c.lenient[id], s.Rules)})
		}
		sites := r.blocks[survey.ViaOwn] + r.blocks[survey.ViaFallback] + r.blocks[survey.ViaStar] + failing
		if sites == 0 {
			continue
		}
		all.MostBlocked = append(all.MostBlocked, TokenCount{
			Token: token.Name, Category: token.Category, Operator: token.Operator, Purpose: token.Purpose,
			Sites: sites, Share: survey.Share(sites, all.Sites),
			ViaOwn: r.blocks[survey.ViaOwn], ViaFallback: r.blocks[survey.ViaFallback],
			ViaStar: r.blocks[survey.ViaStar], ViaHTTP: failing, Named: r.named, Partial: r.partial,
		})
	}
	all.Selected, all.Blocked = len(chosen), len(all.MostBlocked)
	if all.Selected > 0 {
		all.OneByHTTP = failing
	}
	all.OneByName, all.OneFallback = atLeastOne[survey.ViaOwn], atLeastOne[survey.ViaFallback]
	all.OneByStar = atLeastOne[survey.ViaStar]
	all.AtLeastOne = all.OneByName + all.OneFallback + all.OneByStar + all.OneByHTTP
	all.ByPurpose, all.ByOperator = purposes.sums(failing, all.Sites), operators.sums(failing, all.Sites)
	slices.SortFunc(all.MostBlocked, func(a, b TokenCount) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(b.Named, a.Named), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(all.Lenient, func(a, b LenientCount) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Token, b.Token))
	})
	if top > 0 {
		all.MostBlocked = all.MostBlocked[:min(len(all.MostBlocked), top)]
	}
	return all, nil
}

// groups counts sites by a property of tokens.
type groups struct {
	values []Sum
	places []int  // of the tokens of the registry
	marked []bool // by index in values: those of the current policy
}

// newGroups returns the groups of a registry's tokens by a property, in the order of the registry.
func newGroups(registry *tokens.Registry, property tokens.Field) *groups {
	values, places := survey.GroupTokens(registry, property)
	g := &groups{places: places, marked: make([]bool, len(values))}
	for _, value := range values {
		g.values = append(g.values, Sum{Value: value})
	}
	return g
}

// of returns the count of a token's group, by the token's index in the registry.
func (g *groups) of(id int) *Sum { return &g.values[g.places[id]] }

// mark says that the current policy counts for a token's group.
func (g *groups) mark(id int) { g.marked[g.places[id]] = true }

// count counts sites for the marked values, and removes the marks.
func (g *groups) count(sites int64) {
	for i, marked := range g.marked {
		g.values[i].Sites += survey.One(marked) * sites
	}
	clear(g.marked)
}

// sums lists the values and the number of sites that block one of their tokens, the greatest first. failing sites block
// all tokens.
func (g *groups) sums(failing, of int64) []Sum {
	list := []Sum{}
	for _, sum := range g.values {
		if sum.Tokens == 0 {
			continue
		}
		if sum.Sites += failing; sum.Sites > 0 {
			sum.Share = survey.Share(sum.Sites, of)
			list = append(list, sum)
		}
	}
	slices.SortFunc(list, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Value, b.Value))
	})
	return list
}

// EachHeadline calls do for the shares that readers quote: of sites that block any of the tokens, a token, or one of a
// purpose or an operator.
func (b *Blocking) EachHeadline(do func(kind, value string, sites int64, sure *survey.Certainty)) {
	do("any", "", b.AtLeastOne, &b.OneSure)
	for i := range b.MostBlocked {
		do("token", b.MostBlocked[i].Token, b.MostBlocked[i].Sites, &b.MostBlocked[i].Certainty)
	}
	for i := range b.ByPurpose {
		do("purpose", b.ByPurpose[i].Value, b.ByPurpose[i].Sites, &b.ByPurpose[i].Certainty)
	}
	for i := range b.ByOperator {
		do("operator", b.ByOperator[i].Value, b.ByOperator[i].Sites, &b.ByOperator[i].Certainty)
	}
}

// judge says how sure the headline shares by a definition are.
func (s *Summary) judge(u *survey.Uncertainty, d *survey.Definition) {
	s.Uncertainty, s.Blocking.Unobserved = *u, s.Rows-s.Answered
	if !d.Answered() {
		s.Blocking.Unobserved = 0
		for _, c := range s.Findings {
			if f, known := audit.FindingNamed(c.Value); known && f.IsGap() {
				s.Blocking.Unobserved += c.Rows
			}
		}
	}
	s.Blocking.EachHeadline(func(_, _ string, sites int64, sure *survey.Certainty) {
		*sure = u.Of(sites, s.Blocking.Sites, s.Blocking.Unobserved)
	})
}
