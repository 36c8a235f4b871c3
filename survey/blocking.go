package survey

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
)

// This file counts, for a summary, the sites that block tokens by one definition. stats.go counts all definitions in
// all segments at once, from what sites do not say. Here each site lists the tokens that it blocks, so that reasons
// can be counted, and sites that block one of several tokens.

// Selection chooses the tokens of a summary. Empty fields do not restrict; case is ignored.
type Selection struct {
	Category string   `json:"category"`
	Operator string   `json:"operator"`
	Purpose  string   `json:"purpose"`
	Tokens   []string `json:"tokens"` // as the registry spells them; empty is all
}

// Takes reports whether a token is selected.
func (s Selection) Takes(t *tokens.Token) bool {
	takes := func(want, value string) bool { return want == "" || strings.EqualFold(want, value) }
	return (len(s.Tokens) == 0 || slices.Contains(s.Tokens, t.Name)) && takes(s.Category, t.Category) && takes(s.Operator, t.Operator) && takes(s.Purpose, t.Purpose)
}

// Blocking counts the sites that block the selected tokens, by one definition.
type Blocking struct {
	Definition string `json:"definition"`
	Question   string `json:"question"`
	Over       string `json:"denominator"` // the column of token_stats that is the denominator
	Sites      int64  `json:"sites"`       // the denominator: what all shares are of
	Selection
	Selected int `json:"tokens_selected"`
	Blocked  int `json:"tokens_blocked"` // of them, blocked by at least one site

	// Sites that block at least one of the tokens, a number that grows with the registry, and its parts.
	AtLeastOne  int64        `json:"at_least_one"`
	OneByName   int64        `json:"at_least_one_by_name"`     // by a group that names such a token
	OneFallback int64        `json:"at_least_one_by_fallback"` // only by groups that name a crawler which tokens fall back to
	OneByStar   int64        `json:"at_least_one_by_star"`     // only by the group of `*`
	OneByHTTP   int64        `json:"at_least_one_by_http"`     // no file: the server fails
	NameOne     int64        `json:"name_at_least_one"`        // sites whose file names one
	StarBlocks  int64        `json:"block_whoever_else"`       // sites whose file denies everything to agents that it does not name
	ByPurpose   []Sum        `json:"by_purpose"`               // the greatest first
	ByOperator  []Sum        `json:"by_operator"`              // the greatest first
	MostBlocked []TokenCount `json:"most_blocked"`             // the greatest first

	// The selected tokens that files name only by the lenient reading, the most common first; nil if the scan has no
	// verdicts. No definition counts such sites.
	Lenient []LenientCount `json:"lenient"`
}

// LenientCount is how many sites name a token only by the lenient reading: the column lenient of token_stats.
type LenientCount struct {
	Token string  `json:"token"`
	Sites int64   `json:"sites"`
	Share float64 `json:"share"` // of the sites with rules, whatever the definition
}

// Sum is how many sites block at least one of the selected tokens with a value.
type Sum struct {
	Value  string  `json:"value"`
	Tokens int     `json:"tokens"` // selected tokens that have the value
	Sites  int64   `json:"sites"`
	Share  float64 `json:"share"`
}

// TokenCount is how many sites block a token, and why. The four reasons add up to Sites.
type TokenCount struct {
	Token    string  `json:"token"`
	Category string  `json:"category"`
	Operator string  `json:"operator"`
	Purpose  string  `json:"purpose"`
	Sites    int64   `json:"sites"`
	Share    float64 `json:"share"`

	ViaOwn      int64 `json:"via_own"`      // a group names it
	ViaFallback int64 `json:"via_fallback"` // a group names a crawler that it falls back to
	ViaStar     int64 `json:"via_star"`     // the group of `*`
	ViaHTTP     int64 `json:"via_http"`     // no file: the server fails, which forbids everything

	Named   int64 `json:"named"`   // sites whose file names it
	Partial int64 `json:"partial"` // sites whose file denies it something, but not everything
}

