package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// This file computes the tables token_stats and record_stats. How token_stats counts:
//
// Rows of sites and verdicts are read together: a commit has both in the same order. A site touches only the tokens that
// it says something about: those in its lists, and those with a row of verdicts. A token without a row follows `*` or no
// group. Its counts by `*` are therefore the segment's counts by `*`, less the sites where it has a row (tally.starRule,
// starDPI, starEffect). So the cost of a site depends on its file, not on the size of the registry.
//
// The columns:
//
//	sites           access is conditional; all counts but rfc_effective and unreachable are over these
//	mention         own, strict row (rows marked lenient stand outside of all definitions)
//	lenient         a row marked lenient and no own, strict one: mention and lenient have no site in common
//	explicit_root   own row, and / is denied
//	full, partial   registry tokens: the lists `blocked`, `partial` of sites; other agents: their row, else star_verdict
//	dpi_all         the token's own or fallback row reads `all`; without a row, that of `*` does: the Data Provenance
//	                Initiative lets any unlisted agent inherit, so a token that ignores `*` inherits here too
//	rfc_effective   over rows with an HTTP status: full, or access full_disallow, which forbids all agents everything
//	unreachable     rows that we asked, from which no HTTP status came
//	via_star        no row of its own, there is a group of `*`, and the token heeds it
//
// A few workers read parts concurrently and count for themselves. Their counts are added at the end, so that the tables
// do not depend on how a scan was cut into parts.
//
// The lists of sites and the verdicts have no trace of a token that the scan's registry did not have. If the statistics
// use a registry with such a token, it gets no row: zeros would be false (see foreign).

// Options of Stats and Summarize.
type Options struct {
	Registry    *tokens.Registry // nil is tokens.Default()
	ToolVersion string

	// Log receives warnings that a reader of the result needs: the registry is not the scan's, or segments are
	// missing. nil discards them.
	Log *slog.Logger

	limit int // keys of unknown agents in memory; 0 is maxKeys. Tests set it.
}

