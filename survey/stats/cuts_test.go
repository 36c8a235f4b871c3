package stats

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// TestStatsHoweverCut writes the same sites in many ways: other part sizes, another order, several shards, killed and
// resumed writers, merged parts. Both tables must have the same rows in the same order.
func TestStatsHoweverCut(t *testing.T) {
	// More unknown agents and keys than the smaller limit below, so that they take several passes.
	bodies := surveytest.Bodies(600)
	random := rand.New(rand.NewPCG(40, 40))
	for i := range bodies {
		if k := random.IntN(120); k < 40 {
			agent := string(rune('a'+k%26)) + string(rune('a'+k/26)) + "-bot"
			bodies[i] = fmt.Appendf(bodies[i], "\nUser-agent: %s\nDisallow: /\nkey-%d: x\nKEY-%d: y\n", agent, k, k%7)
		}
	}
	sites := surveytest.Judged(t, bodies)
	type tables struct {
		tokens  []schema.TokenStatsRow
		records []schema.RecordStatsRow
	}
	statistics := func(st store.Store, limit int) (all tables) {
		if err := write(t.Context(), st, "cut", &options{survey.Options{}.WithDefaults(), cmp.Or(limit, maxKeys)}); err != nil {
			t.Fatal(err)
		}
		all.tokens = surveytest.Rows[schema.TokenStatsRow](t, st, commit.StatsName(schema.TokenStats, "2026-11-21", "cut"))
		all.records = surveytest.Rows[schema.RecordStatsRow](t, st, commit.StatsName(schema.RecordStats, "2026-11-21", "cut"))
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

	check("in one part", surveytest.Written(t, sites, surveytest.Cut{Rows: len(sites), Shards: 1}))
	if len(want.tokens) < 1000 || len(want.records) < 10 {
		t.Fatalf("%d and %d rows: too few to compare", len(want.tokens), len(want.records))
	}
	rng := rand.New(rand.NewPCG(6, 2026))
	cuts := 12
	if testing.Short() {
		cuts = 3
	}
	for range cuts {
		c := surveytest.Cut{Rows: 1 + rng.IntN(200), Shards: 1 + rng.IntN(4), Seed: rng.Uint64(), Kill: rng.IntN(2) == 0}
		st := surveytest.Written(t, sites, c)
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
