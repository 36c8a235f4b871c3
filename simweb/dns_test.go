package simweb

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/memnet"
)

func TestNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{Addresses: 64})
		f := func(host string, qtype uint16, network string, rcode, answers int) {
			t.Helper()
			q := new(dns.Msg)
			q.SetQuestion(dns.Fqdn(host), qtype)
			ask := askNameByTCP
			if network == "udp" {
				ask = func(w *Web, q *dns.Msg) (*dns.Msg, error) {
					conn := askName(w, q)
					defer conn.Close()
					return nextAnswer(conn)
				}
			}
			m, err := ask(w, q)
			if err != nil {
				t.Errorf("%s: %v", host, err)
				return
			}
			if m.Rcode != rcode || len(m.Answer) != answers {
				t.Errorf("%s %s: %d with %d records, want %d with %d", host, dns.TypeToString[qtype], m.Rcode, len(m.Answer), rcode,
					answers)
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
	})
}

// TestForgedNames reads the answers to a question, packet by packet.
func TestForgedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWeb(t, Config{Addresses: 64})
		ask := func(name string) (c *memnet.Packets, q *dns.Msg) {
			q = new(dns.Msg).SetQuestion(name+".zoo.test.", dns.TypeA)
			return askName(w, q), q
		}
		next := func(c *memnet.Packets) (*dns.Msg, netip.Addr) {
			t.Helper()
			m, err := nextAnswer(c)
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
			if answer.Id != q.Id || answer.Question[0] != q.Question[0] || addr != w.Lookup(name+".zoo.test").Addr ||
				w.places[addr] == nil {
				t.Errorf("%s: the answer is\n%v", name, answer)
			}
		}
		// The first question is lost, the second is not; Forget resets this.
		for range 2 {
			c, q := ask("dns-lost")
			send(c, q)
			if _, addr := next(c); addr != w.Lookup("dns-lost.zoo.test").Addr {
				t.Errorf("dns-lost: %v", addr)
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Hour))
			if _, err := nextAnswer(c); err == nil {
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
	})
}

func lastAddr(m *dns.Msg) (netip.Addr, bool) {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return netip.AddrFromSlice(a.A.To4())
		}
	}
	return netip.Addr{}, false
}
