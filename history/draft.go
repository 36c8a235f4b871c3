package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// draft is a ledger in the making. Each night reads the open rows of the night before and writes new ones; closed rows
// of all nights up to a checkpoint go to one file a table.
type draft struct {
	ctx     context.Context
	store   store.Store
	options Options
	past    *past
	again   *again // nil: every night keeps its own judgement
	run     string // in the names of its files
	made    int    // files
	nights  int    // of its ledger

	ledger   Ledger // the future ledger, without the closed rows of this run
	policies map[int64]*Policy
	gained   bool // the draft has policies that the ledger's file lacks

	episodes, closedEpisodes output[Episode]
	gaps, closedGaps         output[Gap]
}

// derive merges scans into a ledger, night after night, and replaces the record. A base without scans is an empty
// ledger.
func derive(ctx context.Context, st store.Store, o Options, h *commit.Head, p *past, base *Ledger, scans []MergedScan,
	why string) error {
	present, err := readLedger(ctx, st, h) // it may be another ledger, which stays until the record is replaced
	if _, damaged := errors.AsType[*schema.DamagedError](err); damaged || errors.Is(err, store.ErrNotExist) ||
		errors.Is(err, commit.ErrRecord) {
		present, err = base, nil
	}
	if err != nil {
		return err
	}
	if !p.gone && !h.Late {
		if err := sweep(ctx, st, slices.Concat(present.all(), p.files()), ""); err != nil {
			return err
		}
	}
	d := newDraft(ctx, st, o, p, base)
	d.again = judgeAgain(o.judge(scans))
	if d.again == nil && base.Judge != "" && slices.ContainsFunc(scans, func(s MergedScan) bool {
		return s.judge != base.Judge
	}) {
		d.ledger.Judge = severalJudges
	}
	d.ledger.Checkpoints = slices.DeleteFunc(slices.Clone(base.Checkpoints),
		func(c Checkpoint) bool { return c.Scans < len(p.base().Scans) })
	next, err := d.merged(scans, true)
	if err != nil {
		return err
	}
	return next.write(ctx, st, h, why)
}

func newDraft(ctx context.Context, st store.Store, o Options, p *past, base *Ledger) *draft {
	return &draft{
		ctx: ctx, store: st, options: o, past: p, run: newRun(), policies: map[int64]*Policy{}, nights: base.nights(),
		ledger: Ledger{SchemaVersion: schema.Version, ToolVersion: o.ToolVersion, Observer: base.Observer,
			Judge: base.Judge, Scans: slices.Clone(base.Scans), Files: slices.Clone(base.Files), Number: base.Number},
		episodes:       output[Episode]{table: History, kind: openRows},
		closedEpisodes: output[Episode]{table: History, kind: closedRows},
		gaps:           output[Gap]{table: Gaps, kind: openRows},
		closedGaps:     output[Gap]{table: Gaps, kind: closedRows},
	}
}

// merged merges scans into the draft's ledger, and returns it, with or without checkpoints. Its files are written, but
// no record names them yet.
func (d *draft) merged(scans []MergedScan, checkpoints bool) (_ *Ledger, err error) {
	defer func() { err = errors.Join(err, d.discard()) }()
	for p, err := range rowsOf[Policy](d.ctx, d.store, d.ledger.Files, Policies, false) {
		if err != nil {
			return nil, err
		}
		known := *p
		d.policies[p.ID] = &known
	}
	if a := d.again; a != nil && a.Judge != d.ledger.Judge {
		a.kept = judgedFiles{}
		if err := a.judged(a.kept, nil, d.past.bodies(d.ctx, d.store)); err != nil {
			return nil, err
		}
		if d.ledger.Judge = a.Judge; len(d.ledger.Scans) > len(d.past.base().Scans) {
			d.ledger.Judge = severalJudges // a scan of the earlier nights is gone
		}
	}
	last := d.nights + (&Ledger{Scans: scans}).nights()
	for night := range byNight(scans) {
		kept := checkpoints && keeps(last, d.nights)
		if kept {
			err = d.checkpoint()
		}
		if err == nil {
			err = d.add(night, kept)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot merge the night of %s into the history: %w", night[0].ScanDate, err)
		}
	}
	d.ledger.Checkpoints = slices.DeleteFunc(d.ledger.Checkpoints,
		func(c Checkpoint) bool { return !keeps(last, c.Nights) })
	return &d.ledger, d.finish()
}

