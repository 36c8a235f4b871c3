// Package index answers one question: which files does a reader open? It keeps a Parquet file that lists the committed
// files of every published scan (see commit.Publication), so that a reader of thousands of nights opens one file
// instead of thousands of records.
//
// The index is derived: Update makes it from the records, and reads only those of scans that have changed. It is
// written when a scan is published, and again before files that it names are deleted. A reader that loaded it earlier
// may miss newer nights; if a file has been deleted since, its query fails.
package index

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

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
	Superseded      bool   `parquet:"superseded,uncompressed"` // of statistics: another scan's are those of the unit; else the table superseded may name rows of the file
	Unit            string `parquet:"unit,dict,uncompressed"`  // of statistics: FileRecord.Unit
	Records         int64  `parquet:"records,uncompressed"`    // hash of the scan's list of records, by which Update sees changes
}

// attempts bounds how often an index is written again because another process has changed a scan meanwhile.
const attempts = 5

// Update writes the index unless it is up to date. Several processes may do so at the same time: each looks again after
// it has written, so that the last one has seen the scans of all.
func Update(ctx context.Context, st store.Store) error {
	var swept error
	for range attempts {
		head, records, err := recordsOf(ctx, st)
		if err != nil {
			return fmt.Errorf("cannot update %s: %w", Name, err)
		}
		before, unread := map[string][]Row{}, false
		for row, err := range table.FileRows[Row](ctx, st, Name) {
			if err != nil { // missing, damaged, or of an older version
				clear(before)
				unread = true
				break
			}
			before[row.ScanID] = append(before[row.ScanID], *row)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now, changed, err := next(ctx, st, head, records, before, true)
		if swept = err; errors.Is(err, fs.ErrNotExist) {
			continue // another process has swept a draft, or restarts a scan
		}
		if err != nil {
			return fmt.Errorf("cannot update %s: %w", Name, err)
		}
		if !changed && !unread {
			described, err := describe(ctx, st, now, true)
			if swept = err; described || err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		data, err := encode(now, schema.Version)
		if err != nil {
			return fmt.Errorf("cannot update %s: %w", Name, err)
		}
		if err := st.Put(ctx, Name, data); err != nil && !errors.Is(err, fs.ErrNotExist) { // another scan may sweep the draft
			return fmt.Errorf("cannot update %s: %w", Name, err)
		}
		// The next round finds nothing changed, unless another process has changed a scan.
	}
	if swept != nil {
		return fmt.Errorf("cannot update %s: %w", Name, swept)
	}
	return nil
}

// recordsOf returns for each scan a hash of what the head says of it, and of the names, sizes and times of its records;
// and one for each file in MonthsFolder.
func recordsOf(ctx context.Context, st store.Store) (*commit.Head, map[string]int64, error) {
	head, err := commit.ReadHead(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	named, err := head.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	sums := map[string]*xxhash.Digest{}
	for _, s := range named {
		sums[s.ScanID] = xxhash.New()
		_, _ = fmt.Fprint(sums[s.ScanID], s.Publication, s.Commits, s.Pruned)
	}
	var number [16]byte
	for entry, err := range st.List(ctx, schema.ScansFolder) {
		if err != nil {
			return nil, nil, err
		}
		id, rest, ok := strings.Cut(strings.TrimPrefix(entry.Name, schema.ScansFolder), "/")
		if id == monthsID {
			id = entry.Name
		} else if !ok && entry.Size != store.Irregular || commit.CheckScanID(id) != nil {
			continue
		}
		sum := sums[id]
		if sum == nil {
			sum = xxhash.New()
			sums[id] = sum
		}
		binary.LittleEndian.PutUint64(number[:], uint64(entry.Size))
		binary.LittleEndian.PutUint64(number[8:], uint64(entry.Modified.UnixNano()))
		_, _ = sum.WriteString(rest)
		_, _ = sum.Write(number[:])
	}
	records := make(map[string]int64, len(sums))
	for id, sum := range sums {
		records[id] = int64(sum.Sum64())
	}
	return head, records, nil
}

// next returns the rows of the index: those of the scans that have not changed, and those that the records of the
// others say. changed is false if they are the same. With write, files of units are made that are not there.
func next(ctx context.Context, st store.Store, head *commit.Head, records map[string]int64, before map[string][]Row,
	write bool) (rows []Row, changed bool, err error) {
	var others []string
	for id, hash := range records {
		if strings.HasPrefix(id, MonthsFolder) {
			continue
		}
		if was := before[id]; len(was) > 0 && was[0].Records == hash && hash != 0 {
			rows = append(rows, was...)
		} else {
			others = append(others, id)
		}
	}
	readScan := func(ctx context.Context, id string) ([]Row, error) {
		return rowsOf(ctx, st, head, id, records[id], before[id])
	}
	for _, r := range store.ReadAhead(ctx, others, readScan) {
		if r.Err != nil {
			return nil, false, r.Err
		}
		rows = append(rows, r.Value...)
	}
	sortRows(rows)
	var superseded []Row
	for _, u := range unitsOf(rows) {
		file, err := u.mark(ctx, st, records, before[""], write)
		if err != nil {
			return nil, false, err
		}
		if file != nil {
			superseded = append(superseded, *file)
		}
	}
	months, err := countingMonths(ctx, st, records, rows, before[""])
	if err != nil {
		return nil, false, err
	}
	rows = slices.Concat(rows, superseded, months)
	sortRows(rows)
	var was []Row
	for _, of := range before {
		was = append(was, of...)
	}
	sortRows(was)
	// Records that are only newer change nothing that a reader sees.
	same := slices.EqualFunc(rows, was, func(a, b Row) bool {
		a.Records = b.Records
		return a == b
	})
	return rows, !same, nil
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		if a.ScanDate != b.ScanDate {
			return strings.Compare(a.ScanDate, b.ScanDate)
		}
		return cmp.Or(strings.Compare(a.ScanID, b.ScanID), strings.Compare(a.Name, b.Name))
	})
}

// rowsOf reads the records of a scan. Of one whose records are damaged or gone, which verify reports, the index keeps
// what it has; else the scan counts as not complete. Files that a later version of bulkscan wrote are listed, too:
// readers need not know what is in them.
func rowsOf(ctx context.Context, st store.Store, head *commit.Head, id string, records int64, before []Row) ([]Row,
	error) {
	incomplete := []Row{{ScanID: id, Records: records}}
	kept := func() ([]Row, error) {
		if needed, err := head.Needs(ctx, id); err != nil || !needed || len(before) == 0 {
			return incomplete, err
		}
		return before, nil
	}
	m, err := head.AnyManifest(ctx, id)
	switch {
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

// unhashed returns rows by scan, without the hashes of records: then the records of every scan are read.
func unhashed(rows []Row) map[string][]Row {
	scans := map[string][]Row{}
	for _, row := range rows {
		row.Records = 0
		scans[row.ScanID] = append(scans[row.ScanID], row)
	}
	return scans
}

// encode returns the index as a file, as a bulkscan of that schema version writes it.
func encode(rows []Row, version int) ([]byte, error) {
	return table.Encode(rows, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(version)})
}

// asWritten reports whether a file has these rows as this version of bulkscan or one before writes them.
func asWritten(data []byte, rows []Row) (bool, error) {
	for version := schema.Version; version > 0; version-- {
		if again, err := encode(rows, version); err != nil || bytes.Equal(again, data) {
			return err == nil, err
		}
	}
	return false, nil
}

// maxIndex bounds the index in bytes: some ten thousand nights.
const maxIndex = 256 << 20

// State says how the index stands to the records.
type State uint8

// The states.
const (
	Current State = iota // it is what the records say
	// it is as it was written, and the records have changed since: a process was killed, or is about to write it
	Older
	Damaged     // it is not as it was written
	Undescribed // it is what the records say, and datapackage.json is not what it says
)

// Check compares the index with the records, to the byte. The error is store.ErrNotExist if there is none.
func Check(ctx context.Context, st store.Store) (State, error) {
	data, err := store.ReadAll(ctx, st, Name, maxIndex)
	if err != nil {
		return Damaged, err
	}
	var written []Row
	for row, err := range table.FileRows[Row](ctx, st, Name) {
		if err != nil {
			return Damaged, ctx.Err()
		}
		written = append(written, *row)
	}
	if ours, err := asWritten(data, written); err != nil || !ours {
		return Damaged, err
	}
	head, records, err := recordsOf(ctx, st)
	if err != nil {
		return Damaged, err
	}
	_, changed, err := next(ctx, st, head, records, unhashed(written), false)
	switch {
	case err != nil:
		return Damaged, err
	case changed:
		return Older, nil
	}
	if described, err := describe(ctx, st, written, false); err != nil || !described {
		return Undescribed, err
	}
	return Current, nil
}
