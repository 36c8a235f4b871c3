package bench

import (
	"context"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/bench/built"
)

// processorTime is what this process has used so far, user's and system's, on all threads.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// reportCPU reports what one operation of n took of the processors.
func reportCPU(b *testing.B, used time.Duration, n int) {
	b.ReportMetric(used.Seconds()/float64(n)*1e4, "cpu-s/10k")
}

// inFlight is how many exchanges or look-ups a benchmark has under way at a time.
const inFlight = 256

// next numbers hosts, so that no host is looked up twice in a process: answers are cached.
var next atomic.Int64

// parallel performs b.N operations, inFlight at a time, and reports processor time and allocations of this process.
// Each goroutine performs operations by a function of its own, which is given the number of a host.
func parallel(b *testing.B, worker func() func(host int64) error) {
	b.ReportAllocs()
	b.SetParallelism(max(1, inFlight/runtime.GOMAXPROCS(0)))
	before := processorTime(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		do := worker()
		for pb.Next() {
			if err := do(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reportCPU(b, processorTime(b)-before, b.N)
}

// startWeb runs a simulated web in a process of its own until the benchmark ends, so that its processor time is not in
// ours.
func startWeb(b *testing.B, flags ...string) *built.Web {
	b.Helper()
	program, err := built.Command(b.Context(), b.TempDir(), built.Simweb)
	if err != nil {
		b.Fatal(err)
	}
	w, err := built.StartWeb(context.Background(), program, flags...) // b.Context ends before the cleanup
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if _, err := w.Stop(); err != nil {
			b.Error(err)
		}
	})
	return w
}

// scaled is n, or a fiftieth of it with -short.
func scaled(n int) int {
	if testing.Short() {
		return n / 50
	}
	return n
}