// checkpoint adds the current ledger as a checkpoint.
func (d *draft) checkpoint() error {
	if err := errors.Join(d.publishClosed(), d.publishPolicies()); err != nil {
		return err
	}
	c := Checkpoint{Nights: d.nights, Scans: len(d.ledger.Scans), Judge: d.ledger.Judge}
	for _, f := range d.ledger.Files {
		if f.Open || f.Table == Policies {
			c.Files = append(c.Files, f)
		}
	}
	d.ledger.Checkpoints = append(d.ledger.Checkpoints, c)
	return nil
}

// add merges the scans of one date. The open rows of the night before are kept, or deleted at once.
func (d *draft) add(scans []MergedScan, kept bool) error {
	d.nights++
	var opened []*commit.Scan
	for _, s := range scans {
		scan, err := d.past.head.Scan(d.ctx, s.ScanID)
		if err != nil {
			return err
		}
		scan.Sealing = true
		opened = append(opened, scan)
	}
	if err := d.again.open(d, opened); err != nil {
		return err
	}
	tonight, err := readNight(d.ctx, opened, "", d.again)
	if err != nil {
		return err
	}
	defer tonight.close()
	d.ledger.Scans = append(d.ledger.Scans, scans...)
	done, err := d.merge(tonight, &Merger{
		Judged: d.again.judgeKept(tonight),
		OpenEpisode: func(e *Episode) error {
			d.keep(tonight, e.Policy)
			return d.episodes.add(d, e)
		},
		ClosedEpisode: func(e *Episode) error {
			d.keep(tonight, e.Policy)
			return d.closedEpisodes.add(d, e)
		},
		OpenGap:   func(g *Gap) error { return d.gaps.add(d, g) },
		ClosedGap: func(g *Gap) error { return d.closedGaps.add(d, g) },
	})
	if err != nil {
		return err
	}
	if err := d.replaceOpen(kept); err != nil {
		return err
	}
	if d.options.Progress != nil {
		done.Disagree = tonight.disagree
		d.options.Progress(done)
	}
	return nil
}

// merge merges a night with the open rows of the night before.
func (d *draft) merge(tonight *night, m *Merger) (Merged, error) {
	m.Policy = func(id int64) *Policy {
		if p := d.policies[id]; p != nil {
			return p
		}
		return tonight.policies[id]
	}
	return m.Merge(tonight.date,
		rowsOf[Episode](d.ctx, d.store, d.ledger.Files, History, true),
		rowsOf[Gap](d.ctx, d.store, d.ledger.Files, Gaps, true), tonight.all())
}

// keep adds a policy of an episode to the table. Policies of rows that do not count are left out.
func (d *draft) keep(tonight *night, id int64) {
	if d.policies[id] == nil {
		d.policies[id], d.gained = tonight.policies[id], true
	}
}

// replaceOpen publishes the open rows of the night, which replace the open rows of the night before. A file without
// rows is published, too: readers need one of each table. Files of this run that no checkpoint keeps are deleted at
// once: no record names them.
func (d *draft) replaceOpen(kept bool) error {
	if err := d.episodes.begin(d); err != nil {
		return err
	}
	if err := d.gaps.begin(d); err != nil {
		return err
	}
	episodes, err := d.episodes.publish(d)
	if err != nil {
		return err
	}
	gaps, err := d.gaps.publish(d)
	if err != nil {
		return err
	}
	var closed []File
	for _, f := range d.ledger.Files {
		run, _ := runOf(path.Base(f.Name))
		switch {
		case !f.Open:
			closed = append(closed, f)
		case !kept && run == d.run:
			if err := d.store.Delete(d.ctx, f.Name); err != nil {
				return err
			}
		}
	}
	d.ledger.Files = slices.Concat(closed, episodes, gaps)
	return nil
}

// openStored opens a scan of the ledger; nil if it was pruned.
func (p *past) openStored(ctx context.Context, scanID string) (*commit.Scan, error) {
	scan, err := p.head.Scan(ctx, scanID)
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil
	}
	return scan, err
}

// findBodies calls found for each wanted body that a scan stores, and removes it from wanted. The body is valid until
// found returns. The hashes of a part are read first: its bodies are read from the first wanted one to the last.
func findBodies(ctx context.Context, scan *commit.Scan, wanted map[int64]bool,
	found func(hash int64, body []byte)) error {
	if !scan.Has(schema.Bodies) {
		return nil
	}
	for i := range scan.Commits {
		from, to, err := wantedRows(ctx, scan, &scan.Commits[i], wanted)
		if err != nil {
			return err
		}
		if from == to {
			continue
		}
		if err := takeBodies(read.CommitRows[schema.BodyRow](ctx, scan, &scan.Commits[i], schema.Bodies, from, to), wanted,
			found); err != nil {
			return err
		}
	}
	return nil
}

