package parser

import (
	"hash/maphash"
	"math/bits"
)

// Agent is a name that user-agent lines give. The slices are views of the body.
type Agent struct {
	Name  []byte // the product token as first written, "*" for the wildcard; nothing of what follows it
	Value []byte // the whole value in which it was first written
	Line  int    // 1-based, where it was first written
	Star  bool   // the wildcard
}

// agents are the distinct names of a file with the groups of each.
//
// A hash table finds them. The hash is keyed by a secret of the process, so that no file can be built whose names all
// fall into one place; and before it is computed at all, one bit for (length, first letter) tells most names that are
// not there, since a few hundred known tokens are looked up in files that name three.
type agents struct {
	list    []agent
	table   []uint32 // open addressing: index into list + 1, 0 = free; length a power of two; without the wildcard
	present uint64   // a bit for each (length, first letter) that occurs
	star    int      // index of the wildcard, -1 if there is none

	mentions []mention
	groups   []uint32 // of all agents, one agent after the other
}

// agent is one of them. Its groups are groups[from:from+count].
type agent struct {
	hash        uint64
	name        uint32 // offset
	size        uint32 // octets of the name
	record      uint32 // of its first line
	last        uint32 // the group that named it last
	from, count uint32
}

// mention is a group naming an agent for the first time.
type mention struct{ agent, group uint32 }

const minTable = 32

var secret = maphash.Bytes(maphash.MakeSeed(), []byte("agents"))

func (a *agents) reset() {
	a.list, a.mentions, a.groups = a.list[:0], a.mentions[:0], a.groups[:0]
	a.present, a.star = 0, -1
	if cap(a.table) < minTable {
		a.table = make([]uint32, minTable)
	}
	a.table = a.table[:minTable]
	clear(a.table)
}

func (a *agents) trim() {
	a.list, a.mentions, a.groups = trimmed(a.list), trimmed(a.mentions), trimmed(a.groups)
	if cap(a.table) > keep {
		a.table = nil
	}
}

// add notes that a user-agent line of the group has the value src[start:end].
func (a *agents) add(f *File, start, end int, record, group uint32) {
	size := nameLen(f.src[start:end], f.dialect)
	if size == 0 {
		return
	}
	name := f.src[start : start+size]
	i, hash, slot := a.star, uint64(0), 0
	if name[0] != '*' {
		hash = hashName(name)
		slot, i = a.lookup(f.src, name, hash)
	}
	switch {
	case i < 0:
		i = len(a.list)
		a.list = append(a.list, agent{hash: hash, name: uint32(start), size: uint32(size), record: record})
		if name[0] == '*' {
			a.star = i
			break
		}
		a.present |= presence(size, name[0])
		a.table[slot] = uint32(i) + 1
		if 2*len(a.list) > len(a.table) {
			a.grow()
		}
	case a.list[i].last == group:
		return
	}
	a.list[i].last = group
	a.list[i].count++
	a.mentions = append(a.mentions, mention{uint32(i), group})
}

// nameLen returns how many octets at the start of a user-agent value name somebody, 0 if it names nobody. Google's
// code takes the leading run of letters, `-` and `_`, and `*` also with white space and anything behind it; RFC 9309
// §2.2.1 knows nothing but the token.
func nameLen(value []byte, d Dialect) int {
	if len(value) > 0 && value[0] == '*' {
		if len(value) == 1 || d == Google && isSpace(value[1]) {
			return 1
		}
		return 0
	}
	n := 0
	for n < len(value) && isTokenByte(value[n]) {
		n++
	}
	if d == RFC && n < len(value) {
		return 0
	}
	return n
}

func isTokenByte(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '_' }

// lookup returns the index of the named agent, or -1 and the slot where it belongs.
func (a *agents) lookup(src, name []byte, hash uint64) (slot, i int) {
	mask := len(a.table) - 1
	for slot = int(hash) & mask; ; slot = (slot + 1) & mask {
		i = int(a.table[slot]) - 1
		if i < 0 {
			return slot, -1
		}
		if g := &a.list[i]; g.hash == hash && equalFold(src[g.name:g.name+g.size], name) {
			return slot, i
		}
	}
}

