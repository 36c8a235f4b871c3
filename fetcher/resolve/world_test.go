package resolve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/memnet"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// world is a network in memory with the clock of a bubble (see testing/synctest). It is the Network of resolvers, and
// notes what they send, and when. An answer comes 10 ms after its question. All times in tests are since the world
// began.
type world struct {
	*testing.T
	host    memnet.Host // the resolvers'
	begun   time.Time
	servers int  // so far, at addresses in order
	batched bool // names are looked up by LookupAll, else by Lookup: both must do the same

	mu         sync.Mutex
	sent       []sentQuestion
	open, most int      // sockets of resolvers, connections included: now, and at most so far
	sockets    []string // when sockets were opened and closed
}

type sentQuestion struct {
	after time.Duration
	to    netip.AddrPort
	what  string
}

// oneWay is how long a datagram, or a SYN, is on its way.
const oneWay = 5 * time.Millisecond

// in runs a test in two worlds of its own: names are looked up singly in the first, and in batches in the second. No
// goroutine and no socket may be left at the end. Go's race detector has only the first: it may crash when many
// goroutines of a bubble read timers that are due at once, as those of a batch do whose answers are late. TestBatch and
// others look at batches under it.
func in(t *testing.T, test func(w *world)) {
	t.Helper()
	for _, batched := range []bool{false, true} {
		if t.Failed() || batched && raceEnabled {
			return
		}
		inWorld(t, batched, test)
		if t.Failed() && batched {
			t.Log("in batches")
		}
	}
}

func inWorld(t *testing.T, batched bool, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(func(_, _ netip.Addr) memnet.Link { return memnet.Link{Latency: oneWay} })
		w := &world{T: t, host: memnet.Host{Net: network, Addr: netip.MustParseAddr("10.0.0.1")}, begun: time.Now(),
			batched: batched}
		t.Cleanup(func() {
			synctest.Wait()
			if w.open != 0 {
				t.Errorf("%d sockets are left", w.open)
			}
		})
		test(w)
	})
}

// run is in, as a subtest.
func run(t *testing.T, name string, test func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { in(t, test) })
}

// either runs a test in new worlds until each of the wanted stories was its result, because a Resolver chooses among
// servers at random. It may have no other result.
func either(t *testing.T, test func(w *world) string, want ...string) {
	t.Helper()
	seen := map[string]bool{}
	for range 200 {
		in(t, func(w *world) {
			got := test(w)
			if seen[got] = true; !slices.Contains(want, got) {
				t.Errorf("got\n\t%s\nwant\n\t%s", got, strings.Join(want, "\nor\n\t"))
			}
		})
		if len(seen) == len(want) || t.Failed() {
			return
		}
	}
	t.Errorf("only %q", slices.Collect(maps.Keys(seen)))
}

// since returns the time since the world began.
func (w *world) since() time.Duration { return time.Since(w.begun) }

// address returns that of the nth server, from 1. While nothing runs there, it refuses datagrams and connections.
func (w *world) address(nth int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(nth)}), 53)
}

// serve runs the nth server until the test ends.
func (w *world) serve(nth int, script script) *scripted {
	w.Helper()
	host := memnet.Host{Net: w.host.Net, Addr: w.address(nth).Addr()}
	packets, err := host.ListenPacket(53)
	if err != nil {
		w.Fatal(err)
	}
	listener, err := host.Listen(53)
	if err != nil {
		w.Fatal(err)
	}
	return serve(w, packets, listener, script)
}

// resolver returns a Resolver that asks further servers, which have these scripts, until the test ends. One without a
// script does not run.
func (w *world) resolver(opts Options, scripts ...script) *Resolver {
	w.Helper()
	var servers []string
	for _, each := range scripts {
		w.servers++
		if each != nil {
			w.serve(w.servers, each)
		}
		servers = append(servers, w.address(w.servers).String())
	}
	opts.Network = w
	return newResolver(w, opts, servers...)
}

// asks returns a Resolver whose look-ups have three seconds, so that silence causes no probe.
func (w *world) asks(scripts ...script) *Resolver {
	w.Helper()
	return w.resolver(Options{Total: 3 * time.Second}, scripts...)
}

// newResolver returns a Resolver, without a file of hosts by default.
func newResolver(tb testing.TB, opts Options, servers ...string) *Resolver {
	tb.Helper()
	if opts.Hosts == "" {
		opts.Hosts = "-"
	}
	r, err := New(servers, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

// Packets implements Network.
func (w *world) Packets(server netip.AddrPort) (Packets, error) {
	packets, err := w.host.DialPackets(server)
	if err != nil {
		return nil, err
	}
	w.opens(1, "opened")
	return &notedPackets{Packets: packets, world: w, server: server}, nil
}

// DialContext implements Network.
func (w *world) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.note(netip.MustParseAddrPort(address), "TCP")
	w.opens(1, "dialled")
	conn, err := w.host.DialContext(ctx, network, address)
	if err != nil {
		w.opens(-1, "failed")
		return nil, err
	}
	return &notedConn{Conn: conn, world: w}, nil
}

func (w *world) opens(n int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
	w.most = max(w.most, w.open)
	w.sockets = append(w.sockets, fmt.Sprint(w.since(), " ", what))
}

// note notes a question.
func (w *world) note(to netip.AddrPort, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, sentQuestion{w.since(), to, what})
}

