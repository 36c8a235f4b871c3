package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// nightOf returns the options of a scan of that date.
func nightOf(date string) Options {
	return Options{ScanID: "n" + date, Date: date, PartRows: 2, Observer: commit.Observer{Source: commit.Live,
		Vantage: date}}
}

// scanNight scans four sites on that date. blocked is a figure of its statistics.
func scanNight(t *testing.T, dir store.Store, o Options, blocked int64) {
	t.Helper()
	w := mustOpen(t, dir, o)
	for _, site := range typicalSites(t, 4) {
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(completeListed(t.Context(), w), w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	countNight(t, dir, o, blocked)
}

func countNight(t *testing.T, dir store.Store, o Options, blocked int64) {
	t.Helper()
	writeStats(t, dir, o.ScanID, schema.TokenStats, schema.TokenStatsRow{Token: "GPTBot", Category: "ai",
		SegmentKind: "all", Full: blocked}, schema.TokenStatsRow{Token: "other", SegmentKind: "all"})
	writeStats(t, dir, o.ScanID, schema.RecordStats, schema.RecordStatsRow{Kind: "typo", Key: "x", Sites: blocked})
}

// monthsIn returns the months that the index lists, each with the figures of GPTBot in the order of its rows.
func monthsIn(t *testing.T, dir *store.Dir) string {
	t.Helper()
	var text strings.Builder
	tokens, records := 0, 0
	for _, names := range indexed(t, dir) {
		for _, name := range names {
			if strings.HasPrefix(name, index.MonthsFolder+schema.RecordStats) {
				records++
			}
			if !strings.HasPrefix(name, index.MonthsFolder+schema.TokenStats) {
				continue
			}
			tokens++
			fmt.Fprintf(&text, "%s:", strings.TrimPrefix(name, index.MonthsFolder+schema.TokenStats+"-")[:7])
			for row, err := range table.FileRows[index.TokenStatsMonth](t.Context(), dir, name) {
				if err != nil {
					t.Fatal(err)
				}
				if row.Token == "GPTBot" {
					fmt.Fprintf(&text, " %s=%d", row.ScanID[len("n2026-"):], row.Full)
				}
			}
		}
	}
	if tokens != records {
		t.Errorf("%d months of token_stats, %d of record_stats", tokens, records)
	}
	return text.String()
}

// TestMonths follows the merged statistics of past months through the life of a dataset: they are those of the scans,
// or do not count.
func TestMonths(t *testing.T) {
	dir := newDir(t)
	f := func(when, want, afterRollUp string) {
		t.Helper()
		if got := monthsIn(t, dir); got != want {
			t.Errorf("%s: the index lists %q, not %q", when, got, want)
		}
		if err := index.RollUp(t.Context(), dir, "test"); err != nil {
			t.Fatal(err)
		}
		if got := monthsIn(t, dir); got != afterRollUp {
			t.Errorf("%s, merged: the index lists %q, not %q", when, got, afterRollUp)
		}
		if lines, v := findings(t, dir); v.Damaged+v.Leftovers > 0 {
			t.Errorf("%s: %q", when, lines)
		}
		if files := monthFiles(t, dir); len(files) != 4*strings.Count(afterRollUp, ":") {
			t.Errorf("%s: %q", when, files)
		}
	}
	first, second := nightOf("2026-10-30"), nightOf("2026-10-31")
	scanNight(t, dir, second, 7)
	scanNight(t, dir, first, 5)
	f("the month is not over", "", "")
	scanNight(t, dir, nightOf("2026-11-01"), 9)
	f("the month is over", "", "2026-10: 10-30=5 10-31=7")
	scanNight(t, dir, nightOf("2026-11-02"), 9)
	if _, err := compact.Scan(t.Context(), dir, first.ScanID, compact.Options{}); err != nil {
		t.Fatal(err)
	}
	f("compacted", "2026-10: 10-30=5 10-31=7", "2026-10: 10-30=5 10-31=7")
	countNight(t, dir, first, 6)
	f("counted again", "", "2026-10: 10-30=6 10-31=7")
	scanNight(t, dir, nightOf("2026-10-29"), 1)
	f("a late scan", "", "2026-10: 10-29=1 10-30=6 10-31=7")
	first.Restart = true
	w := mustOpen(t, dir, first)
	f("begun anew", "", "2026-10: 10-29=1 10-31=7")
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}

	files := monthFiles(t, dir)
	for _, name := range files {
		flip(t, filepath.Join(dir.Root(), name), 300)
		lines, v := findings(t, dir)
		says := func(line string) bool {
			return strings.HasPrefix(line, "damaged: "+name+": ") &&
				strings.Contains(line, "; delete it: it is derived, and the next scan writes it anew")
		}
		if v.Damaged == 0 || !slices.ContainsFunc(lines, says) {
			t.Errorf("%s is damaged: %q", name, lines)
		}
		remove(t, dir, name)
		missing := "damaged: " + name + ": it is missing; any scan, stats or compact writes it anew"
		if lines, _ := findings(t, dir); slices.Contains(lines, missing) != strings.HasSuffix(name, ".parquet") {
			t.Errorf("%s is deleted: %q", name, lines)
		}
		if err := index.Update(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if err := index.RollUp(t.Context(), dir, "test"); err != nil {
			t.Fatal(err)
		}
	}
	f("deleted", "2026-10: 10-29=1 10-31=7", "2026-10: 10-29=1 10-31=7")
	if again := monthFiles(t, dir); !slices.Equal(again, files) {
		t.Errorf("%q became %q", files, again)
	}
}

// monthFiles returns the names of the files of months and of their records.
func monthFiles(t *testing.T, dir store.Store) (names []string) {
	t.Helper()
	for entry, err := range dir.List(t.Context(), index.MonthsFolder) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name)
	}
	return names
}

