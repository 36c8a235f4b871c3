package resolve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/internal/memnet"
)

// All tests with a world look each name up singly, and in a batch of its own. This file has what many names in a batch
// add.

// kinds returns the ways in which a server answers about a name.
func (w *world) kinds(name string) map[string]script {
	right, lie := name+" 60 A "+good, name+" 60 A "+evil
	return map[string]script{
		"usual":          says(right),
		"in capitals":    bytewise(func(p []byte) []byte { p[headerSize+1] -= 'a' - 'A'; return p }, right),
		"many addresses": says(name+" 60 A 192.0.2.9", name+" 60 A 192.0.2.8", right),
		"IPv6 only":      zone(name + " 60 AAAA 2001:db8::1"),
		"IPv4 and IPv6":  zone(name+" 60 AAAA 2001:db8::1", right),
		"no address":     zone(name + " 60 TXT x"),
		"no such name":   zone(),
		"no such name, for 70 s": edited(func(m *dns.Msg) {
			m.Rcode, m.Ns = dns.RcodeNameError,
				parsed("com. 70 SOA ns. host. 1 2 3 4 99")
		}),
		"an alias":                 says(name+" 30 CNAME b.com.", "b.com. 20 CNAME c.com.", "c.com. 1000 A "+good),
		"an alias without address": says(name + " 30 CNAME alias.com."),
		"an alias of itself":       says(name + " 60 CNAME " + name),
		"SERVFAIL":                 refuses(dns.RcodeServerFailure),
		"SERVFAIL once":            turns(refuses(dns.RcodeServerFailure), says(right)),
		"REFUSED":                  refuses(dns.RcodeRefused),
		"REFUSED, the header":      edited(func(m *dns.Msg) { m.Rcode, m.Question = dns.RcodeRefused, nil }),
		"FORMERR":                  refuses(dns.RcodeFormatError),
		"NOTIMP":                   refuses(dns.RcodeNotImplemented),
		"no EDNS":                  withoutEDNS(badVersion, says(right)),
		"truncated":                over(truncated, says(right)),
		"truncated by TCP too":     truncated,
		"malformed":                raw(1, "\xff"),
		"fewer records than said":  raw(2, ""),
		"too long":                 bytewise(func(p []byte) []byte { return append(p, make([]byte, 2*maxPacket)...) }, right),
		"lost once":                turns(quiet, says(right)),
		"lost thrice":              turns(quiet, quiet, quiet, says(right)),
		"silence":                  quiet,
		"late":                     late(380*time.Millisecond, says(right)),
		"too late":                 late(450*time.Millisecond, says(right)),
		"twice":                    together(says(right), says(lie)),
		"wrong id":                 misdirected(nextID, lie),
		"wrong id before":          together(misdirected(nextID, lie), says(right)),
		"wrong name":               edited(func(m *dns.Msg) { m.Question[0].Name = "evil.com." }, lie),
		"wrong type":               edited(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeMX }, lie),
		"wrong class":              edited(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, lie),
		"about another name":       says("evil.com. 60 A " + evil),
		"no response":              edited(func(m *dns.Msg) { m.Response = false }, lie),
		"cut in the header":        bytewise(func(p []byte) []byte { return p[:11] }, lie),
		"cut in the question":      bytewise(func(p []byte) []byte { return p[:18] }, lie),
		"wrong port": func(q *query) {
			other, err := memnet.Host{Net: w.host.Net, Addr: w.address(1).Addr()}.ListenPacket(0)
			if err != nil {
				w.Error(err)
				return
			}
			_, _ = other.WriteTo(packed(q.reply(lie)), q.from)
			_ = other.Close()
			says(right)(q)
		},
	}
}

