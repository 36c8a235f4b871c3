package pipeline

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

var worldsTable = flag.String("worlds", "", "file for a table of how long scans of simulated worlds take")

// world is a Fetcher without a network, with the time-outs, hops and retries of package fetcher. What a host does
// depends on its number alone, so every run is the same. Shares are of a thousand hosts.
type world struct {
	name string
	cfg  Config

	// answer nothing: most take no connection for connectTimeout, a third take one and are silent until timeout
	dead       int
	slowNames  int // are answered after 1 to 5 s
	silent     int // have names that no server answers
	servFails  int // have names whose servers fail now and then
	lostPacket int // look-ups that lose one packet, or two: they take 0.4 or 1 s longer
	addresses  int // of all hosts; 0: of five hosts each
	oneAddress int // are at one address
	cdn        int // are at the 32 addresses of a CDN that answers 429 to more than 5 a second
	retries    int

	begun   time.Time
	mu      *sync.Mutex
	lately  map[netip.Addr][]time.Duration // of the CDN
	answers []time.Duration                // when those that answered were kept
}

// worlds are small enough to be tried in seconds, so bounds of memory are small, too.
var worlds = []world{
	{name: "no host dead"},
	{name: "2 % dead", dead: 20},
	{name: "6 % dead", dead: 60},
	{name: "15 % dead", dead: 150},
	{name: "slow names", slowNames: 100, silent: 60},
	{name: "bad resolver", lostPacket: 100, servFails: 40, silent: 20, retries: 2},
	{name: "few addresses", dead: 20, addresses: 100, cfg: Config{MaxWaiting: 4000}},
	{name: "one address", dead: 20, oneAddress: 100, cfg: Config{MaxWaiting: 1000}},
	{name: "CDN throttles", dead: 20, cdn: 100, retries: 2, cfg: Config{MaxWaiting: 1000}},
	{name: "mixture", dead: 60, slowNames: 20, silent: 20, servFails: 10, lostPacket: 20, oneAddress: 20, cdn: 50,
		retries: 2, cfg: Config{Rate: 800, MaxWaiting: 2000}},
}

// shapes of a scan: few slots for the list, and many.
var shapes = []struct{ hosts, slots int }{{5000, 50}, {15000, 1000}}

const connectTimeout = 5 * time.Second

// TestWorlds writes how long scans take in virtual time: the whole, and until 90 % of the answers are kept.
//
//	go test ./pipeline -run Worlds -worlds worlds.tsv
func TestWorlds(t *testing.T) {
	if *worldsTable == "" {
		t.Skip("-worlds names no file")
	}
	var table strings.Builder
	for _, w := range worlds {
		for _, shape := range shapes {
			whole, most := w.scan(t, shape.hosts, shape.slots)
			fmt.Fprintf(&table, "%s\t%d\t%.2f\t%.2f\n", w.name, shape.slots, whole.Seconds(), most.Seconds())
		}
	}
	if err := os.WriteFile(*worldsTable, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// scan returns how long a scan of so many hosts takes, and how long it takes until 90 % of its answers are kept.
func (w world) scan(t *testing.T, n, slots int) (whole, most time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.begun, w.mu, w.lately = time.Now(), new(sync.Mutex), map[netip.Addr][]time.Duration{}
		cfg := w.cfg
		cfg.Concurrency, cfg.HostRate, cfg.IPRate, cfg.SpillDir = slots, 1, 10, t.TempDir()
		p := New(cfg, &list{hosts: hosts(n, "h%d.example.com")}, &w, noJudge{}, &w)
		if err := p.Run(t.Context()); err != nil || p.Progress().Kept.Load() != uint64(n) {
			t.Fatalf("%s: kept %d of %d, error %v", w.name, p.Progress().Kept.Load(), n, err)
		}
		whole = time.Since(w.begun)
	})
	slices.Sort(w.answers)
	return whole, w.answers[len(w.answers)*9/10]
}

// Add implements Sink.
func (w *world) Add(site *audit.Site) error {
	if site.Fetch.Outcome == exchange.Answered {
		w.answers = append(w.answers, time.Since(w.begun))
	}
	return nil
}

// chance is a number from [0, 1) that a host has for a purpose.
func chance(host, purpose string) float64 {
	h := uint64(14695981039346656037)
	for _, s := range []string{host, purpose} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return float64(h>>11) / (1 << 53)
}

// among reports whether a host is among so many of a thousand.
func among(host, purpose string, share int) bool { return chance(host, purpose)*1000 < float64(share) }

// spread returns a duration that is similar for most hosts, and several times as long for few; its mean is that of an
// exponential distribution.
func spread(host, purpose string, least, mean time.Duration) time.Duration {
	return least - time.Duration(float64(mean-least)*math.Log(1-chance(host, purpose)))
}

// withoutWWW is the host that is on the list: redirects lead to www.HOST.
func withoutWWW(t exchange.Target) string { return strings.TrimPrefix(t.Origin.Host(), "www.") }

