// Package tables answers one question: which tables does the report page show of a scan? Those of docs/queries, and
// some figures beside them. stats.go takes tables from token_stats and record_stats, sites.go counts others in one pass
// over the parts (with blocks.go, records.go and cells.go), and history.go counts those over dates.
package tables

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/summary"
)

// Table is rows as the query of its name in docs/queries returns them: with its columns, in its order.
type Table struct {
	Name    string // of the query, without .sql
	Columns []string
	Rows    [][]any // string, int64, float64, bool or nil; dates are strings

	// Note says what was left out, or "". The rows that are left are those of the query for the values that they name.
	Note string
}

// Survey is all that the report page shows of a scan.
type Survey struct {
	Manifest   *commit.Manifest
	List       string             // what the scan's list is called
	Summaries  []*summary.Summary // one a definition, in the order of Definitions, of the AI tokens
	Tables     map[string]*Table  // by name
	Unobserved map[string]int64   // sites that were not observed, by segment: its kind, a blank, its value
	// the tokens shown over ranks and dates: the AI tokens that most files name, at most maxLines
	Lines       []string
	Sensitivity *summary.Sensitivity // of the first of Lines by full; nil without Lines, and where verdicts are missing
	Changes     int64                // of sites towards the tokens of Lines; changed-sites has the newest
	Judged      []Judged             // between the nights of blocked-over-time
	Method      []method.Section
	LeftOut     survey.Omissions // by Options.Skip

	Pruned string // date of the last pruned night, which blocked-over-time lacks with all before it, or ""
}

// Judged is the first night that another version of the token registry judged.
type Judged struct{ Date, Registry string }

// Options are the options of Take.
type Options struct {
	survey.Options

	Counted   *atomic.Int64 // sites counted so far, for a display; may be nil
	AllTokens bool          // tables over dates and of changed sites have all tokens: many rows
}

const (
	maxLines  = 6   // tokens that one plot of lines shows
	mostShown = 30  // suffixes, labels, and tokens of a matrix
	topShown  = 100 // agents, keys and licences: the LIMIT of their queries
)

// category whose tokens the page is about.
const surveyCategory = "ai"

// Take gathers the survey of a complete scan. The statistics of the scan must be there: the error is commit.ErrNoTable
// without them, or without the tables sites, verdicts and policies. It is a *commit.LostError if the scan has lost
// commits. Its memory depends on the number of policies, not on that of sites.
func Take(ctx context.Context, st store.Store, scanID string, o Options) (*Survey, error) {
	o.Options = o.WithDefaults()
	scan, err := o.Open(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	if lost := scan.Lost(); lost != nil {
		return nil, fmt.Errorf("cannot make a report of scan %s: %w", scanID, lost)
	}
	s := &Survey{Manifest: scan.Manifest, List: scan.Manifest.ListName(), Tables: map[string]*Table{},
		Unobserved: map[string]int64{}}
	if o.Counted == nil {
		o.Counted = new(atomic.Int64)
	}
	for _, stage := range []func(context.Context, store.Store, *commit.Scan, *Options) error{
		s.fromStats,
		s.fromSites,
		s.fromHistory,
		s.sensitivity,
		s.method,
	} {
		if err := stage(ctx, st, scan, &o); err != nil {
			return nil, fmt.Errorf("cannot make a report of scan %s: %w", scanID, err)
		}
	}
	s.LeftOut = o.Skip.Omissions()
	return s, nil
}

func (s *Survey) add(name string, columns []string, rows [][]any) *Table {
	t := &Table{Name: name, Columns: columns, Rows: rows}
	s.Tables[name] = t
	return t
}

// sensitivity counts how the share of the token that most files name depends on choices.
func (s *Survey) sensitivity(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) (err error) {
	if len(s.Lines) > 0 {
		s.Sensitivity, err = summary.SensitivityOf(ctx, st, scan.Manifest.ScanID, s.Lines[0],
			summary.Options{Options: o.Options, Definition: survey.Full})
	}
	return err
}

func (s *Survey) method(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) (err error) {
	s.Method, err = method.Of(ctx, st, scan.Manifest.ScanID, o.Options)
	return err
}

// mostNamed returns the tokens of a registry and a category that most files name.
func mostNamed(rows []schema.TokenStatsRow, registry *tokens.Registry, category string, most int) (names []string) {
	named := []*schema.TokenStatsRow{}
	for i := range rows {
		if r := &rows[i]; r.SegmentKind == "all" && r.Known && r.Category == category && r.Mention > 0 &&
			registry.Lookup(r.Token) >= 0 {
			named = append(named, r)
		}
	}
	slices.SortFunc(named, func(a, b *schema.TokenStatsRow) int {
		return cmp.Or(cmp.Compare(b.Mention, a.Mention), cmp.Compare(a.Token, b.Token))
	})
	for _, r := range named[:min(len(named), most)] {
		names = append(names, r.Token)
	}
	return names
}
