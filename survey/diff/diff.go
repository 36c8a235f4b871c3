// Package diff answers one question: what changed between two scans, or what did two observers see differently?
//
// It reads both scans at the same time, each in a goroutine of its own. A site is kept in memory until the other scan
// has it too, which is soon if both have about the same order, as scans of one list do. A site in memory is what was
// seen, and the number of its policy. A policy is what the file makes of the selected tokens; many sites have the same,
// and each distinct one is kept once. If the orders differ, the earlier scan is kept in memory, in less than 150 bytes
// a site. So it is for the Parquet files, which have the order of the later scan. The names of the earlier scan are
// read again if Parquet files list sites that vanished.
//
// side.go reads a scan, count.go counts changes, paired.go counts for two observers, and files.go writes Parquet.
package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// ScanAt is a scan of a dataset.
type ScanAt struct {
	Store  store.Store
	ScanID string
	Alone  bool // as in Options
}

// Options are the options of Scans and Observers.
type Options struct {
	survey.Options
	Definition string // one of NamesOverRules; "" is Full
	Selection  survey.Selection
	Top        int    // tokens, operators and sites listed at most; 0 is all
	Panel      *Panel // only sites of its hosts; nil: all
	// blocks that appeared or were removed with their files are listed, too, and their sites counted as changed
	Files bool
	Out   store.Store // Scans writes ChangesName and ChangedSitesName here; nil writes nothing
}

// Diff is what differs between two scans. Programs rely on its JSON; docs/FIELDS.md describes each field.
type Diff struct {
	Compared
	SameObserver bool   `json:"same_observer" about:"false: causes are observer"`
	Definition   string `json:"definition" about:"--definition"`
	Question     string `json:"question" about:"question of the definition"`

	Appeared   int64 `json:"appeared" about:"sites of the later scan only"`
	Vanished   int64 `json:"vanished" about:"sites of the earlier scan only"`
	Unobserved int64 `json:"unobserved" about:"sites with a gap in both"`
	Presence   int64 `json:"presence" about:"sites that changed their class"`
	Refusal    int64 `json:"refusal" about:"sites that changed their class to or from refused"`

	Failed     []FailedCount `json:"failed" about:"sites with a gap in one scan only, by gap"`
	AtLeastOne Sum           `json:"at_least_one" about:"sites that block at least one compared token; began: none before, at least one after"`
	Changing   int           `json:"tokens_changed" about:"tokens with changes"`
	Tokens     []Token       `json:"by_token" about:"of those, the most changed first, at most --top"`
	Operators  []Sum         `json:"by_operator" about:"by operator, at most --top"`
	Causes     []CauseCount  `json:"causes" about:"causes that occur; see docs/diff.md"`

	// Changed is how many sites began or ceased to block a token. Sites lists the best ranked of them.
	Changed int64  `json:"changed_sites" about:"sites that began or ceased to block a token"`
	Sites   []Site `json:"sites" about:"of those, the best ranked, at most --top"`
}

// Compared is what two scans have in common, whatever is counted.
type Compared struct {
	From Scan `json:"from" about:"the earlier scan"`
	To   Scan `json:"to" about:"the later scan"`

	Panel *Panel `json:"panel" about:"all figures are of the sites of its hosts"`
	survey.Selection
	TokensCompared int      `json:"tokens_compared" about:"selected tokens that are compared"`
	TokensUnknown  []string `json:"tokens_unknown" about:"selected tokens of which one of the scans says nothing"`

	Both        int64         `json:"both" about:"sites in both scans"`
	RulesBoth   int64         `json:"rules_both" about:"of them, with finding rules in both"`
	OtherBody   int64         `json:"other_body" about:"of rules_both: another file"`
	OtherPolicy int64         `json:"other_policy" about:"of rules_both: another verdict for a compared token"`
	Findings    []FindingPair `json:"findings" about:"of both"`
}

// Panel is a fixed list of hosts: figures of several dates then have the same frame.
type Panel struct {
	List        string `json:"list" about:"name of the file"`
	Fingerprint string `json:"fingerprint" about:"of its bytes, as in manifests"`
	Hosts       int    `json:"hosts" about:"distinct hosts"`

	has map[string]bool
}

// NewPanel returns the panel of these hosts.
func NewPanel(list, fingerprint string, hosts map[string]bool) *Panel {
	return &Panel{list, fingerprint, len(hosts), hosts}
}

