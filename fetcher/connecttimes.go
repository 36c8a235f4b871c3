package fetcher

import (
	"sync"
	"time"
)

const (
	// If another address follows, connecting to an address may take this long at least: a lost first packet is sent
	// again after one second. Where connecting is slow, it may take shareOfConnects times the 95th percentile.
	leastConnect    = 2 * time.Second
	shareOfConnects = 3

	connectStep   = 100 * time.Millisecond
	connectBound  = 64   // steps; a longer time counts as this
	enoughSamples = 100  // with fewer, the percentile is not used
	manySamples   = 4096 // at this number, all counts are halved, so that recent hosts count more
)

// connectTimes is a histogram of how long connecting took, in which old times fade. It is safe for use by many
// goroutines; the zero value is empty.
type connectTimes struct {
	mu     sync.Mutex
	counts [connectBound]int // by steps, rounded up
	all    int
}

// add counts one established connection.
func (c *connectTimes) add(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[min(max(0, took-1)/connectStep, connectBound-1)]++
	if c.all++; c.all < manySamples {
		return
	}
	c.all = 0
	for i := range c.counts {
		c.counts[i] /= 2
		c.all += c.counts[i]
	}
}

// share returns how long connecting to an address may take before the host's next address is tried.
func (c *connectTimes) share() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all < enoughSamples {
		return leastConnect
	}
	below, i := c.counts[0], 0
	for below*20 < c.all*19 {
		i++
		below += c.counts[i]
	}
	return max(leastConnect, shareOfConnects*time.Duration(i+1)*connectStep)
}
