package resolve

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// A server that refuses or is unreachable does not end a look-up that another server may still answer, nor at the
// end of its time.
func TestRefusalBesideSilence(t *testing.T) {
	f := func(name string, bad script, want ...string) {
		t.Helper()
		play := func(how string, other script, want ...string) {
			t.Helper()
			t.Run(name+"/"+how, func(t *testing.T) {
				either(t, func(w *world) string {
					return w.lookUp(w.resolver(Options{Total: 2 * time.Second}, bad, other))
				}, want...)
			})
		}
		play("the other answers late", late(1490*time.Millisecond, anything), want[0]+" ["+good+"]", want[1]+" ["+good+"]")
		play("the other is silent", quiet, want[2]+"; 2s "+timedOut, want[3]+"; 2s "+timedOut)
	}
	one, two := "0s to 1, 10ms to 1 plain, 20ms to 2, 420ms to 2 plain",
		"0s to 2, 400ms to 1, 410ms to 1 plain, 420ms to 2 plain, 820ms to 2 plain"
	refused := []string{
		one + ", 1.02s to 2 plain; 1.52s", two + ", 1.42s to 2 plain; 1.5s",
		one + ", 1.02s to 2 plain, 1.92s to 2 plain", two + ", 1.42s to 2 plain",
	}
	f("REFUSED", refuses(dns.RcodeRefused), refused...)
	f("SERVFAIL", refuses(dns.RcodeServerFailure), refused...)
	one, two = "0s to 1, 10ms to 2, 410ms to 1, 420ms to 2 plain", "0s to 2, 400ms to 1, 410ms to 2 plain"
	f("closed port", nil,
		one+", 1.02s to 1, 1.03s to 2 plain; 1.51s", two+", 1.01s to 1, 1.02s to 2 plain; 1.5s",
		one+", 1.02s to 1, 1.03s to 2 plain, 1.93s to 1, 1.94s to 2 plain", two+
			", 1.01s to 1, 1.02s to 2 plain, 1.92s to 1, 1.93s to 2 plain")
}

// The log and Stats show that a server is down, and that it answers again. A server that leaves only unanswerable
// names unanswered is not down.
func TestDown(t *testing.T) {
	in(t, func(w *world) {
		opts, log := logged(Options{})
		r := w.resolver(opts, func(q *query) {
			if w.since() > 10*time.Second && q.Question[0].Name != "a.com." {
				anything(q)
			}
		})
		f := func(down bool, want string) {
			w.Helper()
			w.want(tell(w.find(w.Context(), r, "a.com")), timedOut)
			w.want(log.String(), want)
			if s := r.Stats().Servers[0]; s.Down != down {
				w.Errorf("%+v", s)
			}
		}
		lines := downLine(w.begun.Add(7175 * time.Millisecond))
		f(true, lines)
		lines += "time=2000-01-01T00:00:15.285Z level=INFO msg=\"name server answers again\" server=10.0.1.1:53\n"
		f(false, lines) // by a probe
		f(false, lines)
		f(false, lines)
		w.want(fmt.Sprint(w.times(1, "probe")), "[5.275s 5.675s 6.275s 15.275s 25.275s 35.275s]")
	})
}

// downLine is the line in the log that the first server is down, since some time.
func downLine(since time.Time) string {
	return since.UTC().Format("time=2006-01-02T15:04:05.000Z level=WARN msg=") +
		"\"name server does not answer\" server=10.0.1.1:53\n"
}

// A server whose port is closed is down after three probes.
func TestClosedPortIsDown(t *testing.T) {
	in(t, func(w *world) {
		opts, log := logged(Options{})
		r := w.resolver(opts, nil)
		w.want(tell(w.find(w.Context(), r, "a.com")), unreachable)
		w.want(log.String(), downLine(w.begun.Add(5160*time.Millisecond)))
		if s := r.Stats().Servers[0]; s.Unheard != 10 || s.Questions != 10 || s.Answers != 0 || !s.Down {
			w.Errorf("%+v", s)
		}
	})
}

