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
	answers map[string]Answer
	flights map[string]*flight
}

// flight is one look-up in flight. answer and good may be read once done is closed.
type flight struct {
	name   string
	done   chan struct{} // made for the first follower; until then guarded by shard.mu
	answer Answer
	good   bool // the answer is valid for followers
}

func newCache(size int) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	c.bound = (size + len(c.shards) - 1) / len(c.shards)
	for i := range c.shards {
		c.shards[i].answers = make(map[string]Answer)
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
	if answer, ok := s.answers[host]; ok {
		if now.Before(answer.Until) {
			return answer, nil, false
		}
		delete(s.answers, host)
	}
	if f, ok := s.flights[host]; ok {
		if f.done == nil {
			f.done = make(chan struct{})
		}
		return Answer{}, f, false
	}
	f := &flight{name: strings.Clone(host)}
	s.flights[f.name] = f
	return Answer{}, f, true
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
	delete(s.flights, f.name)
	if good && (answer.Outcome == 0 || answer.Outcome == exchange.DNSNotFound) && !answer.Until.IsZero() {
		// If the shard is full, any other answer goes. A scan asks about most names once or within seconds, so the
		// choice hardly matters.
		for old := range s.answers {
			if len(s.answers) < c.bound {
				break
			}
			delete(s.answers, old)
		}
		cached := answer
		cached.Took = 0
		s.answers[f.name] = cached
	}
	f.answer, f.good = answer, good
	if f.done != nil {
		close(f.done)
	}
}
