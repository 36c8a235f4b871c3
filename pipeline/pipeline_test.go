package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// list is a Source over host names.
type list struct {
	hosts []string
	next  int
	err   error // instead of io.EOF
}

func (l *list) Next() (Entry, error) {
	if l.next == len(l.hosts) {
		if l.err != nil {
			return Entry{}, l.err
		}
		return Entry{}, io.EOF
	}
	host := l.hosts[l.next]
	o, err := origin.Parse(host)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Seq: uint64(l.next), Input: host, Origin: o, Rank: int64(l.next + 1), Label: "label"}
	l.next++
	return e, nil
}

// web is a Fetcher without a network. It notes the times of its requests, on the fake clock of the test.
type web struct {
	begun   time.Time
	latency time.Duration
	ttl     time.Duration                             // of addresses; 0: for ever
	address func(host string) string                  // nil: one of 64, by hash
	answer  func(x *exchange.Exchange) exchange.Next  // nil: answered with 200
	lookup  func(host string) (exchange.Lookup, bool) // nil, or instead of address

	resolving time.Duration                            // how long a look-up takes
	answers   func(host string) time.Duration          // nil, or instead of resolving; beyond resolveTotal none comes
	failed    func(x *exchange.Exchange) exchange.Next // nil, or what follows a failed look-up
	lasts     func(host string) time.Duration          // nil, or instead of latency
	woken     func()                                   // what a worker does that has been woken: be late; nil: is not
	// what passes from an exchange's start until the server has it; nil: nothing
	way func()

	mu       sync.Mutex
	asked    []asked
	lookups  int
	sought   map[string]int // look-ups by name
	seeking  int            // look-ups under way
	broadest int            // most of them
	flying   int
	most     int
}

// resolveTotal is how long a look-up continues without an answer.
const resolveTotal = 10 * time.Second

type asked struct {
	at   time.Duration
	host string
	addr netip.Addr
}

func (w *web) First(o origin.Origin, _ exchange.Past) exchange.Target {
	return exchange.Target{Origin: o.As(origin.HTTPS)}
}

// resolveEach is a ResolveAll that resolves each target in a goroutine of its own.
func resolveEach(ctx context.Context, resolve func(context.Context, exchange.Target) exchange.Lookup,
	queries []*exchange.Query, done func([]*exchange.Query)) {
	for _, q := range queries {
		go func() {
			q.Lookup = resolve(ctx, q.Target)
			done([]*exchange.Query{q})
		}()
	}
}

// ResolveAll implements Fetcher.
func (w *web) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolveEach(ctx, w.Resolve, queries, done)
}

func (w *web) Resolve(ctx context.Context, t exchange.Target) exchange.Lookup {
	host := t.Origin.Host()
	began := time.Now()
	takes := w.resolving
	if w.answers != nil {
		takes = w.answers(host)
	}
	w.mu.Lock()
	if w.sought == nil {
		w.sought = map[string]int{}
	}
	w.sought[host]++
	w.seeking++
	w.broadest = max(w.broadest, w.seeking)
	w.mu.Unlock()
	whole := min(takes, resolveTotal)
	if whole > 0 {
		select {
		case <-time.After(whole):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seeking--
	w.lookups++
	if takes > resolveTotal {
		return exchange.Lookup{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout, Took: time.Since(began)}
	}
	if w.lookup != nil {
		if l, ok := w.lookup(host); ok {
			return l
		}
	}
	var l exchange.Lookup
	if w.address != nil {
		l.Addr = netip.MustParseAddr(w.address(host))
	} else {
		l.Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(len(host)*31+int(host[len(host)-5])) % 64})
	}
	if w.ttl > 0 {
		l.Until = time.Now().Add(w.ttl)
	}
	l.Took = time.Since(began)
	return l
}

