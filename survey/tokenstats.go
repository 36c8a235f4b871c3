package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// This file counts for the table token_stats.
//
// Rows of sites and verdicts are read together: a commit has both in the same order. A site touches only the tokens that
// it says something about: those in its lists, and those with a row of verdicts. A token without a row follows `*` or no
// group. Its counts by `*` are therefore the segment's counts by `*`, less the sites where it has a row (tally.starRule,
// starDPI, starEffect). So the cost of a site depends on its file, not on the size of the registry.
//
// The columns:
//
//	sites           access is conditional
//	sites_rules     finding is rules; all counts but rfc_effective and unreachable are over these
//	mention         own, strict row (rows marked lenient stand outside of all definitions)
//	lenient         a row marked lenient and no own, strict one: mention and lenient have no site in common
//	explicit_root   own row, and / is denied
//	full, partial   registry tokens: the lists `blocked`, `partial` of sites; other agents: their row, else star_verdict
//	dpi_all         the token's own or fallback row reads `all`; without a row, that of `*` does: the Data Provenance
//	                Initiative lets any unlisted agent inherit, so a token that ignores `*` inherits here too
//	rfc_effective   over rows with an HTTP status: access is conditional and the verdict as for full, or access
//	                full_disallow, which forbids all agents everything
//	unreachable     rows that we asked, from which no HTTP status came
//	via_star        no row of its own, there is a group of `*`, and the token heeds it
//	full_via_own    the own row is blocked; full_via_fallback likewise, and full_via_star is the rest of full. any_via_own
//	                and so on also count partial
//	answered_X      rows with an HTTP status and finding X. rfc_effective is full, over finding rules, and sites that fail or
//	                whose other answers have rules
//
// A few workers read parts concurrently and count for themselves. Their counts are added at the end, so that the tables
// do not depend on how a scan was cut into parts.
//
// The lists of sites and the verdicts have no trace of a token that the scan's registry did not have. If the statistics
// use a registry with such a token, it gets no row: zeros would be false (see foreign).

// segment is a set of sites: its totals, and its counts of each registry token.
type segment struct {
	kind, value string

	all, answered, sites, rules, unreachable int64
	failing                                  int64 // answered, access full_disallow
	findings                                 [len(answeredFindings)]int64

	star     effect // sites by the effect of their group of `*`
	starDPI  int64
	starRule int64 // sites that have a group of `*`

	tokens []tally // by registry index
}

// answeredFindings are the findings that an answered site can have, in the order of the columns answered_….
var answeredFindings = [...]string{"rules", "no_rules", "html", "none", "refused", "challenged", "rate_limited", "server_error", "unreachable"}

// effect counts sites by a verdict: full and partial over sites with finding rules, fullAnswered over all with access
// conditional that answered.
type effect struct{ full, fullAnswered, partial int64 }

func (e *effect) count(verdict string, of *starFacts) {
	switch verdict {
	case "blocked":
		e.full += one(of.rules)
		e.fullAnswered += one(of.answered)
	case "partial":
		e.partial += one(of.rules)
	}
}

// tally is a segment's counts of one token.
type tally struct {
	own, fallback     int64 // sites with such a row
	lenient           int64 // sites that name it only by the lenient reading
	explicitRoot, dpi int64 // of the rows

	// Sites whose row blocks it, entirely and in part.
	fullOwn, fullFallback, partialOwn, partialFallback int64
	effect                                             effect
	starRule, starDPI                                  int64 // sites with a row, by the effect of `*` there
	starEffect                                         effect

	known    bool // of unknown agents: another registry has the token
	category string
}

// row counts a row of verdicts of a site.
func (t *tally) row(v *verdictColumns, star *starFacts) {
	t.starEffect.count(star.verdict, star)
	if !star.rules {
		return
	}
	full, partial := one(v.Verdict == "blocked"), one(v.Verdict == "partial")
	if v.Via == "own" {
		t.own++
		t.fullOwn += full
		t.partialOwn += partial
		if !v.RootAllowed {
			t.explicitRoot++
		}
	} else {
		t.fallback++
		t.fullFallback += full
		t.partialFallback += partial
	}
	if v.DPI == "all" {
		t.dpi++
	}
	if star.rule {
		t.starRule++
	}
	if star.dpi {
		t.starDPI++
	}
}

