package inputs

import (
	"fmt"
	"hash/maphash"
	"math/bits"

	"github.com/bulkscan/bulkscan/origin"
)

// seen is a set of origins, held as 128-bit hashes of host, port and requested scheme. Open-addressing tables with slots
// of 16 bytes are between 7/12 and 7/8 full: 18 to 28 bytes an origin, whatever the length of its name. When they would
// exceed three quarters of limit, they are written to a temporary file and emptied. The last quarter becomes a filter that
// excludes most origins that are not in the file, see spilled.
//
// Each set has its own hash key, so that no list can be written whose entries collide. Two of a billion origins share a
// hash with a probability of about 10⁻²¹. The zero value is an empty set without a limit.
type seen struct {
	limit int64  // bytes of memory; 0 is none
	dir   string // of the temporary file; "" is the system's

	keys   [2]maphash.Seed
	tables *[tables]hashTable
	held   int64 // bytes of the tables
	disk   *spilled
}

// DefaultDedupeMemory is the memory for finding duplicates where Options do not set it: that of about 21 million
// origins. Further origins take 16 bytes each on disk.
const DefaultDedupeMemory = 512 << 20

// tables is how many parts the set has. Each grows on its own, so that growing neither stalls the reader nor needs the
// memory of the set twice.
const tables = 256

type hashTable struct {
	slots []slot
	used  int
}

// slot is a hash; the zero slot is free.
type slot struct{ hi, lo uint64 }

const slotBytes = 16

// add adds an origin and reports whether it is new. An error is one of the temporary file.
func (s *seen) add(o origin.Origin) (bool, error) {
	if s.tables == nil {
		s.tables = new([tables]hashTable)
		s.keys = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	// Multiplication with odd constants mixes in port and scheme; the sums stay uniform.
	mark := uint64(o.Port())<<8 | uint64(o.Scheme())
	key := slot{
		hi: maphash.String(s.keys[0], o.Host()) + mark*0x9e3779b97f4a7c15,
		lo: maphash.String(s.keys[1], o.Host()) + mark*0xc2b2ae3d27d4eb4f,
	}
	if key == (slot{}) {
		key.lo = 1
	}
	t := &s.tables[key.table()]
	if t.full() {
		if err := s.room(t); err != nil {
			return false, err
		}
	}
	i := t.find(key)
	if t.slots[i] == key {
		return false, nil
	}
	if s.disk != nil {
		there, err := s.disk.has(key)
		if err != nil {
			return false, s.unkept(err)
		}
		if there {
			return false, nil
		}
	}
	t.slots[i] = key
	t.used++
	return true, nil
}

// room enlarges a full table, or writes all tables to disk and empties them.
func (s *seen) room(t *hashTable) error {
	more := int64(t.grown()-len(t.slots)) * slotBytes
	if s.limit > 0 && t.used > 0 && s.held+more > s.limit*3/4 {
		if s.disk == nil {
			disk, err := newSpilled(s.dir, s.limit/4)
			if err != nil {
				return s.unkept(err)
			}
			s.disk = disk
		}
		if err := s.disk.write(s.tables); err != nil {
			return s.unkept(err)
		}
		for i := range s.tables {
			clear(s.tables[i].slots)
			s.tables[i].used = 0
		}
		return nil
	}
	s.held += more
	t.grow()
	return nil
}

func (s *seen) unkept(err error) error {
	return fmt.Errorf("cannot keep what the lists have named so far beyond %d MiB of memory: %w; make room for temporary files, or set TMPDIR to where there is", s.limit>>20, err)
}

// close releases memory and file.
func (s *seen) close() {
	if s.disk != nil {
		s.disk.close()
	}
	*s = seen{}
}

// table returns the number of the part that has a hash.
func (k slot) table() uint64 { return k.lo % tables }

// home returns the preferred slot of a hash among n. The high word of the product spreads hi over any number, not only
// powers of two, and keeps its order.
func (k slot) home(n int) int {
	home, _ := bits.Mul64(k.hi, uint64(n))
	return int(home)
}

func (t *hashTable) full() bool { return t.used*8 >= len(t.slots)*7 }

// find returns the slot of the key, or the free slot for it.
func (t *hashTable) find(key slot) int {
	for i := key.home(len(t.slots)); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if t.slots[i] == key || t.slots[i] == (slot{}) {
			return i
		}
	}
}

// grown returns the number of slots after growing.
func (t *hashTable) grown() int { return max(64, len(t.slots)+len(t.slots)/2) }

func (t *hashTable) grow() {
	old := t.slots
	t.slots = make([]slot, t.grown())
	for _, key := range old {
		if key != (slot{}) {
			t.slots[t.find(key)] = key
		}
	}
}
