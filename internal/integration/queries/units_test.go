package queries

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// TestUnits shows that the views have each site of a date, observer and list once, with its rows of verdicts and
// evidence; that they and statistics count as the summary does; and that dates with one scan are read as they are in a
// dataset without others.
func TestUnits(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Name: "a", Sites: 700, Dates: dates})
	text := func() string { return viewsText(t, dir) }
	if strings.Contains(text(), "superseded USING") {
		t.Error("the views leave rows out where there are none")
	}
	again := Survey{Name: "b", Sites: 300, After: time.Hour, Dates: dates[1:2],
		Bodies: [][]byte{[]byte("User-agent: *\nDisallow: /\nNoindex: /\n")}, Statistics: statistics}
	if err := again.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text(), "superseded USING") {
		t.Error("the views leave no rows out")
	}
	s, err := summary.Of(t.Context(), st, "b-"+dates[1], summary.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Rows != 700 || s.Replaced != 300 {
		t.Errorf("%d sites, %d replaced", s.Rows, s.Replaced)
	}
	f := func(sql string, want ...any) {
		t.Helper()
		if got := ask(t, dir, []Query{{Name: sql, SQL: sql}})[0].Rows; fmt.Sprint(got) != fmt.Sprint([][]any{want}) {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
	date := "'" + dates[1] + "'"
	f("SELECT count(*), count(DISTINCT (host, port, requested)) FROM sites WHERE scan_date = "+date, 700, 700)
	f("SELECT count(*) FROM superseded", 300)
	for _, table := range []string{"verdicts", "evidence"} {
		f(
			"SELECT count(*) > 0, count(*) FILTER (NOT found) FROM (SELECT (scan_id, seq) IN (SELECT (scan_id, seq) FROM sites) AS found FROM "+table+" WHERE scan_date = "+date+")", true, 0)
		f("SELECT count(DISTINCT scan_id) FROM "+table+" WHERE scan_date = "+date, 2)
	}
	f("SELECT count(*) FILTER (scan_id IS NULL) FROM verdicts", 0)
	f(
		"SELECT DISTINCT sites_all, sites_rules, scan_id FROM token_stats WHERE segment_kind = 'all' AND known AND scan_date = "+date, s.Rows, s.Rules, "b-"+dates[1])
	f(
		"SELECT blocking FROM token_shares WHERE token = 'GPTBot' AND definition = 'full' AND segment_kind = 'all' AND scan_date = "+date,
		ask(t, dir, []Query{{Name: "x",
			SQL: "SELECT count(*) FROM sites WHERE finding = 'rules' AND list_contains(blocked, 'GPTBot') AND scan_date = " +
				date}})[0].Rows[0]...)
	f("SELECT count(*) FROM sites WHERE scan_date = '"+dates[2]+"'", 700)

	// An observer without such rows, and all observers.
	there := Survey{Name: "c", Sites: 50, After: 2 * time.Hour, Dates: dates[2:],
		Observer: commit.Observer{Source: commit.Live, Vantage: "there"}, Statistics: statistics}
	if err := there.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	f("SELECT count(*) FROM sites", 50)
	f("RESET VARIABLE bulkscan_observer; SELECT count(*) FROM sites", 2150)
}
