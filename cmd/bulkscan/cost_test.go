//go:build !race

package main

import (
	"math"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// The allocations for one more origin of a plain scan, including those of the simulated web and of the network in
// memory. They depend on how full buffers are, and so on the scheduling of goroutines: in twelve runs there were 104.7
// to 105.0 allocations, and 19,761 to 20,558 bytes.
const (
	allocsOfOrigin = 104.9
	bytesOfOrigin  = 20_200
)

// TestCostOfAnOrigin compares two scans of different length: the difference is what origins cost. It uses no clock, so
// it detects a single further allocation for each origin on any machine.
func TestCostOfAnOrigin(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty pools
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))  // each processor has pools of its own
	cost := func(n int) (allocs, bytes float64) {
		inBubble(t, n, simweb.Config{Seed: 40, Only: []string{"ok"}, Bodies: 64}, func(t *testing.T, w *world) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w.scan(t, filepath.Join(t.TempDir(), "out"), "--scheme", "http", "--concurrency", "16").exits(t, 0)
			runtime.ReadMemStats(&after)
			allocs, bytes = float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
		})
		return allocs, bytes
	}
	const short, long = 300, 1500
	cost(short)                                    // fills pools
	least := func(n int) (allocs, bytes float64) { // the least of several runs, since buffers differ in how full they are
		allocs, bytes = cost(n)
		for range 3 {
			a, b := cost(n)
			allocs, bytes = min(allocs, a), min(bytes, b)
		}
		return allocs, bytes
	}
	allocsOfShort, bytesOfShort := least(short)
	allocs, bytes := least(long)
	allocs, bytes = (allocs-allocsOfShort)/(long-short), (bytes-bytesOfShort)/(long-short)
	if math.Abs(allocs-allocsOfOrigin) > 0.6 || math.Abs(bytes-bytesOfOrigin) > bytesOfOrigin*0.08 {
		t.Errorf("an origin costs %.2f allocations and %.0f bytes; want %.1f and %d", allocs, bytes, allocsOfOrigin,
			bytesOfOrigin)
	}
}
