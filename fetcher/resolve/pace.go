package resolve

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// This file slows down the questions to a server that refuses some because there are too many.
//
// A refusal (SERVFAIL, REFUSED …) alone does not show whether its reason is the name or the rate. The same question
// later does: a name that cannot be resolved is refused again, a name refused for the rate is answered. So only revoked
// refusals count: those followed by an answer from this server or another.
const (
	judgeOver  = time.Second            // revoked refusals are counted over this time,
	judgeAfter = 100 * time.Millisecond // and judged after this time at the earliest
	// A server is slowed down when more refusals were revoked than slowFew plus one for each slowPart answers. It is
	// doubted (see pacer.doubted) when more were revoked than doubtFew plus one for each doubtPart answers. It is also
	// doubted when it has refused refusedFew names more than it has answered.
	slowFew, slowPart   = 8, 8
	doubtFew, doubtPart = 2, 32
	refusedFew          = 32
	doubtFor            = 10 * time.Second

	leastRate = 10      // questions a second; the rate is never lowered below this
	mostRate  = 100_000 // at this rate a server without a ceiling has no limit again
	growPart  = 16      // in a second the rate grows by mark/growPart
	growEvery = 100 * time.Millisecond
)

// pacer limits the rate of questions to a server. Questions are sent in the order of their arrival. Only the first in
// the queue has a reservation, so that questions that leave the queue, because an answer came, waste no capacity.
//
// The rate is halved when the server refuses too much. It grows in equal steps up to mark, and beyond by a fraction
// of itself, up to the ceiling.
type pacer struct {
	head    chan struct{} // holds the first in the queue
	limiter *rate.Limiter
	ceiling float64       // questions a second; +Inf: no limit
	limit   atomic.Uint64 // the current rate, as math.Float64bits
	open    atomic.Bool   // the rate is +Inf
	slowed  atomic.Bool   // the rate is below the ceiling
	waiting atomic.Int64  // questions in the queue
	doubt   atomic.Int64  // when there was last reason to doubt the server, in nanoseconds since 1970; 0: never

	mu      sync.Mutex
	mark    float64   // the rate at which the server refused, or the highest reached since
	lowered time.Time // when the rate was last halved
	grown   time.Time // when the rate last grew
	abused  time.Time // when too many refusals for growth were last revoked
	logged  bool      // the slowdown was logged
	count   struct {  // of one period of judgeOver
		since              time.Time
		revoked            int64  // refusals
		refused            int64  // questions that this server was the first to refuse
		questions, answers uint64 // of the server when the period began; refusals are no answers
	}
}

// newPacer returns a pacer with a ceiling in questions a second; 0: no limit. A burst of a tenth of a second is
// allowed: answers come in bursts, and so do the questions that follow them.
func newPacer(perSecond float64) *pacer {
	if perSecond == 0 {
		perSecond = math.Inf(1)
	}
	p := &pacer{head: make(chan struct{}, 1), limiter: rate.NewLimiter(rate.Inf, 1), ceiling: perSecond}
	p.set(perSecond)
	return p
}

// set sets the rate. The caller holds mu, or has exclusive access.
func (p *pacer) set(perSecond float64) {
	if perSecond >= p.ceiling || perSecond >= mostRate && math.IsInf(p.ceiling, 1) {
		perSecond = p.ceiling
	}
	p.limit.Store(math.Float64bits(perSecond))
	p.slowed.Store(perSecond < p.ceiling)
	p.open.Store(math.IsInf(perSecond, 1))
	if p.open.Load() {
		p.limiter.SetLimit(rate.Inf)
		return
	}
	p.limiter.SetBurst(max(1, int(perSecond/10)))
	p.limiter.SetLimit(rate.Limit(perSecond))
}

// rate returns the current rate in questions a second.
func (p *pacer) rate() float64 { return math.Float64frombits(p.limit.Load()) }

// grow raises the rate in proportion to the time since the last raise.
func (p *pacer) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	past := now.Sub(p.grown)
	if past < growEvery || !p.slowed.Load() {
		return
	}
	p.grown = now
	if now.Sub(p.abused) < judgeOver {
		return
	}
	p.mark = max(p.mark, p.rate())
	p.set(p.rate() + max(1, p.mark/growPart)*past.Seconds())
}

// doubted reports whether the server refuses names that it answers later. Its refusals are then not believed while
// there is time to ask again.
func (p *pacer) doubted() bool {
	return p.slowed.Load() || time.Now().UnixNano()-p.doubt.Load() < int64(doubtFor)
}

