package pipeline

import (
	"errors"
	"time"
)

// schedule is the stage that says who is asked next. One goroutine owns everything below, so nothing in it is locked.
//
// A record with an address passes the levels in order: by host, by address, in all. It passes a level at once if its key is due
// and the key's queue is empty; otherwise it joins the queue. A record that has passed the last level takes a slot and spends a
// token at every level at that moment. Tokens are never reserved, so a queue behind a slow host does not hold up the address
// that the host shares with others.
//
// While a record waits at a later level, its keys at the earlier levels are claimed: at most one record of a host waits in the
// queues by address. Every step is O(1), however long a queue is.
//
// An exchange that is sent in time may start late, and the next one would be too early: see limiter.
type schedule struct {
	cfg      *Config
	progress *Progress
	begun    time.Time
	now      time.Duration // since the run began, at the last look

	in  incoming
	out outgoing
	end ending

	slots   *slots
	limiter *limiter
	levels  [numLevels]*level // nil where there is no limit
	records *slab
	events  events

	lookups   lookups
	renewals  fifo            // records to be resolved again
	renewing  int             // how many
	inFull    fifo            // records to be resolved again in full
	resolving int             // records of both that are being resolved
	turns     map[uint64]turn // by seq: the turns of records whose address is renewed

	deferral  deferral
	spill     *spill
	calendar  *calendar
	refilling bool // from the calendar, until memory is half in use

	fedAll   bool
	fedCount uint64
	over     uint64 // records done or dropped

	stopping bool
	late     <-chan time.Time // fires when draining has taken too long
}

// incoming is what the schedule receives. A channel that is not to be received from any more becomes nil.
type incoming struct {
	fresh    <-chan record // from the list
	fed      <-chan uint64 // the number of records fed, once
	answers  <-chan answer // of look-ups
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
		slots:   newSlots(r.cfg.Concurrency),
		limiter: r.limiter,
		records: newSlab(), turns: make(map[uint64]turn), spill: newSpill(r.cfg.SpillDir),
		lookups: lookups{requests: r.requests, newOne: r.startResolver, next: watchEvery},
	}
	s.calendar = newCalendar(s.spill)
	if r.cfg.SilentLookups < r.cfg.Resolvers {
		s.lookups.patience = r.cfg.Patience // or the first look-ups could use all credit before watchLookups runs
	}
	for l, limit := range r.limiter.limits {
		s.levels[l] = newLevel(limit)
	}
	return s
}

// schedule is the stage.
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
		s.watchLookups()
		s.serve()
		s.refill()
		s.recall()
		s.startLookups()
		s.publish()
		if s.admit() {
			continue
		}
		timer.Reset(s.untilNext())

		fresh, answers := s.in.fresh, s.in.answers
		if !s.creditForNewcomer() {
			fresh = nil
		}
		if s.stopping {
			answers = nil
		}
		select {
		case rec := <-fresh:
			s.look()
			s.lookups.start(rec, lookupAsking, s.now)
		case a := <-answers:
			s.look()
			s.lookedUp(a)
		case t := <-s.in.returned:
			s.look()
			s.takeBack(t)
		case <-timer.C:
		case s.fedCount = <-s.in.fed:
			s.fedAll = true
			s.lookups.next = 0
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

// errDrain cuts off exchanges that outlast the drain. It is no failure of the run: the next run asks their origins again.
var errDrain = errors.New("exchanges in flight took longer than the drain")

// finish lets the other stages end. Every slot is free, so their channels are empty and nothing more is sent; the judges may
// still be at work on the last answers.
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

// The levels, in the order in which records pass them.
const (
	byHost = iota
	byAddress
	inAll
	numLevels
)

// key finds a record's key at a level.
func (s *schedule) key(level int, rec *record) key {
	switch level {
	case byHost:
		return s.levels[level].keyOfString(rec.target().Origin.Host())
	case byAddress:
		network := networkOf(rec.addr)
		return s.levels[level].keyOf(network[:])
	}
	return 0
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
		return s.untilWatch() // everything else that is due needs a slot
	}
	if s.mayRefill() {
		return 0
	}
	next := time.Hour
	if len(s.events) > 0 {
		next = max(0, s.events[0].at-s.now)
	}
	return min(next, s.untilLull(), s.untilRefill(), s.untilWatch())
}

// goOn takes a record that has been resolved.
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

// backlogged reports whether the queue for the rate in all is so long that the addresses of more records would expire in it. Then
// the list is read no further, and no deferred record is recalled.
func (s *schedule) backlogged() bool {
	return s.levels[inAll] != nil && int(s.levels[inAll].queues[0].length) >= min(maxBacklog, 1+s.cfg.MaxWaiting/2)
}

const (
	maxBacklog = 256
	crowdedFor = 5 * time.Millisecond // until a crowded key is looked at again
)

