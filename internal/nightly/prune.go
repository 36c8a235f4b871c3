package nightly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bulkscan/bulkscan/internal/job"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// Keep says for how many days things are kept, the night itself included; 0 is for ever.
type Keep struct{ Nights, Bodies, Evidence int }

// first returns the dates of the first nights, of so many that end with one, of which things are kept.
func (k Keep) first(date string) job.Retention {
	of := func(days int) string {
		night, err := time.Parse(time.DateOnly, date)
		if days == 0 || err != nil { // records have dates
			return ""
		}
		return night.AddDate(0, 0, 1-days).Format(time.DateOnly)
	}
	return job.Retention{Nights: of(k.Nights), Bodies: of(k.Bodies), Evidence: of(k.Evidence)}
}

// prune deletes what is too old, once a night is published. What fails it is told with the night, which stays published;
// the next run prunes again.
func (o *Options) prune(ctx context.Context, n *Night) error {
	if o.Keep == (Keep{}) || n.State != Published {
		return nil
	}
	done, err := job.Prune(ctx, o.Store, o.Keep.first(n.Date), o.Publishing)
	n.Error = ""
	if done.Bytes > 0 {
		n.Pruned = done.And(n.Pruned)
		o.Log.Info("pruned", "nights", done.Nights, "scans_without_bodies", done.Bodies, "scans_without_evidence", done.Evidence, "bytes", done.Bytes)
	}
	if err != nil {
		err = fmt.Errorf("the night of %s is published; %w", n.Date, err)
		n.Error = bounded(err)
	}
	return err
}

// pruned returns the figures of nights before a scan that count and were pruned, by the same observer and of the same list,
// the newest last: as many as bounds are learnt from at most. Their records stay. A night that is there again, from a copy, is left out.
func (o *Options) pruned(ctx context.Context, of *commit.Manifest, there []*commit.Manifest) (figures []*Figures, err error) {
	record, err := commit.ReadPruned(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Backward(record.Scans) {
		if len(figures) == learnFrom || ctx.Err() != nil {
			break
		}
		if s.Publication == commit.PublicationDiscarded || s.ScanDate >= of.ScanDate || s.Observer != of.Observer || s.ListID != of.ListID ||
			slices.ContainsFunc(there, func(m *commit.Manifest) bool { return m.ScanID == s.ScanID }) {
			continue
		}
		if n, err := ReadNight(ctx, o.Store, s.ScanDate); err == nil && n.ScanID == s.ScanID && n.Figures != nil {
			figures = append(figures, n.Figures)
		}
	}
	slices.Reverse(figures)
	return figures, ctx.Err()
}

// Prune deletes what is too old, seen from a date.
func Prune(ctx context.Context, o Options) error {
	unlock, err := o.lock(ctx)
	if err != nil {
		return err
	}
	n := &Night{Date: o.Date, State: Published}
	if n.Date == "" {
		n.Date = o.now().Format(time.DateOnly)
	}
	return errors.Join(o.prune(ctx, n), unlock.Unlock())
}
