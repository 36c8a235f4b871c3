package simweb

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

func verifyOptions(w *Web, host string) x509.VerifyOptions {
	return x509.VerifyOptions{Roots: w.CAPool(), DNSName: host}
}

func mustOrigin(t testing.TB, s string) origin.Origin {
	t.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// check scans one origin, and compares with the truth.
func check(t *testing.T, w *Web, entry string, p Policy) {
	t.Helper()
	o := mustOrigin(t, entry)
	want := w.Expect(o, p)
	s := plainScanner{web: w, policy: p}
	if got := s.scan(o); !want.same(got) {
		want.Body = nil
		t.Errorf("%s %+v:\nfound %+v\nwant  %+v", entry, p, got, want)
	}
}

// TestEveryBehaviour scans a host of each behaviour, and 400 made-up ones, under several policies, and compares with
// the truth.
func TestEveryBehaviour(t *testing.T) {
	policies := []Policy{
		DefaultPolicy(),
		{MaxRedirects: 5, MaxBody: 512_000, TrustCA: true},
		{MaxRedirects: 2, MaxBody: 300, HTTPFirst: true},
		{MaxRedirects: 5, MaxBody: 512_000, StrictTLS: true, TrustCA: true, NoFallback: true},
		{MaxRedirects: 5, MaxBody: 512_000, Guarded: true},
	}
	if testing.Short() {
		policies = policies[:1]
	}
	for _, p := range policies {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := testWeb(t, Config{Seed: 7})
				entries := slices.Collect(hostsOf(7, 400))
				for _, b := range behaviours {
					entries = append(entries, b.Name+zooSuffix, "www."+b.Name+zooSuffix, "http://p."+b.Name+zooSuffix)
				}
				var all sync.WaitGroup
				for _, entry := range entries {
					all.Go(func() { check(t, w, entry, p) })
				}
				all.Wait()
			})
		})
	}
}

func TestDirectPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{})
		for _, name := range []string{"ok", "to-https", "to-www", "redirect-3", "to-other", "redirect-bounce"} {
			host := name + ".zoo.test"
			check(t, w, fmt.Sprintf("https://%s:%d", host, w.TLSPort()), DefaultPolicy())
			check(t, w, fmt.Sprintf("http://%s:%d", host, w.HTTPPort()), DefaultPolicy())
		}
		check(t, w, w.HotAddr().String(), DefaultPolicy())
		f := func(entry string, want exchange.Outcome, status int) {
			t.Helper()
			if e := w.Expect(mustOrigin(t, entry), DefaultPolicy()); e.Outcomes[0] != want || e.Status != status {
				t.Errorf("%s: %v %d, want %v %d", entry, e.Outcomes, e.Status, want, status)
			}
		}
		f("ok.zoo.test:8080", exchange.ConnectRefused, 0)
		f("http://ok.zoo.test:443", exchange.Answered, 400)
		f("https://ok.zoo.test:80", exchange.TLSFailed, 0)
		f("192.0.2.1", exchange.ConnectRefused, 0)
		f("ftp://ok.zoo.test", exchange.ConnectRefused, 0)
	})
}

// TestOneAddress runs the web as on systems that route 127.0.0.1 alone.
func TestOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{oneAddress: true})
		if !w.SingleAddress() || w.Lookup("example.com").Addr != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			t.Fatal("the web has more than one address")
		}
		for _, name := range []string{"ok", "refuse", "http-only", "to-www", "tls-plain", "nxdomain", "dns-zero",
			"dns-private", "dns-many", "dns-changing", "dns-ipv6"} {
			check(t, w, name+".zoo.test", DefaultPolicy())
			check(t, w, "http://"+name+".zoo.test", DefaultPolicy())
		}
		// A host that throttles the only address would slow the whole scan.
		for _, b := range w.world.chosen {
			if b.slows {
				t.Errorf("hosts are %s", b.Name)
			}
		}
	})
}

// TestVacantAddresses checks that no program can listen at the vacant addresses, and that connections there are
// refused.
func TestVacantAddresses(t *testing.T) {
	w, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if runtime.GOOS != "linux" || w.SingleAddress() {
		t.Skip("SKIPPED: only Linux keeps an address without a listener")
	}
	for _, addr := range append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, w.world.vacant...) {
		for _, port := range []int{w.HTTPPort(), w.TLSPort()} {
			at := netip.AddrPortFrom(addr, uint16(port)).String()
			if l, err := net.Listen("tcp4", at); err == nil {
				_ = l.Close()
				t.Errorf("another program can listen at %s", at)
			}
			if c, err := net.Dial("tcp4", at); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: %v", at, err)
				if err == nil {
					_ = c.Close()
				}
			}
		}
	}
}

