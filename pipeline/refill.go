package pipeline

import "time"

// This file says which records the schedule spills, and when they come back. A fourth of MaxWaiting is for records that
// wait for a time, the rest for queues.
//
// A newcomer that finds its queue crowded is spilled with an estimate of its turn. Estimates of a key's records are in
// the order of spilling. The record comes back at that time and stays in memory, unless its key has become much slower
// since: such a key must not take the places of others. When memory is nearly empty, records come back earlier: an
// estimate is too late if other records of the key need no exchange.

const (
	// How many records the loop reads before it serves other events.
	refillAtOnce = 256

	// The latest estimate, 36 years, so that no sum overflows.
	farthest = time.Duration(1 << 60)
	// If there are many estimates, those of passed turns are forgotten at this interval.
	sweepEvery = time.Second

	// Parts of MaxWaiting, as divisors:
	emptyShare  = 16 // with fewer records in queues, buckets are read before their time
	filledShare = 8  // until queues have so many records
	queueShare  = 2  // with more records in queues, no bucket is read
	againShare  = 4  // if a queue is so long, and takes at least againAfter, its key has become slower
	againAfter  = time.Minute
	sleepShare  = 4 // records that must not be fetched before a time
)

// part is MaxWaiting divided by share, at least one.
func (s *schedule) part(share int) int { return max(1, s.cfg.MaxWaiting/share) }

// queued is how many records wait in queues, or are on their way there.
func (s *schedule) queued() int {
	return s.waiting() - s.asleep
}

// crowded reports whether a newcomer to a key's queue must be spilled. A queue may have as many records as memory has
// places left. Then one busy address takes half of them, two take a third each, and a queue that is short because it
// moves always finds a place (the dynamic threshold of shared-memory switches, Choudhury and Hahne 1998). Newcomers do
// not go before records of their key that are spilled.
func (s *schedule) crowded(l int, at token, rec *record) bool {
	length := int(s.levels[l].queues[at.key].length)
	switch {
	case rec.is(refilled):
		return length >= s.part(againShare) && time.Duration(length)*s.levels[l].intervalOf(at, s.now) >= againAfter
	}
	return length >= s.cfg.MaxWaiting-s.waiting() || s.later.held > 0 && s.levels[l].tails[at.key] > s.now
}

// spillTurn spills a record that would wait at a level, until its turn there.
func (s *schedule) spillTurn(rec record, l int) {
	if s.later.held == 0 {
		for _, level := range s.levels {
			if level != nil {
				clear(level.tails)
			}
		}
	}
	turn := s.levels[l].estimate(s.token(l, &rec), s.now, s.cfg.MaxWaiting)
	s.check(s.later.put(s.spill, turn, s.now, rec))
}

// estimate is when a record that is spilled now will have its turn. It remembers estimates for at most maxTails keys:
// records of further keys come back too early, and wait in memory.
func (l *level) estimate(t token, now time.Duration, maxTails int) time.Duration {
	k := t.key
	length := time.Duration(l.queues[k].length)
	interval := min(l.intervalOf(t, now), farthest/(1+length))
	turn := min(farthest, max(now, l.next(t)+length*interval, l.tails[k])+interval)
	if len(l.tails) >= maxTails && now >= l.swept+sweepEvery {
		l.swept = now
		for other, tail := range l.tails {
			if tail <= now {
				delete(l.tails, other)
			}
		}
	}
	if _, known := l.tails[k]; known || len(l.tails) < maxTails {
		l.tails[k] = turn
	}
	return turn
}

// mayRefill reports whether refill has something to do.
func (s *schedule) mayRefill() bool {
	if s.stopping || s.slots.empty() || s.backlogged() {
		return false
	}
	return s.mayReadTurns() || s.mayReadSleepers()
}

// refill brings spilled records back where there is room for them.
func (s *schedule) refill() {
	switch queued := s.queued(); {
	case queued < s.part(emptyShare):
		s.refilling = true
	case queued >= s.part(filledShare):
		s.refilling = false
	}
	if !s.mayRefill() {
		return
	}
	s.readTurns()
	s.readSleepers()
	s.look()
}

// mayReadTurns reports whether the next records that wait for their turn may come back: they are due, or memory is
// nearly empty. Newcomers leave places for them, and records that are fetched soon make room.
func (s *schedule) mayReadTurns() bool {
	first := s.later.first()
	return first != nil && (s.refilling || first.from <= s.now) && s.queued() < s.part(queueShare) &&
		s.waiting() < s.cfg.MaxWaiting
}

func (s *schedule) readTurns() {
	s.read(&s.later, s.mayReadTurns, func(rec record) {
		rec.set(refilled, true)
		s.resolveAgain(s.records.put(rec))
	})
}

// mayReadSleepers reports whether the next records that must not be fetched before a time may come back. All records of
// a bucket come back after its end, so that none takes a place in memory before its time.
func (s *schedule) mayReadSleepers() bool {
	first := s.sleepers.first()
	return first != nil && first.to <= s.now && s.waiting() < s.cfg.MaxWaiting
}

func (s *schedule) readSleepers() {
	s.read(&s.sleepers, s.mayReadSleepers, func(rec record) { s.resolveAgain(s.records.put(rec)) })
}

// read takes records out of the first buckets of a calendar while may returns true.
func (s *schedule) read(c *calendar, may func() bool, take func(record)) {
	for n := 0; n < refillAtOnce && may(); n++ {
		rec, ok, err := c.get(s.spill)
		if s.check(err); err != nil {
			return
		}
		if ok {
			take(rec)
		}
	}
}

// check ends the run for an error of the file.
func (s *schedule) check(err error) {
	if err != nil {
		s.end.run(err)
	}
}

// untilRefill is the time until a bucket is due.
func (s *schedule) untilRefill() time.Duration {
	next := time.Hour
	if first := s.later.first(); first != nil && first.from > s.now {
		next = min(next, first.from-s.now)
	}
	if first := s.sleepers.first(); first != nil && first.to > s.now {
		next = min(next, first.to-s.now)
	}
	return next
}
