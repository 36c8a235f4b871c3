package sink

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/bulkscan/bulkscan/internal/store"
	"github.com/parquet-go/parquet-go"
)

// oldScans are the scans in testdata/versions, by the schema version that they were written with, and their rows.
var oldScans = []struct {
	version int
	scanID  string
	rows    map[string]int
}{
	{1, "schema-1", map[string]int{TableSites: 40, TableVerdicts: 95, TableEvidence: 20, TableBodies: 28}},
	{2, "schema-2", map[string]int{TableSites: 40, TableVerdicts: 97, TableEvidence: 20, TableBodies: 28}},
}

// withOldScans returns a dataset that has all old scans, and one that is written now.
func withOldScans(t *testing.T) *store.Dir {
	t.Helper()
	dir := newDir(t)
	if err := os.CopyFS(dir.Root(), os.DirFS("testdata/versions")); err != nil {
		t.Fatal(err)
	}
	writeSites(t, dir, "now", typicalSite(t, 1), deadSite(t, 2))
	return dir
}

// TestOldSchemas reads files of every older schema version together with new ones, by rows and by columns: a column that
// came later is absent in old rows, and the others are all there.
func TestOldSchemas(t *testing.T) {
	dir := withOldScans(t)
	if scans, err := Scans(t.Context(), dir); err != nil || len(scans) != len(oldScans)+1 {
		t.Fatalf("%d scans: %v", len(scans), err)
	}
	for _, old := range oldScans {
		scan, err := ReadScan(t.Context(), dir, old.scanID)
		if err != nil {
			t.Fatal(err)
		}
		if scan.Manifest.SchemaVersion != old.version {
			t.Errorf("%s says that its version is %d", old.scanID, scan.Manifest.SchemaVersion)
		}
		oldRows[SiteRow](t, scan, TableSites, old.version, old.rows[TableSites])
		oldRows[VerdictRow](t, scan, TableVerdicts, old.version, old.rows[TableVerdicts])
		oldRows[EvidenceRow](t, scan, TableEvidence, old.version, old.rows[TableEvidence])
		oldRows[BodyRow](t, scan, TableBodies, old.version, old.rows[TableBodies])

		// A Cursor finds columns that are not there absent, each beside one that is.
		var seq int64
		var groupLine int32
		cursor, err := OpenCursor(t.Context(), scan, &scan.Commits[0], TableEvidence, Field{Name: "seq", Into: &seq}, Field{Name: "group_line", Into: &groupLine})
		if err != nil {
			t.Fatal(err)
		}
		n, grouped := 0, 0
		for cursor.Next() {
			n++
			if groupLine != 0 {
				grouped++
			}
		}
		if err := cursor.Err(); err != nil || n != old.rows[TableEvidence] || (grouped > 0) != (old.version >= 2) {
			t.Errorf("version %d: %d rows of evidence, %d with a group, %v", old.version, n, grouped, err)
		}
		if err := cursor.Close(); err != nil {
			t.Error(err)
		}
	}
}

// oldRows reads a table of an old scan with the row type of today.
func oldRows[T any](t *testing.T, scan *Scan, table string, version, want int) {
	t.Helper()
	row := reflect.TypeFor[T]()
	filled := make([]bool, row.NumField())
	n := 0
	for got, err := range Rows[T](context.Background(), scan, table) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		for i := range row.NumField() {
			filled[i] = filled[i] || !reflect.ValueOf(got).Elem().Field(i).IsZero()
		}
	}
	if n != want {
		t.Errorf("version %d, %s: %d rows, want %d", version, table, n, want)
	}
	inFile := columnsInFile(t, scan, table)
	for i, c := range columnsOf(row) {
		if inFile[c.Name] != (c.Since <= version) {
			t.Errorf("%s.%s came with version %d, and a file of version %d has it: %v", table, c.Name, c.Since, version, inFile[c.Name])
		}
		if c.Since > version && filled[i] {
			t.Errorf("%s.%s is not in files of version %d, and not empty", table, c.Name, version)
		}
	}
	for _, column := range []string{"seq", "host", "origin", "outcome", "access", "token", "verdict", "via", "kind", "value", "body_hash", "body"} {
		for i, c := range columnsOf(row) {
			if c.Name == column && !filled[i] {
				t.Errorf("version %d, %s.%s is empty", version, table, column)
			}
		}
	}
}

// columnsInFile returns the columns of a table's first file, as the file itself says.
func columnsInFile(t *testing.T, scan *Scan, table string) map[string]bool {
	t.Helper()
	described, ok := scan.Commits[0].File(table)
	if !ok {
		t.Fatalf("the scan has no %s", table)
	}
	object, err := scan.store.Open(t.Context(), described.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	file, err := parquet.OpenFile(object, object.Size())
	if err != nil {
		t.Fatal(err)
	}
	version, _ := file.Lookup(metaSchema)
	if version != strconv.Itoa(scan.Manifest.SchemaVersion) {
		t.Errorf("%s is of version %s", described.Name, version)
	}
	columns := map[string]bool{}
	for _, path := range file.Schema().Columns() {
		columns[path[0]] = true
	}
	return columns
}

// TestCompactOldSchemas merges parts of an older schema version: the rows stay what they were, in files of that version.
func TestCompactOldSchemas(t *testing.T) {
	dir := withOldScans(t)
	for _, old := range oldScans {
		before := mustReadScan(t, dir, old.scanID)
		want := readScan(t, before)
		secondPart(t, dir, before)
		if done, err := Compact(t.Context(), dir, old.scanID, CompactOptions{}); err != nil || done.PartsBefore != 2 || done.PartsAfter != 1 {
			t.Fatalf("version %d: %+v, %v", old.version, done, err)
		}
		after := mustReadScan(t, dir, old.scanID)
		got := readScan(t, after)
		if !reflect.DeepEqual(got.Sites, append(slices.Clone(want.Sites), want.Sites...)) || !reflect.DeepEqual(got.Evidence, append(slices.Clone(want.Evidence), want.Evidence...)) {
			t.Errorf("version %d: other rows", old.version)
		}
		if after.Commits[0].SchemaVersion != old.version {
			t.Errorf("version %d: merged as %d", old.version, after.Commits[0].SchemaVersion)
		}
		columnsInFile(t, after, TableSites) // looks at the version in the file, too
		if got := readScan(t, before); !reflect.DeepEqual(got, want) {
			t.Errorf("version %d: who had listed the part finds other rows", old.version)
		}
	}
}

// secondPart adds the only part of a scan once more, under the next number and with sites of its own.
func secondPart(t *testing.T, dir *store.Dir, scan *Scan) {
	t.Helper()
	again := scan.Commits[0]
	again.N++
	again.Files = slices.Clone(again.Files)
	for i := range again.Files {
		f := &again.Files[i]
		data, err := store.ReadAll(t.Context(), dir, f.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = partName(f.Table, scan.Manifest.ScanDate, scan.Manifest.ScanID, again.Shard, again.N)
		if err := dir.Put(t.Context(), f.Name, data); err != nil {
			t.Fatal(err)
		}
	}
	seqs, err := again.Bitmap()
	if err != nil {
		t.Fatal(err)
	}
	others := make([]uint64, 0, again.Rows)
	for _, seq := range seqs.ToArray() {
		others = append(others, seq+1000)
	}
	again.Finished = bitmapOf(t, others...)
	m := *scan.Manifest
	m.Counts = countCommits([]Commit{scan.Commits[0], again})
	if err := errors.Join(again.write(t.Context(), dir), m.write(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
}
