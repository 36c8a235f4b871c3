package resolve

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// TestMain runs 16 parallel tests at a time, because most of them wait for time-outs. It checks that they leave no
// goroutine and no file.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16")
	if conn, err := net.ListenPacket("udp", "127.0.0.1:0"); err == nil {
		_ = conn.Close() // the runtime's poller has opened its files
	}
	before := openFiles()
	code := m.Run()
	if left := leaks(before); code == 0 && left != "" {
		fmt.Printf("left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// serve runs a name server on one loopback port of UDP and TCP until the test ends.
func serve(tb testing.TB, handle dns.HandlerFunc) string {
	tb.Helper()
	var listener net.Listener
	var packets net.PacketConn
	var err error
	for range 20 {
		// A port that is free for UDP is most likely free for TCP.
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			tb.Fatal(err)
		}
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			break
		}
		_ = packets.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handle}, {Listener: listener, Handler: handle}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			_ = s.ActivateAndServe()
		}()
		<-started
		tb.Cleanup(func() {
			_ = s.Shutdown()
			<-ended
		})
	}
	return packets.LocalAddr().String()
}

// zone returns a handler that answers from lines in master file format. A name without a line is NXDOMAIN.
func zone(lines ...string) dns.HandlerFunc {
	var records []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		records = append(records, rr)
	}
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Rcode = dns.RcodeNameError
		name := q.Question[0].Name
		for range 20 {
			next := ""
			for _, rr := range records {
				if !strings.EqualFold(rr.Header().Name, name) {
					continue
				}
				m.Rcode = dns.RcodeSuccess
				switch rr := rr.(type) {
				case *dns.CNAME:
					m.Answer = append(m.Answer, rr)
					next = rr.Target
				default:
					if rr.Header().Rrtype == q.Question[0].Qtype {
						m.Answer = append(m.Answer, rr)
					}
				}
			}
			if next == "" {
				break
			}
			name = next
		}
		_ = w.WriteMsg(m)
	}
}

func code(rcode int) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }
}

func silence(dns.ResponseWriter, *dns.Msg) {}

