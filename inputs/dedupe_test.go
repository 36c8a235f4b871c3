package inputs

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/bulkscan/bulkscan/internal/origin"
)

// TestSeen compares the set with a map, and its memory with what its comment promises.
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
	}
	if perEntry := float64(set.bytes()) / float64(len(plain)); perEntry < 18 || perEntry > 29 {
		t.Errorf("%d origins take %.1f bytes each", len(plain), perEntry)
	}
}

// TestTable fills one part with keys that crowd at its beginning, where probing has most to do.
func TestTable(t *testing.T) {
	var part table
	for i := range uint64(1000) {
		if key := (slot{hi: i << 40, lo: i + 1}); !part.add(key) || part.add(key) {
			t.Fatalf("key %d", i)
		}
	}
	if part.used != 1000 {
		t.Errorf("%d keys", part.used)
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
			set = seen{}
		}
		set.add(all[i%len(all)])
		i++
	}
}
