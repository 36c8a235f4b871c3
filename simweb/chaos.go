package simweb

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Chaos is a bad network in front of a simulated web: a relay that delays, slows, cuts and swallows bytes. The fault of
// a connection follows from the seed, the host and the number of earlier connections for that host. So every row of a
// scan through it can be checked: it is true, or a fault explains it.
//
// A relay of bytes cannot lose single packets. Latency and Bandwidth stand for packets that are retransmitted,
// Blackhole and Holes for packets that never arrive. Questions to the name server are packets, and are lost as such.
type Chaos struct {
	cfg   ChaosConfig
	web   *Web
	ports [2]uint16 // of the relays to HTTPPort and TLSPort
	names netip.AddrPort

	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup
	open    []io.Closer // listeners and sockets

	mu    sync.Mutex
	faced map[string][]Fault // by host, in the order of its connections
	lost  map[string]int     // lost packets, by host
	asked map[string]int     // packets, by host
	holes map[netip.Addr]bool
	stats ChaosStats
}

// ChaosStats are totals since the start.
type ChaosStats struct {
	Connections [len(faultNames)]int64 // by fault; none for holes
	Packets     int64                  // to the name server and back
	Lost        int64                  // of Packets
}

// StartChaos puts a bad network in front of a web. Close it before the web.
func StartChaos(web *Web, cfg ChaosConfig) (*Chaos, error) {
	c := &Chaos{cfg: cfg, web: web, faced: map[string][]Fault{}, lost: map[string]int{}, asked: map[string]int{},
		holes: map[netip.Addr]bool{}}
	c.closing, c.close = context.WithCancel(context.Background())
	var lastErr error
	for range portAttempts {
		if lastErr = c.listen(); lastErr == nil {
			return c, nil
		}
		for _, s := range c.open {
			_ = s.Close()
		}
		c.running.Wait()
		c.open, c.ports = nil, [2]uint16{}
	}
	c.close()
	return nil, fmt.Errorf("cannot listen for the bad network: %w", lastErr)
}

// listen opens two ports at each address of the web, and one for questions.
func (c *Chaos) listen() error {
	for addr := range c.web.places {
		for i, to := range []int{c.web.HTTPPort(), c.web.TLSPort()} {
			if addr.Is4() && addr.As4()[1] == 8 && i == 1 {
				continue // plain HTTP only
			}
			l, err := c.web.net.Listen(netip.AddrPortFrom(addr, c.ports[i]))
			if err != nil {
				return err
			}
			c.open = append(c.open, l)
			c.ports[i] = l.Addr().(*net.TCPAddr).AddrPort().Port()
			if c.cfg.hole(addr) && addr.Is4() && addr != c.web.HotAddr() && c.web.cfg.Network == nil {
				filled, err := plug(l)
				switch {
				case err == nil:
					c.open = append(c.open, filled)
					c.holes[addr] = true
					continue
				case !errors.Is(err, errors.ErrUnsupported):
					return err
				}
			}
			target := netip.AddrPortFrom(addr, uint16(to))
			c.running.Go(func() { c.accept(l, target, i == 1) })
		}
	}
	packets, err := c.web.net.ListenPacket(netip.AddrPortFrom(localhost, 0))
	if err != nil {
		return err
	}
	c.open = append(c.open, packets)
	c.names = packets.LocalAddr().(*net.UDPAddr).AddrPort()
	// Truncated answers are asked for by TCP, which is undisturbed.
	l, err := c.web.net.Listen(c.names)
	if err != nil {
		return err
	}
	c.open = append(c.open, l)
	c.running.Go(func() { c.relayQuestions(packets) })
	c.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() {
				stop := context.AfterFunc(c.closing, func() { _ = client.Close() })
				defer stop()
				c.pass(client, c.web.DNSAddr(), nil, Fault{})
			})
		}
	})
	return nil
}

// Close ends the network and its connections.
func (c *Chaos) Close() {
	c.close()
	for _, s := range c.open {
		_ = s.Close()
	}
	c.running.Wait()
}

// DNSAddr is the value of --resolver.
func (c *Chaos) DNSAddr() netip.AddrPort { return c.names }

// ConnectTo returns the values of --connect-to that lead ports 80 and 443 of every address through the bad network.
func (c *Chaos) ConnectTo() []string {
	return []string{":80::" + strconv.Itoa(int(c.ports[0])), ":443::" + strconv.Itoa(int(c.ports[1]))}
}

// Stats returns the totals so far.
func (c *Chaos) Stats() ChaosStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Faced returns the faults of the connections for a host so far, in order. FaultHole follows if its address is a black
// hole, and FaultLoss if a packet about it was lost.
func (c *Chaos) Faced(host string) []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append([]Fault(nil), c.faced[host]...)
	if c.holes[c.web.world.address(host, c.web.world.behaviour(host))] {
		all = append(all, Fault{Kind: FaultHole})
	}
	if c.lost[host] > 0 {
		all = append(all, Fault{Kind: FaultLoss})
	}
	return all
}

func (c *Chaos) accept(l net.Listener, target netip.AddrPort, secure bool) {
	for {
		client, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(5 * time.Millisecond) // out of files
			continue
		}
		c.running.Go(func() {
			stop := context.AfterFunc(c.closing, func() { _ = client.Close() })
			defer stop()
			_ = client.SetDeadline(time.Now().Add(c.web.cfg.Hold))
			flight, host := firstFlight(client, secure)
			var f Fault
			c.mu.Lock()
			if host != "" {
				f = c.cfg.FaultOf(host, len(c.faced[host]))
				c.faced[host] = append(c.faced[host], f)
			}
			c.stats.Connections[f.Kind]++
			c.mu.Unlock()
			c.pass(client, target, flight, f)
		})
	}
}

