package stats

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
)

// This file counts both statistics tables again in the plainest way: site by site and token by token, from the judged
// sites in memory. It shares nothing with stats.go. It takes how a site treats a token from the cells of the site's
// policy; audit's vectors check these.

// statsKey identifies a row of token_stats.
type statsKey struct{ token, kind, value string }

func keyOf(r *schema.TokenStatsRow) statsKey { return statsKey{r.Token, r.SegmentKind, r.SegmentValue} }

// plainTokenStats counts every column for every registry token in every segment, and for every other agent over all.
func plainTokenStats(sites []*audit.Site) map[statsKey]*schema.TokenStatsRow {
	registry := tokens.Default()
	segments := map[[2]string][]schema.TokenStatsRow{} // by kind and value: a row a token
	agents := map[string]*schema.TokenStatsRow{}
	most := int64(0)
	for _, s := range sites {
		most = max(most, s.Rank)
		for name := range otherAgents(s) {
			agents[name] = &schema.TokenStatsRow{Token: name, SegmentKind: "all"}
		}
	}
	for _, s := range sites {
		in := [][2]string{{"all", ""}}
		for limit := int64(1000); s.Rank > 0 && limit < 10*most; limit *= 10 {
			if s.Rank <= limit {
				in = append(in, [2]string{"rank", strconv.FormatInt(limit, 10)})
			}
		}
		if s.TLD != "" {
			in = append(in, [2]string{"tld", s.TLD})
		}
		if s.Label != "" {
			in = append(in, [2]string{"label", s.Label})
		}
		for _, segment := range in {
			if segments[segment] == nil {
				segments[segment] = make([]schema.TokenStatsRow, len(registry.Tokens))
			}
		}
		for id, c := range surveytest.PlainCells(s) {
			row := surveytest.OnlyRules(surveytest.PlainToken(s, c))
			for _, segment := range in {
				addCounts(&segments[segment][id], &row)
			}
		}
		here, unnamed := otherAgents(s), surveytest.OnlyRules(plainAgent(s, nil))
		for name, sum := range agents {
			if v := here[name]; v != nil {
				row := surveytest.OnlyRules(plainAgent(s, v))
				addCounts(sum, &row)
			} else {
				addCounts(sum, &unnamed)
			}
		}
	}

	want := map[statsKey]*schema.TokenStatsRow{}
	for segment, rows := range segments {
		for id, t := range registry.Tokens {
			r := &rows[id]
			r.Token, r.Known, r.Category, r.Operator, r.Purpose = t.Name, true, t.Category, t.Operator, t.Purpose
			r.SegmentKind, r.SegmentValue = segment[0], segment[1]
			want[keyOf(r)] = r
		}
	}
	for _, r := range agents {
		want[keyOf(r)] = r
	}
	for _, r := range want {
		r.Any = r.Full + r.Partial
	}
	return want
}

// otherAgents returns the rows of a site for agents outside of the registry.
func otherAgents(s *audit.Site) map[string]*audit.Verdict {
	rows := map[string]*audit.Verdict{}
	for i := range s.Report.Verdicts {
		if v := &s.Report.Verdicts[i]; v.ID < 0 && string(v.Token) != "*" {
			rows[string(v.Token)] = v
		}
	}
	return rows
}

// addCounts adds the counts of a row to another, except for Any, which is itself a sum.
func addCounts(sum, r *schema.TokenStatsRow) {
	into, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(r).Elem()
	for i := range from.NumField() {
		if from.Field(i).Kind() == reflect.Int64 {
			into.Field(i).SetInt(into.Field(i).Int() + from.Field(i).Int())
		}
	}
	sum.Any = 0
}

// plainAgent counts one site for an agent outside of the registry: by its row, or as an unnamed agent.
func plainAgent(s *audit.Site, named *audit.Verdict) schema.TokenStatsRow {
	c := s.Report.Policy.Star
	if named != nil {
		c = audit.CellOwn
		for fact, is := range map[audit.Cell]bool{
			audit.CellBlocked: named.Decision == audit.Blocked, audit.CellPartial: named.Decision == audit.Partial,
			audit.CellRoot: !named.RootAllowed, audit.CellDPIAll: named.DPI == audit.DPIAll,
		} {
			if is {
				c |= fact
			}
		}
	}
	return surveytest.PlainToken(s, c)
}

// plainRecordStats counts keys by kind from the evidence of the sites.
func plainRecordStats(sites []*audit.Site) map[[2]string]*schema.RecordStatsRow {
	want := map[[2]string]*schema.RecordStatsRow{}
	for _, s := range sites {
		here := map[[2]string]bool{}
		for _, e := range s.Report.Evidence {
			if len(e.Key) == 0 || e.Kind == audit.KindSitemap || e.Kind == audit.KindOrphan {
				continue
			}
			key := [2]string{e.Kind.String(), strings.ToLower(validKey(e.Key))}
			if want[key] == nil {
				want[key] = &schema.RecordStatsRow{Kind: key[0], Key: key[1]}
			}
			want[key].Lines++
			want[key].Sites += survey.One(!here[key])
			here[key] = true
		}
	}
	return want
}

