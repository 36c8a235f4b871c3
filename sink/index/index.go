// Package index answers one question: which files does a reader open? It keeps a Parquet file that lists the committed
// files of every published scan (see commit.Publication), so that a reader of thousands of nights opens one file
// instead of thousands of records.
//
// The index is derived: Update makes it from the head and the records. It reads only the records of scans that may have
// changed, which the head marks (see commit.Named). It is written when a scan begins, after the history when a scan is
// published, and before files that it names are deleted. A reader that loaded it earlier may miss newer nights; if a
// file has been deleted since, its query fails.
package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// Name is the name of the index in a dataset.
const Name = schema.IndexName

// Row is a file of a published scan or of its unit, a merged month of statistics, or a scan that is not published. The
// file is small, so its columns are not compressed.
type Row struct {
	Complete        bool   `parquet:"complete,uncompressed"`
	ScanID          string `parquet:"scan_id,dict,uncompressed"`
	ScanDate        string `parquet:"scan_date,dict,uncompressed"` // YYYY-MM-DD
	Observer        string `parquet:"observer,dict,uncompressed"`
	ListID          string `parquet:"list_id,dict,uncompressed"`
	StartedAt       int64  `parquet:"started_at,timestamp(millisecond),uncompressed"`
	RegistryVersion string `parquet:"registry_version,dict,uncompressed"`
	Table           string `parquet:"table,dict,uncompressed"` // "" for a scan that is not complete, as is Name
	SchemaVersion   int32  `parquet:"schema_version,uncompressed"`
	Name            string `parquet:"name,plain,uncompressed"` // in the dataset
	Rows            int64  `parquet:"rows,uncompressed"`
	Bytes           int64  `parquet:"bytes,uncompressed"`
	Sum             int64  `parquet:"sum,uncompressed"`        // first 64 bits of the SHA-256
	Merged          bool   `parquet:"merged,uncompressed"`     // a month has these rows, too
	Superseded      bool   `parquet:"superseded,uncompressed"` // of statistics: another scan has those of the unit; else the table superseded may name rows of the file
	Unit            string `parquet:"unit,dict,uncompressed"`  // of statistics: FileRecord.Unit
	Records         int64  `parquet:"records,uncompressed"`    // hash of the head's entry of the scan when its records were read, by which Update sees changes; 0: they may change
}

// attempts bounds how often an index is written again because another process has changed it meanwhile.
const attempts = 5

// Update writes the index unless it is up to date. Several processes may do so at the same time: each looks again after
// it has written, so that the last one has seen the scans of all.
func Update(ctx context.Context, st store.Store) error { return update(ctx, st, false) }

// Renew is Update that reads the records of all scans, also of scans whose entry in the head has not changed.
func Renew(ctx context.Context, st store.Store) error { return update(ctx, st, true) }

// BeforeClearing updates the index if commit.ClearParts is about to delete files that a merged part has replaced: the
// compaction may have been killed before readers found that part. If files of current parts are damaged, ClearParts
// deletes none, and the index stays.
func BeforeClearing(ctx context.Context, st store.Store, scanID, date string, past *commit.History) error {
	if len(past.Replaced) == 0 {
		return nil
	}
	damaged, err := commit.DamagedFiles(ctx, st, scanID, date, past)
	if err != nil || len(damaged) > 0 {
		return err
	}
	return Update(ctx, st)
}

func update(ctx context.Context, st store.Store, all bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot update %s: %w", Name, err)
		}
	}()
	var written *content
	for range attempts {
		before, errRead := read(ctx, st) // missing, damaged, or of an older version
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if written != nil && before == written {
			return nil
		}
		if errRead != nil {
			before = &content{months: months{}}
		}
		var now months
		var changed, files bool
		now, changed, files, err = next(ctx, st, before.months, all, true)
		if err == nil && (files || errRead != nil || all || written != nil) {
			_, err = describe(ctx, st, now, true)
		}
		if err == nil && !changed && errRead == nil {
			return nil
		}
		var data []byte
		if err == nil {
			data, err = encode(takeSpare(), now, schema.Version)
		}
		if err == nil {
			written = &content{xxhash.Sum64(data), now}
			err = st.Put(ctx, Name, data)
		}
		if err == nil {
			newest.Store(written)
			spare.Store(&data)
		}
		// Another process may have swept a draft, or restarts a scan.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// months are the rows of an index by month. The rows of a month are sorted, and never changed: readers share them. The
// month "" has the scans that are not published.
type months map[string][]Row

// all yields the rows in the order of the file.
func (m months) all() iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for _, month := range slices.Sorted(maps.Keys(m)) {
			for i := range m[month] {
				if !yield(&m[month][i]) {
					return
				}
			}
		}
	}
}

