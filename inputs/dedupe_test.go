package inputs

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
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
		if got, err := set.add(o); got == plain[o] || err != nil {
			t.Fatalf("%v: new is %v, %v", o, got, err)
		}
		plain[o] = true
		if perEntry := float64(set.bytes()) / float64(len(plain)); len(plain) > 20_000 && (perEntry < 18 || perEntry > 28) {
			t.Fatalf("%d origins take %.1f bytes each", len(plain), perEntry)
		}
	}
}

// TestSeenCapacity checks the number of origins that docs/inputs.md promises for the default memory.
func TestSeenCapacity(t *testing.T) {
	var part hashTable
	for int64(tables*part.grown()*slotBytes) <= DefaultDedupeMemory*3/4 {
		part.slots = make([]slot, part.grown())
	}
	part.used = len(part.slots) * 7 / 8
	if n := tables * part.used; n < 20_500_000 || n > 21_500_000 {
		t.Errorf("there is room for %d origins, and 21 million are said to fit", n)
	}
}

// TestTable fills a part with keys clustered at its beginning, the worst case for probing.
func TestTable(t *testing.T) {
	var part hashTable
	for i := range uint64(1000) {
		if part.full() {
			part.grow()
		}
		key := slot{hi: i << 40, lo: i + 1}
		at := part.find(key)
		if part.slots[at] != (slot{}) {
			t.Fatalf("key %d is there already", i)
		}
		part.slots[at] = key
		part.used++
	}
	for i := range uint64(1000) {
		if key := (slot{hi: i << 40, lo: i + 1}); part.slots[part.find(key)] != key {
			t.Fatalf("key %d is lost", i)
		}
	}
}

// TestSeenOnDisk bounds the set's memory so that it writes many runs. It compares the set with a map, and its memory
// with the bound.
func TestSeenOnDisk(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const limit = 1 << 20
	dir := t.TempDir()
	set := seen{limit: limit, dir: dir}
	plain := map[origin.Origin]bool{}
	most := int64(0)
	for range 300_000 {
		o, err := origin.New(origin.Auto, "host-"+strconv.Itoa(random.IntN(300_000))+".example", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := set.add(o); got == plain[o] || err != nil {
			t.Fatalf("%v: new is %v, %v", o, got, err)
		}
		plain[o] = true
		most = max(most, set.bytes())
	}
	if len(set.disk.runs) < 3 || set.diskBytes() < int64(len(plain)-limit/slotBytes)*slotBytes {
		t.Errorf("%d runs of %d bytes, of %d origins", len(set.disk.runs), set.diskBytes(), len(plain))
	}
	// Only the buffers of the file may exceed the limit.
	if extra := int64(set.disk.out.Size() + len(set.disk.block) + cap(set.disk.sorted)*slotBytes + len(set.disk.runs)*4*(tables+3)); most > limit+extra {
		t.Errorf("%d bytes are held, of %d and %d for the file", most, limit, extra)
	}
	if files, err := os.ReadDir(dir); err != nil || runtime.GOOS != "windows" && len(files) != 0 {
		t.Errorf("%v have names while they are used, %v", files, err)
	}
	set.close()
}

// TestDuplicatesOnDisk reads a list twice with little memory. The first entry of each host counts, in order, and no
// file is left.
func TestDuplicatesOnDisk(t *testing.T) {
	const n = 120_000
	path := listFile(t, "list", bigList(n, "host-%d-%x.example\n"))
	dir := t.TempDir()
	last := uint64(0)
	opt := Options{DedupeMemory: 1 << 20, TempDir: dir, Reject: func(r Reject) error {
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
	if s := r.Stats(); s.Duplicates != n || last != n || r.seen.diskBytes() < n*slotBytes*2/3 || r.seen.bytes() > 2<<20 {
		t.Errorf("%+v", s)
	}
}

// TestRuns looks up hashes that are uniform, clustered, or between those in a run.
func TestRuns(t *testing.T) {
	f := func(n int, hi func(i uint64) uint64) {
		t.Helper()
		s, err := newSpilled(t.TempDir(), 64) // a filter that excludes nothing
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		s.filter[0] = filterBlock{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		var all [tables]hashTable
		for i := range uint64(n) {
			all[7].slots = append(all[7].slots, slot{hi: hi(i), lo: 7 + 256*2*i})
		}
		if err := s.write(&all); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(n) {
			if there, err := s.has(slot{hi: hi(i), lo: 7 + 256*2*i}); err != nil || !there {
				t.Fatalf("%d of %d is lost, %v", i, n, err)
			}
			if there, err := s.has(slot{hi: hi(i), lo: 7 + 256*(2*i+1)}); err != nil || there {
				t.Fatalf("beside %d of %d there is one, %v", i, n, err)
			}
		}
	}
	f(0, nil)
	f(1, func(uint64) uint64 { return 1 << 63 })
	f(blockSlots+1, func(i uint64) uint64 { return i << 53 })
	f(5000, func(i uint64) uint64 { return i * (^uint64(0) / 5000) })
	f(5000, func(i uint64) uint64 { return i })              // all at the beginning
	f(5000, func(i uint64) uint64 { return ^uint64(0) - i }) // all at the end
	f(5000, func(uint64) uint64 { return 1 << 63 })          // all in one place
}

// TestSeenDiskFull checks the error for a full disk and its remedy.
func TestSeenDiskFull(t *testing.T) {
	full := func(dir string) error {
		set := seen{limit: 1 << 20, dir: dir}
		defer set.close()
		for i := range 100_000 {
			if i == 60_000 && set.disk != nil {
				_ = set.disk.file.Close() // like a removed disk
			}
			o, err := origin.New(origin.Auto, "host-"+strconv.Itoa(i)+".example", 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := set.add(o); err != nil {
				return err
			}
		}
		return nil
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent")} {
		if err := full(dir); err == nil || !strings.Contains(err.Error(), "cannot keep what the lists have named so far beyond 1 MiB of memory") || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("%v", err)
		}
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
		if _, err := set.add(all[i%len(all)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// bytes returns the memory of the set, and diskBytes the size of its file.
func (s *seen) bytes() int64 {
	if s.disk == nil {
		return s.held
	}
	return s.held + s.disk.bytes()
}

func (s *seen) diskBytes() int64 {
	if s.disk == nil {
		return 0
	}
	return s.disk.at
}

// bytes returns the memory used.
func (s *spilled) bytes() int64 {
	return int64(len(s.filter))*64 + int64(cap(s.sorted))*slotBytes + int64(len(s.runs))*4*(tables+3) + int64(len(s.block)+s.out.Size())
}
