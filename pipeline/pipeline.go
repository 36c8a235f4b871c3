// Package pipeline answers one question: when? It takes origins from a source through the stages resolve, schedule,
// ask, judge and keep, and owns all waiting between them: rates, redirect hops, retries, back-pressure, the end.
//
// The files, as an origin travels:
//
//	pipeline.go  a run, and its stages in order
//	record.go    an origin that waits
//	schedule.go  which exchange is next: one goroutine, and what it receives
//	turns.go     how a record gets its turn: by host, by address, in all
//	level.go     one kind of rate: its queues, and each key's next start
//	throttle.go  addresses that report too many requests
//	events.go    what is due at which time
//	lookups.go   look-ups under way
//	overdue.go   slow hosts and names, which must not hold up the others
//	refill.go    which records are spilled, and when they come back
//	calendar.go  spilled records, by the time when they are due
//	spill.go     the file of spilled records
//	stored.go    the encoding of a record in that file
//	slot.go      an exchange in flight
//	limiter.go   where an exchange starts, and its rates are enforced
//	stall.go     pauses of this process, which are no host's failure
//	replay.go    a run over archived answers
//	progress.go  counters for a display
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// Entry is one origin of the list.
type Entry struct {
	Seq    uint64 // 0-based line over all inputs
	Input  string // as listed
	Origin origin.Origin
	Rank   int64  // 0 where the list has none
	Label  string // "" where the list has none
}

// Source yields the list. Next returns io.EOF at its end; any other error ends the list: Run fetches and keeps all
// entries before it, and returns the error. Run waits for a Next that blocks, also after Stop. After Stop, unblock
// Next; its error is ignored. Next is called from one goroutine.
type Source interface {
	Next() (Entry, error)
}

// Fetcher performs single exchanges. Its methods are called from many goroutines; none of them waits for a rate.
type Fetcher interface {
	// First returns the first target of an origin that begins an attempt.
	First(o origin.Origin, past exchange.Past) exchange.Target
	// ResolveAll finds the addresses to dial for the targets of queries. It waits for no name server. It calls done
	// with each query once and several at a time, from any goroutine. done must not keep the slice. A failure is data
	// in the Lookup.
	ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query))
	// Do performs one exchange, fills x.Response, updates x.Past and says what comes next. A failing origin is data.
	Do(ctx context.Context, x *exchange.Exchange) exchange.Next
}

// Judge judges a site's answer. It is called from several goroutines, each with a Site of its own.
type Judge interface {
	Judge(*audit.Site)
}

// Sink keeps judged sites. Add is called from one goroutine and copies what it keeps: the Site is reused when it
// returns. An error ends the run.
type Sink interface {
	Add(*audit.Site) error
}

// Config configures a run. Zero rates mean no limit.
type Config struct {
	Concurrency int // exchanges in flight, but for overdue ones; at least 1
	// look-ups under way, and newcomers that wait for slots; 0 is DefaultResolvers, or Concurrency if that is less
	Resolvers int

	// SilentExchanges bounds the overdue exchanges beside those of Concurrency, and SilentLookups the overdue look-ups
	// beside those of Resolvers. Overdue ones take longer than others, because a host or a name server is silent. An
	// exchange costs a connection and its buffers, a look-up costs a goroutine. The defaults for 0 are
	// SilentBeside(Concurrency) and DefaultSilentLookups.
	SilentExchanges int
	SilentLookups   int

	HostRate float64 // exchanges a second to one host name
	IPRate   float64 // exchanges a second to one IPv4 address, or IPv6 network of /64
	Rate     float64 // exchanges a second in all

	// Rates has the rates of hosts and addresses that have their own; nil: none has.
	Rates Rates

	// Skip reports whether an earlier run of the same scan has kept an entry; nil skips nothing.
	Skip func(seq uint64) bool

	// Progress has the counts of earlier runs, and this run adds to them; nil counts from zero.
	Progress *Progress

	// MaxWaiting bounds the origins that wait in memory; 0 is DefaultMaxWaiting. More than that wait in a file in SpillDir
	// ("" is the system's folder for temporary files), which does not outlive the process.
	MaxWaiting int
	SpillDir   string

	// Drain bounds how long exchanges in flight may continue after Stop; 0 is DefaultDrain.
	Drain time.Duration
}

// Rates yields the rates of hosts and addresses that have their own, in exchanges a second; 0 is no limit. It is called
// from one goroutine, several times for each exchange.
type Rates interface {
	// Domain returns the domain to which a host belongs, and the rate that all hosts of the domain share, in place of
	// HostRate.
	Domain(host string) (domain string, perSecond float64, ok bool)
	// Address returns the rate of an IPv4 address, or of the /64 of an IPv6 address, in place of IPRate.
	Address(addr netip.Addr) (perSecond float64, ok bool)
}

