package parser

import (
	"bytes"
	"slices"
)

// SiteVerdict is what rules amount to for a whole site.
type SiteVerdict uint8

// String returns allowed, partial or blocked.
func (v SiteVerdict) String() string {
	if v <= SiteBlocked {
		return [...]string{"allowed", "partial", "blocked"}[v]
	}
	return "?"
}

// The verdicts. The zero value is SiteAllowed.
const (
	SiteAllowed SiteVerdict = iota // nothing is denied
	SitePartial                    // some is
	SiteBlocked                    // everything is
)

// Survey is what the merged rules of some groups amount to.
type Survey struct {
	Verdict         SiteVerdict
	RootAllowed     bool // `/` is allowed
	Limited         bool // a bound was reached before all was tried; Verdict is SitePartial
	HasDisallowRoot bool // a disallow's value is just `/`

	// Of values with a `?` some surveys know nothing: there is an allow line without one, be it empty; there is a
	// disallow line without one that is not empty.
	PlainAllow, PlainDisallow bool

	NAllow, NDisallow int // rule lines, empty ones included
}

// maxSurveyWork is what all Surveys of one body may spend together on trying the paths that its rules name. A unit is about
// a nanosecond: a rule that is tried, 16 octets of its pattern, a third of a `*`. See tryNamed.
const maxSurveyWork = 1 << 22

// unlisted is a path that nobody writes into a file.
var unlisted = []byte("/dummy-testing-path-54321")

// surveys is what was worked out of a body's groups so far. Agents that the same groups name share one survey.
type surveys struct {
	work     int64    // what may still be spent on this body
	tallies  []tally  // by group; none before the first survey
	sets     []set    // of groups that were surveyed
	table    []uint32 // of the sets
	trials   trials   // scratch: the rules of one set
	patterns []byte   // scratch: their patterns
}

// tally is what the rules of one group amount to by themselves.
type tally struct {
	Survey                 // the counts, and what is found by looking for it once
	root, unlisted  winner // of the two paths that every survey asks about
	allow, disallow uint32 // rules that may match, see namesPath
	denies          uint32 // disallows that match the path that they name, if rules decide on that
	odd             uint32 // disallows that do not match it (rfc only: without its `*`, `/%4*1` names `/A`)
	wild            uint32 // rules with a `*`
	octets          uint32 // of all rules' values
}

// set is some groups with their survey: File.names.groups[from:from+count].
type set struct {
	hash        uint64
	from, count uint32
	survey      Survey
}

func (s *surveys) reset() {
	s.work = maxSurveyWork
	s.tallies, s.sets, s.table = s.tallies[:0], s.sets[:0], s.table[:0]
}

func (s *surveys) trim() {
	s.tallies, s.sets, s.table, s.patterns = trimmed(s.tallies), trimmed(s.sets), trimmed(s.table), trimmed(s.patterns)
	s.trials = trials{allow: trimmed(s.trials.allow), disallow: trimmed(s.trials.disallow)}
}

// AgentSurvey returns the Survey of the groups that name the i-th agent, see there.
func (f *File) AgentSurvey(i int) Survey {
	a := &f.names.list[i]
	if a.set == 0 {
		a.set = f.setOf(f.AgentGroups(i), a.from, true) + 1
	}
	return f.surveys.sets[a.set-1].survey
}

// Survey says what the merged rules of the groups amount to: blocked if `/`, a path that nobody wrote, and every path
// that the rules name are denied; allowed if none of them is; else partial. The path of a rule is its value as it is
// compared, without a final `$` and without each `*`; in the RFC dialect `/robots.txt` is not among them, since no rule
// decides on it. No groups allow everything. The groups are given in ascending order, each once, as AgentGroups has them.
//
// The first Survey of a body goes through all its groups; each further one only puts together what was found then, and
// tries the paths that rules name where these could tell something else than `/`. What was surveyed once is kept.
//
// All Surveys of one body together may spend some milliseconds on trying paths; one that finds nothing left for it is
// Limited, and so is every Survey of a body that has more records than are kept (Complete). No file is known that needs so
// much.
func (f *File) Survey(groups []uint32) Survey {
	return f.surveys.sets[f.setOf(groups, 0, false)].survey
}

