package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file is about nights whose scans were deleted for their age. The ledger still has these nights. It can be
// derived anew only from a snapshot of its state after the last of them. The snapshot is a ledger, too: its files lie
// among those of the ledger, and a rebuilt ledger names some of them. Of the deleted robots.txt files, the last file of
// each open episode is kept.

// Bodies is the table of kept files of sites. Its columns are those of schema.Bodies.
const Bodies = schema.Bodies

// past is what replaces pruned nights.
type past struct {
	*commit.Pruned
	kept
	head      *commit.Head    // by which it was read
	withdrawn map[string]bool // scans that the head names as not published
	// scans of the ledger are gone for no known reason: the heads may have been lost, so no file is deleted
	gone bool
}

// kept is the part of commit.Pruned for the history.
type kept struct {
	Snapshot *Ledger `json:"snapshot,omitempty"` // of the nights up to Pruned.Through; nil before the first
	Bodies   []File  `json:"bodies,omitempty"`
}

func readPast(ctx context.Context, h *commit.Head) (*past, error) {
	record, err := h.ReadPruned(ctx)
	if err != nil {
		return nil, err
	}
	p := &past{Pruned: record, head: h, withdrawn: map[string]bool{}}
	all, err := h.All(ctx)
	for _, s := range all {
		p.withdrawn[s.ScanID] = s.Publication != commit.PublicationDone
	}
	if err == nil && len(record.History) > 0 {
		err = json.Unmarshal(record.History, &p.kept)
	}
	for _, f := range p.files() {
		if err == nil {
			err = store.CheckName(f.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what was pruned: %w", err)
	}
	return p, nil
}

// pastOf is readPast with the newest head.
func pastOf(ctx context.Context, st store.Store) (*past, error) {
	h, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, err
	}
	return readPast(ctx, h)
}

// files returns the files of the snapshot, and the files with bodies.
func (p *past) files() []File {
	if p.Snapshot == nil {
		return p.Bodies
	}
	return slices.Concat(p.Snapshot.Files, p.Bodies)
}

// names reports whether a file is among past.files.
func (p *past) names(name string) bool {
	return slices.ContainsFunc(p.files(), func(f File) bool { return f.Name == name })
}

// base is the ledger from which another is derived: the snapshot, or an empty one.
func (p *past) base() *Ledger {
	if p.Snapshot == nil {
		return &Ledger{}
	}
	base := *p.Snapshot
	return &base
}

// sound returns an error if the snapshot cannot be read.
func (p *past) sound(ctx context.Context, st store.Store) error {
	for _, f := range p.base().Files {
		if err := table.CompareHash(ctx, st, f.File); err != nil {
			return fmt.Errorf("%w%s", err, p.remedy())
		}
	}
	return nil
}

// remedy is what to do about a damaged file of the snapshot, or of bodies.
func (p *past) remedy() string {
	return fmt.Sprintf(
		"; restore it from a copy of the dataset: the nights up to %s were pruned, and it has what is left of them",
		p.Through)
}

// missing returns the scans of a ledger that no longer exist, and were neither pruned nor withdrawn.
func (p *past) missing(l *Ledger, there func(scanID string) bool) (ids []string) {
	pruned := map[string]bool{}
	for i := range p.Scans {
		pruned[p.Scans[i].ScanID] = true
	}
	for _, s := range l.Scans {
		if !there(s.ScanID) && !pruned[s.ScanID] && !p.withdrawn[s.ScanID] {
			ids = append(ids, s.ScanID)
		}
	}
	return ids
}

// and adds the pruned scans that were published.
func (p *past) and(scans []MergedScan) []MergedScan {
	there := among(scans)
	for i := range p.Scans {
		s := &p.Scans[i]
		if s.Publication != commit.PublicationDiscarded && slices.Contains(s.Tables, schema.Sites) && !there(s.ScanID) {
			scans = append(scans, MergedScan{ScanID: s.ScanID, ScanDate: s.ScanDate, StartedAt: s.StartedAt,
				FinishedAt: s.FinishedAt, Observer: s.Observer})
		}
	}
	return scans
}

// follow is the function follow, except that the snapshot decides up to the last pruned night.
func (p *past) follow(scans []MergedScan) (followed []MergedScan, observer commit.Observer) {
	all, observer := follow(p.and(scans))
	followed = append(make([]MergedScan, 0, len(all)), p.base().Scans...)
	for _, s := range all {
		if s.ScanDate > p.Through {
			followed = append(followed, s)
		}
	}
	return followed, observer
}

// bodies yields the kept robots.txt files. A body is valid until the next.
func (p *past) bodies(ctx context.Context, st store.Store) iter.Seq2[*schema.BodyRow, error] {
	return rowsOf[schema.BodyRow](ctx, st, p.Bodies, Bodies, false)
}

// findBodies is the function findBodies for the bodies of pruned nights.
func (p *past) findBodies(ctx context.Context, st store.Store, wanted map[int64]bool,
	found func(hash int64, body []byte)) error {
	if len(wanted) == 0 {
		return nil
	}
	return takeBodies(p.bodies(ctx, st), wanted, found)
}

// KeptBodies returns, by their hashes, the robots.txt files that were kept when their nights were pruned: at most so
// many bytes. left is how many more files there are.
func KeptBodies(ctx context.Context, st store.Store, most int) (kept map[int64][]byte, left int64, err error) {
	p, err := pastOf(ctx, st)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range p.Bodies {
		left += f.Rows
	}
	kept = map[int64][]byte{}
	for row, err := range p.bodies(ctx, st) {
		if err != nil {
			return nil, 0, err
		}
		if most -= len(row.Body); most < 0 {
			break
		}
		kept[row.BodyHash] = bytes.Clone(row.Body)
		left--
	}
	return kept, left, nil
}

// Pruning says what is about to be deleted for its age.
type Pruning struct {
	All     []*commit.Manifest            // of the dataset
	Nights  []*commit.Manifest            // scans that are deleted, with all earlier ones that are published
	Without map[string][]*commit.Manifest // by table: other scans, which lose the table

	Registries map[string][]string // by version: the tokens of registries that only statistics of Nights have
}

// Prune keeps what must not be lost with the scans, and writes a head that names them as pruned. After that they can be
// deleted: removing has the scans that may have files left. A killed Prune has changed nothing, and leaves files that
// the next Prune or merge deletes.
func Prune(ctx context.Context, st store.Store, o Options, p Pruning) (removing []commit.PrunedScan, err error) {
	err = commit.Change(ctx, st, o.Log, func(h *commit.Head) error {
		before, err := readPast(ctx, h)
		if err != nil {
			return err
		}
		back := p.Nights // pruned scans that exist again, from a copy
		p.Nights = slices.DeleteFunc(slices.Clone(p.Nights), func(m *commit.Manifest) bool { return before.Has(m.ScanID) })
		back = slices.DeleteFunc(slices.Clone(back), func(m *commit.Manifest) bool {
			return has(p.Nights, m.ScanID) || slices.Contains(h.Removing, m.ScanID)
		})
		next := before
		if len(p.Nights)+len(p.Without) > 0 {
			if next, err = before.without(ctx, st, o, h, &p); err != nil {
				return err
			}
			if next.History, err = json.Marshal(next.kept); err != nil {
				return err
			}
			if err := h.Prune(ctx, next.Pruned, p.Nights, p.Without); err != nil {
				return err
			}
		}
		for _, m := range back {
			h.Removing = append(h.Removing, m.ScanID)
		}
		removing = slices.DeleteFunc(slices.Clone(next.Scans),
			func(s commit.PrunedScan) bool { return !slices.Contains(h.Removing, s.ScanID) })
		return nil
	})
	return removing, err
}

// prunedRun is in the names of files that a pruning writes.
const prunedRun = "pruned"

func newPrunedDraft(ctx context.Context, st store.Store, o Options, p *past, base *Ledger) *draft {
	d := newDraft(ctx, st, o, p, base)
	d.run = prunedRun + d.run
	return d
}

// without returns the past after this pruning, beside the current ledger.
func (p *past) without(ctx context.Context, st store.Store, o Options, h *commit.Head, going *Pruning) (next *past,
	err error) {
	o.Progress = nil
	if _, err := catchUp(ctx, st, o, h, false); err != nil {
		return nil, err
	}
	ledger, err := readLedger(ctx, st, h)
	if errors.Is(err, store.ErrNotExist) { // scans without the table sites have no ledger
		ledger, err = &Ledger{}, nil
	}
	if err != nil {
		return nil, err
	}
	there := func(scanID string) bool { return has(going.All, scanID) }
	if len(p.missing(ledger, there)) == 0 && !h.Late {
		// files of a pruning that was killed or had no room; readers of the earlier ledger need the others
		if err := sweep(ctx, st, slices.Concat(ledger.all(), p.files()), prunedRun); err != nil {
			return nil, err
		}
	}
	record := *p.Pruned
	record.Scans = slices.Clone(p.Scans)
	record.Tables = maps.Clone(p.Tables)
	for table, scans := range going.Without {
		for _, m := range scans {
			if record.Tables == nil {
				record.Tables = map[string]string{}
			}
			record.Tables[table] = max(record.Tables[table], m.ScanDate)
		}
	}
	if len(going.Registries) > 0 {
		record.Registries = maps.Clone(going.Registries)
		maps.Copy(record.Registries, p.Registries)
	}
	next = &past{Pruned: &record, kept: p.kept}
	for _, m := range going.Nights {
		next.add(m)
	}
	if next.Bodies, err = p.keepBodies(ctx, st, o, ledger, going); err == nil && next.Through > p.Through {
		next.Snapshot, err = p.snapshot(ctx, st, o, ledger, going, next.Through)
	}
	return next, err
}

// add adds a scan that is about to be deleted.
func (p *past) add(m *commit.Manifest) {
	s := commit.PrunedScan{ScanID: m.ScanID, ScanDate: m.ScanDate, StartedAt: m.StartedAt, Observer: m.Observer,
		ListID: m.ListID, Tables: m.Tables, Publication: m.Publication}
	if m.FinishedAt != nil {
		s.FinishedAt = *m.FinishedAt
	}
	if m.Counts != nil {
		s.Rows, s.Bytes = m.Counts.Rows, m.Counts.Bytes
	}
	p.Scans = append(p.Scans, s)
	slices.SortFunc(p.Scans, func(a, b commit.PrunedScan) int {
		return cmp.Or(strings.Compare(a.ScanDate, b.ScanDate), strings.Compare(a.ScanID, b.ScanID))
	})
	if m.Published() {
		p.Through = max(p.Through, m.ScanDate)
	}
}

// snapshot merges the nights that are about to be deleted into the snapshot.
func (p *past) snapshot(ctx context.Context, st store.Store, o Options, ledger *Ledger, going *Pruning,
	through string) (_ *Ledger, err error) {
	var nights []MergedScan
	gone := &GoneError{}
	for _, s := range ledger.Scans {
		if s.ScanDate <= p.Through || s.ScanDate > through {
			continue
		}
		nights = append(nights, s)
		if !has(going.Nights, s.ScanID) {
			gone.ScanIDs = append(gone.ScanIDs, s.ScanID)
		}
	}
	if len(gone.ScanIDs) > 0 {
		return nil, gone
	}
	if err := p.sound(ctx, st); err != nil {
		return nil, err
	}
	base := p.base()
	base.Observer = ledger.Observer
	d := newPrunedDraft(ctx, st, o, p, base)
	switch other := func(m *commit.Manifest) bool { return !judgedBy(ledger.Judge, m) }; {
	case ledger.Judge == "" || base.Judge == ledger.Judge && !slices.ContainsFunc(going.Nights, other):
	case o.Rejudge == nil || o.Rejudge.Judge != ledger.Judge:
		return nil,
			fmt.Errorf(
				"the nights were judged by another registry or check than the history, %.99q, which has to be at hand; the next night replaces it", ledger.Judge)
	default:
		d.again = judgeAgain(o.Rejudge)
	}
	next, err := d.merged(nights, false)
	return next, repairable(err)
}

// repairable adds a remedy to an error of reading a night that is about to be deleted.
func repairable(err error) error {
	if err == nil || table.IsDamage(err) { // which says it
		return err
	}
	return fmt.Errorf(
		"%w; if its files are damaged, restore the files that bulkscan verify names, or fetch their sites again by scan --repair", err)
}

func has(scans []*commit.Manifest, scanID string) bool {
	return slices.ContainsFunc(scans, func(m *commit.Manifest) bool { return m.ScanID == scanID })
}

// keepBodies copies the last bodies of open episodes that no other scan is known to have, and returns all files with
// such bodies. Each body is from the last night of its episode, so only these nights matter.
func (p *past) keepBodies(ctx context.Context, st store.Store, o Options, ledger *Ledger, going *Pruning) ([]File,
	error) {
	without := map[string]bool{} // dates with a scan that has no stored bodies
	for _, s := range ledger.Scans {
		i := slices.IndexFunc(going.All, func(m *commit.Manifest) bool { return m.ScanID == s.ScanID })
		if i < 0 || !slices.Contains(going.All[i].Tables, schema.Bodies) || has(going.Nights, s.ScanID) ||
			has(going.Without[Bodies], s.ScanID) {
			without[s.ScanDate] = true
		}
	}
	wanted := map[int64]bool{}
	for e, err := range rowsOf[Episode](ctx, st, ledger.Files, History, true) {
		if err != nil {
			return nil, err
		}
		if e.LastBody != 0 && without[e.ValidTo.String()] {
			wanted[e.LastBody] = true
		}
	}
	for row, err := range rowsOf[schema.BodyRow](ctx, st, p.Bodies, Bodies, false, "body_hash") {
		if err != nil {
			return nil, err
		}
		delete(wanted, row.BodyHash)
	}
	d := newPrunedDraft(ctx, st, o, p, &Ledger{Files: p.Bodies})
	err := d.copyBodies(slices.Concat(going.Without[Bodies], going.Nights), wanted)
	if err == nil {
		err = gather[schema.BodyRow](d, Bodies)
	}
	return d.ledger.Files, err
}

// copyBodies copies wanted bodies from scans, the newest first, to a file of the draft.
func (d *draft) copyBodies(from []*commit.Manifest, wanted map[int64]bool) error {
	slices.SortFunc(from, func(a, b *commit.Manifest) int { return strings.Compare(b.ScanDate, a.ScanDate) })
	out := output[schema.BodyRow]{table: Bodies, kind: "kept"}
	for _, m := range from {
		if len(wanted) == 0 {
			break
		}
		scan, err := d.past.openStored(d.ctx, m.ScanID)
		if scan != nil {
			scan.Sealing = true
			var failed error
			err = findBodies(d.ctx, scan, wanted, func(hash int64, body []byte) {
				if failed == nil {
					failed = out.add(d, &schema.BodyRow{BodyHash: hash, Body: body})
				}
			})
			err = errors.Join(repairable(err), failed)
		}
		if err != nil {
			return errors.Join(err, out.discard())
		}
	}
	files, err := out.publish(d)
	d.ledger.Files = slices.Concat(d.ledger.Files, files)
	return err
}
