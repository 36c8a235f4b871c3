package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
)

// This file compares two scans. It reads the earlier one once into a table in memory, of less than 100 bytes a site: what was
// seen, and the number of the site's policy. A policy is what the file makes of the selected tokens; many sites have the
// same, and each distinct one is kept once. Then it compares the rows of the later scan with the table. Where sites are listed, it
// reads the names of the earlier scan again, for those that vanished.
//
// diffside.go reads a scan, diffcount.go counts changes, diffpaired.go counts for --paired, and difffile.go writes Parquet.

// ScanAt is a scan of a dataset.
type ScanAt struct {
	Store  store.Store
	ScanID string
	Alone  bool // as in Options
}

// DiffOptions are the options of Compare and ComparePaired.
type DiffOptions struct {
	Options
	Definition string // one of SensitivityDefinitions; "" is Full
	Selection  Selection
	Top        int         // tokens, operators and sites listed at most; 0 is all
	Panel      *Panel      // only sites of its hosts; nil: all
	Out        store.Store // Compare writes ChangesName and ChangedSitesName here; nil writes nothing
}

// Diff is what differs between two scans. Programs rely on its JSON; docs/diff.md describes each field.
type Diff struct {
	Compared
	SameObserver bool   `json:"same_observer"`
	Definition   string `json:"definition"`
	Question     string `json:"question"`

	Appeared   int64 `json:"appeared"`
	Vanished   int64 `json:"vanished"`
	Unobserved int64 `json:"unobserved"` // gaps in both scans
	Presence   int64 `json:"presence"`
	Refusal    int64 `json:"refusal"`

	Failed     []FailedCount `json:"failed"`
	AtLeastOne SumDiff       `json:"at_least_one"`
	Changing   int           `json:"tokens_changed"` // tokens with changes
	Tokens     []TokenDiff   `json:"by_token"`       // of these, the most began and ceased first
	Operators  []SumDiff     `json:"by_operator"`    // likewise
	Causes     []CauseCount  `json:"causes"`

	// Changed is how many sites began or ceased to block a token. Sites lists the best ranked of them.
	Changed int64      `json:"changed_sites"`
	Sites   []SiteDiff `json:"sites"`
}

// Compared is what two scans have in common, whatever is counted.
type Compared struct {
	From DiffScan `json:"from"`
	To   DiffScan `json:"to"`

	Panel *Panel `json:"panel"` // null without one
	Selection
	TokensCompared int      `json:"tokens_compared"`
	TokensUnknown  []string `json:"tokens_unknown"` // selected, but one of the scans says nothing of them

	Both        int64         `json:"both"`         // sites in both scans
	RulesBoth   int64         `json:"rules_both"`   // with finding rules in both
	OtherBody   int64         `json:"other_body"`   // of those
	OtherPolicy int64         `json:"other_policy"` // of those: another verdict for a token
	Findings    []FindingPair `json:"findings"`
}

// Panel is a fixed list of hosts: figures of several dates then have the same frame.
type Panel struct {
	List        string `json:"list"`        // name of the file
	Fingerprint string `json:"fingerprint"` // of its bytes, as in manifests
	Hosts       int    `json:"hosts"`       // distinct ones

	has map[string]bool
}

// NewPanel returns the panel of these hosts.
func NewPanel(list, fingerprint string, hosts map[string]bool) *Panel {
	return &Panel{list, fingerprint, len(hosts), hosts}
}

// DiffScan is one of the two scans.
type DiffScan struct {
	ScanID          string         `json:"scan_id"`
	ScanDate        string         `json:"scan_date"`
	Scans           []string       `json:"scans"` // whose sites count
	State           string         `json:"state"`
	Observer        string         `json:"observer"`
	ListID          string         `json:"list_id"`
	RegistryVersion string         `json:"registry_version"`
	ToolVersion     string         `json:"tool_version"`
	Lost            []commit.Total `json:"lost"` // totals of a complete scan that its commits do not reach

	Sites         int64 `json:"sites"` // distinct
	Rules         int64 `json:"rules"` // of them, with finding rules
	Repeated      int64 `json:"repeated"`
	Folded        int64 `json:"folded"`
	FoldsDisagree int64 `json:"folds_disagree"`
}

