package summary

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/surveytest"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

var update = flag.Bool("update", false, "write the golden files anew")

// summaryBy summarizes the scan `hand` with the small registry.
func summaryBy(t *testing.T, st store.Store, definition string, about survey.Selection, top int) *Summary {
	t.Helper()
	s, err := Of(t.Context(), st, "hand", Options{Options: survey.Options{Registry: surveytest.Registry()},
		Definition: definition, Selection: about, Top: top})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSummary compares a whole summary with a golden file.
func TestSummary(t *testing.T) {
	s := summaryBy(t, surveytest.Dataset(t), "", survey.Selection{}, 0)
	if s.DatasetBytes == 0 || s.StartedAt.IsZero() || s.FinishedAt == nil {
		t.Errorf("%+v", s)
	}
	// Values that change from run to run are fixed.
	s.StartedAt = time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	finished := s.StartedAt.Add(83 * time.Second)
	s.FinishedAt, s.DatasetBytes = &finished, 123_456
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/summary.json", append(data, '\n'))
}

// TestSummaryByHand compares each definition's counts of the nine sites of dataset with counts by hand.
func TestSummaryByHand(t *testing.T) {
	st := surveytest.Dataset(t)
	f := func(definition string, about survey.Selection, top int, want string) {
		t.Helper()
		b := summaryBy(t, st, definition, about, top).Blocking
		got := fmt.Sprintf("%d/%d: ", b.AtLeastOne, b.Sites)
		for _, c := range b.MostBlocked {
			got += fmt.Sprintf("%s %d=%d+%d+%d+%d; ", c.Token, c.Sites, c.ViaOwn, c.ViaFallback, c.ViaStar, c.ViaHTTP)
		}
		if got = strings.TrimSuffix(got, "; "); got != want {
			t.Errorf("%s of %+v:\n got %s\nwant %s", definition, about, got, want)
		}
	}
	everything := survey.Selection{}
	// Sites = own group + group of a fallback + `*` + failing server.
	f("mention", everything, 0, "2/5: GPTBot 2=2+0+0+0; Googlebot 1=1+0+0+0")
	f("explicit_root", everything, 0, "2/5: GPTBot 1=1+0+0+0; Googlebot 1=1+0+0+0")
	f("full", everything, 0, "3/5: GPTBot 3=1+0+2+0; Googlebot 2=0+0+2+0; Googlebot-News 2=0+0+2+0")
	f("any", everything, 0, "4/5: GPTBot 3=1+0+2+0; Googlebot 3=1+0+2+0; Googlebot-News 3=0+1+2+0")
	f("dpi_all", everything, 0,
		"3/5: GPTBot 3=1+0+2+0; Googlebot 2=0+0+2+0; AdsBot-Google 2=0+0+2+0; Googlebot-News 2=0+0+2+0")
	f("RFC_Effective", everything, 0,
		"4/7: GPTBot 4=1+0+2+1; Googlebot 3=0+0+2+1; Googlebot-News 3=0+0+2+1; AdsBot-Google 1=0+0+0+1")
	f("full", everything, 1, "3/5: GPTBot 3=1+0+2+0")
	f("full", survey.Selection{Category: "AI"}, 0, "3/5: GPTBot 3=1+0+2+0")
	f("any", survey.Selection{Operator: "google", Purpose: "search"}, 0, "3/5: Googlebot 3=1+0+2+0; Googlebot-News 3=0+1+2+0")
	f("rfc_effective", survey.Selection{Purpose: "ads"}, 0, "1/7: AdsBot-Google 1=0+0+0+1")
	f("rfc_effective", survey.Selection{Purpose: "nonsense"}, 0, "0/7: ")

	_, err := Of(t.Context(), st, "hand", Options{Definition: "fullish"})
	if err == nil || !strings.Contains(err.Error(), "mention, explicit_root, full, any, dpi_all, rfc_effective") {
		t.Errorf("a definition that there is not: %v", err)
	}
}

// TestSummaryAgrees summarizes generated files by every definition.
func TestSummaryAgrees(t *testing.T) {
	agree(t, surveytest.Judged(t, surveytest.Bodies(900)))
}

// TestSummaryAgreesOnRealFiles does so with 3,000 real files.
func TestSummaryAgreesOnRealFiles(t *testing.T) {
	bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:1899])
	random := rand.New(rand.NewPCG(2, 3000))
	random.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	if testing.Short() {
		bodies = bodies[:len(bodies)/3]
	}
	agree(t, surveytest.Judged(t, bodies))
}

