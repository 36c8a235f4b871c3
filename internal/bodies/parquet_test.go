package bodies

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/inputs"
	sinktable "github.com/bulkscan/bulkscan/sink/table"
)

// TestParquet reads rows of Parquet, with dates as times, nulls, and columns that are named by the user or are of no use.
func TestParquet(t *testing.T) {
	type row struct {
		Site      string   `parquet:"site_name"`
		Body      *string  `parquet:"body,optional"`
		Status    *int32   `parquet:"status,optional"`
		At        int64    `parquet:"fetched_at,timestamp(microsecond)"`
		Unchanged *bool    `parquet:"unchanged,optional"`
		Headers   []string `parquet:"headers,list"`
	}
	at, body, status, yes := time.Date(2024, 5, 18, 12, 30, 15, 0, time.UTC).UnixMicro(), "User-agent: *\n", int32(404), true
	var file bytes.Buffer
	w := parquet.NewGenericWriter[row](&file)
	if _, err := w.Write([]row{{"a.example", &body, nil, at, nil, nil}, {"b.example", nil, &status, at, nil, nil}, {"c.example", &body, nil, at, &yes, []string{"x"}}, {"", nil, nil, 0, nil, nil}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(file io.ReaderAt, size int64) (inputs.Table, error) { return sinktable.OpenList(file, size) }
	read := func(columns Columns) (*Reader, error) {
		r := Open(t.Context(), []string{"-"}, columns, inputs.Options{Stdin: bytes.NewReader(file.Bytes()), Parquet: open, TempDir: t.TempDir()})
		t.Cleanup(func() { _ = r.Close() })
		_, err := r.NextStream()
		return r, err
	}
	if _, err := read(nil); err == nil || !strings.Contains(err.Error(), `known to hold hosts ("site_name", `) {
		t.Error(err)
	}
	if _, err := read(named(t, "host=site_name,headers=headers.list.element")); err == nil || !strings.Contains(err.Error(), "holds lists") {
		t.Error(err)
	}
	r, err := read(named(t, "host=site_name"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`1 a.example "User-agent: *\n" 2024-05-18T12:30:15Z`, `2 b.example 404 2024-05-18T12:30:15Z`, `3 c.example carried 2024-05-18T12:30:15Z`, `4 "": it has no host`} {
		row, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := spelled(row); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}