// TestWrongProtocol sends each port the other's protocol, which it answers with 400.
func TestWrongProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{})
		f := func(port int, request string) {
			t.Helper()
			if got := exchangeRaw(t, w, port, request); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("port %d answered %q", port, got)
			}
		}
		f(w.TLSPort(), "GET /robots.txt HTTP/1.1\r\nHost: ok.zoo.test\r\n\r\n")
		f(w.HTTPPort(), "\x16\x03\x01\x00\x05hello")
	})
}

func TestRequestHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{Force: map[string]string{"a.test": "gone"}})
		f := func(request, status string) {
			t.Helper()
			got, _, _ := strings.Cut(strings.TrimPrefix(exchangeRaw(t, w, w.HTTPPort(), request), "HTTP/1.1 "), " ")
			if got != status {
				t.Errorf("%.60q: status %q, want %q", request, got, status)
			}
		}
		f("GET /robots.txt HTTP/1.1\r\nHost: a.test\r\n\r\n", "410")
		f("GET /robots.txt HTTP/1.1\nHost: a.test\n\n", "410")
		f("GET /robots.txt?x=1 HTTP/1.1\r\nX: y\r\nhOST:   A.Test.:80  \r\n\r\n", "410")
		f("GET http://a.test/robots.txt HTTP/1.1\r\nHost: a.test\r\n\r\n", "410")
		f("GET /robots.txt\r\nHost: a.test\r\n\r\n", "410")
		f("GET /other HTTP/1.1\r\nHost: a.test\r\n\r\n", "404")
		f("GET /robots.txt HTTP/1.1\r\nX: "+strings.Repeat("x", 9000)+"\r\nHost: a.test\r\n\r\n", "410")
		f("GET /robots.txt HTTP/1.1\r\nX: "+strings.Repeat("x", 20000)+"\r\nHost: a.test\r\n\r\n", "")
		f("nonsense\r\n\r\n", "")
	})
}

// exchangeRaw sends bytes to the hot address and returns what comes back.
func exchangeRaw(t *testing.T, w *Web, port int, request string) string {
	t.Helper()
	c, err := clientOf(w).DialContext(t.Context(), "tcp", netip.AddrPortFrom(w.HotAddr(), uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, request) // may be reset in flight
	got, _ := io.ReadAll(c)
	return string(got)
}

// TestShares compares 20,000 hosts with the real web's shares.
func TestShares(t *testing.T) {
	w := testWeb(t, Config{Seed: 1, Addresses: 512})
	const n = 20_000
	got := map[string]float64{}
	addrs := map[netip.Addr]int{}
	behaviour := map[string]float64{}
	for _, host := range Names(1, n) {
		e := w.Expect(mustOrigin(t, host), DefaultPolicy())
		key := e.Outcomes[0].String()
		if e.Outcomes[0] == exchange.Answered {
			key = fmt.Sprint(e.Status)
		}
		got[key] += 1.0 / n
		behaviour[e.Behaviour] += 1.0 / n
		if addr := w.Lookup(host).Addr; addr.IsValid() {
			addrs[addr]++
		}
	}
	f := func(key string, want, within float64) {
		t.Helper()
		if math.Abs(got[key]-want) > within {
			t.Errorf("%s: %.4f of the hosts, want %.4f ± %.4f", key, got[key], want, within)
		}
	}
	f("200", 0.847, 0.012)
	f("404", 0.13, 0.01)
	f("403", 0.0064, 0.0025)
	f("500", 0.001, 0.001)
	f("timeout", 0.0098, 0.004)
	f("dns_not_found", 0.004, 0.002)
	f("connect_refused", 0.003, 0.0017)
	for _, b := range behaviours {
		if d := math.Abs(behaviour[b.Name] - b.Share); d > 5*math.Sqrt(b.Share/n)+0.0001 {
			t.Errorf("%s: %.5f of the hosts, want %.5f", b.Name, behaviour[b.Name], b.Share)
		}
	}
	most := 0
	for _, count := range addrs {
		most = max(most, count)
	}
	if len(addrs) < 500 || most > 120 {
		t.Errorf("%d addresses, %d hosts at one of them", len(addrs), most)
	}
}

func TestSameSeedSameWeb(t *testing.T) {
	truthOf := func(seed uint64) string {
		w := testWeb(t, Config{Seed: seed})
		var b bytes.Buffer
		if err := w.WriteTruth(&b, hostsOf(seed, 300), DefaultPolicy()); err != nil {
			t.Fatal(err)
		}
		w.Close()
		return b.String()
	}
	once, again := truthOf(5), truthOf(5)
	if once != again {
		t.Error("the same seed made another web")
	}
	if once == truthOf(6) {
		t.Error("another seed made the same web")
	}
}

// TestClose opens connections of all kinds, and finds none of them after Close, nor a goroutine: the bubble would not
// end.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := Start(ctx, Config{Addresses: 16, Slow: time.Hour, Hold: time.Hour, Network: inMemory()})
		if err != nil {
			t.Fatal(err)
		}
		dial := func(port int, request string) {
			c, err := clientOf(w).DialContext(ctx, "tcp", netip.AddrPortFrom(w.HotAddr(), uint16(port)).String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"silent", "slow", "drip", "drip-head", "endless", "endless-head", "silent-body"} {
			dial(w.HTTPPort(), "GET /robots.txt HTTP/1.1\r\nHost: "+name+".zoo.test\r\n\r\n")
		}
		dial(w.HTTPPort(), "GET /robots")
		dial(w.TLSPort(), "\x16\x03\x01\x02\x00")
		dial(w.TLSPort(), "")
		time.Sleep(time.Minute)
		if s := w.Stats(); s.Requests != 7 || s.Open != 10 {
			t.Errorf("%+v; want 7 requests and 10 open connections", s)
		}
		cancel()
		w.Close()
		if open := w.Stats().Open; open != 0 {
			t.Errorf("%d connections are open", open)
		}
		if _, err := clientOf(w).DialContext(t.Context(), "tcp", netip.AddrPortFrom(w.HotAddr(),
			uint16(w.HTTPPort())).String()); err == nil {
			t.Error("still listening")
		}
	})
}

func TestHotHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		w := testWeb(t, Config{Addresses: 64, HotShare: 0.25, RecordAccepts: true, Only: []string{"ok"}})
		hot := 0
		const n = 4000
		for _, host := range Names(0, n) {
			if w.Lookup(host).Addr == w.HotAddr() {
				hot++
			}
		}
		if hot < n/4-150 || hot > n/4+150 {
			t.Errorf("%d of %d hosts are hot, want a quarter", hot, n)
		}
		if addr := w.Lookup("any.hot.test").Addr; addr != w.HotAddr() {
			t.Errorf("any.hot.test is at %v", addr)
		}
		for range 5 {
			check(t, w, "http://any.hot.test", DefaultPolicy())
		}
		for i, at := range w.Accepts(w.HotAddr()) { // by way of the name, SYN, the request and its answer
			if want := time.Duration(6*i+4) * trip; at.Sub(begun) != want {
				t.Errorf("connection %d was recorded at %v, want %v", i, at.Sub(begun), want)
			}
		}
		most := func(window time.Duration) int {
			var b busiest
			for _, at := range w.Accepts(w.HotAddr()) {
				b.add(at.Sub(begun), window)
			}
			return b.most
		}
		if got := most(time.Hour); got != 5 {
			t.Errorf("busiest hour: %d", got)
		}
		if got := most(1); got != 1 {
			t.Errorf("busiest nanosecond: %d", got)
		}
		got := w.Record()
		if got.Connections != 5 || got.MostOpen < 1 || got.Missed != 0 || got.Address != nil || got.Hot == nil ||
			got.Hot.Total != 5 ||
			got.Hot.Name != w.HotAddr().String() || got.Hot.Last.Before(got.Hot.First) || got.Host == nil ||
			got.Host.Name != "any.hot.test" || got.Host.Total != 5 {
			t.Errorf("record: %+v", got)
		}
	})
}

func TestConfig(t *testing.T) {
	f := func(cfg Config, want string) {
		t.Helper()
		w, err := Start(t.Context(), cfg)
		if err == nil {
			w.Close()
			t.Errorf("%+v started", cfg)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(Config{Only: []string{"nonsense"}}, `no behaviour "nonsense"`)
	f(Config{Shares: map[string]float64{"nonsense": 1}}, `no behaviour "nonsense"`)
	f(Config{Force: map[string]string{"a.test": "nonsense"}}, `no behaviour "nonsense"`)
	f(Config{Shares: map[string]float64{"silent": 1.5}}, "not from 0 to 1")
	f(Config{Shares: map[string]float64{"silent": 1}}, "add up to")
	f(Config{Addresses: 5000}, "addresses 5000")
	f(Config{Bodies: 3}, "files 3")
	f(Config{Corpus: "testdata/none"}, "cannot read the corpus")

	share := func(cfg Config, name string) float64 {
		cfg.Bodies = 64
		w, err := newWorld(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := 0.0
		for _, host := range Names(9, 2000) {
			if w.behaviour(host).Name == name {
				n++
			}
		}
		return n / 2000
	}
	if got := share(Config{Only: []string{"silent", "ok"}}, "silent"); got == 0 || got > 0.06 {
		t.Errorf("of silent and ok %v are silent", got)
	}
	if got := share(Config{Only: []string{"html", "nul"}}, "html"); math.Abs(got-0.5) > 0.05 {
		t.Errorf("of html and nul %v are html", got)
	}
	if got := share(Config{Shares: map[string]float64{"silent": 0.3}}, "silent"); math.Abs(got-0.3) > 0.04 {
		t.Errorf("%v are silent, want 0.3", got)
	}
	if got := share(Config{Shares: map[string]float64{"not-found": 0}}, "not-found"); got != 0 {
		t.Errorf("%v are not found, want none", got)
	}
}
