package pipeline

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// The process may stand still: it is stopped by a signal or a debugger, frozen with its container, or starved by a machine
// that is out of memory. Meanwhile clocks go on and hosts answer, and when it goes on all deadlines have passed. What fails
// then says nothing about the host: it is asked again, as if it had not been asked. What was answered all the same counts,
// but for how long it took. See docs/adr/0014.
//
// It is noticed by a goroutine that wakes every so often and finds that it has slept for much too long. When the process goes
// on, nobody says that this goroutine is the first to run, so whoever wants to know looks himself for how long it has not.

const (
	beatEvery = 250 * time.Millisecond
	// A beat that is later than this is a standstill. It is far above what a busy machine makes of a quarter of a second, and
	// far below the time-outs that it would use up.
	stillAfter = time.Second
	// An origin's exchanges, and each look-up of a name, are made so many times more than they should at most, however often
	// the process stands still: who makes do with standing still all the time should get to an end too.
	maxSpoilt = 7
)

// standstill is what is known of standstills.
type standstill struct {
	beat atomic.Int64 // when the process was last known to run, since the run began
	lost atomic.Int64 // for how long it has stood still, in all

	mu   sync.Mutex          // held by whoever changes them
	told func(time.Duration) // by whoever notices, who may be the beat: it must not wait for anybody
}

// watchStandstills wakes every so often until the run has ended.
func (r *run) watchStandstills() error {
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for {
		select {
		case <-beats.C:
			r.still.note(time.Since(r.begun))
		case <-r.ended:
			return nil
		}
	}
}

// stood returns for how long the process has stood still in all, until now. The difference of two calls is how much of the
// time between them that was.
func (r *run) stood() time.Duration {
	s := &r.still
	if now := time.Since(r.begun); s.missed(now) > 0 {
		s.note(now)
	}
	return time.Duration(s.lost.Load())
}

// note notes that the process runs, and for how long it did not before.
func (s *standstill) note(now time.Duration) {
	s.mu.Lock()
	missed := s.missed(now)
	s.lost.Add(int64(missed))
	s.beat.Store(max(s.beat.Load(), int64(now)))
	s.mu.Unlock()
	if missed > 0 && s.told != nil {
		s.told(missed)
	}
}

// missed is for how long the process has stood still until now, as far as nobody has noted it; most of the time 0.
func (s *standstill) missed(now time.Duration) time.Duration {
	if late := now - time.Duration(s.beat.Load()) - beatEvery; late > stillAfter {
		return late
	}
	return 0
}

// spoils reports whether an exchange may have ended as it did because we stood still: we did not listen until the time was
// up, or the server has lost its own patience with us, which it may say in many ways.
func spoils(r *exchange.Response, next exchange.Next) bool {
	switch {
	case next.PutOff, r.Outcome.Transient():
		return true
	case r.Outcome == exchange.TLSFailed, r.Outcome == exchange.ConnectFailed:
		return true
	}
	// Other statuses are what the server has to say of itself, however late we read them.
	return r.Outcome == exchange.Answered && (r.Status == http.StatusRequestTimeout || r.Status == http.StatusGatewayTimeout)
}

// forgive takes a standstill out of the times of an exchange that ended well. In which of its parts it fell nobody knows: what
// took as long is as good as not measured.
func forgive(t *exchange.Timing, stood time.Duration) {
	for _, part := range []*time.Duration{&t.Connect, &t.TLS, &t.TTFB} {
		if *part >= stood {
			*part = 0
		}
	}
	t.Total = max(0, t.Total-stood)
}

// lookUp is Fetcher.Resolve, once more where the process stood still meanwhile and no answer has come.
func (r *run) lookUp(t exchange.Target, patience time.Duration) exchange.Lookup {
	for tries := 0; ; tries++ {
		before := r.stood()
		lookup := r.fetch.Resolve(r.lookups, t, patience)
		if r.stood() == before {
			return lookup
		}
		lookup.Took = 0 // as good as not measured
		if !lookup.PutOff && !lookup.Outcome.Transient() || tries == maxSpoilt || r.lookups.Err() != nil {
			return lookup
		}
		r.progress.Spoilt.Add(1)
	}
}