// refuses counts a question that this server was the first to refuse. Each question counts once: repetitions, which
// doubt itself causes, must not prolong the doubt.
func (s *server) refuses() {
	p := s.pacer
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.renew(now, &s.traffic)
	p.count.refused++
	if p.count.refused > refusedFew+p.answered(&s.traffic) {
		p.doubt.Store(now.UnixNano())
	}
}

// answered returns the number of answers in this period, without refusals. The caller holds mu.
func (p *pacer) answered(t *traffic) int64 {
	return int64(t.answers.Load() - t.failures.Load() - p.count.answers)
}

// renew begins a new period if the current one is over. The caller holds mu.
func (p *pacer) renew(now time.Time, t *traffic) {
	if now.Sub(p.count.since) > judgeOver {
		p.count.since, p.count.revoked, p.count.refused = now, 0, 0
		p.count.questions, p.count.answers = t.questions.Load(), t.answers.Load()-t.failures.Load()
	}
}

// revoked counts a question that this server refused and that was answered afterwards. sent is when the refused
// question was sent.
func (s *server) revoked(log *slog.Logger, sent time.Time) {
	p := s.pacer
	p.mu.Lock()
	defer p.mu.Unlock()
	if !sent.After(p.lowered) {
		return // the refusal belongs to the former rate
	}
	now, c := time.Now(), &p.count
	p.renew(now, &s.traffic)
	c.revoked++
	answered := p.answered(&s.traffic)
	if c.revoked > doubtFew+answered/doubtPart {
		p.abused = now
		p.doubt.Store(now.UnixNano())
	}
	took := now.Sub(c.since)
	if took < judgeAfter || c.revoked <= slowFew+answered/slowPart {
		return
	}
	asked := float64(s.questions.Load()-c.questions) / took.Seconds()
	p.mark = p.rate()
	if p.open.Load() {
		p.mark = asked
	}
	p.set(max(min(p.mark, asked)/2, min(leastRate, p.ceiling)))
	p.lowered, p.grown = now, now
	c.since = time.Time{}
	if !p.logged {
		p.logged = true
		log.Warn("name server refuses questions that it answers later, and is asked more slowly", "server", s.addr,
			"asked_per_second", math.Round(asked), "answered_per_second", math.Round(float64(answered)/took.Seconds()),
			"now_per_second", math.Round(p.rate()))
	}
}

// queueing returns how long a question would wait for its turn, in seconds.
func (p *pacer) queueing() float64 { return float64(p.waiting.Load()) / p.rate() }

// A server is crowded when a question would wait for more than crowdedAfter seconds plus crowdedTimes the least wait
// at another server.
const (
	crowdedAfter = 0.2
	crowdedTimes = 2
)

// crowded returns the servers at which a question would wait for much longer than at another server that is not down.
// Questions avoid them, so that a slow server does not delay all look-ups.
func (r *Resolver) crowded() (far servers) {
	if len(r.servers) == 1 {
		return 0
	}
	least := math.Inf(1)
	for _, s := range r.servers {
		if !s.isDown.Load() {
			least = min(least, s.pacer.queueing())
		}
	}
	for i, s := range r.servers {
		if s.pacer.queueing() > crowdedAfter+crowdedTimes*least {
			far.add(i)
		}
	}
	return far
}

// burst is how many questions may be sent together.
func (p *pacer) burst() int {
	if p.open.Load() {
		return maxBatch
	}
	return min(p.limiter.Burst(), maxBatch)
}

// wait waits for a turn for n questions, or for an arrival. came reports an arrival, which stays in arrivals. If
// arrivals is nil, wait only waits for the turn. The caller owns the timer.
func (p *pacer) wait(ctx context.Context, timer *time.Timer, arrivals chan arrival, n int) (came bool, err error) {
	if p.slowed.Load() {
		p.grow()
	}
	p.waiting.Add(int64(n))
	defer p.waiting.Add(-int64(n))
	select {
	case p.head <- struct{}{}:
	case a := <-arrivals:
		arrivals <- a
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-p.head }()
	for n > 0 {
		some := min(n, p.limiter.Burst()) // the rate may have been lowered since the n questions were put together
		place := p.limiter.ReserveN(time.Now(), some)
		if !place.OK() {
			continue // it is lowered just now
		}
		n -= some
		delay := place.Delay()
		if delay == 0 {
			continue
		}
		timer.Reset(delay)
		select {
		case <-timer.C:
			continue
		case a := <-arrivals:
			arrivals <- a
			came = true
		case <-ctx.Done():
			err = ctx.Err()
		}
		place.Cancel()
		return came, err
	}
	return false, nil
}