func newResolver(tb testing.TB, opts Options, servers ...string) *Resolver {
	tb.Helper()
	opts.Hosts = "-"
	r, err := New(servers, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

// tell writes an answer as tests expect it.
func tell(a Answer) string {
	if a.Outcome != 0 {
		return fmt.Sprintf("%v: %v", a.Outcome, a.Cause)
	}
	return fmt.Sprint(a.Addrs)
}

func TestLookup(t *testing.T) {
	f := func(name string, handle dns.HandlerFunc, host string, opts Options, want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResolver(t, opts, serve(t, handle))
			if got := tell(r.Lookup(t.Context(), host, 0)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	notFound := func(c exchange.Cause) string { return tell(failed(exchange.DNSNotFound, c)) }
	dnsFailed := func(c exchange.Cause) string { return tell(failed(exchange.DNSFailed, c)) }
	timedOut := tell(failed(exchange.DNSTimeout, exchange.CauseDNSTimeout))
	short := Options{First: 15 * time.Millisecond, Total: 60 * time.Millisecond}
	none := Options{}

	f("A", zone("a.com. 60 A 192.0.2.1", "a.com. 60 AAAA 2001:db8::1"), "a.com", none, "[192.0.2.1]")
	f("only AAAA", zone("a.com. 60 AAAA 2001:db8::1"), "a.com", none, "[2001:db8::1]")
	f("IPv4 only", zone("a.com. 60 AAAA 2001:db8::1"), "a.com", Options{IPv4: true}, notFound(exchange.CauseNoAddress))
	f("IPv6 only", zone("a.com. 60 A 192.0.2.1", "a.com. 60 AAAA 2001:db8::1"), "a.com", Options{IPv6: true}, "[2001:db8::1]")
	f("upper case answer", zone("A.COM. 60 A 192.0.2.1"), "a.com", none, "[192.0.2.1]")
	f("underscore", zone("_x.a.com. 60 A 192.0.2.1"), "_x.a.com", none, "[192.0.2.1]")
	f("mapped", zone("a.com. 60 AAAA ::ffff:127.0.0.1"), "a.com", none, "[127.0.0.1]")
	f("CNAME", zone("a.com. 60 CNAME b.com.", "b.com. 60 CNAME c.com.", "c.com. 60 A 192.0.2.1"), "a.com", none, "[192.0.2.1]")
	f("CNAME loop", zone("a.com. 60 CNAME b.com.", "b.com. 60 CNAME a.com."), "a.com", none, dnsFailed(exchange.CauseCNAMEChain))
	f("CNAME to itself", zone("a.com. 60 CNAME a.com."), "a.com", none, dnsFailed(exchange.CauseCNAMEChain))
	f("CNAME to nothing", zone("a.com. 60 CNAME b.com.", "b.com. 60 TXT x"), "a.com", none, notFound(exchange.CauseNoAddress))
	f("NXDOMAIN", zone(), "a.com", none, notFound(exchange.CauseNoSuchName))
	f("no data", zone("a.com. 60 TXT x"), "a.com", none, notFound(exchange.CauseNoAddress))
	f("SERVFAIL", code(dns.RcodeServerFailure), "a.com", none, dnsFailed(exchange.CauseServFail))
	f("REFUSED", code(dns.RcodeRefused), "a.com", none, dnsFailed(exchange.CauseDNSRefused))
	f("silence", silence, "a.com", short, timedOut)
	f("unrelated records", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR("evil.com. 60 A 192.0.2.66")
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	}, "a.com", none, notFound(exchange.CauseNoAddress))
	f("alias without its addresses", func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "b.com." {
			zone("b.com. 60 A 192.0.2.2")(w, q)
			return
		}
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR("a.com. 60 CNAME b.com.")
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	}, "a.com", none, "[192.0.2.2]")
	f("aliases without end", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 60 CNAME x." + q.Question[0].Name)
		m.Answer = append(m.Answer, rr)
		_ = w.WriteMsg(m)
	}, "a.com", none, dnsFailed(exchange.CauseCNAMEChain))
	f("truncated", func(w dns.ResponseWriter, q *dns.Msg) {
		if w.RemoteAddr().Network() == "udp" {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
			return
		}
		zone("a.com. 60 A 192.0.2.3")(w, q)
	}, "a.com", none, "[192.0.2.3]")
	f("wrong id", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Id ^= 1
		zone("a.com. 60 A 192.0.2.66")(w, q)
	}, "a.com", short, timedOut)
	f("wrong id, then right", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Id ^= 1
		zone("a.com. 60 A 192.0.2.66")(w, q)
		q.Id ^= 1
		zone("a.com. 60 A 192.0.2.4")(w, q)
	}, "a.com", none, "[192.0.2.4]")
	f("wrong question, then right", func(w dns.ResponseWriter, q *dns.Msg) {
		other := q.Copy()
		other.Question[0].Name = "evil.com."
		zone("evil.com. 60 A 192.0.2.66")(w, other)
		zone("a.com. 60 A 192.0.2.4")(w, q)
	}, "a.com", none, "[192.0.2.4]")
	f("wrong type of question", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Question[0].Qtype = dns.TypeMX
		zone("a.com. 60 A 192.0.2.66")(w, q)
	}, "a.com", short, timedOut)
	f("not an answer", func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(q) }, "a.com", short, timedOut)
	f("malformed", func(w dns.ResponseWriter, q *dns.Msg) {
		packet, _ := new(dns.Msg).SetReply(q).Pack()
		packet[7] = 1 // an answer is announced
		_, _ = w.Write(append(packet, 0xff))
	}, "a.com", none, dnsFailed(exchange.CauseDNSMalformed))
	f("no EDNS", func(w dns.ResponseWriter, q *dns.Msg) {
		if q.IsEdns0() != nil {
			code(dns.RcodeFormatError)(w, q)
			return
		}
		zone("a.com. 60 A 192.0.2.5")(w, q)
	}, "a.com", none, "[192.0.2.5]")
	f("localhost", silence, "localhost", none, "[127.0.0.1 ::1]")
	f("below localhost", silence, "a.localhost", Options{IPv6: true}, "[::1]")
	f("no name", silence, strings.Repeat("a.", 200), none, notFound(exchange.CauseNoSuchName))

	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("a.com. 60 A 192.0.2.%d", i))
	}
	t.Run("many addresses", func(t *testing.T) {
		r := newResolver(t, none, serve(t, zone(many...)))
		if got := r.Lookup(t.Context(), "a.com", 0); len(got.Addrs) != maxAddrs {
			t.Errorf("got %d addresses", len(got.Addrs))
		}
	})
}

// A server that fails loses no name while another answers.
func TestServers(t *testing.T) {
	t.Parallel()
	good := serve(t, zone("a.com. 60 A 192.0.2.1"))
	closed := closedPort(t)
	for name, bad := range map[string]string{"SERVFAIL": serve(t, code(dns.RcodeServerFailure)), "silence": serve(t, silence), "closed port": closed} {
		r := newResolver(t, Options{First: 50 * time.Millisecond}, bad, good)
		for i := range 8 { // the first server is random
			r.cache = newCache(10)
			if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
				t.Errorf("%s, lookup %d: got %s", name, i, got)
			}
		}
	}
	// Each question has half a second to be refused, which is enough on a busy machine, too: a later refusal is silence.
	r := newResolver(t, Options{First: 500 * time.Millisecond, Total: 2 * time.Second}, closed)
	if got := r.Lookup(t.Context(), "a.com", 0); got.Outcome != exchange.DNSFailed || got.Cause != exchange.CauseDNSNetwork {
		t.Errorf("closed port alone: got %s", tell(got))
	}
}

