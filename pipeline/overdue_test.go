package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// timeout is the time-out of one exchange in the webs below.
const timeout = 15 * time.Second

// slowWeb is a web of slow hosts; hosts slower than the time-out never answer. After an exchange it decides like the
// policy of package fetcher: https, then http, then retries in turn.
func slowWeb(takes func(host string) time.Duration, retries int) *web {
	w := &web{lasts: takes, address: func(host string) string {
		i := number(host)
		return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
	}}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		x.Response.Attempts = int(x.Past.Attempts)
		if takes(x.Target.Origin.Host()) < timeout {
			return exchange.Done
		}
		x.Response.Outcome, x.Response.Status = exchange.Timeout, 0
		by := origin.HTTP
		switch {
		case x.Past.Attempts == 1:
			return exchange.Next{Again: true, Target: exchange.Target{Origin: x.Origin.As(by)}}
		case int(x.Past.Later) == retries:
			return exchange.Done
		case x.Past.Later%2 == 0:
			by = origin.HTTPS
		}
		x.Past.Later++
		return exchange.Next{Again: true, After: time.Minute << (x.Past.Later - 1),
			Target: exchange.Target{Origin: x.Origin.As(by)}}
	}
	return w
}

// asks counts the requests to each host, and returns when the last host got its first request.
func (w *web) asks() (times map[string]int, last time.Duration) {
	times = map[string]int{}
	for _, a := range w.asked {
		if times[a.host] == 0 {
			last = max(last, a.at)
		}
		times[a.host]++
	}
	return times, last
}

// number is that of a host like h7.example.com. It is wanted so often that fmt.Sscanf would take a tenth of the time of
// all tests.
func number(host string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(host, "h"), ".")
	i, _ := strconv.Atoi(digits) // 0 for other names
	return i
}

// healthy is how long answering hosts take.
const healthy = 300 * time.Millisecond

// deadOf returns the answer times of a web in which so many of a hundred hosts are silent.
func deadOf(percent int) func(host string) time.Duration {
	return func(host string) time.Duration {
		if number(host)%100 < percent {
			return 2 * timeout
		}
		return healthy
	}
}

// A list with 6 % dead hosts ends within 1.25 times the time that the others take alone, and one time-out; also where
// there are few slots. Each host is asked once by each scheme.
func TestSilentHostsDoNotHoldUpTheOthers(t *testing.T) {
	f := func(concurrency, n int, whole time.Duration) {
		t.Helper()
		w, s := slowWeb(deadOf(6), 0), &shelf{}
		answer := w.answer
		w.answer = func(x *exchange.Exchange) exchange.Next {
			next := answer(x)
			next.Again = false // no other scheme
			return next
		}
		took, err := scan(t, Config{Concurrency: concurrency, Resolvers: 1}, w, &list{hosts: hosts(n, "h%d.example.com")}, s,
			nil)
		if err != nil || len(s.sites) != n || len(w.asked) != n {
			t.Fatalf("%d slots: kept %d of %d, asked %d times, error %v", concurrency, len(s.sites), n, len(w.asked), err)
		}
		for _, k := range s.sites {
			if dead := number(k.input)%100 < 6; dead != (k.outcome == exchange.Timeout) || k.attempts != 1 {
				t.Fatalf("%s is %v after %d attempts", k.input, k.outcome, k.attempts)
			}
		}
		alone := time.Duration((n*94/100+concurrency-1)/concurrency) * healthy
		if took != whole || took > alone*5/4+timeout {
			t.Errorf("%d slots: took %v; want %v, which must be at most 1.25 × %v and a time-out", concurrency, took, whole,
				alone)
		}
	}
	f(10, 3000, 112500*time.Millisecond)
	f(50, 10000, 81300*time.Millisecond)
	f(1000, 60000, 34800*time.Millisecond)
}

