package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file counts the ledger's entries by token, as the macros first_blocked, transitions and survival of views.sql do
// (docs/history.md), and lists changes as token_spells does. It reads the ledger once. It takes 48 bytes for each site,
// 4 more for each of Tokens, and 150 for each change.
//
// The episodes of a site come in order: closed ones in the order of the record's files, then the open one, which every
// observed site has.

// TokensAsked says what CountTokens counts.
type TokensAsked struct {
	ScanID   string // later nights do not count
	Registry *tokens.Registry
	Tokens   []int // indexes in Registry
	Further  []int // tokens whose changes only are listed
	// Lacks reports whether a version of the registry does not have a token: its judge says nothing of the token. nil
	// means that all versions have all tokens.
	Lacks func(registryVersion, token string) bool
}

// TokenCounts are the counts of a ledger.
type TokenCounts struct {
	Nights  []Date        // up to that of the scan
	Tokens  []TokenCount  // as asked, without Further
	Changes []TokenChange // the newest first, at most MostChanges

	stored  *storedFiles
	auditor *audit.Auditor
}

// TokenCount has the counts of a token, each ordered.
type TokenCount struct {
	FirstBlocked []FirstBlocked
	Transitions  []Transition // between the last two nights
	Survival     []Survival   // one row per night; none if no site blocks the token on the last night
	Changes      int64        // how often a site began or ceased
}

// FirstBlocked counts the sites that were first seen to block a token on a night.
type FirstBlocked struct {
	Night     Date
	Censoring string // left, unread, unknown or interval, as in token_spells
	Sites     int64
}

// Transition counts the sites that went from one state to another.
type Transition struct {
	Before, After string // blocked, open, unknown, the class of a policy or of a gap, or absent
	Change        string // began, ceased, appeared, removed, presence, refusal; "" if nothing is known to have changed
	Sites         int64
}

// Survival counts, for a night, the sites that block a token on the last night. ByThen are the sites known to have
// blocked it since that night, and Maybe the sites that may have.
type Survival struct {
	Night                Date
	ByThen, Maybe, Sites int64
}

// nightsUntil returns the nights up to that of a scan, none if the ledger does not have the scan.
func (l *Ledger) nightsUntil(scanID string) (nights []Date, err error) {
	at := slices.IndexFunc(l.Scans, func(s MergedScan) bool { return s.ScanID == scanID })
	for i := 0; i <= at; i++ {
		night, err := ParseDate(l.Scans[i].ScanDate)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", LedgerName, err)
		}
		nights = append(nights, night)
	}
	return slices.Compact(nights), nil
}

// word is a state or a class, as an index of tokenCounter.words. The first ones are constant.
type word uint8

const (
	isNothing word = iota
	isBlocked
	isOpen
	isUnknown
	isAbsent
	isRefused
	isNone
	isNoRules
)

// kind is a policy by a judge. noKind is before a site's first episode.
type kind struct {
	rules  bool
	hides  bool   // see audit.Finding.MayHideRules
	states []word // a token
}

const noKind = 0

// siteState is the state of a site after the rows read so far.
type siteState struct {
	last  Date // beginning of the last episode
	broke Date // beginning of the last episode that a change of observer or judge may have caused
	// kinds: on the night before the last one, on the last one, and of the last episode with rules
	earlier, later, rules int32
	gaps                  [2]word
	read                  Date  // end of the last episode that showed whether there are rules
	until                 Date  // end of the last episode with rules
	body                  int64 // hash of its last file
}

// blockedSpell says when a site last began to block a token: after the night `after`, 0 if unknown, and by the night
// `by`. Both are counted in days from the day before the first night.
type blockedSpell struct{ after, by uint16 }

// tokenCounter counts. Its slices have the same order of sites.
type tokenCounter struct {
	TokensAsked
	before         Date // the day before the first night
	earlier, later Date
	policies       map[int64]kind // by the judge of the policy
	kinds          []kind
	numbers        map[kindKey]int32
	words          []string
	sites          []int64 // ids, ascending
	states         []siteState
	spells         [][]blockedSpell         // a token
	unobserved     map[int64][2]word        // gaps of sites without an episode
	first          []map[FirstBlocked]int64 // a token; by rows without Sites
	all            []int                    // Tokens and Further
	changed        []int64                  // how often, of all
	changes        []TokenChange
}