func (w *web) Do(ctx context.Context, x *exchange.Exchange) exchange.Next {
	host := x.Target.Origin.Host()
	if x.Lookup.Outcome == 0 && !x.Lookup.Addr.IsValid() {
		panic("asked without an address")
	}
	if w.way != nil && x.Lookup.Outcome == 0 {
		w.way()
	}
	w.mu.Lock()
	w.flying++
	w.most = max(w.most, w.flying)
	if x.Lookup.Outcome == 0 {
		w.asked = append(w.asked, asked{time.Since(w.begun), host, x.Lookup.Addr})
	}
	w.mu.Unlock()
	latency := w.latency
	if w.lasts != nil {
		latency = w.lasts(host)
	}
	if latency > timeout && w.lasts != nil {
		latency = timeout
	}
	if latency > 0 {
		// channels of timers that are due at once, read side by side in a bubble, can crash Go 1.26's race detector
		select {
		case <-time.After(latency):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	x.Past.Attempts++
	if x.Lookup.Outcome != 0 {
		x.Response.Outcome, x.Response.Attempts, x.Response.Timing.DNS = x.Lookup.Outcome, int(x.Past.Attempts), x.Lookup.Took
		if w.failed != nil {
			return w.failed(x)
		}
		return exchange.Done
	}
	x.Response.Outcome, x.Response.Status, x.Response.Timing.DNS = exchange.Answered, 200, x.Lookup.Took
	if w.answer != nil {
		return w.answer(x)
	}
	return exchange.Done
}

// shelf is a Sink that notes the sites that it gets.
type shelf struct {
	sites []kept
	fail  error
	after int
}

type kept struct {
	seq     uint64
	input   string
	outcome exchange.Outcome
	hops    int

	attempts int
	dns      time.Duration
}

func (s *shelf) Add(site *audit.Site) error {
	if s.fail != nil && len(s.sites) >= s.after {
		return s.fail
	}
	s.sites = append(s.sites, kept{site.Seq, site.Input, site.Fetch.Outcome, len(site.Fetch.Hops), site.Fetch.Attempts,
		site.Fetch.Timing.DNS})
	return nil
}

type noJudge struct{}

func (noJudge) Judge(*audit.Site) {}

func hosts(n int, format string) []string {
	hs := make([]string, n)
	for i := range hs {
		hs[i] = fmt.Sprintf(format, i)
	}
	return hs
}

// scan takes hosts through a pipeline in a bubble of fake time, checks what must hold after any ending, and returns how
// it ended and how long it took.
func scan(t *testing.T, cfg Config, w *web, l *list, s *shelf, during func(*Pipeline)) (took time.Duration, err error) {
	t.Helper()
	return scanSource(t, cfg, w, l, s, during)
}

// numbered returns a function that numbers keys. No two of them share a cell, which would delay one of them.
func numbered() func(key) key {
	numbers := map[key]key{}
	return func(k key) key {
		if numbers[k] == 0 {
			numbers[k] = key(len(numbers) + 1)
		}
		return numbers[k]
	}
}

// scanSource is scan of any Source.
func scanSource(t *testing.T, cfg Config, w *web, l Source, s *shelf, during func(*Pipeline)) (took time.Duration,
	err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.begun = time.Now()
		cfg.SpillDir = t.TempDir()
		p := New(cfg, l, w, noJudge{}, s)
		p.woken, p.apart = w.woken, numbered()
		var aside sync.WaitGroup
		if during != nil {
			aside.Go(func() { during(p) })
		}
		err = p.Run(t.Context())
		took = time.Since(w.begun)
		aside.Wait()
		if o, a := p.Progress().Silent.Load(), p.Progress().Asleep.Load(); err == nil && (o != 0 || a != 0) {
			t.Errorf("nobody is left, and %d are overdue, %d asleep", o, a)
		}
		seen := map[uint64]bool{}
		for _, k := range s.sites {
			if seen[k.seq] {
				t.Errorf("origin %d was kept twice", k.seq)
			}
			seen[k.seq] = true
		}
		if all := p.cfg.Concurrency + p.cfg.SilentExchanges; w.most > all {
			t.Errorf("%d exchanges in flight, more than %d", w.most, all)
		}
	})
	return took, err
}

func TestEveryOriginIsKeptOnce(t *testing.T) {
	w, l, s := &web{latency: 50 * time.Millisecond}, &list{hosts: hosts(5000, "h%d.example.com")}, &shelf{}
	_, err := scan(t, Config{Concurrency: 100, HostRate: 1}, w, l, s, nil)
	if err != nil || len(s.sites) != 5000 {
		t.Fatalf("kept %d origins, error %v; want 5000 and none", len(s.sites), err)
	}
	if w.most != 100 {
		t.Errorf("at most %d exchanges were in flight; want all 100 places used", w.most)
	}
	for _, k := range s.sites {
		if k.input != l.hosts[k.seq] {
			t.Fatalf("origin %d is kept as %q; want %q", k.seq, k.input, l.hosts[k.seq])
		}
	}
}

