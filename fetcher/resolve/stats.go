package resolve

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Stats are a Resolver's counts since it was made. While it works, two counts may not be consistent with each other.
type Stats struct {
	Lookups   uint64 // without those of local names
	CacheHits uint64 // look-ups answered from the cache
	Shared    uint64 // look-ups answered by another look-up of the same name in flight
	Strangers uint64 // packets that answered no question in flight: late, forged or invalid
	Servers   []ServerStats

	// Took is a histogram of the look-ups that asked servers, by how long they took. Took[i] counts those above
	// TookBounds[i-1], up to TookBounds[i]; the last element those above all bounds. TookSum is their total time.
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
	Questions uint64 // sent, repetitions included
	Answers   uint64 // received, failures included
	// answers other than addresses and their absence: SERVFAIL, REFUSED, malformed …, and failures by TCP
	Failures uint64
	Unheard  uint64  // questions given up without an answer
	TCP      uint64  // questions repeated by TCP, because the answer was truncated
	Rate     float64 // most questions a second: its share of Options.Rate, less while it refuses too many; +Inf: no limit
	Down     bool    // it answered neither several questions in a row nor a probe; it is asked only now and then
}

// counters are the source of Stats.
type counters struct {
	lookups, cacheHits, shared, unexpected atomic.Uint64

	took    [len(TookBounds) + 1]atomic.Uint64
	tookSum atomic.Int64
}

// count counts a look-up that asked servers.
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
		Lookups: c.lookups.Load(), CacheHits: c.cacheHits.Load(), Shared: c.shared.Load(),
		Strangers: c.unexpected.Load(), TookSum: time.Duration(c.tookSum.Load()),
	}
	for i := range c.took {
		s.Took[i] = c.took[i].Load()
	}
	for _, server := range r.servers {
		s.Servers = append(s.Servers, ServerStats{
			Addr: server.addr, Questions: server.questions.Load(), Answers: server.answers.Load(),
			Failures: server.failures.Load(),
			Unheard:  server.unheard.Load(), TCP: server.tcp.Load(), Down: server.isDown.Load(),
			Rate: server.pacer.rate(),
		})
	}
	return s
}
