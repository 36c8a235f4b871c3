package pipeline

import (
	"runtime/pprof"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// The schedule starts look-ups against a credit of Config.Resolvers: look-ups under way, and newcomers that have been looked
// up and wait for a slot. Most names are answered within a tenth of a second; one in a hundred, or in twenty, is not answered
// in the ten seconds that the fetcher takes. Silent names must not hold up the others:
//
//   - A look-up that takes longer than others is overdue. It continues, but uses no credit any more.
//   - While look-ups are wanted, each has a patience. A name that is silent for longer is deferred, once: it waits in the names'
//     line (see deferral).
//   - A record of that line is looked up in full: with all the time that the fetcher takes. So is every later look-up of that
//     record (for a redirect hop, for an expired address), since no name is deferred twice.
//
// Overdue look-ups, and those in full, have Config.SilentLookups places of their own.

const (
	// The schedule looks for overdue look-ups so often.
	watchEvery = 100 * time.Millisecond
	// A look-up is overdue when it has taken overduePaces times as long as others do, and leastOverdue at least; firstOverdue
	// while it is unknown how long others take.
	overduePaces = 2
	leastOverdue = 200 * time.Millisecond
	firstOverdue = 500 * time.Millisecond
	// Look-ups are wanted while more than one in so many of Config.Resolvers is under way.
	wantedShare = 4
)

// request is a look-up for a resolver to make.
type request struct {
	rec      record
	ticket   int // of the look-up, in lookups.running
	inFull   bool
	patience time.Duration // 0: as long as the fetcher takes
}

// answer is what a look-up has found, or that it was deferred.
type answer struct {
	rec      record
	ticket   int
	took     time.Duration // including waits for the rate of questions; 0 where no name server answered
	deferred bool
	inFull   bool
	unmoved  bool // the record lost a turn at the address that it still has
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
		lookup := r.lookUp(q.rec.target(), q.patience)
		if r.lookups.Err() != nil {
			continue // cut off: the failure is ours, not the origin's
		}
		a := answer{rec: q.rec, ticket: q.ticket, inFull: q.inFull, deferred: lookup.Deferred}
		if lookup.Took > 0 && !silent(&lookup) {
			a.took = time.Since(began)
		}
		a.rec.setLookup(lookup, r.begun)
		a.unmoved = q.rec.is(nameDeferred) && lookup.Outcome == 0 && a.rec.addr == q.rec.addr
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

// silent reports whether no name server has answered.
func silent(l *exchange.Lookup) bool { return l.Deferred || l.Outcome == exchange.DNSTimeout }

// lookups is what the schedule knows about look-ups. Nothing in it is shared with the resolvers.
type lookups struct {
	requests  chan<- request // has room for all that may be under way
	newOne    func()         // starts a resolver
	resolvers int            // started

	running []lookup
	free    []int // tickets

	asking  int // use credit
	overdue int
	inFull  int // also those that have ended and are in returning

	newcomers ring[record] // looked up, and waiting for a slot
	returning ring[answer] // looked up again, or in full, and waiting for a slot

	patience time.Duration // of look-ups that start now; 0: in full
	pace     tempo         // of look-ups with an answer, without their waits for the rate
	wall     tempo         // of the same with those

	next      time.Duration // when to look for overdue ones again
	calm      bool          // few look-ups are under way: they are not wanted
	calmBegan time.Duration
	arrived   uint64 // newcomers that need no look-up any more
}

// lookup is a look-up under way.
type lookup struct {
	began time.Duration
	state lookupState
}

type lookupState uint8

const (
	lookupNone lookupState = iota
	lookupAsking
	lookupOverdue
	lookupInFull
)

// underWay is how many look-ups there are.
func (l *lookups) underWay() int { return len(l.running) - len(l.free) }

// start has a record looked up.
func (l *lookups) start(rec record, state lookupState, now time.Duration) {
	if len(l.free) == 0 {
		l.free = append(l.free, len(l.running))
		l.running = append(l.running, lookup{})
	}
	ticket := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.running[ticket] = lookup{now, state}
	q := request{rec: rec, ticket: ticket, inFull: state == lookupInFull}
	if q.inFull {
		l.inFull++
	} else {
		l.asking++
		q.patience = l.patience
	}
	if l.underWay() > l.resolvers {
		l.resolvers++
		l.newOne()
	}
	l.requests <- q
}

// end notes that a look-up has ended. One in full keeps its place until its record is admitted.
func (l *lookups) end(ticket int) {
	switch l.running[ticket].state {
	case lookupAsking:
		l.asking--
	case lookupOverdue:
		l.overdue--
	}
	l.running[ticket] = lookup{}
	l.free = append(l.free, ticket)
}

// creditForNewcomer and creditForRenewal report whether such a look-up may start. Newcomers that wait for a slot do not hold up
// renewals: the slots may be waiting for one.
func (s *schedule) creditForNewcomer() bool {
	return !s.stopping && s.lookups.asking+s.lookups.newcomers.len() < s.cfg.Resolvers
}

func (s *schedule) creditForRenewal() bool {
	return !s.stopping && s.lookups.asking+s.lookups.returning.len() < s.cfg.Resolvers
}

// startLookups starts those that need no newcomer: renewals in their order, those in full, and those of the names' line.
func (s *schedule) startLookups() {
	for s.renewals.head != 0 && s.creditForRenewal() {
		s.renewing--
		s.lookUpAgain(s.renewals.pop(s.records), lookupAsking)
	}
	for s.inFull.head != 0 && s.silentPlaces() > 0 && !s.stopping {
		s.lookUpAgain(s.inFull.pop(s.records), lookupInFull)
	}
	names := &s.deferral.names
	for names.length > 0 && names.out < s.deferral.window && s.silentPlaces() > 0 && !s.stopping {
		s.lookups.start(s.records.take(names.pop(s.records)), lookupInFull, s.now)
	}
}

func (s *schedule) lookUpAgain(i ref, state lookupState) {
	rec := s.records.take(i)
	rec.set(resolving, true)
	s.resolving++
	s.lookups.start(rec, state, s.now)
}

// lookedUp takes an answer.
func (s *schedule) lookedUp(a answer) {
	l := &s.lookups
	l.end(a.ticket)
	if a.deferred {
		s.deferName(a.rec)
		return
	}
	if !a.inFull { // those say nothing about others
		l.wall.keep(a.took)
		if !a.rec.is(nameDeferred) {
			l.pace.keep(time.Duration(a.rec.dns) * time.Microsecond)
		}
	}
	if a.inFull || a.rec.is(resolving) {
		l.returning.push(a)
		return
	}
	l.newcomers.push(a.rec)
}

// admit takes one record that has been looked up, if there is a slot for it, and reports whether it did.
func (s *schedule) admit() bool {
	l := &s.lookups
	switch {
	case s.stopping || s.slots.empty():
		return false
	case l.returning.len() > 0:
		s.resolvedAgain(l.returning.pop())
	case l.newcomers.len() > 0 && !s.backlogged():
		l.arrived++
		s.goOn(l.newcomers.pop())
	default:
		return false
	}
	return true
}

// resolvedAgain takes a record that was looked up again, or in full.
func (s *schedule) resolvedAgain(a answer) {
	if a.inFull {
		s.lookups.inFull--
	}
	if a.rec.is(resolving) {
		a.rec.set(resolving, false)
		s.resolving--
	} else {
		s.deferral.names.out--
	}
	if a.inFull && a.unmoved {
		s.regainTurn(a.rec)
		return
	}
	s.goOn(a.rec)
}

// watchLookups looks for overdue look-ups when it is time to, and sets what the next ones may take.
func (s *schedule) watchLookups() {
	l := &s.lookups
	if s.now < l.next || s.stopping {
		return
	}
	l.next = s.now + watchEvery
	s.findOverdue()
	switch calm := l.asking <= s.few(); {
	case !calm:
		l.calm = false
	case !l.calm:
		l.calm, l.calmBegan = true, s.now
	}
	s.widen()
	s.setPatience()
}

// findOverdue takes the credit from overdue look-ups, as long as most of it is in use by look-ups: where newcomers without a slot
// use it, nothing is gained. A look-up that waits for the rate of questions takes as long as others that wait for it, so it is
// not overdue. The places that are reserved for look-ups in full stay free.
func (s *schedule) findOverdue() {
	l := &s.lookups
	after := firstOverdue
	if l.pace.seen > 0 {
		after = max(leastOverdue, overduePaces*max(l.pace.mean, l.wall.mean))
	}
	for i := range l.running {
		if l.asking <= s.cfg.Resolvers/2 || s.silentPlaces()-max(0, s.reserved()-l.inFull) <= 0 {
			return
		}
		if at := &l.running[i]; at.state == lookupAsking && s.now-at.began >= after {
			at.state = lookupOverdue
			l.asking--
			l.overdue++
		}
	}
}

// silentPlaces is how many more look-ups may use no credit.
func (s *schedule) silentPlaces() int {
	return s.cfg.SilentLookups - s.lookups.overdue - s.lookups.inFull
}

// reserved is how many of those places are always for look-ups in full.
func (s *schedule) reserved() int { return max(1, s.cfg.SilentLookups/deferredShare) }

// few is up to how many look-ups they are not wanted.
func (s *schedule) few() int { return max(1, s.cfg.Resolvers/wantedShare) }

// placesForAll reports whether there is a place for each look-up that is still to come: of newcomers, and of records that are
// resolved again.
func (s *schedule) placesForAll() bool {
	left := s.fedCount - s.lookups.arrived + uint64(s.renewing+s.resolving-(s.lookups.inFull-s.deferral.names.out))
	return s.fedAll && left <= uint64(max(s.cfg.Resolvers/2, s.silentPlaces()))
}

// setPatience sets how long a name may be silent; 0, which is in full, where few look-ups are under way, or where there is a place
// for each that is left.
func (s *schedule) setPatience() {
	l := &s.lookups
	switch {
	case s.cfg.Patience <= 0:
	case l.asking+l.overdue <= s.few() || s.placesForAll():
		l.patience = 0
	default:
		l.patience = max(s.cfg.Patience, patientPaces*l.pace.mean)
	}
}

// untilWatch is how long until watchLookups has something to do.
func (s *schedule) untilWatch() time.Duration {
	l := &s.lookups
	if s.fedAll && l.arrived == s.fedCount && s.resolving == 0 && s.inFull.head == 0 && s.deferral.names.length+s.deferral.names.out == 0 && l.underWay() == 0 {
		return time.Hour
	}
	return max(0, l.next-s.now)
}

// ring is a queue of values in memory that is reused.
type ring[T any] struct {
	values []T
	first  int
}

func (r *ring[T]) len() int { return len(r.values) - r.first }

func (r *ring[T]) push(v T) {
	if r.first > 0 && len(r.values) == cap(r.values) {
		n := copy(r.values, r.values[r.first:])
		clear(r.values[n:])
		r.values, r.first = r.values[:n], 0
	}
	r.values = append(r.values, v)
}

func (r *ring[T]) pop() T {
	v := r.values[r.first]
	var none T
	r.values[r.first] = none
	if r.first++; r.first == len(r.values) {
		r.values, r.first = r.values[:0], 0
	}
	return v
}
