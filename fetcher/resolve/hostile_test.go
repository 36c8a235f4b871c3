package resolve

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/exchange"
)

// This file tests hostile name servers, and forgers that answer in place of a name server. Its tables say who may
// answer, what an answer may be, how long it is valid, and what it may cost. scripted_test.go has the server and the
// functions that make up its scripts.

// The good address is the right answer. The resolver must never return the evil one.
const (
	good = "192.0.2.1"
	evil = "192.0.2.66"
)

// TestUnexpectedPackets sends packets that do not answer the question. None is an answer, and none ends the wait for
// the answer.
func TestUnexpectedPackets(t *testing.T) {
	noLeaks(t)
	f := func(name string, unexpected script) {
		t.Helper()
		play := func(how, want string, script script) {
			t.Helper()
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				r := newResolver(t, quick(waitsFor(want)), hostile(t, script).addr)
				if got := r.Lookup(t.Context(), "a.com", 0); !is(got, want) {
					t.Errorf("got %s, want %s", tell(got), want)
				}
			})
		}
		right := says("a.com. 60 A " + good)
		play("alone", "dns_timeout", unexpected)
		play("before the answer", "["+good+"]", together(unexpected, right))
		play("before the answer to the repetition", "["+good+"]", turns(unexpected, right))
		play("by TCP", "dns_failed or dns_timeout", over(truncated, unexpected))
	}
	lie := "a.com. 60 A " + evil
	f("wrong id", edited(func(m *dns.Msg) { m.Id ^= 1 }, lie))
	f("id with its bytes exchanged", edited(func(m *dns.Msg) {
		if m.Id = m.Id<<8 | m.Id>>8; m.Id>>8 == m.Id&0xff {
			m.Id ^= 1
		}
	}, lie))
	f("other name", edited(func(m *dns.Msg) { m.Question[0].Name = "evil.com." }, lie, "evil.com. 60 A "+evil))
	f("longer name", edited(func(m *dns.Msg) { m.Question[0].Name = "a.com.evil." }, lie))
	f("shorter name", edited(func(m *dns.Msg) { m.Question[0].Name = "com." }, lie))
	f("the root", edited(func(m *dns.Msg) { m.Question[0].Name = "." }, lie))
	f("name with a dot in a label", edited(func(m *dns.Msg) { m.Question[0].Name = `a\.com.` }, lie))
	f("other type", edited(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeMX }, lie))
	f("type ANY", edited(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeANY }, lie))
	f("other class", edited(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, lie))
	f("class ANY", edited(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, lie))
	f("two questions", edited(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, lie))
	f("no question", edited(func(m *dns.Msg) { m.Question = nil }, lie))
	f("no question and no such name", edited(func(m *dns.Msg) { m.Question, m.Rcode = nil, dns.RcodeNameError }))
	f("no response", edited(func(m *dns.Msg) { m.Response = false }, lie))
	f("the question itself", func(q *query) { q.send(q.packet) })
	f("other operation", edited(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, lie))
	f("cut in the header", bytewise(func(p []byte) []byte { return p[:11] }, lie))
	f("cut in the question", bytewise(func(p []byte) []byte { return p[:18] }, lie))
	f("nothing in it", bytewise(func(p []byte) []byte { return nil }))
	f("one byte", bytewise(func(p []byte) []byte { return p[:1] }))
}

// TestSpoofedSource sends right answers from another address or port. They are ignored.
func TestSpoofedSource(t *testing.T) {
	t.Parallel()
	f := func(name, want string, script script) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResolver(t, quick(waitsFor(want)), hostile(t, script).addr)
			if got := r.Lookup(t.Context(), "a.com", 0); !is(got, want) {
				t.Errorf("got %s, want %s", tell(got), want)
			}
		})
	}
	lie, right := "a.com. 60 A "+evil, says("a.com. 60 A "+good)
	// An unconnected socket does receive such packets.
	open, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	elsewhere(t, "127.0.0.1", lie)(&query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA), from: open.LocalAddr().(*net.UDPAddr)})
	if _, err := open.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	f("another port alone", "dns_timeout", elsewhere(t, "127.0.0.1", lie))
	f("another port first", "["+good+"]", together(elsewhere(t, "127.0.0.1", lie), right))
	f("another address alone", "dns_timeout", elsewhere(t, "127.0.0.2", lie))
	f("another address first", "["+good+"]", together(elsewhere(t, "127.0.0.2", lie), right))
}