// questions returns when which questions were sent, in order: "0s, 400ms plain". Unless more is said, they ask by UDP
// and with EDNS for the IPv4 addresses of a.com.
func (w *world) questions() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.sent, func(a, b sentQuestion) int {
		return cmp.Or(cmp.Compare(a.after, b.after),
			cmp.Compare(a.what, b.what))
	})
	var words []string
	for _, q := range w.sent {
		word := q.after.String()
		if w.servers > 1 {
			word += " to " + fmt.Sprint(q.to.Addr().As4()[3])
		}
		words = append(words, strings.TrimSpace(word+" "+q.what))
	}
	return strings.Join(words, ", ")
}

// times returns when questions were sent to the nth server whose description begins so.
func (w *world) times(nth int, what string) (all []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.sent {
		if q.to == w.address(nth) && strings.HasPrefix(q.what, what) {
			all = append(all, q.after)
		}
	}
	return all
}

// find looks a name up.
func (w *world) find(ctx context.Context, r *Resolver, host string) Answer {
	return w.findAll(ctx, r, host)[0]
}

// findAll looks names up at the same time.
func (w *world) findAll(ctx context.Context, r *Resolver, hosts ...string) []Answer {
	answers := make([]Answer, len(hosts))
	if !w.batched {
		var all sync.WaitGroup
		for i, host := range hosts {
			all.Go(func() { answers[i] = r.Lookup(ctx, host) })
		}
		all.Wait()
		return answers
	}
	queries := make([]*Query, len(hosts))
	for i, host := range hosts {
		queries[i] = &Query{Host: host}
	}
	all := make(chan *Query, len(hosts))
	r.LookupAll(ctx, queries, func(some []*Query) {
		for _, q := range some {
			all <- q
		}
	})
	for range hosts {
		q := <-all
		answers[slices.Index(queries, q)] = q.Answer
	}
	return answers
}

// lookUp looks a.com up, and returns the whole story: "QUESTIONS; when it ended, and how".
func (w *world) lookUp(r *Resolver) string {
	w.Helper()
	begun := w.since()
	got := w.find(w.Context(), r, "a.com")
	if took := w.since() - begun; got.Took != took {
		w.Errorf("it says that it took %v of %v", got.Took, took)
	}
	return fmt.Sprint(w.questions(), "; ", w.since(), " ", tell(got))
}

// want compares what happened with what must.
func (w *world) want(got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("got\n\t%s\nwant\n\t%s", got, want)
	}
}

// notedPackets notes the questions that it sends.
type notedPackets struct {
	*memnet.Packets
	world  *world
	server netip.AddrPort
	closed sync.Once
}

// Send implements Packets.
func (p *notedPackets) Send(packets [][]byte) (int, error) {
	for _, packet := range packets {
		m := new(dns.Msg)
		if err := m.Unpack(packet); err != nil {
			p.world.Error(err)
		}
		var words []string
		switch q := m.Question[0]; {
		case q.Qtype == dns.TypeNS && q.Name == ".":
			words = append(words, "probe")
		case q.Name != "a.com.":
			words = append(words, fmt.Sprintf("%.12s", q.Name))
		}
		if m.Question[0].Qtype == dns.TypeAAAA {
			words = append(words, "AAAA")
		}
		if m.IsEdns0() == nil {
			words = append(words, "plain")
		}
		p.world.note(p.server, strings.Join(words, " "))
	}
	return p.Packets.Send(packets)
}

// Close implements Packets.
func (p *notedPackets) Close() error {
	p.closed.Do(func() { p.world.opens(-1, "closed") })
	return p.Packets.Close()
}

type notedConn struct {
	net.Conn
	world  *world
	closed sync.Once
}

// Close implements net.Conn.
func (c *notedConn) Close() error {
	c.closed.Do(func() { c.world.opens(-1, "closed") })
	return c.Conn.Close()
}

// tell writes an answer as tests expect it.
func tell(a Answer) string {
	switch {
	case a.Outcome != 0:
		return fmt.Sprintf("%v: %v", a.Outcome, a.Cause)
	}
	return fmt.Sprint(a.Addrs)
}

// The results without addresses.
var (
	noSuchName  = tell(failed(exchange.DNSNotFound, exchange.CauseNoSuchName))
	noAddress   = tell(failed(exchange.DNSNotFound, exchange.CauseNoAddress))
	servFail    = tell(failed(exchange.DNSFailed, exchange.CauseServFail))
	dnsRefused  = tell(failed(exchange.DNSFailed, exchange.CauseDNSRefused))
	malformed   = tell(failed(exchange.DNSFailed, exchange.CauseDNSMalformed))
	badChain    = tell(failed(exchange.DNSFailed, exchange.CauseCNAMEChain))
	unreachable = tell(failed(exchange.DNSFailed, exchange.CauseDNSNetwork))
	timedOut    = tell(failed(exchange.DNSTimeout, exchange.CauseDNSTimeout))

	// silence is the story of a look-up whose only server sends no answer, and brokenTCP that of one whose answer is
	// truncated and cannot be read by TCP at once.
	silence   = "0s, 400ms plain, 1s plain, 1.9s plain; 3s " + timedOut
	brokenTCP = "0s, 10ms TCP, 130ms plain, 140ms TCP; 210ms " + malformed
)

// logged returns Options with a log, and its text.
func logged(opts Options) (Options, *logText) {
	var log logText
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	return opts, &log
}

// logText is the text of a log.
type logText struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (w *logText) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(p)
}

func (w *logText) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}
