package pipeline

import "time"

const (
	// A record is read back so long before its turn, if there is room: it must be resolved again.
	refillLead = 10 * time.Second
	// Records are read back so many at a time; the loop has others to serve.
	refillAtOnce = 256
)

// putAside spills a record that memory has no room for: one of a line behind the line, any other until its turn is near. A retry is not
// asked before due; others wait in the queue of a key at a level, or in none.
func (s *schedule) putAside(rec record, h spillHeader) {
	rec.set(refilled, false)
	var err error
	if l := s.lineOf(rec.flags); l != nil && !h.asleep {
		err = l.spilled.put(s.spill, h, rec)
	} else {
		h.due = max(h.due, s.now)
		err = s.calendar.put(h, rec)
	}
	if err != nil {
		s.end.run(err)
	}
}

// putBehind spills a newcomer to a key's queue until the queue, and the records that were spilled before, have been served.
func (s *schedule) putBehind(rec record, l int, at key) {
	level := s.levels[l]
	before := int(level.queues[at].length) + s.calendar.waiting[at]
	s.putAside(rec, spillHeader{due: s.now + time.Duration(before)*level.intervalOf(at, s.now), key: at})
}

// crowded reports whether a newcomer to a key's queue must be spilled: because earlier ones were, or because the queue is as long as there
// are places left in memory. One busy address takes half of them, two take a third each, and a short queue always finds a place (the
// dynamic threshold of shared-memory switches, Choudhury and Hahne 1998).
func (s *schedule) crowded(l int, at key, rec *record) bool {
	if rec.is(refilled) || rec.is(hostDeferred) {
		return false // it has had its place in memory before
	}
	return s.calendar.waiting[at] > 0 || int(s.levels[l].queues[at].length) >= s.cfg.MaxWaiting-s.waiting()
}

// mayRefill reports whether spilled records may be read back: those of a line that is short, or those whose turn is near, or any while
// memory is mostly free. From a quarter in use it is filled up to a half, so that reading neither stops nor starts for one place.
func (s *schedule) mayRefill() bool {
	if s.stopping || s.slots.empty() || s.backlogged() || s.waiting() >= s.cfg.MaxWaiting {
		return false
	}
	return s.lineToRefill() != nil || s.mayReadCalendar()
}

func (s *schedule) mayReadCalendar() bool {
	used, most := s.waiting(), s.cfg.MaxWaiting
	switch {
	case s.calendar.count == 0 || used >= max(1, most/2):
		s.refilling = false
	case used < max(1, most/4):
		s.refilling = true
	}
	return s.refilling || s.calendar.count > 0 && used < max(1, most/4*3) && s.calendar.next() <= s.now+refillLead
}

// lineToRefill is a line that is short and has spilled records, or nil.
func (s *schedule) lineToRefill() *line {
	for _, l := range []*line{&s.deferral.hosts, &s.deferral.names} {
		if l.spilled.count > 0 && (s.short(l) || l.refilling && !s.full(l)) {
			l.refilling = true
			return l
		}
		l.refilling = false
	}
	return nil
}

// refill reads spilled records back.
func (s *schedule) refill() {
	for n := 0; n < refillAtOnce && s.mayRefill(); n++ {
		if l := s.lineToRefill(); l != nil {
			_, rec, err := l.spilled.get(s.spill)
			if err != nil {
				s.end.run(err)
				return
			}
			s.push(l, rec)
			continue
		}
		h, rec, err := s.calendar.get(max(1, s.cfg.MaxWaiting/8))
		if err != nil {
			s.end.run(err)
			return
		}
		if h.asleep {
			s.sleep(rec, h.due)
			continue
		}
		rec.set(refilled, true)
		s.resolveAgain(s.records.put(rec))
	}
}

// sleep lets a record wait in memory until due.
func (s *schedule) sleep(rec record, due time.Duration) {
	s.deferral.asleep++
	s.events.push(event{at: due, what: uint64(s.records.put(rec)), level: wake})
}

// untilRefill is how long until a spilled record's turn is near.
func (s *schedule) untilRefill() time.Duration {
	if s.calendar.count == 0 || s.backlogged() || s.waiting() >= max(1, s.cfg.MaxWaiting/4*3) {
		return time.Hour
	}
	return max(0, s.calendar.next()-refillLead-s.now)
}