// Scan is one of the two scans.
type Scan struct {
	ScanID          string         `json:"scan_id" about:"scan"`
	ScanDate        string         `json:"scan_date" about:"YYYY-MM-DD"`
	Scans           []string       `json:"scans" about:"ids of the scans whose sites count: those of its unit, or one that was named"`
	State           string         `json:"state" about:"complete or running"`
	Observer        string         `json:"observer" about:"who made the requests, and how"`
	ListID          string         `json:"list_id" about:"--list-id"`
	RegistryVersion string         `json:"registry_version" about:"token registry that judged it"`
	ToolVersion     string         `json:"tool_version" about:"last writer"`
	Lost            []commit.Total `json:"lost" about:"totals of a complete scan that its commits do not reach"`

	Sites         int64 `json:"sites" about:"distinct sites"`
	Rules         int64 `json:"rules" about:"of them, with finding rules"`
	Repeated      int64 `json:"repeated" about:"rows left out, not in folded: another row of the site counts"`
	Folded        int64 `json:"folded" about:"hosts of an archive with captures by both schemes"`
	FoldsDisagree int64 `json:"folds_disagree" about:"of those: both are observations, with another finding or body"`
}

// FindingPair is how many sites had one finding before and one after.
type FindingPair struct {
	Before string `json:"before" about:"finding in the earlier scan"`
	After  string `json:"after" about:"in the later scan"`
	Sites  int64  `json:"sites" about:"sites"`
}

// FailedCount is how many sites had this gap in one scan only.
type FailedCount struct {
	Finding string `json:"finding" about:"the gap"`
	Before  int64  `json:"before" about:"in the earlier scan"`
	After   int64  `json:"after" about:"in the later scan"`
}

// Token is how the sites with rules in both scans changed towards a token.
type Token struct {
	Token    string `json:"token" about:"token"`
	Operator string `json:"operator" about:"operator of the token"`
	Purpose  string `json:"purpose" about:"purpose of the token"`
	Moves
	Tightened int64 `json:"tightened" about:"sites that tightened"`
	Loosened  int64 `json:"loosened" about:"sites that loosened"`
}

// Sum is the same for sites that block at least one token with a value.
type Sum struct {
	Value  string `json:"value" about:"empty; in by_operator the operator"`
	Tokens int    `json:"tokens" about:"compared tokens"`
	Moves
}

// Moves counts sites with rules in both scans, except Appeared and Removed: for these, the site has no rules in one
// scan.
type Moves struct {
	Began       int64   `json:"began" about:"sites that began"`
	Ceased      int64   `json:"ceased" about:"sites that ceased"`
	Appeared    int64   `json:"appeared" about:"sites that block, and had no rules"`
	Removed     int64   `json:"removed" about:"sites that blocked, and have no rules"`
	Net         int64   `json:"net" about:"began less ceased"`
	Before      int64   `json:"blocked_before" about:"sites of rules_both that block, earlier"`
	After       int64   `json:"blocked_after" about:"sites of rules_both that block, later"`
	ShareBefore float64 `json:"share_before" about:"blocked_before of rules_both"`
	ShareAfter  float64 `json:"share_after" about:"blocked_after of rules_both"`
}

// CauseCount is how many changes a cause has. Began and Ceased count pairs of a site and a token.
type CauseCount struct {
	Cause  string `json:"cause" about:"why it changed: a cause of docs/diff.md"`
	Sites  int64  `json:"sites" about:"sites with such a change"`
	Began  int64  `json:"began" about:"pairs of a site and a token"`
	Ceased int64  `json:"ceased" about:"pairs of a site and a token"`
}

// Site is a site that began or ceased to block tokens.
type Site struct {
	Host      string   `json:"host" about:"as listed in the later scan"`
	Port      int32    `json:"port" about:"as listed in the later scan"`
	Requested string   `json:"requested" about:"as listed in the later scan"`
	Rank      int64    `json:"rank" about:"0: none"`
	Began     []string `json:"began" about:"tokens that the site began to block"`
	Ceased    []string `json:"ceased" about:"tokens that the site ceased to block"`
}

// Empty reports whether the scans say the same.
func (d *Diff) Empty() bool {
	differs := func(p FindingPair) bool { return p.Before != p.After }
	return d.Appeared+d.Vanished+d.OtherBody == 0 && len(d.Causes)+len(d.Tokens) == 0 && !slices.ContainsFunc(d.Findings,
		differs)
}

