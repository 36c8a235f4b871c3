// Package pipeline answers one question: when? It takes origins from a source through the stages resolve, schedule,
// ask, judge and keep, and owns all waiting between them: rates, redirect hops, later tries, back-pressure, the end.
//
// The package is laid out as an origin travels:
//
//	pipeline.go  what a run is made of, and its stages in order
//	record.go    an origin that waits: 128 bytes and no body
//	resolve.go   the look-ups under way, and those that take too long
//	schedule.go  who is asked next: one goroutine, queues by host, by address and in all
//	rate.go      the fixed-size tables that remember when a key was last asked
//	throttle.go  addresses that say they are asked too often
//	gate.go      where an exchange starts, and its rates are kept to the moment
//	events.go    what happens at which time
//	defer.go     who is put off, so that the silent do not hold up the rest
//	spill.go     where waiters go that memory does not hold
//	tray.go      an origin that is being asked
//	replay.go    a run whose answers are there already
//	standstill.go  what the process's own pauses must not be taken for
//	progress.go  the counters that a display polls
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// Entry is one origin of the list.
type Entry struct {
	Seq    uint64 // 0-based line over all inputs
	Input  string // as listed
	Origin origin.Origin
	Rank   int64  // 0 where the list has none
	Label  string // "" where the list has none
}

// Source yields the list. Next returns io.EOF at its end; any other error ends the list there: everything before it is
// asked and kept, and Run returns the error. Run waits for a Next that blocks, also after Stop: who stops a run should
// wake it, and the error with which it then ends is no failure. Next is called from one goroutine.
type Source interface {
	Next() (Entry, error)
}

// Fetcher performs single exchanges. Its methods are called from many goroutines, and none of them waits for a rate.
type Fetcher interface {
	// First is what to ask of an origin that begins an attempt.
	First(o origin.Origin, past exchange.Past) exchange.Target
	// Resolve finds the address to dial for a target. A failure is data in the Lookup. Where no name server has answered
	// within patience, it may put the name off; 0: it takes all the time that it needs.
	Resolve(ctx context.Context, t exchange.Target, patience time.Duration) exchange.Lookup
	// Do performs one exchange, fills x.Response, updates x.Past and says what comes next. A failing origin is data. Where
	// x.Patience runs out, it puts the host off.
	Do(ctx context.Context, x *exchange.Exchange) exchange.Next
}

// Judge says what a site's answer amounts to. It is called from several goroutines, each with a Site of its own.
type Judge interface {
	Judge(*audit.Site)
}

// Sink keeps judged sites. Add is called from one goroutine and copies what it keeps: the Site is reused when it
// returns. An error ends the run.
type Sink interface {
	Add(*audit.Site) error
}

// Config is what a run may be told. Zero rates mean no limit.
type Config struct {
	Concurrency int // exchanges in flight, and with it trays; at least 1
	Resolvers   int // names looked up at once, and newcomers ahead of the trays; 0 is DefaultResolvers, or Concurrency where that is less

	// SilentLookups bounds the look-ups beside those: of names that have been silent for longer than others take, and of those
	// that were put off and are looked up with all their time. One costs a goroutine, for as long as it lasts, and what the
	// fetcher needs for it. 0 is DefaultSilentLookups.
	SilentLookups int

	HostRate float64 // exchanges a second to one host name
	IPRate   float64 // exchanges a second to one IPv4 address, or IPv6 network of /64
	Rate     float64 // exchanges a second in all

	// Patience is how long a host may be silent while others want its place: before it takes the connection, before the
	// first byte of TLS, and before the first byte of a response. Who is silent for longer is put off, once, until there
	// are places to spare, and then has the whole time of the fetcher's time-outs: how it ends is the same, only when is
	// not. What was broken off counts as an exchange for the rates, and in Progress.PutOff, but is no attempt and uses up
	// no retry. Patience is longer than this where answers take long, and endless where a place is free for everybody. 0:
	// nobody is put off. DefaultPatience is for long lists.
	//
	// It is also how long the name servers of a name may be silent while others want to be looked up, or while a newcomer waits
	// with its address for the resolver to be done. What was broken off counts in Progress.NamesPutOff, and leaves nothing in
	// the row; it happens once to an origin, whatever names it leads to. With 0 that newcomer waits too.
	Patience time.Duration

	// Skip reports whether an entry is already kept by an earlier run of the same scan; nil skips nothing.
	Skip func(seq uint64) bool

	// MaxWaiting bounds the origins that wait in memory; 0 is DefaultMaxWaiting. What exceeds it goes to a file in
	// SpillDir ("" is the system's folder for temporary files) that is gone with the process.
	MaxWaiting int
	SpillDir   string

	// Drain bounds how long exchanges in flight may go on after Stop; 0 is DefaultDrain.
	Drain time.Duration
}