func TestSkippedOriginsAreNotAsked(t *testing.T) {
	w, l, s := &web{}, &list{hosts: hosts(100, "h%d.example.com")}, &shelf{}
	cfg := Config{Concurrency: 10, Skip: func(seq uint64) bool { return seq%2 == 0 }}
	if _, err := scan(t, cfg, w, l, s, nil); err != nil || len(s.sites) != 50 || len(w.asked) != 50 {
		t.Fatalf("kept %d, asked %d, error %v; want 50, 50 and none", len(s.sites), len(w.asked), err)
	}
}

// most returns the largest number of exchanges that fall into any window.
func most(at []time.Duration, window time.Duration) int {
	slices.Sort(at)
	best, from := 0, 0
	for i := range at {
		for at[i]-at[from] >= window {
			from++
		}
		best = max(best, i-from+1)
	}
	return best
}

// checkRate checks the promise of a rate: never more than 10 × rate + 1 in any ten seconds, nor 1.1 × rate + 1 in any
// one.
func checkRate(t *testing.T, key string, at []time.Duration, perSecond float64) {
	t.Helper()
	for seconds, bound := range map[int]float64{1: 1.1*perSecond + 1, 10: 10*perSecond + 1} {
		if n := most(at, time.Duration(seconds)*time.Second); float64(n) > bound {
			t.Errorf("%q was asked %d times in %d s; want at most %v", key, n, seconds, bound)
		}
	}
}

// times returns the times of requests by key.
func (w *web) times(key func(asked) string) map[string][]time.Duration {
	times := map[string][]time.Duration{}
	for _, a := range w.asked {
		times[key(a)] = append(times[key(a)], a.at)
	}
	return times
}

// Requests with one rate are an interval apart, from the first on.
func TestRateIsKept(t *testing.T) {
	f := func(name string, perSecond float64, cfg Config, address string) {
		t.Helper()
		w, s := &web{latency: 30 * time.Millisecond, resolving: 20 * time.Millisecond}, &shelf{}
		if address != "" {
			w.address = func(string) string { return address }
		}
		hs := hosts(200, "h%d.example.com")
		if cfg.HostRate > 0 {
			hs = hosts(200, "h.example.com:8%03d")
		}
		cfg.Concurrency = 50
		if took, err := scan(t, cfg, w, &list{hosts: hs}, s, nil); err != nil || len(s.sites) != len(hs) {
			t.Fatalf("%s: kept %d of %d after %v, error %v", name, len(s.sites), len(hs), took, err)
		}
		for i, a := range w.asked {
			if want := 20*time.Millisecond + time.Duration(i)*paceOf(perSecond).interval; a.at != want {
				t.Fatalf("%s, %v/s: request %d was at %v; want %v", name, perSecond, i, a.at, want)
			}
		}
	}
	for _, perSecond := range []float64{0.1, 1, 2, 7, 10, 50, 300} {
		f("a host", perSecond, Config{HostRate: perSecond}, "")
		f("an address", perSecond, Config{IPRate: perSecond}, "10.1.1.1")
		f("an IPv6 address", perSecond, Config{IPRate: perSecond}, "2001:db8::1")
		f("all", perSecond, Config{Rate: perSecond}, "")
		f("the slowest of three", perSecond, Config{Rate: perSecond, IPRate: 2 * perSecond, HostRate: 4 * perSecond}, "")
	}
}

