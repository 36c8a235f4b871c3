package queries

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/index"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// nightsOf writes a scan a day from 2026-01-01 on. Each word is a site: its host, =, and a letter a night, as in
// answered.
func nightsOf(t *testing.T, st store.Store, sites ...string) {
	t.Helper()
	timelines := make([]timeline, len(sites))
	for i, word := range sites {
		timelines[i].host, timelines[i].letters, _ = strings.Cut(word, "=")
	}
	for n := range timelines[0].letters {
		nightOf(t, st, n, "n", 0, timelines)
	}
}

// firstNight is when the scans of nightsOf begin.
var firstNight = time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)

// timeline has the answer of a site on each night. After its last letter the site is not listed.
type timeline struct {
	host, letters, cacheControl, label string

	rank int64

	late map[int]time.Duration // by which the site is fetched later on a night; the first one is 0
}

// nightOf writes the scan of a night, which begins so long after the usual time, unless it lists no site.
func nightOf(t *testing.T, st store.Store, n int, id string, after time.Duration, timelines []timeline) {
	t.Helper()
	listed := func(l timeline) bool { return n < len(l.letters) && l.letters[n] != '-' }
	if !slices.ContainsFunc(timelines, listed) {
		return
	}
	at := firstNight.AddDate(0, 0, n).Add(after)
	date := at.Format(time.DateOnly)
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: id + date, Date: date})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range timelines {
		if !listed(l) {
			continue
		}
		o, err := origin.Parse(l.host)
		if err != nil {
			t.Fatal(err)
		}
		site := &audit.Site{Seq: uint64(i), Input: o.Host(), Origin: o, Label: l.label, Rank: l.rank,
			Fetch: answered(t, l.letters[n])}
		site.Fetch.FetchedAt = at.Add(l.late[n])
		site.Fetch.Fields.CacheControl = []byte(l.cacheControl)
		audit.Judge(site)
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Complete(t.Context()), w.Close(t.Context()), index.Update(t.Context(), st)); err != nil {
		t.Fatal(err)
	}
}

// answered returns what a letter stands for: a, b and o are files that block all agents, GPTBot, or nobody, B is b with
// another line; m, f, r and s the statuses 404, 403, 429 and 503, of which c and d are challenges; x a failure, n an
// opt-out.
func answered(t *testing.T, letter byte) exchange.Response {
	t.Helper()
	r := exchange.Response{Outcome: exchange.Answered, Status: 200}
	switch letter {
	case 'a':
		r.Body = []byte("User-agent: *\nDisallow: /\n")
	case 'b':
		r.Body = []byte("User-agent: GPTBot\nDisallow: /\n")
	case 'B':
		r.Body = []byte("# as b, one line down\nUser-agent: GPTBot\nDisallow: /\n")
	case 'o':
		r.Body = []byte("User-agent: *\nDisallow: /private\n")
	case 'm':
		r.Status = 404
	case 'f':
		r.Status = 403
	case 'r':
		r.Status = 429
	case 's':
		r.Status = 503
	case 'c':
		r.Status, r.Fields.Challenge = 403, "cloudflare"
	case 'd':
		r.Status, r.Fields.Challenge = 503, "cloudflare"
	case 'x':
		r.Outcome, r.Status = exchange.ConnectTimeout, 0
	case 'n':
		r.Outcome, r.Status = exchange.OptedOut, 0
	default:
		t.Fatalf("no answer has the letter %q", letter)
	}
	return r
}

