package stats

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

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/survey"
)

// This file counts for the table token_stats.
//
// It counts the sites of each segment by their policies, and then computes how each policy treats the tokens of the
// registry (policies.go). Agents that the registry lacks are in no policy. They are counted by their rows of verdicts,
// which are read together with sites: a commit has both in the same order. On a site without a row of the agent, the
// agent gets what the site's group of `*` has.
//
// The columns:
//
//	sites           access is conditional
//	sites_rules     finding is rules; all counts but rfc_effective and unreachable are over these
//	lenient         sites with a row marked lenient and no own, strict one: mention and lenient have no site in common
//	rfc_effective   over rows with an HTTP status: access is conditional and the token blocked, or access full_disallow, which
//	                forbids all agents everything
//	unreachable     rows that we asked, from which no HTTP status came
//	full_via_own    of full, as via_own of sites_rules: those whose own group decides; and so on
//	answered_X      rows with an HTTP status and finding X. rfc_effective is full, over finding rules, and sites that fail or
//	                whose other answers have rules
//
// A few workers read parts concurrently and count for themselves. Their counts are added at the end, so that the tables
// do not depend on how a scan was cut into parts.
//
// A token that the scan's registry did not have gets no row (see traces).

// segment is a set of sites: its totals, and its counts by policy.
type segment struct {
	kind, value string

	all, answered, unreachable int64
	failing                    int64 // answered, access full_disallow
	findings                   [len(answeredFindings)]int64

	file     survey.SitesOf
	policies survey.SitesByPolicy
	lenient  map[int32]int64 // sites that name a token only by the lenient reading, by registry index
}

// answeredFindings are the findings that an answered site can have, in the order of the columns answered_….
var answeredFindings = [...]string{"rules", "no_rules", "html", "none", "refused", "challenged", "rate_limited",
	"server_error", "unreachable"}

// agent counts an agent that the registry lacks.
type agent struct {
	tally          // of sites with a row of the agent
	star     tally // what the group of `*` is on these sites
	lenient  int64
	known    bool // another registry has it
	category string
}

// counter computes token_stats, pass by pass.
type counter struct {
	survey.VerdictReader

	only     []string // tokens that have rows; nil is all, and all unknown agents
	policies *survey.Policies
	traces   *survey.Traces

	first    bool // the pass that counts segments
	total    *segment
	ranks    []*segment // by RankBucket, not cumulative
	tlds     named
	labels   named
	selected []*segment

	unknown *window[agent]
}

func newCounter(o *options, policies *survey.Policies, foreign bool) *counter {
	return &counter{
		VerdictReader: survey.VerdictReader{Registry: o.Registry}, only: o.Only, policies: policies,
		traces: survey.NewTraces(o.Registry, foreign),
		total:  newSegment("all", ""), tlds: newNamed("tld", maxTLDs), labels: newNamed("label", maxLabels),
		unknown: newWindow[agent](o.limit),
	}
}

func newSegment(kind, value string) *segment {
	return &segment{kind: kind, value: value, policies: survey.SitesByPolicy{}, lenient: map[int32]int64{}}
}

// commit reads the sites of one part with their verdicts.
func (c *counter) commit(ctx context.Context, scan *commit.Scan, commit *commit.Commit) error {
	site := siteColumns{}
	sites, err := read.OpenCursor(ctx, scan, commit, schema.Sites, append(table.FieldsOf(&site, false, nil),
		c.traces.Fields(c.Registry)...)...)
	if err != nil {
		return err
	}
	verdicts, err := read.OpenCursor(ctx, scan, commit, schema.Verdicts, table.FieldsOf(&c.Row, false, nil)...)
	if err != nil {
		return errors.Join(err, sites.Close())
	}
	return c.Read(commit, sites, &site.Seq, verdicts, func() { c.site(&site) })
}

