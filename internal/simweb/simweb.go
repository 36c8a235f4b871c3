// Package simweb answers one question: against which web? It is a simulated web of any number of hosts on loopback,
// with its own names, addresses, certificates and misbehaviour, for demonstrations, tests and benchmarks that must
// neither leave the machine nor need root.
//
// Everything that a host does follows from a seed and its name, so that any list of hosts can be scanned, and what a
// scan of it ought to find can be told without asking. The files are laid out by that:
//
//   - behaviours.go is the table of what hosts do, with its rows in zoo_*.go; reply.go, coding.go and breaks.go are the
//     vocabulary that they are written in; outcomes.go tells users of it;
//   - world.go is the pure half: which behaviour, address and file a host has; bodies.go makes the files;
//   - expect.go walks a scanner's way through the pure half, and writes down what it finds: the truth;
//   - serve.go, tls.go and dns.go are the same on sockets, and accepts.go remembers who came when;
//   - names.go makes lists of hosts up;
//   - chaos.go is a bad network before all of it.
package simweb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// Config says what a simulated web is like. The zero value is a good one.
type Config struct {
	Seed uint64 // another seed is another web

	Addresses int // loopback addresses that hosts share, 2 to 4096; 0: 512

	HTTPPort, TLSPort, DNSPort int // 0: any that is free

	Hold time.Duration // how long silent hosts hold a connection at most; 0: 60 s
	Slow time.Duration // the longest wait of slow hosts; 0: 1 s

	HotShare float64 // share of the hosts that live at one address, HotAddr, besides those named *.hot.test

	Only   []string           // behaviours to keep to, by their shares among each other
	Shares map[string]float64 // shares by behaviour, instead of the table's; ok takes the rest
	Force  map[string]string  // behaviours by host

	Bodies  int     // distinct files made up, 64 to 65536; 0: 1024, about 11 kB each once all were asked for
	AIShare float64 // share of the files that name an AI crawler's token; 0: 0.2, negative: none
	Corpus  string  // path of a pack of real files to serve instead: zstd of (uint32 little-endian length, body)…

	RecordAccepts bool // keep when each connection was taken, for Accepts, Busiest and Record

	oneAddress bool // as on systems that route no other loopback address
}

const (
	maxAddresses  = 4096
	maxCounted    = 1 << 16 // flaky hosts remembered a shard
	shards        = 64
	portAttempts  = 20
	defaultBodies = 1024
)

func (c *Config) fill() error {
	def := func(field *int, value, low, high int, what string) error {
		if *field == 0 {
			*field = value
		}
		if *field < low || *field > high {
			return fmt.Errorf("cannot start a web: %s %d is not from %d to %d", what, *field, low, high)
		}
		return nil
	}
	if c.Hold <= 0 {
		c.Hold = 60 * time.Second
	}
	if c.Slow <= 0 {
		c.Slow = time.Second
	}
	if c.AIShare == 0 {
		c.AIShare = 0.2
	}
	c.AIShare = min(max(c.AIShare, 0), 1)
	return errors.Join(
		def(&c.Addresses, 512, 2, maxAddresses, "number of addresses"),
		def(&c.Bodies, defaultBodies, 64, 1<<16, "number of files"),
	)
}

// Web is a running simulated web. Its methods may be called at once from many goroutines.
type Web struct {
	cfg       Config
	world     *world
	authority *authority
	tls       *tls.Config
	names     *nameServer
	listeners []*net.TCPListener
	plugs     []net.Conn // what keeps black holes black
	reserved  []func()   // what keeps others from where nobody is to be
	places    map[netip.Addr]*place
	ledger    ledger

	accepts, handshakes, requests, questions, open, mostOpen atomic.Int64

	done    chan struct{}
	once    sync.Once
	running sync.WaitGroup // accept loops, connections, name servers
	lives   [shards]lives
	counts  [shards]counts
}

// lives are open connections.
type lives struct {
	mu    sync.Mutex
	conns map[*net.TCPConn]struct{} // nil once the web is closed
}

// counts are requests so far to hosts whose answers depend on it.
type counts struct {
	mu   sync.Mutex
	seen map[countKey]uint8
}

type countKey struct {
	host   uint64        // hash
	scheme origin.Scheme // Auto: questions about its name
}

// place is one address where somebody accepts.
type place struct {
	addr netip.Addr

	mu  sync.Mutex
	due time.Time // see crowded
}

