package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/integration/queries"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/simweb/demo"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

const demoDate = "2026-11-21"

// demoDataset writes the results of `bulkscan demo` without flags, except times and response fields. It makes no
// requests, since these would take half a minute: the web computes how a scan of each host ends, and TestDemoIsTrue
// compares that with a scan.
func demoDataset(t *testing.T) (dir string) {
	t.Helper()
	origins, err := (&app{}).demoCommand().Flags().GetInt("origins")
	dir = t.TempDir()
	st, err2 := store.NewDir(dir)
	web, err3 := simweb.Start(t.Context(), simweb.Config{Seed: demoSeed(t)})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: demo.Scan, Date: demoDate, PartAge: time.Hour,
		Tables: []string{schema.Sites, schema.Verdicts}})
	if err != nil {
		t.Fatal(err)
	}
	auditor, row := audit.New(tokens.Default()), &audit.Site{}
	for rank, host := range web.Names(origins) {
		o, err := origin.Parse(host)
		if err != nil {
			t.Fatal(err)
		}
		e := web.Expect(o, demo.Policy())
		row.Reset()
		row.Seq, row.Input, row.Rank, row.Origin = uint64(rank-1), host, int64(rank), o
		row.Domain, row.ICANN, row.TLD = o.RegistrableDomain(), o.ICANNDomain(), o.TLD()
		f := &row.Fetch
		f.Outcome, f.Status, f.Answered, f.Body, f.Truncated, f.Attempts = e.Outcomes[0], e.Status, e.Answered, e.Body,
			e.Truncated, 1
		f.Final.Origin = e.Answered
		if e.Finding == "challenged" {
			f.Fields.Challenge = "cloudflare"
		}
		auditor.Judge(row)
		if row.Report.Finding.String() != e.Finding || row.Report.Access.String() != e.Access {
			t.Errorf("%s (%s) is judged %v, %v; want %s, %s", host, e.Behaviour, row.Report.Finding, row.Report.Access,
				e.Finding, e.Access)
		}
		if err := w.Add(row); err != nil {
			t.Fatal(err)
		}
		f.Body = nil // the web's
	}
	if err := errors.Join(w.Flush(t.Context()), stats.Write(t.Context(), st, demo.Scan, survey.Options{}),
		w.Complete(t.Context()), w.Close(t.Context()), index.Update(t.Context(), st),
		views.Write(t.Context(), st, nil)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demoSeed is the web of a demo without flags.
func demoSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := (&app{}).demoCommand().Flags().GetUint64("seed")
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// share is a row of the view token_shares.
type share struct {
	token, definition string
	blocking, of      int64
}

func (s share) percent() string { return fmt.Sprintf("%.1f", 100*float64(s.blocking)/float64(s.of)) }

// demoShares are the rows of token_shares about AI tokens and all sites, the largest shares first.
func demoShares(t *testing.T, dir string) (all []share) {
	t.Helper()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range table.FileRows[schema.TokenStatsRow](t.Context(), st, commit.StatsName(schema.TokenStats,
		demoDate, demo.Scan)) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Category != "ai" || row.SegmentKind != "all" {
			continue
		}
		all = append(all,
			share{row.Token, "mention", row.Mention, row.SitesRules},
			share{row.Token, "explicit_root", row.ExplicitRoot, row.SitesRules},
			share{row.Token, "full", row.Full, row.SitesRules},
			share{row.Token, "any", row.Any, row.SitesRules},
			share{row.Token, "dpi_all", row.DPIAll, row.SitesRules},
			share{row.Token, "rfc_effective", row.RFCEffective, row.SitesAnswered})
	}
	slices.SortFunc(all, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.blocking*a.of, a.blocking*b.of), strings.Compare(a.token, b.token),
			strings.Compare(b.definition, a.definition))
	})
	return all
}

// definitionTable is the table about GPTBot in docs/cookbook.md.
func definitionTable(shares []share) string {
	var b strings.Builder
	for _, s := range slices.Backward(shares) {
		if s.token == "GPTBot" {
			fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", s.definition, s.blocking, s.of, s.percent())
		}
	}
	return b.String()
}

const shownBars = 3

// barTable is the table of the most blocked tokens there, with bars as DuckDB's bar(share, 0, 0.2, 40) draws them.
func barTable(shares []share) string {
	var b strings.Builder
	left := shownBars
	for _, s := range shares {
		if s.definition == "full" && left > 0 {
			left--
			eighths := int(math.Min(float64(s.blocking)/float64(s.of)/0.2, 1) * 40 * 8)
			bar := strings.Repeat("█", eighths/8) + []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
			fmt.Fprintf(&b, "%-19s %s  %s\n", s.token, s.percent(), bar)
		}
	}
	return b.String()
}

// TestCookbookInDuckDB compares the figures of the cookbook, which TestFigures computes, with DuckDB's answers to the
// SQL above them.
func TestCookbookInDuckDB(t *testing.T) {
	notShort(t)
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: a few hosts of the simulated web end otherwise here")
	}
	tools := duckDB(t)
	dir := demoDataset(t)
	var asked []queries.Query
	for _, block := range fenced.FindAllStringSubmatch(documents(t)["../../docs/cookbook.md"], -1) {
		if block[1] == "sql" && (strings.Contains(block[2], "token = 'GPTBot'") || strings.Contains(block[2], "bar(")) {
			asked = append(asked, queries.Query{SQL: block[2]})
		}
	}
	answers, err := queries.Ask(t.Context(), tools, dir, asked, 2, 1)
	if err != nil || len(answers) != 2 || answers[0].Error+answers[1].Error != "" {
		t.Fatalf("%v, %v", answers, err)
	}
	shares := demoShares(t, dir)
	var definitions, bars strings.Builder
	for _, row := range answers[0].Rows {
		fmt.Fprintf(&definitions, "| %v | %v | %v | %s |\n", row[0], row[1], row[2], oneDigit(row[3]))
	}
	for _, row := range answers[1].Rows[:shownBars] {
		fmt.Fprintf(&bars, "%-19v %s  %s\n", row[0], oneDigit(row[1]), strings.TrimRight(row[2].(string), " "))
	}
	if got, want := definitions.String()+bars.String(), definitionTable(shares)+barTable(shares); got != want {
		t.Errorf("DuckDB answers\n%s\nwant\n%s", got, want)
	}
}

// oneDigit is a number of DuckDB with a digit behind its point.
func oneDigit(v any) string {
	if text := fmt.Sprint(v); strings.Contains(text, ".") {
		return text
	}
	return fmt.Sprint(v) + ".0"
}

// duckDB is the folder with DuckDB. Without it the test is skipped, or fails if the environment says so.
func duckDB(t *testing.T) (tools string) {
	t.Helper()
	tools, err := filepath.Abs("../../internal/integration/duckdb")
	if err != nil {
		t.Fatal(err)
	}
	if err := queries.Ready(tools); err != nil {
		if os.Getenv("BULKSCAN_TEST_DUCKDB") == "required" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED: %v", err)
	}
	return tools
}
