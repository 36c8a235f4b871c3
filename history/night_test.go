package history

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestSorted sorts nights of one range and of many, twice each: every site comes once, in order, with its complete
// observation. One range and a piece of each are in memory, the rest is in the file.
func TestSorted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := rng.IntN(30_000)
		s := newSorted(int64(n), 1000)
		sources := []*Source{{Observer: "a", Judge: "1"}, {Observer: "b", Judge: "2"}}
		s.sources = sources
		var want []Observation
		for i := range n {
			o := Observation{
				Site: int64(rng.Uint64()), Host: fmt.Sprintf("%0*d.example", rng.IntN(60), i), Port: int32(rng.IntN(65536)),
				Requested: []string{"auto", "http"}[rng.IntN(2)], Finding: []string{ClassRules, ClassNone,
					"unreachable"}[rng.IntN(3)],
				Policy: int64(rng.Uint64()), Body: int64(rng.Uint64()), From: sources[rng.IntN(2)],
			}
			if i > 0 && rng.IntN(20) == 0 {
				o.Site = want[rng.IntN(i)].Site
			}
			if err := s.add(&o, slices.Index(sources, o.From)); err != nil {
				t.Fatal(err)
			}
			want = append(want, o)
		}
		slices.SortFunc(want, func(a, b Observation) int {
			return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Host, b.Host))
		})
		want = slices.CompactFunc(want, func(a, b Observation) bool { return a.Site == b.Site })
		for range 2 {
			next := s.all()
			for i := range len(want) + 1 {
				got, err := next()
				if err != nil || (got == nil) != (i == len(want)) || got != nil && *got != want[i] {
					t.Fatalf("seed %d, %d of %d: %+v, %v", seed, i, len(want), got, err)
				}
			}
		}
		kept := cap(s.buffer) + 24*cap(s.order)
		for _, r := range s.ranges {
			kept += cap(r.records)
		}
		if most := 600_000 + 2*pieceBytes*len(s.ranges); len(s.ranges) > 1 && kept > most {
			t.Errorf("%d sites in %d ranges take %d bytes, more than %d", n, len(s.ranges), kept, most)
		}
		if (s.file != nil) != (s.size > 0) || n > 20_000 && s.size < int64(n)*30 {
			t.Errorf("%d sites: a file of %d bytes", n, s.size)
		}
		s.close()
	}
}

// TestNightOfManyRanges merges a night that is sorted in a file, and the same night again: every site has one episode
// of two nights.
func TestNightOfManyRanges(t *testing.T) {
	dir := newDir(t)
	var sites []string
	for i := range rangeSites + 1000 {
		sites = append(sites, fmt.Sprintf("h%d.example=404", i))
	}
	for _, day := range []string{"01", "02"} {
		scanned(t, dir, "n"+day, "2026-11-"+day, func(o *sink.Options) { o.PartRows, o.Tables = 0, []string{schema.Sites} },
			sites...)
		mustUpdate(t, dir)
	}
	hosts, last := map[string]bool{}, int64(math.MinInt64)
	for e, err := range rowsOf[Episode](t.Context(), dir, mustLedger(t, dir).Files, History, true) {
		if err != nil || e.Observations != 2 || e.Site < last {
			t.Fatalf("%+v, %v", e, err)
		}
		hosts[e.Host], last = true, e.Site
	}
	if len(hosts) != len(sites) {
		t.Errorf("%d episodes", len(hosts))
	}
}