// setOf returns the index of the set of these groups, which is surveyed if it is new. They are a part of names.groups
// from there on, or else are copied to its end.
func (f *File) setOf(groups []uint32, from uint32, kept bool) uint32 {
	s := &f.surveys
	if 2*len(s.sets) >= len(s.table) {
		s.table = rebuilt(s.table, max(minTable, 2*len(s.table)), len(s.sets), func(i int) uint64 { return s.sets[i].hash })
	}
	hash := hashGroups(groups)
	mask := len(s.table) - 1
	slot := int(hash) & mask
	for ; s.table[slot] != 0; slot = (slot + 1) & mask {
		i := s.table[slot] - 1
		if known := &s.sets[i]; known.hash == hash && slices.Equal(f.names.groups[known.from:known.from+known.count], groups) {
			return i
		}
	}
	if !kept {
		from = uint32(len(f.names.groups))
		f.names.groups = append(f.names.groups, groups...)
	}
	s.sets = append(s.sets, set{hash: hash, from: from, count: uint32(len(groups)), survey: f.survey(groups)})
	s.table[slot] = uint32(len(s.sets))
	return uint32(len(s.sets)) - 1
}

// hashGroups returns a keyed hash, not 0.
func hashGroups(groups []uint32) uint64 {
	h := secret
	for _, g := range groups {
		h = mix(h ^ uint64(g))
	}
	return h | 1<<63
}

// survey works a Survey out.
func (f *File) survey(groups []uint32) Survey {
	if len(f.surveys.tallies) < len(f.groups) {
		f.tallyGroups()
	}
	t := tally{}
	for _, g := range groups {
		t.join(&f.surveys.tallies[g])
	}
	s := t.Survey
	s.RootAllowed = t.root.allows()
	switch {
	case !f.Complete():
		s.Verdict, s.Limited = SitePartial, true
	case t.disallow == 0:
		s.Verdict = SiteAllowed
	case t.unlisted.allows() != s.RootAllowed:
		s.Verdict = SitePartial
	case t.allow > 0 || t.odd > 0:
		s.Verdict, s.Limited = f.tryNamed(groups, &t, s.RootAllowed)
	case !s.RootAllowed:
		s.Verdict = SiteBlocked
	case t.denies > 0:
		s.Verdict = SitePartial // a disallow matches the path that it names, and nothing overrules it
	default:
		s.Verdict = SiteAllowed
	}
	return s
}

// tallyGroups goes through all records once and says what each group amounts to.
func (f *File) tallyGroups() {
	s := &f.surveys
	s.tallies = slices.Grow(s.tallies[:0], len(f.groups))[:len(f.groups)]
	for g := range s.tallies {
		t := &s.tallies[g]
		*t = tally{}
		start, end := f.GroupRecords(uint32(g))
		for i := start; i < end; i++ {
			if kind := f.records[i].kind; kind == KeyAllow || kind == KeyDisallow {
				f.tallyRule(t, i)
			}
		}
	}
}

// tallyRule adds a rule to its group's tally.
func (f *File) tallyRule(t *tally, i int) {
	r := &f.records[i]
	value := f.src[r.value:r.end]
	named := uint32(0)
	if namesPath(value) {
		named = 1
		f.tryRule(&t.root, i, root)
		f.tryRule(&t.unlisted, i, unlisted)
	}
	t.octets += uint32(len(value))
	if bytes.IndexByte(value, '*') >= 0 {
		t.wild++
	}
	if r.kind == KeyAllow {
		t.NAllow++
		t.PlainAllow = t.PlainAllow || isPlain(value)
		t.allow += named
		return
	}
	t.NDisallow++
	t.PlainDisallow = t.PlainDisallow || len(value) > 0 && isPlain(value)
	t.HasDisallowRoot = t.HasDisallowRoot || string(value) == "/"
	t.disallow += named
	if named == 0 {
		return
	}
	if f.dialect == RFC {
		path := f.rulePath(r)
		if path == nil {
			return
		}
		if f.matchLen(r, path) == 0 {
			t.odd++
			return
		}
	}
	t.denies++
}

func isPlain(value []byte) bool { return bytes.IndexByte(value, '?') < 0 }

