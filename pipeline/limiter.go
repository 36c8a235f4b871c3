package pipeline

import (
	"math"
	"sync/atomic"
	"time"
)

// limiter is where an exchange starts, and where the rates are enforced. The schedule sends exchanges at the rate. On a
// busy machine, however, a worker runs a tenth of a second later or more, and exchanges start in bunches. So a worker
// passes the limiter right before the dial. The limiter counts actual starts and delays starts that would be too early.
//
// It is GCRA (the generic cell rate algorithm) over starts, by key, in tables of fixed size. Many goroutines use it, so
// each step is one compare-and-swap. With a lock, a goroutine could lose the processor when it unlocks, and start later
// than the limiter has counted.
type limiter struct {
	limits [numLevels]*limit // nil where there is no limit
}

func newLimiter(c *Config) *limiter {
	limits := [numLevels]*limit{
		byHost:    newLimit(c.HostRate, tableCells),
		byAddress: newLimit(c.IPRate, tableCells), // also without a rate, for addresses that are slowed
		inAll:     newLimit(c.Rate, 1),
	}
	if limits[byHost].unlimited() && c.Rates == nil {
		limits[byHost] = nil
	}
	if limits[inAll].unlimited() {
		limits[inAll] = nil
	}
	return &limiter{limits}
}

// limit is one level's part of the limiter.
type limit struct {
	pace                           // of keys without a rate of their own; the pace of a token counts
	due       *table[atomic.Int64] // when the next exchange of a cell may start, since the run began
	rare      rare
	unstarted *table[atomic.Int32] // exchanges of a cell that were sent and have not started; few cells, most of them 0
}

// pace is how often exchanges of a key may start.
type pace struct {
	interval time.Duration // from one to the next; 0: no limit
	slack    time.Duration // lateness that does not delay the next starts
}

// promises hold for a rate R, counted where requests arrive: never more than 1.1 R + 1 in any second, nor 10 R + 1 in
// any ten.
var promises = [...]struct {
	window time.Duration
	times  float64 // the rate, and one more
}{
	{time.Second, 1.1},
	{10 * time.Second, 10},
}

const (
	// sway bounds how much the time from the start of an exchange to its arrival differs between exchanges: exchanges that
	// arrive within a time w have started within a time w + sway. On a machine with busy processors the difference is tens
	// of milliseconds.
	sway = 110 * time.Millisecond

	// A start that is late by less than the slack does not delay the next ones. Timers and processors are late by some
	// milliseconds all the time: without any slack, a rate of thousands a second would reach half of its value. A server
	// would notice more than maxSlack as a burst.
	minSlack = 20 * time.Millisecond
	maxSlack = 80 * time.Millisecond

	maxInterval = 100 * 365 * 24 * time.Hour / 64 // a year and a half: no sum of intervals overflows
)

// paceOf returns the pace of a rate. At most (w + sway + slack) / interval + 1 exchanges start in a time w + sway, so
// the promises hold if tooMany intervals do not fit into that time. The interval is 1/R up to a rate of seven a second,
// where that leaves a slack. Above, it is at most 2.7 % longer. A rate that is 0 or infinite is no limit.
func paceOf(perSecond float64) pace {
	if perSecond <= 0 || math.IsInf(perSecond, 1) {
		return pace{slack: minSlack}
	}
	seconds := 1 / perSecond
	for _, p := range promises {
		seconds = max(seconds, (p.window+sway+minSlack).Seconds()/tooMany(perSecond, p.times))
	}
	interval, slack := time.Duration(min(math.Ceil(seconds*float64(time.Second)), float64(maxInterval))), maxSlack
	for _, p := range promises {
		if room := tooMany(perSecond, p.times) * float64(interval); room < float64(p.window+sway+maxSlack) {
			slack = min(slack, time.Duration(room)-p.window-sway)
		}
	}
	return pace{interval, slack - 1}
}

// tooMany is the least number of intervals that must not fit into a window and its sway.
func tooMany(perSecond, times float64) float64 { return math.Floor(times*perSecond) + 1 }

