package sink

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unsafe"
)

// This file writes the values of a page, as the Parquet format has them: bits, levels, indexes and numbers.

// bitmap is bits in the order in which they are added, from the lowest of each word.
type bitmap struct {
	words []uint64
	n     int
}

func (b *bitmap) reset() { b.words, b.n = b.words[:0], 0 }

// add appends n bits, 64 at most; those of more value are 0.
func (b *bitmap) add(set uint64, n int) {
	if used := b.n & 63; used == 0 {
		b.words = append(b.words, set)
	} else {
		b.words[len(b.words)-1] |= set << used
		if used+n > 64 {
			b.words = append(b.words, set>>(64-used))
		}
	}
	b.n += n
}

func (b *bitmap) appendBytes(to []byte) []byte {
	start := len(to)
	for _, word := range b.words {
		to = binary.LittleEndian.AppendUint64(to, word)
	}
	return to[:start+(b.n+7)/8]
}

// same reports whether all bits of a word are the same, and which they are.
func (b *bitmap) same(word int) (bit byte, ok bool) {
	all := ^uint64(0)
	if word == len(b.words)-1 {
		all >>= -b.n & 63
	}
	switch b.words[word] {
	case 0:
		return 0, true
	case all:
		return 1, true
	}
	return 0, false
}

// appendLevels writes the bits as runs where words of them are the same, and as they are where not.
func (b *bitmap) appendLevels(to []byte) []byte {
	for i := 0; i < len(b.words); {
		bit, run := b.same(i)
		j := i + 1
		for j < len(b.words) {
			if next, ok := b.same(j); ok != run || next != bit {
				break
			}
			j++
		}
		part := bitmap{b.words[i:j], min(64*j, b.n) - 64*i}
		if run {
			to = append(binary.AppendUvarint(to, uint64(part.n)<<1), bit)
		} else {
			to = part.appendBytes(binary.AppendUvarint(to, uint64(part.n+7)/8<<1|1))
		}
		i = j
	}
	return to
}

// appendIndexes writes dictionary indexes, as runs, which are so many, or bit by bit, whichever is shorter; all has the
// bits of each.
func appendIndexes(to []byte, indexes []uint16, runs int, all uint16) []byte {
	width := bits.Len16(all)
	bytes := (width + 7) / 8
	to = append(to, byte(width))
	if runs*(bytes+1) <= len(indexes)*width/8+8 {
		for i := 0; i < len(indexes); {
			j := i + 1
			for j < len(indexes) && indexes[j] == indexes[i] {
				j++
			}
			to = binary.AppendUvarint(to, uint64(j-i)<<1)
			for k := range bytes {
				to = append(to, byte(indexes[i]>>(8*k)))
			}
			i = j
		}
		return to
	}
	groups := (len(indexes) + 7) / 8
	to = binary.AppendUvarint(to, uint64(groups)<<1|1)
	end := len(to) + groups*width
	to = slices.Grow(to, groups*width+16)
	if width <= 8 {
		for ; len(indexes) >= 8; indexes = indexes[8:] {
			g, w := indexes[:8], width
			low := uint64(g[0]) | uint64(g[1])<<w | uint64(g[2])<<(2*w) | uint64(g[3])<<(3*w)
			high := uint64(g[4]) | uint64(g[5])<<w | uint64(g[6])<<(2*w) | uint64(g[7])<<(3*w)
			to = binary.LittleEndian.AppendUint64(to, low|high<<(4*w))[:len(to)+w]
		}
	}
	var word uint64
	used := 0
	for _, index := range indexes {
		word |= uint64(index) << used
		if used += width; used >= 32 {
			to = binary.LittleEndian.AppendUint32(to, uint32(word))
			word >>= 32
			used -= 32
		}
	}
	to = binary.LittleEndian.AppendUint32(to, uint32(word))
	for len(to) < end {
		to = append(to, 0)
	}
	return to[:end]
}

// appendPlain appends numbers, the lowest byte of each first.
func appendPlain[V numeric](to []byte, numbers []V) []byte {
	size := int(unsafe.Sizeof(*new(V)))
	start := len(to)
	to = slices.Grow(to, size*len(numbers))[:start+size*len(numbers)]
	added := to[start:]
	for i := range numbers {
		if size == 4 {
			binary.LittleEndian.PutUint32(added[4*i:], *(*uint32)(unsafe.Pointer(&numbers[i])))
		} else {
			binary.LittleEndian.PutUint64(added[8*i:], *(*uint64)(unsafe.Pointer(&numbers[i])))
		}
	}
	return to
}