// agree compares summaries by every definition with token_stats, and with a plain count over the judged sites, for
// several ways of cutting the scan.
func agree(t *testing.T, sites []*audit.Site) {
	t.Helper()
	plain, nameOne, starBlocks := plainBlockings(sites)
	for _, c := range []surveytest.Cut{{Rows: len(sites), Shards: 1}, {Rows: len(sites)/7 + 1, Shards: 2, Seed: 3}} {
		st := surveytest.Written(t, sites, c)
		if err := stats.Write(t.Context(), st, "cut", survey.Options{}); err != nil {
			t.Fatal(err)
		}
		stats := map[string]schema.TokenStatsRow{}
		for _, row := range surveytest.Rows[schema.TokenStatsRow](t, st, commit.StatsName(schema.TokenStats, "2026-11-21", "cut")) {
			if row.SegmentKind == "all" && row.Known {
				stats[row.Token] = row
			}
		}
		for i, definition := range survey.DefinitionNames() {
			s, err := Of(t.Context(), st, "cut", Options{Definition: definition})
			if err != nil {
				t.Fatal(err)
			}
			agreesWithStats(t, s, stats, i)
			agreesWithPlainCount(t, &s.Blocking, &plain[i])
			if s.Blocking.NameOne != nameOne || s.Blocking.StarBlocks != starBlocks {
				t.Errorf("%d sites name one, %d block by *; want %d, %d", s.Blocking.NameOne, s.Blocking.StarBlocks, nameOne,
					starBlocks)
			}
			agreesOnSites(t, s, sites)
			if s.Blocking.Blocked < 10 {
				t.Errorf("by %s only %d tokens are blocked: too few to compare", definition, s.Blocking.Blocked)
			}
		}
	}
}

// agreesWithStats compares one definition, by its index, with token_stats.
func agreesWithStats(t *testing.T, s *Summary, stats map[string]schema.TokenStatsRow, definition int) {
	t.Helper()
	b := &s.Blocking
	listed := map[string]TokenCount{}
	for _, c := range b.MostBlocked {
		listed[c.Token] = c
	}
	lenient := map[string]int64{}
	for _, c := range b.Lenient {
		lenient[c.Token] = c.Sites
		if c.Sites == 0 || c.Share != float64(c.Sites)/float64(s.Rules) {
			t.Errorf("by %s: %+v of %d", b.Definition, c, s.Rules)
		}
	}
	if len(lenient) < 2 || !slices.IsSortedFunc(b.Lenient, func(a, b LenientCount) int {
		return cmp.Compare(b.Sites,
			a.Sites)
	}) {
		t.Errorf("by %s, named leniently: %+v", b.Definition, b.Lenient)
	}
	if len(listed) != b.Blocked || b.Selected != len(stats) {
		t.Errorf("by %s: %d tokens, %d of them blocked, %d listed; token_stats has %d", b.Definition, b.Selected, b.Blocked,
			len(listed), len(stats))
	}
	for token, row := range stats {
		c := listed[token]
		d := &survey.Definitions()[definition]
		of := d.Of(&row)
		if want := *d.In(&row); c.Sites != want || b.Sites != of {
			t.Errorf("by %s, %s: %d of %d, token_stats has %d of %d", b.Definition, token, c.Sites, b.Sites, want, of)
		}
		if got := lenient[token]; got != row.Lenient {
			t.Errorf("by %s, %s: %d sites name it leniently, token_stats has %d", b.Definition, token, got, row.Lenient)
		}
		if c.Sites > 0 && (c.Named != row.Mention || c.Partial != row.Partial || c.Category != row.Category ||
			c.Operator != row.Operator || c.Purpose != row.Purpose) {
			t.Errorf("by %s: %+v, token_stats has %+v", b.Definition, c, row)
		}
	}
}

