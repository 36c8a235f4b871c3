package history

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
)

// memory is a ledger without files.
type memory struct {
	policies             map[int64]*Policy
	judged               func(*Episode)
	open, closed         []Episode
	openGaps, closedGaps []Gap
}

func each[T any](rows []T) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for i := range rows {
			row := rows[i]
			if !yield(&row, nil) {
				return
			}
		}
	}
}

// arranged returns a night in the order of sites.
func arranged(night []Observation) []Observation {
	return slices.SortedFunc(slices.Values(night), func(a, b Observation) int { return cmp.Compare(a.Site, b.Site) })
}

// listed returns a function for the next observation.
func listed(night []Observation) func() (*Observation, error) {
	return func() (*Observation, error) {
		if len(night) == 0 {
			return nil, nil
		}
		o := &night[0]
		night = night[1:]
		return o, nil
	}
}

// merge merges a night. A night that is refused changes nothing.
func (l *memory) merge(date Date, night []Observation) (Merged, error) {
	next := memory{closed: slices.Clone(l.closed), closedGaps: slices.Clone(l.closedGaps)}
	m := Merger{
		Policy: func(id int64) *Policy { return l.policies[id] }, Judged: l.judged,
		OpenEpisode:   func(e *Episode) error { next.open = append(next.open, *e); return nil },
		ClosedEpisode: func(e *Episode) error { next.closed = append(next.closed, *e); return nil },
		OpenGap:       func(g *Gap) error { next.openGaps = append(next.openGaps, *g); return nil },
		ClosedGap:     func(g *Gap) error { next.closedGaps = append(next.closedGaps, *g); return nil },
	}
	done, err := m.Merge(date, each(l.open), each(l.openGaps), listed(arranged(night)))
	if err == nil {
		l.open, l.closed, l.openGaps, l.closedGaps = next.open, next.closed, next.openGaps, next.closedGaps
	}
	return done, err
}

// The policies of the table test, by a letter.
var letters = map[byte]Policy{
	'A': {Class: ClassRules, StarVerdict: "allowed", OwnBlocked: []string{"GPTBot"}},
	'B': {Class: ClassRules, StarVerdict: "allowed"},
	'C': {Class: ClassRules, StarVerdict: "allowed", OwnBlocked: []string{"GPTBot", "NewBot"}},
	'M': {Class: ClassRules, StarVerdict: "allowed", OwnBlocked: []string{"GPTBot", "CCBot"}, Managed: "cloudflare"},
	'O': {Class: ClassRules, StarVerdict: "allowed", OwnBlocked: []string{"GPTBot", "CCBot", "NewBot"},
		Managed: "cloudflare"},
	'E': {Class: ClassNoRules},
	'H': {Class: ClassHTML},
	'N': {Class: ClassNone},
	'F': {Class: ClassRefused},
}

// Without their managed blocks, M has the policy A, and O has C.
var unmanaged = map[byte]int64{'A': 'A', 'B': 'B', 'C': 'C', 'M': 'A', 'O': 'C'}

