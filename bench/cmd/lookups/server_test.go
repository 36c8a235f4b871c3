package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// slowly looks names up without a server.
func slowly(wait time.Duration) lookup {
	return func(_ context.Context, host string) (netip.Addr, error) {
		time.Sleep(wait)
		return addressOf(host), nil
	}
}

func wrongly(context.Context, string) (netip.Addr, error) {
	return netip.MustParseAddr("192.0.2.1"), nil
}

func never(context.Context, string) (netip.Addr, error) { return netip.Addr{}, errors.New("lost") }

// ask packs a question.
func ask(name string, kind uint16, edns bool) []byte {
	m := new(dns.Msg).SetQuestion(name, kind)
	m.Id = 0x1234
	if edns {
		m.SetEdns0(1232, true)
		m.Extra[0].(*dns.OPT).Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}}
	}
	packet, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packet
}

// TestReply reads the answers with a library that others trust.
func TestReply(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("y", 61) + "."
	f := func(name string, kind uint16, edns bool, addr string) {
		t.Helper()
		question := ask(name, kind, edns)
		packet := reply([]byte("before"), question)
		if string(packet[:6]) != "before" || len(packet)-6 > maxReply {
			t.Fatalf("%s: %d bytes: %q", name, len(packet), packet)
		}
		var m dns.Msg
		if err := m.Unpack(packet[6:]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := dns.MsgHdr{Id: 0x1234, Response: true, RecursionDesired: true, RecursionAvailable: true}
		if m.MsgHdr != want || len(m.Question) != 1 || m.Question[0] != (dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET}) || len(m.Ns) != 0 {
			t.Errorf("%s: %v", name, &m)
		}
		found := ""
		for _, rr := range m.Answer {
			if rr.Header().Name != name || rr.Header().Ttl != 300 {
				t.Errorf("%s: %v", name, rr)
			}
			found += rr.(*dns.A).A.String()
		}
		if found != addr {
			t.Errorf("%s: address %q, want %q", name, found, addr)
		}
		if opt := m.IsEdns0(); (opt != nil) != edns || edns && (opt.UDPSize() != ednsSize || len(opt.Option) != 0 || opt.Do()) || len(m.Extra) > 1 {
			t.Errorf("%s: EDNS %v: %v", name, edns, m.Extra)
		}
		// The library packs it as we do, but for the name of the root, which it does not compress.
		m.Compress = true
		if again, err := m.Pack(); err != nil || name != "." && string(again) != string(packet[6:]) {
			t.Errorf("%s: %v\n% x\n% x", name, err, packet[6:], again)
		}
	}
	f("h0.bulk.test.", dns.TypeA, false, "10.173.31.34")
	f("h0.bulk.test.", dns.TypeA, true, "10.173.31.34")
	f("H0.Bulk.TEST.", dns.TypeA, true, "10.173.31.34")
	f("h1.bulk.test.", dns.TypeA, true, addressOf("h1.bulk.test").String())
	f("h0.bulk.test.", dns.TypeAAAA, true, "")
	f("h0.bulk.test.", dns.TypeAAAA, false, "")
	f("h0.bulk.test.", dns.TypeTXT, false, "")
	f(".", dns.TypeA, false, addressOf("").String())
	f(long, dns.TypeA, true, addressOf(long).String())
}

