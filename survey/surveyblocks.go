package survey

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
)

// This file counts, for the report page, which crawlers sites block: by operator and purpose, together, and behind delivery networks.

// surveyedToken is the token of managed-blocks and blocked-by-cdn.
const surveyedToken = "GPTBot"

const (
	maxSets   = 1 << 15 // sets of AI tokens that are kept before their pairs are counted
	maxPaired = 1 << 10 // AI tokens that are paired; the registry has 164
)

// blockTables counts the sites with rules by what they block.
type blockTables struct {
	surveyed            *tokenCells // of surveyedToken
	operators, purposes strictest
	now                 int64 // the number of the site, so that marks of earlier sites need no clearing

	// The AI tokens in the order of their names, and the place of each registry token among them, or noToken. A set has a bit
	// for each place. Sites with the same set are counted together, since sets are few and their pairs are many.
	ai      []string
	place   []int32
	set     []byte // scratch
	sets    map[string]int64
	pairs   []int64         // sites by two places; nil if there are more than maxPaired
	numbers map[int64]int64 // sites by the number of tokens

	search   []bool // by registry index: a token of category search
	aiSearch [2][2]int64

	definitions []Definition
	managed     *cells[sharing] // by network, and 1 for a managed block
	networks    *cells[network]
}

// sharing is how many sites block, of how many.
type sharing struct{ blocking, sites int64 }

// network counts the sites of a delivery network.
type network struct {
	rules, answered int64
	blocking        [6]int64 // by definition
	ttfb, total     histogram
}

func newBlockTables(registry *tokens.Registry, surveyed *tokenCells) *blockTables {
	t := &blockTables{
		surveyed:    surveyed,
		operators:   newStrictest(registry, func(t *tokens.Token) string { return t.Operator }),
		purposes:    newStrictest(registry, func(t *tokens.Token) string { return t.Purpose }),
		definitions: Definitions(), sets: map[string]int64{}, numbers: map[int64]int64{},
		managed: newCells[sharing](maxValues), networks: newCells[network](maxValues),
	}
	for i := range registry.Tokens {
		token := &registry.Tokens[i]
		t.search = append(t.search, token.Category == "search")
		if token.Category == surveyCategory {
			t.ai = append(t.ai, token.Name)
		}
	}
	slices.Sort(t.ai)
	for i := range registry.Tokens {
		place, is := slices.BinarySearch(t.ai, registry.Tokens[i].Name)
		if !is {
			place = noToken
		}
		t.place = append(t.place, int32(place))
	}
	t.set = make([]byte, (len(t.ai)+7)/8)
	if len(t.ai) <= maxPaired {
		t.pairs = make([]int64, len(t.ai)*len(t.ai))
	}
	return t
}

// networkName is what tables call the network of a site.
func networkName(cdn string) string { return cmp.Or(cdn, "none") }

// site counts a site.
func (t *blockTables) site(r *summaryColumns, s *surveyColumns) {
	rules := r.Finding == "rules"
	cell := t.surveyed.of(s.PolicyID, r.Access, s.Origin)
	n := t.networks.at(key{a: networkName(s.CDN)})
	n.rules += one(rules)
	if r.Status != 0 {
		n.answered++
		n.ttfb.add(float64(s.TTFBMillis))
		n.total.add(float64(r.TotalMillis))
	}
	for i, d := range t.definitions {
		blocks := rules && d.Blocks(cell)
		if d.Name == "rfc_effective" {
			blocks = r.Status != 0 && (r.Access == "full_disallow" || r.Access == "conditional" && d.Blocks(cell))
		}
		n.blocking[i] += one(blocks)
	}
	if !rules {
		return
	}
	managed := t.managed.at(key{a: networkName(s.CDN), n: float64(one(r.Managed))})
	managed.sites++
	managed.blocking += one(cell&audit.CellBlocked != 0)
	t.lists(r)
}

// lists counts the lists of a site with rules.
func (t *blockTables) lists(r *summaryColumns) {
	t.now++
	clear(t.set)
	var ai, search int64
	for _, id := range r.Blocked {
		if id == noToken {
			continue
		}
		t.operators.count(id, t.now, true)
		t.purposes.count(id, t.now, true)
		if place := t.place[id]; place != noToken {
			t.set[place/8] |= 1 << (place % 8)
			ai = 1
		}
		search |= one(t.search[id])
	}
	for _, id := range r.Partial {
		if id != noToken {
			t.operators.count(id, t.now, false)
			t.purposes.count(id, t.now, false)
		}
	}
	t.aiSearch[ai][search]++
	if sites, known := t.sets[string(t.set)]; known || len(t.sets) < maxSets {
		t.sets[string(t.set)] = sites + 1
		return
	}
	t.countSets()
	t.sets[string(t.set)] = 1
}

// countSets counts the pairs of the sets so far, and forgets the sets.
func (t *blockTables) countSets() {
	var places []int
	for set, sites := range t.sets {
		places = places[:0]
		for i := range len(set) {
			for b := set[i]; b != 0; b &= b - 1 {
				places = append(places, i*8+bits.TrailingZeros8(b))
			}
		}
		t.numbers[int64(len(places))] += sites
		if t.pairs == nil {
			continue
		}
		for _, a := range places {
			for _, b := range places {
				t.pairs[a*len(t.ai)+b] += sites
			}
		}
	}
	clear(t.sets)
}

// strictest counts the sites by the strictest verdict on the tokens that share a property.
type strictest struct {
	of     []int32 // by registry index: an index of values
	values []struct {
		name             string
		at               int64 // the last site counted
		blocked, partial int64
	}
}

