package survey

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/reaudit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// registry is small enough to count by hand: an AI token, one with a fallback, and one that ignores `*`.
func registry() *tokens.Registry {
	return registryOf("test", []tokens.Token{
		{Name: "GPTBot", Category: "ai", Operator: "OpenAI", Purpose: "training", HeedsStar: true},
		{Name: "Googlebot", Category: "search", Operator: "Google", Purpose: "search", HeedsStar: true},
		{Name: "Googlebot-News", Category: "search", Operator: "Google", Purpose: "search", HeedsStar: true,
			Fallback: []string{"Googlebot"}},
		{Name: "AdsBot-Google", Category: "search", Operator: "Google", Purpose: "ads", HeedsStar: false},
	})
}

func registryOf(version string, rows []tokens.Token) *tokens.Registry {
	r, err := tokens.New(version, rows)
	if err != nil {
		panic(err)
	}
	return r
}

const (
	gpt = iota
	google
	news
	ads
)

// verdict is a row of verdicts in short.
func verdict(token string, id int, via audit.Via, d audit.Decision, root bool, dpi audit.DPI) audit.Verdict {
	return audit.Verdict{Token: []byte(token), ID: id, Via: via, Decision: d, RootAllowed: root, DPI: dpi}
}

// lenient is a row of verdicts that only the lenient reading found.
func lenient(token string, id int) audit.Verdict {
	v := verdict(token, id, audit.ViaOwn, audit.Blocked, false, audit.DPIAll)
	v.Lenient = true
	return v
}

// policyOf returns the policy of such verdicts.
func policyOf(r *audit.Report) (p audit.Policy) {
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		cell := siterows.CellOf(v.Decision.String(), v.Via.String(), !v.RootAllowed, v.DPI == audit.DPIAll)
		switch {
		case string(v.Token) == "*":
			p.Star = cell
		case v.ID >= 0 && v.Via == audit.ViaOwn && !v.Lenient:
			p.Named = append(p.Named, audit.NamedCell{Token: uint16(v.ID), Cell: cell})
		}
	}
	audit.New(registry()).Identify(&p)
	return p
}