// takeBodies calls found with the wanted bodies among some rows, each once.
func takeBodies(rows iter.Seq2[*schema.BodyRow, error], wanted map[int64]bool,
	found func(hash int64, body []byte)) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		if wanted[row.BodyHash] {
			delete(wanted, row.BodyHash)
			found(row.BodyHash, row.Body)
		}
	}
	return nil
}

// wantedRows returns the range of rows of a commit that contains the wanted bodies, each at its first place. The range
// is empty if there are none.
func wantedRows(ctx context.Context, scan *commit.Scan, c *commit.Commit, wanted map[int64]bool) (from, to int64,
	err error) {
	if len(wanted) == 0 {
		return 0, 0, nil
	}
	var hash int64
	cursor, err := read.OpenCursor(ctx, scan, c, schema.Bodies, table.Field{Name: "body_hash", Into: &hash})
	if err != nil {
		return 0, 0, err
	}
	seen := map[int64]bool{}
	for len(seen) < len(wanted) && cursor.Next() {
		if wanted[hash] && !seen[hash] {
			if seen[hash] = true; to == 0 {
				from = cursor.Row() - 1
			}
			to = cursor.Row()
		}
	}
	return from, to, errors.Join(cursor.Err(), cursor.Close())
}

// finish publishes the closed rows and the policies.
func (d *draft) finish() error {
	if err := d.publishClosed(); err != nil {
		return err
	}
	return errors.Join(gather[Episode](d, History), gather[Gap](d, Gaps), d.publishPolicies())
}

func (d *draft) publishClosed() error {
	episodes, err := d.closedEpisodes.publish(d)
	if err != nil {
		return err
	}
	gaps, err := d.closedGaps.publish(d)
	d.ledger.Files = slices.Concat(d.ledger.Files, episodes, gaps)
	return err
}

func (d *draft) publishPolicies() error {
	isPolicies := func(f File) bool { return f.Table == Policies }
	if !d.gained && slices.ContainsFunc(d.ledger.Files, isPolicies) {
		return nil
	}
	policies := output[Policy]{table: Policies, kind: "all"}
	if err := policies.begin(d); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(d.policies)) {
		if err := policies.add(d, d.policies[id]); err != nil {
			return errors.Join(err, policies.discard())
		}
	}
	files, err := policies.publish(d)
	d.ledger.Files, d.gained = append(slices.DeleteFunc(d.ledger.Files, isPolicies), files...), false
	return err
}

// gathered is how many closed files of one level become one of the next. So ten years of nights have some 50 files a
// table.
const gathered = 8

// gather merges the closed files of a level between two checkpoints into one file, if there are as many as gathered
// says. Readers of the record before still find the merged files.
func gather[T any](d *draft, tableName string) error {
	for i := 0; i < len(d.ledger.Files); i++ {
		first := d.ledger.Files[i]
		alike := func(f File) bool {
			return f.Table == tableName && !f.Open && f.Level == first.Level && d.ledger.segment(f) == d.ledger.segment(first)
		}
		var of []File
		for _, f := range d.ledger.Files {
			if alike(f) {
				of = append(of, f)
			}
		}
		if len(of) < gathered {
			continue
		}
		one := output[T]{table: tableName, kind: fmt.Sprint("gathered", first.Level+1)}
		for row, err := range rowsOf[T](d.ctx, d.store, of, tableName, false) {
			if err == nil {
				err = one.add(d, row)
			}
			if err != nil {
				return errors.Join(err, one.discard())
			}
		}
		files, err := one.publish(d)
		if err != nil {
			return err
		}
		files[0].Level, files[0].Nights = first.Level+1,
			slices.MaxFunc(of, func(a, b File) int { return a.Nights - b.Nights }).Nights
		// Closed rows stay in the order of nights. All files before the first of them are of other kinds, so the new file
		// takes its place.
		d.ledger.Files, i = slices.Insert(slices.DeleteFunc(d.ledger.Files, alike), i, files...), -1
	}
	return nil
}

// discard drops the files that were not published.
func (d *draft) discard() error {
	return errors.Join(d.episodes.discard(), d.closedEpisodes.discard(), d.gaps.discard(), d.closedGaps.discard())
}