// A dead server delays a few look-ups, not each that would ask it first.
func TestDeadServerIsLeftAlone(t *testing.T) {
	var asked atomic.Int32
	dead := serve(t, func(dns.ResponseWriter, *dns.Msg) { asked.Add(1) })
	r := newResolver(t, Options{First: 5 * time.Millisecond}, dead, serve(t, zone("a.com. 60 A 192.0.2.1")))
	for range 100 {
		r.cache = newCache(10)
		if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
			t.Fatalf("got %s", got)
		}
	}
	if n := asked.Load(); n == 0 || n > 20 { // by chance alone: 50
		t.Errorf("the dead server was asked %d times", n)
	}
}

func TestCancel(t *testing.T) {
	r := newResolver(t, Options{Total: time.Minute}, serve(t, silence))
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan Answer)
	for range 3 {
		go func() { answers <- r.Lookup(ctx, "a.com", 0) }()
	}
	cancel()
	for range 3 {
		if got := <-answers; got.Outcome != exchange.DNSTimeout {
			t.Errorf("got %s", tell(got))
		}
	}
}

// Concurrent look-ups of a name ask the server once. Later ones do not ask it before the answer expires.
func TestOneFlight(t *testing.T) {
	var questions atomic.Int32
	release := make(chan struct{})
	inner := zone("a.com. 60 A 192.0.2.1")
	r := newResolver(t, Options{}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		questions.Add(1)
		<-release
		inner(w, q)
	}))
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
				t.Errorf("got %s", got)
			}
		})
	}
	close(release)
	wait.Wait()
	again := r.Lookup(t.Context(), "a.com", 0)
	if n := questions.Load(); n != 1 || again.Took != 0 {
		t.Errorf("%d questions, the last answer took %v", n, again.Took)
	}
	if left := time.Until(again.Until); left <= 50*time.Second || left > time.Minute {
		t.Errorf("the answer is valid for %v", left)
	}
}

// The absence of a name is cached for as long as its zone says. Failures of servers are not cached.
func TestNegative(t *testing.T) {
	t.Parallel()
	var questions atomic.Int32
	r := newResolver(t, Options{First: 10 * time.Second}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		questions.Add(1)
		rcode := dns.RcodeNameError
		if q.Question[0].Name == "b.com." {
			rcode = dns.RcodeServerFailure
		}
		m := new(dns.Msg).SetRcode(q, rcode)
		rr, _ := dns.NewRR("com. 900 SOA a. b. 1 2 3 4 120")
		m.Ns = append(m.Ns, rr)
		_ = w.WriteMsg(m)
	}))
	first := r.Lookup(t.Context(), "a.com", 0)
	r.Lookup(t.Context(), "a.com", 0)
	if n := questions.Load(); n != 1 {
		t.Errorf("%d questions about a name that does not exist", n)
	}
	if left := time.Until(first.Until); left <= 110*time.Second || left > 2*time.Minute {
		t.Errorf("the answer is valid for %v", left)
	}
	r.Lookup(t.Context(), "b.com", 0)
	before := questions.Load()
	r.Lookup(t.Context(), "b.com", 0)
	if questions.Load() == before {
		t.Error("a failure was cached")
	}
}

func TestCacheExpiresAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(640)
		put := func(host string, ttl time.Duration) {
			_, f, lead := c.begin(host, time.Now())
			if f == nil || !lead {
				t.Fatalf("%s is cached or in flight", host)
			}
			c.finish(f, Answer{Addrs: []netip.Addr{netip.IPv6Loopback()}, Until: time.Now().Add(ttl)}, true)
		}
		put("a", time.Minute)
		time.Sleep(59 * time.Second)
		if _, f, _ := c.begin("a", time.Now()); f != nil {
			t.Error("expired too early")
		}
		time.Sleep(time.Second)
		put("a", time.Minute) // fails if it is still cached
		for i := range 10_000 {
			put(fmt.Sprint(i), time.Hour)
		}
		size := 0
		for i := range c.shards {
			size += len(c.shards[i].answers)
		}
		if size > 640 {
			t.Errorf("%d answers are cached", size)
		}
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	r := newResolver(t, Options{Rate: 0.001}, serve(t, zone("a.com. 60 A 192.0.2.1", "b.com. 60 A 192.0.2.1")))
	if got := tell(r.Lookup(t.Context(), "a.com", 0)); got != "[192.0.2.1]" {
		t.Errorf("got %s", got)
	}
	// The rate allows the next question in a quarter of an hour, after this context's end.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got := r.Lookup(ctx, "b.com", 0); got.Outcome != exchange.DNSTimeout {
		t.Errorf("got %s", tell(got))
	}
}

