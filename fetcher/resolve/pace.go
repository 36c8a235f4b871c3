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

// How a server is slowed down that refuses questions because there are too many of them.
//
// A refusal (SERVFAIL, REFUSED …) alone does not tell whether the server means the name or the rate. What comes of the
// question later does: a name that cannot be resolved is refused again, a name that was refused for the rate is answered. So
// only refusals that were revoked count, by an answer of the same server or of another one.
const (
	judgeOver  = time.Second            // revoked refusals are counted over so long,
	judgeAfter = 100 * time.Millisecond // and judged when the count is so old
	// A server is slowed down when more than slowFew refusals, and one more for each slowPart answers, were revoked. It is
	// doubted, see pacer.doubted, when doubtFew and one for each doubtPart were; and when it has refused refusedFew names
	// more than it has answered.
	slowFew, slowPart   = 8, 8
	doubtFew, doubtPart = 2, 32
	refusedFew          = 32
	doubtFor            = 10 * time.Second

	leastRate = 10      // questions a second that a server is asked, however much it refuses
	mostRate  = 100_000 // from which on one without a bound has none again
	growPart  = 16      // of the rate at which it refused is what the rate grows by in a second
	growEvery = 100 * time.Millisecond
)

// pacer lets questions go at a rate, in the order in which they have asked to. Only who is at the head of the line has
// reserved anything, so that nothing is wasted by those who leave it because an answer came.
//
// The rate is halved when the server refuses too much, and grows again: in equal steps up to where it was, and beyond that by a
// part of itself, up to the ceiling.
type pacer struct {
	head    chan struct{} // holds one: whoever is at the head
	limiter *rate.Limiter
	ceiling float64       // questions a second; +Inf: any
	limit   atomic.Uint64 // what they are now, as math.Float64bits
	open    atomic.Bool   // the limit is +Inf
	slowed  atomic.Bool   // it is below the ceiling
	waiting atomic.Int64  // questions that wait for their turn
	doubt   atomic.Int64  // when there was last reason to doubt the server, in nanoseconds since 1970; 0: never

	mu      sync.Mutex
	mark    float64   // the rate at which it refused, or which it has reached since
	lowered time.Time // when the rate was halved last
	grown   time.Time // when it has grown last
	abused  time.Time // when so many refusals were last revoked that it may not grow
	told    bool      // the log has been
	count   struct {  // of what happened
		since              time.Time
		revoked            int64  // refusals
		refused            int64  // questions, by this server first
		questions, answers uint64 // of the server at that time; refusals are no answers
	}
}

// newPacer returns a pacer of so many questions a second; 0: of any. A tenth of a second's worth may go at once: answers come in
// bursts, and so do the questions that they free.
func newPacer(perSecond float64) *pacer {
	if perSecond == 0 {
		perSecond = math.Inf(1)
	}
	p := &pacer{head: make(chan struct{}, 1), limiter: rate.NewLimiter(rate.Inf, 1), ceiling: perSecond}
	p.set(perSecond)
	return p
}

// set sets the rate. The caller holds mu, or is the only one.
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

// rate is the rate, in questions a second.
func (p *pacer) rate() float64 { return math.Float64frombits(p.limit.Load()) }

// grow raises the rate by what it has grown since it was raised last.
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

// doubted reports whether the server is known to refuse names that it answers later: its refusals count for nothing while there
// is time to ask again.
func (p *pacer) doubted() bool {
	return p.slowed.Load() || time.Now().UnixNano()-p.doubt.Load() < int64(doubtFor)
}

// refuses takes note that the server is the first to refuse a question, for the first time. Names that are asked again and
// again because the server is doubted must not be what it is doubted for.
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

// answered is how many questions the server has answered since the count began, refusals left out. The caller holds mu.
func (p *pacer) answered(t *traffic) int64 {
	return int64(t.answers.Load() - t.failures.Load() - p.count.answers)
}

// renew begins to count anew where it is time to. The caller holds mu.
func (p *pacer) renew(now time.Time, t *traffic) {
	if now.Sub(p.count.since) > judgeOver {
		p.count.since, p.count.revoked, p.count.refused = now, 0, 0
		p.count.questions, p.count.answers = t.questions.Load(), t.answers.Load()-t.failures.Load()
	}
}

// revoked takes note that a question was answered that the server had refused, which was sent at that time.
func (s *server) revoked(log *slog.Logger, sent time.Time) {
	p := s.pacer
	p.mu.Lock()
	defer p.mu.Unlock()
	if !sent.After(p.lowered) {
		return // it says nothing about the rate since
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
	if !p.told {
		p.told = true
		log.Warn("name server refuses questions that it answers later, and is asked more slowly", "server", s.addr,
			"asked_per_second", math.Round(asked), "answered_per_second", math.Round(float64(answered)/took.Seconds()),
			"now_per_second", math.Round(p.rate()))
	}
}

// line is how long a question would wait for its turn, in seconds.
func (p *pacer) line() float64 { return float64(p.waiting.Load()) / p.rate() }

// A server is crowded when a question would wait there for more than crowdedAfter seconds, and crowdedTimes as long as elsewhere.
const (
	crowdedAfter = 0.2
	crowdedTimes = 2
)

// crowded are the servers at which a question would wait for much longer than at another one that is not down. What waits for
// a slow server, and would hold up the rest, is asked elsewhere.
func (r *Resolver) crowded() (far servers) {
	if len(r.servers) == 1 {
		return 0
	}
	least := math.Inf(1)
	for _, s := range r.servers {
		if !s.isDown.Load() {
			least = min(least, s.pacer.line())
		}
	}
	for i, s := range r.servers {
		if s.pacer.line() > crowdedAfter+crowdedTimes*least {
			far.add(i)
		}
	}
	return far
}

// wait waits for a turn, or until something arrives, which it reports and leaves there. Without arrivals it waits for the
// turn whatever comes. The timer is the caller's.
func (p *pacer) wait(ctx context.Context, timer *time.Timer, arrivals chan arrival) (came bool, err error) {
	if p.slowed.Load() {
		p.grow()
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	select {
	case p.head <- struct{}{}:
	case a := <-arrivals:
		arrivals <- a
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-p.head }()
	place := p.limiter.Reserve()
	delay := place.Delay()
	if delay == 0 {
		return false, nil
	}
	timer.Reset(delay)
	select {
	case <-timer.C:
		return false, nil
	case a := <-arrivals:
		arrivals <- a
		came = true
	case <-ctx.Done():
		err = ctx.Err()
	}
	place.Cancel()
	return came, err
}
