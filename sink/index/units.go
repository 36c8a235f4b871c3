package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/sink/units"
	"github.com/bulkscan/bulkscan/store"
)

// A unit (see package units) whose sites can have several rows has a file with the rows that do not count. The name of
// this file has a hash of the unit's files of sites. So the file never changes: when the files of sites change, another
// one is written. It lies in MonthsFolder, with a record. All statistics of a unit's scans but the last are superseded.

// unit is the files of the published scans of a date, observer and list.
type unit struct {
	rows  []*Row
	scans []string // by start
}

func unitsOf(rows []Row) []*unit {
	found := map[[3]string]*unit{}
	for i := range rows {
		row := &rows[i]
		if !row.Complete || row.ScanID == "" {
			continue
		}
		key := [...]string{row.ScanDate, row.Observer, row.ListID}
		if found[key] == nil {
			found[key] = &unit{}
		}
		found[key].rows = append(found[key].rows, row)
	}
	for _, u := range found {
		for _, row := range slices.SortedStableFunc(slices.Values(u.rows), func(a, b *Row) int {
			return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), strings.Compare(a.ScanID, b.ScanID))
		}) {
			if !slices.Contains(u.scans, row.ScanID) {
				u.scans = append(u.scans, row.ScanID)
			}
		}
	}
	return slices.Collect(maps.Values(found))
}

// several reports whether a site of the unit can have several rows.
func (u *unit) several() bool {
	return len(u.scans) > 1 || strings.HasPrefix(u.rows[0].Observer, commit.Archive)
}

// sum is the commit.UnitSum of the unit's rows.
func (u *unit) sum() string {
	var files []schema.File
	for _, row := range u.rows {
		if row.Table == schema.Sites {
			files = append(files, schema.File{Name: row.Name, SHA256: fmt.Sprintf("%016x", uint64(row.Sum))})
		}
	}
	return commit.UnitSum(files)
}

// last returns the number of the last scan with a table, -1 if none has it.
func (u *unit) last(table string) (at int) {
	at = -1
	for _, row := range u.rows {
		if row.Table == table {
			at = max(at, slices.Index(u.scans, row.ScanID))
		}
	}
	return at
}

// supersededStem is what the record of a unit's file has as the table.
func supersededStem(date, sum string) string { return schema.Superseded + "-" + date + "-" + sum }

// mark marks the files that have rows which do not count. If the file that names these rows is missing, it is made if
// write is true.
func (u *unit) mark(ctx context.Context, st store.Store, derived map[string]bool, before []Row, write bool) (file *Row,
	err error) {
	for _, row := range u.rows {
		row.Superseded = false
	}
	if !u.several() || u.last(schema.Sites) < 0 {
		return nil, nil
	}
	stem := supersededStem(u.rows[0].ScanDate, u.sum())
	if file, err = derivedRow(ctx, st, derived, stem, before); file == nil && err == nil && write {
		file, err = u.choose(ctx, st, stem)
	}
	if file == nil || err != nil {
		return nil, err
	}
	file.Complete, file.ScanDate, file.Observer, file.ListID, file.Table = true, u.rows[0].ScanDate, u.rows[0].Observer,
		u.rows[0].ListID, schema.Superseded
	for _, row := range u.rows {
		if schema.IsStatistics(row.Table) {
			row.Superseded = slices.Index(u.scans, row.ScanID) != u.last(row.Table) || len(u.scans) > 1 && !u.counts(row.Table)
		} else {
			row.Superseded = schema.HasSeq(row.Table) && file.Rows > 0
		}
	}
	return file, nil
}

// choose writes the file of a unit. If scans cannot be read, which verify reports, all their rows count. All processes
// write the same file.
func (u *unit) choose(ctx context.Context, st store.Store, stem string) (*Row, error) {
	var scans []*commit.Scan
	for _, id := range u.scans {
		scan, err := commit.ReadStoredScan(ctx, st, id)
		if err != nil {
			return nil, ctx.Err()
		}
		if scan.Has(schema.Sites) {
			scan.Sealing = true
			scans = append(scans, scan)
		}
	}
	choice, err := units.Choose(ctx, scans, "")
	if err != nil {
		return nil, ctx.Err()
	}
	rows := make([]schema.SupersededRow, 0, choice.Replaced())
	for _, id := range u.scans {
		if seqs := choice.Superseded[id]; seqs != nil {
			for _, seq := range seqs.ToArray() {
				rows = append(rows, schema.SupersededRow{ScanID: id, Seq: int64(seq)})
			}
		}
	}
	data, err := table.Encode(nil, table.PageBytes,
		map[string]string{table.MetaSchema: strconv.Itoa(schema.Version)}, rows)
	if err != nil {
		return nil, err
	}
	record := commit.FileRecord{ScanID: monthsID, SchemaVersion: schema.Version, Folds: choice.Folds, File: schema.File{
		Table: stem, Name: monthName(stem), Rows: int64(len(rows)), Bytes: int64(len(data)), SHA256: schema.SumOf(data),
	}}
	return recordedRow(&record), commit.PublishRecorded(ctx, st, record,
		func(ctx context.Context) error { return st.Put(ctx, record.File.Name, data) })
}

