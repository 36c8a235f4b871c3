package main

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/bulkscan/bulkscan/sink/table"
)

// ledger is what the files of a ledger have, in memory: rows by site, in the order of dates.
type ledger struct {
	episodes map[int64][]history.Episode
	gaps     map[int64][]history.Gap
	policies map[int64]history.Policy
	scans    int
	bytes    int64
}

// readLedger reads the files that the ledger's record names.
func readLedger(ctx context.Context, st store.Store) (*ledger, error) {
	record, err := history.ReadLedger(ctx, st)
	if err != nil {
		return nil, err
	}
	l := &ledger{episodes: map[int64][]history.Episode{}, gaps: map[int64][]history.Gap{}, policies: map[int64]history.Policy{}, scans: len(record.Scans)}
	for _, f := range record.Files {
		l.bytes += f.Bytes
		switch f.Table {
		case history.History:
			err = each(table.FileRows[history.Episode](ctx, st, f.Name), func(e *history.Episode) { l.episodes[e.Site] = append(l.episodes[e.Site], *e) })
		case history.Gaps:
			err = each(table.FileRows[history.Gap](ctx, st, f.Name), func(g *history.Gap) { l.gaps[g.Site] = append(l.gaps[g.Site], *g) })
		case history.Policies:
			err = each(table.FileRows[history.Policy](ctx, st, f.Name), func(p *history.Policy) { l.policies[p.ID] = *p })
		}
		if err != nil {
			return nil, err
		}
	}
	for _, all := range l.episodes {
		slices.SortFunc(all, func(a, b history.Episode) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	}
	for _, all := range l.gaps {
		slices.SortFunc(all, func(a, b history.Gap) int { return cmp.Compare(a.First, b.First) })
	}
	return l, nil
}

func each[T any](rows iter.Seq2[*T, error], do func(*T)) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		do(row)
	}
	return nil
}
