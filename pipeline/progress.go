package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Progress is what a run counts, for displays to poll. All counters may be read at any time, but two of them may be
// inconsistent while the run continues.
type Progress struct {
	Fed     atomic.Uint64 // origins taken from the list
	Skipped atomic.Uint64 // origins of the list that an earlier run has kept
	Kept    atomic.Uint64 // origins in the sink

	Waiting atomic.Int64 // origins that wait in memory: for a turn, an address, a retry
	Spilled atomic.Int64 // origins that wait in the spill file

	Silent atomic.Int64 // exchanges and look-ups that take longer than others
	Asleep atomic.Int64 // origins in memory that wait for the time of a retry

	Lookups atomic.Int64 // look-ups under way

	Redirects atomic.Uint64 // exchanges that led to another hop
	Retries   atomic.Uint64 // exchanges that led to another attempt, or to another address of the host
	Throttled atomic.Uint64 // exchanges whose answer was: too many requests

	Stalls atomic.Uint64 // of the process
	Spoilt atomic.Uint64 // exchanges and look-ups that a stall may have spoilt; each is made again

	Bytes    atomic.Uint64 // decoded bytes of bodies kept
	Outcomes [exchange.NumOutcomes]atomic.Uint64
	Statuses [6]atomic.Uint64 // of kept origins, by hundreds; 0: none came

	listDone atomic.Bool
	stalled  atomic.Int64 // nanoseconds, see Stalled

	spillWritten atomic.Int64 // bytes, in all
}

// ListDone reports whether the list has been read to its end, so that Fed is the number of origins there are.
func (p *Progress) ListDone() bool { return p.listDone.Load() }

// Stalled is how long the process has stalled in all.
func (p *Progress) Stalled() time.Duration { return time.Duration(p.stalled.Load()) }

// again counts an exchange that is followed by another exchange for its origin.
func (p *Progress) again(x *exchange.Exchange, next exchange.Next) {
	switch {
	case x.Past.Trail != nil && next.Target.Unmet == 0:
		p.Redirects.Add(1)
	default:
		p.Retries.Add(1)
	}
}

// kept counts an origin that is in the sink.
func (p *Progress) kept(s *audit.Site) {
	p.Outcomes[s.Fetch.Outcome].Add(1)
	class := s.Fetch.Status / 100
	if class < 0 || class >= len(p.Statuses) {
		class = 0
	}
	p.Statuses[class].Add(1)
	p.Bytes.Add(uint64(len(s.Fetch.Body)))
	p.Kept.Add(1)
}
