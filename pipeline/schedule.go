package pipeline

import (
	"errors"
	"runtime"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// schedule is the stage that chooses the next exchange. One goroutine owns everything below, so nothing in it is
// locked. turns.go has how a record gets its turn.
type schedule struct {
	cfg      *Config
	progress *Progress
	begun    time.Time
	now      time.Duration // since the run began, at the last look

	in  incoming
	out outgoing
	end ending

	slots   slots
	limiter *limiter
	stalled func() time.Duration // how long the process has stalled so far
	levels  [numLevels]*level    // nil where there is no limit
	rates   Rates                // nil: no host or address has its own
	records *slab
	events  events

	lookups   lookups
	renewals  fifo            // records to be resolved again
	resolving int             // records that are being resolved again
	turns     map[uint64]turn // by seq: the turns of records whose address is renewed

	nextWatch time.Duration // when to look for what is overdue again
	nextCount time.Duration // when to count what is silent again
	asleep    int           // records that wait in memory for a time

	spill     *spill
	later     calendar // spilled records that wait for their turn, by its estimate
	sleepers  calendar // spilled records that must not be fetched before a time
	refilling bool     // some of later come back before they are due, since memory is nearly empty

	fedAll   bool
	fedCount uint64
	over     uint64 // records done or dropped

	stopping bool
	late     <-chan time.Time // fires when draining has taken too long
}

// incoming is what the schedule receives. A channel becomes nil when nothing more is to be received from it.
type incoming struct {
	fresh    <-chan record            // from the list
	fed      <-chan uint64            // the number of records fed, once
	answers  <-chan []*exchange.Query // look-ups that have ended
	returned <-chan *slot
	stop     <-chan struct{} // Stop
	done     <-chan struct{} // the run's context
}

// outgoing is where the schedule sends slots. It has room for all of them.
type outgoing struct {
	asking chan<- *slot
}

// ending is how the schedule ends other work.
type ending struct {
	lookups func()      // at Stop: look-ups under way return at once
	work    func(error) // when the drain is over: exchanges in flight are cut off
	run     func(error) // on an error of ours: as Stop, and the run returns the error
}

func (r *run) newSchedule() *schedule {
	s := &schedule{
		cfg: r.cfg, progress: r.progress, begun: r.begun,
		in:      incoming{r.fresh, r.fed, r.answers, r.returned, r.stop, r.ctx.Done()},
		out:     outgoing{r.asking},
		end:     ending{r.endLookups, r.cancel, r.fail},
		slots:   newSlots(r.cfg, r.startWorker),
		limiter: r.limiter, stalled: r.stalled,
		rates:   r.cfg.Rates,
		records: newSlab(), turns: make(map[uint64]turn), spill: newSpill(r.cfg.SpillDir),
		lookups: newLookups(r),
	}
	for l, limit := range r.limiter.limits {
		s.levels[l] = newLevel(limit, r.apart)
	}
	return s
}

// schedule runs the stage.
func (r *run) schedule() error {
	s := r.newSchedule()
	s.loop()
	s.spill.close()
	r.finish()
	return nil
}

// loop does what is due, and then waits for the next thing to happen, until no record is left.
func (s *schedule) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !s.finished() {
		s.look()
		s.watch()
		s.serve()
		s.refill()
		s.startRenewals()
		s.publish()
		if s.admit() {
			continue
		}

		fresh, answers := s.in.fresh, s.in.answers
		if !s.wantsNewcomers() {
			fresh = nil
		}
		if len(fresh) == 0 && len(s.lookups.batch) > 0 {
			runtime.Gosched() // the feed may have more for the batch
		}
		if len(fresh) == 0 {
			s.lookups.send()
		}
		timer.Reset(s.untilNext())
		if s.stopping {
			answers = nil
		}
		select {
		case rec := <-fresh:
			s.look()
			s.lookups.start(rec, s.now, s.stalled())
		case found := <-answers:
			s.look()
			for _, q := range found {
				s.lookedUp(s.lookups.all[q.ID])
			}
		case t := <-s.in.returned:
			s.look()
			s.takeBack(t)
		case <-timer.C:
		case s.fedCount = <-s.in.fed:
			s.fedAll = true
		case <-s.in.stop:
			s.in.stop, s.stopping = nil, true
			s.end.lookups()
			s.late = time.After(s.cfg.Drain)
		case <-s.late:
			s.end.work(errDrain)
		case <-s.in.done:
			s.in.done, s.stopping = nil, true
		}
	}
	s.publish()
}