// join adds the tally of a group that stands further down.
func (t *tally) join(o *tally) {
	t.NAllow += o.NAllow
	t.NDisallow += o.NDisallow
	t.PlainAllow = t.PlainAllow || o.PlainAllow
	t.PlainDisallow = t.PlainDisallow || o.PlainDisallow
	t.HasDisallowRoot = t.HasDisallowRoot || o.HasDisallowRoot
	t.allow += o.allow
	t.disallow += o.disallow
	t.denies += o.denies
	t.odd += o.odd
	t.wild += o.wild
	t.octets += o.octets
	t.root.join(&o.root)
	t.unlisted.join(&o.unlisted)
}

// tryNamed tries the paths that the rules name until one is decided otherwise than the root. The rules that could
// bring that about are tried first: a mix, if there is one, mostly shows at once, and only if the first path shows none
// are the rules made ready for many more.
func (f *File) tryNamed(groups []uint32, t *tally, rootAllowed bool) (v SiteVerdict, limited bool) {
	order := [...]Key{KeyAllow, KeyDisallow}
	if rootAllowed {
		order = [...]Key{KeyDisallow, KeyAllow}
	}
	tried, rules := 0, int(t.allow+t.disallow)
	for _, kind := range order {
		for _, g := range groups {
			start, end := f.GroupRecords(g)
			if !f.charge(end-start, int(f.surveys.tallies[g].octets)/4) {
				return SitePartial, true
			}
			for i := start; i < end; i++ {
				r := &f.records[i]
				if r.kind != kind {
					continue
				}
				path := f.rulePath(r)
				if path == nil {
					continue
				}
				allows := false
				switch tried++; tried {
				case 1:
					if !f.charge(rules, int(t.octets)/2, trialCost(rules, int(t.wild), path)) {
						return SitePartial, true
					}
					w := f.winner(groups, path)
					allows = w.allows()
				case 2:
					if !f.charge(4*rules, int(t.octets)) {
						return SitePartial, true
					}
					f.makeTrials(groups)
					fallthrough
				default:
					trials := &f.surveys.trials
					if !f.charge(trials.fixed, trialCost(len(trials.allow)+len(trials.disallow), trials.wild, path)) {
						return SitePartial, true
					}
					allows = trials.allows(path, f.surveys.patterns, rootAllowed)
				}
				if allows != rootAllowed {
					return SitePartial, false
				}
			}
		}
	}
	if rootAllowed {
		return SiteAllowed, false
	}
	return SiteBlocked, false
}

// charge takes units of work from what is left, and reports whether that sufficed.
func (f *File) charge(units ...int) bool {
	for _, n := range units {
		f.surveys.work -= int64(n)
	}
	return f.surveys.work >= 0
}

// trialCost is what the length of a path adds to the cost of trying rules against it, so many of them with a `*`: those go
// through the path in search of their pieces, the others compare its beginning.
func trialCost(rules, wild int, path []byte) int {
	return saturated(rules, len(path)/64) + saturated(wild, len(path)/8) + len(path)
}

// saturated returns the product, or what exhausts any allowance where that does not fit.
func saturated(a, b int) int {
	if a > 0 && b > 2*maxSurveyWork/a {
		return 2 * maxSurveyWork
	}
	return a * b
}

// winner finds the longest allow and disallow rules of the groups that match the normalised path.
func (f *File) winner(groups []uint32, path []byte) (w winner) {
	for _, g := range groups {
		f.tryGroup(&w, g, path)
	}
	return w
}

// trials are rules made ready to be tried against many paths: normalised once, and without those that match nothing.
type trials struct {
	allow, disallow []trial
	fixed           int // units that it costs to try all of them, but for trialCost
	wild            int // how many of them have a `*`
}

// trial is a pattern, patterns[from:to], in which runs of `*` are one. Its length counts all of them.
type trial struct {
	from, to, length uint32
	literal          bool // it has neither `*` nor a final `$`
}

