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
type schedule struct {
	*run
	levels  [numLevels]*level // nil where there is no limit
	records *slab
	events  events
	now     time.Duration // since the run began, at the last look

	renewals fifo                      // records to be resolved (again), in turn
	abroad   int                       // of those, how many the resolvers have
	turns    map[uint64][numLevels]key // by seq: what a record holds while its address is asked again
	spill    *spill
	rounds   rounds

	fedAll   bool
	fedCount uint64
	over     uint64 // records done or dropped

	stopping bool
	late     <-chan time.Time // fires when draining has taken too long
}

func (r *run) schedule() error {
	s := &schedule{run: r, records: newSlab(), turns: make(map[uint64][numLevels]key), spill: newSpill(r.cfg.SpillDir)}
	s.addLevels()
	defer s.spill.close()
	defer r.finish()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !s.finished() {
		s.look()
		s.serve()
		s.unspill()
		s.publish()
		timer.Reset(s.untilNext())

		// What cannot be taken now has a nil channel: newcomers wait while no tray is free, records to be resolved
		// wait for a resolver. Trays always come home.
		var newcomers chan record
		if !s.trays.empty() && !s.stopping {
			newcomers = r.resolved
		}
		renew, first := s.renewal()

		select {
		case rec := <-newcomers:
			s.look()
			s.arrive(rec)
		case renew <- first:
			s.records.take(s.renewals.pop(s.records))
			s.abroad++
		case t := <-r.home:
			s.look()
			s.comeHome(t)
		case <-timer.C:
		case s.fedCount = <-r.fed:
			s.fedAll = true
		case <-s.stopped():
			s.stopping = true
			s.late = time.After(r.cfg.Drain)
		case <-s.late:
			r.cancel(errDrain)
		case <-r.aborted(s.stopping):
			s.stopping = true
		}
	}
	return nil
}

// errDrain is what cuts off exchanges that outlast the drain. It is no failure of the run: their origins are asked
// again by the next one.
var errDrain = errors.New("exchanges in flight took longer than the drain")

// finish lets the other stages end. Every tray is home, so nothing is in their channels and nobody sends any more; the
// judges may still be at work on what the last trays brought.
func (r *run) finish() {
	r.progress.Waiting.Store(0)
	close(r.ended)
	close(r.asking)
	close(r.judging)
	r.judges.Wait()
	close(r.keeping)
}

func (s *schedule) addLevels() {
	c := &s.cfg
	s.levels = [numLevels]*level{
		byHost:    newLevel(c.HostRate, tableSlots),
		byAddress: newLevel(c.IPRate, tableSlots),
		inAll:     newLevel(c.Rate, 1),
	}
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
		return s.levels[level].keyOf(rec.addr[:])
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
	if s.stopping || s.trays.empty() {
		return time.Hour // what is due needs a tray; one that comes home wakes us
	}
	if s.rounds.left > 0 || s.spill.count() > 0 && s.now >= s.rounds.pause {
		return 0
	}
	if len(s.events) == 0 {
		return time.Hour
	}
	return max(0, s.events[0].at-s.now)
}

// arrive takes a record that has been resolved.
func (s *schedule) arrive(rec record) {
	if rec.abroad {
		rec.abroad = false
		s.abroad--
	}
	if rec.turn {
		s.takeTurn(rec)
		return
	}
	if rec.failed.Outcome != 0 {
		s.dispatch(rec, -1)
		return
	}
	s.pass(rec, 0, -1)
}

// pass takes a record through the levels from the given one on. queued is the level whose queue it came off, -1 for a
// newcomer; the keys of the levels before from are its own then.
func (s *schedule) pass(rec record, from, queued int) {
	for l := from; l < len(s.levels); l++ {
		if s.levels[l] == nil || s.levels[l].free(s.key(l, &rec), s.now) {
			continue
		}
		if from == 0 && s.crowded(l, s.key(l, &rec)) {
			s.putAside(rec, 0)
			return
		}
		for k := range l {
			if s.levels[k] != nil {
				s.levels[k].claim(s.key(k, &rec))
			}
		}
		at := s.key(l, &rec)
		if first := s.levels[l].push(at, s.records.put(rec), s.records); first {
			s.serveAt(l, at)
		}
		return
	}
	if s.outdated(&rec) {
		s.renewWithTurn(rec)
		return
	}
	s.dispatch(rec, queued)
}

// crowded reports whether a newcomer to a key's queue must be spilled. A queue may be as long as there are places left
// in memory: then one busy address takes half of them, two take a third each, and a queue that is short, because it
// moves, finds a place at any time (the dynamic threshold of shared-memory switches, Choudhury and Hahne 1998).
func (s *schedule) crowded(l int, at key) bool {
	return int(s.levels[l].queues[at].length) >= s.cfg.MaxWaiting-s.waiting()
}

// serveAt makes an event for a key with a queue.
func (s *schedule) serveAt(l int, at key) {
	s.events.push(event{at: *s.levels[l].slot(at), what: uint64(at), level: uint8(l)})
}