// Overdue exchanges are bounded. When their places are taken, the others keep their slots; an origin whose host was
// silent takes a place from the start, if there is one.
func TestOverdueExchangesHaveABound(t *testing.T) {
	f := func(name string, cfg Config, n int, answer func(x *exchange.Exchange) exchange.Next, most int, want string) {
		t.Helper()
		w, s := slowWeb(deadOf(100), 0), &shelf{}
		if answer != nil {
			w.answer = answer
		}
		_, err := scan(t, cfg, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		at := make([]string, len(w.asked))
		for i, a := range w.asked {
			at[i] = a.at.String()
		}
		if got := strings.Join(at, " "); err != nil || len(s.sites) != n || w.most != most || got != want {
			t.Errorf("%s: kept %d of %d, error %v, %d in flight\ngot  %s\nwant %s", name, len(s.sites), n, err, w.most, got,
				want)
		}
	}
	once := func(x *exchange.Exchange) exchange.Next {
		x.Response.Outcome = exchange.Timeout
		return exchange.Done
	}
	f("one scheme", Config{Concurrency: 2, SilentExchanges: 3}, 8, once, 5, "0s 0s 500ms 500ms 1s 15s 15.1s 15.5s")
	f("both schemes", Config{Concurrency: 1, SilentExchanges: 2}, 3, nil, 3, "0s 500ms 1s 15s 15.5s 16s")
}

// Overdue look-ups are bounded, too.
func TestOverdueLookupsHaveABound(t *testing.T) {
	const n = 12
	w, s := nameWeb(silentOf(100)), &shelf{}
	took, err := scan(t, Config{Concurrency: 20, Resolvers: 2, SilentLookups: 3}, w,
		&list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	checkNames(t, w, s, n, 1, err)
	if w.broadest != 5 || took != 30400*time.Millisecond {
		t.Errorf("%d look-ups at once, took %v", w.broadest, took)
	}
}

// An exchange that waits for a judge, or for the disk, is not overdue: no other exchange begins beside it.
func TestWhatIsAnsweredIsNotOverdue(t *testing.T) {
	const n, concurrency = 1000, 10
	w, s := slowWeb(deadOf(0), 0), &shelf{}
	synctest.Test(t, func(t *testing.T) {
		w.begun = time.Now()
		judge := judgeFunc(func(site *audit.Site) {
			if site.Seq == 0 {
				time.Sleep(time.Minute)
			}
		})
		var asked int
		sink := slowSink{s, func() {
			if len(s.sites) == 1 {
				time.Sleep(time.Minute)
				w.mu.Lock()
				asked = len(w.asked)
				w.mu.Unlock()
			}
		}}
		p := New(Config{Concurrency: concurrency, SpillDir: t.TempDir()}, &list{hosts: hosts(n, "h%d.example.com")}, w, judge,
			sink)
		if err := p.Run(t.Context()); err != nil || len(s.sites) != n {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
		}
		if most := concurrency + 4*judges() + 4 + judges(); asked > most {
			t.Errorf("%d were asked while the disk stood still; want at most %d", asked, most)
		}
	})
}

// slowSink is a sink that first does something else.
type slowSink struct {
	*shelf
	first func()
}

func (s slowSink) Add(site *audit.Site) error {
	s.first()
	return s.shelf.Add(site)
}

// Hosts that are slow but alive are fetched once, and their answers count.
func TestTheSlowAreNotTheDead(t *testing.T) {
	const n, concurrency = 4000, 100
	f := func(name string, takes func(host string) time.Duration, want time.Duration) {
		t.Helper()
		w, s := slowWeb(takes, 2), &shelf{}
		took, err := scan(t, Config{Concurrency: concurrency, Resolvers: 1}, w, &list{hosts: hosts(n, "h%d.example.com")}, s,
			nil)
		if err != nil || len(s.sites) != n || len(w.asked) != n {
			t.Fatalf("%s: kept %d of %d, asked %d times, error %v", name, len(s.sites), n, len(w.asked), err)
		}
		for _, k := range s.sites {
			if k.outcome != exchange.Answered || k.attempts != 1 {
				t.Fatalf("%s: %s is %v after %d attempts; want answered after one", name, k.input, k.outcome, k.attempts)
			}
		}
		if took != want {
			t.Errorf("%s: took %v; want %v", name, took, want)
		}
	}
	every := func(takes time.Duration) func(string) time.Duration {
		return func(string) time.Duration { return takes }
	}
	// Five times as many exchanges are in flight only until the first answers show how slow all hosts are.
	f("all at 4 s", every(4*time.Second), 146*time.Second)
	f("all at 400 ms", every(400*time.Millisecond), n/concurrency*400*time.Millisecond)
	// Half of the slots begin with one that takes 8 s.
	f("some at 8 s", func(host string) time.Duration {
		if number(host) < concurrency/2 {
			return 8 * time.Second
		}
		return 200 * time.Millisecond
	}, 8200*time.Millisecond)
}

// twoAddresses is a web whose hosts all have a first address that refuses, the same for all, and a second.
type twoAddresses struct{ *web }

// ResolveAll implements Fetcher.
func (w twoAddresses) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolveEach(ctx, w.Resolve, queries, done)
}

func (w twoAddresses) Resolve(_ context.Context, t exchange.Target) exchange.Lookup {
	if t.Skip == 0 {
		return exchange.Lookup{Addr: netip.MustParseAddr("10.0.0.1"), More: true}
	}
	return exchange.Lookup{Addr: netip.MustParseAddr("10.0.1." + t.Origin.Host()[1:2])}
}

// A further address of a host is tried at once, as far as the rates of that address and of the host allow.
func TestAFurtherAddressHasItsOwnRate(t *testing.T) {
	const n = 200
	w, s := &web{}, &shelf{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		if !x.Lookup.More {
			if x.Target.Skip != 1 || x.Target.Unmet != exchange.ConnectRefused || x.Past.Trail == nil ||
				x.Target.Path != "/elsewhere" {
				t.Errorf("the second address is asked for %+v", x.Target)
			}
			return exchange.Done
		}
		x.Response.Outcome = exchange.ConnectRefused
		to := exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}
		x.Past.Trail = &exchange.Trail{Target: to}
		to.Skip, to.Unmet = 1, exchange.ConnectRefused
		return exchange.Next{Again: true, Target: to}
	}
	synctest.Test(t, func(t *testing.T) {
		w.begun = time.Now()
		p := New(Config{Concurrency: 50, HostRate: 1, IPRate: 10, MaxWaiting: 40, SpillDir: t.TempDir()},
			&list{hosts: hosts(n, "h%d.example.com")}, twoAddresses{w}, noJudge{}, s)
		if err := p.Run(t.Context()); err != nil || len(s.sites) != n || len(w.asked) != 2*n {
			t.Fatalf("kept %d, asked %d times, error %v; want %d and twice as often", len(s.sites), len(w.asked), err, n)
		}
		if retries := p.Progress().Retries.Load(); retries != n {
			t.Errorf("%d exchanges led to another, want %d", retries, n)
		}
	})
	for addr, at := range w.times(func(a asked) string { return a.addr.String() }) {
		checkRate(t, addr, at, 10)
	}
	for host, at := range w.times(func(a asked) string { return a.host }) {
		checkRate(t, host, at, 1)
		if len(at) != 2 {
			t.Errorf("%s was asked %d times", host, len(at))
		}
	}
}