// plainBlocking is the plain count of one definition.
type plainBlocking struct {
	tokens              []TokenCount // by registry index, with sites and reasons
	purposes, operators map[string]int64
	atLeastOne          int64
	nearest             TokenCount // sites by the first reason that they have
}

// plainBlockings counts every definition, site by site and token by token. It also
// returns how many sites name a token of the registry, and how many block unnamed agents.
func plainBlockings(sites []*audit.Site) (all []plainBlocking, nameOne, starBlocks int64) {
	registry := tokens.Default().Tokens
	for range survey.DefinitionNames() {
		all = append(all, plainBlocking{tokens: make([]TokenCount, len(registry)), purposes: map[string]int64{},
			operators: map[string]int64{}})
	}
	for _, site := range sites {
		names := false
		purposes, operators := make([]map[string]bool, len(all)), make([]map[string]bool, len(all))
		reasons := make([]TokenCount, len(all))
		for i := range all {
			purposes[i], operators[i] = map[string]bool{}, map[string]bool{}
		}
		for id, c := range surveytest.PlainCells(site) {
			row := surveytest.PlainToken(site, c)
			counted := surveytest.OnlyRules(row)
			names = names || counted.Mention > 0
			for i := range survey.Definitions() {
				if *survey.Definitions()[i].In(&counted) > 0 {
					all[i].tokens[id].count(&row)
					reasons[i].count(&row)
					purposes[i][registry[id].Purpose], operators[i][registry[id].Operator] = true, true
				}
			}
		}
		for i := range all {
			all[i].atLeastOne += survey.One(len(purposes[i]) > 0)
			switch r, n := &reasons[i], &all[i].nearest; {
			case r.ViaOwn > 0:
				n.ViaOwn++
			case r.ViaFallback > 0:
				n.ViaFallback++
			case r.ViaStar > 0:
				n.ViaStar++
			case r.ViaHTTP > 0:
				n.ViaHTTP++
			}
			for p := range purposes[i] {
				all[i].purposes[p]++
			}
			for o := range operators[i] {
				all[i].operators[o]++
			}
		}
		nameOne += survey.One(names)
		starBlocks += survey.One(site.Report.Finding == audit.FindingRules && site.Report.Star == audit.Blocked)
	}
	return all, nameOne, starBlocks
}

// count counts a site that blocks the token, by the reason.
func (c *TokenCount) count(row *schema.TokenStatsRow) {
	c.Sites++
	switch {
	case row.Sites == 0:
		c.ViaHTTP++
	case row.ViaOwn > 0:
		c.ViaOwn++
	case row.ViaFallback > 0:
		c.ViaFallback++
	default:
		c.ViaStar++
	}
}

// agreesWithPlainCount compares a summary with the plain count of its definition.
func agreesWithPlainCount(t *testing.T, b *Blocking, want *plainBlocking) {
	t.Helper()
	if b.AtLeastOne != want.atLeastOne {
		t.Errorf("by %s: %d sites block one, want %d", b.Definition, b.AtLeastOne, want.atLeastOne)
	}
	if n := want.nearest; b.OneByName != n.ViaOwn || b.OneFallback != n.ViaFallback || b.OneByStar != n.ViaStar ||
		b.OneByHTTP != n.ViaHTTP {
		t.Errorf("by %s: at least one by %d, %d, %d, %d, want %+v", b.Definition, b.OneByName, b.OneFallback, b.OneByStar,
			b.OneByHTTP, n)
	}
	for _, c := range b.MostBlocked {
		w := &want.tokens[tokens.Default().Lookup(c.Token)]
		if c.Sites != w.Sites || c.ViaOwn != w.ViaOwn || c.ViaFallback != w.ViaFallback || c.ViaStar != w.ViaStar ||
			c.ViaHTTP != w.ViaHTTP {
			t.Errorf("by %s:\n got %+v\nwant %+v", b.Definition, c, *w)
		}
		if c.Share != float64(c.Sites)/float64(b.Sites) {
			t.Errorf("by %s, %s: a share of %v", b.Definition, c.Token, c.Share)
		}
	}
	sums := func(kind string, got []Sum, want map[string]int64) {
		counted := map[string]int64{}
		for _, sum := range got {
			counted[sum.Value] = sum.Sites
		}
		if !reflect.DeepEqual(counted, want) {
			t.Errorf("by %s, sites by %s:\n got %v\nwant %v", b.Definition, kind, counted, want)
		}
	}
	sums("purpose", b.ByPurpose, want.purposes)
	sums("operator", b.ByOperator, want.operators)
}

