package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
)

// resolvers are the ways to look names up that are compared. Each makes functions that find the address of a name with
// one question to the server.
var resolvers = []struct {
	name string
	open func(b *testing.B, server string) func(ctx context.Context, host string) (netip.Addr, error)
}{
	{"bulkscan", openResolve},
	{"net", openNetResolver},
	{"miekg", openMiekg},
}

// openResolve is as a scan uses it: with retries, EDNS, one question at a time for a name, and a cache.
func openResolve(b *testing.B, server string) func(context.Context, string) (netip.Addr, error) {
	r, err := resolve.New([]string{server}, resolve.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	})
	return func(ctx context.Context, host string) (netip.Addr, error) {
		answer := r.Lookup(ctx, host)
		if len(answer.Addrs) == 0 {
			return netip.Addr{}, fmt.Errorf("%v (%v)", answer.Outcome, answer.Cause)
		}
		return answer.Addrs[0], nil
	}
}

// openNetResolver is Go's own resolver, which asks by a socket for each question.
func openNetResolver(_ *testing.B, server string) func(context.Context, string) (netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	return func(ctx context.Context, host string) (netip.Addr, error) {
		addrs, err := r.LookupNetIP(ctx, "ip4", host+".") // the final dot keeps out the machine's search list
		if err != nil {
			return netip.Addr{}, err
		}
		return addrs[0], nil
	}
}

// openMiekg is a dns.Client as its documentation uses it: a socket for each question, no retries.
func openMiekg(_ *testing.B, server string) func(context.Context, string) (netip.Addr, error) {
	client := new(dns.Client)
	return func(ctx context.Context, host string) (netip.Addr, error) {
		m, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(host), dns.TypeA), server)
		if err != nil {
			return netip.Addr{}, err
		}
		for _, rr := range m.Answer {
			if a, ok := rr.(*dns.A); ok {
				addr, _ := netip.AddrFromSlice(a.A)
				return addr, nil
			}
		}
		return netip.Addr{}, errors.New("no address")
	}
}

// BenchmarkLookups looks each name up once, 256 at a time, and compares the answer with the address that the name has.
// The name server is a process of its own, whose processor time does not count.
//
//	make compare BENCH=Lookups TIME=20000x COUNT=6
func BenchmarkLookups(b *testing.B) {
	server := startWeb(b, "--only", "ok")
	want := netip.MustParseAddr(server.Hot)
	for _, r := range resolvers {
		b.Run("by="+r.name, func(b *testing.B) {
			look := r.open(b, server.Resolver)
			parallel(b, func() func(int64) error {
				return func(host int64) error {
					addr, err := look(b.Context(), fmt.Sprintf("h%d.hot.test", host))
					if err == nil && addr.Unmap() != want {
						err = fmt.Errorf("address %v", addr)
					}
					return err
				}
			})
		})
	}
}