// content is the index, decoded.
type content struct {
	sum    uint64 // of the file
	months months
}

// newest is the index that this process has read or written last. A night reads the index several times, and decoding
// an index of thousands of nights takes longer than all else.
var newest atomic.Pointer[content]

// spare is the memory of the file, which is used again: touching new memory takes longer than reading.
var spare atomic.Pointer[[]byte]

func takeSpare() []byte {
	if is := spare.Swap(nil); is != nil {
		return *is
	}
	return nil
}

// read reads the index.
func read(ctx context.Context, st store.Store) (*content, error) {
	data, err := store.ReadInto(ctx, st, Name, maxIndex, takeSpare())
	if err != nil {
		return nil, err
	}
	defer spare.Store(&data)
	return decode(ctx, data)
}

// decode returns the index of a file.
func decode(ctx context.Context, data []byte) (*content, error) {
	sum := xxhash.Sum64(data)
	if is := newest.Load(); is != nil && is.sum == sum {
		return is, nil
	}
	rows, err := table.Decode[Row](ctx, Name, data)
	if err != nil {
		return nil, err
	}
	is := &content{sum, months{}}
	for of := range runs(rows, func(row *Row) string { return monthOf(row.ScanDate) }) {
		is.months[monthOf(of[0].ScanDate)] = of
	}
	newest.Store(is)
	return is, nil
}