// The defaults of Config.
const (
	DefaultResolvers     = 256
	DefaultSilentLookups = 2048
	DefaultMaxWaiting    = 262144
	DefaultDrain         = 20 * time.Second
	DefaultPatience      = 1200 * time.Millisecond // longer than a lost first packet costs
)

// ErrStopped is what Run returns when Stop ended it before the list was done: what was finished is kept, the rest is
// for the next run of the same scan.
var ErrStopped = errors.New("stopped before the end of the list")

// Pipeline is one run. It is made by New and used once.
type Pipeline struct {
	cfg    Config
	source Source
	fetch  Fetcher
	judge  Judge
	sink   Sink
	replay Archive // of a run that asks nobody; else nil

	woken func() // called by whoever was woken to ask; the tests' place for the lags of a busy machine

	progress Progress
	stopOnce sync.Once
	stop     chan struct{} // closed by Stop, and by whatever ends the run early
}

// New makes a run of its stages.
func New(cfg Config, source Source, fetch Fetcher, judge Judge, sink Sink) *Pipeline {
	cfg.Concurrency = max(1, cfg.Concurrency)
	if cfg.Resolvers <= 0 {
		cfg.Resolvers = min(cfg.Concurrency, DefaultResolvers)
	}
	if cfg.SilentLookups <= 0 {
		cfg.SilentLookups = DefaultSilentLookups
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = DefaultMaxWaiting
	}
	if cfg.Drain <= 0 {
		cfg.Drain = DefaultDrain
	}
	return &Pipeline{cfg: cfg, source: source, fetch: fetch, judge: judge, sink: sink, stop: make(chan struct{})}
}

// Progress returns the run's counters, which may be read at any time.
func (p *Pipeline) Progress() *Progress { return &p.progress }

// Stop ends the run in good order: no further origin is asked, what is being asked is finished within Config.Drain and
// kept, and who waits is dropped (a resumed run asks them again). It may be called from any goroutine, more than once.
func (p *Pipeline) Stop() { p.stopOnce.Do(func() { close(p.stop) }) }

// Run takes the whole list through the stages and returns when the last origin is kept. It returns nil at the list's
// end, ErrStopped after Stop, the context's error when the context ended (exchanges in flight are then cut off and not
// kept), and otherwise what ended the run: an error of the source or of the sink, wrapped.
func (p *Pipeline) Run(ctx context.Context) error { return p.newRun(ctx).through() }

// through is what Run does.
func (r *run) through() error {
	if r.replay != nil {
		return r.throughReplay()
	}
	r.stage("feed", 1, r.feed)
	r.startResolvers()
	r.stage("schedule", 1, r.schedule)
	r.stage("ask", r.cfg.Concurrency, r.ask)
	r.stage("judge", judges(), r.judge)
	r.stage("keep", 1, r.keep)
	r.stage("watch", 1, r.watchStandstills)
	return r.end()
}

