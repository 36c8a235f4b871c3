package queries

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

var update = flag.Bool("update", false, "write testdata and docs/queries/README.md")

const (
	folder = "../../../docs/queries"
	tools  = "../duckdb"
)

// dates are those of three scans. The first two are months apart, the last two one month.
var dates = []string{"2025-12-31", "2026-10-21", "2026-11-21"}

// needDuckDB skips the test if DuckDB is not installed, or fails it if DuckDB is required.
func needDuckDB(t *testing.T) {
	t.Helper()
	switch err := Ready(tools); {
	case err != nil && os.Getenv("BULKSCAN_TEST_DUCKDB") == "required":
		t.Fatal(err)
	case err != nil:
		t.Skipf("SKIPPED: %v", err)
	case testing.Short():
		t.Skip("SKIPPED: it waits for DuckDB, which -short leaves out")
	}
}

func statistics(ctx context.Context, st store.Store, id string) error {
	return stats.Write(ctx, st, id, survey.Options{})
}

// write writes the survey into a new dataset.
func write(t *testing.T, s Survey) (dir string, st store.Store) {
	t.Helper()
	dir = t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Statistics = statistics
	if err := s.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	return dir, st
}

// TestAnswersOfMadeFiles checks the answers to every query on generated files.
func TestAnswersOfMadeFiles(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 2500, Dates: dates, Parts: 800})
	compareDataset(t, "made", dir, st)
}

// TestAnswersOfRealFiles checks them on files of real sites.
func TestAnswersOfRealFiles(t *testing.T) {
	bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:2000],
		sharedtest.Bodies(t, "mix12k")[:100])
	needDuckDB(t)
	rand.New(rand.NewPCG(2, 9309)).Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	dir, st := write(t, Survey{Sites: 3000, Dates: dates, Bodies: bodies})
	compareDataset(t, "real", dir, st)
}

