package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/bulkscan/bulkscan/store/storetest"
)

// rowsOf returns every row of a scan, by table, in the order of reading.
type rowsOf struct {
	Sites    []schema.SiteRow
	Verdicts []schema.VerdictRow
	Evidence []schema.EvidenceRow
	Bodies   []schema.BodyRow
}

func readScan(t testing.TB, scan *commit.Scan) rowsOf {
	t.Helper()
	return rowsOf{
		collect[schema.SiteRow](t, scan, schema.Sites), collect[schema.VerdictRow](t, scan, schema.Verdicts),
		collect[schema.EvidenceRow](t, scan, schema.Evidence), collect[schema.BodyRow](t, scan, schema.Bodies),
	}
}

func collect[T any](t testing.TB, scan *commit.Scan, table string) []T {
	t.Helper()
	var rows []T
	for row, err := range read.Rows[T](context.Background(), scan, table) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, *row)
	}
	return rows
}

func mustReadScan(t testing.TB, st store.Store, scanID string) *commit.Scan {
	t.Helper()
	scan, err := commit.ReadScan(context.Background(), st, scanID)
	if err != nil {
		t.Fatal(err)
	}
	return scan
}

func mustCompact(t testing.TB, st store.Store, o compact.Options) *compact.Result {
	t.Helper()
	done, err := compact.Scan(context.Background(), st, crashOptions.ScanID, o)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func typicalSites(t testing.TB, n int) []*audit.Site {
	var sites []*audit.Site
	for seq := range uint64(n) {
		sites = append(sites, typicalSite(t, seq))
	}
	return sites
}

// cursorSeqs reads a column with cursors, like the statistics.
func cursorSeqs(t testing.TB, scan *commit.Scan, tableName string) []int64 {
	t.Helper()
	var all []int64
	for i := range scan.Commits {
		var seq int64
		c, err := read.OpenCursor(context.Background(), scan, &scan.Commits[i], tableName,
			table.Field{Name: "seq", Into: &seq})
		if err != nil {
			t.Fatal(err)
		}
		for c.Next() {
			all = append(all, seq)
		}
		if err := errors.Join(c.Err(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestCompact shows that merged parts have the rows of the replaced parts in the same order, that readers which listed
// the replaced parts read the same rows afterwards, that a second compaction changes nothing, and that the scan
// continues.
func TestCompact(t *testing.T) {
	dir := newDir(t)
	sites := typicalSites(t, 31)
	if err := scanAll(dir, sites[:18]); err != nil { // four full parts and a partial one
		t.Fatal(err)
	}
	before := mustReadScan(t, dir, crashOptions.ScanID)
	want, seqs := readScan(t, before), cursorSeqs(t, before, schema.Verdicts)

	size := before.Commits[0].Bytes()
	done := mustCompact(t, dir, compact.Options{PartBytes: 3 * size}) // 4+4+4, 4+2
	if done.PartsBefore != 5 || done.PartsAfter != 2 {
		t.Errorf("compacted: %+v", done)
	}
	noOrphans(t, dir)
	check := func(scan *commit.Scan, want rowsOf, wantSeqs []int64) {
		t.Helper()
		if got := readScan(t, scan); !reflect.DeepEqual(got, want) {
			t.Errorf("other rows than before: %d sites, want %d", len(got.Sites), len(want.Sites))
		}
		if got := cursorSeqs(t, scan, schema.Verdicts); !slices.Equal(got, wantSeqs) {
			t.Errorf("verdicts of seq %v, want %v", got, wantSeqs)
		}
	}
	between := mustReadScan(t, dir, crashOptions.ScanID)
	check(between, want, seqs)
	check(before, want, seqs) // its files are deleted

	watched := &storetest.Faults{Store: dir}
	if again := mustCompact(t, watched, compact.Options{PartBytes: 3 * size}); again.PartsAfter != 2 ||
		again.PartsBefore != 2 {
		t.Errorf("compacted again: %+v", again)
	}
	for _, step := range watched.Steps() {
		if step.Op != "lock" && step.Op != "unlock" && step.Op != "sweep" {
			t.Errorf("compacting again did %v", step)
		}
	}

	// The scan continues after the merged parts, with numbers of its own.
	w := mustOpen(t, dir, crashOptions)
	if n := w.DoneCount(); n != 18 {
		t.Errorf("%d done", n)
	}
	if err := finish(w, sites); err != nil {
		t.Fatal(err)
	}
	after := mustReadScan(t, dir, crashOptions.ScanID)
	if got := readScan(t, after); len(got.Sites) != len(sites) || !reflect.DeepEqual(got.Sites[:18], want.Sites) {
		t.Errorf("%d sites", len(got.Sites))
	}
	want, seqs = readScan(t, after), cursorSeqs(t, after, schema.Verdicts)
	mustCompact(t, dir, compact.Options{})
	noOrphans(t, dir)
	whole := mustReadScan(t, dir, crashOptions.ScanID)
	if len(whole.Commits) != 1 || whole.Manifest.Counts.Parts != 1 || whole.Manifest.Counts.Rows != 31 ||
		whole.Manifest.Counts.Bytes != whole.Commits[0].Bytes() {
		t.Errorf("%d commits, counts %+v", len(whole.Commits), whole.Manifest.Counts)
	}
	check(whole, want, seqs)
	check(after, want, seqs)
	if got := readScan(t, between); !reflect.DeepEqual(got.Sites, want.Sites[:18]) { // merged twice since the listing
		t.Errorf("%d sites", len(got.Sites))
	}
	if got := readScan(t, before); !reflect.DeepEqual(got.Sites, want.Sites[:18]) {
		t.Errorf("%d sites", len(got.Sites))
	}
}

// TestCompactCopiesPages shows that a merged file has the row groups of its sources unchanged: the same bytes of pages,
// the same bounds, and indexes that lead to the same pages.
func TestCompactCopiesPages(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	type group struct {
		rows  int64
		pages [][]byte
		stats []string
	}
	groups := func(tableName string) (all []group) {
		scan := mustReadScan(t, dir, crashOptions.ScanID)
		for _, c := range scan.Commits {
			file, _ := c.File(tableName)
			object, err := dir.Open(t.Context(), file.Name)
			if err != nil {
				t.Fatal(err)
			}
			defer object.Close()
			_, encoded, err := table.OpenTail(object)
			if err != nil {
				t.Fatal(err)
			}
			footer, err := table.DecodeFooter(encoded)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range footer.RowGroups {
				one := group{rows: g.NumRows}
				for _, chunk := range g.Columns {
					first, length, err := table.ChunkBytes(&chunk, object.Size())
					if err != nil {
						t.Fatal(err)
					}
					pages := make([]byte, length)
					index := make([]byte, chunk.ColumnIndexLength)
					offsets := make([]byte, chunk.OffsetIndexLength)
					for at, b := range map[int64][]byte{first: pages, chunk.ColumnIndexOffset: index,
						chunk.OffsetIndexOffset: offsets} {
						if _, err := object.ReadAt(b, at); err != nil {
							t.Fatal(err)
						}
					}
					one.pages = append(one.pages, pages)
					if err := decodeOffsetsInto(t, offsets, &one.stats, chunk.MetaData.DataPageOffset); err != nil {
						t.Fatal(err)
					}
					one.stats = append(one.stats, fmt.Sprintf("%x %v %v %v", index, chunk.MetaData.Statistics,
						chunk.MetaData.NumValues, chunk.MetaData.EncodingStats))
				}
				all = append(all, one)
			}
		}
		return all
	}
	want := map[string][]group{}
	for _, table := range schema.AllTables {
		want[table] = groups(table)
	}
	mustCompact(t, dir, compact.Options{})
	for _, table := range schema.AllTables {
		if got := groups(table); len(got) != 3 || !reflect.DeepEqual(got, want[table]) {
			t.Errorf("%s: %d row groups, which differ", table, len(got))
		}
	}
}

// TestCompactExcludesWriters shows that compacting and writing a scan exclude each other.
func TestCompactExcludesWriters(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, crashOptions)
	if _, err := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{}); !isHeld(err, "being written") {
		t.Errorf("Compact while a scan runs: %v", err)
	}
	if err := finish(w, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	tried := false
	watched := &storetest.Faults{Store: dir, Fail: func(s storetest.Step) error {
		if s.Op == "publish" {
			tried = true
			if _, err := Open(t.Context(), dir, crashOptions); !isHeld(err, "being compacted") {
				t.Errorf("Open while it is compacted: %v", err)
			}
			if _, err := compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{}); !isHeld(err,
				"being compacted") {
				t.Errorf("Compact while it is compacted: %v", err)
			}
		}
		return nil
	}}
	mustCompact(t, watched, compact.Options{})
	if !tried {
		t.Error("nothing was published")
	}
	if _, err := compact.Scan(t.Context(), dir, "another", compact.Options{}); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("Compact of no scan: %v", err)
	}
}

func isHeld(err error, says string) bool {
	_, held := errors.AsType[*commit.HeldError](err)
	return held && strings.Contains(err.Error(), says)
}

// TestCompactRefusesDamage shows that a damaged part is not merged, since a new hash would hide the damage.
func TestCompactRefusesDamage(t *testing.T) {
	dir := newDir(t)
	if err := scanAll(dir, typicalSites(t, crashSites)); err != nil {
		t.Fatal(err)
	}
	commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	file, _ := commits[1].File(schema.Verdicts)
	flip(t, filepath.Join(dir.Root(), file.Name), 1000)
	_, err = compact.Scan(t.Context(), dir, crashOptions.ScanID, compact.Options{})
	if err == nil || !strings.Contains(err.Error(), file.Name) || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("Compact: %v", err)
	}
	noOrphans(t, dir)
	if after, err := commit.Commits(t.Context(), dir, crashOptions.ScanID); err != nil ||
		!reflect.DeepEqual(after, commits) {
		t.Errorf("%d commits, %v", len(after), err)
	}
}

// TestCompactDespiteDamage shows that the other parts are merged despite a damaged one, and that the parts that they
// replace are deleted.
func TestCompactDespiteDamage(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: "o", Date: "2026-11-21", ToolVersion: "test", PartRows: 4})
	for _, s := range typicalSites(t, 32) {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	commits, err := commit.Commits(t.Context(), dir, "o")
	if err != nil {
		t.Fatal(err)
	}
	file, _ := commits[3].File(schema.Sites)
	flip(t, filepath.Join(dir.Root(), file.Name), 100)
	_, err = compact.Scan(t.Context(), dir, "o", compact.Options{PartBytes: 2 * commits[0].Bytes() * 11 / 10,
		Grace: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), file.Name) {
		t.Errorf("Compact: %v", err)
	}
	after, err := commit.Commits(t.Context(), dir, "o")
	if err != nil || len(after) != 5 { // the damaged part and the one before it are unchanged
		t.Errorf("%d commits, %v", len(after), err)
	}
	if lines, v := findings(t, dir); v.Leftovers > 0 ||
		slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(line, file.Name) }) {
		t.Errorf("%q", lines)
	}
}

