package pipeline

import (
	"maps"
	"sync"
	"time"
)

// rare remembers when keys with less than one exchange in ten seconds may start again. In a cell of the table their
// long intervals would delay the keys that share the cell. So each start holds its cell for ten seconds only, which no
// interval of other keys exceeds. The complete interval is counted here, by key.
type rare struct {
	mu    sync.Mutex // such starts are few
	due   map[key]time.Duration
	swept time.Duration // when starts that no longer matter were last forgotten
}

const (
	longestInCell = maxSlowInterval
	// maxRare bounds the remembered starts, to some 6 MiB. A further start holds its cell for its complete interval.
	maxRare   = 1 << 17
	rareSweep = 10 * time.Second
)

func (p pace) rare() bool { return p.interval > longestInCell }

// next is when a rare key may start; 0 where no start of it is known.
func (r *rare) next(t token) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due[t.key]
}

// takeRare counts a start of a rare key both in the cell and here, or returns how much too early it is.
func (l *limit) takeRare(t token, now time.Duration) (wait time.Duration) {
	r := &l.rare
	r.mu.Lock()
	defer r.mu.Unlock()
	due, known := r.due[t.key]
	if due > now {
		return due - now
	}
	short := t
	if known || r.room(now) {
		short.interval = longestInCell
	}
	if wait := l.takeCell(short, now); wait > 0 {
		return wait
	}
	if !short.rare() {
		r.due[t.key] = now + t.interval
	}
	return 0
}

// giveBackRare undoes takeRare.
func (l *limit) giveBackRare(t token) {
	l.rare.mu.Lock()
	defer l.rare.mu.Unlock()
	held := t.interval
	if _, known := l.rare.due[t.key]; known {
		held = longestInCell
		delete(l.rare.due, t.key)
	}
	l.due.cell(t.key).Add(-int64(held))
}

// room reports whether one more start can be remembered.
func (r *rare) room(now time.Duration) bool {
	if len(r.due) >= maxRare && now >= r.swept+rareSweep {
		r.swept = now
		maps.DeleteFunc(r.due, func(_ key, due time.Duration) bool { return due <= now })
	}
	return len(r.due) < maxRare
}