// The rate bounds all questions to each server: first ones, repetitions, and those by TCP.
func TestRateIsKept(t *testing.T) {
	in(t, func(w *world) {
		script := func(q *query) {
			switch q.Question[0].Name[0] {
			case 's':
			case 't':
				over(truncated, anything)(q)
			default:
				anything(q)
			}
		}
		r := w.resolver(Options{Rate: 200}, script, script)
		var all sync.WaitGroup
		for i := range 120 {
			all.Go(func() { w.find(w.Context(), r, fmt.Sprintf("%c%d.example", "uts"[i%3], i)) })
		}
		all.Wait()
		for _, nth := range []int{1, 2} {
			at := w.times(nth, "")
			must := steadily(len(at), 0, 10*time.Millisecond)
			// There are enough first questions for 400 ms, and at no time more than the rate allows.
			for i := range at {
				if i <= 40 && at[i] != must[i] || at[i] < must[i] {
					w.Fatalf("server %d was asked at %v", nth, at)
				}
			}
		}
	})
}

// steadily returns when n questions are sent, from a time on and in equal intervals.
func steadily(n int, first, interval time.Duration) (all []time.Duration) {
	for i := range n {
		all = append(all, first+time.Duration(i)*interval)
	}
	return all
}

// A question that waits for the rate and is no longer needed uses none of it.
func TestRateIsNotWasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(100)
		if came, err := p.wait(t.Context(), time.NewTimer(0), nil, 1); came || err != nil {
			t.Fatal(came, err)
		}
		leaving := make([]*call, 50)
		var left sync.WaitGroup
		for i := range leaving {
			leaving[i] = newCall()
			leaving[i].arrivals <- arrival{}
			left.Go(func() {
				for range 3 {
					_, _ = p.wait(t.Context(), leaving[i].timer, leaving[i].arrivals, 1)
				}
			})
		}
		left.Wait()
		place := p.limiter.Reserve()
		if d := place.Delay(); d != 10*time.Millisecond {
			t.Errorf("the next question is due in %v", d)
		}
	})
}

// If few TCP connections are allowed, truncated answers are fetched one after the other. The wait for a connection
// does not count, and no name is lost.
func TestQueueForTCP(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{MaxSockets: 4}, over(truncated, anything))
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				got := w.find(w.Context(), r, fmt.Sprintf("a%d.example", i))
				w.want(fmt.Sprint(tell(got), " ", got.Took), "["+good+"] 30ms")
			})
		}
		all.Wait()
		w.want(fmt.Sprint(w.times(1, "TCP")), fmt.Sprint(steadily(100, 10*time.Millisecond, 20*time.Millisecond)))
		if s := r.Stats(); s.Servers[0].Failures != 0 {
			w.Errorf("%+v", s)
		}
	})
}

// A server without EDNS refuses each question that has it, even those sent before the first refusal came.
func TestSlowServerWithoutEDNS(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(late(700*time.Millisecond, withoutEDNS(refuses(dns.RcodeFormatError), anything)))
		w.want(w.lookUp(r), "0s, 400ms plain, 1s plain; 1.11s ["+good+"]")
	})
}

// Waits for the rate do not count in Took, unless a question was in flight meanwhile.
func TestTookUnderRate(t *testing.T) {
	in(t, func(w *world) {
		r := w.resolver(Options{Rate: 10}, late(985*time.Millisecond, anything))
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				got := w.find(w.Context(), r, fmt.Sprintf("a%d.example", i))
				w.want(fmt.Sprint(tell(got), " ", got.Took), "["+good+"] 995ms")
			})
		}
		all.Wait()
		// Twenty first questions, and repetitions of those whose answers had not come.
		w.want(fmt.Sprint(w.times(1, "")), fmt.Sprint(steadily(29, 0, 100*time.Millisecond)))
	})
}

// Close ends at once, even while look-ups continue.
func TestCloseUnderLookups(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(anything)
		r.mux.each = 2
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					w.find(ctx, r, fmt.Sprintf("a%d-%d.example", i, k))
				}
			})
		}
		for i := range 20 {
			begun := w.since()
			_ = r.Close() // must not wait for sockets that are opened meanwhile
			if w.since() != begun {
				w.Errorf("it took %v", w.since()-begun)
			}
			time.Sleep(time.Duration(i%3) * oneWay)
		}
		cancel()
		all.Wait()
	})
}
