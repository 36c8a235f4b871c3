//go:build linux || darwin || freebsd

package inputs

import (
	"syscall"
	"unsafe"
)

// mappedSlots is the length from which tables lie outside the heap. On the heap, the garbage collector would wait for
// as much garbage as the tables are large.
const mappedSlots = 8 << 10

// newSlots returns free slots.
func newSlots(n int) []slot {
	if n >= mappedSlots {
		if b, err := syscall.Mmap(-1, 0, n*slotBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|
			syscall.MAP_PRIVATE); err == nil {
			return unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(b))), n)
		}
	}
	return make([]slot, n)
}

// releaseSlots ends the use of slots.
func releaseSlots(s []slot) {
	if len(s) >= mappedSlots {
		// Munmap refuses memory that it has not mapped
		_ = syscall.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*slotBytes))
	}
}
