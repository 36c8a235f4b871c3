package pipeline

import (
	"net/netip"
	"time"
)

// How a record gets its turn.
//
// A record with an address passes the levels in order: by host, by address, in all. It passes a level at once if its
// key is due and the key's queue is empty; otherwise it joins the queue. A record that has passed the last level takes
// a slot and spends a token at every level at that moment. Tokens are never reserved, so a queue behind a slow host
// does not hold up the address that the host shares with others.
//
// While a record waits at a later level, its keys at the earlier levels are claimed: at most one record of a host waits
// in the queues by address. Every step is O(1), however long a queue is.
//
// An exchange that is sent in time may start late, and the next one would be too early: see limiter.

// The levels, in the order in which records pass them.
const (
	byHost = iota
	byAddress
	inAll
	numLevels
)

// token returns a record's key at a level, with the pace of its rate.
func (s *schedule) token(level int, rec *record) token {
	l := s.levels[level]
	switch level {
	case byHost:
		name, p := rec.target().Origin.Host(), l.limit.pace
		if s.rates != nil {
			if domain, perSecond, ok := s.rates.Domain(name); ok {
				name, p = domain, paceOf(perSecond) // all hosts of the domain share one rate
			}
		}
		return token{l.keyOfString(name), p}
	case byAddress:
		network, p := networkOf(rec.addr), l.limit.pace
		if s.rates != nil {
			if perSecond, ok := s.rates.Address(netip.AddrFrom16(network).Unmap()); ok {
				p = paceOf(perSecond)
			}
		}
		return token{l.keyOf(network[:]), p}
	}
	return token{pace: l.limit.pace}
}

// backlogged reports whether the queue for the rate in all is so long that the addresses of more records would expire
// in it. Then no more of the list is read.
func (s *schedule) backlogged() bool {
	return s.levels[inAll] != nil && int(s.levels[inAll].queues[0].length) >= min(maxBacklog, 1+s.cfg.MaxWaiting/2)
}

const (
	maxBacklog = 256
	crowdedFor = 5 * time.Millisecond // until a crowded key is looked at again
)

// pass takes a record through the levels from the given one on. It holds the keys of the levels before.
func (s *schedule) pass(rec record, from int) {
	for l, level := range s.levels {
		switch {
		case level == nil:
			continue
		case l < from:
			if level.next(s.token(l, &rec)) > s.now {
				s.stepBack(rec, l)
				return
			}
			continue
		case level.free(s.token(l, &rec), s.now):
			continue
		}
		at := s.token(l, &rec)
		if from == 0 && s.crowded(l, at, &rec) {
			s.spillTurn(rec, l)
			return
		}
		for k := range l {
			if s.levels[k] != nil {
				s.levels[k].claim(s.token(k, &rec))
			}
		}
		level.push(at.key, s.records.put(rec), from > 0, s.records)
		s.arm(l, at.key)
		return
	}
	s.dispatch(rec)
}

// stepBack lets a record that has passed a level wait there again, before the others: an exchange of its key has
// started late meanwhile, or one of a key that shares the cell.
func (s *schedule) stepBack(rec record, l int) {
	for k, level := range s.levels {
		if level == nil {
			continue
		}
		at := s.token(k, &rec)
		switch {
		case k < l:
			level.claim(at)
		case k == l:
			level.release(at.key)
			level.pushFirst(at.key, s.records.put(rec), s.records)
			s.arm(k, at.key)
		default:
			s.release(k, at.key)
		}
	}
}

// arm makes the event that serves a key's queue, unless something else will. A key never has two events.
func (s *schedule) arm(l int, at key) {
	level := s.levels[l]
	q, ok := level.queues[at]
	if !ok || q.armed || q.claimed || q.length == 0 {
		return
	}
	q.armed = true
	level.queues[at] = q
	s.events.push(event{at: level.next(token{at, s.paceOf(l, &q)}), what: uint64(at), level: uint8(l)})
}

