package pipeline

import (
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
)

// tray carries one origin while it is asked. One goroutine holds it at a time; sending it on a channel hands it over.
// There is one for each exchange in flight, so it is light: what an answer amounts to is worked out in a Site, of which
// a few are enough, since judging and keeping wait for nobody.
type tray struct {
	response exchange.Response
	exchange exchange.Exchange
	record   record
	next     exchange.Next
	state    trayState
	patience time.Duration    // see exchange.Exchange
	answered time.Duration    // how long the exchange took, where it had an answer
	sent     time.Duration    // when the schedule sent it off, since the run began
	tokens   [numLevels]token // spent for it, for the gate
	domain   string           // of the record's origin, see audit.Site
	tld      string
}

// trayState says why a tray came home.
type trayState uint8

const (
	trayDone    trayState = iota // its answer has been handed on
	trayAgain                    // its origin is to be asked again
	trayDropped                  // the run ended before its origin did
)

// begin sets the tray up for the exchange that its record is due for.
func (t *tray) begin(begun time.Time) {
	t.response.Reset()
	t.exchange = exchange.Exchange{
		Origin:   t.record.origin,
		Target:   t.record.target(),
		Lookup:   t.record.lookup(begun),
		Past:     t.record.past(),
		Response: &t.response,
		Patience: t.patience,
	}
	t.domain, t.tld = t.record.origin.RegistrableDomain(), t.record.origin.TLD()
}

// askOnceMore makes an exchange as if it had not been: its target is asked again, with the past that the origin had.
func (t *tray) askOnceMore(past exchange.Past) {
	t.response.Reset()
	t.exchange.Past, t.state = past, trayAgain
	t.next = exchange.Next{Again: true, Target: t.exchange.Target}
}

// handOver moves what the tray carries into a site: the answer by exchanging memory with it, and what the list says.
func (t *tray) handOver(site *audit.Site) {
	rec := &t.record
	site.Fetch, t.response = t.response, site.Fetch
	site.Seq, site.Input, site.Label, site.Rank = rec.seq, rec.input, rec.label, rec.rank
	site.Origin, site.Domain, site.TLD = rec.origin, t.domain, t.tld
}

// trays is the fixed list of free trays: memory budget, back-pressure and leak detector in one. It is a stack, so that
// a run which needs few trays warms few. Only the schedule touches it.
type trays struct {
	free []*tray
	all  int
}

func newTrays(n int) *trays {
	ts := &trays{free: make([]*tray, n), all: n}
	block := make([]tray, n)
	for i := range ts.free {
		ts.free[i] = &block[i]
	}
	return ts
}

func (ts *trays) take() *tray {
	t := ts.free[len(ts.free)-1]
	ts.free = ts.free[:len(ts.free)-1]
	return t
}

// giveBack takes a tray home. Its memory stays with it, within the bounds that Reset keeps.
func (ts *trays) giveBack(t *tray) {
	t.response.Reset()
	t.record, t.exchange, t.next = record{}, exchange.Exchange{}, exchange.Next{}
	t.patience, t.answered = 0, 0
	t.domain, t.tld = "", ""
	ts.free = append(ts.free, t)
}

func (ts *trays) left() int     { return len(ts.free) }
func (ts *trays) empty() bool   { return len(ts.free) == 0 }
func (ts *trays) allHome() bool { return len(ts.free) == ts.all }
