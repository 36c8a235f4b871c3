package queries

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// TestMonths shows that the views of statistics answer the same whether or not past months are merged, whatever a
// killed process has left of index and views.sql; that they read merged months; and that recomputed statistics are seen
// at once.
func TestMonths(t *testing.T) {
	needDuckDB(t)
	nights := []string{"2026-09-30", "2026-10-01", "2026-10-15", "2026-10-31", "2026-11-01", "2026-11-02"}
	here, there := commit.Observer{Source: commit.Live, Vantage: "here"}, commit.Observer{Source: commit.Live,
		Vantage: "there"}
	dir, st := write(t, Survey{Name: "here", Sites: 40, Dates: nights, Observer: here})
	others := Survey{Name: "there", Sites: 30, Dates: nights[2:4], Observer: there, Statistics: statistics}
	if err := others.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	var asked []Query
	for _, observer := range []string{"SET VARIABLE bulkscan_observer = " + literal(here.String()),
		"SET VARIABLE bulkscan_observer = " + literal(there.String()), "RESET VARIABLE bulkscan_observer"} {
		for _, sql := range []string{
			"SELECT count(*), bit_xor(hash(t)) FROM token_stats AS t", "FROM record_stats ORDER BY ALL",
			"FROM token_stats WHERE token = 'GPTBot' ORDER BY ALL",
			"SELECT count(*), bit_xor(hash(t)) FROM token_stats AS t WHERE scan_date = '2026-10-15'",
			"SELECT count(*), bit_xor(hash(t)) FROM token_stats_on('2026-10-01') AS t",
			"SELECT scan_id, scan_date, count(*) FROM token_stats GROUP BY ALL ORDER BY ALL",
			"FROM token_shares WHERE token = 'GPTBot' ORDER BY ALL",
		} {
			asked = append(asked, Query{Name: observer + ": " + sql, SQL: observer + "; " + sql})
		}
	}
	want := ask(t, dir, asked)
	f := func(when string) {
		t.Helper()
		for i, got := range ask(t, dir, asked) {
			w := want[i]
			if !slices.Equal(got.Columns, w.Columns) || !slices.Equal(got.Types, w.Types) ||
				fmt.Sprint(got.Rows) != fmt.Sprint(w.Rows) {
				t.Errorf("%s: %s: %d rows of %q, not %d of %q, or others", when, got.Name, len(got.Rows), got.Columns, len(w.Rows),
					w.Columns)
			}
		}
	}
	before := viewsText(t, dir)
	put := func(text string) {
		t.Helper()
		if err := st.Put(t.Context(), sinkviews.Name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := index.RollUp(t.Context(), st, "test"); err != nil {
		t.Fatal(err)
	}
	f("views.sql is older than the index")
	if err := sinkviews.Write(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	after := viewsText(t, dir)
	f("merged")

	// A merged night's own file is not opened, unless DuckDB takes the columns from it.
	night := filepath.Join(dir, commit.StatsName(schema.TokenStats, nights[3], "here-"+nights[3]))
	data, err := os.ReadFile(night)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(night, []byte("no Parquet"), 0o666); err != nil {
		t.Fatal(err)
	}
	f("without the file of a merged night")
	if err := os.WriteFile(night, data, 0o666); err != nil {
		t.Fatal(err)
	}

	// Statistics of one token: only that night changes.
	id := "here-" + nights[2]
	if err := stats.Write(t.Context(), st, id, survey.Options{Only: []string{"GPTBot"}}); err != nil {
		t.Fatal(err)
	}
	rows := ask(t, dir,
		[]Query{{SQL: "SELECT count(DISTINCT token), (SELECT count(DISTINCT token) > 100 FROM token_stats WHERE scan_date = '2026-10-01') FROM token_stats WHERE scan_id = " + literal(id)}})
	compareAnswers(t, rows[0], [][]any{{int64(1), "true"}})
	if strings.Contains(viewsText(t, dir), "token_stats month") {
		t.Error("views.sql reads a month that is outdated")
	}
	if err := statistics(t.Context(), st, id); err != nil {
		t.Fatal(err)
	}
	f("counted as before")
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, index.MonthsFolder)),
		index.Update(t.Context(), st)); err != nil {
		t.Fatal(err)
	}
	put(after)
	f("views.sql reads months, and the index has none")
	put(before)
	f("as before the months")
}

func viewsText(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, sinkviews.Name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