func newStrictest(registry *tokens.Registry, property func(*tokens.Token) string) (g strictest) {
	var names groups
	for i := range registry.Tokens {
		g.of = append(g.of, names.place(property(&registry.Tokens[i])))
	}
	for _, v := range names.values {
		g.values = append(g.values, struct {
			name             string
			at               int64
			blocked, partial int64
		}{name: v.Value})
	}
	return g
}

// count counts that a site blocks a token, or blocks it in part. The tokens that the site blocks come first.
func (g *strictest) count(id int32, site int64, blocked bool) {
	v := &g.values[g.of[id]]
	if v.at == site {
		return
	}
	v.at = site
	v.blocked += one(blocked)
	v.partial += one(!blocked)
}

// tables adds the tables to a survey with so many sites with rules.
func (t *blockTables) tables(s *Survey, rules int64) {
	t.countSets()
	t.operators.table(s, "operators", "operator", rules)
	t.purposes.table(s, "purposes", "purpose", rules)
	t.pairTable(s)

	numbers := s.add("ai-tokens-blocked", []string{"tokens_blocked", "sites"}, nil)
	for _, n := range slices.Sorted(maps.Keys(t.numbers)) {
		numbers.Rows = append(numbers.Rows, []any{n, t.numbers[n]})
	}
	both := s.add("ai-and-search", []string{"ai_blocked", "search_blocked", "sites", "share"}, nil)
	for ai, bySearch := range t.aiSearch {
		for search, sites := range bySearch {
			if sites > 0 {
				both.Rows = append(both.Rows, []any{ai == 1, search == 1, sites, share(sites, rules)})
			}
		}
	}
	t.networkTables(s)
}

func (g *strictest) table(s *Survey, query, column string, rules int64) {
	var rows [][]any
	for _, v := range g.values {
		if rules > 0 {
			rows = append(rows, []any{v.name, v.blocked, v.partial, rules - v.blocked - v.partial, share(v.blocked, rules)})
		}
	}
	s.add(query, []string{column, "blocked", "partial", "allowed", "share_blocked"}, sorted(rows, ^1, 0))
}

// pairTable adds blocked-together, of the tokens that most sites block.
func (t *blockTables) pairTable(s *Survey) {
	table := s.add("blocked-together", []string{"token", "other", "sites", "share"}, nil)
	if t.pairs == nil {
		table.Note = fmt.Sprintf("the registry has more than %d tokens of category %s", maxPaired, surveyCategory)
		return
	}
	of := func(a, b int) int64 { return t.pairs[a*len(t.ai)+b] }
	var shown []int
	for a := range t.ai {
		if of(a, a) > 0 {
			shown = append(shown, a)
		}
	}
	if len(shown) > mostShown {
		table.Note = fmt.Sprintf("the %d that most files name, of %d", mostShown, len(shown))
		named := map[string]int64{} // what no file names is blocked by * alone: by the same sites as its like
		for _, token := range s.Summaries[0].Blocking.MostBlocked {
			named[token.Token] = token.Named
		}
		slices.SortStableFunc(shown, func(a, b int) int {
			return cmp.Or(cmp.Compare(named[t.ai[b]], named[t.ai[a]]), cmp.Compare(of(b, b), of(a, a)))
		})
		shown = shown[:mostShown]
		slices.Sort(shown)
	}
	for _, a := range shown {
		for _, b := range shown {
			if sites := of(a, b); sites > 0 {
				table.Rows = append(table.Rows, []any{t.ai[a], t.ai[b], sites, share(sites, of(a, a))})
			}
		}
	}
}

func (t *blockTables) networkTables(s *Survey) {
	s.add("managed-blocks", []string{"cdn", "managed_block", "sites", "blocking", "share"}, sorted(t.managed.rows(func(k key, n sharing) []any {
		return []any{k.a, k.n == 1, n.sites, n.blocking, share(n.blocking, n.sites)}
	}), 0, 1)).Note = t.managed.note("networks")

	byCDN := s.add("blocked-by-cdn", append(append([]string{"cdn", "sites", "sites_answered"}, DefinitionNames()...), "share_full"), nil)
	if t.surveyed.id >= 0 {
		full := slices.Index(DefinitionNames(), Full)
		byCDN.Rows = sorted(t.networks.rows(func(k key, n network) []any {
			row := []any{k.a, n.rules, n.answered}
			for _, sites := range n.blocking {
				row = append(row, sites)
			}
			return append(row, shareOrNil(n.blocking[full], n.rules))
		}), ^1, 0)
	}
	byCDN.Note = t.networks.note("networks")

	latency := s.add("latency-by-cdn", []string{"cdn", "sites", "ttfb_p50", "ttfb_p90", "ttfb_p99", "total_p50", "total_p99"}, sorted(t.networks.rows(func(k key, n network) []any {
		if n.answered == 0 {
			return nil
		}
		return []any{k.a, n.answered, n.ttfb.quantileOrNil(0.5), n.ttfb.quantileOrNil(0.9), n.ttfb.quantileOrNil(0.99), n.total.quantileOrNil(0.5), n.total.quantileOrNil(0.99)}
	}), ^1, 0))
	if latency.Note = "percentiles are right within 2 %"; t.networks.rest != nil {
		latency.Note += "; " + t.networks.note("networks")
	}
}

// quantileOrNil is nil without values, as SQL has it.
func (h *histogram) quantileOrNil(q float64) any {
	if h.total == 0 {
		return nil
	}
	return h.quantile(q)
}