// Start opens a simulated web. It is closed by Close, or when ctx ends.
func Start(ctx context.Context, cfg Config) (*Web, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	cfg.oneAddress = cfg.oneAddress || !routed(placeAt(0))
	world, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	if world.bodies, err = newBodyPool(cfg); err != nil {
		return nil, err
	}
	w := &Web{cfg: cfg, world: world, done: make(chan struct{}), places: map[netip.Addr]*place{}, ledger: ledger{begun: time.Now()}}
	for i := range shards {
		w.lives[i].conns = map[*net.TCPConn]struct{}{}
		w.counts[i].seen = map[countKey]uint8{}
	}
	if w.authority, err = newAuthority(time.Now()); err != nil {
		return nil, err
	}
	w.tls = w.tlsConfig()
	if err := w.listen(); err != nil {
		w.Close()
		return nil, err
	}
	if w.names, err = w.listenNames(); err != nil {
		w.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, w.Close)
	w.running.Go(func() { <-w.done; stop() })
	return w, nil
}

// Addresses of the simulated web, apart from each other and from 127.0.0.1, where other programs listen.
//
//	127.7.0.1–4     a black hole
//	127.8.0.1–4     plain HTTP only
//	127.9.0.1–4     nobody
//	127.10.0.1 …    everybody else; the first is the hot one
//	::1             hosts that have no other, where the system has IPv6
func placeAt(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(10 + i%190), byte(i / 190 * 7 % 250), byte(1 + i%250)})
}

func placesFrom(second byte, n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = netip.AddrFrom4([4]byte{127, second, 0, byte(1 + i)})
	}
	return all
}

// routed reports whether the system takes an address for its own. Linux does so with all of 127.0.0.0/8, macOS with
// 127.0.0.1 alone.
func routed(addr netip.Addr) bool {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// listen opens the two ports at every address.
func (w *Web) listen() error {
	wd := w.world
	if !w.cfg.oneAddress {
		wd.hot = placeAt(0)
		for i := 1; i < w.cfg.Addresses; i++ {
			wd.ordinary = append(wd.ordinary, placeAt(i))
		}
		wd.holes, wd.plain, wd.nobody = placesFrom(7, blackHoles), placesFrom(8, 4), placesFrom(9, 4)
	} else {
		wd.single = true
		wd.hot = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		wd.ordinary = []netip.Addr{wd.hot}
	}
	wd.six = routed(netip.IPv6Loopback())
	var lastErr error
	for range portAttempts {
		err := w.listenAll()
		if err == nil {
			return nil
		}
		lastErr = err
		w.closeDoors()
		w.running.Wait()
		w.listeners, w.plugs, w.reserved = nil, nil, nil
		if w.cfg.HTTPPort != 0 || w.cfg.TLSPort != 0 {
			break // wished-for ports are not exchanged for others
		}
	}
	return fmt.Errorf("cannot listen for the simulated web: %w", lastErr)
}

func (w *Web) listenAll() error {
	wd := w.world
	wd.httpPort, wd.tlsPort = uint16(w.cfg.HTTPPort), uint16(w.cfg.TLSPort)
	type door struct {
		l      *net.TCPListener
		addr   netip.Addr
		secure bool
	}
	var doors []door
	open := func(addr netip.Addr, port *uint16) (*net.TCPListener, error) {
		// Keep-alive probes are two system calls a connection that lives for a millisecond.
		lc := net.ListenConfig{KeepAlive: -1}
		l, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, *port).String())
		if err != nil {
			return nil, err
		}
		tcp := l.(*net.TCPListener)
		w.listeners = append(w.listeners, tcp)
		*port = tcp.Addr().(*net.TCPAddr).AddrPort().Port()
		return tcp, nil
	}
	welcome := func(addr netip.Addr, port *uint16, secure bool) error {
		l, err := open(addr, port)
		doors = append(doors, door{l, addr, secure})
		return err
	}
	lose := func(addr netip.Addr, port *uint16) error {
		l, err := open(addr, port)
		if err != nil {
			return err
		}
		c, err := plug(l)
		if err != nil {
			return err
		}
		w.plugs = append(w.plugs, c)
		return nil
	}
	everybody := append([]netip.Addr{wd.hot}, wd.ordinary...)
	if wd.single {
		everybody = everybody[:1]
	}
	if wd.six {
		everybody = append(everybody, netip.IPv6Loopback())
	}
	for _, addr := range everybody {
		if err := errors.Join(welcome(addr, &wd.httpPort, false), welcome(addr, &wd.tlsPort, true)); err != nil {
			return err
		}
	}
	for _, addr := range wd.plain {
		if err := welcome(addr, &wd.httpPort, false); err != nil {
			return err
		}
	}
	for _, addr := range wd.holes {
		if err := errors.Join(lose(addr, &wd.httpPort), lose(addr, &wd.tlsPort)); err != nil {
			return err
		}
	}
	// Where nobody is to listen, nobody may, now or later: what dials 0.0.0.0 comes to 127.0.0.1.
	quiet := map[netip.Addr][]uint16{}
	if !wd.single {
		quiet[netip.AddrFrom4([4]byte{127, 0, 0, 1})] = []uint16{wd.httpPort, wd.tlsPort}
	}
	for _, addr := range wd.plain {
		quiet[addr] = []uint16{wd.tlsPort}
	}
	for _, addr := range wd.nobody {
		quiet[addr] = []uint16{wd.httpPort, wd.tlsPort}
	}
	for addr, ports := range quiet {
		for _, port := range ports {
			release, err := reserve(netip.AddrPortFrom(addr, port))
			if err != nil {
				return err
			}
			w.reserved = append(w.reserved, release)
		}
	}
	for _, d := range doors {
		p := w.places[d.addr]
		if p == nil {
			p = &place{addr: d.addr}
			w.places[d.addr] = p
		}
		w.running.Add(1)
		go w.accept(d.l, p, d.secure)
	}
	return nil
}