type kindKey struct {
	policy int64
	judge  string
}

// CountTokens counts the ledger's entries by token. It returns nil if the ledger lacks the scan, or if the head names
// no ledger.
func CountTokens(ctx context.Context, st store.Store, asked TokensAsked) (*TokenCounts, error) {
	h, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	l, err := readLedger(ctx, st, h)
	if errors.Is(err, store.ErrNotExist) && h.Ledger == nil {
		return nil, nil
	}
	var nights []Date
	if err == nil {
		nights, err = l.nightsUntil(asked.ScanID)
	}
	if err != nil {
		return nil, withRemedy(ctx, err)
	}
	if len(nights) == 0 {
		return nil, nil
	}
	c := &tokenCounter{
		TokensAsked: asked, before: nights[0] - 1, earlier: math.MinInt32, later: nights[len(nights)-1],
		policies: map[int64]kind{}, kinds: make([]kind, 1), numbers: map[kindKey]int32{}, unobserved: map[int64][2]word{},
		words: []string{isNothing: "", isBlocked: "blocked", isOpen: "open", isUnknown: "unknown", isAbsent: "absent",
			isRefused: ClassRefused, isNone: ClassNone, isNoRules: ClassNoRules},
	}
	c.all = slices.Concat(asked.Tokens, asked.Further)
	c.changed = make([]int64, len(c.all))
	if len(nights) > 1 {
		c.earlier = nights[len(nights)-2]
	}
	if err := c.read(ctx, st, l); err != nil {
		return nil, err
	}
	p, err := pastOf(ctx, st)
	if err != nil {
		return nil, err
	}
	c.dropOldest()
	l.Scans = slices.DeleteFunc(l.Scans, func(s MergedScan) bool { return s.ScanDate > c.later.String() })
	done := &TokenCounts{Nights: nights, Changes: c.changes, stored: &storedFiles{ctx: ctx, store: st, scans: l.Scans,
		past: p}, auditor: audit.New(asked.Registry)}
	for t := range asked.Tokens {
		done.Tokens = append(done.Tokens, TokenCount{FirstBlocked: c.firstBlocked(t), Survival: c.survival(t, nights),
			Changes: c.changed[t]})
	}
	c.transitions(done.Tokens)
	return done, nil
}

// withRemedy adds to an error how to repair a damaged ledger.
func withRemedy(ctx context.Context, err error) error {
	if _, newer := errors.AsType[*schema.NewerError](err); newer || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w%s", err, remedy)
}

// read reads the ledger.
func (c *tokenCounter) read(ctx context.Context, st store.Store, l *Ledger) error {
	if err := everyRow(ctx, st, l, Policies, c.policy); err != nil {
		return err
	}
	var sites int64
	for _, f := range l.Files {
		if f.Table == History && f.Open {
			sites += f.Rows
		}
	}
	c.sites, c.states = make([]int64, 0, sites), make([]siteState, sites)
	for range c.Tokens {
		c.spells, c.first = append(c.spells, make([]blockedSpell, sites)), append(c.first, map[FirstBlocked]int64{})
	}
	for e, err := range rowsOf[Episode](ctx, st, l.Files, History, true, "site") {
		if err != nil {
			return err
		}
		if n := len(c.sites); n > 0 && e.Site <= c.sites[n-1] {
			return withRemedy(ctx, fmt.Errorf("%w: site %d comes after site %d", ErrOrder, e.Site, c.sites[n-1]))
		}
		c.sites = append(c.sites, e.Site)
	}
	at := 0
	for _, open := range []bool{false, true} {
		for e, err := range rowsOf[Episode](ctx, st, l.Files, History, open, "site", "policy_id", "valid_from",
			"previous_last", "cause", "judge", "host", "port", "requested", "valid_to", "bodies", "last_body") {
			if err != nil {
				return err
			}
			ok := false
			if at, ok = c.find(e.Site, at); !ok {
				return withRemedy(ctx, fmt.Errorf("%w: site %d has no open episode", ErrOrder, e.Site))
			}
			if err := c.episode(at, e); err != nil {
				return withRemedy(ctx, err)
			}
		}
		for g, err := range rowsOf[Gap](ctx, st, l.Files, Gaps, open, "site", "class", "first", "last") {
			if err != nil {
				return err
			}
			c.gap(g)
		}
	}
	return nil
}

