package pipeline

import (
	"maps"
	"sync"
	"time"
)

// rare remembers the last starts of keys that are asked less than once in ten seconds. In a cell of the table their long intervals would
// hold up the keys that share the cell, and would count for as long after their rate is raised. So each start holds its cell for ten
// seconds only, which is more than the interval of any key that is not rare; the rest of the interval is counted here, by key and from
// the last start, at the rate that the key has by then.
type rare struct {
	mu    sync.Mutex // such starts are few
	last  map[key]rareStart
	swept time.Duration // when those that no longer matter were forgotten
}

type rareStart struct{ at, interval time.Duration }

const (
	longestInCell = maxSlowInterval
	// maxRare bounds the starts, which take some 6 MiB then. One more holds its cell for all of its interval.
	maxRare   = 1 << 17
	rareSweep = 10 * time.Second
)

func (p pace) rare() bool { return p.interval > longestInCell }

// next is when a rare key may start by its last start; 0 where none is known.
func (r *rare) next(t token) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.last[t.key]
	if !known {
		return 0
	}
	return last.at + t.interval
}

// takeRare counts a start of a rare key in both the cell and here, or returns how long it is too early.
func (l *limit) takeRare(t token, now time.Duration) (wait time.Duration) {
	r := &l.rare
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.last[t.key]
	if known && last.at+t.interval > now {
		return last.at + t.interval - now
	}
	short := t
	if known || r.room(now) {
		short.interval = longestInCell
	}
	if wait := l.takeCell(short, now); wait > 0 {
		return wait
	}
	if !short.rare() {
		r.last[t.key] = rareStart{now, t.interval}
	}
	return 0
}

// giveBackRare undoes takeRare.
func (l *limit) giveBackRare(t token) {
	l.rare.mu.Lock()
	defer l.rare.mu.Unlock()
	held := t.interval
	if _, known := l.rare.last[t.key]; known {
		held = longestInCell
		delete(l.rare.last, t.key)
	}
	l.due.cell(t.key).Add(-int64(held))
}

// room reports whether one more start can be remembered.
func (r *rare) room(now time.Duration) bool {
	if len(r.last) >= maxRare && now >= r.swept+rareSweep {
		r.swept = now
		maps.DeleteFunc(r.last, func(_ key, s rareStart) bool { return s.at+s.interval <= now })
	}
	return len(r.last) < maxRare
}
