package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// timeout is that of the webs below, for one exchange.
const timeout = 15 * time.Second

// slowWeb is a web whose hosts take their time, those beyond the time-out never answer. What follows an exchange is as the
// policy of package fetcher has it: https, then http, then later tries by turns.
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
		return exchange.Next{Again: true, After: time.Minute << (x.Past.Later - 1), Target: exchange.Target{Origin: x.Origin.As(by)}}
	}
	return w
}

// asks counts how often each host was asked, and tells when the last one was asked for the first time.
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

// number is that of a host like h7.example.com. It is wanted so often that fmt.Sscanf would take a tenth of the time of all tests.
func number(host string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(host, "h"), ".")
	i, _ := strconv.Atoi(digits) // 0 for other names
	return i
}

// Six hosts of a hundred are dead. Asking all others may take at most 1.3 times as long as if they were not.
func TestSilentHostsDoNotHoldUpTheOthers(t *testing.T) {
	const healthy = 300 * time.Millisecond
	n, concurrency := 60000, 1000
	if testing.Short() {
		n, concurrency = 15000, 250
	}
	first := func(retries int, takes func(host string) time.Duration) (last, all time.Duration) {
		w := slowWeb(takes, retries)
		s := &shelf{}
		all, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
		if err != nil || len(s.sites) != n {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
		}
		timeouts := 0
		for _, k := range s.sites {
			dead := takes(k.input) >= timeout
			if dead != (k.outcome == exchange.Timeout) || dead && k.attempts != 2+retries {
				t.Fatalf("%s is %v after %d attempts", k.input, k.outcome, k.attempts)
			}
			if dead {
				timeouts++
			}
		}
		times, last := w.asks()
		for host, asked := range times {
			if most := 1 + 2 + retries; asked > most {
				t.Fatalf("%s was asked %d times; want at most %d", host, asked, most)
			}
		}
		t.Logf("%d later tries, %d dead: all were asked once after %v, and everything was done after %v", retries, timeouts, last, all)
		return last, all
	}
	well := func(string) time.Duration { return healthy }
	silent := func(host string) time.Duration {
		if number(host)%100 < 6 {
			return 2 * timeout
		}
		return healthy
	}
	without, _ := first(2, well)
	for _, retries := range []int{2, 0} {
		with, all := first(retries, silent)
		if ratio := float64(with) / float64(without); ratio > 1.3 {
			t.Errorf("with 6 %% dead, all were asked once after %v, without after %v: %.2f times; want at most 1.3", with, without, ratio)
		}
		// Then the dead have all slots, 15 s by each scheme and for each later try.
		passes := time.Duration(2+retries) * timeout * time.Duration(n*6/100) / time.Duration(concurrency)
		if bound := with + passes + passes/5 + 3*time.Minute; all > bound {
			t.Errorf("%d later tries: done after %v; want at most %v", retries, all, bound)
		}
	}
}

// A list of the dead comes to its end, and costs each no more than patience beside its attempts.
func TestAListOfTheDeadEnds(t *testing.T) {
	const n, concurrency = 3000, 100
	w, s := slowWeb(func(string) time.Duration { return 2 * timeout }, 1), &shelf{}
	took, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil)
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for _, k := range s.sites {
		if k.outcome != exchange.Timeout || k.attempts != 3 {
			t.Fatalf("%s is %v after %d attempts; want timeout after 3", k.input, k.outcome, k.attempts)
		}
	}
	if bound := n / concurrency * (DefaultPatience + 3*timeout) * 11 / 10; took > bound+2*time.Minute {
		t.Errorf("took %v; want at most %v", took, bound)
	}
}

// Hosts that are slow but alive are all answered, at most twice asked; where all are slow, next to none is put off, for
// silence then tells nothing.
func TestTheSlowAreNotTheDead(t *testing.T) {
	const n, concurrency = 4000, 100
	f := func(name string, takes func(host string) time.Duration, twice int, bound time.Duration) {
		t.Helper()
		w, s := slowWeb(takes, 2), &shelf{}
		var putOff uint64
		took, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, func(p *Pipeline) {
			for p.Progress().Kept.Load() < n {
				time.Sleep(time.Second)
			}
			putOff = p.Progress().DeferredExchanges.Load()
		})
		if err != nil || len(s.sites) != n {
			t.Fatalf("%s: kept %d of %d, error %v", name, len(s.sites), n, err)
		}
		for _, k := range s.sites {
			if k.outcome != exchange.Answered || k.attempts != 1 {
				t.Fatalf("%s: %s is %v after %d attempts; want answered after one", name, k.input, k.outcome, k.attempts)
			}
		}
		if len(w.asked) > n+twice || putOff != uint64(len(w.asked)-n) {
			t.Errorf("%s: asked %d times more than once each, %d put off; want at most %d, all of them put off", name, len(w.asked)-n, putOff, twice)
		}
		if took > bound {
			t.Errorf("%s: took %v; want at most %v", name, took, bound)
		}
		t.Logf("%s: %d asked twice, took %v", name, len(w.asked)-n, took)
	}
	every := func(takes time.Duration) func(string) time.Duration {
		return func(string) time.Duration { return takes }
	}
	// Until the first answers come nobody knows how slow all are: what is put off meanwhile are the slots' number a few
	// times over. The bound is the time without patience, and that.
	f("all at 4 s", every(4*time.Second), 4*concurrency, n/concurrency*4*time.Second+20*time.Second)
	f("all at 10 s", every(10*time.Second), 8*concurrency, n/concurrency*10*time.Second+30*time.Second)
	f("all at 1 s", every(time.Second), 0, n/concurrency*time.Second+5*time.Second)
	// One in twenty at 8 s: each is asked twice at most.
	f("some at 8 s", func(host string) time.Duration {
		if number(host)%20 == 0 {
			return 8 * time.Second
		}
		return 200 * time.Millisecond
	}, n/20, 45*time.Second)
	// A network that grows slow in the midst of a scan.
	f("slow after the half", func(host string) time.Duration {
		if number(host) > n/2 {
			return 4 * time.Second
		}
		return 200 * time.Millisecond
	}, n/2, n/2/concurrency*(4*time.Second+DefaultPatience)+20*time.Second)
}

