package siterows

import (
	"slices"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// Policy fills a row of the table policies.
func (c *Copier) Policy(row *schema.PolicyRow, p *audit.Policy) {
	*row = schema.PolicyRow{
		PolicyID: int64(p.ID), Star: p.Star&audit.CellStar != 0, StarVerdict: p.Star.Decision().String(),
		StarRootDenied: p.Star&audit.CellRoot != 0, StarDPIAll: p.Star&audit.CellDPIAll != 0,
		Own: c.having(p, audit.CellOwn), OwnBlocked: c.having(p, audit.CellBlocked),
		OwnPartial:    c.having(p, audit.CellPartial),
		OwnRootDenied: c.having(p, audit.CellRoot), OwnDPIAll: c.having(p, audit.CellDPIAll),
		ContentSignal: c.text(p.ContentSignal, schema.MaxField), ContentUsage: p.ContentUsage.String(), Licensed: p.Licensed,
		ManagedBy: p.ManagedBy,
	}
}

// having spells the tokens with cells of their own that have a fact.
func (c *Copier) having(p *audit.Policy, fact audit.Cell) []string {
	list := c.lists.take(len(p.Named))
	n := 0
	for _, named := range p.Named {
		if named.Cell&fact != 0 && int(named.Token) < len(c.tokens) {
			list[n] = c.tokens[named.Token].name
			n++
		}
	}
	c.lists.giveBack(len(list) - n)
	return list[:n]
}

// CellOf returns the cell with these facts. verdict and via are as in the table verdicts.
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

// PolicyOf returns the policy in a row of the table policies, for tokens of the registry, by their indices there. It
// shares no memory with the row.
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

// PolicyOfVerdicts makes the policy of a judged file from its rows. If the row cuts off a content signal, the id is
// that of the cut signal.
func PolicyOfVerdicts(rows *Rows, auditor *audit.Auditor) (p audit.Policy) {
	site := &rows.Site
	p.ContentSignal, p.Licensed, p.ManagedBy = []byte(site.ContentSignal), site.License != "", site.ManagedBy
	for i := range rows.Verdicts {
		v := &rows.Verdicts[i]
		cell := CellOf(v.Verdict, v.Via, !v.RootAllowed, v.DPI == audit.DPIAll.String())
		if v.Token == "*" {
			p.Star, p.ContentUsage = cell, audit.PreferencesOf(v.ContentUsage)
		} else if id := auditor.Registry().Lookup(v.Token); v.Known && !v.Lenient && id >= 0 && cell&audit.CellOwn != 0 {
			p.Named = append(p.Named, audit.NamedCell{Token: uint16(id), Cell: cell})
		}
	}
	auditor.Identify(&p)
	return p
}
