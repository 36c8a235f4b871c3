package diff

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/survey"
)

// Words of the column change, and of the causes.
const (
	changeBegan     = "began"
	changeCeased    = "ceased"
	changeTightened = "tightened"
	changeLoosened  = "loosened"
	changeAppeared  = "appeared"
	changeRemoved   = "removed"

	siteAppeared = "appeared"
	siteVanished = "vanished"
	siteFailed   = "failed"
	sitePresence = "presence"
	siteRefusal  = "refusal"
)

// The causes, as indexes into causes.
const (
	causePolicy = iota
	causeManaged
	causeJudge
	causeUnknownJudge
	causeObserver
	numCauses
)

var causes = [numCauses]string{"policy", "managed", "judge", "unknown_judge", "observer"}

// counter counts what changed.
type counter struct {
	c            *comparison
	out          *files // nil writes nothing
	sameObserver bool

	appeared, unobserved, presence, refusal int64
	failed                                  [audit.NumFindings]FailedCount

	withBefore, withAfter []int64     // by policy: sites with rules in both scans
	tokens                []Token     // by place
	sums                  []Sum       // of all tokens, then by operator
	operators             []int       // by place: the operator's index in sums
	blocked               []blockedIn // by index in sums, of the current site
	causes                [numCauses]CauseCount
	changed               int64
	sites                 []Site
	full                  bool // sites contains as many as are listed, in order
}

// blockedIn is whether a site blocks one of several tokens.
type blockedIn struct{ before, after bool }

func newCounter(c *comparison, out *files) *counter {
	d := &counter{
		c: c, out: out, sameObserver: c.sameObserver(),
		tokens: make([]Token, len(c.chosen)), operators: make([]int, len(c.chosen)), sums: []Sum{{}},
		sites: []Site{},
	}
	places := map[string]int{}
	for _, place := range c.compared {
		t := &c.o.Registry.Tokens[c.chosen[place]]
		d.tokens[place] = Token{Token: t.Name, Operator: t.Operator, Purpose: t.Purpose}
		at, known := places[t.Operator]
		if !known {
			at = len(d.sums)
			places[t.Operator] = at
			d.sums = append(d.sums, Sum{Value: t.Operator})
		}
		d.operators[place] = at
		d.sums[0].Tokens++
		d.sums[at].Tokens++
	}
	d.blocked = make([]blockedIn, len(d.sums))
	return d
}

func (d *counter) site(before, after *siteState) error {
	switch {
	case before == nil:
		d.appeared++
		return d.list(siteAppeared, nil, after)
	case before.finding.IsGap() && after.finding.IsGap():
		d.unobserved++
		return nil
	case before.finding.IsGap():
		d.failed[before.finding].Before++
		return d.list(siteFailed, before, after)
	case after.finding.IsGap():
		d.failed[after.finding].After++
		return d.list(siteFailed, before, after)
	case before.finding == after.finding:
		if !after.ruled() {
			return nil
		}
		d.withBefore = counted(d.withBefore, before.policy)
		d.withAfter = counted(d.withAfter, after.policy)
		return d.policies(before, after)
	case before.finding == audit.FindingRefused || after.finding == audit.FindingRefused:
		d.refusal++
		return d.list(siteRefusal, before, after)
	}
	d.presence++
	var err error
	if before.ruled() && !after.finding.MayHideRules() || after.ruled() && !before.finding.MayHideRules() {
		err = d.policies(before, after)
	}
	return errors.Join(err, d.list(sitePresence, before, after))
}

func (d *counter) list(change string, before, after *siteState) error {
	if d.out == nil {
		return nil
	}
	return d.out.site(&d.c.site, change, before, after)
}

