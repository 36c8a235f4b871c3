package resolve

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Stats are what a Resolver has counted since it was made. No two counts are consistent with each other while it works.
type Stats struct {
	Lookups   uint64 // asked of it, names that this machine knows itself left out
	CacheHits uint64 // of those, answered from the cache
	Shared    uint64 // of those, answered by another's look-up of the same name that was under way
	PutOff    uint64 // of those, put off because no server answered within the caller's patience
	Strangers uint64 // packets that were no answer to a question under way: late, forged or rubbish
	Servers   []ServerStats

	// Took counts the look-ups that asked servers by how long they took: Took[i] those of at most TookBounds[i] and more than
	// the bound before; the last those of more than all bounds. TookSum is the time of all of them together.
	Took    [len(TookBounds) + 1]uint64
	TookSum time.Duration
}

// TookBounds are the bounds of Stats.Took.
var TookBounds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

// ServerStats are the counts of one name server.
type ServerStats struct {
	Addr      netip.AddrPort
	Questions uint64  // sent, repetitions among them
	Answers   uint64  // that came to them, failures among them
	Failures  uint64  // answers other than addresses and their absence: SERVFAIL, REFUSED, malformed …, and what failed by TCP
	Unheard   uint64  // questions that were given up without an answer
	TCP       uint64  // questions put again by TCP, their answer having been truncated
	Rate      float64 // questions a second that it is asked at most: its share of Options.Rate, or less while it refuses too many; +Inf: any
	Down      bool    // it has left several questions in a row without an answer, that about the root among them; it is asked now and then
}

// counters are what Stats is read from.
type counters struct {
	lookups, cacheHits, shared, putOff, strangers atomic.Uint64

	took    [len(TookBounds) + 1]atomic.Uint64
	tookSum atomic.Int64
}

// count adds a look-up that asked servers.
func (c *counters) count(took time.Duration) {
	i := 0
	for i < len(TookBounds) && took > TookBounds[i] {
		i++
	}
	c.took[i].Add(1)
	c.tookSum.Add(int64(took))
}

// Stats returns the counts so far.
func (r *Resolver) Stats() Stats {
	c := &r.counters
	s := Stats{
		Lookups: c.lookups.Load(), CacheHits: c.cacheHits.Load(), Shared: c.shared.Load(), PutOff: c.putOff.Load(),
		Strangers: c.strangers.Load(), TookSum: time.Duration(c.tookSum.Load()),
	}
	for i := range c.took {
		s.Took[i] = c.took[i].Load()
	}
	for _, server := range r.servers {
		s.Servers = append(s.Servers, ServerStats{
			Addr: server.addr, Questions: server.questions.Load(), Answers: server.answers.Load(), Failures: server.failures.Load(),
			Unheard: server.unheard.Load(), TCP: server.tcp.Load(), Down: server.isDown.Load(),
			Rate: server.pacer.rate(),
		})
	}
	return s
}