// TestRules has a line for each rule of what counts as a change. A word is a night: the letter of a policy and the
// digit of a body, a gap's class, or - for a site that is not listed; @ is before another observer, / before another
// judge. On the night of judge z body 1 is kept, and z gives it policy C.
func TestRules(t *testing.T) {
	ids, names := map[byte]int64{}, map[int64]string{}
	policies := map[int64]*Policy{}
	for letter, p := range letters {
		p = p.Canonical()
		policies[p.ID], ids[letter], names[p.ID] = &p, p.ID, string(letter)
	}
	f := func(nights, want string) {
		t.Helper()
		l := memory{policies: policies}
		for i, word := range strings.Fields(nights) {
			var night []Observation
			what, judge, _ := strings.Cut(word, "/")
			what, observer, _ := strings.Cut(what, "@")
			o := Observation{Site: 7, Finding: what, From: &Source{observer, judge}}
			l.judged = func(e *Episode) {
				if judge == "z" && e.LastBody == 1 {
					e.Policy, e.Judge, e.Unmanaged = ids['C'], "z", unmanaged['C']
				}
			}
			if policy, ok := letters[what[0]]; ok {
				o.Finding, o.Policy, o.Unmanaged = policy.Class, ids[what[0]], unmanaged[what[0]]
				if len(what) > 1 {
					o.Body = int64(what[1] - '0')
				}
			}
			if what != "-" {
				night = append(night, o)
			}
			if _, err := l.merge(Date(i+1), night); err != nil {
				t.Errorf("%s: %v", nights, err)
			}
		}
		var told []string
		for _, e := range append(l.closed, l.open...) {
			text := fmt.Sprintf("%s %s %d..%d", e.Cause, names[e.Policy], e.ValidFrom, e.ValidTo)
			for _, n := range []struct {
				name  string
				value int
			}{{"after", int(e.PreviousLast)}, {"seen", int(e.Observations)}, {"failed", int(e.Failures)},
				{"pending", int(e.Pending)}, {"bodies", int(e.Bodies)}} {
				if n.value > 1 || n.value == 1 && n.name != "seen" && n.name != "bodies" {
					text += fmt.Sprintf(" %s %d", n.name, n.value)
				}
			}
			told = append(told, text)
		}
		for _, g := range append(l.closedGaps, l.openGaps...) {
			told = append(told, fmt.Sprintf("%s %d..%d (%d)", g.Class, g.First, g.Last, g.Nights))
		}
		if got := strings.Join(told, "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", nights, got, want)
		}
	}
	// Rule 1: absence.
	f("A1 - A1", "first A 1..3 seen 2; unlisted 2..2 (1)")
	f("A1 - -", "first A 1..1; unlisted 2..3 (2)")
	f("- A1", "first A 2..2")
	// Rule 2: a failure is a gap of its class.
	f("A1 unreachable A1", "first A 1..3 seen 2 failed 1; unreachable 2..2 (1)")
	f("A1 server_error server_error", "first A 1..1 pending 2; server_error 2..3 (2)")
	f("A1 rate_limited challenged - not_asked A1",
		"first A 1..6 seen 2 failed 3; rate_limited 2..2 (1); challenged 3..3 (1); unlisted 4..4 (1); not_asked 5..5 (1)")
	f("unreachable - unreachable", "unreachable 1..1 (1); unlisted 2..2 (1); unreachable 3..3 (1)")
	f("unreachable A1", "first A 2..2; unreachable 1..1 (1)")
	f("A1 another_word", "first A 1..1 pending 1; another_word 2..2 (1)")
	// Rule 3: another observer.
	f("A1 A1@b A1@b", "first A 1..1; observer A 2..3 after 1 seen 2")
	f("A1 unreachable@b A1", "first A 1..3 seen 2 failed 1; unreachable 2..2 (1)")
	f("A1 B2@b/y", "first A 1..1; observer B 2..2 after 1")
	// Rule 4: each class is observed.
	f("N N", "first N 1..2 seen 2")
	f("F F", "first F 1..2 seen 2")
	f("H1 H2", "first H 1..2 seen 2 bodies 2")
	f("E1 E2", "first E 1..2 seen 2 bodies 2")
	// Rule 5: a site that has had one file, and still serves it, stays in its episode, even if another judge gives the
	// file another policy.
	f("A1 C1/y", "first C 1..2 seen 2")
	f("A1 C1/y C1/y A1", "first A 1..4 seen 4")
	f("A1 B2 unreachable C2/y", "first A 1..1; policy C 2..4 after 1 seen 2 failed 1; unreachable 3..3 (1)")
	f("E1 C1/y", "first C 1..2 seen 2")
	f("E3 E4/y", "first E 1..2 seen 2 bodies 2")
	// Rule 6: another judge's judgement of earlier files is not known, and their episode stays unchanged.
	f("A1 A4/y", "first A 1..1; unknown_judge A 2..2 after 1")
	f("A1 A2 A2/y", "first A 1..2 seen 2 bodies 2; unknown_judge A 3..3 after 2")
	f("A1 A2 A1/y", "first A 1..2 seen 2 bodies 2; unknown_judge A 3..3 after 2")
	f("E3 A4/y", "first E 1..1; unknown_judge A 2..2 after 1")
	f("A1 A2 E2/y", "first A 1..2 seen 2 bodies 2; unknown_judge E 3..3 after 2")
	// No judge decides where there is no file.
	f("A1 N/y", "first A 1..1; presence N 2..2 after 1")
	f("N A1/y", "first N 1..1; presence A 2..2 after 1")
	f("A1 F1/y", "first A 1..1; refusal F 2..2 after 1")
	f("F1 A1/y", "first F 1..1; refusal A 2..2 after 1")
	f("E A1/y", "first E 1..1; presence A 2..2 after 1")
	// A file that is kept is judged again.
	f("A1 A4/z", "first C 1..1; policy A 2..2 after 1")
	f("A1 C4/z", "first C 1..2 seen 2 bodies 2")
	f("A1 unreachable/z", "first C 1..1 pending 1; unreachable 2..2 (1)")
	f("A1 -/z", "first C 1..1; unlisted 2..2 (1)")
	f("A2 A1 A4/z", "first A 1..2 seen 2 bodies 2; unknown_judge A 3..3 after 2")
	f("F1 A4/z", "first F 1..1; refusal A 2..2 after 1")
	// Rule 7: the causes.
	f("A1 A2 A1", "first A 1..3 seen 3 bodies 3")
	f("A1 B2", "first A 1..1; policy B 2..2 after 1")
	f("A1 B2 A1", "first A 1..1; policy B 2..2 after 1; policy A 3..3 after 2")
	f("A1 M2", "first A 1..1; managed M 2..2 after 1")
	f("M2 A1", "first M 1..1; managed A 2..2 after 1")
	f("A1 O2", "first A 1..1; policy O 2..2 after 1")
	f("M1 O2 C3", "first M 1..1; policy O 2..2 after 1; managed C 3..3 after 2")
	f("A1 N", "first A 1..1; presence N 2..2 after 1")
	f("N M1", "first N 1..1; presence M 2..2 after 1")
	f("H1 E2", "first H 1..1; presence E 2..2 after 1")
	f("A1 F", "first A 1..1; refusal F 2..2 after 1")
	f("F N", "first F 1..1; refusal N 2..2 after 1")
	// Rule 8: the interval spans the gap.
	f("A1 - - B2", "first A 1..1; policy B 4..4 after 1; unlisted 2..3 (2)")
	f("A1 unreachable - B2", "first A 1..1 pending 1; policy B 4..4 after 1; unreachable 2..2 (1); unlisted 3..3 (1)")
}

