package views

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
)

// pruned writes SQL about pruned nights: a query for such a date is an error, and their tokens are kept.
type pruned struct{ *commit.Pruned }

// DuckDB evaluates this when it plans a query.
const viewsPruned = `
-- A date that may be asked for: of pruned nights only the history is left (docs/nightly.md).
CREATE OR REPLACE MACRO bulkscan_kept(date, pruned) AS CASE WHEN CAST(date AS DATE) <= CAST(pruned AS DATE)
  THEN CAST(error('of the nights up to ' || pruned || ' this was pruned: history_on(date) tells of them') AS DATE) ELSE CAST(date AS DATE) END;
`

// macros returns the SQL that defines bulkscan_kept, which expressions of date call; "" if nothing was pruned.
func (p pruned) macros() string {
	if p.Through == "" && len(p.Tables) == 0 {
		return ""
	}
	return viewsPruned
}

// date returns an expression in SQL as a date, which fails for those up to through.
func date(expression, through string) string {
	if through == "" {
		return "CAST(" + expression + " AS DATE)"
	}
	return "bulkscan_kept(" + expression + ", " + quoted(through) + ")"
}

// of returns the SQL for the argument `date` of a table's macro.
func (p pruned) of(table string) string { return date("date", max(p.Through, p.Tables[table])) }

// fill replaces the placeholders for facts of pruned nights in SQL.
func (p pruned) fill(sql string) string {
	rows := make([]string, 0, len(p.Registries))
	for _, version := range slices.Sorted(maps.Keys(p.Registries)) {
		row, _ := json.Marshal(map[string]any{"version": version, "tokens": p.Registries[version]}) // texts cannot fail
		rows = append(rows, string(row))
	}
	return strings.NewReplacer(
		"{the latest date}", date("getvariable('bulkscan_date')", p.Through),
		"{registries of pruned nights}", quoted("["+strings.Join(rows, ",\n")+"]"),
	).Replace(sql)
}
