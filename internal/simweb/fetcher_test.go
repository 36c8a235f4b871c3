package simweb

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/internal/origin"
	"net/netip"
)

// TestFetcherFindsTheTruth runs bulkscan's fetcher without the pipeline's waits on a host of each behaviour and on 200
// made-up hosts, and compares with the truth. Deferring silent hosts, as the pipeline does, must not change the result.
func TestFetcherFindsTheTruth(t *testing.T) {
	f := func(p Policy, deferAfter time.Duration) {
		t.Run(fmt.Sprintf("%+v, patience %v", p, deferAfter), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := testWeb(t, zooWeb())
				client := newFetcher(t, w, p)
				var mu sync.Mutex
				var all sync.WaitGroup
				deferred := 0
				one := func(entry string) {
					o := mustOrigin(t, entry)
					want := w.Expect(o, p)
					if deferAfter > 0 && behaviourNamed(want.Behaviour).counts {
						return // a deferred exchange counts at a host that counts requests
					}
					if p.MaxBody < 1000 && want.Behaviour == "zstd-bomb" {
						return // the bound is also on coded bytes, and 300 of them decode to nothing
					}
					all.Go(func() {
						got, n := fetch(t, client, o, deferAfter)
						mu.Lock()
						deferred += n
						mu.Unlock()
						got.mustBe(t, fmt.Sprintf("%s %+v", entry, p), want)
					})
				}
				for _, b := range behaviours {
					one(b.Name + ".zoo.test")
					one("http://p." + b.Name + ".zoo.test")
				}
				for _, host := range Names(11, 200) {
					one(host)
				}
				all.Wait()
				if deferAfter > 0 && deferred < 10 || deferAfter == 0 && deferred > 0 {
					t.Errorf("patience %v: %d look-ups and exchanges were deferred", deferAfter, deferred)
				}
			})
		})
	}
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 1}, 0)
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 1}, 20*time.Millisecond)
	if testing.Short() {
		return
	}
	f(Policy{MaxRedirects: 3, MaxBody: 300, HTTPFirst: true}, 0)
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, TrustCA: true, StrictTLS: true, NoFallback: true}, 0)
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, Guarded: true}, 0)
}

// newFetcher makes a fetcher with the default time-outs for a web in memory, or one for a web on sockets. All that it asks of the latter
// answers, however long a busy machine takes.
func newFetcher(t *testing.T, w *Web, p Policy) *fetcher.Fetcher {
	t.Helper()
	options := resolve.Options{Hosts: "-"}
	cfg := fetcher.Config{
		MaxRedirects: p.MaxRedirects, Retries: p.Retries, MaxBody: int(p.MaxBody), UserAgent: "test",
		Scheme: origin.HTTPS, NoFallback: p.NoFallback, AllowPrivate: !p.Guarded, StrictTLS: p.StrictTLS,
	}
	if _, memory := w.net.(*memnet.Network); memory {
		options.Network, cfg.Dial = names{clientOf(w)}, clientOf(w).DialContext
	} else {
		options.Total, cfg.Timeout, cfg.ConnectTimeout = time.Minute, time.Minute, time.Minute
	}
	resolver, err := resolve.New([]string{w.DNSAddr().String()}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := resolver.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Resolver = resolver
	if p.HTTPFirst {
		cfg.Scheme = origin.HTTP
	}
	if p.TrustCA {
		cfg.Roots = w.CAPool()
	}
	for _, s := range w.ConnectTo() {
		to, err := fetcher.ParseConnectTo(s)
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnectTo = append(cfg.ConnectTo, to)
	}
	f, err := fetcher.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// names is the resolve.Network of a host.
type names struct{ memnet.Host }

func (n names) Packets(server netip.AddrPort) (resolve.Packets, error) { return n.DialPackets(server) }

// fetch asks until the fetcher is done. The patience with name servers and hosts ends with the first deferral.
func fetch(t *testing.T, f *fetcher.Fetcher, o origin.Origin, patience time.Duration) (got zooRow, deferred int) {
	var r exchange.Response
	x := exchange.Exchange{Origin: o, Target: f.First(o, exchange.Past{}), Response: &r}
	for {
		if x.Lookup = f.Resolve(t.Context(), x.Target, patience); x.Lookup.Deferred {
			patience = 0
			deferred++
			continue
		}
		x.Patience = patience
		next := f.Do(t.Context(), &x)
		if next.Deferred {
			patience = 0
			deferred++
		}
		if !next.Again {
			break
		}
		x.Target = next.Target
	}
	got = newRow(audit.AccessOf(r.Outcome, r.Status).String(), &r)
	r.Reset()
	return got, deferred
}
