// Package simweb answers one question: against which web? It is a simulated web of any number of hosts on loopback, or
// on a Network of the caller's, with its own names, addresses, certificates and misbehaviour, for demonstrations, tests
// and benchmarks without network or root. README.md says how to use it.
//
// Everything that a host does follows from a seed and its name. So any list of hosts can be scanned, and what a scan
// must find is computed without requests. The files:
//
//   - behaviours.go is the table of behaviours, with its rows in zoo_*.go, which are written with reply.go, coding.go and
//     breaks.go; outcomes.go documents them;
//   - world.go is the pure half: a host's behaviour, address and file; bodies.go makes the files;
//   - expect.go computes the truth: what a scanner finds in the pure half;
//   - serve.go, tls.go and dns.go serve it on the sockets of network.go; accepts.go records connections;
//   - silence.go shortens the wait for silent hosts, for clients in the same process;
//   - names.go makes up lists of hosts;
//   - chaos.go and faults.go are a bad network in front of the web.
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

	"github.com/bulkscan/bulkscan/origin"
)

// Config configures a simulated web. The zero value is ready to use.
type Config struct {
	Seed uint64 // another seed is another web

	Addresses int // loopback addresses that hosts share, 2 to 4096; 0: 512

	HTTPPort, TLSPort, DNSPort int // 0: any free port

	Hold time.Duration // how long silent hosts hold a connection at most; 0: 60 s
	Slow time.Duration // the longest wait of slow hosts; 0: 1 s

	HotShare float64 // share of the hosts that live at one address, HotAddr, besides those named *.hot.test

	Only   []string           // the behaviours in use, by their relative shares
	Shares map[string]float64 // shares by behaviour, instead of the table's; ok takes the rest
	Force  map[string]string  // behaviours by host

	Bodies  int     // made-up files, 64 to 65536; 0: 1024, about 11 kB of memory each once requested
	AIShare float64 // share of the files that name an AI crawler's token; 0: 0.2, negative: none
	Corpus  string  // path of a pack of real files to serve instead: zstd of (uint32 little-endian length, body)…

	Network Network // nil: the system's, on loopback

	RecordAccepts bool // record when each connection came, for Accepts and Record

	oneAddress bool // as on systems that route 127.0.0.1 alone
}

const (
	holeNet       = 7 // second byte of the addresses of black holes
	maxAddresses  = 4096
	maxCounted    = 1 << 16 // counted hosts a shard
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

// Web is a running simulated web. Its methods may be called concurrently.
type Web struct {
	cfg       Config
	world     *world
	net       Network
	authority *authority
	tls       *tls.Config
	names     *nameServer
	listeners []net.Listener
	plugs     []net.Conn // connections that fill the queues of black holes
	reserved  []func()   // release the addresses without a listener
	places    map[netip.Addr]*place
	dialled   sync.Map // the *dialled by their streams
	ledger    ledger

	accepts, handshakes, requests, questions, open, mostOpen atomic.Int64

	done    chan struct{}
	once    sync.Once
	running sync.WaitGroup // accept loops, connections, name servers
	lives   [shards]lives
	counts  [shards]counts
}

// lives holds a shard of the open connections.
type lives struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once the web is closed
}

// counts holds a shard of the request counts of hosts whose answers depend on them.
type counts struct {
	mu   sync.Mutex
	seen map[countKey]uint8
}

type countKey struct {
	host   uint64        // hash
	scheme origin.Scheme // Auto: DNS questions
}

// place is an address with listeners.
type place struct {
	addr netip.Addr

	mu  sync.Mutex
	due time.Time // see overLimit
}