// TestHostileAnswers is the table of answers by the server itself.
func TestHostileAnswers(t *testing.T) {
	noLeaks(t)
	f := func(name, want string, script script) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResolver(t, quick(waitsFor(want)), hostile(t, script).addr)
			began := time.Now()
			got := r.Lookup(t.Context(), "a.com", 0)
			if !is(got, want) {
				t.Errorf("got %s, want %s", tell(got), want)
			}
			if took := time.Since(began); took > waitsFor(want)+5*time.Second {
				t.Errorf("took %v", took)
			}
			if strings.ContainsFunc(got.Alias, func(c rune) bool { return c <= ' ' || c > '~' }) {
				t.Errorf("the alias is %q", got.Alias)
			}
		})
	}
	const (
		right   = "[" + good + "]"
		failed  = "dns_failed"
		absent  = "dns_not_found"
		lost    = "dns_failed or dns_timeout"
		nothing = "dns_failed or dns_timeout or dns_not_found"
		aRight  = "a.com. 60 A " + good
		aEvil   = "a.com. 60 A " + evil
	)
	// Time.
	f("the first question is lost", right, turns(quiet, says(aRight)))
	f("the first three questions are lost", right, turns(quiet, quiet, quiet, says(aRight)))
	f("each question is answered twice", right, together(says(aRight), says(aRight)))
	f("each question is answered a hundred times", right, together(slices.Repeat([]script{says(aRight)}, 100)...))
	f("the answer and then a lie", right, together(says(aRight), says(aEvil)))
	first := make(chan *query, 1)
	f("the answer to the first question, after the second", right, func(q *query) {
		if q.nth == 1 {
			first <- q
		}
		if q.nth == 2 {
			says(aRight)(<-first)
		}
	})
	f("silence", "dns_timeout", quiet)

	// Truncation.
	f("truncated", right, over(truncated, says(aRight)))
	f("truncated, with rubbish", right, over(bytewise(func(p []byte) []byte {
		p[2] |= 2
		p[7], p[9], p[11] = 9, 9, 9
		return append(p, "\xc0\xff\x40\x80rubbish"...)
	}), says(aRight)))
	f("truncated, with a lie", right, over(edited(func(m *dns.Msg) { m.Truncated = true }, aEvil), says(aRight)))
	f("truncated by TCP too", lost, truncated)
	f("truncated by TCP too, with a lie", lost, edited(func(m *dns.Msg) { m.Truncated = true }, aEvil))
	f("by TCP silence", "dns_timeout", over(truncated, func(q *query) { <-q.server.done }))
	f("by TCP a hang-up", lost, over(truncated, func(q *query) { _ = q.conn.Close() }))
	f("by TCP a length of 65535 and a stall", lost, over(truncated, func(q *query) {
		_, _ = q.conn.Write([]byte("\xff\xff"))
		q.send(packed(q.reply(aEvil)))
		<-q.server.done
	}))
	f("by TCP half a length", lost, over(truncated, func(q *query) {
		_, _ = q.conn.Write([]byte{0})
		<-q.server.done
	}))
	f("by TCP a length of 0", lost, over(truncated, func(q *query) { q.send(nil) }))
	f("by TCP an end in the middle", lost, over(truncated, func(q *query) {
		p := packed(q.reply(aEvil))
		_, _ = q.conn.Write(append([]byte{0, byte(len(p))}, p[:len(p)-1]...))
		_ = q.conn.Close()
	}))
	f("by TCP a byte at a time", right, over(truncated, func(q *query) {
		p := packed(q.reply(aRight))
		for _, b := range append([]byte{0, byte(len(p))}, p...) {
			if _, err := q.conn.Write([]byte{b}); err != nil {
				return
			}
			runtime.Gosched()
		}
	}))
	f("by TCP SERVFAIL", failed, over(truncated, refuses(dns.RcodeServerFailure)))
	f("by TCP no such name", absent, over(truncated, refuses(dns.RcodeNameError)))

	// Codes.
	f("SERVFAIL", failed, refuses(dns.RcodeServerFailure))
	f("SERVFAIL once", right, turns(refuses(dns.RcodeServerFailure), says(aRight)))
	f("malformed once", right, turns(raw(1, "\xff"), says(aRight)))
	f("REFUSED", failed, refuses(dns.RcodeRefused))
	f("REFUSED, the header alone", failed, edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeRefused, nil }))
	f("NOTIMP", failed, refuses(dns.RcodeNotImplemented))
	f("FORMERR", failed, refuses(dns.RcodeFormatError))
	f("FORMERR, the header alone", failed, edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeFormatError, nil }))
	f("a code without a name", failed, refuses(14))
	f("SERVFAIL with an address", failed, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }, aEvil))
	f("no such name, with an address of another", absent, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, "b.com. 60 A "+evil))
	f("no such name, with its address", absent, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, aEvil))
	f("FORMERR for EDNS", right, func(q *query) {
		if q.IsEdns0() != nil {
			refuses(dns.RcodeFormatError)(q)
			return
		}
		says(aRight)(q)
	})
	f("FORMERR for EDNS, the header alone", right, func(q *query) {
		if q.IsEdns0() != nil {
			edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeFormatError, nil })(q)
			return
		}
		says(aRight)(q)
	})
	f("BADVERS", failed, edited(func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.Rcode = dns.RcodeBadVers
	}))
	f("huge OPT", right, edited(func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 1000)}}
	}, aRight))
	f("OPT larger than was asked for", right+" or "+lost, edited(func(m *dns.Msg) {
		m.SetEdns0(65535, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 60_000)}}
	}, aRight))
	f("two OPTs", right+" or "+lost, edited(func(m *dns.Msg) { m.SetEdns0(1232, false).SetEdns0(512, false) }, aRight))

	// Whose records, and where.
	f("of another name", absent, says("evil.com. 60 A "+evil))
	f("of a name above", absent, says("com. 60 A "+evil))
	f("of a name below", absent, says("b.a.com. 60 A "+evil))
	f("of all names", absent, says("*.com. 60 A "+evil, ". 60 A "+evil))
	f("of another class", absent, says("a.com. 60 CH A "+evil, "a.com. 60 HS A "+evil))
	f("of another type", absent, says("a.com. 60 TXT "+evil, "a.com. 60 MX 0 evil.com.", "evil.com. 60 A "+evil))
	f("among the authorities", absent, edited(func(m *dns.Msg) { m.Ns = parsed(aEvil) }))
	f("among the additional", absent, edited(func(m *dns.Msg) { m.Extra = parsed(aEvil) }))
	f("the alias's among the additional", absent+" or "+lost, byName(map[string]script{
		"a.com.": edited(func(m *dns.Msg) { m.Extra = parsed("b.com. 60 A " + evil) }, "a.com. 60 CNAME b.com."),
		"b.com.": refuses(dns.RcodeNameError),
	}))
	f("with others' between", right, says("evil.com. 60 A "+evil, aRight, "com. 60 A "+evil))
	f("upper case", right, says("A.cOm. 60 A "+good))
	f("twice the same", "["+good+"]", says(aRight, aRight, aRight))
	f("0.0.0.0", "[0.0.0.0]", says("a.com. 60 A 0.0.0.0"))
	f("loopback", "[127.0.0.1]", says("a.com. 60 A 127.0.0.1"))
	f("an IPv4 address as IPv6", "[127.0.0.1]", says("a.com. 60 AAAA ::ffff:127.0.0.1"))
	f("the unspecified IPv6 address", "[::]", says("a.com. 60 AAAA ::"))

	// Aliases.
	loop := failed
	f("an alias of itself", loop, says("a.com. 60 CNAME a.com."))
	f("an alias of itself in upper case", loop, says("a.com. 60 CNAME A.COM."))
	f("a loop of two", loop, says("a.com. 60 CNAME b.com.", "b.com. 60 CNAME a.com."))
	f("a loop of seventeen", loop, says(ring(17)...))
	f("a loop that the name is not of", loop, says("a.com. 60 CNAME b.com.", "b.com. 60 CNAME c.com.", "c.com. 60 CNAME b.com."))
	f("a loop over answers", loop, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME b.com."),
		"b.com.": says("b.com. 60 CNAME a.com."),
	}))
	f("sixteen", right, says(aliases(16)...))
	f("sixteen, backwards", right, says(reversed(aliases(16))...))
	f("sixteen, five an answer", right, func(q *query) {
		records := aliases(16)
		for i, record := range records {
			if strings.HasPrefix(record, q.Question[0].Name+" ") {
				says(records[i:min(i+5, len(records))]...)(q)
			}
		}
	})
	f("seventeen", loop, says(aliases(17)...))
	f("a thousand", loop, over(truncated, says(aliases(1000)...)))
	f("without end over answers", loop, func(q *query) {
		says(q.Question[0].Name + " 60 CNAME x." + q.Question[0].Name)(q)
	})
	f("without end, each after a while", lost, func(q *query) {
		turns(quiet, quiet, says(q.Question[0].Name+" 60 CNAME x."+q.Question[0].Name))(q)
	})
	f("to no such name", absent, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, "a.com. 60 CNAME b.com."))
	f("a dot in a label", right, byName(map[string]script{
		"a.com.":    says(`a.com. 60 CNAME b\.c.com.`, "b.c.com. 60 A "+evil),
		`b\.c.com.`: says(`b\.c.com. 60 A ` + good),
	}))
	f("bytes that no host name has", right, says(`a.com. 60 CNAME \000\009\010\013\027\\\".\127\255\.com.`, `\000\009\010\013\027\\\".\127\255\.com. 60 A `+good))
	f("bytes that no host name has, asked for", right, byName(map[string]script{
		"a.com.":                says(`a.com. 60 CNAME \000\010\013\027.com.`),
		`\000\010\013\027.com.`: says(`\000\010\013\027.com. 60 A ` + good),
	}))
	f("an underscore", right, says("a.com. 60 CNAME _b._tcp.com.", "_b._tcp.com. 60 A "+good))
	f("UTF-8", right, says(`a.com. 60 CNAME b\195\188cher.com.`, `b\195\188cher.com. 60 A `+good))
	// Unicode folds K (the Kelvin sign) to k, and ſ to s. In DNS they are other bytes (RFC 4343 §3).
	f("letters that are alike", right, byName(map[string]script{
		"a.com.":                    says(`a.com. 60 CNAME \226\132\170\197\191.com.`, "ks.com. 60 A "+evil),
		`\226\132\170\197\191.com.`: says(`\226\132\170\197\191.com. 60 A ` + good),
	}))
	f("letters of the other case", right, says("a.com. 60 CNAME B.com.", "b.COM. 60 A "+good))
	label := strings.Repeat("b", 63)
	f("the longest label", right, says("a.com. 60 CNAME "+label+".com.", label+".com. 60 A "+good))
	longest := strings.Repeat(label+".", 3) + strings.Repeat("c", 61) + "."
	f("the longest name", right, says("a.com. 60 CNAME "+longest, longest+" 60 A "+good))
	f("the longest name, asked for", right, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME " + longest),
		longest:  says(longest + " 60 A " + good),
	}))
	worst := strings.Repeat(strings.Repeat(`\000`, 63)+".", 3) + strings.Repeat(`\255`, 61) + "."
	f("the longest name of the worst bytes, asked for", right, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME " + worst),
		worst:    says(worst + " 60 A " + good),
	}))
	f("the root", nothing, says("a.com. 60 CNAME ."))

	// Malformed packets. A question about a.com. ends before 0x17.
	const record = "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x42" // A, IN, a minute, the evil address
	f("a pointer to itself", lost, raw(1, "\xc0\x17"+record))
	f("two pointers to each other", lost, raw(1, "\xc0\x19\xc0\x17"+record))
	f("a label and a pointer to it", lost, raw(1, "\x01a\xc0\x17"+record))
	f("a pointer ahead", lost, raw(1, "\xc0\x30"+record))
	f("a pointer beyond the packet", lost, raw(1, "\xff\xff"+record))
	f("half a pointer", lost, raw(1, "\xc0"))
	f("a label of an unknown kind", lost, raw(1, "\x41a\xc0\x0c"+record))
	f("a label beyond the packet", lost, raw(1, "\x3fa"+record))
	f("a name without end", lost, raw(1, strings.Repeat("\x01a", 40)))
	f("a name of more than 255 bytes", lost, raw(1, strings.Repeat("\x3f"+label, 5)+"\x00"+record))
	f("a data length beyond the packet", lost, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\xff\xff\xc0\x00\x02\x42"))
	f("an address of three bytes", nothing, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x03\xc0\x00\x02"))
	f("an address of five bytes", nothing, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x05\xc0\x00\x02\x42\x00"))
	f("an address of no byte", nothing, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x00"))
	f("an IPv6 address of four bytes", nothing, raw(1, "\xc0\x0c\x00\x1c\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x42"))
	f("an alias longer than its data", nothing, raw(2, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x01\x04evil\x00"+"\x04evil\x00"+record))
	f("an alias shorter than its data", nothing, raw(2, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x09\x04evil\x00xyz"+"\x04evil\x00"+record))
	f("an alias that is a pointer to itself", lost, raw(1, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x23"))
	f("fewer records than it says", lost, bytewise(func(p []byte) []byte { p[6], p[7] = 0xff, 0xff; return p }))
	f("more records than it says", absent+" or "+lost, raw(0, "\xc0\x0c"+record))
	f("a question whose name is a pointer to itself", lost, bytewise(func(p []byte) []byte {
		return append(append(p[:12:12], "\xc0\x0c\x00\x01\x00\x01"...), "\xc0\x0c"+record...)
	}))
}

// aliases returns a chain of n aliases from a.com. to the good address.
func aliases(n int) (records []string) {
	name := "a.com."
	for i := range n {
		next := fmt.Sprintf("b%d.com.", i)
		records = append(records, name+" 60 CNAME "+next)
		name = next
	}
	return append(records, name+" 60 A "+good)
}

// ring returns a loop of n aliases from a.com. to a.com., and a record with the evil address.
func ring(n int) []string {
	records := aliases(n - 1)
	name, _, _ := strings.Cut(records[n-1], " ")
	return append(records[:n-1], name+" 60 CNAME a.com.", "b99.com. 60 A "+evil)
}

func reversed(records []string) []string {
	slices.Reverse(records)
	return records
}

// TestCutAnswer cuts a good answer at every byte. The rest is no answer, and never means that there is no address.
// The repetition gets the answer.
func TestCutAnswer(t *testing.T) {
	noLeaks(t)
	records := []string{"a.com. 60 CNAME b.com.", "b.com. 60 A " + good, "b.com. 60 A 192.0.2.2", "b.com. 60 AAAA 2001:db8::1"}
	right := bytewise(func(p []byte) []byte { return p }, records...)
	size := 0
	{
		q := &query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA)}
		size = len(packed(q.reply(records...)))
	}
	for _, transport := range []string{"UDP", "TCP"} {
		t.Run(transport, func(t *testing.T) {
			for n := range size {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					t.Parallel()
					cut := turns(bytewise(func(p []byte) []byte { return p[:min(n, len(p))] }, records...), right)
					if transport == "TCP" {
						cut = over(truncated, cut)
					} else {
						cut = byName(map[string]script{"a.com.": cut, "b.com.": says(records[1:]...)})
					}
					r := newResolver(t, quick(long), hostile(t, cut).addr)
					got := r.Lookup(t.Context(), "a.com", 0)
					slices.SortFunc(got.Addrs, netip.Addr.Compare)
					if !is(got, "["+good+" 192.0.2.2] or dns_failed or dns_timeout") {
						t.Errorf("got %s", tell(got))
					}
				})
			}
		})
	}
}

// TestTCPRefused has a server that truncates its answer and refuses the TCP connection.
func TestTCPRefused(t *testing.T) {
	noLeaks(t)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			m := new(dns.Msg)
			if m.Unpack(buf[:n]) == nil {
				m.Response, m.Truncated = true, true
				_, _ = packets.WriteTo(packed(m), from)
			}
		}
	})
	t.Cleanup(func() {
		_ = packets.Close()
		serving.Wait()
	})
	r := newResolver(t, quick(short), packets.LocalAddr().String())
	if got := r.Lookup(t.Context(), "a.com", 0); !is(got, "dns_failed or dns_timeout") {
		t.Errorf("alone: got %s", tell(got))
	}
	r = newResolver(t, quick(long), packets.LocalAddr().String(), hostile(t, says("a.com. 60 A "+good)).addr)
	if got := r.Lookup(t.Context(), "a.com", 0); !is(got, "["+good+"]") {
		t.Errorf("with another: got %s", tell(got))
	}
}

// TestOneOfTwoServers has one server that answers. The other one's faults lose no name.
func TestOneOfTwoServers(t *testing.T) {
	noLeaks(t)
	at := func(name, bad string) {
		t.Helper()
		play := func(how string, lost int) {
			t.Helper()
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				other := hostile(t, func(q *query) {
					if q.nth > lost {
						says(q.Question[0].Name + " 60 A " + good)(q)
					}
				})
				r := newResolver(t, quick(long), bad, other.addr)
				var all sync.WaitGroup
				for i := range 20 { // the first server is random
					all.Go(func() {
						if got := r.Lookup(t.Context(), fmt.Sprintf("a%d.com", i), 0); !is(got, "["+good+"]") {
							t.Errorf("lookup %d: got %s", i, tell(got))
						}
					})
				}
				all.Wait()
			})
		}
		if testing.Short() && name == "truncated, and silence by TCP" {
			return // three seconds a question
		}
		play("and a good one", 0)
		play("and one that loses a question", 1)
		play("and one that loses two", 2)
	}
	f := func(name string, bad script) {
		t.Helper()
		at(name, hostile(t, bad).addr)
	}
	at("closed port", closedPort(t))
	f("silence", quiet)
	f("SERVFAIL", refuses(dns.RcodeServerFailure))
	f("REFUSED", refuses(dns.RcodeRefused))
	f("REFUSED, the header alone", edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeRefused, nil }))
	f("FORMERR", refuses(dns.RcodeFormatError))
	f("NOTIMP", refuses(dns.RcodeNotImplemented))
	f("malformed", raw(1, "\xff"))
	f("unexpected packets", edited(func(m *dns.Msg) { m.Id++ }))
	f("truncated, and silence by TCP", over(truncated, func(q *query) { <-q.server.done }))
	f("truncated, and a hang-up", over(truncated, func(q *query) { _ = q.conn.Close() }))
	f("truncated, and rubbish", over(truncated, raw(9, "\xc0\xc0\xc0")))
}

