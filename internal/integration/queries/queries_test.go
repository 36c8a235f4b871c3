package queries

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/report"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/internal/store"
)

var update = flag.Bool("update", false, "write the golden columns and docs/queries/README.md anew")

const (
	folder = "../../../docs/queries"
	tools  = "../duckdb"
)

// dates are three scans, of which the second is not of the month before.
var dates = []string{"2025-12-31", "2026-10-21", "2026-11-21"}

// needDuckDB skips the test where DuckDB is not there, or fails it where it must be.
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

// write makes a dataset.
func write(t *testing.T, s Survey) (dir string, st store.Store) {
	t.Helper()
	dir = t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Statistics = func(ctx context.Context, st store.Store, id string) error {
		return report.Stats(ctx, st, id, report.Options{})
	}
	if err := s.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	return dir, st
}

// TestAnswersOfMadeFiles holds the answer to every query against a plain count, on files that are made of pieces.
func TestAnswersOfMadeFiles(t *testing.T) {
	needDuckDB(t)
	compare(t, "made", Survey{Sites: 2500, Dates: dates, Parts: 800})
}

// TestAnswersOfRealFiles is the same on files of the web.
func TestAnswersOfRealFiles(t *testing.T) {
	bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:2000], sharedtest.Bodies(t, "mix12k")[:100])
	needDuckDB(t)
	rand.New(rand.NewPCG(2, 9309)).Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	compare(t, "real", Survey{Sites: 3000, Dates: dates[1:], Bodies: bodies})
}

