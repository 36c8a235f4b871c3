package queries

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// ofAll are the queries over all sites: nothing is outside of their population.
var ofAll = []string{"changed-sites", "findings", "outcomes-by-rank", "reversals", "transitions", "unknown-keys"}

// unfiltered says, by population, how a query or a view loses its filter: each pair is a text, and its replacement in
// the mutant. Without a text, all sites have the finding `rules`, in the rows and in the tables computed from them.
var unfiltered = map[string][][2]string{
	"sites that were asked": {{"access <> 'unknown'", "true"}},
	"sites that answered with a status": {{" status IS NOT NULL", " true"},
		{"sites_answered", "sites_all"}},
	"sites that answered with status 200 and a whole answer": {{"outcome = 'answered' AND status = 200",
		"status IS NOT NULL"}},
	"sites with a body":                      {{"AND body_hash <> 0", ""}},
	"sites with rules":                       {{"", ""}},
	"sites with rules among the first 10000": {{"", ""}, {"rank <= 10000", "true"}},
	"sites with rules or no file (404) on every night": {{"HAVING sum(observations) = (SELECT count(*) FROM nights)",
		""}, {"class IN ('rules', 'none')", "true"}},
	"domains whose site has rules":             {{"", ""}},
	"sites that were ever seen to block it":    {{"WHERE state = 'blocked'\nQUALIFY", "QUALIFY"}},
	"sites seen to block it on the last night": {{"state_by(h.judge, p.state, registries_without(token)) = 'blocked'", "true"}},
}

// strange are files for answers without rules, and for others: each record that some query counts is in one of them.
var strange = [][]byte{
	[]byte(
		"User-agent: GPTBot\nUser-agent: CCBot\nUser-agent: stranger\nDisallow: /\nCrawl-delay: 7\nContent-Signal: ai-train=no\nContent-Usage: train-ai=n\nLicense: https://rsl.example/l.xml\nNoindex: /x\nFoo: bar\nno record\n\nUser-agent: Googlebot-News\nDisallow: /x\n"),
	[]byte(
		"<!DOCTYPE html><html><body>\nUser-agent: *\nDisallow: /\nCrawl-delay: 3\nContent-Signal: search=yes\n\nUser-agent: GPTBot\nUser-agent: Googlebot\nUser-agent: page-only\nCrawl-delay: 90\nContent-Usage: train-ai=y\nDisallow: /\nLicense: https://page.example/l.xml\n</body></html>\n"),
	[]byte(
		"<!DOCTYPE html>\nContent-Signal: ai-input=no\nUser-agent: MJ12bot\nUser-agent: ClaudeBot\nDisallow: /private\nCrawl-delay: 5\n"),
	[]byte("Content-Signal: ai-input=yes\nUser-agent: *\nDisallow: /search\nUser-agent: Applebot\nAllow: /\n"),
}