// TestSeveralScansOfADate checks that scans of one date are counted together, and a site of both once where sites are
// followed over dates. A scan without statistics must not reduce the counts of the other.
func TestSeveralScansOfADate(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 1500, Dates: dates})
	second := Survey{Name: "second", Sites: 1100, After: time.Hour, Dates: dates[1:],
		Bodies: [][]byte{[]byte("User-agent: only-here\nDisallow: /\n")}, Statistics: func(context.Context, store.Store,
			string) error {
			return nil
		}}
	if err := second.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	only := slices.DeleteFunc(load(t), func(q Query) bool { return q.Name != "explicit-or-star" })
	goldenAnswers(t, "one-of-two", ask(t, dir, only))
	for _, date := range second.Dates {
		if err := stats.Write(t.Context(), st, "second-"+date, survey.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	compareDataset(t, "several", dir, st)
}

// TestTwoObservers checks that the views have the scans of one observer: by default the observer of the newest date,
// among several the one that committed last.
func TestTwoObservers(t *testing.T) {
	needDuckDB(t)
	here := commit.Observer{Source: commit.Live, Product: "bulkscan", Vantage: "o'hare"}
	dir, st := write(t, Survey{Name: "here", Sites: 300, Dates: dates, Observer: here})
	there := Survey{Name: "there", Sites: 200, Dates: dates[1:2],
		Bodies: [][]byte{[]byte("User-agent: GPTBot\nDisallow: /\n")}, Observer: commit.Observer{Source: commit.Archive}}
	there.Statistics = statistics
	if err := there.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	const counts = `SELECT (SELECT count(*) FROM sites) AS sites, (SELECT count(DISTINCT scan_date) FROM verdicts) AS dates,
		(SELECT CAST(sum(sites_all) AS BIGINT) FROM token_stats WHERE token = 'GPTBot' AND segment_kind = 'all') AS counted, (SELECT string_agg(DISTINCT observer) FROM scans WHERE chosen) AS chosen,
		(SELECT count(*) FROM scans) AS scans`
	all := ask(t, dir, []Query{
		{Name: "default", SQL: counts},
		{Name: "chosen", SQL: "SET VARIABLE bulkscan_observer = (SELECT observer FROM scans WHERE scan_id = 'there-" +
			dates[1] + "'); " + counts},
		{Name: "all", SQL: "RESET VARIABLE bulkscan_observer; " + strings.Replace(counts, "string_agg(DISTINCT observer)",
			"count(DISTINCT observer)", 1)},
	})
	compareAnswers(t, all[0], [][]any{{int64(900), int64(3), int64(900), here.String(), int64(4)}})
	compareAnswers(t, all[1], [][]any{{int64(200), int64(1), int64(200), "archive", int64(4)}})
	compareAnswers(t, all[2], [][]any{{int64(1100), int64(3), int64(1100), int64(2), int64(4)}})
}

// views are asked in addition to the queries, which use some of them for one token only.
var views = []Query{
	{Name: "tokens", SQL: "SELECT * REPLACE (array_to_string(fallback, ' ') AS fallback) FROM tokens ORDER BY token"},
	{Name: "site_tokens", SQL: `SELECT token, scan_date, count(*), count(*) FILTER (rules), count(*) FILTER (answered), count(*) FILTER (partial),
		count(*) FILTER ("any"), count(*) FILTER (dpi_all), count(*) FILTER (explicit_root), count(*) FILTER ("full"), count(*) FILTER (mention), count(*) FILTER (rfc_effective)
		FROM site_tokens GROUP BY token, scan_date ORDER BY token, scan_date`},
	{Name: "site_blocks",
		SQL: "SELECT token, category, operator, purpose, via, count(*) FROM site_blocks WHERE scan_date = latest() GROUP BY ALL ORDER BY token, via"},
	{Name: "rollups",
		SQL: "SELECT value, sum(sites) FILTER (verdict = 'blocked') FROM rollups WHERE kind = 'category' AND scan_date = latest() GROUP BY value ORDER BY value"},
	{Name: "scans", SQL: "SELECT scan_date, CAST(sum(sites) AS BIGINT) FROM scans GROUP BY ALL ORDER BY scan_date"},
}

// compareDataset compares the answers to all queries and views with golden files, the counts of the views with
// token_stats, and domains with a plain count.
func compareDataset(t *testing.T, name, dir string, st store.Store) {
	t.Helper()
	withHistory(t, st)
	queries := ask(t, dir, load(t))
	goldenColumns(t, queries)
	goldenAnswers(t, name, slices.Concat(queries, ask(t, dir, views)))
	compareAnswers(t, byName(queries)["domains"], plainDomains(t, st))
	counted := ask(t, dir, []Query{{SQL: `SELECT count(*) > 1000, count(*) FILTER (c.blocking IS DISTINCT FROM s.blocking) FROM token_shares AS s
		LEFT JOIN (UNPIVOT (SELECT scan_date, token, count(*) FILTER (mention) AS mention, count(*) FILTER (explicit_root) AS explicit_root, count(*) FILTER ("full") AS "full",
			count(*) FILTER ("any") AS "any", count(*) FILTER (dpi_all) AS dpi_all, count(*) FILTER (rfc_effective) AS rfc_effective FROM site_tokens GROUP BY ALL)
			ON COLUMNS(* EXCLUDE (scan_date, token)) INTO NAME definition VALUE blocking) AS c USING (scan_date, token, definition) WHERE known AND segment_kind = 'all'`}})
	compareAnswers(t, counted[0], [][]any{{true, int64(0)}})
}

// plainDomains answers the query domains in plain loops over the rows of the newest date.
func plainDomains(t *testing.T, st store.Store) [][]any {
	t.Helper()
	manifests, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	counting := map[string]*schema.SiteRow{} // of a site in several scans the last observation, else the last failure
	for _, m := range manifests {
		if m.ScanDate != dates[len(dates)-1] {
			continue
		}
		scan, err := commit.ReadScan(t.Context(), st, m.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range read.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
			if err != nil {
				t.Fatal(err)
			}
			s, k := *row, fmt.Sprint(row.Host, " ", row.Port, row.Requested)
			if was := counting[k]; was == nil || seen(&s) && !seen(was) || seen(&s) == seen(was) && s.FetchedAt > was.FetchedAt {
				counting[k] = &s
			}
		}
	}
	domains := map[string][]*schema.SiteRow{}
	for _, s := range counting {
		domain := cmp.Or(s.Domain, s.Host)
		domains[domain] = append(domains[domain], s)
	}
	var blocking, of, several, disagree int64
	for domain, sites := range domains {
		best, policies := sites[0], map[string]bool{}
		place := func(s *schema.SiteRow) int {
			return slices.Index([]string{domain, "www." + domain, s.Host}, s.Host)
		}
		for _, s := range sites {
			if cmp.Or(cmp.Compare(place(s), place(best)), cmp.Compare(cmp.Or(s.Rank, 1<<62), cmp.Or(best.Rank, 1<<62)),
				cmp.Compare(s.Host, best.Host), cmp.Compare(s.Seq, best.Seq)) < 0 {
				best = s
			}
			if s.Finding == "rules" {
				policies[fmt.Sprint(s.StarVerdict, s.Blocked, s.Partial)] = true
			}
		}
		if best.Finding == "rules" {
			of++
			if slices.Contains(best.Blocked, "GPTBot") {
				blocking++
			}
		}
		if len(sites) > 1 {
			several++
		}
		if len(policies) > 1 {
			disagree++
		}
	}
	return [][]any{{"GPTBot", blocking, of, float64(blocking) / float64(of), int64(len(domains)), several, disagree}}
}

func seen(s *schema.SiteRow) bool {
	return slices.Contains([]string{"rules", "no_rules", "html", "none", "refused"}, s.Finding)
}

// ask runs queries, none of which may fail.
func ask(t *testing.T, dir string, all []Query) []Answer {
	t.Helper()
	answers, err := Ask(t.Context(), tools, dir, all, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Error != "" {
			t.Fatalf("%s: %s", a.Name, a.Error)
		}
	}
	return answers
}

// compareAnswers compares the rows of an answer with counted rows, in order.
func compareAnswers(t *testing.T, a Answer, want [][]any) {
	t.Helper()
	if len(a.Rows) != len(want) || len(want) == 0 {
		t.Errorf("%s: %d rows, counted are %d", a.Name, len(a.Rows), len(want))
		return
	}
	for i := range want {
		if !slices.EqualFunc(a.Rows[i], want[i], equal) {
			t.Errorf("%s, row %d:\n got %v\nwant %v", a.Name, i, a.Rows[i], want[i])
			return
		}
	}
}

// equal reports whether a value in DuckDB's JSON is the counted one. Quotients may differ in the last digits.
func equal(got, want any) bool {
	text := fmt.Sprint(got)
	switch want := want.(type) {
	case string:
		return text == want
	case int64:
		return text == strconv.FormatInt(want, 10)
	case float64:
		n, err := strconv.ParseFloat(text, 64)
		return err == nil && math.Abs(n-want) <= 1e-12*max(1, math.Abs(want))
	}
	return got == want
}

// goldenColumns compares the names and types of all columns with a file: notebooks depend on them.
func goldenColumns(t *testing.T, answers []Answer) {
	t.Helper()
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "%s\n", a.Name)
		for i, name := range a.Columns {
			fmt.Fprintf(&b, "\t%s %s\n", name, a.Types[i])
		}
	}
	golden(t, "testdata/columns.txt", b.String())
}