// blocker counts how sites treat the selected tokens.
type blocker struct {
	registry *tokens.Registry
	index    tokenIndex
	by       *Definition
	about    Selection
	foreign  bool // the registry is not the scan's

	partials  *blocker     // the one of the pass that counts partial
	tokens    []tokenTally // by registry index
	chosen    []int32      // registry indexes of the selected tokens
	purposes  groups
	operators groups

	// On most sites no token is named, and all tokens that heed `*` are blocked, or none. These sites are counted here
	// as one; only other facts are counted per site.
	usual      []int32
	usualSites int64

	now        int64             // the number of the site, so that marks of earlier sites need no clearing
	rules      bool              // its finding is rules; others count by rfc_effective only
	names      bool              // it names a token of the registry
	blocks     reach             // the nearest group by which it blocks one of the selected tokens
	weight     int64             // of the site: how many sites it stands for
	atLeastOne [blocksNone]int64 // sites that block one of the selected tokens
	nameOne    int64
	starBlocks int64
	failing    int64 // sites that answered and have access full_disallow: they forbid everything
}

// reach says whose group blocks a token. A site counts by the first that it has.
type reach uint8

const (
	blocksByName reach = iota
	blocksByFallback
	blocksByStar
	blocksNone
)

// tokenTally counts the sites of a token.
type tokenTally struct {
	selected          bool
	purpose, operator int32 // indexes in groups

	own, fallback, star int64 // sites that block it, by reason
	named, partial      int64
	lenient             int64 // sites that name it only by the lenient reading

	// The last sites that named it, had verdicts for it, were counted as partly blocking it, and as blocking it.
	namedAt, ruledAt, partialAt, blockedAt int64
	traced                                 bool // the scan has data of it
}

func newBlocker(o *SummaryOptions, by *Definition, foreign bool) *blocker {
	b := &blocker{registry: o.Registry, index: newTokenIndex(o.Registry), by: by, about: o.Selection, foreign: foreign, weight: 1, tokens: make([]tokenTally, len(o.Registry.Tokens))}
	b.partials = b
	for id := range o.Registry.Tokens {
		if token := &o.Registry.Tokens[id]; o.Selection.Takes(token) {
			b.tokens[id] = tokenTally{selected: true, purpose: b.purposes.place(token.Purpose), operator: b.operators.place(token.Operator)}
			b.chosen = append(b.chosen, int32(id))
		}
	}
	return b
}

// again returns a blocker for another pass, or nil if one pass was enough. By dpi_all any token without a rule
// inherits from `*`, even one that a scan by another registry did not look for. Such tokens must not count among
// several, and they are known only at the end of a pass.
func (b *blocker) again(o *SummaryOptions) *blocker {
	untraced := func(id int32) bool { return !b.tokens[id].traced }
	if !b.foreign || b.by.Name != "dpi_all" || !slices.ContainsFunc(b.chosen, untraced) {
		return nil
	}
	next := newBlocker(o, b.by, true)
	next.chosen = slices.DeleteFunc(next.chosen, untraced)
	return next
}

// site counts a site. verdicts holds its rows if the scan has any, with the columns that the definition needs.
func (b *blocker) site(r *summaryColumns, verdicts []verdictColumns) {
	b.failing += one(r.Status != 0 && r.Access == "full_disallow")
	b.rules = r.Finding == "rules"
	if !b.rules && (b.by.Name != "rfc_effective" || r.Access != "conditional") {
		return
	}
	b.now++
	b.names, b.blocks = false, blocksNone
	b.starBlocks += one(b.rules && r.StarVerdict == "blocked")
	b.lists(r)
	b.leniently(verdicts)
	switch b.by.Name {
	case "mention":
		b.each(r.Named)
	case Full:
		b.each(r.Blocked)
	case "any":
		if len(r.Blocked) > 0 && len(r.Partial) > 0 {
			b.all(r.Blocked)
			b.all(r.Partial)
			break
		}
		b.each(r.Blocked)
		b.each(r.Partial)
	case "rfc_effective":
		if r.Status != 0 {
			b.each(r.Blocked)
		}
	case "explicit_root":
		eachExplicit(verdicts, b.block)
	case "dpi_all":
		b.asTheDPIReads(verdicts)
	}
	if b.blocks != blocksNone {
		b.atLeastOne[b.blocks]++
	}
}