// TestAllSilent has two silent servers. The look-up ends when its time is up.
func TestAllSilent(t *testing.T) {
	t.Parallel()
	unhurried(t, short, func(total time.Duration) string {
		servers := []*scripted{hostile(t, quiet), hostile(t, quiet)}
		r := newResolver(t, quick(total), servers[0].addr, servers[1].addr)
		began := time.Now()
		if got := r.Lookup(t.Context(), "a.com", 0); !is(got, "dns_timeout") {
			t.Errorf("got %s", tell(got))
		}
		if took := time.Since(began); took < total || took > total+5*time.Second {
			t.Errorf("took %v", took)
		}
		a, b := servers[0].questions(), servers[1].questions()
		if a > 20 || b > 20 {
			t.Errorf("the servers were asked %d and %d times", a, b)
		}
		if a < 1 || b < 1 {
			return fmt.Sprintf("the servers were asked %d and %d times", a, b)
		}
		return ""
	})
}

// TestManyAddresses has an answer of a thousand addresses. Of these maxAddrs are kept, the same ones in any order of
// the answer.
func TestManyAddresses(t *testing.T) {
	noLeaks(t)
	var records []string
	for i := range 1000 {
		records = append(records, fmt.Sprintf("a.com. 60 A 198.18.%d.%d", i/250, i%250))
	}
	script := over(truncated, func(q *query) {
		mixed := slices.Clone(records)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		says(mixed...)(q)
	})
	server := hostile(t, script)
	var first []netip.Addr
	for i := range 5 {
		r := newResolver(t, quick(long), server.addr)
		got := r.Lookup(t.Context(), "a.com", 0)
		if got.Outcome != 0 || len(got.Addrs) != maxAddrs {
			t.Fatalf("got %d addresses, %s", len(got.Addrs), tell(got))
		}
		for _, addr := range got.Addrs {
			if !slices.Contains(records, "a.com. 60 A "+addr.String()) {
				t.Errorf("%s was in no answer", addr)
			}
		}
		if i == 0 {
			first = got.Addrs
		} else if !slices.Equal(got.Addrs, first) {
			t.Errorf("got %v, at first %v", got.Addrs, first)
		}
	}

	// A server that repeats one address does not hide the others.
	server = hostile(t, over(truncated, says(append(slices.Repeat([]string{"a.com. 60 A " + good}, 500), "a.com. 60 A 192.0.2.2")...)))
	got := newResolver(t, quick(long), server.addr).Lookup(t.Context(), "a.com", 0)
	if !is(got, "["+good+" 192.0.2.2] or [192.0.2.2 "+good+"]") {
		t.Errorf("got %s", tell(got))
	}
}