// Rows yields the rows of the index in order, or an error. Rows must not be changed.
func Rows(ctx context.Context, st store.Store) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		is, err := read(ctx, st)
		if err != nil {
			yield(nil, err)
			return
		}
		for row := range is.months.all() {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// next returns the rows of the index. A scan whose entry in the head has not changed keeps its rows; the records of the
// other scans, or of all, are read again. changed is false if a reader sees no difference, and files is false if the
// same files are listed. With write, missing files of units are made.
func next(ctx context.Context, st store.Store, before months, all, write bool) (now months, changed, files bool,
	err error) {
	head, said, settled, err := saidOf(ctx, st, before, all)
	if err != nil {
		return nil, false, false, err
	}
	derived, touched, err := derivedFiles(ctx, st, before)
	if err != nil {
		return nil, false, false, err
	}
	kept, was := map[string]int64{}, map[string][]Row{} // scans that are not read; rows of scans that are read or are gone
	for month, rows := range before {
		if settled[month] {
			continue
		}
		for of := range runs(rows, func(row *Row) string { return row.ScanID }) {
			id, records := of[0].ScanID, of[0].Records
			switch its := said[id]; {
			case id == "":
			case !all && records != 0 && (records == its.scan || records == its.month):
				kept[id] = cmp.Or(its.month, its.scan)
				touched[month] = touched[month] || records != kept[id]
				delete(said, id)
			default:
				was[id], touched[month] = of, true
			}
		}
	}
	readScan := func(ctx context.Context, id string) ([]Row, error) {
		return rowsOf(ctx, st, head, id, said[id], was[id])
	}
	fresh := months{}
	for _, r := range store.ReadAhead(ctx, slices.Collect(maps.Keys(said)), readScan) {
		if r.Err != nil {
			return nil, false, false, r.Err
		}
		for _, row := range r.Value {
			month := monthOf(row.ScanDate)
			fresh[month], touched[month] = append(fresh[month], row), true
		}
	}
	now = maps.Clone(before)
	for month, is := range touched {
		if !is {
			continue
		}
		rows := fresh[month]
		for _, row := range before[month] {
			if records, ok := kept[row.ScanID]; ok {
				row.Records = records
				rows = append(rows, row)
			} else if settled[month] && row.ScanID != "" {
				rows = append(rows, row)
			}
		}
		if rows, err = completed(ctx, st, rows, before[month], derived, write); err != nil {
			return nil, false, false, err
		}
		if !slices.EqualFunc(rows, before[month], func(a, b Row) bool {
			a.Records = b.Records // which no reader needs
			return a == b
		}) {
			changed, files = true, files || month != ""
		}
		if now[month] = rows; len(rows) == 0 {
			delete(now, month)
		}
	}
	if !changed {
		return before, false, false, nil
	}
	return now, true, files, nil
}

// runs yields the successive rows that have the same key.
func runs(rows []Row, key func(*Row) string) iter.Seq[[]Row] {
	return func(yield func([]Row) bool) {
		for first, i := 0, 1; i <= len(rows); i++ {
			if i < len(rows) && key(&rows[i]) == key(&rows[first]) {
				continue
			}
			if !yield(rows[first:i:i]) {
				return
			}
			first = i
		}
	}
}

// saying stands for the head's entry of a scan, by hashes. scan is 0 if the scan's records may change. month is the
// hash of the head's file for the scan's month: 0 if there is none, or if the records of a scan of the month may
// change.
type saying struct {
	scan, month int64
	needed      bool // its records have to be there
}

// saidOf returns the scans that the head names, or that have records. It leaves out the scans of a settled month: the
// rows before were made by the head's file of that month.
func saidOf(ctx context.Context, st store.Store, before months, all bool) (_ *commit.Head, said map[string]saying,
	settled map[string]bool, err error) {
	head, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, nil, nil, err
	}
	ids, err := commit.ScanIDs(ctx, st)
	if err != nil {
		return nil, nil, nil, err
	}
	said, settled = make(map[string]saying, len(ids)), map[string]bool{}
	for _, id := range ids {
		said[id] = saying{}
	}
	files := map[string]int64{}
	for _, f := range head.Months {
		files[f.Table] = int64(xxhash.Sum64String(f.Name))
	}
	for month, rows := range before {
		settled[month] = !all && files[month] != 0 && !slices.ContainsFunc(rows, func(row Row) bool {
			return row.ScanID != "" && row.Records != files[month]
		})
		for i := range rows {
			if settled[month] && (i == 0 || rows[i].ScanID != rows[i-1].ScanID) {
				delete(said, rows[i].ScanID)
			}
		}
	}
	named, err := head.AllBut(ctx, settled)
	for _, s := range named {
		if s.Changing {
			files[monthOf(s.ScanDate)] = 0
		}
	}
	for _, s := range named {
		its := saying{needed: s.Publication != commit.PublicationDiscarded}
		if !s.Changing {
			its.scan = int64(xxhash.Sum64String(fmt.Sprint(s.Since, s.Publication, s.FinishedAt.UnixMilli(), s.Commits,
				s.Pruned)))
			its.month = files[monthOf(s.ScanDate)]
		}
		said[s.ScanID] = its
	}
	return head, said, settled, err
}

// completed adds rows for files in MonthsFolder to the rows of a month's scans. It marks files that have rows which do
// not count, and files whose rows a merged month also has.
func completed(ctx context.Context, st store.Store, rows, before []Row, derived map[string]bool, write bool) ([]Row,
	error) {
	sortRows(rows)
	var superseded []Row
	for _, u := range unitsOf(rows) {
		file, err := u.mark(ctx, st, derived, before, write)
		if err != nil {
			return nil, err
		}
		if file != nil {
			superseded = append(superseded, *file)
		}
	}
	months, err := countingMonths(ctx, st, derived, rows, before)
	if err != nil {
		return nil, err
	}
	rows = slices.Concat(rows, superseded, months)
	sortRows(rows)
	return rows, nil
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		if a.ScanDate != b.ScanDate {
			return strings.Compare(a.ScanDate, b.ScanDate)
		}
		return cmp.Or(strings.Compare(a.ScanID, b.ScanID), strings.Compare(a.Name, b.Name))
	})
}

