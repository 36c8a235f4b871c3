package survey

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// TestStatsHoweverCut writes the same sites in many ways: other part sizes, another order, several shards, killed and
// resumed writers, merged parts. Both tables must have the same rows in the same order.
func TestStatsHoweverCut(t *testing.T) {
	// More unknown agents and keys than the smaller limit below, so that they take several passes.
	bodies := generatedBodies(600)
	random := rand.New(rand.NewPCG(40, 40))
	for i := range bodies {
		if k := random.IntN(120); k < 40 {
			agent := string(rune('a'+k%26)) + string(rune('a'+k/26)) + "-bot"
			bodies[i] = fmt.Appendf(bodies[i], "\nUser-agent: %s\nDisallow: /\nkey-%d: x\nKEY-%d: y\n", agent, k, k%7)
		}
	}
	sites := judged(t, bodies)
	type tables struct {
		tokens  []schema.TokenStatsRow
		records []schema.RecordStatsRow
	}
	statistics := func(st store.Store, limit int) (all tables) {
		if err := Stats(t.Context(), st, "cut", Options{limit: limit}); err != nil {
			t.Fatal(err)
		}
		all.tokens = fileRows[schema.TokenStatsRow](t, st, commit.StatsName(schema.TokenStats, "2026-11-21", "cut"))
		all.records = fileRows[schema.RecordStatsRow](t, st, commit.StatsName(schema.RecordStats, "2026-11-21", "cut"))
		return all
	}
	var want, wantInPasses tables
	check := func(how string, st store.Store) {
		t.Helper()
		for _, c := range []struct {
			limit int
			want  *tables
		}{{0, &want}, {11, &wantInPasses}} {
			got := statistics(st, c.limit)
			if c.want.tokens == nil {
				*c.want = got
				continue
			}
			if i := differ(got.tokens, c.want.tokens); i >= 0 {
				t.Errorf("%s, limit %d: token_stats has %d rows of %d, and row %d is another", how, c.limit, len(got.tokens),
					len(c.want.tokens), i)
			}
			if i := differ(got.records, c.want.records); i >= 0 {
				t.Errorf("%s, limit %d: record_stats has %d rows of %d, and row %d is another", how, c.limit, len(got.records),
					len(c.want.records), i)
			}
		}
	}

	check("in one part", written(t, sites, cut{rows: len(sites), shards: 1}))
	if len(want.tokens) < 1000 || len(want.records) < 10 {
		t.Fatalf("%d and %d rows: too few to compare", len(want.tokens), len(want.records))
	}
	rng := rand.New(rand.NewPCG(6, 2026))
	cuts := 12
	if testing.Short() {
		cuts = 3
	}
	for range cuts {
		c := cut{rows: 1 + rng.IntN(200), shards: 1 + rng.IntN(4), seed: rng.Uint64(), kill: rng.IntN(2) == 0}
		st := written(t, sites, c)
		check(fmt.Sprintf("%+v", c), st)
		if _, err := compact.Scan(t.Context(), st, "cut",
			compact.Options{PartBytes: int64(1 + rng.IntN(1<<20))}); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("%+v, compacted", c), st)
	}
}

// differ returns the first index at which two slices differ, or -1.
func differ[T comparable](a, b []T) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// cut is a way to write sites in parts.
type cut struct {
	rows   int    // of a part
	shards int    // which write one after the other
	seed   uint64 // of the order of sites; 0 is as listed
	kill   bool   // writers are killed twice, and resume
}

// written writes sites with the sink.
func written(t *testing.T, sites []*audit.Site, c cut) store.Store {
	t.Helper()
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sites = slices.Clone(sites)
	rng := rand.New(rand.NewPCG(c.seed, 1))
	if c.seed != 0 {
		rng.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	}
	for shard := range c.shards {
		var own []*audit.Site
		for _, s := range sites {
			if int(s.Seq)%c.shards == shard {
				own = append(own, s)
			}
		}
		kills := 0
		if c.kill {
			kills = 2
		}
		for ; kills >= 0; kills-- {
			w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "cut", Date: "2026-11-21", Shard: fmt.Sprint(shard),
				PartRows: c.rows})
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range own {
				if kills > 0 && i == len(own)/2 {
					break
				}
				if w.Done(s.Seq) {
					continue
				}
				if err := w.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			if kills > 0 {
				err = w.Abort() // uncommitted rows are lost
			} else {
				err = w.Close(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
