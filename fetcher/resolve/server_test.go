package resolve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// late returns a handler that answers after a delay.
func late(after time.Duration, handle dns.HandlerFunc) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		time.Sleep(after)
		handle(w, q)
	}
}

// closedPort returns an address whose UDP port refuses datagrams. A socket that is connected to another peer holds the port,
// so that no other process takes it during the test.
func closedPort(t *testing.T) string {
	t.Helper()
	peer := serve(t, silence)
	reserved, err := net.Dial("udp", peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reserved.Close() })
	return reserved.LocalAddr().String()
}

// A server that refuses or is unreachable does not end a look-up that another server may still answer, neither when
// patience runs out, nor at the end of its time.
func TestRefusalBesideSilence(t *testing.T) {
	t.Parallel()
	good := serve(t, late(150*time.Millisecond, zone("a.com. 60 A 192.0.2.1")))
	silent := serve(t, silence)
	bad := map[string]string{"REFUSED": serve(t, code(dns.RcodeRefused)), "SERVFAIL": serve(t, code(dns.RcodeServerFailure)), "closed port": closedPort(t)}
	opts := Options{First: 20 * time.Millisecond}
	for name, server := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 4 { // the first server is random
				if got := newResolver(t, opts, server, silent).Lookup(t.Context(), "a.com", 60*time.Millisecond); !got.Deferred {
					t.Errorf("patience ran out: got %s", tell(got))
				}
				if got := tell(newResolver(t, opts, server, good).Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
					t.Errorf("got %s", got)
				}
			}
			unhurried(t, short, func(total time.Duration) string {
				got := newResolver(t, Options{First: opts.First, Total: total}, server, silent).Lookup(t.Context(), "a.com", 0)
				if got.Outcome != exchange.DNSTimeout {
					return "the other is silent: got " + tell(got)
				}
				return ""
			})
		})
	}
}

// The answer names the server that refused.
func TestRefusalNamesTheServer(t *testing.T) {
	server := serve(t, code(dns.RcodeServerFailure))
	if got := newResolver(t, Options{}, server).Lookup(t.Context(), "a.com", 0); got.Server.String() != server {
		t.Errorf("got %v, want %s", got.Server, server)
	}
}

// A name server that restarts loses no name.
func TestServerRestarts(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := packets.LocalAddr().String()
	_ = packets.Close()
	r := newResolver(t, Options{First: 20 * time.Millisecond}, addr)
	answer := make(chan Answer)
	go func() { answer <- r.Lookup(t.Context(), "a.com", 0) }()
	for r.Stats().Servers[0].Questions < 3 {
		time.Sleep(time.Millisecond)
	}
	packets, err = net.ListenPacket("udp", addr)
	if err != nil {
		t.Skip("SKIPPED: the port is in use")
	}
	server := &dns.Server{PacketConn: packets, Handler: zone("a.com. 60 A 192.0.2.1")}
	go func() { _ = server.ActivateAndServe() }()
	defer func() { _ = packets.Close() }()
	if got := tell(<-answer); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
}

// logText is the text of a log.
type logText struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (w *logText) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(p)
}

func (w *logText) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

// The log and Stats show that a server is down, and that it answers again. A server that leaves only unanswerable
// names unanswered is not down.
func TestDown(t *testing.T) {
	var alive atomic.Bool
	var log logText
	r := newResolver(t, Options{First: 5 * time.Millisecond, Total: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if alive.Load() && !strings.HasPrefix(q.Question[0].Name, "silent") {
			zone("a.com. 60 A 192.0.2.1")(w, q)
		}
	}))
	ask := func(until func() bool) {
		t.Helper()
		for i := 0; !until(); i++ {
			if i == 1000 {
				t.Fatalf("it takes too long: %s", log.String())
			}
			r.Lookup(t.Context(), fmt.Sprintf("silent%d.example", i), 0)
		}
	}
	down := func() bool { return r.Stats().Servers[0].Down }
	// The line is written after the state has changed.
	logged := func(line string) bool { return strings.Count(log.String(), line) == 1 }
	ask(func() bool { return down() && logged("name server does not answer") })
	alive.Store(true)
	ask(func() bool { return !down() && logged("name server answers again") }) // by a probe
	probed := r.servers[0].probed.Load()
	ask(func() bool { return r.servers[0].probed.Load() != probed })
	for range 5 {
		r.Lookup(t.Context(), "silent.example", 0)
	}
	if got := log.String(); down() || strings.Count(got, "name server") != 2 {
		t.Errorf("of silent names only: %s", got)
	}
}

// A server whose port is closed is down.
func TestClosedPortIsDown(t *testing.T) {
	r := newResolver(t, Options{First: 5 * time.Millisecond, Total: 50 * time.Millisecond}, closedPort(t))
	for i := 0; !r.Stats().Servers[0].Down; i++ {
		if i == 1000 {
			t.Fatalf("%+v", r.Stats().Servers)
		}
		r.Lookup(t.Context(), fmt.Sprintf("a%d.example", i), 0)
	}
	if s := r.Stats().Servers[0]; s.Unheard == 0 || s.Answers != 0 {
		t.Errorf("%+v", s)
	}
}