// lists records the lists of a site, which no definition changes.
func (b *blocker) lists(r *summaryColumns) {
	nameOne := false
	for _, id := range r.Named {
		if id == noToken {
			continue
		}
		t := &b.tokens[id]
		if t.selected && t.namedAt != b.now {
			t.named += one(b.rules)
			nameOne = b.rules
		}
		t.namedAt, t.traced, b.names = b.now, true, true
	}
	b.nameOne += one(nameOne)
	if b.partials != b && !b.foreign { // most lists are long
		return
	}
	for _, id := range r.Partial {
		if id == noToken {
			continue
		}
		t := &b.tokens[id]
		if t.partialAt != b.now {
			t.partial += one(b.rules)
		}
		t.partialAt, t.traced = b.now, true
	}
	if b.foreign {
		for _, id := range r.Blocked {
			if id != noToken {
				b.tokens[id].traced = true
			}
		}
	}
}

// leniently counts the tokens that the file names only by the lenient reading.
func (b *blocker) leniently(verdicts []verdictColumns) {
	for i := range verdicts {
		if v := &verdicts[i]; v.Lenient && v.id != noToken {
			t := &b.tokens[v.id]
			t.lenient += one(b.rules && t.selected && t.namedAt != b.now)
			t.traced = true
		}
	}
}

// each counts that the site blocks each token of a list.
func (b *blocker) each(ids []int32) {
	if !b.names && b.blocks == blocksNone && len(ids) > 0 {
		if !slices.Equal(ids, b.usual) {
			b.countUsual()
			b.usual = append(b.usual[:0], ids...)
		}
		b.usualSites++
		if slices.ContainsFunc(ids, func(id int32) bool { return id != noToken && b.tokens[id].selected }) {
			b.blocks = blocksByStar
		}
		return
	}
	b.all(ids)
}

func (b *blocker) all(ids []int32) {
	for _, id := range ids {
		if id != noToken {
			b.block(id)
		}
	}
}

// countUsual counts the sites with the usual list.
func (b *blocker) countUsual() {
	b.weight = b.usualSites
	b.all(b.usual)
	b.weight, b.usualSites, b.blocks = 1, 0, blocksNone
	b.now++ // the next site has another number
}

// asTheDPIReads counts the tokens whose rows read `all`, and where that of `*` does all tokens without rows.
func (b *blocker) asTheDPIReads(verdicts []verdictColumns) {
	inherit := asTheDPIReads(verdicts, func(id int32, all bool) {
		b.tokens[id].ruledAt, b.tokens[id].traced = b.now, true
		if all {
			b.block(id)
		}
	})
	if inherit {
		for _, id := range b.chosen {
			if b.tokens[id].ruledAt != b.now {
				b.block(id)
			}
		}
	}
}

// block counts that the site blocks a token, by reason.
func (b *blocker) block(id int32) {
	t := &b.tokens[id]
	if !t.selected || t.blockedAt == b.now {
		return // the token is in the list twice
	}
	t.blockedAt = b.now
	by := blocksByStar
	switch {
	case t.namedAt == b.now:
		t.own += b.weight
		by = blocksByName
	case b.names && b.follows(id):
		t.fallback += b.weight
		by = blocksByFallback
	default:
		t.star += b.weight
	}
	b.purposes.count(t.purpose, b)
	b.operators.count(t.operator, b)
	b.blocks = min(b.blocks, by)
}

