package stats

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/reaudit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// within computes the statistics of the scan `hand`, with so many keys in memory, and returns the rows of a table.
func within[T any](t *testing.T, st store.Store, table string, limit int) []T {
	t.Helper()
	return rowsOf[T](t, st, table, &options{survey.Options{Registry: surveytest.Registry(), ToolVersion: "1.2.3"}.WithDefaults(),
		cmp.Or(limit, maxKeys)})
}

// statsOf is the same with other options.
func statsOf[T any](t *testing.T, st store.Store, tableName string, o survey.Options) []T {
	t.Helper()
	return rowsOf[T](t, st, tableName, &options{o.WithDefaults(), maxKeys})
}

func rowsOf[T any](t *testing.T, st store.Store, tableName string, o *options) []T {
	t.Helper()
	if err := write(t.Context(), st, "hand", o); err != nil {
		t.Fatal(err)
	}
	return surveytest.Rows[T](t, st, commit.StatsName(tableName, "2026-11-21", "hand"))
}

// TestManySegments checks that many labels or top-level domains do not fill the memory, and that a warning says what
// is missing.
func TestManySegments(t *testing.T) {
	// Each label and top-level domain has two sites. The arguments are the expected sites in segments by label and by
	// tld.
	f := func(labels, tlds int, wantByLabel, wantByTLD int64, wantWarnings ...string) {
		t.Helper()
		dir, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21", Registry: surveytest.Registry(),
			Tables: []string{schema.Sites, schema.Verdicts}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := origin.Parse("example.com")
		if err != nil {
			t.Fatal(err)
		}
		sites := 2 * max(labels, tlds)
		for i := range sites {
			s := &audit.Site{Seq: uint64(i), Origin: o}
			if i/2 < labels {
				s.Label = fmt.Sprintf("label%d", i/2)
			}
			if i/2 < tlds {
				s.TLD = fmt.Sprintf("tld%d", i/2)
			}
			if err := w.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		kinds := map[string]int64{}
		for _, row := range statsOf[schema.TokenStatsRow](t, dir, schema.TokenStats, survey.Options{Registry: surveytest.Registry(),
			Log: logger(&log)}) {
			if row.Token == "GPTBot" {
				kinds[row.SegmentKind] += row.SitesAll
			}
		}
		if kinds["all"] != int64(sites) || kinds["label"] != wantByLabel || kinds["tld"] != wantByTLD {
			t.Errorf("%d labels, %d top-level domains: sites by kind of segment: %v", labels, tlds, kinds)
		}
		if n := strings.Count(log.String(), "\n"); n != len(wantWarnings) {
			t.Errorf("%d warnings, want %d:\n%s", n, len(wantWarnings), &log)
		}
		for _, want := range wantWarnings {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no warning of %q:\n%s", want, &log)
			}
		}
	}
	f(maxLabels, maxTLDs, 2*maxLabels, 2*maxTLDs)
	f(maxLabels+1, 10, 0, 20, "more than 1000 distinct labels")
	f(10, maxTLDs+10, 20, 0, "more than 2000")
}