// The rates hold where requests arrive, and on a busy machine: a worker runs up to 150 ms after it was woken, and its
// packets take up to 100 ms.
func TestRatesHold(t *testing.T) {
	f := func(name string, cfg Config, latency time.Duration, key func(asked) string, perSecond int) {
		t.Helper()
		run := func(name string, seed uint64, lag, way time.Duration, most float64) {
			t.Run(name, func(t *testing.T) {
				// 40 hosts on few addresses, each with 25 entries that differ in port, or more where the rate is high.
				var hs []string
				for port := range max(25, perSecond/4) {
					for host := range 40 {
						hs = append(hs, fmt.Sprintf("h%d.example.com:%d", host, 8000+port))
					}
				}
				cfg.Concurrency = max(200, perSecond)
				l := newLags(seed)
				w := &web{latency: latency, woken: l.upTo(lag), way: l.upTo(way),
					address: func(host string) string { return "10.0.0." + string(host[1]) }}
				s := &shelf{}
				took, err := scan(t, cfg, w, &list{hosts: hs}, s, nil)
				if err != nil || len(s.sites) != len(hs) {
					t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
				}
				longest := 0
				for k, at := range w.times(key) {
					longest = max(longest, len(at))
					checkRate(t, k, at, float64(perSecond))
				}
				// The busiest key sets the pace. In one run of some 1,300 two of 40 hosts share a cell of the limiter's table,
				// and with it the rate of one.
				need := time.Duration(longest) * time.Second / time.Duration(perSecond)
				if took > time.Duration(2*most*float64(need))+time.Second {
					t.Errorf("took %v; the busiest key needs %v", took, need)
				}
			})
		}
		run(name, 0, 0, 0, 1.03)
		seeds := uint64(3)
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			run(fmt.Sprintf("%s, busy machine %d", name, seed), seed, 150*time.Millisecond, 100*time.Millisecond, 1.3)
		}
	}
	host := func(a asked) string { return a.host }
	addr := func(a asked) string { return a.addr.String() }
	all := func(asked) string { return "all" }
	f("by host", Config{HostRate: 2}, 30*time.Millisecond, host, 2)
	f("by address", Config{IPRate: 10}, 30*time.Millisecond, addr, 10)
	f("by address, seldom", Config{IPRate: 1}, 30*time.Millisecond, addr, 1)
	f("by address, often", Config{IPRate: 300}, 30*time.Millisecond, addr, 300)
	f("in all", Config{Rate: 100}, 30*time.Millisecond, all, 100)
	f("in all, thousands", Config{Rate: 3000}, 30*time.Millisecond, all, 3000)
	f("by host and address, slow hosts", Config{HostRate: 1, IPRate: 50}, 30*time.Millisecond, host, 1)
	f("by host and address, busy addresses", Config{HostRate: 5, IPRate: 10}, 30*time.Millisecond, addr, 10)
	f("by all three", Config{HostRate: 5, IPRate: 20, Rate: 50}, 700*time.Millisecond, all, 50)
}

// Half of the list shares one address. That must not delay the other half.
func TestBusyAddressDelaysNobodyElse(t *testing.T) {
	const n = 20_000
	mixed := make([]string, 0, n)
	for i := range n / 2 {
		mixed = append(mixed, fmt.Sprintf("h%d.busy.example", i), fmt.Sprintf("h%d.other.example", i))
	}
	alone := hosts(n/2, "h%d.other.example")
	address := func(host string) string {
		if strings.HasSuffix(host, ".busy.example") {
			return "10.1.1.1"
		}
		dot := strings.IndexByte(host, '.')
		return fmt.Sprintf("10.2.%d.%d", host[dot-1], host[dot-2]) // neighbours on the list have different ones
	}
	// It returns the times by which 98 of a hundred of the others, and all of them, were fetched.
	doneAt := func(hs []string, maxWaiting int) (most, all time.Duration) {
		w, s := &web{latency: 100 * time.Millisecond, address: address}, &shelf{}
		cfg := Config{Concurrency: 100, IPRate: 50, MaxWaiting: maxWaiting}
		if _, err := scan(t, cfg, w, &list{hosts: hs}, s, nil); err != nil || len(s.sites) != len(hs) {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
		}
		var at []time.Duration
		for _, a := range w.asked {
			if strings.HasSuffix(a.host, ".other.example") {
				at = append(at, a.at)
			}
		}
		slices.Sort(at)
		return at[len(at)*98/100], at[len(at)-1]
	}
	f := func(maxWaiting int) {
		t.Helper()
		most, all := doneAt(alone, maxWaiting)
		mostWith, allWith := doneAt(mixed, maxWaiting)
		if ratio := float64(mostWith) / float64(most); ratio > 1.05 {
			t.Errorf(
				"%d places to wait: 98 %% of the other half were asked after %v, and after %v without the busy half: %.2f times; want at most 1.05", maxWaiting, mostWith, most, ratio)
		}
		// One address of the hundred may be unlucky, and be asked at its own rate at the end.
		if ratio := float64(allWith) / float64(all); ratio > 1.3 {
			t.Errorf(
				"%d places to wait: the other half was done after %v, and after %v without the busy half: %.2f times; want at most 1.3", maxWaiting, allWith, all, ratio)
		}
	}
	f(0)    // the default: every waiting record finds a place
	f(1000) // most are spilled, also records with a short wait
}