// site counts a site. Its verdicts are in c.Rows.
func (c *counter) site(s *siteColumns) {
	n := survey.SiteOf(s.Finding == survey.FindingRules, s.answered())
	if c.first {
		c.traces.Site()
		c.selectSegments(s)
		for _, g := range c.selected {
			g.site(s, n)
		}
	}
	if s.Access != survey.Conditional {
		return
	}
	for i := range c.Rows {
		switch v := &c.Rows[i]; {
		case v.Token == "*":
		case v.ID == survey.NoToken:
			c.agent(v, s.PolicyID, n)
		case v.Lenient && c.first:
			c.traces.Token(v.ID)
			for _, g := range c.selected {
				g.lenient[v.ID] += survey.One(!c.namesStrictly(v.Token)) * n.Rules
			}
		}
	}
}

func (g *segment) site(s *siteColumns, n survey.SitesOf) {
	g.all++
	switch {
	case s.answered():
		g.answered++
		if i := slices.Index(answeredFindings[:], s.Finding); i >= 0 {
			g.findings[i]++
		}
		g.failing += survey.One(s.Access == survey.FullDisallow)
	case s.unreachable():
		g.unreachable++
	}
	if s.Access == survey.Conditional {
		g.file.Add(n)
		g.policies.Add(s.PolicyID, n)
	}
}

// namesStrictly reports whether the current site has a strict own row of a token.
func (c *counter) namesStrictly(token string) bool {
	return slices.ContainsFunc(c.Rows, func(v survey.Verdict) bool {
		return v.Via == "own" && !v.Lenient && v.Token == token
	})
}

func (c *counter) agent(v *survey.Verdict, policy int64, n survey.SitesOf) {
	t := c.unknown.at(v.Token)
	if t == nil {
		return
	}
	if v.Lenient {
		t.lenient += survey.One(!c.namesStrictly(v.Token)) * n.Rules
	} else {
		t.add(siterows.CellOf(v.Verdict, v.Via, !v.RootAllowed, v.DPI == "all"), n)
		t.star.add(c.policies.ByID[policy].Star, n)
	}
	if v.Known && !t.known {
		t.known, t.category = true, strings.Clone(v.Category)
	}
}

func (c *counter) selectSegments(s *siteColumns) {
	c.selected = append(c.selected[:0], c.total)
	if s.Rank > 0 {
		c.selected = append(c.selected, c.rank(RankBucket(s.Rank)))
	}
	for _, kind := range []struct {
		of    *named
		value string
	}{{&c.tlds, s.TLD}, {&c.labels, s.Label}} {
		if g := c.in(kind.of, kind.value); g != nil {
			c.selected = append(c.selected, g)
		}
	}
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
	g := newSegment(n.kind, value)
	n.all[value] = g
	return g
}

// merge adds the counts of another worker in this pass.
func (c *counter) merge(o *counter) {
	c.unknown.merge(o.unknown, func(t, from *agent) {
		t.merge(&from.tally, 1)
		t.star.merge(&from.star, 1)
		t.lenient += from.lenient
		if from.known && !t.known {
			t.known, t.category = true, from.category
		}
	})
	if !c.first {
		return
	}
	c.total.add(o.total)
	for i, g := range o.ranks {
		c.rank(i).add(g)
	}
	c.mergeNamed(&c.tlds, &o.tlds)
	c.mergeNamed(&c.labels, &o.labels)
	c.traces.Merge(o.traces)
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
		c.ranks = append(c.ranks, newSegment("rank", strconv.FormatInt(RankLimit(len(c.ranks)), 10)))
	}
	return c.ranks[bucket]
}

// warn logs which segments are missing.
func (c *counter) warn(log *slog.Logger) {
	if c.labels.tooMany {
		log.Warn("token_stats has no segments by label", "because", fmt.Sprintf("the list has more than %d distinct labels",
			maxLabels),
			"remedy", "group the table sites by its column label")
	}
	if c.tlds.tooMany {
		log.Warn("token_stats has no segments by top-level domain", "because", fmt.Sprintf("the dataset has more than %d",
			maxTLDs),
			"remedy", "group the table sites by its column tld")
	}
}

// RankLimit returns the last rank of a bucket: 1,000, 10,000 and so on.
func RankLimit(bucket int) int64 {
	limit := int64(1000)
	for range bucket {
		limit *= 10
	}
	return limit
}

// LastBucket holds the ranks above the greatest power of ten that is a bound.
const LastBucket = 15

