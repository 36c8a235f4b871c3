package bodies

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

	"github.com/bulkscan/bulkscan/inputs"
)

// rows reads a stream of text, a row a line.
func rows(tb testing.TB, text string, columns Columns) (list []string, err error) {
	tb.Helper()
	r := Open(tb.Context(), []string{"-"}, columns, inputs.Options{Stdin: strings.NewReader(text)})
	if _, err := r.NextStream(); err != nil {
		return nil, err
	}
	for {
		row, err := r.Next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, spelled(row))
	}
}

// named are the columns of --columns.
func named(tb testing.TB, text string) Columns {
	tb.Helper()
	c, err := ParseColumns(text)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func spelled(r *Row) string {
	if r.Reason != "" {
		return fmt.Sprintf("%d %.20q: %s", r.Line, r.Text, r.Reason)
	}
	s := fmt.Sprintf("%d %s", r.Line, r.Site)
	if r.Body != nil {
		s += fmt.Sprintf(" %.40q", r.Body)
	}
	for _, part := range []struct {
		is   bool
		text string
	}{
		{r.Carried, "carried"}, {r.Status != 0, fmt.Sprint(r.Status)}, {!r.At.IsZero(), r.At.Format(time.RFC3339)}, {r.Rank != 0, fmt.Sprint("rank ", r.Rank)},
		{len(r.Label) > 0, string(r.Label)}, {len(r.FinalURL) > 0, string(r.FinalURL)}, {len(r.ContentType) > 0, string(r.ContentType)}, {len(r.Headers) > 0, string(r.Headers)},
	} {
		if part.is {
			s += " " + part.text
		}
	}
	return s
}

// TestForms reads rows of each form of text: what is there, what is missing, and what is wrong with which line.
func TestForms(t *testing.T) {
	f := func(what, text string, columns Columns, want ...string) {
		t.Helper()
		got, err := rows(t, text, columns)
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
	f("columns within objects, and a label", `{"site":{"name":"a.example","kind":"news"},"response":{"text":"x","code":200}}`+"\n",
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
	f("a huge line costs itself", `{"host":"a.example","body":"`+strings.Repeat("x", inputs.MaxRow)+"\"}\n"+`{"host":"b.example","body":"`+strings.Repeat(`\u0041`, 1<<20)+`"}`, nil,
		`1 "{\"host\":\"a.example\",": the row is longer than 8 MiB, or a quoted cell is not closed`,
		`2 b.example "`+strings.Repeat("A", 40)+`"`)
	f("CSV", "Host,Body,Status,Fetched-At\r\na.example,\"User-agent: *\r\nDisallow: \"\"/\"\"\r\n\",200,2024-05-18\r\nb.example,,404,\n\nc.example,x,,\n", nil,
		`2 a.example "User-agent: *\r\nDisallow: \"/\"\r\n" 200 2024-05-18T00:00:00Z`,
		`5 b.example "" 404`,
		`7 c.example "x"`)
	f("CSV by tabs and numbers", "a\tb\tc\n1-a.example\tx\tnews\n", named(t, "host=1,body=2,label=c"), `2 1-a.example "x" news`)
	f("two columns with dates: the first of the usual names", "date,host,body,fetched_at\n2020-01-01,a.example,x,2024-05-18\n", nil, `2 a.example "x" 2024-05-18T00:00:00Z`)
	f("bad records", "host,body\na.example,x\nb.example\nc.example,\"x\"y\nd.example,\"never\nclosed\ne.example,x\n", nil,
		`2 a.example "x"`,
		`3 "b.example": the row has 1 cells, and the header 2`,
		`4 "c.example,\"x\"y": text after a quoted cell`,
		`5 "d.example,\"never": the row is longer than 8 MiB, or a quoted cell is not closed`,
		`6 "closed": the row has 1 cells, and the header 2`,
		`7 e.example "x"`)

	huge, err := rows(t, "host,body\na.example,\""+strings.Repeat(strings.Repeat("x", 999)+"\n", inputs.MaxRow/1000+1)+"\"\nb.example,x\nc.example,\"y\"\n", nil)
	if n := len(huge); err != nil || n < 8000 || !strings.HasSuffix(huge[0], "quoted cell is not closed") || huge[n-1] != `8393 c.example "y"` {
		t.Errorf("%d rows of a huge cell, %v, %q", n, err, huge[max(0, n-3):])
	}
}

// TestDates reads every form of a date.
func TestDates(t *testing.T) {
	want := time.Date(2024, 5, 18, 12, 30, 15, 0, time.UTC)
	for _, text := range []string{
		"2024-05-18T12:30:15Z", "2024-05-18T14:30:15+02:00", "2024-05-18T14:30:15+0200", "2024-05-18 12:30:15", "2024-05-18T12:30:15", "2024-05-18 12:30:15+00:00", "2024-05-18 12:30:15 UTC",
		"20240518123015", "1716035415", "1716035415000", "1716035415000000", "1716035415000000000", "1716035415.0", "Sat, 18 May 2024 12:30:15 GMT",
	} {
		if got, ok := parseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "x", "18.05.2024", "2024-13-01", "123456789012", "20241301", "1e9", "-5", ".", "99999999999999999999"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestUnknownColumns names the columns that there are, and the remedy.
func TestUnknownColumns(t *testing.T) {
	f := func(text string, columns Columns, wants ...string) {
		t.Helper()
		_, err := rows(t, text, columns)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
	f(`{"page":"a.example","robots":"x"}`, nil, `known to hold hosts ("page", "robots")`, "--columns host=NAME")
	f(`{"host":"a.example","words":"x"}`, nil, `known to hold bodies ("host", "words")`, "--columns body=NAME")
	f("page,robots\na,b\n", nil, `known to hold hosts ("page", "robots")`, "--columns host=NAME")
	f("host,words\na,b\n", nil, `known to hold bodies ("host", "words")`)
	f("host,body\na,b\n", named(t, "status=code"), `is called "code" ("host", "body")`, "--columns status=NAME")
	f("[{}]", nil, "write one object a line")
	f("\x00\x01\x02", nil, "neither JSON lines nor CSV")
	for _, text := range []string{"body", "=x", "body=", "size=x", "body=x,"} {
		if _, err := ParseColumns(text); err == nil || !strings.Contains(err.Error(), "WHAT is one of host, body") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err := ParseColumns("body=robots, host=site"); err != nil || c[body].Names[0] != "robots" || c[site].Names[0] != "site" {
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
		"a.example.txt": "A", "7-b.example.txt": "B", "7-up.txt": "U", "c.example/robots.txt": "C", "deep/er/d.example.txt.gz": packed.String(), "e.example.txt": strings.Repeat("x", 100), "f.html": "F", "g.example.txt.gz": "no gzip",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		row, err := ReadFile(t.Context(), file, 10)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.ReplaceAll(spelled(row), folder, ""))
	}
	want := []string{`0 b.example "B" rank 7`, `0 7-up "U"`, `0 a.example "A"`, `0 c.example "C"`, `0 d.example "packed"`, `0 e.example "` + strings.Repeat("x", 11) + `"`}
	if len(got) != len(want)+2 || !strings.HasPrefix(strings.Join(got, "\n"), strings.Join(want, "\n")+"\n") || !strings.Contains(got[6], "neither HOST.txt nor HOST/robots.txt") || got[7] != `0 g.example "no gzip"` {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// FuzzText reads any text without a failure of ours, and gives each row a line that there is.
func FuzzText(f *testing.F) {
	f.Add("host,body\na,\"b\"\"\n\"\n")
	f.Add("{\"host\":\"a\",\"body\":\"\\ud800x\"}\n{")
	f.Add("host\tbody\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		r := Open(t.Context(), []string{"-"}, nil, inputs.Options{Stdin: strings.NewReader(text)})
		if _, err := r.NextStream(); err != nil {
			return
		}
		lines, last := uint64(strings.Count(text, "\n"))+1, uint64(0)
		for {
			row, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if row.Line > lines || row.Line < last {
				t.Fatalf("line %d of %d, after %d", row.Line, lines, last)
			}
			last = row.Line
		}
	})
}