// dispatch gives a record a tray and has it asked; it spends a token at every level. A record whose look-up failed
// asks nobody, and spends none.
func (s *schedule) dispatch(rec record, queued int) {
	t := s.trays.take()
	t.record = rec
	t.record.turn = false
	if rec.failed.Outcome == 0 {
		for l, level := range s.levels {
			if level == nil {
				continue
			}
			at := s.key(l, &rec)
			level.spend(at, s.now, l == queued)
			if level.release(at) {
				s.serveAt(l, at)
			}
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
			s.renewals.push(ref(e.what), s.records)
			continue
		case round:
			continue // it has woken the loop, which is all it is for
		}
		l, at := int(e.level), key(e.what)
		if *s.levels[l].slot(at) > s.now {
			s.serveAt(l, at) // somebody passed since the event was made
			continue
		}
		if i, ok := s.levels[l].pop(at, s.records); ok {
			s.pass(s.records.take(i), l+1, l)
		}
	}
}

// comeHome takes a tray back and looks at why it came.
func (s *schedule) comeHome(t *tray) {
	rec, state, next, past := t.record, t.state, t.next, t.exchange.Past
	s.trays.giveBack(t)
	if state != trayAgain || s.stopping {
		s.over++
		return
	}
	rec.setNext(past, next.Target)
	if s.waiting() >= s.cfg.MaxWaiting && next.After > 0 {
		s.putAside(rec, s.now+next.After)
		return
	}
	i := s.records.put(rec)
	if next.After > 0 {
		s.events.push(event{at: s.now + next.After, what: uint64(i), level: wake})
		return
	}
	s.renewals.push(i, s.records)
}

// renewal is the channel to the resolvers and the record that goes first, or nil where none waits.
func (s *schedule) renewal() (chan record, record) {
	if s.renewals.head == 0 || s.stopping {
		return nil, record{}
	}
	rec := *s.records.at(s.renewals.head)
	rec.next, rec.abroad = 0, true
	return s.renew, rec
}

// outdated reports whether a record's address must be asked again before it is dialled.
func (s *schedule) outdated(rec *record) bool {
	return rec.until != 0 && time.Duration(rec.until)*time.Second <= s.now && rec.failed.Outcome == 0
}

// renewWithTurn sends a record whose turn it is to the resolvers. It keeps its turn, or the queue behind a busy address
// would never move once it is longer than the time an answer lives.
func (s *schedule) renewWithTurn(rec record) {
	var held [numLevels]key
	for l, level := range s.levels {
		if level != nil {
			held[l] = s.key(l, &rec)
			level.claim(held[l])
		}
	}
	s.turns[rec.seq] = held
	rec.turn = true
	s.renewals.push(s.records.put(rec), s.records)
}

// takeTurn goes on with a record whose address was asked again: it goes at once if the address is as it was, and
// queues at the new one if it is not. The key of its old address is claimed until then.
func (s *schedule) takeTurn(rec record) {
	held := s.turns[rec.seq]
	delete(s.turns, rec.seq)
	rec.turn = false
	// The answer counts for this exchange, however short its time.
	rec.until = 0
	if address := s.levels[byAddress]; rec.failed.Outcome == 0 && (address == nil || s.key(byAddress, &rec) == held[byAddress]) {
		s.dispatch(rec, -1)
		return
	}
	from := byAddress
	if rec.failed.Outcome != 0 {
		from = byHost
	}
	for l := from; l < numLevels; l++ {
		if s.levels[l] != nil && s.levels[l].release(held[l]) {
			s.serveAt(l, held[l])
		}
	}
	if rec.failed.Outcome != 0 {
		s.dispatch(rec, -1)
		return
	}
	s.pass(rec, byAddress, -1)
}

// putAside spills a record that memory has no room for, until due at least.
func (s *schedule) putAside(rec record, due time.Duration) {
	h := spillHeader{due: due, host: noKey, address: noKey}
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
	begun time.Duration // when it began
	pause time.Duration // until when the next must wait
}

// unspill brings spilled records back where there is room for them.
func (s *schedule) unspill() {
	if s.stopping || s.spill.count() == 0 || s.trays.empty() || s.now < s.rounds.pause {
		return
	}
	if s.rounds.left == 0 {
		s.rounds.left, s.rounds.begun = s.spill.count(), s.now
	}
	for n := min(s.rounds.left, 256); n > 0; n-- {
		s.rounds.left--
		rec, ok, err := s.spill.get(s.admits)
		if err != nil {
			s.fail(err)
			return
		}
		if ok {
			s.renewals.push(s.records.put(rec), s.records)
		}
	}
	if s.rounds.left == 0 {
		s.look()
		s.rounds.pause = s.now + max(100*time.Millisecond, 10*(s.now-s.rounds.begun))
		s.events.push(event{at: s.rounds.pause, level: round})
	}
}

// admits reports whether a spilled record is due and finds room.
func (s *schedule) admits(h spillHeader) bool {
	return h.due <= s.now && s.waiting() < s.cfg.MaxWaiting &&
		(h.host == noKey || !s.crowded(byHost, h.host)) &&
		(h.address == noKey || !s.crowded(byAddress, h.address))
}

// waiting is how many records wait in memory.
func (s *schedule) waiting() int { return s.records.used + s.abroad }

// publish shows how many wait.
func (s *schedule) publish() {
	s.progress.Waiting.Store(int64(s.waiting()))
	s.progress.Spilled.Store(int64(s.spill.count()))
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