// TestRefusals shows what is no question, and what becomes of it.
func TestRefusals(t *testing.T) {
	good := ask("a.b.", dns.TypeA, false)
	f := func(want int, change func(packet []byte) []byte) {
		t.Helper()
		packet := change(append([]byte(nil), good...))
		answer := reply(nil, packet)
		if want < 0 {
			if len(answer) != 0 {
				t.Errorf("% x is answered by % x", packet, answer)
			}
			return
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil || !m.Response || m.Rcode != want || m.Id != 0x1234 || len(m.Answer) > 0 || m.Opcode != int(packet[2]>>3&0xf) {
			t.Errorf("% x is answered by %v (%v), want %s", packet, &m, err, dns.RcodeToString[want])
		}
	}
	set := func(at int, value byte) func([]byte) []byte {
		return func(packet []byte) []byte {
			packet[at] = value
			return packet
		}
	}
	cut := func(n int) func([]byte) []byte {
		return func(packet []byte) []byte { return packet[:n] }
	}
	f(-1, cut(0))
	f(-1, cut(11))
	f(-1, set(2, 0x81)) // a response
	f(dns.RcodeFormatError, cut(12))
	f(dns.RcodeFormatError, cut(13))
	f(dns.RcodeFormatError, cut(16))
	f(dns.RcodeFormatError, cut(len(good)-1))
	f(dns.RcodeFormatError, set(5, 0))     // no question
	f(dns.RcodeFormatError, set(5, 2))     // two
	f(dns.RcodeFormatError, set(12, 0xc0)) // a compressed name
	f(dns.RcodeFormatError, set(12, 64))
	f(dns.RcodeFormatError, set(12, 60)) // a label beyond the end
	f(dns.RcodeNotImplemented, set(2, 0x29))
	f(dns.RcodeRefused, set(len(good)-1, dns.ClassCHAOS))
	f(dns.RcodeFormatError, func(packet []byte) []byte { // 257 bytes of name
		name := strings.Repeat("\x3f"+strings.Repeat("x", 63), 4) + "\x00"
		return append(append(packet[:12:12], name...), 0, 1, 0, 1)
	})
}

// TestOddExtras shows that counts which say more than there is do no harm.
func TestOddExtras(t *testing.T) {
	plain := ask("a.b.", dns.TypeA, false)
	f := func(extra string, records uint16, edns bool) {
		t.Helper()
		packet := append(append([]byte(nil), plain...), extra...)
		binary.BigEndian.PutUint16(packet[10:], records)
		var m dns.Msg
		if err := m.Unpack(reply(nil, packet)); err != nil || (m.IsEdns0() != nil) != edns || len(m.Answer) != 1 {
			t.Errorf("%q: %v (%v)", extra, &m, err)
		}
	}
	opt := string(recordOPT)
	f("", 0, false)
	f("", 1, false)
	f(opt, 0, false)
	f(opt[:10], 1, false)
	f(opt, 1, true)
	f(opt, 65535, true)
	f("\x01"+opt[1:], 1, false)
	f("\x00\x00\x2a"+opt[3:], 1, false)
}

// TestAddresses shows that a name's address is its own, but for its case and its final dot.
func TestAddresses(t *testing.T) {
	seen := map[netip.Addr]bool{}
	const n = 100_000
	for i := range n {
		addr := addressOf(hostOf(i))
		if !netip.MustParsePrefix("10.0.0.0/8").Contains(addr) {
			t.Fatalf("%s has the address %v", hostOf(i), addr)
		}
		seen[addr] = true
	}
	// Of so many drawn from 2^24, some hundreds meet.
	if len(seen) < n-1000 {
		t.Errorf("%d addresses of %d names", len(seen), n)
	}
	if addressOf("A.Test") != addressOf("a.test.") || addressOf("a.test") == addressOf("at.est") {
		t.Error("names are not told apart by their labels alone")
	}
}

func FuzzReply(f *testing.F) {
	f.Add(ask("h0.bulk.test.", dns.TypeA, true))
	f.Add(ask("h0.bulk.test.", dns.TypeAAAA, false))
	f.Add(ask("a.b.", dns.TypeA, false)[:16])
	f.Fuzz(func(t *testing.T, packet []byte) {
		answer := reply(nil, packet)
		if len(answer) == 0 {
			return
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil || len(answer) > maxReply || !m.Response {
			t.Errorf("% x is answered by % x: %v", packet, answer, err)
		}
	})
}

func TestReplyAllocations(t *testing.T) {
	question, buf := ask("h0.bulk.test.", dns.TypeA, true), make([]byte, 0, maxReply)
	if n := testing.AllocsPerRun(100, func() { reply(buf, question) }); n != 0 {
		t.Errorf("%v allocations an answer", n)
	}
}

// TestFates shows that packets fare as often as they are meant to, each by itself, and alike with the same seed.
func TestFates(t *testing.T) {
	const n = 1_000_000
	f := faults{Drop: 5, Delay: 10, Seed: 1}
	count := map[fate]int{}
	pairs := 0 // dropped, one after another
	for i := range uint64(n) {
		what := f.fate(i)
		count[what]++
		if what == dropped && f.fate(i+1) == dropped {
			pairs++
		}
	}
	near := func(what string, got int, share float64) {
		t.Helper()
		if want := share * n; math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: %d, want about %.0f", what, got, want)
		}
	}
	near("dropped", count[dropped], 0.05)
	near("delayed", count[delayed], 0.10)
	near("two dropped", pairs, 0.0025)
	again, other, differ := faults{Drop: 5, Delay: 10, Seed: 1}, faults{Drop: 5, Delay: 10, Seed: 2}, 0
	for i := range uint64(1000) {
		if f.fate(i) != again.fate(i) {
			t.Fatal("the same seed lets packets fare otherwise")
		}
		if f.fate(i) != other.fate(i) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("another seed lets all packets fare the same")
	}
	all := faults{Drop: 100}
	if all.fate(7) != dropped || new(faults).fate(7) != answered {
		t.Error("all or nothing is neither")
	}
}

// start runs a server until the test ends, and returns a socket connected to it.
func start(t *testing.T, f faults) (*server, net.Conn) {
	t.Helper()
	s, err := listen(f)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	t.Cleanup(func() {
		s.close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("udp", s.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return s, conn
}

// TestServer asks it by more packets than it reads at a time.
func TestServer(t *testing.T) {
	s, conn := start(t, faults{})
	const n = 3 * batch
	for i := range n {
		question := ask(dns.Fqdn(hostOf(i)), dns.TypeA, true)
		binary.BigEndian.PutUint16(question, uint16(i))
		if _, err := conn.Write(question); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write([]byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, maxPacket)
	for i := range n {
		length, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(buf[:length]); err != nil {
			t.Fatal(err)
		}
		host := hostOf(i)
		if addr, err := firstA(&m); err != nil || m.Id != uint16(i) || addr != addressOf(host) {
			t.Errorf("%s: %v (%v)", host, &m, err)
		}
	}
	for s.odd.Load() == 0 {
		time.Sleep(time.Millisecond) // it reads one more packet, or the test ends by its time
	}
	if got := s.counts(); got.Packets != n+1 || got.Odd != 1 || got.Dropped != 0 || got.Delayed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestLateServer shows that a late answer comes, and not before its time.
func TestLateServer(t *testing.T) {
	const late = 50 * time.Millisecond
	s, conn := start(t, faults{Delay: 100, By: late})
	began := time.Now()
	for range 2 {
		if _, err := conn.Write(ask("h0.bulk.test.", dns.TypeA, false)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, maxPacket)
	for range 2 {
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < late {
		t.Errorf("the answers came after %v", took)
	}
	if got := s.counts(); got.Packets != 2 || got.Delayed != 2 {
		t.Errorf("%+v", got)
	}
}

// TestCloseWhileLate shows that nobody waits for answers that are late when the server ends.
func TestCloseWhileLate(t *testing.T) {
	s, conn := start(t, faults{Delay: 100, By: time.Hour})
	if _, err := conn.Write(ask("h0.bulk.test.", dns.TypeA, false)); err != nil {
		t.Fatal(err)
	}
	for s.delayed.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkServer asks with so many questions under way that the server always has some to answer. The processor time of
// both sides is in it.
//
//	go test ./bench/cmd/lookups -run '^$' -bench Server
func BenchmarkServer(b *testing.B) {
	s, err := listen(faults{})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	conn, err := net.Dial("udp", s.addr().String())
	if err != nil {
		b.Fatal(err)
	}
	question, buf := ask("h1234567.bulk.test.", dns.TypeA, true), make([]byte, maxPacket)
	const ahead = 100
	for i := 0; i < b.N+ahead; i++ {
		if i < b.N {
			if _, err := conn.Write(question); err != nil {
				b.Fatal(err)
			}
		}
		if i >= ahead {
			if _, err := conn.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "questions/s")
	s.close()
	if err := <-served; err != nil {
		b.Fatal(err)
	}
}
