package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// This file defines the ledger a second time, from the text of the rules: for one site after the other, over the list
// of all nights at once. Random worlds show that the incremental merge finds the same.

// world is a list of nights, and the judgements of its bodies.
type world struct {
	nights   []worldNight
	files    map[int64]*file
	policies map[int64]*Policy
}

type worldNight struct {
	date Date
	rows []Observation
}

// file is a body and what every judge finds in it.
type file struct {
	class  map[string]string // by judge
	policy map[string]int64  // by judge
	rest   map[string]int64  // by judge: the policy without the managed block
}

var judges = []string{"1", "2", "3"}

// newWorld makes a world. The same seed makes the same world.
func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 11))
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	w := &world{files: map[int64]*file{}, policies: map[int64]*Policy{}}
	intern := func(p Policy) int64 {
		p = p.Canonical()
		w.policies[p.ID] = &p
		return p.ID
	}
	classes := []string{ClassNoRules, ClassHTML, ClassNone, ClassRefused}
	for _, class := range classes {
		intern(Policy{Class: class})
	}
	var rules, texts []int64 // hashes of files
	kinds := 1 + rng.IntN(4)
	for hash := int64(1); hash <= 10; hash++ {
		f := &file{class: map[string]string{}, policy: map[string]int64{}, rest: map[string]int64{}}
		kind, managed := rng.IntN(kinds), chance(25)
		odd := chance(10) // judge 3 knows its keys
		for i, judge := range judges {
			p := Policy{Class: ClassRules, StarVerdict: []string{"allowed", "blocked"}[kind&1]}
			if known := []string{"A", "B", "C"}[:i+1]; kind&2 > 0 {
				p.OwnBlocked = known
			}
			f.rest[judge] = intern(p)
			if managed {
				p.Managed = "cdn"
				p.OwnBlocked = append(slices.Clone(p.OwnBlocked), "M")
			}
			if odd && i < 2 {
				p, f.rest[judge] = Policy{Class: ClassNoRules}, 0
			}
			f.class[judge], f.policy[judge] = p.Class, intern(p)
		}
		w.files[hash] = f
		rules = append(rules, hash)
	}
	for hash := int64(11); hash <= 14; hash++ {
		f := &file{class: map[string]string{}, policy: map[string]int64{}, rest: map[string]int64{}}
		class := []string{ClassHTML, ClassNoRules}[hash&1]
		for _, judge := range judges {
			f.class[judge], f.policy[judge] = class, intern(Policy{Class: class})
		}
		w.files[hash] = f
		texts = append(texts, hash)
	}

	type site struct {
		class       string // none or refused; "" for a file
		file, other int64
		flaps, cdn  bool
	}
	pick := func(hashes []int64) int64 { return hashes[rng.IntN(len(hashes))] }
	sites := make([]site, 1+rng.IntN(8))
	change := func(s *site) {
		switch n := rng.IntN(10); {
		case n < 6:
			s.class, s.file = "", pick(rules)
		case n < 8:
			s.class, s.file = "", pick(texts)
		default:
			s.class, s.file = []string{ClassNone, ClassRefused}[n&1], 0
		}
	}
	for i := range sites {
		s := &sites[i]
		change(s)
		s.other, s.flaps, s.cdn = pick(rules), chance(20), chance(40)
	}
	failures := []string{"not_asked", "challenged", "rate_limited", "unreachable", "server_error"}
	failing, churn, changing := rng.IntN(40), rng.IntN(30), rng.IntN(30)
	from := Source{Observer: "a", Judge: judges[rng.IntN(2)]}
	date := Date(20000)
	for range 1 + rng.IntN(14) {
		date += Date(1 + rng.IntN(3))
		if chance(8) {
			from.Observer = []string{"a", "b"}[rng.IntN(2)]
		}
		if chance(15) {
			from.Judge = judges[rng.IntN(len(judges))]
		}
		outage := ""
		if chance(12) {
			outage = []string{ClassRefused, "challenged", "rate_limited", ClassHTML}[rng.IntN(4)]
		}
		by := from
		night := worldNight{date: date}
		for i := range sites {
			s := &sites[i]
			if chance(changing) {
				change(s)
			}
			if s.flaps && chance(50) && s.file != 0 {
				s.file, s.other = s.other, s.file
			}
			if chance(churn) {
				continue
			}
			o := Observation{Site: int64(i*1000003) - 3000000, Host: fmt.Sprint("host", i), Port: 443, Requested: "auto",
				From: &by}
			switch {
			case s.cdn && outage == ClassHTML:
				o.Finding, o.Body, o.Policy = ClassHTML, 12, w.files[12].policy[by.Judge]
			case s.cdn && outage == ClassRefused:
				o.Finding, o.Policy = ClassRefused, intern(Policy{Class: ClassRefused})
			case s.cdn && outage != "":
				o.Finding = outage
			case chance(failing):
				o.Finding = failures[rng.IntN(len(failures))]
			case s.class != "":
				o.Finding, o.Policy = s.class, intern(Policy{Class: s.class})
			default:
				f := w.files[s.file]
				o.Finding, o.Body, o.Policy, o.Unmanaged = f.class[by.Judge], s.file, f.policy[by.Judge], f.rest[by.Judge]
			}
			night.rows = append(night.rows, o)
		}
		rng.Shuffle(len(night.rows), func(i, j int) { night.rows[i], night.rows[j] = night.rows[j], night.rows[i] })
		w.nights = append(w.nights, night)
	}
	return w
}

