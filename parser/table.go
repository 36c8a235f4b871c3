package parser

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Hash tables of indices: of names in agents.go, of sets of groups in survey.go. A table is a slice of index + 1, 0 where
// it is free, with open addressing; its length is a power of two, and at most half of it is taken. The hashes are keyed
// by a secret of the process, so that no file can be built whose entries all fall into one place.

const minTable = 32

var secret = maphash.Bytes(maphash.MakeSeed(), []byte("robots.txt"))

// rebuilt returns the table in the given length with n entries, in the memory of the old one if it suffices. An entry
// whose hash is 0 stands in no table.
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
