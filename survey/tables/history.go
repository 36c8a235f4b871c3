package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/read"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/stats"
)

// This file makes the tables of the report page over dates: from the token_stats of the nights, and from the ledger of
// package history.

// fromHistory adds the tables over dates, if the scan's observer has several dates up to the scan's. The ledger, which
// also has pruned nights, is left out unless it contains the scan and an earlier night.
func (s *Survey) fromHistory(ctx context.Context, st store.Store, scan *commit.Scan, o *Options) (err error) {
	defer func() {
		if o.Skip.Without("figures over dates", scan.Manifest.ScanID, err) {
			err = nil
		}
	}()
	pruned, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return err
	}
	s.Pruned = lastPruned(pruned, scan.Manifest)
	nights, judged, err := statsFiles(ctx, st, scan.Manifest, o.Log)
	several := err == nil && len(nights) > 0 && nights[0].ScanDate != nights[len(nights)-1].ScanDate
	switch {
	case err != nil || len(nights) == 0 || !several && s.Pruned == "":
		return err
	case several:
		if err := s.overTime(ctx, st, nights, o); err != nil {
			return err
		}
	}
	for i, night := range nights {
		if i > 0 && night.RegistryVersion != nights[i-1].RegistryVersion {
			s.Judged = append(s.Judged, Judged{night.ScanDate, night.RegistryVersion})
		}
	}
	lacks, err := lackedTokens(ctx, st, &o.Options, judged, pruned.Registries)
	if err != nil {
		return err
	}
	asked := history.TokensAsked{ScanID: scan.Manifest.ScanID, Registry: o.Registry, Lacks: lacks}
	for _, name := range s.Lines {
		asked.Tokens = append(asked.Tokens, o.Registry.Lookup(name))
	}
	for id := range o.Registry.Tokens {
		if o.AllTokens && o.Registry.Tokens[id].Category == surveyCategory && !slices.Contains(asked.Tokens, id) {
			asked.Further = append(asked.Further, id)
		}
	}
	counts, err := history.CountTokens(ctx, st, asked)
	if err != nil || counts == nil || len(counts.Nights) < 2 {
		return err
	}
	s.fromLedger(counts)
	return s.changedSites(ctx, scan, o, counts)
}

// lastPruned returns the date of the last night before a scan's, by its observer, that was pruned, or "".
func lastPruned(pruned *commit.Pruned, scan *commit.Manifest) (date string) {
	for i := range pruned.Scans {
		if s := &pruned.Scans[i]; s.Publication != commit.PublicationDiscarded && s.Observer == scan.Observer &&
			s.ScanDate < scan.ScanDate {
			date = max(date, s.ScanDate)
		}
	}
	return date
}

// statsFiles returns the files of token_stats by the scan's observer up to the scan's date, by date. Files of other
// lists count only for dates without the scan's list. It also returns one file of each version of the registry: the
// newest, by any observer. Merged months are left out: the files of their scans are still there, and begin with the
// rows that are needed. A published scan that the index lacks is logged.
func statsFiles(ctx context.Context, st store.Store, scan *commit.Manifest, log *slog.Logger) (nights []index.Row,
	judged map[string]index.Row, err error) {
	head, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	named, err := head.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	judged, listed := map[string]index.Row{}, map[string]bool{}
	own := map[string]bool{} // dates with the scan's list
	for row, err := range index.Rows(ctx, st) {
		if errors.Is(err, store.ErrNotExist) {
			break // no scan is published, or all are lacking
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w; any scan, stats or compact writes it anew", err)
		}
		listed[row.ScanID] = listed[row.ScanID] || row.Complete
		if !row.Complete || row.Table != schema.TokenStats {
			continue
		}
		if row.ScanDate > judged[row.RegistryVersion].ScanDate {
			judged[row.RegistryVersion] = *row
		}
		if !row.Superseded && row.Observer == scan.Observer.String() && row.ScanDate <= scan.ScanDate {
			nights = append(nights, *row)
			own[row.ScanDate] = own[row.ScanDate] || row.ListID == scan.ListID
		}
	}
	now := index.Row{ScanID: scan.ScanID, ScanDate: scan.ScanDate, Table: schema.TokenStats,
		RegistryVersion: scan.RegistryVersion, ListID: scan.ListID}
	if scan.Published() && !listed[now.ScanID] { // a night writes the index last, after its pages
		nights = slices.DeleteFunc(nights, func(row index.Row) bool {
			return row.ScanDate == now.ScanDate && row.ListID == now.ListID
		})
		nights, listed[now.ScanID], own[now.ScanDate] = append(nights, now), true, true
		if now.ScanDate > judged[now.RegistryVersion].ScanDate {
			judged[now.RegistryVersion] = now
		}
	}
	for _, s := range named {
		if s.Publication == commit.PublicationDone && s.ScanDate <= scan.ScanDate && !listed[s.ScanID] {
			log.Warn("figures over dates lack a scan, because "+index.Name+" does", "scan", s.ScanID, "remedy",
				"bulkscan stats, compact or the next scan writes it anew")
		}
	}
	nights = slices.DeleteFunc(nights, func(row index.Row) bool { return own[row.ScanDate] && row.ListID != scan.ListID })
	return nights, judged, nil
}