// dispatch gives a record a slot and sends it to a worker. That spends a token at every level. A record whose look-up
// failed makes no request and spends none.
func (s *schedule) dispatch(rec record) {
	t := s.slots.take(s.now)
	if rec.knownSilent() {
		s.slots.setOverdue(&t.flight)
	}
	t.record = rec
	if rec.failed.Outcome == 0 {
		t.sent = s.now
		for l, level := range s.levels {
			if level == nil {
				continue
			}
			t.tokens[l] = level.spend(s.token(l, &rec), s.now)
			s.release(l, t.tokens[l].key)
		}
		s.limiter.sent(&t.tokens)
	}
	s.out.asking <- t
}

// serveKey gives the key's turn to the first record of its queue.
func (s *schedule) serveKey(l int, at key) {
	level := s.levels[l]
	q := level.queues[at]
	q.armed = false
	level.put(at, q)
	p := s.paceOf(l, &q)
	for s.expiredFirst(&q) && q.ahead < p.ahead() {
		s.renewInTurn(s.records.take(level.popOut(at, s.records)), l, at)
		q = level.queues[at]
	}
	switch {
	case q.claimed || q.length == 0:
	case level.next(token{at, p}) > s.now:
		s.arm(l, at) // another record passed since the event was made
	case level.limit.crowded(token{at, p}):
		level.delay(at, s.now+crowdedFor)
		s.arm(l, at)
	case q.back.head != 0 || q.first() != nil && !s.expiredFirst(&q):
		s.pass(s.records.take(level.pop(at, s.records)), l+1)
	}
	// Else all records whose turn is near are being resolved; each that returns arms the key.
}

// paceOf is the pace of a queue's key: that of its first record.
func (s *schedule) paceOf(l int, q *queue) pace {
	i := q.back.head
	if line := q.first(); i == 0 && line != nil {
		i = line.head
	}
	if i == 0 || s.rates == nil {
		return s.levels[l].limit.pace
	}
	return s.token(l, s.records.at(i)).pace
}

// release ends a claim.
func (s *schedule) release(l int, at key) {
	s.levels[l].release(at)
	s.arm(l, at)
}

// expired reports whether a record's address must be resolved again before it is dialled.
func (s *schedule) expired(rec *record) bool {
	return rec.until != 0 && time.Duration(rec.until)*time.Second <= s.now && rec.failed.Outcome == 0
}

// expiredFirst reports whether the address of the first record in a key's queue has expired.
func (s *schedule) expiredFirst(q *queue) bool {
	line := q.first()
	return line != nil && s.expired(s.records.at(line.head))
}

// turn is the turn that a record was near when its address expired. Meanwhile its keys at earlier levels are claimed,
// the key at this level is not.
type turn struct {
	level int
	keys  [numLevels]key // up to that level's
}

// renewInTurn has the address of a record resolved again shortly before its turn. The record keeps its turn; otherwise
// a queue that lasts longer than addresses are valid would never move. The records behind it continue meanwhile;
// otherwise one look-up at a time would limit the rate.
func (s *schedule) renewInTurn(rec record, l int, at key) {
	t := turn{level: l}
	t.keys[l] = at
	for k := range l {
		if s.levels[k] != nil {
			t.keys[k] = s.token(k, &rec).key
		}
	}
	s.turns[rec.seq] = t
	s.resolveAgain(s.records.put(rec))
}

// takeTurn takes a record whose address was renewed. If the address is the same, the record is next at its level;
// otherwise it queues at the new address. The answer counts for this turn, however soon it expires.
func (s *schedule) takeTurn(rec record) {
	t := s.turns[rec.seq]
	delete(s.turns, rec.seq)
	failed := rec.failed.Outcome != 0
	moved := t.level >= byAddress && s.levels[byAddress] != nil && s.token(byAddress, &rec).key != t.keys[byAddress]
	switch {
	case failed:
		s.loseTurn(t, byHost)
		s.dispatch(rec)
	case moved:
		s.loseTurn(t, byAddress)
		s.pass(rec, byAddress)
	default:
		s.levels[t.level].pushBack(t.keys[t.level], s.records.put(rec), s.records)
		s.arm(t.level, t.keys[t.level])
	}
}

// loseTurn gives up a turn, and releases its keys at the levels from the given one up to its own.
func (s *schedule) loseTurn(t turn, from int) {
	s.levels[t.level].lose(t.keys[t.level])
	s.arm(t.level, t.keys[t.level])
	for l := from; l < t.level; l++ {
		if s.levels[l] != nil {
			s.release(l, t.keys[l])
		}
	}
}