// A leader whose context ends while it waits for the rate fails alone. Its followers begin again.
func TestRateOfLeader(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	noData := zone("a.com. 60 TXT x")
	r := newResolver(t, Options{Rate: 0.001}, serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		close(asked)
		<-release
		noData(w, q)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var leader sync.WaitGroup
	leader.Go(func() { r.Lookup(ctx, "a.com", 0) })
	<-asked
	_, f, lead := r.cache.begin("a.com", time.Now())
	if lead {
		t.Fatal("there is no leader")
	}
	close(release) // the rate allows the next question, for AAAA, in a quarter of an hour
	<-f.done
	if f.good {
		t.Errorf("followers got the leader's answer, %s", tell(f.answer))
	}
	leader.Wait()
}

func TestSystemServers(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(systemServers(path), " "); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	f("nameserver 192.0.2.1\nnameserver 2001:db8::1\noptions ndots:1\n", "192.0.2.1:53 [2001:db8::1]:53")
	f("nameserver fe80::1%eth0\n", "[fe80::1%eth0]:53")
	// Invalid addresses are ignored, as by the system's resolver.
	f("nameserver ns.example\nnameserver 192.0.2.1\nnameserver\n", "192.0.2.1:53")
	f("nameserver ns.example\n", "127.0.0.1:53")
	f("", "127.0.0.1:53")
	if got := strings.Join(systemServers(filepath.Join(t.TempDir(), "absent")), " "); got != "127.0.0.1:53" {
		t.Errorf("without a file: got %s", got)
	}
}

func TestHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	const text = "# comment\n192.0.2.1 a.example A2.example # more\n::1 a.example\nnonsense b.example\n192.0.2.9\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(opts Options, host, want string) {
		t.Helper()
		opts.Hosts, opts.Total = path, 10*time.Millisecond
		r, err := New([]string{serve(t, silence)}, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got := tell(r.Lookup(t.Context(), host, 0)); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
	}
	f(Options{}, "a.example", "[192.0.2.1 ::1]")
	f(Options{IPv6: true}, "a.example", "[::1]")
	f(Options{}, "a2.example", "[192.0.2.1]")
	f(Options{IPv6: true}, "a2.example", tell(failed(exchange.DNSNotFound, exchange.CauseNoAddress)))
	f(Options{}, "b.example", tell(failed(exchange.DNSTimeout, exchange.CauseDNSTimeout)))
}

func TestNewRefuses(t *testing.T) {
	for _, server := range []string{"", "ns.example", "1.1.1.1:x", "1.1.1.1:0", "1.1.1.1:53:53"} {
		if _, err := New([]string{server}, Options{}); err == nil {
			t.Errorf("%q was accepted as a server", server)
		}
	}
	if _, err := New(slices.Repeat([]string{"1.1.1.1"}, maxServers+1), Options{}); err == nil {
		t.Error("more than maxServers servers were accepted")
	}
	if _, err := New([]string{"1.1.1.1"}, Options{IPv4: true, IPv6: true}); err == nil {
		t.Error("two exclusive families were accepted")
	}
	r, err := New([]string{"1.1.1.1", "[2606:4700::1111]", "2606:4700::1111", "[::1]:5353", "fe80::1%eth0", "[fe80::1%eth0]:5353"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []netip.AddrPort
	for _, s := range r.servers {
		got = append(got, s.addr)
	}
	if want := "[1.1.1.1:53 [2606:4700::1111]:53 [2606:4700::1111]:53 [::1]:5353 [fe80::1%eth0]:53 [fe80::1%eth0]:5353]"; fmt.Sprint(got) != want {
		t.Errorf("got %s", got)
	}
}

// A look-up through an open socket.
//
//	go test ./fetcher/resolve -run '^$' -bench Lookup -benchmem
func BenchmarkLookup(b *testing.B) {
	r := newResolver(b, Options{}, serve(b, zone("a.com. 60 A 192.0.2.1")))
	b.ReportAllocs()
	for b.Loop() {
		if a := r.ask(b.Context(), new(flight), "a.com", 0, r.families); a.Outcome != 0 {
			b.Fatal(tell(a))
		}
	}
}
