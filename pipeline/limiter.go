package pipeline

import (
	"math"
	"sync/atomic"
	"time"
)

// limiter is where an exchange starts, and where the rates are enforced. The schedule sends exchanges at the rate, but on a busy
// machine a worker runs a tenth of a second later or more, and what was sent at the rate starts in bunches. So a worker passes the
// limiter right before the dial. The limiter counts what really starts and delays what would be too early.
//
// It is GCRA (the generic cell rate algorithm) over starts, by key, in tables of fixed size. Many goroutines use it, so each step is
// one compare-and-swap. A lock could be passed on together with the processor; its former holder would then start late of what was
// counted.
type limiter struct {
	limits [numLevels]*limit // nil where there is no limit
}

func newLimiter(c *Config) *limiter {
	address := newLimit(c.IPRate, tableCells)
	if address == nil {
		address = limitOf(0, minSlack, tableCells) // for addresses that are slowed
	}
	return &limiter{[numLevels]*limit{
		byHost:    newLimit(c.HostRate, tableCells),
		byAddress: address,
		inAll:     newLimit(c.Rate, 1),
	}}
}

// limit is one level's part of the limiter.
type limit struct {
	interval  time.Duration // as configured, 0 for no limit; what counts is a token's
	slack     time.Duration
	due       *table[atomic.Int64] // when the next exchange of a cell may start, since the run began
	unstarted *table[atomic.Int32] // exchanges of a cell that were sent and have not started; few cells, most of them 0
	depth     int32                // how many of those there may be before the schedule sends no more
}

// promises hold for a rate R, counted where requests arrive: never more than 1.1 R + 1 in any second, nor 10 R + 1 in any ten.
var promises = [...]struct {
	window time.Duration
	times  float64 // the rate, and one more
}{
	{time.Second, 1.1},
	{10 * time.Second, 10},
}

const (
	// sway bounds how much the time from the start of an exchange to its arrival differs between exchanges: what arrives in a time
	// w has started in a time w + sway. On a machine whose processors are busy it is tens of milliseconds.
	sway = 110 * time.Millisecond

	// A start that is late by less than the slack is made up for. Timers and processors are late by some milliseconds all the
	// time: without any slack, a rate of thousands a second would come out at half of what it says. More than maxSlack would be
	// felt as a burst.
	minSlack = 20 * time.Millisecond
	maxSlack = 80 * time.Millisecond

	maxInterval = 100 * 365 * 24 * time.Hour / 64 // a year and a half: no sum of intervals overflows
)

// pace returns the interval between exchanges for a rate, and the lateness that may be made up for. At most
// (w + sway + slack) / interval + 1 exchanges start in a time w + sway, so the promises hold if tooMany intervals do not fit into
// that time. The interval is 1/R where that leaves a slack, which is so up to seven a second, and longer by 2.7 % at most.
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

// tooMany is the least number of intervals that must not fit into a window and its sway.
func tooMany(perSecond, times float64) float64 { return math.Floor(times*perSecond) + 1 }

const (
	// limitDepth bounds the exchanges of a key that were sent and have not started, each with its slot: those of so long, one at
	// least.
	limitDepth = 200 * time.Millisecond

	// unstartedCells is how many counters there are of these. Keys that share one may wait for each other for a moment.
	unstartedCells = 1 << 16
)

// newLimit returns nil for a rate that is no limit: 0, or infinite.
func newLimit(perSecond float64, cells int) *limit {
	if perSecond <= 0 || math.IsInf(perSecond, 1) {
		return nil
	}
	interval, slack := pace(perSecond)
	return limitOf(interval, slack, cells)
}

func limitOf(interval, slack time.Duration, cells int) *limit {
	return &limit{
		interval:  interval,
		slack:     slack,
		due:       newTable[atomic.Int64](cells),
		unstarted: newTable[atomic.Int32](min(cells, unstartedCells)),
		depth:     int32((limitDepth + interval - 1) / max(1, interval)),
	}
}

// waitForStart returns when an exchange may start: at once, unless other exchanges started late. It also returns when the run's context
// ends.
func (r *run) waitForStart(tokens *[numLevels]token) {
	defer r.limiter.started(tokens)
	for {
		l, wait := r.limiter.pass(tokens, time.Since(r.begun))
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait + r.limiter.limits[l].stagger(tokens[l]))
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return
		}
		if r.woken != nil {
			r.woken()
		}
	}
}

// sent notes that an exchange is on its way to the limiter; started, that it has passed.
func (g *limiter) sent(tokens *[numLevels]token)    { g.count(tokens, 1) }
func (g *limiter) started(tokens *[numLevels]token) { g.count(tokens, -1) }

func (g *limiter) count(tokens *[numLevels]token, n int32) {
	for l, limit := range g.limits {
		if limit != nil {
			limit.unstarted.cell(tokens[l].key).Add(n)
		}
	}
}

// pass counts a start now at each level, if all levels allow it. Otherwise it counts none, and returns the level that forbids it and for
// how long. Nearly always a look is enough to see that it is too early.
func (g *limiter) pass(tokens *[numLevels]token, now time.Duration) (level int, wait time.Duration) {
	for l, limit := range g.limits {
		if limit == nil {
			continue
		}
		if w := time.Duration(limit.due.cell(tokens[l].key).Load()) - now; w > wait {
			level, wait = l, w
		}
	}
	if wait > 0 {
		return level, wait
	}
	return g.take(tokens, now)
}

// take is pass without the look. Where a later level forbids the start, it takes back what it has counted at earlier levels; for that
// moment others may be delayed.
func (g *limiter) take(tokens *[numLevels]token, now time.Duration) (level int, wait time.Duration) {
	for l, limit := range g.limits {
		if limit == nil {
			continue
		}
		if w := limit.take(tokens[l], now); w > 0 {
			for k, before := range g.limits[:l] {
				if before != nil {
					before.giveBack(tokens[k])
				}
			}
			return l, w
		}
	}
	return 0, 0
}

// take counts a start, or returns how long it is too early.
func (l *limit) take(t token, now time.Duration) (wait time.Duration) {
	cell := l.due.cell(t.key)
	for {
		due := cell.Load()
		if wait := time.Duration(due) - now; wait > 0 {
			return wait
		}
		if cell.CompareAndSwap(due, max(due, int64(now-l.slack))+int64(t.interval)) {
			return 0
		}
	}
}

// giveBack undoes take. An exchange that looked meanwhile has seen a later time than it is, and is late at worst.
func (l *limit) giveBack(t token) { l.due.cell(t.key).Add(-int64(t.interval)) }

// stagger is how much longer than until the next start an exchange waits, by how many others wait for its key. It is less than they will
// take: a worker that is woken late misses a start, which another can use. If there are many, they do not all wake at once.
func (l *limit) stagger(t token) time.Duration {
	return time.Duration(max(0, l.unstarted.cell(t.key).Load()-1)) * t.interval / 8
}

// crowded reports whether so many exchanges of a key have not started that no more should be sent. The schedule asks it.
func (l *limit) crowded(k key) bool { return l.unstarted.cell(k).Load() >= l.depth }