// The rate bounds all questions to each server: first ones, repetitions, and those by TCP.
func TestRateIsKept(t *testing.T) {
	t.Parallel()
	const perSecond, servers = 200.0, 2
	type asked struct {
		mu sync.Mutex
		at []time.Time
	}
	unhurried(t, 400*time.Millisecond, func(total time.Duration) string {
		var logs [servers]asked
		var addrs []string
		for i := range servers {
			addrs = append(addrs, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
				logs[i].mu.Lock()
				logs[i].at = append(logs[i].at, time.Now())
				logs[i].mu.Unlock()
				switch name := q.Question[0].Name; {
				case name[0] == 's':
				case name[0] == 't' && w.RemoteAddr().Network() == "udp":
					m := new(dns.Msg).SetReply(q)
					m.Truncated = true
					_ = w.WriteMsg(m)
				default:
					zone(name+" 60 A 192.0.2.1")(w, q)
				}
			}))
		}
		r := newResolver(t, Options{Rate: perSecond, First: 30 * time.Millisecond, Total: total}, addrs...)
		begun := time.Now()
		var all sync.WaitGroup
		for i := range 120 {
			all.Go(func() { r.Lookup(t.Context(), fmt.Sprintf("%c%d.example", "uts"[i%3], i), 0) })
		}
		all.Wait()
		for i := range logs {
			logs[i].mu.Lock()
			at := logs[i].at
			logs[i].mu.Unlock()
			if len(at) < 60 {
				return fmt.Sprintf("server %d was asked %d times", i, len(at))
			}
			// At any time no more questions have arrived than rate and burst allow. A busy machine sees some of them late, so
			// that the time between two says nothing.
			for n, when := range at {
				if allowed := perSecond/servers/10 + 1 + perSecond/servers*when.Sub(begun).Seconds(); float64(n+1) > allowed {
					t.Fatalf("server %d was asked %d times in the first %v", i, n+1, when.Sub(begun))
				}
			}
		}
		return ""
	})
}

// A question that waits for the rate and is no longer needed uses none of it.
func TestRateIsNotWasted(t *testing.T) {
	p := newPacer(100)
	for range 10 { // the burst
		if came, err := p.wait(t.Context(), time.NewTimer(0), nil); came || err != nil {
			t.Fatal(came, err)
		}
	}
	leaving := make([]*call, 50)
	var left sync.WaitGroup
	for i := range leaving {
		leaving[i] = newCall()
		leaving[i].arrivals <- arrival{}
		left.Go(func() {
			for range 3 {
				_, _ = p.wait(t.Context(), leaving[i].timer, leaving[i].arrivals)
			}
		})
	}
	left.Wait()
	place := p.limiter.Reserve()
	// If each had used its place, the next question would be due in a second and a half.
	if d := place.Delay(); d > 500*time.Millisecond {
		t.Errorf("the next question is due in %v", d)
	}
}

// If few TCP connections are allowed, truncated answers are fetched one after the other. The wait for a connection
// does not count, and no name is lost.
func TestQueueForTCP(t *testing.T) {
	r := newResolver(t, Options{MaxSockets: 4}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if w.RemoteAddr().Network() == "udp" {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
			return
		}
		late(5*time.Millisecond, zone(q.Question[0].Name+" 60 A 192.0.2.1"))(w, q)
	}))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if got := tell(r.Lookup(t.Context(), fmt.Sprintf("a%d.example", i), 300*time.Millisecond)); got != "[192.0.2.1]" {
				t.Errorf("%d: got %s", i, got)
			}
		})
	}
	all.Wait()
	if s := r.Stats(); s.Deferred != 0 || s.Servers[0].Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// A server without EDNS refuses each question that has it, even those sent before the first refusal came.
func TestSlowServerWithoutEDNS(t *testing.T) {
	r := newResolver(t, Options{First: 20 * time.Millisecond}, serve(t, late(70*time.Millisecond, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.IsEdns0() != nil {
			code(dns.RcodeFormatError)(w, q)
			return
		}
		zone("a.com. 60 A 192.0.2.1")(w, q)
	})))
	if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
}

// A follower's patience does not run while the leader waits for the rate.
func TestPatienceOfFollowers(t *testing.T) {
	r := newResolver(t, Options{Rate: 10}, serve(t, zone("a.com. 60 A 192.0.2.1", "b.com. 60 A 192.0.2.1")))
	r.Lookup(t.Context(), "a.com", 0)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if got := tell(r.Lookup(t.Context(), "b.com", 30*time.Millisecond)); got != "[192.0.2.1]" {
				t.Errorf("got %s", got)
			}
		})
	}
	all.Wait()
}

// Waits for the rate do not count in Took, unless a question was in flight meanwhile.
func TestTookUnderRate(t *testing.T) {
	t.Parallel()
	const slow = 60 * time.Millisecond
	r := newResolver(t, Options{Rate: 50, First: 10 * time.Millisecond}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		late(slow, zone(q.Question[0].Name+" 60 A 192.0.2.1"))(w, q)
	}))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if got := r.Lookup(t.Context(), fmt.Sprintf("a%d.example", i), 0); got.Took < slow {
				t.Errorf("%d took %v", i, got.Took)
			}
		})
	}
	all.Wait()
}

// Close ends soon, even while look-ups go on.
func TestCloseUnderLookups(t *testing.T) {
	r := newResolver(t, Options{}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) { zone(q.Question[0].Name+" 60 A 192.0.2.1")(w, q) }))
	r.mux.each = 2
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				r.Lookup(ctx, fmt.Sprintf("a%d-%d.example", i, k), 0)
			}
		})
	}
	for range 20 {
		_ = r.Close() // must not wait for sockets that are opened meanwhile
	}
	cancel()
	all.Wait()
}
