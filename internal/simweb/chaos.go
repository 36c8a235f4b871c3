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

	"github.com/cespare/xxhash/v2"
	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// Chaos is a bad network before a simulated web: a relay that loses, delays, slows down, cuts and swallows what passes it. What it
// does to a connection follows from a seed, the host that the connection is for, and how many there were for that host before, so
// that what a scan of the web finds through it can be judged: a row is either that of the undisturbed web, or the fault of a
// connection explains it.
//
// A relay of bytes loses no packets: whatever arrives is whole and in order. What lost packets come to, which is time, Latency
// and Bandwidth stand for; a packet that never arrives is Blackhole, or a hole. Questions to the name server are packets, and are
// lost as such.
type Chaos struct {
	cfg   ChaosConfig
	web   *Web
	ports [2]uint16 // of the relays to HTTPPort and TLSPort
	names netip.AddrPort

	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup
	doors   []io.Closer

	mu    sync.Mutex
	faced map[string][]Fault // by host, in the order of its connections
	lost  map[string]int     // of those, the ones that were lost
	asked map[string]int     // packets about a host
	holes map[netip.Addr]bool
	stats ChaosStats
}

// ChaosConfig says how bad the network is. Shares are of connections, or of what they say they are of; the rest passes as it
// comes.
type ChaosConfig struct {
	Seed uint64

	Latency    float64       // that are delayed, both ways
	MostDelay  time.Duration // by up to this; 0: 200 ms
	Bandwidth  float64       // of which the answer passes at LeastBytes to 100 times as many a second
	LeastBytes int           // 0: 4096
	Blackhole  float64       // of which nothing more passes after some bytes of the answer, and nobody is told
	Reset      float64       // that are reset after some bytes of the answer
	Close      float64       // that are closed after some bytes of the answer
	Holes      float64       // addresses at which nobody takes a connection
	Loss       float64       // packets to and from the name server that are lost
}

// DefaultChaos is a network on which two connections of three are disturbed, one of three so that it fails.
func DefaultChaos(seed uint64) ChaosConfig {
	return ChaosConfig{Seed: seed, Latency: 0.25, Bandwidth: 0.1, Blackhole: 0.06, Reset: 0.1, Close: 0.1, Holes: 0.05, Loss: 0.1}
}

// FaultKind is what may happen to a connection.
type FaultKind uint8

// The kinds of faults.
const (
	FaultNone FaultKind = iota
	FaultLatency
	FaultBandwidth
	FaultBlackhole
	FaultReset
	FaultClose
	FaultHole    // no connection: the address is a hole
	FaultLoss    // a question about the name was lost
	FaultPackets // packets were lost, of whatever kind
)

var faultNames = [...]string{"none", "latency", "bandwidth", "blackhole", "reset", "close", "hole", "loss", "packets"}

// String is the kind in a word.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is what happens to one connection.
type Fault struct {
	Kind  FaultKind
	After int           // bytes of the answer that pass before
	Delay time.Duration // each way
	Rate  int           // bytes a second
}

// Explains returns the outcomes to which a fault may lead, beside that of the undisturbed web.
func (f Fault) Explains() []exchange.Outcome {
	switch f.Kind {
	case FaultBandwidth, FaultBlackhole:
		return []exchange.Outcome{exchange.Timeout}
	case FaultReset:
		return []exchange.Outcome{exchange.Reset}
	case FaultClose:
		// Where the end of the connection is the end of the body, nobody can tell it from a cut: such an answer is one.
		return []exchange.Outcome{exchange.ClosedEarly, exchange.Answered}
	case FaultHole:
		return []exchange.Outcome{exchange.ConnectTimeout}
	case FaultLoss:
		return []exchange.Outcome{exchange.DNSTimeout}
	case FaultPackets:
		// A reset is a packet of which there is no second: whoever misses it waits.
		return []exchange.Outcome{exchange.DNSTimeout, exchange.ConnectTimeout, exchange.Timeout}
	}
	return nil
}

// ChaosStats are totals since the start.
type ChaosStats struct {
	Connections [len(faultNames)]int64 // by what was done to them; of holes, none
	Packets     int64                  // to the name server, and back
	Lost        int64                  // of them
}

