package inputs

import (
	"hash/maphash"
	"math/bits"

	"github.com/bulkscan/bulkscan/origin"
)

// seen is a set of origins, held as 72-bit hashes of host, port and requested scheme: 8 bits choose a table, and 64
// stand in its slots. The tables use open addressing and are between 7/10 and 7/8 full: 9 to 12 bytes an origin,
// whatever the length of its name.
//
// Each set has its own hash key, so that no author of a list can choose entries that collide. Two of ten million
// origins share a hash with a probability of about 10⁻⁸, two of a hundred million with 10⁻⁶. The zero value is an empty
// set.
type seen struct {
	keys   [2]maphash.Seed
	tables *[tables]hashTable
}

// tables is how many parts the set has. Each grows on its own, so that growing neither stalls the reader nor needs the
// memory of the set twice.
const tables = 256

type hashTable struct {
	slots []slot
	used  int
}

// slot is a hash; the zero slot is free.
type slot uint64

const slotBytes = 8

// add adds an origin and reports whether it is new.
func (s *seen) add(o origin.Origin) bool {
	if s.tables == nil {
		s.tables = new([tables]hashTable)
		s.keys = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	// Multiplication with odd constants mixes in port and scheme; the sums stay uniform.
	mark := uint64(o.Port())<<8 | uint64(o.Scheme())
	key := max(slot(maphash.String(s.keys[0], o.Host())+mark*0x9e3779b97f4a7c15), 1)
	t := &s.tables[(maphash.String(s.keys[1], o.Host())+mark*0xc2b2ae3d27d4eb4f)%tables]
	if t.full() {
		t.grow()
	}
	i := t.find(key)
	if t.slots[i] == key {
		return false
	}
	t.slots[i] = key
	t.used++
	return true
}

// close releases the memory.
func (s *seen) close() {
	if s.tables != nil {
		for i := range s.tables {
			releaseSlots(s.tables[i].slots)
		}
	}
	*s = seen{}
}

// home returns the preferred slot of a hash among n. The high word of the product spreads a hash over any number, not
// only powers of two.
func (k slot) home(n int) int {
	home, _ := bits.Mul64(uint64(k), uint64(n))
	return int(home)
}

func (t *hashTable) full() bool { return t.used*8 >= len(t.slots)*7 }

// find returns the slot of the key, or the free slot for it.
func (t *hashTable) find(key slot) int {
	for i := key.home(len(t.slots)); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if t.slots[i] == key || t.slots[i] == 0 {
			return i
		}
	}
}

// grow makes a table a quarter larger.
func (t *hashTable) grow() {
	old := t.slots
	t.slots = newSlots(max(64, len(old)+len(old)/4))
	for _, key := range old {
		if key != 0 {
			t.slots[t.find(key)] = key
		}
	}
	releaseSlots(old)
}
