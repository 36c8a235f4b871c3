package views

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
)

// pruned is what the views tell of nights that were pruned: that their dates cannot be asked for, and by which tokens they were
// judged. Its fields are some of commit.Pruned.
type pruned struct {
	Through    string              `json:"through"`
	Tables     map[string]string   `json:"tables"`
	Registries map[string][]string `json:"registries"`
}

func readPruned(ctx context.Context, st store.Store) (*pruned, error) {
	p := &pruned{}
	data, err := store.ReadAll(ctx, st, schema.PrunedName, schema.MaxLedger)
	if errors.Is(err, store.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	return p, err
}

// DuckDB evaluates this when it plans a query.
const viewsPruned = `
-- A date that may be asked for: of pruned nights only the history is left (docs/nightly.md).
CREATE OR REPLACE MACRO bulkscan_kept(date, pruned) AS CASE WHEN CAST(date AS DATE) <= CAST(pruned AS DATE)
  THEN CAST(error('of the nights up to ' || pruned || ' this was pruned: history_on(date) tells of them') AS DATE) ELSE CAST(date AS DATE) END;
`

// macros returns what the expressions below call.
func (p *pruned) macros() string {
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

// of returns the argument `date` of a table's macro.
func (p *pruned) of(table string) string { return date("date", max(p.Through, p.Tables[table])) }

// fill replaces what stands in for facts of pruned nights in the files of SQL.
func (p *pruned) fill(sql string) string {
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
