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
	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"net/netip"
)

// TestFetcherFindsTheTruth runs bulkscan's fetcher without the pipeline's waits on a host of each behaviour and on 200
// made-up hosts, and compares with the truth.
func TestFetcherFindsTheTruth(t *testing.T) {
	f := func(p Policy) {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := testWeb(t, zooWeb())
				client := newFetcher(t, w, p)
				var all sync.WaitGroup
				one := func(entry string) {
					o := mustOrigin(t, entry)
					want := w.Expect(o, p)
					if p.MaxBody < 1000 && want.Behaviour == "zstd-bomb" {
						return // the bound is also on coded bytes, and 300 of them decode to nothing
					}
					all.Go(func() {
						got := fetch(t, client, o)
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
			})
		})
	}
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 1})
	if testing.Short() {
		return
	}
	f(Policy{MaxRedirects: 3, MaxBody: 300, HTTPFirst: true})
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, TrustCA: true, StrictTLS: true, NoFallback: true})
	f(Policy{MaxRedirects: 5, MaxBody: 512_000, Guarded: true})
}

// newFetcher makes a fetcher with the default time-outs for a web in memory, or one for a web on sockets. All hosts
// that it fetches from a web on sockets answer, however long a busy machine takes.
func newFetcher(t *testing.T, w *Web, p Policy, more ...func(*fetcher.Config)) *fetcher.Fetcher {
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
	for _, set := range more {
		set(&cfg)
	}
	f, err := fetcher.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestShortSilence fetches a host of each behaviour with a time-out of an hour. Each ends as it would with a shorter
// one, and those that never answer cost no minute: the web tells the client's side that they have fallen silent.
func TestShortSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := testWeb(t, zooWeb()), Policy{MaxRedirects: 5, MaxBody: 512_000, Retries: 1}
		client := newFetcher(t, w, p, func(cfg *fetcher.Config) {
			cfg.Timeout, cfg.Dial = time.Hour, w.ShortSilence(250*time.Millisecond, cfg.Dial)
			cfg.Resolver = ShortNames[resolve.Answer]{cfg.Resolver.(*resolve.Resolver), w, 250 * time.Millisecond}
		})
		silent := 0
		for _, b := range behaviours {
			for _, entry := range []string{b.Name + ".zoo.test", "http://p." + b.Name + ".zoo.test"} {
				begun := time.Now()
				got, want := fetch(t, client, mustOrigin(t, entry)), w.Expect(mustOrigin(t, entry), p)
				got.mustBe(t, entry, want)
				if b.place == placeHole || b.name != nameSilent && want.Outcomes[0] != exchange.Timeout && b.hello != helloHang &&
					b.hello != helloDrip && b.hello != helloStall {
					continue
				}
				silent++
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("%s took %v", entry, took)
				}
			}
		}
		if silent < 10 {
			t.Errorf("only %d hosts are silent", silent)
		}
		left := 0
		w.dialled.Range(func(any, any) bool { left++; return true })
		if left > 0 {
			t.Errorf("%d streams are still known after their end", left)
		}
	})
}

// names is the resolve.Network of a host.
type names struct{ memnet.Host }

func (n names) Packets(server netip.AddrPort) (resolve.Packets, error) { return n.DialPackets(server) }

// fetch asks until the fetcher is done.
func fetch(t *testing.T, f *fetcher.Fetcher, o origin.Origin) zooRow {
	var r exchange.Response
	x := exchange.Exchange{Origin: o, Target: f.First(o, exchange.Past{}), Response: &r}
	for {
		x.Lookup = f.Resolve(t.Context(), x.Target)
		next := f.Do(t.Context(), &x)
		if !next.Again {
			break
		}
		x.Target = next.Target
	}
	got := newRow(audit.AccessOf(r.Outcome, r.Status).String(), &r)
	r.Reset()
	return got
}
