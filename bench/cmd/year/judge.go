package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// ledger is what the files of a ledger have, in memory: rows by site, in the order of dates.
type ledger struct {
	episodes map[int64][]history.Episode
	gaps     map[int64][]history.Gap
	policies map[int64]history.Policy
	scans    []history.MergedScan
	bytes    int64
}

// readLedger reads the files that the ledger's record names.
func readLedger(ctx context.Context, st store.Store) (*ledger, error) {
	record, err := history.ReadLedger(ctx, st)
	if err != nil {
		return nil, err
	}
	l := &ledger{episodes: map[int64][]history.Episode{}, gaps: map[int64][]history.Gap{}, policies: map[int64]history.Policy{}, scans: record.Scans}
	for _, f := range record.Files {
		l.bytes += f.Bytes
		switch f.Table {
		case history.History:
			err = each(table.FileRows[history.Episode](ctx, st, f.Name), func(e *history.Episode) { l.episodes[e.Site] = append(l.episodes[e.Site], *e) })
		case history.Gaps:
			err = each(table.FileRows[history.Gap](ctx, st, f.Name), func(g *history.Gap) { l.gaps[g.Site] = append(l.gaps[g.Site], *g) })
		case history.Policies:
			err = each(table.FileRows[history.Policy](ctx, st, f.Name), func(p *history.Policy) { l.policies[p.ID] = *p })
		}
		if err != nil {
			return nil, err
		}
	}
	for _, all := range l.episodes {
		slices.SortFunc(all, func(a, b history.Episode) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	}
	for _, all := range l.gaps {
		slices.SortFunc(all, func(a, b history.Gap) int { return cmp.Compare(a.First, b.First) })
	}
	return l, nil
}

func each[T any](rows iter.Seq2[*T, error], do func(*T)) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		do(row)
	}
	return nil
}

// verdict is what the judge finds in a ledger.
type verdict struct {
	observed, failed, stopped int // requests that told something, or failed; that the network answered in place of the site, as gaps
	episodes                  int
	gaps                      map[string]int // in nights of sites

	// Flips are nights on which a site's policy is another than the night before. Each is one of:
	unseen   int // not between two observations of the site's own answer
	undone   int // undone before the next of them
	atChange int // between the last one of the first observer and the first one of the next
	seen     int // in the interval of an episode, with both policies and the cause
	across   int // the same, but the network's answer was an observation in between, and is an episode
	missing  int
	widths   [4]int // intervals of seen: one night, two, up to seven, more

	outages, returned int // outages that are episodes and in which the site has no flip; those after which the policy came back
	observers, both   int // episodes of cause observer; sites that the first observer has seen, and the next one
	untrue            int // transitions without a flip or an outage
	differ            int // episodes or gaps of a site that are not those of an ideal observer

	examples []string // of what is wrong
}

func (v *verdict) ok() bool {
	return v.missing+v.untrue+v.differ == 0 && v.returned == v.outages && v.observers == v.both
}

