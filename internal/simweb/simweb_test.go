package simweb

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain runs more tests at a time than there are processors, since most of them wait for time-outs.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

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

// check scans one origin over sockets, and compares with the truth.
func check(t *testing.T, w *Web, entry string, p Policy) {
	t.Helper()
	o := mustOrigin(t, entry)
	want := w.Expect(o, p)
	s := plainScanner{web: w, policy: p, wait: patienceFor(want)}
	if got := s.scan(o); !want.same(got) {
		t.Errorf("%s %+v:\nfound %+v\nwant  %+v", entry, p, got, want)
	}
}

// TestEveryBehaviour scans a host of each behaviour over sockets, under several policies, and compares with the truth.
func TestEveryBehaviour(t *testing.T) {
	t.Parallel()
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
			w := testWeb(t, Config{Seed: 7})
			var all sync.WaitGroup
			for _, b := range behaviours {
				for _, entry := range []string{b.Name + ".zoo.test", "www." + b.Name + ".zoo.test", "http://p." + b.Name + ".zoo.test"} {
					all.Go(func() { check(t, w, entry, p) })
				}
			}
			all.Wait()
		})
	}
}

// TestEndsAreTrue compares Behaviour.Ends, which is documentation, with the truth.
func TestEndsAreTrue(t *testing.T) {
	w := testWeb(t, Config{})
	for _, b := range behaviours {
		e := w.Expect(mustOrigin(t, b.Name+".zoo.test"), DefaultPolicy())
		if !strings.Contains(b.Ends, e.Outcomes[0].String()) {
			t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.Outcomes)
		}
		if e.Outcomes[0] == exchange.Answered {
			if status := regexp.MustCompile(`answered (\d+)`).FindStringSubmatch(b.Ends); status != nil && status[1] != fmt.Sprint(e.Status) {
				t.Errorf("%s: the table says %q, the truth %d", b.Name, b.Ends, e.Status)
			}
			if strings.Contains(b.Ends, "by http") != (e.FinalScheme == origin.HTTP) {
				t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.FinalScheme)
			}
		}
		// Brackets are about other entries.
		if hops := regexp.MustCompile(`, (\d) hops?`).FindStringSubmatch(b.Ends); hops != nil && hops[1] != fmt.Sprint(e.Hops) || hops == nil && e.Hops > 0 && e.Outcomes[0] != exchange.RedirectLimit {
			t.Errorf("%s: the table says %q, the truth %d hops", b.Name, b.Ends, e.Hops)
		}
		if strings.Contains(b.Ends, "truncated") != e.Truncated {
			t.Errorf("%s: the table says %q, the truth %v", b.Name, b.Ends, e.Truncated)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	sum, seen := 0.0, map[string]bool{}
	for _, b := range Behaviours() {
		sum += b.Share
		if seen[b.Name] || !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,30}$`).MatchString(b.Name) {
			t.Errorf("%q is not a valid name, or not the only one", b.Name)
		}
		seen[b.Name] = true
		if b.Does == "" || b.Ends == "" {
			t.Errorf("%s has no description", b.Name)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares add up to %v", sum)
	}
	if behaviours[0].Name != nameOK {
		t.Errorf("the first is %s", behaviours[0].Name)
	}
}

// TestManyHosts scans made-up hosts.
func TestManyHosts(t *testing.T) {
	w := testWeb(t, Config{Seed: 3})
	var all sync.WaitGroup
	slots := make(chan struct{}, 32)
	for _, host := range Names(3, 400) {
		slots <- struct{}{}
		all.Go(func() { check(t, w, host, DefaultPolicy()); <-slots })
	}
	all.Wait()
}

func TestDirectPorts(t *testing.T) {
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
}

// TestOneAddress runs the web as on systems that route 127.0.0.1 alone.
func TestOneAddress(t *testing.T) {
	w := testWeb(t, Config{oneAddress: true})
	if !w.SingleAddress() || w.Lookup("example.com").Addr != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		t.Fatal("the web has more than one address")
	}
	for _, name := range []string{"ok", "refuse", "http-only", "to-www", "tls-plain", "nxdomain", "dns-zero", "dns-private", "dns-many", "dns-changing", "dns-ipv6"} {
		check(t, w, name+".zoo.test", DefaultPolicy())
		check(t, w, "http://"+name+".zoo.test", DefaultPolicy())
	}
	// A host that throttles the only address would slow the whole scan.
	for _, b := range w.world.chosen {
		if b.slows {
			t.Errorf("hosts are %s", b.Name)
		}
	}
}

// TestVacantAddresses checks that no program can listen at the vacant addresses, and that connections there are
// refused.
func TestVacantAddresses(t *testing.T) {
	w := testWeb(t, Config{})
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
	w := testWeb(t, Config{})
	f := func(port int, request string) {
		t.Helper()
		if got := exchangeRaw(t, w, port, request); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("port %d answered %q", port, got)
		}
	}
	f(w.TLSPort(), "GET /robots.txt HTTP/1.1\r\nHost: ok.zoo.test\r\n\r\n")
	f(w.HTTPPort(), "\x16\x03\x01\x00\x05hello")
}

func TestRequestHeads(t *testing.T) {
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
}

// exchangeRaw sends bytes to the hot address and returns what comes back.
func exchangeRaw(t *testing.T, w *Web, port int, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", netip.AddrPortFrom(w.HotAddr(), uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, request) // may be reset in flight
	got, _ := io.ReadAll(c)
	return string(got)
}

func TestNameServer(t *testing.T) {
	w := testWeb(t, Config{Addresses: 64})
	f := func(host string, qtype uint16, network string, rcode, answers int) {
		t.Helper()
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(host), qtype)
		client := dns.Client{Net: network, Timeout: 20 * time.Second}
		m, _, err := client.Exchange(q, w.DNSAddr().String())
		if err != nil {
			t.Errorf("%s: %v", host, err)
			return
		}
		if m.Rcode != rcode || len(m.Answer) != answers {
			t.Errorf("%s %s: %d with %d records, want %d with %d", host, dns.TypeToString[qtype], m.Rcode, len(m.Answer), rcode, answers)
		}
		if a, ok := lastAddr(m); ok && answers <= 3 && !strings.HasSuffix(host, ".alias.test") && a != w.Lookup(host).Addr {
			t.Errorf("%s: answered %v, Lookup says %v", host, a, w.Lookup(host).Addr)
		}
	}
	f("example.com", dns.TypeA, "udp", 0, 1)
	f("EXAMPLE.com", dns.TypeA, "tcp", 0, 1)
	f("ok.zoo.test", dns.TypeAAAA, "udp", 0, 0)
	f("ok.zoo.test", dns.TypeMX, "udp", 0, 0)
	f("alias.zoo.test", dns.TypeA, "udp", 0, 3)
	f("alias.zoo.test", dns.TypeAAAA, "udp", 0, 2)
	f("alias.zoo.test.edge.alias.test", dns.TypeA, "udp", 0, 1)
	f("half.alias.zoo.test.edge.alias.test", dns.TypeA, "udp", 0, 2)
	f("alias-loop.zoo.test", dns.TypeA, "udp", 0, 3)
	f("nxdomain.zoo.test", dns.TypeA, "udp", dns.RcodeNameError, 0)
	f("nxdomain.zoo.test", dns.TypeAAAA, "udp", dns.RcodeNameError, 0)
	f("servfail.zoo.test", dns.TypeA, "udp", dns.RcodeServerFailure, 0)
	f("dns-refused.zoo.test", dns.TypeA, "udp", dns.RcodeRefused, 0)
	f("no-address.zoo.test", dns.TypeA, "udp", 0, 0)
	f("dns-truncated.zoo.test", dns.TypeA, "udp", 0, 0)
	f("dns-truncated.zoo.test", dns.TypeA, "tcp", 0, 1)
	f("dns-many.zoo.test", dns.TypeA, "udp", 0, 0)
	f("dns-many.zoo.test", dns.TypeA, "tcp", 0, 1000)
	f("dns-ipv6.zoo.test", dns.TypeA, "udp", 0, 0)
	f("dns-ipv6.zoo.test", dns.TypeAAAA, "udp", 0, 1)
	f("dns-zero.zoo.test", dns.TypeA, "udp", 0, 1)
	f("dns-private.zoo.test", dns.TypeA, "udp", 0, 1)
	f("dns-late.zoo.test", dns.TypeA, "udp", 0, 1)
	if !w.Lookup("dns-silent.zoo.test").Silent || w.Lookup("servfail.zoo.test").Rcode != dns.RcodeServerFailure {
		t.Error("Lookup differs from the server's answers")
	}
}

// TestForgedNames reads the answers to a question, packet by packet.
func TestForgedNames(t *testing.T) {
	w := testWeb(t, Config{Addresses: 64})
	ask := func(name string) (c *dns.Conn, q *dns.Msg) {
		t.Helper()
		conn, err := net.Dial("udp", w.DNSAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		c, q = &dns.Conn{Conn: conn}, new(dns.Msg).SetQuestion(name+".zoo.test.", dns.TypeA)
		if err := c.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		return c, q
	}
	next := func(c *dns.Conn) (*dns.Msg, netip.Addr) {
		t.Helper()
		m, err := c.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		addr, _ := lastAddr(m)
		return m, addr
	}
	for _, name := range []string{"dns-wrong-id", "dns-wrong-question"} {
		c, q := ask(name)
		forged, said := next(c)
		if forged.Id == q.Id && forged.Question[0] == q.Question[0] || said != w.world.unused() || w.places[said] != nil {
			t.Errorf("%s: the forged answer is\n%v", name, forged)
		}
		answer, addr := next(c)
		if answer.Id != q.Id || answer.Question[0] != q.Question[0] || addr != w.Lookup(name+".zoo.test").Addr || w.places[addr] == nil {
			t.Errorf("%s: the answer is\n%v", name, answer)
		}
	}
	// The first question is lost, the second is not; Forget resets this.
	for range 2 {
		c, q := ask("dns-lost")
		if err := c.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		if _, addr := next(c); addr != w.Lookup("dns-lost.zoo.test").Addr {
			t.Errorf("dns-lost: %v", addr)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.ReadMsg(); err == nil {
			t.Error("dns-lost: both questions were answered")
		}
		w.Forget()
	}
	seen := map[netip.Addr]bool{}
	for range 5 {
		c, _ := ask("dns-changing")
		m, addr := next(c)
		if seen[addr] || w.places[addr] == nil || m.Answer[0].Header().Ttl != 0 {
			t.Errorf("dns-changing: %v", m.Answer)
		}
		seen[addr] = true
	}
}

func lastAddr(m *dns.Msg) (netip.Addr, bool) {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return netip.AddrFromSlice(a.A.To4())
		}
	}
	return netip.Addr{}, false
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
	f("200", 0.85, 0.012)
	f("404", 0.13, 0.01)
	f("403", 0.005, 0.0025)
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
	if len(addrs) < 500 || most > 100 {
		t.Errorf("%d addresses, %d hosts at one of them", len(addrs), most)
	}
}

// TestFiles compares the made-up files with measurements of real ones.
func TestFiles(t *testing.T) {
	p, err := newBodyPool(Config{Seed: 1, Bodies: 4096, AIShare: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	count := map[string]float64{}
	total, html := 0, 0
	distinct := map[string]bool{}
	for i := range p.len() {
		b := p.at(i)
		sizes = append(sizes, len(b))
		total += len(b)
		distinct[string(b)] = true
		add := func(key string, is bool) {
			if is {
				count[key] += 1 / float64(p.len())
			}
		}
		isHTML := bytes.Contains(b[:min(len(b), 100)], []byte("<!DOCTYPE html"))
		add("html", isHTML)
		add("crlf", bytes.Contains(b, []byte("\r\n")))
		add("cr", bytes.Contains(b, []byte("\r")) && !bytes.Contains(b, []byte("\n")))
		add("bom", bytes.HasPrefix(b, []byte("\xef\xbb\xbf")))
		add("nul", bytes.IndexByte(b, 0) >= 0)
		add("latin", !utf8.Valid(b))
		if isHTML {
			html += len(b)
			continue
		}
		lower := strings.ToLower(string(b))
		wild, ai := false, false
		for line := range strings.FieldsFuncSeq(lower, func(r rune) bool { return r == '\r' || r == '\n' }) {
			wild = wild || strings.HasPrefix(line, "disallow: ") && strings.ContainsAny(line, "*$")
			agent, ok := strings.CutPrefix(line, "user-agent: ")
			ai = ai || ok && slices.ContainsFunc(aiTokens, func(t aiToken) bool { return strings.ToLower(t.name) == agent })
		}
		add("wildcard", wild)
		add("ai", ai)
		add("delay", strings.Contains(lower, "crawl-delay:"))
		add("sitemap", strings.Contains(lower, "sitemap: http"))
		add("managed", strings.Contains(lower, "cloudflare managed content"))
	}
	slices.Sort(sizes)
	f := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s: %.4f, want %.4f ± %.4f", what, got, want, within)
		}
	}
	at := func(q float64) float64 { return float64(sizes[int(q*float64(len(sizes)))]) }
	f("p50", at(0.5), 327, 60)
	f("p90", at(0.9), 9600, 1000)
	f("p99", at(0.99), 178_000, 10_000)
	if m := sizes[len(sizes)-1]; m < 1_000_000 || m > 3_700_300 {
		t.Errorf("the largest is %d bytes", m)
	}
	f("html", count["html"], 0.12, 0.01)
	f("html's bytes", float64(html)/float64(total), 0.84, 0.05)
	f("crlf", count["crlf"], 0.34, 0.01)
	f("cr", count["cr"], 0.0014, 0.0005)
	f("bom", count["bom"], 0.018, 0.002)
	f("nul", count["nul"], 0.0025, 0.0005)
	f("latin", count["latin"], 0.011, 0.002)
	f("wildcard", count["wildcard"], 0.31, 0.03)
	f("delay", count["delay"], 0.125, 0.01)
	f("sitemap", count["sitemap"], 0.48, 0.01)
	f("ai", count["ai"], 0.2, 0.02)
	f("managed", count["managed"], 0.03, 0.005)
	if len(distinct) < p.len()*3/4 {
		t.Errorf("only %d of %d differ", len(distinct), p.len())
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

func hostsOf(seed uint64, n int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, host := range Names(seed, n) {
			if !yield(host) {
				return
			}
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed; to see how: go test ./internal/simweb -update && git diff", path)
	}
}

// TestTruthGolden compares the truth of a host of each behaviour, and of a few made-up hosts, with a golden file.
func TestTruthGolden(t *testing.T) {
	w := testWeb(t, Config{Seed: 1})
	list := []string{"example.com", "https://example.com", "http://example.com", "www.example.com", "bücher.example", "not a host", " example.org ", "x.hot.test"}
	for _, b := range behaviours {
		list = append(list, b.Name+".zoo.test")
	}
	for _, host := range Names(1, 20) {
		list = append(list, host)
	}
	var b bytes.Buffer
	if err := w.WriteTruth(&b, slices.Values(list), DefaultPolicy()); err != nil {
		t.Fatal(err)
	}
	golden(t, "truth.jsonl", b.Bytes())
}

// TestReadme compares the list of behaviours in README.md with the code.
func TestReadme(t *testing.T) {
	var list bytes.Buffer
	if err := WriteBehaviours(&list); err != nil {
		t.Fatal(err)
	}
	generated(t, "README.md", "behaviours", list.String())
}

// TestOutcomesDocument compares the generated parts of docs/outcomes.md with the code.
func TestOutcomesDocument(t *testing.T) {
	w := testWeb(t, Config{})
	if w.SingleAddress() || len(w.world.holes) == 0 || !w.world.six {
		t.Skip("SKIPPED: the document describes loopback behaviours that this system lacks")
	}
	var outcomes, ends bytes.Buffer
	if err := errors.Join(WriteOutcomes(&outcomes), w.WriteEnds(&ends)); err != nil {
		t.Fatal(err)
	}
	generated(t, "../../docs/outcomes.md", "outcomes", outcomes.String())
	generated(t, "../../docs/outcomes.md", "behaviours", ends.String())
	for o, m := range meanings {
		if o > 0 && m.happened == "" {
			t.Errorf("%v has no meaning", exchange.Outcome(o))
		}
	}
}

// generated compares the part between two marks of a document with what belongs there.
func generated(t *testing.T, path, mark, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the %s", path, mark)
	}
	if *update && old != want {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		old = want
	}
	if old != want {
		t.Errorf("%s has outdated %s; go test ./internal/simweb -update", path, mark)
	}
}

// TestClose opens connections of all kinds, and finds none of them after Close.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := Start(ctx, Config{Addresses: 16, Slow: time.Hour, Hold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var clients []net.Conn
	dial := func(port int, request string) {
		c, err := net.Dial("tcp", netip.AddrPortFrom(w.HotAddr(), uint16(port)).String())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
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
	for w.Stats().Requests < 7 || w.Stats().Open < 10 {
		runtime.Gosched()
	}
	cancel()
	w.Close()
	if open := w.Stats().Open; open != 0 {
		t.Errorf("%d connections are open", open)
	}
	for _, c := range clients {
		c.Close()
	}
	if _, err := net.Dial("tcp", netip.AddrPortFrom(w.HotAddr(), uint16(w.HTTPPort())).String()); err == nil {
		t.Error("still listening")
	}
	// Goroutines may still be ending.
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 2000 {
			b := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

func TestHotHosts(t *testing.T) {
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
	if got := w.Accepts(w.HotAddr()); len(got) != 5 || !slices.IsSortedFunc(got, time.Time.Compare) {
		t.Errorf("recorded %v", got)
	}
	if got := w.Busiest(w.HotAddr(), time.Hour); got != 5 {
		t.Errorf("busiest hour: %d", got)
	}
	if got := w.Busiest(w.HotAddr(), 1); got != 1 {
		t.Errorf("busiest nanosecond: %d", got)
	}
	got := w.Record()
	if got.Connections != 5 || got.MostOpen < 1 || got.Missed != 0 || got.Address != nil || got.Hot == nil || got.Hot.Total != 5 ||
		got.Hot.Name != w.HotAddr().String() || got.Hot.Last.Before(got.Hot.First) || got.Host == nil || got.Host.Name != "any.hot.test" || got.Host.Total != 5 {
		t.Errorf("record: %+v", got)
	}
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

func TestCorpus(t *testing.T) {
	pack := func(bodies ...string) string {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range bodies {
			n := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
			if _, err := z.Write(append(n, body...)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "pack.bin.zst")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	w := testWeb(t, Config{Corpus: pack("User-agent: one\nDisallow: /\n", "", "User-agent: two\nDisallow: /\n"), Only: []string{"ok"}})
	if got := w.world.bodies.len(); got != 2 {
		t.Errorf("%d files, want 2", got)
	}
	check(t, w, "http://example.com", DefaultPolicy())
	w.Close()
	f := func(path, want string) {
		t.Helper()
		if _, err := readCorpus(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f(pack(), "no file in it")
	raw, err := os.ReadFile(pack("User-agent: one\nDisallow: /\n"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, raw[:len(raw)-6], 0o644); err != nil {
		t.Fatal(err)
	}
	f(cut, "cannot read the corpus")
	f(pack(strings.Repeat("x", maxCorpusOne+1)), "exceeds the bounds")
}

// TestRealCorpus serves real files, if the shared corpus exists.
func TestRealCorpus(t *testing.T) {
	w := testWeb(t, Config{Corpus: sharedtest.Path(t, "corpus", "modern-ai.bin.zst"), Only: []string{"ok", "ok-chunked", "ok-gzip", "close-body"}})
	if n := w.world.bodies.len(); n < 1000 {
		t.Errorf("%d files", n)
	}
	for _, host := range Names(0, 60) {
		check(t, w, "http://"+host, DefaultPolicy())
	}
}

func TestNames(t *testing.T) {
	const n = 60_000 // more than the pairs of words
	seen := map[string]bool{}
	domains := map[string]int{}
	tlds := map[string]bool{}
	idn, last := 0, 0
	for rank, host := range Names(1, n) {
		if rank != last+1 {
			t.Fatalf("rank %d after %d", rank, last)
		}
		last = rank
		o, err := origin.Parse(host)
		if err != nil || o.Host() != host {
			t.Fatalf("%q: %v", host, err)
		}
		if seen[host] {
			t.Fatalf("%q twice", host)
		}
		seen[host] = true
		domains[o.RegistrableDomain()]++
		tlds[host[strings.LastIndexByte(host, '.')+1:]] = true
		if strings.Contains(host, "xn--") {
			idn++
		}
	}
	if last != n {
		t.Errorf("%d names", last)
	}
	several := 0
	for _, hosts := range domains {
		if hosts > 1 {
			several++
		}
	}
	if several < len(domains)/20 || len(tlds) < 20 || idn < n/200 {
		t.Errorf("%d domains, %d with several hosts, %d endings, %d internationalised", len(domains), several, len(tlds), idn)
	}
	if slices.Equal(slices.Collect(hostsOf(1, 50)), slices.Collect(hostsOf(2, 50))) {
		t.Error("another seed made the same names")
	}
	pairs := map[string]bool{}
	for _, a := range nameFirst {
		for _, b := range nameSecond {
			pairs[a+b] = true
		}
	}
	if len(pairs) != len(nameFirst)*len(nameSecond) {
		t.Error("two pairs of words make one name")
	}
}

func TestKept(t *testing.T) {
	f := func(body string, most int64, want string, truncated bool) {
		t.Helper()
		got, cut := whole(body).kept(most)
		if string(got) != want || cut != truncated {
			t.Errorf("%q cut at %d: %q %v, want %q %v", body, most, got, cut, want, truncated)
		}
	}
	f("a\nb\nc", 5, "a\nb\nc", false)
	f("a\nb\nc", 4, "a\nb\n", true)
	f("a\nb\nc", 3, "a\n", true)
	f("abc", 2, "", true)
	if got, cut := (content{[]byte("ab\n"), 8}).kept(100); string(got) != "ab\nab\nab" || cut {
		t.Errorf("%q %v", got, cut)
	}
	if got, cut := (content{[]byte("ab\n"), -1}).kept(5); string(got) != "ab\n" || !cut {
		t.Errorf("%q %v", got, cut)
	}
}
