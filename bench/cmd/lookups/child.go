package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bulkscan/bulkscan/bench/facts"
)

// This file is the measuring process: it lets one contender look names up, and tells what that used.

// job is what it hears.
type job struct {
	Contender string
	Server    netip.AddrPort
	Rate      float64 // questions a second that it may send, where it knows such a limit; 0: no limit

	Names int // all different
	Steps int // parts of equal size that the names are looked up in, after each of which it is told what the process holds
	Warm  int // names before those that count

	InFlight int     // look-ups at a time
	Pace     float64 // look-ups a second that begin, however many are in flight; 0: as fast as they end
	Profile  string
}

// measured is what the look-ups came to.
type measured struct {
	Right, Wrong int      // with the right address; with another one
	Lost         int      // without any
	Examples     []string `json:",omitempty"` // of what is not right

	CPU            time.Duration
	Wall           time.Duration
	Bytes, Objects uint64 // allocated
	PeakRSS        int64  // bytes
	States         []state

	// Of look-ups that begin by pace alone:
	Offered  float64         // that began a second
	Quantile []time.Duration // within which so many of the look-ups ended: see quantiles

	// What the lab knows:
	Warm      int
	Server    counts
	Overflows int64 // packets that found a full socket meanwhile
}

// quantiles are those of measured.Quantile.
var quantiles = []float64{0.5, 0.9, 0.99, 0.999, 1}

// state is what the process holds after so many names, when none is under way and the garbage is collected.
type state struct {
	Names      int
	Live       int64 // bytes of the heap that are in use
	RSS        int64 // bytes
	Goroutines int
	Files      int
	Rate       float64 // look-ups a second since the last one
}

// contenderPart is the measuring process: it makes ready, warms up, measures, and tells. It ends by itself.
func contenderPart(in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("cannot read what to measure: %w", err)
	}
	c, ok := find(j.Contender)
	if !ok {
		return fmt.Errorf("there is no contender %q", j.Contender)
	}
	each, err := c.open(j.Server, j.Rate)
	if err != nil {
		return err
	}
	m, err := measure(each, &j)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m)
}

// measure looks the names of a job up.
func measure(each func() lookup, j *job) (*measured, error) {
	// What is made once, and memory that grows until it suffices, is no matter of some names more or less.
	var warm tally
	crowd(each, j.Names, j.Names+j.Warm, j.InFlight, &warm)
	if len(warm.examples) > 0 && j.Pace == 0 {
		return nil, fmt.Errorf("of the look-ups that do not count some went wrong: %s", warm.examples[0])
	}
	collect()
	stop, err := facts.Profile(j.Profile)
	if err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, began := facts.CPU(), time.Now()
	m := new(measured)
	var t tally
	if j.Pace > 0 {
		m.Offered, m.Quantile = stream(each(), j.Names, j.Pace, &t)
	} else {
		for step := range j.Steps {
			begun := time.Now()
			first, last := j.Names*step/j.Steps, j.Names*(step+1)/j.Steps
			crowd(each, first, last, j.InFlight, &t)
			if j.Steps > 1 {
				m.States = append(m.States, hold(last, float64(last-first)/time.Since(begun).Seconds()))
			}
		}
	}
	m.CPU, m.Wall = facts.CPU()-used, time.Since(began)
	runtime.ReadMemStats(&after)
	if err := stop(); err != nil {
		return nil, err
	}
	m.Bytes, m.Objects = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	m.PeakRSS = facts.Memory("self", facts.PeakResident)
	m.Right, m.Wrong, m.Lost, m.Examples = int(t.right.Load()), int(t.wrong.Load()), int(t.lost.Load()), t.examples
	return m, nil
}

// crowd lets so many goroutines look the names from first to before last up.
func crowd(each func() lookup, first, last, inFlight int, t *tally) {
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range min(last-first, inFlight) {
		all.Go(func() {
			look := each()
			for i := int(next.Add(1)) - 1; i < last; i = int(next.Add(1)) - 1 {
				t.look(look, i)
			}
		})
	}
	all.Wait()
}

// stream begins so many look-ups a second, whatever becomes of those before. It returns how many have begun a second, and
// what they took.
func stream(look lookup, names int, pace float64, t *tally) (offered float64, took []time.Duration) {
	all := make([]time.Duration, names)
	var running sync.WaitGroup
	began := time.Now()
	for begun := 0; begun < names; {
		for until := due(time.Since(began), pace, names); begun < until; begun++ {
			i, at := begun, time.Now()
			running.Go(func() {
				t.look(look, i)
				all[i] = time.Since(at)
			})
		}
		time.Sleep(time.Millisecond)
	}
	offered = float64(names) / time.Since(began).Seconds()
	running.Wait()
	slices.Sort(all)
	for _, q := range quantiles {
		took = append(took, quantile(all, q))
	}
	return offered, took
}

// due is how many of all look-ups must have begun by now.
func due(elapsed time.Duration, pace float64, all int) int {
	return min(all, int(elapsed.Seconds()*pace))
}

// quantile is the least of some values, in order, that is not exceeded by a share of them.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[max(0, min(at, len(sorted)-1))]
}

// tally counts how look-ups ended.
type tally struct {
	right, wrong, lost atomic.Int64
	mu                 sync.Mutex
	examples           []string
}

// maxExamples bounds measured.Examples.
const maxExamples = 3

// look looks the i-th name up.
func (t *tally) look(look lookup, i int) {
	host := hostOf(i)
	addr, err := look(context.Background(), host)
	want := addressOf(host)
	switch {
	case err != nil:
		t.lost.Add(1)
		t.example(fmt.Sprintf("%s: %v", host, err))
	case addr != want:
		t.wrong.Add(1)
		t.example(fmt.Sprintf("%s: %v, not %v", host, addr, want))
	default:
		t.right.Add(1)
	}
}

func (t *tally) example(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.examples) < maxExamples {
		t.examples = append(t.examples, text)
	}
}

// hold tells what the process holds.
func hold(names int, rate float64) state {
	collect()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return state{names, int64(m.HeapAlloc), facts.Memory("self", facts.Resident), runtime.NumGoroutine(), filesNow(), rate}
}

func collect() {
	runtime.GC()
	runtime.GC() // what the first one found in pools
}
