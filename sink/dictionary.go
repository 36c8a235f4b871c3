package sink

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// dictionary numbers the values of a column, texts or numbers. It has a hash table of its own, in whose slots stand the texts
// themselves as long as they are short, which most are: one look at one place says which it is, where a map of Go's takes
// three, and two such lookups for each new text.
type dictionary struct {
	page []byte // the values, as they are written
	n    int    // of them

	texts  []string
	memory slab[byte]
	slots  []slot // a power of two, half of them empty at least
	met    [256]met
	writes uint64 // Writes and row groups so far

	// Nobody can send texts that all hash to the same.
	seed maphash.Seed
	mix  [2]uint64

	small [512]uint16      // indexes and one of the numbers that counts mostly are
	large map[int32]uint16 // indexes of others
}

// slot is where a text is looked for: at its hash, or in the next that was empty.
type slot struct {
	ends
	count int32 // of the texts up to it: its index and one; 0 where there is none
}

// ends tell texts from each other: those of up to wholeText bytes all, longer ones most.
type ends struct {
	first, last uint64
	size        int32
}

const wholeText = 16

// met is a text that lies where it was met before: words of tables do, and tokens of the registry. That holds for as long as
// one Write, whose rows do not change; and as they hold their texts, no other comes to lie there.
type met struct {
	at    uintptr
	size  int
	write uint64
	index uint16
}

const leastSlots = 256

func newDictionary() *dictionary {
	return &dictionary{
		slots: make([]slot, leastSlots), seed: maphash.MakeSeed(), mix: [2]uint64{rand.Uint64(), rand.Uint64()}, large: map[int32]uint16{},
	}
}

func (d *dictionary) reset() {
	clear(d.slots)
	clear(d.texts)
	clear(d.small[:])
	clear(d.large)
	d.page, d.texts, d.n = d.page[:0], d.texts[:0], 0
	d.memory.reset()
	d.writes++
}

// endsOf reads four times four bytes, which overlap where there are fewer.
func endsOf(text string) ends {
	n := len(text)
	b := unsafe.Slice(unsafe.StringData(text), n)
	if n >= 4 {
		middle := n >> 3 << 2
		return ends{
			uint64(binary.LittleEndian.Uint32(b))<<32 | uint64(binary.LittleEndian.Uint32(b[middle:])),
			uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32 | uint64(binary.LittleEndian.Uint32(b[n-4-middle:])),
			int32(n),
		}
	}
	e := ends{size: int32(n)}
	for _, c := range b {
		e.first = e.first<<8 | uint64(c)
	}
	return e
}

func (d *dictionary) hash(e ends, text string) uint64 {
	if e.size > wholeText {
		return maphash.String(d.seed, text)
	}
	high, low := bits.Mul64(e.first^d.mix[0], e.last^d.mix[1]^uint64(e.size))
	return high ^ low
}

// indexesByText notes the numbers of texts.
func (d *dictionary) indexesByText(f fieldOf, to *[64]uint16) {
	var all [64]ends
	var hashes [64]uint64
	offset := uintptr(0)
	for i := range f.n { // all are read before any is looked for, so that memory brings many at once
		text := *(*string)(unsafe.Add(f.first, offset))
		e := endsOf(text)
		all[i&63], hashes[i&63] = e, d.hash(e, text)
		offset += f.step
	}
	for i := range f.n {
		to[i&63] = d.find(at[string](f, i), all[i&63], hashes[i&63])
	}
}

// indexesByPlace does the same where most texts have been met. It returns how many have not.
func (d *dictionary) indexesByPlace(f fieldOf, to *[64]uint16) (strangers int) {
	offset := uintptr(0)
	for i := range f.n {
		text := *(*string)(unsafe.Add(f.first, offset))
		at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
		m := &d.met[(at>>3^at>>11)%uintptr(len(d.met))]
		if m.at != at || m.size != len(text) || m.write != d.writes {
			e := endsOf(text)
			*m = met{at, len(text), d.writes, d.find(&text, e, d.hash(e, text))}
			strangers++
		}
		to[i&63] = m.index
		offset += f.step
	}
	return strangers
}

// find looks a text up, and adds it if it is new.
func (d *dictionary) find(text *string, e ends, hash uint64) uint16 {
	for at := hash; ; at++ {
		switch s := &d.slots[at&uint64(len(d.slots)-1)]; {
		case s.ends == e && s.count != 0 && (e.size <= wholeText || d.texts[s.count-1] == *text):
			return uint16(s.count - 1)
		case s.count == 0:
			d.add(*text)
			*s = slot{e, int32(d.n)}
			if 2*d.n > len(d.slots) {
				d.grow()
			}
			return uint16(d.n - 1)
		}
	}
}

func (d *dictionary) add(text string) {
	kept := d.memory.take(len(text))
	copy(kept, text)
	d.texts = append(d.texts, unsafe.String(unsafe.SliceData(kept), len(kept)))
	d.page = append(binary.LittleEndian.AppendUint32(d.page, uint32(len(text))), text...)
	d.n++
}

// grow doubles the slots.
func (d *dictionary) grow() {
	before := d.slots
	d.slots = make([]slot, 2*len(before))
	for _, s := range before {
		if s.count == 0 {
			continue
		}
		at := d.hash(s.ends, d.texts[s.count-1])
		for d.slots[at&uint64(len(d.slots)-1)].count != 0 {
			at++
		}
		d.slots[at&uint64(len(d.slots)-1)] = s
	}
}

// indexesOfNumbers notes the numbers of numbers.
func (d *dictionary) indexesOfNumbers(f fieldOf, to *[64]uint16) {
	offset := uintptr(0)
	for i := range f.n {
		number := *(*int32)(unsafe.Add(f.first, offset))
		if uint32(number) < uint32(len(d.small)) && d.small[number] != 0 {
			to[i&63] = d.small[number] - 1
		} else {
			to[i&63] = d.number(number)
		}
		offset += f.step
	}
}

// number returns a number's index.
func (d *dictionary) number(number int32) uint16 {
	small := uint32(number) < uint32(len(d.small))
	if !small {
		if index, has := d.large[number]; has {
			return index
		}
	}
	index := uint16(d.n)
	d.page = binary.LittleEndian.AppendUint32(d.page, uint32(number))
	d.n++
	if small {
		d.small[number] = index + 1 // 0 again if it is the 65,536th: then no row follows that would ask
	} else {
		d.large[number] = index
	}
	return index
}
