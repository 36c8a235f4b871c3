package nightly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
)

// Keep says for how many days things are kept, the night itself included; 0 is for ever.
type Keep struct {
	Nights   int `json:"nights"`
	Bodies   int `json:"bodies"`
	Evidence int `json:"evidence"`
}

// ParseDays reads a number of days, as in 90d: at least one, and at most a hundred years.
func ParseDays(text string) (days int, ok bool) {
	const most = 36525
	number, ok := strings.CutSuffix(text, "d")
	days, err := strconv.Atoi(number)
	return days, ok && err == nil && 1 <= days && days <= most
}

// first returns the first dates of which nights, bodies and evidence are kept, if the last night is that of a date.
func (k Keep) first(date string) scan.Retention {
	of := func(days int) string {
		night, err := time.Parse(time.DateOnly, date)
		if days == 0 || err != nil { // records have dates
			return ""
		}
		return night.AddDate(0, 0, 1-days).Format(time.DateOnly)
	}
	return scan.Retention{Nights: of(k.Nights), Bodies: of(k.Bodies), Evidence: of(k.Evidence)}
}

// prune deletes what is too old, once a night is published. An error is recorded with the night, which stays published;
// the next run prunes again. If more than half is due, nothing is deleted: a person decides by Prune.
func (o *Options) prune(ctx context.Context, n *Night) error {
	if o.Keep == (Keep{}) || n.State != Published {
		return nil
	}
	n.Error, n.PruneError = "", ""
	done, err := o.delete(ctx, o.Keep.first(n.Date))
	if done.Bytes > 0 {
		n.Pruned = done.And(n.Pruned)
	}
	if many, ok := errors.AsType[*scan.ManyError](err); ok {
		n.PruneError = bounded(many)
		o.Log.Warn("the night is published; "+many.Error(), "date", n.Date)
		return nil
	}
	if err != nil {
		err = fmt.Errorf("the night of %s is published; %w", n.Date, err)
		n.Error = bounded(err)
		return err
	}
	return nil
}

func (o *Options) delete(ctx context.Context, keep scan.Retention) (*scan.Prunings, error) {
	done, err := scan.Prune(ctx, o.Store, keep, o.Publishing)
	if done.Bytes > 0 {
		o.Log.Info("pruned", "nights", done.Nights, "scans_without_bodies", done.Bodies, "scans_without_evidence",
			done.Evidence, "bytes", done.Bytes)
	}
	return done, err
}

// pruned returns the figures of pruned nights before a scan, by the same observer and of the same list, the newest
// last: at most learnFrom. It leaves out discarded nights, and nights that were copied back. Records of nights stay
// after pruning.
func (o *Options) pruned(ctx context.Context, of *commit.Manifest, there []*commit.Manifest) (figures []*Figures,
	err error) {
	record, err := commit.ReadPruned(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Backward(record.Scans) {
		if len(figures) == learnFrom || ctx.Err() != nil {
			break
		}
		if s.Publication == commit.PublicationDiscarded || s.ScanDate >= of.ScanDate || s.Observer != of.Observer ||
			s.ListID != of.ListID ||
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

// Prune deletes what is too old on a date, which must be neither in the future nor in doubt. If more than half of the
// nights are due, nothing is deleted, unless a person has accepted their number (see scan.Retention). A dry run takes
// no lock, and logs what would be deleted.
func Prune(ctx context.Context, o Options, accept int, dryRun bool) (err error) {
	if !dryRun {
		unlock, err := o.lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock.Unlock()) }()
	}
	today := o.now()
	if o.Date == "" {
		o.Date = today.Format(time.DateOnly)
		nights, err := Nights(ctx, o.Store, recent)
		if err != nil {
			return err
		}
		if after := doubt(nights, o.Date, today); after != "" && !dryRun && !o.vouched {
			return fmt.Errorf("nothing was pruned: %s; if it is right, repeat with --date %s", late(after, o.Date), o.Date)
		}
	}
	if o.Date > today.AddDate(0, 0, 1).Format(time.DateOnly) {
		return fmt.Errorf("--date %s is in the future, it is %s: nothing is pruned that is not too old today", o.Date,
			today.Format(time.DateOnly))
	}
	keep := o.Keep.first(o.Date)
	keep.Accept, keep.DryRun = accept, dryRun
	done, err := o.delete(ctx, keep)
	if many, ok := errors.AsType[*scan.ManyError](err); ok && dryRun {
		o.Log.Warn(many.Error())
		err = nil
	}
	switch {
	case err != nil:
	case done.Bytes == 0 && len(done.Nights)+done.Bodies+done.Evidence == 0:
		o.Log.Info("nothing is too old", "date", o.Date)
	case dryRun:
		o.Log.Info("a dry run: nothing was deleted", "nights", done.Nights, "scans_without_bodies", done.Bodies,
			"scans_without_evidence", done.Evidence)
	}
	return err
}
