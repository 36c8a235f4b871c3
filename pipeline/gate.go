package pipeline

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// gate is where an exchange starts, and where the rates are kept. The schedule decides who is next and sends them off
// at the rate, but a worker that is woken on a busy machine runs when its processor has time for it, a tenth of a
// second later or more, and by then the next are on their way: what left at the rate starts in bunches. So whoever is
// about to start an exchange passes the gate, right before the dial. The gate counts what really
// starts, and holds back who would be too early.
//
// It is GCRA once more, by key, in tables of fixed size, but over starts, and many goroutines use it: each step is one
// compare-and-swap. There is no lock, because a lock may be handed on together with the processor, and then its former
// holder's exchange would start late of what was counted.
type gate struct {
	lanes [numLevels]*lane // nil where there is no limit
}

func newGate(c *Config) *gate {
	address := newLane(c.IPRate, tableSlots)
	if address == nil {
		address = laneOf(0, minSlack, tableSlots) // for addresses that are slowed
	}
	return &gate{[numLevels]*lane{
		byHost:    newLane(c.HostRate, tableSlots),
		byAddress: address,
		inAll:     newLane(c.Rate, 1),
	}}
}

// lane is one level's part of the gate.
type lane struct {
	interval time.Duration // as configured, 0 for no limit; what counts is a token's
	slack    time.Duration
	mask     uint64
	due      []atomic.Int64 // when the next exchange of a slot may start, since the run began
	patience uint32         // how many may wait at the gate for a key before the schedule sends no more
	pause    time.Duration  // for how long it sends no more
	waiting  atomic.Int32   // at all keys
	mu       sync.Mutex
	queues   map[key]uint32 // how many wait at a key; most of the time nobody waits anywhere
}

// promises are what is promised of a rate R, in windows of time, counted where requests arrive: never more than 1.1 R + 1
// in any second, nor 10 R + 1 in any ten.
var promises = [...]struct {
	window time.Duration
	times  float64 // the rate, and one more
}{
	{time.Second, 1.1},
	{10 * time.Second, 10},
}

const (
	// sway is how much the way from the start of an exchange to its arrival may differ between exchanges: what arrives
	// in a time w has started in a time w + sway. On a machine whose processors are busy it is tens of milliseconds.
	sway = 110 * time.Millisecond

	// A lateness of ours is made good if it is below the slack, which is between these. Timers and processors are late
	// by some milliseconds all the time: without any, a rate of thousands a second would come out at half of what it
	// says. More than the greatest would be felt as a burst.
	minSlack = 20 * time.Millisecond
	maxSlack = 80 * time.Millisecond

	maxInterval = 100 * 365 * 24 * time.Hour / 64 // a year and a half: no sum of intervals overflows
)

// pace is the time from one exchange to the next for a rate of so many a second, and the lateness that may be made good.
// They let at most (w + sway + slack) / interval + 1 exchanges start in a time w + sway, so that the promises hold where
// tooMany intervals do not fit into that time. The interval is 1/R where that leaves a slack, as it does up to seven a
// second, and longer by 2.7 % at most.
func pace(perSecond float64) (interval, slack time.Duration) {
	seconds := 1 / perSecond
	for _, p := range promises {
		seconds = max(seconds, (p.window+sway+minSlack).Seconds()/tooMany(perSecond, p.times))
	}
	interval = time.Duration(min(math.Ceil(seconds*float64(time.Second)), float64(maxInterval)))
	slack = maxSlack
	for _, p := range promises {
		if room := tooMany(perSecond, p.times) * float64(interval); room < float64(p.window+sway+maxSlack) {
			slack = min(slack, time.Duration(room)-p.window-sway)
		}
	}
	return interval, slack - 1
}

// tooMany is the least number of intervals that must not fit into a window and what belongs to it.
func tooMany(perSecond, times float64) float64 { return math.Floor(times*perSecond) + 1 }

// gateDepth bounds the exchanges that wait at the gate for one key, each with its tray: those of so long, one at least.
const gateDepth = 200 * time.Millisecond