// TestMonthsAreNotGuessed shows that a month stays unmerged if its files are not what the index says, or of another
// schema version.
func TestMonthsAreNotGuessed(t *testing.T) {
	dir := newDir(t)
	scanNight(t, dir, nightOf("2026-10-30"), 5)
	scanNight(t, dir, nightOf("2026-10-31"), 5)
	scanNight(t, dir, nightOf("2026-11-01"), 5)
	name := commit.FileRecordName("n2026-10-30", schema.TokenStats)
	change := func(how func(r *commit.FileRecord)) {
		t.Helper()
		r, err := commit.ReadFileRecord(t.Context(), dir, "n2026-10-30", schema.TokenStats)
		if err != nil && !schema.OfOtherVersion(err) {
			t.Fatal(err)
		}
		how(r)
		data, err := commit.SealRecord(r, &r.Sum)
		if err := errors.Join(err, dir.Put(t.Context(), name, data), index.Update(t.Context(), dir)); err != nil {
			t.Fatal(err)
		}
	}
	change(func(r *commit.FileRecord) { r.SchemaVersion++ })
	if err := index.RollUp(t.Context(), dir, "test"); err != nil || len(monthFiles(t, dir)) != 2 { // of record_stats
		t.Errorf("%v, %q", err, monthFiles(t, dir))
	}
	sum := ""
	change(func(r *commit.FileRecord) {
		r.SchemaVersion--
		sum, r.File.SHA256 = r.File.SHA256, strings.Repeat("0", 64)
	})
	if err := index.RollUp(t.Context(), dir, "test"); err == nil || len(monthFiles(t, dir)) != 2 ||
		!strings.Contains(err.Error(), "its sum is not that of its record") {
		t.Errorf("%v, %q", err, monthFiles(t, dir))
	}
	change(func(r *commit.FileRecord) { r.File.SHA256 = sum })
	if err := index.RollUp(t.Context(), dir, "test"); err != nil || len(monthFiles(t, dir)) != 4 {
		t.Errorf("%v, %q", err, monthFiles(t, dir))
	}
}

// TestMonthsKilled kills the merging of months at each of its steps. The index never names what is not there, and the
// next RollUp ends with the same files.
func TestMonthsKilled(t *testing.T) {
	made := newDir(t)
	for i, date := range []string{"2026-10-30", "2026-10-31", "2026-11-01"} {
		scanNight(t, made, nightOf(date), int64(i))
	}
	if err := index.RollUp(t.Context(), made, "test"); err != nil {
		t.Fatal(err)
	}
	countNight(t, made, nightOf("2026-10-31"), 8)
	var want []string
	f := func(at int, effect bool) (crashed bool) {
		t.Helper()
		dir := newDir(t)
		if err := os.CopyFS(dir.Root(), os.DirFS(made.Root())); err != nil {
			t.Fatal(err)
		}
		faults := &storetest.Faults{Store: dir}
		faults.CrashAt(at, effect)
		err := index.RollUp(t.Context(), faults, "test")
		if crashed = faults.Crashed(); crashed != (err != nil) {
			t.Fatalf("step %d: %v", at, err)
		}
		if err := faults.Kill(); err != nil {
			t.Fatal(err)
		}
		for row, err := range table.FileRows[index.Row](t.Context(), dir, index.Name) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir.Root(), row.Name)); err != nil {
				t.Errorf("step %d: the index names a file that is not there: %v", at, err)
			}
		}
		if err := errors.Join(index.Update(t.Context(), dir), index.RollUp(t.Context(), dir, "test")); err != nil {
			t.Fatal(err)
		}
		if got := monthsIn(t, dir); got != "2026-10: 10-30=0 10-31=8" {
			t.Errorf("step %d: %q", at, got)
		}
		if lines, v := findings(t, dir); v.Damaged+v.Leftovers > 0 {
			t.Errorf("step %d: %q", at, lines)
		}
		if want == nil {
			want = monthFiles(t, dir)
		} else if files := monthFiles(t, dir); !slices.Equal(files, want) {
			t.Errorf("step %d: %q, not %q", at, files, want)
		}
		return crashed
	}
	steps, stride := 1, 1
	if testing.Short() {
		stride = 5
	}
	for f(steps, steps%2 == 0) {
		steps += stride
	}
	if steps < 10 {
		t.Errorf("%d steps", steps)
	}
}
