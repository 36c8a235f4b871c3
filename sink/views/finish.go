package views

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// finish makes the macros for dates refuse those of pruned nights, and adds the hash.
func finish(ctx context.Context, st store.Store, text string) ([]byte, error) {
	var pruned struct { // of commit.Pruned
		Through    string              `json:"through"`
		Tables     map[string]string   `json:"tables"`
		Registries map[string][]string `json:"registries"`
	}
	data, err := store.ReadAll(ctx, st, schema.PrunedName, schema.MaxLedger)
	if err == nil {
		err = json.Unmarshal(data, &pruned)
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, err
	}
	if pruned.Through != "" || len(pruned.Tables) > 0 {
		text = strings.Replace(text, viewsAbout, viewsAbout+viewsPruned, 1)
	}
	refuse := func(from, through string) {
		if through != "" {
			text = strings.Replace(text, fmt.Sprintf(from, "CAST", " AS DATE"), fmt.Sprintf(from, "bulkscan_kept", ", '"+through+"'"), 1)
		}
	}
	for _, t := range schema.Tables() {
		refuse("SELECT * FROM "+t.Name+" WHERE scan_date = %s(date%s)", max(pruned.Through, pruned.Tables[t.Name]))
	}
	refuse("MACRO latest() AS %s(getvariable('bulkscan_date')%s)", pruned.Through)
	rows := make([]string, 0, len(pruned.Registries))
	for _, version := range slices.Sorted(maps.Keys(pruned.Registries)) {
		row, _ := json.Marshal(map[string]any{"version": version, "tokens": pruned.Registries[version]}) // texts cannot fail
		rows = append(rows, strings.ReplaceAll(string(row), "'", "''"))
	}
	text = strings.Replace(text, viewsNoRegistries, strings.Replace(viewsNoRegistries, "[]", "["+strings.Join(rows, ",\n")+"]", 1), 1)
	return []byte(text + viewsSum + schema.SumOf([]byte(text)) + "\n"), nil
}

// Where history.sql has the registries of pruned nights.
const viewsNoRegistries = `unnest(from_json('[]', '[{"version"`

// DuckDB evaluates this when it plans a query.
const viewsPruned = `
-- A date that may be asked for: of pruned nights only the history is left (docs/nightly.md).
CREATE OR REPLACE MACRO bulkscan_kept(date, pruned) AS CASE WHEN CAST(date AS DATE) <= CAST(pruned AS DATE)
  THEN CAST(error('of the nights up to ' || pruned || ' this was pruned: history_on(date) tells of them') AS DATE) ELSE CAST(date AS DATE) END;
`

// Sound reports whether views.sql is unchanged since some version of bulkscan wrote it.
func Sound(data []byte) bool {
	at := bytes.LastIndex(data, []byte("\n"+viewsSum)) + 1
	return at > 0 && string(data[at:]) == viewsSum+schema.SumOf(data[:at])+"\n"
}
