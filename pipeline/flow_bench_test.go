package pipeline

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

// flow is a list, a web, a judge and a sink that cost next to nothing.
type flow struct {
	origins []origin.Origin
	n, next int
}

func (f *flow) Next() (Entry, error) {
	if f.next == f.n {
		return Entry{}, io.EOF
	}
	o := f.origins[f.next%len(f.origins)]
	e := Entry{Seq: uint64(f.next), Input: o.Host(), Origin: o}
	f.next++
	return e, nil
}

func (f *flow) First(o origin.Origin, _ exchange.Past) exchange.Target {
	return exchange.Target{Origin: o.As(origin.HTTPS)}
}

func (f *flow) ResolveAll(_ context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	for _, q := range queries {
		host := q.Target.Origin.Host()
		q.Lookup = exchange.Lookup{Addr: netip.AddrFrom4([4]byte{192, 0, host[1], host[2]})}
	}
	done(queries)
}

func (f *flow) Do(_ context.Context, x *exchange.Exchange) exchange.Next {
	x.Response.Outcome, x.Response.Status = exchange.Answered, 200
	return exchange.Done
}

func (f *flow) Add(*audit.Site) error { return nil }

// BenchmarkFlow measures the cost of the stages for one origin: fetching, judging and storing do nothing. The rates are
// on, but too high to delay anything.
//
//	go test ./pipeline -run '^$' -bench Flow -benchmem
func BenchmarkFlow(b *testing.B) {
	f := &flow{n: b.N}
	for _, host := range hosts(1000, "h%d.example.com") {
		o, err := origin.Parse(host)
		if err != nil {
			b.Fatal(err)
		}
		f.origins = append(f.origins, o)
	}
	b.ReportAllocs()
	p := New(Config{Concurrency: 64, HostRate: 1e9, IPRate: 1e9, Rate: 1e9, SpillDir: b.TempDir()}, f, f, noJudge{}, f)
	b.ResetTimer()
	if err := p.Run(b.Context()); err != nil || p.Progress().Kept.Load() != uint64(b.N) {
		b.Fatalf("kept %d of %d, error %v", p.Progress().Kept.Load(), b.N, err)
	}
}
