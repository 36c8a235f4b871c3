package parser

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Hash tables of indices, for names (agents.go) and sets of groups (survey.go). They use open addressing. A slot holds
// index + 1, or 0 if free. The length is a power of two, and at most half of the slots are taken. Hashes are keyed by
// a secret of the process, so that no file can force collisions.

const minTable = 32

var secret = maphash.Bytes(maphash.MakeSeed(), []byte("robots.txt"))

// rebuilt returns a table of the given length with n entries, in the memory of the old one if that suffices. Entries
// whose hash is 0 are left out.
func rebuilt(table []uint32, length, n int, hash func(i int) uint64) []uint32 {
	table = slices.Grow(table[:0], length)[:length]
	clear(table)
	for i := range n {
		h := hash(i)
		if h == 0 {
			continue
		}
		slot := int(h) & (length - 1)
		for table[slot] != 0 {
			slot = (slot + 1) & (length - 1)
		}
		table[slot] = uint32(i) + 1
	}
	return table
}

// mix multiplies by an odd constant and folds the product.
func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h, 0x9E3779B97F4A7C15^secret|1)
	return hi ^ lo
}