const (
	// limitDepth bounds the exchanges of a key that were sent and have not started, each with its slot: see pace.depth.
	limitDepth = 200 * time.Millisecond

	// unstartedCells is the number of counters of unstarted exchanges. Keys that share one may briefly delay each
	// other.
	unstartedCells = 1 << 16
)

func newLimit(perSecond float64, cells int) *limit {
	return &limit{
		pace:      paceOf(perSecond),
		due:       newTable[atomic.Int64](cells),
		rare:      rare{due: make(map[key]time.Duration)},
		unstarted: newTable[atomic.Int32](min(cells, unstartedCells)),
	}
}

func (p pace) unlimited() bool { return p.interval == 0 }

// depth bounds the exchanges of a key that were sent and have not started. At the bound the schedule sends no more. The
// bound is the number of exchanges in limitDepth, and at least one.
func (p pace) depth() int32 { return int32((limitDepth + p.interval - 1) / max(1, p.interval)) }

// ahead is how many records of a key may be resolved again before their turn: the records of the next second.
func (p pace) ahead() uint32 { return uint32(min(maxAhead, 1+time.Second/max(1, p.interval))) }

// waitForStart returns when an exchange may start: at once, unless other exchanges started late. It also returns when
// the run's context ends.
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

// sent notes that an exchange is on its way to the limiter; started notes that it has passed.
func (g *limiter) sent(tokens *[numLevels]token)    { g.count(tokens, 1) }
func (g *limiter) started(tokens *[numLevels]token) { g.count(tokens, -1) }

func (g *limiter) count(tokens *[numLevels]token, n int32) {
	for l, limit := range g.limits {
		if limit != nil {
			limit.unstarted.cell(tokens[l].key).Add(n)
		}
	}
}

// pass counts a start now at each level, if all levels allow it. Otherwise it counts none, and returns the level that
// forbids it and for how long. It reads before it changes: nearly always that shows that the start is too early.
func (g *limiter) pass(tokens *[numLevels]token, now time.Duration) (level int, wait time.Duration) {
	for l, limit := range g.limits {
		if limit == nil {
			continue
		}
		if w := limit.next(tokens[l]) - now; w > wait {
			level, wait = l, w
		}
	}
	if wait > 0 {
		return level, wait
	}
	return g.take(tokens, now)
}

// take is pass without the read before. If a later level forbids the start, it takes back its counts at earlier levels;
// until then it may delay other exchanges.
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

// next is when the key's next exchange may start.
func (l *limit) next(t token) time.Duration {
	due := time.Duration(l.due.cell(t.key).Load())
	if t.rare() {
		due = max(due, l.rare.next(t))
	}
	return due
}

// take counts a start, or returns how long it is too early.
func (l *limit) take(t token, now time.Duration) (wait time.Duration) {
	if t.rare() {
		return l.takeRare(t, now)
	}
	return l.takeCell(t, now)
}

func (l *limit) takeCell(t token, now time.Duration) (wait time.Duration) {
	cell := l.due.cell(t.key)
	for {
		due := cell.Load()
		if wait := time.Duration(due) - now; wait > 0 {
			return wait
		}
		if cell.CompareAndSwap(due, max(due, int64(now-t.slack))+int64(t.interval)) {
			return 0
		}
	}
}

// giveBack undoes take. An exchange that read meanwhile has seen a time that is too late, and is late at worst.
func (l *limit) giveBack(t token) {
	if t.rare() {
		l.giveBackRare(t)
		return
	}
	l.due.cell(t.key).Add(-int64(t.interval))
}

// stagger is how long an exchange waits after the next start of its key. It grows with the number of exchanges that
// wait for the key, so that many of them do not all wake at once. It is less than the time that these exchanges will
// take: a worker that wakes late misses a start, which another can use. It is a second at most, since the exchange
// holds a slot.
func (l *limit) stagger(t token) time.Duration {
	return min(time.Second, time.Duration(max(0, l.unstarted.cell(t.key).Load()-1))*min(t.interval, longestInCell)/8)
}

// crowded reports whether so many sent exchanges of a key wait for their start that the schedule must not send more.
func (l *limit) crowded(t token) bool { return l.unstarted.cell(t.key).Load() >= t.depth() }
