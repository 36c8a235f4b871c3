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
	seed     maphash.Seed
	mask     uint64
	due      []time.Duration // since the run began
	queues   map[key]queue
}

// key stands for a host or an address: a hash of it, of 64 bits, so that two that wait at once never share one. Its
// low bits are its slot in the table.
type key uint64

// queue is a list of waiting records, first in, first out, linked through the slab.
type queue struct {
	head, tail ref
	length     uint32
	claimed    bool
}

// slots of a table of keys, 8 MiB.
const tableSlots = 1 << 20

// newLevel returns nil for a rate that is no limit.
func newLevel(perSecond float64, slots int) *level {
	if perSecond <= 0 {
		return nil
	}
	return &level{
		interval: time.Duration(float64(time.Second) / perSecond),
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

// push puts a record at the queue's end and reports whether the key needs an event to be served: the first in an
// unclaimed queue does.
func (l *level) push(k key, i ref, records *slab) (first bool) {
	q, waiting := l.queues[k]
	if q.tail == 0 {
		q.head = i
	} else {
		records.at(q.tail).next = i
	}
	q.tail = i
	q.length++
	l.queues[k] = q
	return !waiting
}

// pop takes the record whose turn it is, and claims the key for it.
func (l *level) pop(k key, records *slab) (i ref, ok bool) {
	q := l.queues[k]
	if q.claimed || q.head == 0 {
		return 0, false
	}
	i = q.head
	p := records.at(i)
	q.head, p.next = p.next, 0
	if q.head == 0 {
		q.tail = 0
	}
	q.length--
	q.claimed = true
	l.queues[k] = q
	return i, true
}

// release ends a claim, and reports whether somebody waits behind it.
func (l *level) release(k key) (waiting bool) {
	q, ok := l.queues[k]
	if !ok {
		return false
	}
	if q.head == 0 {
		delete(l.queues, k)
		return false
	}
	q.claimed = false
	l.queues[k] = q
	return true
}

// spend notes that an exchange happens now. Where its record came off this level's queue, a lateness of ours below the
// slack does not slow the queue down: the next is due an interval after this one was due. As the slack is less than an
// interval, no window of time W ever sees more than W × rate + 1 exchanges.
func (l *level) spend(k key, now time.Duration, queued bool) {
	from := now
	if queued {
		from -= min(l.interval/2, maxSlack)
	}
	due := l.slot(k)
	*due = max(*due, from) + l.interval
}

// maxSlack bounds the lateness that a queue may make good.
const maxSlack = 20 * time.Millisecond
