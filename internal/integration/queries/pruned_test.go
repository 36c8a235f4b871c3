package queries

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/internal/store"
)

// TestPrunedDates asks for nights that were pruned: the tables refuse, and the history answers.
func TestPrunedDates(t *testing.T) {
	needDuckDB(t)
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, "one.example=obbb", "two.example=b---")
	publishing := job.Publishing{Registry: tokens.Default(), Log: slog.New(slog.DiscardHandler)}
	for _, date := range []string{"2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"} {
		if err := statistics(t.Context(), st, "n"+date); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := job.Prune(t.Context(), st, job.Retention{Nights: "2026-01-03", Bodies: "2026-01-04"}, publishing); err != nil {
		t.Fatal(err)
	}
	const refused, none = "of the nights up to 2026-01-02 this was pruned", "of the nights up to 2026-01-03 this was pruned"
	f := func(sql, want string) {
		t.Helper()
		answers, err := Ask(t.Context(), tools, dir, []Query{{Name: "q", SQL: sql}}, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := answers[0].Error
		for _, row := range answers[0].Rows {
			for _, cell := range row {
				got += fmt.Sprint(cell) + " "
			}
		}
		if strings.HasSuffix(want, "pruned") && !strings.Contains(got, want) || !strings.HasSuffix(want, "pruned") && got != want {
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
	f("SET VARIABLE bulkscan_date = DATE '2026-01-01'; SELECT count(*) FROM token_shares WHERE scan_date = latest()", refused)
	f("SELECT host FROM history_on('2026-01-01') ORDER BY host", "one.example two.example ")
	f("SELECT host, change FROM token_spells('GPTBot') WHERE change IS NOT NULL", "one.example began ")
	f("SELECT count(*) FROM nights", "4 ")
	f("SELECT count(*) FROM scans", "2 ")
}
