package read

import (
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// CellOf returns the cell with these facts, of which verdict and via are as in the table verdicts.
func CellOf(verdict, via string, rootDenied, dpiAll bool) (c audit.Cell) {
	for _, f := range [...]struct {
		fact audit.Cell
		is   bool
	}{
		{audit.CellBlocked, verdict == audit.Blocked.String()}, {audit.CellPartial, verdict == audit.Partial.String()},
		{audit.CellOwn, via == audit.ViaOwn.String()}, {audit.CellFallback, via == audit.ViaFallback.String()},
		{audit.CellStar, via == audit.ViaStar.String()},
		{audit.CellRoot, rootDenied}, {audit.CellDPIAll, dpiAll},
	} {
		if f.is {
			c |= f.fact
		}
	}
	return c
}

// PolicyOf is what a row of the table policies says of groups: of tokens that the registry has, by their numbers there.
// It shares nothing with the row.
func PolicyOf(row *schema.PolicyRow, registry *tokens.Registry) (p audit.Policy) {
	via := audit.ViaNone
	if row.Star {
		via = audit.ViaStar
	}
	p.ID, p.Star = uint64(row.PolicyID), CellOf(row.StarVerdict, via.String(), row.StarRootDenied, row.StarDPIAll)
	for _, name := range row.Own {
		if id := registry.Lookup(name); id >= 0 {
			verdict := audit.Allowed
			switch {
			case slices.Contains(row.OwnBlocked, name):
				verdict = audit.Blocked
			case slices.Contains(row.OwnPartial, name):
				verdict = audit.Partial
			}
			p.Named = append(p.Named, audit.NamedCell{
				Token: uint16(id), Cell: CellOf(verdict.String(), audit.ViaOwn.String(), slices.Contains(row.OwnRootDenied, name),
					slices.Contains(row.OwnDPIAll, name)),
			})
		}
	}
	return p
}