// policy keeps the states of the tokens by a policy.
func (c *tokenCounter) policy(p *Policy) {
	finding, _ := audit.FindingNamed(p.Class)
	k, cells := kind{rules: p.Class == ClassRules, hides: finding.MayHideRules()}, p.cells(c.Registry)
	for _, id := range c.all {
		state := isOpen
		switch {
		case !k.rules:
			state = c.word(p.Class)
		case cells[id].Decision() == audit.Blocked:
			state = isBlocked
		}
		k.states = append(k.states, state)
	}
	c.policies[p.ID] = k
}

// word returns the number of a class. The ledger has a dozen classes; further ones than fit count as unknown.
func (c *tokenCounter) word(text string) word {
	i := slices.Index(c.words, text)
	if i < 0 {
		if i = len(c.words); i > math.MaxUint8 {
			return isUnknown
		}
		c.words = append(c.words, strings.Clone(text))
	}
	return word(i)
}

// kind returns the number of a policy by a judge.
func (c *tokenCounter) kind(policy int64, judge string) (int32, error) {
	if n, ok := c.numbers[kindKey{policy, judge}]; ok {
		return n, nil
	}
	k, ok := c.policies[policy]
	if !ok {
		return 0, fmt.Errorf("%w: no policy %d", ErrOrder, policy)
	}
	version, _, _ := strings.Cut(judge, " ")
	k.states = slices.Clone(k.states)
	for t, id := range c.all {
		if k.rules && c.Lacks != nil && c.Lacks(version, c.Registry.Tokens[id].Name) {
			k.states[t] = isUnknown
		}
	}
	n := int32(len(c.kinds))
	c.kinds, c.numbers[kindKey{policy, strings.Clone(judge)}] = append(c.kinds, k), n
	return n, nil
}

// find returns the index of a site. The rows of a file are mostly in the order of sites, so it first looks at the place
// after the previous site.
func (c *tokenCounter) find(site int64, before int) (at int, ok bool) {
	if before < len(c.sites) && c.sites[before] > site {
		before = 0
	}
	at, ok = slices.BinarySearch(c.sites[before:], site)
	return before + at, ok
}

// episode counts the next episode of a site.
func (c *tokenCounter) episode(at int, e *Episode) error {
	s := &c.states[at]
	if e.ValidFrom > c.later {
		return nil
	}
	if s.later != noKind && e.ValidFrom <= s.last {
		return fmt.Errorf("%w: the episodes of site %d", ErrOrder, c.sites[at])
	}
	n, err := c.kind(e.Policy, e.Judge)
	if err != nil {
		return err
	}
	if s.last, s.later = e.ValidFrom, n; e.Cause == ByObserver || e.Cause == UnknownJudge {
		s.broke = e.ValidFrom
	}
	if e.ValidFrom <= c.earlier {
		s.earlier = n
	}
	k := c.kinds[n]
	if k.rules {
		c.rules(at, s, e, n, k.states)
	}
	if !k.hides {
		s.read = e.ValidTo
	}
	return nil
}

// rules counts an episode with rules.
func (c *tokenCounter) rules(at int, s *siteState, e *Episode, n int32, states []word) {
	if s.rules != noKind && s.broke <= s.until {
		c.change(s, n, e)
	}
	for t, state := range states[:len(c.Tokens)] {
		before := isNothing
		if s.rules != noKind {
			before = c.kinds[s.rules].states[t]
		}
		if state != isBlocked || before == isBlocked {
			continue
		}
		censoring, after := "interval", uint16(s.read-c.before)
		switch {
		case e.Cause == First:
			censoring, after = "left", 0
		case s.read == 0:
			censoring, after = "unread", 0
		case before == isUnknown, s.broke > s.read:
			censoring, after = "unknown", 0
		}
		if c.spells[t][at].by == 0 {
			c.first[t][FirstBlocked{Night: e.ValidFrom, Censoring: censoring}]++
		}
		c.spells[t][at] = blockedSpell{after, uint16(e.ValidFrom - c.before)}
	}
	s.rules, s.until, s.body = n, e.ValidTo, e.LastBody
}