// nameWeb is a web whose hosts answer after 300 ms, and whose name server answers after the given times.
func nameWeb(answers func(host string) time.Duration) *web {
	w := slowWeb(func(string) time.Duration { return 300 * time.Millisecond }, 0)
	w.answers = answers
	return w
}

// quick is how long healthy names take to be answered: 20 to 100 ms.
func quick(host string) time.Duration {
	return 20*time.Millisecond + time.Duration(number(host)*7919%81)*time.Millisecond
}

// silentOf is quick with so many of a hundred names silent.
func silentOf(percent int) func(host string) time.Duration {
	return func(host string) time.Duration {
		if number(host)%100 < percent {
			return 2 * resolveTotal
		}
		return quick(host)
	}
}

// later is one retry after a failed look-up.
func later(after time.Duration) func(x *exchange.Exchange) exchange.Next {
	return func(x *exchange.Exchange) exchange.Next {
		if x.Past.Later == 1 {
			return exchange.Done
		}
		x.Past.Later++
		return exchange.Next{Again: true, After: after, Target: exchange.Target{Origin: x.Origin.As(origin.HTTPS)}}
	}
}

// checkNames checks that a run over a nameWeb kept n rows, and that each row is the same as if every look-up had all
// its time. No name may have more than `most` look-ups.
func checkNames(t *testing.T, w *web, s *shelf, n, most int, err error) {
	t.Helper()
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for _, k := range s.sites {
		outcome, takes := exchange.Answered, w.answers(k.input)
		if takes > resolveTotal {
			outcome, takes = exchange.DNSTimeout, resolveTotal
		}
		if k.outcome != outcome || k.attempts != 1 || k.dns != takes {
			t.Fatalf("%s is %v after %d attempts and a look-up of %v; want %v, 1 and %v", k.input, k.outcome, k.attempts, k.dns,
				outcome, takes)
		}
	}
	for host, sought := range w.sought {
		if sought > most {
			t.Fatalf("%s was looked up %d times; want at most %d", host, sought, most)
		}
	}
}