// knownTokens returns the rows of a file of token_stats that are of registry tokens and of all sites, with the columns
// that measured needs. Nearly all of them are at the beginning of the file, but tokens that only the scan's registry
// had are at its end. So two columns are read of all rows, and the others as far as needed.
func knownTokens(ctx context.Context, st store.Store, file index.Row) (rows []schema.TokenStatsRow, err error) {
	var row schema.TokenStatsRow
	open := func(fields ...table.Field) (*table.Cursor, error) {
		return read.Statistics(ctx, st, file.ScanID, file.Table, fields...)
	}
	all, err := open(table.Field{Name: "known", Into: &row.Known}, table.Field{Name: "segment_kind",
		Into: &row.SegmentKind})
	if err != nil {
		return nil, err
	}
	fields := []table.Field{
		{Name: "token", Into: &row.Token}, {Name: "category", Into: &row.Category},
		{Name: "sites_answered", Into: &row.SitesAnswered}, {Name: "sites_rules", Into: &row.SitesRules},
	}
	for _, d := range survey.Definitions() {
		fields = append(fields, table.Field{Name: d.Name, Into: d.In(&row)})
	}
	counts, err := open(fields...)
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	for all.Next() {
		if !row.Known || row.SegmentKind != "all" {
			continue
		}
		for counts.Row() < all.Row() && counts.Next() {
		}
		row.Token, row.Category = strings.Clone(row.Token), strings.Clone(row.Category)
		rows = append(rows, row)
	}
	return rows, errors.Join(all.Err(), counts.Err(), all.Close(), counts.Close())
}

