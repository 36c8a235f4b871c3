package nightly

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/scan"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey"
	"github.com/bulkscan/bulkscan/survey/diff"
	"github.com/bulkscan/bulkscan/survey/page"
	"github.com/bulkscan/bulkscan/survey/summary"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// decide publishes or holds a night, or repeats an earlier decision that may not have been carried out.
func (o *Options) decide(ctx context.Context, n *Night, was commit.Publication) error {
	switch {
	case was == commit.PublicationDiscarded:
		n.State = Discarded
		return nil
	case was == commit.PublicationHeld, was == commit.PublicationPending && len(n.Out) > 0:
		n.State = Held
		return commit.SetPublication(ctx, o.Store, o.Log, n.ScanID, commit.PublicationHeld)
	}
	return o.publish(ctx, n)
}

// publish publishes a night: the history first, then the pages, and last the index and the views.
func (o *Options) publish(ctx context.Context, n *Night) error {
	publishing := o.Publishing
	publishing.Pages = func(ctx context.Context) error { return o.pages(ctx, n) }
	if err := scan.Release(ctx, o.Store, n.ScanID, publishing); err != nil {
		return err
	}
	n.State = Published
	return o.latest(ctx, n, "")
}

// before lists the published scans before a scan, by the same observer and of the same list, by date. For each date it
// takes the scan with most sites: that is the night, and not a repetition of a part of it.
func (o *Options) before(ctx context.Context, of *commit.Manifest) (list []*commit.Manifest, err error) {
	scans, err := commit.Scans(ctx, o.Store)
	if damaged := (*commit.DamagedScansError)(nil); err != nil && !errors.As(err, &damaged) {
		return nil, err
	}
	for _, m := range scans {
		if m.Published() && m.Counts != nil && m.ScanDate < of.ScanDate && m.Observer == of.Observer &&
			m.ListID == of.ListID && slices.Contains(m.Tables, schema.Sites) {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b *commit.Manifest) int {
		return cmp.Or(strings.Compare(a.ScanDate, b.ScanDate), cmp.Compare(b.Counts.Rows, a.Counts.Rows))
	})
	return slices.CompactFunc(list, func(a, b *commit.Manifest) bool { return a.ScanDate == b.ScanDate }), nil
}

// pages writes the files of a night: what has changed, the summary and the report. Tonight's scan was verified; if an
// earlier scan is damaged or lost, the pages leave it out, and say so.
func (o *Options) pages(ctx context.Context, n *Night) error {
	err := o.pagesBy(ctx, n, o.Report)
	if survey.IsDamage(err) || errors.Is(err, store.ErrNotExist) {
		o.Log.Warn("the pages of the night leave out what is damaged", "error", err)
		skipping := o.Report
		skipping.Skip = &survey.Skip{On: true}
		err = o.pagesBy(ctx, n, skipping)
	}
	return err
}

