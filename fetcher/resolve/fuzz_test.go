package resolve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// plain is a simple second parser of answers, to compare the resolver with. It knows the header, names, and records
// of three types, and loops over all of them.
type plain struct {
	packet  []byte
	records []plainRecord // of the answer section
	known   bool          // all records of the packet have one of the three types, and class IN
	tidy    bool          // no name is too long or has a forward pointer, and nothing follows the records
}

// plainRecord is a record of the answer section. Names are as on the wire, without pointers and in lower case.
type plainRecord struct {
	owner, target string
	qtype, class  uint16
	addr          netip.Addr
}

var errPlain = errors.New("no such packet")

// plainly parses a packet. It returns an error for a malformed packet, or one that ends before its last record.
func plainly(packet []byte) (*plain, error) {
	if len(packet) < 12 {
		return nil, errPlain
	}
	p := &plain{packet: packet, known: true, tidy: true}
	at := 12
	for range p.number(4) {
		_, end, err := p.name(at)
		if at = end + 4; err != nil || at > len(packet) {
			return nil, errPlain
		}
	}
	for section := range 3 {
		for range p.number(6 + 2*section) {
			owner, end, err := p.name(at)
			if err != nil || end+10 > len(packet) {
				return nil, errPlain
			}
			r := plainRecord{owner: owner, qtype: p.number(end), class: p.number(end + 2)}
			data := end + 10
			if at = data + int(p.number(end+8)); at > len(packet) {
				return nil, errPlain
			}
			switch {
			case r.qtype == dns.TypeA && at-data == 4, r.qtype == dns.TypeAAAA && at-data == 16:
				r.addr, _ = netip.AddrFromSlice(packet[data:at])
				r.addr = r.addr.Unmap()
			case r.qtype == dns.TypeCNAME:
				target, end, err := p.name(data)
				r.target = target
				p.known = p.known && err == nil && end == at
			default:
				p.known = false
			}
			p.known = p.known && r.class == dns.ClassINET
			if section == 0 {
				p.records = append(p.records, r)
			}
		}
	}
	p.tidy = p.tidy && at == len(packet)
	return p, nil
}

func (p *plain) number(at int) uint16 { return binary.BigEndian.Uint16(p.packet[at:]) }

// name parses a name and returns its end.
func (p *plain) name(at int) (name string, end int, err error) {
	for range 1000 { // labels and pointers, so that it ends
		if at >= len(p.packet) {
			return "", 0, errPlain
		}
		length := int(p.packet[at])
		switch {
		case length == 0:
			if end == 0 {
				end = at + 1
			}
			p.tidy = p.tidy && len(name) < 255
			return name + "\x00", end, nil
		case length >= 0xc0:
			if at+1 >= len(p.packet) {
				return "", 0, errPlain
			}
			if end == 0 {
				end = at + 2
			}
			to := int(p.number(at) & 0x3fff)
			p.tidy = p.tidy && to < at && to >= 12
			at = to
		case length >= 0x40 || at+1+length > len(p.packet):
			return "", 0, errPlain
		default:
			// Only ASCII letters are folded in DNS, unlike in strings.ToLower.
			label := slices.Clone(p.packet[at : at+1+length])
			for i, b := range label[1:] {
				if 'A' <= b && b <= 'Z' {
					label[1+i] = b | 0x20
				}
			}
			name += string(label)
			at += 1 + length
		}
	}
	return "", 0, errPlain
}

