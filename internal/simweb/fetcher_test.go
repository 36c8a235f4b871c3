package simweb

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
)

// TestFetcherFindsTheTruth runs bulkscan's fetcher without the pipeline's waits on a host of each behaviour and on 200
// made-up hosts, and compares with the truth. Deferring silent hosts, as the pipeline does, must not change the result.
func TestFetcherFindsTheTruth(t *testing.T) {
	t.Parallel()
	f := func(p Policy, deferAfter time.Duration) {
		t.Run(fmt.Sprintf("%+v, patience %v", p, deferAfter), func(t *testing.T) {
			t.Parallel()
			w := testWeb(t, Config{Seed: 11})
			deferred := 0
			var mu sync.Mutex
			clients := newClients(t, w, p)
			var all sync.WaitGroup
			slots := make(chan struct{}, 32)
			one := func(entry string) {
				o := mustOrigin(t, entry)
				want := w.Expect(o, p)
				if deferAfter > 0 && behaviourNamed(want.Behaviour).counts {
					return // a deferred exchange counts at a host that counts requests
				}
				if p.MaxBody < 1000 && want.Behaviour == "zstd-bomb" {
					return // the bound is also on coded bytes, and 300 of them decode to nothing
				}
				wait := patienceFor(want)
				client := clients(wait)
				slots <- struct{}{}
				all.Go(func() {
					got, n := fetch(t, client, o, deferAfter)
					mu.Lock()
					deferred += n
					mu.Unlock()
					got.mustBe(t, fmt.Sprintf("%s %+v", entry, p), want)
					<-slots
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

func newFetcher(t *testing.T, w *Web, p Policy, wait patience) *fetcher.Fetcher {
	t.Helper()
	resolver, err := resolve.New([]string{w.DNSAddr().String()}, resolve.Options{First: min(wait.again, 400*time.Millisecond), Total: wait.names, Hosts: "-"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := resolver.Close(); err != nil {
			t.Error(err)
		}
	})
	// The fetcher's Timeout is for the whole exchange, whose connection and head take time on a busy machine.
	wait.body = max(wait.body, 3*time.Second)
	cfg := fetcher.Config{
		Timeout: wait.body, ConnectTimeout: min(wait.dial, wait.body), TLSTimeout: min(wait.handshake, wait.body), HeaderTimeout: min(wait.head, wait.body), MaxRedirects: p.MaxRedirects, Retries: p.Retries, MaxBody: int(p.MaxBody), UserAgent: "test",
		Scheme: origin.HTTPS, NoFallback: p.NoFallback, AllowPrivate: !p.Guarded, StrictTLS: p.StrictTLS, Resolver: resolver,
	}
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
	got = zooRow{foundIn(&r), audit.AccessOf(r.Outcome, r.Status).String(), r.Attempts}
	r.Reset()
	return got, deferred
}
