package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is the measuring process: it lets one contender that is made of Go do its exchanges, and tells what they used.

// job is what it hears.
type job struct {
	Contender   string
	Web         Web
	N, InFlight int
	Warm        int  // exchanges before those that count, with hosts of their own
	Held        bool // all at once; asked by a line on the input what they hold, while the server keeps the answers back
	Profile     string
}

// Measured is what a turn has used.
type Measured struct {
	Answers    int // right ones
	Errors     int
	Examples   []string `json:",omitempty"` // of errors
	CPU        time.Duration
	Wall       time.Duration
	Bytes      uint64 // allocated; 0 where the contender is not made of Go
	Objects    uint64 // allocated
	PeakRSS    int64  // bytes; 0 where the system does not tell
	Goroutines int    // left over at the end
	Server     Counts
}

// Held is what exchanges in flight hold.
type Held struct {
	Before, Now, Live Memory // before any, with all in flight, and the same after a collection
	RSS               int64  // with all in flight, before that collection; 0 where the system does not tell
	Goroutines        int
}

// Memory is what the runtime says of itself, in bytes.
type Memory struct {
	Heap   uint64 // spans in use, garbage included
	Stacks uint64
}

// contenderReply is what the process tells: with job.Held first a Held, and in the end a Measured.
type contenderReply struct {
	Held     *Held     `json:",omitempty"`
	Measured *Measured `json:",omitempty"`
}

// contenderPart is the measuring process: it makes ready, warms up, measures, and tells. It ends by itself.
func contenderPart(in io.Reader, out io.Writer) error {
	commands, replies := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := commands.Decode(&j); err != nil {
		return fmt.Errorf("cannot read what to measure: %w", err)
	}
	c, ok := find(j.Contender)
	if !ok || c.New == nil {
		return fmt.Errorf("cannot measure %q here", j.Contender)
	}
	if err := enoughFiles(j.InFlight); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	do, err := c.New(ctx, &j.Web, j.N+j.Warm)
	if err != nil {
		return err
	}
	// What is made once, and memory that grows until it suffices, is no matter of ten thousand exchanges more or less.
	var warm tally
	if err := do(j.N, j.N+j.Warm, j.InFlight, &warm); err != nil {
		return err
	}
	if n := warm.wrong.Load(); n > 0 {
		return fmt.Errorf("%d of the exchanges that do not count went wrong: %s", n, warm.examples[0])
	}
	var watch func()
	if j.Held {
		before := memoryNow(true)
		watch = func() {
			var ask string
			if err := commands.Decode(&ask); err != nil {
				return
			}
			h := &Held{Before: before, Now: memoryNow(false), RSS: facts.Memory("self", facts.Resident), Goroutines: runtime.NumGoroutine()}
			h.Live = memoryNow(true)
			_ = replies.Encode(contenderReply{Held: h}) // where nobody listens, the input ends too
		}
	}
	m, err := measure(do, j, watch)
	if err != nil {
		return err
	}
	return replies.Encode(contenderReply{Measured: m})
}

// Run does the exchanges from first to before last, so many in flight, and tallies each. An error of Run itself ends the
// measuring.
type Run func(first, last, inFlight int, t *tally) error

// measure measures one run.
func measure(do Run, j job, watch func()) (*Measured, error) {
	runtime.GC() // nobody pays for what was made ready
	goroutines := runtime.NumGoroutine()
	stop, err := facts.Profile(j.Profile)
	if err != nil {
		return nil, err
	}
	if watch != nil {
		go watch()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, began := facts.CPU(), time.Now()
	var t tally
	err = do(0, j.N, j.InFlight, &t)
	m := &Measured{Wall: time.Since(began), CPU: facts.CPU() - used}
	runtime.ReadMemStats(&after)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	m.Goroutines = max(0, runtime.NumGoroutine()-goroutines)
	m.Bytes, m.Objects = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	m.PeakRSS = facts.Memory("self", facts.PeakResident)
	m.Answers, m.Errors, m.Examples = int(t.right.Load()), int(t.wrong.Load()), t.examples
	return m, nil
}

// tally counts how exchanges ended.
type tally struct {
	right, wrong atomic.Int64
	mu           sync.Mutex
	examples     []string
}

// maxExamples bounds Measured.Examples.
const maxExamples = 3

func (t *tally) add(err error) {
	if err == nil {
		t.right.Add(1)
		return
	}
	t.wrong.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.examples) < maxExamples {
		t.examples = append(t.examples, err.Error())
	}
}

// workers lets so many goroutines as shall be in flight do exchanges until all are done. Each has a worker of its own,
// which does exchange i and says what was wrong with it.
func workers(worker func() func(i int) error) Run {
	return func(first, last, inFlight int, t *tally) error {
		var next atomic.Int64
		next.Store(int64(first))
		var all sync.WaitGroup
		for range min(last-first, inFlight) {
			all.Go(func() {
				do := worker()
				for i := int(next.Add(1)) - 1; i < last; i = int(next.Add(1)) - 1 {
					t.add(do(i))
				}
			})
		}
		all.Wait()
		return nil
	}
}

// memoryNow reads what the runtime holds; after a collection, if so wished, in which stacks shrink too.
func memoryNow(collect bool) Memory {
	if collect {
		runtime.GC()
		runtime.GC() // what the first one found in pools
	}
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples)
	return Memory{Heap: samples[0].Value.Uint64() + samples[1].Value.Uint64(), Stacks: samples[2].Value.Uint64()}
}
