package fetcher

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkscan/bulkscan/origin/exchange"
)

// fetchMany makes n concurrent fetches. Each must have the wanted row at once; its body is recycled.
func fetchMany(t *testing.T, f *Fetcher, n int, want row) {
	t.Helper()
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			r, _ := fetch(t, f, "http://example.com")
			if got := rowOf(r); got != want || r.Timing.Total != 0 {
				t.Errorf("got %v (%v) %d, %d bytes after %v", got.outcome, got.cause, got.status, len(got.body), r.Timing.Total)
			}
			r.Reset()
		})
	}
	wait.Wait()
	allBack(t, f)
}

// allBack fails the test if memory of the budget is still lent.
func allBack(t *testing.T, f *Fetcher) {
	t.Helper()
	for _, s := range []*store{f.memory.large, f.memory.whole} {
		if made, free := s.made.Load(), len(s.free); made != int64(free) {
			t.Errorf("of %d slices of %d bytes %d were returned", made, s.size, free)
		}
	}
}

// Growing bodies do not deadlock: the budget suffices for any number of them.
func TestBodyBudgetIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 12
		body := strings.Repeat("Disallow: /x\n", 30_000) // 390,000 bytes
		var begun sync.WaitGroup
		begun.Add(many)
		cfg := site(t, 0, func(conn net.Conn) {
			reply(okHead+"\r\n", body[:75_000])(conn) // so much arrives without memory of the budget
			begun.Done()
			begun.Wait()
			_, _ = io.WriteString(conn, body[75_000:])
		})
		cfg.MaxBody, cfg.BodyBudget = 512_000, 4*512_000
		fetchMany(t, newFetcher(t, cfg), many, answers(200, body))
	})
}

// Coded bodies need memory twice, and one of few decoders. Waiting for one while holding the other must not deadlock.
func TestDecodeIsNoDeadlock(t *testing.T) {
	noise := make([]byte, 90_000)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	for name, body := range map[string]string{"large": string(noise),
		"small, large once decoded": strings.Repeat("Disallow: /x\n", 7000)} {
		bubble(t, name, func(t *testing.T) {
			coded := encoders["gzip"]([]byte(body))
			cfg := site(t, 0, reply(fmt.Sprintf("%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", okHead, len(coded)),
				string(coded)))
			cfg.MaxBody, cfg.BodyBudget = 100_000, 400_000
			fetchMany(t, newFetcher(t, cfg), 24, answers(200, body))
		})
	}
}

// An announced length takes no memory of the budget. Otherwise a few silent servers would block all others.
func TestAnnouncedLengthTakesNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Repeat("Disallow: /x\n", 7000)
		var arrived sync.WaitGroup
		arrived.Add(8)
		done := make(chan struct{})
		cfg := site(t, 0, func(conn net.Conn) {
			if request := readRequest(conn); strings.Contains(request, "liar") {
				_, _ = io.WriteString(conn, okHead+"Content-Length: 9000000\r\n\r\nabc")
				arrived.Done()
				<-done
				return
			}
			arrived.Wait()
			_, _ = io.WriteString(conn, okHead+"\r\n"+body)
		})
		cfg.MaxBody, cfg.BodyBudget = 100_000, 400_000
		f := newFetcher(t, cfg)
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				r, _ := fetch(t, f, "http://liar.example")
				if r.Outcome != exchange.ClosedEarly || r.Cause != exchange.CauseClosedInBody {
					t.Errorf("a liar got %v (%v)", r.Outcome, r.Cause)
				}
			})
		}
		arrived.Wait()
		fetchMany(t, f, 1, answers(200, body))
		close(done)
		wait.Wait()
	})
}

