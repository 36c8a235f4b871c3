package replay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/inputs"
)

// file writes a file of the name.
func file(tb testing.TB, name, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// dated is answer with a date.
func dated(uri, date, text string) string {
	return strings.Replace(answer(uri, text), "Content-Type:", "WARC-Date: "+date+"T12:00:00Z\r\nContent-Type:", 1)
}

// TestNights divides captures and rows by day, month and crawl, whatever their order. A redirect leads to captures of
// its own night.
func TestNights(t *testing.T) {
	const a, plainA = "https://a.example/robots.txt", "http://a.example/robots.txt"
	first := write(t, dated(a, "2024-05-19", "200 A19\n"), dated(plainA, "2024-05-18", "301 "+a),
		dated(a, "2024-06-01", "404 "))
	second := write(t, dated(plainA, "2024-05-19", "301 "+a), dated(a, "2024-05-18", "503 "),
		dated(a, "2024-05-18", "200 A18\n"))
	crawled := file(t, "CC-MAIN-2024-22/segments/1.warc", dated("https://b.example/robots.txt", "2024-05-20", "200 B20\n")+
		dated("https://b.example/robots.txt", "2024-05-27", "200 B27\n"))
	named := write(t, captured("warcinfo", "", "Content-Type: application/warc-fields\r\n", "isPartOf: TEST-7\r\n")+
		dated(a, "2024-05-18", "200 T\n"))
	f := func(by By, want map[string][]string, wantRejects int, paths ...string) {
		t.Helper()
		nights, rejects, _ := readAll(t, Options{By: by}, paths...)
		for date, rows := range nights {
			for i := range rows {
				_, rows[i], _ = strings.Cut(rows[i], " ")
			}
			equal(t, string(by)+" "+date, rows, want[date]...)
		}
		if len(nights) != len(want) || len(rejects) != wantRejects {
			t.Errorf("%s: nights %v, rejects %q", by, slices.Sorted(maps.Keys(nights)), rejects)
		}
	}
	f(Day, map[string][]string{
		"2024-05-18": {`http://a.example answered 200 301→https://a.example/robots.txt "A18\n"`,
			`https://a.example answered 200 "A18\n"`},
		"2024-05-19": {`https://a.example answered 200 "A19\n"`,
			`http://a.example answered 200 301→https://a.example/robots.txt "A19\n"`},
		"2024-06-01": {`https://a.example answered 404`},
	}, 1, first, second)
	f(Month, map[string][]string{
		"2024-05-19": {`https://a.example answered 200 "A19\n"`,
			`http://a.example answered 200 301→https://a.example/robots.txt "A19\n"`},
		"2024-06-01": {`https://a.example answered 404`},
	}, 3, first, second)
	f(Crawl, map[string][]string{
		"2024-05-27": {`https://b.example answered 200 "B20\n"`},
		"2024-05-18": {`https://a.example answered 200 "T\n"`},
	}, 4, crawled, named, second)
}

// TestRows makes answers from rows as a scan would, and marks rows that were not observed.
func TestRows(t *testing.T) {
	path := file(t, "x.jsonl", `{"host":"a.example","body":"User-agent: *\n","date":"2024-05-18"}
{"host":"b.example","body":"","date":"2024-05-18"}
{"host":"c.example","body":"","status":200,"date":"2024-05-18"}
{"host":"http://d.example/","body":"x","status":404,"date":"2024-05-18"}
{"host":"e.example","body":"x","status":503,"date":"2024-05-18"}
{"host":"f.example","body":"x","unchanged":true,"date":"2024-05-18"}
{"host":"g.example","status":301,"headers":{"location":"http://d.example/robots.txt"},"date":"2024-05-18"}
{"host":"h.example","body":"x","headers":"HTTP/1.1 200 OK\nContent-Length: 99\nContent-Encoding: gzip\nServer: y\r\nEvil: a\rb\n","date":"2024-05-18"}
{"host":"i.example","body":"`+strings.Repeat(`line\n`, 300)+`","date":"2024-05-18"}
{"host":"a.example","body":"again","date":"2024-05-18"}
{"host":"e.example","body":"better","date":"2024-05-18"}
{"host":"f.example","body":"seen","date":"2024-05-18"}
{"host":"a.example","body":"next night","date":"2024-05-19"}
{"host":"https://a.example/robots.txt","body":"x","date":"2024-05-18"}
{"host":"j.example","body":"x"}
{"host":"j.example","body":"x","date":"1980-01-01"}
{"host":"j.example","body":"x","date":"2031-01-01"}
{"host":"ftp://j.example","body":"x","date":"2024-05-18"}
{"host":"192.0.2.0/24","body":"x","date":"2024-05-18"}
{"host":"k.example","body":"x","final_url":"mailto:x","date":"2024-05-18"}
{"host":"l.example","body":"x","status":0,"date":"2024-05-18"}
`)
	nights, rejects, n := readAll(t, Options{Columns: named(t, "")}, path)
	equal(t, "first night", nights["2024-05-18"],
		`0 a.example answered 200 "User-agent: *\n"`,
		`1 b.example not_archived`,
		`2 c.example answered 200`,
		`3 http://d.example answered 404`,
		`6 g.example answered 404 301→http://d.example/robots.txt`,
		`7 h.example answered 200 "x"`,
		`8 i.example answered 200 "`+strings.Repeat(`line\n`, 200)+`"`,
		`10 e.example answered 200 "better"`,
		`11 f.example answered 200 "seen"`,
		`20 l.example not_archived`)
	equal(t, "second night", nights["2024-05-19"], `12 a.example answered 200 "next night"`)
	equal(t, "rejects", rejects,
		"0:5 e.example: another capture of the same file counts",
		"0:6 f.example: another capture of the same file counts",
		"0:10 a.example: another capture of the same file counts",
		"0:14 https://a.example/robots.txt: another capture of the same file counts",
		"0:15 j.example: it has no date, and --date gives none",
		"0:16 j.example: its date is before 1994 or in the future",
		"0:17 j.example: its date is before 1994 or in the future",
		"0:18 ftp://j.example: its scheme is neither http nor https",
		"0:19 192.0.2.0/24: an address range is no origin",
		"0:20 k.example: its final URL is no http or https URL")
	if found := n.Found(); found.NoBody != 2 || found.Carried != 1 || found.NoStatus != 8 || found.Rows != 15 {
		// rejects are not judged
		t.Errorf("%+v", found)
	}
	carried, _, _ := readAll(t, Options{Columns: named(t, "")},
		file(t, "x.csv", "host,body,observed,date\na.example,x,false,2024-05-18\n"))
	equal(t, "carried", carried["2024-05-18"], `0 a.example carried`)
}

// TestSkip skips nights, wherever their records are. Their rejects go to the first night, and the other nights are
// complete.
func TestSkip(t *testing.T) {
	var rows strings.Builder
	for i := range 300 {
		fmt.Fprintf(&rows, "{\"host\":\"%d.example\",\"body\":\"x\",\"date\":\"2024-05-%d\"}\n", i, 18+i%3)
	}
	path := file(t, "x.jsonl", rows.String()+"rubbish\n")
	for skipped := range 8 { // bits: of the nights
		n, err := Read(t.Context(), []string{path}, newFetcher(t), Options{MaxBody: 1000, Columns: named(t, ""),
			runBytes: 500, Now: time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rejects := 0
		for i := range 3 {
			night := n.Next()
			night.Reject = func(inputs.Reject) error { rejects++; return nil }
			if skipped>>i&1 == 1 {
				if err := night.Skip(); err != nil {
					t.Error(err)
				}
			} else if rows := rowsOf(t, night); len(rows) != 100 {
				t.Errorf("%b: night %d has %d rows", skipped, i, len(rows))
			}
		}
		if n.Next() != nil || rejects != 1 {
			t.Errorf("%b: another night, or %d rejects", skipped, rejects)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSpool merges many runs of random records into the order of a sort, and finds the first of each site, in any
// order.
func TestSpool(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	site := func(night uint32, i int) []byte {
		return siteKey(night, fmt.Appendf(nil, "%s://%d.example/robots.txt", []string{"http", "https"}[i%2], i/2))
	}
	for _, limit := range []int{1, 100, 5_000, runBytes} {
		s := sorter{limit: limit}
		var want []string
		first := map[string]string{}
		for i := range 3000 {
			r := record{seq: uint64(i), block: make([]byte, random.IntN(200))}
			key := site(uint32(random.IntN(3)), random.IntN(1000))
			r.key = binary.BigEndian.AppendUint64(key, r.seq)
			if err := s.add(&r); err != nil {
				t.Fatal(err)
			}
			want = append(want, string(r.key))
			first[string(key)] = cmp.Or(first[string(key)], string(r.key))
		}
		slices.Sort(want)
		runs, err := s.sorted(t.Context(), limit == 100)
		if err != nil || limit == 100 && len(runs) != 1 || limit == 1 && len(runs) != 3000 {
			t.Fatal(len(runs), err)
		}
		c, err := newMerger(runs)
		var got []string
		for ; err == nil && !c[0].ended; err = c.next() {
			got = append(got, string(c[0].key))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("limit %d: %d records, want %d; %v", limit, len(got), len(want), err)
		}
		for _, i := range random.Perm(3000) {
			key := site(uint32(i/1000), i%1000)
			if err := c.seek(key); err != nil {
				t.Fatal(err)
			}
			got := ""
			if !c[0].ended && bytes.Equal(c[0].site(), key) {
				got = string(c[0].key)
			}
			if got != first[string(key)] {
				t.Fatalf("limit %d: %q is found by %q, want %q", limit, got, key, first[string(key)])
			}
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
