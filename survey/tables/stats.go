package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// This file makes the tables of the report page that are in token_stats and record_stats.

// tldTokens are the tokens that blocked-by-tld.sql compares.
var tldTokens = []string{"GPTBot", "ClaudeBot", "CCBot", "Google-Extended"}

// fromStats adds the tables that the scan's statistics hold. Of the unknown agents, which may be millions, it keeps the
// first hundred.
func (s *Survey) fromStats(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) error {
	var known []schema.TokenStatsRow
	unknown := first[schema.TokenStatsRow]{most: topShown, compare: func(a, b *schema.TokenStatsRow) int {
		return cmp.Or(cmp.Compare(b.Mention, a.Mention), cmp.Compare(a.Token, b.Token))
	}}
	err := eachStat(ctx, st, scan, &o.Options, schema.TokenStats, stats.Tokens, func(row *schema.TokenStatsRow) {
		if row.Known {
			known = append(known, *row)
			s.Unobserved[row.SegmentKind+" "+row.SegmentValue] = row.SitesAll - row.SitesRules - row.AnsweredNoRules - row.AnsweredHTML - row.AnsweredNone - row.AnsweredRefused
		} else if row.SegmentKind == "all" && row.Mention > 0 {
			unknown.add(row)
		}
	})
	if err != nil {
		return err
	}
	s.Lines = mostNamed(known, o.Registry, surveyCategory, maxLines)
	s.byDefinition(known)
	s.byRank(known)
	s.bySegment(known, "tld", "blocked-by-tld", func(r *schema.TokenStatsRow) bool {
		return slices.Contains(tldTokens, r.Token) && o.Enough(r.SitesRules)
	})
	s.bySegment(known, "label", "blocked-by-label",
		func(r *schema.TokenStatsRow) bool { return r.Category == surveyCategory })
	agents := s.add("unknown-agents", []string{"token", "mention", "explicit_root", "full"}, nil)
	for _, r := range unknown.rows {
		agents.Rows = append(agents.Rows, []any{r.Token, r.Mention, r.ExplicitRoot, r.Full})
	}
	return s.unknownKeys(ctx, st, scan, &o.Options)
}

// eachStat calls do for each row of one of the scan's statistics: from its file if that counts the rows that are read,
// else from compute. The row is valid until do returns.
func eachStat[T any](ctx context.Context, st store.Store, scan *commit.Scan, o *survey.Options, tableName string,
	compute func(context.Context, *commit.Scan, *survey.Options, func(T) error) error, do func(*T)) error {
	if record, err := commit.ReadFileRecord(ctx, st, scan.Manifest.ScanID, tableName); err == nil &&
		record.Unit != scan.Unit.Sum || o.Skip.Lacks(survey.ScanIDs(scan.Read())...) {
		return compute(ctx, scan, o, func(row T) error {
			do(&row)
			return nil
		})
	}
	row := new(T)
	rows, err := read.Statistics(ctx, st, scan.Manifest.ScanID, tableName, table.FieldsOf(row, true, nil)...)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return fmt.Errorf("table %s: %w", tableName, commit.ErrNoTable)
	case err == nil:
		err = survey.EachRow(rows, func() { do(row) })
	}
	if survey.IsDamage(err) {
		err = fmt.Errorf("%w; bulkscan stats --scan-id %s computes it again", err, scan.Manifest.ScanID)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", tableName, err)
	}
	return nil
}

// measure is what a definition counts in a row of token_stats: the sites that block, of how many.
type measure struct{ blocking, of int64 }

// measured returns the counts of a row by a definition.
func measured(r *schema.TokenStatsRow, d *survey.Definition) measure {
	return measure{*d.In(r), d.Of(r)}
}

func (m *measure) add(other measure) {
	m.blocking += other.blocking
	m.of += other.of
}

// sharing is the last three columns of tables by definition.
func (m measure) sharing() []any { return []any{m.blocking, m.of, shareOrNil(m.blocking, m.of)} }

// shareOrNil is nil for an empty denominator, as SQL has it.
func shareOrNil(part, whole int64) any {
	if whole == 0 {
		return nil
	}
	return survey.Share(part, whole)
}

// sortedDefinitions lists the definitions by name, as ORDER BY does.
func sortedDefinitions() []survey.Definition {
	return slices.SortedFunc(slices.Values(survey.Definitions()), func(a, b survey.Definition) int {
		return strings.Compare(a.Name, b.Name)
	})
}

