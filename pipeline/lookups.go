package pipeline

import (
	"runtime/pprof"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// The schedule starts look-ups against a credit of Config.Resolvers: look-ups under way that are not overdue, and newcomers that have
// been looked up and wait for a slot.

// request is a look-up for a resolver to make.
type request struct {
	rec    record
	flight *flight
}

// answer is what a look-up has found.
type answer struct {
	rec    record
	flight *flight
	took   time.Duration // including waits for the rate of questions; 0 where no name server answered
}

// resolve makes look-ups until the run ends. After Stop it makes no more.
func (r *run) resolve() error {
	for q := range r.requests {
		select {
		case <-r.stop:
			continue
		default:
		}
		began := time.Now()
		lookup := r.lookUp(q.rec.target())
		if r.lookups.Err() != nil {
			continue // cut off: the failure is ours, not the origin's
		}
		a := answer{rec: q.rec, flight: q.flight}
		if lookup.Took > 0 && lookup.Outcome != exchange.DNSTimeout {
			a.took = time.Since(began)
		}
		a.rec.setLookup(lookup, r.begun)
		select {
		case r.answers <- a:
		case <-r.ended:
		}
	}
	return nil
}

// startResolver starts a goroutine that makes look-ups.
func (r *run) startResolver() {
	ctx := r.labelled("resolve")
	r.group.Go(func() error {
		pprof.SetGoroutineLabels(ctx)
		return r.resolve()
	})
}

// lookups is what the schedule knows about look-ups. Nothing in it is shared with the resolvers.
type lookups struct {
	flights
	free []*flight

	requests  chan<- request // has room for all that may be under way
	newOne    func()         // starts a resolver
	resolvers int            // started

	newcomers []record // looked up, and waiting for a slot, in their order
	returning []record // looked up again, and waiting for a slot
}

func newLookups(r *run) lookups {
	return lookups{
		requests: r.requests, newOne: r.startResolver,
		flights: flights{bound: r.cfg.Resolvers, places: r.cfg.SilentLookups},
	}
}

// start has a record looked up.
func (l *lookups) start(rec record, now time.Duration) {
	if len(l.free) == 0 {
		l.free = append(l.free, new(flight))
	}
	x := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.flights.start(x, now)
	if len(l.running) > l.resolvers {
		l.resolvers++
		l.newOne()
	}
	l.requests <- request{rec, x}
}

// creditForNewcomer and creditForRenewal report whether such a look-up may start. Newcomers that wait for a slot do not hold up
// renewals: the slots may be waiting for one.
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
		s.lookups.start(rec, s.now)
	}
}

// lookedUp takes an answer.
func (s *schedule) lookedUp(a answer) {
	l := &s.lookups
	l.end(a.flight)
	l.free = append(l.free, a.flight)
	l.took(a.took)
	if a.rec.is(resolving) {
		l.returning = append(l.returning, a.rec)
		return
	}
	l.newcomers = append(l.newcomers, a.rec)
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

// popFirst takes the first of a queue, and what it holds out of the queue's memory.
func popFirst[T any](queue *[]T) (first T) {
	first, (*queue)[0] = (*queue)[0], first
	*queue = (*queue)[1:]
	return first
}
