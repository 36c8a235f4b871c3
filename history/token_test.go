package history

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// writeLedger writes a ledger with these nights, as merges of one night each do.
func (l *memory) write(t *testing.T, st store.Store, nights []worldNight) {
	t.Helper()
	ledger := &Ledger{SchemaVersion: schema.Version}
	for _, night := range nights {
		ledger.Scans = append(ledger.Scans, MergedScan{ScanID: night.date.String(), ScanDate: night.date.String()})
	}
	var policies []Policy
	for _, p := range l.policies {
		policies = append(policies, *p)
	}
	for _, files := range [][]File{
		writeRows(t, st, Policies, false, policies),
		writeRows(t, st, History, false, l.closed), writeRows(t, st, History, true, l.open),
		writeRows(t, st, Gaps, false, l.closedGaps), writeRows(t, st, Gaps, true, l.openGaps),
	} {
		ledger.Files = append(ledger.Files, files...)
	}
	if err := commit.Change(t.Context(), st, nil, func(h *commit.Head) error {
		return ledger.write(t.Context(), st, h,
			"")
	}); err != nil {
		t.Fatal(err)
	}
}

func writeRows[T any](t *testing.T, st store.Store, table string, open bool, rows []T) []File {
	t.Helper()
	out := output[T]{table: table, kind: map[bool]string{true: openRows, false: closedRows}[open]}
	d := newDraft(t.Context(), st, Options{}, nil, &Ledger{})
	err := out.begin(d)
	for i := range rows {
		if err == nil {
			err = out.add(d, &rows[i])
		}
	}
	files, errPublish := out.publish(d)
	if err != nil || errPublish != nil {
		t.Fatal(err, errPublish)
	}
	return files
}