// The defaults of Config.
const (
	DefaultResolvers     = 256
	DefaultSilentLookups = 4096
	DefaultMaxWaiting    = 262144
	DefaultDrain         = 20 * time.Second
)

// SilentBeside returns how many silent hosts a run may wait for beside its concurrency: four times as many. A list
// needs that if 6 % of its hosts are silent for 15 s by each of two schemes, and the others take half a second. It is
// at most 4096: these hold a quarter of a gigabyte if all are in the middle of a TLS handshake.
func SilentBeside(concurrency int) int { return min(4*concurrency, 4096) }

// ErrStopped is the error of Run when Stop ended it before the end of the list. Finished origins are kept, the rest is
// left to the next run of the same scan.
var ErrStopped = errors.New("stopped before the end of the list")

// Pipeline is one run. It is made by New and used once.
type Pipeline struct {
	cfg     Config
	source  Source
	fetcher Fetcher
	judge   Judge
	sink    Sink
	archive Archive // of a replay; else nil

	woken func() // called by a worker that starts to run; tests use it to simulate a busy machine
	// apart replaces keys before they choose cells of the tables; tests with exact times give each key a cell of its own.
	apart func(key) key

	progress *Progress
	stopOnce sync.Once
	stop     chan struct{} // closed by Stop, and by an error that ends the run early
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
	if cfg.SilentExchanges <= 0 {
		cfg.SilentExchanges = SilentBeside(cfg.Concurrency)
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = DefaultMaxWaiting
	}
	if cfg.Drain <= 0 {
		cfg.Drain = DefaultDrain
	}
	return &Pipeline{cfg: cfg, source: source, fetcher: fetch, judge: judge, sink: sink, progress: cmp.Or(cfg.Progress,
		&Progress{}), stop: make(chan struct{})}
}

// Progress returns the run's counters, which may be read at any time.
func (p *Pipeline) Progress() *Progress { return p.progress }

// Stop ends the run in order: no further exchange begins, exchanges in flight may end within Config.Drain and are kept,
// and waiting origins are dropped (a resumed run fetches them). It may be called from any goroutine, more than once.
func (p *Pipeline) Stop() { p.stopOnce.Do(func() { close(p.stop) }) }

// Run takes the complete list through the stages and returns when the last origin is kept. It returns nil at the list's
// end and ErrStopped after Stop. If the context ends, exchanges in flight are cut off and not kept, and it returns the
// context's error. Otherwise it returns the wrapped error of the source or the sink.
func (p *Pipeline) Run(ctx context.Context) error {
	r := p.newRun(ctx)
	if p.archive != nil {
		r.startReplay(p.archive)
	} else {
		r.start()
	}
	return r.wait()
}

// start starts the stages.
func (r *run) start() {
	r.stage("feed", 1, r.feed)
	r.stage("schedule", 1, r.schedule) // which starts the workers
	r.stage("resolve", 1, r.resolve)
	r.stage("judge", judges(), r.judge)
	r.stage("keep", 1, r.keep)
	r.stage("watch", 1, r.watchStalls)
}

// run is what the stages of one Run share: the channels between them.
//
//	feed ─fresh─► schedule ─asking─► ask ─judging─► judge ─keeping─► keep
//	                │  ▲  ▲           │               │ ▲              │
//	        requests│  │  └─returned──┴───returned────┘ └────sites─────┘
//	                ▼  │answers
//	               resolve
//
// Slots travel from the schedule to the judge and back, sites from the judge to the keeper and back. The channels that
// carry slots or look-ups have room for all of them, so that passing one on never blocks. When everything is busy, the
// feed blocks.
type run struct {
	cfg      *Config
	source   Source
	fetcher  Fetcher
	auditor  Judge
	sink     Sink
	progress *Progress
	woken    func()
	apart    func(key) key

	group  *errgroup.Group
	ctx    context.Context // ends all work at once
	cancel context.CancelCauseFunc
	begun  time.Time

	lookups    context.Context // of look-ups: ends at Stop too
	endLookups context.CancelFunc

	fresh    chan record            // from the list
	fed      chan uint64            // the number of records fed, once, at the feed's end
	requests chan []*exchange.Query // look-ups to start
	answers  chan []*exchange.Query // look-ups that have ended

	stalls stalls

	limiter  *limiter
	asking   chan *slot
	judging  chan *slot
	returned chan *slot
	keeping  chan *audit.Site
	sites    chan *audit.Site // free ones
	judges   sync.WaitGroup

	stop  <-chan struct{}
	halt  func()        // Stop
	ended chan struct{} // closed when no record is left

	failOnce sync.Once
	failure  error
}

