package views

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// finish makes the macros for dates refuse those of pruned nights, and adds the hash.
func finish(ctx context.Context, st store.Store, text string) ([]byte, error) {
	var pruned struct {
		Through string `json:"through"` // of commit.Pruned
	}
	data, err := store.ReadAll(ctx, st, schema.PrunedName, schema.MaxLedger)
	if err == nil {
		err = json.Unmarshal(data, &pruned)
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, err
	}
	if pruned.Through != "" {
		text = strings.NewReplacer(viewsAbout, viewsAbout+fmt.Sprintf(viewsPruned, pruned.Through), anyDate, keptDate, chosenDate, keptChosenDate).Replace(text)
	}
	return []byte(text + viewsSum + schema.SumOf([]byte(text)) + "\n"), nil
}

const (
	// DuckDB evaluates this when it plans a query.
	viewsPruned = `
-- A date that may be asked for: of pruned nights only the history is left (docs/nightly.md).
CREATE OR REPLACE MACRO bulkscan_kept(date) AS CASE WHEN CAST(date AS DATE) <= DATE '%[1]s'
  THEN CAST(error('the nights up to %[1]s were pruned: history_on(date) tells of them') AS DATE) ELSE CAST(date AS DATE) END;
`
	anyDate        = `WHERE scan_date = CAST(date AS DATE)`
	keptDate       = `WHERE scan_date = bulkscan_kept(date)`
	chosenDate     = `MACRO latest() AS CAST(getvariable('bulkscan_date') AS DATE)`
	keptChosenDate = `MACRO latest() AS bulkscan_kept(getvariable('bulkscan_date'))`
)

// Sound reports whether views.sql is unchanged since some version of bulkscan wrote it.
func Sound(data []byte) bool {
	at := bytes.LastIndex(data, []byte("\n"+viewsSum)) + 1
	return at > 0 && string(data[at:]) == viewsSum+schema.SumOf(data[:at])+"\n"
}
