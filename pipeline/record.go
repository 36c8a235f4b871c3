package pipeline

import (
	"math"
	"net/netip"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// record is an origin that waits: for an address, for its turn, for a later try. There may be hundreds of thousands,
// so it is 128 bytes with its link, and holds no body, no buffer and no goroutine.
type record struct {
	seq    uint64
	origin origin.Origin // as listed
	input  string
	label  string
	rank   int64

	trail *exchange.Trail // redirects of the current attempt
	spent time.Duration   // in exchanges so far

	addr  [16]byte // to dial, IPv4 mapped; all zero where there is none
	until uint32   // when addr must be asked again, in seconds since the run began; 0: never
	dns   uint32   // how long the look-up took, in microseconds

	next ref // the record behind this one in a queue

	scheme   origin.Scheme // by which the current attempt begins, or began
	waited   uint8         // see exchange.Target
	attempts uint8
	later    uint8
	https    exchange.Failure
	http     exchange.Failure
	failed   exchange.Failure // of the look-up
	flags    flags
	skip     uint8 // in the lower bits the addresses of the host to pass over, see exchange.Target; in the upper see spoil
}

// flags are what is either so or not so of a record.
type flags uint8

const (
	abroad   flags = 1 << iota // the schedule has sent it to be resolved again and counts on its return
	more                       // another address is known to stand behind addr
	refused                    // with unmet, in two bits Target.Unmet: unmet alone is connect_failed, this alone connect_timeout,
	unmet                      // and both are connect_refused
	deferred                   // its last exchange ran out of time: it is asked when nobody else wants a tray
	putOff                     // it was put off once, and is not again
	unheard                    // no name server has answered its last look-up: the next has all its time
	quiet                      // a look-up of it was put off once, and none is again: all that follow have all their time
)

func (r *record) is(f flags) bool { return r.flags&f != 0 }

func (r *record) set(f flags, to bool) {
	r.flags &^= f
	if to {
		r.flags |= f
	}
}

// ref names a record in the slab; 0 names none.
type ref uint32

func newRecord(e Entry) record {
	return record{seq: e.Seq, origin: e.Origin, input: e.Input, label: e.Label, rank: e.Rank}
}

// target is what to ask: where the last redirect led, or the origin itself.
func (r *record) target() exchange.Target {
	t := exchange.Target{Origin: r.origin.As(r.scheme)}
	if r.trail != nil {
		t = r.trail.Target
	}
	t.Skip, t.Waited = r.skip&skipMask, r.waited
	switch r.flags & (refused | unmet) {
	case refused | unmet:
		t.Unmet = exchange.ConnectRefused
	case unmet:
		t.Unmet = exchange.ConnectFailed
	case refused:
		t.Unmet = exchange.ConnectTimeout
	}
	return t
}

// skipMask has the bits of record.skip that are Target.Skip, which is below 32.
const skipMask = 1<<5 - 1

// spoil counts an exchange that a standstill has spoilt, and reports whether there may be another: maxSpoilt times it does.
func (r *record) spoil() bool {
	if r.skip>>5 == maxSpoilt {
		return false
	}
	r.skip += skipMask + 1
	return true
}

func (r *record) past() exchange.Past {
	return exchange.Past{
		Trail: r.trail, Spent: r.spent, Scheme: r.scheme, Attempts: r.attempts, Later: r.later, HTTPS: r.https, HTTP: r.http,
	}
}

// setNext notes what an exchange left behind and what is to be asked next.
func (r *record) setNext(past exchange.Past, target exchange.Target) {
	r.trail, r.spent, r.scheme, r.attempts, r.later = past.Trail, past.Spent, past.Scheme, past.Attempts, past.Later
	if r.trail == nil {
		r.scheme = target.Origin.Scheme() // also before the first attempt, of which the Past knows none
	}
	r.https, r.http = past.HTTPS, past.HTTP
	r.skip, r.waited = r.skip&^skipMask|target.Skip&skipMask, target.Waited
	r.set(unmet, target.Unmet == exchange.ConnectFailed || target.Unmet == exchange.ConnectRefused)
	r.set(refused, target.Unmet == exchange.ConnectTimeout || target.Unmet == exchange.ConnectRefused)
	r.addr, r.until, r.dns, r.failed = [16]byte{}, 0, 0, exchange.Failure{}
}

// setLookup notes what a look-up has brought. One that was put off has brought nothing: the address that was asked again is
// still known.
func (r *record) setLookup(l exchange.Lookup, begun time.Time) {
	if l.PutOff {
		r.set(unheard|quiet, true)
		return
	}
	r.addr, r.until = [16]byte{}, 0
	r.set(more, l.More)
	r.set(unheard, silent(&l))
	if l.Addr.IsValid() {
		r.addr = l.Addr.As16()
	}
	if !l.Until.IsZero() {
		until := (l.Until.Sub(begun) + time.Second - 1) / time.Second // up, or a short time would be none
		r.until = uint32(min(max(1, until), math.MaxUint32))
	}
	r.dns = uint32(min(l.Took, time.Hour) / time.Microsecond)
	r.failed = exchange.Failure{Outcome: l.Outcome, Cause: l.Cause}
}

func (r *record) lookup(begun time.Time) exchange.Lookup {
	l := exchange.Lookup{More: r.is(more), Outcome: r.failed.Outcome, Cause: r.failed.Cause, Took: time.Duration(r.dns) * time.Microsecond}
	if r.addr != ([16]byte{}) {
		l.Addr = netip.AddrFrom16(r.addr).Unmap()
	}
	if r.until != 0 {
		l.Until = begun.Add(time.Duration(r.until) * time.Second)
	}
	return l
}

// slab holds the records that wait, in blocks, so that growing never copies and a ref stays good.
type slab struct {
	blocks [][]record
	free   ref // head of the list of freed records, linked by next
	used   int
	fresh  ref // the lowest ref never given out
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
