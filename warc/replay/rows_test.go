package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/sink/table"
)

// open opens rows of bytes.
func open(tb testing.TB, text string, columns []inputs.Column) (*inputs.Stream, error) {
	tb.Helper()
	if columns == nil {
		columns = named(tb, "")
	}
	parquet := func(file io.ReaderAt, size int64) (inputs.Table, error) { return table.OpenList(file, size) }
	r := inputs.OpenRows(tb.Context(), []string{"-"}, inputs.Options{Stdin: strings.NewReader(text), Parquet: parquet,
		TempDir: tb.TempDir()}, columns)
	tb.Cleanup(func() { _ = r.Close() })
	return r.NextStream()
}

// lines reads rows, one a line.
func lines(tb testing.TB, text string, columns []inputs.Column) (list []string, err error) {
	tb.Helper()
	in, err := open(tb, text, columns)
	for err == nil {
		var row *inputs.Row
		if row, err = in.Next(); err == nil {
			list = append(list, spelled(row))
		}
	}
	if err == io.EOF {
		err = nil
	}
	return list, err
}

// named are the columns of --columns.
func named(tb testing.TB, text string) []inputs.Column {
	tb.Helper()
	c, err := ParseColumns(text)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// spelled is a row, or its reject.
func spelled(r *inputs.Row) string {
	it, line, row := (&Options{MaxBody: 1 << 20}).item(r), r.Line, cells(r.Cells)
	if it.reason != "" {
		return fmt.Sprintf("%d %.20q: %s", line, it.input, it.reason)
	}
	s := fmt.Sprintf("%d %s", line, it.input)
	if text := row["body"]; text != nil && it.flags&carried == 0 {
		s += fmt.Sprintf(" %.40q", text)
	}
	for _, part := range []struct {
		is   bool
		text string
	}{
		{it.flags&carried != 0, "carried"}, {row.text("status") != "", row.text("status")},
		{!it.when.IsZero(), it.when.Format(time.RFC3339)}, {it.rank != 0, fmt.Sprint("rank ", it.rank)},
		{len(it.label) > 0, string(it.label)}, {len(it.final) > 0, string(it.final)}, {row.text("content_type") != "",
			row.text("content_type")}, {row.text("headers") != "", row.text("headers")},
	} {
		if part.is {
			s += " " + part.text
		}
	}
	return s
}

// TestForms reads rows of each form of text: what is there, what is missing, and what is wrong with which line.
func TestForms(t *testing.T) {
	f := func(what, text string, columns []inputs.Column, want ...string) {
		t.Helper()
		got, err := lines(t, text, columns)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if g, w := strings.Join(got, "\n  "), strings.Join(want, "\n  "); g != w {
			t.Errorf("%s:\n  %s\nwant\n  %s", what, g, w)
		}
	}
	f("JSON lines", "\ufeff"+`{"host":"a.example","body":"User-agent: *\nDisallow: /\u00e9\ud83d\ude00\/","fetched_at":"2024-05-18T12:00:00Z","rank":3}
{"domain":"b.example","content":"","status_code":404,"timestamp":1716033600}

{"url":"https://c.example/robots.txt","text":null,"date":"2024-05-18"}
{"host":"d.example","body":"x","unchanged":true}
{"host":"e.example","body":"x","observed":"False","crawl_date":"20240518"}
{"host":"f.example","body":"x","final_url":"https://www.f.example/robots.txt","content_type":"text/plain","headers":{"Server":"x"}}
`, nil,
		`1 a.example "User-agent: *\nDisallow: /é😀/" 2024-05-18T12:00:00Z rank 3`,
		`2 b.example "" 404 2024-05-18T12:00:00Z`,
		`4 https://c.example/robots.txt 2024-05-18T00:00:00Z`,
		`5 d.example carried`,
		`6 e.example carried 2024-05-18T00:00:00Z`,
		`7 f.example "x" https://www.f.example/robots.txt text/plain {"Server":"x"}`)
	f("columns within objects, and a label",
		`{"site":{"name":"a.example","kind":"news"},"response":{"text":"x","code":200}}`+"\n",
		named(t, "host=site.name,body=response.text,status=response.code,label=site.kind"), `1 a.example "x" 200 news`)
	f("bad objects", `{"host":"a.example","body":"x"}
{"host":"b.example","body":"x"
not JSON
{"host":"","body":"x"}
{"host":"c.example","body":"x","status":"many"}
{"host":"c.example","body":"x","status":700}
{"host":"c.example","body":"x","status":-1}
{"host":"c.example","body":"x","fetched_at":"yesterday"}
{"host":"c.example","body":"x","observed":"perhaps"}
{"host":"d.example","body":"x"}`, nil,
		`1 a.example "x"`,
		`2 "{\"host\":\"b.example\",": not a JSON object`,
		`3 "not JSON": not a JSON object`,
		`4 "{\"host\":\"\",\"body\":\"x": it has no host`,
		`5 "c.example": its status is no number from 100 to 599`,
		`6 "c.example": its status is no number from 100 to 599`,
		`7 c.example "x" -1`,
		`8 "c.example": its date is in no known form`,
		`9 "c.example": whether it was observed is neither true nor false`,
		`10 d.example "x"`)
	deep := func(levels int) string {
		return `{"host":"a.example","body":"x","deep":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + "}\n"
	}
	f("a deep object costs itself, and no memory", deep(99)+deep(100)+deep(1<<20), nil,
		`1 a.example "x"`, `2 "{\"host\":\"a.example\",": not a JSON object`,
		`3 "{\"host\":\"a.example\",": not a JSON object`)
	f("texts in the place of objects, and the other way round", `{"host":"a.example","body":"x","headers":{"Server":"x"}}
{"host":"b.example","body":{"text":"x"}}
{"host":["c.example"],"body":"x"}
{"host":"d.example","body":"x","status":[200]}
{"host":"e.example","body":null,"text":"x","observed":true}
{"host":"f.example","body":"\ud800x\u00e9\/\"\\\b\f\r\t"}
`, nil, `1 a.example "x" {"Server":"x"}`,
		`2 "{\"host\":\"b.example\",": its body is an object or a list, and no text`,
		`3 "{\"host\":[\"c.example\"": its host is an object or a list, and no text`,
		`4 "{\"host\":\"d.example\",": its status is an object or a list, and no text`,
		`5 e.example "x"`,
		`6 f.example "�xé/\"\\\b\f\r\t"`)
	f("a huge line costs itself", `{"host":"a.example","body":"`+strings.Repeat("x", inputs.MaxRow)+"\"}\n"+
		`{"host":"b.example","body":"`+strings.Repeat(`\u0041`, 1<<20)+`"}`, nil,
		`1 "{\"host\":\"a.example\",": the row is longer than 8 MiB, or a quoted cell is not closed`,
		`2 b.example "`+strings.Repeat("A", 40)+`"`)
	f("CSV",
		"Host,Body,Status,Fetched-At\r\na.example,\"User-agent: *\r\nDisallow: \"\"/\"\"\r\n\",200,2024-05-18\r\nb.example,,404,\n\nc.example,x,,\n", nil,
		`2 a.example "User-agent: *\r\nDisallow: \"/\"\r\n" 200 2024-05-18T00:00:00Z`,
		`5 b.example "" 404`,
		`7 c.example "x"`)
	f("a huge record behind blank lines costs its first line, and what is behind its tail are rows", "host,body,rank\n"+
		strings.Repeat("\r\n", 300)+"a.example,"+strings.Repeat("x\"\"", inputs.MaxRow/2)+
		"\n \nb.example,x, 3.0\nc.example,\"y", nil,
		`302 "a.example,x\"\"x\"\"x\"\"x": the row is longer than 8 MiB, or a quoted cell is not closed`,
		`304 b.example "x" rank 3`,
		`305 "c.example,\"y": the row is longer than 8 MiB, or a quoted cell is not closed`)
	f("CSV by tabs and numbers", "a\tb\tc\n1-a.example\tx\tnews\n", named(t, "host=1,body=2,label=c"),
		`2 1-a.example "x" news`)
	f("two columns with dates: the first of the usual names",
		"date,host,body,fetched_at\n2020-01-01,a.example,x,2024-05-18\n", nil, `2 a.example "x" 2024-05-18T00:00:00Z`)
	f("bad records", "host,body\na.example,x\nb.example\nc.example,\"x\"y\nd.example,\"never\nclosed\ne.example,x\n", nil,
		`2 a.example "x"`,
		`3 "b.example": the row has 1 cells, and the header 2`,
		`4 "c.example,\"x\"y": text after a quoted cell`,
		`5 "d.example,\"never": the row is longer than 8 MiB, or a quoted cell is not closed`,
		`6 "closed": the row has 1 cells, and the header 2`,
		`7 e.example "x"`)

	huge, err := lines(t, "host,body\na.example,\""+strings.Repeat(strings.Repeat("x", 999)+"\n", inputs.MaxRow/1000+1)+
		"\"\nb.example,x\nc.example,\"y\"\n", nil)
	if n := len(huge); err != nil || n < 8000 || !strings.HasSuffix(huge[0], "quoted cell is not closed") ||
		huge[n-1] != `8393 c.example "y"` {
		t.Errorf("%d rows of a huge cell, %v, %q", n, err, huge[max(0, n-3):])
	}
}

// TestDates reads every form of a date.
func TestDates(t *testing.T) {
	want := time.Date(2024, 5, 18, 12, 30, 15, 0, time.UTC)
	for _, text := range []string{
		"2024-05-18T12:30:15Z", "2024-05-18T14:30:15+02:00", "2024-05-18T14:30:15+0200", "2024-05-18 12:30:15",
		"2024-05-18T12:30:15", "2024-05-18 12:30:15+00:00", "2024-05-18 12:30:15 UTC",
		"20240518123015", "1716035415", "1716035415000", "1716035415000000", "1716035415000000000", "1716035415.0",
		"Sat, 18 May 2024 12:30:15 GMT",
	} {
		if got, ok := parseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "x", "18.05.2024", "2024-13-01", "123456789012", "20241301", "1e9", "-5", ".",
		"99999999999999999999"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestUnknownColumns shows that the error names the existing columns, and the remedy.
func TestUnknownColumns(t *testing.T) {
	f := func(text string, columns []inputs.Column, wants ...string) {
		t.Helper()
		_, err := lines(t, text, columns)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
	f(`{"page":"a.example","robots":"x"}`, nil, `known to hold hosts (1 "page", 2 "robots")`, "--columns host=NAME")
	f(`{"host":"a.example","words":"x"}`, nil, `known to hold bodies (1 "host", 2 "words")`, "--columns body=NAME")
	f("page,robots\na,b\n", nil, `known to hold hosts (1 "page", 2 "robots")`, "--columns host=NAME")
	f("host,words\na,b\n", nil, `known to hold bodies (1 "host", 2 "words")`)
	f("host,body\na,b\n", named(t, "status=code"), `it has no column "code", but 1 "host", 2 "body"`,
		"--columns status=NAME")
	f("[{}]", nil, "write one object a line")
	f("\x00\x01\x02", nil, "neither JSON lines nor CSV")
	for _, text := range []string{"body", "=x", "body=", "size=x", "body=x,"} {
		if _, err := ParseColumns(text); err == nil || !strings.Contains(err.Error(), "WHAT is one of host, status") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err := ParseColumns("body=robots, host=site"); err != nil || c[5].Names[0] != "robots" ||
		c[0].Names[0] != "site" {
		t.Error(c, err)
	}
}

// TestFolder reads files by their names.
func TestFolder(t *testing.T) {
	folder := t.TempDir()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("packed")) // to memory
	_ = z.Close()
	for name, content := range map[string]string{
		"a.example.txt": "A", "7-b.example.txt": "B", "7-up.txt": "U", "c.example/robots.txt": "C",
		"deep/er/d.example.txt.gz": packed.String(), "e.example.txt": strings.Repeat("line\n", 300), "f.html": "F",
		"g.example.txt.gz": "no gzip",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	rows, rejects, _ := read(t, Options{}, folder)
	equal(t, "rows", rows, `0 b.example answered 200 "B"`, `2 a.example answered 200 "A"`, `3 c.example answered 200 "C"`,
		`4 d.example answered 200 "packed"`,
		`5 e.example answered 200 "`+strings.Repeat(`line\n`, 200)+`"`, `7 g.example answered 200 "no gzip"`)
	if len(rejects) != 2 || !strings.Contains(rejects[0], ":2 7-up: ") ||
		rejects[1] != "0:7 f.html: its name is neither HOST.txt nor HOST/robots.txt" {
		t.Errorf("%q", rejects)
	}
	for name, want := range map[string]string{
		"x/7-b.example.txt": "7 b.example ", "7-up.txt": " 7-up ", "x/c.example/robots.txt": " c.example ",
		"7-c.example/robots.txt.xz": " 7-c.example .xz", "a.example.txt.bz2": " a.example .bz2", "x.txt.lz4": "",
		"robots.html": "",
	} {
		got := ""
		if part := fileName.FindStringSubmatch(name); part != nil {
			got = part[2] + " " + part[1] + part[3] + part[4] + " " + part[5]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// FuzzText checks that any text is read without an internal failure, and that each row has an existing line.
func FuzzText(f *testing.F) {
	f.Add("host,body\na,\"b\"\"\n\"\n")
	f.Add("{\"host\":\"a\",\"body\":\"\\ud800x\"}\n{")
	f.Add("host\tbody\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := open(t, text, nil)
		if err != nil {
			return
		}
		lines, last := uint64(strings.Count(text, "\n"))+1, uint64(0)
		for {
			row, err := in.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if row.Line > lines || row.Line < last {
				t.Fatalf("line %d of %d, after %d", row.Line, lines, last)
			}
			spelled(row)
			last = row.Line
		}
	})
}

// TestParquet reads rows of Parquet, with dates as times, nulls, and columns that are named by the user or are of no
// use.
func TestParquet(t *testing.T) {
	type row struct {
		Site      string   `parquet:"site_name"`
		Body      *string  `parquet:"body,optional"`
		Status    *int32   `parquet:"status,optional"`
		At        int64    `parquet:"fetched_at,timestamp(microsecond)"`
		Unchanged *bool    `parquet:"unchanged,optional"`
		Headers   []string `parquet:"headers,list"`
	}
	at, body, status, yes := time.Date(2024, 5, 18, 12, 30, 15, 0, time.UTC).UnixMicro(), "User-agent: *\n", int32(404),
		true
	var file bytes.Buffer
	w := parquet.NewGenericWriter[row](&file)
	if _, err := w.Write([]row{{"a.example", &body, nil, at, nil, nil}, {"b.example", nil, &status, at, nil, nil},
		{"c.example", &body, nil, at, &yes, []string{"x"}}, {"", nil, nil, 0, nil, nil}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, file.String(), nil); err == nil || !strings.Contains(err.Error(),
		`known to hold hosts (1 "site_name", `) {
		t.Error(err)
	}
	if _, err := open(t, file.String(), named(t, "host=site_name,headers=headers.list.element")); err == nil ||
		!strings.Contains(err.Error(), "holds lists") {
		t.Error(err)
	}
	in, err := open(t, file.String(), named(t, "host=site_name"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`1 a.example "User-agent: *\n" 2024-05-18T12:30:15Z`,
		`2 b.example 404 2024-05-18T12:30:15Z`, `3 c.example carried 2024-05-18T12:30:15Z`, `4 "": it has no host`} {
		row, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := spelled(row); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if _, err := in.Next(); err != io.EOF {
		t.Error(err)
	}
}
