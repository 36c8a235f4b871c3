package resolve

import (
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// server is one name server.
type server struct {
	addr  netip.AddrPort
	index int // among the servers
	mux   *mux
	pacer *pacer
	edns  atomic.Int32 // whether it answers questions with EDNS, see server.learn
	plain atomic.Int32 // answers to repetitions without EDNS, until that is known
	health
	traffic

	mu      sync.Mutex
	sockets [socketsPerServer]*socket // that take questions; nil before the first
}

// traffic is what is counted of a server, see ServerStats.
type traffic struct {
	questions, answers, failures, unheard, tcp atomic.Uint64
}

// health is what we think of a server.
//
// One that leaves several questions in a row without an answer is suspected. That may be the names' fault: nobody answers for
// some, and whoever asks about those only hears nothing of the best of servers. So it is asked for the root's name servers, which
// every resolver knows, and is down if it says nothing to that either. One that is down is asked by one question in so many, and
// for the root now and then.
type health struct {
	silent atomic.Int32 // questions in vain since its last answer
	heard  atomic.Int64 // when that was, in nanoseconds since 1970; at first when it was made
	probed atomic.Int64 // when it was last asked for the root; 0: never
	isDown atomic.Bool
}

const (
	suspectAfter = 5  // questions in vain, and
	suspectSince = 3  // first waits since the last answer
	probeAgain   = 25 // first waits from probe to probe
	probeTries   = 3
	probeOf      = 16 // questions, of which one goes to a server that is down
)

// first draws the server that a question begins with, by its index: any that is not down, and now and then one that is, to
// see whether it still is.
func (r *Resolver) first() int {
	n := len(r.servers)
	lot := rand.IntN(probeOf * n)
	first := lot % n
	if lot < n {
		return first
	}
	for i := range n {
		if at := (first + i) % n; !r.servers[at].isDown.Load() {
			return at
		}
	}
	return first
}

// hear takes note that a server answers.
func (s *server) hear(log *slog.Logger) {
	s.answers.Add(1)
	s.silent.Store(0)
	s.heard.Store(time.Now().UnixNano())
	if s.isDown.Load() && s.isDown.CompareAndSwap(true, false) {
		log.Info("name server answers again", "server", s.addr)
	}
}

// inVain takes note that a question to a server was in vain.
func (s *server) inVain(r *Resolver) {
	now, first := time.Now().UnixNano(), int64(r.opts.First)
	if s.silent.Add(1) < suspectAfter || now-s.heard.Load() < suspectSince*first {
		return
	}
	last := s.probed.Load()
	if now-last < probeAgain*first || r.closing.Err() != nil || !s.probed.CompareAndSwap(last, now) {
		return
	}
	go r.probe(s)
}

// probe asks a server for the root's name servers, and takes it for down where no answer comes.
func (r *Resolver) probe(s *server) {
	began := time.Now()
	c := r.calls.Get().(*call)
	defer r.calls.Put(c)
	defer c.end()
	if c.put(".", dns.TypeNS) != nil {
		return
	}
	wait := r.opts.First
	for try := range probeTries {
		if _, err := c.turn(r.closing, new(lookup), s); err != nil {
			return
		}
		c.withEDNS(try == 0 && s.edns.Load() != ednsFails)
		if !r.sendProbe(s, c) {
			return
		}
		c.timer.Reset(wait)
		for waiting := true; waiting; {
			select {
			case a := <-c.arrivals:
				if a.err == nil {
					s.hear(r.log)
					if rcode := int(a.packet[3] & 0xf); rcode == dns.RcodeSuccess || rcode == dns.RcodeNameError {
						s.learn(r.log, a.edns, ednsTries) // every server knows the root at once
					}
					return
				}
			case <-c.timer.C:
				waiting = false
			case <-r.closing.Done():
				return
			}
		}
		wait += wait / 2
	}
	if s.heard.Load() < began.UnixNano() && s.isDown.CompareAndSwap(false, true) {
		r.log.Warn("name server does not answer", "server", s.addr)
	}
}

// sendProbe sends a probe, which may be out of reach for a moment; it reports false where Close has been called, behind which no
// socket may be opened for a probe.
func (r *Resolver) sendProbe(s *server, c *call) bool {
	r.probing.RLock()
	defer r.probing.RUnlock()
	if r.closing.Err() != nil {
		return false
	}
	_ = s.send(c)
	return true
}

// servers are some of the servers, a bit each.
type servers uint64

// maxServers is how many servers there may be.
const maxServers = 64

func (f *servers) add(i int) { *f |= 1 << i }

// all reports whether all n are among them.
func (f servers) all(n int) bool { return bits.OnesCount64(uint64(f)) == n }

// next returns the server behind the one at i that is not among them; of n that all are the one behind it.
func (f servers) next(i, n int) int {
	for k := 1; k <= n; k++ {
		if at := (i + k) % n; f&(1<<at) == 0 {
			return at
		}
	}
	return (i + 1) % n
}

func (f *servers) remove(i int) { *f &^= 1 << i }

// has reports whether the one at i is among them.
func (f servers) has(i int) bool { return f&(1<<i) != 0 }

// What a server does with questions that have EDNS. All that EDNS is for is to have longer answers by UDP; without it they come
// by TCP. So it costs little to take it for broken by mistake, and nothing changes it afterwards.
const (
	ednsUnknown = iota
	ednsWorks   // it has answered one
	ednsFails   // it has answered none, and ednsTries repetitions without
)

const ednsTries = 4

// learn takes note of an answer to a question that had EDNS, or to a repetition that had not, which counts for so many.
func (s *server) learn(log *slog.Logger, edns bool, count int32) {
	if s.edns.Load() != ednsUnknown {
		return
	}
	if edns {
		s.edns.CompareAndSwap(ednsUnknown, ednsWorks)
	} else if s.plain.Add(count) >= ednsTries && s.edns.CompareAndSwap(ednsUnknown, ednsFails) {
		log.Warn("name server answers without EDNS only, and is asked without", "server", s.addr)
	}
}

// disputesEDNS reports whether a refusal may be for EDNS: by its code, as of a server that is older (RFC 6891 §7), or because
// no question with EDNS was ever answered.
func (s *server) disputesEDNS(rcode int) bool {
	switch rcode {
	case dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeBadVers:
		return true
	}
	return s.edns.Load() == ednsUnknown
}
