package pipeline

import (
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// deferral is what the schedule knows about slow hosts. A host that says nothing holds a tray for as long as its time-outs
// allow, as long as fifty that answer: a list of which one in twenty is dead would take several times as long. So who is
// silent is put off, and who ran out of time is asked again when nobody else wants the tray.
//
//	exchange ─silent beyond patience─┐
//	exchange ─out of time────────────┴► deferred ─► line ─trays to spare, or few out─► resolve ─► levels ─► tray
//	                                       └─► spill
//
// Whose next exchange ends in any other way than by its time is deferred no longer.
type deferral struct {
	line    fifo // of deferred records
	length  int
	out     int // deferred records that have left the line, and have not come home
	spilled int // in the deferred file
	asleep  int // records that wait in memory for a time, deferred or not

	lull      bool          // most trays are free, and not for want of the rate in all
	lullBegan time.Duration // if so, since when

	pace     time.Duration // what an exchange with an answer takes, about
	answered int           // of which so many were seen, up to paceWeight
}

const (
	// Of the trays, one in so many goes to deferred records while others want them, so that a list without an end gets on
	// with them too. At least one does.
	deferredShare = 64
	// Of the places in memory, one in so many is for the line.
	lineShare = 4
	// The pace is the mean over about so many exchanges.
	paceWeight = 256
	// Patience is at least so many times the pace.
	patientPaces = 4
	// With fewer trays nobody is put off: the one tray of the deferred would be too large a part of them.
	minPatientTrays = 4
	// Trays are to spare when most have been free for so long. For a moment they are whenever many exchanges end together;
	// and who is recalled may hold his tray for as long as its time-outs allow.
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
	return max(s.cfg.Patience, patientPaces*s.slow.pace)
}

// keepPace takes note of how long an exchange took; 0 where no answer came.
func (s *schedule) keepPace(took time.Duration) {
	if took <= 0 {
		return
	}
	d := &s.slow
	d.answered = min(d.answered+1, paceWeight)
	d.pace += (took - d.pace) / time.Duration(d.answered)
}

// ranOut reports whether an exchange ended because it ran out of time, or was put off.
func ranOut(o exchange.Outcome) bool { return o == exchange.Timeout || o == exchange.ConnectTimeout }

// enqueue puts a deferred record at the line's end, or into the file where the line is full.
func (s *schedule) enqueue(rec record) {
	if s.lineFull() {
		s.putAside(rec, 0)
		return
	}
	s.slow.line.push(s.records.put(rec), s.records)
	s.slow.length++
}

func (s *schedule) lineFull() bool { return s.slow.length >= max(1, s.cfg.MaxWaiting/lineShare) }

// recall lets deferred records go on their way to a tray.
func (s *schedule) recall() {
	d := &s.slow
	switch lull := s.trays.left() > s.trays.all/2 && !s.backlogged(); {
	case !lull:
		d.lull = false
	case !d.lull:
		d.lull, d.lullBegan = true, s.now
	}
	for s.mayRecall() {
		s.slow.length--
		s.slow.out++
		s.renewals.push(s.slow.line.pop(s.records), s.records)
	}
}

// untilLull returns how long it takes until a lull has lasted, where somebody waits for that.
func (s *schedule) untilLull() time.Duration {
	d := &s.slow
	if left := d.lullBegan + lullLasts - s.now; d.lull && d.length > 0 && left > 0 {
		return left
	}
	return time.Hour
}

// mayRecall reports whether the first in the line may go: as one of the few that always may, or because most trays have
// been free for a while and the rate in all is not what keeps others from them, or because nobody is left but those who are
// deferred or wait for a time.
func (s *schedule) mayRecall() bool {
	switch d := &s.slow; {
	case d.length == 0 || s.stopping:
		return false
	case d.out < max(1, s.trays.all/deferredShare):
		return true
	case s.fedAll && s.fedCount-s.over <= uint64(d.length+d.out+d.spilled+d.asleep):
		return d.out < 4*s.trays.all // some of them will queue for their turn
	default:
		return d.out < s.trays.all/2 && d.lull && s.now-d.lullBegan >= lullLasts
	}
}
