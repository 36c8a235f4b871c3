package pipeline

import (
	"sync/atomic"
	"time"
)

// Most look-ups and exchanges end within a second. One in ten to fifty meets a silent name server or host, and lasts as
// long as fifty others, until its time-outs. So a look-up or an exchange that lasts longer than others is overdue. It
// continues, but no longer counts for Config.Resolvers or Config.Concurrency, so another one may begin. Overdue ones
// have bounds of their own, Config.SilentLookups and Config.SilentExchanges. When the bound is reached, further ones
// continue to count as before. See docs/adr/0021.

const (
	// The interval at which the schedule looks for overdue flights.
	watchEvery = 100 * time.Millisecond
	// A flight is overdue when it has lasted overduePaces times as long as others on average, and at least
	// leastOverdue. Until enough have ended for an average (quick ones end first), the minimum is firstOverdue.
	overduePaces = 3
	leastOverdue = 200 * time.Millisecond
	firstOverdue = 500 * time.Millisecond
	// The weight of a tempo, in exchanges or look-ups.
	paceWeight = 256
)

// flights are look-ups, or exchanges, under way.
type flights struct {
	running []*flight
	counted int // running flights that are not overdue
	bound   int // of counted
	places  int // bound of the overdue flights
	silent  int // running flights, overdue or not, that had lasted longer than others when countSilent last ran
	pace    tempo
}

// flight is one look-up or exchange. The schedule owns it, except for ended.
type flight struct {
	began   time.Duration
	at      int // in flights.running
	overdue bool
	ended   atomic.Bool // it has ended and waits for its next stage: it is not overdue any more
}

func (f *flights) start(x *flight, now time.Duration) {
	x.began, x.at, x.overdue = now, len(f.running), false
	x.ended.Store(false)
	f.running = append(f.running, x)
	f.counted++
}

func (f *flights) end(x *flight) {
	last := f.running[len(f.running)-1]
	f.running[x.at], last.at = last, x.at
	f.running = f.running[:len(f.running)-1]
	f.silent = min(f.silent, len(f.running))
	if !x.overdue {
		f.counted--
	}
}

func (f *flights) overdue() int { return len(f.running) - f.counted }

// scarce reports whether findOverdue should search: there are places for overdue flights, and the other flights take
// most of the bound.
func (f *flights) scarce() bool { return f.counted > f.bound/2 && f.overdue() < f.places }

// findOverdue marks overdue flights, if scarce says so.
func (f *flights) findOverdue(now time.Duration) {
	if !f.scarce() {
		return
	}
	after := f.after()
	for _, x := range f.running {
		if now-x.began >= after && !x.ended.Load() {
			f.setOverdue(x)
		}
	}
}

// countSilent counts the flights that have lasted longer than others, for Progress.
func (f *flights) countSilent(now time.Duration) {
	f.silent = 0
	after := f.after()
	for _, x := range f.running {
		if now-x.began >= after && !x.ended.Load() {
			f.silent++
		}
	}
}

// after is how long a flight must last to be overdue.
func (f *flights) after() time.Duration {
	after := max(leastOverdue, overduePaces*f.pace.mean)
	if f.pace.seen < paceWeight {
		after = max(after, firstOverdue)
	}
	return after
}

// took notes how long a flight with an answer lasted; 0 means no answer. For an overdue flight only the time until it
// was overdue counts, since others need not wait for the rest.
func (f *flights) took(d time.Duration) {
	if d > 0 {
		f.pace.keep(min(d, f.after()))
	}
}

// setOverdue marks a flight as overdue, if there is a place for it.
func (f *flights) setOverdue(x *flight) {
	if !x.overdue && f.overdue() < f.places {
		x.overdue = true
		f.counted--
	}
}

// tempo is the mean duration of the last paceWeight of something.
type tempo struct {
	mean time.Duration
	seen int
}

func (p *tempo) keep(took time.Duration) {
	p.seen = min(p.seen+1, paceWeight)
	p.mean += (took - p.mean) / time.Duration(p.seen)
}

// watch looks for silent and overdue look-ups and exchanges when it is time to.
func (s *schedule) watch() {
	if s.now >= s.nextCount {
		s.nextCount = s.now + watchEvery
		s.lookups.countSilent(s.now)
		s.slots.countSilent(s.now)
	}
	if !s.lookups.scarce() && !s.slots.scarce() {
		return
	}
	if s.now < s.nextWatch || s.stopping {
		return
	}
	s.nextWatch = s.now + watchEvery
	s.lookups.findOverdue(s.now)
	s.slots.findOverdue(s.now)
}

// untilWatch is how long until watch has something to do.
func (s *schedule) untilWatch() time.Duration {
	next := time.Hour
	if len(s.lookups.running) > s.lookups.silent || len(s.slots.running) > s.slots.silent {
		next = max(0, s.nextCount-s.now)
	}
	if s.lookups.scarce() || s.slots.scarce() {
		next = min(next, max(0, s.nextWatch-s.now))
	}
	return next
}
