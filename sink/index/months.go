package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// This file merges the statistics of each month that is over into one file a table, so that a series of ten years reads
// 120 files instead of 3,650. The files of the scans stay. A month's name has a hash of the names and sums of its
// source files, and the month counts while the index has exactly these files. So any change of a scan's statistics
// makes its month outdated: readers go back to the files of the scans, and the next RollUp replaces the month.

const (
	// monthsID stands in for a scan in the names of months. No scan has this id.
	monthsID = "_months"
	// MonthsFolder is the folder of all months, of the files of units (units.go), and of the records of both.
	MonthsFolder = schema.ScansFolder + monthsID + "/"
)

// monthName returns the name of a month's file. stem is what its record has as the table.
func monthName(stem string) string { return MonthsFolder + stem + ".parquet" }

// MonthScan says which scan a row of a month is of.
type MonthScan struct {
	ScanID   string `parquet:"scan_id,dict"`
	ScanDate int32  `parquet:"scan_date,date" stats:"y"` // days since 1970
	Observer string `parquet:"observer,dict"`
}

// TokenStatsMonth is a row of a month of token_stats.
type TokenStatsMonth struct {
	MonthScan
	schema.TokenStatsRow
}

// RecordStatsMonth is a row of a month of record_stats.
type RecordStatsMonth struct {
	MonthScan
	schema.RecordStatsRow
}

// MonthRecord reads the record of a file in MonthsFolder, which may be the record itself.
func MonthRecord(ctx context.Context, st store.Store, name string) (*commit.FileRecord, error) {
	return commit.ReadFileRecord(ctx, st, monthsID, stemOf(name))
}

// stemOf returns the stem in the name of a file in MonthsFolder.
func stemOf(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".json"), ".parquet")
}

// monthStem matches the stems that monthsOf gives to months, and unit.mark to files of units.
var monthStem = regexp.MustCompile(`^(?:(?:` + schema.TokenStats + `|` + schema.RecordStats + `)-[0-9]{4}-[0-9]{2}|` +
	schema.Superseded + `-[0-9]{4}-[0-9]{2}-[0-9]{2})-[0-9a-f]{16}$`)

// IsMonth reports whether a name in MonthsFolder is that of a month, of a unit's file, or of the record of one. Any
// other file there is a person's.
func IsMonth(name string) bool {
	stem := stemOf(name)
	return monthStem.MatchString(stem) && (name == monthName(stem) || name == commit.FileRecordName(monthsID, stem))
}

// monthsOf returns the files of statistics among the rows of the index, by the month that they make:
// TABLE-YYYY-MM-HASH. The rows are sorted.
func monthsOf(rows []Row) map[string][]*Row {
	byMonth := map[string][]*Row{}
	for i := range rows {
		if row := &rows[i]; row.Complete && schema.IsStatistics(row.Table) && !row.Superseded {
			month := row.Table + "-" + monthOf(row.ScanDate)
			byMonth[month] = append(byMonth[month], row)
		}
	}
	months := make(map[string][]*Row, len(byMonth))
	for month, of := range byMonth {
		sum := sha256.New()
		for _, row := range of {
			fmt.Fprintf(sum, "%s %d %s\n", row.Name, row.Sum, row.Observer)
		}
		months[month+"-"+hex.EncodeToString(sum.Sum(nil)[:8])] = of
	}
	return months
}

func monthOf(date string) string { return date[:min(len(date), len("2006-01"))] }

// countingMonths returns the rows of the months that count: they have a file and a record, and were made of files in
// rows. It marks these files as merged.
func countingMonths(ctx context.Context, st store.Store, derived map[string]bool, rows, before []Row) (counting []Row,
	err error) {
	for stem, of := range monthsOf(rows) {
		month, err := derivedRow(ctx, st, derived, stem, before)
		if err != nil {
			return nil, err
		}
		if month != nil {
			month.Complete, month.ScanDate, month.Table = true, monthOf(of[0].ScanDate)+"-01", schema.MonthTable(of[0].Table)
			counting = append(counting, *month)
		}
		for _, row := range of {
			row.Merged = month != nil
		}
	}
	return counting, nil
}

