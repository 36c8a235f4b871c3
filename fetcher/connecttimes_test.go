package fetcher

import (
	"sync"
	"testing"
	"time"
)

func TestShareOfConnectTimes(t *testing.T) {
	type some struct {
		n    int
		took time.Duration
	}
	f := func(name string, want time.Duration, samples ...some) {
		t.Helper()
		var c connectTimes
		for _, s := range samples {
			for range s.n {
				c.add(s.took)
			}
		}
		if got := c.share(); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	f("no samples", 2*time.Second)
	f("too few samples", 2*time.Second, some{99, 5 * time.Second})
	f("fast hosts", 2*time.Second, some{1000, 30 * time.Millisecond})
	f("slow hosts", 3*time.Second, some{1000, time.Second})
	f("few slow ones", 2*time.Second, some{950, 0}, some{50, 5 * time.Second})
	f("a few more", 15*time.Second, some{949, 0}, some{51, 5 * time.Second})
	f("off the scale", 3*64*100*time.Millisecond, some{1000, time.Hour})
	f("a clock set back", 2*time.Second, some{1000, -time.Second})
	f("slow hosts of late", 6*time.Second, some{1_000_000, 0}, some{2 * manySamples, 2 * time.Second})
	f("slow hosts long ago", 2*time.Second, some{1_000_000, 2 * time.Second}, some{5 * manySamples, 0})
}

func TestConnectTimesAreShared(t *testing.T) {
	var c connectTimes
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				c.add(time.Second)
				if got := c.share(); got != leastConnect && got != 3*time.Second {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	all.Wait()
	if c.all >= manySamples || c.counts[9] != c.all {
		t.Errorf("%d samples, %d of one second", c.all, c.counts[9])
	}
}