// dataset writes nine sites that were judged by hand:
//
//	seq rank   host       label  answer
//	0   1      a.com      x      200: GPTBot own, blocked, / denied, dpi all; no *
//	1   500    b.com      x      200: * blocked, dpi all; no token named
//	2   5000   c.org             200: * partial, dpi some; GPTBot own allowed, and leniently too; Googlebot own partial, so News by
//	                             fallback, which is named leniently
//	3   1001   d.org      y      200: mybot own blocked, / denied, dpi all; * allowed, dpi none; GPTBot named leniently only
//	4   -      e.com             404
//	5   20000  f.com             503
//	6   7      g.org             time-out
//	7   8      h.com             opted out
//	8   9      i.com             503 and yet rules, as no scan writes it: * blocked, dpi all; MyBot2 own allowed
func dataset(tb testing.TB) store.Store {
	tb.Helper()
	dir, err := store.NewDir(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	w, err := sink.Open(context.Background(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21", Registry: registry(),
		ToolVersion: "1.2.3", PartRows: 4})
	if err != nil {
		tb.Fatal(err)
	}
	seq := uint64(0)
	add := func(host, label string, rank int64, status int, outcome exchange.Outcome, access parser.Access,
		fill func(r *audit.Report)) {
		o, err := origin.Parse(host)
		if err != nil {
			tb.Fatal(err)
		}
		s := &audit.Site{Seq: seq, Input: host, Label: label, Rank: rank, Origin: o, Domain: o.RegistrableDomain(),
			TLD: o.TLD()}
		s.Fetch = exchange.Response{Outcome: outcome, Status: status, Answered: o.As(origin.HTTPS), Attempts: 1}
		if status != 0 {
			s.Fetch.Timing.Total = time.Duration(seq+1) * 10 * time.Millisecond
		}
		s.Report.Access = access
		if access == parser.AccessConditional {
			s.Report.Finding = audit.FindingRules
		}
		s.Report.Status, s.Report.Score = audit.Fail, 0
		if status == 200 {
			s.Report.Status, s.Report.Score = audit.Pass, 1
			s.Fetch.Body = make([]byte, 1000)
		}
		if fill != nil {
			fill(&s.Report)
		} else if access == parser.AccessFullAllow {
			s.Report.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaHTTP, audit.Allowed, true, audit.DPINone)}
		} else if access == parser.AccessFullDisallow {
			s.Report.Star = audit.Blocked
			s.Report.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaHTTP, audit.Blocked, false, audit.DPINone)}
		}
		if access == parser.AccessConditional {
			s.Report.Policy = policyOf(&s.Report)
		}
		if err := w.Add(s); err != nil {
			tb.Fatal(err)
		}
		seq++
	}
	conditional := parser.AccessConditional
	add("a.com", "x", 1, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Named, r.Blocked = []uint16{gpt}, []uint16{gpt}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaNone, audit.Allowed, true, audit.DPINone),
			verdict("GPTBot", gpt, audit.ViaOwn, audit.Blocked, false, audit.DPIAll),
		}
		r.Evidence = []audit.Evidence{
			{Line: 1, Kind: audit.KindUnknown, Key: []byte("Foo")}, {Line: 2, Kind: audit.KindUnknown, Key: []byte("foo")},
			{Line: 3, Kind: audit.KindSitemap, Key: []byte("sitemap")}, {Line: 4, Kind: audit.KindLegacy,
				Key: []byte("noindex")},
			{Line: 5, Kind: audit.KindInvalid, Key: []byte("Crawl-Delay"), Value: []byte("ten")},
			{Line: 6, Kind: audit.KindInvalid, Value: []byte("no record")},
		}
	})
	add("b.com", "x", 500, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Blocked = audit.Blocked, []uint16{gpt, google, news}
		r.Verdicts = []audit.Verdict{verdict("*", -1, audit.ViaStar, audit.Blocked, false, audit.DPIAll)}
		r.Evidence = []audit.Evidence{{Line: 1, Kind: audit.KindUnknown, Key: []byte("FOO")},
			{Line: 2, Kind: audit.KindExtension, Key: []byte("crawl-delay")}, {Line: 3, Kind: audit.KindTypo,
				Key: []byte("Dissallow")}}
	})
	add("c.org", "", 5000, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Named, r.Partial = audit.Partial, []uint16{gpt, google}, []uint16{google, news}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Partial, true, audit.DPISome),
			verdict("GPTBot", gpt, audit.ViaOwn, audit.Allowed, true, audit.DPINone),
			verdict("Googlebot", google, audit.ViaOwn, audit.Partial, false, audit.DPISome),
			verdict("Googlebot-News", news, audit.ViaFallback, audit.Partial, false, audit.DPISome),
			lenient("GPTBot", gpt), lenient("Googlebot-News", news),
		}
	})
	add("d.org", "y", 1001, 200, exchange.Answered, conditional, func(r *audit.Report) {
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Allowed, true, audit.DPINone),
			verdict("mybot", -1, audit.ViaOwn, audit.Blocked, false, audit.DPIAll),
			lenient("GPTBot", gpt),
		}
	})
	add("e.com", "", 0, 404, exchange.Answered, parser.AccessFullAllow, nil)
	add("f.com", "", 20000, 503, exchange.Answered, parser.AccessFullDisallow, nil)
	add("g.org", "", 7, 0, exchange.Timeout, parser.AccessFullDisallow, nil)
	add("h.com", "", 8, 0, exchange.OptedOut, parser.AccessUnknown, func(*audit.Report) {})
	add("i.com", "", 9, 503, exchange.Answered, conditional, func(r *audit.Report) {
		r.Star, r.Blocked = audit.Blocked, []uint16{gpt, google, news}
		r.Verdicts = []audit.Verdict{
			verdict("*", -1, audit.ViaStar, audit.Blocked, false, audit.DPIAll),
			verdict("mybot2", -1, audit.ViaOwn, audit.Allowed, true, audit.DPINone),
		}
	})
	if err := w.Complete(context.Background()); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func stats[T any](t *testing.T, st store.Store, table string, limit int) []T {
	t.Helper()
	return statsOf[T](t, st, table, Options{Registry: registry(), ToolVersion: "1.2.3", limit: limit})
}

