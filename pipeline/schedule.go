package pipeline

import (
	"errors"
	"time"
)

// schedule is the stage that says who is asked next. One goroutine owns everything below, so nothing here is locked.
//
// A record with an address passes the levels in order: by host, by address, in all. At each it passes at once where
// its key is due and nobody waits; else it joins the key's queue. A record past the last level takes a tray, and
// spends a token at every level at that moment: tokens are never reserved for later, so a queue behind a slow host
// leaves the address that it shares with others alone, and a queue behind a busy address costs nobody else a thing.
//
// While a record waits at a later level, its keys at the earlier ones are claimed: at most one record a host stands
// in the queues by address. Every step is O(1), however long a queue is.
//
// What is sent off at its time may start late, and then the next is too early: see gate.
type schedule struct {
	*run
	levels  [numLevels]*level // nil where there is no limit
	records *slab
	events  events
	now     time.Duration // since the run began, at the last look

	renewals fifo            // records to be resolved (again), in turn, by the resolvers
	renewing int             // how many
	whole    fifo            // the same by goroutines of their own: records that are quiet
	abroad   int             // of both, how many are being resolved
	turns    map[uint64]turn // by seq: the turns of records whose address is asked again
	spill    *spill
	rounds   rounds
	slow     deferral
	watch    watch

	fedAll   bool
	fedCount uint64
	over     uint64 // records done or dropped

	stopping bool
	late     <-chan time.Time // fires when draining has taken too long
}

func (r *run) schedule() error {
	s := &schedule{run: r, records: newSlab(), turns: make(map[uint64]turn), spill: newSpill(r.cfg.SpillDir)}
	for l, lane := range r.gate.lanes {
		s.levels[l] = newLevel(lane)
	}
	s.watch.places, s.watch.next = r.cfg.Resolvers, watchEvery
	defer s.spill.close()
	defer r.finish()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !s.finished() {
		s.look()
		s.watchResolvers()
		s.serve()
		s.unspill()
		s.recall()
		s.publish()
		timer.Reset(s.untilNext())

		// What cannot be taken now has a nil channel: newcomers wait while no tray is free, records to be resolved
		// wait for a resolver. Trays always come home. Who was put off needs none.
		var newcomers, renewed, unanswered chan record
		var found chan wholeAnswer
		if !s.stopping {
			unanswered = r.unanswered
		}
		if !s.trays.empty() && !s.stopping {
			renewed = r.renewed
			if s.watch.whole > 0 {
				found = r.found
			}
			if !s.backlogged() {
				newcomers = r.resolved
			}
		}
		renew, first := s.renewal()

		select {
		case rec := <-newcomers:
			s.look()
			s.arrive(rec)
		case rec := <-renewed:
			s.look()
			s.arrive(rec)
		case a := <-found:
			s.look()
			s.findAtLast(a)
		case rec := <-unanswered:
			s.look()
			s.unheardOf(rec)
		case renew <- first:
			s.records.take(s.renewals.pop(s.records))
			s.renewing--
			s.abroad++
		case t := <-r.home:
			s.look()
			s.comeHome(t)
		case <-timer.C:
		case s.fedCount = <-r.fed:
			s.fedAll = true
			s.watch.next = 0
		case <-s.stopped():
			s.stopping = true
			s.endLookups()
			s.late = time.After(r.cfg.Drain)
		case <-s.late:
			r.cancel(errDrain)
		case <-r.aborted(s.stopping):
			s.stopping = true
		}
	}
	s.publish()
	return nil
}

// errDrain is what cuts off exchanges that outlast the drain. It is no failure of the run: their origins are asked
// again by the next one.
var errDrain = errors.New("exchanges in flight took longer than the drain")

