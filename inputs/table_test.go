package inputs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/sink/table"
)

// openParquet is how a scan opens Parquet files.
func openParquet(file io.ReaderAt, size int64) (Table, error) { return table.OpenList(file, size) }

// parquetOf returns rows as a Parquet file.
func parquetOf[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type rankedRow struct {
	Rank   *int32   `parquet:"Global Rank,optional"`
	Domain *string  `parquet:"domain,optional,dict"`
	Sector string   `parquet:"sector,dict"`
	Size   int64    `parquet:"size"`
	Tags   []string `parquet:"tags,list"`
	Meta   struct {
		Owner string `parquet:"owner"`
	} `parquet:"meta"`
}

func rankedRows() []rankedRow {
	row := func(rank int32, domain, sector string) rankedRow {
		r := rankedRow{Sector: sector, Size: int64(rank) * 10, Tags: []string{"x"}}
		r.Meta.Owner = "owner-" + sector + ".example"
		if rank > 0 {
			r.Rank = &rank
		}
		if domain != "∅" {
			r.Domain = &domain
		}
		return r
	}
	return []rankedRow{
		row(1, "a.example", "news"), row(2, "https://b.example/x", "shop"), row(3, "∅", "news"), row(0, "A.EXAMPLE", ""),
		row(5, "not a host", "news"), row(6, "\xff.example", "news"), row(7, " c.example ", "news\x00\x00"),
		row(8, strings.Repeat("x", MaxLine+1), "news"), row(9, "", "news"), row(10, "d.example", "é\xff"),
	}
}

// TestParquet reads a table whose columns are found by their names, or chosen.
func TestParquet(t *testing.T) {
	content := parquetOf(t, rankedRows())
	f := func(opt Options, layout, want string) {
		t.Helper()
		opt.Parquet = openParquet
		path := listFile(t, "list.parquet", content)
		got, s, err := origins(t, opt, path)
		if err != nil || got != want {
			t.Errorf("%+v:\ngot  %s, %v\nwant %s", opt, got, err, want)
			return
		}
		if s.Files[0].Layout != layout {
			t.Errorf("layout %s, want %s", s.Files[0].Layout, layout)
		}
	}
	byName := `parquet, host in column 2 "domain", rank in column 1 "Global Rank"`
	const all = "0:a.example 1:https://b.example !3 !4 !5 !6 6:c.example !8 !9 9:d.example"
	f(Options{}, byName, all)
	f(Options{Format: Parquet}, byName, all)
	f(Options{Column: "Domain", LabelColumn: "3"}, byName+`, label in column 3 "sector"`, all)
	f(Options{LabelColumn: "size"}, byName+`, label in column 4 "size"`, all)
	f(Options{Column: "meta.owner"}, `parquet, host in column 6 "meta.owner", rank in column 1 "Global Rank"`,
		"0:owner-news.example 1:owner-shop.example !3 3:owner-.example !5 !6 !7 !8 !9 !10")
	f(Options{Limit: 2}, byName, "0:a.example 1:https://b.example")
	// The same host again is read again, as it is the column of the label too.
	f(Options{LabelColumn: "domain", Limit: 1}, byName+`, label in column 2 "domain"`, "0:a.example")
}

// TestParquetRows checks all fields of an entry, and the reasons of rejected rows.
func TestParquetRows(t *testing.T) {
	path := listFile(t, "list.parquet", parquetOf(t, rankedRows()))
	var rejects []Reject
	r, err := Open(t.Context(), []string{path}, Options{Parquet: openParquet, LabelColumn: "sector",
		Reject: func(r Reject) error { rejects = append(rejects, r); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	entries, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&got, "%d %s %q rank %d label %q\n", e.Seq, e.Origin, e.Input, e.Rank, e.Label)
	}
	for _, r := range rejects {
		if r.Input != path || len(r.Text) > MaxText {
			t.Errorf("%+v", r)
		}
		fmt.Fprintf(&got, "reject %d %.12q %s\n", r.Line, r.Text, r.Reason)
	}
	want := `0 a.example "a.example" rank 1 label "news"
1 https://b.example "https://b.example/x" rank 2 label "shop"
6 c.example "c.example" rank 7 label "news"
9 d.example "d.example" rank 10 label "é` + "\uFFFD" + `"
reject 3 "" the cell of the host is empty
reject 4 "A.EXAMPLE" duplicate of an earlier entry
reject 5 "not a host" not a host name or IP address: byte ' '
reject 6 "\xff.example" not valid UTF-8
reject 8 "xxxxxxxxxxxx" the cell of the host is longer than 64 KiB
reject 9 "" the cell of the host is empty
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

// TestParquetLongCells: a page may repeat one text of 100 MB for millions of rows, so only as much of a cell is read as
// a line may have.
func TestParquetLongCells(t *testing.T) {
	type row struct {
		Host string `parquet:"host,dict"`
		Tag  string `parquet:"tag,dict"`
	}
	long := strings.Repeat("\u00e9", MaxLine)
	path := listFile(t, "list.parquet", parquetOf(t, []row{{"a.example" + strings.Repeat(" ", MaxLine), "x"},
		{"b.example", long}}))
	r, err := Open(t.Context(), []string{path}, Options{Parquet: openParquet, LabelColumn: "tag"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	entries, err := readAll(r)
	if err != nil || len(entries) != 1 || entries[0].Input != "b.example" || entries[0].Label != long[:MaxLabel] ||
		r.Stats().Rejects != 1 {
		t.Errorf("%d entries, %v, %+v", len(entries), err, r.Stats())
	}
}

// TestParquetProgress: at the end all bytes count as read, although a column that is most of the file is not read.
func TestParquetProgress(t *testing.T) {
	type row struct {
		Host string `parquet:"host"`
		Page []byte `parquet:"page,uncompressed"`
	}
	path := listFile(t, "list.parquet", parquetOf(t, []row{{"a.example", make([]byte, 1<<20)}}))
	r, err := Open(t.Context(), []string{path}, Options{Parquet: openParquet})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if entries, err := readAll(r); err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if read, total := r.Progress(); total < 1<<20 || read != total {
		t.Errorf("at the end %d of %d bytes are read", read, total)
	}
}

// TestParquetInStreams reads tables from streams without random access: their copies are deleted.
func TestParquetInStreams(t *testing.T) {
	type row struct {
		Host string `parquet:"host"`
	}
	a, b := parquetOf(t, []row{{"a.example"}, {"b.example"}}), parquetOf(t, []row{{"b.example"}, {"c.example"}})
	dir := t.TempDir()
	f := func(content []byte, compression, want string) {
		t.Helper()
		for _, path := range []string{"-", listFile(t, "list", content)} {
			if compression == "zip" && path == "-" {
				continue // a zip in a pipe is refused
			}
			got, s, err := origins(t, Options{Parquet: openParquet, TempDir: dir, Stdin: bytes.NewReader(content)}, path)
			if err != nil || got != want || s.Files[0].Compression != compression {
				t.Errorf("%s: %s, %v, %+v", compression, got, err, s.Files)
			}
		}
	}
	f(a, "", "0:a.example 1:b.example")
	f(packed(t, "gzip", string(a)), "gzip", "0:a.example 1:b.example")
	f(packed(t, "xz", string(a)), "xz", "0:a.example 1:b.example")
	f(zipped(t, "a.parquet", string(a), "b.parquet", string(b)), "zip", "0:a.example 1:b.example !1 3:c.example")
	if files, err := os.ReadDir(dir); err != nil || runtime.GOOS != "windows" && len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
	_, _, err := origins(t, Options{Parquet: openParquet, TempDir: dir + "/absent", Stdin: bytes.NewReader(a)}, "-")
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Remedy, "TMPDIR") {
		t.Errorf("without a folder for copies: %v", err)
	}
}

func TestParquetErrors(t *testing.T) {
	content := parquetOf(t, rankedRows())
	type pair struct {
		A string `parquet:"a"`
		B string `parquet:"b"`
	}
	f := func(content []byte, opt Options, want ...string) {
		t.Helper()
		if opt.TempDir == "" {
			opt.Parquet = openParquet
		}
		path := listFile(t, "list.parquet", content)
		_, _, err := origins(t, opt, path)
		for _, part := range append(want, "cannot read "+path) {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %v does not say %q", opt, err, part)
			}
		}
	}
	f(content, Options{Column: "host"}, `no column "host"`, `1 "Global Rank", 2 "domain"`, "--column")
	f(content, Options{Column: "9"}, "no column 9, only 6")
	f(content, Options{LabelColumn: "tag"}, `no column "tag"`, `3 "sector"`, "--label-column")
	f(content, Options{Column: "5"}, `"tags.list.element" holds lists`, "one a row")
	f(content, Options{Format: CSV}, "it is a Parquet file", "--format auto")
	f(content, Options{TempDir: "x"}, "it is a Parquet file", "CSV")
	f(parquetOf(t, []pair{{"a.example", "b.example"}}), Options{}, "none of its 2 columns", `1 "a", 2 "b"`, "--column")
	f([]byte("a.example\n"), Options{Format: Parquet}, "no Parquet file", "--format auto")
	f(content[:len(content)-9], Options{}, "damaged")
	f([]byte("PARE\x15\x00\x00\x00"), Options{}, "encrypted")
	type plain struct {
		Host string `parquet:"host,plain"`
	}
	// In a page's header the encoding comes before the two encodings of the levels, which are RLE. Here PLAIN becomes
	// BIT_PACKED.
	plainly := parquetOf(t, []plain{{"a.example"}}, parquet.DataPageVersion(1))
	packed := bytes.Replace(plainly, []byte("\x15\x00\x15\x06\x15\x06"), []byte("\x15\x08\x15\x06\x15\x06"), 1)
	f(packed, Options{}, "encoded as BIT_PACKED", "from line 1 on", "write it anew")

	// Damage that the footer does not show: rows before it are delivered, and the error names its row.
	type row struct {
		Host string `parquet:"host,plain"`
	}
	var rows []row
	for i := range 5000 {
		rows = append(rows, row{fmt.Sprintf("host-%d.example", i)})
	}
	broken := parquetOf(t, rows, parquet.PageBufferSize(4<<10), parquet.Compression(&parquet.Uncompressed))
	for i := range 200 {
		broken[len(broken)/2+i] = 0xff
	}
	path := listFile(t, "broken.parquet", broken)
	got, s, err := origins(t, Options{Parquet: openParquet}, path)
	if e, ok := errors.AsType[*Error](err); !ok || e.Line != s.Lines+1 || s.Entries < 1000 ||
		!strings.HasPrefix(got, "0:host-0.example 1:host-1.example ") {
		t.Errorf("%d entries, %v", s.Entries, err)
	}
	// A text that begins as a table does is text.
	if got, _, err := origins(t, Options{Parquet: openParquet},
		listFile(t, "list", []byte("PAR1S.example\n"))); err != nil || got != "0:par1s.example" {
		t.Errorf("%s, %v", got, err)
	}
}

// endless is a table of one host, again and again.
type endless struct{}

func (endless) Columns() int                { return 1 }
func (endless) Rows() int64                 { return 1 << 62 }
func (endless) Column(int) (string, string) { return "host", "text" }
func (endless) Select(...int) error         { return nil }
func (endless) Next() error                 { return nil }
func (endless) Text(int) ([]byte, bool)     { return []byte("a.example"), true }

// TestTableContext: a table whose rows are all rejected does not delay the end.
func TestTableContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rejects := 0
	r, err := Open(ctx, []string{listFile(t, "list.parquet", []byte("PAR1\x15"))}, Options{
		Parquet: func(io.ReaderAt, int64) (Table, error) { return endless{}, nil },
		Reject: func(Reject) error {
			if rejects++; rejects == 5000 {
				cancel()
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if entries, err := readAll(r); err != context.Canceled || len(entries) != 1 || rejects > 5000+rowsBetween {
		t.Errorf("%d entries, %d rejects, %v", len(entries), rejects, err)
	}
}
