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

// maxSurveyWork is what all Surveys of one body may spend together on trying the paths that its rules name. A unit is a
// nanosecond at most, by and large: a rule that is tried, 16 octets of its pattern, a third of a `*`. See tryNamed.
const maxSurveyWork = 1 << 22

// unlisted is a path that nobody writes into a file.
var unlisted = []byte("/dummy-testing-path-54321")

// surveys is what was worked out of a body's groups so far. Agents that the same groups name share one survey.
type surveys struct {
	work       int64    // what may still be spent on this body
	tallied    bool     // the next two are made
	tallies    []tally  // by group
	remarkable []uint32 // records other than plain rules
	sets       []set    // of two groups and more that were surveyed
	table      []uint32 // of the sets
	trials     trials   // scratch: the rules of one set
	patterns   []byte   // scratch: their patterns
}

// tally is what the rules of one group amount to by themselves.
type tally struct {
	Survey                 // the counts, and what is found by looking for it once
	root, unlisted  winner // of the two paths that every survey asks about
	allow, disallow uint32 // rules that may match, see namesPath
	denies          uint32 // disallows that match the path that they name, if rules decide on that
	odd             uint32 // disallows that do not match it (rfc only: without its `*`, `/%4*1` names `/A`)
	size            size   // known once it was asked for
	surveyed        bool
	alone           Survey // of this group alone, if it was surveyed
}

// size is what it costs to try rules: the weight of their wildcards (wildWeight), and the octets of all values.
type size struct {
	known        bool
	wild, octets uint32
}

// set is some groups with their survey: File.names.groups[from:from+count].
type set struct {
	hash        uint64
	from, count uint32
	survey      Survey
}

func (s *surveys) reset() {
	s.work = maxSurveyWork
	s.tallied, s.tallies, s.remarkable = false, s.tallies[:0], s.remarkable[:0]
	s.sets, s.table = s.sets[:0], s.table[:0]
}

func (s *surveys) trim() {
	s.tallies, s.remarkable = trimmed(s.tallies), trimmed(s.remarkable)
	s.sets, s.table, s.patterns = trimmed(s.sets), trimmed(s.table), trimmed(s.patterns)
	s.trials = trials{allow: trimmed(s.trials.allow), disallow: trimmed(s.trials.disallow)}
}

// AgentSurvey returns the Survey of the groups that name the i-th agent, see there. It belongs to the File, is not to be
// changed, and is valid until the next Parse or Reset.
func (f *File) AgentSurvey(i int) *Survey {
	a := &f.names.list[i]
	if a.count == 1 {
		return f.groupSurvey(f.AgentGroups(i))
	}
	if a.set == 0 {
		a.set = f.setOf(f.AgentGroups(i), a.from, true) + 1
	}
	return &f.surveys.sets[a.set-1].survey
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
	if len(groups) == 1 {
		return *f.groupSurvey(groups)
	}
	return f.surveys.sets[f.setOf(groups, 0, false)].survey
}

// groupSurvey is Survey of a single group, as most agents have it: kept with the group, it takes no looking up.
func (f *File) groupSurvey(group []uint32) *Survey {
	f.tallyGroups()
	t := &f.surveys.tallies[group[0]]
	if !t.surveyed {
		t.surveyed = true
		f.survey(group, &t.alone)
	}
	return &t.alone
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
	i := uint32(len(s.sets))
	s.sets = append(s.sets, set{hash: hash, from: from, count: uint32(len(groups))})
	s.table[slot] = i + 1
	f.survey(groups, &s.sets[i].survey)
	return i
}

// hashGroups returns a keyed hash, not 0.
func hashGroups(groups []uint32) uint64 {
	h := secret
	for _, g := range groups {
		h = mix(h ^ uint64(g))
	}
	return h | 1<<63
}

