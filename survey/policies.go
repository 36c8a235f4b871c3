package survey

import (
	"context"
	"fmt"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// tokenCells are what the policies of a scan make of one token, by policy_id.
type tokenCells struct {
	id    int // of the token in the registry; below 0: it lacks it
	cells map[int64]audit.Cell
	err   error // of a site with a file and without a policy
}

// cellsOf reads the policies of a scan, and asks them for a token. What the registry lacks has no facts. Without the table the error is
// commit.ErrNoTable.
func cellsOf(ctx context.Context, scan *commit.Scan, registry *tokens.Registry, token string) (*tokenCells, error) {
	if !scan.Has(schema.Policies) {
		return nil, fmt.Errorf("table %s: %w; bulkscan reaudit adds it to scans of an earlier version", schema.Policies, commit.ErrNoTable)
	}
	t := &tokenCells{id: registry.Lookup(token), cells: map[int64]audit.Cell{}}
	var all []audit.Cell
	for row, err := range sink.Rows[schema.PolicyRow](ctx, scan, schema.Policies) {
		if err != nil {
			return nil, commit.Remedied(err, commit.DamageRemedy)
		}
		if _, known := t.cells[row.PolicyID]; known {
			continue
		}
		p := sink.PolicyOf(row, registry)
		if all = p.Cells(all[:0], registry); t.id >= 0 {
			t.cells[row.PolicyID] = all[t.id]
		} else {
			t.cells[row.PolicyID] = 0
		}
	}
	return t, nil
}

// of returns the cell of a site's policy, and notes a site whose file nothing is known of.
func (t *tokenCells) of(policy int64, access, site string) audit.Cell {
	cell, known := t.cells[policy]
	if !known && access == parser.AccessConditional.String() && t.err == nil {
		t.err = fmt.Errorf("%.200q has a file, and no policy that the scan has; bulkscan reaudit makes it of the site's verdicts or of its body", site)
	}
	return cell
}
