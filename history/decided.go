package history

import (
	"context"

	"github.com/bulkscan/bulkscan/store"
)

// decided is what a ledger has decided where body and judge of a site changed in one night. A snapshot is merged long after
// the night, when the judge of then may not be at hand; so the ledger says what its own merge came to.
type decided struct {
	policies map[int64]*Policy
	began    map[siteNight]began // episodes but a site's first
	ended    map[siteNight]int64 // policies of the episodes before these
}

type siteNight struct {
	site  int64
	night Date
}

type began struct {
	before Date // last night of the episode before
	cause  Cause
}

// decisionsOf returns the decisions of a ledger on these nights.
func decisionsOf(ctx context.Context, st store.Store, l *Ledger, nights []MergedScan) (*decided, error) {
	d := &decided{policies: map[int64]*Policy{}, began: map[siteNight]began{}, ended: map[siteNight]int64{}}
	of := map[string]bool{}
	for _, s := range nights {
		of[s.ScanDate] = true
	}
	err := everyRow(ctx, st, l, Policies, func(p *Policy) {
		known := *p
		d.policies[p.ID] = &known
	})
	if err != nil {
		return nil, err
	}
	err = everyRow(ctx, st, l, History, func(e *Episode) {
		if e.PreviousLast != 0 && of[e.ValidFrom.String()] {
			d.began[siteNight{e.Site, e.ValidFrom}] = began{e.PreviousLast, e.Cause}
			d.ended[siteNight{e.Site, e.PreviousLast}] = 0
		}
	})
	if err != nil {
		return nil, err
	}
	return d, everyRow(ctx, st, l, History, func(e *Episode) {
		if _, ok := d.ended[siteNight{e.Site, e.ValidTo}]; ok {
			d.ended[siteNight{e.Site, e.ValidTo}] = e.Policy
		}
	})
}

// on returns the decisions of a night, as Merger.Rejudge: the policy that the night's judge gave to the earlier body.
func (d *decided) on(tonight *night) func(*Episode, *Observation) (int64, bool) {
	return func(e *Episode, o *Observation) (int64, bool) {
		began, ok := d.began[siteNight{e.Site, tonight.date}]
		if !ok {
			return o.Policy, true // the episode went on
		}
		id := d.ended[siteNight{e.Site, began.before}]
		if p := d.policies[id]; p != nil {
			tonight.policies[id] = p
		}
		return id, began.cause != UnknownJudge
	}
}
