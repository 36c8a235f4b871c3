package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// draft is a ledger in the making. Each night reads the open rows of the night before and writes new ones; closed rows
// of all nights go to one file a table.
type draft struct {
	ctx     context.Context
	store   store.Store
	options Options
	past    *past
	again   *again // nil: every night keeps its own judgement
	run     string // in the names of its files
	nights  int

	ledger   Ledger // as it will be, without the closed rows of this run
	policies map[int64]*Policy
	gained   bool // there are policies that the ledger's file does not have

	episodes, closedEpisodes output[Episode]
	gaps, closedGaps         output[Gap]
}

// derive merges scans into a ledger, night after night, and replaces the record. A base without scans is an empty
// ledger.
func derive(ctx context.Context, st store.Store, o Options, h *commit.Head, p *past, base *Ledger, scans []MergedScan, why string) error {
	present, err := readLedger(ctx, st, h) // it may be another one, which stays until the record is replaced
	if _, damaged := errors.AsType[*schema.DamagedError](err); damaged || errors.Is(err, store.ErrNotExist) || errors.Is(err, commit.ErrRecord) {
		present, err = base, nil
	}
	if err != nil {
		return err
	}
	if !p.gone && !h.Late {
		if err := sweep(ctx, st, slices.Concat(present.Files, p.files()), ""); err != nil {
			return err
		}
	}
	d := newDraft(ctx, st, o, p, base)
	d.again = judgeAgain(o.judge(scans))
	next, err := d.merged(scans)
	if err != nil {
		return err
	}
	return next.write(ctx, st, h, why)
}

func newDraft(ctx context.Context, st store.Store, o Options, p *past, base *Ledger) *draft {
	return &draft{
		ctx: ctx, store: st, options: o, past: p, run: newRun(), policies: map[int64]*Policy{},
		ledger:         Ledger{SchemaVersion: schema.Version, ToolVersion: o.ToolVersion, Observer: base.Observer, Judge: base.Judge, Scans: slices.Clone(base.Scans), Files: slices.Clone(base.Files), Number: base.Number},
		episodes:       output[Episode]{table: History, tool: o.ToolVersion, open: true},
		closedEpisodes: output[Episode]{table: History, tool: o.ToolVersion},
		gaps:           output[Gap]{table: Gaps, tool: o.ToolVersion, open: true},
		closedGaps:     output[Gap]{table: Gaps, tool: o.ToolVersion},
	}
}

// merged merges scans into the draft's ledger, and returns it. Its files are there, and no record names them yet.
func (d *draft) merged(scans []MergedScan) (_ *Ledger, err error) {
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
		d.ledger.Judge = a.Judge
	}
	for night := range byNight(scans) {
		if err := d.add(night); err != nil {
			return nil, fmt.Errorf("cannot merge the night of %s into the history: %w", night[0].ScanDate, err)
		}
	}
	return &d.ledger, d.finish()
}

// name returns the name of a file of this run.
func (d *draft) name(table, kind string) string {
	return fmt.Sprintf("%s%s/%s-%s-%d.parquet", Folder, table, kind, d.run, d.nights)
}

// add merges the scans of one date.
func (d *draft) add(scans []MergedScan) error {
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
	d.ledger.Scans = append(d.ledger.Scans, scans...)
	done, err := d.merge(tonight, &Merger{
		Judged: d.again.judgeKept(tonight),
		OpenEpisode: func(e *Episode) error {
			d.keep(tonight, e.Policy)
			return d.episodes.add(d.ctx, d.store, d.name(History, "open"), e)
		},
		ClosedEpisode: func(e *Episode) error {
			d.keep(tonight, e.Policy)
			return d.closedEpisodes.add(d.ctx, d.store, d.name(History, "closed"), e)
		},
		OpenGap:   func(g *Gap) error { return d.gaps.add(d.ctx, d.store, d.name(Gaps, "open"), g) },
		ClosedGap: func(g *Gap) error { return d.closedGaps.add(d.ctx, d.store, d.name(Gaps, "closed"), g) },
	})
	if err != nil {
		return err
	}
	if err := d.replaceOpen(); err != nil {
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
		rowsOf[Gap](d.ctx, d.store, d.ledger.Files, Gaps, true), tonight.sites)
}

// keep adds a policy of an episode to the table. Policies of rows that do not count are left out.
func (d *draft) keep(tonight *night, id int64) {
	if d.policies[id] == nil {
		d.policies[id], d.gained = tonight.policies[id], true
	}
}