// Where there is a place for everybody, nobody is put off.
func TestNobodyIsPutOffForNothing(t *testing.T) {
	const n = 300
	f := func(name string, cfg Config, pause time.Duration) {
		t.Helper()
		w, s := slowWeb(func(string) time.Duration { return 8 * time.Second }, 2), &shelf{}
		w.resolving = time.Second // the list is read before the first is asked
		_, err := scanSource(t, cfg, w, trickle{&list{hosts: hosts(n, "h%d.example.com")}, pause}, s, nil)
		if err != nil || len(s.sites) != n || len(w.asked) != n {
			t.Errorf("%s: kept %d, asked %d times, error %v; want %d of both", name, len(s.sites), len(w.asked), err, n)
		}
	}
	f("the list fits into the slots", Config{Concurrency: n, Patience: DefaultPatience}, 0)
	f("the list comes slowly", Config{Concurrency: 100, Patience: DefaultPatience}, 500*time.Millisecond)
	f("no patience is set", Config{Concurrency: 20}, 0)
	f("patience is as long as the time-out", Config{Concurrency: 20, Patience: timeout}, 0)
}

// trickle is a list whose entries come one by one.
type trickle struct {
	*list
	pause time.Duration
}

func (l trickle) Next() (Entry, error) {
	time.Sleep(l.pause)
	return l.list.Next()
}

// While a list goes on for ever, those who were put off get on too: one slot in deferredShare is theirs.
func TestTheDeferredGetOnWhileTheListGoesOn(t *testing.T) {
	const n, concurrency = 30000, 128
	takes := func(host string) time.Duration {
		if number(host)%100 < 6 {
			return 8 * time.Second
		}
		return 300 * time.Millisecond
	}
	w, s := slowWeb(takes, 2), &shelf{}
	if _, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil); err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	times := map[string]int{}
	again := 0
	_, last := w.asks()
	for _, a := range w.asked {
		if times[a.host]++; times[a.host] == 2 && a.at < last {
			again++
		}
	}
	// Two slots for 8 s each, over and over.
	if want := int(last/(8*time.Second)) * concurrency / deferredShare; again < want*8/10 || again > want*13/10 {
		t.Errorf("%d of those put off were asked again in the %v before the list's end; want about %d", again, last, want)
	}
}