// Six names of a hundred are silent. That costs the others nothing.
func TestSilentNamesDoNotHoldUpTheOthers(t *testing.T) {
	f := func(concurrency, n int, silent func(host string) time.Duration) (last time.Duration) {
		t.Helper()
		w, s := nameWeb(silent), &shelf{}
		took, err := scan(t, Config{Concurrency: concurrency}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		checkNames(t, w, s, n, 1, err)
		if _, last = w.asks(); took > last+resolveTotal+healthy {
			t.Errorf("%d slots: took %v, %v after the last was asked", concurrency, took, took-last)
		}
		return last
	}
	inARow := func(host string) time.Duration {
		if i := number(host); i >= 5000 && i < 6000 {
			return 2 * resolveTotal
		}
		return quick(host)
	}
	for concurrency, n := range map[int]int{1: 500, 4: 2000, 1000: 20000} {
		without := f(concurrency, n, quick)
		for name, silent := range map[string]func(host string) time.Duration{"6 %": silentOf(6),
			"a thousand in a row": inARow} {
			if with := f(concurrency, n, silent); with > without+without/10+4*firstOverdue {
				t.Errorf("%d slots, %s: all others were asked after %v, without the silent after %v", concurrency, name, with,
					without)
			}
		}
	}
}

// Thousands of silent names, looked up with all their time and tried again later, do not delay a record that needs an
// address for its next hop: it waits only until a resolver has finished with a silent name, and goes before newcomers.
func TestSilentNamesDoNotHoldUpHops(t *testing.T) {
	const n = 5000
	w, s := nameWeb(silentOf(80)), &shelf{}
	w.failed = later(10 * time.Second)
	hopped := map[string]time.Duration{}
	var slowest time.Duration
	slow := 0
	w.answer = func(x *exchange.Exchange) exchange.Next {
		host, now := x.Origin.Host(), time.Since(w.begun)
		if began, ok := hopped[host]; ok {
			if slowest = max(slowest, now-began); now-began > time.Second {
				slow++
			}
			return exchange.Done
		}
		hopped[host] = now
		target := exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}
		x.Past.Trail = &exchange.Trail{Target: target}
		return exchange.Next{Again: true, Target: target}
	}
	_, err := scan(t, Config{Concurrency: 50}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for host, sought := range w.sought {
		if sought > 2 {
			t.Fatalf("%s was looked up %d times; want at most 2: two attempts", host, sought)
		}
	}
	// Which goroutine of a bubble goes first is chance: by some orders, up to six hops wait for a slot behind silent
	// names.
	if slow > n/500 || slowest > 10*time.Second {
		t.Errorf("%d of %d hops took more than a second from one answer to the next, the slowest %v", slow, n, slowest)
	}
}

// If slots are scarce, slow names do not cause more newcomers to be looked up ahead. No newcomer waits longer because
// its resolver looks up a silent name for another record.
func TestNewcomersDoNotPileUp(t *testing.T) {
	const n, concurrency = 2000, 20
	w, s := nameWeb(func(host string) time.Duration {
		if number(host)%3 == 0 {
			return 900 * time.Millisecond
		}
		return quick(host)
	}), &shelf{}
	w.lasts = func(string) time.Duration { return time.Second }
	ahead, later := 0, 0
	takes := w.answers
	resolved := map[string]time.Duration{}
	w.answers = func(host string) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, hop := resolved[host]; hop {
			return 2 * resolveTotal
		}
		resolved[host] = time.Since(w.begun) + takes(host)
		return takes(host)
	}
	var longest time.Duration
	w.answer = func(x *exchange.Exchange) exchange.Next {
		host := x.Origin.Host()
		longest = max(longest, time.Since(w.begun)-time.Second-resolved[host])
		if number(host)%10 != 0 {
			return exchange.Done
		}
		return exchange.Next{Again: true, Target: exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}}
	}
	_, err := scan(t, Config{Concurrency: concurrency}, w, &list{hosts: hosts(n, "h%d.example.com")}, s,
		func(p *Pipeline) {
			for p.Progress().Kept.Load() < n {
				w.mu.Lock()
				now := len(resolved) - len(w.asked) // each is asked once
				if ahead = max(ahead, now); time.Since(w.begun) > 20*time.Second {
					later = max(later, now)
				}
				w.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
		})
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	if most := 13 * time.Second; longest > most {
		t.Errorf("a newcomer waited for %v with its address; want at most %v", longest, most)
	}
	// The bound counts the look-ups in the channel to the schedule, those that the resolvers hold, and overdue ones, of
	// which there are more at first, until slots are scarce.
	if most := 64 + 4*concurrency; ahead > most {
		t.Errorf("%d newcomers had been looked up and were not asked; want at most %d", ahead, most)
	}
	if most := 64 + concurrency*7/4; later > most {
		t.Errorf("%d newcomers had been looked up and were not asked in the midst of the list; want at most %d", later, most)
	}
}

