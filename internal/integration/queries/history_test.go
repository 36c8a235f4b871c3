package queries

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// TestPoliciesBlocking checks, for every token of the registry, that the policies of the ledger block the same sites as
// the rows of sites, and that the share of each night is that of token_shares.
func TestPoliciesBlocking(t *testing.T) {
	bodies := slices.Concat(sharedtest.Bodies(t, "modern-ai"), sharedtest.Bodies(t, "typical12k")[:2000],
		sharedtest.Bodies(t, "mix12k")[:300])
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 6000, Dates: dates, Bodies: bodies})
	withHistory(t, st)
	asked := []Query{
		{SQL: `CREATE TABLE told AS SELECT s.blocked, h.policy_id FROM sites AS s JOIN history AS h USING (host, port, requested)
			WHERE s.finding = 'rules' AND s.scan_date BETWEEN h.valid_from AND h.valid_to`},
		{SQL: "CREATE TABLE shares AS FROM token_shares WHERE segment_kind = 'all' AND definition = 'full'"},
	}
	for _, token := range tokens.Default().Tokens {
		asked = append(asked, Query{Name: token.Name, SQL: fmt.Sprintf(`SELECT count(*) > 1000, count(*) FILTER (list_contains(blocked, %[1]s) <> (policy_id IN (SELECT b.policy_id FROM policies_blocking(%[1]s) AS b)))
			FROM told`, literal(token.Name))},
			Query{Name: token.Name, SQL: fmt.Sprintf(`SELECT count(*) = %[2]d, count(*) FILTER (b.unknown > 0 OR (b.blocking, b."of") IS DISTINCT FROM (s.blocking, s."of"))
			FROM blocked_over_time(%[1]s) AS b LEFT JOIN shares AS s ON scan_date = night AND token = %[1]s`, literal(token.Name), len(dates))})
	}
	for _, a := range ask(t, dir, asked)[2:] {
		compareAnswers(t, a, [][]any{{true, int64(0)}})
	}
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// withHistory derives the ledger of a dataset, and writes its views.
func withHistory(t *testing.T, st store.Store) {
	t.Helper()
	if err := history.Rebuild(t.Context(), st, history.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := sinkviews.Write(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
}

// life is the history of one site, night after night.
type life struct {
	site     int64
	episodes []history.Episode
	gaps     []history.Gap
	holds    []int    // by night: index of the last episode so far, or -1
	gap      []string // by night: class of the gap, or ""
}

// lives is a random ledger.
type lives struct {
	nights   []history.Date
	policies map[int64]history.Policy
	sites    []*life

	namedLater int // transitions of sites that were first observed after the later night
}

// The judge oldJudge has a registry without oldLacks.
const (
	oldJudge = "old 1.0.0"
	oldLacks = "Googlebot-News"
)

// randomLives returns a ledger of short nights, with every cause, class and gap.
func randomLives(seed uint64) *lives {
	rng := rand.New(rand.NewPCG(seed, 12))
	w := &lives{policies: map[int64]history.Policy{}}
	var ids []int64
	add := func(p history.Policy) {
		p = p.Canonical()
		w.policies[p.ID] = p
		ids = append(ids, p.ID)
	}
	for _, class := range []string{history.ClassNone, history.ClassHTML, history.ClassRefused} {
		add(history.Policy{Class: class})
	}
	some := []string{"GPTBot", "Googlebot", "Googlebot-News", "AdsBot-Google"}
	for range 9 {
		p := history.Policy{Class: history.ClassRules, StarVerdict: []string{"allowed", "partial", "blocked"}[rng.IntN(3)]}
		for _, token := range some {
			switch rng.IntN(8) {
			case 0, 1:
				p.OwnBlocked = append(p.OwnBlocked, token)
			case 2:
				p.OwnPartial = append(p.OwnPartial, token)
			case 3:
				p.OwnAllowed = append(p.OwnAllowed, token)
			}
		}
		add(p)
	}
	date, err := history.ParseDate("2026-01-01")
	if err != nil {
		panic(err)
	}
	for range 12 {
		date += history.Date(1 + rng.IntN(3))
		w.nights = append(w.nights, date)
	}
	for i := range 120 {
		w.sites = append(w.sites, w.live(rng, int64(i*1_000_003-50_000_000), ids))
	}
	return w
}

// live makes the episodes and gaps of a site.
func (w *lives) live(rng *rand.Rand, site int64, ids []int64) *life {
	l := &life{site: site}
	begins, changes, fails := rng.IntN(4), rng.IntN(60), rng.IntN(40)
	for n, night := range w.nights {
		last := len(l.episodes) - 1
		class := ""
		if n >= begins && rng.IntN(100) < fails {
			class = []string{history.Unlisted, "unreachable", "challenged"}[rng.IntN(3)]
			if last < 0 && len(l.gaps) == 0 {
				class = "unreachable" // a site appears by being listed
			}
		}
		switch {
		case n < begins:
		case class != "":
			if g := len(l.gaps) - 1; g >= 0 && l.gaps[g].Class == class && n > 0 && l.gaps[g].Last == w.nights[n-1] {
				l.gaps[g].Last = night
				l.gaps[g].Nights++
			} else {
				l.gaps = append(l.gaps, history.Gap{Site: site, Class: class, First: night, Last: night, Nights: 1})
			}
		case last >= 0 && rng.IntN(100) >= changes:
			l.episodes[last].ValidTo = night
		default:
			e := history.Episode{Site: site, Host: fmt.Sprint("host", site), Port: 443, Requested: "auto",
				Policy: ids[rng.IntN(len(ids))], ValidFrom: night, ValidTo: night, Cause: history.First, Observer: "a",
				Judge: []string{oldJudge, "new 1.0.0"}[min(1, rng.IntN(4))]}
			if last >= 0 {
				e.PreviousLast, e.Cause = l.episodes[last].ValidTo, w.cause(rng, l.episodes[last].Policy, e.Policy)
			}
			l.episodes = append(l.episodes, e)
		}
		l.gap, l.holds = append(l.gap, class), append(l.holds, len(l.episodes)-1)
	}
	return l
}

func (w *lives) cause(rng *rand.Rand, before, after int64) history.Cause {
	a, b := w.policies[before].Class, w.policies[after].Class
	switch {
	case rng.IntN(5) == 0:
		return []history.Cause{history.ByObserver, history.UnknownJudge}[rng.IntN(2)]
	case a != b && (a == history.ClassRefused || b == history.ClassRefused):
		return history.ByRefusal
	case a != b:
		return history.ByPresence
	}
	return []history.Cause{history.ByPolicy, history.ByManaged}[rng.IntN(2)]
}

// write writes the ledger into a dataset.
func (w *lives) write(t *testing.T, st store.Store) {
	t.Helper()
	f := ledgerFiles{ctx: t.Context(), store: st}
	for _, night := range w.nights {
		f.night(night)
	}
	var policies []history.Policy
	for _, p := range w.policies {
		policies = append(policies, p)
	}
	ledgerFile(&f, history.Policies, policies, false)
	var closed, open []history.Episode
	var gaps []history.Gap
	for _, l := range w.sites {
		if n := len(l.episodes) - 1; n >= 0 {
			closed, open = append(closed, l.episodes[:n]...), append(open, l.episodes[n])
		}
		gaps = append(gaps, l.gaps...)
	}
	ledgerFile(&f, history.History, closed, false)
	ledgerFile(&f, history.History, open, true)
	ledgerFile(&f, history.Gaps, gaps, true)
	if err := f.record(); err != nil {
		t.Fatal(err)
	}
}

// state returns the state of a token in an episode.
func (w *lives) state(e *history.Episode, token string) string {
	p := w.policies[e.Policy]
	switch {
	case p.Class != history.ClassRules:
		return p.Class
	case token == oldLacks && e.Judge == oldJudge:
		return "unknown"
	}
	all := tokens.Default()
	known := all.Tokens[all.Lookup(token)]
	for _, id := range append([]int{all.Lookup(token)}, known.Chain...) {
		switch name := all.Tokens[id].Name; {
		case slices.Contains(p.OwnBlocked, name):
			return "blocked"
		case slices.Contains(p.OwnPartial, name), slices.Contains(p.OwnAllowed, name):
			return "open"
		}
	}
	if known.HeedsStar && p.StarVerdict == "blocked" {
		return "blocked"
	}
	return "open"
}

// spell is a row of token_spells.
type spell struct {
	site              int64
	state             string
	after, by         string // dates
	censoring, change string
	cause             history.Cause
}

// spaced joins values with a space, as concat_ws does.
func spaced(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func noTransition(c history.Cause) bool { return c == history.ByObserver || c == history.UnknownJudge }

// spells returns the spells of a site.
func (w *lives) spells(l *life, token string, files bool) (all []spell) {
	before, broken := "", false
	for i := range l.episodes {
		e := &l.episodes[i]
		broken = broken || noTransition(e.Cause)
		state := w.state(e, token)
		if state == "refused" || state == "html" || !files && w.policies[e.Policy].Class != history.ClassRules {
			continue
		}
		if state != before && state != "unknown" {
			s := spell{site: l.site, state: state, by: e.ValidFrom.String(), cause: e.Cause}
			s.after, s.censoring = w.bound(l.episodes[:i+1], before)
			if !broken && before != "" && before != "unknown" && (before == "blocked" || state == "blocked") {
				s.change = changeOf(before, state)
			}
			all = append(all, s)
		}
		before, broken = state, false
	}
	return all
}

// bound returns the night after which the last of a site's episodes brought a new state of the rules, and the censoring
// of that night.
func (w *lives) bound(episodes []history.Episode, before string) (after, censoring string) {
	if len(episodes) == 1 {
		return "", "left"
	}
	known := before != "unknown"
	for i := len(episodes) - 1; i > 0; i-- {
		known = known && !noTransition(episodes[i].Cause)
		switch class := w.policies[episodes[i-1].Policy].Class; {
		case class == history.ClassRefused, class == history.ClassHTML:
		case known:
			return episodes[i-1].ValidTo.String(), "interval"
		default:
			return "", "unknown"
		}
	}
	return "", "unread"
}

// at returns the state of a site on a night.
func (w *lives) at(l *life, night int, token string) string {
	switch {
	case l.gap[night] != "":
		return l.gap[night]
	case l.holds[night] < 0:
		return "absent"
	}
	return w.state(&l.episodes[l.holds[night]], token)
}

// move is the change of a site from one night to another.
type move struct {
	before, after, change string
	causes                []string
}

// transition returns the move of a site; ok is false for a site that is listed later.
func (w *lives) transition(l *life, earlier, later int, token string) (m move, ok bool) {
	m.before, m.after = w.at(l, earlier, token), w.at(l, later, token)
	if m.after == "absent" {
		return m, false
	}
	allowed := true
	for _, cause := range []history.Cause{history.ByPolicy, history.ByManaged, history.ByPresence, history.ByRefusal,
		history.ByObserver, history.UnknownJudge} {
		for i := l.holds[earlier] + 1; i <= l.holds[later]; i++ {
			if i > 0 && l.episodes[i].Cause == cause {
				m.causes = append(m.causes, string(cause))
				allowed = allowed && !noTransition(cause)
				break
			}
		}
	}
	observed := l.gap[earlier] == "" && l.gap[later] == "" && m.before != "absent"
	if observed && allowed && m.before != "unknown" && m.after != "unknown" {
		m.change = changeOf(m.before, m.after)
	}
	return m, true
}

// survival returns a row a night for the last spells of the sites that block on the last of these nights.
func survival(nights []history.Date, lasting []spell) (rows []history.Survival) {
	for _, night := range nights {
		row := history.Survival{Night: night, Sites: int64(len(lasting))}
		for _, s := range lasting {
			if s.by <= night.String() {
				row.ByThen++
			}
			if s.after == "" || s.after < night.String() {
				row.Maybe++
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// TestHistoryMacros compares the macros with loops over the episodes of random ledgers.
func TestHistoryMacros(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 30, Dates: dates[:1]})
	seen := map[string]int{}
	for seed := range uint64(3) {
		w := randomLives(seed)
		w.write(t, st)
		if err := sinkviews.Write(t.Context(), st, nil); err != nil {
			t.Fatal(err)
		}
		asked := []Query{{SQL: fmt.Sprintf(
			`CREATE OR REPLACE VIEW registry_tokens AS SELECT 'new' AS registry_version, token FROM tokens UNION ALL SELECT 'old', token FROM tokens WHERE token <> '%s'`, oldLacks)}}
		want := [][]string{nil}
		expect := func(columns, from string, rows []string) {
			asked = append(asked, Query{Name: fmt.Sprintf("ledger %d: %s", seed, from),
				SQL: fmt.Sprintf("SELECT trim(concat_ws(' ', %s)) FROM %s", columns, from)})
			for i := range rows {
				rows[i] = strings.TrimSpace(rows[i])
			}
			want = append(want, rows)
		}
		for _, token := range []string{"GPTBot", oldLacks, "AdsBot-Google"} {
			w.expect(token, expect)
		}
		seen["named later"] += w.namedLater
		for n, night := range w.nights {
			var rows []string
			for _, l := range w.sites {
				if l.holds[n] >= 0 {
					e := &l.episodes[l.holds[n]]
					rows = append(rows, spaced(l.site, e.Policy, w.policies[e.Policy].Class, l.gap[n] == "", l.gap[n], e.ValidFrom))
				}
			}
			for date := night; date < night+3 && (n == len(w.nights)-1 || date < w.nights[n+1]); date++ {
				// also dates without a night
				expect("site, policy_id, class, observed, coalesce(gap, ''), valid_from",
					fmt.Sprintf("policies_at('%s') WHERE night = '%s'", date, night), rows)
			}
		}
		for i, a := range ask(t, dir, asked)[1:] {
			rows := map[string]int{}
			for _, row := range want[i+1] {
				rows[row]--
			}
			for _, row := range a.Rows {
				text := fmt.Sprint(row[0])
				rows[text]++
				for _, word := range strings.Fields(text) {
					seen[word]++
				}
			}
			for row, n := range rows {
				if n != 0 {
					t.Errorf("%s: %+d of %s", a.Name, n, row)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	for _, word := range []string{"left", "unread", "unknown", "interval", "began", "ceased", "appeared", "removed",
		"refusal", "presence", "absent", "unlisted", "challenged", "named later"} {
		if seen[word] < 10 {
			t.Errorf("%s is in %d answers: the ledgers do not test it", word, seen[word])
		}
	}
}

// expect adds the expected answers of the macros with a token.
func (w *lives) expect(token string, expect func(columns, from string, rows []string)) {
	var spells, ofFiles, first, reversals, flapping, survivors, shares []string
	var lasting []spell
	last := len(w.nights) - 1
	for _, l := range w.sites {
		all := w.spells(l, token, false)
		for _, s := range w.spells(l, token, true) {
			ofFiles = append(ofFiles, spaced(s.site, s.state, s.after, s.by, s.censoring, s.cause, s.change))
		}
		changes, blocking := 0, []spell(nil)
		for i, s := range all {
			spells = append(spells, spaced(s.site, s.state, s.after, s.by, s.censoring, s.cause, s.change))
			if s.state == "blocked" {
				blocking = append(blocking, s)
			}
			if s.change != "" {
				changes++
			}
			if i > 0 && s.change != "" && all[i-1].change != "" {
				reversals = append(reversals, spaced(s.site, all[i-1].change, all[i-1].after, all[i-1].by, s.after, s.by, s.cause))
			}
		}
		if len(blocking) > 0 {
			s := blocking[0]
			first = append(first, spaced(s.site, s.after, s.by, s.censoring, s.cause))
		}
		if changes >= 2 {
			flapping = append(flapping, spaced(l.site, changes))
		}
		if w.at(l, last, token) == "blocked" {
			lasting = append(lasting, blocking[len(blocking)-1])
		}
	}
	for _, row := range survival(w.nights, lasting) {
		survivors = append(survivors, spaced(row.Night, row.ByThen, row.Maybe, row.Sites))
	}
	for n, night := range w.nights {
		states := map[string]int{}
		for _, l := range w.sites {
			states[w.at(l, n, token)]++
		}
		shares = append(shares, spaced(night, states["blocked"], states["blocked"]+states["open"], states["unknown"]))
	}
	of := "(" + literal(token) + ")"
	expect("site, state, coalesce(CAST(previous_last AS VARCHAR), ''), valid_from, censoring, cause, change",
		"token_spells"+of, spells)
	expect("site, state, coalesce(CAST(previous_last AS VARCHAR), ''), valid_from, censoring, cause, change",
		"token_spells("+literal(token)+", files := true)", ofFiles)
	expect("site, coalesce(CAST(previous_last AS VARCHAR), ''), valid_from, censoring, cause", "first_blocked"+of, first)
	expect(
		"site, change, coalesce(CAST(previous_last AS VARCHAR), ''), valid_from, coalesce(CAST(reversed_after AS VARCHAR), ''), reversed_by, reversal_cause", "reversals"+of, reversals)
	expect("site, changes", "flapping("+literal(token)+", at_least := 2)", flapping)
	expect("night, by_then, maybe, \"of\"", "survival"+of, survivors)
	expect("night, blocking, \"of\", unknown", "blocked_over_time"+of, shares)
	// nothing was carried forward
	expect("night, blocking, \"of\", unknown", fmt.Sprintf("blocked_over_time(%s, as_last_seen := true)", literal(token)),
		shares)
	for _, pair := range [][2]int{{0, last}, {last - 1, last}, {0, 2}, {2, 7}, {5, 6}} {
		var rows []string
		for _, l := range w.sites {
			if m, ok := w.transition(l, pair[0], pair[1], token); ok {
				host := "" // of a site that was never observed
				if len(l.episodes) > 0 {
					e := &l.episodes[0]
					host = spaced(e.Host, e.Port, e.Requested)
					if e.ValidFrom > w.nights[pair[1]] {
						w.namedLater++
					}
				}
				rows = append(rows, spaced(l.site, host, m.before, m.after, strings.Join(m.causes, ","), m.change))
			}
		}
		expect(
			"site, coalesce(concat_ws(' ', host, port, requested), ''), before, after, array_to_string(causes, ','), change",
			fmt.Sprintf("transitions('%s', '%s', %s)", w.nights[pair[0]], w.nights[pair[1]], literal(token)), rows)
	}
}

// TestRegistries checks that a token that only the later scan's registry has is unknown on the earlier nights, where
// the file is not the same.
func TestRegistries(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 300, Dates: dates[:2]})
	more,
		err := tokens.Load(strings.NewReader(
		"name | category | purpose | operator\nsome-stranger | ai | training | Strangers\n"))
	if err != nil {
		t.Fatal(err)
	}
	later := Survey{Name: "later", Sites: 300, Dates: dates[2:], Registry: more, Statistics: func(ctx context.Context,
		st store.Store, id string) error {
		return stats.Write(ctx, st, id, survey.Options{Registry: more})
	}}
	if err := later.Write(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	withHistory(t, st)
	a := ask(t, dir,
		[]Query{{SQL: "SELECT unknown > 0 FROM blocked_over_time('some-stranger') WHERE night = (SELECT min(n.night) FROM nights AS n)"},
			{SQL: "SELECT unknown = 0 AND blocking > 0 FROM blocked_over_time('some-stranger') WHERE night = latest()"},
			{SQL: "SELECT sum(unknown) = 0 FROM blocked_over_time('GPTBot')"}})
	if fmt.Sprint(a[0].Rows, a[1].Rows, a[2].Rows) != "[[true]] [[true]] [[true]]" {
		t.Errorf(
			"the token is unknown at some sites on the first night, known at all on the last, and GPTBot on all nights: %v %v %v", a[0].Rows, a[1].Rows, a[2].Rows)
	}
}

// TestHistoryPage runs the SQL of docs/history.md.
func TestHistoryPage(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 100, Dates: dates})
	withHistory(t, st)
	page, err := os.ReadFile("../../../docs/history.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sql, found := strings.Cut(string(page), "\n## In SQL\n")
	if !found {
		t.Fatal("docs/history.md has no section of SQL")
	}
	var asked []Query
	for line := range strings.Lines(sql) {
		if sql, ok := strings.CutPrefix(line, "\t"); ok && !strings.HasPrefix(sql, "cd ") {
			asked = append(asked, Query{Name: sql, SQL: sql})
		}
	}
	if len(asked) < 8 {
		t.Errorf("only %d statements", len(asked))
	}
	ask(t, dir, asked)
}

// TestHistoryNeedsALedger checks that a deleted ledger does not leave rows, and that the tables of sites are still
// read.
func TestHistoryNeedsALedger(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 30, Dates: dates[:1]})
	withHistory(t, st)
	if err := os.RemoveAll(filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), tools, dir, []Query{{SQL: "FROM history"}}, 1, 1); err == nil ||
		!strings.Contains(err.Error(), "_ledger.json") {
		t.Errorf("without the ledger: %v", err)
	}
	if err := sinkviews.Write(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, dir, []Query{{SQL: "SELECT count(*) FROM sites"}}); fmt.Sprint(a[0].Rows) != "[[30]]" {
		t.Errorf("sites: %v", a[0].Rows)
	}
}

// changeOf names the change of a site's state from one observation to another; "" is none.
func changeOf(before, after string) string {
	switch {
	case before == after:
		return ""
	case before == "open" && after == "blocked":
		return "began"
	case before == "blocked" && after == "open":
		return "ceased"
	case after == "blocked" && before != "refused" && before != "html":
		return "appeared"
	case before == "blocked" && after != "refused" && after != "html":
		return "removed"
	case before == "refused" || after == "refused":
		return "refusal"
	}
	return "presence"
}