// Those who were put off do not take the memory of those who wait for a turn: beyond their share they are spilled, and
// come back as what they were.
func TestTheDeferredAreSpilled(t *testing.T) {
	const n, bound = 6000, 400
	takes := func(host string) time.Duration {
		if number(host)%4 == 0 {
			return 2 * timeout
		}
		return 100 * time.Millisecond
	}
	w, s := slowWeb(takes, 1), &shelf{}
	var waiting, spilled int64
	watch := func(p *Pipeline) {
		for p.Progress().Kept.Load() < n {
			waiting, spilled = max(waiting, p.Progress().Waiting.Load()), max(spilled, p.Progress().Spilled.Load())
			time.Sleep(100 * time.Millisecond)
		}
	}
	took, err := scan(t, Config{Concurrency: 100, HostRate: 1, IPRate: 5, MaxWaiting: bound, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, watch)
	if err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	for _, k := range s.sites {
		if dead := number(k.input)%4 == 0; dead != (k.outcome == exchange.Timeout) || dead && k.attempts != 3 {
			t.Fatalf("%s is %v after %d attempts", k.input, k.outcome, k.attempts)
		}
	}
	times, _ := w.asks()
	for host, asked := range times {
		if most := 4; asked > most {
			t.Errorf("%s was asked %d times; want at most %d: once put off, and three attempts", host, asked, most)
		}
	}
	if spilled < n/8 {
		t.Errorf("at most %d were spilled; want more of the %d that were put off", spilled, n/4)
	}
	if most := int64(bound + 100); waiting > most {
		t.Errorf("%d waited in memory; want at most %d", waiting, most)
	}
	if bound := 10 * time.Minute; took > bound+n/4/100*3*timeout {
		t.Errorf("took %v", took)
	}
}

// twoAddresses is a web whose hosts all have a first address that refuses, the same for all, and a second.
type twoAddresses struct{ *web }

func (w twoAddresses) Resolve(_ context.Context, t exchange.Target, _ time.Duration) exchange.Lookup {
	if t.Skip == 0 {
		return exchange.Lookup{Addr: netip.MustParseAddr("10.0.0.1"), More: true}
	}
	return exchange.Lookup{Addr: netip.MustParseAddr("10.0.1." + t.Origin.Host()[1:2])}
}

// A further address of a host is asked at once, as far as the rates of that address and of the host allow.
func TestAFurtherAddressHasItsOwnRate(t *testing.T) {
	const n = 200
	w, s := &web{}, &shelf{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		if !x.Lookup.More {
			if x.Target.Skip != 1 || x.Target.Unmet != exchange.ConnectRefused || x.Past.Trail == nil || x.Target.Path != "/elsewhere" {
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
		p := New(Config{Concurrency: 50, HostRate: 1, IPRate: 10, MaxWaiting: 40, SpillDir: t.TempDir()}, &list{hosts: hosts(n, "h%d.example.com")}, twoAddresses{w}, noJudge{}, s)
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

// silentFirst is a web of which every tenth host has a silent first address, and another one behind it.
type silentFirst struct{ *web }

func (w silentFirst) Resolve(ctx context.Context, t exchange.Target, patience time.Duration) exchange.Lookup {
	l := w.web.Resolve(ctx, t, patience)
	l.More = t.Skip == 0 && number(t.Origin.Host())%10 == 0
	return l
}

func (w silentFirst) Do(ctx context.Context, x *exchange.Exchange) exchange.Next {
	next := w.web.Do(ctx, x)
	if x.Lookup.More {
		time.Sleep(2 * time.Second)
		x.Response.Outcome = exchange.ConnectTimeout
		next = exchange.Next{Again: true, Target: x.Target}
		next.Target.Skip, next.Target.Waited, next.Target.Unmet = 1, 20, exchange.ConnectTimeout
	} else if x.Target.Skip == 1 && (x.Target.Waited != 20 || x.Target.Unmet != exchange.ConnectTimeout) {
		x.Response.Outcome = exchange.BadResponse
	}
	return next
}

// A host with a silent address is not deferred while another of its addresses is known: that one is asked at once.
func TestASilentAddressDefersNobody(t *testing.T) {
	const n = 20000
	w, s := slowWeb(func(string) time.Duration { return 100 * time.Millisecond }, 0), &shelf{}
	synctest.Test(t, func(t *testing.T) {
		w.begun = time.Now()
		p := New(Config{Concurrency: 64, Patience: DefaultPatience}, &list{hosts: hosts(n, "h%d.example.com")}, silentFirst{w}, noJudge{}, s)
		if err := p.Run(t.Context()); err != nil || len(s.sites) != n || p.Progress().Outcomes[exchange.Answered].Load() != n {
			t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
		}
	})
	first := map[string]time.Duration{}
	for _, a := range w.asked {
		began, again := first[a.host]
		if !again {
			first[a.host] = a.at
		} else if pause := a.at - began; pause > 3*time.Second {
			t.Fatalf("the second address of %s was asked %v after the first", a.host, pause)
		}
	}
	if len(w.asked) != n+n/10 {
		t.Errorf("asked %d times, want %d", len(w.asked), n+n/10)
	}
}

// Who was put off is known to be slow, or dead: none of its further attempts is broken off.
func TestNobodyIsPutOffTwice(t *testing.T) {
	const slow = 8 * time.Second
	n, concurrency := 40000, 512
	if testing.Short() {
		n, concurrency = 20000, 256
	}
	takes := func(host string) time.Duration {
		if number(host)%50 == 0 {
			return slow
		}
		return 300 * time.Millisecond
	}
	w, s := slowWeb(takes, 2), &shelf{}
	w.answer = func(x *exchange.Exchange) exchange.Next {
		x.Response.Attempts = int(x.Past.Attempts)
		if takes(x.Target.Origin.Host()) < slow || x.Past.Later == 2 {
			return exchange.Done
		}
		x.Response.Status = 503 // which is an answer: it is not deferred any more
		x.Past.Later++
		return exchange.Next{Again: true, After: 3 * time.Second, Target: x.Target}
	}
	if _, err := scan(t, Config{Concurrency: concurrency, Patience: DefaultPatience}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, nil); err != nil || len(s.sites) != n {
		t.Fatalf("kept %d of %d, error %v", len(s.sites), n, err)
	}
	times, last := w.asks()
	during := 0
	for _, a := range w.asked {
		if takes(a.host) == slow && a.at < last {
			during++
		}
		if most := 1 + 3; times[a.host] > most {
			t.Fatalf("%s was asked %d times; want at most %d", a.host, times[a.host], most)
		}
	}
	if during < n/50+n/2500 {
		t.Errorf("%d exchanges with slow hosts while the list went on; want some with those put off", during)
	}
}
