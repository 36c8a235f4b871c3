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
	addr    netip.AddrPort
	index   int // among the servers
	network Network
	mux     *mux
	pacer   *pacer
	edns    atomic.Int32 // whether it answers questions with EDNS, see server.learn
	plain   atomic.Int32 // answers to repetitions without EDNS, while edns is ednsUnknown
	health
	traffic

	mu      sync.Mutex
	sockets [socketsPerServer]*socket // that accept questions; nil before the first
}

// traffic holds the counts of a server, see ServerStats.
type traffic struct {
	questions, answers, failures, unheard, tcp atomic.Uint64
}

// health is the state of a server.
//
// A server that leaves several questions in a row unanswered is suspected. The names may be the reason: some zones
// never answer, and then the best server cannot. So the suspect is probed with a question about the root's name
// servers, which every resolver knows. It is down if it does not answer that either. A server that is down still gets
// one in probeOf questions of its share, and a probe now and then.
type health struct {
	silent atomic.Int32 // unanswered questions since its last answer
	heard  atomic.Int64 // when it last answered, in nanoseconds since 1970; at first when it was made
	probed atomic.Int64 // when it was last probed; 0: never
	isDown atomic.Bool
}

const (
	suspectAfter = 5  // unanswered questions, and
	suspectSince = 3  // times Options.First since the last answer
	probeAgain   = 25 // times Options.First between probes
	probeTries   = 3
	probeOf      = 16 // a server that is down gets one in this number of its share of the questions
)

// first draws the first server for a question and returns its index: one that is not down, or now and then one that
// is, to see whether it answers again. It avoids crowded ones.
func (r *Resolver) first(crowded servers) int {
	n := len(r.servers)
	drawn := rand.IntN(probeOf * n)
	first := drawn % n
	for i := 0; i < n && drawn >= n; i++ {
		if at := (drawn + i) % n; !r.servers[at].isDown.Load() {
			first = at
			break
		}
	}
	if crowded.has(first) {
		first = crowded.next(first, n)
	}
	return first
}

// hear is called when the server has answered.
func (s *server) hear(log *slog.Logger) {
	s.answers.Add(1)
	s.silent.Store(0)
	s.heard.Store(time.Now().UnixNano())
	if s.isDown.Load() && s.isDown.CompareAndSwap(true, false) {
		log.Info("name server answers again", "server", s.addr)
	}
}

// inVain is called when the server has left a question unanswered. It starts a probe if the server is suspected.
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

// probe asks a server for the root's name servers. The server is down if it does not answer.
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
						s.learn(r.log, a.edns, ednsTries) // one answer suffices, because every server knows the root
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

// sendProbe sends a probe. It ignores errors, because the server may be unreachable for a moment. After Close it sends
// none, which would open a socket, and returns false.
func (r *Resolver) sendProbe(s *server, c *call) bool {
	r.probing.RLock()
	defer r.probing.RUnlock()
	if r.closing.Err() != nil {
		return false
	}
	_ = s.send(c)
	return true
}

// servers is a set of servers by index, one bit for each.
type servers uint64

// maxServers bounds the number of servers.
const maxServers = 64

func (f *servers) add(i int) { *f |= 1 << i }

// all reports whether the set has n servers.
func (f servers) all(n int) bool { return bits.OnesCount64(uint64(f)) == n }

// next returns the next server after i, of n, that is not in the set; i+1 if the set has all.
func (f servers) next(i, n int) int {
	for k := 1; k <= n; k++ {
		if at := (i + k) % n; f&(1<<at) == 0 {
			return at
		}
	}
	return (i + 1) % n
}

func (f *servers) remove(i int) { *f &^= 1 << i }

// has reports whether server i is in the set.
func (f servers) has(i int) bool { return f&(1<<i) != 0 }

// Whether a server answers questions with EDNS. EDNS only serves to get longer answers by UDP; without it they come
// by TCP. A wrong ednsFails costs little, so it is never revised.
const (
	ednsUnknown = iota
	ednsWorks   // it has answered one with EDNS
	ednsFails   // it has answered none with EDNS, and ednsTries without
)

const ednsTries = 4

// learn counts an answer to a question with EDNS, or to a repetition without. One answer may count for several
// repetitions.
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

// disputesEDNS reports whether EDNS may be the reason for a refusal: its code is that of servers without EDNS (RFC
// 6891 §7), or the server has answered no question with EDNS yet.
func (s *server) disputesEDNS(rcode int) bool {
	switch rcode {
	case dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeBadVers:
		return true
	}
	return s.edns.Load() == ednsUnknown
}
