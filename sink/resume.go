package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/siterows"
	"github.com/bulkscan/bulkscan/store"
)

func newManifest(o *Options, now time.Time) *commit.Manifest {
	m := &commit.Manifest{
		SchemaVersion: schema.Version, ScanID: o.ScanID, State: commit.Running, ScanDate: o.Date, StartedAt: now,
		ToolVersion: o.ToolVersion, RegistryVersion: o.Registry.Version,
		Check:    siterows.Check(),
		Observer: o.Observer, ListID: o.ListID,
		Tables: o.Tables, Config: o.Config, Inputs: o.Inputs, Shares: o.Shares, Rejudged: o.Source,
	}
	if o.NoPublish { // from the start: a repair of the incomplete scan does not publish it either
		m.Ending = commit.PublicationPending
	}
	return m
}

// resume checks that a scan may be resumed with these options, and updates the manifest. The date stays that of the
// first start.
func resume(m *commit.Manifest, o *Options, now time.Time) error {
	changed := func(what, was, is string) error {
		if was == is {
			return nil
		}
		return &commit.ChangedError{ScanID: m.ScanID, What: what, Was: was, Now: is, Share: o.Shares > 0}
	}
	if o.Shares == 0 && m.Uncollected() {
		return &commit.UncollectedError{ScanID: m.ScanID, N: m.Shares}
	}
	errs := []error{
		changed("what is judged again", m.Rejudged.Identity(), o.Source.Identity()),
		changed("the token registry", m.RegistryVersion, o.Registry.Version),
		changed("the check", m.Check.String(), siterows.Check().String()),
		changed("--tables", tableSet(m.Tables), tableSet(o.Tables)),
	}
	if len(m.Inputs) != len(o.Inputs) {
		errs = append(errs, changed("the number of inputs", inputNames(m.Inputs), inputNames(o.Inputs)))
	}
	for i := range min(len(m.Inputs), len(o.Inputs)) {
		// A list may be moved or renamed; only its content counts.
		if m.Inputs[i].Fingerprint != o.Inputs[i].Fingerprint {
			errs = append(errs, changed(fmt.Sprintf("the fingerprint of input %.200s", o.Inputs[i].Name), m.Inputs[i].String(),
				o.Inputs[i].String()))
		}
	}
	if o.Source != nil { // the counted differences would mix the rules of two versions
		errs = append(errs, changed("the version of bulkscan", m.ToolVersion, o.ToolVersion))
	}
	if o.Shares > 0 {
		errs = append(errs, changed("the number of shares", fmt.Sprint(m.Shares), fmt.Sprint(o.Shares)))
	}
	errs = append(errs, changedSettings(m.Config, o.Config, changed),
		changed("the observer", m.Observer.String(), o.Observer.String()), changed("--list-id", m.ListID, o.ListID))
	if err := first(errs); err != nil {
		return err
	}
	was := m.ToolVersion
	m.ToolVersion, m.Config, m.Inputs, m.Rejudged = o.ToolVersion, o.Config, o.Inputs, o.Source
	m.WrittenToo(was)
	if m.FinishedAt != nil && now.Before(*m.FinishedAt) {
		now = *m.FinishedAt // the clock was set back, and the head has the later time
	}
	m.ResumedAt = &now
	return nil
}

// Unfinished is a scan that an earlier command has left.
type Unfinished struct {
	ScanID, Date string
	Last         time.Time // its last commit; without one its last start
	// Err says why the scan cannot be continued with these options, or cannot be read; nil if it can be continued.
	Err error
}

// FindUnfinished looks at the last scan, by name, whose id is accepts. It returns nil if there is nothing to continue:
// the scan is complete, discarded or unreadable, or it is the scan of the options.
func FindUnfinished(ctx context.Context, st store.Store, o Options, is func(scanID string) bool) (*Unfinished, error) {
	now := time.Now()
	if err := o.complete(now); err != nil {
		return nil, err
	}
	ids, err := commit.ScanIDs(ctx, st)
	if err != nil {
		return nil, cmp.Or(store.Try(ctx, st), err) // the error of Try says what is wrong with the place
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !is(id) })
	var m *commit.Manifest
	newest := ""
	for err = store.ErrNotExist; errors.Is(err, store.ErrNotExist) && len(ids) > 0; ids = ids[:len(ids)-1] {
		newest = ids[len(ids)-1] // this may be the folder of a lock
		if newest == o.ScanID {
			return nil, nil
		}
		m, err = commit.ReadManifest(ctx, st, newest)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // there is nothing to continue; bulkscan verify names the damage
		return nil, nil
	case m.State == commit.Complete || m.Publication == commit.PublicationDiscarded:
		return nil, nil
	}
	u := &Unfinished{ScanID: newest, Date: m.ScanDate, Last: m.StartedAt}
	if m.ResumedAt != nil {
		u.Last = *m.ResumedAt
	}
	commits, err := commit.Commits(ctx, st, newest)
	for i := range commits {
		if at := commits[i].CommittedAt; i == 0 || at.After(u.Last) {
			u.Last = at
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		u.Err = err
	case m.Repairing:
		u.Err = errors.New("it is being repaired, which --repair continues")
	default:
		u.Err = resume(m, &o, now)
	}
	return u, nil
}

