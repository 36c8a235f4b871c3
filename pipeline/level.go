package pipeline

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// level is one kind of rate: by host, by address, or in all. For each key it remembers when the next exchange may be
// sent (the theoretical arrival time of GCRA, with no burst), in a table of fixed size. Two keys that share a cell
// delay each other by an interval, of ten seconds at most (see rare): with 2²⁰ cells and 10,000 exchanges a second that
// happens to about one in a hundred. No exchange is ever early.
//
// Only keys with waiting records have a queue. Queues are kept by key, not by cell, because a queue may last long. A
// queue is claimed while a record that has had its turn here waits at a later level. No other record of the key may
// pass before that record's exchange, so that the spacing at this level holds.
type level struct {
	limit  *limit // this level's at the limiter
	seed   maphash.Seed
	apart  func(key) key         // may be nil: see Pipeline
	due    *table[time.Duration] // since the run began
	queues map[key]queue
	slowed map[key]slowed        // see throttled
	tails  map[key]time.Duration // the latest estimates of spilled records' turns
	swept  time.Duration         // when estimates that had passed were last forgotten
}

// token is what an exchange spends at a level: the key's next exchange starts an interval later. Before it is spent,
// the pace follows from the key's rate; afterwards it includes the slowing of the key.
type token struct {
	key key
	pace
}

// key stands for a host or an address: a hash of 64 bits, so that two waiting ones practically never share a key. Its
// low bits are its cell in the table.
type key uint64

// queue is a list of waiting records, linked through the slab. It has two FIFO lines that take turns: one for
// newcomers, and one for records that have waited at an earlier level. A record of the second kind blocks its earlier
// queue (see claimed), so it must not wait behind all newcomers. Records whose address expires shortly before their
// turn are out, to be resolved again. When they are back, they go first.
type queue struct {
	back        fifo
	lines       [2]fifo // newcomers, and records that have waited
	length      uint32  // of all three
	out         uint32  // records of the lines that are not back yet
	ahead       uint32  // out, and back
	waitersTurn bool    // before newcomers
	claimed     bool
	armed       bool // there is an event for it
}

// first is the line whose turn it is, or nil if both are empty.
func (q *queue) first() *fifo {
	newcomers, waiters := &q.lines[0], &q.lines[1]
	switch {
	case waiters.head != 0 && (q.waitersTurn || newcomers.head == 0):
		return waiters
	case newcomers.head != 0:
		return newcomers
	}
	return nil
}

// popLine takes the first of the line whose turn it is.
func (q *queue) popLine(records *slab) ref {
	line := q.first()
	q.waitersTurn = line == &q.lines[0]
	return line.pop(records)
}

const maxAhead = 1024

// newLevel returns the level of a limit, or nil.
func newLevel(limit *limit, apart func(key) key) *level {
	if limit == nil {
		return nil
	}
	return &level{
		limit:  limit,
		seed:   maphash.MakeSeed(), // random, so that names cannot be chosen to share a key
		apart:  apart,
		due:    newTable[time.Duration](limit.due.cells()),
		queues: make(map[key]queue),
		slowed: make(map[key]slowed),
		tails:  make(map[key]time.Duration),
	}
}

func (l *level) keyOf(b []byte) key       { return l.placed(key(maphash.Bytes(l.seed, b))) }
func (l *level) keyOfString(s string) key { return l.placed(key(maphash.String(l.seed, s))) }

func (l *level) placed(k key) key {
	if l.apart != nil {
		return l.apart(k)
	}
	return k
}

// NetworkOf returns the address for which a rate is kept. An IPv4 address stands for itself. An IPv6 address stands for
// its /64, the least that one customer is given (RFC 6177), since a server may use any address of that. An IPv6 address
// that embeds an IPv4 address stands for the embedded address; otherwise all of IPv4 behind NAT64 would be one network.
func NetworkOf(addr netip.Addr) netip.Addr {
	return netip.AddrFrom16(networkOf(addr.As16())).Unmap()
}

func networkOf(addr [16]byte) (network [16]byte) {
	if a := exchange.Embedded(netip.AddrFrom16(addr)); a.Is4() {
		return a.As16()
	}
	copy(network[:8], addr[:8])
	return network
}

// next is when the schedule may send the key's next exchange, never before the limiter's time: a record that waits here
// holds no slot, unlike one at the limiter.
func (l *level) next(t token) time.Duration {
	return max(*l.due.cell(t.key), l.limit.next(t))
}

// free reports whether a newcomer may pass at once.
func (l *level) free(t token, now time.Duration) bool {
	if l.next(t) > now || l.limit.crowded(t) {
		return false
	}
	_, waiting := l.queues[t.key]
	return !waiting
}

// claim reserves the key for a record that waits at a later level. A key without a rate needs no claim.
func (l *level) claim(t token) {
	if l.unlimited(t) {
		return
	}
	q := l.queues[t.key]
	q.claimed = true
	l.queues[t.key] = q
}

// push puts a record at the end of the line of newcomers, or of records that have waited at an earlier level.
func (l *level) push(k key, i ref, waited bool, records *slab) {
	q := l.queues[k]
	line := &q.lines[0]
	if waited {
		line = &q.lines[1]
	}
	line.push(i, records)
	q.length++
	l.queues[k] = q
}

// pushBack puts a record that was out behind those that are back.
func (l *level) pushBack(k key, i ref, records *slab) {
	q := l.queues[k]
	q.out--
	q.back.push(i, records)
	q.length++
	l.queues[k] = q
}

// pushFirst puts a record behind those that are back, and before all others.
func (l *level) pushFirst(k key, i ref, records *slab) {
	q := l.queues[k]
	q.ahead++
	q.back.push(i, records)
	q.length++
	l.queues[k] = q
}

// pop takes the record whose turn it is, and claims the key for it.
func (l *level) pop(k key, records *slab) (i ref) {
	q := l.queues[k]
	if q.back.head != 0 {
		i = q.back.pop(records)
		q.ahead--
	} else {
		i = q.popLine(records)
	}
	q.length--
	q.claimed = true
	l.queues[k] = q
	return i
}

// popOut takes the first record of the line, to be resolved again: it is out from now on.
func (l *level) popOut(k key, records *slab) ref {
	q := l.queues[k]
	i := q.popLine(records)
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

// lose notes that a record which is out will not return to its turn.
func (l *level) lose(k key) {
	q := l.queues[k]
	q.out--
	q.ahead--
	l.put(k, q)
}

// put stores a queue, or deletes it if it is empty.
func (l *level) put(k key, q queue) {
	if q.length == 0 && q.out == 0 && !q.claimed && !q.armed {
		delete(l.queues, k)
		return
	}
	l.queues[k] = q
}

// spend notes that an exchange was sent, and returns the token that it has spent. If records wait for the key, a
// lateness below the slack does not slow them down: the next exchange is due an interval after this one was due. An
// idle key gets no such credit, so that newcomers are spaced from the first. The limiter counts the complete interval
// of a rare key, when the exchange starts.
func (l *level) spend(t token, now time.Duration) token {
	t.interval = l.intervalOf(t, now)
	if q, ok := l.queues[t.key]; ok && q.length+q.out > 0 {
		now -= t.slack
	}
	due := l.due.cell(t.key)
	*due = max(*due, now) + min(t.interval, longestInCell)
	return t
}

// delay delays a key's next turn.
func (l *level) delay(k key, until time.Duration) {
	due := l.due.cell(k)
	*due = max(*due, until)
}