// starFacts is the effect of `*` on one site, whose access is conditional.
type starFacts struct {
	rule, dpi       bool
	rules, answered bool // of the site: finding rules, an HTTP status
	verdict         string
}

// counter computes token_stats, pass by pass.
type counter struct {
	verdictReader

	registry *tokens.Registry
	only     []string // tokens that have rows; nil is all, and all unknown agents
	foreign  bool     // the registry is not the scan's

	first    bool // the pass that counts segments
	total    *segment
	ranks    []*segment // by rankBucket, not cumulative
	tlds     named
	labels   named
	selected []*segment

	unknown *window[tally]
}

func newCounter(o *Options, foreign bool) *counter {
	return &counter{
		verdictReader: verdictReader{tokens: newTokenIndex(o.Registry)},
		registry:      o.Registry, only: o.Only, foreign: foreign, unknown: newWindow[tally](o.limit),
	}
}

func (c *counter) beginPass(first bool) {
	c.first = first
	c.total = c.newSegment("all", "")
	if first {
		c.tlds, c.labels = newNamed("tld", maxTLDs), newNamed("label", maxLabels)
	}
}

func (c *counter) newSegment(kind, value string) *segment {
	return &segment{kind: kind, value: value, tokens: make([]tally, len(c.registry.Tokens))}
}

// commit reads the sites of one part with their verdicts.
func (c *counter) commit(ctx context.Context, scan *commit.Scan, commit *commit.Commit) error {
	site := siteColumns{}
	sites, err := sink.OpenCursor(ctx, scan, commit, schema.Sites, site.fields(c.tokens.index)...)
	if err != nil {
		return err
	}
	verdicts, err := sink.OpenCursor(ctx, scan, commit, schema.Verdicts, c.row.fields()...)
	if err != nil {
		return errors.Join(err, sites.Close())
	}
	return c.read(commit, sites, &site.Seq, verdicts, func() { c.site(&site) })
}

// site counts a site. Its verdicts are in c.rows.
func (c *counter) site(s *siteColumns) {
	star := starFacts{rules: s.Finding == "rules", answered: s.answered(), verdict: s.StarVerdict}
	for i := range c.rows {
		if v := &c.rows[i]; v.Token == "*" {
			star.rule, star.dpi = v.Via == "star", v.DPI == "all"
		}
	}
	conditional := s.Access == "conditional"
	for _, g := range c.segmentsOf(s) {
		g.all++
		switch {
		case s.answered():
			g.answered++
			if i := slices.Index(answeredFindings[:], s.Finding); i >= 0 {
				g.findings[i]++
			}
		case s.unreachable():
			g.unreachable++
		}
		if s.answered() && s.Access == "full_disallow" {
			g.failing++
		}
		if conditional {
			c.siteIn(g, s, &star)
		}
	}
	if conditional {
		c.siteUnknown(&star)
	}
}

// siteIn counts a site with access conditional in one of its segments.
func (c *counter) siteIn(g *segment, s *siteColumns, star *starFacts) {
	g.sites++
	g.rules += one(star.rules)
	g.star.count(star.verdict, star)
	g.starRule += one(star.rules && star.rule)
	g.starDPI += one(star.rules && star.dpi)
	for _, id := range s.Blocked {
		if id != noToken {
			g.tokens[id].effect.count("blocked", star)
		}
	}
	for _, id := range s.Partial {
		if id != noToken {
			g.tokens[id].effect.count("partial", star)
		}
	}
	for i := range c.rows {
		switch v := &c.rows[i]; {
		case v.id == noToken:
		case v.Lenient:
			g.tokens[v.id].lenient += one(star.rules && !c.namesStrictly(v.Token))
		default:
			g.tokens[v.id].row(v, star)
		}
	}
}

// namesStrictly reports whether the current site has a strict own row of a token.
func (c *counter) namesStrictly(token string) bool {
	return slices.ContainsFunc(c.rows, func(v verdictColumns) bool { return v.Via == "own" && !v.Lenient && v.Token == token })
}

// siteUnknown counts the agents of a site that are not in the registry.
func (c *counter) siteUnknown(star *starFacts) {
	for i := range c.rows {
		v := &c.rows[i]
		if v.Token == "*" || v.id != noToken {
			continue
		}
		if t := c.unknown.at(v.Token); t != nil {
			if v.Lenient {
				t.lenient += one(star.rules && !c.namesStrictly(v.Token))
			} else {
				t.row(v, star)
				t.effect.count(v.Verdict, star)
			}
			if v.Known && !t.known {
				t.known, t.category = true, strings.Clone(v.Category)
			}
		}
	}
}