// derivedFiles lists the files of MonthsFolder. touched are the months whose files differ from those in the rows
// before.
func derivedFiles(ctx context.Context, st store.Store, before months) (derived, touched map[string]bool, err error) {
	derived, touched = map[string]bool{}, map[string]bool{}
	for entry, err := range st.List(ctx, MonthsFolder) {
		if err != nil {
			return nil, nil, err
		}
		if IsMonth(entry.Name) {
			derived[entry.Name] = true
		}
	}
	named := map[string]bool{}
	for month, rows := range before {
		for i := range rows {
			if row := &rows[i]; row.ScanID == "" {
				named[row.Name] = true
				touched[month] = touched[month] || !isThere(derived, stemOf(row.Name))
			}
		}
	}
	for name := range derived {
		if stem := stemOf(name); !named[monthName(stem)] {
			_, date, _ := strings.Cut(stem, "-")
			touched[monthOf(date)] = true
		}
	}
	return derived, touched, nil
}

// isThere reports whether a file in MonthsFolder and its record are there.
func isThere(derived map[string]bool, stem string) bool {
	return derived[monthName(stem)] && derived[commit.FileRecordName(monthsID, stem)]
}

// derivedRow returns the row of a file in MonthsFolder, from the index or from the file's record; nil if the file or
// its record is missing.
func derivedRow(ctx context.Context, st store.Store, derived map[string]bool, stem string, before []Row) (*Row,
	error) {
	if !isThere(derived, stem) {
		return nil, nil
	}
	if i := slices.IndexFunc(before, func(was Row) bool { return was.Name == monthName(stem) }); i >= 0 {
		row := before[i]
		return &row, nil
	}
	r, err := commit.ReadFileRecord(ctx, st, monthsID, stem)
	switch {
	case err == nil:
		return recordedRow(r), nil
	case isDamage(err):
		return nil, nil
	}
	return nil, err
}

func recordedRow(r *commit.FileRecord) *Row {
	return &Row{SchemaVersion: int32(r.SchemaVersion), Name: r.File.Name, Rows: r.File.Rows, Bytes: r.File.Bytes,
		Sum: sumOf(r.File.SHA256)}
}

// RollUp merges the statistics of each month that is over. A month is over if there is a later scan. It deletes the
// months that do not count. It leaves out a month with files of another schema version than this program's, since it
// may not know their columns. If another process is merging months, RollUp does nothing. An error leaves the files of
// the month's scans to readers.
func RollUp(ctx context.Context, st store.Store, toolVersion string) error {
	fail := func(err error) error { return fmt.Errorf("cannot merge the statistics of past months: %w", err) }
	due, outdated, err := planMonths(ctx, st)
	if err != nil {
		return fail(err)
	}
	if len(due)+len(outdated) == 0 {
		return nil
	}
	lock, err := st.Lock(ctx, MonthsFolder+"lock", nil)
	if _, held := errors.AsType[*store.HeldError](err); held {
		return nil
	}
	if err != nil {
		return fail(err)
	}
	errs := []error{st.Sweep(ctx, MonthsFolder, func(string) bool { return true })}
	for _, stem := range slices.Sorted(maps.Keys(due)) {
		if ctx.Err() == nil {
			errs = append(errs, writeMonth(ctx, st, stem, due[stem], toolVersion))
		}
	}
	errs = append(errs, deleteOutdated(ctx, st), lock.Unlock())
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	return nil
}