// comparison is what both scans share while they are read.
type comparison struct {
	o          *Options
	by         *survey.Definition
	chosen     []int32 // registry indexes of the selected tokens
	places     []int32 // by registry index: the place in chosen, or NoToken
	compared   []int   // places of the tokens of which both scans say something
	policies   interned
	judges     interned
	cdns       interned
	before     side
	after      side
	earlier    map[int64]siteState // by key: sites that the later scan has not shown so far
	later      map[int64]siteRow   // the reverse
	mostLater  int                 // with so many sites in later, only before is read: its sites take less memory
	site       siteName            // the site being counted, as the later scan calls it
	findings   [audit.NumFindings][audit.NumFindings]int64
	both       int64
	rulesBoth  int64
	otherBody  int64
	rulesOther int64 // sites with another policy
}

// Scans compares two scans. It takes no lock. If a scan lacks the table sites or policies, the error is
// commit.ErrNoTable.
func Scans(ctx context.Context, from, to ScanAt, o Options) (d *Diff, err error) {
	c, err := newComparison(ctx, from, to, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d, err = nil, fmt.Errorf("cannot compare scan %s with scan %s: %w", from.ScanID, to.ScanID, err)
		}
	}()
	var out *files
	if o.Out != nil {
		if out, err = createFiles(ctx, c); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, out.discard()) }()
	}
	count := newCounter(c, out)
	if err := c.join(ctx, out != nil, count.site); err != nil {
		return nil, err
	}
	d = count.finish()
	if out == nil {
		return d, nil
	}
	if d.Vanished > 0 {
		if err := c.vanished(ctx, out); err != nil {
			return nil, err
		}
	}
	return d, out.publish(ctx)
}

func newComparison(ctx context.Context, from, to ScanAt, o *Options) (*comparison, error) {
	o.Options = o.WithDefaults()
	o.Selection.Tokens = append([]string{}, o.Only...)
	definition, ok := survey.DefinitionNamed(cmp.Or(o.Definition, survey.Full))
	if !ok || definition.Answered() {
		return nil, fmt.Errorf("cannot compare by %.40q: the definitions are %s", o.Definition,
			strings.Join(survey.NamesOverRules(), ", "))
	}
	c := &comparison{o: o, by: &definition, places: make([]int32, len(o.Registry.Tokens)), earlier: map[int64]siteState{},
		later: map[int64]siteRow{}, mostLater: 1 << 16}
	for id := range o.Registry.Tokens {
		c.places[id] = survey.NoToken
		if o.Selection.Takes(&o.Registry.Tokens[id]) {
			c.places[id] = int32(len(c.chosen))
			c.chosen = append(c.chosen, int32(id))
		}
	}
	c.policies.id(make([]byte, len(c.chosen))) // policy 0 is that of sites without rules
	for _, s := range []struct {
		side *side
		at   ScanAt
	}{{&c.before, from}, {&c.after, to}} {
		if err := s.side.open(ctx, c, s.at); err != nil {
			return nil, err
		}
	}
	for place, id := range c.chosen {
		if !c.before.traces.Lacks(int(id)) && !c.after.traces.Lacks(int(id)) {
			c.compared = append(c.compared, place)
		}
	}
	return c, nil
}

// join reads both scans, and calls do for each site of the later one: with its state in the earlier scan, which is nil
// if the site appeared, and its state in the later one. inOrder keeps the order of the later scan, and leaves the sites
// that vanished in c.earlier.
func (c *comparison) join(ctx context.Context, inOrder bool, do func(before, after *siteState) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, a := &c.before, &c.after
	if inOrder {
		// records may say any number
		c.earlier = make(map[int64]siteState, min(commit.CountCommits(b.scan.Commits).Rows, 1<<20))
	}
	b.start(ctx)
	a.start(ctx)
	var failed error
	pair := func(before *siteState, after *siteRow) {
		if failed != nil {
			return
		}
		if before != nil {
			c.observe(before, &after.siteState)
		}
		c.site = after.siteName
		if failed = do(before, &after.siteState); failed != nil {
			cancel()
		}
	}
	var was siteState
	var is siteRow
	for found := false; !b.ended || !a.ended; {
		for _, row := range b.next() {
			if is, found = c.later[row.key]; found {
				delete(c.later, row.key)
				was = row.siteState
				pair(&was, &is)
			} else if !a.ended {
				c.earlier[row.key] = row.siteState
			}
		}
		if !b.ended && (inOrder || len(c.later) >= c.mostLater) {
			continue
		}
		for _, row := range a.next() {
			is = row
			if was, found = c.earlier[row.key]; found {
				delete(c.earlier, row.key)
				pair(&was, &is)
			} else if b.ended {
				pair(nil, &is)
			} else {
				// of pages that would stay in memory
				is.Host, is.Requested, is.CDN, is.Registry = strings.Clone(is.Host), strings.Clone(is.Requested), "", ""
				c.later[row.key] = is
			}
		}
	}
	for _, is = range c.later { // in any order; with inOrder there are none
		pair(nil, &is)
	}
	return cmp.Or(failed, b.err, a.err)
}