// FindingPair is how many sites had one finding before and one after.
type FindingPair struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Sites  int64  `json:"sites"`
}

// FailedCount is how many sites had this gap in one scan only.
type FailedCount struct {
	Finding string `json:"finding"`
	Before  int64  `json:"before"`
	After   int64  `json:"after"`
}

// TokenDiff is how the sites with rules in both scans changed towards a token.
type TokenDiff struct {
	Token    string `json:"token"`
	Operator string `json:"operator"`
	Purpose  string `json:"purpose"`
	Moves
	Tightened int64 `json:"tightened"`
	Loosened  int64 `json:"loosened"`
}

// SumDiff is the same for sites that block at least one token with a value.
type SumDiff struct {
	Value  string `json:"value"`
	Tokens int    `json:"tokens"`
	Moves
}

// Moves counts sites with rules in both scans.
type Moves struct {
	Began       int64   `json:"began"`
	Ceased      int64   `json:"ceased"`
	Net         int64   `json:"net"`
	Before      int64   `json:"blocked_before"`
	After       int64   `json:"blocked_after"`
	ShareBefore float64 `json:"share_before"` // of RulesBoth
	ShareAfter  float64 `json:"share_after"`
}

// CauseCount is how many changes a cause has. Began and Ceased count pairs of a site and a token.
type CauseCount struct {
	Cause  string `json:"cause"`
	Sites  int64  `json:"sites"`
	Began  int64  `json:"began"`
	Ceased int64  `json:"ceased"`
}

// SiteDiff is a site that began or ceased to block tokens.
type SiteDiff struct {
	Host      string   `json:"host"`
	Port      int32    `json:"port"`
	Requested string   `json:"requested"`
	Rank      int64    `json:"rank"` // 0 without one
	Began     []string `json:"began"`
	Ceased    []string `json:"ceased"`
}

// Empty reports whether the scans say the same.
func (d *Diff) Empty() bool {
	differs := func(p FindingPair) bool { return p.Before != p.After }
	return d.Appeared+d.Vanished+d.OtherBody == 0 && len(d.Causes)+len(d.Tokens) == 0 && !slices.ContainsFunc(d.Findings, differs)
}

// comparison is what both scans share while they are read.
type comparison struct {
	o          *DiffOptions
	by         *Definition
	chosen     []int32 // registry indexes of the selected tokens
	places     []int32 // by registry index: the place in chosen, or noToken
	compared   []int   // places of the tokens of which both scans say something
	policies   interned
	judges     interned
	cdns       interned
	before     side
	after      side
	states     []siteState
	index      map[int64]int32 // of states, by the site's key
	findings   [audit.NumFindings][audit.NumFindings]int64
	both       int64
	rulesBoth  int64
	otherBody  int64
	rulesOther int64 // sites with another policy
}