// replaceOpen publishes the open rows of the night, in the place of those of the night before. A file without rows is
// published, too: readers need one of each table. Files of this run are deleted at once: no record names them.
func (d *draft) replaceOpen() error {
	if err := d.episodes.begin(d.ctx, d.store, d.name(History, "open")); err != nil {
		return err
	}
	if err := d.gaps.begin(d.ctx, d.store, d.name(Gaps, "open")); err != nil {
		return err
	}
	episodes, err := d.episodes.publish(d.ctx)
	if err != nil {
		return err
	}
	gaps, err := d.gaps.publish(d.ctx)
	if err != nil {
		return err
	}
	var kept []File
	for _, f := range d.ledger.Files {
		switch {
		case !f.Open:
			kept = append(kept, f)
		case d.nights > 1:
			if err := d.store.Delete(d.ctx, f.Name); err != nil {
				return err
			}
		}
	}
	d.ledger.Files = slices.Concat(kept, episodes, gaps)
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
func findBodies(ctx context.Context, scan *commit.Scan, wanted map[int64]bool, found func(hash int64, body []byte)) error {
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
		if err := takeBodies(sink.CommitRows[schema.BodyRow](ctx, scan, &scan.Commits[i], schema.Bodies, from, to), wanted, found); err != nil {
			return err
		}
	}
	return nil
}

// takeBodies calls found with the wanted bodies among some rows, each once.
func takeBodies(rows iter.Seq2[*schema.BodyRow, error], wanted map[int64]bool, found func(hash int64, body []byte)) error {
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

// wantedRows returns between which rows of a commit the wanted bodies are, each at its first place; from is to if none is.
func wantedRows(ctx context.Context, scan *commit.Scan, c *commit.Commit, wanted map[int64]bool) (from, to int64, err error) {
	if len(wanted) == 0 {
		return 0, 0, nil
	}
	var hash int64
	cursor, err := sink.OpenCursor(ctx, scan, c, schema.Bodies, table.Field{Name: "body_hash", Into: &hash})
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
	episodes, err := d.closedEpisodes.publish(d.ctx)
	if err != nil {
		return err
	}
	gaps, err := d.closedGaps.publish(d.ctx)
	if err != nil {
		return err
	}
	d.ledger.Files = slices.Concat(d.ledger.Files, episodes, gaps)
	if err := errors.Join(gather[Episode](d, History), gather[Gap](d, Gaps)); err != nil {
		return err
	}
	if isPolicies := func(f File) bool { return f.Table == Policies }; d.gained || !slices.ContainsFunc(d.ledger.Files, isPolicies) {
		policies := output[Policy]{table: Policies, tool: d.options.ToolVersion}
		if err := policies.begin(d.ctx, d.store, d.name(Policies, "all")); err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(d.policies)) {
			if err := policies.add(d.ctx, d.store, d.name(Policies, "all"), d.policies[id]); err != nil {
				return errors.Join(err, policies.discard())
			}
		}
		files, err := policies.publish(d.ctx)
		if err != nil {
			return err
		}
		d.ledger.Files = append(slices.DeleteFunc(d.ledger.Files, isPolicies), files...)
	}
	return nil
}

// gathered is how many closed files of one level become one of the next. So ten years of nights have some 60 files a table.
const gathered = 32

// gather makes one file of as many closed files of a level, where there are so many. Readers of the record before still
// find those.
func gather[T any](d *draft, tableName string) error {
	for level := 0; ; level++ {
		small := func(f File) bool { return f.Table == tableName && !f.Open && f.Level == level }
		var of []File
		for _, f := range d.ledger.Files {
			if small(f) {
				of = append(of, f)
			}
		}
		if len(of) < gathered {
			return nil
		}
		one := output[T]{table: tableName, tool: d.options.ToolVersion}
		for row, err := range rowsOf[T](d.ctx, d.store, of, tableName, false) {
			if err == nil {
				err = one.add(d.ctx, d.store, d.name(tableName, fmt.Sprint("gathered", level+1)), row)
			}
			if err != nil {
				return errors.Join(err, one.discard())
			}
		}
		files, err := one.publish(d.ctx)
		if err != nil {
			return err
		}
		files[0].Level = level + 1
		d.ledger.Files = append(slices.DeleteFunc(d.ledger.Files, small), files...)
	}
}

// discard drops the files that were not published.
func (d *draft) discard() error {
	return errors.Join(d.episodes.discard(), d.closedEpisodes.discard(), d.gaps.discard(), d.closedGaps.discard())
}
