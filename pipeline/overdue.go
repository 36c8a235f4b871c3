package pipeline

import (
	"sync/atomic"
	"time"
)

// Most look-ups and exchanges end within a second. One in fifty, or in ten, meets a name server or a host that is
// silent, and lasts until its time-outs pass: as long as fifty others. So what lasts longer than others is overdue. It
// continues as it would otherwise, but no longer counts for Config.Resolvers, or Config.Concurrency: another one may
// begin beside it. Overdue ones have a bound of their own, Config.SilentLookups and Config.SilentExchanges; where that
// is reached, the others keep what they count for. See docs/adr/0021.

const (
	// The schedule looks for overdue ones so often.
	watchEvery = 100 * time.Millisecond
	// One is overdue when it has lasted so many times as long as others do, and so long at least; the second while too
	// few have ended to say how long others last, since the quick end first.
	overduePaces = 3
	leastOverdue = 200 * time.Millisecond
	firstOverdue = 500 * time.Millisecond
	// The weight of a tempo: exchanges, or look-ups.
	paceWeight = 256
)

// flights are look-ups, or exchanges, under way.
type flights struct {
	running []*flight
	counted int // of running, those that are not overdue
	bound   int // of counted
	places  int // of overdue ones
	silent  int // of running, overdue or not: those that had lasted longer than others when countSilent looked
	pace    tempo
}

// flight is one of them. The schedule owns it, but for ended.
type flight struct {
	began   time.Duration
	at      int // in flights.running
	overdue bool
	ended   atomic.Bool // it is over, and waits for what comes next: it is not overdue any more
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

// scarce reports whether it is worth looking for overdue ones: there are places for them, and others take most of the
// bound.
func (f *flights) scarce() bool { return f.counted > f.bound/2 && f.overdue() < f.places }

// findOverdue finds those that are overdue, if it is worth it.
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

// countSilent counts those that have lasted longer than others, for Progress.
func (f *flights) countSilent(now time.Duration) {
	f.silent = 0
	after := f.after()
	for _, x := range f.running {
		if now-x.began >= after && !x.ended.Load() {
			f.silent++
		}
	}
}

// after is how long one must last to be overdue.
func (f *flights) after() time.Duration {
	after := max(leastOverdue, overduePaces*f.pace.mean)
	if f.pace.seen < paceWeight {
		after = max(after, firstOverdue)
	}
	return after
}

// took notes how long one with an answer lasted; 0: none came. Of an overdue one only the time until then counts, since
// others need not wait for the rest.
func (f *flights) took(d time.Duration) {
	if d > 0 {
		f.pace.keep(min(d, f.after()))
	}
}

// setOverdue makes one overdue, if there is a place for it.
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