// model returns the ledger of a world.
func (w *world) model() (episodes []Episode, gaps []Gap, judged int) {
	sites := map[int64]bool{}
	for _, night := range w.nights {
		for _, o := range night.rows {
			sites[o.Site] = true
		}
	}
	for site := range sites {
		e, g := w.modelSite(site, &judged)
		episodes, gaps = append(episodes, e...), append(gaps, g...)
	}
	return episodes, gaps, judged
}

// seen is one night of a site: the observation that counts, or nil if the site is not listed.
type seen struct {
	date Date
	row  *Observation
}

func (s seen) class() string {
	if s.row == nil {
		return "unlisted"
	}
	return s.row.Finding
}

func (s seen) failed() bool {
	return slices.Contains([]string{"not_asked", "challenged", "rate_limited", "unreachable", "server_error"}, s.class())
}

func (s seen) observed() bool { return s.row != nil && !s.failed() }

func (w *world) modelSite(site int64, judged *int) (episodes []Episode, gaps []Gap) {
	var nights []seen
	for _, night := range w.nights {
		s := seen{date: night.date}
		for i := range night.rows {
			if o := &night.rows[i]; o.Site == site {
				s.row = o
			}
		}
		if s.row != nil || len(nights) > 0 {
			nights = append(nights, s)
		}
	}
	// Gaps: runs of one class.
	for i := 0; i < len(nights); {
		j := i
		for j < len(nights) && nights[j].class() == nights[i].class() {
			j++
		}
		if !nights[i].observed() {
			gaps = append(gaps, Gap{site, nights[i].class(), nights[i].date, nights[j-1].date, int32(j - i)})
		}
		i = j
	}
	// Episodes: runs of nights with an observation, cut where two successive ones differ.
	var at []int
	for i, s := range nights {
		if s.observed() {
			at = append(at, i)
		}
	}
	cause, previous := First, Date(0)
	for begin := 0; begin < len(at); {
		end := begin + 1
		var cut Cause
		for only := true; end < len(at); end++ {
			before, now := nights[at[end-1]].row, nights[at[end]].row
			if cut = w.between(before, now, only); cut != "" {
				break
			}
			only = only && before.Body == now.Body
		}
		first, last := nights[at[begin]], nights[at[end-1]]
		e := Episode{
			Site: site, Host: first.row.Host, Port: first.row.Port, Requested: first.row.Requested, Policy: last.row.Policy,
			ValidFrom: first.date, PreviousLast: previous, ValidTo: last.date, Observations: int32(end - begin),
			Bodies: 1, LastBody: last.row.Body, Unmanaged: last.row.Unmanaged, Cause: cause, Observer: last.row.From.Observer,
			Judge: last.row.From.Judge,
		}
		for k := begin + 1; k < end; k++ {
			before, now := nights[at[k-1]], nights[at[k]]
			if before.row.Body != now.row.Body {
				e.Bodies++
			}
			if before.row.Policy != now.row.Policy {
				*judged++
			}
		}
		until := len(nights)
		if end < len(at) {
			until = at[end]
		}
		for k := at[begin]; k < until; k++ {
			switch {
			case !nights[k].failed():
			case k < at[end-1]:
				e.Failures++
			default:
				e.Pending++
			}
		}
		episodes = append(episodes, e)
		begin, cause, previous = end, cut, last.date
	}
	return episodes, gaps
}