// TestOrder gives a merge what it must refuse.
func TestOrder(t *testing.T) {
	p := Policy{Class: ClassNone}.Canonical()
	l := memory{policies: map[int64]*Policy{p.ID: &p}}
	night := []Observation{{Site: 1, Finding: ClassNone, Policy: p.ID, From: &Source{}}, {Site: 2, Finding: "unreachable",
		From: &Source{}}}
	if _, err := l.merge(5, night); err != nil {
		t.Fatal(err)
	}
	for _, date := range []Date{4, 5} {
		if _, err := l.merge(date, night); !errors.Is(err, ErrOrder) {
			t.Errorf("night %d after night 5: %v", date, err)
		}
	}
	l.openGaps = nil
	if _, err := l.merge(5, night); !errors.Is(err, ErrOrder) {
		t.Errorf("the same night, told by an episode: %v", err)
	}
	slices.Reverse(l.open)
	l.open = append(l.open, l.open...)
	if _, err := l.merge(6, night); !errors.Is(err, ErrOrder) {
		t.Errorf("a site twice: %v", err)
	}
}

// TestPolicyID shows what distinguishes two policies.
func TestPolicyID(t *testing.T) {
	f := func(same bool, a, b Policy) {
		t.Helper()
		if (a.Canonical().ID == b.Canonical().ID) != same {
			t.Errorf("%+v and %+v: the same: %v", a, b, !same)
		}
	}
	rules := func(change func(*Policy)) Policy {
		p := Policy{Class: ClassRules}
		change(&p)
		return p
	}
	of := func(tokens ...string) Policy { return rules(func(p *Policy) { p.OwnBlocked = tokens }) }
	f(true, of("a", "b"), of("b", "a", "b"))
	f(false, of("a", "b"), of("ab"))
	f(false, of("a"), rules(func(p *Policy) { p.OwnPartial = []string{"a"} }))
	f(false, of("a"), rules(func(p *Policy) { p.OwnAllowed = []string{"a"} }))
	f(false, of(), rules(func(p *Policy) { p.StarVerdict = "a" }))
	f(false, rules(func(p *Policy) { p.ContentSignal = "a" }), rules(func(p *Policy) { p.ContentUsage = "a" }))
	f(false, rules(func(p *Policy) { p.License = "a" }), rules(func(p *Policy) { p.Managed = "a" }))
	f(false, of(), Policy{Class: ClassNone})
	f(true, Policy{Class: ClassNone}, Policy{Class: ClassNone, StarVerdict: "blocked", Managed: "x"})
}