// A thousand concurrent exchanges with bodies of MaxBody stay within the budget: the lent memory, and the process's
// heap.
func TestBodyBudgetHolds(t *testing.T) {
	noLeaks(t)
	const many, size = 1000, 512_000
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	body := []byte(strings.Repeat("Disallow: /x\n", size/13+1)[:size-1] + "\n")
	cfg := testConfig(serve(t, func(conn net.Conn) {
		reply(okHead + "\r\n")(conn)
		_, _ = conn.Write(body)
	}))
	cfg.BodyBudget = 64 << 20
	f := newFetcher(t, cfg)
	m := f.memory
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before, peak, most := stats.HeapAlloc, uint64(0), int64(0)
	var looking sync.Mutex
	look := func() {
		looking.Lock()
		defer looking.Unlock()
		runtime.ReadMemStats(&stats)
		peak = max(peak, stats.HeapAlloc-min(before, stats.HeapAlloc))
		lent := int64(0)
		for _, s := range []*store{m.large, m.whole} {
			lent += (min(s.made.Load(), int64(cap(s.free))) - int64(len(s.free))) * int64(s.size)
		}
		most = max(most, lent)
	}
	// As many bodies are kept as possible without blocking the others.
	kept := make(chan *exchange.Response, cap(m.whole.free)-1)
	keep := func(r *exchange.Response) {
		for {
			select {
			case kept <- r:
				return
			default:
			}
			select {
			case old := <-kept:
				old.Reset()
			default: // another goroutine has taken it
			}
		}
	}
	var wait sync.WaitGroup
	for range many {
		wait.Go(func() {
			for range rounds {
				r, _ := fetch(t, f, "http://example.com")
				if r.Outcome != exchange.Answered || !bytes.Equal(r.Body, body) || r.Truncated {
					t.Errorf("got %v (%v), %d bytes", r.Outcome, r.Cause, len(r.Body))
				}
				look()
				keep(r)
			}
		})
	}
	wait.Wait()
	for len(kept) > 0 {
		(<-kept).Reset()
	}
	allBack(t, f)
	// Other memory of an exchange and of its server in this process is small, but there are a thousand of each.
	const other = many * (smallBody + middleBody + 30<<10)
	t.Logf("lent at most %d KB, the heap grew by at most %d KB; the budget is %d KB", most>>10, peak>>10,
		cfg.BodyBudget>>10)
	if most > cfg.BodyBudget {
		t.Errorf("%d bytes were lent of a budget of %d", most, cfg.BodyBudget)
	}
	if most < cfg.BodyBudget/2 {
		t.Errorf("%d bytes were lent of a budget of %d: too few to test it", most, cfg.BodyBudget)
	}
	if int64(peak) > cfg.BodyBudget+other {
		t.Errorf("the heap grew by %d bytes, with a budget of %d and %d of other memory", peak, cfg.BodyBudget, other)
	}
	if held := m.large.made.Load()*int64(m.large.size) + m.whole.made.Load()*int64(m.whole.size); held > cfg.BodyBudget {
		t.Errorf("%d bytes are held for a budget of %d", held, cfg.BodyBudget)
	}
}

// A body's memory grows with the received bytes: none before the first byte, whatever the head announces, then one
// size at a time.
func TestBodyMemoryFollowsBytes(t *testing.T) {
	cfg := testConfig(netip.AddrPort{})
	cfg.MaxBody = 512_000
	f := newFetcher(t, cfg)
	m := f.memory
	// Count the pools' allocations. Memory returns to the pools, or the garbage collector frees it.
	var small, middle int
	count := func(n *int, made func() any) func() any {
		return func() any {
			*n++
			return made()
		}
	}
	m.small.New, m.middle.New = count(&small, m.small.New), count(&middle, m.middle.New)
	seen := func() [4]int {
		return [4]int{small, middle, int(m.large.made.Load()), int(m.whole.made.Load())}
	}
	check := func(arrived int, want [4]int) {
		t.Helper()
		if got := seen(); got != want {
			t.Errorf("after %d bytes: memory of each size was lent %v times, want %v", arrived, got, want)
		}
	}
	var none, one, two, three, four [4]int
	one, two, three, four = [4]int{1}, [4]int{1, 1}, [4]int{1, 1, 1}, [4]int{1, 1, 1, 1}
	arrived := 0
	src := readerFunc(func(p []byte) (int, error) {
		// Before this read there is only the memory that `arrived` bytes need.
		switch {
		case arrived == 0:
			check(arrived, none)
		case arrived <= smallBody:
			check(arrived, one)
		case arrived <= middleBody:
			check(arrived, two)
		case arrived <= largeBody:
			check(arrived, three)
		default:
			check(arrived, four)
		}
		if arrived == 300_000 {
			return 0, io.EOF
		}
		n := min(len(p), 1000, 300_000-arrived)
		arrived += n
		return n, nil
	})
	transfer := frame(bufio.NewReaderSize(src, 16), 300_000) // a buffer too small to matter
	body, cut, err := m.collect(t.Context(), &transfer, cfg.MaxBody, time.Now().Add(time.Minute))
	if err != nil || cut || len(body) != 300_000 {
		t.Errorf("got %d bytes, cut %v, %v", len(body), cut, err)
	}
	m.Recycle(body)
	allBack(t, f)
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