// Close ends the web: no socket and no goroutine of it is left when it returns. It may be called again.
func (w *Web) Close() {
	w.once.Do(func() {
		close(w.done)
		w.closeDoors()
		if w.names != nil {
			w.names.close()
		}
		for i := range w.lives {
			s := &w.lives[i]
			s.mu.Lock()
			for c := range s.conns {
				_ = c.Close()
			}
			s.conns = nil
			s.mu.Unlock()
		}
	})
	w.running.Wait()
}

// closeDoors closes what listens, so that whoever accepts there ends.
func (w *Web) closeDoors() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	for _, c := range w.plugs {
		_ = c.Close()
	}
	for _, release := range w.reserved {
		release()
	}
}

func (w *Web) closed() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// sleep waits, and reports whether the web still stands.
func (w *Web) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.done:
		return false
	}
}

// enter notes an open connection, and reports false when the web is closed.
func (w *Web) enter(c *net.TCPConn) bool {
	s := w.livesOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	w.running.Add(1)
	now := w.open.Add(1)
	for most := w.mostOpen.Load(); now > most && !w.mostOpen.CompareAndSwap(most, now); most = w.mostOpen.Load() {
	}
	return true
}

func (w *Web) leave(c *net.TCPConn) {
	s := w.livesOf(c)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close()
	w.open.Add(-1)
	w.running.Done()
}

// livesOf spreads connections over the shards by their client's port.
func (w *Web) livesOf(c *net.TCPConn) *lives {
	port := 0
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		port = addr.Port
	}
	return &w.lives[port%shards]
}

// count counts a request to a host by a scheme and returns its number, from 1.
func (w *Web) count(host string, scheme origin.Scheme) int {
	key := countKey{xxhash.Sum64String(host), scheme}
	s := &w.counts[key.host%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.seen[key]
	if n == 0 && len(s.seen) >= maxCounted {
		clear(s.seen)
	}
	if n < 255 {
		n++
	}
	s.seen[key] = n
	return int(n)
}

// Forget makes every host as if it had never been asked: hosts that fail at first fail again.
func (w *Web) Forget() {
	for i := range w.counts {
		s := &w.counts[i]
		s.mu.Lock()
		clear(s.seen)
		s.mu.Unlock()
	}
}

// DNSAddr is where the name server listens, over UDP and TCP: the value of --resolver.
func (w *Web) DNSAddr() netip.AddrPort { return w.names.addr }

// HTTPPort is the port of plain HTTP at every address.
func (w *Web) HTTPPort() int { return int(w.world.httpPort) }

// TLSPort is the port of HTTPS at every address.
func (w *Web) TLSPort() int { return int(w.world.tlsPort) }

// ConnectTo returns the values of --connect-to that lead ports 80 and 443 of every address here.
func (w *Web) ConnectTo() []string {
	return []string{":80::" + strconv.Itoa(w.HTTPPort()), ":443::" + strconv.Itoa(w.TLSPort())}
}

// CAPool holds the authority that signed the certificates of hosts that are well.
func (w *Web) CAPool() *x509.CertPool { return w.authority.pool }

// CAPEM is that authority's certificate as PEM.
func (w *Web) CAPEM() []byte { return w.authority.pem() }

// SingleAddress reports whether the whole web lives at 127.0.0.1, because the system routes no other address of
// 127.0.0.0/8 (macOS). Rates by address mean little then, and no connection can be refused: it is reset.
func (w *Web) SingleAddress() bool { return w.world.single }

// HotAddr is the address that the hosts of Config.HotShare and *.hot.test share.
func (w *Web) HotAddr() netip.Addr { return w.world.hot }

// Stats are totals since the start.
type Stats struct {
	Accepts    int64 // connections taken
	Handshakes int64 // TLS handshakes that ended well
	Requests   int64 // heads read
	Questions  int64 // of the DNS
	Open       int64 // connections now
}

// Stats returns the totals so far.
func (w *Web) Stats() Stats {
	s := Stats{Accepts: w.accepts.Load(), Handshakes: w.handshakes.Load(), Requests: w.requests.Load(), Questions: w.questions.Load(), Open: w.open.Load()}
	return s
}