// reached returns the addresses of a name, over any chain of aliases. oneWay reports that there is only one chain,
// and that it is short enough.
func (p *plain) reached(name string, qtype uint16) (addrs []netip.Addr, oneWay bool) {
	names := []string{name}
	for grown := true; grown; {
		grown = false
		for _, r := range p.records {
			if r.qtype == dns.TypeCNAME && r.class == dns.ClassINET && slices.Contains(names, r.owner) && r.target != "" &&
				!slices.Contains(names, r.target) {
				names = append(names, r.target)
				grown = true
			}
		}
	}
	aliases, owners := map[string]int{}, map[string]bool{}
	for _, r := range p.records {
		if !slices.Contains(names, r.owner) {
			continue
		}
		if r.qtype == dns.TypeCNAME {
			aliases[r.owner]++
		}
		if r.qtype == qtype && r.class == dns.ClassINET && r.addr.IsValid() {
			owners[r.owner] = true
			if !slices.Contains(addrs, r.addr) {
				addrs = append(addrs, r.addr)
			}
		}
	}
	oneWay = len(names) <= 1+maxAliases && len(owners) == 1 && len(aliases) == len(names)-1
	for owner, n := range aliases {
		oneWay = oneWay && n == 1 && !owners[owner]
	}
	return addrs, oneWay
}

// FuzzAnswer answers a question about a.com with any packet. The resolver's addresses must be in the packet, for that
// name or at the end of its chain. If the packet is unambiguous, they must be all of them.
func FuzzAnswer(f *testing.F) {
	q := &query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA)}
	q.Id = 1 // for constant seeds
	reply := func(edit func(*dns.Msg), records ...string) []byte {
		m := q.reply(records...)
		m.Compress = true
		edit(m)
		return packed(m)
	}
	none := func(*dns.Msg) {}
	long := strings.Repeat(strings.Repeat("b", 63)+".", 3) + strings.Repeat("c", 61) + "."
	f.Add(reply(none, "a.com. 60 A "+good))
	f.Add(reply(none, "A.com. 60 A "+good, "a.com. 60 A 192.0.2.2", "a.com. 60 AAAA 2001:db8::1", "evil.com. 60 A "+evil))
	f.Add(reply(none, aliases(3)...))
	f.Add(reply(none, reversed(aliases(16))...))
	f.Add(reply(none, aliases(17)...))
	f.Add(reply(none, ring(3)...))
	f.Add(reply(none, "a.com. 60 CNAME a.com."))
	f.Add(reply(none, "a.com. 60 CNAME "+long, long+" 60 A "+good))
	f.Add(reply(none, `a.com. 60 CNAME \000\.\255\226\132\170.com.`, `\000\.\255\226\132\170.com. 60 A `+good,
		`k.com. 60 A `+evil))
	f.Add(reply(none, "a.com. 60 CH A "+evil, "a.com. 60 TXT x"))
	f.Add(reply(func(m *dns.Msg) { m.Rcode, m.Ns = dns.RcodeNameError, parsed("com. 60 SOA a. b. 1 2 3 4 5") }))
	f.Add(reply(func(m *dns.Msg) { m.Truncated = true }, "a.com. 60 A "+evil))
	f.Add(reply(func(m *dns.Msg) { m.SetEdns0(1232, false) }, "a.com. 60 A "+good))
	whole := reply(none, "a.com. 60 A "+good, "a.com. 60 A 192.0.2.2")
	f.Add(whole[:len(whole)-3])
	f.Add(whole[:23])
	question := packed(q.Msg)[headerSize:]
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) < headerSize || !answers(packet, question) {
			return
		}
		p, err := plainly(packet)
		if err == nil && p.number(4) == 1 {
			if name, _, _ := p.name(headerSize); name != "\x01a\x03com\x00" {
				t.Fatalf("a packet about %q is an answer", name)
			}
		}
		if packet[2]&0x80 == 0 || packet[2]&0x78 != 0 {
			t.Fatal("a packet that is no response is an answer")
		}
		m, malformed := unpack(packet)
		if malformed != nil || m.Truncated {
			return // asked for again
		}
		if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
			return // a failure
		}
		if err != nil {
			t.Fatalf("a malformed packet was unpacked: %v", m)
		}
		walk := newChain("a.com.", dns.TypeA)
		before := time.Now()
		answer, ended := walk.read(m)
		if !ended {
			// The chain continues at an alias, which must be a valid name.
			if next := make([]byte, 300); len(answer.Addrs) > 0 || answer.Outcome != 0 || walk.name == "a.com." {
				t.Fatalf("the chain has not ended at %q, with %s", walk.name, tell(answer))
			} else if n, err := dns.PackDomainName(walk.name, next, 0, nil, false); err != nil || n > 255 {
				t.Fatalf("%q cannot be asked for: %v", walk.name, err)
			}
			return
		}
		if (answer.Outcome == 0) != (len(answer.Addrs) > 0) || len(answer.Addrs) > maxAddrs {
			t.Fatalf("the answer is %s", tell(answer))
		}
		if left := answer.Until.Sub(before); answer.Outcome != exchange.DNSFailed && (left < minTTL || left > maxTTL+
			time.Minute) {
			t.Fatalf("the answer is valid for %v", left)
		}
		addrs, oneWay := p.reached("\x01a\x03com\x00", dns.TypeA)
		for i, addr := range answer.Addrs {
			if !slices.Contains(addrs, addr) || slices.Contains(answer.Addrs[:i], addr) {
				t.Fatalf("the answer is %s, of %v", tell(answer), addrs)
			}
		}
		if p.known && p.tidy && oneWay && m.Rcode == dns.RcodeSuccess && len(answer.Addrs) != min(len(addrs), maxAddrs) {
			t.Fatalf("the answer is %s, want all of %v", tell(answer), addrs)
		}
	})
}