// TestTimesToLive checks how long an answer is valid: at least minTTL, at most maxTTL, or maxNegative for the absence
// of addresses.
func TestTimesToLive(t *testing.T) {
	noLeaks(t)
	f := func(name string, want time.Duration, script script) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResolver(t, quick(long), hostile(t, script).addr)
			began := time.Now()
			got := r.Lookup(t.Context(), "a.com", 0)
			if got.Outcome != 0 && got.Outcome != exchange.DNSNotFound {
				t.Fatalf("got %s", tell(got))
			}
			if after := got.Until.Sub(began); after < want-time.Second || after > want+time.Since(began)+time.Second {
				t.Errorf("%s is valid for %v, want %v", tell(got), after, want)
			}
		})
	}
	// TTLs are set in the message, because the parser of master files accepts only some.
	ttls := func(ttl uint32, records ...string) script {
		return edited(func(m *dns.Msg) {
			for _, rr := range m.Answer {
				rr.Header().Ttl = ttl
			}
		}, records...)
	}
	negative := func(rcode int, ttl, minimum uint32) script {
		return edited(func(m *dns.Msg) {
			m.Rcode = rcode
			m.Ns = parsed("com. 60 SOA ns. hostmaster. 1 2 3 4 5")
			soa := m.Ns[0].(*dns.SOA)
			soa.Hdr.Ttl, soa.Minttl = ttl, minimum
		})
	}
	a := "a.com. 60 A " + good
	f("a minute", time.Minute, says(a))
	f("zero", minTTL, ttls(0, a))
	f("a second", minTTL, ttls(1, a))
	f("the largest", maxTTL, ttls(1<<31-1, a))
	// A TTL with the highest bit set is zero (RFC 2181 §8).
	f("2³¹", minTTL, ttls(1<<31, a))
	f("2³² - 1", minTTL, ttls(1<<32-1, a))
	f("the least of the addresses'", 20*time.Second, says("a.com. 30 A "+good, "a.com. 20 A 192.0.2.2", "a.com. 40 A 192.0.2.3"))
	f("the least of the aliases'", 20*time.Second, says("a.com. 30 CNAME b.com.", "b.com. 20 CNAME c.com.", "c.com. 1000 A "+good))
	f("the least of several answers'", 20*time.Second, byName(map[string]script{
		"a.com.": says("a.com. 20 CNAME b.com."),
		"b.com.": says("b.com. 1000 A " + good),
	}))
	f("not that of others", time.Minute, says(a, "evil.com. 15 A "+evil))
	for name, rcode := range map[string]int{"no such name": dns.RcodeNameError, "no address": dns.RcodeSuccess} {
		f(name+", the zone's word", 2*time.Minute, negative(rcode, 900, 120))
		f(name+", the SOA's own time", 2*time.Minute, negative(rcode, 120, 900))
		f(name+", small", minTTL, negative(rcode, 900, 0))
		f(name+", large", maxNegative, negative(rcode, 1<<31-1, 1<<31-1))
		f(name+", 2³¹", minTTL, negative(rcode, 1<<31, 900))
		f(name+", the zone's word 2³¹", minTTL, negative(rcode, 900, 1<<31))
		f(name+", no word", minTTL, refuses(rcode))
	}
	f("an alias of nothing, for less than nothing", 20*time.Second, edited(func(m *dns.Msg) {
		m.Rcode = dns.RcodeNameError
		m.Ns = parsed("com. 900 SOA ns. hostmaster. 1 2 3 4 900")
	}, "a.com. 20 CNAME b.com."))
}

