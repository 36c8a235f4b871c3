package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/read"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
)

// picked has one column of each kind for Rows. No file has the last column.
type picked struct {
	Seq       int64    `parquet:"seq"`
	Rank      int64    `parquet:"rank,optional"`
	Label     string   `parquet:"label,optional"`
	Host      string   `parquet:"host"`
	Status    int32    `parquet:"status,optional"`
	Total     float32  `parquet:"total_ms,optional"`
	Score     float64  `parquet:"score"`
	Truncated bool     `parquet:"truncated"`
	HasBOM    bool     `parquet:"has_bom"`
	Named     []string `parquet:"named,list"`
	Sitemaps  []string `parquet:"sitemaps,list"`
}

// pick reads the same columns by a Cursor.
func pick(ctx context.Context, scan *commit.Scan, c *commit.Commit) (rows []picked, err error) {
	var row picked
	var texts []string
	var named, sitemaps []int32
	index := func(text string) int32 {
		texts = append(texts, text)
		return int32(len(texts) - 1)
	}
	cursor, err := read.OpenCursor(ctx, scan, c, schema.Sites,
		table.Field{Name: "seq", Into: &row.Seq}, table.Field{Name: "rank", Into: &row.Rank},
		table.Field{Name: "label", Into: &row.Label},
		table.Field{Name: "host", Into: &row.Host}, table.Field{Name: "status", Into: &row.Status},
		table.Field{Name: "total_ms", Into: &row.Total},
		table.Field{Name: "score", Into: &row.Score}, table.Field{Name: "truncated", Into: &row.Truncated},
		table.Field{Name: "has_bom", Into: &row.HasBOM},
		table.Field{Name: "named", Into: &named, Index: index}, table.Field{Name: "sitemaps", Into: &sitemaps, Index: index})
	if err != nil {
		return nil, err
	}
	for cursor.Next() {
		row.Named, row.Sitemaps = []string{}, []string{}
		for _, i := range named {
			row.Named = append(row.Named, texts[i])
		}
		for _, i := range sitemaps {
			row.Sitemaps = append(row.Sitemaps, texts[i])
		}
		rows = append(rows, row)
	}
	return rows, errors.Join(cursor.Err(), cursor.Close())
}

