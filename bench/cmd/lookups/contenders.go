package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
)

// This file is who is measured.

// lookup finds the address of a name, which must have one.
type lookup func(ctx context.Context, host string) (netip.Addr, error)

// contender is a way to look names up.
type contender struct {
	name     string // without a comma
	module   string // whose version is told; "" is the standard library
	does     string
	inFlight int // look-ups at a time
	// open makes it ready to ask a server. What it returns gives each of those who look names up, at the same time, a
	// lookup of their own.
	open func(server netip.AddrPort, rate float64) (func() lookup, error)
}

// Those that an experiment asks for by name.
const (
	ours       = "bulkscan"
	stockOnce  = "net.Resolver A only"
	miekgOnce  = "miekg/dns"
	miekgTries = "miekg/dns with 3 tries"
)

const (
	moduleOurs  = "github.com/bulkscan/bulkscan"
	moduleMiekg = "github.com/miekg/dns"
)

// usual is how many look-ups a scan has under way where all goes well. To the others it makes little difference whether they
// have these, or a quarter.
const usual = 256

var contenders = []contender{
	{ours, moduleOurs, "`resolve.Resolver.Lookup` as a scan calls it: retries, EDNS, one flight a name, the cache on", usual, openOurs},
	{"bulkscan at 64", moduleOurs, "the same, with fewer look-ups at a time", 64, openOurs},
	{"bulkscan at 1024", moduleOurs, "the same, with as many as a scan comes to have where many names are silent", 1024, openOurs},
	{"net.Resolver", "", "`LookupNetIP(\"ip\")`, as people use it: a question for A and one for AAAA, a socket each", usual, openStock("ip")},
	{stockOnce, "", "`LookupNetIP(\"ip4\")`: one question", usual, openStock("ip4")},
	{miekgOnce, moduleMiekg, "`dns.Client.ExchangeContext`: a socket a question, no EDNS", usual, openMiekg(1)},
	{miekgTries, moduleMiekg, "the same, up to three times", usual, openMiekg(3)},
	{"miekg/dns with a socket a goroutine", moduleMiekg, "`ExchangeWithConnContext`: a socket for all questions of a goroutine, no EDNS", usual, openMiekgReused},
}

func find(name string) (contender, bool) {
	for _, c := range contenders {
		if c.name == name {
			return c, true
		}
	}
	return contender{}, false
}

func openOurs(server netip.AddrPort, rate float64) (func() lookup, error) {
	r, err := resolve.New([]string{server.String()}, resolve.Options{Rate: rate})
	if err != nil {
		return nil, err
	}
	look := func(ctx context.Context, host string) (netip.Addr, error) {
		answer := r.Lookup(ctx, host, 0)
		if len(answer.Addrs) == 0 {
			return netip.Addr{}, fmt.Errorf("%v (%v)", answer.Outcome, answer.Cause)
		}
		return only(answer.Addrs)
	}
	return func() lookup { return look }, nil
}

// openStock is the standard library's resolver, the one that is made of Go: for a network, "ip" or "ip4".
func openStock(network string) func(netip.AddrPort, float64) (func() lookup, error) {
	return func(server netip.AddrPort, _ float64) (func() lookup, error) {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server.String())
		}}
		look := func(ctx context.Context, host string) (netip.Addr, error) {
			// The final dot keeps the search list of this machine out.
			addrs, err := r.LookupNetIP(ctx, network, host+".")
			if err != nil {
				return netip.Addr{}, err
			}
			return only(addrs)
		}
		return func() lookup { return look }, nil
	}
}

func openMiekg(tries int) func(netip.AddrPort, float64) (func() lookup, error) {
	return func(server netip.AddrPort, _ float64) (func() lookup, error) {
		c, addr := new(dns.Client), server.String()
		look := func(ctx context.Context, host string) (found netip.Addr, err error) {
			for range tries {
				var m *dns.Msg
				if m, _, err = c.ExchangeContext(ctx, question(host), addr); err == nil {
					return firstA(m)
				}
			}
			return found, err
		}
		return func() lookup { return look }, nil
	}
}

func openMiekgReused(server netip.AddrPort, _ float64) (func() lookup, error) {
	c := new(dns.Client)
	return func() lookup {
		var conn *dns.Conn
		return func(ctx context.Context, host string) (netip.Addr, error) {
			if conn == nil {
				var err error
				if conn, err = c.DialContext(ctx, server.String()); err != nil {
					return netip.Addr{}, err
				}
			}
			m, _, err := c.ExchangeWithConnContext(ctx, question(host), conn)
			if err != nil {
				_ = conn.Close()
				conn = nil
				return netip.Addr{}, err
			}
			return firstA(m)
		}
	}, nil
}

func question(host string) *dns.Msg { return new(dns.Msg).SetQuestion(dns.Fqdn(host), dns.TypeA) }

func firstA(m *dns.Msg) (netip.Addr, error) {
	if m.Rcode != dns.RcodeSuccess {
		return netip.Addr{}, errors.New(dns.RcodeToString[m.Rcode])
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A)
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, errors.New("no address")
}

func only(addrs []netip.Addr) (netip.Addr, error) {
	if len(addrs) != 1 {
		return netip.Addr{}, fmt.Errorf("%d addresses", len(addrs))
	}
	return addrs[0].Unmap(), nil
}
