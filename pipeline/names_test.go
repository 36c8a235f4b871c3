package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// nameWeb is a web whose hosts answer after 300 ms, and whose names are answered after so long.
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

// later is one later try after a failed look-up.
func later(after time.Duration) func(x *exchange.Exchange) exchange.Next {
	return func(x *exchange.Exchange) exchange.Next {
		if x.Past.Later == 1 {
			return exchange.Done
		}
		x.Past.Later++
		return exchange.Next{Again: true, After: after, Target: exchange.Target{Origin: x.Origin.As(origin.HTTPS)}}
	}
}

// checkNames checks that a run over a nameWeb kept n rows, and each is what it would be if every look-up had had all its time.
// No name may have been looked up more often than most.
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
			t.Fatalf("%s is %v after %d attempts and a look-up of %v; want %v, 1 and %v", k.input, k.outcome, k.attempts, k.dns, outcome, takes)
		}
	}
	for host, sought := range w.sought {
		if sought > most {
			t.Fatalf("%s was looked up %d times; want at most %d", host, sought, most)
		}
	}
}

// Six names of a hundred are silent. All others may take at most 1.3 times as long as if they were not, and the silent get
// all their time in the end.
func TestSilentNamesDoNotHoldUpTheOthers(t *testing.T) {
	n, concurrency := 60000, 1000
	if testing.Short() {
		n, concurrency = 12000, 400
	}
	f := func(percent, places int) (last, all time.Duration) {
		t.Helper()
		w, s := nameWeb(silentOf(percent)), &shelf{}
		all, err := scan(t, Config{Concurrency: concurrency, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		checkNames(t, w, s, n, 2, err)
		if most := DefaultResolvers + places; w.broadest > most {
			t.Errorf("%d look-ups were under way; want at most %d", w.broadest, most)
		}
		if n := most(w.whole, time.Second); n > max(places/2, 10) {
			t.Errorf("%d look-ups of silent names with all their time were begun in a second; want at most %d", n, places/2)
		}
		_, last = w.asks()
		t.Logf("%d %% silent, %d places for them: all others were asked after %v, everything was done after %v; %d look-ups at once", percent, places, last, all, w.broadest)
		return last, all
	}
	healthy, _ := f(0, DefaultSilentLookups)
	check := func(percent, places int) {
		t.Helper()
		with, all := f(percent, places)
		if ratio := float64(with) / float64(healthy); ratio > 1.3 {
			t.Errorf("with %d %% silent, all others were asked after %v, without after %v: %.2f times; want at most 1.3", percent, with, healthy, ratio)
		}
		if bound := with + time.Duration(n*percent/100/places+2)*resolveTotal + 10*time.Second; all > bound {
			t.Errorf("%d %% silent: done after %v; want at most %v", percent, all, bound)
		}
	}
	check(6, 400)
	if testing.Short() {
		return
	}
	check(1, 100)
	check(6, DefaultSilentLookups)
}

// A thousand neighbours on the list whose names are silent, as those of one broken hoster may be, hold up nobody either.
func TestSilentNamesInARow(t *testing.T) {
	const n = 20000
	f := func(silent bool) time.Duration {
		t.Helper()
		w, s := nameWeb(func(host string) time.Duration {
			if i := number(host); silent && i >= 5000 && i < 6000 {
				return 2 * resolveTotal
			}
			return quick(host)
		}), &shelf{}
		_, err := scan(t, Config{Concurrency: 1000, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		checkNames(t, w, s, n, 2, err)
		_, last := w.asks()
		return last
	}
	without, with := f(false), f(true)
	if with > without+2*DefaultPatience {
		t.Errorf("all others were asked after %v, without the silent after %v", with, without)
	}
	t.Logf("%v, without the silent %v", with, without)
}

// A list of silent names comes to its end, and costs each no more than patience beside its look-ups, also of later tries.
func TestAListOfSilentNamesEnds(t *testing.T) {
	const n, places = 3000, 200
	w, s := nameWeb(silentOf(100)), &shelf{}
	w.failed = later(time.Minute)
	took, err := scan(t, Config{Concurrency: 100, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for _, k := range s.sites {
		if k.outcome != exchange.DNSTimeout || k.attempts != 2 || w.sought[k.input] > 3 {
			t.Fatalf("%s is %v after %d attempts, %d look-ups; want dns_timeout after 2, at most 3", k.input, k.outcome, k.attempts, w.sought[k.input])
		}
	}
	if bound := n/places*(2*resolveTotal+DefaultPatience)*11/10 + 90*time.Second; took > bound {
		t.Errorf("took %v; want at most %v", took, bound)
	}
}

// Resolvers that are slow but alive are not hurt: no name is asked more than twice, and a list takes no longer than without
// patience.
func TestSlowNameServersAreNotSilent(t *testing.T) {
	n, concurrency := 6000, 500
	if testing.Short() {
		n, concurrency = 3000, 250
	}
	f := func(name string, twice int, late time.Duration, answers func(host string) time.Duration) {
		t.Helper()
		run := func(patience time.Duration) (took time.Duration, again int) {
			w, s := nameWeb(answers), &shelf{}
			var putOff uint64
			took, err := scan(t, Config{Concurrency: concurrency, Patience: patience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
				for p.Progress().Kept.Load() < uint64(n) {
					time.Sleep(time.Second)
				}
				putOff = p.Progress().DeferredLookups.Load()
			})
			checkNames(t, w, s, n, 2, err)
			if putOff != uint64(w.lookups-n) {
				t.Errorf("%s: %d look-ups more than names, %d put off", name, w.lookups-n, putOff)
			}
			return took, w.lookups - n
		}
		without, none := run(0)
		with, again := run(DefaultPatience)
		if none != 0 || again > twice || with > without+without/20+late {
			t.Errorf("%s: took %v and looked %d names up twice, without patience %v and %d; want at most %d", name, with, again, without, none, twice)
		}
		t.Logf("%s: took %v and looked %d names up twice, without patience %v", name, with, again, without)
	}
	slow := func(host string) time.Duration { return 1500*time.Millisecond + 18*quick(host) }
	f("all at 1.9 to 3.3 s", 4*DefaultResolvers, time.Second, slow)
	f("all at 1.5 s", 4*DefaultResolvers, time.Second, func(string) time.Duration { return 1500 * time.Millisecond })
	f("all at 1 s", 0, 0, func(string) time.Duration { return time.Second })
	// Who is put off before it is known how slow all are comes last.
	f("slow after the half", n/2, 4*time.Second, func(host string) time.Duration {
		if number(host) > n/2 {
			return slow(host)
		}
		return quick(host)
	})
	f("one in twenty slow", n/20, 2*time.Second, func(host string) time.Duration {
		if number(host)%20 == 0 {
			return slow(host)
		}
		return quick(host)
	})
}

// Where there is a place for every look-up, no name is put off.
func TestNoNameIsPutOffForNothing(t *testing.T) {
	f := func(name string, n int, cfg Config, pause time.Duration) {
		t.Helper()
		w, s := nameWeb(func(string) time.Duration { return 8 * time.Second }), &shelf{}
		_, err := scanSource(t, cfg, w, trickle{&list{hosts: hosts(n, "h%d.example.com")}, pause}, s, nil)
		checkNames(t, w, s, n, 1, err)
	}
	f("the list fits", 300, Config{Concurrency: 300, Patience: DefaultPatience}, 0)
	f("one name, one slot", 1, Config{Concurrency: 1, Patience: DefaultPatience}, 0)
	f("the list comes slowly", 300, Config{Concurrency: 100, Patience: DefaultPatience}, 500*time.Millisecond)
	f("few resolvers, and the list comes slowly", 30, Config{Concurrency: 3, Patience: DefaultPatience}, 5*time.Second)
	f("no patience is set", 1000, Config{Concurrency: 20}, 0)
	f("patience is as long as a look-up", 1000, Config{Concurrency: 20, Patience: resolveTotal}, 0)
}

// Silent names and silent hosts in one list: each kind waits for what it needs, and neither for the other, also where the names
// take much longer. Some hosts are silent and lose their names after that: then they wait for that.
func TestSilentNamesAndSilentHosts(t *testing.T) {
	n, concurrency := 30000, 500
	if testing.Short() {
		n, concurrency = 12000, 200
	}
	f := func(percent, places int) (first, dead, all time.Duration) {
		t.Helper()
		kind := func(host string) (silentName, silentHost, lost bool) {
			i := number(host) % 100
			return i < percent, i >= 50 && i < 50+percent, i == 50 && percent > 0
		}
		w, s := nameWeb(nil), &shelf{}
		w.answers = func(host string) time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if silent, _, lost := kind(host); silent || lost && w.sought[host] > 0 {
				return 2 * resolveTotal
			}
			return quick(host)
		}
		w.lasts = func(host string) time.Duration {
			if _, silent, _ := kind(host); silent {
				return 2 * timeout
			}
			return 300 * time.Millisecond
		}
		w.answer = slowWeb(w.lasts, 0).answer
		all, err := scan(t, Config{Concurrency: concurrency, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		if err != nil || len(s.sites) != n {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
		}
		got := map[exchange.Outcome]int{}
		for _, k := range s.sites {
			got[k.outcome]++
			if w.sought[k.input] > 3 {
				t.Fatalf("%s was looked up %d times; want at most 3", k.input, w.sought[k.input])
			}
		}
		if silent := got[exchange.DNSTimeout] + got[exchange.Timeout]; silent != 2*n*percent/100 {
			t.Errorf("the outcomes are %v; want %d time-outs", got, 2*n*percent/100)
		}
		_, first = w.asks()
		for _, a := range w.asked {
			dead = max(dead, a.at)
		}
		t.Logf("%d %% of either, %d places: all were asked after %v, the silent hosts the last time after %v, everything was done after %v", percent, places, first, dead, all)
		return first, dead, all
	}
	without, _, _ := f(0, DefaultSilentLookups)
	check := func(places int, last time.Duration) {
		t.Helper()
		with, dead, all := f(4, places)
		if ratio := float64(with) / float64(without); ratio > 1.3 {
			t.Errorf("all were asked after %v, without the silent after %v: %.2f times; want at most 1.3", with, without, ratio)
		}
		// The dead hosts have all slots, for 15 s by each scheme.
		if bound := with + 2*timeout*time.Duration(n)/25/time.Duration(concurrency)*11/10 + 10*time.Second; dead > bound {
			t.Errorf("the silent hosts were asked for the last time after %v; want at most %v", dead, bound)
		}
		if all > last {
			t.Errorf("done after %v; want at most %v", all, last)
		}
	}
	check(DefaultSilentLookups, 2*time.Minute)
	check(40, time.Duration(n/20/40)*resolveTotal*12/10+time.Minute) // the names that are lost later are a fourth more
}

// Names that were put off take no memory beyond their share: the rest is spilled, and comes back as what it was.
func TestDeferredNamesAreSpilled(t *testing.T) {
	const n, bound = 6000, 400
	w, s := nameWeb(silentOf(50)), &shelf{}
	var waiting, spilled, names, lookups int64
	took, err := scan(t, Config{Concurrency: 100, SilentLookups: 100, HostRate: 1, IPRate: 5, MaxWaiting: bound, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
		for p.Progress().Kept.Load() < n {
			waiting, spilled, names, lookups = max(waiting, p.Progress().Waiting.Load()), max(spilled, p.Progress().Spilled.Load()), max(names, p.Progress().DeferredNames.Load()), max(lookups, p.Progress().Lookups.Load())
			time.Sleep(100 * time.Millisecond)
		}
	})
	checkNames(t, w, s, n, 2, err)
	if spilled < n/3 || names < n/3 {
		t.Errorf("at most %d were spilled, and %d deferred for their names; want more of %d", spilled, names, n/2)
	}
	if most := int64(w.broadest); lookups > most || lookups < most*3/4 {
		t.Errorf("at most %d look-ups were under way by the counter, and %d in truth", lookups, most)
	}
	if most := int64(bound + 200); waiting > most {
		t.Errorf("%d waited in memory; want at most %d", waiting, most)
	}
	if bound := n/2/100*resolveTotal*12/10 + 2*time.Minute; took > bound {
		t.Errorf("took %v; want at most %v", took, bound)
	}
}

// With one slot, and with four, silent names hold up nobody either.
func TestSilentNamesWithFewTrays(t *testing.T) {
	f := func(concurrency int) {
		t.Helper()
		n := 500 * concurrency
		run := func(percent int) (last, all time.Duration) {
			w, s := nameWeb(silentOf(percent)), &shelf{}
			all, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
			checkNames(t, w, s, n, 2, err)
			_, last = w.asks()
			return last, all
		}
		without, _ := run(0)
		with, all := run(6)
		t.Logf("%d slots: all others were asked after %v, everything done after %v, without the silent %v", concurrency, with, all, without)
		if ratio := float64(with) / float64(without); ratio > 1.3 {
			t.Errorf("%d slots: all others were asked after %v, without the silent after %v: %.2f times; want at most 1.3", concurrency, with, without, ratio)
		}
		if all > with+2*resolveTotal {
			t.Errorf("%d slots: everything was done after %v, %v after all others", concurrency, all, all-with)
		}
	}
	f(1)
	f(4)
}

// Thousands of silent names, looked up with all their time and tried again later, hold up nobody who needs an address for the
// next hop: he waits until one of the resolvers is through with a silent name, and is taken before what is new.
func TestSilentNamesDoNotHoldUpHops(t *testing.T) {
	const n = 5000
	w, s := nameWeb(silentOf(80)), &shelf{}
	w.failed = later(10 * time.Second)
	hopped := map[string]time.Duration{}
	var slowest time.Duration
	w.answer = func(x *exchange.Exchange) exchange.Next {
		host, now := x.Origin.Host(), time.Since(w.begun)
		if began, ok := hopped[host]; ok {
			slowest = max(slowest, now-began)
			return exchange.Done
		}
		hopped[host] = now
		target := exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}
		x.Past.Trail = &exchange.Trail{Target: target}
		return exchange.Next{Again: true, Target: target}
	}
	_, err := scan(t, Config{Concurrency: 50, SilentLookups: 100, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for host, sought := range w.sought {
		if sought > 3 {
			t.Fatalf("%s was looked up %d times; want at most 3: once put off, and two attempts", host, sought)
		}
	}
	if most := 2 * DefaultPatience; slowest > most {
		t.Errorf("a hop took %v from one answer to the next; want at most %v", slowest, most)
	}
	t.Logf("the slowest hop took %v", slowest)
}

// Where slots are scarce, no more newcomers are looked up ahead of them because some names are slow to be answered, and none
// waits longer because the resolver that holds it looks up a silent name for somebody else.
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
	_, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
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
	// What is in the channel to the schedule, those that the resolvers hold, and those that were overdue; of them there are
	// more at first, until slots are scarce.
	if most := 64 + 4*concurrency; ahead > most {
		t.Errorf("%d newcomers had been looked up and were not asked; want at most %d", ahead, most)
	}
	if most := 64 + concurrency*7/4; later > most {
		t.Errorf("%d newcomers had been looked up and were not asked in the midst of the list; want at most %d", later, most)
	}
}

// While a list goes on for ever, names that were put off get on too.
func TestDeferredNamesGetOnWhileTheListGoesOn(t *testing.T) {
	const places = 256
	n := 60000
	if testing.Short() {
		n = 40000
	}
	w, s := nameWeb(func(host string) time.Duration {
		if number(host)%100 < 6 {
			return 8 * time.Second
		}
		return quick(host)
	}), &shelf{}
	// There are slots for everybody, so that look-ups are what is scarce.
	_, err := scan(t, Config{Concurrency: 2000, Resolvers: 64, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	checkNames(t, w, s, n, 2, err)
	var last time.Duration
	for _, a := range w.asked {
		if number(a.host) == n-1 {
			last = a.at
		}
	}
	during := 0
	for _, a := range w.asked {
		if number(a.host)%100 < 6 && a.at < last {
			during++
		}
	}
	if want := int(last/(8*time.Second)) * places / deferredShare; during < want/2 {
		t.Errorf("%d of those put off were asked in the %v before the list's end; want about %d or more", during, last, want)
	}
	t.Logf("%d of those put off were asked in the %v before the list's end", during, last)
}

// Stop in the midst of deferred look-ups ends them at once; who waits is dropped, and no goroutine is left.
func TestStopDropsDeferredNames(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 7
	}
	for seed := range seeds {
		const n = 3000
		after := time.Duration(rand.New(rand.NewPCG(seed, 0)).IntN(20000)) * time.Millisecond
		w, s := nameWeb(silentOf(40)), &shelf{}
		took, err := scan(t, Config{Concurrency: 100, SilentLookups: 50, Patience: DefaultPatience, MaxWaiting: 1000}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
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

// rated is a web whose resolver asks the name servers so many questions a second, like that of package fetcher: one at once, and
// while no answer has come another after 400 ms, 600 ms, 900 ms and so on. What it waits for the rate is neither time that the
// look-up took nor silence.
type rated struct {
	*web
	interval time.Duration
	next     time.Time // when the next question may be sent
}

// mayAsk waits until a question may be sent, and tells how long that took.
func (w *rated) mayAsk() time.Duration {
	w.mu.Lock()
	began := time.Now()
	at := began
	if w.next.After(at) {
		at = w.next
	}
	w.next = at.Add(w.interval)
	w.mu.Unlock()
	time.Sleep(time.Until(at))
	return at.Sub(began)
}

func (w *rated) Resolve(_ context.Context, t exchange.Target, patience time.Duration) exchange.Lookup {
	host, began := t.Origin.Host(), time.Now()
	takes := w.answers(host)
	w.mu.Lock()
	w.lookups++
	w.seeking++
	w.broadest = max(w.broadest, w.seeking)
	if takes > resolveTotal && patience == 0 {
		w.whole = append(w.whole, began.Sub(w.begun))
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.seeking--
		w.mu.Unlock()
	}()
	end := began.Add(resolveTotal)
	if patience > 0 && patience < resolveTotal {
		end = began.Add(patience)
	}
	waited := w.mayAsk()
	end = end.Add(waited)
	answered := time.Now().Add(takes)
	for wait := 400 * time.Millisecond; ; wait += wait / 2 {
		until := time.Now().Add(wait)
		if answered.Before(until) && answered.Before(end) {
			time.Sleep(time.Until(answered))
			return exchange.Lookup{Addr: netip.MustParseAddr(w.address(host)), Took: time.Since(began) - waited}
		}
		if !until.Before(end) {
			time.Sleep(time.Until(end))
			if patience > 0 {
				return exchange.Lookup{Deferred: true}
			}
			return exchange.Lookup{Outcome: exchange.DNSTimeout, Took: time.Since(began) - waited}
		}
		time.Sleep(time.Until(until))
		w := w.mayAsk()
		waited += w
		end = end.Add(w)
	}
}

// hopping makes every tenth host send its visitors on to another path, once, and returns where the longest time is kept that
// passed between the two answers.
func hopping(w *web) *time.Duration {
	hopped, slowest := map[string]time.Duration{}, new(time.Duration)
	w.answer = func(x *exchange.Exchange) exchange.Next {
		host, now := x.Origin.Host(), time.Since(w.begun)
		if began, ok := hopped[host]; ok {
			*slowest = max(*slowest, now-began)
			return exchange.Done
		}
		if number(host)%10 != 9 {
			return exchange.Done
		}
		hopped[host] = now
		target := exchange.Target{Origin: x.Target.Origin, Path: "/elsewhere"}
		x.Past.Trail = &exchange.Trail{Target: target}
		return exchange.Next{Again: true, Target: target}
	}
	return slowest
}

// Where the rate of questions is what bounds a list, silent names cost the questions that their patience allows. No healthy
// name is taken for silent, nor given a successor, because it had to wait for its question: nobody waits long for one, and those
// that were put off get on while the list does.
func TestTheRateOfQuestionsIsNotWasted(t *testing.T) {
	f := func(rate, percent int, longest time.Duration) (last time.Duration) {
		t.Helper()
		n := 20 * rate
		synctest.Test(t, func(t *testing.T) {
			w, s := &rated{web: nameWeb(silentOf(percent)), interval: time.Second / time.Duration(rate)}, &shelf{}
			slowest := hopping(w.web)
			w.begun = time.Now()
			p := New(Config{Concurrency: 1000, Patience: DefaultPatience, SpillDir: t.TempDir()}, &list{hosts: hosts(n, "h%d.example.com")}, w, noJudge{}, s)
			err := p.Run(t.Context())
			_, last = w.asks()
			putOff, during := p.Progress().DeferredLookups.Load(), 0
			for _, at := range w.whole {
				if at > 2*time.Second && at < last-resolveTotal {
					during++
				}
			}
			t.Logf("%d questions a second, %d %% silent: %d put off, of which %d were looked up during the list; all others asked after %v, all done after %v; the slowest hop took %v; %d look-ups at once",
				rate, percent, putOff, during, last, time.Since(w.begun), *slowest, w.broadest)
			if err != nil || len(s.sites) != n {
				t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
			}
			if most := uint64(n*percent/100 + n/100); putOff > most {
				t.Errorf("%d names were put off; want at most %d", putOff, most)
			}
			if most := 2*DefaultResolvers + n*percent/100; w.broadest > most {
				t.Errorf("%d look-ups were under way; want at most %d", w.broadest, most)
			}
			if *slowest > longest {
				t.Errorf("a hop took %v from one answer to the next; want at most %v", *slowest, longest)
			}
			if least := DefaultSilentLookups / deferredShare; percent > 0 && rate >= 1000 && during < least {
				t.Errorf("%d names that were put off were looked up while the list went on; want at least %d", during, least)
			}
		})
		return last
	}
	without := f(1000, 0, time.Second)
	if with := f(1000, 6, time.Second); float64(with) > 1.3*float64(without) {
		t.Errorf("all others were asked after %v, without the silent after %v", with, without)
	}
	f(100, 6, 5*time.Second)
}

// Who was put off when his turn at a busy address was near loses it once. Then he goes before the others there, and is not put
// off again.
func TestATurnIsNotLostTwice(t *testing.T) {
	const crowd = 200
	n := 100000
	if testing.Short() {
		n = 20000
	}
	f := func(name string, most int, slow func(i, sought int) bool, one func(i int) bool) (at map[int]time.Duration, last time.Duration) {
		t.Helper()
		w, s := nameWeb(nil), &shelf{}
		w.answers = func(host string) time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if i := number(host); one(i) && slow(i, w.sought[host]) {
				return 1500 * time.Millisecond
			}
			return quick(host)
		}
		w.ttl = 10 * time.Second
		address := w.address
		w.address = func(host string) string {
			if one(number(host)) {
				return "10.9.9.9"
			}
			return address(host)
		}
		_, err := scan(t, Config{Concurrency: 1000, Resolvers: 64, IPRate: 2, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		if err != nil || len(s.sites) != n {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), n, err)
		}
		at = map[int]time.Duration{}
		for _, a := range w.asked {
			if i := number(a.host); one(i) {
				at[i] = a.at
				if sought := w.sought[a.host]; sought > most {
					t.Errorf("%s: %s was looked up %d times; want at most %d", name, a.host, sought, most)
				}
			} else {
				last = max(last, a.at)
			}
		}
		return at, last
	}
	each := func(every int) func(i int) bool {
		return func(i int) bool { return i < crowd*every && i%every == 0 }
	}

	at, last := f("all are slow", 3, func(int, int) bool { return true }, each(20))
	during := 0
	for _, asked := range at {
		if asked < last {
			during++
		}
	}
	if least := int(last.Seconds()*2*3/4) - 1; during < least {
		t.Errorf("%d slow ones were asked at their address in the %v before the list's end; want at least %d", during, last, least)
	}

	// One in ten is slow to be answered from the second time on.
	at, _ = f("some become slow", 4, func(i, sought int) bool { return i%200 == 0 && sought > 0 }, each(20))
	for i, asked := range at {
		if next, ok := at[i+20]; ok && asked > next+10*time.Second {
			t.Errorf("h%d was asked after %v, and the next on the list after %v", i, asked, next)
		}
	}
}

// How long those take that are looked up with all their time does not say how long others may be silent.
func TestThePaceIsThatOfTheOthers(t *testing.T) {
	const n, concurrency = 3000, 4
	w, s := nameWeb(func(host string) time.Duration {
		switch i := number(host) % 100; {
		case i < 10:
			return 9 * time.Second
		case i >= 50 && i < 56:
			return 2 * resolveTotal
		}
		return quick(host)
	}), &shelf{}
	_, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	checkNames(t, w, s, n, 2, err)
	var last time.Duration
	for _, a := range w.asked {
		if number(a.host)%100 >= 10 {
			last = max(last, a.at)
		}
	}
	if bound := n * 300 * time.Millisecond / concurrency * 11 / 10; last > bound {
		t.Errorf("the quick were asked until %v; want at most %v", last, bound)
	}
	t.Logf("the quick were asked until %v", last)
}

// The line does not wait for newcomers that have all their time: when there is a place for everybody, there is for it too.
func TestTheLineDoesNotWaitForTheLast(t *testing.T) {
	f := func(n, percent int, most time.Duration) {
		t.Helper()
		w, s := nameWeb(silentOf(percent)), &shelf{}
		took, err := scan(t, Config{Concurrency: 1000, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		checkNames(t, w, s, n, 2, err)
		if took > most {
			t.Errorf("%d %% of %d silent: took %v; want at most %v", percent, n, took, most)
		}
		t.Logf("%d %% of %d silent: took %v", percent, n, took)
	}
	f(1472, 100, 16*time.Second)
	f(20000, 6, 20*time.Second)
}

// Thousands of later tries that come at once after the last newcomer, some with names that have become silent, are not held up
// by those either.
func TestSilentNamesDoNotHoldUpLaterTries(t *testing.T) {
	n := 20000
	if testing.Short() {
		n = 10000
	}
	f := func(percent, places int) (last time.Duration) {
		t.Helper()
		w, s := nameWeb(nil), &shelf{}
		w.answers = func(host string) time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.sought[host] > 0 && number(host)%100 < percent {
				return 2 * resolveTotal
			}
			return quick(host)
		}
		w.answer = func(x *exchange.Exchange) exchange.Next {
			if x.Past.Later == 1 {
				return exchange.Done
			}
			x.Past.Later++
			return exchange.Next{Again: true, After: time.Minute, Target: exchange.Target{Origin: x.Origin.As(origin.HTTPS)}}
		}
		took, err := scan(t, Config{Concurrency: 1000, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		if err != nil || len(s.sites) != n {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
		}
		for _, a := range w.asked {
			if number(a.host)%100 >= percent {
				last = max(last, a.at)
			}
		}
		if bound := last + time.Duration(n*percent/100/places+2)*resolveTotal*11/10; took > bound {
			t.Errorf("%d %% silent, %d places: done after %v; want at most %v", percent, places, took, bound)
		}
		t.Logf("%d %% silent, %d places: all others were asked after %v, everything was done after %v", percent, places, last, took)
		return last
	}
	without := f(0, DefaultSilentLookups)
	cases := [][2]int{{6, 100}, {6, 400}, {20, DefaultSilentLookups}}
	if testing.Short() {
		cases = cases[:1]
	}
	for _, c := range cases {
		if with := f(c[0], c[1]); with > without+2*DefaultPatience {
			t.Errorf("%d %% silent, %d places: all others were asked after %v, without the silent after %v", c[0], c[1], with, without)
		}
	}
}

// The counter of look-ups under way counts none when there is none, whoever waits with what they brought.
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
	f("no slot is free for those that were put off", 100, Config{Concurrency: 3, Resolvers: 60, SilentLookups: 50, Patience: DefaultPatience}, 12*time.Second, func(host string) time.Duration {
		if number(host)%5 == 0 {
			return 3 * time.Second
		}
		return quick(host)
	})
}

// The first look-ups do not take more places than there are before anybody looks at them.
func TestTheFirstLookupsHavePatienceToo(t *testing.T) {
	const n, places = 2000, 10
	w, s := nameWeb(silentOf(100)), &shelf{}
	_, err := scan(t, Config{Concurrency: 256, SilentLookups: places, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	checkNames(t, w, s, n, 2, err)
	first := 0
	for _, at := range w.whole {
		if at < time.Second {
			first++
		}
	}
	if first > places {
		t.Errorf("%d look-ups with all their time were begun in the first second; want at most %d", first, places)
	}
}

// Without patience nobody is put off, not even where a resolver that holds a newcomer looks up a name for somebody else.
func TestNoPatience(t *testing.T) {
	const n, concurrency = 500, 10
	w, s := nameWeb(nil), &shelf{}
	w.answers = func(host string) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sought[host] > 0 {
			return 5 * time.Second
		}
		return quick(host)
	}
	slowest := hopping(w)
	_, err := scan(t, Config{Concurrency: concurrency}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
		for p.Progress().Kept.Load() < n {
			time.Sleep(time.Second)
		}
		if putOff := p.Progress().DeferredLookups.Load(); putOff != 0 {
			t.Errorf("%d names were put off; want none", putOff)
		}
	})
	if err != nil || len(s.sites) != n || *slowest < 5*time.Second {
		t.Fatalf("kept %d of %d, error %v, the slowest hop took %v", len(s.sites), n, err, *slowest)
	}
}
