package pipeline

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// The process may stall: a signal or a debugger stops it, its container is frozen, or the machine is out of memory.
// Clocks continue meanwhile and hosts answer; when the process continues, all deadlines have passed. A failure at that
// moment says nothing about the host. The exchange is repeated as if it had not been made. An answer that came
// nevertheless counts, but its duration does not. See docs/adr/0014.
//
// A goroutine wakes at intervals and notices a stall by how long it slept. When the process continues, other goroutines
// may run before it, so every reader of stalled checks the clock itself.

const (
	beatEvery = 250 * time.Millisecond
	// A beat that is later than this is a stall: far above the lateness of a busy machine, far below the time-outs.
	stallAfter = time.Second
	// The maximum of repetitions for an origin's exchanges, and for each look-up, so that a process that stalls all the
	// time still ends.
	maxSpoilt = 7
)

// stalls has the times of stalls.
type stalls struct {
	beat atomic.Int64 // when the process was last known to run, since the run began
	lost atomic.Int64 // the total of stalls, in nanoseconds

	mu   sync.Mutex          // for changes
	told func(time.Duration) // called with each stall; it must not block
}

// watchStalls wakes at intervals until the run has ended.
func (r *run) watchStalls() error {
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for {
		select {
		case <-beats.C:
			r.stalls.note(time.Since(r.begun))
		case <-r.ended:
			return nil
		}
	}
}

// stalled returns the total of stalls until now. The difference of two calls is how long the process stalled between
// them.
func (r *run) stalled() time.Duration {
	s := &r.stalls
	if now := time.Since(r.begun); s.missed(now) > 0 {
		s.note(now)
	}
	return time.Duration(s.lost.Load())
}

// note notes that the process runs, and how long it has stalled before.
func (s *stalls) note(now time.Duration) {
	s.mu.Lock()
	missed := s.missed(now)
	s.lost.Add(int64(missed))
	s.beat.Store(max(s.beat.Load(), int64(now)))
	s.mu.Unlock()
	if missed > 0 && s.told != nil {
		s.told(missed)
	}
}

// missed is how long the process has stalled until now, unless that is noted already; nearly always 0.
func (s *stalls) missed(now time.Duration) time.Duration {
	if late := now - time.Duration(s.beat.Load()) - beatEvery; late > stallAfter {
		return late
	}
	return 0
}

// spoils reports whether a stall may be the reason for an exchange's result: our deadline passed, or the server gave up
// waiting, which shows in many ways.
func spoils(r *exchange.Response) bool {
	switch {
	case r.Outcome.Transient():
		return true
	case r.Outcome == exchange.TLSFailed, r.Outcome == exchange.ConnectFailed:
		return true
	}
	// Other statuses are valid however late they are read.
	return r.Outcome == exchange.Answered && (r.Status == http.StatusRequestTimeout ||
		r.Status == http.StatusGatewayTimeout)
}

// forgive takes a stall out of the times of an exchange that ended well. It is unknown in which part the stall
// happened, so a part that took as long as the stall counts as not measured.
func forgive(t *exchange.Timing, stalled time.Duration) {
	for _, part := range []*time.Duration{&t.Connect, &t.TLS, &t.TTFB} {
		if *part >= stalled {
			*part = 0
		}
	}
	t.Total = max(0, t.Total-stalled)
}
