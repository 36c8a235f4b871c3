package pipeline

import "time"

// slowed is the state of an address that reports too many requests. Each such answer doubles its interval. A doubling
// is taken back whenever calmAfter has passed without another such answer. Only an exchange that was sent after the
// last doubling doubles again: earlier ones were spaced by the shorter interval, and a burst of their answers counts
// once.
type slowed struct {
	doublings int           // at the time of heard
	doubled   time.Duration // when the interval was last doubled, since the run began
	heard     time.Duration // when the last such answer came
}

const (
	maxDoublings      = 4                      // 16 times the configured interval
	maxSlowInterval   = 10 * time.Second       // the maximum after doubling
	firstSlowInterval = 100 * time.Millisecond // the first interval if there is no rate
	calmAfter         = time.Minute

	// maxSlowed bounds the addresses that are slowed at once, to some 4 MiB. A further address replaces a random one,
	// which then gets requests at the configured rate until its next 429. The owner of many addresses can cause no more
	// than that.
	maxSlowed = 1 << 16
)

// throttled notes an answer which says that a key gets too many requests. sent is when its exchange was sent.
func (l *level) throttled(t token, sent, now time.Duration) {
	k := t.key
	s, known := l.slowed[k]
	s.doublings, s.heard = s.left(now), now
	if slower := t.doubled(s.doublings + 1); (!known || sent > s.doubled) && slower > t.doubled(s.doublings) {
		s.doublings++
		s.doubled = now
		l.delay(k, now+slower)
	}
	if !known && len(l.slowed) == maxSlowed {
		for other := range l.slowed {
			delete(l.slowed, other)
			break
		}
	}
	if s.doublings > 0 {
		l.slowed[k] = s
	}
}

// left is how many doublings are in force.
func (s slowed) left(now time.Duration) int { return max(0, s.doublings-int((now-s.heard)/calmAfter)) }

// doubled is the interval after a number of doublings. An interval that is configured longer than the bound is never
// doubled.
func (p pace) doubled(times int) time.Duration {
	interval := p.interval
	if interval == 0 {
		interval = firstSlowInterval
	}
	return min(interval<<min(times, maxDoublings), max(interval, maxSlowInterval))
}

// intervalOf is the time from one exchange of a key to the next.
func (l *level) intervalOf(t token, now time.Duration) time.Duration {
	if len(l.slowed) == 0 {
		return t.interval
	}
	s, ok := l.slowed[t.key]
	if !ok {
		return t.interval
	}
	times := s.left(now)
	if times == 0 {
		delete(l.slowed, t.key)
		return t.interval
	}
	return t.doubled(times)
}

// unlimited reports whether a key has no rate.
func (l *level) unlimited(t token) bool {
	if !t.unlimited() {
		return false
	}
	_, ok := l.slowed[t.key]
	return !ok
}