// wrong counts a fault and keeps the first few.
func (v *verdict) wrong(count *int, format string, args ...any) {
	*count++
	if len(v.examples) < 10 {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// siteJudge judges one site.
type siteJudge struct {
	*script
	*verdict
	site     int
	episodes []history.Episode // of the ledger
}

// judge holds the ledger of all nights against the script.
func judge(s *script, l *ledger) *verdict {
	v := &verdict{gaps: map[string]int{}}
	var nights []string
	for n := range s.nights {
		if !s.outside[n] {
			nights = append(nights, s.name(n))
		}
	}
	if !slices.EqualFunc(l.scans, nights, func(s history.MergedScan, id string) bool { return s.ScanID == id }) {
		v.wrong(&v.differ, "the ledger has the scans %v, want %v", l.scans, nights)
	}
	for i, id := range s.ids {
		j := siteJudge{script: s, verdict: v, site: i, episodes: l.episodes[id]}
		episodes, gaps := j.ideal()
		if !slices.EqualFunc(j.episodes, episodes, func(a, b history.Episode) bool {
			policy := l.policies[a.Policy]
			return policy.Canonical().ID == b.Policy && a.Policy == b.Policy && a.ValidFrom == b.ValidFrom && a.PreviousLast == b.PreviousLast && a.ValidTo == b.ValidTo &&
				a.Observations == b.Observations && a.Failures == b.Failures && a.Pending == b.Pending && a.Cause == b.Cause
		}) {
			v.wrong(&v.differ, "%s has the episodes %+v, want %+v", s.hosts[i], j.episodes, episodes)
		}
		if !slices.Equal(l.gaps[id], gaps) {
			v.wrong(&v.differ, "%s has the gaps %+v, want %+v", s.hosts[i], l.gaps[id], gaps)
		}
		v.episodes += len(j.episodes)
		for _, g := range l.gaps[id] {
			v.gaps[g.Class] += int(g.Nights)
		}
		j.flips()
		j.transitions()
	}
	return v
}

// ideal returns what an observer would write down who knows two rules: a policy lasts until another one is seen, and another
// observer begins anew.
func (j *siteJudge) ideal() (episodes []history.Episode, gaps []history.Gap) {
	var e *history.Episode
	var g *history.Gap
	for n := range j.nights {
		if j.outside[n] {
			continue
		}
		a, date := j.shown(j.site, n), j.date(n)
		switch shown := int(j.cells[j.site][n].shown); {
		case a.gap == "":
			j.observed++
		case a.gap == unlisted && e == nil && g == nil: // the site was never on the list
			continue
		case shown < firstOutage:
			j.failed++
		case shown != notListed:
			j.stopped++
		}
		if a.gap == "" {
			g = nil
			changes := e != nil && j.changes(e.ValidTo, date)
			if e == nil || changes || e.Policy != a.policy.ID {
				next := history.Episode{Policy: a.policy.ID, ValidFrom: date, Cause: history.First}
				if e != nil {
					next.PreviousLast, next.Cause = e.ValidTo, j.cause(policies[e.Policy], &a.policy, e.ValidTo, date)
				}
				if changes {
					j.both++
					next.Cause = history.ByObserver
				}
				episodes = append(episodes, next)
				e = &episodes[len(episodes)-1]
			}
			e.ValidTo = date
			e.Observations++
			e.Failures, e.Pending = e.Failures+e.Pending, 0
			continue
		}
		if e != nil && a.gap != unlisted {
			e.Pending++
		}
		if g == nil || g.Class != a.gap {
			gaps = append(gaps, history.Gap{Site: j.ids[j.site], Class: a.gap, First: date})
			g = &gaps[len(gaps)-1]
		}
		g.Last = date
		g.Nights++
	}
	return episodes, gaps
}

// cause is causeOf. If the token registry has changed, too, the body of before is judged again; a page of HTML, and a text without
// rules, is not stored.
func (j *siteJudge) cause(from, to *history.Policy, first, last history.Date) history.Cause {
	judged := (first == j.date(j.otherJudge)) == (last == j.date(j.otherJudge))
	if !judged && (from.Class == history.ClassHTML || from.Class == history.ClassNoRules) {
		return history.UnknownJudge
	}
	return causeOf(from, to)
}

// causeOf is what the schema says of causes.
func causeOf(from, to *history.Policy) history.Cause {
	switch {
	case (from.Class == history.ClassRefused) != (to.Class == history.ClassRefused):
		return history.ByRefusal
	case from.Class != to.Class:
		return history.ByPresence
	case from.Managed != to.Managed:
		return history.ByManaged
	}
	return history.ByPolicy
}

// changes reports whether the observer changes after one date, and up to another.
func (j *siteJudge) changes(after, until history.Date) bool {
	return after < j.date(j.change) && until >= j.date(j.change)
}

// policyOn is the policy that the site itself has on a night.
func (j *siteJudge) policyOn(night int) *history.Policy {
	return &answers[j.cells[j.site][night].file].policy
}

// outage reports whether a night shows the network's answer as an observation, with another policy than the site's own.
func (j *siteJudge) outage(night int) bool {
	a := j.shown(j.site, night)
	return a.gap == "" && a.policy.ID != j.policyOn(night).ID
}

// flipsBetween counts the nights after one and up to another on which the site has another policy than the night before.
func (j *siteJudge) flipsBetween(after, until int) (flips int) {
	for n := after + 1; n <= until; n++ {
		if j.policyOn(n-1).ID != j.policyOn(n).ID {
			flips++
		}
	}
	return flips
}

// flips looks the flips of the script up in the ledger: those between one observation of the site's own answer and the next.
func (j *siteJudge) flips() {
	last, outage := -1, false
	for n := range j.nights {
		if j.outside[n] {
			continue
		}
		stopped := j.outage(n)
		outage = outage || stopped
		if stopped || j.shown(j.site, n).gap != "" {
			continue
		}
		flips, changes := j.flipsBetween(max(last, 0), n), j.changes(j.date(last), j.date(n))
		switch {
		case flips == 0:
		case last < 0:
			j.unseen += flips
		case !changes && j.policyOn(last).ID == j.policyOn(n).ID:
			j.undone += flips
		case !j.found(last, n, outage):
			j.missing += flips - 1
			j.wrong(&j.missing, "%s: the ledger does not have the flip between %v and %v: %+v", j.hosts[j.site], j.date(last), j.date(n), j.episodes)
		case changes:
			j.atChange += flips
		case outage:
			j.across += flips
		default:
			j.seen += flips
			j.widths[slices.IndexFunc([]int{1, 2, 7, n}, func(most int) bool { return n-last <= most })] += flips
		}
		last, outage = n, false
	}
	j.unseen += j.flipsBetween(max(last, 0), j.nights-1)
}

// found reports whether the ledger has the flip that the observations of two nights show: as one interval from the one to the
// other. If an outage lies between and the site itself does not have rules on both nights, an episode of refusals can be the
// site's and the network's.
func (j *siteJudge) found(before, after int, outage bool) bool {
	first, last := j.date(before), j.date(after)
	from, to := j.policyOn(before), j.policyOn(after)
	a := slices.IndexFunc(j.episodes, func(e history.Episode) bool { return e.ValidFrom <= first && first <= e.ValidTo })
	b := slices.IndexFunc(j.episodes, func(e history.Episode) bool { return e.ValidFrom <= last && last <= e.ValidTo })
	if a < 0 || b < 0 || j.episodes[a].Policy != from.ID || j.episodes[b].Policy != to.ID {
		return false
	}
	if outage && (from.Class != history.ClassRules || to.Class != history.ClassRules) {
		return true
	}
	e, cause := &j.episodes[b], j.cause(from, to, first, last)
	if j.changes(first, last) {
		cause = history.ByObserver
	}
	return j.episodes[a].ValidTo == first && e.ValidFrom == last && (outage || e.PreviousLast == first && e.Cause == cause)
}

// transitions looks each transition of the ledger up in the script.
func (j *siteJudge) transitions() {
	var own *history.Episode // the last one of the site's own answer
	for i := range j.episodes {
		b := &j.episodes[i]
		flipSince := func(a *history.Episode) bool {
			return j.flipsBetween(int(a.ValidTo-j.first), int(b.ValidFrom-j.first)) > 0
		}
		if i > 0 {
			a := &j.episodes[i-1]
			from, to := j.outage(int(a.ValidTo-j.first)), j.outage(int(b.ValidFrom-j.first))
			switch {
			case b.Cause == history.ByObserver && j.changes(a.ValidTo, b.ValidFrom):
				j.observers++
			case !from && !to && !flipSince(a):
				j.wrong(&j.untrue, "%s has no flip between %v and %v: %+v", j.hosts[j.site], a.ValidTo, b.ValidFrom, *b)
			case from && !to && own != nil && !flipSince(own):
				j.outages++
				if own.Policy == b.Policy {
					j.returned++
				}
			}
		}
		if !j.outage(int(b.ValidTo - j.first)) {
			own = b
		}
	}
}

// report writes the verdict as a part of a Markdown page.
func (v *verdict) report(out io.Writer) {
	share := func(n int) float64 { return 100 * float64(n) / float64(v.observed+v.failed+v.stopped) }
	fmt.Fprintf(out, "%d observations; %.1f %% of the requests failed, and a network stopped %.1f %%. %d episodes.\n\n",
		v.observed, share(v.failed), share(v.stopped), v.episodes)
	fmt.Fprint(out, "| flips in the script | not between two observations | undone before the next | at the change of observer | seen, in the interval | seen, across an outage | missing | false |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	fmt.Fprintf(out, "| %d | %d | %d | %d | %d | %d | %d | %d |\n\n", v.unseen+v.undone+v.atChange+v.seen+v.across+v.missing, v.unseen, v.undone, v.atChange, v.seen, v.across, v.missing, v.untrue)
	fmt.Fprintf(out, "- Intervals of the seen: %d of one night, %d of two, %d of three to seven, %d longer.\n- Gaps, in nights of sites:", v.widths[0], v.widths[1], v.widths[2], v.widths[3])
	for _, class := range slices.Sorted(maps.Keys(v.gaps)) {
		fmt.Fprintf(out, " %s %d", class, v.gaps[class])
	}
	fmt.Fprintf(out, ".\n- Outages seen as refusals or web pages, while the site did not flip: %d. The policy came back after %d.\n", v.outages, v.returned)
	fmt.Fprintf(out, "- Episodes of the cause observer: %d. Sites that both observers have seen: %d.\n", v.observers, v.both)
	fmt.Fprintf(out, "- Sites whose episodes or gaps differ from an ideal observer's: %d.\n", v.differ)
	for _, example := range v.examples {
		fmt.Fprintf(out, "- **WRONG**: %s\n", example)
	}
}