// TestCursor reads columns of every kind, with and without nulls, over many pages and several row groups, and compares
// them with Rows.
func TestCursor(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: "c", PartRows: 1200})
	big := bytes.Repeat([]byte("Disallow: /\n"), 10_000)
	for seq := range uint64(1500) {
		site := typicalSite
		switch seq % 5 {
		case 1:
			site = deadSite
		case 3:
			site = func(_ testing.TB, seq uint64) *audit.Site { return extremeSite(t, seq) }
		}
		s := site(t, seq)
		if s.Fetch.Body != nil {
			s.Fetch.Body, s.Report.BodyHash = big, seq+1 // 120 kB of distinct bodies: 48 MB end a row group
		}
		s.Fetch.Truncated = seq%7 == 0
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	scan, err := commit.ReadScan(t.Context(), dir, "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(scan.Commits) != 2 {
		t.Fatalf("%d commits", len(scan.Commits))
	}
	for i := range scan.Commits {
		var want []picked
		for row, err := range read.CommitRows[picked](t.Context(), scan, &scan.Commits[i], schema.Sites, 0, math.MaxInt64) {
			if err != nil {
				t.Fatal(err)
			}
			row.Named, row.Sitemaps = slices.Clone(row.Named), slices.Clone(row.Sitemaps)
			want = append(want, *row)
		}
		got, err := pick(t.Context(), scan, &scan.Commits[i])
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		for j := range want {
			if !reflect.DeepEqual(fmt.Sprint(got[j]), fmt.Sprint(want[j])) {
				t.Fatalf("row %d:\n got %.400v\nwant %.400v", j, got[j], want[j])
			}
		}
	}
	first, _ := scan.Commits[0].File(schema.Sites)
	object, err := dir.Open(t.Context(), first.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	file, err := table.OpenFile(object)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(file.RowGroups()); n < 2 {
		t.Errorf("%d row groups: the test sees too few", n)
	}
}

// TestCursorManyAgents reads a column whose dictionary was abandoned in the middle of a file.
func TestCursorManyAgents(t *testing.T) {
	dir := newDir(t)
	s := typicalSite(t, 1)
	s.Report.Verdicts = nil
	var want []string
	for i := range 20_000 {
		want = append(want, fmt.Sprintf("agent%s%d", strings.Repeat("x", 100), i%15_000))
		s.Report.Verdicts = append(s.Report.Verdicts, audit.Verdict{ID: -1, Token: []byte(want[i])})
	}
	writeSites(t, dir, "many", s)
	scan, err := commit.ReadScan(t.Context(), dir, "many")
	if err != nil {
		t.Fatal(err)
	}
	var token string
	cursor, err := read.OpenCursor(t.Context(), scan, &scan.Commits[0], schema.Verdicts,
		table.Field{Name: "token", Into: &token})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for cursor.Next() {
		got = append(got, token)
	}
	if err := errors.Join(cursor.Err(), cursor.Close()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d tokens, want %d, or others", len(got), len(want))
	}
}

func TestCursorErrors(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, "e", typicalSite(t, 1), typicalSite(t, 2))
	scan, err := commit.ReadScan(t.Context(), dir, "e")
	if err != nil {
		t.Fatal(err)
	}
	f := func(want string, fields ...table.Field) {
		t.Helper()
		_, err := read.OpenCursor(t.Context(), scan, &scan.Commits[0], schema.Sites, fields...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	var number int32
	var list []int32
	index := func(string) int32 { return 0 }
	f("column seq cannot be read into a *int32", table.Field{Name: "seq", Into: &number})
	f("column host cannot be read into a *int32", table.Field{Name: "host", Into: &number})
	f("column host cannot be read into a *[]int32", table.Field{Name: "host", Into: &list, Index: index})
	f("column named cannot be read into a *string", table.Field{Name: "named", Into: new(string)})
	f("column named cannot be read into a *[]int32", table.Field{Name: "named", Into: &list})
	f("column redirects.url cannot be read into a *[]int32", table.Field{Name: "redirects.url", Into: &list})
	f("columns of its own", table.Field{Name: "redirects.urls", Into: new([]string)})
	f("Index is for lists", table.Field{Name: "host", Into: new(string), Index: index})
	f("columns of its own", table.Field{Name: "redirects", Into: &list, Index: index})
	f("cannot be read into a uint8", table.Field{Name: "seq", Into: uint8(0)})
	_, err = read.OpenCursor(t.Context(), scan, &commit.Commit{}, schema.Sites)
	if !errors.Is(err, commit.ErrNoTable) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cursor, err := read.OpenCursor(ended, scan, &scan.Commits[0], schema.Sites,
		table.Field{Name: "host", Into: new(string)})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if cursor.Next() || !errors.Is(cursor.Err(), context.Canceled) {
		t.Errorf("a row, or error %v", cursor.Err())
	}
	if err := cursor.Close(); err != nil {
		t.Error(err)
	}
	scan.Commits[0].Files[4].Rows = -1
	f("rows: expected -1, found 2")
}

// TestDamagedFiles changes a file byte by byte. Reading it returns rows or an error, and never more rows than it had.
func TestDamagedFiles(t *testing.T) {
	dir := newDir(t)
	writeSites(t, dir, "x", typicalSite(t, 1), deadSite(t, 2), typicalSite(t, 3))
	scan, err := commit.ReadScan(t.Context(), dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	sites, _ := scan.Commits[0].File(schema.Sites)
	name := filepath.Join(dir.Root(), filepath.FromSlash(sites.Name))
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	stride := 29
	if raceEnabled || testing.Short() {
		stride = 61
	}
	failed := 0
	read := func(data []byte) {
		if err := os.WriteFile(name, data, 0o666); err != nil {
			t.Fatal(err)
		}
		rows, err := pick(t.Context(), scan, &scan.Commits[0])
		if err != nil {
			failed++
		} else if len(rows) != 3 {
			t.Errorf("%d rows and no error", len(rows))
		}
		if raceEnabled {
			// The race detector enables pointer checks, which make some of parquet-go's panics fatal.
			return
		}
		n := 0
		for _, err := range read.CommitRows[schema.SiteRow](t.Context(), scan, &scan.Commits[0], schema.Sites, 0,
			math.MaxInt64) {
			if n++; err != nil {
				failed++
			}
		}
		if n > 3+1 {
			t.Errorf("%d rows", n)
		}
	}
	for at := 0; at < len(whole); at += stride {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0xff
		read(damaged)
		read(whole[:at])
	}
	t.Logf("%d bytes, %d readings failed", len(whole), failed)
	if failed < len(whole)/stride {
		t.Errorf("%d readings failed: the test damages too little", failed)
	}
}

// BenchmarkCursor reads columns of a part like the statistics: numbers, texts, lists. Compare with BenchmarkRows.
//
//	go test ./sink -run '^$' -bench 'Cursor|Rows' -benchmem
func BenchmarkCursor(b *testing.B) {
	scan := manyRows(b)
	for b.Loop() {
		if rows, err := sumCursor(b.Context(), scan); err != nil || rows != benchRows {
			b.Fatal(rows, err)
		}
	}
	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkRows is BenchmarkCursor with Rows.
func BenchmarkRows(b *testing.B) {
	scan := manyRows(b)
	type row struct {
		Seq     int64    `parquet:"seq"`
		Access  string   `parquet:"access"`
		Named   []string `parquet:"named,list"`
		Blocked []string `parquet:"blocked,list"`
	}
	for b.Loop() {
		rows := 0
		for _, err := range read.Rows[row](b.Context(), scan, schema.Sites) {
			if rows++; err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}

const benchRows = 20_000

// manyRows returns a scan whose sites block a hundred tokens each.
func manyRows(tb testing.TB) *commit.Scan {
	dir := newDir(tb)
	w := mustOpen(tb, dir, Options{ScanID: "b", Tables: []string{schema.Sites}})
	s := typicalSite(tb, 1)
	for id := range uint16(100) {
		s.Report.Blocked = append(s.Report.Blocked, id)
	}
	for seq := range uint64(benchRows) {
		s.Seq = seq
		if err := w.Add(s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	scan, err := commit.ReadScan(tb.Context(), store.Store(dir), "b")
	if err != nil {
		tb.Fatal(err)
	}
	return scan
}

func sumCursor(ctx context.Context, scan *commit.Scan) (rows int, err error) {
	var seq int64
	var access string
	var named, blocked []int32
	index := func(string) int32 { return 1 }
	cursor, err := read.OpenCursor(ctx, scan, &scan.Commits[0], schema.Sites,
		table.Field{Name: "seq", Into: &seq}, table.Field{Name: "access", Into: &access},
		table.Field{Name: "named", Into: &named, Index: index}, table.Field{Name: "blocked", Into: &blocked, Index: index})
	if err != nil {
		return 0, err
	}
	for cursor.Next() {
		rows++
	}
	return rows, errors.Join(cursor.Err(), cursor.Close())
}

// TestCursorAllocatesNothing shows that a row needs no allocation, however long its lists; only pages do.
func TestCursorAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	scan := manyRows(t)
	allocs := testing.AllocsPerRun(3, func() {
		if rows, err := sumCursor(t.Context(), scan); err != nil || rows != benchRows {
			t.Fatal(rows, err)
		}
	})
	if perRow := allocs / benchRows; perRow > 0.1 {
		t.Errorf("%.2f allocations a row", perRow)
	}
}

// TestCommitRowsFrom reads from each row on, within and over row groups, before and after a compaction, and compares
// with all rows.
func TestCommitRowsFrom(t *testing.T) {
	dir := newDir(t)
	w := mustOpen(t, dir, Options{ScanID: crashOptions.ScanID, PartRows: 300, groupBytes: 64 << 10})
	for seq := range uint64(600) {
		if err := w.Add(typicalSite(t, seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := mustReadScan(t, dir, crashOptions.ScanID)
	first, _ := before.Commits[0].File(schema.Sites)
	if first.Groups < 2 {
		t.Fatalf("%d row groups: the test sees too few", first.Groups)
	}
	read := func(c *commit.Commit, from, to int64) (seqs []int64) {
		t.Helper()
		for row, err := range read.CommitRows[schema.SiteRow](t.Context(), before, c, schema.Sites, from, to) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, row.Seq)
		}
		return seqs
	}
	for range 2 {
		for i := range before.Commits {
			c := &before.Commits[i]
			all := read(c, 0, math.MaxInt64)
			for from := int64(0); from < c.Rows; from += 7 {
				to := min(from+100, c.Rows)
				if got := read(c, from, to); !slices.Equal(got, all[from:to]) {
					t.Fatalf("part %d, rows %d to %d: %v", i, from, to, got)
				}
			}
		}
		mustCompact(t, dir, compact.Options{}) // the commits were read before
	}
}