// First implements Fetcher.
func (w *world) First(o origin.Origin, _ exchange.Past) exchange.Target {
	return exchange.Target{Origin: o.As(origin.HTTPS)}
}

// ResolveAll implements Fetcher.
func (w *world) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	resolveEach(ctx, w.Resolve, queries, done)
}

func (w *world) Resolve(ctx context.Context, t exchange.Target) exchange.Lookup {
	host := withoutWWW(t)
	takes, l := spread(host, "name", 5*time.Millisecond, 40*time.Millisecond), exchange.Lookup{Addr: w.address(host),
		Until: time.Now().Add(5 * time.Minute)}
	switch {
	case among(host, "silent", w.silent):
		takes, l = resolveTotal, exchange.Lookup{Outcome: exchange.DNSTimeout, Cause: exchange.CauseDNSTimeout}
	case among(host, "slow name", w.slowNames):
		takes = time.Second + time.Duration(chance(host, "how slow")*float64(4*time.Second))
	case among(host, "lost", w.lostPacket):
		takes += 400 * time.Millisecond
		if among(host, "lost twice", 300) {
			takes += 600 * time.Millisecond
		}
	case among(host, "fails", w.servFails) && among(host, time.Since(w.begun).Truncate(30*time.Second).String(), 500):
		l = exchange.Lookup{Outcome: exchange.DNSFailed, Cause: exchange.CauseServFail}
	}
	pause(ctx, takes)
	l.Took = takes
	return l
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (w *world) address(host string) netip.Addr {
	i, block := number(host)/5, byte(0)
	switch {
	case among(host, "cdn", w.cdn):
		i, block = int(chance(host, "edge")*32), 1
	case among(host, "one", w.oneAddress):
		i, block = 0, 2
	case w.addresses > 0:
		// A few addresses have many hosts, and most have few.
		i = int(float64(w.addresses) * math.Pow(chance(host, "address"), 1.3))
	}
	return netip.AddrFrom4([4]byte{10, block, byte(i >> 8), byte(i)})
}

// Do implements Fetcher.
func (w *world) Do(ctx context.Context, x *exchange.Exchange) (next exchange.Next) {
	host := withoutWWW(x.Target)
	if x.Lookup.Outcome != 0 {
		return w.after(x, x.Lookup.Outcome, 0)
	}
	takes, outcome, status := spread(host, "answer", 80*time.Millisecond, 350*time.Millisecond), exchange.Answered, 200
	switch {
	case among(host, "slow", 5):
		takes += time.Second + time.Duration(chance(host, "so slow")*float64(6*time.Second))
	case among(host, "dead", w.dead) && among(host, "takes no connection", 667):
		takes, outcome = connectTimeout, exchange.ConnectTimeout
	case among(host, "dead", w.dead):
		takes, outcome = timeout, exchange.Timeout
	case among(host, "5xx", 3):
		status = 503
	case x.Past.Trail == nil && among(host, "redirects", 250):
		status = 301
	}
	if outcome == exchange.Answered && w.throttles(x.Lookup.Addr) {
		status = 429
	}
	pause(ctx, takes)
	return w.after(x, outcome, status)
}

// throttles notes a request to the CDN, and reports whether it was one too many.
func (w *world) throttles(addr netip.Addr) bool {
	if addr.As4()[1] != 1 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.begun)
	lately := slices.DeleteFunc(w.lately[addr], func(at time.Duration) bool { return at <= now-time.Second })
	w.lately[addr] = append(lately, now)
	return len(lately) >= 5
}

// after decides as fetcher's policy does: a hop, the other scheme, a retry, or nothing.
func (w *world) after(x *exchange.Exchange, outcome exchange.Outcome, status int) exchange.Next {
	r, past := x.Response, &x.Past
	r.Outcome, r.Status = outcome, status
	next := exchange.Next{Again: true, Throttled: status == 429,
		Target: exchange.Target{Origin: x.Origin.As(origin.HTTPS)}}
	if status == 301 {
		to, _ := origin.Parse("https://www." + x.Origin.Host())
		next.Target = exchange.Target{Origin: to, Path: "/robots.txt"}
		past.Trail = &exchange.Trail{Target: next.Target, Hops: []exchange.Hop{{Status: 301, URL: next.Target.String()}}}
		return next
	}
	past.Trail = nil
	past.Attempts++
	past.Scheme = cmp.Or(past.Scheme, origin.HTTPS)
	if failed := (exchange.Failure{Outcome: outcome}); past.Scheme == origin.HTTPS {
		past.HTTPS = failed
	} else {
		past.HTTP = failed
	}
	switch {
	case outcome.FallsBack() && past.Attempts == 1:
		past.Scheme = origin.HTTP
		next.Target.Origin = x.Origin.As(origin.HTTP)
		return next
	case (outcome.Transient() || status == 429 || status == 503) && int(past.Later) < w.retries:
		next.After = time.Duration(float64(time.Minute<<past.Later) * (0.8 + 0.4*chance(x.Origin.Host(), "jitter")))
		past.Later++
		return next
	}
	next.Again = false
	return next
}
