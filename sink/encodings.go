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

// runsOf returns how many runs of the same there are, and the bits that numbers have. It takes four at a time, as it sees the
// indexes of all rows.
func runsOf(numbers []uint16) (runs int, all uint16) {
	if len(numbers) == 0 {
		return 0, 0
	}
	const high, others = 0x8000800080008000, 0x7fff7fff7fff7fff // bits of each
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), 2*len(numbers))
	var seen uint64
	i := 0
	for ; i+4 < len(numbers); i += 4 {
		four, next := binary.NativeEndian.Uint64(memory[2*i:]), binary.NativeEndian.Uint64(memory[2*i+2:])
		change := four ^ next
		runs += bits.OnesCount64((change&others + others | change) & high) // those that are not 0
		seen |= four
	}
	for seen |= seen >> 32; i < len(numbers); i++ {
		if i+1 == len(numbers) || numbers[i] != numbers[i+1] {
			runs++
		}
		seen |= uint64(numbers[i])
	}
	return runs, uint16(seen | seen>>16)
}

// appendIndexes writes dictionary indexes, as runs or one by one, whichever is shorter.
func appendIndexes(to []byte, indexes []uint16) []byte {
	runs, all := runsOf(indexes)
	width := indexWidth(all)
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
	start, end := len(to), len(to)+groups*width
	to = slices.Grow(to, groups*width+8)[:end]
	switch width {
	case 8:
		for i, index := range indexes {
			to[start+i] = byte(index)
		}
		clear(to[start+len(indexes):])
	case 16:
		for i, index := range indexes {
			binary.LittleEndian.PutUint16(to[start+2*i:], index)
		}
		clear(to[start+2*len(indexes):])
	default:
		for i := 0; i < len(indexes); i += 8 {
			var group uint64
			for k, index := range indexes[i:min(i+8, len(indexes))] {
				group |= uint64(index) << (k * width)
			}
			binary.LittleEndian.PutUint64(to[start:start+8:cap(to)], group)
			start += width
		}
	}
	return to
}

// indexWidth is how many bits an index has. Up to four they are as few as can be. More are rounded up to whole bytes: zstd finds
// the same agents in the same order again, and the same counts, only where they begin at bytes. It takes no longer for that, and
// the pages of tokens, keys and top-level domains a tenth less.
func indexWidth(all uint16) int {
	width := bits.Len16(all)
	if width > 4 {
		width = (width + 7) &^ 7
	}
	return width
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