func TestWaitersBeyondTheBoundComeBack(t *testing.T) {
	const bound, concurrency = 1000, 20
	hs := hosts(6000, "h%d.example.com")
	w := &web{address: func(string) string { return "10.0.0.1" }, answer: func(x *exchange.Exchange) exchange.Next {
		if x.Past.Attempts == 1 { // a hop, then a retry, then the answer
			to := exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}
			x.Past.Trail = &exchange.Trail{Target: to, Hops: []exchange.Hop{{Status: 301, URL: to.String()}}}
			return exchange.Next{Again: true, Target: to}
		}
		if x.Past.Attempts == 2 {
			if x.Target.Path != "/elsewhere" {
				panic("the hop was lost")
			}
			x.Past.Trail = nil
			return exchange.Next{Again: true, After: time.Minute, Target: exchange.Target{Origin: x.Origin.As(origin.HTTP)}}
		}
		if x.Target.Origin.Scheme() != origin.HTTP {
			panic("the scheme of the later try was lost")
		}
		return exchange.Done
	}}
	s := &shelf{}
	var waited, spilled int64
	watch := func(p *Pipeline) {
		for p.Progress().Kept.Load() < uint64(len(hs)) {
			waited = max(waited, p.Progress().Waiting.Load())
			spilled = max(spilled, p.Progress().Spilled.Load())
			time.Sleep(10 * time.Millisecond)
		}
	}
	if _, err := scan(t, Config{Concurrency: concurrency, IPRate: 1000, MaxWaiting: bound}, w, &list{hosts: hs}, s,
		watch); err != nil || len(s.sites) != len(hs) {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
	}
	if spilled < 3*bound {
		t.Errorf("at most %d were spilled; want most of %d", spilled, len(hs))
	}
	if waited > bound+concurrency {
		t.Errorf("%d waited in memory; want at most the bound of %d and what was in flight", waited, bound)
	}
	if len(w.asked) != 3*len(hs) {
		t.Errorf("%d exchanges for %d origins; want three each", len(w.asked), len(hs))
	}
}

func TestAddressesPastTheirTimeAreAskedAgainInTurn(t *testing.T) {
	hs := hosts(200, "h%d.example.com")
	w := &web{ttl: 2 * time.Second, address: func(string) string { return "10.0.0.1" }}
	s := &shelf{}
	took, err := scan(t, Config{Concurrency: 1, IPRate: 10}, w, &list{hosts: hs}, s, nil)
	if err != nil || len(s.sites) != len(hs) {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
	}
	if w.lookups <= len(hs) || w.lookups > 2*len(hs) {
		t.Errorf("%d look-ups for %d origins; want each asked again once at most", w.lookups, len(hs))
	}
	if want := 199 * paceOf(10).interval; took != want {
		t.Errorf("took %v; want %v", took, want)
	}
	var order []string
	for _, a := range w.asked {
		order = append(order, a.host)
	}
	if !slices.Equal(order, hs) {
		t.Errorf("not asked in the order of the list: somebody lost its turn")
	}
}

func TestAChangedAddressQueuesAnew(t *testing.T) {
	begun := time.Time{}
	w := &web{ttl: time.Second}
	w.address = func(string) string {
		if begun.IsZero() {
			begun = time.Now()
		}
		if time.Since(begun) > 3*time.Second {
			return "10.0.0.2"
		}
		return "10.0.0.1"
	}
	hs, s := hosts(100, "h%d.example.com"), &shelf{}
	if _, err := scan(t, Config{Concurrency: 20, HostRate: 1, IPRate: 10, Rate: 100}, w, &list{hosts: hs}, s,
		nil); err != nil || len(s.sites) != len(hs) {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), len(hs), err)
	}
	for addr, at := range w.times(func(a asked) string { return a.addr.String() }) {
		checkRate(t, addr, at, 10)
	}
	if at := w.times(func(a asked) string { return a.addr.String() })["10.0.0.2"]; len(at) < 50 {
		t.Errorf("the new address was asked %d times; want the most of 100", len(at))
	}
}

