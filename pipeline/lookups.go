package pipeline

import (
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Config.Resolvers bounds the look-ups under way that are not overdue, plus the newcomers that wait for a slot after
// their look-up. What is left of this bound is the credit for further look-ups.

// maxBatch bounds the look-ups that are started together.
const maxBatch = 64

// lookup is a look-up under way.
type lookup struct {
	flight
	exchange.Query
	rec     record
	stalled time.Duration // how long the process had stalled before
	tries   uint8         // that a stall has spoilt
}

// resolve passes look-ups to the fetcher until the run ends. After Stop it passes none on.
func (r *run) resolve() error {
	for batch := range r.requests {
		if r.lookups.Err() == nil {
			r.fetcher.ResolveAll(r.lookups, batch, r.resolved)
		}
	}
	return nil
}

// resolved passes look-ups back, unless they were cut off: a cut-off is our failure, not the origin's.
func (r *run) resolved(found []*exchange.Query) {
	if r.lookups.Err() == nil {
		r.answers <- slices.Clone(found)
	}
}

// lookups is the schedule's state of look-ups.
type lookups struct {
	flights
	all  []*lookup // by Query.ID
	free []*lookup

	requests chan<- []*exchange.Query // has room for all that may be under way
	batch    []*exchange.Query        // to be started together

	newcomers []record // looked up, and waiting for a slot, in their order
	returning []record // looked up again, and waiting for a slot
}

func newLookups(r *run) lookups {
	return lookups{requests: r.requests, flights: flights{bound: r.cfg.Resolvers, places: r.cfg.SilentLookups}}
}

// start has a record looked up, with the next batch.
func (l *lookups) start(rec record, now, stalled time.Duration) {
	if len(l.free) == 0 {
		x := &lookup{Query: exchange.Query{ID: len(l.all)}}
		l.all, l.free = append(l.all, x), append(l.free, x)
	}
	x := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	x.rec, x.Target, x.stalled = rec, rec.target(), stalled
	l.flights.start(&x.flight, now)
	l.add(x)
}

func (l *lookups) add(x *lookup) {
	l.batch = append(l.batch, &x.Query)
	if len(l.batch) == maxBatch {
		l.send()
	}
}

// send starts the batch.
func (l *lookups) send() {
	if len(l.batch) > 0 {
		l.requests <- l.batch
		l.batch = nil
	}
}

// wantsNewcomers reports whether to look up newcomers now. While others wait for a slot, it requires credit for a
// batch.
func (s *schedule) wantsNewcomers() bool {
	l, bound := &s.lookups, s.cfg.Resolvers
	batch := min(maxBatch, bound/4)
	return s.creditForNewcomer() && (len(l.batch) > 0 || len(l.newcomers) == 0 || l.counted+
		len(l.newcomers) <= bound-batch)
}

// creditForNewcomer and creditForRenewal report whether a look-up of that kind may start. Newcomers that wait for a
// slot do not hold up renewals: the slots may be waiting for one.
func (s *schedule) creditForNewcomer() bool {
	return !s.stopping && s.lookups.counted+len(s.lookups.newcomers) < s.cfg.Resolvers
}

func (s *schedule) creditForRenewal() bool {
	return !s.stopping && s.lookups.counted+len(s.lookups.returning) < s.cfg.Resolvers
}

// startRenewals starts the look-ups of records that are resolved again, in their order.
func (s *schedule) startRenewals() {
	for s.renewals.head != 0 && s.creditForRenewal() {
		rec := s.records.take(s.renewals.pop(s.records))
		rec.set(resolving, true)
		s.resolving++
		s.lookups.start(rec, s.now, s.stalled())
	}
}

// lookedUp takes an answer. If the process stalled meanwhile and the answer is missing, the record is looked up again.
func (s *schedule) lookedUp(x *lookup) {
	l, found := &s.lookups, x.Lookup
	if stalled := s.stalled(); stalled != x.stalled {
		if found.Took = 0; found.Outcome.Transient() && x.tries < maxSpoilt {
			x.tries, x.stalled = x.tries+1, stalled
			s.progress.Spoilt.Add(1)
			l.add(x)
			return
		}
	}
	if found.Took > 0 && found.Outcome != exchange.DNSTimeout {
		l.took(s.now - x.began)
	}
	rec := x.rec
	rec.setLookup(found, s.begun)
	l.end(&x.flight)
	*x = lookup{Query: exchange.Query{ID: x.ID}}
	l.free = append(l.free, x)
	if rec.is(resolving) {
		l.returning = append(l.returning, rec)
		return
	}
	l.newcomers = append(l.newcomers, rec)
}

// admit takes one record that has been looked up, if there is a slot for it, and reports whether it did.
func (s *schedule) admit() bool {
	l := &s.lookups
	switch {
	case s.stopping || s.slots.empty():
		return false
	case len(l.returning) > 0:
		rec := popFirst(&l.returning)
		rec.set(resolving, false)
		s.resolving--
		s.goOn(rec)
	case len(l.newcomers) > 0 && !s.backlogged():
		s.goOn(popFirst(&l.newcomers))
	default:
		return false
	}
	return true
}

// popFirst takes the first element of a queue, and clears it in the queue's memory.
func popFirst[T any](queue *[]T) (first T) {
	first, (*queue)[0] = (*queue)[0], first
	*queue = (*queue)[1:]
	return first
}
