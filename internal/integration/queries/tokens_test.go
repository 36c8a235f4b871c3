package queries

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/history"
	sinkviews "github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
)

// counted are the tokens that these tests count in random ledgers: oldLacks has a fallback, and the last one ignores
// `*`.
var counted = []string{"GPTBot", "Googlebot", oldLacks, "AdsBot-Google"}

// countTokens counts them up to a night of a random ledger.
func countTokens(t *testing.T, st store.Store, night history.Date) *history.TokenCounts {
	t.Helper()
	asked := history.TokensAsked{ScanID: "night-" + night.String(), Registry: tokens.Default(),
		Lacks: func(version, token string) bool { return version == "old" && token == oldLacks }}
	for _, name := range counted {
		asked.Tokens = append(asked.Tokens, asked.Registry.Lookup(name))
	}
	counts, err := history.CountTokens(t.Context(), st, asked)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// TestCountTokens compares history.CountTokens with loops over the episodes of random ledgers, up to each night.
func TestCountTokens(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		w := randomLives(seed)
		st, err := store.NewDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w.write(t, st)
		for last := 1; last < len(w.nights); last++ {
			got := countTokens(t, st, w.nights[last])
			if !slices.Equal(got.Nights, w.nights[:last+1]) {
				t.Fatalf("ledger %d: nights %v, want %v", seed, got.Nights, w.nights[:last+1])
			}
			for i, token := range counted {
				if want := w.counts(last, token); !reflect.DeepEqual(got.Tokens[i], want) {
					t.Fatalf("ledger %d, %s until %v:\n got %+v\nwant %+v", seed, token, w.nights[last], got.Tokens[i], want)
				}
				for _, row := range got.Tokens[i].Transitions {
					seen[row.Change]++
					seen[row.Before]++
				}
				for _, row := range got.Tokens[i].FirstBlocked {
					seen[row.Censoring]++
				}
			}
		}
	}
	for _, word := range []string{"left", "unread", "unknown", "interval", "began", "ceased", "appeared", "removed",
		"refusal", "presence", "absent", "unlisted", "challenged"} {
		if seen[word] < 10 {
			t.Errorf("%s is in %d rows: the ledgers do not test it", word, seen[word])
		}
	}
}

// counts returns what CountTokens should count until a night.
func (w *lives) counts(last int, token string) (c history.TokenCount) {
	first, moves := map[history.FirstBlocked]int64{}, map[history.Transition]int64{}
	var lasting []spell
	for _, l := range w.sites {
		if m, ok := w.transition(l, last-1, last, token); ok {
			moves[history.Transition{Before: m.before, After: m.after, Change: m.change}]++
		}
		until := *l
		until.episodes = l.episodes[:l.holds[last]+1]
		blocking := slices.DeleteFunc(w.spells(&until, token, false), func(s spell) bool { return s.state != "blocked" })
		if len(blocking) > 0 {
			night, err := history.ParseDate(blocking[0].by)
			if err != nil {
				panic(err)
			}
			first[history.FirstBlocked{Night: night, Censoring: blocking[0].censoring}]++
		}
		for _, s := range w.spells(&until, token, false) {
			if s.change != "" {
				c.Changes++
			}
		}
		if w.at(l, last, token) == "blocked" {
			lasting = append(lasting, blocking[len(blocking)-1])
		}
	}
	for row, sites := range first {
		row.Sites = sites
		c.FirstBlocked = append(c.FirstBlocked, row)
	}
	slices.SortFunc(c.FirstBlocked, func(a, b history.FirstBlocked) int {
		return cmp.Or(cmp.Compare(a.Night, b.Night), strings.Compare(a.Censoring, b.Censoring))
	})
	for row, sites := range moves {
		row.Sites = sites
		c.Transitions = append(c.Transitions, row)
	}
	slices.SortFunc(c.Transitions, func(a, b history.Transition) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), strings.Compare(a.Before, b.Before), strings.Compare(a.After, b.After),
			strings.Compare(b.Change, a.Change))
	})
	if len(lasting) > 0 {
		c.Survival = survival(w.nights[:last+1], lasting)
	}
	return c
}

// forToken returns a query of docs/queries with another token than GPTBot.
func forToken(t *testing.T, name, token string) string {
	t.Helper()
	all := load(t)
	i := slices.IndexFunc(all, func(q Query) bool { return q.Name == name })
	return strings.ReplaceAll(strings.TrimSuffix(all[i].SQL, ";\n"), "'GPTBot'", literal(token))
}

// TestCountTokensAsQueries compares it with the queries, on random ledgers.
func TestCountTokensAsQueries(t *testing.T) {
	needDuckDB(t)
	dir, st := write(t, Survey{Sites: 30, Dates: dates[:1]})
	for seed := range uint64(3) {
		w := randomLives(seed)
		w.write(t, st)
		if err := sinkviews.Write(t.Context(), st, nil); err != nil {
			t.Fatal(err)
		}
		last := w.nights[len(w.nights)-1]
		counts := countTokens(t, st, last)
		asked := []Query{{SQL: fmt.Sprintf(
			`CREATE OR REPLACE VIEW registry_tokens AS SELECT 'new' AS registry_version, token FROM tokens UNION ALL SELECT 'old', token FROM tokens WHERE token <> '%s'; SET VARIABLE bulkscan_date = DATE '%s'`, oldLacks, last)}}
		want := [][][]any{nil}
		for i, token := range counted {
			changed := [][]any(nil)
			for _, c := range counts.Changes {
				if tokens.Default().Tokens[c.Token].Name == token {
					changed = append(changed, []any{c.Change, c.Host, int64(c.Port), c.Requested, c.Before.String(), c.After.String()})
				}
			}
			if int64(len(changed)) != counts.Tokens[i].Changes {
				t.Errorf("ledger %d: %d changes of %s, counted %+v", seed, len(changed), token, counts.Tokens[i])
			}
			first, moves, survivors := [][]any(nil), [][]any(nil), [][]any(nil)
			soFar := int64(0)
			for _, r := range counts.Tokens[i].FirstBlocked {
				soFar += r.Sites
				first = append(first, []any{r.Night.String(), r.Censoring, r.Sites, soFar})
			}
			for _, r := range counts.Tokens[i].Transitions {
				change := any(r.Change)
				if r.Change == "" {
					change = nil
				}
				moves = append(moves, []any{r.Before, r.After, change, r.Sites})
			}
			for _, r := range counts.Tokens[i].Survival {
				survivors = append(survivors, []any{r.Night.String(), r.ByThen, r.Maybe, r.Sites,
					float64(r.ByThen) / float64(r.Sites), float64(r.Maybe) / float64(r.Sites)})
			}
			for name, rows := range map[string][][]any{"first-blocked": first, "transitions": moves, "survival": survivors,
				"changed-sites": changed} {
				asked = append(asked, Query{Name: fmt.Sprintf("ledger %d, %s, %s", seed, name, token),
					SQL: forToken(t, name, token)})
				want = append(want, rows)
			}
		}
		for i, a := range ask(t, dir, asked)[1:] {
			compareAnswers(t, a, want[i+1])
		}
	}
}
