package queries

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/exchange"
	"github.com/bulkscan/bulkscan/internal/origin"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
)

// nightsOf writes a scan a day from 2026-01-01 on. Each word is a site: its host, =, and a letter a night: b and o are
// files that block GPTBot or nobody, 4 and 5 answers with 404 and 503, x none, and - a night on which it is not listed.
func nightsOf(t *testing.T, st store.Store, sites ...string) {
	t.Helper()
	first := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	_, nights, _ := strings.Cut(sites[0], "=")
	for n := range nights {
		at := first.AddDate(0, 0, n)
		date := at.Format(time.DateOnly)
		w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "n" + date, Date: date})
		if err != nil {
			t.Fatal(err)
		}
		for i, word := range sites {
			host, word, _ := strings.Cut(word, "=")
			if word[n] == '-' {
				continue
			}
			o, err := origin.Parse(host)
			if err != nil {
				t.Fatal(err)
			}
			site := &audit.Site{Seq: uint64(i), Input: o.Host(), Origin: o}
			site.Fetch = exchange.Response{Outcome: exchange.Answered, Status: 200, FetchedAt: at}
			switch word[n] {
			case 'b':
				site.Fetch.Body = []byte("User-agent: GPTBot\nDisallow: /\n")
			case 'o':
				site.Fetch.Body = []byte("User-agent: *\nDisallow: /private\n")
			case '4':
				site.Fetch.Status = 404
			case '5':
				site.Fetch.Status = 503
			case 'x':
				site.Fetch.Outcome, site.Fetch.Status = exchange.ConnectTimeout, 0
			}
			audit.Judge(site)
			if err := w.Add(site); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccessAsCrawled shows which answer decides on the last night, by the words of nightsOf.
func TestAccessAsCrawled(t *testing.T) {
	needDuckDB(t)
	var words, want []string
	f := func(word, says string) {
		host := fmt.Sprintf("s%d.example", len(want))
		words, want = append(words, host+"="+word), append(want, host+" "+says)
	}
	days := func(what string, n int) string { return strings.Repeat(what, n) }
	f(days("b", 40), "conditional fresh 2026-02-09 null b")
	f(days("o", 10)+days("b", 29)+"o", "conditional fresh 2026-02-09 null o")
	f(days("o", 38)+"b"+"5", "conditional stale 2026-02-08 2026-02-09 b")
	f(days("b", 10)+days("x", 30), "conditional stale 2026-01-10 2026-01-11 b")   // 30 days old
	f(days("b", 9)+days("x", 31), "full_allow expired null 2026-01-10 o")         // 31 days old
	f(days("-", 10)+days("5", 30), "full_disallow fresh 2026-02-09 2026-01-11 o") // 29 days of failures
	f(days("-", 9)+days("5", 31), "full_allow expired null 2026-01-10 o")         // 30 days
	f(days("b", 37)+"4"+"x"+"5", "full_allow stale 2026-02-07 2026-02-08 o")      // a 404 is a good answer
	f(days("5", 20)+days("b", 10)+days("5", 10), "conditional stale 2026-01-30 2026-01-31 b")
	f(days("b", 20)+days("-", 19)+"x", "conditional stale 2026-01-20 2026-02-09 b")
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, words...)
	answers := ask(t, dir, []Query{
		{Name: "crawled", SQL: `SELECT concat_ws(' ', host, access, source, coalesce(CAST(as_of AS VARCHAR), 'null'), coalesce(CAST(failing_since AS VARCHAR), 'null'), CASE WHEN list_contains(blocked, 'GPTBot') THEN 'b' ELSE 'o' END)
			FROM access_as_crawled('2026-02-09') ORDER BY host`},
		{Name: "fresh", SQL: `SELECT string_agg(strftime(fresh_until(TIMESTAMP '2026-01-01 00:00:00', c), '%d %H:%M'), ', ') FROM unnest([NULL, '', 'max-age=60', 'public, MAX-AGE=3600', 's-maxage=60', 'max-age="120"', 'max-age=9999999999999999999999', 'max-age=604800', 'max-age=0', 'max-age=-1']) AS t(c)`},
	})
	var got []string
	for _, row := range answers[0].Rows {
		got = append(got, fmt.Sprint(row[0]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), answers[0].Error)
	}
	if got, want := fmt.Sprint(answers[1].Rows), "[[02 00:00, 02 00:00, 01 00:01, 01 01:00, 02 00:00, 01 00:02, 02 00:00, 02 00:00, 01 00:00, 02 00:00]]"; got != want {
		t.Errorf("fresh_until: %s %s, want %s", got, answers[1].Error, want)
	}
}