// survey works a Survey out, where it is to stand: copied, it would have to be waited for.
func (f *File) survey(groups []uint32, s *Survey) {
	f.tallyGroups()
	t := &tally{}
	if len(groups) == 1 {
		t = &f.surveys.tallies[groups[0]]
	} else {
		for _, g := range groups {
			t.join(&f.surveys.tallies[g])
		}
	}
	*s = t.Survey
	s.RootAllowed = t.root.allows()
	switch {
	case !f.Complete():
		s.Verdict, s.Limited = SitePartial, true
	case t.disallow == 0:
		s.Verdict = SiteAllowed
	case t.unlisted.allows() != s.RootAllowed:
		s.Verdict = SitePartial
	case t.allow > 0 || t.odd > 0:
		s.Verdict, s.Limited = f.tryNamed(groups, t, s.RootAllowed)
	case !s.RootAllowed:
		s.Verdict = SiteBlocked
	case t.denies > 0:
		s.Verdict = SitePartial // a disallow matches the path that it names, and nothing overrules it
	default:
		s.Verdict = SiteAllowed
	}
}

// Remarkable returns the indices of all records but plain rules, in order: of those that are no rules, and of rules that
// stand in no group, that are misspelled, or whose value matches nothing although it is not empty. In typical files four
// records of five are plain rules, and need not be looked at one by one. The slice belongs to the File and is valid until
// the next Parse or Reset.
func (f *File) Remarkable() []uint32 {
	f.tallyGroups()
	return f.surveys.remarkable
}

// tallyGroups goes through all records once and says what each group amounts to, and which records are no plain rules.
func (f *File) tallyGroups() {
	s := &f.surveys
	if s.tallied {
		return
	}
	s.tallied = true
	s.tallies = slices.Grow(s.tallies[:0], len(f.groups))[:len(f.groups)]
	for i := range f.orphans() {
		s.remarkable = append(s.remarkable, uint32(i))
	}
	for g := range s.tallies {
		s.tallies[g] = tally{}
		f.tallyGroup(&s.tallies[g], uint32(g))
	}
}

// tallyGroup goes through the records of a group. Ordinary rules, as most are, are told by their second octet and only
// counted.
func (f *File) tallyGroup(t *tally, g uint32) {
	s := &f.surveys
	start, end := f.GroupRecords(g)
	allow, disallow := uint32(0), uint32(0) // ordinary ones
	for i := start; i < end; i++ {
		r := &f.records[i]
		if r.kind-KeyAllow > KeyDisallow-KeyAllow {
			s.remarkable = append(s.remarkable, uint32(i))
			continue
		}
		value := f.src[r.value:r.end]
		told := odd
		if len(value) >= 2 && value[0] == '/' && r.flags == 0 && f.dialect == Google {
			if told = int(octets.second[r.kind-KeyAllow][value[1]]); told > odd && len(value) > 2 {
				told = int(octets.third[told][value[2]])
			}
		}
		if told != ordinary {
			if !f.tallyRule(t, r, i) || r.flags != 0 {
				s.remarkable = append(s.remarkable, uint32(i))
			}
			continue
		}
		if r.kind == KeyAllow {
			allow++
			t.PlainAllow = t.PlainAllow || isPlain(value)
		} else {
			disallow++
			t.PlainDisallow = t.PlainDisallow || isPlain(value)
		}
	}
	t.NAllow, t.allow = t.NAllow+int(allow), t.allow+allow
	t.NDisallow, t.disallow, t.denies = t.NDisallow+int(disallow), t.disallow+disallow, t.denies+disallow
}

// orphans returns how many records stand before the first group.
func (f *File) orphans() int {
	if len(f.groups) == 0 {
		return len(f.records)
	}
	return int(f.groups[0])
}