// segmentsOf returns the segments of a site; after the first pass only that of all sites.
func (c *counter) segmentsOf(s *siteColumns) []*segment {
	c.selected = append(c.selected[:0], c.total)
	if !c.first {
		return c.selected
	}
	if s.Rank > 0 {
		c.selected = append(c.selected, c.rank(rankBucket(s.Rank)))
	}
	for _, kind := range []struct {
		of    *named
		value string
	}{{&c.tlds, s.TLD}, {&c.labels, s.Label}} {
		if g := c.in(kind.of, kind.value); g != nil {
			c.selected = append(c.selected, g)
		}
	}
	return c.selected
}

// named holds the segments of a kind by value, or none if there are more than most.
type named struct {
	kind    string
	most    int
	tooMany bool
	all     map[string]*segment
}

func newNamed(kind string, most int) named {
	return named{kind: kind, most: most, all: map[string]*segment{}}
}

// in returns the segment of a value, or nil.
func (c *counter) in(n *named, value string) *segment {
	if value == "" || n.tooMany {
		return nil
	}
	if g, ok := n.all[value]; ok {
		return g
	}
	if len(n.all) == n.most {
		n.tooMany = true
		clear(n.all)
		return nil
	}
	value = strings.Clone(value)
	g := c.newSegment(n.kind, value)
	n.all[value] = g
	return g
}

// merge adds the counts of another worker in this pass.
func (c *counter) merge(o *counter) {
	c.total.add(o.total)
	for i, g := range o.ranks {
		c.rank(i).add(g)
	}
	c.mergeNamed(&c.tlds, &o.tlds)
	c.mergeNamed(&c.labels, &o.labels)
	c.unknown.merge(o.unknown, func(t, from *tally) {
		t.add(from)
		if from.known && !t.known {
			t.known, t.category = true, from.category
		}
	})
}

func (c *counter) mergeNamed(n, o *named) {
	if o.tooMany {
		n.tooMany = true
		clear(n.all)
	}
	for value, g := range o.all {
		if into := c.in(n, value); into != nil {
			into.add(g)
		}
	}
}

// rank returns the segment of a bucket and adds it, with all below it.
func (c *counter) rank(bucket int) *segment {
	for len(c.ranks) <= bucket {
		c.ranks = append(c.ranks, c.newSegment("rank", strconv.FormatInt(rankLimit(len(c.ranks)), 10)))
	}
	return c.ranks[bucket]
}

// warn logs which segments are missing.
func (c *counter) warn(log *slog.Logger) {
	if c.labels.tooMany {
		log.Warn("token_stats has no segments by label", "because", fmt.Sprintf("the list has more than %d distinct labels", maxLabels),
			"remedy", "group the table sites by its column label")
	}
	if c.tlds.tooMany {
		log.Warn("token_stats has no segments by top-level domain", "because", fmt.Sprintf("the dataset has more than %d", maxTLDs),
			"remedy", "group the table sites by its column tld")
	}
}

// rankLimit returns the last rank of a bucket: 1,000, 10,000 and so on.
func rankLimit(bucket int) int64 {
	limit := int64(1000)
	for range bucket {
		limit *= 10
	}
	return limit
}

// lastBucket holds the ranks above the greatest power of ten that is a bound.
const lastBucket = 15

// rankBucket returns the first bucket of a rank.
func rankBucket(rank int64) int {
	bucket := 0
	for bucket < lastBucket && rank > rankLimit(bucket) {
		bucket++
	}
	return bucket
}