// agreesOnSites compares the figures that do not depend on tokens.
func agreesOnSites(t *testing.T, s *Summary, sites []*audit.Site) {
	t.Helper()
	want := Summary{}
	counts := map[string]map[string]int64{"finding": {}, "outcome": {}, "status": {}, "class": {}, "access": {},
		"check": {}}
	scores, sum := make([]int64, 10), 0.0
	for _, site := range sites {
		r := &site.Report
		want.Rows++
		want.BodyBytes += int64(len(site.Fetch.Body))
		counts["outcome"][site.Fetch.Outcome.String()]++
		counts["access"][r.Access.String()]++
		if r.Access != parser.AccessUnknown {
			want.Asked++
			counts["check"][r.Status.String()]++
			scores[min(int(r.Score*10), 9)]++
			sum += r.Score
		}
		if status := strconv.Itoa(site.Fetch.Status); status != "0" {
			want.Answered++
			counts["status"][status]++
			counts["class"][status[:1]+"xx"]++
		}
		counts["finding"][r.Finding.String()]++
		want.Rules += survey.One(r.Finding == audit.FindingRules)
		if r.Access == parser.AccessConditional {
			want.WithFile++
		}
	}
	if s.Rows != want.Rows || s.Asked != want.Asked || s.Answered != want.Answered || s.WithFile != want.WithFile ||
		s.Rules != want.Rules || s.BodyBytes != want.BodyBytes {
		t.Errorf("got %+v\nwant %+v", *s, want)
	}
	if want.Rules == want.WithFile {
		t.Error("each file has rules")
	}
	for name, list := range map[string][]survey.Count{"finding": s.Findings, "outcome": s.Outcomes, "status": s.Statuses,
		"class": s.StatusClasses, "access": s.Access, "check": s.Checks} {
		got := map[string]int64{}
		for _, c := range list {
			got[c.Value] = c.Rows
		}
		if !reflect.DeepEqual(got, counts[name]) {
			t.Errorf("%s: got %v, want %v", name, got, counts[name])
		}
	}
	for i, bin := range s.Scores {
		if bin.Rows != scores[i] {
			t.Errorf("%d scores from %v to %v, want %d", bin.Rows, bin.From, bin.To, scores[i])
		}
	}
	if mean := sum / float64(want.Asked); math.Abs(*s.MeanScore-mean) > 1e-9 {
		t.Errorf("the mean score is %v, want %v", *s.MeanScore, mean)
	}
}