// TestSeveralScansOfADate shows that scans of one date are counted together, a site that is in both once where sites are followed,
// and that nothing is subtracted from what another scan has where only one of them has statistics.
func TestSeveralScansOfADate(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 1500, Dates: dates})
	second := Survey{Name: "second", Sites: 1100, After: time.Hour, Dates: dates[1:], Bodies: [][]byte{[]byte("User-agent: only-here\nDisallow: /\n")}, Statistics: func(context.Context, store.Store, string) error { return nil }}
	if err := second.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	only := slices.DeleteFunc(load(t), func(q Query) bool { return q.Name != "explicit-or-star" })
	answers, err := Ask(t.Context(), tools, dir, only, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	compareAnswers(t, answers[0], plain["explicit-or-star"](readSurvey(t, st)))
	goldenAnswers(t, "one-of-two", answers)
	for _, date := range second.Dates {
		if err := report.Stats(t.Context(), st, "second-"+date, report.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	compareDataset(t, "several", dir, st)
}

func compare(t *testing.T, name string, s Survey) {
	t.Helper()
	dir, st := write(t, s)
	compareDataset(t, name, dir, st)
}

func compareDataset(t *testing.T, name, dir string, st store.Store) {
	t.Helper()
	all := load(t)
	rows := readSurvey(t, st)
	answers, err := Ask(t.Context(), tools, dir, all, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Error != "" {
			t.Errorf("%s: %s", a.Name, a.Error)
			continue
		}
		count, ok := plain[all[i].Name]
		if !ok {
			t.Errorf("%s: nobody counts it a second time", a.Name)
			continue
		}
		compareAnswers(t, a, count(rows))
	}
	goldenColumns(t, answers)
	goldenAnswers(t, name, append(answers, compareViews(t, dir, rows)...))
}

// compareViews holds what views say of every token against plain counts: queries ask some of them about one token only.
func compareViews(t *testing.T, dir string, w *survey) []Answer {
	t.Helper()
	views := []Query{
		{Name: "tokens", SQL: "SELECT * REPLACE (array_to_string(fallback, ' ') AS fallback) FROM tokens ORDER BY token"},
		{Name: "site_tokens", SQL: `SELECT token, scan_date, count(*), count(*) FILTER (conditional), count(*) FILTER (answered), count(*) FILTER (partial),
			count(*) FILTER ("any"), count(*) FILTER (dpi_all), count(*) FILTER (explicit_root), count(*) FILTER ("full"), count(*) FILTER (mention), count(*) FILTER (rfc_effective)
			FROM site_tokens GROUP BY token, scan_date ORDER BY token, scan_date`},
		{Name: "site_blocks", SQL: "SELECT token, category, operator, purpose, via, count(*) FROM site_blocks WHERE scan_date = latest() GROUP BY ALL ORDER BY token, via"},
		{Name: "rollups", SQL: "SELECT value, sum(sites) FILTER (verdict = 'blocked') FROM rollups WHERE kind = 'category' AND scan_date = latest() GROUP BY value ORDER BY value"},
		{Name: "scans", SQL: "SELECT scan_date, CAST(sum(sites) AS BIGINT) FROM scans GROUP BY ALL ORDER BY scan_date"},
	}
	want := map[string][][]any{}
	for _, token := range w.tokens {
		want["tokens"] = append(want["tokens"], []any{token.Name, token.Category, token.Operator, token.Purpose, token.HeedsStar, strings.Join(token.Fallback, " ")})
		for _, date := range w.dates {
			all := w.on(date)
			line := []any{token.Name, date, int64(len(all)), count(all, (*siteRows).conditional), count(all, (*siteRows).answered),
				count(all, func(s *siteRows) bool { return s.partly[token.Name] })}
			for _, definition := range definitions {
				n, _ := shares(all, definition, token.Name)
				line = append(line, n)
			}
			want["site_tokens"] = append(want["site_tokens"], line)
		}
		via := map[string]int64{}
		for _, s := range w.latest() {
			if s.blocked[token.Name] {
				follows := "star"
				if row := s.rows[token.Name]; row != nil {
					follows = row.Via
				}
				via[follows]++
			}
		}
		for follows, n := range via {
			want["site_blocks"] = append(want["site_blocks"], []any{token.Name, token.Category, token.Operator, token.Purpose, follows, n})
		}
	}
	for _, row := range strictest(w, func(token tokens.Token) string { return token.Category }) {
		want["rollups"] = append(want["rollups"], row[:2])
	}
	for _, date := range w.dates {
		want["scans"] = append(want["scans"], []any{date, int64(len(w.on(date)))})
	}
	answers, err := Ask(t.Context(), tools, dir, views, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Error != "" {
			t.Errorf("%s: %s", a.Name, a.Error)
			continue
		}
		by := []int{0, 1}
		if a.Name == "site_blocks" {
			by = []int{0, 4}
		}
		compareAnswers(t, a, ordered(want[a.Name], by...))
	}
	return answers
}

// compareAnswers compares what DuckDB answers with what was counted, in order, and says where both say little: one and the
// same number throughout would be right by accident.
func compareAnswers(t *testing.T, a Answer, want [][]any) {
	t.Helper()
	if len(want) == 0 {
		t.Errorf("%s: nothing to count", a.Name)
	}
	differences := 0
	for i := range max(len(a.Rows), len(want)) {
		got, wanted := "no row", "no row"
		if i < len(a.Rows) {
			got = fmt.Sprint(a.Rows[i]...)
		}
		if i < len(want) {
			wanted = fmt.Sprint(want[i]...)
		}
		if i < len(a.Rows) && i < len(want) && slices.EqualFunc(a.Rows[i], want[i], equal) {
			continue
		}
		if differences++; differences <= 3 {
			t.Errorf("%s, row %d:\n got %s\nwant %s", a.Name, i, got, wanted)
		}
	}
	if differences > 3 {
		t.Errorf("%s: %d rows differ", a.Name, differences)
	}
	for column := range a.Columns {
		if !slices.ContainsFunc(want, func(row []any) bool {
			return row[column] != nil && row[column] != int64(0) && row[column] != 0.0 && row[column] != ""
		}) {
			t.Errorf("%s: the column %s has nothing in any row", a.Name, a.Columns[column])
		}
	}
}

// equal reports whether a value that DuckDB wrote as JSON is the one that was counted. Quotients may differ in the last digits.
func equal(got, want any) bool {
	text, isText := got.(string)
	if number, ok := got.(json.Number); ok {
		text, isText = number.String(), true
	}
	switch want := want.(type) {
	case nil:
		return got == nil
	case bool:
		return got == want
	case string:
		return isText && text == want
	case int64:
		return isText && text == strconv.FormatInt(want, 10)
	case float32:
		n, err := strconv.ParseFloat(text, 32)
		return isText && err == nil && float32(n) == want
	case float64:
		n, err := strconv.ParseFloat(text, 64)
		return isText && err == nil && math.Abs(n-want) <= 1e-12*max(1, math.Abs(want))
	}
	return false
}

// goldenColumns holds the names and types of every answer against a file: notebooks depend on them.
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

// goldenAnswers holds answers against testdata/NAME.golden, which has the first rows of each, their number and a hash of them all.
func goldenAnswers(t *testing.T, name string, answers []Answer) {
	t.Helper()
	const shown = 8
	var b strings.Builder
	for _, a := range answers {
		if a.Error != "" {
			t.Errorf("%s: %s", a.Name, a.Error)
			continue
		}
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
	if text != string(want) {
		t.Errorf("%s is not up to date (-update writes it anew):\n%s", path, text)
	}
}

func load(t *testing.T) []Query {
	t.Helper()
	all, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryQueryIsCounted shows that there is a plain count for each query and none besides, and that each is short.
func TestEveryQueryIsCounted(t *testing.T) {
	names := map[string]bool{}
	for _, q := range load(t) {
		names[q.Name] = true
		if plain[q.Name] == nil {
			t.Errorf("%s: nobody counts it a second time", q.Name)
		}
		if lines := strings.Count(q.SQL, "\n"); lines > 24 {
			t.Errorf("%s has %d lines", q.Name, lines)
		}
	}
	for name := range plain {
		if !names[name] {
			t.Errorf("there is no query %s", name)
		}
	}
}

// TestOldVersion shows that a dataset of the first schema version, with files of no other, can be asked everything.
func TestOldVersion(t *testing.T) {
	needDuckDB(t)
	const id, other, otherDate = "schema-1", "schema-2", "2026-11-17"
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../sink/testdata/versions")); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"_scans/" + other, "*/scan_date=" + otherDate} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: nothing there: %v", pattern, err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Stats(t.Context(), st, id, report.Options{}); err != nil {
		t.Fatal(err)
	}
	answers, err := Ask(t.Context(), tools, dir, load(t), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, a := range answers {
		if rows += len(a.Rows); a.Error != "" {
			t.Errorf("%s: %s", a.Name, a.Error)
		}
	}
	if rows == 0 {
		t.Error("no query has an answer")
	}
}

// TestCookbook runs every SQL of docs/cookbook.md as it stands, in order, in a folder of its own: it writes files.
func TestCookbook(t *testing.T) {
	needDuckDB(t)
	dir, _ := write(t, Survey{Sites: 500, Dates: dates[1:]})
	page, err := os.ReadFile("../../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []Query
	for i, block := range strings.Split(string(page), "\n```sql\n")[1:] {
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
	answers, err := Ask(t.Context(), programs, dir, blocks, 2, 1)
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

// TestReadme holds docs/queries/README.md against the queries.
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

Tests count every answer by other means. At a million sites each query takes less than a second on two processors
(` + "`make compare BENCH=Queries`" + `).

| query | question | definition |
|---|---|---|
`
