package parser

import "bytes"

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
	Limited         bool // the bound of work was reached before all paths were tried; Verdict is SitePartial
	HasDisallowRoot bool // a disallow's value is just `/`

	NAllow, NDisallow int // rule lines, empty ones included

	// Rule lines without a `?` in their value: allow lines, empty ones included; disallow lines that are not empty.
	PlainAllow, PlainDisallow int
}

// MaxSurveyWork is how much all Surveys of one body may spend together on trying the paths that its rules name: one
// unit for each rule tried against a path, and one more for each 32 octets of both. That takes some ten milliseconds.
const MaxSurveyWork = 1 << 22

// maxVisits is how many records all Surveys of one body may go through before they try any path. Real files stay far
// below; it takes thousands of agents who share a group of thousands of rules, and have one of their own, to reach it.
const maxVisits = 1 << 24

// unlisted is a path that nobody writes into a file.
var unlisted = []byte("/dummy-testing-path-54321")

// Survey says what the merged rules of the groups amount to: blocked if `/`, a path that nobody wrote, and every path
// that the rules name are denied; allowed if none of them is; else partial. The path of a rule is its value as it is
// compared, without a final `$` and without each `*`. No groups allow everything.
//
// The work on one body is bounded, see MaxSurveyWork; past the bound Survey.Limited is set. A body that would have the
// records of its groups gone through more than 16 million times gets no figures any more, but SitePartial and Limited.
func (f *File) Survey(groups []uint32) Survey {
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		f.visits -= end - start
	}
	if f.visits < 0 {
		return Survey{Verdict: SitePartial, Limited: true}
	}
	s, t := f.tally(groups)
	if t.disallow == 0 {
		s.RootAllowed = true
		return s
	}
	s.RootAllowed = f.allows(groups, root)
	switch {
	case f.allows(groups, unlisted) != s.RootAllowed:
		s.Verdict = SitePartial
	case t.allow == 0 && s.RootAllowed:
		s.Verdict = SitePartial // a disallow matches the path that it names, and nothing overrules it
	case t.allow == 0:
		s.Verdict = SiteBlocked
	default:
		s.Verdict, s.Limited = f.tryNamed(groups, t, s.RootAllowed)
	}
	return s
}

// usable counts the rules that name a path, and the octets of their values. Others match nothing.
type usable struct{ allow, disallow, octets int }

// tally counts the rule lines of the groups.
func (f *File) tally(groups []uint32) (s Survey, t usable) {
	for _, g := range groups {
		start, end := f.GroupRecords(g)
		for i := start; i < end; i++ {
			r := &f.records[i]
			if r.kind != KeyAllow && r.kind != KeyDisallow {
				continue
			}
			value := f.src[r.value:r.end]
			named := namesPath(value) && (f.dialect == Google || f.rulePath(r) != nil)
			plain := bytes.IndexByte(value, '?') < 0
			t.octets += len(value)
			if r.kind == KeyAllow {
				s.NAllow++
				s.PlainAllow += one(plain)
				t.allow += one(named)
				continue
			}
			s.NDisallow++
			s.PlainDisallow += one(plain && len(value) > 0)
			s.HasDisallowRoot = s.HasDisallowRoot || string(value) == "/"
			t.disallow += one(named)
		}
	}
	return s, t
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// allows reports whether the merged rules of the groups allow the normalised path.
func (f *File) allows(groups []uint32, path []byte) bool {
	w := f.winner(groups, path)
	return w.allow >= w.disallow
}

// tryNamed tries the paths that the rules name until one is decided otherwise than the root. The rules that could
// bring that about are tried first: a mix, if there is one, mostly shows at once.
func (f *File) tryNamed(groups []uint32, t usable, rootAllowed bool) (v SiteVerdict, limited bool) {
	order := [...]Key{KeyAllow, KeyDisallow}
	if rootAllowed {
		order = [...]Key{KeyDisallow, KeyAllow}
	}
	rules := t.allow + t.disallow
	for _, kind := range order {
		for _, g := range groups {
			start, end := f.GroupRecords(g)
			for i := start; i < end; i++ {
				if f.records[i].kind != kind {
					continue
				}
				path := f.rulePath(&f.records[i])
				if path == nil {
					continue
				}
				f.work -= rules + (t.octets+rules*len(path))/32
				if f.work < 0 {
					return SitePartial, true
				}
				if f.allows(groups, path) != rootAllowed {
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