// statsOf computes the statistics of the scan `hand` and returns the rows of a table.
func statsOf[T any](t *testing.T, st store.Store, tableName string, o Options) []T {
	t.Helper()
	if err := Stats(t.Context(), st, "hand", o); err != nil {
		t.Fatal(err)
	}
	var rows []T
	for row, err := range table.FileRows[T](t.Context(), st, commit.StatsName(tableName, "2026-11-21", "hand")) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
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
		w, err := sink.Open(t.Context(), dir, sink.Options{ScanID: "hand", Date: "2026-11-21", Registry: registry(),
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
		for _, row := range statsOf[schema.TokenStatsRow](t, dir, schema.TokenStats, Options{Registry: registry(),
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
	st := dataset(t)
	other := registryOf("other", append(registry().Tokens[google:],
		// `*` blocks it on two sites, but no row says so
		tokens.Token{Name: "NewBot", Category: "ai", Operator: "Newcomer", HeedsStar: true},
		// a site names it: the scan took it for an unknown agent
		tokens.Token{Name: "MyBot", Category: "ai", HeedsStar: true},
	))
	var log bytes.Buffer
	got := []string{}
	for _, r := range statsOf[schema.TokenStatsRow](t, st, schema.TokenStats,
		Options{Registry: other, Log: logger(&log)}) {
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
	s, err := Summarize(t.Context(), st, "hand", SummaryOptions{Options: Options{Registry: other, Log: logger(&log)},
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
		s, err := Summarize(t.Context(), st, "hand", SummaryOptions{Options: Options{Registry: other, Log: logger(&log)},
			Definition: "dpi_all", Selection: Selection{Operator: operator}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Blocking.ByPurpose {
			s.Blocking.ByPurpose[i].Certainty = Certainty{}
		}
		if got := fmt.Sprintf("%d block one of %d: %v", s.Blocking.AtLeastOne, s.Blocking.Selected,
			s.Blocking.ByPurpose); got != want || s.Rows != 9 {
			t.Errorf("%q: %s of %d rows, want %s of 9", operator, got, s.Rows, want)
		}
		warned("missing among those that are counted")
	}
	if _, err := Summarize(t.Context(), st, "hand",
		SummaryOptions{Options: Options{Registry: registry(), Log: logger(&log)}}); err != nil || log.Len() > 0 {
		t.Errorf("%v\n%s", err, &log)
	}
}

// TestTokenStats compares every count with one by hand from the table above.
func TestTokenStats(t *testing.T) {
	st := dataset(t)
	rows := map[string]schema.TokenStatsRow{}
	all := stats[schema.TokenStatsRow](t, st, schema.TokenStats, 0)
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
	st := dataset(t)
	byText := func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	tokenRows := func(limit int) []schema.TokenStatsRow {
		rows := stats[schema.TokenStatsRow](t, st, schema.TokenStats, limit)
		slices.SortFunc(rows, func(a, b schema.TokenStatsRow) int { return byText(a, b) })
		return rows
	}
	recordRows := func(limit int) []schema.RecordStatsRow {
		rows := stats[schema.RecordStatsRow](t, st, schema.RecordStats, limit)
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
		if got := rankLimit(rankBucket(rank)); got != want {
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
		if err := Stats(t.Context(), dir, "x", Options{}); err != nil {
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

func TestHistogram(t *testing.T) {
	var h histogram
	for i := 1; i <= 10_000; i++ {
		h.add(float64(i) / 10)
	}
	h.add(0) // not measured
	f := func(q, want float64) {
		t.Helper()
		if got := h.quantile(q); got < want*0.98 || got > want*1.02 {
			t.Errorf("quantile %v is %v, want %v within 2 %%", q, got, want)
		}
	}
	f(0.5, 500)
	f(0.99, 990)
	f(0.001, 1)
	f(1, 1000)
	if (&histogram{}).quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
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
			Options{Registry: other, Log: logger(&log)}) {
			row = row || r.Token == "NewBot" && r.SegmentKind == "all" && r.Full == 3
			if r.Token == "NewBot" && !wantRow {
				t.Errorf("%v: %+v", tables, r)
			}
		}
		if row != wantRow || strings.Contains(log.String(), "sites keep the judgement of another token registry") == wantRow {
			t.Errorf("%v: a row of the new token: %v, warned\n%s", tables, row, &log)
		}
		s, err := Summarize(t.Context(), to, "hand", SummaryOptions{Options: Options{Registry: other, Log: logger(&log)},
			Definition: "any"})
		if err != nil {
			t.Fatal(err)
		}
		if named := slices.ContainsFunc(s.Blocking.MostBlocked,
			func(c TokenCount) bool { return c.Token == "NewBot" }); named && !wantRow {
			t.Errorf("%v: the summary has the new token", tables)
		}
	}
	f([]string{schema.Sites, schema.Verdicts, schema.Bodies}, true)
	f([]string{schema.Sites, schema.Verdicts}, false)
}