// follows reports whether the site names a crawler that a token falls back to.
func (b *blocker) follows(id int32) bool {
	for _, next := range b.registry.Tokens[id].Chain {
		if b.tokens[next].namedAt == b.now {
			return true
		}
	}
	return false
}

// finish converts the counts for a Summary.
func (b *blocker) finish(s *Summary, top int) Blocking {
	b.now++
	b.names = false
	b.countUsual()
	all := Blocking{
		Definition: b.by.Name, Question: b.by.Question, Over: b.by.Over, Sites: s.Rules, Selection: b.about,
		OneByName: b.atLeastOne[blocksByName], OneFallback: b.atLeastOne[blocksByFallback], OneByStar: b.atLeastOne[blocksByStar], NameOne: b.nameOne, StarBlocks: b.starBlocks, MostBlocked: []TokenCount{}, Lenient: []LenientCount{},
	}
	failing := int64(0)
	if b.by.Name == "rfc_effective" {
		all.Sites, failing = s.Answered, b.failing
	}
	for _, id := range b.chosen {
		t, token := &b.tokens[id], &b.registry.Tokens[id]
		if b.foreign && !t.traced {
			continue // the scan did not know it, see stats.go
		}
		all.Selected++
		b.purposes.values[t.purpose].Tokens++
		b.operators.values[t.operator].Tokens++
		if t.lenient > 0 {
			all.Lenient = append(all.Lenient, LenientCount{Token: token.Name, Sites: t.lenient, Share: share(t.lenient, s.Rules)})
		}
		sites := t.own + t.fallback + t.star + failing
		if sites == 0 {
			continue
		}
		all.Blocked++
		all.MostBlocked = append(all.MostBlocked, TokenCount{
			Token: token.Name, Category: token.Category, Operator: token.Operator, Purpose: token.Purpose,
			Sites: sites, Share: share(sites, all.Sites),
			ViaOwn: t.own, ViaFallback: t.fallback, ViaStar: t.star, ViaHTTP: failing, Named: t.named, Partial: b.partials.tokens[id].partial,
		})
	}
	if all.Selected > 0 {
		all.OneByHTTP = failing
	}
	all.AtLeastOne = all.OneByName + all.OneFallback + all.OneByStar + all.OneByHTTP
	all.ByPurpose, all.ByOperator = b.purposes.sums(failing, all.Sites), b.operators.sums(failing, all.Sites)
	slices.SortFunc(all.MostBlocked, func(a, b TokenCount) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(b.Named, a.Named), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(all.Lenient, func(a, b LenientCount) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Token, b.Token))
	})
	if top > 0 {
		all.MostBlocked = all.MostBlocked[:min(len(all.MostBlocked), top)]
	}
	return all
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// groups counts sites by a property of tokens.
type groups struct {
	values []Sum
	at     []int64 // the last site counted
}

// place returns the index of a value and adds a new value.
func (g *groups) place(value string) int32 {
	i := slices.IndexFunc(g.values, func(s Sum) bool { return s.Value == value })
	if i < 0 {
		i = len(g.values)
		g.values, g.at = append(g.values, Sum{Value: value}), append(g.at, 0)
	}
	return int32(i)
}

// count counts the current site for a value, once.
func (g *groups) count(place int32, b *blocker) {
	if g.at[place] != b.now {
		g.at[place] = b.now
		g.values[place].Sites += b.weight
	}
}

// sums lists the values and the number of sites that block one of their tokens, the greatest first. failing sites
// block all.
func (g *groups) sums(failing, of int64) []Sum {
	list := []Sum{}
	for _, sum := range g.values {
		if sum.Tokens == 0 {
			continue
		}
		if sum.Sites += failing; sum.Sites > 0 {
			sum.Share = share(sum.Sites, of)
			list = append(list, sum)
		}
	}
	slices.SortFunc(list, func(a, b Sum) int { return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Value, b.Value)) })
	return list
}