// pass takes a record through the levels from the given one on. It holds the keys of the levels before.
func (s *schedule) pass(rec record, from int) {
	for l, level := range s.levels {
		switch {
		case level == nil:
			continue
		case l < from:
			if at := s.key(l, &rec); level.next(at) > s.now {
				s.stepBack(rec, l)
				return
			}
			continue
		case level.free(s.key(l, &rec), s.now):
			continue
		}
		if at := s.key(l, &rec); from == 0 && s.crowded(l, at, &rec) {
			s.putBehind(rec, l, at)
			return
		}
		for k := range l {
			if s.levels[k] != nil {
				s.levels[k].claim(s.key(k, &rec))
			}
		}
		at := s.key(l, &rec)
		s.levels[l].push(at, s.records.put(rec), from > 0, s.records)
		s.arm(l, at)
		return
	}
	s.dispatch(rec)
}

// stepBack lets a record that has passed a level wait there once more, before the others: meanwhile an exchange of its key has
// started late, or one of another key that shares the cell has started.
func (s *schedule) stepBack(rec record, l int) {
	for k, level := range s.levels {
		if level == nil {
			continue
		}
		at := s.key(k, &rec)
		switch {
		case k < l:
			level.claim(at)
		case k == l:
			level.release(at)
			level.pushFirst(at, s.records.put(rec), s.records)
			s.arm(k, at)
		default:
			s.release(k, at)
		}
	}
}

// arm makes the event for a key whose queue nothing else will serve. A key never has two.
func (s *schedule) arm(l int, at key) {
	level := s.levels[l]
	q, ok := level.queues[at]
	if !ok || q.armed || q.claimed || q.length == 0 {
		return
	}
	q.armed = true
	level.queues[at] = q
	s.events.push(event{at: level.next(at), what: uint64(at), level: uint8(l)})
}

// dispatch gives a record a slot and sends it to be asked. That spends a token at every level. A record whose look-up failed
// makes no request and spends none.
func (s *schedule) dispatch(rec record) {
	t := s.slots.take()
	t.record = rec
	t.patience = s.patience(&rec)
	if rec.failed.Outcome == 0 {
		t.sent = s.now
		for l, level := range s.levels {
			if level == nil {
				continue
			}
			at := s.key(l, &rec)
			t.tokens[l] = level.spend(at, s.now)
			s.release(l, at)
		}
		s.limiter.sent(&t.tokens)
	}
	s.out.asking <- t
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
	s.deferral.asleep--
	if l := s.lineOf(s.records.at(i).flags); l != nil {
		s.enqueue(l, s.records.take(i))
		return
	}
	s.resolveAgain(i)
}

// serveKey gives the key's turn to the first record of its queue.
func (s *schedule) serveKey(l int, at key) {
	level := s.levels[l]
	q := level.queues[at]
	q.armed = false
	level.put(at, q)
	for s.expiredFirst(&q) && q.ahead < level.ahead {
		s.renewInTurn(s.records.take(level.popOut(at, s.records)), l, at)
		q = level.queues[at]
	}
	switch {
	case q.claimed || q.length == 0:
	case level.next(at) > s.now:
		s.arm(l, at) // another record passed since the event was made
	case level.limit.crowded(at):
		level.delay(at, s.now+crowdedFor)
		s.arm(l, at)
	case q.back.head != 0 || q.first() != nil && !s.expiredFirst(&q):
		s.pass(s.records.take(level.pop(at, s.records)), l+1)
	}
	// Else all whose turn is near are being resolved; one that returns arms the key.
}

// release ends a claim.
func (s *schedule) release(l int, at key) {
	s.levels[l].release(at)
	s.arm(l, at)
}

// takeBack takes a slot from the workers or the judges. Slots are always received; deferred records hold none.
func (s *schedule) takeBack(t *slot) {
	rec, state, next, past := t.record, t.state, t.next, t.exchange.Past
	outOfTime := ranOut(t.response.Outcome) && (next.PutOff || next.Target.Unmet == 0) // else another address is next
	s.deferral.pace.keep(t.answered)
	if next.Throttled {
		s.progress.Throttled.Add(1)
		s.levels[byAddress].throttled(t.tokens[byAddress].key, t.sent, s.now)
	}
	s.slots.put(t)
	if rec.is(hostDeferred) {
		s.deferral.hosts.out--
	}
	if state != slotAgain || s.stopping {
		s.over++
		return
	}
	rec.setNext(past, next.Target)
	rec.set(hostDeferred, outOfTime)
	rec.set(hostWasDeferred, rec.is(hostWasDeferred) || next.PutOff)
	switch l := s.lineOf(rec.flags); {
	case next.After > 0 && s.waiting() >= s.cfg.MaxWaiting:
		s.putAside(rec, spillHeader{due: s.now + next.After, asleep: true})
	case next.After > 0:
		s.sleep(rec, s.now+next.After)
	case l != nil:
		s.enqueue(l, rec)
	default:
		s.resolveAgain(s.records.put(rec))
	}
}