// registryRows adds a row for each registry token in each segment.
func (c *counter) registryRows(add func(schema.TokenStatsRow) error) error {
	segments := []*segment{c.total}
	for i, g := range c.ranks {
		if i > 0 {
			g.add(c.ranks[i-1]) // cumulative
		}
		segments = append(segments, g)
	}
	for _, kind := range []map[string]*segment{c.tlds.all, c.labels.all} {
		segments = append(segments, slices.SortedFunc(maps.Values(kind), func(a, b *segment) int { return cmp.Compare(a.value, b.value) })...)
	}
	for _, g := range segments {
		for id := range c.registry.Tokens {
			token := &c.registry.Tokens[id]
			if c.foreign && c.total.tokens[id] == (tally{}) || c.only != nil && !slices.Contains(c.only, token.Name) {
				continue
			}
			t := &g.tokens[id]
			row := g.row(t, token.HeedsStar)
			row.Token, row.Known, row.Category, row.Operator, row.Purpose = token.Name, true, token.Category, token.Operator, token.Purpose
			t.effect.verdicts(&row, g)
			if err := add(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownRows adds a row for each agent of this pass that is not in the registry. On sites without a row of the
// agent, its verdict is that of an unnamed agent.
func (c *counter) unknownRows(add func(schema.TokenStatsRow) error) error {
	for _, name := range slices.Sorted(maps.Keys(c.unknown.values)) {
		t := c.unknown.values[name]
		row := c.total.row(t, true)
		row.Token, row.Known, row.Category = name, t.known, t.category
		e := effect{
			full:         t.effect.full + c.total.star.full - t.starEffect.full,
			fullAnswered: t.effect.fullAnswered + c.total.star.fullAnswered - t.starEffect.fullAnswered,
			partial:      t.effect.partial + c.total.star.partial - t.starEffect.partial,
		}
		e.verdicts(&row, c.total)
		if err := add(row); err != nil {
			return err
		}
	}
	return nil
}

// row fills in the columns that do not depend on how verdicts are counted.
func (g *segment) row(t *tally, heedsStar bool) schema.TokenStatsRow {
	row := schema.TokenStatsRow{
		SegmentKind: g.kind, SegmentValue: g.value,
		SitesAll: g.all, SitesAnswered: g.answered, Sites: g.sites, SitesRules: g.rules, Unreachable: g.unreachable,
		Mention:      t.own,
		ExplicitRoot: t.explicitRoot,
		DPIAll:       t.dpi + g.starDPI - t.starDPI,
		ViaOwn:       t.own,
		ViaFallback:  t.fallback,
		Lenient:      t.lenient,

		FullViaOwn: t.fullOwn, FullViaFallback: t.fullFallback,
		AnyViaOwn: t.fullOwn + t.partialOwn, AnyViaFallback: t.fullFallback + t.partialFallback,
	}
	for i, into := range []*int64{
		&row.AnsweredRules, &row.AnsweredNoRules, &row.AnsweredHTML, &row.AnsweredNone, &row.AnsweredRefused,
		&row.AnsweredChallenged, &row.AnsweredRateLimited, &row.AnsweredServerError, &row.AnsweredUnreachable,
	} {
		*into = g.findings[i]
	}
	if heedsStar {
		row.ViaStar = g.starRule - t.starRule
	}
	return row
}

// verdicts fills in the other columns, from the verdicts of the token in the segment.
func (e effect) verdicts(row *schema.TokenStatsRow, g *segment) {
	row.Full, row.Partial, row.Any = e.full, e.partial, e.full+e.partial
	row.FullViaStar = row.Full - row.FullViaOwn - row.FullViaFallback
	row.AnyViaStar = row.Any - row.AnyViaOwn - row.AnyViaFallback
	row.RFCEffective = e.fullAnswered + g.failing
}

// add adds the counts of another segment.
func (g *segment) add(o *segment) {
	g.all += o.all
	g.answered += o.answered
	g.sites += o.sites
	g.rules += o.rules
	g.unreachable += o.unreachable
	g.failing += o.failing
	for i := range g.findings {
		g.findings[i] += o.findings[i]
	}
	g.star.add(o.star)
	g.starDPI += o.starDPI
	g.starRule += o.starRule
	for i := range g.tokens {
		g.tokens[i].add(&o.tokens[i])
	}
}

func (t *tally) add(o *tally) {
	t.own += o.own
	t.fallback += o.fallback
	t.lenient += o.lenient
	t.explicitRoot += o.explicitRoot
	t.dpi += o.dpi
	t.fullOwn += o.fullOwn
	t.fullFallback += o.fullFallback
	t.partialOwn += o.partialOwn
	t.partialFallback += o.partialFallback
	t.effect.add(o.effect)
	t.starRule += o.starRule
	t.starDPI += o.starDPI
	t.starEffect.add(o.starEffect)
}

func (e *effect) add(o effect) {
	e.full += o.full
	e.fullAnswered += o.fullAnswered
	e.partial += o.partial
}