// run is what the stages of one Run share: the channels between them.
//
//	feed ─fresh─► resolve ─resolved─► schedule ─asking─► ask ─judging─► judge ─keeping─► keep
//	                 ▲  ├────renewed─────►│  ▲             │               │ ▲              │
//	                 │  └───unanswered───►│  └────home─────┴─────home──────┘ └────sites─────┘
//	                 └───────renew────────┘
//
// For a look-up with all its time, of a record that was put off, the schedule starts a goroutine, which sends it back as found.
//
// Trays travel from the schedule to the judge and home again, sites from the judge to the keeper and back. The channels
// that carry trays hold all there are, so that passing one on never blocks; what blocks, when everything is busy, is the
// feed.
type run struct {
	*Pipeline
	group  *errgroup.Group
	ctx    context.Context // ends all work at once
	cancel context.CancelCauseFunc
	begun  time.Time

	lookups    context.Context // of look-ups: ends at Stop too
	endLookups context.CancelFunc
	resolving  context.Context // has the label of the stage
	places     []place         // of resolvers
	bearable   atomic.Int64    // patience with look-ups that begin now; 0: they have all their time
	holding    atomic.Int64    // the same where the resolver holds a newcomer

	lookingWhole atomic.Int64 // look-ups under way that are not those of resolvers

	fresh      chan record      // from the list
	renew      chan record      // from the schedule: hops, later tries, answers past their time
	resolved   chan record      // newcomers
	renewed    chan record      // records of renew
	unanswered chan record      // of both kinds, where the look-up was put off
	found      chan wholeAnswer // of those that were put off
	fed        chan uint64      // the number of records fed, once, at the feed's end

	still standstill

	gate    *gate
	trays   *trays
	asking  chan *tray
	judging chan *tray
	home    chan *tray
	keeping chan *audit.Site
	sites   chan *audit.Site // free ones
	judges  sync.WaitGroup

	ended chan struct{} // closed when no record is left

	failOnce sync.Once
	failure  error
}

func (p *Pipeline) newRun(ctx context.Context) *run {
	ctx, cancel := context.WithCancelCause(ctx)
	n := p.cfg.Concurrency
	r := &run{
		Pipeline: p,
		group:    new(errgroup.Group),
		ctx:      ctx,
		cancel:   cancel,
		begun:    time.Now(),
		fresh:    make(chan record, 64),
		renew:    make(chan record, 64), // so that a resolver finds one there, although the schedule is busy
		resolved: make(chan record, 64),
		renewed:  make(chan record, 64),

		unanswered: make(chan record, 64),
		found:      make(chan wholeAnswer),

		fed:     make(chan uint64, 1),
		gate:    newGate(&p.cfg),
		trays:   newTrays(n),
		asking:  make(chan *tray, n),
		judging: make(chan *tray, n),
		home:    make(chan *tray, n),
		ended:   make(chan struct{}),
	}
	r.still.told = func(stood time.Duration) {
		r.progress.Standstills.Add(1)
		r.progress.stood.Add(int64(stood))
	}
	r.lookups, r.endLookups = context.WithCancel(ctx)
	r.resolving = r.labelled("resolve")
	r.places = make([]place, p.cfg.Resolvers+p.cfg.SilentLookups)
	for i := range r.places {
		r.places[i].state.Store(placeVacant)
	}
	if p.cfg.SilentLookups < p.cfg.Resolvers {
		r.bearable.Store(int64(p.cfg.Patience)) // or the first look-ups could take all places before the schedule looks at them
	}
	r.holding.Store(int64(p.cfg.Patience))
	// Each judge holds one site and the keeper another; a few more keep them from waiting for each other.
	sites := 4*judges() + 4
	r.keeping, r.sites = make(chan *audit.Site, sites), make(chan *audit.Site, sites)
	for range sites {
		r.sites <- &audit.Site{}
	}
	r.judges.Add(judges())
	return r
}

// judges is how many goroutines judge: as many as there are processors.
func judges() int { return runtime.GOMAXPROCS(0) }

// stage starts n goroutines of one stage. A profile of the processor tells the stages apart by the label "stage".
func (r *run) stage(name string, n int, work func() error) {
	ctx := r.labelled(name)
	for range n {
		r.group.Go(func() error {
			pprof.SetGoroutineLabels(ctx)
			return work()
		})
	}
}

// labelled is the run's context with a stage's label, so that whoever sets another for a part of the work can set the
// stage's again.
func (r *run) labelled(stage string) context.Context {
	return pprof.WithLabels(r.ctx, pprof.Labels("stage", stage))
}

// end waits for every stage, and says how the run ended.
func (r *run) end() error {
	err := r.group.Wait()
	cause := context.Cause(r.ctx)
	r.cancel(nil)
	switch {
	case r.failure != nil:
		return r.failure
	case err != nil:
		return err
	case cause != nil && !errors.Is(cause, errDrain):
		return cause
	case r.progress.Kept.Load() < r.progress.Fed.Load():
		return ErrStopped
	}
	select {
	case <-r.stop:
		// The feed may have been stopped between two entries, with all that it had fed kept.
		if !r.progress.listDone.Load() {
			return ErrStopped
		}
	default:
	}
	return nil
}