// FaultOf is what happens to the nth connection, from 0, for a host. It depends on nothing but that and the seed.
func (c ChaosConfig) FaultOf(host string, nth int) Fault {
	draw := func(stream uint64) uint64 {
		return mix(xxhash.Sum64String(host) + mix(c.Seed+stream)*uint64(2*nth+1))
	}
	u, v := unit(draw(1)), unit(draw(2))
	for _, kind := range []struct {
		share float64
		kind  FaultKind
	}{{c.Latency, FaultLatency}, {c.Bandwidth, FaultBandwidth}, {c.Blackhole, FaultBlackhole}, {c.Reset, FaultReset}, {c.Close, FaultClose}} {
		if u -= kind.share; u >= 0 {
			continue
		}
		f := Fault{Kind: kind.kind}
		switch f.Kind {
		case FaultLatency:
			f.Delay = time.Duration(v * float64(c.mostDelay()))
		case FaultBandwidth:
			f.Rate = int(float64(c.leastBytes()) * (1 + 99*v*v))
		default:
			// As often among the first bytes, of a handshake or a head, as among the first ten thousand.
			f.After = int(draw(3) % []uint64{1, 100, 1000, 10_000}[draw(4)%4])
		}
		return f
	}
	return Fault{}
}

func (c ChaosConfig) mostDelay() time.Duration {
	if c.MostDelay > 0 {
		return c.MostDelay
	}
	return 200 * time.Millisecond
}

func (c ChaosConfig) leastBytes() int {
	if c.LeastBytes > 0 {
		return c.LeastBytes
	}
	return 4096
}

// hole reports whether an address is one at which nobody takes a connection.
func (c ChaosConfig) hole(addr netip.Addr) bool {
	return unit(mix(xxhash.Sum64(addr.AsSlice())+mix(c.Seed+5))) < c.Holes
}

// loses reports whether the nth packet about a host, from 0, is lost, to the name server or back.
func (c ChaosConfig) loses(host string, nth int) bool {
	return unit(mix(xxhash.Sum64String(host)+mix(c.Seed+6)*uint64(2*nth+1))) < c.Loss
}

// StartChaos puts a bad network before a web. It is closed by Close, before the web is.
func StartChaos(web *Web, cfg ChaosConfig) (*Chaos, error) {
	c := &Chaos{cfg: cfg, web: web, faced: map[string][]Fault{}, lost: map[string]int{}, asked: map[string]int{}, holes: map[netip.Addr]bool{}}
	c.closing, c.close = context.WithCancel(context.Background())
	var lastErr error
	for range portAttempts {
		if lastErr = c.listen(); lastErr == nil {
			return c, nil
		}
		for _, door := range c.doors {
			_ = door.Close()
		}
		c.running.Wait()
		c.doors, c.ports = nil, [2]uint16{}
	}
	c.close()
	return nil, fmt.Errorf("cannot listen for the bad network: %w", lastErr)
}

// listen opens two ports at each address where the web has any, and one for questions.
func (c *Chaos) listen() error {
	for addr := range c.web.places {
		for i, to := range []int{c.web.HTTPPort(), c.web.TLSPort()} {
			if addr.Is4() && addr.As4()[1] == 8 && i == 1 {
				continue // plain HTTP only: nobody is there
			}
			lc := net.ListenConfig{KeepAlive: -1}
			l, err := lc.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, c.ports[i]).String())
			if err != nil {
				return err
			}
			c.doors = append(c.doors, l)
			tcp := l.(*net.TCPListener)
			c.ports[i] = tcp.Addr().(*net.TCPAddr).AddrPort().Port()
			if c.cfg.hole(addr) && addr.Is4() && addr != c.web.HotAddr() {
				filled, err := plug(tcp)
				switch {
				case err == nil:
					c.doors = append(c.doors, filled)
					c.holes[addr] = true
					continue
				case !errors.Is(err, errors.ErrUnsupported):
					return err
				}
			}
			target := netip.AddrPortFrom(addr, uint16(to)).String()
			c.running.Go(func() { c.accept(tcp, target, i == 1) })
		}
	}
	packets, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	c.doors = append(c.doors, packets)
	c.names = packets.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := packets.SetReadBuffer(4 << 20); err != nil {
		return err
	}
	// What does not fit into a packet is asked by TCP, which nobody disturbs.
	l, err := net.Listen("tcp4", c.names.String())
	if err != nil {
		return err
	}
	c.doors = append(c.doors, l)
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
				c.pass(client.(*net.TCPConn), c.web.DNSAddr().String(), nil, Fault{})
			})
		}
	})
	return nil
}