// TestHostNames checks the names in questions. Invalid names reach no server.
func TestHostNames(t *testing.T) {
	noLeaks(t)
	f := func(host, asked string) {
		t.Helper()
		var questions sync.Map
		server := hostile(t, func(q *query) {
			questions.Store(q.Question[0].Name, true)
			says(q.Question[0].Name + " 60 A " + good)(q)
		})
		got := newResolver(t, quick(long), server.addr).Lookup(t.Context(), host, 0)
		var names []string
		questions.Range(func(name, _ any) bool {
			names = append(names, name.(string))
			return true
		})
		if strings.Join(names, " ") != asked || (asked != "") != (got.Outcome == 0) {
			t.Errorf("%.80q: asked for %q, got %s", host, names, tell(got))
		}
		if asked == "" && got.Outcome != exchange.DNSNotFound && host != "localhost" && !strings.HasSuffix(host, ".localhost") {
			t.Errorf("%.80q: got %s", host, tell(got))
		}
	}
	label := strings.Repeat("b", 63)
	f("a.com", "a.com.")
	f("xn--bcher-kva.example", "xn--bcher-kva.example.")
	f("_dmarc.a.com", "_dmarc.a.com.")
	f("-a-.com", "-a-.com.")
	f("com", "com.")
	f(label+".com", label+".com.")
	f(strings.Repeat(label+".", 3)+strings.Repeat("c", 61), strings.Repeat(label+".", 3)+strings.Repeat("c", 61)+".")
	f(label+"b.com", "")
	f(strings.Repeat(label+".", 3)+strings.Repeat("c", 62), "")
	f(strings.Repeat("a.", 200)+"com", "")
	f("a..com", "")
	f(".a.com", "")
}