// tableSet lists tables in the order of schema.AllTables, since the order in the options does not matter.
func tableSet(tables []string) string {
	var in []string
	for _, table := range schema.AllTables {
		if slices.Contains(tables, table) {
			in = append(in, table)
		}
	}
	return strings.Join(in, ",")
}

// inputNames returns the number of inputs and the names of the first five.
func inputNames(inputs []commit.Input) string {
	const shown = 5
	names := make([]string, 0, shown+1)
	for i, in := range inputs {
		if i == shown {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%.200s", in.Name))
	}
	return fmt.Sprintf("%d (%s)", len(inputs), strings.Join(names, ", "))
}

// changedSettings compares the settings that change answers. A setting that only one side has is "" on the other.
func changedSettings(was, now []commit.Setting, changed func(what, was, is string) error) error {
	value := func(settings []commit.Setting, name string) string {
		for _, s := range settings {
			if s.Name == name {
				return s.Value
			}
		}
		return ""
	}
	for _, s := range slices.Concat(was, now) {
		if s.Answers {
			if err := changed("--"+s.Name, value(was, s.Name), value(now, s.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// loadManifest reads the manifest of the scan, or returns a new one.
func loadManifest(ctx context.Context, st store.Store, o *Options, now time.Time) (*commit.Manifest, error) {
	m, err := commit.ReadManifest(ctx, st, o.ScanID)
	if schema.OfOtherVersion(err) {
		return nil, err // even for a restart: a later version may have data that this one does not know
	}
	switch {
	case o.Repair && errors.Is(err, store.ErrNotExist):
		return nil, o.nothingToRepair()
	case o.Repair && err == nil && m.Restarting:
		return nil,
			fmt.Errorf(
				"nothing to repair: scan %s is being restarted, and the restart was interrupted; the same command without --repair continues it", o.ScanID)
	case err == nil && len(m.Pruned) > 0:
		return nil,
			fmt.Errorf(
				"scan %s is not continued, repaired or begun anew: its %s were pruned, and the history has its night; give another --scan-id", o.ScanID, strings.Join(m.Pruned, " and "))
	case err == nil && !o.Restart && m.State != commit.Complete && m.Publication == commit.PublicationDiscarded:
		return nil,
			fmt.Errorf("scan %s was discarded, and is not continued; give another --scan-id, or begin it anew with --restart",
				o.ScanID)
	case err == nil && (o.Restart || m.State != commit.Complete || m.Publication == commit.PublicationPending &&
		!o.NoPublish):
		date := m.ScanDate
		if m.Restarting || o.Restart {
			date = o.Date
		}
		if err := notPruned(ctx, st, o.ScanID, date); err != nil {
			return nil, err
		}
	case errors.Is(err, store.ErrNotExist):
		if err := notPruned(ctx, st, o.ScanID, o.Date); err != nil {
			return nil, err
		}
		if !o.Restart {
			return newManifest(o, now), nil
		}
	}
	if err == nil && m.Uncollected() && o.Restart {
		return nil, &commit.UncollectedError{ScanID: o.ScanID, N: m.Shares} // shares may be being written
	}
	if o.Restart || err == nil && m.Restarting {
		// A restart may delete only a scan that can be made again from the same stored scan. Any other scan would be lost; it
		// may even be the stored scan itself.
		if err == nil && o.Source != nil && (m.Rejudged == nil || m.StartedAt.Equal(o.Source.StartedAt)) {
			return nil,
				fmt.Errorf(
					"cannot judge scan %s again into this dataset: the scan of that name there is not one that can be made again, and is not deleted; give another place", o.ScanID)
		}
		// An unreadable manifest is replaced like the rest.
		m = newManifest(o, now)
		m.Restarting = true
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := resume(m, o, now); err != nil {
		return nil, err
	}
	return m, nil
}

// notPruned returns an error if the history cannot take in a scan because its night was pruned, before any site is
// fetched.
func notPruned(ctx context.Context, st store.Store, scanID, date string) error {
	pruned, err := commit.ReadPruned(ctx, st)
	if err != nil {
		return err
	}
	return pruned.Refuses(scanID, date)
}

func (o *Options) nothingToRepair() error {
	return fmt.Errorf("nothing to repair: there is no scan %s; name the scan with --scan-id", o.ScanID)
}