// tallyRule adds the i-th record, a rule, to its group's tally. It reports whether the value is empty or may match something.
func (f *File) tallyRule(t *tally, r *record, i int) (plain bool) {
	value := f.src[r.value:r.end]
	named := namesPath(value)
	if r.kind == KeyAllow {
		t.NAllow++
		t.PlainAllow = t.PlainAllow || isPlain(value)
	} else {
		t.NDisallow++
		t.PlainDisallow = t.PlainDisallow || len(value) > 0 && isPlain(value)
	}
	if !named {
		return len(value) == 0
	}
	switch {
	case len(value) == 1 && value[0] == '/':
		t.HasDisallowRoot = t.HasDisallowRoot || r.kind == KeyDisallow
		t.root.offer(r.kind, 1, i)
		t.unlisted.offer(r.kind, 1, i)
	default:
		if mayMatchRoot(r.kind, value) {
			t.root.offer(r.kind, uint32(f.matchLen(r, root)), i)
		}
		if mayMatchUnlisted(value) {
			t.unlisted.offer(r.kind, uint32(f.matchLen(r, unlisted)), i)
		}
	}
	if r.kind == KeyAllow {
		t.allow++
		return true
	}
	t.disallow++
	if f.dialect == RFC {
		path := f.rulePath(r)
		if path == nil {
			return true
		}
		if f.matchLen(r, path) == 0 {
			t.odd++
			return true
		}
	}
	t.denies++
	return true
}

// Most rules match neither of the two paths that every survey asks about. The two functions below know most of them, of those
// that name a path and are no lone `/`, by an octet or two.

// mayMatchRoot reports whether a rule might match `/`: nothing stands behind its `/` that is not a wildcard, or it is an
// index.html (see indexFolder).
func mayMatchRoot(kind Key, value []byte) bool {
	if value[0] == '*' {
		return len(value) == 1 || value[1] == '/' || special[value[1]]
	}
	switch value[1] {
	case '$', '*':
		return len(value) == 2 || special[value[2]]
	case 'i':
		return kind == KeyAllow
	}
	return false
}

// mayMatchUnlisted reports whether a rule might match the path that nobody wrote.
func mayMatchUnlisted(value []byte) bool {
	if value[0] == '*' {
		return len(value) == 1 || special[value[1]] || inUnlisted[value[1]]
	}
	switch value[1] {
	case '*':
		return len(value) == 2 || special[value[2]] || value[2] != '/' && inUnlisted[value[2]]
	case unlisted[1]:
		return len(value) == 2 || special[value[2]] || value[2] == unlisted[2]
	}
	return value[1] == '%'
}

// What the second octet of a rule whose first is `/` tells about it.
const (
	ordinary  = iota // it matches neither of the two paths
	odd              // it has to be tried
	starThird        // it is `*`: the third octet tells
	nameThird        // it is that of the unlisted path: the third octet tells
)

// octets tell most rules apart by what is behind their `/`, as mayMatchRoot and mayMatchUnlisted do.
var octets = func() (tell struct {
	second [2][256]uint8 // by kind, from KeyAllow on
	third  [4][256]uint8 // by what the second octet tells
}) {
	mayMatch := func(kind Key, value ...byte) bool { return mayMatchRoot(kind, value) || mayMatchUnlisted(value) }
	for c := range 256 {
		for kind := range Key(2) {
			if mayMatch(KeyAllow+kind, '/', byte(c)) {
				tell.second[kind][c] = odd
			}
			tell.second[kind]['*'], tell.second[kind][unlisted[1]] = starThird, nameThird
		}
		if mayMatch(KeyAllow, '/', '*', byte(c)) {
			tell.third[starThird][c] = odd
		}
		if mayMatch(KeyAllow, '/', unlisted[1], byte(c)) {
			tell.third[nameThird][c] = odd
		}
	}
	return tell
}()

