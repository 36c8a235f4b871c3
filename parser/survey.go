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

// MaxSurveyWork is how much all Surveys of one body may spend together on trying the paths that its rules name: one
// unit for each rule tried against a path, one more for each 32 octets of both, and one for each four records gone
// through. That takes a few milliseconds.
const MaxSurveyWork = 1 << 22

// unlisted is a path that nobody writes into a file.
var unlisted = []byte("/dummy-testing-path-54321")

// surveys is what was worked out of a body's groups so far. Agents that the same groups name share one survey.
type surveys struct {
	work    int      // what may still be spent on this body
	tallies []tally  // by group; none before the first survey
	sets    []set    // of groups that were surveyed
	table   []uint32 // hash table of the sets: index + 1, 0 = free; length a power of two
}

// tally is what the rules of one group amount to by themselves.
type tally struct {
	Survey                         // the counts, and what is found by looking for it once
	root, unlisted          winner // of the two paths that every survey asks about
	allow, disallow, octets uint32 // rules that name a path, and the octets of their values: others match nothing
}

// set is some groups with their survey: File.names.groups[from:from+count].
type set struct {
	hash        uint64
	from, count uint32
	survey      Survey
}

func (s *surveys) reset() {
	s.work = MaxSurveyWork
	s.tallies, s.sets, s.table = s.tallies[:0], s.sets[:0], s.table[:0]
}

// AgentSurvey returns the Survey of the groups that name the i-th agent.
func (f *File) AgentSurvey(i int) Survey {
	a := &f.names.list[i]
	if a.set == 0 {
		a.set = f.setOf(f.AgentGroups(i), a.from, true) + 1
	}
	return f.surveys.sets[a.set-1].survey
}

// Survey says what the merged rules of the groups amount to: blocked if `/`, a path that nobody wrote, and every path
// that the rules name are denied; allowed if none of them is; else partial. The path of a rule is its value as it is
// compared, without a final `$` and without each `*`. No groups allow everything.
//
// The first Survey of a body goes through all its groups; each further one only puts together what was found then, and
// tries the paths that rules name where these could tell something else than `/`. What was surveyed once is kept. The
// work on one body is bounded, see MaxSurveyWork; past the bound Survey.Limited is set, as it is for a body that has
// more records than are kept.
func (f *File) Survey(groups []uint32) Survey {
	return f.surveys.sets[f.setOf(groups, 0, false)].survey
}

// setOf returns the index of the set of these groups, which is surveyed if it is new. They are a part of names.groups
// from there on, or else are copied to its end.
func (f *File) setOf(groups []uint32, from uint32, kept bool) uint32 {
	s := &f.surveys
	if 2*len(s.sets) >= len(s.table) {
		s.grow()
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
	s.table[slot] = i + 1
	s.sets = append(s.sets, set{hash: hash, from: from, count: uint32(len(groups)), survey: f.survey(groups)})
	return i
}

// grow doubles the table.
func (s *surveys) grow() {
	size := max(minTable, 2*len(s.table))
	s.table = slices.Grow(s.table[:0], size)[:size]
	clear(s.table)
	for i := range s.sets {
		slot := int(s.sets[i].hash) & (size - 1)
		for s.table[slot] != 0 {
			slot = (slot + 1) & (size - 1)
		}
		s.table[slot] = uint32(i) + 1
	}
}

// hashGroups returns a keyed hash: nobody can build a file whose sets of groups all fall into one place of the table.
func hashGroups(groups []uint32) uint64 {
	h := secret
	for _, g := range groups {
		h = mix(h ^ uint64(g))
	}
	return h
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
	case t.allow == 0 && s.RootAllowed:
		s.Verdict = SitePartial // a disallow matches the path that it names, and nothing overrules it
	case t.allow == 0:
		s.Verdict = SiteBlocked
	default:
		s.Verdict, s.Limited = f.tryNamed(groups, &t, s.RootAllowed)
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
	if namesPath(value) && (f.dialect == Google || f.rulePath(r) != nil) {
		named = 1
	}
	t.octets += uint32(len(value))
	if r.kind == KeyAllow {
		t.NAllow++
		t.PlainAllow = t.PlainAllow || isPlain(value)
		t.allow += named
	} else {
		t.NDisallow++
		t.PlainDisallow = t.PlainDisallow || len(value) > 0 && isPlain(value)
		t.HasDisallowRoot = t.HasDisallowRoot || string(value) == "/"
		t.disallow += named
	}
	if named > 0 {
		f.tryRule(&t.root, i, root)
		f.tryRule(&t.unlisted, i, unlisted)
	}
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
	t.octets += o.octets
	t.root.join(&o.root)
	t.unlisted.join(&o.unlisted)
}

// tryNamed tries the paths that the rules name until one is decided otherwise than the root. The rules that could
// bring that about are tried first: a mix, if there is one, mostly shows at once.
func (f *File) tryNamed(groups []uint32, t *tally, rootAllowed bool) (v SiteVerdict, limited bool) {
	order := [...]Key{KeyAllow, KeyDisallow}
	if rootAllowed {
		order = [...]Key{KeyDisallow, KeyAllow}
	}
	work := &f.surveys.work
	rules, octets := int(t.allow+t.disallow), int(t.octets)
	for _, kind := range order {
		for _, g := range groups {
			start, end := f.GroupRecords(g)
			if *work -= (end - start) / 4; *work < 0 {
				return SitePartial, true
			}
			for i := start; i < end; i++ {
				if f.records[i].kind != kind {
					continue
				}
				path := f.rulePath(&f.records[i])
				if path == nil {
					continue
				}
				if *work -= rules + (octets+rules*len(path))/32; *work < 0 {
					return SitePartial, true
				}
				if w := f.winner(groups, path); w.allows() != rootAllowed {
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

// rulePath returns the path that a rule names, in f.path, nil if it names none. In the rfc dialect `/robots.txt` is
// not named by a rule, since no rule decides on it.
func (f *File) rulePath(r *record) []byte {
	path, ok := appendRulePath(f.path[:0], f.src[r.value:r.end], f.dialect)
	f.path = path
	if !ok || f.dialect == RFC && string(path) == "/robots.txt" {
		return nil
	}
	return path
}

// AppendRulePath appends the path that a rule's value names, in the Google dialect: the value as it is compared without
// a final `$`, each `*` left out, a `/` put before it where it is missing. It reports whether there is one: a value
// that begins with neither `/` nor `*` matches nothing and names none.
func AppendRulePath(dst, value []byte) ([]byte, bool) { return appendRulePath(dst, value, Google) }

func namesPath(value []byte) bool { return len(value) > 0 && (value[0] == '/' || value[0] == '*') }

func appendRulePath(dst, value []byte, d Dialect) ([]byte, bool) {
	if !namesPath(value) {
		return dst, false
	}
	from := len(dst)
	dst = appendNormal(dst, value, d)
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