// observe counts a site of both scans.
func (c *comparison) observe(before, after *siteState) {
	c.both++
	c.findings[before.finding][after.finding]++
	if before.ruled() && after.ruled() {
		c.rulesBoth++
		c.otherBody += survey.One(before.body != after.body)
		c.rulesOther += survey.One(c.otherPolicy(before, after))
	}
}

// otherPolicy reports whether the verdict of a compared token differs.
func (c *comparison) otherPolicy(before, after *siteState) bool {
	if before.policy == after.policy {
		return false
	}
	was, is := c.policies.values[before.policy], c.policies.values[after.policy]
	return slices.ContainsFunc(c.compared, func(place int) bool {
		return audit.Cell(was[place]).Decision() != audit.Cell(is[place]).Decision()
	})
}

// vanished writes the sites that only the earlier scan contains.
func (c *comparison) vanished(ctx context.Context, out *files) error {
	b, left := &c.before, maps.Collect(maps.All(c.earlier)) // small, where deleted entries make look-ups slow
	var failed error
	err := b.readNames(ctx, func() {
		if state, ok := left[b.key()]; ok && failed == nil {
			failed = out.site(&b.row.siteName, siteVanished, &state, nil)
		}
	})
	return errors.Join(failed, err)
}

// compareds are the fields that all results have.
func (c *comparison) compareds() Compared {
	d := Compared{
		From: c.before.describe(), To: c.after.describe(), Panel: c.o.Panel, Selection: c.o.Selection,
		TokensCompared: len(c.compared), TokensUnknown: []string{},
		Both: c.both, RulesBoth: c.rulesBoth, OtherBody: c.otherBody, OtherPolicy: c.rulesOther, Findings: []FindingPair{},
	}
	for place, id := range c.chosen {
		if !slices.Contains(c.compared, place) {
			d.TokensUnknown = append(d.TokensUnknown, c.o.Registry.Tokens[id].Name)
		}
	}
	for _, before := range Findings() {
		for _, after := range Findings() {
			if n := c.findings[before][after]; n > 0 {
				d.Findings = append(d.Findings, FindingPair{before.String(), after.String(), n})
			}
		}
	}
	return d
}

// Findings lists all findings: observations first, then gaps.
func Findings() []audit.Finding {
	list := make([]audit.Finding, 0, audit.NumFindings)
	for f := range audit.NumFindings {
		list = append(list, audit.NumFindings-1-f)
	}
	return list
}

// describe returns the fields that describe a scan.
func (s *side) describe() Scan {
	m := s.scan.Manifest
	d := Scan{
		ScanID: m.ScanID, ScanDate: m.ScanDate, Scans: survey.ScanIDs(s.scan.Read()), State: string(m.State),
		Observer: m.Observer.String(), ListID: m.ListID,
		RegistryVersion: m.RegistryVersion, ToolVersion: m.ToolVersion, Lost: []commit.Total{},
		Sites: s.sites, Rules: s.rules, Repeated: s.scan.Unit.Replaced() - s.scan.Unit.Folded, Folded: s.scan.Unit.Folded,
		FoldsDisagree: s.scan.Unit.Disagree,
	}
	if lost := s.scan.Lost(); lost != nil {
		d.Lost = lost.Totals
	}
	return d
}

// sameObserver reports whether one observer made both scans.
func (c *comparison) sameObserver() bool {
	return c.before.scan.Manifest.Observer.String() == c.after.scan.Manifest.Observer.String()
}
