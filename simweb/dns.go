package simweb

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/origin"
)

const (
	nameTTL      = 300 // seconds
	slowName     = 200 * time.Millisecond
	lateName     = 600 * time.Millisecond // resolvers repeat questions after 250 to 500 ms
	manyNames    = 1000
	aliasOfHosts = "edge.alias.test." // suffix of alias targets
	aliasHalf    = "half."
)

// nameServer answers questions over UDP and TCP on one port.
type nameServer struct {
	web      *Web
	udp, tcp *dns.Server
	addr     netip.AddrPort
}

// listenNames opens both sockets and starts to answer.
func (w *Web) listenNames() (*nameServer, error) {
	var lastErr error
	for range 20 {
		packets, err := w.net.ListenPacket(netip.AddrPortFrom(localhost, uint16(w.cfg.DNSPort)))
		if err != nil {
			return nil, fmt.Errorf("cannot listen for DNS: %w", err)
		}
		addr := packets.LocalAddr().(*net.UDPAddr).AddrPort()
		listener, err := w.net.Listen(addr)
		if err != nil {
			_ = packets.Close()
			lastErr = err
			if w.cfg.DNSPort != 0 {
				break
			}
			continue
		}
		s := &nameServer{web: w, addr: addr}
		s.udp = &dns.Server{PacketConn: packets, Handler: s}
		s.tcp = &dns.Server{Listener: listener, Handler: s, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
		for _, server := range []*dns.Server{s.udp, s.tcp} {
			started := make(chan struct{})
			server.NotifyStartedFunc = func() { close(started) }
			w.running.Go(func() { _ = server.ActivateAndServe() }) // ends with the socket
			<-started
		}
		return s, nil
	}
	return nil, fmt.Errorf("cannot listen for DNS: %w", lastErr)
}

func (s *nameServer) close() {
	_ = s.udp.Shutdown()
	_ = s.tcp.Shutdown()
}

// ServeDNS answers one question.
func (s *nameServer) ServeDNS(out dns.ResponseWriter, q *dns.Msg) {
	s.web.questions.Add(1)
	if len(q.Question) != 1 {
		m := new(dns.Msg)
		m.SetRcodeFormatError(q)
		_ = out.WriteMsg(m)
		return
	}
	_, overUDP := out.RemoteAddr().(*net.UDPAddr)
	m, wait := s.web.answerName(q, overUDP)
	if m == nil || wait > 0 && !s.web.sleep(wait) {
		return
	}
	if forged := s.web.forged(q, overUDP); forged != nil {
		_ = out.WriteMsg(forged)
	}
	_ = out.WriteMsg(m) // fails only if the client is gone
}

// asked returns the host that a question's name belongs to. Alias targets contain the host's name:
// half.HOST.edge.alias.test. behind reports whether the name is an alias target, and inner is the name without its
// suffix.
func asked(name string) (host, inner string, behind bool) {
	host = strings.ToLower(strings.TrimSuffix(name, "."))
	inner, behind = strings.CutSuffix(host+".", "."+aliasOfHosts)
	if behind {
		host = strings.TrimPrefix(inner, aliasHalf)
	}
	return host, inner, behind
}

// forged returns the forged answer sent before the true one, or nil.
func (w *Web) forged(q *dns.Msg, overUDP bool) *dns.Msg {
	host, _, _ := asked(q.Question[0].Name)
	kind := w.world.behaviour(host).name
	if !overUDP || kind != nameWrongID && kind != nameWrongQuestion {
		return nil
	}
	m := new(dns.Msg).SetReply(q)
	owner := q.Question[0].Name
	if kind == nameWrongID {
		m.Id ^= 0x5555
	} else {
		m.Question[0].Name = "forged.test."
	}
	m.Answer = []dns.RR{address(owner, nameTTL, w.world.unused())}
	return m
}

// answerName returns the answer to a question, and how long to wait before it; nil: silence.
func (w *Web) answerName(q *dns.Msg, overUDP bool) (*dns.Msg, time.Duration) {
	question := q.Question[0]
	host, inner, behind := asked(question.Name)
	b := w.world.behaviour(host)
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	var wait time.Duration
	switch b.name {
	case nameMissing:
		m.Rcode = dns.RcodeNameError
		return m, 0
	case nameServFail:
		m.Rcode = dns.RcodeServerFailure
		return m, 0
	case nameRefused:
		m.Rcode = dns.RcodeRefused
		return m, 0
	case nameSilent:
		return nil, 0
	case nameNoAddress:
		return m, 0
	case nameTruncated, nameMany:
		if overUDP {
			m.Truncated = true
			return m, 0
		}
	case nameSlow:
		wait = slowName
	case nameLate:
		wait = lateName
	case nameLost:
		if overUDP && w.count(host+" "+dns.TypeToString[question.Qtype], origin.Auto) == 1 {
			return nil, 0
		}
	}
	owner := question.Name
	if b.name == nameAlias || b.name == nameAliasLoop {
		half, last := aliasHalf+host+"."+aliasOfHosts, host+"."+aliasOfHosts
		if len(half) > 254 {
			half, last = aliasHalf+aliasOfHosts, aliasOfHosts
		}
		if !behind {
			m.Answer = append(m.Answer, alias(owner, half))
			owner = half
		}
		if b.name == nameAliasLoop {
			m.Answer = append(m.Answer, alias(half, last), alias(last, half))
			return m, wait
		}
		if strings.HasPrefix(inner, aliasHalf) || !behind {
			m.Answer = append(m.Answer, alias(owner, last))
			owner = last
		}
	}
	var addrs []netip.Addr
	ttl := uint32(nameTTL)
	switch b.name {
	case nameMany:
		addrs = w.world.addresses(host, b, 0, manyNames)
	case nameChanging:
		addrs, ttl = w.world.addresses(host, b, w.count(host+" "+dns.TypeToString[question.Qtype], origin.Auto)-1, 1), 0
	case nameBesideHole, nameSixBesideHole:
		addrs = w.world.beside(host, b)
	default:
		addrs = []netip.Addr{w.world.address(host, b)}
	}
	for _, addr := range addrs {
		// A question of another type or class gets an empty answer.
		if rr := address(owner, ttl, addr); rr.Header().Rrtype == question.Qtype && question.Qclass == dns.ClassINET {
			m.Answer = append(m.Answer, rr)
		}
	}
	return m, wait
}

func address(owner string, ttl uint32, addr netip.Addr) dns.RR {
	h := dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
	if addr.Is6() {
		h.Rrtype = dns.TypeAAAA
		return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
	}
	return &dns.A{Hdr: h, A: addr.AsSlice()}
}

func alias(owner, target string) dns.RR {
	return &dns.CNAME{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: nameTTL},
		Target: target}
}

// Name describes how the simulated DNS answers for a host.
type Name struct {
	Addr   netip.Addr // the first of several; invalid: none
	Rcode  int        // response code; also 0 for an answer without an address
	Silent bool       // no answer comes
}

// Lookup returns how the DNS answers for a host, without asking it.
func (w *Web) Lookup(host string) Name {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	b := w.world.behaviour(host)
	switch b.name {
	case nameMissing:
		return Name{Rcode: dns.RcodeNameError}
	case nameServFail:
		return Name{Rcode: dns.RcodeServerFailure}
	case nameRefused:
		return Name{Rcode: dns.RcodeRefused}
	case nameSilent:
		return Name{Silent: true}
	case nameNoAddress, nameAliasLoop:
		return Name{}
	}
	return Name{Addr: w.world.address(host, b)}
}
