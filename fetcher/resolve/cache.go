package resolve

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// cache remembers answers until they must be asked again, and who is being asked about. It is split so that thousands
// of look-ups at once do not queue for one lock.
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

// flight is one look-up under way. answer and good may be read once done is closed.
type flight struct {
	name   string
	asked  atomic.Int64  // when its first question was sent, in nanoseconds since 1970; 0: not yet
	done   chan struct{} // made for the first who waits; until then guarded by shard.mu
	answer Answer
	good   bool
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

// begin returns the remembered answer about a host; or the flight that will bring one, and whether the caller leads it
// and must finish it.
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

// wait waits for the flight's answer, within a patience (0: without end) that begins when the first question is sent. It
// reports that the wait is over where it has not brought that: the patience has run out, or ctx has ended.
func (f *flight) wait(ctx context.Context, patience time.Duration) (answer Answer, over bool) {
	var timer *time.Timer
	var ran <-chan time.Time
	if patience > 0 {
		timer = time.NewTimer(patience)
		defer timer.Stop()
		ran = timer.C
	}
	began := time.Now()
	for {
		select {
		case <-f.done:
			return f.answer, false
		case <-ran:
			left := patience
			if asked := f.asked.Load(); asked != 0 {
				left -= min(time.Since(time.Unix(0, asked)), time.Since(began))
			}
			if left <= 0 {
				return Answer{PutOff: true}, true
			}
			timer.Reset(left)
		case <-ctx.Done():
			return failed(exchange.DNSTimeout, exchange.CauseDNSTimeout), true
		}
	}
}

// finish ends a flight with its answer. good is false where the answer is the leader's alone; whoever waits then begins
// anew. Answers of the zone are remembered; failures of servers are not, since the next try may find them well.
func (c *cache) finish(f *flight, answer Answer, good bool) {
	s := c.shard(f.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, f.name)
	if good && (answer.Outcome == 0 || answer.Outcome == exchange.DNSNotFound) && !answer.Until.IsZero() {
		// Full: drop any other. A scan asks about most names once or within seconds, so that which one hardly matters.
		for old := range s.answers {
			if len(s.answers) < c.bound {
				break
			}
			delete(s.answers, old)
		}
		remembered := answer
		remembered.Took = 0
		s.answers[f.name] = remembered
	}
	f.answer, f.good = answer, good
	if f.done != nil {
		close(f.done)
	}
}