// observed writes the same list three times, the later two dates twice, with challenges and web pages that have rules
// in them, and a scan of another observer.
func observed(t *testing.T, judged func(scanID string, row *audit.Site) bool) (dir string) {
	t.Helper()
	here := commit.Observer{Source: commit.Live, Product: "bulkscan"}
	bodies := slices.Concat(strange, strange, madeBodies()[:60])
	dir, st := write(t, Survey{Name: "first", Sites: 700, Dates: dates, Observer: here, Bodies: bodies, Challenged: 7,
		Cut: 11, RankStep: 20, Judged: judged})
	for _, s := range []Survey{
		{Name: "again", Sites: 500, Dates: dates[1:], After: time.Hour, Observer: here, Bodies: bodies, Challenged: 5,
			Cut: 13, RankStep: 20, Judged: judged, Statistics: statistics},
		{Name: "there", Sites: 100, Dates: dates[:1], Observer: commit.Observer{Source: commit.Live, Vantage: "there"},
			Bodies: bodies, Challenged: 3, Judged: judged, Statistics: statistics},
	} {
		if err := s.Write(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	withHistory(t, st)
	return dir
}

// TestPopulations executes the line "Over:" of each query as a filter: the answer must be that of a dataset without the
// sites outside of the population, and a mutant of the query without the filter must give another answer.
func TestPopulations(t *testing.T) {
	needDuckDB(t)
	all := load(t)
	whole := observed(t, nil)
	ruled := observed(t, func(_ string, row *audit.Site) bool {
		row.Report.Finding = audit.FindingRules
		return true
	})
	answers := byName(ask(t, whole, all))
	for _, p := range Populations {
		var of []Query
		clauses := map[string][]Clause{}
		for _, q := range all {
			c, err := q.Clauses()
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(c, func(c Clause) bool { return c.Population == p }) {
				of, clauses[q.Name] = append(of, q), c
			}
		}
		t.Run(p.Name, func(t *testing.T) {
			if p.Predicate == "true" {
				for _, q := range of {
					if len(clauses[q.Name]) == 1 && !slices.Contains(ofAll, q.Name) {
						t.Errorf("%s is over all sites", q.Name)
					}
				}
				return
			}
			within := sitesWithin(t, whole, p)
			restricted := byName(ask(t, observed(t,
				func(scanID string, row *audit.Site) bool { return within[fmt.Sprint(scanID, " ", row.Seq)] }), of))
			caught := map[string]bool{}
			for _, q := range of {
				if got, want := text(t, answers[q.Name], clauses[q.Name], p), text(t, restricted[q.Name], clauses[q.Name],
					p); got != want {
					t.Errorf("%s is not over %s:\n got %.300s\nwant %.300s", q.Name, p.Name, firstDifference(got, want),
						firstDifference(want, got))
				}
			}
			for _, mutation := range unfiltered[p.Name] {
				before := len(caught)
				for name, a := range byName(mutants(t, whole, ruled, of, mutation)) {
					if text(t, a, clauses[name], p) != text(t, restricted[name], clauses[name], p) {
						caught[name+mutation[0]], caught[name] = true, true
					}
				}
				if len(caught) == before {
					t.Errorf("nothing shows that the filter %q is there", mutation[0])
				}
			}
			for _, q := range of {
				if !caught[q.Name] {
					t.Errorf("%s: without its filter the answer is the same: the dataset does not test it", q.Name)
				}
			}
		})
	}
}

// sitesWithin returns the rows of a population, by scan and number.
func sitesWithin(t *testing.T, dir string, p Population) map[string]bool {
	t.Helper()
	within := map[string]bool{}
	for _, row := range ask(t, dir, []Query{{SQL: "SELECT scan_id || ' ' || seq FROM sites WHERE " +
		p.Predicate}})[0].Rows {
		within[fmt.Sprint(row[0])] = true
	}
	return within
}

// mutants runs queries without their filters.
func mutants(t *testing.T, whole, ruled string, of []Query, mutation [2]string) []Answer {
	t.Helper()
	if mutation[0] == "" {
		return ask(t, ruled, of)
	}
	views, err := os.ReadFile(filepath.Join(whole, "views.sql"))
	if err != nil {
		t.Fatal(err)
	}
	asked := []Query{{SQL: string(views)}}
	for _, q := range of {
		q.SQL = strings.ReplaceAll(q.SQL, mutation[0], mutation[1])
		asked = append(asked, q)
	}
	asked[0].SQL = strings.ReplaceAll(asked[0].SQL, mutation[0], mutation[1])
	return ask(t, whole, asked)[1:]
}

func byName(answers []Answer) map[string]Answer {
	named := map[string]Answer{}
	for _, a := range answers {
		named[a.Name] = a
	}
	return named
}

// text writes the part of an answer that is over a population, as the clauses say.
func text(t *testing.T, a Answer, clauses []Clause, p Population) string {
	t.Helper()
	var others []string
	for _, c := range clauses {
		if c.Population != p {
			others = append(others, c.Names...)
		}
	}
	i := slices.IndexFunc(clauses, func(c Clause) bool { return c.Population == p })
	names := clauses[i].Names
	var b strings.Builder
	for _, row := range a.Rows {
		has := func(names []string) bool {
			return slices.ContainsFunc(row, func(v any) bool {
				word, is := v.(string)
				return is &&
					slices.Contains(names, word)
			})
		}
		byColumn := slices.ContainsFunc(names, func(name string) bool { return slices.Contains(a.Columns, name) })
		if len(names) > 0 && !byColumn && !has(names) || len(names) == 0 && has(others) {
			continue
		}
		var shown []any
		for column, v := range row {
			if name := a.Columns[column]; byColumn && slices.Contains(names, name) || !byColumn &&
				!slices.Contains(others, name) {
				shown = append(shown, v)
			}
		}
		fmt.Fprintln(&b, line(t, shown))
	}
	return b.String()
}

// firstDifference returns the first line of a text that differs from the same line of another text.
func firstDifference(text, other string) string {
	lines, others := strings.Split(text, "\n"), strings.Split(other, "\n")
	for i, line := range lines {
		if i >= len(others) || line != others[i] {
			return line
		}
	}
	return "(no more lines)"
}