// TestNightsDataset makes a dataset of a date a week over half a year, and its history. With NIGHTS_DATASET=DIR it keeps the
// dataset in DIR for other readers.
func TestNightsDataset(t *testing.T) {
	dir := os.Getenv("NIGHTS_DATASET")
	if dir == "" {
		dir = t.TempDir()
	}
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := Survey{Sites: 400, Statistics: statistics}
	for day := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC); day.Before(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)); day = day.AddDate(0, 0, 7) {
		s.Dates = append(s.Dates, day.Format(time.DateOnly))
	}
	if err := s.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Update(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	ledger, err := history.ReadLedger(t.Context(), st)
	if err != nil || len(ledger.Scans) != len(s.Dates) {
		t.Errorf("the history has %d nights, not %d: %v", len(ledger.Scans), len(s.Dates), err)
	}
}

// TestPanels restricts the history to panels of sites.
func TestPanels(t *testing.T) {
	needDuckDB(t)
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, "always.example=oobb", "www.always.example=obbb", "shop.always.example=bbbb", "fails.example=bx5b", "pauses.example=b-bb", "comes.example=-bbb", "goes.example=bbb-", "www.alone.example=obob", "dead.example=xxxx")
	if _, err := history.Update(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := sinkviews.Write(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	const show = "SELECT string_agg(DISTINCT host, ' ' ORDER BY host) FROM "
	const use = `; CREATE OR REPLACE VIEW history AS SELECT * FROM history_all() SEMI JOIN panel USING (site); CREATE OR REPLACE VIEW gaps AS SELECT * FROM gaps_all() SEMI JOIN panel USING (site); `
	var all []Query
	var want []string
	for _, c := range []struct{ sql, want string }{
		{show + "history_all() SEMI JOIN panel_balanced() USING (site)", "always.example fails.example shop.always.example www.alone.example www.always.example"},
		{"SELECT CAST(count(*) AS VARCHAR) FROM panel_balanced()", "6"}, // with dead.example, which has no episode
		{show + "history_all() SEMI JOIN panel_folded() USING (site)", "always.example comes.example fails.example goes.example pauses.example shop.always.example www.alone.example"},
		{"CREATE OR REPLACE TABLE panel AS SELECT site FROM panel_balanced() SEMI JOIN panel_folded() USING (site)" + use + show + "first_blocked('GPTBot')", "always.example fails.example shop.always.example www.alone.example"},
		{"SELECT string_agg(blocking || '/' || \"of\", ' ' ORDER BY night) FROM blocked_over_time('GPTBot')", "2/4 2/3 2/3 4/4"},
		{"CREATE OR REPLACE TABLE panel AS SELECT DISTINCT site FROM history_all() WHERE host IN ('goes.example')" + use + "SELECT string_agg(blocking || '/' || \"of\", ' ' ORDER BY night) FROM blocked_over_time('GPTBot')", "1/1 1/1 1/1 0/0"},
	} {
		all, want = append(all, Query{Name: c.sql, SQL: c.sql}), append(want, c.want)
	}
	for i, a := range ask(t, dir, all) {
		if got := fmt.Sprint(a.Rows); got != "[["+want[i]+"]]" {
			t.Errorf("%s: %s %s, want %s", a.Name, got, a.Error, want[i])
		}
	}
}