// TestBatch looks up names of each kind at the same time, and again at once: singly and in batches the answers are the
// same, and so are the questions and their times.
func TestBatch(t *testing.T) {
	told := func(batched bool) (lines []string) {
		inWorld(t, batched, func(w *world) {
			scripts, names := map[string]script{"warm.com.": anything, "alias.com.": anything}, []string{}
			// More names that are refused, or refused at first, would give reason to doubt the server.
			kinds := slices.Concat(slices.Sorted(maps.Keys(w.kinds("a.com."))), slices.Repeat([]string{"usual", "no such name"},
				maxBatch))
			for i, kind := range kinds {
				name := fmt.Sprintf("h%d.com", i)
				scripts[name+"."], names = w.kinds(name + ".")[kind], append(names, name)
			}
			names = append(names, "localhost", "a..com", strings.Repeat("a.", 200)+"com", names[0], "silent.com", "silent.com")
			r := w.asks(byName(scripts))
			w.find(w.Context(), r, "warm.com") // then it is known that the server knows EDNS
			for range 2 {
				for i, answer := range w.findAll(w.Context(), r, names...) {
					until := answer.Until.Sub(w.begun)
					if answer.Until.IsZero() {
						until = 0
					}
					lines = append(lines, fmt.Sprintf("%.12s: %s, took %v, until %v", names[i], tell(answer), answer.Took, until))
				}
			}
			synctest.Wait()
			lines = append(lines, w.questions(), fmt.Sprintf("%+v", r.Stats()))
			if n := r.Stats().Shared; n != 4 {
				w.Errorf("%d look-ups were shared, want two each time", n)
			}
		})
		return lines
	}
	single, batched := told(false), told(true)
	for i := range single {
		if single[i] != batched[i] {
			t.Errorf("singly  %s\nbatched %s", single[i], batched[i])
		}
	}
}

// TestBatchesRotate looks up thousands of names in batches: their questions come from many ports in turn, with random
// ids.
func TestBatchesRotate(t *testing.T) {
	in(t, func(w *world) {
		const names = 20_000
		type source struct{ from, id any }
		asked, ids := map[any]int{}, map[source]bool{}
		packets := make(chan *query, names)
		r := w.resolver(Options{}, func(q *query) {
			packets <- q
			anything(q)
		})
		w.want(fmt.Sprint(w.lookUpMany(w.Context(), r, names)), fmt.Sprintf("map[[%s]:%d]", good, names))
		close(packets)
		for q := range packets {
			from := q.from.String()
			asked[from]++
			ids[source{from, q.Id}] = true
		}
		for from, n := range asked {
			if n >= questionsPerSocket+2*maxBatch { // a socket that cannot retire yet takes another batch
				t.Errorf("%d questions from %v", n, from)
			}
		}
		if len(asked) < names/(questionsPerSocket+maxBatch) || len(ids) < names*98/100 {
			t.Errorf("%d questions from %d ports, with %d ids", names, len(asked), len(ids))
		}
	})
}

// A repetition by TCP has the unpredictable id of its question.
func TestIDByTCP(t *testing.T) {
	in(t, func(w *world) {
		ids := make(chan uint16, 2)
		noted := func(script script) script {
			return func(q *query) {
				ids <- q.Id
				script(q)
			}
		}
		r := w.asks(over(noted(truncated), noted(says("a.com. 60 A "+good))))
		w.want(tell(w.find(w.Context(), r, "a.com")), "["+good+"]")
		if udp, tcp := <-ids, <-ids; udp != tcp {
			w.Errorf("id %d by UDP, %d by TCP", udp, tcp)
		}
	})
}

// Look-ups that end while they wait for the rate open no sockets.
func TestCancelUnderRate(t *testing.T) {
	in(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		r := w.resolver(Options{Rate: 10}, anything)
		time.AfterFunc(50*time.Millisecond, cancel)
		ends := map[string]int{}
		for _, answer := range w.findAll(ctx, r, "a.com", "b.com", "c.com", "d.com", "e.com") {
			ends[tell(answer)]++
		}
		w.want(fmt.Sprint(ends, w.sockets), fmt.Sprintf("map[[%s]:1 %s:4] [0s opened]", good, timedOut))
	})
}