// policies compares the policies of a site with rules in both scans. If only one scan has a file, and the answer in the
// other hides none, the policy is compared with that of no file: blocks appeared or were removed with the file.
func (d *counter) policies(before, after *siteState) error {
	if before.policy == after.policy {
		return nil
	}
	was, is := d.c.policies.values[before.policy], d.c.policies.values[after.policy]
	both := before.ruled() && after.ruled()
	listed := both || d.c.o.Files
	clear(d.blocked)
	var ofSite Site
	var seen [numCauses]bool
	for _, place := range d.c.compared {
		a, b := audit.Cell(was[place]), audit.Cell(is[place])
		blockedThen, blocksNow := d.c.by.Blocks(a), d.c.by.Blocks(b)
		group := &d.blocked[d.operators[place]]
		group.before, group.after = group.before || blockedThen, group.after || blocksNow
		if blockedThen == blocksNow && (!both || a.Decision() == b.Decision()) {
			continue
		}
		t, cause := &d.tokens[place], d.cause(before, after, a&b&audit.CellOwn != 0)
		change := d.count(t, cause, both, blockedThen, blocksNow, a.Decision() < b.Decision())
		switch {
		case !blockedThen && blocksNow:
			ofSite.Began = append(ofSite.Began, t.Token)
		case blockedThen && !blocksNow:
			ofSite.Ceased = append(ofSite.Ceased, t.Token)
		}
		if both && blockedThen != blocksNow && !seen[cause] {
			seen[cause] = true
			d.causes[cause].Sites++
		}
		if d.out != nil && listed {
			why := causes[cause]
			if !both && d.sameObserver {
				why = sitePresence
			}
			if err := d.out.change(&d.c.site, t, before.verdict(a), after.verdict(b), change, why, before, after); err != nil {
				return err
			}
		}
	}
	d.operatorsOfSite(func(m *Moves) (began, ceased *int64) {
		if both {
			return &m.Began, &m.Ceased
		}
		return &m.Appeared, &m.Removed
	})
	if listed && len(ofSite.Began)+len(ofSite.Ceased) > 0 {
		d.changed++
		d.keep(ofSite)
	}
	return nil
}

// count counts the change of a token, and names it.
func (d *counter) count(t *Token, cause int, both, blockedThen, blocksNow, tightened bool) string {
	switch {
	case !both && blocksNow:
		t.Appeared++
		return changeAppeared
	case !both:
		t.Removed++
		return changeRemoved
	case !blockedThen && blocksNow:
		t.Began++
		d.causes[cause].Began++
		return changeBegan
	case blockedThen && !blocksNow:
		t.Ceased++
		d.causes[cause].Ceased++
		return changeCeased
	case tightened:
		t.Tightened++
		return changeTightened
	}
	t.Loosened++
	return changeLoosened
}

// counted adds one to a policy's count.
func counted(counts []int64, policy uint32) []int64 {
	for len(counts) <= int(policy) {
		counts = append(counts, 0)
	}
	counts[policy]++
	return counts
}

// cause says why a token's verdict changed, by the first rule that applies. Where both files name the token, no
// registry could change the verdict: fallbacks and `*` are for tokens that a file does not name.
func (d *counter) cause(before, after *siteState, named bool) int {
	switch {
	case !d.sameObserver:
		return causeObserver
	case before.body == after.body:
		return causeJudge
	case before.judge != after.judge && !named:
		return causeUnknownJudge
	case before.unmanaged == after.unmanaged:
		return causeManaged
	}
	return causePolicy
}

// operatorsOfSite counts the operators of which a site began to block any token, and those of which it ceased to block
// any.
func (d *counter) operatorsOfSite(counts func(*Moves) (began, ceased *int64)) {
	for _, group := range d.blocked[1:] {
		d.blocked[0].before, d.blocked[0].after = d.blocked[0].before || group.before, d.blocked[0].after || group.after
	}
	for i, group := range d.blocked {
		began, ceased := counts(&d.sums[i].Moves)
		*began += survey.One(!group.before && group.after)
		*ceased += survey.One(group.before && !group.after)
	}
}

// keep lists the current site, if it is among the best ranked ones.
func (d *counter) keep(s Site) {
	r := &d.c.site
	s.Host, s.Port, s.Requested, s.Rank = r.Host, r.Port, r.Requested, r.Rank
	top := d.c.o.Top
	if d.full && compareSites(&s, &d.sites[top-1]) > 0 {
		return
	}
	s.Host, s.Requested = strings.Clone(s.Host), strings.Clone(s.Requested) // of a page that would stay in memory
	if s.Began == nil {
		s.Began = []string{}
	}
	if s.Ceased == nil {
		s.Ceased = []string{}
	}
	d.sites = append(d.sites, s)
	if top > 0 && len(d.sites) >= 2*top+keptSites {
		d.sortSites()
	}
}

