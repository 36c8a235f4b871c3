package fetcher

import (
	"sync"
	"time"
)

const (
	// An address behind which another is known may take the connection for so long at least: a lost first packet is sent
	// again after one second. It is longer where hosts are slow, or this machine is: so many times the 95th percentile.
	leastConnect    = 2 * time.Second
	shareOfConnects = 3

	connectStep   = 100 * time.Millisecond
	connectBound  = 64   // steps; what is longer counts as this long
	enoughSamples = 100  // with fewer, nothing is known of how long hosts take
	manySamples   = 4096 // at so many, each counts half: hosts of late matter most
)

// connectTimes is how long hosts took to take a connection: a histogram in which old times fade. It is safe for use by many
// goroutines; the zero value has seen nothing.
type connectTimes struct {
	mu     sync.Mutex
	counts [connectBound]int // by steps, rounded up
	all    int
}

// keep takes note of a connection that was taken.
func (c *connectTimes) keep(took time.Duration) {
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

// share is how long an address may be silent before the next one of its host is tried.
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
