package queries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/scan"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// TestPrunedDates queries pruned nights: the tables refuse, and the history answers.
func TestPrunedDates(t *testing.T) {
	needDuckDB(t)
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, "one.example=obbb", "two.example=b---")
	publishing := scan.Publishing{Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}
	for _, date := range []string{"2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"} {
		if err := statistics(t.Context(), st, "n"+date); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := scan.Prune(t.Context(), st, scan.Retention{Nights: "2026-01-03", Bodies: "2026-01-04", Accept: 3},
		publishing); err != nil {
		t.Fatal(err)
	}
	const refused, none = "of the nights up to 2026-01-02 this was pruned",
		"of the nights up to 2026-01-03 this was pruned"
	f := func(sql, want string) {
		t.Helper()
		answers, err := Ask(t.Context(), tools, dir, []Query{{Name: "q", SQL: sql}}, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := answers[0].Error
		for _, row := range answers[0].Rows {
			for _, cell := range row {
				got += fmt.Sprint(cell) + " "
			}
		}
		if strings.HasSuffix(want, "pruned") && !strings.Contains(got, want) || !strings.HasSuffix(want, "pruned") &&
			got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	f("SELECT count(*) FROM sites_on('2026-01-02')", refused)
	f("FROM bodies_on(DATE '2026-01-01')", none)
	f("FROM bodies_on('2026-01-03')", none)
	f("SELECT count(*) FROM bodies_on('2026-01-04')", "1 ")
	f("SELECT count(*) FROM evidence_on('2026-01-03')", "0 ")
	f("SELECT count(*) FROM sites_on('2026-01-03')", "1 ")
	f("SELECT count(*) FROM sites WHERE scan_date = latest()", "1 ")
	f("SET VARIABLE bulkscan_date = DATE '2026-01-01'; SELECT count(*) FROM token_shares WHERE scan_date = latest()",
		refused)
	f("SELECT host FROM history_on('2026-01-01') ORDER BY host", "one.example two.example ")
	f("SELECT host, change FROM token_spells('GPTBot') WHERE change IS NOT NULL", "one.example began ")
	f("SELECT count(*) FROM nights", "4 ")
	f("SELECT count(*) FROM scans", "2 ")
}

// TestPrunedRegistries prunes the only nights of a registry that lacks a token. What its judge said of the token stays
// unknown.
func TestPrunedRegistries(t *testing.T) {
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	more,
		err := tokens.Load(strings.NewReader(
		"name | category | purpose | operator\nsome-stranger | ai | training | Strangers\nit's | ai | training | Strangers\n"))
	if err != nil {
		t.Fatal(err)
	}
	days := []string{"2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"}
	for i, date := range days {
		registry, file := more, "User-agent: some-stranger\nDisallow: /\n"
		if i == 0 {
			file += "User-agent: *\nDisallow: /other\n"
		}
		if i < 2 {
			registry = tokens.Default()
		}
		s := Survey{Name: "night", Sites: 40, Dates: []string{date}, Registry: registry, Bodies: [][]byte{[]byte(file)},
			Statistics: func(ctx context.Context, st store.Store, id string) error {
				return stats.Write(ctx, st, id, survey.Options{Registry: registry})
			}}
		if err := s.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	publishing := scan.Publishing{Registry: more, Log: slog.New(slog.DiscardHandler)}
	if err := errors.Join(history.Rebuild(t.Context(), st, history.Options{}), sinkviews.Write(t.Context(), st,
		more)); err != nil {
		t.Fatal(err)
	}
	ofHistory := func() string {
		s, tables := surveyOf(t, st, "night-"+days[3], more)
		return fmt.Sprint(s.Lines, tables["first-blocked"], tables["transitions"], tables["survival"])
	}
	before, earlier := ofHistory(), t.TempDir()
	if !strings.Contains(before, "some-stranger 2026-01-02 unknown") {
		t.Fatalf("the token is known on the earlier nights: %s", before)
	}
	if err := os.CopyFS(earlier, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, first := range days[1:3] {
		if _, err := scan.Prune(t.Context(), st, scan.Retention{Nights: first}, publishing); err != nil {
			t.Fatal(err)
		}
		if s, _ := surveyOf(t, st, "night-"+days[3], more); s.Pruned >= first || s.Pruned == "" {
			t.Errorf("nights before %s are pruned: the report says up to %q", first, s.Pruned)
		}
		if after := ofHistory(); after != before {
			t.Errorf("nights before %s are pruned: the report says\n%s\nwant\n%s", first, after, before)
		}
	}
	needDuckDB(t)
	var all []Query
	for _, sql := range []string{"FROM first_blocked('some-stranger')", "FROM survival('some-stranger')",
		"FROM blocked_over_time('some-stranger')", "FROM token_spells('some-stranger')",
		"FROM transitions('2026-01-02', '2026-01-03', 'some-stranger')", "FROM reversals('GPTBot')", "FROM registry_tokens"} {
		all = append(all, Query{Name: sql, SQL: sql + " ORDER BY ALL"})
	}
	want := ask(t, earlier, all)
	for i, a := range ask(t, dir, all) {
		if got, want := fmt.Sprint(a.Rows), fmt.Sprint(want[i].Rows); got != want {
			t.Errorf("%s: %s, want %s", a.Name, got, want)
		}
	}
}
