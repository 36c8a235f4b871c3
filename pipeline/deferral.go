package pipeline

import (
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// deferral is what the schedule knows about slow hosts and names. A host that sends nothing holds a slot until its time-outs
// pass, as long as fifty that answer; a name whose servers send nothing holds a look-up as long as a hundred. A list of which one
// site in twenty is dead would take several times as long. So a silent host or name is deferred, once, while others want its slot
// or look-up, and so is a host that ran out of time. Each waits in a line until slots or look-ups are free:
//
//	exchange ─silent beyond patience─┐
//	exchange ─out of time────────────┴► hosts' line ─slots free, or few out─► resolve ─► levels ─► slot
//	                                       └─► spill
//
//	look-up ─silent beyond patience──┐
//	retry of a silent name───────────┴► names' line ─look-ups free, or few out─► look-up in full ─► levels ─► slot
//	                                       └─► spill                                 ▲
//	                  redirect hop, expired address, retry of a name deferred once ──┘
//
// A host whose next exchange ends otherwise than by its time is deferred no longer, nor is a name that was answered. There are two
// lines because look-ups may be free when slots are scarce, and the reverse.
type deferral struct {
	hosts, names line
	asleep       int // records that wait in memory for a time, deferred or not

	lull      bool          // most slots are free, and not because of the rate in all
	lullBegan time.Duration // if so, since when

	pace   tempo // of exchanges with an answer
	window int   // names of the line that may be looked up at once
}

// line is where deferred records wait.
type line struct {
	waiting fifo
	length  int // of waiting
	out     int // that have left it, and whose exchange or look-up has not ended

	spilled chain // behind waiting
}

func (l *line) all() int { return l.length + l.out + l.spilled.count }

// pop takes the first record out of the line.
func (l *line) pop(records *slab) ref {
	l.length--
	l.out++
	return l.waiting.pop(records)
}

// tempo is the mean duration of the last paceWeight of something.
type tempo struct {
	mean time.Duration
	seen int
}

// keep adds a duration; 0 says that no answer came, and is not counted.
func (p *tempo) keep(took time.Duration) {
	if took <= 0 {
		return
	}
	p.seen = min(p.seen+1, paceWeight)
	p.mean += (took - p.mean) / time.Duration(p.seen)
}

const (
	// One slot in so many goes to deferred records while others want it, and one place for silent names in so many to look-ups in
	// full, so that a list without an end reaches them too. At least one does.
	deferredShare = 64
	// Of the places for silent names, one in so many goes to the names' line while only newcomers come that do not want look-ups.
	calmShare = 8
	// The window of the names' line changes by one in so many of those places at a time, so that look-ups in full neither start
	// nor end all at once.
	widenShare = 32
	// One place in memory in so many is for each line, and for records that must not be asked before a time.
	lineShare = 4
	// The weight of a tempo: exchanges, or look-ups.
	paceWeight = 256
	// Patience is at least so many times the pace.
	patientPaces = 4
	// With fewer slots no host is deferred: one slot for deferred hosts would be too large a share.
	minPatientSlots = 4
	// Slots and look-ups count as free when most have been free for so long. For a moment they are whenever many exchanges end
	// together, and a recalled record may hold its slot until its time-outs pass.
	lullLasts = time.Second
)

// patience is how long the host of a record that takes a slot now may be silent; 0: until its time-outs. No host is deferred twice,
// and none while slots are left.
//
// Patience grows with the pace. Where all hosts are slow, or this machine is so busy that they seem so, silence says nothing, and a
// silent host never costs more than a few that answer.
func (s *schedule) patience(rec *record) time.Duration {
	switch {
	case s.cfg.Patience <= 0, s.slots.all < minPatientSlots, rec.is(hostWasDeferred | hostDeferred):
		return 0
	case 4*s.slots.left() >= 3*s.slots.all, s.fedAll && s.fedCount-s.over <= uint64(s.slots.all):
		return 0
	}
	return max(s.cfg.Patience, patientPaces*s.deferral.pace.mean)
}

// ranOut reports whether an exchange ended because it ran out of time, or was deferred.
func ranOut(o exchange.Outcome) bool { return o == exchange.Timeout || o == exchange.ConnectTimeout }

// lineOf is the line that a record with these flags waits in, or nil.
func (s *schedule) lineOf(f flags) *line {
	switch {
	case f&hostDeferred != 0:
		return &s.deferral.hosts
	case f&nameDeferred != 0:
		return &s.deferral.names
	}
	return nil
}

// enqueue puts a record at the end of its line, or spills it if the line is full or others were spilled.
func (s *schedule) enqueue(l *line, rec record) {
	if s.full(l) || l.spilled.count > 0 {
		s.check(l.spilled.put(s.spill, 0, rec))
		return
	}
	s.push(l, rec)
}

func (s *schedule) push(l *line, rec record) {
	l.waiting.push(s.records.put(rec), s.records)
	l.length++
}

func (s *schedule) full(l *line) bool { return l.length >= s.part(lineShare) }

// deferName takes a record whose look-up was deferred. A record that was near its turn loses it, because the queue must not wait
// (see regainTurn). One that was deferred for its host makes room for the next.
func (s *schedule) deferName(rec record) {
	s.progress.DeferredLookups.Add(1)
	if rec.is(resolving) {
		rec.set(resolving, false)
		s.resolving--
	} else {
		s.lookups.arrived++
	}
	if rec.is(hostDeferred) {
		s.deferral.hosts.out--
		rec.set(hostDeferred, false)
	}
	if t, near := s.turns[rec.seq]; near {
		delete(s.turns, rec.seq)
		s.loseTurn(t, byHost)
	}
	s.enqueue(&s.deferral.names, rec)
}

// recall lets deferred hosts go on their way to a slot.
func (s *schedule) recall() {
	d := &s.deferral
	switch lull := s.slots.left() > s.slots.all/2 && !s.backlogged(); {
	case !lull:
		d.lull = false
	case !d.lull:
		d.lull, d.lullBegan = true, s.now
	}
	for s.mayRecall() {
		s.resolveAgain(d.hosts.pop(s.records))
	}
}

// untilLull is how long until a lull has lasted, where a host waits for that.
func (s *schedule) untilLull() time.Duration {
	d := &s.deferral
	if left := d.lullBegan + lullLasts - s.now; d.lull && d.hosts.length > 0 && left > 0 {
		return left
	}
	return time.Hour
}

// mayRecall reports whether the first deferred host may go: as one of the few that always may; or because most slots have been free
// for a while, and not because of the rate in all; or because only records are left that are deferred or asleep.
func (s *schedule) mayRecall() bool {
	switch d := &s.deferral; {
	case d.hosts.length == 0 || s.stopping:
		return false
	case d.hosts.out < max(1, s.slots.all/deferredShare):
		return true
	case s.fedAll && s.fedCount-s.over <= uint64(d.hosts.all()+d.names.all()+d.asleep+s.sleepers.held):
		return d.hosts.out < 4*s.slots.all // some of them will queue for their turn
	default:
		return d.hosts.out < s.slots.all/2 && d.lull && s.now-d.lullBegan >= lullLasts
	}
}

// widen sets how many names of the line may be looked up at once: as many as there are places, if each look-up that is still to come
// has one; fewer if look-ups have not been wanted for a while; a few at any time.
func (s *schedule) widen() {
	l, most := &s.lookups, s.cfg.SilentLookups
	bound := s.reserved()
	switch {
	case s.placesForAll():
		bound = most
	case l.calm && s.now-l.calmBegan >= lullLasts:
		bound = max(bound, most/calmShare)
	}
	step := max(1, most/widenShare)
	s.deferral.window = max(s.deferral.window-step, min(bound, s.deferral.window+step))
}
