package queries

import (
	"fmt"
	"strings"
)

// Population is the sites that a query counts. The line "Over:" of a query is clauses separated by `; `. A clause is
// the name of a population and further words; the names of columns, or values of a column, and a colon may precede it:
// then the clause applies to these, and the first clause to all others. Any other clause is prose.
type Population struct {
	Name      string
	Predicate string // in SQL, over the view sites
}

// Populations are all, by name.
var Populations = []Population{
	{"all sites", "true"},
	{"sites that were asked", "access <> 'unknown'"},
	{"sites that answered with a status", "status IS NOT NULL"},
	{"sites that answered with status 200 and a whole answer", "outcome = 'answered' AND status = 200"},
	{"sites with a body", "body_hash <> 0"},
	{"sites with rules", "finding = 'rules'"},
	{"sites with rules among the first 10000", "finding = 'rules' AND rank <= 10000"},
	{"sites with rules or no file (404) on every night", `(host, port, requested) IN (SELECT (host, port, requested) FROM sites
		GROUP BY host, port, requested HAVING count(DISTINCT scan_date) FILTER (finding IN ('rules', 'none')) = (SELECT count(DISTINCT scan_date) FROM sites))`},
	{"domains whose site has rules",
		"(scan_id, coalesce(registrable_domain, host)) IN (SELECT (scan_id, domain) FROM domains WHERE finding = 'rules')"},
	{"sites that were ever seen to block it",
		"(host, port, requested) IN (SELECT (host, port, requested) FROM sites WHERE finding = 'rules' AND list_contains(blocked, 'GPTBot'))"},
	{"sites seen to block it on the last night", `(host, port, requested) IN (SELECT (host, port, requested) FROM sites
		WHERE scan_date = latest() GROUP BY host, port, requested HAVING arg_max(finding = 'rules' AND list_contains(blocked, 'GPTBot'), fetched_at))`},
}

// Clause is what a query counts over a population.
type Clause struct {
	Population

	Names []string // of columns, or values of a column; none is all that no other clause names
}

// Clauses returns the populations of a query.
func (q *Query) Clauses() (clauses []Clause, err error) {
	for text := range strings.SplitSeq(strings.TrimSuffix(q.Over, "."), "; ") {
		var c Clause
		if names, of, found := strings.Cut(text, ": "); found {
			if p := populationOf(of); p.Name != "" {
				c.Names, text = strings.Split(names, ", "), of
			}
		}
		if c.Population = populationOf(text); c.Name != "" {
			clauses = append(clauses, c)
		} else if len(clauses) == 0 {
			return nil, fmt.Errorf("%s: %q begins with no population of populations_test.go", q.Name, text)
		}
	}
	return clauses, nil
}

// populationOf returns the population with the longest name that a text begins with, or none.
func populationOf(text string) (p Population) {
	for _, of := range Populations {
		if strings.HasPrefix(text, of.Name) && len(of.Name) > len(p.Name) {
			p = of
		}
	}
	return p
}
