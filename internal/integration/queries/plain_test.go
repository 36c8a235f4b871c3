package queries

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// This file counts the headline figures in plain loops over the rows: the sites that block a token, by definition, and the
// transitions between dates. It uses neither the statistics tables nor the code that computes them.

// surveyed is a dataset in memory.
type surveyed struct {
	dates  []string
	all    map[string][]*siteRows // by date
	tokens []tokens.Token
}

// siteRows is a row of sites with its rows of verdicts.
type siteRows struct {
	schema.SiteRow
	date            string
	blocked, partly map[string]bool
	rows            map[string]*schema.VerdictRow // strict ones, by token; without `*`
	star            *schema.VerdictRow            // nil if no request was made
}

func readSurvey(t *testing.T, st store.Store) *surveyed {
	t.Helper()
	manifests, err := commit.Scans(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	w := &surveyed{all: map[string][]*siteRows{}, tokens: tokens.Default().Tokens}
	for _, m := range manifests {
		scan, err := commit.ReadScan(t.Context(), st, m.ScanID)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(w.dates, m.ScanDate) {
			w.dates = append(w.dates, m.ScanDate)
		}
		bySeq := map[int64]*siteRows{}
		for row, err := range sink.Rows[schema.SiteRow](t.Context(), scan, schema.Sites) {
			if err != nil {
				t.Fatal(err)
			}
			s := &siteRows{SiteRow: *row, date: m.ScanDate, rows: map[string]*schema.VerdictRow{}, blocked: set(row.Blocked), partly: set(row.Partial)}
			bySeq[s.Seq] = s
			w.all[s.date] = append(w.all[s.date], s)
		}
		for row, err := range sink.Rows[schema.VerdictRow](t.Context(), scan, schema.Verdicts) {
			if err != nil {
				t.Fatal(err)
			}
			v := *row
			switch s := bySeq[v.Seq]; {
			case v.Token == "*":
				s.star = &v
			case !v.Lenient:
				s.rows[v.Token] = &v
			}
		}
	}
	slices.Sort(w.dates)
	return w
}

func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, v := range list {
		m[v] = true
	}
	return m
}

// on returns the rows of a date; latest those of the newest.
func (w *surveyed) on(date string) []*siteRows { return w.all[date] }
func (w *surveyed) latest() []*siteRows        { return w.on(w.dates[len(w.dates)-1]) }

// sites returns the row of each site that counts on a date: the one fetched last.
func (w *surveyed) sites(date string) map[string]*siteRows {
	last := map[string]*siteRows{}
	for _, s := range w.on(date) {
		if key := fmt.Sprint(s.Host, " ", s.Port, s.Requested); last[key] == nil || s.FetchedAt > last[key].FetchedAt {
			last[key] = s
		}
	}
	return last
}

func (s *siteRows) ruled() bool    { return s.Finding == "rules" }
func (s *siteRows) answered() bool { return s.Status != 0 }

var definitions = []string{"any", "dpi_all", "explicit_root", "full", "mention", "rfc_effective"}

// blocks reports whether a site blocks a token by a definition.
func (s *siteRows) blocks(definition, token string) bool {
	row := s.rows[token]
	switch definition {
	case "rfc_effective":
		return s.answered() && (s.Access == "full_disallow" || s.blocked[token])
	case "mention":
		return s.ruled() && row != nil && row.Via == "own"
	case "explicit_root":
		return s.ruled() && row != nil && row.Via == "own" && !row.RootAllowed
	case "full":
		return s.ruled() && s.blocked[token]
	case "any":
		return s.ruled() && (s.blocked[token] || s.partly[token])
	case "dpi_all":
		if row == nil {
			row = s.star
		}
		return s.ruled() && row != nil && row.DPI == "all"
	}
	panic(definition)
}

// shares counts the sites that block a token by a definition, and the denominator.
func shares(rows []*siteRows, definition, token string) (blocking, of int64) {
	for _, s := range rows {
		if definition == "rfc_effective" && s.answered() || definition != "rfc_effective" && s.ruled() {
			of++
		}
		if s.blocks(definition, token) {
			blocking++
		}
	}
	return blocking, of
}

func share(part, whole int64) any {
	if whole == 0 {
		return nil
	}
	return float64(part) / float64(whole)
}

