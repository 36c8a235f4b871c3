//go:build !(linux || darwin || freebsd)

package inputs

// newSlots returns free slots, on the heap.
func newSlots(n int) []slot { return make([]slot, n) }

// releaseSlots leaves slots to the garbage collector.
func releaseSlots([]slot) {}
