package resolve

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// However many look up at once, and however their answers come, no more sockets are open than may be; and nobody fails
// for want of one.
func TestSocketsAreBounded(t *testing.T) {
	const bound, lookups = 4, 200
	var asking, most atomic.Int32
	handle := func(w dns.ResponseWriter, q *dns.Msg) {
		n := asking.Add(1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		time.Sleep(2 * time.Millisecond)
		asking.Add(-1) // before the answer, which frees the next
		name := q.Question[0].Name
		switch {
		case name[0] == 't' && w.RemoteAddr().Network() == "udp":
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
		case name[0] == 'f':
			code(dns.RcodeServerFailure)(w, q)
		default:
			zone(name+" 60 A 192.0.2.1")(w, q)
		}
	}
	r := newResolver(t, Options{Timeout: 10 * time.Second, MaxSockets: bound}, serve(t, handle), serve(t, handle), serve(t, handle))
	held := func() int {
		r.sockets.mu.Lock()
		defer r.sockets.mu.Unlock()
		return r.sockets.open
	}
	var wait sync.WaitGroup
	for i := range lookups {
		wait.Go(func() {
			host, want := fmt.Sprintf("u%d.example", i), "[192.0.2.1]"
			switch i % 4 {
			case 1:
				host = fmt.Sprintf("t%d.example", i)
			case 2:
				host, want = fmt.Sprintf("f%d.example", i), tell(failed(exchange.DNSFailed, exchange.CauseServFail))
			}
			if got := tell(r.Lookup(t.Context(), host)); got != want {
				t.Errorf("%s: got %s, want %s", host, got, want)
			}
			if n := held(); n > bound {
				t.Errorf("%d sockets are open, of at most %d", n, bound)
			}
		})
	}
	wait.Wait()
	if n := most.Load(); n > bound || n < 2 {
		t.Errorf("%d questions were under way at once, of at most %d", n, bound)
	}
	idle := 0
	for _, s := range r.servers {
		idle += len(s.idle)
	}
	if n := held(); n != idle || len(r.sockets.places) != 0 {
		t.Errorf("%d sockets are counted, %d are idle, %d places are taken", n, idle, len(r.sockets.places))
	}
	if err := r.Close(); err != nil || held() != 0 {
		t.Errorf("after Close %d sockets are counted, %v", held(), err)
	}
}

// An idle socket of one server makes room for one to another.
func TestSocketsMoveBetweenServers(t *testing.T) {
	answer := zone("a.com. 60 A 192.0.2.1")
	r := newResolver(t, Options{Timeout: 10 * time.Second, MaxSockets: 1}, serve(t, answer), serve(t, answer))
	for _, s := range []int{0, 1, 1, 0} {
		if !r.sockets.enter(t.Context()) {
			t.Fatal("no place")
		}
		if _, err := r.servers[s].ask(t.Context(), "a.com.", dns.TypeA, time.Now().Add(10*time.Second)); err != nil {
			t.Errorf("server %d: %v", s, err)
		}
		r.sockets.leave()
		if len(r.servers[s].idle) != 1 || len(r.servers[1-s].idle) != 0 || r.sockets.open != 1 {
			t.Errorf("server %d: %d and %d idle, %d open", s, len(r.servers[s].idle), len(r.servers[1-s].idle), r.sockets.open)
		}
	}
}

// Who waits for a place gives up with its context, and a failure to open leaves the count right.
func TestSocketsWhenFull(t *testing.T) {
	r := newResolver(t, Options{MaxSockets: 1}, serve(t, silence))
	if !r.sockets.enter(t.Context()) {
		t.Fatal("no place")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got := r.Lookup(ctx, "a.com"); got.Outcome != exchange.DNSTimeout {
		t.Errorf("got %s", tell(got))
	}
	if _, err := r.sockets.dial(t.Context(), new(net.Dialer), "nonsense", r.servers[0].addr); err == nil || r.sockets.open != 0 {
		t.Errorf("%v, %d open", err, r.sockets.open)
	}
	r.sockets.leave()
}

// One lookup has one deadline, however many questions of however many tries it would still like to put.
func TestTotal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := newResolver(t, Options{Timeout: 20 * time.Millisecond, Total: 100 * time.Millisecond, Tries: 1_000_000}, serve(t, silence))
	got := r.Lookup(ctx, "a.com")
	if got.Outcome != exchange.DNSTimeout || ctx.Err() != nil || got.Took < 100*time.Millisecond {
		t.Errorf("got %s after %v, %v", tell(got), got.Took, ctx.Err())
	}
	// Also where another server answers each time, and says that it cannot.
	r = newResolver(t, Options{Timeout: 20 * time.Millisecond, Total: 50 * time.Millisecond, Tries: 1_000_000}, serve(t, code(dns.RcodeServerFailure)), serve(t, silence))
	if got := r.Lookup(ctx, "a.com"); got.Outcome == 0 || ctx.Err() != nil {
		t.Errorf("got %s, %v", tell(got), ctx.Err())
	}
}

// Waiting for our own rate is no failure of the servers: it neither uses a lookup's time up nor counts as theirs.
func TestOwnWaitsDoNotCount(t *testing.T) {
	r := newResolver(t, Options{Rate: 1, Total: 500 * time.Millisecond, Timeout: 400 * time.Millisecond}, serve(t, zone("a.com. 60 A 192.0.2.1", "b.com. 60 A 192.0.2.1")))
	if got := tell(r.Lookup(t.Context(), "a.com")); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	began := time.Now()
	got := r.Lookup(t.Context(), "b.com") // a second on, twice what it may take
	if tell(got) != "[192.0.2.1]" || time.Since(began)-got.Took < 500*time.Millisecond {
		t.Errorf("got %s, which took %v of %v", tell(got), got.Took, time.Since(began))
	}
}
