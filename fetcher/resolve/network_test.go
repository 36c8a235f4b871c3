package resolve

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// This file tests what is the kernel's, over real sockets: outcomes only, no times. All other tests have a network in
// memory.

// onLoopback runs a name server on one loopback port of UDP and TCP until the test ends.
func onLoopback(tb testing.TB, script script) *scripted {
	tb.Helper()
	for range 20 {
		packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		// A port that is free for UDP is most likely free for TCP.
		if listener, err := net.Listen("tcp4", packets.LocalAddr().String()); err == nil {
			return serve(tb, packets, listener, script)
		}
		_ = packets.Close()
	}
	tb.Fatal("no port is free for UDP and TCP")
	return nil
}

// patient is how long a look-up over real sockets may take on a machine of any speed.
const patient = 5 * time.Minute

// An answer comes by UDP, and by TCP if it was truncated.
func TestSockets(t *testing.T) {
	r := newResolver(t, Options{Total: patient},
		onLoopback(t, byName(map[string]script{"a.com.": anything, "b.com.": over(truncated, anything)})).addr)
	for _, host := range []string{"a.com", "b.com"} {
		if got := tell(r.Lookup(t.Context(), host)); got != "["+good+"]" {
			t.Errorf("%s: got %s", host, got)
		}
	}
	if n := r.Stats().Servers[0].TCP; n == 0 {
		t.Error("no question was asked by TCP")
	}
}

// Batches are sent whole and received in order, over IPv4 and IPv6. A datagram that is too long is cut.
func TestBatchesOfPackets(t *testing.T) {
	f := func(at string) {
		t.Helper()
		server, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Logf("SKIPPED: %v", err) // a system may lack IPv6
			return
		}
		defer server.Close()
		packets, err := new(system).Packets(netip.MustParseAddrPort(server.LocalAddr().String()))
		if err != nil {
			t.Fatal(err)
		}
		defer packets.Close()
		var batch [][]byte
		for i := range maxBatch {
			batch = append(batch, bytes.Repeat([]byte{byte(i)}, i))
		}
		if n, err := packets.Send(batch); n != len(batch) || err != nil {
			t.Fatalf("%s: %d sent, %v", at, n, err)
		}
		const longest = 50
		buf := make([]byte, 100)
		for i := range batch {
			n, from, err := server.ReadFrom(buf)
			if err != nil || !bytes.Equal(buf[:n], batch[i]) {
				t.Fatalf("%s: the server got %v, %v", at, buf[:n], err)
			}
			if _, err := server.WriteTo(buf[:n], from); err != nil {
				t.Fatal(err)
			}
		}
		buffers, sizes := slices.Collect(slices.Chunk(make([]byte, maxReceived*longest), longest)), make([]int, maxReceived)
		_ = packets.SetReadDeadline(time.Now().Add(patient))
		for got := 0; got < len(batch); {
			n, err := packets.Receive(buffers, sizes)
			if n == 0 || err != nil {
				t.Fatalf("%s: %d received, %v", at, n, err)
			}
			for i := range n {
				if packet := buffers[i][:sizes[i]]; !bytes.Equal(packet, batch[got][:min(got, longest)]) {
					t.Errorf("%s: %v came back in place of %v", at, packet, batch[got])
				}
				got++
			}
		}
		_ = packets.SetReadDeadline(time.Now())
		if _, err := packets.Receive(buffers, sizes); !isTimeout(err) {
			t.Errorf("%s: got %v at the deadline", at, err)
		}
		_ = packets.Close()
		if _, err := packets.Receive(buffers, sizes); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got %v when closed", at, err)
		}
		if _, err := packets.Send(batch); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got %v when closed", at, err)
		}
	}
	f("127.0.0.1:0")
	f("[::1]:0")
}

// Right answers from another address or port are ignored.
func TestSpoofedSource(t *testing.T) {
	lie := func(q *query, host string) (sent bool) {
		at := &net.UDPAddr{IP: net.ParseIP(host)}
		if host != "127.0.0.1" {
			at.Port = q.server.packets.LocalAddr().(*net.UDPAddr).Port
		}
		conn, err := net.DialUDP("udp4", at, q.from.(*net.UDPAddr))
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Write(packed(q.reply("a.com. 60 A " + evil)))
		return err == nil
	}
	// An unconnected socket does receive such packets.
	open, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	lie(&query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA), from: open.LocalAddr()}, "127.0.0.1")
	if _, err := open.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		r := newResolver(t, Options{Total: patient}, onLoopback(t, func(q *query) {
			if !lie(q, host) && host == "127.0.0.1" { // some systems have only one loopback address
				t.Error("no packet was sent")
			}
			anything(q)
		}).addr)
		if got := tell(r.Lookup(t.Context(), "a.com")); got != "["+good+"]" {
			t.Errorf("got %s", got)
		}
	}
}

// A port where no process listens refuses (ICMP), which the next receiving or sending reports.
func TestRefusedByKernel(t *testing.T) {
	// A socket that is connected to another peer holds the port, so that no other process takes it.
	held, err := net.Dial("udp4", onLoopback(t, quiet).addr)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	packets, err := new(system).Packets(netip.MustParseAddrPort(held.LocalAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	if _, err = packets.Send([][]byte{{0}}); err == nil {
		_ = packets.SetReadDeadline(time.Now().Add(patient))
		_, err = packets.Receive([][]byte{make([]byte, 1)}, make([]int, 1))
	}
	if err == nil || isTimeout(err) || !errors.Is(err, syscall.ECONNREFUSED) && runtime.GOOS != "windows" {
		// which has another name for it
		t.Errorf("got %v", err)
	}
}

// The ports of sockets do not follow from earlier ones.
func TestPortsAreUnpredictable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows may give ports in order")
	}
	server := netip.MustParseAddrPort(onLoopback(t, quiet).addr)
	steps := map[int]bool{}
	last := 0
	for range 32 {
		packets, err := new(system).Packets(server)
		if err != nil {
			t.Fatal(err)
		}
		defer packets.Close()
		port := packets.(interface{ LocalAddr() net.Addr }).LocalAddr().(*net.UDPAddr).Port
		steps[port-last] = true
		last = port
	}
	if len(steps) < 16 {
		t.Errorf("32 ports, with %d different steps between them", len(steps))
	}
}

// A look-up through an open socket.
//
//	go test ./fetcher/resolve -run '^$' -bench Lookup -benchmem
func BenchmarkLookup(b *testing.B) {
	r := newResolver(b, Options{}, onLoopback(b, anything).addr)
	b.ReportAllocs()
	for b.Loop() {
		l := r.begin(time.Now())
		if a := r.families(b.Context(), &l, "a.com"); a.Outcome != 0 {
			b.Fatal(tell(a))
		}
	}
}
