package queries

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// surveyOf returns the tables over dates of a scan's survey.
func surveyOf(t *testing.T, st store.Store, scanID string, registry *tokens.Registry) (s *tables.Survey,
	over map[string]*tables.Table) {
	t.Helper()
	s, err := tables.Take(t.Context(), st, scanID, tables.Options{Options: survey.Options{Registry: registry},
		AllTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	over = map[string]*tables.Table{}
	for _, name := range []string{"blocked-over-time", "changed-sites", "first-blocked", "transitions", "survival"} {
		if s.Tables[name] != nil {
			over[name] = s.Tables[name]
		}
	}
	return s, over
}

// compareOverDates compares the tables over dates of a scan's survey with the queries.
func compareOverDates(t *testing.T, dir string, st store.Store, scanID string,
	registry *tokens.Registry) (over map[string]*tables.Table) {
	t.Helper()
	s, over := surveyOf(t, st, scanID, registry)
	manifest := s.Manifest
	set := fmt.Sprintf("SET VARIABLE bulkscan_observer = %s; SET VARIABLE bulkscan_date = DATE '%s'; ",
		literal(manifest.Observer.String()), manifest.ScanDate)
	asked := []Query{{Name: "blocked-over-time", SQL: set + forToken(t, "blocked-over-time", "")}}
	for _, name := range []string{"first-blocked", "transitions", "survival"} {
		if over[name] == nil {
			continue
		}
		for i, token := range s.Lines {
			if name == "survival" && i > 0 {
				break
			}
			asked = append(asked, Query{Name: name, SQL: fmt.Sprintf("SELECT %s AS token, * FROM (%s)", literal(token),
				forToken(t, name, token))})
		}
	}
	if over["changed-sites"] != nil {
		asked = append(asked, changedSites(t, over["changed-sites"])...)
	}
	answers := map[string]Answer{}
	for _, a := range ask(t, dir, asked) {
		a.Rows = append(answers[a.Name].Rows, a.Rows...)
		answers[a.Name] = a
	}
	for name, table := range over {
		if name == "changed-sites" {
			for _, rows := range [][][]any{table.Rows, answers[name].Rows} {
				slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(fmt.Sprintln(a...), fmt.Sprintln(b...)) })
			}
		}
		if !slices.Equal(answers[name].Columns, table.Columns) {
			t.Errorf("%s has the columns %q, not %q", name, table.Columns, answers[name].Columns)
		}
		compareAnswers(t, answers[name], table.Rows)
	}
	return over
}

// changedSites returns the queries of all AI tokens, and removes all other columns than theirs from the table.
func changedSites(t *testing.T, table *tables.Table) (all []Query) {
	t.Helper()
	for i := range tokens.Default().Tokens {
		if token := &tokens.Default().Tokens[i]; token.Category == "ai" {
			all = append(all, Query{Name: "changed-sites", SQL: fmt.Sprintf("SELECT %s AS token, * FROM (%s)",
				literal(token.Name), forToken(t, "changed-sites", token.Name))})
		}
	}
	table.Columns = table.Columns[:7]
	for i, row := range table.Rows {
		table.Rows[i] = row[:7]
	}
	return all
}

// TestSurveyOverDates compares the tables over dates with the queries: over fifty nights, some with two scans, some
// with a scan of another observer, and with a merged first month; before and after the registry gains a token.
func TestSurveyOverDates(t *testing.T) {
	needDuckDB(t)
	var nights []string
	for n := range 50 {
		nights = append(nights, time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, n).Format(time.DateOnly))
	}
	here, there := commit.Observer{Source: commit.Live, Product: "bulkscan"}, commit.Observer{Source: commit.Live,
		Product: "bulkscan", Vantage: "o'hare"}
	dir, st := write(t, Survey{Sites: 60, Dates: nights[:49], Observer: here})
	more,
		err := tokens.Load(strings.NewReader(
		"name | category | purpose | operator\nsome-stranger | ai | training | Strangers\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Survey{
		{Name: "second", Sites: 80, After: time.Hour, Dates: nights[20:22], Observer: here, Statistics: statistics},
		{Name: "there", Sites: 50, Dates: nights[30:33], Observer: there, Statistics: statistics},
		{Name: "gained", Sites: 60, Dates: nights[49:], Observer: here, Registry: more,
			Bodies: [][]byte{[]byte("User-agent: some-stranger\nDisallow: /\n")}, Statistics: func(ctx context.Context,
				st store.Store, id string) error {
				return stats.Write(ctx, st, id, survey.Options{Registry: more})
			}},
	} {
		if err := s.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	if err := index.RollUp(t.Context(), st, "test"); err != nil {
		t.Fatal(err)
	}
	withHistory(t, st)
	over := compareOverDates(t, dir, st, "gained-"+nights[49], more)
	if !slices.ContainsFunc(over["transitions"].Rows, func(row []any) bool {
		return row[0] == "some-stranger" &&
			row[1] == "unknown"
	}) {
		t.Error("some-stranger is known on the earlier nights")
	}
	if len(over) != 5 || len(over["changed-sites"].Rows) < 5 ||
		over["transitions"].Note != "from 2026-11-18 to 2026-11-19" {
		t.Errorf("%d tables, transitions %+v", len(over), over["transitions"])
	}
	if s, _ := surveyOf(t, st, "gained-"+nights[49], nil); slices.Contains(s.Lines, "some-stranger") {
		t.Error("a token that the registry at hand lacks is shown")
	}
	if over := compareOverDates(t, dir, st, "there-"+nights[32], nil); len(over) != 1 {
		t.Errorf("%d tables of an observer that the ledger does not follow", len(over))
	}
}

// TestSurveyWithoutDates checks which tables over dates there are without several nights, without a ledger and with a
// damaged one, and that later nights do not count.
func TestSurveyWithoutDates(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it computes statistics, which -short leaves out")
	}
	dir, st := write(t, Survey{Sites: 60, Dates: dates})
	f := func(date string, over int) map[string]*tables.Table {
		t.Helper()
		_, got := surveyOf(t, st, "survey-"+date, nil)
		if len(got) != over {
			t.Errorf("%s: %d tables, want %d", date, len(got), over)
		}
		return got
	}
	f(dates[0], 0)
	f(dates[2], 1)
	if err := history.Rebuild(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	f(dates[0], 0)
	f(dates[2], 5)
	for name, table := range f(dates[1], 5) {
		for _, row := range table.Rows {
			if slices.Contains(row, any(dates[2])) {
				t.Errorf("%s has a later night: %v", name, row)
			}
		}
	}
	ledger, err := history.ReadLedger(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ledger.Files[0].Name, history.LedgerName} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = tables.Take(t.Context(), st, "survey-"+dates[2], tables.Options{})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "history --rebuild") {
			t.Errorf("damaged %s: %v", name, err)
		}
	}
}