// statisticsNeed are the tables that statistics need, beside sites and policies.
var statisticsNeed = map[string]string{schema.TokenStats: schema.Verdicts, schema.RecordStats: schema.Evidence}

func (u *unit) all(table string) bool {
	return !slices.ContainsFunc(u.scans, func(id string) bool {
		return !slices.ContainsFunc(u.rows, func(row *Row) bool { return row.ScanID == id && row.Table == table })
	})
}

// counts reports whether statistics can count all scans of the unit. If one scan lacks a needed table, no statistics
// count: figures of a part of the sites would look like figures of all.
func (u *unit) counts(statistics string) bool {
	return u.all(statisticsNeed[statistics]) && u.all(schema.Policies)
}

// OutdatedStats returns the last scans of units whose statistics do not match the unit's rows, but can be computed from
// them.
func OutdatedStats(ctx context.Context, st store.Store) (ids []string, err error) {
	is, err := read(ctx, st)
	if err != nil {
		return nil, err
	}
	for _, rows := range is.months {
		for _, u := range unitsOf(rows) {
			sum := ""
			if len(u.scans) > 1 {
				sum = u.sum()
			}
			last := u.scans[len(u.scans)-1]
			if slices.ContainsFunc(u.rows, func(row *Row) bool {
				return row.ScanID == last && schema.IsStatistics(row.Table) && row.Unit != sum &&
					(row.Unit != "" || u.counts(row.Table))
			}) {
				ids = append(ids, last)
			}
		}
	}
	return ids, nil
}

// others returns the other published scans of a scan's unit. If the index cannot be read, it reads all manifests.
func others(ctx context.Context, st store.Store, of *commit.Manifest) (ids []string, err error) {
	is, err := read(ctx, st)
	if err != nil {
		all, _ := commit.StoredScans(ctx, st) // the scan itself was read; others may be damaged
		for _, m := range all {
			if m.InUnit(of) {
				ids = append(ids, m.ScanID)
			}
		}
		return ids, ctx.Err()
	}
	for _, row := range is.months[monthOf(of.ScanDate)] {
		if row.Complete && row.Table == schema.Sites && row.ScanDate == of.ScanDate &&
			row.Observer == of.Observer.String() && row.ListID == of.ListID &&
			row.ScanID != of.ScanID && !slices.Contains(ids, row.ScanID) {
			ids = append(ids, row.ScanID)
		}
	}
	return ids, nil
}

// ReadUnit opens the rows that count of a scan and of the published scans of its date, observer and list; or, alone, of
// the scan by itself. read is commit.ReadScan, or opens a scan in another way.
func ReadUnit(ctx context.Context, st store.Store, scanID string, alone bool, read func(context.Context, store.Store,
	string) (*commit.Scan, error)) (*commit.Scan, error) {
	scan, err := read(ctx, st, scanID)
	if err != nil {
		return nil, err
	}
	var ids []string
	if !alone || scan.Manifest.Published() {
		if ids, err = others(ctx, st, scan.Manifest); err != nil {
			return nil, err
		}
	}
	scans, unit := []*commit.Scan{scan}, []*commit.Manifest{scan.Manifest}
	if alone {
		read = commit.ReadStoredScan // the other scans' names suffice
	}
	for _, id := range ids {
		other, err := read(ctx, st, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if id == scanID || errors.Is(err, store.ErrNotExist) || alone && isDamage(err) || err == nil &&
			!(other.Manifest.InUnit(scan.Manifest) && other.Has(schema.Sites)) {
			continue // the index is older
		}
		if err != nil {
			return nil, err
		}
		if unit = append(unit, other.Manifest); !alone {
			scans = append(scans, other)
		}
	}
	slices.SortFunc(unit, commit.ByStart)
	slices.SortFunc(scans, func(a, b *commit.Scan) int { return commit.ByStart(a.Manifest, b.Manifest) })
	all := commit.Together(scans)
	all.Unit = commit.Unit{Scans: unit, Alone: len(unit) > len(scans)}
	sum := commit.UnitSum(all.Sites())
	if len(scans) > 1 {
		all.Unit.Sum = sum
	}
	if !units.Several(scans) {
		return all, nil
	}
	var ok bool
	if all.Unit.Choice, ok = chosen(ctx, st, supersededStem(all.Manifest.ScanDate, sum)); !ok {
		all.Unit.Choice, err = units.Choose(ctx, scans, "")
	}
	return all, err
}

// chosen reads the file of a unit; ok is false if it is not there, or damaged.
func chosen(ctx context.Context, st store.Store, stem string) (c commit.Choice, ok bool) {
	record, err := commit.ReadFileRecord(ctx, st, monthsID, stem)
	if err != nil {
		return c, false
	}
	c = commit.Choice{Superseded: map[string]*roaring64.Bitmap{}, Folds: record.Folds}
	n := int64(0)
	for row, err := range table.RecordedRows[schema.SupersededRow](ctx, st, record.File) {
		if err != nil {
			return c, false
		}
		if c.Superseded[row.ScanID] == nil {
			c.Superseded[row.ScanID] = roaring64.New()
		}
		c.Superseded[row.ScanID].Add(uint64(row.Seq))
		n++
	}
	return c, n == record.File.Rows
}
