package parser

import (
	"bytes"
	"slices"
)

// SiteVerdict is the effect of the rules on a whole site.
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

// Survey is the effect of the merged rules of some groups.
type Survey struct {
	Verdict         SiteVerdict
	RootAllowed     bool // `/` is allowed
	Limited         bool // a bound was reached before every path was tried; Verdict is SitePartial
	HasDisallowRoot bool // the value of a disallow is `/`

	// Some surveys ignore values with a `?`. PlainAllow: there is an allow line without one, perhaps empty.
	// PlainDisallow: there is a disallow line without one that is not empty.
	PlainAllow, PlainDisallow bool

	NAllow, NDisallow int // rule lines, empty ones included
}

// maxSurveyWork bounds what all Surveys of one body together spend on trying the paths that its rules name. A unit is
// about a nanosecond: one tried rule, 16 octets of its pattern, or a third of a `*`. See tryNamed.
const maxSurveyWork = 1 << 22

// unlisted stands for a path that no file names.
var unlisted = []byte("/dummy-testing-path-54321")

// surveys holds the surveys of a body's groups so far. Agents with the same groups share one survey.
type surveys struct {
	work       int64    // units left for this body
	tallied    bool     // tallies, remarkable and tolerated are filled
	tallies    []tally  // by group
	remarkable []uint32 // records other than plain rules
	tolerated  bool     // see File.tolerates
	sets       []set    // surveyed sets of two or more groups
	table      []uint32 // of the sets
	trials     trials   // scratch: the rules of one set
	patterns   []byte   // scratch: their patterns
}

// tally sums up the rules of one group.
type tally struct {
	Survey                 // the counts, and facts that one pass finds
	root, unlisted  winner // of the two paths that every survey asks about
	allow, disallow uint32 // rules that may match, see namesPath
	denies          uint32 // disallows that match the path that they name, unless that path is exempt
	odd             uint32 // disallows that do not match it (rfc only: without its `*`, `/%4*1` names `/A`)
	size            size   // filled on first use
	surveyed        bool
	alone           Survey // of this group alone, once surveyed
}

// size is the cost of trying rules: the weight of their wildcards (wildWeight), and the octets of all values.
type size struct {
	known        bool
	wild, octets uint32
}

// set is a set of groups, File.names.groups[from:from+count], with its survey.
type set struct {
	hash        uint64
	from, count uint32
	survey      Survey
}

func (s *surveys) reset() {
	s.work = maxSurveyWork
	s.tallied, s.tallies, s.remarkable, s.tolerated = false, s.tallies[:0], s.remarkable[:0], false
	s.sets, s.table = s.sets[:0], s.table[:0]
}

func (s *surveys) trim() {
	s.tallies, s.remarkable = trimmed(s.tallies), trimmed(s.remarkable)
	s.sets, s.table, s.patterns = trimmed(s.sets), trimmed(s.table), trimmed(s.patterns)
	s.trials = trials{allow: trimmed(s.trials.allow), disallow: trimmed(s.trials.disallow)}
}

// AgentSurvey returns the Survey of the groups that name the i-th agent. The File owns it: do not change it. It is
// valid until the next Parse or Reset.
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

// Survey sums up the merged rules of the groups. The verdict is blocked if they deny `/`, an unlisted path, and every
// path that they name; allowed if they deny none of these; else partial. The path that a rule names is its normalised
// value without `*` and a final `$`. In the RFC dialect `/robots.txt` is left out, since it is always allowed. Without
// groups everything is allowed. The groups must be ascending and distinct, as AgentGroups returns them.
//
// The first Survey of a body reads all its groups. Further ones combine those results, and try the named paths only
// where these could differ from `/`. Results are kept.
//
// All Surveys of one body together may spend some milliseconds on trying paths. A Survey that exhausts this, or of a
// body that is not Complete, is Limited. No known file needs so much.
func (f *File) Survey(groups []uint32) Survey {
	if len(groups) == 1 {
		return *f.groupSurvey(groups)
	}
	return f.surveys.sets[f.setOf(groups, 0, false)].survey
}

// groupSurvey is Survey for a single group, the most common case. The result is kept with the group, so that no
// look-up is needed.
func (f *File) groupSurvey(group []uint32) *Survey {
	f.tallyGroups()
	t := &f.surveys.tallies[group[0]]
	if !t.surveyed {
		t.surveyed = true
		f.survey(group, &t.alone)
	}
	return &t.alone
}