func TestFailedLookupsSpendNoToken(t *testing.T) {
	w := &web{lookup: func(host string) (exchange.Lookup, bool) {
		return exchange.Lookup{Outcome: exchange.DNSNotFound, Cause: exchange.CauseNoSuchName}, host != "h0.example.com"
	}}
	s := &shelf{}
	took, err := scan(t, Config{Concurrency: 5, Rate: 0.1}, w, &list{hosts: hosts(100, "h%d.example.com")}, s, nil)
	if err != nil || len(s.sites) != 100 {
		t.Fatalf("kept %d, error %v", len(s.sites), err)
	}
	if took != 0 {
		t.Errorf("took %v; names that do not exist need no token", took)
	}
	n := 0
	for _, k := range s.sites {
		if k.outcome == exchange.DNSNotFound {
			n++
		}
	}
	if n != 99 {
		t.Errorf("%d origins are dns_not_found; want 99", n)
	}
}

func TestStopKeepsWhatIsInFlightAndDropsWhoWaits(t *testing.T) {
	w := &web{latency: 5 * time.Second, address: func(string) string { return "10.0.0.1" }}
	s := &shelf{}
	took, err := scan(t, Config{Concurrency: 10, IPRate: 1}, w, &list{hosts: hosts(100, "h%d.example.com")}, s,
		func(p *Pipeline) {
			time.Sleep(3500 * time.Millisecond)
			p.Stop()
			p.Stop()
		})
	if !errors.Is(err, ErrStopped) {
		t.Fatalf("the run ended with %v; want ErrStopped", err)
	}
	if len(w.asked) != 4 || len(s.sites) != 4 {
		t.Errorf("asked %d and kept %d; want the 4 that were asked in 3.5 s, all kept", len(w.asked), len(s.sites))
	}
	if took != 8*time.Second {
		t.Errorf("took %v; the last answer came after 8 s", took)
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	w, s := &web{latency: time.Hour}, &shelf{}
	took, err := scan(t, Config{Concurrency: 10, Drain: 20 * time.Second}, w, &list{hosts: hosts(100, "h%d.example.com")},
		s, func(p *Pipeline) {
			time.Sleep(time.Second)
			p.Stop()
		})
	if !errors.Is(err, ErrStopped) || len(s.sites) != 0 || took != 21*time.Second {
		t.Errorf("ended with %v after %v, %d kept; want ErrStopped after 21 s and none kept: we cut them off", err, took,
			len(s.sites))
	}
}

// slowDNS is a web whose name servers take a minute.
type slowDNS struct {
	*web
	begun *atomic.Int32 // look-ups
}

// ResolveAll implements Fetcher.
func (s slowDNS) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolveEach(ctx, s.Resolve, queries, done)
}

func (s slowDNS) Resolve(ctx context.Context, t exchange.Target) exchange.Lookup {
	s.begun.Add(1)
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	return exchange.Lookup{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout}
}

func TestStopEndsLookUpsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		w, s := slowDNS{&web{begun: begun}, new(atomic.Int32)}, &shelf{}
		p := New(Config{Concurrency: 10, SilentLookups: 1}, &list{hosts: hosts(100, "h%d.example.com")}, w, noJudge{}, s)
		var before int32
		after := 60*time.Second + 300*time.Millisecond // ten look-ups are done, and the next under way
		time.AfterFunc(after, func() {
			before = w.begun.Load()
			p.Stop()
		})
		err := p.Run(t.Context())
		if took := time.Since(begun); !errors.Is(err, ErrStopped) || took != after {
			t.Errorf("ended with %v after %v; want ErrStopped after %v", err, took, after)
		}
		if n := w.begun.Load(); before < 20 || n != before || len(s.sites) != 10 {
			t.Errorf("%d look-ups were begun, %d before Stop, %d origins kept; want none after Stop, and the 10 that were done",
				n, before, len(s.sites))
		}
	})
}

func TestTheContextEndsEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s := &shelf{}
		begun := time.Now()
		w := &web{begun: begun, latency: time.Hour}
		err := New(Config{Concurrency: 10}, &list{hosts: hosts(100, "h%d.example.com")}, w, noJudge{}, s).Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 10*time.Second || len(s.sites) != 0 {
			t.Errorf("ended with %v after %v, %d kept", err, time.Since(begun), len(s.sites))
		}
	})
}

func TestErrorsOfTheRunSurfaceOnce(t *testing.T) {
	broken := errors.New("disk full")
	s := &shelf{fail: broken, after: 50}
	_, err := scan(t, Config{Concurrency: 10}, &web{latency: time.Second}, &list{hosts: hosts(1000, "h%d.example.com")}, s,
		nil)
	if !errors.Is(err, broken) || len(s.sites) != 50 {
		t.Errorf("a failing sink: ended with %v, %d kept; want %v and 50", err, len(s.sites), broken)
	}

	broken = errors.New("bad archive")
	s = &shelf{}
	_, err = scan(t, Config{Concurrency: 10}, &web{latency: time.Second}, &list{hosts: hosts(10, "h%d.example.com"),
		err: broken}, s, nil)
	if !errors.Is(err, broken) || len(s.sites) != 10 {
		t.Errorf("a failing list: ended with %v, %d kept; want %v, and all 10 before it", err, len(s.sites), broken)
	}
}

func TestAnEmptyListEnds(t *testing.T) {
	if took, err := scan(t, Config{Concurrency: 3}, &web{}, &list{}, &shelf{}, nil); err != nil || took != 0 {
		t.Errorf("ended with %v after %v", err, took)
	}
}

func TestARecordIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(record{}); size > 136 {
		t.Errorf("a record is %d bytes; want at most 136", size)
	}
}

func TestSpilledRecordsComeBackWhole(t *testing.T) {
	o, _ := origin.Parse("bücher.example:8443")
	to, _ := origin.Parse("https://[2001:db8::1]:444")
	rec := record{
		seq: 1 << 40, origin: o, input: "bücher.example:8443\t\"x\"", label: "größe", rank: 7, spent: time.Second,
		trail: &exchange.Trail{Target: exchange.Target{Origin: to, Path: "/a?b=<c>"},
			Hops: []exchange.Hop{{Status: 301, URL: "https://a/"}, {Status: 308, URL: "https://b/"}}},
		scheme: origin.HTTP, waited: 17, attempts: 3, later: 2, skip: 2, unmet: exchange.ConnectRefused, spoilt: 5,
		https: exchange.Failure{Outcome: exchange.Timeout, Cause: exchange.CauseBodyTimeout},
		http:  exchange.Failure{Outcome: exchange.Reset},
	}
	s := newSpill(t.TempDir())
	defer s.close()
	var c chain
	for round := range 3 {
		for i := range 1000 {
			rec.rank = int64(i)
			if err := c.put(s, rec); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1000 {
			got, err := c.get(s)
			if err != nil || got.rank != int64(i) {
				t.Fatalf("round %d: got rank %d, error %v; want %d", round, got.rank, err, i)
			}
			if got.target() != rec.target() || !slices.Equal(got.trail.Hops, rec.trail.Hops) {
				t.Fatalf("the trail came back as %+v", got.trail)
			}
			got.trail, got.rank = rec.trail, rec.rank
			if got != rec {
				t.Fatalf("came back as %+v; want %+v", got, rec)
			}
		}
	}
	if first := s.size; first > s.written/2 {
		t.Errorf("the file has %d bytes for %d that were written: chunks are not used again", first, s.written)
	}
}

func TestEventsComeInOrder(t *testing.T) {
	var h events
	x := uint32(1)
	for range 5000 {
		x = x*1664525 + 1013904223
		h.push(event{at: time.Duration(x % 1000)})
		if x%3 == 0 {
			h.pop()
		}
	}
	last := time.Duration(-1)
	for len(h) > 0 {
		e := h.pop()
		if e.at < last {
			t.Fatalf("%v came after %v", e.at, last)
		}
		last = e.at
	}
}
