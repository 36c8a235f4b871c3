package inputs

import (
	"hash/maphash"
	"math/bits"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// seen is a set of origins, each known by a 128-bit hash of its key (host, port, requested scheme): 16 bytes a slot
// in open-addressing tables that are between 7/12 and 7/8 full, which is 18 to 28 bytes an origin, whatever the
// length of its name. A million origins take about 25 MB, a hundred million about 2.5 GB.
//
// The hash is keyed anew for each set, so that nobody can write a list whose entries collide; two different origins
// of a billion share a hash with a probability of about 10⁻²¹. The zero value is an empty set.
type seen struct {
	keys   [2]maphash.Seed
	tables *[tables]table
}

// tables is how many parts the set has. Each grows on its own, so that no growth stalls the reader for long or needs
// the whole set twice.
const tables = 256

type table struct {
	slots []slot
	used  int
}

// slot is a hash; the zero slot is free.
type slot struct{ hi, lo uint64 }

// add puts an origin into the set and reports whether it was not there before.
func (s *seen) add(o origin.Origin) bool {
	if s.tables == nil {
		s.tables = new([tables]table)
		s.keys = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	// Port and scheme are mixed in by multiplication with odd constants; the sums stay as uniform as the hashes are.
	mark := uint64(o.Port())<<8 | uint64(o.Scheme())
	key := slot{
		hi: maphash.String(s.keys[0], o.Host()) + mark*0x9e3779b97f4a7c15,
		lo: maphash.String(s.keys[1], o.Host()) + mark*0xc2b2ae3d27d4eb4f,
	}
	if key == (slot{}) {
		key.lo = 1
	}
	return s.tables[key.lo%tables].add(key)
}

// bytes is the memory that the set holds.
func (s *seen) bytes() int64 {
	var n int64
	if s.tables != nil {
		for i := range s.tables {
			n += int64(len(s.tables[i].slots)) * 16
		}
	}
	return n
}

func (t *table) add(key slot) bool {
	if t.used*8 >= len(t.slots)*7 {
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

// find returns where the key is, or where it belongs.
func (t *table) find(key slot) int {
	// The high word of the product spreads hi over any number of slots, not just powers of two.
	home, _ := bits.Mul64(key.hi, uint64(len(t.slots)))
	for i := int(home); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if t.slots[i] == key || t.slots[i] == (slot{}) {
			return i
		}
	}
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, max(64, len(old)+len(old)/2))
	for _, key := range old {
		if key != (slot{}) {
			t.slots[t.find(key)] = key
		}
	}
}
