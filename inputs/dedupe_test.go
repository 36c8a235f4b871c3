package inputs

import (
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/origin"
)

// TestSeen compares the set with a map, and its memory with the figures in its comment and docs/inputs.md.
func TestSeen(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var set seen
	plain := map[origin.Origin]bool{}
	for range 300_000 {
		scheme := origin.Auto + origin.Scheme(random.IntN(3))
		o, err := origin.New(scheme, "host-"+strconv.Itoa(random.IntN(60_000))+".example", uint16(random.IntN(3)))
		if err != nil {
			t.Fatal(err)
		}
		if got := set.add(o); got == plain[o] {
			t.Fatalf("%v: new is %v", o, got)
		}
		plain[o] = true
		if perEntry := float64(set.bytes()) / float64(len(plain)); len(plain) > 20_000 && (perEntry < 9 || perEntry > 12) {
			t.Fatalf("%d origins take %.1f bytes each", len(plain), perEntry)
		}
	}
}

// TestTable fills a part with keys clustered at its beginning, the worst case for probing, and one that grows until it
// lies outside the heap. Growing loses none and bounds the memory of all sizes.
func TestTable(t *testing.T) {
	f := func(n uint64, key func(i uint64) slot) {
		t.Helper()
		var part hashTable
		defer func() { releaseSlots(part.slots) }()
		for i := range n {
			if part.full() {
				part.grow()
			}
			at := part.find(key(i))
			if part.slots[at] != 0 {
				t.Fatalf("key %d is there already", i)
			}
			part.slots[at] = key(i)
			if part.used++; part.used > 64 && len(part.slots)*slotBytes > part.used*12 {
				t.Fatalf("%d slots for %d keys", len(part.slots), part.used)
			}
		}
		for i := range n {
			if part.slots[part.find(key(i))] != key(i) {
				t.Fatalf("key %d is lost", i)
			}
		}
	}
	f(1000, func(i uint64) slot { return slot(i + 1) })
	f(300_000, func(i uint64) slot { return slot((i + 1) * 0x9e3779b97f4a7c15) })
}

// TestDuplicatesOfLists reads a list twice. The first entry of each host counts, in order, and each later one is a
// reject.
func TestDuplicatesOfLists(t *testing.T) {
	const n = 30_000
	path := listFile(t, "list", bigList(n, "host-%d-%x.example\n"))
	last := uint64(0)
	opt := Options{Reject: func(r Reject) error {
		if last++; r.Line != last || !strings.HasPrefix(r.Text, "host-"+strconv.FormatUint(last, 10)+"-") {
			t.Fatalf("reject %d is %+v", last, r)
		}
		return nil
	}}
	r, err := Open(t.Context(), []string{path, path}, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	for i := range uint64(n) {
		if e, err := r.Next(); err != nil || e.Seq != i {
			t.Fatalf("entry %d: %+v, %v", i, e, err)
		}
	}
	if e, err := r.Next(); err != io.EOF {
		t.Fatalf("one more: %+v, %v", e, err)
	}
	if s := r.Stats(); s.Duplicates != n || last != n {
		t.Errorf("%+v", s)
	}
}

// go test -run - -bench Seen ./inputs
func BenchmarkSeen(b *testing.B) {
	all := make([]origin.Origin, 1<<20)
	for i := range all {
		o, err := origin.Parse("www.host-" + strconv.Itoa(i) + ".example")
		if err != nil {
			b.Fatal(err)
		}
		all[i] = o
	}
	b.ReportAllocs()
	var set seen
	i := 0
	for b.Loop() {
		if i%len(all) == 0 {
			set.close()
		}
		set.add(all[i%len(all)])
		i++
	}
}

// bytes returns the memory of the set.
func (s *seen) bytes() (n int) {
	for i := range s.tables {
		n += len(s.tables[i].slots) * slotBytes
	}
	return n
}
