package queries

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// TestSurveyTables compares each table of a report with the answer to the query of its name.
func TestSurveyTables(t *testing.T) {
	needDuckDB(t)
	var nights []string
	for n := range 50 {
		nights = append(nights, time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC).AddDate(0, 0, n).Format(time.DateOnly))
	}
	for name, s := range map[string]Survey{
		"made":            {Sites: 2500, Dates: dates, Parts: 800},
		"one silent site": {Sites: 1, Dates: dates[2:]},
		"50 dates":        {Sites: 60, Dates: nights},
		"not only rules":  {Sites: 700, Dates: dates[2:], Bodies: strange, Challenged: 7, Cut: 11},
	} {
		t.Run(name, func(t *testing.T) {
			dir, st := write(t, s)
			if len(s.Dates) > 1 {
				withHistory(t, st)
			}
			compareTables(t, dir, st, "survey-"+s.Dates[len(s.Dates)-1])
		})
	}
	t.Run("one site that blocks", func(t *testing.T) {
		dir := t.TempDir()
		st, err := store.NewDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		nightsOf(t, st, "one.example=b")
		if err := statistics(t.Context(), st, "n2026-01-01"); err != nil {
			t.Fatal(err)
		}
		withHistory(t, st)
		compareTables(t, dir, st, "n2026-01-01")
	})
	t.Run("empty", func(t *testing.T) {
		dir, st := write(t, Survey{Sites: 50, Dates: dates[1:2]}) // DuckDB reads no dataset without a site
		empty := Survey{Name: "empty", Dates: dates[2:], Statistics: statistics}
		if err := empty.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
		compareTables(t, dir, st, "empty-"+dates[2])
	})
	t.Run("real", func(t *testing.T) {
		bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:2000])
		dir, st := write(t, Survey{Sites: 3000, Dates: dates[2:], Bodies: bodies})
		compareTables(t, dir, st, "survey-"+dates[2])
	})
}

// TestGivenTables is TestSurveyTables of the one scan of the dataset that REPORT_DATASET names: that of the demo, in
// make integration.
func TestGivenTables(t *testing.T) {
	dir := os.Getenv("REPORT_DATASET")
	if dir == "" {
		t.Skip("REPORT_DATASET names no dataset")
	}
	needDuckDB(t)
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	scans, err := commit.Scans(t.Context(), st)
	if err != nil || len(scans) != 1 {
		t.Fatal(len(scans), err)
	}
	compareTables(t, dir, st, scans[0].ScanID)
}

// compareTables compares the tables of a scan's report with DuckDB's answers.
func compareTables(t *testing.T, dir string, st store.Store, scanID string) {
	t.Helper()
	survey, err := tables.Take(t.Context(), st, scanID, tables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name := range compareOverDates(t, dir, st, scanID, nil) {
		delete(survey.Tables, name)
	}
	all := slices.DeleteFunc(load(t), func(q Query) bool { return survey.Tables[q.Name] == nil })
	for i := range all {
		all[i].SQL = "SET VARIABLE bulkscan_date = DATE " + literal(survey.Manifest.ScanDate) + "; " + all[i].SQL
	}
	if len(all) != len(survey.Tables) {
		t.Fatalf("%d tables, of which %d have a query: %v", len(survey.Tables), len(all),
			slices.Sorted(maps.Keys(survey.Tables)))
	}
	for _, a := range ask(t, dir, all) {
		compareTable(t, survey.Tables[a.Name], a)
	}
}

// compareTable compares a table with an answer, in order. If a table has a note, the answer may have rows with other
// texts.
func compareTable(t *testing.T, table *tables.Table, a Answer) {
	t.Helper()
	if !slices.Equal(table.Columns, a.Columns) {
		t.Errorf("%s has the columns %q, the query %q", a.Name, table.Columns, a.Columns)
		return
	}
	rows := a.Rows
	if table.Note != "" {
		rows = slices.DeleteFunc(rows, func(row []any) bool { return !named(table, row) })
	}
	if len(table.Rows) != len(rows) {
		t.Errorf("%s has %d rows, the query %d; note %q", a.Name, len(table.Rows), len(rows), table.Note)
		return
	}
	for i, row := range table.Rows {
		for column := range row {
			if got, want := row[column], rows[i][column]; !sameValue(a.Columns[column], want, got) {
				t.Errorf("%s, row %d: %s is %v, by the query %v\n got %v\nwant %v", a.Name, i, a.Columns[column], got, want, row,
					rows[i])
				return
			}
		}
	}
}

// named reports whether each text of a row occurs in the table's column.
func named(table *tables.Table, row []any) bool {
	for i, value := range row {
		if text, is := value.(string); is && !slices.ContainsFunc(table.Rows,
			func(has []any) bool { return fmt.Sprint(has[i]) == text }) {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil { // a BIGINT is a text, too
				return false
			}
		}
	}
	return true
}

// sameValue is equal, but for percentiles of milliseconds.
func sameValue(column string, want, got any) bool {
	if percentile, is := got.(float64); is && (strings.HasPrefix(column, "ttfb_p") ||
		strings.HasPrefix(column, "total_p")) {
		n, err := strconv.ParseFloat(fmt.Sprint(want), 64)
		return err == nil && math.Abs(percentile-n) <= 0.02*n
	}
	return equal(want, got)
}

// TestLeastGroup compares the suffixes with enough sites with those of the query, for several limits. It compares the
// unobserved sites of each segment with a count of their findings.
func TestLeastGroup(t *testing.T) {
	needDuckDB(t)
	s := Survey{Sites: 2500, Dates: dates[2:], Challenged: 7}
	dir, st := write(t, s)
	for _, least := range []int64{1, 0, 90, 5000} {
		taken, err := tables.Take(t.Context(), st, "survey-"+s.Dates[0],
			tables.Options{Options: survey.Options{Uncertainty: survey.Uncertainty{LeastGroup: least}}})
		if err != nil {
			t.Fatal(err)
		}
		all := slices.DeleteFunc(load(t), func(q Query) bool {
			return q.Name != "blocked-by-tld" &&
				q.Name != "blocked-by-label"
		})
		for i := range all {
			all[i].SQL = fmt.Sprintf("SET VARIABLE bulkscan_least_group = nullif(%d, 0); ", least) + all[i].SQL
		}
		const gap = "count(*) FILTER (finding IN ('not_asked', 'challenged', 'rate_limited', 'server_error', 'unreachable')) AS n FROM sites GROUP BY ALL"
		for _, segment := range []string{"'all '", "'tld ' || tld", "'label ' || label"} {
			all = append(all, Query{Name: "gaps", SQL: "SELECT " + segment + " AS segment, " + gap})
		}
		for _, a := range ask(t, dir, all) {
			if a.Name != "gaps" {
				compareTable(t, taken.Tables[a.Name], a)
				continue
			}
			for _, row := range a.Rows {
				if segment := fmt.Sprint(row[0]); row[0] != nil && !equal(row[1], taken.Unobserved[segment]) {
					t.Errorf("%s: %d unobserved, by DuckDB %v", segment, taken.Unobserved[segment], row[1])
				}
			}
		}
		if n := len(taken.Tables["blocked-by-tld"].Rows); n == 0 != (least == 5000) {
			t.Errorf("%d suffixes have %d sites", n, least)
		}
	}
}