// countedTokens are the rows of knownTokens, counted again from a scan's parts.
func countedTokens(ctx context.Context, st store.Store, o survey.Options, scanID string) (rows []schema.TokenStatsRow,
	err error) {
	o.Alone = false
	scan, err := o.Open(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	err = stats.Tokens(ctx, scan, &o, func(row schema.TokenStatsRow) error {
		if row.Known && row.SegmentKind == "all" {
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

// eachNight calls do for the rows of knownTokens of each file, in order.
func eachNight(ctx context.Context, st store.Store, o *survey.Options, files []index.Row,
	do func(index.Row, []schema.TokenStatsRow)) error {
	readFile := func(ctx context.Context, file index.Row) ([]schema.TokenStatsRow, error) {
		return knownTokens(ctx, st, file)
	}
	for file, r := range store.ReadAhead(ctx, files, readFile) {
		if o.Skip.Without("nothing, since scan "+file.ScanID+" is counted again", file.ScanID, r.Err) ||
			o.Skip.Lacks(file.ScanID) {
			r.Value, r.Err = countedTokens(ctx, st, *o, file.ScanID)
		}
		if r.Err != nil {
			return fmt.Errorf("table %s of %s: %w; bulkscan stats --scan-id %s computes it again", schema.TokenStats,
				file.ScanDate, r.Err, file.ScanID)
		}
		do(file, r.Value)
	}
	return nil
}

// overTime adds the series of the tokens of the category: of those that the page shows, or of all. Files of one date
// are added up.
func (s *Survey) overTime(ctx context.Context, st store.Store, nights []index.Row, o *Options) error {
	type night struct {
		date   any // a string, once for all rows
		counts []measure
	}
	definitions, series := sortedDefinitions(), map[string][]night{}
	err := eachNight(ctx, st, &o.Options, nights, func(file index.Row, rows []schema.TokenStatsRow) {
		date := any(file.ScanDate)
		for i := range rows {
			r := &rows[i]
			if r.Category != surveyCategory || !o.AllTokens && !slices.Contains(s.Lines, r.Token) {
				continue
			}
			of := series[r.Token]
			if len(of) == 0 || of[len(of)-1].date != date {
				of = append(of, night{date, make([]measure, len(definitions))})
				series[r.Token] = of
			}
			for k := range definitions {
				of[len(of)-1].counts[k].add(measured(r, &definitions[k]))
			}
		}
	})
	if err != nil {
		return err
	}
	t := s.add("blocked-over-time", []string{"token", "definition", "scan_date", "blocking", "of", "share", "change"}, nil)
	if !o.AllTokens {
		t.Note = "the tokens of the plot"
	}
	for _, name := range slices.Sorted(maps.Keys(series)) {
		token := any(name)
		for k := range definitions {
			d, before := any(definitions[k].Name), any(nil)
			for _, n := range series[token.(string)] {
				m := n.counts[k]
				share, change := shareOrNil(m.blocking, m.of), any(nil)
				if share != nil && before != nil {
					change = share.(float64) - before.(float64)
				}
				before = share
				t.Rows = append(t.Rows, []any{token, d, n.date, m.blocking, m.of, share, change})
			}
		}
	}
	return nil
}

// lackedTokens returns a function that reports whether a version of the registry lacks a token. The tokens of a version
// come from its statistics, or from the record of pruned nights. A version without either lacks none.
func lackedTokens(ctx context.Context, st store.Store, o *survey.Options, judged map[string]index.Row,
	pruned map[string][]string) (func(version, token string) bool, error) {
	known, err := tokensBy(ctx, st, o, judged)
	if err != nil {
		return nil, err
	}
	has := map[string]map[string]bool{}
	for _, registries := range []map[string][]string{pruned, known} {
		for version, tokens := range registries {
			has[version] = map[string]bool{}
			for _, token := range tokens {
				has[version][token] = true
			}
		}
	}
	return func(version, token string) bool { return has[version] != nil && !has[version][token] }, nil
}

// tokensBy returns the tokens of each version of the registry, by its file of token_stats.
func tokensBy(ctx context.Context, st store.Store, o *survey.Options, judged map[string]index.Row) (map[string][]string,
	error) {
	tokens := map[string][]string{}
	err := eachNight(ctx, st, o, slices.Collect(maps.Values(judged)), func(file index.Row, rows []schema.TokenStatsRow) {
		for i := range rows {
			tokens[file.RegistryVersion] = append(tokens[file.RegistryVersion], rows[i].Token)
		}
	})
	return tokens, err
}

// RegistriesOnlyOf returns the tokens of those versions of the registry that only the statistics of these scans have.
// The last of these scans is older than the others.
func RegistriesOnlyOf(ctx context.Context, st store.Store, scans []*commit.Manifest) (map[string][]string, error) {
	if len(scans) == 0 {
		return nil, nil
	}
	if err := index.Update(ctx, st); err != nil {
		return nil, err
	}
	_, judged, err := statsFiles(ctx, st, &commit.Manifest{}, nil) // of no nights before it
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(judged, func(_ string, newest index.Row) bool {
		return !slices.ContainsFunc(scans, func(m *commit.Manifest) bool { return m.ScanID == newest.ScanID })
	})
	return tokensBy(ctx, st, &survey.Options{}, judged)
}

func (s *Survey) fromLedger(counts *history.TokenCounts) {
	first := s.add("first-blocked", []string{"token", "first_blocked", "censoring", "sites", "so_far"}, nil)
	changes := s.add("transitions", []string{"token", "before", "after", "change", "sites"}, nil)
	survival := s.add("survival", []string{"token", "night", "by_then", "maybe", "of", "share_low", "share_high"}, nil)
	nights := counts.Nights[len(counts.Nights)-2:]
	changes.Note = fmt.Sprintf("from %s to %s", nights[0], nights[1])
	for i, token := range s.Lines {
		of, soFar := &counts.Tokens[i], int64(0)
		s.Changes += of.Changes
		for _, f := range of.FirstBlocked {
			soFar += f.Sites
			first.Rows = append(first.Rows, []any{token, f.Night.String(), f.Censoring, f.Sites, soFar})
		}
		for _, c := range of.Transitions {
			changes.Rows = append(changes.Rows, []any{token, c.Before, c.After, orNil(c.Change), c.Sites})
		}
		if i > 0 {
			continue // survival is of the first token
		}
		for _, n := range of.Survival {
			survival.Rows = append(survival.Rows, []any{token, n.Night.String(), n.ByThen, n.Maybe, n.Sites,
				survey.Share(n.ByThen, n.Sites), survey.Share(n.Maybe, n.Sites)})
		}
	}
}

const (
	// ShownChanges is how many rows of changed-sites the page shows.
	ShownChanges = 500
	// readForPage bounds the files that are read for these rows, since few changes may be spread over many nights. Reading
	// so many takes a second.
	readForPage = 500_000
)

// changedSites adds the table of the sites that began or ceased to block a token: the newest first, those of a night by
// rank.
func (s *Survey) changedSites(ctx context.Context, scan *commit.Scan, o *Options,
	counts *history.TokenCounts) error {
	type listed struct {
		rank  int64
		label string
	}
	list, sites := counts.Changes, map[int64]listed{}
	for i := range list {
		sites[list[i].Site] = listed{}
	}
	var r struct {
		Host, Requested, Label string
		Port                   int32
		Rank                   int64
	}
	fields := []table.Field{{Name: "host", Into: &r.Host}, {Name: "port", Into: &r.Port},
		{Name: "requested", Into: &r.Requested}, {Name: "rank", Into: &r.Rank}, {Name: "label", Into: &r.Label}}
	err := survey.EachSite(ctx, scan, fields, func() {
		_, site := schema.FoldedKey(scan.Manifest.Observer.Source == commit.Archive, r.Host, r.Port, r.Requested)
		if _, changed := sites[site]; changed {
			sites[site] = listed{r.Rank, strings.Clone(r.Label)}
		}
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b history.TokenChange) int {
		// sites without a rank are last
		return cmp.Or(cmp.Compare(b.After, a.After), cmp.Compare(uint64(sites[a.Site].rank-1), uint64(sites[b.Site].rank-1)))
	})
	most, files := history.MostChanges, int64(0)
	if !o.AllTokens {
		most, files = ShownChanges, readForPage
	}
	list = list[:min(len(list), most)]
	if err := counts.Decide(list, files); err != nil {
		return err
	}
	t := s.add("changed-sites", []string{"token", "change", "host", "port", "requested", "last_before", "first_after",
		"rank", "label",
		"verdict_before", "line_before", "group_before", "rule_before", "verdict_after", "line_after", "group_after",
		"rule_after"}, nil)
	t.Note = fmt.Sprintf("from %s to %s, the newest %d at most", counts.Nights[0], counts.Nights[len(counts.Nights)-1],
		most)
	for i := range list {
		c := &list[i]
		row := []any{o.Registry.Tokens[c.Token].Name, c.Change, c.Host, int64(c.Port), c.Requested, c.Before.String(),
			c.After.String(), orNil(sites[c.Site].rank), orNil(sites[c.Site].label)}
		for _, f := range []history.LastFile{c.Was, c.Is} {
			t := cmp.Or(f.Treated, &history.Treated{})
			row = append(row, orNil(t.Verdict), orNil(int64(cmp.Or(t.RuleLine, t.Line))), orNil(t.Group), orNil(t.Rule))
		}
		t.Rows = append(t.Rows, row)
	}
	return nil
}

// orNil is nil for an empty text and for zero, where SQL has NULL.
func orNil[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}