// keptSites is how many sites are kept beyond those that are listed, so that they are not sorted for each site.
const keptSites = 1000

// sortSites orders the sites, and drops those that are not listed.
func (d *counter) sortSites() {
	slices.SortFunc(d.sites, func(a, b Site) int { return compareSites(&a, &b) })
	if top := d.c.o.Top; top > 0 && len(d.sites) > top {
		d.sites, d.full = d.sites[:top], true
	}
}

// compareSites orders sites by rank, those without one last, and by name.
func compareSites(a, b *Site) int {
	return cmp.Or(cmp.Compare(uint64(a.Rank-1), uint64(b.Rank-1)), cmp.Compare(a.Host, b.Host),
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Requested, b.Requested))
}

func (d *counter) finish() *Diff {
	c := d.c
	all := &Diff{
		Compared: c.compareds(), SameObserver: d.sameObserver, Definition: c.by.Name, Question: c.by.Question,
		Appeared: d.appeared, Vanished: c.before.sites - c.both, Unobserved: d.unobserved, Presence: d.presence,
		Refusal: d.refusal,
		Failed:  []FailedCount{}, Tokens: []Token{}, Operators: []Sum{}, Causes: []CauseCount{}, Changed: d.changed,
	}
	d.shares()
	for _, f := range Findings() {
		if n := d.failed[f]; n != (FailedCount{}) {
			n.Finding = f.String()
			all.Failed = append(all.Failed, n)
		}
	}
	for _, place := range c.compared {
		if t := &d.tokens[place]; t.Began+t.Ceased+t.Appeared+t.Removed+t.Tightened+t.Loosened > 0 {
			all.Tokens = append(all.Tokens, *t)
		}
	}
	slices.SortFunc(all.Tokens, func(a, b Token) int {
		return cmp.Or(cmp.Compare(b.Began+b.Ceased, a.Began+a.Ceased), cmp.Compare(b.Tightened+b.Loosened, a.Tightened+
			a.Loosened), cmp.Compare(a.Token, b.Token))
	})
	all.AtLeastOne = d.sums[0]
	for _, s := range d.sums[1:] {
		if s.Began+s.Ceased+s.Appeared+s.Removed > 0 {
			all.Operators = append(all.Operators, s)
		}
	}
	slices.SortFunc(all.Operators, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.Began+b.Ceased, a.Began+a.Ceased), cmp.Compare(a.Value, b.Value))
	})
	for i, n := range d.causes {
		if n != (CauseCount{}) {
			n.Cause = causes[i]
			all.Causes = append(all.Causes, n)
		}
	}
	d.sortSites()
	all.Sites, all.Changing = d.sites, len(all.Tokens)
	if top := c.o.Top; top > 0 {
		all.Tokens, all.Operators = all.Tokens[:min(top, len(all.Tokens))], all.Operators[:min(top, len(all.Operators))]
	}
	return all
}

// shares counts the sites that block each token, and each operator's, before and after.
func (d *counter) shares() {
	blocks := func(with []int64, of func(m *Moves) *int64) {
		operators := make([]bool, len(d.sums))
		for policy, n := range with {
			clear(operators)
			for _, place := range d.c.compared {
				if d.c.by.Blocks(audit.Cell(d.c.policies.values[policy][place])) {
					*of(&d.tokens[place].Moves) += n
					operators[0], operators[d.operators[place]] = true, true
				}
			}
			for i, blocks := range operators {
				if blocks {
					*of(&d.sums[i].Moves) += n
				}
			}
		}
	}
	blocks(d.withBefore, func(m *Moves) *int64 { return &m.Before })
	blocks(d.withAfter, func(m *Moves) *int64 { return &m.After })
	for i := range d.tokens {
		d.tokens[i].finish(d.c.rulesBoth)
	}
	for i := range d.sums {
		d.sums[i].finish(d.c.rulesBoth)
	}
}

func (m *Moves) finish(of int64) {
	m.Net = m.Began - m.Ceased
	m.ShareBefore, m.ShareAfter = survey.Share(m.Before, of), survey.Share(m.After, of)
}