// planMonths returns the files of the months that are over and not merged. It also returns the names of the months that
// the index does not list, and of their records, which come first.
func planMonths(ctx context.Context, st store.Store) (due map[string][]*Row, outdated []string, err error) {
	is, err := read(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	counts, last := map[string]bool{}, ""
	for row := range is.months.all() {
		if strings.HasPrefix(row.Name, MonthsFolder) {
			counts[row.Name] = true
		} else if row.Complete {
			last = monthOf(row.ScanDate)
		}
	}
	due = map[string][]*Row{}
	for month, rows := range is.months {
		if month == last || !slices.ContainsFunc(rows, func(row Row) bool {
			return schema.IsStatistics(row.Table) && !row.Superseded && !row.Merged
		}) {
			continue
		}
		for stem, of := range monthsOf(rows) {
			if !of[0].Merged && len(of) > 1 &&
				!slices.ContainsFunc(of, func(row *Row) bool { return row.SchemaVersion != schema.Version }) {
				due[stem] = of
			}
		}
	}
	for entry, err := range st.List(ctx, MonthsFolder) {
		if err != nil {
			return nil, nil, err
		}
		if IsMonth(entry.Name) && !counts[monthName(stemOf(entry.Name))] {
			outdated = append(outdated, entry.Name)
		}
	}
	return due, outdated, nil
}

// writeMonth publishes a month, and then its record.
func writeMonth(ctx context.Context, st store.Store, stem string, of []*Row, toolVersion string) error {
	if of[0].Table == schema.TokenStats {
		return mergeFiles(ctx, st, stem, of, toolVersion, func(scan MonthScan, row *schema.TokenStatsRow) TokenStatsMonth {
			return TokenStatsMonth{scan, *row}
		})
	}
	return mergeFiles(ctx, st, stem, of, toolVersion, func(scan MonthScan, row *schema.RecordStatsRow) RecordStatsMonth {
		return RecordStatsMonth{scan, *row}
	})
}

func mergeFiles[R, M any](ctx context.Context, st store.Store, stem string, of []*Row, toolVersion string,
	with func(MonthScan, *R) M) error {
	w := table.NewWriter[M](stem, 1024, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(schema.Version),
		table.MetaTool: toolVersion})
	if err := w.Begin(ctx, st, monthName(stem)); err != nil {
		return err
	}
	for _, file := range of { // by date
		if err := addFile(ctx, st, w, file, with); err != nil {
			return errors.Join(err, w.Discard())
		}
	}
	err := w.Seal()
	if err == nil {
		err = commit.PublishRecorded(ctx, st, commit.FileRecord{ScanID: monthsID, File: w.Describe(),
			SchemaVersion: schema.Version}, w.Publish)
	}
	return errors.Join(err, w.Discard())
}

// addFile adds the rows of a scan's file, if the file has the sum in the index: a killed process may have left an
// earlier one.
func addFile[R, M any](ctx context.Context, st store.Store, w *table.Writer[M], file *Row,
	with func(MonthScan, *R) M) error {
	date, err := time.Parse(time.DateOnly, file.ScanDate)
	if err != nil {
		return err
	}
	object, err := st.Open(ctx, file.Name)
	if err != nil {
		return err
	}
	defer object.Close()
	sum, err := store.SumOf(object)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", file.Name, err)
	}
	if sumOf(sum) != file.Sum {
		return fmt.Errorf("cannot read %s: its sum is not that of its record; bulkscan stats writes it anew", file.Name)
	}
	scan := MonthScan{file.ScanID, int32(date.Unix() / (24 * 60 * 60)), file.Observer}
	for row, err := range table.FileRows[R](ctx, st, file.Name) {
		if err != nil {
			return err
		}
		if err := w.Add([]M{with(scan, row)}); err != nil {
			return err
		}
	}
	return nil
}

// deleteOutdated writes the index and deletes what it does not name. If the scans have changed meanwhile so that a
// month counts again, the index is written once more, without it.
func deleteOutdated(ctx context.Context, st store.Store) error {
	err := Update(ctx, st)
	if err != nil {
		return err
	}
	_, outdated, err := planMonths(ctx, st)
	for _, name := range outdated {
		if err == nil {
			err = st.Delete(ctx, name)
		}
	}
	return errors.Join(err, Update(ctx, st))
}

// sumOf returns the first 64 bits of a SHA-256 in hex.
func sumOf(sha256 string) int64 {
	sum, _ := strconv.ParseUint(sha256[:min(len(sha256), 16)], 16, 64) // records have valid ones
	return int64(sum)
}