// finish lets the other stages end. Every tray is home, so nothing is in their channels and nobody sends any more; the
// judges may still be at work on what the last trays brought.
func (r *run) finish() {
	r.progress.Waiting.Store(0)
	r.progress.Lookups.Store(0)
	close(r.ended)
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

// finished reports whether no record is left, or, when the run is being stopped, no tray is out.
func (s *schedule) finished() bool {
	if !s.trays.allHome() {
		return false
	}
	return s.stopping || s.fedAll && s.over == s.fedCount
}

func (s *schedule) stopped() <-chan struct{} {
	if s.stopping {
		return nil
	}
	return s.stop
}

// aborted is the end of the context, until it has been seen.
func (r *run) aborted(seen bool) <-chan struct{} {
	if seen {
		return nil
	}
	return r.ctx.Done()
}

// untilNext is how long nothing happens by itself.
func (s *schedule) untilNext() time.Duration {
	switch {
	case s.stopping:
		return time.Hour
	case s.trays.empty():
		return s.untilWatch() // what else is due needs a tray; one that comes home wakes us
	}
	if s.mayUnspill() {
		return 0
	}
	next := time.Hour
	if len(s.events) > 0 {
		next = max(0, s.events[0].at-s.now)
	}
	return min(next, s.untilLull(), s.untilWatch())
}

// arrive takes a record that the resolvers have an answer for.
func (s *schedule) arrive(rec record) {
	s.backFrom(&rec)
	s.heardOf(&rec)
	s.goOn(rec)
}

// findAtLast takes a record whose name was looked up with all its time.
func (s *schedule) findAtLast(a wholeAnswer) {
	s.watch.whole--
	if a.rec.is(abroad) {
		s.backFrom(&a.rec)
	} else {
		s.slow.names.out--
	}
	if a.unmoved {
		s.regainTurn(a.rec)
		return
	}
	s.goOn(a.rec)
}

// backFrom notes that the resolvers are done with a record.
func (s *schedule) backFrom(rec *record) {
	if !rec.is(abroad) {
		s.watch.arrived++
		return
	}
	rec.set(abroad, false)
	s.abroad--
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

// backlogged reports whether so many wait for the rate in all that more would only grow old: the list is read no
// further then, and nobody comes back from the deferred file.
func (s *schedule) backlogged() bool {
	return s.levels[inAll] != nil && int(s.levels[inAll].queues[0].length) >= min(maxBacklog, 1+s.cfg.MaxWaiting/2)
}

const maxBacklog = 256

// pass takes a record through the levels from the given one on; the keys of the levels before are its own then.
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
		if from == 0 && s.crowded(l, s.key(l, &rec)) {
			if rec.is(deferred) {
				s.slow.hosts.out--
			}
			s.putAside(rec, 0)
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

// stepBack lets a record that is past a level wait there once more, before the others. While it stood at a later level,
// an exchange of its key has started late, or one of another key that shares the slot has come between.
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

// crowded reports whether a newcomer to a key's queue must be spilled. A queue may be as long as there are places left
// in memory: then one busy address takes half of them, two take a third each, and a queue that is short, because it
// moves, finds a place at any time (the dynamic threshold of shared-memory switches, Choudhury and Hahne 1998).
func (s *schedule) crowded(l int, at key) bool {
	return int(s.levels[l].queues[at].length) >= s.cfg.MaxWaiting-s.waiting()
}

// arm makes the event for a key where somebody waits whom nothing else will serve. No key ever has two.
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

// dispatch gives a record a tray and has it asked; it spends a token at every level. A record whose look-up failed
// asks nobody, and spends none.
func (s *schedule) dispatch(rec record) {
	t := s.trays.take()
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
	}
	s.asking <- t
}

// serve lets everybody pass whose time has come, as long as there are trays.
func (s *schedule) serve() {
	for !s.stopping && len(s.events) > 0 && s.events[0].at <= s.now && !s.trays.empty() {
		e := s.events.pop()
		switch e.level {
		case wake:
			s.slow.asleep--
			if i := ref(e.what); s.lineOf(s.records.at(i).flags) != nil {
				rec := s.records.take(i)
				s.enqueue(s.lineOf(rec.flags), rec)
			} else {
				s.resolveAgain(i)
			}
			continue
		case round:
			continue // it has woken the loop, which is all it is for
		}
		s.serveKey(int(e.level), key(e.what))
	}
}

// serveKey gives the key's turn to the first in its queue.
func (s *schedule) serveKey(l int, at key) {
	level := s.levels[l]
	q := level.queues[at]
	q.armed = false
	level.put(at, q)
	for s.outdatedFirst(&q) && q.ahead < level.ahead {
		s.renewInTurn(s.records.take(level.popOut(at, s.records)), l, at)
		q = level.queues[at]
	}
	switch {
	case q.claimed || q.length == 0:
	case level.next(at) > s.now:
		s.arm(l, at) // somebody passed since the event was made
	case level.lane.crowded(at):
		level.delay(at, s.now+level.lane.pause)
		s.arm(l, at)
	case q.back.head != 0 || q.first() != nil && !s.outdatedFirst(&q):
		s.pass(s.records.take(level.pop(at, s.records)), l+1)
	}
	// Else all whose turn is near are out; one that comes back arms the key.
}

// release ends a claim.
func (s *schedule) release(l int, at key) {
	s.levels[l].release(at)
	s.arm(l, at)
}

// comeHome takes a tray back and looks at why it came.
func (s *schedule) comeHome(t *tray) {
	rec, state, next, past := t.record, t.state, t.next, t.exchange.Past
	late := ranOut(t.response.Outcome) && (next.PutOff || next.Target.Unmet == 0) // else another of its addresses is next
	s.slow.pace.keep(t.answered)
	if next.Throttled {
		s.progress.Throttled.Add(1)
		s.levels[byAddress].throttled(t.tokens[byAddress].key, t.sent, s.now)
	}
	s.trays.giveBack(t)
	if rec.is(deferred) {
		s.slow.hosts.out--
	}
	if state != trayAgain || s.stopping {
		s.over++
		return
	}
	rec.setNext(past, next.Target)
	rec.set(deferred, late)
	rec.set(putOff, rec.is(putOff) || next.PutOff)
	if s.waiting() >= s.cfg.MaxWaiting && next.After > 0 {
		s.putAside(rec, s.now+next.After)
		return
	}
	if next.After > 0 {
		s.slow.asleep++
		s.events.push(event{at: s.now + next.After, what: uint64(s.records.put(rec)), level: wake})
		return
	}
	if l := s.lineOf(rec.flags); l != nil {
		s.enqueue(l, rec)
		return
	}
	s.resolveAgain(s.records.put(rec))
}

// resolveAgain puts a record behind those that are to be resolved.
func (s *schedule) resolveAgain(i ref) {
	if s.records.at(i).is(quiet) {
		s.whole.push(i, s.records)
		return
	}
	s.renewals.push(i, s.records)
	s.renewing++
}

// renewal is the channel to the resolvers and the record that goes first, or nil where none waits.
func (s *schedule) renewal() (chan record, record) {
	if s.renewals.head == 0 || s.stopping {
		return nil, record{}
	}
	rec := *s.records.at(s.renewals.head)
	rec.next = 0
	rec.set(abroad, true)
	return s.renew, rec
}

// outdated reports whether a record's address must be asked again before it is dialled.
func (s *schedule) outdated(rec *record) bool {
	return rec.until != 0 && time.Duration(rec.until)*time.Second <= s.now && rec.failed.Outcome == 0
}

// outdatedFirst reports whether the first of a key's line is outdated.
func (s *schedule) outdatedFirst(q *queue) bool {
	line := q.first()
	return line != nil && s.outdated(s.records.at(line.head))
}

// turn is the turn that a record was near when its address proved too old: at a level, which is not claimed meanwhile, with
// the levels before it claimed.
type turn struct {
	level int
	keys  [numLevels]key // up to that level's
}

// renewInTurn sends a record whose turn is near to the resolvers. Others take theirs meanwhile; when it is back, it goes
// before them. It keeps its turn because a queue that lasts longer than answers live would never move otherwise; others
// go on because a rate must not sink to a look-up at a time.
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

// takeTurn goes on with a record whose address was asked again: it is the next at its level if the address is as it
// was, and queues at the new one if it is not. The answer counts for this turn, however short its time.
func (s *schedule) takeTurn(rec record) {
	t := s.turns[rec.seq]
	delete(s.turns, rec.seq)
	failed := rec.failed.Outcome != 0
	moved := t.level >= byAddress && s.levels[byAddress] != nil && s.key(byAddress, &rec) != t.keys[byAddress]
	if !failed && !moved {
		s.levels[t.level].pushBack(t.keys[t.level], s.records.put(rec), s.records)
		s.arm(t.level, t.keys[t.level])
		return
	}
	if failed {
		s.loseTurn(t, byHost)
		s.dispatch(rec)
		return
	}
	s.loseTurn(t, byAddress)
	s.pass(rec, byAddress)
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

// regainTurn takes a record that lost its turn because its name was silent, and whose address proved to be as it was. It goes
// before the others at that address, as soon as its host is free, and the answer counts for this turn, however short its time.
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

// putAside spills a record that memory has no room for, until due at least.
func (s *schedule) putAside(rec record, due time.Duration) {
	h := spillHeader{due: due, host: noKey, address: noKey, flags: rec.flags & lineFlags}
	if l := s.lineOf(rec.flags); l != nil {
		l.spilled++
	}
	if s.levels[byHost] != nil {
		h.host = s.key(byHost, &rec)
	}
	if s.levels[byAddress] != nil && rec.addr != [16]byte{} {
		h.address = s.key(byAddress, &rec)
	}
	if err := s.spill.put(rec, h); err != nil {
		s.fail(err)
	}
}

// rounds is where the schedule stands in going through the spilled records. A round looks at each once, a few at a time
// because the loop has others to serve: who still finds no room goes to the file's end. Rounds take at most a tenth of
// the time.
type rounds struct {
	left  int           // records that this round has still to look at
	took  time.Duration // of the loop, so far; a round that stands still takes nothing
	pause time.Duration // until when the next must wait
}

// mayUnspill reports whether there is reason to look at spilled records now.
func (s *schedule) mayUnspill() bool {
	return s.spill.count() > 0 && (s.rounds.left > 0 || s.now >= s.rounds.pause) && !s.stopping && !s.trays.empty() && !s.backlogged() &&
		s.waiting() < s.cfg.MaxWaiting && s.roomForSpilled()
}

// roomForSpilled reports whether some of the spilled records may find room: those that wait in no line, or those of a line
// that is not full. A round is not begun for the one place that somebody has left.
func (s *schedule) roomForSpilled() bool {
	hosts, names := &s.slow.hosts, &s.slow.names
	room := s.short
	if s.rounds.left > 0 {
		room = func(l *line) bool { return !s.full(l) }
	}
	return s.spill.count() > hosts.spilled+names.spilled || hosts.spilled > 0 && room(hosts) || names.spilled > 0 && room(names)
}

// unspill brings spilled records back where there is room for them.
func (s *schedule) unspill() {
	if !s.mayUnspill() {
		return
	}
	if s.rounds.left == 0 {
		s.rounds.left, s.rounds.took = s.spill.count(), 0
	}
	begun := s.now
	for n := min(s.rounds.left, 256); n > 0; n-- {
		s.rounds.left--
		rec, ok, err := s.spill.get(s.admits)
		if err != nil {
			s.fail(err)
			return
		}
		switch l := s.lineOf(rec.flags); {
		case !ok:
		case l != nil:
			l.spilled--
			s.enqueue(l, rec)
		default:
			s.resolveAgain(s.records.put(rec))
		}
	}
	s.look()
	s.rounds.took += s.now - begun
	if s.rounds.left == 0 {
		s.rounds.pause = s.now + max(100*time.Millisecond, 10*s.rounds.took)
		s.events.push(event{at: s.rounds.pause, level: round})
	}
}

// admits reports whether a spilled record is due and finds room.
func (s *schedule) admits(h spillHeader) bool {
	if h.due > s.now || s.waiting() >= s.cfg.MaxWaiting {
		return false
	}
	if l := s.lineOf(h.flags); l != nil {
		return !s.full(l)
	}
	return (h.host == noKey || !s.crowded(byHost, h.host)) &&
		(h.address == noKey || !s.crowded(byAddress, h.address))
}

// waiting is how many records wait in memory.
func (s *schedule) waiting() int { return s.records.used + s.abroad }

// publish shows how many wait.
func (s *schedule) publish() {
	names := &s.slow.names
	s.progress.Waiting.Store(int64(s.waiting() + names.out))
	s.progress.Spilled.Store(int64(s.spill.count()))
	s.progress.Deferred.Store(int64(s.slow.hosts.all() + names.all()))
	s.progress.DeferredNames.Store(int64(names.all()))
	s.progress.Asleep.Store(int64(s.slow.asleep))
}

// fifo is a list of waiting records linked through the slab.
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