// Start starts a simulated web, until Close or the end of ctx.
func Start(ctx context.Context, cfg Config) (*Web, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	network := cfg.Network
	if network == nil {
		network = loopback{}
	}
	cfg.oneAddress = cfg.oneAddress || !routed(network, placeAt(0))
	world, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	if world.bodies, err = newBodyPool(cfg); err != nil {
		return nil, err
	}
	w := &Web{cfg: cfg, world: world, net: network, done: make(chan struct{}), places: map[netip.Addr]*place{},
		ledger: ledger{begun: time.Now()}}
	for i := range shards {
		w.lives[i].conns = map[net.Conn]struct{}{}
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

// placeAt returns the i-th ordinary address. The addresses of the web avoid 127.0.0.1, where other programs listen:
//
//	127.7.0.1–4     black holes (holeNet)
//	127.8.0.1–4     plain HTTP only
//	127.9.0.1–4     no listener
//	127.10.0.1 …    all other hosts; the first is the hot address
//	::1             hosts with IPv6 only, where the system has it
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

// routed reports whether the system can listen at an address: on Linux any of 127.0.0.0/8, on macOS 127.0.0.1 alone.
func routed(network Network, addr netip.Addr) bool {
	l, err := network.Listen(netip.AddrPortFrom(addr, 0))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// localhost is where the name server listens.
var localhost = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// listen opens the two ports at every address.
func (w *Web) listen() error {
	wd := w.world
	if !w.cfg.oneAddress {
		wd.hot = placeAt(0)
		for i := 1; i < w.cfg.Addresses; i++ {
			wd.ordinary = append(wd.ordinary, placeAt(i))
		}
		wd.plain, wd.vacant = placesFrom(8, 4), placesFrom(9, 4)
		if plugs || w.cfg.Network != nil {
			wd.holes = placesFrom(holeNet, 4)
		}
	} else {
		wd.single = true
		wd.hot = localhost
		wd.ordinary = []netip.Addr{wd.hot}
	}
	wd.six = routed(w.net, netip.IPv6Loopback())
	var lastErr error
	for range portAttempts {
		err := w.listenAll()
		if err == nil {
			return nil
		}
		lastErr = err
		w.closeListeners()
		w.running.Wait()
		w.listeners, w.plugs, w.reserved = nil, nil, nil
		if w.cfg.HTTPPort != 0 || w.cfg.TLSPort != 0 {
			break // configured ports have no alternative
		}
	}
	return fmt.Errorf("cannot listen for the simulated web: %w", lastErr)
}

func (w *Web) listenAll() error {
	wd := w.world
	wd.httpPort, wd.tlsPort = uint16(w.cfg.HTTPPort), uint16(w.cfg.TLSPort)
	type listener struct {
		l      net.Listener
		addr   netip.Addr
		secure bool
	}
	var listeners []listener
	open := func(addr netip.Addr, port *uint16) (net.Listener, error) {
		l, err := w.net.Listen(netip.AddrPortFrom(addr, *port))
		if err != nil {
			return nil, err
		}
		w.listeners = append(w.listeners, l)
		*port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		return l, nil
	}
	serve := func(addr netip.Addr, port *uint16, secure bool) error {
		l, err := open(addr, port)
		listeners = append(listeners, listener{l, addr, secure})
		return err
	}
	makeHole := func(addr netip.Addr, port *uint16) error {
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
	served := append([]netip.Addr{wd.hot}, wd.ordinary...)
	if wd.single {
		served = served[:1]
	}
	if wd.six {
		served = append(served, netip.IPv6Loopback())
	}
	for _, addr := range served {
		if err := errors.Join(serve(addr, &wd.httpPort, false), serve(addr, &wd.tlsPort, true)); err != nil {
			return err
		}
	}
	for _, addr := range wd.plain {
		if err := serve(addr, &wd.httpPort, false); err != nil {
			return err
		}
	}
	if w.cfg.Network == nil { // else the network has the black holes, and nothing else listens in it
		for _, addr := range wd.holes {
			if err := errors.Join(makeHole(addr, &wd.httpPort), makeHole(addr, &wd.tlsPort)); err != nil {
				return err
			}
		}
		if err := w.reserveVacant(); err != nil {
			return err
		}
	}
	for _, l := range listeners {
		p := w.places[l.addr]
		if p == nil {
			p = &place{addr: l.addr}
			w.places[l.addr] = p
		}
		w.running.Add(1)
		go w.accept(l.l, p, l.secure)
	}
	return nil
}

// reserveVacant keeps other programs from listening at the vacant addresses, and at 127.0.0.1, which a dial to 0.0.0.0
// reaches.
func (w *Web) reserveVacant() error {
	wd := w.world
	vacant := map[netip.Addr][]uint16{}
	if !wd.single {
		vacant[localhost] = []uint16{wd.httpPort, wd.tlsPort}
	}
	for _, addr := range wd.plain {
		vacant[addr] = []uint16{wd.tlsPort}
	}
	for _, addr := range wd.vacant {
		vacant[addr] = []uint16{wd.httpPort, wd.tlsPort}
	}
	for addr, ports := range vacant {
		for _, port := range ports {
			release, err := reserve(netip.AddrPortFrom(addr, port))
			if err != nil {
				return err
			}
			w.reserved = append(w.reserved, release)
		}
	}
	return nil
}

// Close ends the web. When it returns, no socket and no goroutine of the web is left. It may be called again.
func (w *Web) Close() {
	w.once.Do(func() {
		close(w.done)
		w.closeListeners()
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

// closeListeners closes all listeners, which ends their accept loops.
func (w *Web) closeListeners() {
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

// sleep waits, and reports false if the web was closed.
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

// enter registers an open connection, and reports false if the web is closed.
func (w *Web) enter(c net.Conn) bool {
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

func (w *Web) leave(c net.Conn) {
	s := w.livesOf(c)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close()
	w.open.Add(-1)
	w.running.Done()
}

// livesOf returns a connection's shard, by its client's port.
func (w *Web) livesOf(c net.Conn) *lives {
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

// Forget resets all counts: hosts that fail at first fail again.
func (w *Web) Forget() {
	for i := range w.counts {
		s := &w.counts[i]
		s.mu.Lock()
		clear(s.seen)
		s.mu.Unlock()
	}
}

// DNSAddr returns the name server's address for UDP and TCP, the value of --resolver.
func (w *Web) DNSAddr() netip.AddrPort { return w.names.addr }

// HTTPPort returns the port of plain HTTP at every address.
func (w *Web) HTTPPort() int { return int(w.world.httpPort) }

// TLSPort returns the port of HTTPS at every address.
func (w *Web) TLSPort() int { return int(w.world.tlsPort) }

// ConnectTo returns the values of --connect-to that lead ports 80 and 443 of every address here.
func (w *Web) ConnectTo() []string {
	return []string{":80::" + strconv.Itoa(w.HTTPPort()), ":443::" + strconv.Itoa(w.TLSPort())}
}

// Flags returns the flags by which bulkscan asks this web.
func (w *Web) Flags() []string {
	flags := []string{"--allow-private", "--resolver=" + w.DNSAddr().String()}
	for _, to := range w.ConnectTo() {
		flags = append(flags, "--connect-to="+to)
	}
	return flags
}

// CAPool returns a pool with the web's authority, which signs valid certificates.
func (w *Web) CAPool() *x509.CertPool { return w.authority.pool }

// CAPEM returns that authority's certificate as PEM.
func (w *Web) CAPEM() []byte { return w.authority.pem() }

// SingleAddress reports whether all hosts share 127.0.0.1, because the system routes no other address of 127.0.0.0/8
// (macOS). Rates by address then mean little, and connections are reset instead of refused.
func (w *Web) SingleAddress() bool { return w.world.single }

// HotAddr returns the address shared by the hosts of Config.HotShare and *.hot.test.
func (w *Web) HotAddr() netip.Addr { return w.world.hot }

// Stats are totals since the start.
type Stats struct {
	Accepts    int64 // connections accepted
	Handshakes int64 // completed TLS handshakes
	Requests   int64 // request heads read
	Questions  int64 // DNS questions
	Open       int64 // open connections
}

// Stats returns the totals so far.
func (w *Web) Stats() Stats {
	s := Stats{Accepts: w.accepts.Load(), Handshakes: w.handshakes.Load(), Requests: w.requests.Load(),
		Questions: w.questions.Load(), Open: w.open.Load()}
	return s
}