// Compare compares two scans. It takes no lock. If a scan lacks the table sites or policies, the error is commit.ErrNoTable.
func Compare(ctx context.Context, from, to ScanAt, o DiffOptions) (d *Diff, err error) {
	c, err := newComparison(ctx, from, to, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d, err = nil, fmt.Errorf("cannot compare scan %s with scan %s: %w", from.ScanID, to.ScanID, err)
		}
	}()
	var out *diffFiles
	if o.Out != nil {
		if out, err = createDiffFiles(ctx, c); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, out.discard()) }()
	}
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	count := newDiffCounter(c, out)
	if err := c.join(ctx, count.site); err != nil {
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

func newComparison(ctx context.Context, from, to ScanAt, o *DiffOptions) (*comparison, error) {
	o.Options = o.withDefaults()
	o.Selection.Tokens = append([]string{}, o.Only...)
	definition, ok := DefinitionNamed(cmp.Or(o.Definition, Full))
	if !ok || definition.Over != overRules {
		return nil, fmt.Errorf("cannot compare by %.40q: the definitions are %s", o.Definition, strings.Join(SensitivityDefinitions(), ", "))
	}
	c := &comparison{o: o, by: &definition, places: make([]int32, len(o.Registry.Tokens)), index: map[int64]int32{}}
	for id := range o.Registry.Tokens {
		c.places[id] = noToken
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
	return c, nil
}

// load reads the earlier scan, and of the later one what it says of tokens.
func (c *comparison) load(ctx context.Context) error {
	b := &c.before
	err := b.read(ctx, func() {
		now := b.state()
		c.index[b.key()] = int32(len(c.states))
		c.states = append(c.states, now)
		b.count(now.finding)
	})
	if a := &c.after; err == nil && a.traces != nil {
		err = a.readSites(ctx, append(a.keyFields(), a.traces.fields(newTokenIndex(c.o.Registry))...), a.traces.site)
	}
	if err != nil {
		return err
	}
	for place := range c.chosen {
		if id := int(c.chosen[place]); !b.traces.lack(id) && !c.after.traces.lack(id) {
			c.compared = append(c.compared, place)
		}
	}
	return nil
}

// join reads the later scan, and calls do for each of its sites with the state before, which is nil for a site that
// appeared, and the state after.
func (c *comparison) join(ctx context.Context, do func(before, after *siteState) error) error {
	a := &c.after
	var failed error
	err := a.read(ctx, func() {
		if failed != nil {
			return
		}
		now := a.state()
		a.count(now.finding)
		var before *siteState
		if at, ok := c.index[a.key()]; ok {
			before = &c.states[at]
			before.seen = true
			c.observe(before, &now)
		}
		failed = do(before, &now)
	})
	return errors.Join(failed, err)
}

// observe counts a site of both scans.
func (c *comparison) observe(before, after *siteState) {
	c.both++
	c.findings[before.finding][after.finding]++
	if before.ruled() && after.ruled() {
		c.rulesBoth++
		c.otherBody += one(before.body != after.body)
		c.rulesOther += one(c.otherPolicy(before, after))
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

// vanished writes the sites that only the earlier scan has.
func (c *comparison) vanished(ctx context.Context, out *diffFiles) error {
	b := &c.before
	var failed error
	err := b.readNames(ctx, func() {
		at, ok := c.index[b.key()]
		if !ok || failed != nil {
			return
		}
		if state := &c.states[at]; !state.seen {
			failed = out.site(b, siteVanished, state, nil)
		}
	})
	return errors.Join(failed, err)
}

// compareds are the fields that all results have.
func (c *comparison) compareds() Compared {
	d := Compared{
		From: c.before.describe(), To: c.after.describe(), Panel: c.o.Panel, Selection: c.o.Selection, TokensCompared: len(c.compared), TokensUnknown: []string{},
		Both: c.both, RulesBoth: c.rulesBoth, OtherBody: c.otherBody, OtherPolicy: c.rulesOther, Findings: []FindingPair{},
	}
	for place, id := range c.chosen {
		if !slices.Contains(c.compared, place) {
			d.TokensUnknown = append(d.TokensUnknown, c.o.Registry.Tokens[id].Name)
		}
	}
	for _, before := range DiffFindings() {
		for _, after := range DiffFindings() {
			if n := c.findings[before][after]; n > 0 {
				d.Findings = append(d.Findings, FindingPair{before.String(), after.String(), n})
			}
		}
	}
	return d
}

// DiffFindings lists all findings: observations first, then gaps.
func DiffFindings() []audit.Finding {
	list := make([]audit.Finding, 0, audit.NumFindings)
	for f := range audit.NumFindings {
		list = append(list, audit.NumFindings-1-f)
	}
	return list
}

// describe is what is said of a scan.
func (s *side) describe() DiffScan {
	m := s.scan.Manifest
	d := DiffScan{
		ScanID: m.ScanID, ScanDate: m.ScanDate, Scans: idsOf(s.scan.Read()), State: string(m.State), Observer: m.Observer.String(), ListID: m.ListID,
		RegistryVersion: m.RegistryVersion, ToolVersion: m.ToolVersion, Lost: []commit.Total{},
		Sites: s.sites, Rules: s.rules, Repeated: s.scan.Unit.Replaced() - s.scan.Unit.Folded, Folded: s.scan.Unit.Folded, FoldsDisagree: s.scan.Unit.Disagree,
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
