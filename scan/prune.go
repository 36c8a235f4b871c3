package scan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/views"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/survey/method"
	"github.com/bulkscan/bulkscan/survey/tables"
)

// Retention has the dates, YYYY-MM-DD, before which nights, bodies or evidence are deleted for their age. "" keeps all.
// A night is deleted with all its tables; the other two leave sites and verdicts.
type Retention struct {
	Nights, Bodies, Evidence string
	// Accept is the number of dates for which a person accepts a deletion. Prune deletes nothing if more than half of the
	// published dates are due, or if more than half of the other dates with bodies or evidence would lose these: the error
	// is a *ManyError, unless Accept is the number of all such dates.
	Accept int
	DryRun bool // log and count what is due, and delete nothing
}

// ManyError says that a pruning would delete more than half. The clock or a setting may be wrong, so a person has to
// accept it.
type ManyError struct {
	What  string   // would be deleted, with its numbers
	Dates []string // of which anything would be deleted
}

func (e *ManyError) Error() string {
	return fmt.Sprintf(
		"nothing was pruned, since more than half would go: %s, %s to %s; if the clock and the settings are right, `bulkscan nightly … --prune --accept-pruning %d` deletes them",
		e.What, e.Dates[0], e.Dates[len(e.Dates)-1], len(e.Dates))
}

// Prunings counts what a pruning deleted.
type Prunings struct {
	Nights   []string `json:"nights,omitempty" about:"dates of deleted nights"`
	Bodies   int      `json:"bodies,omitempty" about:"scans whose bodies were deleted"`
	Evidence int      `json:"evidence,omitempty" about:"scans whose evidence was deleted"`
	Bytes    int64    `json:"bytes" about:"of the deleted files"`
}

// And adds what an earlier run deleted, which may be nil.
func (p *Prunings) And(earlier *Prunings) *Prunings {
	if earlier == nil {
		return p
	}
	return &Prunings{Nights: slices.Concat(earlier.Nights, p.Nights), Bodies: earlier.Bodies + p.Bodies,
		Evidence: earlier.Evidence + p.Evidence, Bytes: earlier.Bytes + p.Bytes}
}

// pruning is one run of Prune.
type pruning struct {
	store  store.Store
	before *commit.Pruned
	all    []*commit.Manifest
	nights []*commit.Manifest
	tables map[string][]*commit.Manifest // scans of which a table is deleted
	done   Prunings
}

// Prune deletes what is too old. A scan that is neither published nor discarded stays, and so does the newest published
// night. The history keeps its entries of deleted nights, and the last body of each open episode (see history.Prune).
// If Prune is killed, the next Prune does the rest. The caller excludes other calls.
func Prune(ctx context.Context, st store.Store, keep Retention, o Publishing) (*Prunings, error) {
	p := &pruning{store: st, tables: map[string][]*commit.Manifest{}}
	if err := p.run(ctx, keep, o); err != nil {
		return &p.done, fmt.Errorf("cannot prune: %w", err)
	}
	return &p.done, nil
}

func (p *pruning) run(ctx context.Context, keep Retention, o Publishing) error {
	if err := p.choose(ctx, keep); err != nil {
		return err
	}
	many := p.many(keep.Accept)
	if many != nil && !keep.DryRun {
		return many
	}
	for _, m := range p.nights {
		o.Log.Info("too old, and going", "scan", m.ScanID, "date", m.ScanDate, "publication", m.Publication)
	}
	if keep.DryRun {
		for _, m := range p.nights {
			p.done.Nights = append(p.done.Nights, m.ScanDate)
		}
		p.done.Bodies, p.done.Evidence = len(p.tables[schema.Bodies]), len(p.tables[schema.Evidence])
		return many
	}
	registries, err := tables.RegistriesOnlyOf(ctx, p.store, p.nights)
	if err != nil {
		return err
	}
	removing, err := history.Prune(ctx, p.store, HistoryOptions(o.Registry, o.ToolVersion, o.Log),
		history.Pruning{All: p.all, Nights: p.nights, Without: p.tables, Registries: registries})
	if err != nil {
		return err
	}
	p.done.Bodies, p.done.Evidence = len(p.tables[schema.Bodies]), len(p.tables[schema.Evidence])
	return p.remove(ctx, removing, o)
}

// choose finds what is too old.
func (p *pruning) choose(ctx context.Context, keep Retention) (err error) {
	if p.all, err = commit.Scans(ctx, p.store); err != nil {
		return err
	}
	if p.before, err = commit.ReadPruned(ctx, p.store); err != nil {
		return err
	}
	newest := ""
	for _, m := range p.all {
		if m.Published() {
			newest = max(newest, m.ScanDate)
		}
	}
	for _, m := range p.all {
		if m.ScanDate >= newest || !m.Published() && m.Publication != commit.PublicationDiscarded && !p.before.Has(m.ScanID) {
			// a pruned scan that was copied back does not stay
			continue
		}
		if m.ScanDate < keep.Nights {
			p.nights = append(p.nights, m)
			continue
		}
		for table, before := range map[string]string{schema.Bodies: keep.Bodies, schema.Evidence: keep.Evidence} {
			if m.ScanDate < before && slices.Contains(m.Tables, table) {
				p.tables[table] = append(p.tables[table], m)
			}
		}
	}
	return nil
}