// validKey spells a key as the dataset does: U+FFFD for each byte that is part of no character, whole characters only.
func validKey(raw []byte) string {
	key := ""
	for _, r := range string(raw) {
		if next := key + string(r); len(next) <= schema.MaxKey {
			key = next
			continue
		}
		break
	}
	return key
}

// comparePlainly writes the sites with the sink, in parts, and compares the result of Write.
func comparePlainly(t *testing.T, bodies [][]byte, limits ...int) {
	t.Helper()
	sites := surveytest.Judged(t, bodies)
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "plain", Date: "2026-11-21", PartRows: len(sites)/6 + 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	scan, err := commit.ReadScan(t.Context(), dir, "plain")
	if err != nil || len(scan.Commits) != 6 {
		t.Fatalf("%d parts, want 6: %v", len(scan.Commits), err)
	}
	wantTokens, wantRecords := plainTokenStats(sites), plainRecordStats(sites)
	expectAll(t, wantTokens)
	for _, limit := range limits {
		if err := write(t.Context(), dir, "plain", &options{survey.Options{}.WithDefaults(), cmp.Or(limit, maxKeys)}); err != nil {
			t.Fatal(err)
		}
		compareRows(t, dir, schema.TokenStats, wantTokens, keyOf)
		compareRows(t, dir, schema.RecordStats, wantRecords,
			func(r *schema.RecordStatsRow) [2]string { return [2]string{r.Kind, r.Key} })
	}
}

// compareRows compares a file of statistics with the expected rows, in any order.
func compareRows[K comparable, T comparable](t *testing.T, st store.Store, tableName string, want map[K]*T,
	key func(*T) K) {
	t.Helper()
	left := maps.Clone(want)
	differences := 0
	report := func(format string, args ...any) {
		if differences++; differences <= 10 {
			t.Errorf(tableName+": "+format, args...)
		}
	}
	for row, err := range table.FileRows[T](t.Context(), st, commit.StatsName(tableName, "2026-11-21", "plain")) {
		if err != nil {
			t.Fatal(err)
		}
		k := key(row)
		wanted, ok := left[k]
		switch {
		case !ok:
			report("unexpected or twice: %+v", *row)
		case *row != *wanted:
			report("\n got %+v\nwant %+v", *row, *wanted)
		}
		delete(left, k)
	}
	for _, row := range left {
		report("missing: %+v", *row)
	}
	if differences > 10 {
		t.Errorf("%s: %d differences in all", tableName, differences)
	}
	t.Logf("%s: %d rows compared", tableName, len(want))
}

// expectAll fails if the sites could not reveal a wrong count: each column must count something, and no two
// definitions of blocking may agree on every token.
func expectAll(t *testing.T, want map[statsKey]*schema.TokenStatsRow) {
	t.Helper()
	columns := []string{"Mention", "ExplicitRoot", "Full", "Partial", "Any", "DPIAll", "RFCEffective", "Unreachable",
		"ViaOwn", "ViaStar", "ViaFallback", "Lenient"}
	differ := map[[2]string]bool{}
	counted := map[string]bool{}
	kinds, unknown := map[string]bool{}, 0
	for _, row := range want {
		kinds[row.SegmentKind] = true
		unknown += int(survey.One(!row.Known))
		fields := reflect.ValueOf(*row)
		for i, a := range columns {
			n := fields.FieldByName(a).Int()
			counted[a] = counted[a] || n > 0
			for _, b := range columns[:i] {
				differ[[2]string{b, a}] = differ[[2]string{b, a}] || n != fields.FieldByName(b).Int()
			}
		}
	}
	for i, a := range columns {
		if !counted[a] {
			t.Errorf("no site counts for %s", a)
		}
		for _, b := range columns[:i] {
			if same := b == "Mention" && a == "ViaOwn"; !same && !differ[[2]string{b, a}] {
				t.Errorf("%s and %s are equal in every row", b, a)
			}
		}
	}
	if len(kinds) != 4 || unknown < 3 {
		t.Errorf("kinds of segments %v, %d agents that are not in the registry", slices.Sorted(maps.Keys(kinds)), unknown)
	}
}

// TestTokenStatsPlainly compares both tables with a plain count over generated files.
func TestTokenStatsPlainly(t *testing.T) {
	comparePlainly(t, surveytest.Bodies(900), 0, 5)
}

// TestTokenStatsOfRealFiles makes the same comparison over 3,000 real files.
func TestTokenStatsOfRealFiles(t *testing.T) {
	bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:1899])
	// The packs are mixed, so that each part and segment has bodies of all.
	random := rand.New(rand.NewPCG(1, 3000))
	random.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	if testing.Short() {
		bodies = bodies[:len(bodies)/3]
	}
	comparePlainly(t, bodies, 0)
}
