package pipeline

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// batched is a web that notes how many look-ups begin together.
type batched struct {
	*web
	mu    sync.Mutex
	sizes []int
}

func (b *batched) ResolveAll(ctx context.Context, queries []*exchange.Query, done func([]*exchange.Query)) {
	b.mu.Lock()
	b.sizes = append(b.sizes, len(queries))
	b.mu.Unlock()
	go func() {
		time.Sleep(b.resolving)
		for _, q := range queries {
			q.Lookup = b.Resolve(ctx, q.Target)
		}
		done(queries)
	}()
}

// Look-ups begin in batches, and no slot waits for a batch to be full: the list takes as long as its exchanges.
func TestLookupsBeginInBatches(t *testing.T) {
	f := func(concurrency, resolvers, n, atLeast int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w, s := &batched{web: &web{begun: time.Now(), latency: 100 * time.Millisecond}}, &shelf{}
			w.answers = func(string) time.Duration { return 0 }
			p := New(Config{Concurrency: concurrency, Resolvers: resolvers, SpillDir: t.TempDir()},
				&list{hosts: hosts(n, "h%d.example.com")}, w, noJudge{}, s)
			if err := p.Run(t.Context()); err != nil || len(s.sites) != n {
				t.Fatalf("%d kept, %v", len(s.sites), err)
			}
			total, most := 0, 0
			for _, size := range w.sizes {
				total, most = total+size, max(most, size)
			}
			if total != n || most > min(maxBatch, resolvers) || n < atLeast*len(w.sizes) {
				t.Errorf("%d look-ups at once of %d: %d in %d batches of %d at most", resolvers, n, total, len(w.sizes), most)
			}
			if took, want := time.Since(w.begun), time.Duration(n/concurrency)*w.latency; took != want {
				t.Errorf("%d look-ups at once: took %v, want %v", resolvers, took, want)
			}
		})
	}
	f(512, 256, 512*20, 32)
	f(64, 64, 64*20, 8)
	f(16, 4, 16*20, 1)
	f(1, 1, 20, 1)
}