// TestTokensOfWorlds compares the counts of tokens with the observations of random worlds, night by night and without
// episodes. The worlds have one judge, since another one may judge earlier nights anew.
func TestTokensOfWorlds(t *testing.T) {
	worlds := uint64(400)
	if testing.Short() {
		worlds = 60
	}
	// Of the policies' tokens, B is one without a group, with a fallback and then `*`, and C ignores `*`.
	registry, err := tokens.Load(strings.NewReader("name | * | fallback\nA | yes |\nB | yes | A\nC | no |\n"))
	if err != nil {
		t.Fatal(err)
	}
	names, compared := []string{"A", "B", "C"}, 0
	var asked []int
	for _, name := range names {
		asked = append(asked, registry.Lookup(name))
	}
	for seed := range worlds {
		w := newWorld(seed)
		judge := ""
		if slices.ContainsFunc(w.nights, func(n worldNight) bool {
			return slices.ContainsFunc(n.rows, func(o Observation) bool {
				defer func() { judge = o.From.Judge }()
				return judge != "" && judge != o.From.Judge
			})
		}) {
			continue
		}
		st := newDir(t)
		w.incremental(t).write(t, st, w.nights)
		for last := 1; last < len(w.nights); last++ {
			got, err := CountTokens(t.Context(), st, TokensAsked{ScanID: w.nights[last].date.String(), Registry: registry,
				Tokens: asked})
			if err != nil {
				t.Fatal(err)
			}
			for i, count := range got.Tokens {
				compared++
				w.compare(t, names[i], last, &count)
			}
			if t.Failed() {
				t.Fatalf("world %d until %v", seed, w.nights[last].date)
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d counts are compared", compared)
	}
}

// compare compares the counts of a token until a night with the observations.
func (w *world) compare(t *testing.T, token string, last int, got *TokenCount) {
	t.Helper()
	state := func(o *Observation) string {
		switch p := w.policies[o.Policy]; {
		case isGap(o.Finding):
			return o.Finding
		case p.Class != ClassRules:
			return p.Class
		case slices.Contains(p.OwnBlocked, token), token == "B" && slices.Contains(p.OwnBlocked, "A"), token != "C" &&
			p.StarVerdict == "blocked":
			return "blocked"
		}
		return "open"
	}
	want := map[string]int64{}
	since := map[int64]bool{} // sites that were blocking before
	listed := map[int64]bool{}
	before := map[int64]string{}
	for i, night := range w.nights[:last+1] {
		now := map[int64]string{}
		for site := range listed {
			now[site] = Unlisted
		}
		for _, o := range arranged(night.rows) {
			now[o.Site] = state(&o)
			listed[o.Site] = true
			if now[o.Site] == "blocked" && !since[o.Site] {
				since[o.Site] = true
				want["first "+night.date.String()]++
			}
		}
		if i == last {
			for site, after := range now {
				was, ok := before[site]
				if !ok {
					was = "absent"
				}
				want[was+" "+after]++
				if after == "blocked" {
					want["last"]++
				}
			}
		}
		before = now
	}
	for _, r := range got.FirstBlocked {
		want["first "+r.Night.String()] -= r.Sites
	}
	for _, r := range got.Transitions {
		want[r.Before+" "+r.After] -= r.Sites
		if r.Change == "began" && r.Before+r.After != "openblocked" || r.Change == "ceased" && r.Before+
			r.After != "blockedopen" {
			t.Errorf("token %s: %+v", token, r)
		}
	}
	if len(got.Survival) > 0 {
		row := got.Survival[len(got.Survival)-1]
		if want["last"] -= row.Sites; row.ByThen != row.Sites || row.Maybe != row.Sites {
			t.Errorf("token %s: on the last night %+v", token, row)
		}
	}
	for what, n := range want {
		if n != 0 {
			t.Errorf("token %s: %s is %d too few", token, what, n)
		}
	}
}

// TestOnsets has a site on the nights 1, 2 and so on, a letter each: o open, b blocked, n no file, r refused, h a page,
// - a failure, ? by a registry that lacks the token, B blocked as another observer sees it. It blocks the token at
// last: it began after a night, and by a night.
func TestOnsets(t *testing.T) {
	registry, err := tokens.Load(strings.NewReader("name\nGPTBot\n"))
	if err != nil {
		t.Fatal(err)
	}
	policies, ids := map[int64]*Policy{}, map[byte]int64{}
	for letter, p := range map[byte]Policy{'o': letters['B'], 'b': letters['A'], 'B': letters['A'], '?': letters['B'],
		'n': letters['N'], 'r': letters['F'], 'h': letters['H']} {
		p = p.Canonical()
		policies[p.ID], ids[letter] = &p, p.ID
	}
	f := func(site, censoring string, after, by Date) {
		t.Helper()
		l := memory{policies: policies}
		var nights []worldNight
		for i, letter := range []byte(site) {
			o := Observation{Site: 7, Host: "a.example", Finding: "unreachable", From: &Source{"a", "new 1"}}
			if id, ok := ids[letter]; ok {
				if o.Policy, o.Finding = id, policies[id].Class; o.Finding == ClassRules {
					o.Body = int64(letter | 0x20)
				}
			}
			switch letter {
			case 'B':
				o.From = &Source{"b", "new 1"}
			case '?':
				o.From = &Source{"a", "old 1"}
			}
			night := worldNight{Date(i + 1), []Observation{o}}
			if _, err := l.merge(night.date, night.rows); err != nil {
				t.Fatal(err)
			}
			nights = append(nights, night)
		}
		st := newDir(t)
		l.write(t, st, nights)
		counts, err := CountTokens(t.Context(), st, TokensAsked{
			ScanID: nights[len(nights)-1].date.String(), Registry: registry, Tokens: []int{registry.Lookup("GPTBot")},
			Lacks: func(version, _ string) bool { return version == "old" },
		})
		if err != nil {
			t.Fatal(err)
		}
		first := counts.Tokens[0].FirstBlocked
		if len(first) != 1 || first[0].Censoring != censoring || first[0].Night != by {
			t.Errorf("%s: %+v, want %s by %d", site, first, censoring, by)
		}
		for _, row := range counts.Tokens[0].Survival {
			if maybe := row.Night > after; row.Maybe != 1 && maybe || row.Maybe != 0 && !maybe || row.ByThen != 1 &&
				row.Night >= by || row.ByThen != 0 && row.Night < by {
				t.Errorf("%s: %+v, want after %d and by %d", site, row, after, by)
			}
		}
	}
	f("b", "left", 0, 1)
	f("-b", "left", 0, 2)
	f("ob", "interval", 1, 2)
	f("nb", "interval", 1, 2)
	f("onb", "interval", 2, 3)
	f("o-b", "interval", 1, 3)
	// Refusals and pages may hide rules.
	f("ooorrrrrb", "interval", 3, 9)
	f("oo-hhr-bb", "interval", 2, 8)
	f("nrb", "interval", 1, 3)
	f("rnhb", "interval", 2, 4)
	f("rb", "unread", 0, 2)
	f("hr-hb", "unread", 0, 5)
	f("brb", "left", 0, 1)
	// An unknown earlier state stays unknown, whatever comes between.
	f("?b", "unknown", 0, 2)
	f("?rb", "unknown", 0, 3)
	f("?nb", "unknown", 0, 3)
	f("?h-nb", "unknown", 0, 5)
	f("oB", "unknown", 0, 2)
	f("orB", "unknown", 0, 3)
	f("rB", "unread", 0, 2)
}
