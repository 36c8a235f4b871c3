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

// What one more origin of a plain scan allocates, together with the simulated web and the network in memory. How the
// goroutines take turns decides how full buffers are: in twelve runs there were 104.7 to 105.0 allocations, and 19,761
// to 20,558 bytes.
const (
	allocsOfOrigin = 104.9
	bytesOfOrigin  = 20_200
)

// TestCostOfAnOrigin compares two scans of different length: the difference is what origins cost. No clock takes part,
// so a single allocation more for each origin is seen on any machine.
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
	least := func(n int) (allocs, bytes float64) { // how full a buffer happens to be differs
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