// firstFlight reads a client's first bytes, and the host that they name, or "".
func firstFlight(client net.Conn, secure bool) (flight []byte, host string) {
	var heard bytes.Buffer
	in := io.TeeReader(client, &heard)
	if secure {
		hello := tls.Server(readOnly{client, in},
			&tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				if host, _ = splitHost(hello.ServerName); host == "" {
					host = localHost(client)
				}
				return nil, errNoHandshake
			}})
		_ = hello.Handshake() // ends with the hello
		return heard.Bytes(), host
	}
	request, err := http.ReadRequest(bufio.NewReaderSize(in, maxHead))
	if err == nil {
		host, _ = splitHost(request.Host)
	}
	return heard.Bytes(), host
}

// readOnly is a connection that discards what is written.
type readOnly struct {
	net.Conn
	in io.Reader
}

func (d readOnly) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d readOnly) Write(p []byte) (int, error) { return len(p), nil }

// pass relays a connection to the web and back, with its fault.
func (c *Chaos) pass(client net.Conn, target netip.AddrPort, flight []byte, f Fault) {
	server, err := c.web.net.Dial(target)
	if err != nil {
		abort(client)
		return
	}
	stop := context.AfterFunc(c.closing, func() { _ = server.Close() })
	defer stop()
	_ = server.SetDeadline(time.Now().Add(c.web.cfg.Hold))
	up := make(chan struct{})
	go func() {
		defer close(up)
		if !c.wait(f.Delay) || !write(server, flight) {
			return
		}
		if _, how := c.carry(server, client, Fault{Delay: f.Delay}); errors.Is(how, errReset) {
			_ = server.Close() // the client is gone
		} else {
			closeWrite(server)
		}
	}()
	defer func() { // both directions use the sockets
		_ = client.Close()
		_ = server.Close()
		<-up
	}()
	switch whole, how := c.carry(client, server, f); {
	case !whole && f.Kind == FaultReset, whole && errors.Is(how, errReset):
		abort(client)
	case !whole && f.Kind == FaultBlackhole:
		_ = server.Close()
		swallow(client) // the client gets no answer from now on
	case whole, f.Kind == FaultClose:
		closeWrite(client)
		swallow(client) // the client may still send, and a close would reset bytes in flight to it
	}
}

var errReset = errors.New("reset")

// carry relays bytes one way until they end or the fault ends them. It reports whether all bytes passed, and how they
// ended.
func (c *Chaos) carry(to, from net.Conn, f Fault) (whole bool, how error) {
	cut := f.Kind == FaultBlackhole || f.Kind == FaultReset || f.Kind == FaultClose
	left := f.After
	size := 32 << 10
	if f.Rate > 0 {
		size = max(64, f.Rate/20)
	}
	b := make([]byte, size)
	type piece struct {
		data []byte
		due  time.Time
	}
	// Delayed bytes wait in a queue, so that the delay does not limit the bandwidth.
	var queue chan piece
	var sent chan struct{}
	if f.Delay > 0 {
		queue, sent = make(chan piece, 1024), make(chan struct{})
		go func() {
			defer close(sent)
			for p := range queue {
				if !c.wait(time.Until(p.due)) || !write(to, p.data) {
					_ = from.Close()
				}
			}
		}()
		defer func() { close(queue); <-sent }()
	}
	for {
		n, err := from.Read(b)
		if cut && n >= left {
			write(to, b[:left])
			return false, nil
		}
		left -= n
		switch {
		case n == 0:
		case f.Delay > 0:
			queue <- piece{bytes.Clone(b[:n]), time.Now().Add(f.Delay)}
		case !write(to, b[:n]) || f.Rate > 0 && !c.wait(time.Duration(n)*time.Second/time.Duration(f.Rate)):
			return false, nil
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return true, errReset
			}
			return true, nil
		}
	}
}

// swallow reads until the other side ends.
func swallow(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// wait waits, and reports false if the network was closed.
func (c *Chaos) wait(d time.Duration) bool {
	if d <= 0 {
		return c.closing.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closing.Done():
		return false
	}
}

func write(to io.Writer, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_, err := to.Write(b)
	return err == nil
}

// relayQuestions relays questions to the name server, each through a socket of its own, and the answers back, unless
// they are lost.
func (c *Chaos) relayQuestions(packets net.PacketConn) {
	b := make([]byte, 64<<10)
	for {
		n, client, err := packets.ReadFrom(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		question := bytes.Clone(b[:n])
		host := ""
		if m := new(dns.Msg); m.Unpack(question) == nil && len(m.Question) == 1 {
			host, _, _ = asked(m.Question[0].Name)
			host = strings.ToLower(host)
		}
		there, back := c.lose(host), c.lose(host)
		if there {
			continue
		}
		c.running.Go(func() {
			server, err := c.web.net.ListenPacket(netip.AddrPortFrom(localhost, 0))
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			stop := context.AfterFunc(c.closing, func() { _ = server.Close() })
			defer stop()
			_ = server.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err := server.WriteTo(question, net.UDPAddrFromAddrPort(c.web.DNSAddr())); err != nil {
				return
			}
			answer := make([]byte, 64<<10)
			for { // forged answers come first
				n, _, err := server.ReadFrom(answer)
				if err != nil {
					return
				}
				if !back {
					_, _ = packets.WriteTo(answer[:n], client)
				}
			}
		})
	}
}

// lose draws whether the next packet about a host is lost.
func (c *Chaos) lose(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	nth := c.asked[host]
	c.asked[host]++
	c.stats.Packets++
	if !c.cfg.loses(host, nth) {
		return false
	}
	c.lost[host]++
	c.stats.Lost++
	return true
}