// Stop during overdue look-ups ends them at once; waiting records are dropped, and no goroutine is left.
func TestStopEndsOverdueLookups(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 7
	}
	for seed := range seeds {
		const n = 3000
		after := time.Duration(rand.New(rand.NewPCG(seed, 0)).IntN(20000)) * time.Millisecond
		w, s := nameWeb(silentOf(40)), &shelf{}
		took, err := scan(t, Config{Concurrency: 100, SilentLookups: 50, MaxWaiting: 1000}, w,
			&list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
				time.Sleep(after)
				p.Stop()
			})
		if !errors.Is(err, ErrStopped) || took > after+300*time.Millisecond { // what a host takes
			t.Errorf("stopped after %v: ended with %v after %v", after, err, took)
		}
		for _, k := range s.sites {
			if k.outcome == exchange.DNSTimeout && k.dns != resolveTotal {
				t.Errorf("stopped after %v: %s was kept with a look-up of %v", after, k.input, k.dns)
			}
		}
	}
}

// A look-up that has ended is not counted as under way, even while its record waits with the answer.
func TestEndedLookupsAreNotCounted(t *testing.T) {
	f := func(name string, n int, cfg Config, ended time.Duration, answers func(host string) time.Duration) {
		t.Helper()
		w, s := nameWeb(answers), &shelf{}
		w.lasts = func(string) time.Duration { return 14 * time.Second }
		w.answer = nil
		_, err := scan(t, cfg, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
			time.Sleep(ended + 2*watchEvery)
			w.mu.Lock()
			defer w.mu.Unlock()
			if counted := p.Progress().Lookups.Load(); counted != 0 || w.seeking != 0 {
				t.Errorf("%s: %d look-ups are counted, and %d under way; want none", name, counted, w.seeking)
			}
		})
		if err != nil || len(s.sites) != n {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), n, err)
		}
	}
	f("the last is silent", 200, Config{Concurrency: 300}, resolveTotal, func(host string) time.Duration {
		if number(host) == 0 {
			return 2 * resolveTotal
		}
		return quick(host)
	})
	f("no slot is free", 300, Config{Concurrency: 20}, 5*time.Second, func(host string) time.Duration {
		if number(host)%3 != 0 {
			return 900 * time.Millisecond
		}
		return quick(host)
	})
}