// resolveAgain queues a record for a look-up.
func (s *schedule) resolveAgain(i ref) {
	if s.records.at(i).is(nameWasDeferred) {
		s.inFull.push(i, s.records)
		return
	}
	s.renewals.push(i, s.records)
	s.renewing++
}

// expired reports whether a record's address must be resolved again before it is dialled.
func (s *schedule) expired(rec *record) bool {
	return rec.until != 0 && time.Duration(rec.until)*time.Second <= s.now && rec.failed.Outcome == 0
}

// expiredFirst reports whether the address of the first record in a key's queue has expired.
func (s *schedule) expiredFirst(q *queue) bool {
	line := q.first()
	return line != nil && s.expired(s.records.at(line.head))
}

// turn is the turn that a record was near when its address expired: at a level that is not claimed meanwhile, with the keys of the
// levels before it claimed.
type turn struct {
	level int
	keys  [numLevels]key // up to that level's
}

// renewInTurn has the address of a record resolved again shortly before its turn. The record keeps its turn, because a queue that
// lasts longer than addresses live would never move otherwise. The records behind it go on meanwhile, because a rate must not sink
// to one look-up at a time.
func (s *schedule) renewInTurn(rec record, l int, at key) {
	t := turn{level: l}
	t.keys[l] = at
	for k := range l {
		if s.levels[k] != nil {
			t.keys[k] = s.key(k, &rec)
		}
	}
	s.turns[rec.seq] = t
	s.resolveAgain(s.records.put(rec))
}

// takeTurn takes a record whose address was renewed: it is the next at its level if the address is the same, and queues at the new
// one otherwise. The answer counts for this turn, however soon it expires.
func (s *schedule) takeTurn(rec record) {
	t := s.turns[rec.seq]
	delete(s.turns, rec.seq)
	failed := rec.failed.Outcome != 0
	moved := t.level >= byAddress && s.levels[byAddress] != nil && s.key(byAddress, &rec) != t.keys[byAddress]
	switch {
	case failed:
		s.loseTurn(t, byHost)
		s.dispatch(rec)
	case moved:
		s.loseTurn(t, byAddress)
		s.pass(rec, byAddress)
	default:
		s.levels[t.level].pushBack(t.keys[t.level], s.records.put(rec), s.records)
		s.arm(t.level, t.keys[t.level])
	}
}

// loseTurn gives up a turn, and the keys of the levels before it from the given one on.
func (s *schedule) loseTurn(t turn, from int) {
	s.levels[t.level].lose(t.keys[t.level])
	s.arm(t.level, t.keys[t.level])
	for l := from; l < t.level; l++ {
		if s.levels[l] != nil {
			s.release(l, t.keys[l])
		}
	}
}

// regainTurn takes a record that lost its turn because its name was silent, and whose address is the same. It goes before the others
// at that address, as soon as its host is free. The answer counts for this turn, however soon it expires.
func (s *schedule) regainTurn(rec record) {
	host, address := s.levels[byHost], s.levels[byAddress]
	if address == nil || host != nil && !host.free(s.key(byHost, &rec), s.now) || s.waiting() >= s.cfg.MaxWaiting {
		s.pass(rec, 0)
		return
	}
	if host != nil {
		host.claim(s.key(byHost, &rec))
	}
	at := s.key(byAddress, &rec)
	address.pushFirst(at, s.records.put(rec), s.records)
	s.arm(byAddress, at)
}

// waiting is how many records wait in memory.
func (s *schedule) waiting() int { return s.records.used + s.resolving }

// publish shows how many wait.
func (s *schedule) publish() {
	names := &s.deferral.names
	s.progress.Waiting.Store(int64(s.waiting() + names.out))
	s.progress.Spilled.Store(int64(s.calendar.count + s.deferral.hosts.spilled.count + names.spilled.count))
	s.progress.spillWritten.Store(s.spill.written)
	s.progress.Deferred.Store(int64(s.deferral.hosts.all() + names.all()))
	s.progress.DeferredNames.Store(int64(names.all()))
	s.progress.Asleep.Store(int64(s.deferral.asleep))
	s.progress.Lookups.Store(int64(s.lookups.underWay()))
}

// fifo is a list of waiting records, linked through the slab.
type fifo struct{ head, tail ref }

func (f *fifo) push(i ref, records *slab) {
	records.at(i).next = 0
	if f.tail == 0 {
		f.head = i
	} else {
		records.at(f.tail).next = i
	}
	f.tail = i
}

func (f *fifo) pop(records *slab) ref {
	i := f.head
	p := records.at(i)
	f.head, p.next = p.next, 0
	if f.head == 0 {
		f.tail = 0
	}
	return i
}