// TestLocalhost checks that local names reach no server (RFC 6761 §6.3).
func TestLocalhost(t *testing.T) {
	noLeaks(t)
	server := hostile(t, func(q *query) { says(q.Question[0].Name + " 60 A " + evil)(q) })
	r := newResolver(t, quick(long), server.addr)
	for _, host := range []string{"localhost", "a.localhost", "a.b.localhost"} {
		if got := r.Lookup(t.Context(), host, 0); !is(got, "[127.0.0.1 ::1]") {
			t.Errorf("%s: got %s", host, tell(got))
		}
		if got := r.LookupIPv6(t.Context(), host, 0); !is(got, "dns_not_found") {
			t.Errorf("%s: got %s by IPv6", host, tell(got))
		}
	}
	if n := server.questions(); n != 0 {
		t.Errorf("%d questions", n)
	}
	for _, host := range []string{"notlocalhost", "localhost.com", "xlocalhost"} { // no local names
		if got := r.Lookup(t.Context(), host, 0); !is(got, "["+evil+"]") {
			t.Errorf("%s: got %s", host, tell(got))
		}
	}
}

// TestFlood sends ten thousand unexpected packets before the answer. They cost time, but no memory, and the answer is
// not lost.
func TestFlood(t *testing.T) {
	noLeaks(t)
	const packets = 10_000
	server := hostile(t, turns(func(q *query) {
		p := packed(q.reply("a.com. 60 A " + evil))
		for i := range packets {
			if i++; i>>8 == int(q.Id>>8) {
				continue // never the right id
			}
			binary.BigEndian.PutUint16(p, uint16(i))
			q.send(p)
		}
		says("a.com. 60 A " + good)(q)
	}, says("a.com. 60 A "+good))) // the flood may cause the loss of the first answer
	r := newResolver(t, quick(long), server.addr)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := r.Lookup(t.Context(), "a.com", 0); !is(got, "["+good+"]") {
		t.Errorf("got %s", tell(got))
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d bytes more are in use", grown)
	}
	if r.Stats().Strangers == 0 {
		t.Error("unexpected packets were not counted")
	}
}

