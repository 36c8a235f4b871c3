package resolve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

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

// Many concurrent look-ups, with answers of all kinds, stay within MaxSockets. None fails for lack of a socket.
func TestSocketsAreBounded(t *testing.T) {
	in(t, func(w *world) {
		const bound, lookups = 16, 400
		script := func(q *query) {
			switch q.Question[0].Name[0] {
			case 't':
				over(truncated, anything)(q)
			case 'f':
				refuses(dns.RcodeServerFailure)(q)
			case 's': // silence: the retired socket has to wait
			default:
				anything(q)
			}
		}
		r := w.resolver(Options{MaxSockets: bound}, script, script, script)
		r.mux.each = 3
		var all sync.WaitGroup
		for i := range lookups {
			all.Go(func() {
				kind := "uftsuuuu"[i%8 : i%8+1]
				want := map[string]string{"u": "[" + good + "]", "t": "[" + good + "]", "f": servFail, "s": timedOut}[kind]
				w.want(tell(w.find(w.Context(), r, fmt.Sprint(kind, i, ".example"))), want)
			})
		}
		all.Wait()
		w.want(w.since().String(), "10s")
		time.Sleep(10 * time.Second) // probes may outlast the look-ups
		synctest.Wait()
		if n := r.mux.inFlight(); n > 0 {
			w.Errorf("%d questions are still in flight", n)
		}
		err := r.Close()
		r.mux.mu.Lock()
		defer r.mux.mu.Unlock()
		if err != nil || len(r.mux.open) != 0 || r.mux.retired != 0 {
			w.Errorf("after Close %d sockets are counted, %d retired, %v", len(r.mux.open), r.mux.retired, err)
		}
		if w.most > bound {
			w.Errorf("%d sockets were open, of at most %d", w.most, bound)
		}
	})
}

// A socket sends a bounded number of questions, so that a forger has to guess a new port.
func TestPortsChange(t *testing.T) {
	in(t, func(w *world) {
		ports := map[string]int{}
		r := w.asks(func(q *query) {
			ports[q.from.String()]++
			anything(q)
		})
		r.mux.each = 5
		for i := range 100 {
			w.want(tell(w.find(w.Context(), r, fmt.Sprintf("a%d.example", i))), "["+good+"]")
		}
		synctest.Wait()
		full := 0
		for port, n := range ports {
			if n > r.mux.each {
				w.Errorf("%s was used %d times", port, n)
			} else if n == r.mux.each {
				full++
			}
		}
		if len(ports)-full > socketsPerServer || w.open > socketsPerServer {
			w.Errorf("%d ports, of which %d were used %d times; %d are open", len(ports), full, r.mux.each, w.open)
		}
	})
}

// A socket is closed after its time, which ends with its last question.
func TestSocketLife(t *testing.T) {
	f := func(name, want string, script script, starts ...time.Duration) {
		t.Helper()
		run(t, name, func(w *world) {
			r := w.asks(script)
			r.mux.perServer = 1
			var all sync.WaitGroup
			for i, start := range starts {
				all.Go(func() {
					time.Sleep(start)
					w.find(w.Context(), r, fmt.Sprintf("a%d.example", i))
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			w.want(strings.Join(w.sockets, ", "), want)
		})
	}
	f("answered", "0s opened, 10s closed", anything, 0)
	f("answered again", "0s opened, 10s closed", anything, 0, 9*time.Second)
	f("answered later", "0s opened, 10s closed, 11s opened, 21s closed", anything, 0, 11*time.Second)
	f("unanswered", "0s opened, 10s closed", quiet, 0)
	f("unanswered at the end of its time", "0s opened, 10.5s opened, 12.5s closed, 20.5s closed",
		byName(map[string]script{"a0.example.": anything}), 0, 9500*time.Millisecond)
	f("answered after its time", "0s opened, 10.41s closed", late(900*time.Millisecond, anything), 0,
		9500*time.Millisecond)
	f("by TCP", "0s opened, 10ms dialled, 30ms closed, 10s closed", over(truncated, anything), 0)
	f("by TCP, unanswered", "0s opened, 10ms dialled, 3s closed, 10s closed", over(truncated, stall), 0)
}

// One look-up has one deadline for all its questions.
func TestTotal(t *testing.T) {
	f := func(name string, total time.Duration, scripts []script, want ...string) {
		t.Run(name, func(t *testing.T) {
			either(t, func(w *world) string { return w.lookUp(w.resolver(Options{Total: total}, scripts...)) }, want...)
		})
	}
	f("by default", 0, []script{quiet},
		"0s, 400ms plain, 1s plain, 1.9s plain, 3.25s plain, 5.275s plain, 5.275s probe, 5.675s probe plain, "+
			"6.275s probe plain, 8.3125s plain; 10s "+timedOut)
	f("in each question by TCP", 0, []script{over(truncated, stall)}, "0s, 10ms TCP, 3.11s plain, 3.12s TCP; 6.17s "+
		malformed)
	f("a second and a half", 1500*time.Millisecond, []script{quiet}, "0s, 400ms plain, 1s plain; 1.5s "+timedOut)
	f("in a question by TCP", 2*time.Second, []script{over(truncated, stall)}, "0s, 10ms TCP; 2s "+timedOut)
	// The deadline also holds if another server refuses each time.
	f("beside refusals", 2*time.Second, []script{refuses(dns.RcodeServerFailure), quiet},
		"0s to 1, 10ms to 1 plain, 20ms to 2, 420ms to 2 plain, 1.02s to 2 plain, 1.92s to 2 plain; 2s "+timedOut,
		"0s to 2, 400ms to 1, 410ms to 1 plain, 420ms to 2 plain, 820ms to 2 plain, 1.42s to 2 plain; 2s "+timedOut)
}

// Waits for the rate count neither in a look-up's time nor in Took, of a leader and of a follower.
func TestOwnWaitsDoNotCount(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{Rate: 0.5, Total: time.Second}, anything)
		w.want(w.lookUp(r), "0s; 10ms ["+good+"]")
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				got := w.find(w.Context(), r, "b.com") // asks after twice its total
				w.want(fmt.Sprint(w.since(), " ", tell(got), " ", got.Took), "2.01s ["+good+"] 10ms")
			})
		}
		all.Wait()
	})
}

// An answer that comes after its question was repeated is valid, whichever question it answers.
func TestLateAnswer(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(turns(late(1200*time.Millisecond, anything), quiet))
		w.want(w.lookUp(r), "0s, 400ms plain, 1s plain; 1.21s ["+good+"]")
	})
}