// inUnlisted holds the octets of the unlisted path.
var inUnlisted = func() (is [256]bool) {
	for _, c := range unlisted {
		is[c] = true
	}
	return is
}()

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
	size, ok := f.sizeOf(groups)
	if !ok {
		return SitePartial, true
	}
	tried, rules := 0, int(t.allow+t.disallow)
	for _, kind := range order {
		for _, g := range groups {
			start, end := f.GroupRecords(g)
			if !f.charge(end-start, int(f.span(start, end))/4) {
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
					if !f.charge(2*rules, int(size.octets), 2*trialCost(rules, int(size.wild), path)) {
						return SitePartial, true
					}
					if kind == order[0] && f.unopposed(groups, r, path) {
						return SitePartial, false // decided as its kind says, and so not as the root
					}
					w := f.winner(groups, path)
					allows = w.allows()
				case 2:
					if !f.charge(4*rules, int(size.octets)) {
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

// sizeOf returns the size of all rules of the groups; of small groups it is estimated, since whatever they cost is little. It reports whether there was work left to find it out.
func (f *File) sizeOf(groups []uint32) (all size, ok bool) {
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		if octets := f.span(start, end); end-start <= 64 && octets <= 1024 {
			all.wild += uint32(end - start)
			all.octets += octets
			continue
		}
		s := &f.surveys.tallies[g].size
		if !s.known {
			if !f.charge(4 * (end - start)) {
				return size{}, false
			}
			*s = f.measure(start, end)
		}
		all.wild += s.wild
		all.octets += s.octets
	}
	return all, true
}

// span returns how many octets the records take in the body, from the first one's value to the last one's end.
func (f *File) span(start, end int) uint32 { return f.records[end-1].end - f.records[start].value }

// measure returns the size of the rules among the records.
func (f *File) measure(start, end int) size {
	s := size{known: true}
	for i := start; i < end; i++ {
		if r := &f.records[i]; r.kind == KeyAllow || r.kind == KeyDisallow {
			s.octets += r.end - r.value
			s.wild += wildWeight(f.src[r.value:r.end])
		}
	}
	return s
}

// wildWeight says how dear a pattern is that goes through a path in search of what stands between its `*`: 0 without one,
// else in eighths of a nanosecond for each octet of the path. Pieces of 16 octets and more are compared in several steps; for
// those of 64 and more bytes.Index reckons with a hash, and where that is the same compares all.
func wildWeight(pattern []byte) (weight uint32) {
	for {
		star := bytes.IndexByte(pattern, '*')
		if star < 0 {
			return weight
		}
		pattern = pattern[star+1:]
		piece := bytes.IndexByte(pattern, '*')
		if piece < 0 {
			piece = len(pattern)
		}
		switch {
		case piece < 16:
			weight = max(weight, 1)
		case piece < 64:
			weight = max(weight, 4)
		default:
			weight = max(weight, uint32(16+piece/2))
		}
	}
}

// charge takes units of work from what is left, and reports whether that sufficed.
func (f *File) charge(units ...int) bool {
	for _, n := range units {
		f.surveys.work -= int64(n)
	}
	return f.surveys.work >= 0
}

// trialCost is what the length of a path adds to the cost of trying rules against it, whose wildcards weigh so much: those go
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

// unopposed reports whether the rule decides on the path, which it names itself, because no rule of the other kind matches
// that is as long: mostly so, and found with few trials, since one kind of rules is rare in most files.
func (f *File) unopposed(groups []uint32, of *record, path []byte) bool {
	length := f.matchLen(of, path)
	if of.kind == KeyAllow {
		length++ // allow wins a tie
	}
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			if r.kind != of.kind && (r.kind == KeyAllow || r.kind == KeyDisallow) && f.matchLen(r, path) >= length {
				return false
			}
		}
	}
	return length > 1
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
	wild            int // weight of their wildcards
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
	s.trials.wild += int(wildWeight(s.patterns[from:]))
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

// rulePath returns the path that a rule names, as it is compared, valid until the next one; nil if it names none. In the rfc
// dialect `/robots.txt` is not named by a rule, since no rule decides on it.
func (f *File) rulePath(r *record) []byte {
	if value := f.src[r.value:r.end]; f.dialect == Google && isLiteral(value) {
		return value // most values are paths as they stand
	}
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

// isLiteral reports whether a value is a path as it stands, with nothing to normalise, and no wildcard.
func isLiteral(value []byte) bool {
	for _, c := range value {
		if special[c] {
			return false
		}
	}
	return len(value) > 0 && value[0] == '/'
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