// fail ends the run for an error of ours: the feed stops, later stages go on draining.
func (r *run) fail(err error) {
	r.note(err)
	r.Stop()
}

// note keeps the error with which the run will end. The first counts.
func (r *run) note(err error) { r.failOnce.Do(func() { r.failure = err }) }

// feed reads the list until its end or Stop.
func (r *run) feed() error {
	var n uint64
	defer func() { r.fed <- n }()
	r.list(func(entry Entry) bool {
		rec := newRecord(entry)
		rec.scheme = r.fetch.First(entry.Origin, exchange.Past{}).Origin.Scheme()
		select {
		case r.fresh <- rec:
			n++
			r.progress.Fed.Add(1)
			return true
		case <-r.stop:
		case <-r.ctx.Done():
		}
		return false
	})
	return nil
}

// list reads the list until its end or Stop, and hands on what no earlier run has kept, until that is wanted no more.
func (r *run) list(handOn func(Entry) bool) {
	for {
		select {
		case <-r.stop:
			return
		case <-r.ctx.Done():
			return
		default:
		}
		entry, err := r.source.Next()
		if errors.Is(err, io.EOF) {
			r.progress.listDone.Store(true)
			return
		}
		if err != nil {
			select {
			case <-r.stop: // who stops a run may have closed its list to wake us
			default:
				// No reason to stop: what was read is asked and kept, and then the error is told.
				r.note(fmt.Errorf("cannot read the list: %w", err))
			}
			return
		}
		if r.cfg.Skip != nil && r.cfg.Skip(entry.Seq) {
			r.progress.Skipped.Add(1)
			continue
		}
		if !handOn(entry) {
			return
		}
	}
}

// ask performs one exchange at a time.
func (r *run) ask() error {
	ctx := r.labelled("ask")
	for t := range r.asking {
		if r.woken != nil {
			r.woken()
		}
		t.begin(r.begun)
		if t.record.failed.Outcome == 0 {
			r.enter(&t.tokens)
		}
		began, past, stood := time.Now(), t.exchange.Past, r.stood()
		t.next = r.fetch.Do(ctx, &t.exchange)
		stood = min(r.stood()-stood, time.Since(began)) // of what was noticed only now, some may lie before
		switch {
		case stood > 0:
			forgive(&t.response.Timing, stood)
			t.exchange.Past.Spent = max(0, t.exchange.Past.Spent-stood)
		case t.response.Outcome == exchange.Answered:
			t.answered = time.Since(began)
		}
		switch {
		case r.ctx.Err() != nil:
			t.state = trayDropped // cut off: the failure is ours, not the origin's
			r.home <- t
		case stood > 0 && t.record.failed.Outcome == 0 && spoils(&t.response, t.next) && t.record.spoil():
			t.askOnceMore(past)
			r.progress.Spoilt.Add(1)
			r.home <- t
		case t.next.Again:
			r.progress.again(&t.exchange, t.next)
			t.state = trayAgain
			r.home <- t
		default:
			t.state = trayDone
			r.judging <- t
		}
	}
	return nil
}

// judge says what the answers amount to. It is a stage of its own so that as many goroutines compute as there are
// processors, whatever the number of exchanges in flight, and so that the memory which judging grows is theirs alone.
func (r *run) judge() error {
	defer r.judges.Done()
	for t := range r.judging {
		site := <-r.sites
		t.handOver(site)
		r.home <- t
		r.Pipeline.judge.Judge(site)
		r.keeping <- site
	}
	return nil
}

// keep hands the sites to the sink, one after the other. After an error it only takes them off the judges' hands.
func (r *run) keep() error {
	var failed bool
	for site := range r.keeping {
		if !failed {
			if err := r.sink.Add(site); err != nil {
				failed = true
				r.fail(fmt.Errorf("cannot keep %s: %w", site.Origin, err))
			} else {
				r.progress.kept(site)
			}
		}
		site.Reset()
		r.sites <- site
	}
	return nil
}
