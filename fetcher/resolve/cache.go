package resolve

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// cache holds answers until they expire, and the look-ups in flight. It has shards, so that thousands of concurrent
// look-ups do not contend for one lock.
type cache struct {
	seed   maphash.Seed
	bound  int // of each shard
	shards [64]shard
}

type shard struct {
	mu      sync.Mutex
	flights map[string]*flight // by name: in flight, and cached
	cached  []*flight          // in a ring, those replaced in flights included
	oldest  int                // in cached, when the ring is full
}

// flight is one look-up in flight, and then its cached answer. answer and good may be read once done is closed.
type flight struct {
	name   string
	landed bool          // answer is cached; guarded by shard.mu
	done   chan struct{} // made for the first follower; until then guarded by shard.mu
	answer Answer
	good   bool // the answer is valid for followers
}

func newCache(size int) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	c.bound = (size + len(c.shards) - 1) / len(c.shards)
	for i := range c.shards {
		c.shards[i].flights = make(map[string]*flight)
	}
	return c
}

func (c *cache) shard(host string) *shard {
	return &c.shards[maphash.String(c.seed, host)%uint64(len(c.shards))]
}

// begin returns the cached answer about a host; or else its flight, and whether the caller leads the flight and must
// finish it. A caller that does not lead is a follower.
func (c *cache) begin(host string, now time.Time) (Answer, *flight, bool) {
	s := c.shard(host)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[host]
	switch {
	case f == nil || f.landed && !now.Before(f.answer.Until):
		f = &flight{name: strings.Clone(host)}
		s.flights[f.name] = f
		return Answer{}, f, true
	case f.landed:
		cached := f.answer
		cached.Took = 0
		return cached, nil, false
	case f.done == nil:
		f.done = make(chan struct{})
	}
	return Answer{}, f, false
}

// wait waits for the flight's answer. gaveUp reports that ctx ended first.
func (f *flight) wait(ctx context.Context) (answer Answer, gaveUp bool) {
	select {
	case <-f.done:
		return f.answer, false
	case <-ctx.Done():
		return failed(exchange.DNSTimeout, exchange.CauseDNSTimeout), true
	}
}

// finish ends a flight with its answer. If good is false, the answer is only the leader's, and followers begin again.
// Addresses and their absence are cached. Failures of servers are not, because the next attempt may succeed.
func (c *cache) finish(f *flight, answer Answer, good bool) {
	s := c.shard(f.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.answer, f.good = answer, good
	if f.landed = good && (answer.Outcome == 0 || answer.Outcome == exchange.DNSNotFound) &&
		!answer.Until.IsZero(); f.landed {
		s.keep(f, c.bound)
	} else {
		delete(s.flights, f.name)
	}
	if f.done != nil {
		close(f.done)
	}
}

// keep keeps a cached answer. If the shard is full, the oldest one goes: a scan asks about most names once or within
// seconds, so the choice hardly matters.
func (s *shard) keep(f *flight, bound int) {
	if len(s.cached) < bound {
		s.cached = append(s.cached, f)
		return
	}
	if old := s.cached[s.oldest]; s.flights[old.name] == old {
		delete(s.flights, old.name)
	}
	s.cached[s.oldest] = f
	s.oldest = (s.oldest + 1) % bound
}