// TestAccessAsCrawled checks on each night which answer decides, for the timelines of testdata/crawled.jsonl. A line
// has the letters of nightOf, each with the number of nights, and again, those of a second scan 12 hours later. want
// are numbers of nights, each with source, access, access_copy_dropped, star_verdict, whether GPTBot is blocked (b or
// o), the night of the answer (= is the night itself, - none), and that of the first failure. Without these there is no
// row.
func TestAccessAsCrawled(t *testing.T) {
	needDuckDB(t)
	data, err := os.ReadFile("testdata/crawled.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var nights, again []timeline
	var want []map[string]string // by night: the expected text about each host
	var abouts []string
	for line := range strings.Lines(string(data)) {
		var v struct {
			About, Nights, Again, Want string
			CacheControl               string      `json:"cache_control"`
			LateMillis                 map[int]int `json:"late_ms"` // by number of the night, from 1
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		host := fmt.Sprintf("s%d.example", len(nights))
		late := map[int]time.Duration{}
		for n, ms := range v.LateMillis {
			late[n-1] = time.Duration(ms) * time.Millisecond
		}
		nights = append(nights, timeline{host: host, letters: repeated(t, v.Nights), cacheControl: v.CacheControl,
			late: late})
		again = append(again, timeline{host: host, letters: repeated(t, v.Again)})
		abouts = append(abouts, host+": "+v.About)
		n := 0
		for says := range strings.SplitSeq(v.Want, ", ") {
			count, says, _ := strings.Cut(says, " ")
			for range number(t, count) {
				if n == len(want) {
					want = append(want, map[string]string{})
				}
				if n++; says != "" {
					want[n-1][host] = strings.Replace(says, "=", strconv.Itoa(n), 1)
				}
			}
		}
		if n != len(nights[len(nights)-1].letters) {
			t.Fatalf("%s: it is wanted of %d nights, of %d", v.About, n, len(nights[len(nights)-1].letters))
		}
	}
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// Each night has one query for all hosts.
	all := []Query{{SQL: "CREATE TABLE read AS FROM sites; CREATE OR REPLACE VIEW sites AS FROM read"}}
	for n := range want {
		nightOf(t, st, n, "n", 0, nights)
		nightOf(t, st, n, "again", 12*time.Hour, again)
		all = append(all, Query{SQL: fmt.Sprintf(`SELECT host, concat_ws(' ', source, access, access_copy_dropped, star_verdict, CASE WHEN list_contains(blocked, 'GPTBot') THEN 'b' ELSE 'o' END,
			coalesce(CAST(as_of - DATE '2025-12-31' AS VARCHAR), '-'), coalesce(CAST(failing_since - DATE '2025-12-31' AS VARCHAR), '-')) FROM access_as_crawled('%s')`, firstNight.AddDate(0, 0, n).Format(time.DateOnly))})
	}
	differs := map[string]bool{}
	for n, answer := range ask(t, dir, all)[1:] {
		got := map[string]string{}
		for _, row := range answer.Rows {
			got[fmt.Sprint(row[0])] = fmt.Sprint(row[1])
		}
		if len(got) != len(answer.Rows) {
			t.Errorf("night %d: %d rows of %d sites", n+1, len(answer.Rows), len(got))
		}
		for i, l := range nights {
			if got[l.host] != want[n][l.host] && !differs[l.host] {
				differs[l.host] = true // later nights would say the same
				t.Errorf("%s: night %d\n\t%q, want\n\t%q", abouts[i], n+1, got[l.host], want[n][l.host])
			}
		}
	}
}

// repeated returns letters that each have the number of their repetitions.
func repeated(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		b.WriteString(strings.Repeat(word[:1], number(t, word[1:])))
	}
	return b.String()
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFreshUntil shows that max-age shortens the 24 hours, and never lengthens them.
func TestFreshUntil(t *testing.T) {
	needDuckDB(t)
	dir := t.TempDir()
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	nightsOf(t, st, "one.example=b")
	answers := ask(t, dir,
		[]Query{{SQL: `SELECT string_agg(strftime(fresh_until(TIMESTAMP '2026-01-01 00:00:00', c), '%d %H:%M'), ', ') FROM unnest([NULL, '', 'max-age=60', 'public, MAX-AGE=3600', 's-maxage=60', 'max-age="120"', 'max-age=9999999999999999999999', 'max-age=604800', 'max-age=0', 'max-age=-1']) AS t(c)`}})
	if got, want := fmt.Sprint(answers[0].Rows),
		"[[02 00:00, 02 00:00, 01 00:01, 01 01:00, 02 00:00, 01 00:02, 02 00:00, 02 00:00, 01 00:00, 02 00:00]]"; got != want {
		t.Errorf("fresh_until: %s %s, want %s", got, answers[0].Error, want)
	}
}

// TestNightsDataset makes a dataset of a date a week over half a year, and its history. With NIGHTS_DATASET=DIR it
// keeps the dataset in DIR for other readers.
func TestNightsDataset(t *testing.T) {
	dir, sites := os.Getenv("NIGHTS_DATASET"), 400
	if dir == "" {
		dir, sites = t.TempDir(), 20
	}
	st, err := store.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := Survey{Sites: sites, Statistics: statistics}
	for day := time.Date(2026, 5, 23, 0, 0, 0, 0, time.UTC); day.Before(time.Date(2026, 11, 22, 0, 0, 0, 0,
		time.UTC)); day = day.AddDate(0, 0, 7) {
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
	nightsOf(t, st, "always.example=oobb", "www.always.example=obbb", "shop.always.example=bbbb", "fails.example=bxsb",
		"pauses.example=b-bb", "comes.example=-bbb", "goes.example=bbb-", "www.alone.example=obob", "dead.example=xxxx")
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
		{show + "history_all() SEMI JOIN panel_balanced() USING (site)",
			"always.example fails.example shop.always.example www.alone.example www.always.example"},
		{"SELECT CAST(count(*) AS VARCHAR) FROM panel_balanced()", "6"}, // with dead.example, which has no episode
		{show + "history_all() SEMI JOIN panel_folded() USING (site)",
			"always.example comes.example fails.example goes.example pauses.example shop.always.example www.alone.example"},
		{"CREATE OR REPLACE TABLE panel AS SELECT site FROM panel_balanced() SEMI JOIN panel_folded() USING (site)" + use +
			show + "first_blocked('GPTBot')", "always.example fails.example shop.always.example www.alone.example"},
		{"SELECT string_agg(blocking || '/' || \"of\", ' ' ORDER BY night) FROM blocked_over_time('GPTBot')",
			"2/4 2/3 2/3 4/4"},
		{"CREATE OR REPLACE TABLE panel AS SELECT DISTINCT site FROM history_all() WHERE host IN ('goes.example')" + use +
			"SELECT string_agg(blocking || '/' || \"of\", ' ' ORDER BY night) FROM blocked_over_time('GPTBot')",
			"1/1 1/1 1/1 0/0"},
	} {
		all, want = append(all, Query{Name: c.sql, SQL: c.sql}), append(want, c.want)
	}
	for i, a := range ask(t, dir, all) {
		if got := fmt.Sprint(a.Rows); got != "[["+want[i]+"]]" {
			t.Errorf("%s: %s %s, want %s", a.Name, got, a.Error, want[i])
		}
	}
}
