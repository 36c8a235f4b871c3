package resolve

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// This file tests hostile name servers, and forgers that answer in place of a name server. Its tables say who may
// answer, what an answer may be, how long it is valid, and what it may cost. world_test.go has the network,
// and scripted_test.go the server and the functions that make up its scripts.

// The good address is the right answer. The resolver must never return the evil one.
const (
	good = "192.0.2.1"
	evil = "192.0.2.66"
)

// TestUnexpectedPackets sends packets that do not answer the question. None is an answer, and none ends the wait for
// the answer.
func TestUnexpectedPackets(t *testing.T) {
	f := func(name string, unexpected script) {
		t.Helper()
		play := func(how, want string, script script) {
			t.Helper()
			run(t, name+"/"+how, func(w *world) { w.want(w.lookUp(w.asks(script)), want) })
		}
		right := says("a.com. 60 A " + good)
		play("alone", silence, unexpected)
		play("before the answer", "0s; 10ms ["+good+"]", together(unexpected, right))
		play("before the answer to the repetition", "0s, 400ms plain; 410ms ["+good+"]", turns(unexpected, right))
		play("by TCP", brokenTCP, over(truncated, unexpected))
	}
	lie := "a.com. 60 A " + evil
	f("wrong id", misdirected(nextID, lie))
	f("id with its bytes exchanged", misdirected(func(id uint16) uint16 { return id<<8 | id>>8 }, lie))
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

// TestHostileAnswers is the table of answers by the server itself.
func TestHostileAnswers(t *testing.T) {
	f := func(name, want string, script script) {
		t.Helper()
		run(t, name, func(w *world) { w.want(w.lookUp(w.asks(script)), want) })
	}
	const (
		has    = " [" + good + "]"
		aRight = "a.com. 60 A " + good
		aEvil  = "a.com. 60 A " + evil
		thrice = "0s, 10ms plain, 120ms plain; 180ms " // with EDNS, and twice without
	)
	var (
		right      = "0s; 10ms" + has
		rightByTCP = "0s, 10ms TCP; 30ms" + has
		nothing    = "0s; 10ms " + noSuchName
		absent     = "0s, 10ms AAAA; 20ms " + noAddress
		broken     = "0s, 110ms plain; 170ms " + malformed
		slowly     = "0s, 10ms TCP; 3s " + timedOut
		loop       = "0s; 10ms " + badChain
	)
	// Time.
	f("the first question is lost", "0s, 400ms plain; 410ms"+has, turns(quiet, says(aRight)))
	f("the first three questions are lost", "0s, 400ms plain, 1s plain, 1.9s plain; 1.91s"+has,
		turns(quiet, quiet, quiet, says(aRight)))
	f("each question is answered twice", right, together(says(aRight), says(aRight)))
	f("each question is answered a hundred times", right, together(slices.Repeat([]script{says(aRight)}, 100)...))
	f("the answer and then a lie", right, together(says(aRight), says(aEvil)))
	first := make(chan *query, 1)
	f("the answer to the first question, after the second", "0s, 400ms plain; 410ms"+has, func(q *query) {
		if q.nth == 1 {
			first <- q
		}
		if q.nth == 2 {
			says(aRight)(<-first)
		}
	})
	f("silence", silence, quiet)

	// Truncation.
	f("truncated", rightByTCP, over(truncated, says(aRight)))
	f("truncated, with rubbish", rightByTCP, over(bytewise(func(p []byte) []byte {
		p[2] |= 2
		p[7], p[9], p[11] = 9, 9, 9
		return append(p, "\xc0\xff\x40\x80rubbish"...)
	}), says(aRight)))
	f("truncated, with a lie", rightByTCP, over(edited(func(m *dns.Msg) { m.Truncated = true }, aEvil), says(aRight)))
	f("truncated by TCP too", brokenTCP, truncated)
	f("truncated by TCP too, with a lie", brokenTCP, edited(func(m *dns.Msg) { m.Truncated = true }, aEvil))
	f("by TCP silence", slowly, over(truncated, stall))
	f("by TCP a hang-up", brokenTCP, over(truncated, hangUp))
	f("by TCP a length of 65535 and a stall", slowly, over(truncated, func(q *query) {
		_, _ = q.conn.Write([]byte("\xff\xff"))
		q.send(packed(q.reply(aEvil)))
		stall(q)
	}))
	f("by TCP half a length", slowly, over(truncated, func(q *query) {
		_, _ = q.conn.Write([]byte{0})
		stall(q)
	}))
	f("by TCP a length of 0", brokenTCP, over(truncated, func(q *query) { q.send(nil) }))
	f("by TCP an end in the middle", brokenTCP, over(truncated, func(q *query) {
		p := packed(q.reply(aEvil))
		_, _ = q.conn.Write(append([]byte{0, byte(len(p))}, p[:len(p)-1]...))
		_ = q.conn.Close()
	}))
	f("by TCP a byte at a time", "0s, 10ms TCP; 75ms"+has, over(truncated, func(q *query) {
		p := packed(q.reply(aRight))
		for _, b := range append([]byte{0, byte(len(p))}, p...) {
			if _, err := q.conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}))
	f("by TCP rubbish", brokenTCP, over(truncated, raw(1, "\xff")))
	f("by TCP SERVFAIL", "0s, 10ms TCP, 30ms plain, 40ms TCP, 160ms plain, 170ms TCP; 240ms "+servFail,
		over(truncated, refuses(dns.RcodeServerFailure)))
	f("by TCP no such name", "0s, 10ms TCP; 30ms "+noSuchName, over(truncated, refuses(dns.RcodeNameError)))

	// Codes.
	f("SERVFAIL", thrice+servFail, refuses(dns.RcodeServerFailure))
	f("SERVFAIL once", "0s, 10ms plain; 20ms"+has, turns(refuses(dns.RcodeServerFailure), says(aRight)))
	f("malformed once", "0s, 110ms plain; 120ms"+has, turns(raw(1, "\xff"), says(aRight)))
	f("REFUSED", thrice+dnsRefused, refuses(dns.RcodeRefused))
	f("REFUSED, the header alone", thrice+dnsRefused, edited(func(m *dns.Msg) {
		m.Rcode, m.Question = dns.RcodeRefused,
			nil
	}))
	f("NOTIMP", thrice+malformed, refuses(dns.RcodeNotImplemented))
	f("FORMERR", thrice+malformed, refuses(dns.RcodeFormatError))
	f("FORMERR, the header alone", thrice+malformed, edited(func(m *dns.Msg) {
		m.Rcode, m.Question = dns.RcodeFormatError,
			nil
	}))
	f("a code without a name", thrice+servFail, refuses(14))
	f("SERVFAIL with an address", thrice+servFail, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }, aEvil))
	f("no such name, with an address of another", nothing, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError },
		"b.com. 60 A "+evil))
	f("no such name, with its address", nothing, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, aEvil))
	f("FORMERR for EDNS", "0s, 10ms plain; 20ms"+has, withoutEDNS(refuses(dns.RcodeFormatError), says(aRight)))
	f("FORMERR for EDNS, the header alone", "0s, 10ms plain; 20ms"+has,
		withoutEDNS(edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeFormatError, nil }), says(aRight)))
	f("BADVERS", thrice+malformed, badVersion)
	f("huge OPT", right, edited(func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 1000)}}
	}, aRight))
	f("OPT larger than was asked for", broken, edited(func(m *dns.Msg) {
		m.SetEdns0(65535, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 60_000)}}
	}, aRight))
	f("two OPTs", right, edited(func(m *dns.Msg) { m.SetEdns0(1232, false).SetEdns0(512, false) }, aRight))

	// Whose records, and where.
	f("none", absent, says())
	f("of another name", absent, says("evil.com. 60 A "+evil))
	f("of a name above", absent, says("com. 60 A "+evil))
	f("of a name below", absent, says("b.a.com. 60 A "+evil))
	f("of all names", absent, says("*.com. 60 A "+evil, ". 60 A "+evil))
	f("of another class", absent, says("a.com. 60 CH A "+evil, "a.com. 60 HS A "+evil))
	f("of another type", absent, says("a.com. 60 TXT "+evil, "a.com. 60 MX 0 evil.com.", "evil.com. 60 A "+evil))
	f("among the authorities", absent, edited(func(m *dns.Msg) { m.Ns = parsed(aEvil) }))
	f("among the additional", absent, edited(func(m *dns.Msg) { m.Extra = parsed(aEvil) }))
	f("the alias's among the additional", "0s, 10ms b.com.; 20ms "+noSuchName, byName(map[string]script{
		"a.com.": edited(func(m *dns.Msg) { m.Extra = parsed("b.com. 60 A " + evil) }, "a.com. 60 CNAME b.com."),
		"b.com.": refuses(dns.RcodeNameError),
	}))
	f("with others' between", right, says("evil.com. 60 A "+evil, aRight, "com. 60 A "+evil))
	f("upper case", right, says("A.cOm. 60 A "+good))
	f("twice the same", right, says(aRight, aRight, aRight))
	f("0.0.0.0", "0s; 10ms [0.0.0.0]", says("a.com. 60 A 0.0.0.0"))
	f("loopback", "0s; 10ms [127.0.0.1]", says("a.com. 60 A 127.0.0.1"))
	f("an IPv4 address as IPv6", "0s, 10ms AAAA; 20ms [127.0.0.1]", says("a.com. 60 AAAA ::ffff:127.0.0.1"))
	f("the unspecified IPv6 address", "0s, 10ms AAAA; 20ms [::]", says("a.com. 60 AAAA ::"))

	// Aliases.
	f("an alias of itself", loop, says("a.com. 60 CNAME a.com."))
	f("an alias of itself in upper case", loop, says("a.com. 60 CNAME A.COM."))
	f("a loop of two", loop, says("a.com. 60 CNAME b.com.", "b.com. 60 CNAME a.com."))
	f("a loop of seventeen", loop, says(ring(17)...))
	f("a loop that the name is not of", loop, says("a.com. 60 CNAME b.com.", "b.com. 60 CNAME c.com.",
		"c.com. 60 CNAME b.com."))
	f("a loop over answers", "0s, 10ms b.com., 20ms, 30ms b.com.; 40ms "+badChain, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME b.com."),
		"b.com.": says("b.com. 60 CNAME a.com."),
	}))
	f("sixteen", right, says(aliases(16)...))
	f("sixteen, backwards", right, says(reversed(aliases(16))...))
	f("sixteen, five an answer", "0s, 10ms b4.com., 20ms b9.com., 30ms b14.com.; 40ms"+has, func(q *query) {
		records := aliases(16)
		for i, record := range records {
			if strings.HasPrefix(record, q.Question[0].Name+" ") {
				says(records[i:min(i+5, len(records))]...)(q)
			}
		}
	})
	f("seventeen", loop, says(aliases(17)...))
	f("a thousand", "0s, 10ms TCP; 30ms "+badChain, over(truncated, says(aliases(1000)...)))
	f("without end over answers", "0s, 10ms x.a.com., 20ms x.x.a.com., 30ms x.x.x.a.com.; 40ms "+badChain, func(q *query) {
		says(q.Question[0].Name + " 60 CNAME x." + q.Question[0].Name)(q)
	})
	f("without end, each after a while",
		"0s, 400ms plain, 1s plain, 1.01s x.a.com., 1.41s x.a.com. plain, 2.01s x.a.com. plain, 2.02s x.x.a.com., 2.42s x.x.a.com. plain; 3s "+timedOut, func(q *query) {
			turns(quiet, quiet, says(q.Question[0].Name+" 60 CNAME x."+q.Question[0].Name))(q)
		})
	f("to no such name", nothing, edited(func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }, "a.com. 60 CNAME b.com."))
	f("a dot in a label", `0s, 10ms b\.c.com.; 20ms`+has, byName(map[string]script{
		"a.com.":    says(`a.com. 60 CNAME b\.c.com.`, "b.c.com. 60 A "+evil),
		`b\.c.com.`: says(`b\.c.com. 60 A ` + good),
	}))
	f("bytes that no host name has", right, says(`a.com. 60 CNAME \000\009\010\013\027\\\".\127\255\.com.`,
		`\000\009\010\013\027\\\".\127\255\.com. 60 A `+good))
	f("bytes that no host name has, asked for", `0s, 10ms \000\010\013; 20ms`+has, byName(map[string]script{
		"a.com.":                says(`a.com. 60 CNAME \000\010\013\027.com.`),
		`\000\010\013\027.com.`: says(`\000\010\013\027.com. 60 A ` + good),
	}))
	f("an underscore", right, says("a.com. 60 CNAME _b._tcp.com.", "_b._tcp.com. 60 A "+good))
	f("UTF-8", right, says(`a.com. 60 CNAME b\195\188cher.com.`, `b\195\188cher.com. 60 A `+good))
	// Unicode folds K (the Kelvin sign) to k, and ſ to s. In DNS they are other bytes (RFC 4343 §3).
	f("letters that are alike", `0s, 10ms \226\132\170; 20ms`+has, byName(map[string]script{
		"a.com.":                    says(`a.com. 60 CNAME \226\132\170\197\191.com.`, "ks.com. 60 A "+evil),
		`\226\132\170\197\191.com.`: says(`\226\132\170\197\191.com. 60 A ` + good),
	}))
	f("letters of the other case", right, says("a.com. 60 CNAME B.com.", "b.COM. 60 A "+good))
	label := strings.Repeat("b", 63)
	f("the longest label", right, says("a.com. 60 CNAME "+label+".com.", label+".com. 60 A "+good))
	longest := strings.Repeat(label+".", 3) + strings.Repeat("c", 61) + "."
	f("the longest name", right, says("a.com. 60 CNAME "+longest, longest+" 60 A "+good))
	f("the longest name, asked for", "0s, 10ms bbbbbbbbbbbb; 20ms"+has, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME " + longest),
		longest:  says(longest + " 60 A " + good),
	}))
	worst := strings.Repeat(strings.Repeat(`\000`, 63)+".", 3) + strings.Repeat(`\255`, 61) + "."
	f("the longest name of the worst bytes, asked for", `0s, 10ms \000\000\000; 20ms`+has, byName(map[string]script{
		"a.com.": says("a.com. 60 CNAME " + worst),
		worst:    says(worst + " 60 A " + good),
	}))
	f("the root", "0s, 10ms ., 20ms AAAA, 30ms . AAAA; 40ms "+noAddress, says("a.com. 60 CNAME ."))

	// Malformed packets. A question about a.com. ends before 0x17.
	const record = "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x42" // A, IN, a minute, the evil address
	f("a pointer to itself", broken, raw(1, "\xc0\x17"+record))
	f("two pointers to each other", broken, raw(1, "\xc0\x19\xc0\x17"+record))
	f("a label and a pointer to it", broken, raw(1, "\x01a\xc0\x17"+record))
	f("a pointer ahead", broken, raw(1, "\xc0\x30"+record))
	f("a pointer beyond the packet", broken, raw(1, "\xff\xff"+record))
	f("half a pointer", broken, raw(1, "\xc0"))
	f("a label of an unknown kind", broken, raw(1, "\x41a\xc0\x0c"+record))
	f("a label beyond the packet", broken, raw(1, "\x3fa"+record))
	f("a name without end", broken, raw(1, strings.Repeat("\x01a", 40)))
	f("a name of more than 255 bytes", broken, raw(1, strings.Repeat("\x3f"+label, 5)+"\x00"+record))
	f("a data length beyond the packet", broken,
		raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\xff\xff\xc0\x00\x02\x42"))
	f("an address of three bytes", broken, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x03\xc0\x00\x02"))
	f("an address of five bytes", broken, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x05\xc0\x00\x02\x42\x00"))
	f("an address of no byte", absent, raw(1, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x00"))
	f("an IPv6 address of four bytes", broken, raw(1, "\xc0\x0c\x00\x1c\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x42"))
	f("an alias longer than its data", broken, raw(2, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x01\x04evil\x00"+
		"\x04evil\x00"+record))
	f("an alias shorter than its data", broken, raw(2, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x09\x04evil\x00xyz"+
		"\x04evil\x00"+record))
	f("an alias that is a pointer to itself", broken, raw(1, "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x23"))
	f("fewer records than it says", broken, bytewise(func(p []byte) []byte { p[6], p[7] = 0xff, 0xff; return p }))
	f("more records than it says", absent, raw(0, "\xc0\x0c"+record))
	f("a question whose name is a pointer to itself", silence, bytewise(func(p []byte) []byte {
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
	const has = " [" + good + " 192.0.2.2]"
	records := []string{"a.com. 60 CNAME b.com.", "b.com. 60 A " + good, "b.com. 60 A 192.0.2.2",
		"b.com. 60 AAAA 2001:db8::1"}
	q := &query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA)}
	size := len(packed(q.reply(records...)))
	for n := range size {
		cut := turns(bytewise(func(p []byte) []byte { return p[:n] }, records...), says(records...))
		want := "0s, 110ms plain; 120ms" + has
		if n < len(packed(q.reply())) { // it answers no question
			want = "0s, 400ms plain; 410ms" + has
		}
		run(t, fmt.Sprint("UDP/", n), func(w *world) { w.want(w.lookUp(w.asks(cut)), want) })
		run(t, fmt.Sprint("TCP/", n), func(w *world) {
			w.want(w.lookUp(w.asks(over(truncated, cut))), "0s, 10ms TCP, 130ms plain, 140ms TCP; 160ms"+has)
		})
	}
}

// TestTCPRefused has a server that truncates its answer and refuses the TCP connection.
func TestTCPRefused(t *testing.T) {
	f := func(others []script, want ...string) {
		t.Helper()
		either(t, func(w *world) string {
			r := w.asks(append([]script{nil}, others...)...)
			_ = w.serve(1, truncated).listener.Close()
			return w.lookUp(r)
		}, want...)
	}
	f(nil, "0s, 10ms TCP, 120ms plain, 130ms TCP; 190ms "+malformed)
	f([]script{anything}, "0s to 1, 10ms to 1 TCP, 20ms to 2; 30ms ["+good+"]", "0s to 2; 10ms ["+good+"]")
}

// TestOneOfTwoServers has one server that answers. The other one's faults lose no name.
func TestOneOfTwoServers(t *testing.T) {
	// stories are those of a look-up that asks the bad server first, or the good one, which loses up to two questions.
	type stories [3][2]string
	var (
		closed = stories{
			{"0s to 1, 10ms to 2; 20ms", "0s to 2; 10ms"},
			{"0s to 1, 10ms to 2, 410ms to 1, 420ms to 2 plain; 430ms", "0s to 2, 400ms to 1, 410ms to 2 plain; 420ms"},
			{"0s to 1, 10ms to 2, 410ms to 1, 420ms to 2 plain, 1.02s to 1, 1.03s to 2 plain; 1.04s",
				"0s to 2, 400ms to 1, 410ms to 2 plain, 1.01s to 1, 1.02s to 2 plain; 1.03s"},
		}
		silent = stories{
			{"0s to 1, 400ms to 2; 410ms", "0s to 2; 10ms"},
			{"0s to 1, 400ms to 2, 1s to 1 plain, 1.9s to 2 plain; 1.91s", "0s to 2, 400ms to 1, 1s to 2 plain; 1.01s"},
			{"0s to 1, 400ms to 2, 1s to 1 plain, 1.9s to 2 plain, 3.25s to 1 plain, 5.275s to 2 plain; 5.285s",
				"0s to 2, 400ms to 1, 1s to 2 plain, 1.9s to 1 plain, 3.25s to 2 plain; 3.26s"},
		}
		refusing = stories{
			{"0s to 1, 10ms to 1 plain, 20ms to 2; 30ms", "0s to 2; 10ms"},
			{"0s to 1, 10ms to 1 plain, 20ms to 2, 420ms to 2 plain; 430ms",
				"0s to 2, 400ms to 1, 410ms to 1 plain, 420ms to 2 plain; 430ms"},
			{"0s to 1, 10ms to 1 plain, 20ms to 2, 420ms to 2 plain, 1.02s to 2 plain; 1.03s",
				"0s to 2, 400ms to 1, 410ms to 1 plain, 420ms to 2 plain, 820ms to 2 plain; 830ms"},
		}
		broken = stories{
			{"0s to 1, 10ms to 2; 20ms", "0s to 2; 10ms"},
			{"0s to 1, 10ms to 2, 410ms to 2 plain; 420ms", "0s to 2, 400ms to 1, 410ms to 2 plain; 420ms"},
			{"0s to 1, 10ms to 2, 410ms to 2 plain, 1.01s to 2 plain; 1.02s",
				"0s to 2, 400ms to 1, 410ms to 2 plain, 1.01s to 2 plain; 1.02s"},
		}
		stalling = stories{
			{"0s to 1, 10ms to 1 TCP, 3.01s to 2; 3.02s", "0s to 2; 10ms"},
			{"0s to 1, 10ms to 1 TCP, 3.01s to 2, 3.41s to 2 plain; 3.42s",
				"0s to 2, 400ms to 1, 410ms to 1 TCP, 3.41s to 2 plain; 3.42s"},
			{"0s to 1, 10ms to 1 TCP, 3.01s to 2, 3.41s to 2 plain, 4.01s to 2 plain; 4.02s",
				"0s to 2, 400ms to 1, 410ms to 1 TCP, 3.41s to 2 plain, 4.01s to 2 plain; 4.02s"},
		}
		brokenTCP = stories{
			{"0s to 1, 10ms to 1 TCP, 30ms to 2; 40ms", "0s to 2; 10ms"},
			{"0s to 1, 10ms to 1 TCP, 30ms to 2, 430ms to 2 plain; 440ms",
				"0s to 2, 400ms to 1, 410ms to 1 TCP, 430ms to 2 plain; 440ms"},
			{"0s to 1, 10ms to 1 TCP, 30ms to 2, 430ms to 2 plain, 1.03s to 2 plain; 1.04s",
				"0s to 2, 400ms to 1, 410ms to 1 TCP, 430ms to 2 plain, 1.03s to 2 plain; 1.04s"},
		}
	)
	f := func(name string, want stories, bad script) {
		t.Helper()
		for lost, want := range want {
			t.Run(fmt.Sprint(name, ", and a good one that loses ", lost), func(t *testing.T) {
				either(t, func(w *world) string {
					return w.lookUp(w.resolver(Options{}, bad, func(q *query) {
						if q.nth > lost {
							anything(q)
						}
					}))
				}, want[0]+" ["+good+"]", want[1]+" ["+good+"]")
			})
		}
	}
	f("closed port", closed, nil)
	f("silence", silent, quiet)
	f("SERVFAIL", refusing, refuses(dns.RcodeServerFailure))
	f("REFUSED", refusing, refuses(dns.RcodeRefused))
	f("REFUSED, the header alone", refusing, edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeRefused, nil }))
	f("FORMERR", refusing, refuses(dns.RcodeFormatError))
	f("NOTIMP", refusing, refuses(dns.RcodeNotImplemented))
	f("malformed", broken, raw(1, "\xff"))
	f("unexpected packets", silent, misdirected(nextID, "a.com. 60 A "+evil))
	f("truncated, and silence by TCP", stalling, over(truncated, stall))
	f("truncated, and a hang-up", brokenTCP, over(truncated, hangUp))
	f("truncated, and rubbish", brokenTCP, over(truncated, raw(9, "\xc0\xc0\xc0")))
}

// TestAllSilent has two silent servers, which are asked in turn. The look-up ends when its time is up.
func TestAllSilent(t *testing.T) {
	either(t, func(w *world) string { return w.lookUp(w.asks(quiet, quiet)) },
		"0s to 1, 400ms to 2, 1s to 1 plain, 1.9s to 2 plain; 3s "+timedOut,
		"0s to 2, 400ms to 1, 1s to 2 plain, 1.9s to 1 plain; 3s "+timedOut)
}

// TestManyAddresses has an answer of a thousand addresses. Of these maxAddrs are kept, the same ones in any order of
// the answer.
func TestManyAddresses(t *testing.T) {
	var records []string
	for i := range 1000 {
		records = append(records, fmt.Sprintf("a.com. 60 A 198.18.%d.%d", i/250, i%250))
	}
	in(t, func(w *world) {
		script := over(truncated, func(q *query) {
			mixed := slices.Clone(records)
			rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			says(mixed...)(q)
		})
		var first []netip.Addr
		for i := range 5 {
			got := w.find(w.Context(), w.asks(script), "a.com")
			if got.Outcome != 0 || len(got.Addrs) != maxAddrs {
				w.Fatalf("got %d addresses, %s", len(got.Addrs), tell(got))
			}
			for _, addr := range got.Addrs {
				if !slices.Contains(records, "a.com. 60 A "+addr.String()) {
					w.Errorf("%s was in no answer", addr)
				}
			}
			if i == 0 {
				first = got.Addrs
			} else if !slices.Equal(got.Addrs, first) {
				w.Errorf("got %v, at first %v", got.Addrs, first)
			}
		}
		// A server that repeats one address does not hide the others.
		script = over(truncated, says(append(slices.Repeat([]string{"a.com. 60 A " + good}, 500),
			"a.com. 60 A 192.0.2.2")...))
		w.want(tell(w.find(w.Context(), w.asks(script), "a.com")), "["+good+" 192.0.2.2]")
	})
}

// TestTimesToLive checks how long an answer is valid: at least minTTL, at most maxTTL, or maxNegative for the absence
// of addresses.
func TestTimesToLive(t *testing.T) {
	f := func(name string, want time.Duration, script script) {
		t.Helper()
		run(t, name, func(w *world) {
			got := w.find(w.Context(), w.asks(script), "a.com")
			if got.Outcome != 0 && got.Outcome != exchange.DNSNotFound {
				w.Fatalf("got %s", tell(got))
			}
			if left := time.Until(got.Until); left != want {
				w.Errorf("%s is valid for %v, want %v", tell(got), left, want)
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
	f("the least of the addresses'", 20*time.Second, says("a.com. 30 A "+good, "a.com. 20 A 192.0.2.2",
		"a.com. 40 A 192.0.2.3"))
	f("the least of the aliases'", 20*time.Second, says("a.com. 30 CNAME b.com.", "b.com. 20 CNAME c.com.",
		"c.com. 1000 A "+good))
	f("the least of several answers'", 20*time.Second, byName(map[string]script{
		"a.com.": says("a.com. 20 CNAME b.com."),
		"b.com.": says("b.com. 1000 A " + good),
	}))
	f("not that of others", time.Minute, says(a, "evil.com. 15 A "+evil))
	for name, rcode := range map[string]int{"no such name": dns.RcodeNameError, "no address": dns.RcodeSuccess} {
		f := func(what string, want time.Duration, script script) {
			t.Helper()
			if rcode == dns.RcodeSuccess {
				want -= 2 * oneWay // it is valid since the first of two answers
			}
			f(name+", "+what, want, script)
		}
		f("the zone's word", 2*time.Minute, negative(rcode, 900, 120))
		f("the SOA's own time", 2*time.Minute, negative(rcode, 120, 900))
		f("small", minTTL, negative(rcode, 900, 0))
		f("large", maxNegative, negative(rcode, 1<<31-1, 1<<31-1))
		f("2³¹", minTTL, negative(rcode, 1<<31, 900))
		f("the zone's word 2³¹", minTTL, negative(rcode, 900, 1<<31))
		f("no word", minTTL, refuses(rcode))
	}
	f("an alias of nothing, for less than nothing", 20*time.Second, edited(func(m *dns.Msg) {
		m.Rcode = dns.RcodeNameError
		m.Ns = parsed("com. 900 SOA ns. hostmaster. 1 2 3 4 900")
	}, "a.com. 20 CNAME b.com."))
}

// TestHostNames checks the names in questions. Invalid names reach no server.
func TestHostNames(t *testing.T) {
	f := func(host, asked string) {
		t.Helper()
		in(t, func(w *world) {
			var names string
			r := w.asks(func(q *query) {
				names += q.Question[0].Name
				anything(q)
			})
			want := noSuchName
			if asked != "" {
				want = "[" + good + "]"
			}
			if got := tell(w.find(w.Context(), r, host)); names != asked || got != want {
				w.Errorf("%.80q: asked for %q, got %s", host, names, got)
			}
		})
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
	in(t, func(w *world) {
		r := w.asks(anything)
		for _, host := range []string{"localhost", "a.localhost", "a.b.localhost"} {
			w.want(tell(w.find(w.Context(), r, host)), "[127.0.0.1 ::1]")
			w.want(tell(r.LookupIPv6(w.Context(), host)), noAddress)
		}
		w.want(w.questions(), "")
		for _, host := range []string{"notlocalhost", "localhost.com", "xlocalhost"} { // no local names
			w.want(tell(w.find(w.Context(), r, host)), "["+good+"]")
		}
	})
}

// TestFlood sends ten thousand unexpected packets before the answer. They cost time, but no memory, and the answer is
// not lost.
func TestFlood(t *testing.T) {
	in(t, func(w *world) {
		sent := uint64(0)
		r := w.asks(func(q *query) {
			p := packed(q.reply("a.com. 60 A " + evil))
			for i := range 10_000 {
				if i>>8 == int(q.Id>>8) {
					continue // never the right id
				}
				binary.BigEndian.PutUint16(p, uint16(i))
				q.send(p)
				sent++
			}
			anything(q)
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.want(w.lookUp(r), "0s; 10ms ["+good+"]")
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
			w.Errorf("%d bytes more are in use", grown)
		}
		synctest.Wait()
		if n := r.Stats().Strangers; n != sent {
			w.Errorf("%d unexpected packets were counted, of %d", n, sent)
		}
	})
}

// TestManySilent makes a thousand concurrent look-ups without an answer. They take as long as one, need a goroutine
// each, in a batch only after their first question, and few sockets.
func TestManySilent(t *testing.T) {
	in(t, func(w *world) {
		const lookups, sockets = 1000, 16
		r := w.resolver(Options{MaxSockets: sockets}, quiet)
		before := runtime.NumGoroutine()
		var hosts []string
		for i := range lookups {
			hosts = append(hosts, fmt.Sprintf("a%d.com", i))
		}
		var all sync.WaitGroup
		all.Go(func() {
			for _, answer := range w.findAll(w.Context(), r, hosts...) {
				w.want(tell(answer), timedOut)
			}
			w.want(w.since().String(), "10s")
		})
		for _, at := range []time.Duration{399 * time.Millisecond, 5 * time.Second} {
			time.Sleep(at - w.since())
			synctest.Wait()
			most := lookups * 3 / 2 // the runtime's count is inexact
			if w.batched && at < 400*time.Millisecond {
				most = lookups / 10
			}
			if n := runtime.NumGoroutine() - before; n > most {
				w.Errorf("after %v: %d goroutines for %d look-ups", at, n, lookups)
			}
		}
		all.Wait()
		synctest.Wait()
		if w.most > sockets {
			w.Errorf("%d sockets, of at most %d", w.most, sockets)
		}
		if s := r.Stats().Servers[0]; s.Unheard != s.Questions {
			w.Errorf("%+v", s)
		}
	})
}

// TestCloseWhileAsking closes a resolver while look-ups are in flight. They end in their time, and ask again through
// new sockets. Later ones work.
func TestCloseWhileAsking(t *testing.T) {
	in(t, func(w *world) {
		r := w.asks(func(q *query) {
			if !strings.HasPrefix(q.Question[0].Name, "silent") {
				anything(q)
			}
		})
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				w.want(fmt.Sprint(tell(w.find(w.Context(), r, fmt.Sprintf("silent%d.com", i))), w.since()), timedOut+"3s")
			})
			all.Go(func() {
				w.want(fmt.Sprint(tell(w.find(w.Context(), r, fmt.Sprintf("a%d.com", i))), w.since()), "["+good+"]410ms")
			})
		}
		time.Sleep(oneWay)
		for range 30 {
			if err := r.Close(); err != nil {
				w.Error(err)
			}
		}
		w.want(w.since().String(), oneWay.String())
		all.Wait()
		w.want(tell(w.find(w.Context(), r, "later.com"))+w.since().String(), "["+good+"]3.01s")
	})
}

// TestUnpredictable checks that ids of questions do not follow from earlier ones.
func TestUnpredictable(t *testing.T) {
	in(t, func(w *world) {
		const lookups = 1000
		ids := map[uint16]bool{}
		next := 0
		var last uint16
		r := w.asks(func(q *query) {
			ids[q.Id] = true
			if q.Id-last < 16 {
				next++
			}
			last = q.Id
			anything(q)
		})
		for i := range lookups {
			if got := w.find(w.Context(), r, fmt.Sprintf("a%d.com", i)); got.Outcome != 0 {
				w.Fatalf("got %s", tell(got))
			}
		}
		// About 990 random ids differ, and one in 4,096 is at most 15 above the id before.
		if len(ids) < lookups*9/10 || next > lookups/100 {
			w.Errorf("%d ids for %d questions, %d of them close to the id before", len(ids), lookups, next)
		}
	})
}

// TestAnswersToEndedQuestions sends answers after their questions have ended, some with another question's name. All
// are ignored.
func TestAnswersToEndedQuestions(t *testing.T) {
	in(t, func(w *world) {
		const lookups = 30
		asked := make(chan *query, lookups)
		r := w.asks(func(q *query) {
			if strings.HasPrefix(q.Question[0].Name, "a") {
				asked <- q
				return
			}
			for range lookups {
				late := <-asked
				says(late.Question[0].Name + " 60 A " + evil)(late)
				m := q.reply(q.Question[0].Name + " 60 A " + evil)
				if m.Id = late.Id; m.Id == q.Id {
					m.Id++
				}
				late.send(packed(m))
				asked <- late
			}
			anything(q)
		})
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		for i := range lookups {
			all.Go(func() { w.want(tell(w.find(ctx, r, fmt.Sprintf("a%d.com", i))), timedOut) })
		}
		time.Sleep(2 * oneWay)
		cancel()
		all.Wait()
		w.want(w.since().String(), "10ms")
		for i := range lookups {
			w.want(tell(w.find(w.Context(), r, fmt.Sprintf("b%d.com", i))), "["+good+"]")
		}
		w.want(w.since().String(), "310ms")
		synctest.Wait()
		if n := r.Stats().Strangers; n != 2*lookups*lookups {
			w.Errorf("%d unexpected packets were counted", n)
		}
	})
}