// TestManySilent makes a thousand concurrent look-ups without an answer. They take as long as one, and need no
// goroutine and no file of their own beyond the caller's.
func TestManySilent(t *testing.T) {
	noLeaks(t)
	const lookups, sockets = 1000, 16
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	goroutines, files := runtime.NumGoroutine()+1, openFiles()
	mostGoroutines, mostFiles := 0, 0
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 4096)
		for n := 0; ; n++ {
			if _, _, err := packets.ReadFrom(buf); err != nil {
				return
			}
			if n%100 == 99 {
				mostGoroutines, mostFiles = max(mostGoroutines, runtime.NumGoroutine()), max(mostFiles, openFiles())
			}
		}
	})
	opts := quick(time.Second)
	opts.MaxSockets = sockets
	r := newResolver(t, opts, packets.LocalAddr().String())
	var all sync.WaitGroup
	began := time.Now()
	for i := range lookups {
		all.Go(func() {
			if got := r.Lookup(t.Context(), fmt.Sprintf("a%d.com", i), 0); !is(got, "dns_timeout") {
				t.Errorf("got %s", tell(got))
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	_ = packets.Close()
	serving.Wait()
	if n := mostGoroutines - goroutines; n < lookups/2 || n > lookups+sockets {
		t.Errorf("%d goroutines for %d look-ups", n, lookups)
	}
	if n := mostFiles - files; n > sockets {
		t.Errorf("%d files for %d sockets", n, sockets)
	}
}

// TestHostilePatience checks that a look-up waits no longer than patience for a server that sends no usable answer.
// It is deferred then, without a result. A refusal is an answer.
func TestHostilePatience(t *testing.T) {
	noLeaks(t)
	const patience = 100 * time.Millisecond
	deferred := tell(Answer{Deferred: true})
	f := func(name, want string, script script) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResolver(t, quick(long), hostile(t, script).addr)
			began := time.Now()
			got := r.Lookup(t.Context(), "a.com", patience)
			if took := time.Since(began); took > patience+5*time.Second || got.Deferred && took < patience {
				t.Errorf("took %v", took)
			}
			if got.Deferred != (want == deferred) || !got.Deferred && !is(got, want) {
				t.Errorf("got %s, deferred: %v; want %s", tell(got), got.Deferred, want)
			}
			if got.Deferred && (got.Outcome != 0 || got.Cause != 0 || got.Addrs != nil || !got.Until.IsZero() || got.Alias != "") {
				t.Errorf("deferred with %+v", got)
			}
		})
	}
	f("silence", deferred, quiet)
	f("unexpected packets", deferred, edited(func(m *dns.Msg) { m.Id++ }, "a.com. 60 A "+evil))
	f("truncated, and silence by TCP", deferred, over(truncated, func(q *query) { <-q.server.done }))
	f("an alias without an answer", deferred, byName(map[string]script{"a.com.": says("a.com. 60 CNAME b.com.")}))
	f("silence about IPv6", deferred, func(q *query) {
		if q.Question[0].Qtype == dns.TypeA {
			says()(q)
		}
	})
	f("an answer in time", "["+good+"]", says("a.com. 60 A "+good))
	f("SERVFAIL", "dns_failed", refuses(dns.RcodeServerFailure))
	f("malformed", "dns_failed", raw(1, "\xff"))
	f("no such name", "dns_not_found", refuses(dns.RcodeNameError))

	// A deferred look-up has asked. The next one, with all its time, gets the late answer.
	server := hostile(t, turns(quiet, quiet, quiet, quiet, says("a.com. 60 A "+good)))
	r := newResolver(t, quick(long), server.addr)
	if got := r.Lookup(t.Context(), "a.com", 10*time.Millisecond); !got.Deferred {
		t.Errorf("at first: got %s", tell(got))
	}
	if got := r.Lookup(t.Context(), "a.com", 0); !is(got, "["+good+"]") {
		t.Errorf("later: got %s", tell(got))
	}
	if n := r.Stats().Deferred; n != 1 {
		t.Errorf("%d look-ups are counted as deferred", n)
	}
}

