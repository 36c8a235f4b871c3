package pipeline

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// watched is a web that checks the run from within.
type watched struct {
	*web
	mu            sync.Mutex
	lookups, most int
	during        func(context.Context)
}

// ResolveAll implements Fetcher.
func (w *watched) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolveEach(ctx, w.Resolve, queries, done)
}

func (w *watched) Resolve(ctx context.Context, t exchange.Target) exchange.Lookup {
	w.mu.Lock()
	w.lookups++
	w.most = max(w.most, w.lookups)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lookups--
	}()
	return w.web.Resolve(ctx, t)
}

func (w *watched) Do(ctx context.Context, x *exchange.Exchange) exchange.Next {
	if w.during != nil {
		w.during(ctx)
	}
	return w.web.Do(ctx, x)
}

// runWatched takes hosts through a pipeline in a bubble of fake time.
func runWatched(t *testing.T, cfg Config, w *watched, n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.SpillDir = t.TempDir()
		s := &shelf{}
		p := New(cfg, &list{hosts: hosts(n, "h%d.example.com")}, w, noJudge{}, s)
		if err := p.Run(t.Context()); err != nil || len(s.sites) != n {
			t.Errorf("%+v: %d kept, %v", cfg, len(s.sites), err)
		}
	})
}

// There are no more look-ups at once than configured, by default no more than exchanges. If they take long, as many
// more as configured for that are allowed.
func TestResolversAreBounded(t *testing.T) {
	f := func(cfg Config, takes time.Duration, want int) {
		t.Helper()
		// With a short TTL, addresses are looked up again for records that have waited.
		w := &watched{web: &web{latency: time.Second, resolving: takes, ttl: 10 * time.Second}}
		runWatched(t, cfg, w, 600)
		if w.most != want {
			t.Errorf("%+v: %d look-ups at once, want %d", cfg, w.most, want)
		}
	}
	const quick, slow = 150 * time.Millisecond, 5 * time.Second
	f(Config{Concurrency: 400}, quick, DefaultResolvers)
	f(Config{Concurrency: 40}, quick, 40)
	f(Config{Concurrency: 400, Resolvers: 7}, quick, 7)
	f(Config{Concurrency: 5, Resolvers: 30}, quick, 30)
	f(Config{Concurrency: 10, Resolvers: 1, IPRate: 1, MaxWaiting: 20}, quick, 1)
	f(Config{Concurrency: 400, SilentLookups: 100}, slow, DefaultResolvers+100)
	f(Config{Concurrency: 40, SilentLookups: 1}, slow, 41)
	f(Config{Concurrency: 400, Resolvers: 7, SilentLookups: 20}, slow, 27)
	f(Config{Concurrency: 10, Resolvers: 1, SilentLookups: 3, IPRate: 1, MaxWaiting: 20}, slow, 4)
}

// A profile tells the stages apart, and the fetcher can set the label of its stage again.
func TestStagesAreLabelled(t *testing.T) {
	var begun atomic.Bool
	var profile bytes.Buffer
	w := &watched{web: &web{latency: time.Second}}
	w.during = func(ctx context.Context) {
		if stage, _ := pprof.Label(ctx, "stage"); stage != "ask" {
			t.Errorf("asked with the label %q", stage)
		}
		if begun.Swap(true) {
			return
		}
		synctest.Wait() // until every stage has begun
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Error(err)
		}
	}
	runWatched(t, Config{Concurrency: 2}, w, 300)
	for _, stage := range []string{"feed", "resolve", "schedule", "ask", "judge", "keep"} {
		if !strings.Contains(profile.String(), `{"stage":"`+stage+`"}`) {
			t.Errorf("no goroutine of the stage %s in\n%s", stage, profile.String())
		}
	}
}

// A run holds as many slots and workers as it had exchanges in flight at once, whatever its bounds; a returned slot is
// used again before another is made.
func TestSlotsAreMadeWhenNeeded(t *testing.T) {
	workers := 0
	ts := newSlots(&Config{Concurrency: 1000, SilentExchanges: 4000}, func() { workers++ })
	check := func(what string, want int) {
		t.Helper()
		if made := len(ts.free) + len(ts.running); workers != want || made != want {
			t.Errorf("%s: %d slots and %d workers, want %d", what, made, workers, want)
		}
	}
	check("at first", 0)
	one, two := ts.take(0), ts.take(0)
	check("two in flight", 2)
	ts.put(one)
	three := ts.take(0)
	check("one back, one more in flight", 2)
	if three != one || three == two {
		t.Error("the slot that was free is not the one that was taken")
	}
	ts.put(two)
	ts.put(three)
	if n := testing.AllocsPerRun(100, func() { ts.put(ts.take(0)) }); n != 0 || !ts.allFree() {
		t.Errorf("taking a free slot allocates %v times", n)
	}
}