func (p *Pipeline) newRun(ctx context.Context) *run {
	ctx, cancel := context.WithCancelCause(ctx)
	n := p.cfg.Concurrency + p.cfg.SilentExchanges
	p.progress.listDone.Store(false)
	r := &run{
		cfg: &p.cfg, source: p.source, fetcher: p.fetcher, auditor: p.judge, sink: p.sink, progress: p.progress,
		woken: p.woken, apart: p.apart,
		group: new(errgroup.Group), ctx: ctx, cancel: cancel, begun: time.Now(),
		fresh:    make(chan record, 64),
		fed:      make(chan uint64, 1),
		requests: make(chan []*exchange.Query, p.cfg.Resolvers+p.cfg.SilentLookups),
		answers:  make(chan []*exchange.Query, p.cfg.Resolvers+p.cfg.SilentLookups),
		limiter:  newLimiter(&p.cfg),
		asking:   make(chan *slot, n),
		judging:  make(chan *slot, n),
		returned: make(chan *slot, n),
		stop:     p.stop,
		halt:     p.Stop,
		ended:    make(chan struct{}),
	}
	r.stalls.told = func(lasted time.Duration) {
		r.progress.Stalls.Add(1)
		r.progress.stalled.Add(int64(lasted))
	}
	r.lookups, r.endLookups = context.WithCancel(ctx)
	// Each judge holds one site and the keeper another. With a few more sites they need not wait for each other.
	sites := 4*judges() + 4
	if p.archive != nil { // only the sink takes time: answers are judged while it encodes a batch
		sites += 128
	}
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

// labelled is the run's context with a stage's label. The fetcher sets labels for parts of its work, and then restores
// the stage's label.
func (r *run) labelled(stage string) context.Context {
	return pprof.WithLabels(r.ctx, pprof.Labels("stage", stage))
}

// wait waits for every stage, and says how the run ended.
func (r *run) wait() error {
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
		// The feed may have stopped between two entries, when all entries fed so far were kept.
		if !r.progress.listDone.Load() {
			return ErrStopped
		}
	default:
	}
	return nil
}

// fail ends the run for an error of ours: the feed stops, later stages drain.
func (r *run) fail(err error) {
	r.note(err)
	r.halt()
}

// note keeps the error that Run will return. The first counts.
func (r *run) note(err error) { r.failOnce.Do(func() { r.failure = err }) }

// feed reads the list until its end or Stop.
func (r *run) feed() error {
	var n uint64
	defer func() { r.fed <- n }()
	r.list(func(entry Entry) bool {
		rec := newRecord(entry)
		rec.scheme = r.fetcher.First(entry.Origin, exchange.Past{}).Origin.Scheme()
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

// list reads the list until its end or Stop, and passes on the entries that no earlier run has kept, until pass reports
// false.
func (r *run) list(pass func(Entry) bool) {
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
			case <-r.stop: // the list may have been closed to unblock Next
			default:
				// The entries read so far are fetched and kept; then Run returns the error.
				r.note(fmt.Errorf("cannot read the list: %w", err))
			}
			return
		}
		if r.cfg.Skip != nil && r.cfg.Skip(entry.Seq) {
			r.progress.Skipped.Add(1)
			continue
		}
		if !pass(entry) {
			return
		}
	}
}

// startWorker starts a goroutine that performs exchanges.
func (r *run) startWorker() { r.stage("ask", 1, r.ask) }

// ask performs one exchange at a time.
func (r *run) ask() error {
	ctx := r.labelled("ask")
	for t := range r.asking {
		if r.woken != nil {
			r.woken()
		}
		t.begin(r.begun)
		if t.record.failed.Outcome == 0 {
			r.waitForStart(&t.tokens)
		}
		began, past, stalled := time.Now(), t.exchange.Past, r.stalled()
		t.next = r.fetcher.Do(ctx, &t.exchange)
		t.flight.ended.Store(true)
		stalled = min(r.stalled()-stalled, time.Since(began)) // a stall that is noticed only now may have begun before
		switch {
		case stalled > 0:
			forgive(&t.response.Timing, stalled)
			t.exchange.Past.Spent = max(0, t.exchange.Past.Spent-stalled)
		case t.response.Outcome == exchange.Answered:
			t.answered = time.Since(began)
		}
		switch {
		case r.ctx.Err() != nil:
			t.state = slotDropped // cut off: our failure, not the origin's
			r.returned <- t
		case stalled > 0 && t.record.failed.Outcome == 0 && spoils(&t.response) && t.record.spoil():
			t.repeat(past)
			r.progress.Spoilt.Add(1)
			r.returned <- t
		case t.next.Again:
			r.progress.again(&t.exchange, t.next)
			t.state = slotAgain
			r.returned <- t
		default:
			t.state = slotDone
			r.judging <- t
		}
	}
	return nil
}

// judge judges the answers. There is one such goroutine for each processor, whatever the number of exchanges in flight.
// Only they own memory that grows with large files.
func (r *run) judge() error {
	defer r.judges.Done()
	for t := range r.judging {
		site := <-r.sites
		t.handOver(site)
		r.returned <- t
		r.auditor.Judge(site)
		r.keeping <- site
	}
	return nil
}

// keep hands the sites to the sink, one after the other. After an error it only receives the sites.
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
