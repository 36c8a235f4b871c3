package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/sink/compact"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
	"github.com/bulkscan/bulkscan/store"
	"github.com/parquet-go/parquet-go"
)

// falseBounds reads a file like a reader that skips pages by column indexes and row groups by statistics. It returns
// the columns whose bounds do not include all values or whose chunks have other names, and the columns with an index.
func falseBounds(t testing.TB, st store.Store, name string) (lies, indexed []string) {
	t.Helper()
	data, err := store.ReadAll(t.Context(), st, name, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for g, group := range file.RowGroups() {
		for i, chunk := range group.ColumnChunks() {
			meta := file.Metadata().RowGroups[g].Columns[i].MetaData
			column := strings.Join(meta.PathInSchema, ".")
			if named := strings.Join(file.Schema().Columns()[i], "."); column != named {
				lies = append(lies, fmt.Sprintf("%s: row group %d: the chunk calls itself %q", named, g, column))
			}
			index, err := chunk.ColumnIndex()
			if err != nil && !errors.Is(err, parquet.ErrMissingColumnIndex) {
				t.Fatal(name, column, err)
			}
			if err == nil && !slices.Contains(indexed, column) {
				indexed = append(indexed, column)
			}
			if what := falseChunk(t, chunk, index, meta.Statistics.MinValue, meta.Statistics.MaxValue); what != "" {
				lies = append(lies, fmt.Sprintf("%s: row group %d: %s", column, g, what))
			}
		}
	}
	return lies, indexed
}

// falseChunk compares the values of a chunk with its bounds, and with those of its pages if it has an index.
func falseChunk(t testing.TB, chunk parquet.ColumnChunk, index parquet.ColumnIndex, least, most []byte) string {
	t.Helper()
	kind := chunk.Type()
	pages := chunk.Pages()
	defer pages.Close()
	p := 0
	for ; ; p++ {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if index != nil && p >= index.NumPages() {
			return fmt.Sprintf("more pages than the %d of its index", index.NumPages())
		}
		values := make([]parquet.Value, page.NumValues())
		if n, err := page.Values().ReadValues(values); n != len(values) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(n, err)
		}
		for _, v := range values {
			if v.IsNull() {
				continue
			}
			if least != nil && kind.Compare(v, kind.Kind().Value(least)) < 0 || most != nil &&
				kind.Compare(v, kind.Kind().Value(most)) > 0 {
				return fmt.Sprintf("%q is not between %q and %q", v, least, most)
			}
			if index == nil {
				continue
			}
			if index.NullPage(p) || kind.Compare(v, index.MinValue(p)) < 0 || kind.Compare(v, index.MaxValue(p)) > 0 {
				return fmt.Sprintf("%.40q is in page %d, from %q to %q", v, p, index.MinValue(p), index.MaxValue(p))
			}
			if found := parquet.Search(index, v, kind); found > p {
				return fmt.Sprintf("%.40q is in page %d, and looked for from page %d on", v, p, found)
			}
		}
	}
	if index != nil && p != index.NumPages() {
		return fmt.Sprintf("%d pages, %d in its index", p, index.NumPages())
	}
	return ""
}

// trueBounds checks all Parquet files of a dataset and returns their number.
func trueBounds(t testing.TB, st store.Store) (files int) {
	t.Helper()
	for entry, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(entry.Name, ".parquet") {
			files++
			if lies, _ := falseBounds(t, st, entry.Name); len(lies) > 0 {
				t.Errorf("%s: %d columns, such as %s", entry.Name, len(lies), lies[0])
			}
		}
	}
	return files
}

// TestBounds shows for every table that a reader which skips pages by their bounds finds every value, and that the
// columns with `stats` have bounds.
func TestBounds(t *testing.T) {
	boundsOf[schema.SiteRow](t, schema.Sites, "scan_id")
	boundsOf[schema.VerdictRow](t, schema.Verdicts, "origin")
	boundsOf[schema.EvidenceRow](t, schema.Evidence, "origin")
	boundsOf[schema.BodyRow](t, schema.Bodies)
	boundsOf[schema.TokenStatsRow](t, schema.TokenStats)
	boundsOf[schema.RecordStatsRow](t, schema.RecordStats)
}

// boundsOf writes three files with one writer: one of many pages and two row groups, a further one, and one without
// rows.
func boundsOf[T any](t *testing.T, name string, want ...string) {
	t.Helper()
	dir := newDir(t)
	row := reflect.TypeFor[T]()
	for i := range row.NumField() {
		if row.Field(i).Tag.Get("stats") != "" {
			want = append(want, schema.ColumnName(row.Field(i)))
		}
	}
	w := table.NewWriter[T](name, detailRows, table.MinPageBytes, map[string]string{table.MetaTool: "test"})
	rows := hardRows[T](3000)
	for _, n := range []int{3000, 1000, 0} {
		file := fmt.Sprintf("%s/%d", name, n)
		err := w.Begin(t.Context(), dir, file)
		if err == nil {
			err = w.Write(rows[:n/3])
		}
		if err == nil {
			err = errors.Join(w.EndGroup(), w.Write(rows[n/3:n]), w.Seal(), w.Publish(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		size := w.Out.Size
		if err := w.Discard(); err != nil {
			t.Fatal(err)
		}
		compareRows(t, dir, file, rows[:n])
		lies, indexed := falseBounds(t, dir, file)
		for _, lie := range lies {
			t.Errorf("%s: %s", file, lie)
		}
		if n > 0 && !slices.Equal(indexed, want) {
			t.Errorf("%s: bounds of %q, want %q", file, indexed, want)
		}
		if object, err := dir.Open(t.Context(), file); err != nil || object.Size() != size {
			t.Errorf("%s: %v, not %d bytes", file, err, size)
		}
	}
}

// TestBoundsOfScans shows the same for whole scans and merged parts.
func TestBoundsOfScans(t *testing.T) {
	dir := smallDataset(t)
	if n := trueBounds(t, dir); n != 18 {
		t.Errorf("%d files", n)
	}
	mustCompact(t, dir, compact.Options{})
	if n := trueBounds(t, dir); n != 8 {
		t.Errorf("%d files", n)
	}
}