// goldenAnswers compares answers with testdata/NAME.golden. The file has the number of rows of each answer, the first
// ones, and a hash of all. No column may be empty throughout: such an answer would be right by accident.
func goldenAnswers(t *testing.T, name string, answers []Answer) {
	t.Helper()
	const shown = 8
	var b strings.Builder
	for _, a := range answers {
		hash := sha256.New()
		rows := make([]string, len(a.Rows))
		for i, row := range a.Rows {
			rows[i] = line(t, row)
			fmt.Fprintln(hash, rows[i])
		}
		fmt.Fprintf(&b, "%s: %d rows, %x\n", a.Name, len(rows), hash.Sum(nil)[:8])
		for _, row := range rows[:min(shown, len(rows))] {
			fmt.Fprintf(&b, "\t%s\n", row)
		}
		for i, column := range a.Columns {
			if !slices.ContainsFunc(a.Rows, func(row []any) bool { return !empty(row[i]) }) {
				t.Errorf("%s: the column %s is empty in every row", a.Name, column)
			}
		}
	}
	golden(t, "testdata/"+name+".golden", b.String())
}

// line writes a row as JSON. Fractions have 6 significant digits: processors differ in the last digits of math.Exp.
func line(t *testing.T, row []any) string {
	t.Helper()
	row = slices.Clone(row)
	for i, value := range row {
		if number, ok := value.(json.Number); ok && strings.ContainsAny(number.String(), ".e") {
			f, err := number.Float64()
			if err != nil {
				t.Fatal(err)
			}
			row[i] = json.Number(strconv.FormatFloat(f, 'g', 6, 64))
		}
	}
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// empty reports whether a value is null, zero or the empty string.
func empty(value any) bool {
	switch fmt.Sprint(value) {
	case "<nil>", "", "0", "false":
		return true
	}
	return false
}

func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text == string(want) {
		return
	}
	got, wanted := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Errorf("%s, line %d (-update writes the file):\n got %s\nwant %s", path, i+1, got[i], wanted[i])
			return
		}
	}
	t.Errorf("%s has %d lines, not %d (-update writes the file)", path, len(wanted), len(got))
}