// newLane returns nil for a rate that is no limit: 0, or without end.
func newLane(perSecond float64, slots int) *lane {
	if perSecond <= 0 || math.IsInf(perSecond, 1) {
		return nil
	}
	interval, slack := pace(perSecond)
	return laneOf(interval, slack, slots)
}

func laneOf(interval, slack time.Duration, slots int) *lane {
	return &lane{
		interval: interval,
		slack:    slack,
		mask:     uint64(slots - 1),
		due:      make([]atomic.Int64, slots),
		patience: uint32((gateDepth + interval - 1) / max(1, interval)),
		pause:    max(interval, 5*time.Millisecond),
		queues:   make(map[key]uint32),
	}
}

// enter returns when an exchange may start, which is at once unless the machine was late with others. It returns, too,
// when the run's context ends.
func (r *run) enter(tokens *[numLevels]token) {
	for {
		l, wait := r.gate.pass(tokens, time.Since(r.begun))
		if wait <= 0 {
			return
		}
		lane := r.gate.lanes[l]
		timer := time.NewTimer(wait + lane.join(tokens[l]))
		select {
		case <-timer.C:
		case <-r.ctx.Done():
		}
		timer.Stop()
		lane.leave(tokens[l].key)
		if r.ctx.Err() != nil {
			return
		}
		if r.woken != nil {
			r.woken()
		}
	}
}

// pass counts a start now at each level, if all of them allow it; else none, and it returns the level that is in the
// way and for how long it will be. Nearly always a look is enough to see that it is too early.
func (g *gate) pass(tokens *[numLevels]token, now time.Duration) (level int, wait time.Duration) {
	for l, lane := range g.lanes {
		if lane == nil {
			continue
		}
		if w := time.Duration(lane.slot(tokens[l].key).Load()) - now; w > wait {
			level, wait = l, w
		}
	}
	if wait > 0 {
		return level, wait
	}
	return g.count(tokens, now)
}

// count is pass without the look: it takes back what it has counted at earlier levels where a later one does not allow
// the start, which is in the way of others for that moment.
func (g *gate) count(tokens *[numLevels]token, now time.Duration) (level int, wait time.Duration) {
	for l, lane := range g.lanes {
		if lane == nil {
			continue
		}
		if w := lane.take(tokens[l], now); w > 0 {
			for k, before := range g.lanes[:l] {
				if before != nil {
					before.giveBack(tokens[k])
				}
			}
			return l, w
		}
	}
	return 0, 0
}

func (l *lane) slot(k key) *atomic.Int64 { return &l.due[uint64(k)&l.mask] }

// take counts a start, or says how long it is too early.
func (l *lane) take(t token, now time.Duration) (wait time.Duration) {
	slot := l.slot(t.key)
	for {
		due := slot.Load()
		if wait := time.Duration(due) - now; wait > 0 {
			return wait
		}
		if slot.CompareAndSwap(due, max(due, int64(now-l.slack))+int64(t.interval)) {
			return 0
		}
	}
}

// giveBack undoes take. Whoever came in between has found the slot later than it is, and is at worst late.
func (l *lane) giveBack(t token) { l.slot(t.key).Add(-int64(t.interval)) }

// join notes that somebody waits at a key, and returns for how long beyond the next start, which those share who wait
// there already. Not for as long as they will take: whoever is woken late misses a start, and it takes some others that
// try meanwhile to make use of it. Nor do all wake at once, if they are many.
func (l *lane) join(t token) time.Duration {
	l.waiting.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.queues[t.key]
	l.queues[t.key] = before + 1
	return time.Duration(before) * t.interval / 8
}

func (l *lane) leave(k key) {
	l.waiting.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.queues[k]; n > 1 {
		l.queues[k] = n - 1
	} else {
		delete(l.queues, k)
	}
}

// crowded reports whether so many wait at a key that nobody else should be sent there. The schedule asks it.
func (l *lane) crowded(k key) bool {
	if l.waiting.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[k] >= l.patience
}