// RankBucket returns the first bucket of a rank, which is above 0.
func RankBucket(rank int64) int {
	bucket := 0
	for bucket < LastBucket && rank > RankLimit(bucket) {
		bucket++
	}
	return bucket
}

func (c *counter) registryRows(add func(schema.TokenStatsRow) error) error {
	segments := []*segment{c.total}
	for i, g := range c.ranks {
		if i > 0 {
			g.add(c.ranks[i-1]) // cumulative
		}
		segments = append(segments, g)
	}
	for _, kind := range []map[string]*segment{c.tlds.all, c.labels.all} {
		segments = append(segments, slices.SortedFunc(maps.Values(kind),
			func(a, b *segment) int { return cmp.Compare(a.value, b.value) })...)
	}
	registry := c.policies.Registry
	for _, g := range segments {
		tallies := make([]tally, len(registry.Tokens))
		if err := c.policies.Each(g.policies, func(_ *audit.Policy, cells []audit.Cell, n *survey.SitesOf) {
			for id, cell := range cells {
				tallies[id].add(cell, *n)
			}
		}); err != nil {
			return err
		}
		for id := range registry.Tokens {
			token := &registry.Tokens[id]
			if c.traces.Lacks(id) || c.only != nil && !slices.Contains(c.only, token.Name) {
				continue
			}
			row := g.row(&tallies[id], g.lenient[int32(id)])
			row.Token, row.Known, row.Category, row.Operator, row.Purpose = token.Name, true, token.Category, token.Operator,
				token.Purpose
			if err := add(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownRows adds a row for each agent of this pass that is not in the registry.
func (c *counter) unknownRows(add func(schema.TokenStatsRow) error) error {
	var unnamed tally // how sites that do not name the agent treat it
	if err := c.policies.Each(c.total.policies, func(p *audit.Policy, _ []audit.Cell, n *survey.SitesOf) {
		unnamed.add(p.Star, *n)
	}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.unknown.values)) {
		t := c.unknown.values[name]
		t.merge(&unnamed, 1)
		t.merge(&t.star, -1)
		row := c.total.row(&t.tally, t.lenient)
		row.Token, row.Known, row.Category = name, t.known, t.category
		if err := add(row); err != nil {
			return err
		}
	}
	return nil
}

func (g *segment) row(t *tally, lenient int64) schema.TokenStatsRow {
	row := schema.TokenStatsRow{
		SegmentKind: g.kind, SegmentValue: g.value,
		SitesAll: g.all, SitesAnswered: g.answered, Sites: g.file.File, SitesRules: g.file.Rules, Unreachable: g.unreachable,
		Partial: t.partial, Lenient: lenient,
		ViaOwn: t.via[survey.ViaOwn], ViaFallback: t.via[survey.ViaFallback], ViaStar: t.via[survey.ViaStar],
		FullViaOwn: t.full[survey.ViaOwn], FullViaFallback: t.full[survey.ViaFallback], FullViaStar: t.full[survey.ViaStar],
		AnyViaOwn: t.any[survey.ViaOwn], AnyViaFallback: t.any[survey.ViaFallback], AnyViaStar: t.any[survey.ViaStar],
	}
	definitions := survey.Definitions()
	for i := range definitions {
		d := &definitions[i]
		*d.In(&row) = t.blocks[i]
		if d.Answered() {
			*d.In(&row) += g.failing
		}
	}
	for i, into := range []*int64{
		&row.AnsweredRules, &row.AnsweredNoRules, &row.AnsweredHTML, &row.AnsweredNone, &row.AnsweredRefused,
		&row.AnsweredChallenged, &row.AnsweredRateLimited, &row.AnsweredServerError, &row.AnsweredUnreachable,
	} {
		*into = g.findings[i]
	}
	return row
}

func (g *segment) add(o *segment) {
	g.all += o.all
	g.answered += o.answered
	g.unreachable += o.unreachable
	g.failing += o.failing
	for i := range g.findings {
		g.findings[i] += o.findings[i]
	}
	g.file.Add(o.file)
	for policy, n := range o.policies {
		g.policies.Add(policy, *n)
	}
	for id, n := range o.lenient {
		g.lenient[id] += n
	}
}