func (s *Survey) byDefinition(known []schema.TokenStatsRow) {
	all := s.add("blocked-by-definition", []string{"token", "operator", "purpose", "definition", "blocking", "of",
		"share"}, nil)
	reasons := s.add("explicit-or-star", []string{"token", "blocking", "own", "fallback", "star"}, nil)
	for _, r := range bySorted(known, "all") {
		for _, d := range sortedDefinitions() {
			all.Rows = append(all.Rows, append([]any{r.Token, r.Operator, r.Purpose, d.Name}, measured(r, &d).sharing()...))
		}
		reasons.Rows = append(reasons.Rows, []any{r.Token, r.Full, r.FullViaOwn, r.FullViaFallback, r.FullViaStar})
	}
	slices.SortStableFunc(reasons.Rows, func(a, b []any) int { return cmp.Compare(b[1].(int64), a[1].(int64)) })
}

func (s *Survey) byRank(known []schema.TokenStatsRow) {
	t := s.add("blocked-by-rank", []string{"token", "definition", "ranks_to", "blocking", "of", "share"}, nil)
	rows := bySorted(known, "rank")
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Token == rows[0].Token {
			n++
		}
		of := rows[:n]
		rows = rows[n:]
		if of[0].Category != surveyCategory {
			continue
		}
		for _, d := range sortedDefinitions() {
			for _, r := range of {
				to, err := strconv.ParseInt(r.SegmentValue, 10, 64)
				if err == nil {
					t.Rows = append(t.Rows, append([]any{r.Token, d.Name, to}, measured(r, &d).sharing()...))
				}
			}
		}
	}
}

// bySorted returns the rows of a kind of segments by token, then by segment, ranks by number.
func bySorted(known []schema.TokenStatsRow, kind string) (rows []*schema.TokenStatsRow) {
	for i := range known {
		if known[i].SegmentKind == kind {
			rows = append(rows, &known[i])
		}
	}
	slices.SortFunc(rows, func(a, b *schema.TokenStatsRow) int {
		c := cmp.Compare(a.Token, b.Token)
		if kind == "rank" {
			c = cmp.Or(c, cmp.Compare(len(a.SegmentValue), len(b.SegmentValue)))
		}
		return cmp.Or(c, cmp.Compare(a.SegmentValue, b.SegmentValue))
	})
	return rows
}

// bySegment adds a table by full over the segments of a kind: those with most sites.
func (s *Survey) bySegment(known []schema.TokenStatsRow, kind, query string, takes func(*schema.TokenStatsRow) bool) {
	t := s.add(query, nil, nil)
	rows := slices.DeleteFunc(bySorted(known, kind), func(r *schema.TokenStatsRow) bool { return !takes(r) })
	sites := survey.Counts{}
	for _, r := range rows {
		sites[r.SegmentValue] = r.SitesRules
	}
	values := sites.Ordered()
	shown := map[string]bool{}
	for _, v := range values[:min(len(values), mostShown)] {
		shown[v.Value] = true
	}
	if len(values) > mostShown {
		t.Note = fmt.Sprintf("the %d with most sites, of %d", mostShown, len(values))
	}
	for _, r := range rows {
		if shown[r.SegmentValue] {
			t.Rows = append(t.Rows, append([]any{r.SegmentValue, r.Token}, measure{r.Full, r.SitesRules}.sharing()...))
		}
	}
	t.Columns = []string{kind, "token", "blocking", "of", "share"}
	if kind == "tld" {
		slices.SortStableFunc(t.Rows, func(a, b []any) int {
			return cmp.Or(cmp.Compare(a[1].(string), b[1].(string)), cmp.Compare(b[4].(float64), a[4].(float64)))
		})
	}
}

func (s *Survey) unknownKeys(ctx context.Context, st store.Store, scan *commit.Scan, o *survey.Options) error {
	t := s.add("unknown-keys", []string{"kind", "key", "sites", "lines"}, nil)
	if !scan.Has(schema.Evidence) {
		t.Note = "the scan has no table evidence"
		return nil
	}
	keys := first[schema.RecordStatsRow]{most: topShown, compare: func(a, b *schema.RecordStatsRow) int {
		return cmp.Or(cmp.Compare(b.Sites, a.Sites), cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Key, b.Key))
	}}
	err := eachStat(ctx, st, scan, o, schema.RecordStats, stats.Records, func(row *schema.RecordStatsRow) {
		if row.Kind == "unknown" || row.Kind == "legacy" {
			keys.add(row)
		}
	})
	for _, r := range keys.rows {
		t.Rows = append(t.Rows, []any{r.Kind, r.Key, r.Sites, r.Lines})
	}
	return err
}

// first keeps the first rows of many, in order.
type first[T any] struct {
	most    int
	compare func(a, b *T) int
	rows    []T
}

func (f *first[T]) add(row *T) {
	at, _ := slices.BinarySearchFunc(f.rows, row, func(have T, row *T) int { return f.compare(&have, row) })
	if at == f.most {
		return
	}
	f.rows = slices.Insert(f.rows[:min(len(f.rows), f.most-1)], at, *row)
}
