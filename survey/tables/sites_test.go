package tables

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// internal/integration/queries compares each table with the answer to its query. The tests here check what it does not
// reach: the summaries, scans without evidence, and more values than the tables keep.

// surveyed returns the summaries and the tables of sites of a scan.
func surveyed(t *testing.T, st store.Store, scanID string, o survey.Options) *Survey {
	t.Helper()
	scan, err := o.Open(t.Context(), st, scanID)
	if err != nil {
		t.Fatal(err)
	}
	s := &Survey{Tables: map[string]*Table{}}
	if err := s.fromSites(t.Context(), st, scan, &Options{Options: o.WithDefaults(),
		Counted: new(atomic.Int64)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSurveySummaries compares the summaries of one pass with those of package summary.
func TestSurveySummaries(t *testing.T) {
	st := surveytest.Written(t, surveytest.Mixed(t, 1500, 5), surveytest.Cut{Rows: 400, Shards: 2, Seed: 5})
	// dpi_all needs a further pass to leave the token out
	foreign, err := tokens.Load(strings.NewReader("name | category\nNeverSeen | ai\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*tokens.Registry{nil, foreign} {
		s := surveyed(t, st, "cut", survey.Options{Registry: r})
		if len(s.Summaries) != len(survey.Definitions()) {
			t.Fatalf("%d summaries", len(s.Summaries))
		}
		for i, d := range survey.DefinitionNames() {
			want, err := summary.Of(t.Context(), st, "cut", summary.Options{Options: survey.Options{Registry: r}, Definition: d,
				Selection: survey.Selection{Category: "ai"}})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(s.Summaries[i], want) {
				t.Errorf("by %s:\n got %+v\nwant %+v", d, s.Summaries[i], want)
			}
		}
	}
}

// TestSurveyTablesAgree compares tables with the summaries, which other code counts.
func TestSurveyTablesAgree(t *testing.T) {
	st := surveytest.Written(t, surveytest.Mixed(t, 1500, 6), surveytest.Cut{Rows: 400, Shards: 2, Seed: 6})
	s := surveyed(t, st, "cut", survey.Options{})
	column := func(table, name string) int { return slices.Index(s.Tables[table].Columns, name) }
	sum := func(table, name string, of func(row []any) bool) (n int64) {
		for _, row := range s.Tables[table].Rows {
			if of(row) {
				n += row[column(table, name)].(int64)
			}
		}
		return n
	}
	all := func([]any) bool { return true }
	for i, d := range survey.DefinitionNames() {
		token := slices.IndexFunc(s.Summaries[i].Blocking.MostBlocked,
			func(c summary.TokenCount) bool { return c.Token == surveyedToken })
		if want, got := s.Summaries[i].Blocking.MostBlocked[token].Sites, sum("blocked-by-cdn", d, all); got != want {
			t.Errorf("%d sites block by %s, want %d", got, d, want)
		}
	}
	full := s.Summaries[slices.Index(survey.DefinitionNames(), survey.Full)]
	for _, c := range full.Blocking.MostBlocked {
		if got := sum("blocked-together", "sites", func(row []any) bool {
			return row[0] == c.Token &&
				row[1] == c.Token
		}); got != c.Sites && got != 0 {
			t.Errorf("%d sites block %s, want %d", got, c.Token, c.Sites)
		}
	}
	if got, want := sum("ai-and-search", "sites", func(row []any) bool { return row[0] == true }),
		full.Blocking.AtLeastOne; got != want || want == 0 {
		t.Errorf("%d sites block AI, want %d", got, want)
	}
	everything, err := summary.Of(t.Context(), st, "cut", summary.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for table, sums := range map[string][]summary.Sum{"operators": everything.Blocking.ByOperator,
		"purposes": everything.Blocking.ByPurpose} {
		for _, c := range sums {
			if got := sum(table, "blocked", func(row []any) bool { return row[0] == c.Value }); got != c.Sites {
				t.Errorf("%s, %s: %d sites, want %d", table, c.Value, got, c.Sites)
			}
		}
	}
	for table, want := range map[string]int64{
		"findings": full.Rows, "outcomes-by-rank": full.Rows, "status-by-rank": full.Answered, "scores": full.Asked,
		"steps":             3 * full.Asked,
		"ai-tokens-blocked": full.Rules, "managed-blocks": full.Rules, "latency-by-cdn": full.Answered,
	} {
		if got := sum(table, "sites", all); got != want || want == 0 {
			t.Errorf("%s has %d sites, want %d", table, got, want)
		}
	}
}

// TestSurveyWithoutEvidence shows that the signals of groups are there.
func TestSurveyWithoutEvidence(t *testing.T) {
	for _, tables := range [][]string{nil, {schema.Sites, schema.Verdicts}} {
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "one", Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		for _, site := range surveytest.Judged(t,
			[][]byte{[]byte(
				"Content-Signal: search=yes, ai-input=no\nUser-agent: *\nContent-Signal: ai-train=no, search=yes\n")}) {
			if err := w.Add(site); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := surveyed(t, st, "one", survey.Options{}).Tables["content-signals"]
		want := [][]any{{"*", "ai-train=no", int64(1)}, {"*", "search=yes", int64(1)}}
		if tables == nil {
			want = append(want, []any{"file", "ai-input=no", int64(1)}, []any{"file", "search=yes", int64(1)})
		}
		if !reflect.DeepEqual(got.Rows, want) || (got.Note == "") != (tables == nil) {
			t.Errorf("got %v, note %q, want %v", got.Rows, got.Note, want)
		}
	}
}

// TestSurveyBounds has more values of each kind than the tables keep.
func TestSurveyBounds(t *testing.T) {
	s := &Survey{Tables: map[string]*Table{}}
	answers, blocks, records := newAnswerTables(), newBlockTables(&survey.Policies{Registry: tokens.Default()}),
		newRecordTables()
	const sites = maxDelays + 100
	v := survey.Verdict{Token: "*", Via: "star", ID: survey.NoToken}
	for i := range sites {
		delay := float64(i) / 3
		records.row.Delay, v.Seq = &delay, int64(i)
		records.verdict(&summary.Columns{Finding: "rules"}, &v)
	}
	invalid := math.NaN()
	for i := range 3 * survey.MaxValues {
		v.Token, v.Via, v.Seq = fmt.Sprint("agent", i), "own", int64(i)
		records.row.Signal, records.row.Usage, records.row.Delay = fmt.Sprint("key", i, "=yes"), fmt.Sprint(i), &invalid
		records.verdict(&summary.Columns{Finding: "rules"}, &v)
		one := 1.0
		records.row.Delay = &one
		records.verdict(&summary.Columns{Finding: "rules"}, &v)
		advice := fmt.Sprint("advice", i)
		columns := surveyColumns{Rank: math.MaxInt64, CDN: fmt.Sprint(i), StepFetch: fmt.Sprint(i),
			Advice: []int32{answers.adviceIndex(advice)}, License: "no URL"}
		r := summary.Columns{Outcome: fmt.Sprint(i), Status: int32(i - 5), Score: float64(i), Access: "conditional",
			Finding: "rules", BodyBytes: -1}
		if i%2 == 0 {
			r.Score = math.NaN()
		}
		answers.site(&r, &columns)
		blocks.site(&r, &columns)
		records.site(&r, &columns)
	}
	answers.tables(s, &summary.Summary{Rows: 3 * survey.MaxValues, Asked: 3 * survey.MaxValues, Answered: 3 * survey.MaxValues}, blocks.networks)
	s.Summaries = []*summary.Summary{{Rules: 3 * survey.MaxValues}}
	if err := blocks.tables(s, nil); err != nil {
		t.Fatal(err)
	}
	records.tables(s)
	for _, name := range []string{"outcomes-by-rank", "status-by-rank", "scores", "steps", "advice", "managed-blocks",
		"blocked-by-cdn", "latency-by-cdn", "content-signals", "content-usage"} {
		if table := s.Tables[name]; len(table.Rows) != survey.MaxValues && name != "latency-by-cdn" || !strings.Contains(table.Note,
			"the first 2000 ") {
			t.Errorf("%s: %d rows, %q", name, len(table.Rows), table.Note)
		}
	}
	delays := s.Tables["crawl-delay"]
	row := delays.Rows[0]
	if !strings.Contains(delays.Note, "two digits") || len(delays.Rows) != topShown || row[0] != "*" ||
		row[1] != int64(sites) || row[5] != float64(sites-1)/3 || row[3] != float64((sites-1)/2)/3 {
		t.Errorf("%v, %q", row, delays.Note)
	}
	if n := len(records.known.all[key{a: "*"}].values); n > maxDelays+10 {
		t.Errorf("%d delays are told apart", n)
	}
}

// TestSurveyPairs has a policy for each set of ten tokens.
func TestSurveyPairs(t *testing.T) {
	registry := tokens.Default()
	policies, sites := &survey.Policies{Registry: registry, ByID: map[int64]audit.Policy{}}, survey.SitesByPolicy{}
	var ai []uint16
	for id := range registry.Tokens {
		if registry.Tokens[id].Category == "ai" {
			ai = append(ai, uint16(id))
		}
	}
	var both, four int64
	for i := range int64(1 << 10) {
		p := audit.Policy{}
		for bit := range 10 {
			if i>>bit&1 == 1 {
				p.Named = append(p.Named, audit.NamedCell{Token: ai[bit], Cell: audit.CellOwn | audit.CellBlocked})
			}
		}
		policies.ByID[i], sites[i] = p, &survey.SitesOf{Rules: 1 + i%3}
		both += survey.One(i>>3&1 == 1 && i>>9&1 == 1) * (1 + i%3)
		four += survey.One(bits.OnesCount64(uint64(i)) == 4) * (1 + i%3)
	}
	s := &Survey{Tables: map[string]*Table{}, Summaries: []*summary.Summary{{}}}
	if err := newBlockTables(policies).tables(s, sites); err != nil {
		t.Fatal(err)
	}
	a, b := registry.Tokens[ai[3]].Name, registry.Tokens[ai[9]].Name
	if !slices.ContainsFunc(s.Tables["blocked-together"].Rows, func(row []any) bool {
		return row[0] == a && row[1] == b &&
			row[2] == both
	}) {
		t.Errorf("%s and %s are not blocked together by %d sites", a, b, both)
	}
	if row := s.Tables["ai-tokens-blocked"].Rows[4]; row[0] != int64(4) || row[1] != four {
		t.Errorf("got %v, want %d sites", row, four)
	}
}

// TestSurveyRecordsOfOthers checks that the tables of what files say count no site with another finding than rules,
// though its text has rules: a crawler reads them, a survey does not.
func TestSurveyRecordsOfOthers(t *testing.T) {
	const file = "Content-Signal: search=yes\nLicense: https://rsl.example/l.xml\nUser-agent: *\nCrawl-delay: 7\nContent-Signal: ai-train=no\nContent-Usage: train-ai=n\nFoo: bar\nno record\nDisallow: /\n"
	read := func(change func(*audit.Site)) map[string]*Table {
		t.Helper()
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "one"})
		if err != nil {
			t.Fatal(err)
		}
		for _, site := range surveytest.Judged(t, [][]byte{[]byte(file), []byte(file)}) {
			site.Fetch.Outcome, site.Fetch.Status = exchange.Answered, 200
			if site.Seq == 1 {
				change(site)
			}
			site.Report.Reset()
			audit.Judge(site)
			if err := w.Add(site); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return surveyed(t, st, "one", survey.Options{}).Tables
	}
	tables := []string{"content-signals", "content-usage", "crawl-delay", "licenses", "syntax"}
	both := read(func(*audit.Site) {})
	one := read(func(s *audit.Site) { s.Fetch.Outcome, s.Fetch.Status, s.Fetch.Body = exchange.DNSNotFound, 0, nil })
	for name, change := range map[string]func(*audit.Site){
		"challenge": func(s *audit.Site) { s.Fetch.Fields.Challenge = "cloudflare" },
		"web page":  func(s *audit.Site) { s.Fetch.Body = append([]byte("<!DOCTYPE html>\n"), s.Fetch.Body...) },
		"broken":    func(s *audit.Site) { s.Fetch.Outcome = exchange.ClosedEarly },
	} {
		got := read(change)
		for _, table := range tables {
			if !reflect.DeepEqual(got[table].Rows, one[table].Rows) || reflect.DeepEqual(both[table].Rows, one[table].Rows) {
				t.Errorf("%s, %s: got %v, want %v; of two sites with rules %v", name, table, got[table].Rows, one[table].Rows,
					both[table].Rows)
			}
		}
	}
}
