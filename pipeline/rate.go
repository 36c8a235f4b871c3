package pipeline

import (
	"hash/maphash"
	"time"
)

// level is one kind of rate: by host, by address, or in all. For each key it remembers when the next exchange is due
// (the theoretical arrival time of GCRA, with no burst), in a table of fixed size: keys that share a slot delay each
// other by an interval, which at 2²⁰ slots and 10,000 exchanges a second befalls about one in a hundred, and nobody is
// ever early.
//
// Queues exist only where somebody waits, and are kept by key, not by slot: a queue may last long, and must be nobody
// else's. A queue is claimed while a record that has had its turn here waits at a later level: nobody else may pass
// before it has been asked, so that the spacing at the earlier level holds.
type level struct {
	interval time.Duration
	ahead    uint32 // how many of a queue may be out, or back, at once: those of a second
	seed     maphash.Seed
	mask     uint64
	due      []time.Duration // since the run began
	queues   map[key]queue
}

// key stands for a host or an address: a hash of it, of 64 bits, so that two that wait at once never share one. Its
// low bits are its slot in the table.
type key uint64

// queue is a list of waiting records, first in, first out, linked through the slab. Those whose turn is near and whose
// address is too old are out to have it asked again; when they are back they go before the others.
type queue struct {
	back, line fifo
	length     uint32 // of both
	out        uint32 // of the line, not back yet
	ahead      uint32 // those that are out, and those that are back
	claimed    bool
	armed      bool // there is an event for it
}

// slots of a table of keys, 8 MiB.
const tableSlots = 1 << 20

const (
	maxInterval = 100 * 365 * 24 * time.Hour / 64 // a year and a half: no sum of intervals overflows
	maxAhead    = 1024
)

// newLevel returns nil for a rate that is no limit.
func newLevel(perSecond float64, slots int) *level {
	if perSecond <= 0 {
		return nil
	}
	interval := time.Duration(min(float64(time.Second)/perSecond, float64(maxInterval)))
	if interval <= slack {
		interval += interval / 100 // see spend
	}
	return &level{
		interval: interval,
		ahead:    uint32(min(maxAhead, 1+time.Second/max(1, interval))),
		seed:     maphash.MakeSeed(), // random, so that nobody can choose names that share a key
		mask:     uint64(slots - 1),
		due:      make([]time.Duration, slots),
		queues:   make(map[key]queue),
	}
}

func (l *level) keyOf(b []byte) key       { return key(maphash.Bytes(l.seed, b)) }
func (l *level) keyOfString(s string) key { return key(maphash.String(l.seed, s)) }

// slot is where the table has a key.
func (l *level) slot(k key) *time.Duration { return &l.due[uint64(k)&l.mask] }

// free reports whether a newcomer may pass at once.
func (l *level) free(k key, now time.Duration) bool {
	if *l.slot(k) > now {
		return false
	}
	_, waiting := l.queues[k]
	return !waiting
}

// claim keeps the key for a record that waits at a later level.
func (l *level) claim(k key) {
	q := l.queues[k]
	q.claimed = true
	l.queues[k] = q
}

// push puts a record at the queue's end, or behind those that are back.
func (l *level) push(k key, i ref, back bool, records *slab) {
	q := l.queues[k]
	if back {
		q.out--
		q.back.push(i, records)
	} else {
		q.line.push(i, records)
	}
	q.length++
	l.queues[k] = q
}

// pop takes the record whose turn it is, and claims the key for it.
func (l *level) pop(k key, records *slab) ref {
	q := l.queues[k]
	from := &q.line
	if q.back.head != 0 {
		from = &q.back
		q.ahead--
	}
	i := from.pop(records)
	q.length--
	q.claimed = true
	l.queues[k] = q
	return i
}

// popOut takes the first of the line, which is out from now on.
func (l *level) popOut(k key, records *slab) ref {
	q := l.queues[k]
	i := q.line.pop(records)
	q.length--
	q.out++
	q.ahead++
	l.queues[k] = q
	return i
}

// release ends a claim.
func (l *level) release(k key) {
	if q, ok := l.queues[k]; ok {
		q.claimed = false
		l.put(k, q)
	}
}

// lose notes that a record which is out will not come back.
func (l *level) lose(k key) {
	q := l.queues[k]
	q.out--
	q.ahead--
	l.put(k, q)
}

// put stores a queue, or forgets it where nothing is left of it.
func (l *level) put(k key, q queue) {
	if q.length == 0 && q.out == 0 && !q.claimed && !q.armed {
		delete(l.queues, k)
		return
	}
	l.queues[k] = q
}

// spend notes that an exchange happens now. Where its record came off this level's queue, a lateness of ours below
// slack does not slow the queue down: the next is due an interval after this one was due.
//
// What that allows: in a window of time W at most (W + slack) / interval + 1 exchanges. Where the interval is longer
// than slack, that is W × rate + 1. Where it is shorter, the interval is a hundredth longer than the rate asks for, and
// it is at most 10 × rate + 1 in any ten seconds and 1.07 × rate + 1 in any one.
func (l *level) spend(k key, now time.Duration, queued bool) {
	from := now
	if queued {
		from -= slack
	}
	due := l.slot(k)
	*due = max(*due, from) + l.interval
}

// slack bounds the lateness that a queue may make good. Timers and processors are late by some milliseconds all the
// time: without it, a rate of thousands a second came out at half of what it said.
const slack = 80 * time.Millisecond