// rowsOf reads the records of a scan. If the records are damaged or gone, which verify reports, the index keeps the
// rows that it has, or without any lists the scan as not complete. Files that a later version of bulkscan wrote are
// listed, too: readers need not know what is in them.
func rowsOf(ctx context.Context, st store.Store, head *commit.Head, id string, its saying, before []Row) ([]Row,
	error) {
	records := cmp.Or(its.month, its.scan)
	incomplete := []Row{{ScanID: id, Records: records}}
	kept := func() ([]Row, error) {
		if !its.needed || len(before) == 0 {
			return incomplete, nil
		}
		return before, nil
	}
	m, err := head.AnyManifest(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotExist) && !its.needed:
		return nil, nil // a folder that may contain a lock
	case err != nil && !isDamage(err):
		return nil, err
	case err != nil:
		return kept()
	case !m.Published():
		return incomplete, nil
	}
	like := Row{
		Complete: true, ScanID: id, ScanDate: m.ScanDate, Observer: m.Observer.String(), ListID: m.ListID,
		StartedAt:       m.StartedAt.UnixMilli(),
		RegistryVersion: m.RegistryVersion, SchemaVersion: int32(m.SchemaVersion), Records: records,
	}
	var rows []Row
	add := func(f schema.File, version int) {
		row := like
		row.Table, row.Name, row.Rows, row.Bytes, row.Sum, row.SchemaVersion = f.Table, f.Name, f.Rows, f.Bytes,
			sumOf(f.SHA256), int32(version)
		rows = append(rows, row)
	}
	past, err := commit.GatherHistory(ctx, st, id, "", func(_ string, c *commit.Commit, err error) (*commit.Commit,
		error) {
		if _, newer := errors.AsType[*schema.NewerError](err); newer {
			err = nil
		}
		return c, err
	})
	switch {
	case err != nil && !isDamage(err):
		return nil, err
	case err != nil:
		return kept()
	}
	m.Without(past.Current)
	for i := range past.Current {
		for _, f := range past.Current[i].Files {
			add(f, past.Current[i].SchemaVersion)
		}
	}
	for _, t := range schema.Tables() {
		if !schema.IsStatistics(t.Name) {
			continue
		}
		switch record, err := commit.ReadFileRecord(ctx, st, id, t.Name); {
		case record != nil:
			add(record.File, record.SchemaVersion)
			rows[len(rows)-1].Unit = record.Unit
		case !isDamage(err):
			return nil, err
		}
	}
	if len(rows) == 0 { // of an empty list
		like.Complete = false
		rows = append(rows, like)
	}
	return rows, nil
}

// isDamage reports whether a record is missing or damaged, rather than unreadable for the moment.
func isDamage(err error) bool {
	_, damaged := errors.AsType[*schema.DamagedError](err)
	return damaged || errors.Is(err, commit.ErrRecord) || errors.Is(err, store.ErrNotExist)
}

// encode returns the index as a file, as a bulkscan of that schema version writes it, in this memory.
func encode(memory []byte, rows months, version int) ([]byte, error) {
	parts := make([][]Row, 0, len(rows))
	for _, month := range slices.Sorted(maps.Keys(rows)) {
		parts = append(parts, rows[month])
	}
	return table.Encode(memory, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(version)}, parts...)
}

// asWritten reports whether a file has these rows as this version of bulkscan or an earlier one writes them.
func asWritten(data []byte, rows months) (bool, error) {
	for version := schema.Version; version > 0; version-- {
		if again, err := encode(nil, rows, version); err != nil || bytes.Equal(again, data) {
			return err == nil, err
		}
	}
	return false, nil
}

// maxIndex bounds the index in bytes: some ten thousand nights.
const maxIndex = 256 << 20

// State says how the index relates to the records.
type State uint8

// The states.
const (
	Current State = iota // it is what the records say
	// it is undamaged, but the records have changed since: a process was killed, or is about to write it
	Older
	Damaged     // it has changed since it was written
	Undescribed // it is what the records say, but datapackage.json does not match it
)

// Check compares the index with the records, to the byte. The error is store.ErrNotExist if there is none.
func Check(ctx context.Context, st store.Store) (State, error) {
	data, err := store.ReadAll(ctx, st, Name, maxIndex) // once: another process may write it meanwhile
	if err != nil {
		return Damaged, err
	}
	written, err := decode(ctx, data)
	if err != nil {
		return Damaged, ctx.Err()
	}
	if ours, err := asWritten(data, written.months); err != nil || !ours {
		return Damaged, err
	}
	_, changed, _, err := next(ctx, st, written.months, true, false)
	switch {
	case err != nil:
		return Damaged, err
	case changed:
		return Older, nil
	}
	if described, err := describe(ctx, st, written.months, false); err != nil || !described {
		return Undescribed, err
	}
	return Current, nil
}
