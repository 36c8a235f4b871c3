package history

import (
	"errors"
	"fmt"
	"iter"
)

// Merger merges a night into the open episodes and gaps, and passes the results on. It holds one site at a time.
type Merger struct {
	// Policy returns a policy by its id. It knows the policies of the open episodes, of the night, and of Judged.
	Policy func(id int64) *Policy
	// Judged, if not nil, gives an episode with rules the judgement of another judge, if the episode has had only one file
	// and that file is stored.
	Judged func(*Episode)

	// These functions receive the episodes and gaps in the order of sites. The argument is valid until they return.
	OpenEpisode, ClosedEpisode func(*Episode) error
	OpenGap, ClosedGap         func(*Gap) error
}

// Merged counts what a merge did.
type Merged struct {
	Date         Date
	Observations int64            // sites that were observed
	Causes       map[Cause]int64  // new episodes
	Gaps         map[string]int64 // sites of which nothing was learned, by class
	Disagree     int64            // hosts whose captures by https and by http say different things (see commit.Choice)
}

// ErrOrder says that an input of Merge is not sorted by site, or is not from before the night.
var ErrOrder = errors.New("the ledger is not in order")

// Merge merges the night of a date. The open episodes and gaps are the results of the merge of the night before. night
// returns the next observation, nil after the last. All are sorted by site. The first error of an input or a callback
// ends the merge.
func (m *Merger) Merge(date Date, episodes iter.Seq2[*Episode, error], gaps iter.Seq2[*Gap, error],
	night func() (*Observation, error)) (Merged, error) {
	run := merge{Merger: m, date: date, done: Merged{Date: date, Causes: map[Cause]int64{}, Gaps: map[string]int64{}}}
	openEpisodes, stop := pull(episodes)
	defer stop()
	openGaps, stop := pull(gaps)
	defer stop()
	episode, err := openEpisodes()
	if err != nil {
		return run.done, err
	}
	gap, err := openGaps()
	if err != nil {
		return run.done, err
	}
	observation, err := night()
	if err != nil {
		return run.done, err
	}
	for last := (*int64)(nil); episode != nil || gap != nil || observation != nil; {
		site := lowest(episode, gap, observation)
		if last != nil && site <= *last {
			return run.done, fmt.Errorf("%w: site %d comes after site %d", ErrOrder, site, *last)
		}
		last = &site
		var e *Episode
		var g *Gap
		var o *Observation
		if episode != nil && episode.Site == site {
			e = episode
		}
		if gap != nil && gap.Site == site {
			g = gap
		}
		if observation != nil && observation.Site == site {
			o = observation
		}
		if err := run.site(e, g, o); err != nil {
			return run.done, err
		}
		if e != nil {
			if episode, err = openEpisodes(); err != nil {
				return run.done, err
			}
		}
		if g != nil {
			if gap, err = openGaps(); err != nil {
				return run.done, err
			}
		}
		if o != nil {
			if observation, err = night(); err != nil {
				return run.done, err
			}
		}
	}
	return run.done, nil
}

// lowest returns the lowest site of the three inputs; at least one is not nil.
func lowest(e *Episode, g *Gap, o *Observation) int64 {
	var site *int64
	if e != nil {
		site = &e.Site
	}
	if g != nil && (site == nil || g.Site < *site) {
		site = &g.Site
	}
	if o != nil && (site == nil || o.Site < *site) {
		site = &o.Site
	}
	return *site
}

// pull returns a function for the next row of a sequence; the row is nil at the end.
func pull[T any](rows iter.Seq2[*T, error]) (next func() (*T, error), stop func()) {
	pulled, stop := iter.Pull2(rows)
	return func() (*T, error) {
		row, err, _ := pulled()
		return row, err
	}, stop
}

// merge is one call of Merge.
type merge struct {
	*Merger
	date Date
	done Merged
}