// errDrain cuts off exchanges that outlast the drain. It is no failure of the run: the next run fetches their origins
// again.
var errDrain = errors.New("exchanges in flight took longer than the drain")

// finish lets the other stages end. Every slot is free, so the channels of slots are empty and nothing more is sent.
// The judges may still be at work on the last answers.
func (r *run) finish() {
	r.progress.Waiting.Store(0)
	r.progress.Lookups.Store(0)
	close(r.ended)
	close(r.requests)
	close(r.asking)
	close(r.judging)
	r.judges.Wait()
	close(r.keeping)
}

func (s *schedule) look() { s.now = time.Since(s.begun) }

// finished reports whether no record is left, or, when the run is being stopped, no slot is in use.
func (s *schedule) finished() bool {
	return s.slots.allFree() && (s.stopping || s.fedAll && s.over == s.fedCount)
}

// untilNext is how long until something is due.
func (s *schedule) untilNext() time.Duration {
	switch {
	case s.stopping:
		return time.Hour
	case s.slots.empty():
		return s.untilWatch() // all other due events need a slot
	}
	if s.mayRefill() {
		return 0
	}
	next := time.Hour
	if len(s.events) > 0 {
		next = max(0, s.events[0].at-s.now)
	}
	return min(next, s.untilRefill(), s.untilWatch())
}

// goOn continues with a record that has been resolved.
func (s *schedule) goOn(rec record) {
	if _, near := s.turns[rec.seq]; near {
		s.takeTurn(rec)
		return
	}
	if rec.failed.Outcome != 0 {
		s.dispatch(rec)
		return
	}
	s.pass(rec, 0)
}

// serve handles the events that are due, as long as there are slots.
func (s *schedule) serve() {
	for !s.stopping && len(s.events) > 0 && s.events[0].at <= s.now && !s.slots.empty() {
		e := s.events.pop()
		if e.level == wake {
			s.wakeUp(ref(e.what))
		} else {
			s.serveKey(int(e.level), key(e.what))
		}
	}
}

// wakeUp takes a record whose time has come.
func (s *schedule) wakeUp(i ref) {
	s.asleep--
	s.resolveAgain(i)
}

// sleep lets a record wait in memory until due.
func (s *schedule) sleep(rec record, due time.Duration) {
	s.asleep++
	s.events.push(event{at: due, what: uint64(s.records.put(rec)), level: wake})
}

// takeBack takes a slot from the workers or the judges. Slots are always received.
func (s *schedule) takeBack(t *slot) {
	rec, state, next, past := t.record, t.state, t.next, t.exchange.Past
	s.slots.took(t.answered)
	if next.Throttled {
		s.progress.Throttled.Add(1)
		s.levels[byAddress].throttled(s.token(byAddress, &rec), t.sent, s.now)
	}
	s.slots.put(t)
	if state != slotAgain || s.stopping {
		s.over++
		return
	}
	rec.setNext(past, next.Target)
	switch {
	case next.After > 0 && (s.waiting() >= s.cfg.MaxWaiting || s.asleep >= s.part(sleepShare)):
		s.check(s.sleepers.put(s.spill, s.now+next.After, s.now, rec))
	case next.After > 0:
		s.sleep(rec, s.now+next.After)
	default:
		s.resolveAgain(s.records.put(rec))
	}
}

// resolveAgain queues a record for a look-up.
func (s *schedule) resolveAgain(i ref) {
	s.renewals.push(i, s.records)
}

// waiting is how many records wait in memory.
func (s *schedule) waiting() int { return s.records.used + s.resolving }

// publish updates the counts of waiting records in Progress.
func (s *schedule) publish() {
	s.progress.Waiting.Store(int64(s.waiting()))
	s.progress.Spilled.Store(int64(s.later.held + s.sleepers.held))
	s.progress.spillWritten.Store(s.spill.written)
	s.progress.Silent.Store(int64(s.slots.silent + s.lookups.silent))
	s.progress.Asleep.Store(int64(s.asleep))
	s.progress.Lookups.Store(int64(len(s.lookups.running)))
}
