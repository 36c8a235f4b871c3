package tokens

// index finds names and aliases, which are distinct. It is a hash table with open addressing, at most a quarter full.
// It stays in the first-level cache while files are judged, and most absent names meet a free slot.
type index struct {
	keys     []key
	slots    []uint32 // index into keys + 1, 0 = free; their number is a power of two
	shortest int      // octets of the shortest and of the longest key
	longest  int
}

// key is a name or an alias.
type key struct {
	spelled, lower string // as in the table, the most common spelling, and in lower case
	token          int32
	alias          bool
}

// newIndex returns an index for so many keys.
func newIndex(keys int) index {
	size := 64
	for size < 4*keys {
		size *= 2
	}
	return index{slots: make([]uint32, size), shortest: maxName}
}

// add adds a name and reports whether it is new.
func (x *index) add(name string, token int, alias bool) bool {
	if i, _ := find(x, name); i >= 0 {
		return false
	}
	slot := int(hash(name))
	for ; x.slots[slot&(len(x.slots)-1)] != 0; slot++ {
	}
	x.keys = append(x.keys, key{name, fold(name), int32(token), alias})
	x.slots[slot&(len(x.slots)-1)] = uint32(len(x.keys))
	x.shortest, x.longest = min(x.shortest, len(name)), max(x.longest, len(name))
	return true
}

func find[T string | []byte](x *index, name T) (token int, alias bool) {
	if len(name) < x.shortest || len(name) > x.longest {
		return -1, false
	}
	for slot := int(hash(name)); ; slot++ {
		i := x.slots[slot&(len(x.slots)-1)]
		if i == 0 {
			return -1, false
		}
		if k := &x.keys[i-1]; len(k.lower) == len(name) && (string(name) == k.spelled || equalFold(name, k.lower)) {
			return int(k.token), k.alias
		}
	}
}

// hash ignores the case of letters. It is not keyed: only the user's own registry could cause collisions.
func hash[T string | []byte](name T) uint {
	n := len(name)
	h := uint(n)
	h = h*31 + uint(name[0]|0x20)
	h = h*31 + uint(name[n/4]|0x20)
	h = h*31 + uint(name[n/2]|0x20)
	h = h*31 + uint(name[n-n/4-1]|0x20)
	h = h*31 + uint(name[n-1]|0x20)
	return h ^ h>>7
}

// equalFold reports whether name is the key, ignoring the case of ASCII letters.
func equalFold[T string | []byte](name T, key string) bool {
	for i := range len(name) {
		if lower(name[i]) != key[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// fold returns a name in the index's form: ASCII letters in lower case.
func fold(name string) string {
	b := []byte(name)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}

// IsProductToken reports whether s is a product token as RFC 9309 §2.2.1 defines it.
func IsProductToken[T string | []byte](s T) bool { return len(s) > 0 && ProductTokenLen(s) == len(s) }

// ProductTokenLen returns how many octets at the start of s form a product token.
func ProductTokenLen[T string | []byte](s T) int {
	for i := range len(s) {
		if c := lower(s[i]); (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return i
		}
	}
	return len(s)
}