// setOf returns the index of the set of these groups and surveys a new one. The groups are names.groups from the given
// offset on if kept is true, else they are copied to its end.
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
		if known := &s.sets[i]; known.hash == hash && slices.Equal(f.names.groups[known.from:known.from+known.count],
			groups) {
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

// survey fills in a Survey in place, to avoid a copy.
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
		s.Verdict = SitePartial // a disallow matches the path that it names, and no rule overrides it
	default:
		s.Verdict = SiteAllowed
	}
}

// Remarkable returns the indices of all records except plain rules, in order. These are all records that are no rules,
// and rules without a group, with a misspelled key, or with a value that matches nothing (such as an empty one). In
// typical files four of five records are plain rules. The slice belongs to the File and is valid until the next Parse
// or Reset.
func (f *File) Remarkable() []uint32 {
	f.tallyGroups()
	return f.surveys.remarkable
}

// tallyGroups reads all records once. It fills in the tally of each group and the remarkable records.
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

// tallyGroup reads the records of a group. The second octet identifies ordinary rules, the majority, which are only
// counted.
func (f *File) tallyGroup(t *tally, g uint32) {
	s := &f.surveys
	start, end := f.GroupRecords(g)
	allow, disallow := uint32(0), uint32(0) // ordinary ones
	for i := start; i < end; i++ {
		r := &f.records[i]
		if r.kind-KeyAllow > KeyDisallow-KeyAllow {
			s.remarkable = append(s.remarkable, uint32(i))
			s.tolerated = s.tolerated || f.tolerates(r)
			continue
		}
		value := f.src[r.value:r.end]
		told := odd
		if len(value) >= 2 && value[0] == '/' && r.flags == 0 && f.dialect != RFC {
			if told = int(octets.second[r.kind-KeyAllow][value[1]]); told > odd && len(value) > 2 {
				told = int(octets.third[told][value[2]])
			}
		}
		if told != ordinary {
			if !f.tallyRule(t, r, i) || r.flags != 0 {
				s.remarkable = append(s.remarkable, uint32(i))
			}
			s.tolerated = s.tolerated || f.tolerates(r)
			continue
		}
		if r.kind == KeyAllow {
			s.tolerated = s.tolerated || f.indexFolder(r, value) != nil
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

// orphans returns the number of records before the first group.
func (f *File) orphans() int {
	if len(f.groups) == 0 {
		return len(f.records)
	}
	return int(f.groups[0])
}

// tallyRule adds the i-th record, a rule, to its group's tally. It reports whether the value may match something.
func (f *File) tallyRule(t *tally, r *record, i int) (plain bool) {
	value := f.src[r.value:r.end]
	if r.kind == KeyAllow {
		t.NAllow++
		t.PlainAllow = t.PlainAllow || isPlain(value)
	} else {
		t.NDisallow++
		t.PlainDisallow = t.PlainDisallow || len(value) > 0 && isPlain(value)
	}
	if !namesPath(value) {
		return false
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

// Most rules match neither of the two paths of every survey. The two functions below exclude most of them by an octet
// or two. They expect a value that names a path and is longer than `/`.

// mayMatchRoot reports whether a rule might match `/`: only wildcards follow its `/`, or it is an index.html (see
// indexFolder).
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

// mayMatchUnlisted reports whether a rule might match the unlisted path.
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

// The meaning of a rule's second octet where the first is `/`.
const (
	ordinary    = iota // it matches neither of the two paths
	odd                // the rule must be tried
	starThird          // the octet is `*`: the third octet decides
	nameThird          // the octet is that of the unlisted path: the third octet decides
	robotsThird        // the octet is that of `/robots.txt`: the third octet decides
)

// octets tabulates mayMatchRoot and mayMatchUnlisted by the octets after the `/`, and the beginnings of `/robots.txt`.
var octets = func() (tell struct {
	second [2][256]uint8 // by kind, from KeyAllow on
	third  [5][256]uint8 // by the meaning of the second octet
}) {
	mayMatch := func(kind Key, value ...byte) bool { return mayMatchRoot(kind, value) || mayMatchUnlisted(value) }
	for c := range 256 {
		for kind := range Key(2) {
			if mayMatch(KeyAllow+kind, '/', byte(c)) {
				tell.second[kind][c] = odd
			}
			tell.second[kind]['*'], tell.second[kind][unlisted[1]], tell.second[kind][robots[1]] = starThird, nameThird,
				robotsThird
		}
		if mayMatch(KeyAllow, '/', '*', byte(c)) {
			tell.third[starThird][c] = odd
		}
		if mayMatch(KeyAllow, '/', unlisted[1], byte(c)) {
			tell.third[nameThird][c] = odd
		}
		if special[c] || byte(c) == robots[2] {
			tell.third[robotsThird][c] = odd
		}
	}
	tell.third[starThird][robots[1]] = odd
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

// join adds the tally of a group further down in the file.
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