// TestWorstAnswer reads the most expensive packets: with as many records, aliases and pointers as fit.
func TestWorstAnswer(t *testing.T) {
	q := &query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA)}
	header := packed(q.reply())
	f := func(name string, record func(i int) string) {
		t.Helper()
		packet, n := slices.Clone(header), 0
		for {
			text := record(n)
			if len(packet)+len(text) > 65535 {
				break
			}
			packet = append(packet, text...)
			n++
		}
		binary.BigEndian.PutUint16(packet[6:], uint16(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := unpack(packet)
		if err == nil {
			walk := newChain("a.com.", dns.TypeA)
			answer, _ := walk.read(m)
			if len(answer.Addrs) > maxAddrs || cap(answer.Addrs) > maxAddrs {
				t.Errorf("%s: %d addresses in room for %d", name, len(answer.Addrs), cap(answer.Addrs))
			}
		}
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 16<<20 {
			t.Errorf("%s: %d records (%v) cost %d bytes", name, n, err, cost)
		}
	}
	const a = "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04"
	f("addresses", func(i int) string { return "\xc0\x0c" + a + string([]byte{192, 0, byte(i >> 8), byte(i)}) })
	f("one address", func(int) string { return "\xc0\x0c" + a + "\xc0\x00\x02\x01" })
	f("addresses of the longest name", func(i int) string {
		if i == 0 {
			return strings.Repeat("\x3f"+strings.Repeat("\x00", 63), 3) + "\x3d" + strings.Repeat("\xff", 61) + "\x00" + a +
				"\xc0\x00\x02\x01"
		}
		return "\xc0\x17" + a + "\xc0\x00\x02\x01"
	})
	f("aliases of one name", func(i int) string {
		return "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x05\x02" + string([]byte{byte(i >> 8), byte(i)}) + "\xc0\x0c"
	})
	f("aliases to itself", func(int) string { return "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x0c" })
	f("no records", func(int) string { return "\x00" })
}

// TestKeptAnswersAreSmall checks that an answer from thousands of records keeps no memory beyond its few addresses.
func TestKeptAnswersAreSmall(t *testing.T) {
	q := &query{Msg: new(dns.Msg).SetQuestion("a.com.", dns.TypeA)}
	var records []string
	for i := range 4000 {
		records = append(records, fmt.Sprintf("a.com. 60 A 198.18.%d.%d", i/250, i%250))
	}
	m := q.reply(records...)
	var kept [200]Answer
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range kept {
		walk := newChain("a.com.", dns.TypeA)
		kept[i], _ = walk.read(m)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(len(kept)); each > 4096 {
		t.Errorf("an answer of %d addresses holds %d bytes", len(kept[0].Addrs), each)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(m)
}