// makeTrials makes the rules of the groups ready.
func (f *File) makeTrials(groups []uint32) {
	s := &f.surveys
	s.patterns = s.patterns[:0]
	s.trials = trials{allow: s.trials.allow[:0], disallow: s.trials.disallow[:0]}
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			value := f.src[r.value:r.end]
			if r.kind != KeyAllow && r.kind != KeyDisallow || !namesPath(value) {
				continue
			}
			from := len(s.patterns)
			s.patterns = AppendPattern(s.patterns, value, f.dialect)
			s.addTrial(r.kind, from)
			if folder := f.indexFolder(r, value); folder != nil {
				from = len(s.patterns)
				s.patterns = append(AppendPattern(s.patterns, folder, f.dialect), '$')
				s.addTrial(r.kind, from)
			}
		}
	}
}

// addTrial adds the pattern at the end of s.patterns, whose runs of `*` it makes one.
func (s *surveys) addTrial(kind Key, from int) {
	length := uint32(len(s.patterns) - from)
	to, stars := from, 0
	for _, c := range s.patterns[from:] {
		if c == '*' {
			if to > from && s.patterns[to-1] == '*' {
				continue
			}
			stars++
		}
		s.patterns[to] = c
		to++
	}
	s.patterns = s.patterns[:to]
	s.trials.fixed += 1 + 3*stars + (to-from)/16
	s.trials.wild += min(stars, 1)
	of := &s.trials.disallow
	if kind == KeyAllow {
		of = &s.trials.allow
	}
	*of = append(*of, trial{uint32(from), uint32(to), length, stars == 0 && s.patterns[to-1] != '$'})
}

// allows reports whether the rules allow the path, which is likely to fare as expected: first tried are those that could
// bring the other about.
func (t *trials) allows(path, patterns []byte, expected bool) bool {
	if expected {
		disallow := longest(t.disallow, path, patterns, 1)
		return disallow == 0 || longest(t.allow, path, patterns, disallow) >= disallow
	}
	allow := longest(t.allow, path, patterns, 1)
	return longest(t.disallow, path, patterns, allow+1) == 0
}

// longest returns the length of the longest pattern that matches the path, of those that are at least so long; 0 if none
// does.
func longest(list []trial, path, patterns []byte, least uint32) (length uint32) {
	for i := range list {
		t := &list[i]
		if t.length < least || t.length <= length {
			continue
		}
		pattern := patterns[t.from:t.to]
		if t.literal {
			// The last octet tells most rules apart.
			if len(pattern) > len(path) || pattern[len(pattern)-1] != path[len(pattern)-1] || !bytes.HasPrefix(path, pattern) {
				continue
			}
		} else if !Match(pattern, path) {
			continue
		}
		length = t.length
	}
	return length
}

// rulePath returns the path that a rule names, as it is compared, in f.path; nil if it names none. In the rfc dialect
// `/robots.txt` is not named by a rule, since no rule decides on it.
func (f *File) rulePath(r *record) []byte {
	path, ok := appendRulePath(f.path[:0], f.src[r.value:r.end], f.dialect)
	f.path = path
	if !ok {
		return nil
	}
	if f.dialect == RFC {
		// Without its `*` a value may have an escape that it had not before: `/%4*1`.
		from := len(path)
		f.path = appendNormalPath(path, path)
		path = f.path[from:]
		if isRobots(path) {
			return nil
		}
	}
	return path
}

// namesPath reports whether a value names a path. One that begins with neither `/` nor `*` matches nothing.
func namesPath(value []byte) bool { return len(value) > 0 && (value[0] == '/' || value[0] == '*') }

// appendRulePath appends the path that a rule's value names: the value as it is compared without a final `$`, each `*`
// left out, a `/` put before it where it is missing. It reports whether there is one.
func appendRulePath(dst, value []byte, d Dialect) ([]byte, bool) {
	if !namesPath(value) {
		return dst, false
	}
	from := len(dst)
	dst = AppendPattern(dst, value, d)
	if dst[len(dst)-1] == '$' {
		dst = dst[:len(dst)-1]
	}
	to := from
	for _, c := range dst[from:] {
		if c != '*' {
			dst[to] = c
			to++
		}
	}
	dst = dst[:to]
	if to == from || dst[from] != '/' {
		dst = append(dst, 0)
		copy(dst[from+1:], dst[from:])
		dst[from] = '/'
	}
	return dst, true
}