// withDefaults fills in missing options.
func (o Options) withDefaults() Options {
	if o.Registry == nil {
		o.Registry = tokens.Default()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.limit == 0 {
		o.limit = maxKeys
	}
	return o
}

// foreign reports whether the registry differs from that of the scan, or of a part of a scan that was judged again. It
// logs a warning with the effect.
func (o *Options) foreign(scan *commit.Scan, effect string) bool {
	m := scan.Manifest
	if m.RegistryVersion == o.Registry.Version {
		sites := scan.ByOtherRegistry()
		if sites > 0 {
			o.Log.Warn("sites keep the judgement of another token registry, as their bodies were not stored", "sites", sites, "registry", o.Registry.Version,
				"effect", "tokens that it did not have count there as not named and not blocked; those of which no other site says anything have no row", "remedy", "scan again")
		}
		return sites > 0
	}
	o.Log.Warn("the scan was judged by another token registry", "scan_registry", m.RegistryVersion, "registry", o.Registry.Version,
		"effect", effect, "remedy", "give --tokens FILE as the scan had it, or scan again")
	return true
}

// maxKeys bounds the unknown agents and keys that a worker counts at once: 32 MB at most.
const maxKeys = 1 << 17

// maxWorkers bounds the parts that are read at once: each worker has counts of its own.
const maxWorkers = 4

// maxLabels bounds the label segments. A list with more labels uses them as keys, not as segments, and gets none.
const maxLabels = 1000

// maxTLDs bounds the segments of top-level domains. The DNS root has some 1,450, and bulkscan writes no others. A
// dataset with more was written by another program and gets none, since the order of its parts would choose them.
const maxTLDs = 2000

// Stats computes the tables token_stats and record_stats of a scan from its committed parts, and replaces the file of
// each. token_stats needs the tables sites and verdicts, record_stats needs evidence. A table that lacks what it needs
// is left out; if both do, the error is commit.ErrNoTable. The caller holds the scan's lock, by its sink.Writer or
// sink.LockStats.
func Stats(ctx context.Context, st store.Store, scanID string, o Options) error {
	o = o.withDefaults()
	scan, err := commit.ReadScan(ctx, st, scanID)
	if err != nil {
		return err
	}
	if err := scan.Whole(); err != nil {
		return fmt.Errorf("cannot compute statistics of scan %s: %w", scanID, err)
	}
	errTokens := writeTokenStats(ctx, st, scan, &o)
	errRecords := writeRecordStats(ctx, st, scan, &o)
	if errors.Is(errTokens, commit.ErrNoTable) && errors.Is(errRecords, commit.ErrNoTable) {
		return errTokens
	}
	var errs []error
	for _, err := range []error{errTokens, errRecords} {
		if !errors.Is(err, commit.ErrNoTable) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// writeTable publishes rows as the scan's file of a table.
func writeTable[T any](ctx context.Context, st store.Store, scan *commit.Scan, o *Options, table string, fill func(add func(T) error) error) error {
	name := commit.StatsName(table, scan.Manifest.ScanDate, scan.Manifest.ScanID)
	w, err := sink.CreateTable[T](ctx, st, scan, name, table, o.ToolVersion)
	if err != nil {
		return err
	}
	if err := fill(w.Add); err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.Close(ctx)
}

func writeTokenStats(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) error {
	if !scan.Has(schema.Sites) || !scan.Has(schema.Verdicts) {
		return fmt.Errorf("cannot compute %s of scan %s: %w", schema.TokenStats, scan.Manifest.ScanID, commit.ErrNoTable)
	}
	foreign := o.foreign(scan, "tokens that the scan did not know, or says nothing of, have no row; those that only the scan knew count as unknown agents, which heed *")
	return writeTable(ctx, st, scan, o, schema.TokenStats, func(add func(schema.TokenStatsRow) error) error {
		var workers []*counter
		for range workersFor(scan) {
			workers = append(workers, newCounter(o, foreign))
		}
		for first := true; ; first = false {
			c, err := countParts(ctx, scan, workers, first)
			if err != nil {
				return fmt.Errorf("cannot compute %s of scan %s: %w", schema.TokenStats, scan.Manifest.ScanID, err)
			}
			if first {
				c.warn(o.Log)
				if err := c.registryRows(add); err != nil {
					return err
				}
			}
			if err := c.unknownRows(add); err != nil {
				return err
			}
			if !c.unknown.advance() {
				return nil
			}
			for _, w := range workers[1:] {
				w.unknown.follow(c.unknown)
			}
		}
	})
}

// workersFor returns the number of workers for a scan.
func workersFor(scan *commit.Scan) int {
	return max(1, min(maxWorkers, runtime.GOMAXPROCS(0), len(scan.Commits)))
}

// countParts reads all committed parts once, each by one of the workers. It returns the first worker, with the counts
// of all.
func countParts(ctx context.Context, scan *commit.Scan, workers []*counter, first bool) (*counter, error) {
	for _, c := range workers {
		c.beginPass(first)
	}
	err := eachCommit(ctx, scan, len(workers), func(ctx context.Context, worker int, commit *commit.Commit) error {
		return workers[worker].commit(ctx, scan, commit)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range workers[1:] {
		workers[0].merge(c)
	}
	return workers[0], nil
}

// eachCommit calls do for every commit, from so many numbered goroutines. It returns the first error and begins no
// commit after it.
func eachCommit(ctx context.Context, scan *commit.Scan, workers int, do func(ctx context.Context, worker int, commit *commit.Commit) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(scan.Commits) {
					return
				}
				if err := do(ctx, worker, &scan.Commits[i]); err != nil {
					cancel(err) // the first call counts
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// siteColumns are the columns of sites that token_stats needs.
type siteColumns struct {
	Seq, Rank   int64
	Label, TLD  string
	Status      int32
	Access      string
	StarVerdict string
	Blocked     []int32 // registry indexes, noToken for others
	Partial     []int32
}

func (s *siteColumns) fields(index func(token string) int32) []table.Field {
	return []table.Field{
		{Name: "seq", Into: &s.Seq},
		{Name: "rank", Into: &s.Rank},
		{Name: "label", Into: &s.Label},
		{Name: "tld", Into: &s.TLD},
		{Name: "status", Into: &s.Status},
		{Name: "access", Into: &s.Access},
		{Name: "star_verdict", Into: &s.StarVerdict},
		{Name: "blocked", Into: &s.Blocked, Index: index},
		{Name: "partial", Into: &s.Partial, Index: index},
	}
}

// verdictColumns are those of verdicts.
type verdictColumns struct {
	Seq         int64
	Token       string
	Known       bool
	Category    string
	Verdict     string
	Via         string
	RootAllowed bool
	DPI         string
	Lenient     bool

	id int32 // of Token in the registry, noToken for unknown agents
}

func (v *verdictColumns) fields() []table.Field {
	return append(v.lenientFields(),
		table.Field{Name: "category", Into: &v.Category},
		table.Field{Name: "verdict", Into: &v.Verdict},
		table.Field{Name: "via", Into: &v.Via},
		table.Field{Name: "root_allowed", Into: &v.RootAllowed},
		table.Field{Name: "dpi", Into: &v.DPI},
	)
}

// lenientFields are the columns that lenient names need.
func (v *verdictColumns) lenientFields() []table.Field {
	return []table.Field{
		{Name: "seq", Into: &v.Seq},
		{Name: "token", Into: &v.Token},
		{Name: "known", Into: &v.Known},
		{Name: "lenient", Into: &v.Lenient},
	}
}

// verdictReader reads verdicts together with sites: a commit has both in the same order.
type verdictReader struct {
	tokens tokenIndex
	row    verdictColumns   // set by the cursor of verdicts
	rows   []verdictColumns // of the current site
}

// read calls do for each site of a commit, with the fields of both tables set, and closes the cursors. seq is where
// the cursor of sites stores the row's number.
func (r *verdictReader) read(commit *commit.Commit, sites *table.Cursor, seq *int64, verdicts *table.Cursor, do func()) error {
	more := verdicts.Next()
	err := eachOf(sites, func() {
		r.rows = r.rows[:0]
		for ; more && r.row.Seq == *seq; more = verdicts.Next() {
			if r.row.id = noToken; r.row.Known {
				r.row.id = r.tokens.index(r.row.Token)
			}
			r.rows = append(r.rows, r.row)
		}
		do()
	})
	if err == nil {
		err = verdicts.Err()
	}
	if err == nil && more {
		err = fmt.Errorf("part %s-%d: the verdicts of seq %d are not in the order of sites", commit.Shard, commit.N, r.row.Seq)
	}
	return errors.Join(err, verdicts.Close())
}

// answered reports whether there was an HTTP status.
func (s *siteColumns) answered() bool { return s.Status != 0 }

// unreachable reports whether requests were made and there was no HTTP status.
func (s *siteColumns) unreachable() bool {
	return !s.answered() && s.Access != "unknown"
}

// segment is a set of sites: its totals, and its counts of each registry token.
type segment struct {
	kind, value string

	all, answered, sites, unreachable int64
	failing                           int64 // answered, access full_disallow

	star     effect // sites by the effect of their group of `*`
	starDPI  int64
	starRule int64 // sites that have a group of `*`

	tokens []tally // by registry index
}

// effect counts sites by a verdict.
type effect struct{ full, fullAnswered, partial int64 }

func (e *effect) count(verdict string, answered bool) {
	switch verdict {
	case "blocked":
		e.full++
		if answered {
			e.fullAnswered++
		}
	case "partial":
		e.partial++
	}
}

// tally is a segment's counts of one token.
type tally struct {
	own, fallback     int64 // sites with such a row
	lenient           int64 // sites that name it only by the lenient reading
	explicitRoot, dpi int64 // of the rows
	effect            effect
	starRule, starDPI int64 // sites with a row, by the effect of `*` there
	starEffect        effect

	known    bool // of unknown agents: another registry has the token
	category string
}

// row counts a row of verdicts of a site.
func (t *tally) row(v *verdictColumns, star *starFacts) {
	if v.Via == "own" {
		t.own++
		if !v.RootAllowed {
			t.explicitRoot++
		}
	} else {
		t.fallback++
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
	t.starEffect.count(star.verdict, star.answered)
}

// starFacts is the effect of `*` on one site.
type starFacts struct {
	rule, dpi, answered bool
	verdict             string
}

// counter computes token_stats, pass by pass.
type counter struct {
	verdictReader

	registry *tokens.Registry
	foreign  bool // the registry is not the scan's

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
		registry:      o.Registry, foreign: foreign, unknown: newWindow[tally](o.limit),
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
	star := starFacts{answered: s.answered(), verdict: s.StarVerdict}
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

// siteIn counts a site whose rules decide, in one of its segments.
func (c *counter) siteIn(g *segment, s *siteColumns, star *starFacts) {
	g.sites++
	g.star.count(star.verdict, star.answered)
	if star.rule {
		g.starRule++
	}
	if star.dpi {
		g.starDPI++
	}
	for _, id := range s.Blocked {
		if id != noToken {
			g.tokens[id].effect.count("blocked", star.answered)
		}
	}
	for _, id := range s.Partial {
		if id != noToken {
			g.tokens[id].effect.count("partial", star.answered)
		}
	}
	for i := range c.rows {
		switch v := &c.rows[i]; {
		case v.id == noToken:
		case v.Lenient:
			g.tokens[v.id].lenient += one(!c.namesStrictly(v.Token))
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
				t.lenient += one(!c.namesStrictly(v.Token))
			} else {
				t.row(v, star)
				t.effect.count(v.Verdict, star.answered)
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
			if c.foreign && c.total.tokens[id] == (tally{}) {
				continue
			}
			token := &c.registry.Tokens[id]
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
		SitesAll: g.all, SitesAnswered: g.answered, Sites: g.sites, Unreachable: g.unreachable,
		Mention:      t.own,
		ExplicitRoot: t.explicitRoot,
		DPIAll:       t.dpi + g.starDPI - t.starDPI,
		ViaOwn:       t.own,
		ViaFallback:  t.fallback,
		Lenient:      t.lenient,
	}
	if heedsStar {
		row.ViaStar = g.starRule - t.starRule
	}
	return row
}

// verdicts fills in the other columns, from the verdicts of the token in the segment.
func (e effect) verdicts(row *schema.TokenStatsRow, g *segment) {
	row.Full, row.Partial, row.Any = e.full, e.partial, e.full+e.partial
	row.RFCEffective = e.fullAnswered + g.failing
}

// add adds the counts of another segment.
func (g *segment) add(o *segment) {
	g.all += o.all
	g.answered += o.answered
	g.sites += o.sites
	g.unreachable += o.unreachable
	g.failing += o.failing
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

// evidenceColumns are the columns of evidence that record_stats needs.
type evidenceColumns struct {
	Seq       int64
	Kind, Key string
}

func (e *evidenceColumns) fields() []table.Field {
	return []table.Field{{Name: "seq", Into: &e.Seq}, {Name: "kind", Into: &e.Kind}, {Name: "key", Into: &e.Key}}
}

// recordTally counts one key.
type recordTally struct {
	sites, lines int64
	last         int64 // seq of the last site counted, + 1
}

func writeRecordStats(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) error {
	if !scan.Has(schema.Evidence) {
		return fmt.Errorf("cannot compute %s of scan %s: %w", schema.RecordStats, scan.Manifest.ScanID, commit.ErrNoTable)
	}
	return writeTable(ctx, st, scan, o, schema.RecordStats, func(add func(schema.RecordStatsRow) error) error {
		workers := make([]recordCounter, workersFor(scan))
		for i := range workers {
			workers[i] = recordCounter{window: newWindow[recordTally](o.limit)}
		}
		keys := workers[0].window
		for {
			err := eachCommit(ctx, scan, len(workers), func(ctx context.Context, worker int, commit *commit.Commit) error {
				row := evidenceColumns{}
				return eachRow(ctx, scan, commit, schema.Evidence, row.fields(), func() { workers[worker].count(&row) })
			})
			if err != nil {
				return fmt.Errorf("cannot compute %s of scan %s: %w", schema.RecordStats, scan.Manifest.ScanID, err)
			}
			for _, w := range workers[1:] {
				keys.merge(w.window, func(t, from *recordTally) { t.sites, t.lines = t.sites+from.sites, t.lines+from.lines })
			}
			for _, key := range slices.Sorted(maps.Keys(keys.values)) {
				t := keys.values[key]
				kind, name, _ := strings.Cut(key, "\x00")
				if err := add(schema.RecordStatsRow{Kind: kind, Key: name, Sites: t.sites, Lines: t.lines}); err != nil {
					return err
				}
			}
			if !keys.advance() {
				return nil
			}
			for _, w := range workers[1:] {
				w.follow(keys)
			}
		}
	})
}

// recordCounter counts keys by kind of evidence. A map key is the kind, a NUL, and the key in lower case. The kinds
// sitemap and orphan, which have one or two keys, are left out, and so are lines without a key.
type recordCounter struct {
	*window[recordTally]
	key []byte // scratch
}

func (c *recordCounter) count(row *evidenceColumns) {
	switch row.Kind {
	case "unknown", "extension", "legacy", "signal", "usage", "license", "invalid", "typo":
	default:
		return
	}
	if row.Key == "" {
		return
	}
	c.key = appendLower(append(append(c.key[:0], row.Kind...), 0), row.Key)
	t := c.atBytes(c.key)
	if t == nil {
		return
	}
	t.lines++
	if t.last != row.Seq+1 {
		t.last = row.Seq + 1
		t.sites++
	}
}

// appendLower appends s in lower case.
func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			return append(b, strings.ToLower(s[i:])...)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