// TestCompactUnderReaders reads a dataset repeatedly while it is compacted in many steps. Every reader finds every row
// once, whether it listed the commits before or during the compaction.
func TestCompactUnderReaders(t *testing.T) {
	dir := newDir(t)
	n := 60 // 15 parts
	if testing.Short() {
		n = 32
	}
	if err := scanAll(dir, typicalSites(t, n)); err != nil {
		t.Fatal(err)
	}
	before := mustReadScan(t, dir, crashOptions.ScanID)
	want := cursorSeqs(t, before, schema.Sites)
	over := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			for n := 0; ; n++ {
				scan := before
				if i > 0 {
					scan = mustReadScan(t, dir, crashOptions.ScanID)
				}
				if got := cursorSeqs(t, scan, schema.Sites); !slices.Equal(got, want) {
					t.Errorf("reader %d, time %d: %d sites", i, n, len(got))
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	size := before.Commits[0].Bytes()
	for parts := int64(2); parts <= 16; parts *= 2 {
		mustCompact(t, dir, compact.Options{PartBytes: parts * size, Grace: time.Millisecond})
	}
	close(over)
	readers.Wait()
	if commits, err := commit.Commits(t.Context(), dir, crashOptions.ScanID); err != nil || len(commits) != 1 {
		t.Errorf("%d commits, %v", len(commits), err)
	}
}

// forgetful is a store that, like an object store, does not keep deleted objects for their readers.
type forgetful struct {
	*store.Dir
	reads  atomic.Int64
	onRead func(n int64)
}

func (f *forgetful) Open(ctx context.Context, name string) (store.Object, error) {
	object, err := f.Dir.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &forgotten{object, f, name}, nil
}

type forgotten struct {
	store.Object
	store *forgetful
	name  string
}

func (o *forgotten) ReadAt(p []byte, at int64) (int, error) {
	if n := o.store.reads.Add(1); o.store.onRead != nil {
		o.store.onRead(n)
	}
	if _, err := os.Stat(filepath.Join(o.store.Root(), filepath.FromSlash(o.name))); err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", o.name, store.ErrChanged)
	}
	return o.Object.ReadAt(p, at)
}

// TestCompactWhileAFileIsRead compacts a dataset at each read of a reader, in a store whose deleted objects cannot be
// read further. The reader continues in the merged part, at its current row.
func TestCompactWhileAFileIsRead(t *testing.T) {
	options := crashOptions
	options.PartRows = 500
	for _, table := range []string{schema.Sites, schema.Verdicts} {
		for _, cursors := range []bool{true, false} {
			for n := int64(1); ; n += 3 {
				dir := newDir(t)
				w := mustOpen(t, dir, options)
				if err := finish(w, typicalSites(t, 700)); err != nil {
					t.Fatal(err)
				}
				st := &forgetful{Dir: dir}
				scan := mustReadScan(t, st, options.ScanID)
				st.reads.Store(0)
				st.onRead = func(i int64) {
					if i == n {
						mustCompact(t, dir, compact.Options{})
					}
				}
				var seqs []int64
				if cursors {
					seqs = cursorSeqs(t, scan, table)
				} else {
					type row struct {
						Seq int64 `parquet:"seq"`
					}
					for _, r := range collect[row](t, scan, table) {
						seqs = append(seqs, r.Seq)
					}
				}
				want := make([]int64, 0, 4*700)
				for seq := range int64(700) {
					want = append(want, seq)
					if table == schema.Verdicts {
						want = append(want, seq, seq, seq)
					}
				}
				if !slices.Equal(seqs, want) {
					t.Errorf("%s, cursors %v, compacted at read %d: %d rows, want %d", table, cursors, n, len(seqs), len(want))
				}
				if st.reads.Load() < n {
					break
				}
			}
		}
	}
}