// site merges the night into one site's open episode and gap. Each of the three may be nil.
func (m *merge) site(e *Episode, g *Gap, o *Observation) error {
	if e != nil && e.ValidTo >= m.date || g != nil && g.Last >= m.date {
		return fmt.Errorf("%w: the night of %v has been merged", ErrOrder, m.date)
	}
	if m.Judged != nil && e != nil && e.Bodies == 1 && m.Policy(e.Policy).Class == ClassRules {
		m.Judged(e)
	}
	if class := gapOf(o); class != "" {
		return m.unobserved(e, g, class, siteOf(e, g, o))
	}
	m.done.Observations++
	if g != nil {
		if err := m.ClosedGap(g); err != nil {
			return err
		}
	}
	if e == nil {
		return m.open(o, First, 0)
	}
	cause := m.change(e, o)
	if cause == "" {
		e.extend(m.date, o)
		return m.OpenEpisode(e)
	}
	if err := m.ClosedEpisode(e); err != nil {
		return err
	}
	return m.open(o, cause, e.ValidTo)
}

// gapOf returns the class of a site's gap on a night, or "" if the site was observed.
func gapOf(o *Observation) string {
	switch {
	case o == nil:
		return Unlisted
	case isGap(o.Finding):
		return o.Finding
	}
	return ""
}

func siteOf(e *Episode, g *Gap, o *Observation) int64 {
	switch {
	case o != nil:
		return o.Site
	case e != nil:
		return e.Site
	}
	return g.Site
}

// unobserved merges a night on which nothing was learned about a site. The episode stays open: a failure and an absence
// say nothing of the policy.
func (m *merge) unobserved(e *Episode, g *Gap, class string, site int64) error {
	m.done.Gaps[class]++
	if e != nil {
		if class != Unlisted {
			e.Pending++
		}
		if err := m.OpenEpisode(e); err != nil {
			return err
		}
	}
	if g != nil && g.Class == class {
		g.Last = m.date
		g.Nights++
		return m.OpenGap(g)
	}
	if g != nil {
		if err := m.ClosedGap(g); err != nil {
			return err
		}
	}
	return m.OpenGap(&Gap{Site: site, Class: class, First: m.date, Last: m.date, Nights: 1})
}

// change returns why the observation begins another episode, or "" if it belongs to this one. The first rule that
// applies decides. One judge has judged all files of an episode: another judge begins a new episode, unless it has
// judged the only file.
func (m *merge) change(e *Episode, o *Observation) Cause {
	before := m.Policy(e.Policy)
	switch {
	case e.Observer != o.From.Observer:
		return ByObserver // two observers may be served different files
	case before.Class == o.Finding && o.Finding != ClassRules:
		return ""
	case e.Judge == o.From.Judge, e.LastBody == 0, !ofFile(before.Class), !ofFile(o.Finding):
		// else the class may depend on the judge
	case e.LastBody != o.Body, e.Bodies > 1:
		return UnknownJudge
	default:
		e.Policy, e.Unmanaged = o.Policy, o.Unmanaged
	}
	if e.Policy == o.Policy {
		return ""
	}
	cause := causeOf(before.Class, o.Finding)
	if cause == ByPolicy && e.Unmanaged == o.Unmanaged {
		return ByManaged
	}
	return cause
}

// extend adds a night to an episode.
func (e *Episode) extend(date Date, o *Observation) {
	e.ValidTo, e.Judge, e.Unmanaged = date, o.From.Judge, o.Unmanaged
	e.Observations++
	e.Failures += e.Pending
	e.Pending = 0
	if e.LastBody != o.Body {
		e.LastBody = o.Body
		e.Bodies++
	}
}

// open begins an episode.
func (m *merge) open(o *Observation, cause Cause, previousLast Date) error {
	m.done.Causes[cause]++
	return m.OpenEpisode(&Episode{
		Site: o.Site, Host: o.Host, Port: o.Port, Requested: o.Requested, Policy: o.Policy,
		ValidFrom: m.date, PreviousLast: previousLast, ValidTo: m.date, Observations: 1,
		Bodies: 1, LastBody: o.Body, Unmanaged: o.Unmanaged, Cause: cause, Observer: o.From.Observer, Judge: o.From.Judge,
	})
}