func (o *Options) pagesBy(ctx context.Context, n *Night, by survey.Options) error {
	m, err := commit.ReadManifest(ctx, o.Store, n.ScanID)
	if err != nil {
		return err
	}
	n.Files = nil
	earlier, err := o.before(ctx, m)
	if err != nil {
		return err
	}
	if len(earlier) > 0 {
		from := diff.ScanAt{Store: o.Store, ScanID: earlier[len(earlier)-1].ScanID}
		d, err := diff.Scans(ctx, from, diff.ScanAt{Store: o.Store, ScanID: n.ScanID}, diff.Options{Options: by,
			Top: 100})
		switch {
		case by.Skip.Without("the changes since that night", from.ScanID, err):
		case err != nil:
			return err
		default:
			n.Changes = changesOf(d)
			if err := o.writeJSON(ctx, n, changesName, d); err != nil {
				return err
			}
		}
	}
	figures, err := summary.Of(ctx, o.Store, n.ScanID, summary.Options{Options: by, Definition: survey.Full})
	if err != nil {
		return err
	}
	if err := o.writeJSON(ctx, n, summaryName, figures); err != nil {
		return err
	}
	taken, err := tables.Take(ctx, o.Store, n.ScanID, tables.Options{Options: by})
	if errors.Is(err, commit.ErrNoTable) {
		o.Log.Warn("the night has no report page", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := page.Write(&html, taken, page.Options{Definition: survey.Full}); err != nil {
		return err
	}
	return o.writeFile(ctx, n, reportName, html.Bytes())
}

func (o *Options) writeJSON(ctx context.Context, n *Night, name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return o.writeFile(ctx, n, name, append(data, '\n'))
}

// writeFile writes a file beside the record of a night, which names it from then on.
func (o *Options) writeFile(ctx context.Context, n *Night, name string, data []byte) error {
	name = folderOf(n.Date) + name
	n.Files = append(n.Files, schema.File{Name: name, Bytes: int64(len(data)), SHA256: schema.SumOf(data)})
	return o.Store.Put(ctx, name, data)
}

// latest copies the report and the summary of a night to the dataset's root, unless a later night is published, other
// than that of the date in but.
func (o *Options) latest(ctx context.Context, n *Night, but string) error {
	all, err := Nights(ctx, o.Store, recent)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Date > n.Date && other.Date != but && other.State == Published {
			return nil
		}
	}
	if err := commit.SweepFiles(ctx, o.Store, LatestReport, LatestSummary); err != nil { // of a killed night
		return err
	}
	for _, f := range n.Files {
		for _, name := range []string{LatestReport, LatestSummary} {
			if f.Name != folderOf(n.Date)+name {
				continue
			}
			data, err := store.ReadAll(ctx, o.Store, f.Name, maxFile)
			if err == nil {
				err = o.Store.Put(ctx, name, data)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Release publishes a night that is held or discarded. For a published night it repeats steps that a killed process may
// have left undone.
func Release(ctx context.Context, o Options) (*Night, error) {
	return o.settle(ctx, Published, o.publish)
}

// Discard decides that a held or incomplete night does not count. It stays in the dataset.
func Discard(ctx context.Context, o Options) (*Night, error) {
	return o.settle(ctx, Discarded, func(ctx context.Context, n *Night) error {
		return commit.SetPublication(ctx, o.Store, o.Log, n.ScanID, commit.PublicationDiscarded)
	})
}

// Withdraw takes a published night back from readers, also one whose scan is lost. The night stays in the dataset, as
// discarded.
func Withdraw(ctx context.Context, o Options, why string) (*Night, error) {
	return o.settle(ctx, Discarded, func(ctx context.Context, n *Night) error {
		if err := scan.Withdraw(ctx, o.Store, n.ScanID, why, o.Publishing); err != nil {
			return err
		}
		if n.State != Discarded || why != "" { // else it keeps the reason
			n.Error = bounded(errors.New(strings.TrimSuffix("withdrawn: "+why, ": ")))
		}
		for _, f := range n.Files { // the dataset's root may have copies of these files as the newest
			name := path.Base(f.Name)
			if data, err := store.ReadAll(ctx, o.Store, name, maxFile); err == nil && schema.SumOf(data) == f.SHA256 {
				if err := o.Store.Delete(ctx, name); err != nil {
					return err
				}
			}
		}
		all, err := Nights(ctx, o.Store, recent)
		for _, other := range slices.Backward(all) {
			if other.Date != n.Date && other.State == Published {
				return errors.Join(err, o.latest(ctx, other, n.Date))
			}
		}
		return err
	})
}

// settle calls do to take a night to a state that a person has chosen.
func (o *Options) settle(ctx context.Context, to State, do func(context.Context, *Night) error) (n *Night, err error) {
	unlock, err := o.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock.Unlock()) }()
	n, err = ReadNight(ctx, o.Store, o.Date)
	if errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("there is no night of %s", o.Date)
	}
	if err != nil {
		return nil, err
	}
	pruned, err := commit.ReadPruned(ctx, o.Store)
	if err != nil {
		return n, err
	}
	if pruned.Has(n.ScanID) {
		return n, fmt.Errorf("the night of %s was pruned: %s", n.Date, pruned.Left(n.ScanID))
	}
	if n.State != to {
		n.Error = "" // which kept it from there
	}
	if err := do(ctx, n); err != nil {
		return n, err
	}
	n.State = to
	return n, o.end(ctx, n)
}