// between returns why an episode ends between two successive observations, "" if it continues. only says that the
// episode has had no other file than the first's.
func (w *world) between(p, c *Observation, only bool) Cause {
	noFile := func(o *Observation) bool { return o.Finding == "none" || o.Finding == "refused" || o.Body == 0 }
	switch {
	case p.From.Observer != c.From.Observer:
		return ByObserver
	case p.Finding == c.Finding && p.Finding != "rules":
		return ""
	case p.From.Judge == c.From.Judge, noFile(p), noFile(c) && c.Finding != "no_rules":
	case p.Body == c.Body && only:
		return ""
	default:
		return UnknownJudge
	}
	a, b := w.policies[p.Policy], w.policies[c.Policy]
	switch {
	case a.ID == b.ID:
		return ""
	case a.Class != "refused" && b.Class == "refused", a.Class == "refused" && b.Class != "refused":
		return ByRefusal
	case a.Class != b.Class:
		return ByPresence
	case p.Unmanaged == c.Unmanaged:
		return ByManaged
	}
	return ByPolicy
}

// incremental merges the nights one by one.
func (w *world) incremental(t *testing.T) *memory {
	l := &memory{policies: w.policies}
	for _, night := range w.nights {
		if _, err := l.merge(night.date, night.rows); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestModel compares the merge with the model.
func TestModel(t *testing.T) {
	worlds := uint64(6000)
	if testing.Short() {
		worlds = 300
	}
	counts := map[Cause]int{}
	var gaps, judged int
	for seed := range worlds {
		w := newWorld(seed)
		wantEpisodes, wantGaps, again := w.model()
		l := w.incremental(t)
		same(t, seed, "episode", slices.Concat(l.closed, l.open), wantEpisodes, func(e Episode) (int64, Date) {
			return e.Site,
				e.ValidFrom
		})
		same(t, seed, "gap", slices.Concat(l.closedGaps, l.openGaps), wantGaps, func(g Gap) (int64, Date) {
			return g.Site,
				g.First
		})
		last := w.nights[len(w.nights)-1].date
		open := map[int64]bool{}
		for _, e := range l.open {
			if open[e.Site] {
				t.Errorf("world %d: site %d has two open episodes", seed, e.Site)
			}
			open[e.Site] = true
		}
		for _, g := range slices.Concat(l.closedGaps, l.openGaps) {
			if (g.Last == last) != slices.Contains(l.openGaps, g) {
				t.Errorf("world %d: gap %+v is not where it belongs", seed, g)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
		for _, e := range wantEpisodes {
			counts[e.Cause]++
		}
		gaps, judged = gaps+len(wantGaps), judged+again
	}
	t.Logf("%d worlds: episodes by cause %v, %d judged otherwise, %d gaps", worlds, counts, judged, gaps)
	for _, cause := range []Cause{First, ByPolicy, ByManaged, ByPresence, ByRefusal, ByObserver, UnknownJudge} {
		if counts[cause] < 50 {
			t.Errorf("only %d episodes of cause %s: the worlds do not test it", counts[cause], cause)
		}
	}
	if judged < 20 {
		t.Errorf("another judge gives a file another policy only %d times", judged)
	}
}

// same compares two sets of rows by site and date.
func same[T comparable](t *testing.T, seed uint64, what string, got, want []T, key func(T) (int64, Date)) {
	t.Helper()
	compare := func(a, b T) int {
		siteA, dateA := key(a)
		siteB, dateB := key(b)
		return cmp.Or(cmp.Compare(siteA, siteB), cmp.Compare(dateA, dateB))
	}
	slices.SortFunc(got, compare)
	slices.SortFunc(want, compare)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("world %d, %s %d:\n got %+v\nwant %+v", seed, what, i, got[min(i, len(got)):min(i+1, len(got))],
				want[min(i, len(want)):min(i+1, len(want))])
			return
		}
	}
}

// TestRefusedNights merges each night a second time, and the night before: both are refused and change nothing.
func TestRefusedNights(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(seed)
		l := &memory{policies: w.policies}
		for i, night := range w.nights {
			if _, err := l.merge(night.date, night.rows); err != nil {
				t.Fatal(err)
			}
			before := fmt.Sprint(l.open, l.closed, l.openGaps, l.closedGaps)
			for _, again := range w.nights[max(0, i-1) : i+1] {
				if _, err := l.merge(again.date, again.rows); err == nil && len(l.open)+len(l.openGaps) > 0 {
					t.Errorf("world %d: night %v is merged after night %v", seed, again.date, night.date)
				}
			}
			if after := fmt.Sprint(l.open, l.closed, l.openGaps, l.closedGaps); after != before {
				t.Errorf("world %d: a refused night changes the ledger", seed)
			}
		}
	}
}
