package pipeline

import (
	"math"
	"net/netip"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// record is an origin that waits: for an address, for its turn, for a retry. There may be hundreds of thousands, so a
// record takes 136 bytes at most and holds no body, no buffer and no goroutine.
type record struct {
	seq    uint64
	origin origin.Origin // as listed
	input  string
	label  string
	rank   int64

	trail *exchange.Trail // redirects of the current attempt
	spent time.Duration   // in exchanges so far

	addr  [16]byte // to dial, IPv4 mapped; all zero where there is none
	until uint32   // when addr expires, in seconds since the run began; 0: never
	dns   uint32   // how long the look-up took, in microseconds

	next ref // the record behind this one in a queue

	scheme   origin.Scheme // of the current attempt's first exchange
	attempts uint8
	later    uint8
	https    exchange.Failure
	http     exchange.Failure
	failed   exchange.Failure // of the look-up
	skip     uint8            // Target.Skip
	waited   uint8            // Target.Waited
	unmet    exchange.Outcome // Target.Unmet
	spoilt   uint8            // exchanges that a stall has spoilt, at most maxSpoilt
	flags    flags
}

// flags are the yes-or-no facts of a record.
type flags uint8

const (
	resolving     flags = 1 << iota // it is being resolved again; the schedule expects it back
	moreAddresses                   // the host is known to have another address behind addr
	refilled                        // it was read back from the spill file, and has its place in memory
)

func (r *record) is(f flags) bool { return r.flags&f != 0 }

func (r *record) set(f flags, to bool) {
	r.flags &^= f
	if to {
		r.flags |= f
	}
}

// knownSilent reports whether the host's last attempt by either scheme timed out: the next exchange is overdue from the
// start.
func (r *record) knownSilent() bool {
	return r.trail == nil && (timedOut(r.https) || timedOut(r.http))
}

func timedOut(f exchange.Failure) bool {
	return f.Outcome == exchange.Timeout || f.Outcome == exchange.ConnectTimeout
}

// ref names a record in the slab; 0 names none.
type ref uint32

func newRecord(e Entry) record {
	return record{seq: e.Seq, origin: e.Origin, input: e.Input, label: e.Label, rank: e.Rank}
}

// target is the next target: where the last redirect led, or the origin itself.
func (r *record) target() exchange.Target {
	t := exchange.Target{Origin: r.origin.As(r.scheme)}
	if r.trail != nil {
		t = r.trail.Target
	}
	t.Skip, t.Waited, t.Unmet = r.skip, r.waited, r.unmet
	return t
}

// spoil counts an exchange that a stall has spoilt, and reports whether it may be made again.
func (r *record) spoil() bool {
	if r.spoilt == maxSpoilt {
		return false
	}
	r.spoilt++
	return true
}

func (r *record) past() exchange.Past {
	return exchange.Past{
		Trail: r.trail, Spent: r.spent, Scheme: r.scheme, Attempts: r.attempts, Later: r.later, HTTPS: r.https, HTTP: r.http,
	}
}

// setNext notes the past after an exchange, and the next target.
func (r *record) setNext(past exchange.Past, target exchange.Target) {
	r.trail, r.spent, r.scheme, r.attempts, r.later = past.Trail, past.Spent, past.Scheme, past.Attempts, past.Later
	if r.trail == nil {
		r.scheme = target.Origin.Scheme() // the Past of an origin that made no attempt yet has none
	}
	r.https, r.http = past.HTTPS, past.HTTP
	r.skip, r.waited, r.unmet = target.Skip, target.Waited, target.Unmet
	r.addr, r.until, r.dns, r.failed = [16]byte{}, 0, 0, exchange.Failure{}
	r.set(refilled, false)
}

// setLookup notes the result of a look-up.
func (r *record) setLookup(l exchange.Lookup, begun time.Time) {
	r.addr, r.until = [16]byte{}, 0
	r.set(moreAddresses, l.More)
	if l.Addr.IsValid() {
		r.addr = l.Addr.As16()
	}
	if !l.Until.IsZero() {
		until := (l.Until.Sub(begun) + time.Second - 1) / time.Second // rounded up: 0 would be never
		r.until = uint32(min(max(1, until), math.MaxUint32))
	}
	r.dns = uint32(min(l.Took, time.Hour) / time.Microsecond)
	r.failed = exchange.Failure{Outcome: l.Outcome, Cause: l.Cause}
}

func (r *record) lookup(begun time.Time) exchange.Lookup {
	l := exchange.Lookup{More: r.is(moreAddresses), Outcome: r.failed.Outcome, Cause: r.failed.Cause,
		Took: time.Duration(r.dns) * time.Microsecond}
	if r.addr != ([16]byte{}) {
		l.Addr = netip.AddrFrom16(r.addr).Unmap()
	}
	if r.until != 0 {
		l.Until = begun.Add(time.Duration(r.until) * time.Second)
	}
	return l
}

// slab holds the waiting records in blocks: growing copies nothing, and a ref stays valid.
type slab struct {
	blocks [][]record
	free   ref // head of the free list, linked by next
	used   int
	fresh  ref // the lowest ref never used
}

const slabBlock = 1024

func newSlab() *slab { return &slab{fresh: 1} }

func (s *slab) at(i ref) *record { return &s.blocks[i/slabBlock][i%slabBlock] }

// put stores a record and returns its ref.
func (s *slab) put(r record) ref {
	i := s.free
	if i != 0 {
		s.free = s.at(i).next
	} else {
		i = s.fresh
		s.fresh++
		if int(i/slabBlock) == len(s.blocks) {
			s.blocks = append(s.blocks, make([]record, slabBlock))
		}
	}
	r.next = 0
	*s.at(i) = r
	s.used++
	return i
}

// take removes a record.
func (s *slab) take(i ref) record {
	p := s.at(i)
	r := *p
	*p = record{next: s.free}
	s.free = i
	s.used--
	r.next = 0
	return r
}

// fifo is a list of waiting records, linked through the slab.
type fifo struct{ head, tail ref }

func (f *fifo) push(i ref, records *slab) {
	records.at(i).next = 0
	if f.tail == 0 {
		f.head = i
	} else {
		records.at(f.tail).next = i
	}
	f.tail = i
}

func (f *fifo) pop(records *slab) ref {
	i := f.head
	p := records.at(i)
	f.head, p.next = p.next, 0
	if f.head == 0 {
		f.tail = 0
	}
	return i
}
