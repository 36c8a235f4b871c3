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

// TestFetcherFindsTheTruth lets bulkscan's own fetcher loose on one host of each behaviour and on a few hundred made-up
// ones, without the pipeline's waiting, and compares with the truth. That is the same where whoever is silent is put off
// first, as the pipeline does: only what comes when is not.
func TestFetcherFindsTheTruth(t *testing.T) {
	t.Parallel()
	f := func(p Policy, putOffAfter time.Duration) {
		t.Run(fmt.Sprintf("%+v, patience %v", p, putOffAfter), func(t *testing.T) {
			t.Parallel()
			w := testWeb(t, Config{Seed: 11})
			putOff := 0
			var mu sync.Mutex
			clients := newClients(t, w, p)
			var all sync.WaitGroup
			slots := make(chan struct{}, 32)
			one := func(entry string) {
				o := mustOrigin(t, entry)
				want := w.Expect(o, p)
				if putOffAfter > 0 && behaviourNamed(want.Behaviour).counts {
					return // an exchange that is put off may count where the host answers by the number
				}
				if p.MaxBody < 1000 && want.Behaviour == "zstd-bomb" {
					return // the bound is of coded bytes too, and of so few no block can be decoded
				}
				wait := patienceFor(want)
				client := clients(wait)
				slots <- struct{}{}
				all.Go(func() {
					got, off := fetch(t, client, o, putOffAfter)
					mu.Lock()
					putOff += off
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
			if putOffAfter > 0 && putOff < 10 || putOffAfter == 0 && putOff > 0 {
				t.Errorf("patience %v: %d look-ups and exchanges were put off", putOffAfter, putOff)
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
	// The fetcher's Timeout spans the whole exchange, so that it cannot be as short as a body's alone.
	wait.body = max(wait.body, time.Second)
	cfg := fetcher.Config{
		Timeout: wait.body, ConnectTimeout: min(wait.dial, wait.body), TLSTimeout: min(wait.hands, wait.body), HeaderTimeout: min(wait.head, wait.body), MaxRedirects: p.MaxRedirects, Retries: p.Retries, MaxBody: int(p.MaxBody), UserAgent: "test",
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

// fetch asks until the fetcher is done. Patience is the name servers' and the hosts' until the first is put off.
func fetch(t *testing.T, f *fetcher.Fetcher, o origin.Origin, patience time.Duration) (got zooRow, putOff int) {
	var r exchange.Response
	x := exchange.Exchange{Origin: o, Target: f.First(o, exchange.Past{}), Response: &r}
	for {
		if x.Lookup = f.Resolve(t.Context(), x.Target, patience); x.Lookup.PutOff {
			patience = 0
			putOff++
			continue
		}
		x.Patience = patience
		next := f.Do(t.Context(), &x)
		if next.PutOff {
			patience = 0
			putOff++
		}
		if !next.Again {
			break
		}
		x.Target = next.Target
	}
	got = zooRow{foundIn(&r), audit.AccessOf(r.Outcome, r.Status).String(), r.Attempts}
	r.Reset()
	return got, putOff
}
