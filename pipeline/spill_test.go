package pipeline

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/origin"
)

// Whatever is put into a calendar, whenever it is read, each record comes out once, no sooner than the bucket of
// its time, and buckets are disjoint and in order.
func TestCalendar(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		file, c := newSpill(t.TempDir()), &calendar{}
		o, _ := origin.Parse("a.example.com")
		var now time.Duration
		times := map[uint64]time.Duration{}
		out := map[uint64]bool{}
		get := func() {
			first := c.first()
			rec, ok, err := c.get(file)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			if at := times[rec.seq]; out[rec.seq] || at < first.from || at >= first.to {
				t.Fatalf("seed %d: record %d for %v came from %v to %v, again: %v", seed, rec.seq, times[rec.seq], first.from,
					first.to, out[rec.seq])
			}
			out[rec.seq] = true
		}
		for range 3000 {
			now += time.Duration(rnd.IntN(1000)) * time.Millisecond
			if rnd.IntN(3) > 0 {
				rec := record{seq: uint64(len(times)), origin: o}
				at := now + time.Duration(rnd.ExpFloat64()*float64([]time.Duration{time.Second, time.Minute,
					24 * time.Hour}[rnd.IntN(3)]))
				times[rec.seq] = at
				if err := c.put(file, at, now, rec); err != nil {
					t.Fatal(err)
				}
			} else if c.held > 0 {
				get()
			}
			for i := 1; i < len(c.buckets); i++ {
				if a, b := c.buckets[i-1], c.buckets[i]; a.from >= a.to || a.to > b.from {
					t.Fatalf("seed %d: a bucket from %v to %v, and one from %v", seed, a.from, a.to, b.from)
				}
			}
			if c.held != len(times)-len(out) || len(c.buckets) > 600 {
				t.Fatalf("seed %d: holds %d of %d in %d buckets", seed, c.held, len(times)-len(out), len(c.buckets))
			}
		}
		for steps := 0; c.held > 0; steps++ {
			if get(); steps > 100_000 {
				t.Fatalf("seed %d: %d never come out", seed, c.held)
			}
		}
		if len(out) != len(times) || file.size != int64(len(file.free))*spillChunk {
			t.Fatalf("seed %d: %d of %d came out, %d pages are left", seed, len(out), len(times),
				file.size/spillChunk-int64(len(file.free)))
		}
		file.close()
	}
}

// TestSpilledRecordsAreWrittenOnce feeds names on one address much faster than its rate, for 40 seconds.
func TestSpilledRecordsAreWrittenOnce(t *testing.T) {
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
	_, err := scan(t, Config{Concurrency: 100, IPRate: 10, MaxWaiting: maxWaiting}, w,
		&list{hosts: hosts(n, "h%d.example.com")}, s, during)
	if !errors.Is(err, ErrStopped) || len(s.sites) != 1+int(40*time.Second/paceOf(10).interval) {
		t.Fatalf("kept %d, error %v", len(s.sites), err)
	}
	t.Logf("%d names on one address: %d spilled after 40 s, %.1f MB written, %.0f bytes each", n, spilled,
		float64(written)/1e6, float64(written)/float64(spilled))
	if spilled < int64(n)*9/10-int64(maxWaiting) || written > 200*spilled {
		t.Errorf("%d bytes were written for %d spilled records; want their size", written, spilled)
	}
}
