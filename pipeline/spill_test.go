package pipeline

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// TestCalendar puts records and takes them in random order, and compares with a list of what is inside. Each comes out once, with its
// header; none comes out before one that is due in an earlier span; the counts by key are those of what is inside.
func TestCalendar(t *testing.T) {
	f := func(seed uint64) {
		dice := rand.New(rand.NewPCG(seed, 1))
		s := newSpill(t.TempDir())
		defer s.close()
		c := newCalendar(s)
		inside := map[int64]spillHeader{}
		horizon := []time.Duration{time.Second, time.Minute, time.Hour, 200 * time.Hour}[dice.IntN(4)]
		most := 1 + dice.IntN(50)
		o, _ := origin.Parse("example.com")
		for i := int64(0); i < 2000 || len(inside) > 0; i++ {
			if i < 2000 && dice.IntN(3) > 0 {
				h := spillHeader{due: time.Duration(dice.Int64N(int64(horizon))), key: key(dice.IntN(5)), asleep: dice.IntN(2) == 0}
				if err := c.put(h, record{origin: o, rank: i}); err != nil {
					t.Fatal(err)
				}
				inside[i] = h
				continue
			}
			if len(inside) == 0 {
				continue
			}
			next := c.next()
			h, rec, err := c.get(most)
			if err != nil || inside[rec.rank] != h {
				t.Fatalf("seed %d: record %d came out with %+v, error %v; want %+v", seed, rec.rank, h, err, inside[rec.rank])
			}
			delete(inside, rec.rank)
			byKey := map[key]int{}
			for _, other := range inside {
				if other.key != noKey {
					byKey[other.key]++
				}
				if other.due < next || other.due+wideSpan < h.due {
					t.Fatalf("seed %d: one due at %v came out at %v, before one due at %v", seed, h.due, next, other.due)
				}
			}
			if c.count != len(inside) || fmt.Sprint(byKey) != fmt.Sprint(c.waiting) {
				t.Fatalf("seed %d: %d inside, by key %v; want %d, %v", seed, c.count, c.waiting, len(inside), byKey)
			}
		}
		if len(c.buckets) > 0 {
			t.Errorf("seed %d: %d buckets are left", seed, len(c.buckets))
		}
	}
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		f(seed)
	}
}

// TestSpilledRecordsAreWrittenTwiceAtMost feeds names on one address much faster than its rate, for 40 seconds.
func TestSpilledRecordsAreWrittenTwiceAtMost(t *testing.T) {
	n, maxWaiting := 400_000, DefaultMaxWaiting/16
	if testing.Short() {
		n, maxWaiting = 40_000, 2000
	}
	w, s := &web{ttl: time.Minute, address: func(string) string { return "10.0.0.1" }}, &shelf{}
	var written, spilled int64
	during := func(p *Pipeline) {
		time.Sleep(40 * time.Second)
		written, spilled = p.progress.spillWritten.Load(), p.progress.Spilled.Load()
		p.Stop()
	}
	_, err := scan(t, Config{Concurrency: 100, IPRate: 10, MaxWaiting: maxWaiting}, w, &list{hosts: hosts(n, "h%d.example.com")}, s, during)
	if err != ErrStopped || len(s.sites) < 390 {
		t.Fatalf("kept %d, error %v", len(s.sites), err)
	}
	t.Logf("%d names on one address: %d spilled after 40 s, %.1f MB written, %.0f bytes each", n, spilled, float64(written)/1e6, float64(written)/float64(spilled))
	if spilled < int64(n)*9/10-int64(maxWaiting) || written > 2*200*spilled {
		t.Errorf("%d bytes were written for %d spilled records; want at most twice their size", written, spilled)
	}
}
