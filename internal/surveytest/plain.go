package surveytest

import (
	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/origin/exchange"
	"github.com/bulkscan/bulkscan/parser"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// plainSite counts the columns that do not depend on a token.
func plainSite(s *audit.Site) schema.TokenStatsRow {
	answered := s.Fetch.Status != 0
	row := schema.TokenStatsRow{
		SitesAll:      1,
		SitesAnswered: when(answered),
		Sites:         when(s.Report.Access == parser.AccessConditional),
		SitesRules:    when(s.Report.Finding == audit.FindingRules),
		Unreachable: when(!answered && s.Fetch.Outcome != exchange.BlockedAddress && s.Fetch.Outcome != exchange.OptedOut &&
			s.Fetch.Outcome != exchange.NotArchived),
		RFCEffective: when(answered && s.Report.Access == parser.AccessFullDisallow),
	}
	if answered {
		*answeredColumn(&row, s.Report.Finding) = 1
	}
	return row
}

// answeredColumn returns the column of answered sites with a finding.
func answeredColumn(row *schema.TokenStatsRow, f audit.Finding) *int64 {
	switch f {
	case audit.FindingRules:
		return &row.AnsweredRules
	case audit.FindingNoRules:
		return &row.AnsweredNoRules
	case audit.FindingHTML:
		return &row.AnsweredHTML
	case audit.FindingNone:
		return &row.AnsweredNone
	case audit.FindingRefused:
		return &row.AnsweredRefused
	case audit.FindingChallenged:
		return &row.AnsweredChallenged
	case audit.FindingRateLimited:
		return &row.AnsweredRateLimited
	case audit.FindingServerError:
		return &row.AnsweredServerError
	case audit.FindingUnreachable:
		return &row.AnsweredUnreachable
	}
	return new(int64)
}

// splitByRules fills in by whose rules the site blocks the agent.
func splitByRules(row *schema.TokenStatsRow) {
	blocked := row.Full + row.Partial
	row.FullViaOwn, row.AnyViaOwn = row.ViaOwn*row.Full, row.ViaOwn*blocked
	row.FullViaFallback, row.AnyViaFallback = row.ViaFallback*row.Full, row.ViaFallback*blocked
	if row.ViaOwn+row.ViaFallback == 0 {
		row.FullViaStar, row.AnyViaStar = row.Full, blocked
	}
}

// OnlyRules leaves out the counts of a site whose finding is not rules, except that of rfc_effective.
func OnlyRules(row schema.TokenStatsRow) schema.TokenStatsRow {
	if row.SitesRules == 0 {
		rest := schema.TokenStatsRow{SitesAll: row.SitesAll, SitesAnswered: row.SitesAnswered, Sites: row.Sites,
			Unreachable: row.Unreachable, RFCEffective: row.RFCEffective}
		for f := range audit.NumFindings {
			*answeredColumn(&rest, f) = *answeredColumn(&row, f)
		}
		return rest
	}
	return row
}

// PlainCells returns what a site's file makes of each token of the default registry.
func PlainCells(s *audit.Site) []audit.Cell { return s.Report.Policy.Cells(nil, tokens.Default()) }

// PlainToken counts one site for one agent, by its cell.
func PlainToken(s *audit.Site, c audit.Cell) schema.TokenStatsRow {
	row := plainSite(s)
	if row.Sites == 0 {
		return row
	}
	for i, column := range []*int64{&row.Mention, &row.ExplicitRoot, &row.Full, &row.Any, &row.DPIAll} {
		*column = when(audit.Definitions[i].Blocks(c))
	}
	row.Partial, row.Lenient = when(c&audit.CellPartial != 0), when(c&audit.CellLenient != 0)
	row.ViaOwn, row.ViaFallback, row.ViaStar = when(c&audit.CellOwn != 0), when(c&audit.CellFallback != 0),
		when(c&audit.CellStar != 0)
	row.RFCEffective += row.Full * row.SitesAnswered
	splitByRules(&row)
	return row
}

func when(condition bool) int64 {
	if condition {
		return 1
	}
	return 0
}