// ordered sorts rows by columns of texts and counts, 0-based; ^column is descending.
func ordered(rows [][]any, by ...int) [][]any {
	slices.SortFunc(rows, func(a, b []any) int {
		for _, column := range by {
			x, y := a, b
			if column < 0 {
				column, x, y = ^column, b, a
			}
			order := 0
			switch v := x[column].(type) {
			case string:
				order = strings.Compare(v, y[column].(string))
			case int64:
				order = cmp.Compare(v, y[column].(int64))
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
	return rows
}

// plain answers the queries that define the headline figures, by name.
var plain = map[string]func(*surveyed) [][]any{
	"blocked-by-definition": func(w *surveyed) (out [][]any) {
		for _, t := range w.tokens {
			for _, d := range definitions {
				n, of := shares(w.latest(), d, t.Name)
				out = append(out, []any{t.Name, t.Operator, t.Purpose, d, n, of, share(n, of)})
			}
		}
		return ordered(out, 0, 3)
	},
	"transitions": func(w *surveyed) (out [][]any) {
		states := map[string]*[2]string{}
		for i, date := range w.dates[len(w.dates)-2:] {
			for key, s := range w.sites(date) {
				if states[key] == nil {
					states[key] = &[2]string{"absent", "unlisted"}
				}
				states[key][i] = s.Finding
				if s.ruled() {
					states[key][i] = map[bool]string{true: "blocked", false: "open"}[s.blocked["GPTBot"]]
				}
			}
		}
		counts := map[[2]string]int64{}
		for _, pair := range states {
			counts[*pair]++
		}
		gaps := []string{"not_asked", "challenged", "rate_limited", "unreachable", "server_error", "absent", "unlisted"}
		for pair, n := range counts {
			var change any
			if before, after := pair[0], pair[1]; before != after && !slices.Contains(gaps, before) && !slices.Contains(gaps, after) {
				change = changeOf(before, after)
			}
			out = append(out, []any{pair[0], pair[1], change, n})
		}
		return ordered(out, ^3, 0, 1)
	},
	"first-blocked": func(w *surveyed) (out [][]any) {
		seen, ever, soFar := map[string]bool{}, map[string]bool{}, int64(0)
		for _, date := range w.dates {
			before, first := maps.Clone(seen), map[string]int64{}
			for site, s := range w.sites(date) {
				if s.ruled() || slices.Contains([]string{"none", "html", "no_rules", "refused"}, s.Finding) {
					seen[site] = true
				}
				if s.ruled() && s.blocked["GPTBot"] && !ever[site] {
					ever[site] = true
					first[map[bool]string{true: "interval", false: "left"}[before[site]]]++
				}
			}
			for _, censoring := range slices.Sorted(maps.Keys(first)) {
				soFar += first[censoring]
				out = append(out, []any{date, censoring, first[censoring], soFar})
			}
		}
		return out
	},
	"domains": func(w *surveyed) [][]any {
		type key struct{ scan, domain string }
		domains := map[key][]*siteRows{}
		for _, s := range w.latest() {
			k := key{s.ScanID, cmp.Or(s.Domain, s.Host)}
			domains[k] = append(domains[k], s)
		}
		var blocking, of, several, disagree int64
		for k, sites := range domains {
			best, policies := sites[0], map[string]bool{}
			place := func(s *siteRows) int { return slices.Index([]string{k.domain, "www." + k.domain, s.Host}, s.Host) }
			for _, s := range sites {
				if cmp.Or(cmp.Compare(place(s), place(best)), cmp.Compare(cmp.Or(s.Rank, 1<<62), cmp.Or(best.Rank, 1<<62)), cmp.Compare(s.Seq, best.Seq)) < 0 {
					best = s
				}
				if s.ruled() {
					policies[fmt.Sprint(s.StarVerdict, s.Blocked, s.Partial)] = true
				}
			}
			if best.ruled() {
				of++
				if best.blocked["GPTBot"] {
					blocking++
				}
			}
			if len(sites) > 1 {
				several++
			}
			if len(policies) > 1 {
				disagree++
			}
		}
		return [][]any{{"GPTBot", blocking, of, share(blocking, of), int64(len(domains)), several, disagree}}
	},
	"site_tokens": func(w *surveyed) (out [][]any) {
		for _, t := range w.tokens {
			for _, date := range w.dates {
				rows := w.on(date)
				var partly int64
				for _, s := range rows {
					if s.partly[t.Name] {
						partly++
					}
				}
				_, withRules := shares(rows, "full", t.Name)
				_, answered := shares(rows, "rfc_effective", t.Name)
				line := []any{t.Name, date, int64(len(rows)), withRules, answered, partly}
				for _, d := range definitions {
					n, _ := shares(rows, d, t.Name)
					line = append(line, n)
				}
				out = append(out, line)
			}
		}
		return ordered(out, 0, 1)
	},
}

// changeOf says what the change of a site's state from one observation to another is; "" is none.
func changeOf(before, after string) string {
	switch {
	case before == after:
		return ""
	case before == "open" && after == "blocked":
		return "began"
	case before == "blocked" && after == "open":
		return "ceased"
	case before == "refused" || after == "refused":
		return "refusal"
	}
	return "presence"
}
