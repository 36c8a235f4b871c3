package pipeline

import (
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// The stage that resolves, and what the schedule knows of it.
//
// Most names are answered within a tenth of a second, and one in a hundred or in twenty not at all, which the fetcher knows
// after ten seconds. So that the silent do not hold up the others:
//
//   - A look-up that takes longer than others do is overdue: another resolver takes its place, and it goes on beside. So
//     there are always Config.Resolvers that get on. It does not when most of them hold somebody for whom there is no tray.
//   - While the resolvers are wanted, a name has some patience to be answered in. Who is not is put off, once, and goes to a
//     line of its own (see deferral).
//   - Who is in that line is looked up with all its time by a goroutine of its own, beside the resolvers, and by many at
//     once when nobody else wants a look-up. So is at once whoever has been through that line and has to be looked up
//     again, for a hop or because his address is too old: nobody is put off twice.

// place is where a resolver says what it does, each on a cache line of its own.
type place struct {
	state atomic.Int64 // one of the states below, or since when a look-up is under way, since the run began
	took  atomic.Int64 // how long the last look-up with an answer took, with its waits for the rate, until the schedule has seen it
	_     [48]byte
}

const (
	placeIdle    = 0  // its resolver waits: for work, or with a newcomer for a tray
	placeOverdue = -1 // its look-up goes on, and another resolver has taken its place
	placeLeaving = -2 // the same, but its look-up has ended and is being delivered
	placeVacant  = -3 // it has no resolver
)

const (
	// The look-ups under way are looked at so often.
	watchEvery = 100 * time.Millisecond
	// A look-up is overdue when it has taken so many times as long as others take, but not before leastOverdue, and while
	// nobody knows yet how long others take after firstOverdue.
	overduePaces = 2
	leastOverdue = 200 * time.Millisecond
	firstOverdue = 500 * time.Millisecond
	// The resolvers are wanted while more than one in so many of them is looking a name up.
	wantedShare = 4
)

// resolver is one of the goroutines that look names up, one after the other.
type resolver struct {
	*run
	place    *place
	replaced bool // another has taken its place: it ends when it has delivered what it has
}

// resolve looks names up until the run ends, or until another resolver has taken this one's place.
func (r *run) resolve(at *place) error {
	w := resolver{run: r, place: at}
	defer at.state.Store(placeVacant)
	for !w.replaced {
		rec, ok := r.nextToResolve()
		if !ok {
			return nil
		}
		w.lookUp(rec, &w.bearable)
	}
	return nil
}

// nextToResolve waits for work. Records that the schedule sends back go first: they hold a place in a queue, or are
// nearer to their end than what is new.
func (r *run) nextToResolve() (record, bool) {
	// After Stop no look-up is begun, whatever else is ready.
	select {
	case <-r.stop:
		return record{}, false
	default:
	}
	select {
	case rec := <-r.renew:
		return rec, true
	default:
	}
	select {
	case rec := <-r.renew:
		return rec, true
	case rec := <-r.fresh:
		return rec, true
	case <-r.stop:
	case <-r.ended:
	case <-r.ctx.Done():
	}
	return record{}, false
}

// lookUp asks for a record's address and hands it to the schedule.
func (w *resolver) lookUp(rec record, patience *atomic.Int64) {
	since := max(1, int64(time.Since(w.begun)))
	w.place.state.Store(since)
	lookup := w.run.lookUp(rec.target(), time.Duration(patience.Load()))
	if lookup.Took > 0 && !silent(&lookup) {
		w.place.took.Store(int64(time.Since(w.begun)) - since)
	}
	if !w.place.state.CompareAndSwap(since, placeIdle) {
		w.place.state.Store(placeLeaving)
		w.replaced = true
	}
	if w.lookups.Err() != nil {
		return // cut off: the failure is ours, not the origin's
	}
	rec.setLookup(lookup, w.begun)
	switch {
	case lookup.PutOff:
		deliver(w.run, w.unanswered, rec)
	case rec.is(abroad):
		deliver(w.run, w.renewed, rec)
	default:
		w.hold(rec)
	}
}

// deliver hands a record, or what a look-up brought, to the schedule, unless the run ends before that.
func deliver[T any](r *run, to chan<- T, what T) {
	select {
	case to <- what:
	case <-r.stop:
	case <-r.ended:
	}
}

// hold waits with a newcomer until the schedule takes it. As long as that takes none, a newcomer which is held here keeps
// nobody from having its address asked again: what the schedule waits for may be just that.
func (w *resolver) hold(rec record) {
	for {
		renew := w.renew
		if w.replaced {
			renew = nil // that is for the one in its place
		}
		select {
		case w.resolved <- rec:
			return
		case again := <-renew:
			w.lookUp(again, &w.holding) // for no longer than the newcomer can bear
		case <-w.stop:
			return
		case <-w.ended:
			return
		}
	}
}

// startResolvers starts as many as there always are. The places behind them are for the successors of those that are overdue.
func (r *run) startResolvers() {
	for i := range r.cfg.Resolvers {
		r.newResolver(&r.places[i])
	}
}

// newResolver starts a resolver at a place that has none.
func (r *run) newResolver(at *place) {
	at.state.Store(placeIdle)
	r.group.Go(func() error {
		pprof.SetGoroutineLabels(r.resolving)
		return r.resolve(at)
	})
}

// wholeAnswer is a record that was looked up with all the time that the fetcher takes.
type wholeAnswer struct {
	rec     record
	unmoved bool // it has lost a turn at this address
}

// lookUpWhole asks for the address of a record that was put off, with all the time that the fetcher takes.
func (r *run) lookUpWhole(rec record) {
	r.group.Go(func() error {
		pprof.SetGoroutineLabels(r.resolving)
		select {
		case <-r.stop:
			return nil // the schedule has not seen it yet
		default:
		}
		r.lookingWhole.Add(1)
		lookup := r.lookUp(rec.target(), 0)
		r.lookingWhole.Add(-1)
		if r.lookups.Err() == nil {
			lost, had := rec.is(unheard), rec.addr
			rec.setLookup(lookup, r.begun)
			deliver(r, r.found, wholeAnswer{rec, lost && rec.failed.Outcome == 0 && rec.addr == had})
		}
		return nil
	})
}

// watch is what the schedule knows about the resolvers.
type watch struct {
	next    time.Duration // when it looks at them again
	places  int           // that ever had a resolver: all behind them are vacant
	asking  int           // look-ups under way
	overdue int           // those beside, that are overdue
	leaving int           // those that were, and are not delivered yet
	whole   int           // those with all their time, or not delivered yet
	pace    tempo         // of look-ups with an answer, without their waits for the rate
	wall    tempo         // of the same with those

	calm      bool // few look-ups are under way: the resolvers are not wanted
	calmBegan time.Duration
	arrived   uint64 // newcomers that the resolvers are done with
}

// watchResolvers looks at the look-ups under way when it is time to: those that are overdue get a successor, and what the
// next may take is told.
func (s *schedule) watchResolvers() {
	w := &s.watch
	if s.now < w.next || s.stopping {
		return
	}
	w.next = s.now + watchEvery
	w.asking, w.overdue, w.leaving = 0, 0, 0
	for i := range s.places[:w.places] {
		at := &s.places[i]
		w.wall.keep(time.Duration(at.took.Swap(0)))
		switch state := at.state.Load(); {
		case state == placeOverdue:
			w.overdue++
		case state == placeLeaving:
			w.leaving++
		case state > 0:
			w.asking++
		}
	}
	s.relieve()
	switch calm := w.asking <= s.few(); {
	case !calm:
		w.calm = false
	case !w.calm:
		w.calm, w.calmBegan = true, s.now
	}
	s.widen()
	s.setPatience()
	s.progress.Lookups.Store(int64(w.asking+w.overdue) + s.lookingWhole.Load())
}

// relieve gives the place of resolvers whose look-ups are overdue to others, as long as most of the resolvers look names up:
// where they hold newcomers that find no tray, there is nothing to gain. Who waits for the rate of questions takes as long as
// others do who wait for it: that is not overdue. The places that are reserved for the line stay free.
func (s *schedule) relieve() {
	w := &s.watch
	limit := firstOverdue
	if w.pace.seen > 0 {
		limit = max(leastOverdue, overduePaces*max(w.pace.mean, w.wall.mean))
	}
	vacant := 0
	for i := range s.places[:w.places] {
		if w.asking <= s.cfg.Resolvers/2 || s.silentPlaces()-max(0, s.reserved()-w.whole) <= 0 {
			return
		}
		at := &s.places[i].state
		since := at.Load()
		if since <= 0 || s.now-time.Duration(since) < limit || !at.CompareAndSwap(since, placeOverdue) {
			continue
		}
		w.asking--
		w.overdue++
		for s.places[vacant].state.Load() != placeVacant {
			vacant++
		}
		s.newResolver(&s.places[vacant])
		w.places = max(w.places, vacant+1)
	}
}

// silentPlaces is how many more look-ups may be under way beside those of the resolvers.
func (s *schedule) silentPlaces() int {
	return s.cfg.SilentLookups - s.watch.overdue - s.watch.leaving - s.watch.whole
}

// reserved is how many of those places are for look-ups with all their time at any time.
func (s *schedule) reserved() int { return max(1, s.cfg.SilentLookups/deferredShare) }

// few is up to how many look-ups the resolvers are not wanted.
func (s *schedule) few() int { return max(1, s.cfg.Resolvers/wantedShare) }

// placesForAll reports whether there is a place for each look-up that the resolvers are still wanted for: of newcomers, and of
// those that are resolved again.
func (s *schedule) placesForAll() bool {
	w := &s.watch
	left := s.fedCount - w.arrived + uint64(s.renewing+s.abroad-(w.whole-s.slow.names.out))
	return s.fedAll && left <= uint64(max(s.cfg.Resolvers/2, s.silentPlaces()))
}

// setPatience says how long a name may take to be answered; 0: as long as it likes, because few look-ups are under way, or
// because there is a place for each that is left. Whose resolver holds a newcomer, too, has no more than the others.
func (s *schedule) setPatience() {
	w := &s.watch
	if s.cfg.Patience <= 0 {
		return
	}
	patience := int64(max(s.cfg.Patience, patientPaces*w.pace.mean))
	s.holding.Store(patience)
	if w.asking+w.overdue <= s.few() || s.placesForAll() {
		patience = 0
	}
	s.bearable.Store(patience)
}

// heardOf takes note of a look-up by a resolver that has ended. How long those with all their time take says nothing about others.
func (s *schedule) heardOf(rec *record) {
	if !rec.is(unheard) {
		s.watch.pace.keep(time.Duration(rec.dns) * time.Microsecond)
	}
}

// untilWatch is how long until the resolvers are looked at again, where there is something to see.
func (s *schedule) untilWatch() time.Duration {
	if s.fedAll && s.watch.arrived == s.fedCount && s.abroad == 0 && s.whole.head == 0 && s.slow.names.length+s.slow.names.out == 0 && s.progress.Lookups.Load() == 0 {
		return time.Hour
	}
	return max(0, s.watch.next-s.now)
}

// silent reports whether no name server has answered.
func silent(l *exchange.Lookup) bool { return l.PutOff || l.Outcome == exchange.DNSTimeout }