// Close ends the network, and what passes it.
func (c *Chaos) Close() {
	c.close()
	for _, door := range c.doors {
		_ = door.Close()
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

// Faced returns what has happened to the connections for a host so far, in their order: what FaultOf says; FaultHole where its
// address is a hole, and FaultLoss where a question about it was lost.
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

func (c *Chaos) accept(l *net.TCPListener, target string, secure bool) {
	for {
		client, err := l.AcceptTCP()
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

// firstFlight reads what a client says first, and for which host it is; "" where it does not say.
func firstFlight(client *net.TCPConn, secure bool) (flight []byte, host string) {
	var heard bytes.Buffer
	in := io.TeeReader(client, &heard)
	if secure {
		hello := tls.Server(deaf{client, in}, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
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

// deaf is a connection to which nothing is written.
type deaf struct {
	net.Conn
	in io.Reader
}

func (d deaf) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d deaf) Write(p []byte) (int, error) { return len(p), nil }

// pass carries a connection to the web and back, but for what befalls it.
func (c *Chaos) pass(client *net.TCPConn, target string, flight []byte, f Fault) {
	conn, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	server := conn.(*net.TCPConn)
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
			_ = server.Close() // the client is gone, and wants nothing more
		} else {
			_ = server.CloseWrite()
		}
	}()
	defer func() { // only when both are done may the sockets be given up
		_ = client.Close()
		_ = server.Close()
		<-up
	}()
	switch whole, how := c.carry(client, server, f); {
	case !whole && f.Kind == FaultReset, whole && errors.Is(how, errReset):
		_ = client.SetLinger(0)
	case !whole && f.Kind == FaultBlackhole:
		_ = server.Close()
		swallow(client) // whatever is sent from now on meets silence
	case whole, f.Kind == FaultClose:
		_ = client.CloseWrite()
		swallow(client) // which may still be sending: closing now would reset what is on its way to it
	}
}

var errReset = errors.New("reset")

// carry carries bytes one way until they end, as a fault lets them. It reports whether all of them came, and how they ended.
func (c *Chaos) carry(to, from *net.TCPConn, f Fault) (whole bool, how error) {
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
	// What is delayed goes through a line, so that the delay is one of time and not of bandwidth.
	var line chan piece
	var sent chan struct{}
	if f.Delay > 0 {
		line, sent = make(chan piece, 1024), make(chan struct{})
		go func() {
			defer close(sent)
			for p := range line {
				if !c.wait(time.Until(p.due)) || !write(to, p.data) {
					_ = from.Close()
				}
			}
		}()
		defer func() { close(line); <-sent }()
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
			line <- piece{bytes.Clone(b[:n]), time.Now().Add(f.Delay)}
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

// swallow reads until the other side has ended.
func swallow(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }

// wait waits, and reports whether the network still stands.
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

// relayQuestions carries questions to the name server and its answers back, each packet to a socket of its own, as far as they
// are not lost.
func (c *Chaos) relayQuestions(packets *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, client, err := packets.ReadFromUDPAddrPort(b)
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
			server, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(c.web.DNSAddr()))
			if err != nil {
				return
			}
			defer func() { _ = server.Close() }()
			stop := context.AfterFunc(c.closing, func() { _ = server.Close() })
			defer stop()
			_ = server.SetDeadline(time.Now().Add(2 * time.Second))
			if !write(server, question) {
				return
			}
			answer := make([]byte, 64<<10)
			for { // forged ones come before
				n, err := server.Read(answer)
				if err != nil {
					return
				}
				if !back {
					_, _ = packets.WriteToUDPAddrPort(answer[:n], client)
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
