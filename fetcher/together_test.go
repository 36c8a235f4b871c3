package fetcher

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// book is a Resolver with the IPv4 and the IPv6 addresses of hosts.
type book map[string][2]string

func (b book) find(host string, family int) resolve.Answer {
	answer := resolve.Answer{Took: time.Duration(family+1) * time.Second, Until: time.Unix(int64(family+1), 0)}
	for text := range strings.FieldsSeq(b[host][family]) {
		answer.Addrs = append(answer.Addrs, netip.MustParseAddr(text))
	}
	if answer.Addrs == nil {
		answer.Outcome, answer.Cause = exchange.DNSNotFound, exchange.CauseNoAddress
	}
	return answer
}

func (b book) Lookup(_ context.Context, host string) resolve.Answer     { return b.find(host, 0) }
func (b book) LookupIPv6(_ context.Context, host string) resolve.Answer { return b.find(host, 1) }

// batches is a book that finds all names of a batch together.
type batches struct {
	book
	names *int // of the last batch
}

func (b batches) LookupAll(_ context.Context, queries []*resolve.Query, done func([]*resolve.Query)) {
	*b.names = len(queries)
	for _, q := range queries {
		q.Answer = b.find(q.Host, 0)
	}
	go done(queries)
}

// ResolveAll and Resolve return the same, with a Resolver that looks names up in batches and with any other one.
func TestResolveAllIsResolve(t *testing.T) {
	b := book{
		"four.example":    {"9.0.0.1 9.0.0.2", ""},
		"both.example":    {"9.0.0.1", "2606::1"},
		"private.example": {"10.0.0.1", ""},
		"behind.example":  {"10.0.0.1", "2606::1"},
		"refused.example": {"9.9.9.9 10.0.0.1", "2606::9"},
		"out.example":     {"9.0.0.1", ""},
		"to.example":      {"9.0.0.1", ""},
		"nothing.example": {},
	}
	var names int
	cfg := testConfig(netip.AddrPort{})
	cfg.AllowPrivate = false
	cfg.ConnectTo = []ConnectTo{{Host: "to.example", Addr: netip.MustParseAddr("9.0.0.7")}}
	cfg.OptOut = func(host string) bool { return host == "out.example" }
	cfg.OptOutAddr = func(addr netip.Addr) bool { return addr == netip.MustParseAddr("9.9.9.9") }
	var queries []*exchange.Query
	for _, host := range append(slices.Sorted(maps.Keys(b)), "9.0.0.1", "10.0.0.1", "[2606::1]") {
		for skip := range uint8(2 * maxAddresses) {
			for _, unmet := range []exchange.Outcome{0, exchange.ConnectRefused} {
				queries = append(queries, &exchange.Query{ID: len(queries),
					Target: exchange.Target{Origin: parse(t, "http://"+host), Skip: skip, Unmet: unmet}})
			}
		}
	}
	for _, resolver := range []Resolver{b, batches{b, &names}} {
		cfg.Resolver = resolver
		f := newFetcher(t, cfg)
		found := make(chan *exchange.Query, len(queries))
		f.ResolveAll(t.Context(), queries, func(some []*exchange.Query) {
			for _, q := range some {
				found <- q
			}
		})
		seen := map[int]bool{}
		for range queries {
			q := <-found
			if want := f.Resolve(t.Context(), q.Target); q.Lookup != want || seen[q.ID] {
				t.Errorf("%T, %s at %d after %v:\ngot  %+v\nwant %+v", resolver, q.Target, q.Target.Skip, q.Target.Unmet, q.Lookup,
					want)
			}
			seen[q.ID], q.Lookup = true, exchange.Lookup{}
		}
	}
	if want := (len(b) - 2) * len(queries) / (len(b) + 3); names != want {
		t.Errorf(
			"%d names were looked up together, want %d: no literals, and no hosts that opted out or are dialled elsewhere",
			names, want)
	}
}
