package resolve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// count returns how many sockets are open.
func (m *mux) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// inFlight returns how many questions are in flight.
func (m *mux) inFlight() (n int) {
	m.mu.Lock()
	open := slices.Collect(maps.Keys(m.open))
	m.mu.Unlock()
	for _, k := range open {
		k.mu.Lock()
		n += len(k.calls)
		k.mu.Unlock()
	}
	return n
}

// Many concurrent look-ups, with answers of all kinds, stay within MaxSockets. None fails for lack of a socket. After
// Close none is open.
func TestSocketsAreBounded(t *testing.T) {
	t.Parallel()
	const bound, lookups = 16, 400
	handle := func(w dns.ResponseWriter, q *dns.Msg) {
		name := q.Question[0].Name
		switch {
		case name[0] == 't' && w.RemoteAddr().Network() == "udp":
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
		case name[0] == 'f':
			code(dns.RcodeServerFailure)(w, q)
		case name[0] == 's': // silence: the retired socket has to wait
		default:
			zone(name+" 60 A 192.0.2.1")(w, q)
		}
	}
	unhurried(t, 2*time.Second, func(total time.Duration) string {
		r := newResolver(t, Options{Total: total, MaxSockets: bound}, serve(t, handle), serve(t, handle), serve(t, handle))
		r.mux.each = 3
		var wait sync.WaitGroup
		var missing atomic.Value
		for i := range lookups {
			wait.Go(func() {
				host, want := fmt.Sprintf("u%d.example", i), "[192.0.2.1]"
				switch i % 8 {
				case 1:
					host = fmt.Sprintf("t%d.example", i)
				case 2:
					host, want = fmt.Sprintf("f%d.example", i), tell(failed(exchange.DNSFailed, exchange.CauseServFail))
				case 3:
					host, want = fmt.Sprintf("s%d.example", i), tell(failed(exchange.DNSTimeout, exchange.CauseDNSTimeout))
				}
				if got := tell(r.Lookup(t.Context(), host, 0)); got != want {
					missing.Store(fmt.Sprintf("%s: got %s, want %s", host, got, want))
				}
				if n := r.mux.count() + len(r.tcp); n > bound {
					t.Errorf("%d sockets are open, of at most %d", n, bound)
				}
			})
		}
		wait.Wait()
		for i := 0; r.mux.inFlight() > 0; i++ { // probes may outlast the look-ups
			if i == 1000 {
				t.Fatalf("%d questions are still in flight", r.mux.inFlight())
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := r.Close(); err != nil || r.mux.count() != 0 || r.mux.retired != 0 {
			t.Errorf("after Close %d sockets are counted, %d retired, %v", r.mux.count(), r.mux.retired, err)
		}
		wrong, _ := missing.Load().(string)
		return wrong
	})
}

// A socket sends a bounded number of questions, so that a forger has to guess a new port.
func TestPortsChange(t *testing.T) {
	var mu sync.Mutex
	ports := map[string]int{}
	r := newResolver(t, Options{}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		ports[w.RemoteAddr().String()]++
		mu.Unlock()
		zone(q.Question[0].Name+" 60 A 192.0.2.1")(w, q)
	}))
	r.mux.each = 5
	for i := range 100 {
		if got := tell(r.Lookup(t.Context(), fmt.Sprintf("a%d.example", i), 0)); got != "[192.0.2.1]" {
			t.Fatal(got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// The kernel chooses ports at random, so it may give a closed socket's port to a later one.
	var again []int
	for _, n := range ports {
		if n > r.mux.each {
			again = append(again, n)
		}
	}
	if len(again) > 2 || len(ports) < 18 {
		t.Errorf("%d ports, of which some were used %v times", len(ports), again)
	}
	if n := r.mux.count(); n > socketsPerServer {
		t.Errorf("%d sockets are left open", n)
	}
}

// One look-up has one deadline for all its questions.
func TestTotal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := newResolver(t, Options{First: 20 * time.Millisecond, Total: 100 * time.Millisecond}, serve(t, silence))
	got := r.Lookup(ctx, "a.com", 0)
	if got.Outcome != exchange.DNSTimeout || ctx.Err() != nil || got.Took < 100*time.Millisecond {
		t.Errorf("got %s after %v, %v", tell(got), got.Took, ctx.Err())
	}
	// The deadline also holds if another server refuses each time.
	r = newResolver(t, Options{First: 20 * time.Millisecond, Total: 50 * time.Millisecond}, serve(t, code(dns.RcodeServerFailure)), serve(t, silence))
	if got := r.Lookup(ctx, "a.com", 0); got.Outcome == 0 || ctx.Err() != nil {
		t.Errorf("got %s, %v", tell(got), ctx.Err())
	}
}

// Waits for the rate count neither in a look-up's time nor in Took.
func TestOwnWaitsDoNotCount(t *testing.T) {
	t.Parallel()
	unhurried(t, 500*time.Millisecond, func(total time.Duration) string {
		opts := Options{Rate: 0.5 / total.Seconds(), Total: total, First: total}
		r := newResolver(t, opts, serve(t, zone("a.com. 60 A 192.0.2.1", "b.com. 60 A 192.0.2.1")))
		began := time.Now()
		if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
			return "got " + got
		}
		var wait sync.WaitGroup
		var missing [2]string // of a leader and a follower
		for i := range missing {
			wait.Go(func() {
				got := r.Lookup(t.Context(), "b.com", 0) // asks after twice its total
				if tell(got) != "[192.0.2.1]" || time.Since(began)-got.Took < 2*total {
					missing[i] = fmt.Sprintf("got %s, which took %v of %v", tell(got), got.Took, time.Since(began))
				}
			})
		}
		wait.Wait()
		return missing[0] + missing[1]
	})
}

// With little patience a look-up is soon deferred. A look-up of the same name with all its time, at the same time,
// gets the answer.
func TestPatience(t *testing.T) {
	release := make(chan struct{})
	var questions atomic.Int32
	r := newResolver(t, Options{Total: time.Minute, First: time.Minute}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if questions.Add(1) == 1 {
			return // the impatient leader's question
		}
		<-release
		zone("a.com. 60 A 192.0.2.1")(w, q)
	}))
	if got := r.Lookup(t.Context(), "a.com", 10*time.Millisecond); !got.Deferred || got.Outcome != 0 || got.Addrs != nil {
		t.Errorf("the impatient leader got %+v", got)
	}
	patient := make(chan Answer)
	go func() { patient <- r.Lookup(t.Context(), "a.com", 0) }()
	for questions.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	if got := r.Lookup(t.Context(), "a.com", 10*time.Millisecond); !got.Deferred {
		t.Errorf("the impatient follower got %+v", got)
	}
	close(release)
	if got := tell(<-patient); got != "[192.0.2.1]" {
		t.Errorf("the patient leader got %s", got)
	}
	if s := r.Stats(); s.Deferred != 2 || s.Lookups != 3 {
		t.Errorf("%+v", s)
	}
}

// An answer that comes after its question was repeated is valid.
func TestLateAnswer(t *testing.T) {
	var questions atomic.Int32
	again := make(chan struct{})
	r := newResolver(t, Options{First: 10 * time.Millisecond}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if questions.Add(1) == 1 {
			go func() {
				<-again
				zone("a.com. 60 A 192.0.2.1")(w, q)
			}()
			return
		}
		select {
		case <-again:
		default:
			close(again)
		}
	}))
	if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
}