// gap keeps the class of a gap that includes one of the last two nights.
func (c *tokenCounter) gap(g *Gap) {
	for i, night := range [2]Date{c.earlier, c.later} {
		if g.First > night || g.Last < night {
			continue
		}
		if at, ok := c.find(g.Site, 0); ok {
			c.states[at].gaps[i] = c.word(g.Class)
		} else {
			gaps := c.unobserved[g.Site]
			gaps[i] = c.word(g.Class)
			c.unobserved[g.Site] = gaps
		}
	}
}

func (c *tokenCounter) firstBlocked(t int) (rows []FirstBlocked) {
	for row, sites := range c.first[t] {
		row.Sites = sites
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b FirstBlocked) int {
		return cmp.Or(cmp.Compare(a.Night, b.Night), cmp.Compare(a.Censoring, b.Censoring))
	})
	return rows
}

func (c *tokenCounter) survival(t int, nights []Date) (rows []Survival) {
	by, after, sites := map[uint16]int64{}, map[uint16]int64{}, int64(0)
	for i := range c.states {
		if s := &c.states[i]; s.later != noKind && s.gaps[1] == isNothing && c.kinds[s.later].states[t] == isBlocked {
			by[c.spells[t][i].by]++
			after[c.spells[t][i].after]++
			sites++
		}
	}
	if sites == 0 {
		return nil
	}
	row := Survival{Maybe: after[0], Sites: sites}
	for _, night := range nights {
		day := uint16(night - c.before)
		row.Night = night
		row.ByThen += by[day]
		rows = append(rows, row)
		row.Maybe += after[day] // these sites began on a later night
	}
	return rows
}

// transitions adds the transitions of each token.
func (c *tokenCounter) transitions(tokens []TokenCount) {
	type route struct {
		earlier, later int32
		gaps           [2]word
		doubtful       bool
	}
	routes := map[route]int64{}
	for i := range c.states {
		s := &c.states[i]
		routes[route{s.earlier, s.later, s.gaps, s.broke > c.earlier}]++
	}
	for _, gaps := range c.unobserved {
		routes[route{gaps: gaps}]++
	}
	for t := range tokens {
		state := func(kind int32, gap word) word {
			switch {
			case gap != isNothing:
				return gap
			case kind == noKind:
				return isAbsent
			}
			return c.kinds[kind].states[t]
		}
		counts := map[Transition]int64{}
		for r, sites := range routes {
			before, after := state(r.earlier, r.gaps[0]), state(r.later, r.gaps[1])
			if after == isAbsent {
				continue // listed later
			}
			row := Transition{Before: c.words[before], After: c.words[after]}
			if r.gaps == [2]word{} && !r.doubtful {
				row.Change = changeOf(before, after)
			}
			counts[row] += sites
		}
		for row, sites := range counts {
			row.Sites = sites
			tokens[t].Transitions = append(tokens[t].Transitions, row)
		}
		slices.SortFunc(tokens[t].Transitions, func(a, b Transition) int {
			return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(a.Before, b.Before), cmp.Compare(a.After, b.After),
				cmp.Compare(b.Change, a.Change))
		})
	}
}

// changeOf names the change between the states of two nights with an observation.
func changeOf(before, after word) string {
	switch {
	case before == after, before == isAbsent, before == isUnknown, after == isUnknown:
		return ""
	case before == isOpen && after == isBlocked:
		return "began"
	case before == isBlocked && after == isOpen:
		return "ceased"
	case after == isBlocked && (before == isNone || before == isNoRules):
		return "appeared"
	case before == isBlocked && (after == isNone || after == isNoRules):
		return "removed"
	case before == isRefused, after == isRefused:
		return "refusal"
	}
	return "presence"
}
