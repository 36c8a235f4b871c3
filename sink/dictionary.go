package sink

import (
	"encoding/binary"
	"hash/maphash"
	"unsafe"
)

// dictionary numbers the texts of a column. It has a hash table of its own: a map of Go's is asked twice for each new text,
// which took a sixth of the time.
type dictionary struct {
	page   []byte // the texts, as they are written
	texts  []string
	memory slab[byte]
	last   uint16
	seed   maphash.Seed // nobody can send texts that all hash to the same
	slots  []slot       // a power of two, half of them empty at least
	met    [256]met
	writes uint64 // Writes and row groups so far
}

// slot is where a text is looked for: at its hash, or in the next that was empty.
type slot struct {
	hash  uint32
	count int32 // of the texts up to it: its index and one; 0 where there is none
}

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
	return &dictionary{seed: maphash.MakeSeed(), slots: make([]slot, leastSlots)}
}

func (d *dictionary) reset() {
	clear(d.slots)
	clear(d.texts)
	d.page, d.texts = d.page[:0], d.texts[:0]
	d.memory.reset()
	d.writes++
}

// index returns a text's number.
func (d *dictionary) index(text string) uint16 {
	at := uintptr(unsafe.Pointer(unsafe.StringData(text)))
	m := &d.met[(at>>3^at>>11)%uintptr(len(d.met))]
	if m.at != at || m.size != len(text) || m.write != d.writes {
		*m = met{at, len(text), d.writes, d.find(text)}
	}
	return m.index
}

// find looks a text up, and adds it if it is new.
func (d *dictionary) find(text string) uint16 {
	hash := uint32(maphash.String(d.seed, text))
	for at := int(hash); ; at++ {
		switch s := &d.slots[at&(len(d.slots)-1)]; {
		case s.count == 0:
			d.add(text)
			*s = slot{hash, int32(len(d.texts))}
			if 2*len(d.texts) > len(d.slots) {
				d.grow()
			}
			return uint16(len(d.texts) - 1)
		case s.hash == hash && d.texts[s.count-1] == text:
			return uint16(s.count - 1)
		}
	}
}

func (d *dictionary) add(text string) {
	kept := d.memory.take(len(text))
	copy(kept, text)
	d.texts = append(d.texts, unsafe.String(unsafe.SliceData(kept), len(kept)))
	d.page = append(binary.LittleEndian.AppendUint32(d.page, uint32(len(text))), text...)
}

// grow doubles the slots.
func (d *dictionary) grow() {
	before := d.slots
	d.slots = make([]slot, 2*len(before))
	for _, s := range before {
		if s.count == 0 {
			continue
		}
		at := int(s.hash)
		for d.slots[at&(len(d.slots)-1)].count != 0 {
			at++
		}
		d.slots[at&(len(d.slots)-1)] = s
	}
}