func load(t *testing.T) []Query {
	t.Helper()
	all, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestQueriesAreShort bounds the length of each query, and checks that each is over a population.
func TestQueriesAreShort(t *testing.T) {
	for _, q := range slices.Concat(load(t), views) {
		if lines := strings.Count(q.SQL, "\n"); lines > 24 {
			t.Errorf("%s has %d lines", q.Name, lines)
		}
		if _, err := q.Clauses(); err != nil && q.Over != "" {
			t.Error(err)
		}
	}
}

// TestCookbook runs all SQL of README.md, docs/first-survey.md and docs/cookbook.md, in order, in a folder of its own,
// since it writes files.
func TestCookbook(t *testing.T) {
	needDuckDB(t)
	dir, _ := write(t, Survey{Sites: 500, Dates: dates[1:]})
	var page string
	for _, name := range []string{"README.md", "docs/first-survey.md", "docs/cookbook.md"} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		page += string(text)
	}
	var blocks []Query
	for i, block := range strings.Split(page, "\n```sql\n")[1:] {
		text, _, closed := strings.Cut(block, "\n```\n")
		if !closed {
			t.Fatalf("block %d has no end", i)
		}
		blocks = append(blocks, Query{Name: strconv.Itoa(i), SQL: text})
	}
	if len(blocks) < 5 {
		t.Fatalf("%d blocks of SQL", len(blocks))
	}
	programs, err := filepath.Abs(tools)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Symlink(dir, "bulkscan-demo"); err != nil { // as README.md names it
		t.Fatal(err)
	}
	answers, err := Ask(t.Context(), programs, dir, blocks, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Error != "" || len(a.Rows) == 0 {
			t.Errorf("%s\n%d rows, %s", blocks[i].SQL, len(a.Rows), a.Error)
		}
	}
	for _, name := range []string{"shares.csv", "operators.parquet"} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCookbookPrograms runs each SQL text within the Python and R of docs/cookbook.md: the text between their quotes,
// over several lines.
func TestCookbookPrograms(t *testing.T) {
	needDuckDB(t)
	dir, _ := write(t, Survey{Sites: 500, Dates: dates[1:]})
	page, err := os.ReadFile("../../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var asked []Query
	for name, quoted := range map[string]string{"python": `(?s)"""(.*?)"""`, "r": `(?s)r"\((.*?)\)"`} {
		n := 0
		for _, block := range regexp.MustCompile("(?s)\n```"+name+"\n(.*?)\n```\n").FindAllStringSubmatch(string(page), -1) {
			for _, text := range regexp.MustCompile(quoted).FindAllStringSubmatch(block[1], -1) {
				asked, n = append(asked, Query{Name: name, SQL: text[1]}), n+1
			}
		}
		if n != 1 {
			t.Errorf("%d texts of SQL in %s", n, name)
		}
	}
	answers, err := Ask(t.Context(), tools, dir, asked, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Error != "" || len(a.Rows) == 0 {
			t.Errorf("%s: %s\n%d rows, %s", asked[i].Name, asked[i].SQL, len(a.Rows), a.Error)
		}
	}
}

// TestReadme compares docs/queries/README.md with the queries.
func TestReadme(t *testing.T) {
	var b strings.Builder
	b.WriteString(readmeAbout)
	for _, q := range load(t) {
		brief, _, _ := strings.Cut(q.Definition, ";") // the file has the rest
		brief, _, _ = strings.Cut(strings.TrimSuffix(brief, "."), ". ")
		fmt.Fprintf(&b, "| [%s](%s.sql) | %s | %s |\n", q.Name, q.Name, cell(q.Question), cell(brief))
	}
	golden(t, filepath.Join(folder, "README.md"), b.String())
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const readmeAbout = `# Queries

<!-- Generated from the comments of the queries: go test ./internal/integration/queries -run TestReadme -update -->

Each file is one analysis: a SELECT over the [views](../dataset.md#views-for-analyses) of a dataset. It opens with the
question, the [definition](../definitions.md) of "blocks", the denominator, and caveats.

	cd OUT && duckdb -cmd '.read views.sql' < FOLDER-OF-QUERIES/blocked-by-definition.sql

Analyses are of the newest date when ` + "`views.sql`" + ` was read. For another, before the query:

	SET VARIABLE bulkscan_date = DATE '2026-11-21';

Tests compare every answer with a recorded one and with that of a dataset that has only the sites of the line ` + "`Over:`" + `, and
compare the counts of views with those of the statistics, and with tables of reports. At a million sites each query takes about a second or less on two processors (` + "`make compare BENCH=Queries`" + `).

| query | question | definition |
|---|---|---|
`