// many returns a *ManyError unless the due deletion is allowed: of at most half of the dates, of a single date, or of
// as many dates as accepted. It does not count deletions that an earlier pruning has begun.
func (p *pruning) many(accept int) error {
	dates, few := map[string]bool{}, true // of which anything goes
	var what []string
	for table, due := range map[string][]*commit.Manifest{"": p.nights, schema.Bodies: p.tables[schema.Bodies],
		schema.Evidence: p.tables[schema.Evidence]} {
		there, going := map[string]bool{}, map[string]bool{}
		for _, m := range p.all {
			has := table == "" || slices.Contains(m.Tables, table) && !slices.Contains(p.nights, m)
			if !has || !m.Published() || m.ScanDate <= max(p.before.Through, p.before.Tables[table]) {
				continue
			}
			there[m.ScanDate] = true
			if slices.Contains(due, m) {
				going[m.ScanDate], dates[m.ScanDate] = true, true
			}
		}
		if len(going) > 0 {
			what = append(what, strings.TrimPrefix(fmt.Sprintf("%s of %d of %d nights", table, len(going), len(there)), " of "))
		}
		few = few && (2*len(going) <= len(there) || len(going) == 1)
	}
	if few || len(dates) == accept {
		return nil
	}
	slices.Sort(what)
	return &ManyError{What: strings.Join(what, ", "), Dates: slices.Sorted(maps.Keys(dates))}
}

// remove deletes the files of pruned scans and tables, also those that an earlier run has left. Before, it deletes the
// scans' manifests and updates the index.
func (p *pruning) remove(ctx context.Context, removing []commit.PrunedScan, o Publishing) error {
	for i := range removing {
		if err := p.withdraw(ctx, removing[i].ScanID); err != nil {
			return err
		}
	}
	p.all = slices.DeleteFunc(p.all, func(m *commit.Manifest) bool { // their tables are deleted with them
		return slices.ContainsFunc(removing, func(s commit.PrunedScan) bool { return s.ScanID == m.ScanID })
	})
	if err := index.Update(ctx, p.store); err != nil {
		return err
	}
	if err := p.removeTables(ctx); err != nil {
		return err
	}
	if err := views.Write(ctx, p.store, nil); err != nil || len(removing) == 0 {
		return err
	}
	for i := range removing {
		s := &removing[i]
		if err := commit.RemoveScan(ctx, p.store, s); err != nil {
			return err
		}
		p.done.Nights, p.done.Bytes = append(p.done.Nights, s.ScanDate), p.done.Bytes+s.Bytes
	}
	p.done.Nights = slices.Compact(p.done.Nights)
	if err := errors.Join(index.Update(ctx, p.store), index.RollUp(ctx, p.store, o.ToolVersion),
		method.WriteReadme(ctx, p.store)); err != nil {
		return err
	}
	return commit.Removed(ctx, p.store, o.Log)
}

// withdraw deletes the manifest of a pruned scan, unless another process works on the scan. No process begins to work
// on a scan without a manifest.
func (p *pruning) withdraw(ctx context.Context, scanID string) (err error) {
	lock, err := commit.TakeLock(ctx, p.store, scanID, commit.DoingPrune, time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return err
	}
	return errors.Join(p.store.Delete(ctx, commit.ManifestName(scanID)), lock.Unlock())
}

// removeTables deletes the files of pruned tables, and the folders that these leave empty.
func (p *pruning) removeTables(ctx context.Context) error {
	for _, table := range []string{schema.Bodies, schema.Evidence} {
		pruned := map[string]bool{} // ids
		for _, m := range p.all {
			if slices.Contains(m.Pruned, table) || slices.Contains(p.tables[table], m) {
				pruned[m.ScanID] = true
			}
		}
		if len(pruned) == 0 {
			continue
		}
		ours := func(name string) bool {
			id, _, _, ok := commit.SplitPart(path.Base(name))
			return ok && pruned[id]
		}
		for _, m := range p.tables[table] { // a compaction that knows the table must end before its files are deleted
			lock, _, err := commit.LockScan(ctx, p.store, m.ScanID, commit.DoingPrune)
			if err == nil {
				err = lock.Unlock()
			}
			if err != nil {
				return err
			}
		}
		var left []store.Entry
		for entry, err := range p.store.List(ctx, table+"/") {
			if err != nil {
				return err
			}
			if ours(entry.Name) {
				left = append(left, entry)
			}
		}
		folders := make([]string, len(left))
		for i, entry := range left {
			if err := p.store.Delete(ctx, entry.Name); err != nil {
				return err
			}
			p.done.Bytes += entry.Size
			folders[i] = path.Dir(entry.Name)
		}
		if err := commit.RemoveEmpty(ctx, p.store, slices.Compact(folders)); err != nil {
			return err
		}
	}
	return nil
}