// grow doubles the table.
func (a *agents) grow() {
	size := 2 * len(a.table)
	if cap(a.table) < size {
		a.table = make([]uint32, size)
	}
	a.table = a.table[:size]
	clear(a.table)
	for i := range a.list {
		if i == a.star {
			continue
		}
		slot := int(a.list[i].hash) & (size - 1)
		for a.table[slot] != 0 {
			slot = (slot + 1) & (size - 1)
		}
		a.table[slot] = uint32(i) + 1
	}
}

// finish sorts the mentions by agent, in the order of groups, once all are known.
func (a *agents) finish() {
	from := uint32(0)
	for i := range a.list {
		g := &a.list[i]
		g.from, from = from, from+g.count
		g.count = 0
	}
	if cap(a.groups) < len(a.mentions) {
		a.groups = make([]uint32, len(a.mentions), 2*len(a.mentions))
	}
	a.groups = a.groups[:len(a.mentions)]
	for _, m := range a.mentions {
		g := &a.list[m.agent]
		a.groups[g.from+g.count] = m.group
		g.count++
	}
}

// presence returns the bit of a name's length and first letter in agents.present.
func presence(size int, first byte) uint64 { return 1 << ((uint(size)*5 + uint(first|0x20)) & 63) }

// hashName returns a keyed hash that does not tell the case of letters.
func hashName[T []byte | string](name T) uint64 {
	const fold = 0x2020202020202020
	h := secret ^ uint64(len(name))
	for len(name) >= 8 {
		h = mix(h ^ (load(name) | fold))
		name = name[8:]
	}
	var tail uint64
	for i := range len(name) {
		tail = tail<<8 | uint64(name[i]|0x20)
	}
	return mix(h ^ tail)
}

// load returns the first eight octets of s as a little-endian number.
func load[T []byte | string](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// mix multiplies by an odd constant and folds the product.
func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h, 0x9E3779B97F4A7C15^secret|1)
	return hi ^ lo
}

// Agents returns the number of distinct names, the wildcard included, that user-agent lines give. Case makes no
// difference.
func (f *File) Agents() int { return len(f.names.list) }

// Agent returns the i-th name, in order of first appearance.
func (f *File) Agent(i int) Agent {
	a := &f.names.list[i]
	r := &f.records[a.record]
	return Agent{
		Name: f.src[a.name : a.name+a.size], Value: f.src[r.value:r.end],
		Line: int(r.line), Star: f.src[a.name] == '*',
	}
}

// AgentGroups returns the groups that name the i-th agent, in order; their rules are merged (RFC 9309 §2.2.1). The
// slice belongs to the File and is valid until the next Parse or Reset.
func (f *File) AgentGroups(i int) []uint32 {
	a := &f.names.list[i]
	return f.names.groups[a.from : a.from+a.count : a.from+a.count]
}

// Star returns the index of the wildcard agent `*`, -1 if there is none.
func (f *File) Star() int {
	if len(f.names.list) == 0 {
		return -1
	}
	return f.names.star
}

// Find returns the index of the agent whose name equals the token without regard to case, -1 if no user-agent line
// gives it. `*` finds the wildcard.
func (f *File) Find(token string) int {
	if token == "*" {
		return f.Star()
	}
	if len(token) == 0 || f.names.present&presence(len(token), token[0]) == 0 {
		return -1
	}
	a := &f.names
	hash := hashName(token)
	mask := len(a.table) - 1
	for slot := int(hash) & mask; ; slot = (slot + 1) & mask {
		i := int(a.table[slot]) - 1
		if i < 0 {
			return -1
		}
		if g := &a.list[i]; g.hash == hash && equalFold(f.src[g.name:g.name+g.size], token) {
			return i
		}
	}
}