// TestQuestionsAreFew checks that no answer leads to many questions. Otherwise the resolver could be used to attack a
// name server.
func TestQuestionsAreFew(t *testing.T) {
	t.Parallel()
	f := func(name string, most int, script script) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := hostile(t, script)
			// The waits are so long that no question is repeated for silence.
			r := newResolver(t, Options{First: 2 * time.Second, Total: long}, server.addr)
			got := r.Lookup(t.Context(), "a.com", 0)
			if n := server.questions(); n > most || n == 0 {
				t.Errorf("%d questions for %s", n, tell(got))
			}
		})
	}
	f("an address", 1, says("a.com. 60 A "+good))
	f("no address", 2, says()) // of either kind
	f("no such name", 1, refuses(dns.RcodeNameError))
	f("SERVFAIL", 3, refuses(dns.RcodeServerFailure)) // with EDNS, and twice without
	f("REFUSED", 3, refuses(dns.RcodeRefused))
	f("FORMERR", 4, refuses(dns.RcodeFormatError)) // with EDNS and without
	f("malformed", 2, raw(1, "\xff"))
	f("truncated", 4, over(truncated, raw(1, "\xff"))) // by either transport
	f("a loop", 1, says("a.com. 60 CNAME b.com.", "b.com. 60 CNAME a.com."))
	f("a loop over answers", maxAliases+1, byName(map[string]script{"a.com.": says("a.com. 60 CNAME b.com."), "b.com.": says("b.com. 60 CNAME a.com.")}))
	f("aliases without end", maxQueries, func(q *query) { says(q.Question[0].Name + " 60 CNAME x." + q.Question[0].Name)(q) })
	f("aliases without end, each answered twice", maxQueries, func(q *query) {
		alias := q.Question[0].Name + " 60 CNAME x." + q.Question[0].Name
		together(says(alias), says(alias))(q)
	})
}

// TestCloseWhileAsking closes a resolver while look-ups are in flight. They end, and later ones work.
func TestCloseWhileAsking(t *testing.T) {
	t.Parallel()
	unhurried(t, 500*time.Millisecond, func(total time.Duration) string {
		var asked atomic.Int32
		server := hostile(t, func(q *query) {
			asked.Add(1)
			if strings.HasPrefix(q.Question[0].Name, "silent") {
				return
			}
			says(q.Question[0].Name + " 60 A " + good)(q)
		})
		r := newResolver(t, quick(total), server.addr)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if got := r.Lookup(t.Context(), fmt.Sprintf("silent%d.com", i), 0); got.Outcome == 0 {
					t.Errorf("got %s", tell(got))
				}
			})
			all.Go(func() { r.Lookup(t.Context(), fmt.Sprintf("a%d.com", i), 0) })
		}
		for asked.Load() < 50 {
			runtime.Gosched()
		}
		for range 30 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
		all.Wait()
		if got := r.Lookup(t.Context(), "later.com", 0); !is(got, "["+good+"]") {
			return "afterwards: got " + tell(got)
		}
		began := time.Now()
		if err := r.Close(); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("Close took %v: %v", time.Since(began), err)
		}
		return ""
	})
}

// TestUnpredictable checks that ids and ports of questions do not follow from earlier ones.
func TestUnpredictable(t *testing.T) {
	noLeaks(t)
	const lookups = 3 * questionsPerSocket
	var mu sync.Mutex
	ids, ports := map[uint16]bool{}, map[int]bool{}
	next := 0
	var last uint16
	server := hostile(t, func(q *query) {
		mu.Lock()
		ids[q.Id] = true
		ports[q.from.Port] = true
		if q.Id-last < 16 {
			next++
		}
		last = q.Id
		mu.Unlock()
		says(q.Question[0].Name + " 60 A " + good)(q)
	})
	opts := quick(long)
	opts.MaxSockets = 2 // one that accepts questions, and a retired one
	r := newResolver(t, opts, server.addr)
	for i := range lookups {
		if got := r.Lookup(t.Context(), fmt.Sprintf("a%d.com", i), 0); got.Outcome != 0 {
			t.Fatalf("got %s", tell(got))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// About 3,000 of 3,072 random ids differ, and one in 4,096 is at most 15 above the id before.
	if len(ids) < lookups*9/10 || next > lookups/50 {
		t.Errorf("%d ids for %d questions, %d of them close to the id before", len(ids), lookups, next)
	}
	if len(ports) < 3 {
		t.Errorf("%d ports for %d questions", len(ports), lookups)
	}
}

// TestAnswersToEndedQuestions sends answers after their questions have ended, some with another question's name. All
// are ignored.
func TestAnswersToEndedQuestions(t *testing.T) {
	noLeaks(t)
	const lookups = 30
	asked := make(chan *query, 1000)
	server := hostile(t, func(q *query) {
		if strings.HasPrefix(q.Question[0].Name, "a") {
			asked <- q
			return
		}
		if !strings.HasPrefix(q.Question[0].Name, "b") { // a probe, because the server was silent: the first questions still wait
			return
		}
		for range len(asked) {
			late := <-asked
			says(late.Question[0].Name + " 60 A " + evil)(late)
			m := q.reply(q.Question[0].Name + " 60 A " + evil)
			m.Id = late.Id
			late.send(packed(m))
			asked <- late
		}
		says(q.Question[0].Name + " 60 A " + good)(q)
	})
	r := newResolver(t, quick(long), server.addr)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range lookups {
		all.Go(func() {
			if got := r.Lookup(ctx, fmt.Sprintf("a%d.com", i), 0); !is(got, "dns_timeout") {
				t.Errorf("got %s", tell(got))
			}
		})
	}
	for len(asked) < lookups {
		runtime.Gosched()
	}
	cancel()
	all.Wait()
	for i := range lookups {
		if got := r.Lookup(t.Context(), fmt.Sprintf("b%d.com", i), 0); !is(got, "["+good+"]") {
			t.Errorf("got %s", tell(got))
		}
	}
}
