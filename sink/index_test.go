package sink

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/index"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// indexed returns the files that the index names, by scan; a scan that is not complete has none.
func indexed(t *testing.T, dir *store.Dir) map[string][]string {
	t.Helper()
	if state, err := index.Check(t.Context(), dir); err != nil || state != index.Current {
		t.Errorf("the index is not what the records say: state %d, %v", state, err)
	}
	named := map[string][]string{}
	for row, err := range table.FileRows[index.Row](t.Context(), dir, index.Name) {
		if err != nil {
			t.Fatal(err)
		}
		if !row.Complete {
			named[row.ScanID] = nil
			continue
		}
		if info, err := os.Stat(filepath.Join(dir.Root(), row.Name)); err != nil || info.Size() != row.Bytes {
			t.Errorf("%s: %v", row.Name, err)
		}
		named[row.ScanID] = append(named[row.ScanID], row.Name)
	}
	return named
}

// TestIndexOfEarlierVersion: an index that an earlier bulkscan wrote is not damaged.
func TestIndexOfEarlierVersion(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: "a", Date: "2026-11-21"})
	for _, site := range typicalSites(t, 4) {
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows []index.Row
	for row, err := range table.FileRows[index.Row](t.Context(), dir, index.Name) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	for _, version := range []int{schema.Version, 1, 0} {
		data, err := table.Encode(nil, table.PageBytes, map[string]string{table.MetaSchema: strconv.Itoa(version)}, rows)
		if err == nil {
			err = dir.Put(t.Context(), index.Name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := index.Current
		if version == 0 { // which no bulkscan has written
			want = index.Damaged
		}
		if state, err := index.Check(t.Context(), dir); err != nil || state != want {
			t.Errorf("version %d: state %d, %v", version, state, err)
		}
	}
}

// TestIndex follows the index through the life of a dataset: it names exactly the files of complete scans, and every
// command that changes these leaves it right.
func TestIndex(t *testing.T) {
	dir := newDir(t)
	f := func(when string, scans map[string]int) {
		t.Helper()
		got := map[string]int{}
		for id, names := range indexed(t, dir) {
			got[id] = len(names)
		}
		if !maps.Equal(got, scans) {
			t.Errorf("%s: %v, want %v", when, got, scans)
		}
	}
	o := Options{ScanID: "a", Date: "2026-11-21", PartRows: 2, Observer: commit.Observer{Source: commit.Live,
		Vantage: "here"}, ListID: "list"}
	w := mustOpen(t, dir, o)
	f("begun", map[string]int{"a": 0})
	for _, site := range typicalSites(t, 4) {
		if err := w.Add(site); err != nil {
			t.Fatal(err)
		}
	}
	f("under way", map[string]int{"a": 0})
	if err := completeListed(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f("complete", map[string]int{"a": 10})
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeStats(t, dir, "a", schema.TokenStats, schema.TokenStatsRow{Token: "GPTBot", SegmentKind: "all"})
	f("counted", map[string]int{"a": 11})
	writeSites(t, dir, "b", typicalSites(t, 3)...)
	f("another scan", map[string]int{"a": 11, "b": 5})
	if _, err := compact.Scan(t.Context(), dir, "a", compact.Options{}); err != nil {
		t.Fatal(err)
	}
	f("compacted", map[string]int{"a": 6, "b": 5})
	for row, err := range table.FileRows[index.Row](t.Context(), dir, index.Name) {
		if err != nil || row.ScanID == "a" && (row.Observer != "live from here" || row.ListID != "list" ||
			row.ScanDate != "2026-11-21" || row.SchemaVersion != schema.Version) {
			t.Errorf("%+v, %v", row, err)
		}
	}

	// A lost or damaged index is made again, from the records.
	if err := dir.Delete(t.Context(), index.Name); err != nil {
		t.Fatal(err)
	}
	if lines, v := findings(t, dir); v.Damaged != 1 || !strings.Contains(lines[0], index.Name+": it is missing") {
		t.Errorf("lost: %q", lines)
	}
	if err := compact.Written(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	f("made again", map[string]int{"a": 6, "b": 5})
	flip(t, filepath.Join(dir.Root(), index.Name), 200)
	if lines, v := findings(t, dir); v.Damaged != 1 || !strings.Contains(lines[0], index.Name) {
		t.Errorf("damaged: %q", lines)
	}
	if err := index.Update(t.Context(), dir); err != nil {
		t.Fatal(err)
	}

	o.Restart = true
	w = mustOpen(t, dir, o)
	f("begun anew", map[string]int{"a": 0, "b": 5})
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestIndexOfACopy shows that a copy of a dataset, whose records have other times, needs no other index.
func TestIndexOfACopy(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, "a", typicalSites(t, 3)...)
	copied := newDir(t)
	if err := os.CopyFS(filepath.Join(copied.Root(), "copy"), os.DirFS(dir.Root())); err != nil {
		t.Fatal(err)
	}
	st, err := store.NewDir(filepath.Join(copied.Root(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	if lines, v := findings(t, st); v.Damaged > 0 {
		t.Errorf("%q", lines)
	}
	if got := indexed(t, st); !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"a"}) {
		t.Errorf("%v", got)
	}
}