// TestSummaryHostile has rows that bulkscan would not write: invalid values count as none, and a policy must be there.
func TestSummaryHostile(t *testing.T) {
	g := newGatherer(&Summary{}, &survey.Policies{Registry: surveytest.Registry()}, false, Further{})
	for i, score := range []float64{math.NaN(), math.Inf(1), -1, 1.5, 0.25, math.SmallestNonzeroFloat64} {
		g.columns = Columns{
			Outcome: "outcome " + strconv.Itoa(i), Status: int32(math.MinInt32 + i), Access: survey.Conditional, Finding: survey.FindingRules,
			Score: score, TotalMillis: float32(math.Inf(1)),
			Hops: -1, BodyBytes: math.MaxInt64,
		}
		g.row()
	}
	for range 4 {
		g.columns = Columns{Outcome: survey.Other, Access: survey.Conditional, Finding: survey.FindingRules, Score: -1, Hops: 1}
		g.row()
	}
	for i := range 3 * survey.MaxValues { // not asked, and yet with a redirect
		g.columns = Columns{Outcome: strconv.Itoa(i), Access: "unknown", Hops: 1}
		g.row()
	}
	g.finish()
	s := g.s
	if len(s.Outcomes) > survey.MaxValues+1 || s.Outcomes[0].Value != survey.Other {
		t.Errorf("%d outcomes are told apart, the first is %+v", len(s.Outcomes), s.Outcomes[0])
	}
	others := []survey.Count{{Value: survey.Other, Rows: 6}}
	if !reflect.DeepEqual(s.Statuses, others) || !reflect.DeepEqual(s.StatusClasses, others) {
		t.Errorf("statuses %v, classes %v", s.Statuses, s.StatusClasses)
	}
	if s.Redirected != 4 || s.Asked != 10 {
		t.Errorf("%d of %d are redirected, want 4 of 10", s.Redirected, s.Asked)
	}
	if *s.MeanScore != 0.125 || s.Scores[2].Rows != 1 || s.Scores[0].Rows != 1 {
		t.Errorf("mean score %v, scores %v", *s.MeanScore, s.Scores)
	}
	if _, err := g.blocks.blocking(g.policies, &survey.Definitions()[0], survey.Selection{}, s, 0); err == nil ||
		!strings.Contains(err.Error(), "10 sites have a file, and no policy") {
		t.Errorf("without policies: %v", err)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// TestSummaryOfNothing summarizes a scan without rows: shares and means are nil or 0.
func TestSummaryOfNothing(t *testing.T) {
	dir, err := store.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "hand", Registry: surveytest.Registry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := summaryBy(t, dir, "", survey.Selection{}, 0)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if s.MeanScore != nil || s.MedianMillis != nil || s.P99Millis != nil || s.FinishedAt != nil || s.ListRead == nil ||
		*s.ListRead != 0 || s.Complete() {
		t.Errorf("%s", text)
	}
	for _, list := range []string{`"outcomes":[]`, `"most_blocked":[]`, `"by_purpose":[]`, `"other_scans":[]`,
		`"mean_score":null`} {
		if !bytes.Contains(text, []byte(list)) {
			t.Errorf("no %s in %s", list, text)
		}
	}
}

// TestSummaryOfRunning checks how far a summary of an incomplete scan says that the list was read.
func TestSummaryOfRunning(t *testing.T) {
	sites := surveytest.Judged(t, surveytest.Bodies(40))
	st := surveytest.Written(t, slices.DeleteFunc(sites, func(s *audit.Site) bool { return s.Seq%3 == 1 }), surveytest.Cut{Rows: 7, Shards: 2})
	s, err := Of(t.Context(), st, "cut", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Complete() || s.ListRead == nil || *s.ListRead != 40 || s.Rows != 27 {
		t.Errorf("state %s, %v lines of the list, %d rows; want 40 and 27", s.State, s.ListRead, s.Rows)
	}
	if s = summaryBy(t, surveytest.Dataset(t), "", survey.Selection{}, 0); !s.Complete() || s.ListRead != nil {
		t.Errorf("state %s, %v lines", s.State, s.ListRead)
	}
}

// TestSummaryWithout checks the errors for scans that lack a table.
func TestSummaryWithout(t *testing.T) {
	f := func(definition, want string, tables ...string) {
		t.Helper()
		dir, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "x", Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = Of(t.Context(), dir, "x", Options{Definition: definition})
		if want == "" && err != nil || want != "" && (!errors.Is(err, commit.ErrNoTable) || !strings.Contains(err.Error(),
			want)) {
			t.Errorf("%s with %v: %v, want %q", definition, tables, err, want)
		}
	}
	f("full", "", "sites")
	f("rfc_effective", "", "sites")
	f("dpi_all", "", "sites")
	f("full", "table sites", "verdicts")
}

// TestSummaryOnlyReads checks that a summary takes no lock and writes nothing, so that it works on a read-only dataset
// and a running scan, and that it does not use the statistics, which may be outdated.
func TestSummaryOnlyReads(t *testing.T) {
	watched := &storetest.Faults{Store: surveytest.Dataset(t)}
	for _, definition := range survey.DefinitionNames() {
		summaryBy(t, watched, definition, survey.Selection{}, 0)
	}
	if steps := watched.Steps(); len(steps) > 0 {
		t.Errorf("%v", steps)
	}
}

// golden compares got with a file, which -update writes.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not up to date; now:\n%s", path, got)
	}
}
