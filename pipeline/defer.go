package pipeline

import (
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// deferral is what the schedule knows about the slow: hosts and names. A host that says nothing holds a tray for as long as
// its time-outs allow, as long as fifty that answer, and a name whose servers say nothing holds a resolver for as long as a
// hundred: a list of which one in twenty is dead would take several times as long. So who is silent is put off, and who ran
// out of time is asked again when nobody else wants the tray, or the look-up.
//
//	exchange ─silent beyond patience─┐
//	exchange ─out of time────────────┴► deferred ─► line ─trays to spare, or few out─► resolve ─► levels ─► tray
//	                                       └─► spill
//
//	look-up ─silent beyond patience──┐
//	later try of a silent name───────┴► unheard ─► line ─look-ups to spare, or few out─► look-up ─► levels ─► tray
//	                                       └─► spill                                        ▲
//	                           hop, address too old, later try of who was put off once ─────┘
//
// Whose next exchange ends in any other way than by its time is deferred no longer, and a name that is answered is not
// unheard any more. There are two lines because they wait for different things: when trays are scarce look-ups may be to
// spare, and when look-ups are, most trays are free.
type deferral struct {
	hosts, names line
	asleep       int // records that wait in memory for a time, deferred or not

	lull      bool          // most trays are free, and not for want of the rate in all
	lullBegan time.Duration // if so, since when

	pace   tempo // of exchanges with an answer
	window int   // names of the line that may be looked up at once
}

// line is where records wait that are put off.
type line struct {
	waiting fifo
	length  int // of waiting
	out     int // that have left it, and have not come home
	spilled int // in the deferred file
}

func (l *line) all() int { return l.length + l.out + l.spilled }

// pop takes the first out of the line.
func (l *line) pop(records *slab) ref {
	l.length--
	l.out++
	return l.waiting.pop(records)
}

// tempo is what something takes, about: the mean over the last of them, up to paceWeight.
type tempo struct {
	mean time.Duration
	seen int
}

// keep takes note of how long one took; 0 where no answer came.
func (p *tempo) keep(took time.Duration) {
	if took <= 0 {
		return
	}
	p.seen = min(p.seen+1, paceWeight)
	p.mean += (took - p.mean) / time.Duration(p.seen)
}

const (
	// Of the trays, one in so many goes to deferred records while others want them, and of the places for silent names to
	// look-ups of those that were put off, so that a list without an end gets on with them too. At least one does.
	deferredShare = 64
	// Of the places for silent names, one in so many goes to names that were put off while newcomers come that do not want the
	// resolvers; and by one in so many of those places does their number change each time that the resolvers are looked at, so
	// that not all are asked in the same moment, nor ended, and a short wave of other look-ups costs them little.
	calmShare  = 8
	widenShare = 32
	// Of the places in memory, one in so many is for each line.
	lineShare = 4
	// The pace is the mean over about so many exchanges, or look-ups.
	paceWeight = 256
	// Patience is at least so many times the pace.
	patientPaces = 4
	// With fewer trays nobody is put off: the one tray of the deferred would be too large a part of them.
	minPatientTrays = 4
	// Trays are to spare when most have been free for so long. For a moment they are whenever many exchanges end together;
	// and who is recalled may hold his tray for as long as its time-outs allow. The same goes for resolvers.
	lullLasts = time.Second
)

// patience is how long the host of a record that takes a tray now may be silent; 0: as long as it likes. Nobody is put
// off twice, nor where there are trays enough.
//
// It grows with the pace. Where all hosts are slow, or this machine is so busy that they seem so, silence tells nothing;
// and a silent host never costs more than a few that answer.
func (s *schedule) patience(rec *record) time.Duration {
	if s.cfg.Patience <= 0 || s.trays.all < minPatientTrays || rec.is(putOff|deferred) || 4*s.trays.left() >= 3*s.trays.all || s.fedAll && s.fedCount-s.over <= uint64(s.trays.all) {
		return 0
	}
	return max(s.cfg.Patience, patientPaces*s.slow.pace.mean)
}

// ranOut reports whether an exchange ended because it ran out of time, or was put off.
func ranOut(o exchange.Outcome) bool { return o == exchange.Timeout || o == exchange.ConnectTimeout }

// lineFlags say in which line a record waits.
const lineFlags = deferred | unheard

// lineOf is the line that a record with these flags waits in, nil where it waits in none.
func (s *schedule) lineOf(f flags) *line {
	switch {
	case f&deferred != 0:
		return &s.slow.hosts
	case f&unheard != 0:
		return &s.slow.names
	}
	return nil
}

// enqueue puts a record at the end of its line, or into the file where the line is full.
func (s *schedule) enqueue(l *line, rec record) {
	if s.full(l) {
		s.putAside(rec, 0)
		return
	}
	l.waiting.push(s.records.put(rec), s.records)
	l.length++
}

func (s *schedule) lineBound() int     { return max(1, s.cfg.MaxWaiting/lineShare) }
func (s *schedule) full(l *line) bool  { return l.length >= s.lineBound() }
func (s *schedule) short(l *line) bool { return l.length <= s.lineBound()/2 }

// unheardOf takes a record whose look-up was put off. Who had a turn near has lost it: the queue must not wait (see
// regainTurn). And who was deferred for its host makes room for the next.
func (s *schedule) unheardOf(rec record) {
	s.progress.NamesPutOff.Add(1)
	s.backFrom(&rec)
	if rec.is(deferred) {
		s.slow.hosts.out--
		rec.set(deferred, false)
	}
	if t, near := s.turns[rec.seq]; near {
		delete(s.turns, rec.seq)
		s.loseTurn(t, byHost)
	}
	s.enqueue(&s.slow.names, rec)
}

// recall lets deferred records go on their way to a tray, or to an address.
func (s *schedule) recall() {
	d := &s.slow
	switch lull := s.trays.left() > s.trays.all/2 && !s.backlogged(); {
	case !lull:
		d.lull = false
	case !d.lull:
		d.lull, d.lullBegan = true, s.now
	}
	for s.mayRecall() {
		s.resolveAgain(d.hosts.pop(s.records))
	}
	for s.whole.head != 0 && s.silentPlaces() > 0 && !s.stopping {
		rec := s.records.take(s.whole.pop(s.records))
		rec.set(abroad, true)
		s.abroad++
		s.watch.whole++
		s.lookUpWhole(rec)
	}
	for d.names.length > 0 && d.names.out < d.window && s.silentPlaces() > 0 && !s.stopping {
		s.watch.whole++
		s.lookUpWhole(s.records.take(d.names.pop(s.records)))
	}
}

// untilLull returns how long it takes until a lull has lasted, where somebody waits for that.
func (s *schedule) untilLull() time.Duration {
	d := &s.slow
	if left := d.lullBegan + lullLasts - s.now; d.lull && d.hosts.length > 0 && left > 0 {
		return left
	}
	return time.Hour
}

// mayRecall reports whether the first of the hosts may go: as one of the few that always may, or because most trays have
// been free for a while and the rate in all is not what keeps others from them, or because nobody is left but those who are
// deferred or wait for a time.
func (s *schedule) mayRecall() bool {
	switch d := &s.slow; {
	case d.hosts.length == 0 || s.stopping:
		return false
	case d.hosts.out < max(1, s.trays.all/deferredShare):
		return true
	case s.fedAll && s.fedCount-s.over <= uint64(d.hosts.all()+d.names.all()+d.asleep):
		return d.hosts.out < 4*s.trays.all // some of them will queue for their turn
	default:
		return d.hosts.out < s.trays.all/2 && d.lull && s.now-d.lullBegan >= lullLasts
	}
}

// widen sets how many of the names may be looked up at once: all for which there are places when each look-up that others want
// has one, less where the resolvers have not been wanted for a while, and a few at any time.
func (s *schedule) widen() {
	w, most := &s.watch, s.cfg.SilentLookups
	bound := s.reserved()
	switch {
	case s.placesForAll():
		bound = most
	case w.calm && s.now-w.calmBegan >= lullLasts:
		bound = max(bound, most/calmShare)
	}
	step := max(1, most/widenShare)
	s.slow.window = max(s.slow.window-step, min(bound, s.slow.window+step))
}