// logger writes warnings, one a line, without their time.
func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestForeignRegistry computes statistics with another registry than the scan's: tokens that the scan did not know
// have no rows, and a warning says so.
func TestForeignRegistry(t *testing.T) {
	st := surveytest.Dataset(t)
	other := surveytest.RegistryOf("other", append(surveytest.Registry().Tokens[1:],
		// `*` blocks it on two sites, but no row says so
		tokens.Token{Name: "NewBot", Category: "ai", Operator: "Newcomer", HeedsStar: true},
		// a site names it: the scan took it for an unknown agent
		tokens.Token{Name: "MyBot", Category: "ai", HeedsStar: true},
	))
	var log bytes.Buffer
	got := []string{}
	for _, r := range statsOf[schema.TokenStatsRow](t, st, schema.TokenStats,
		survey.Options{Registry: other, Log: logger(&log)}) {
		if r.SegmentKind == "all" {
			got = append(got, fmt.Sprint(r.Token, " ", r.Known, " mention ", r.Mention, " full ", r.Full, " partial ", r.Partial,
				" lenient ", r.Lenient))
		}
	}
	slices.Sort(got)
	want := []string{
		"GPTBot true mention 2 full 3 partial 0 lenient 1", // only the scan knows it
		"Googlebot true mention 1 full 2 partial 1 lenient 0",
		"Googlebot-News true mention 0 full 2 partial 1 lenient 1",
		"mybot false mention 1 full 3 partial 1 lenient 0",
		"mybot2 false mention 1 full 1 partial 1 lenient 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	warned := func(want string) {
		t.Helper()
		for _, text := range []string{"level=WARN", "another token registry", "scan_registry=test", " registry=other", want,
			"--tokens FILE"} {
			if !strings.Contains(log.String(), text) {
				t.Errorf("nothing of %q in %s", text, &log)
			}
		}
		if strings.Count(log.String(), "\n") != 1 {
			t.Errorf("not one warning:\n%s", &log)
		}
		log.Reset()
	}
	warned("have no row")
	s, err := summary.Of(t.Context(), st, "hand", summary.Options{Options: survey.Options{Registry: other, Log: logger(&log)},
		Definition: "rfc_effective"})
	if err != nil {
		t.Fatal(err)
	}
	// A failing server blocks all tokens, but tokens unknown to the scan have no figure.
	listed := []string{}
	for _, c := range s.Blocking.MostBlocked {
		listed = append(listed, fmt.Sprint(c.Token, " ", c.Sites))
	}
	if want := []string{"Googlebot 3", "Googlebot-News 3"}; !slices.Equal(listed, want) || s.Blocking.Selected != 2 ||
		s.Blocking.Registry != "other" {
		t.Errorf("the summary has %v of %d tokens, want %v", listed, s.Blocking.Selected, want)
	}
	warned("missing among those that are counted")
	// Nor do they inherit by dpi_all.
	for operator, want := range map[string]string{"": "2 block one of 2: [{search 2 2 0.4 {<nil> <nil>}}]",
		"Newcomer": "0 block one of 0: []"} {
		s, err := summary.Of(t.Context(), st, "hand", summary.Options{Options: survey.Options{Registry: other, Log: logger(&log)},
			Definition: "dpi_all", Selection: survey.Selection{Operator: operator}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Blocking.ByPurpose {
			s.Blocking.ByPurpose[i].Certainty = survey.Certainty{}
		}
		if got := fmt.Sprintf("%d block one of %d: %v", s.Blocking.AtLeastOne, s.Blocking.Selected,
			s.Blocking.ByPurpose); got != want || s.Rows != 9 {
			t.Errorf("%q: %s of %d rows, want %s of 9", operator, got, s.Rows, want)
		}
		warned("missing among those that are counted")
	}
	if _, err := summary.Of(t.Context(), st, "hand",
		summary.Options{Options: survey.Options{Registry: surveytest.Registry(), Log: logger(&log)}}); err != nil || log.Len() > 0 {
		t.Errorf("%v\n%s", err, &log)
	}
}

// TestTokenStats compares every count with one by hand from the table above.
func TestTokenStats(t *testing.T) {
	st := surveytest.Dataset(t)
	rows := map[string]schema.TokenStatsRow{}
	all := within[schema.TokenStatsRow](t, st, schema.TokenStats, 0)
	for _, r := range all {
		rows[r.Token+" "+r.SegmentKind+" "+r.SegmentValue] = r
	}
	if len(rows) != len(all) {
		t.Errorf("%d rows, %d keys", len(all), len(rows))
	}
	// The order of counts is that of the columns from sites_all on: sites_all, sites_answered, sites, mention,
	// explicit_root, full, partial, any, dpi_all, rfc_effective, unreachable, via_own, via_star, via_fallback, lenient.
	f := func(key string, want ...int64) {
		t.Helper()
		r, ok := rows[key]
		if !ok {
			t.Errorf("no row %q", key)
			return
		}
		got := []int64{r.SitesAll, r.SitesAnswered, r.Sites, r.Mention, r.ExplicitRoot, r.Full, r.Partial, r.Any, r.DPIAll,
			r.RFCEffective, r.Unreachable, r.ViaOwn, r.ViaStar, r.ViaFallback, r.Lenient}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", key, got, want)
		}
		delete(rows, key)
	}
	// Answered: 0-5 and 8. Sites: 0-3 and 8. rfc_effective: full, and site 5.
	f("GPTBot all ", 9, 7, 5, 2, 1, 3, 0, 3, 3, 4, 1, 2, 3, 0, 1)         // blocked 0 1 8; dpi 0 1 8; star 1 3 8
	f("Googlebot all ", 9, 7, 5, 1, 1, 2, 1, 3, 2, 3, 1, 1, 3, 0, 0)      // blocked 1 8; partial 2; star 1 3 8
	f("Googlebot-News all ", 9, 7, 5, 0, 0, 2, 1, 3, 2, 3, 1, 0, 3, 1, 1) // the same by fallback on 2
	f("AdsBot-Google all ", 9, 7, 5, 0, 0, 0, 0, 0, 2, 1, 1, 0, 0, 0, 0)  // ignores *, but the DPI lets it inherit
	f("mybot all ", 9, 7, 5, 1, 1, 3, 1, 4, 3, 4, 1, 1, 3, 0, 0)          // 3 by name; 1 8 by *, partial 2; no * on 0
	f("mybot2 all ", 9, 7, 5, 1, 0, 1, 1, 2, 1, 2, 1, 1, 3, 0, 0)         // allowed by name on 8; 1 by *

	// Up to rank 1,000: 0 1 6 7 8.
	f("GPTBot rank 1000", 5, 3, 3, 1, 1, 3, 0, 3, 3, 3, 1, 1, 2, 0, 0)
	f("Googlebot rank 1000", 5, 3, 3, 0, 0, 2, 0, 2, 2, 2, 1, 0, 2, 0, 0)
	f("Googlebot-News rank 1000", 5, 3, 3, 0, 0, 2, 0, 2, 2, 2, 1, 0, 2, 0, 0)
	f("AdsBot-Google rank 1000", 5, 3, 3, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0)
	// Up to 10,000: 2 and 3 too.
	f("GPTBot rank 10000", 7, 5, 5, 2, 1, 3, 0, 3, 3, 3, 1, 2, 3, 0, 1)
	f("Googlebot rank 10000", 7, 5, 5, 1, 1, 2, 1, 3, 2, 2, 1, 1, 3, 0, 0)
	f("Googlebot-News rank 10000", 7, 5, 5, 0, 0, 2, 1, 3, 2, 2, 1, 0, 3, 1, 1)
	f("AdsBot-Google rank 10000", 7, 5, 5, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0)
	// Up to 100,000: 5 too.
	f("GPTBot rank 100000", 8, 6, 5, 2, 1, 3, 0, 3, 3, 4, 1, 2, 3, 0, 1)
	f("Googlebot rank 100000", 8, 6, 5, 1, 1, 2, 1, 3, 2, 3, 1, 1, 3, 0, 0)
	f("Googlebot-News rank 100000", 8, 6, 5, 0, 0, 2, 1, 3, 2, 3, 1, 0, 3, 1, 1)
	f("AdsBot-Google rank 100000", 8, 6, 5, 0, 0, 0, 0, 0, 2, 1, 1, 0, 0, 0, 0)
	// com: 0 1 4 5 7 8; org: 2 3 6.
	f("GPTBot tld com", 6, 5, 3, 1, 1, 3, 0, 3, 3, 4, 0, 1, 2, 0, 0)
	f("Googlebot tld com", 6, 5, 3, 0, 0, 2, 0, 2, 2, 3, 0, 0, 2, 0, 0)
	f("Googlebot-News tld com", 6, 5, 3, 0, 0, 2, 0, 2, 2, 3, 0, 0, 2, 0, 0)
	f("AdsBot-Google tld com", 6, 5, 3, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0)
	f("GPTBot tld org", 3, 2, 2, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1)
	f("Googlebot tld org", 3, 2, 2, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0)
	f("Googlebot-News tld org", 3, 2, 2, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1)
	f("AdsBot-Google tld org", 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
	// Label x: 0 1; y: 3.
	f("GPTBot label x", 2, 2, 2, 1, 1, 2, 0, 2, 2, 2, 0, 1, 1, 0, 0)
	f("Googlebot label x", 2, 2, 2, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0)
	f("Googlebot-News label x", 2, 2, 2, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0)
	f("AdsBot-Google label x", 2, 2, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	f("GPTBot label y", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1)
	f("Googlebot label y", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
	f("Googlebot-News label y", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
	f("AdsBot-Google label y", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	for key := range rows {
		t.Errorf("an unexpected row %q", key)
	}
	if r := all[0]; r.Token != "GPTBot" || !r.Known || r.Category != "ai" || r.Operator != "OpenAI" ||
		r.Purpose != "training" {
		t.Errorf("%+v", r)
	}
	if r := all[len(all)-1]; r.Token != "mybot2" || r.Known || r.Category+r.Operator+r.Purpose != "" {
		t.Errorf("%+v", r)
	}
}

// TestStatsInPasses checks that the bound on agents and keys in memory changes only the order of rows.
func TestStatsInPasses(t *testing.T) {
	st := surveytest.Dataset(t)
	byText := func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	tokenRows := func(limit int) []schema.TokenStatsRow {
		rows := within[schema.TokenStatsRow](t, st, schema.TokenStats, limit)
		slices.SortFunc(rows, func(a, b schema.TokenStatsRow) int { return byText(a, b) })
		return rows
	}
	recordRows := func(limit int) []schema.RecordStatsRow {
		rows := within[schema.RecordStatsRow](t, st, schema.RecordStats, limit)
		slices.SortFunc(rows, func(a, b schema.RecordStatsRow) int { return byText(a, b) })
		return rows
	}
	if one, many := tokenRows(0), tokenRows(1); !reflect.DeepEqual(one, many) {
		t.Errorf("in one pass %v\nin many %v", one, many)
	}
	want := []schema.RecordStatsRow{
		{Kind: "extension", Key: "crawl-delay", Sites: 1, Lines: 1},
		{Kind: "invalid", Key: "crawl-delay", Sites: 1, Lines: 1},
		{Kind: "legacy", Key: "noindex", Sites: 1, Lines: 1},
		{Kind: "typo", Key: "dissallow", Sites: 1, Lines: 1},
		{Kind: "unknown", Key: "foo", Sites: 2, Lines: 3},
	}
	for _, limit := range []int{0, 1, 2} {
		if got := recordRows(limit); !reflect.DeepEqual(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

// TestWindow counts random keys in small windows and in a map.
func TestWindow(t *testing.T) {
	var keys []string
	want := map[string]int{}
	for i := range 10_000 {
		key := fmt.Sprint(i * i % 997)
		keys = append(keys, key)
		want[key]++
	}
	got := map[string]int{}
	w := newWindow[int](50)
	passes := 0
	for more := true; more; more = w.advance() {
		passes++
		for _, key := range keys {
			if n := w.at(key); n != nil {
				*n++
			}
		}
		if len(w.values) > 50 {
			t.Fatalf("%d keys in memory", len(w.values))
		}
		for key, n := range w.values {
			if got[key] != 0 {
				t.Fatalf("%s counted twice", key)
			}
			got[key] = *n
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if passes < 5 || passes > 100 {
		t.Errorf("%d passes", passes)
	}
}

func TestRankBuckets(t *testing.T) {
	f := func(rank, want int64) {
		t.Helper()
		if got := RankLimit(RankBucket(rank)); got != want {
			t.Errorf("rank %d is up to %d, want %d", rank, got, want)
		}
	}
	f(1, 1000)
	f(1000, 1000)
	f(1001, 10_000)
	f(1_000_000, 1_000_000)
	f(1_000_001, 10_000_000)
	f(1<<63-1, 1_000_000_000_000_000_000)
}

// TestNoTables checks the result for scans without some tables.
func TestNoTables(t *testing.T) {
	f := func(want string, tables ...string) {
		t.Helper()
		dir, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "x", Date: "2026-11-21", Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := "written"
		if err := Write(t.Context(), dir, "x", survey.Options{}); err != nil {
			got = err.Error()
		}
		for entry := range dir.List(t.Context(), "") {
			if table, _, ok := strings.Cut(entry.Name, "/scan_date="); ok {
				got += " " + table
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", tables, got, want)
		}
	}
	f("written record_stats token_stats")
	f("written token_stats", schema.Sites, schema.Verdicts)
	f("written record_stats", schema.Sites, schema.Evidence)
	f("no such table", schema.Sites)
}

// TestPartlyForeignRegistry computes statistics of a scan that was judged again by another registry, except for sites
// without stored bodies. Tokens that were not looked for there have no row, not a row of zeros.
func TestPartlyForeignRegistry(t *testing.T) {
	other,
		err := tokens.Load(strings.NewReader(
		"version 1\nname | aliases | category | purpose | operator | * | fallback | source | checked\n" +
			"NewBot | | ai | training | Me | yes | | https://example.org | 2026-01-01\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := func(tables []string, wantRow bool) {
		t.Helper()
		from, err1 := store.NewDir(t.TempDir())
		to, err2 := store.NewDir(t.TempDir())
		w, err3 := sink.Open(t.Context(), from, sink.Options{ScanID: "hand", Date: "2026-11-21", Tables: tables})
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			o, err := origin.Parse(fmt.Sprintf("host%d.org", i))
			if err != nil {
				t.Fatal(err)
			}
			s := &audit.Site{Seq: uint64(i), Origin: o}
			s.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, Answered: o.As(origin.HTTPS),
				Body: []byte("User-agent: *\nDisallow: /\n")}
			audit.Judge(s)
			if err := w.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		source, err := commit.ReadScan(t.Context(), from, "hand")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reaudit.Scan(t.Context(), source, to, reaudit.Options{Judge: audit.New(other).Judge,
			Registry: other}); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		row := false
		for _, r := range statsOf[schema.TokenStatsRow](t, to, schema.TokenStats,
			survey.Options{Registry: other, Log: logger(&log)}) {
			row = row || r.Token == "NewBot" && r.SegmentKind == "all" && r.Full == 3
			if r.Token == "NewBot" && !wantRow {
				t.Errorf("%v: %+v", tables, r)
			}
		}
		if row != wantRow || strings.Contains(log.String(), "sites keep the judgement of another token registry") == wantRow {
			t.Errorf("%v: a row of the new token: %v, warned\n%s", tables, row, &log)
		}
		s, err := summary.Of(t.Context(), to, "hand", summary.Options{Options: survey.Options{Registry: other, Log: logger(&log)},
			Definition: "any"})
		if err != nil {
			t.Fatal(err)
		}
		if named := slices.ContainsFunc(s.Blocking.MostBlocked,
			func(c summary.TokenCount) bool { return c.Token == "NewBot" }); named && !wantRow {
			t.Errorf("%v: the summary has the new token", tables)
		}
	}
	f([]string{schema.Sites, schema.Verdicts, schema.Bodies}, true)
	f([]string{schema.Sites, schema.Verdicts}, false)
}
