package parser

// Agent is a name that user-agent lines give. The slices are views of the body.
type Agent struct {
	Name  []byte // the product token as first written, without what follows it; "*" for the wildcard
	Value []byte // the whole value in which it was first written
	Line  int    // 1-based, where it was first written
	Star  bool   // the wildcard
}

// agents are the distinct names of a file with the groups of each.
//
// A hash table finds names. A bit for each (length, first letter) rejects most absent names without a hash: a few
// hundred known tokens are looked up in files that name three.
type agents struct {
	list    []agent
	table   []uint32 // of the list, without the wildcard
	present uint64   // a bit for each (length, first letter) that occurs
	star    int      // index of the wildcard, -1 if there is none

	mentions []mention
	groups   []uint32 // of all agents, one agent after the other
}

// agent is one name. Its groups are groups[from:from+count].
type agent struct {
	hash        uint64 // 0 for the wildcard
	name        uint32 // offset
	size        uint32 // octets of the name
	record      uint32 // of its first line
	last        uint32 // the group that named it last
	from, count uint32
	set         uint32 // index into surveys.sets + 1, 0 = not surveyed
}

// mention says that a group names an agent. Each pair occurs once.
type mention struct{ agent, group uint32 }

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
	a.list, a.mentions, a.groups, a.table = trimmed(a.list), trimmed(a.mentions), trimmed(a.groups), trimmed(a.table)
}

// add records that a user-agent line of the group has the value src[start:end].
func (a *agents) add(f *File, start, end int, record, group uint32) {
	size := nameLen(f.src[start:end], f.dialect)
	if size == 0 {
		return
	}
	name := f.src[start : start+size]
	i, hash, slot := a.star, uint64(0), 0
	if name[0] != '*' {
		hash = hashName(name)
		slot, i = lookup(a, f.src, name, hash)
	}
	switch {
	case i < 0:
		i = len(a.list)
		a.list = append(a.list, agent{})
		g := &a.list[i]
		g.hash, g.name, g.size, g.record = hash, uint32(start), uint32(size), record
		if name[0] == '*' {
			a.star = i
			break
		}
		a.present |= presence(size, name[0])
		a.table[slot] = uint32(i) + 1
		if 2*len(a.list) > len(a.table) {
			a.table = rebuilt(a.table, 2*len(a.table), len(a.list), func(i int) uint64 { return a.list[i].hash })
		}
	case a.list[i].last == group:
		return
	}
	a.list[i].last = group
	a.list[i].count++
	a.mentions = append(a.mentions, mention{uint32(i), group})
}

// AgentName returns the name in a trimmed user-agent value: `*`, or the leading product token. The name is a view of
// the value, and empty if the value has no name in the dialect.
func AgentName(value []byte, d Dialect) []byte { return value[:nameLen(value, d)] }

// LenientNames returns the names that a user-agent value may mean if it is no product token, such as `MJ12bot`,
// `AI2Bot/1.0` and `Screaming Frog SEO Spider`: the whole value, the part before its first `/` or `;`, and the part
// before its first white space. Each is trimmed, a view of the value, and empty where the value has no such octet. Try
// them in this order against known names. No crawler is known to read names like this.
func LenientNames(value []byte) (names [3][]byte) {
	start, end := trim(value, 0, len(value))
	names[0] = value[start:end]
	for i := start; i < end; i++ {
		switch c := value[i]; {
		case (c == '/' || c == ';') && names[1] == nil:
			_, to := trim(value, start, i)
			names[1] = value[start:to:to]
		case isSpace(c) && names[2] == nil:
			names[2] = value[start:i:i]
		}
	}
	return names
}

// nameLen returns the length of the name at the start of a user-agent value, 0 if there is none. A name is the leading
// run of letters, `-` and `_`; the rest is ignored. So do Google's code and the tests of the RFC's authors, though the
// RFC's grammar (§2.2.1) allows nothing after the product token. Google's code also accepts `*` followed by white space
// and other text.
func nameLen[T []byte | string](value T, d Dialect) int {
	if len(value) > 0 && value[0] == '*' {
		if len(value) == 1 || d != RFC && isSpace(value[1]) {
			return 1
		}
		return 0
	}
	n := 0
	for n < len(value) && inToken[value[n]] {
		n++
	}
	return n
}

// inToken holds the octets of product tokens.
var inToken = func() (is [256]bool) {
	for c := byte('a'); c <= 'z'; c++ {
		is[c], is[c-0x20] = true, true
	}
	is['-'], is['_'] = true, true
	return is
}()

// lookup returns the index of the named agent, or -1 and the slot where it belongs.
func lookup[T []byte | string](a *agents, src []byte, name T, hash uint64) (slot, i int) {
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

// finish sorts the mentions by agent, keeping the order of groups. It is called once all mentions are known.
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

// hashName returns a keyed hash, not 0, of a name that is not empty. The hash ignores the case of letters. The name is
// read in pieces of eight octets; the last overlaps the one before it.
func hashName[T []byte | string](name T) uint64 {
	const fold = 0x2020202020202020
	size := len(name)
	h := secret ^ uint64(size)
	switch {
	case size > 8:
		for i := 0; i < size-8; i += 8 {
			h = mix(h ^ (load(name[i:]) | fold))
		}
		return mix(h^(load(name[size-8:])|fold)) | 1<<63
	case size >= 4:
		return mix(h^(load4(name)|load4(name[size-4:])<<32|fold)) | 1<<63
	}
	return mix(h^(uint64(name[0])|uint64(name[size/2])<<8|uint64(name[size-1])<<16|fold)) | 1<<63
}

// load returns the first eight octets of s as a little-endian number.
func load[T []byte | string](s T) uint64 { return load4(s) | load4(s[4:])<<32 }

// load4 returns the first four octets of s as a little-endian number.
func load4[T []byte | string](s T) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// Agents returns the number of distinct names in user-agent lines, the wildcard included. Case is ignored.
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

// AgentLine returns the first line that names the i-th agent.
func (f *File) AgentLine(i int) int { return int(f.records[f.names.list[i].record].line) }

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

// Find returns the index of the agent whose name equals the token, ignoring case, or -1. `*` finds the wildcard.
func (f *File) Find(token string) int {
	if token == "*" {
		return f.Star()
	}
	if len(token) == 0 || f.names.present&presence(len(token), token[0]) == 0 {
		return -1
	}
	_, i := lookup(&f.names, f.src, token, hashName(token))
	return i
}
