package pipeline

import (
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// slot carries one origin through one exchange. One goroutine holds it at a time; sending it on a channel passes it on.
// There is a slot for each exchange in flight, so a slot takes little memory: answers are judged in a few audit.Sites.
type slot struct {
	response exchange.Response
	exchange exchange.Exchange
	record   record
	next     exchange.Next
	state    slotState
	flight   flight
	answered time.Duration    // how long an exchange with an answer took
	sent     time.Duration    // when the schedule sent it to be asked, since the run began
	tokens   [numLevels]token // spent for this exchange, for the limiter
}

// slotState says why a slot was returned.
type slotState uint8

const (
	slotDone    slotState = iota // its answer is with the judge
	slotAgain                    // its origin needs another exchange
	slotDropped                  // the run ended before its origin did
)

// begin prepares the slot for its record's next exchange.
func (t *slot) begin(begun time.Time) {
	t.response.Reset()
	t.exchange = exchange.Exchange{
		Origin:   t.record.origin,
		Target:   t.record.target(),
		Lookup:   t.record.lookup(begun),
		Past:     t.record.past(),
		Response: &t.response,
	}
}

// repeat undoes an exchange: its target is fetched again, with the origin's past before it.
func (t *slot) repeat(past exchange.Past) {
	t.response.Reset()
	t.exchange.Past, t.state = past, slotAgain
	t.next = exchange.Next{Again: true, Target: t.exchange.Target}
}

// handOver moves the answer into a site, by an exchange of memory, and copies what the list says.
func (t *slot) handOver(site *audit.Site) {
	rec := &t.record
	site.Fetch, t.response = t.response, site.Fetch
	site.Seq, site.Input, site.Label, site.Rank = rec.seq, rec.input, rec.label, rec.rank
	site.SetOrigin(rec.origin)
}

// slots is the free list and the state of exchanges in flight. It bounds memory, creates back-pressure and detects
// leaks. A slot is made, with its worker, when all others are in use. Only the schedule uses it.
type slots struct {
	flights
	free   []*slot
	worker func() // starts one
}

func newSlots(c *Config, worker func()) slots {
	return slots{flights: flights{bound: c.Concurrency, places: c.SilentExchanges}, worker: worker}
}

func (ts *slots) take(now time.Duration) *slot {
	if len(ts.free) == 0 {
		ts.free = append(ts.free, &slot{})
		ts.worker()
	}
	t := ts.free[len(ts.free)-1]
	ts.free = ts.free[:len(ts.free)-1]
	ts.start(&t.flight, now)
	return t
}

// put returns a slot to the free list. The slot keeps its memory, within the bounds of Response.Reset.
func (ts *slots) put(t *slot) {
	t.response.Reset()
	t.record, t.exchange, t.next = record{}, exchange.Exchange{}, exchange.Next{}
	t.answered = 0
	ts.end(&t.flight)
	ts.free = append(ts.free, t)
}

// empty reports whether no further exchange may begin.
func (ts *slots) empty() bool   { return ts.counted >= ts.bound }
func (ts *slots) allFree() bool { return len(ts.running) == 0 }
