package replay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/origin/exchange"
)

type noNames struct{}

func (noNames) Lookup(context.Context, string) resolve.Answer {
	panic("an archive needs no name server")
}

func newFetcher(tb testing.TB) *fetcher.Fetcher {
	tb.Helper()
	f, err := fetcher.New(fetcher.Config{UserAgent: "test", MaxBody: 1000, MaxRedirects: 3, Resolver: noNames{}})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// captured is the text of a record: its kind and its URI, fields that end in line ends, and a block.
func captured(kind, uri, fields, block string) string {
	if !strings.Contains(fields, "Content-Type") {
		fields += "Content-Type: application/http; msgtype=response\r\n"
	}
	return fmt.Sprintf("WARC/1.0\r\nWARC-Type: %s\r\nWARC-Target-URI: %s\r\n%sContent-Length: %d\r\n\r\n%s\r\n\r\n", kind,
		uri, fields, len(block), block)
}

// answer is the text of a capture: `200 body` or `301 location`.
func answer(uri, text string) string {
	status, rest, _ := strings.Cut(text, " ")
	if status[0] == '3' {
		return captured("response", uri, "", "HTTP/1.1 "+status+" x\r\nLocation: "+rest+"\r\n\r\n")
	}
	return captured("response", uri, "", "HTTP/1.1 "+status+" x\r\n\r\n"+rest)
}

// write writes an archive, a gzip member a text.
func write(tb testing.TB, texts ...string) string {
	tb.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(nil) // one for all members, since its tables take 800 kB
	for _, text := range texts {
		z.Reset(&out)
		_, _ = z.Write([]byte(text)) // to memory
		_ = z.Close()
	}
	path := filepath.Join(tb.TempDir(), "x.warc.gz")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// read returns the entries of inputs, which are one night, and the rejects, one a line, in the order of the inputs.
func read(tb testing.TB, opt Options, paths ...string) (rows, rejects []string, stats inputs.Stats) {
	tb.Helper()
	opt.Date = "2024-05-18"
	nights, rejects, n := readAll(tb, opt, paths...)
	if len(nights) > 1 {
		tb.Fatalf("%d nights", len(nights))
	}
	return nights[opt.Date], rejects, n.Stats()
}

// readAll returns the entries by the dates of nights, with a spool so small that it has many runs, and with stretches
// so short that most archives have several.
func readAll(tb testing.TB, opt Options, paths ...string) (nights map[string][]string, rejects []string, n *Nights) {
	tb.Helper()
	opt.MaxBody, opt.Now = 1000, time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	opt.runBytes = 1 + rand.IntN(4000)
	opt.stretchBytes = cmp.Or(opt.stretchBytes, 1+rand.Int64N(2000))
	n, err := Read(tb.Context(), paths, newFetcher(tb), opt, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	}()
	reject := func(x inputs.Reject) error {
		rejects = append(rejects, fmt.Sprintf("%d:%d %s: %s", slices.Index(paths, x.Input), x.Line, x.Text, x.Reason))
		return nil
	}
	if read, total := n.Progress(); read != total && opt.Limit == 0 && opt.Columns == nil {
		tb.Errorf("%d of %d bytes are said to be read", read, total)
	}
	nights = map[string][]string{}
	given, rejected := uint64(0), uint64(0)
	for night := n.Next(); night != nil; night = n.Next() {
		night.Reject = reject
		rows := rowsOf(tb, night)
		nights[night.Date] = rows
		given, rejected = given+uint64(len(rows)), rejected+night.Stats().Rejects
		if night.Stats().Entries != uint64(len(rows)) {
			tb.Errorf("%d rows are counted as %+v", len(rows), night.Stats())
		}
	}
	slices.SortFunc(rejects, func(a, b string) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(number(a[strings.Index(a, ":")+1:]),
			number(b[strings.Index(b, ":")+1:])))
	})
	if s := n.Stats(); opt.Limit == 0 && (s.Lines != given+rejected+s.Skipped+s.LeftOut ||
		rejected != uint64(len(rejects))) {
		tb.Errorf("%d rows and %d rejects are counted as %+v", given, len(rejects), s)
	}
	return nights, rejects, n
}

// rowsOf returns the entries of a night, one a line, in the order of the inputs.
func rowsOf(tb testing.TB, night *Night) (rows []string) {
	tb.Helper()
	var response exchange.Response
	for {
		e, err := night.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		night.Recall(&response)
		row := fmt.Sprintf("%d %s %s", e.Seq, e.Origin, response.Outcome)
		if response.Status != 0 {
			row += fmt.Sprintf(" %d", response.Status)
		}
		for _, hop := range response.Hops {
			row += fmt.Sprintf(" %d→%s", hop.Status, hop.URL)
		}
		if len(response.Body) > 0 {
			row += fmt.Sprintf(" %q", response.Body)
		}
		rows = append(rows, row)
		response.Reset()
	}
	if err := night.Close(); err != nil {
		tb.Error(err)
	}
	slices.SortFunc(rows, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return rows
}

// number is what a text begins with.
func number(text string) (n int) {
	_, _ = fmt.Sscanf(text, "%d", &n)
	return n
}

func equal(tb testing.TB, what string, got []string, want ...string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s:\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestOnlyCapturesOfRobots checks which records are entries, skipped, or rejects.
func TestOnlyCapturesOfRobots(t *testing.T) {
	const a = "https://a.example/robots.txt"
	rows, rejects, stats := read(t, Options{}, write(t,
		captured("warcinfo", "", "Content-Type: application/warc-fields\r\n", "software: x\r\n"),
		captured("request", a, "", "GET /robots.txt HTTP/1.1\r\n\r\n"),
		answer(a, "200 A\n"),
		captured("metadata", a, "Content-Type: application/warc-fields\r\n", "fetchTimeMs: 3\r\n"),
		answer("http://b.example:8080/robots.txt", "404 "),
		answer("http://c.example/index.html", "200 C\n"),
		captured("response", "dns:a.example", "Content-Type: text/dns\r\n", "20240518\r\n"),
		captured("response", "gopher://a.example/robots.txt", "", "x"),
		captured("revisit", "http://d.example/robots.txt", "", "HTTP/1.1 200 OK\r\n\r\n"),
		answer("http://E.example:80/robots.txt#x", "200 "),
		answer(a, "200 again\n"),
		captured("response", "https://f.example/robots.txt", "WARC-Truncated: length\r\n", "HTTP/1.1 200 OK\r\n\r\nA\nB"),
		captured("response", "https://h.example/robots.txt", "Content-Type: application/octet-stream\r\n", "SSH-2.0-x\r\n"),
		captured("response", "https://g.example/robots.txt", "WARC-Truncated: time\r\n", "HTTP/1.1 200 OK\r\n\r\nA\nB"),
		captured("response", "https://i.example/robots.txt", "WARC-Segment-Number: 1\r\n", "HTTP/1.1 200 OK\r\n\r\nA\nB"),
		captured("continuation", "https://i.example/robots.txt", "WARC-Segment-Number: 2\r\n", "C\n"),
	))
	equal(t, "rows", rows,
		`2 https://a.example answered 200 "A\n"`,
		`4 http://b.example:8080 answered 404`,
		`9 http://e.example answered 200`,
		`11 https://f.example answered 200 "A\n"`,
		`12 https://h.example bad_response`,
		`13 https://g.example timeout 200`)
	equal(t, "rejects", rejects,
		`0:8 gopher://a.example/robots.txt: its target is no http or https URL that can be asked`,
		`0:9 http://d.example/robots.txt: a revisit, whose body is that of another record`,
		`0:11 https://a.example/robots.txt: another capture of the same file counts`,
		`0:15 https://i.example/robots.txt: one of several segments of a record, which are not joined`)
	if stats.Skipped != 6 || stats.Files[0].Layout != "warc" || stats.Files[0].Compression != "gzip" ||
		stats.Files[0].Lines != 16 {
		t.Errorf("%+v", stats)
	}
}

// TestHops checks the rows of redirects and failures.
func TestHops(t *testing.T) {
	f := func(what string, files [][]string, want ...string) {
		t.Helper()
		var paths []string
		for _, texts := range files {
			paths = append(paths, write(t, texts...))
		}
		rows, _, _ := read(t, Options{}, paths...)
		slices.SortFunc(want, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		equal(t, what, rows, want...)
	}
	const plainA, a, b = "http://a.example/robots.txt", "https://a.example/robots.txt", "https://b.example/robots.txt"

	f("to what comes behind", [][]string{{answer(plainA, "301 "+a), answer(a, "200 A\n")}},
		`1 https://a.example answered 200 "A\n"`,
		`0 http://a.example answered 200 301→https://a.example/robots.txt "A\n"`)
	f("to what came before", [][]string{{answer(a, "200 A\n"), answer(plainA, "301 "+a)}},
		`0 https://a.example answered 200 "A\n"`,
		`1 http://a.example answered 200 301→https://a.example/robots.txt "A\n"`)
	f("to another archive, and back", [][]string{{answer(b, "200 B\n"), answer(plainA, "301 "+a)}, {answer(a, "302 "+b)}},
		`0 https://b.example answered 200 "B\n"`,
		`1 http://a.example answered 200 301→https://a.example/robots.txt 302→https://b.example/robots.txt "B\n"`,
		`2 https://a.example answered 200 302→https://b.example/robots.txt "B\n"`)
	f("to what is no robots.txt", [][]string{{answer(a, "301 /x"), answer("https://a.example/x", "200 <html>\n")}},
		`0 https://a.example answered 200 301→https://a.example/x "<html>\n"`)
	f("to what is not there", [][]string{{answer(plainA, "301 "+a)}},
		`0 http://a.example not_archived 301→https://a.example/robots.txt`)
	f("to itself", [][]string{{answer(a, "301 "+a)}},
		`0 https://a.example redirect_limit 301`)
	f("in a circle", [][]string{{answer(plainA, "301 "+a), answer(a, "301 "+plainA)}},
		`0 http://a.example redirect_limit 301 301→https://a.example/robots.txt`,
		`1 https://a.example redirect_limit 301 301→http://a.example/robots.txt`)
	f("too far", [][]string{{answer(a, "301 /1"), answer("https://a.example/1", "301 /2"), answer("https://a.example/2",
		"301 /3"), answer("https://a.example/3", "301 /4"), answer("https://a.example/4", "200 x\n")}},
		`0 https://a.example redirect_limit 301 301→https://a.example/1 301→https://a.example/2 301→https://a.example/3`)
	f("nowhere", [][]string{{answer(a, "301 ")}},
		`0 https://a.example redirect_invalid 301`)

	f("a later try", [][]string{{answer(a, "503 "), answer(a, "200 A\n")}},
		`1 https://a.example answered 200 "A\n"`)
	f("a later try that failed too", [][]string{{answer(a, "503 "), answer(a, "500 ")}},
		`1 https://a.example answered 500`)
	f("a request that took too long", [][]string{{answer(a, "408 "), answer(a, "200 A\n")}},
		`1 https://a.example answered 200 "A\n"`)
	f("a request that was one too many", [][]string{{answer(a, "429 "), answer(a, "200 A\n"), answer(a, "429 ")}},
		`1 https://a.example answered 200 "A\n"`)
	f("one too many to the end", [][]string{{answer(a, "429 "), answer(a, "429 ")}},
		`1 https://a.example answered 429`)
	f("nothing but that", [][]string{{answer(a, "408 "), answer(a, "408 ")}},
		`1 https://a.example answered 408`)
	f("a failure after an answer", [][]string{{answer(a, "200 A\n"), answer(a, "503 ")}},
		`0 https://a.example answered 200 "A\n"`)
	f("a later try behind a redirect", [][]string{{answer(plainA, "301 "+a), answer(a, "503 "), answer(plainA, "301 "+a),
		answer(a, "404 ")}},
		`3 https://a.example answered 404`,
		`2 http://a.example answered 404 301→https://a.example/robots.txt`)
	f("a redirect that was gone later", [][]string{{answer(a, "301 "+b), answer(b, "200 B\n")}, {answer(a, "200 A\n")}},
		`1 https://b.example answered 200 "B\n"`,
		`2 https://a.example answered 200 "A\n"`)
	f("in one gzip member", [][]string{{answer(plainA, "301 "+a) + answer(a, "200 A\n") + answer(plainA, "301 "+b)}},
		`1 https://a.example answered 200 "A\n"`,
		`2 http://a.example not_archived 301→https://b.example/robots.txt`)
}

// TestUndone checks that a body is decoded only in archives of bulkscan, which keep content codings: directly, after a
// redirect, and in concatenated files. In other archives the crawler may have decoded it, whatever its header says.
func TestUndone(t *testing.T) {
	info := func(software string) string {
		return captured("warcinfo", "", "Content-Type: application/warc-fields\r\n", "format: x\r\nSoftware:  "+software+
			"\r\n")
	}
	texts := func(host string) []string {
		uri := "https://" + host + ".example/robots.txt"
		return []string{
			captured("response", uri, "", "HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: 99\r\n\r\nA\n"),
			answer("http://"+host+".example/robots.txt", "301 "+uri),
		}
	}
	const good, bad = `answered 200 "A\n"`, "closed_early 200"
	f := func(what string, files [][]string, want ...string) {
		t.Helper()
		var paths []string
		for _, file := range files {
			paths = append(paths, write(t, file...))
		}
		rows, _, _ := read(t, Options{}, paths...)
		for i := range rows {
			_, rows[i], _ = strings.Cut(rows[i], "://")
			rows[i] = strings.Replace(rows[i], ".example", "", 1)
			host, rest, _ := strings.Cut(rows[i], " ")
			before, hop, _ := strings.Cut(rest, " 301→https://"+host+".example/robots.txt")
			rows[i] = host + " " + before + hop
		}
		slices.Sort(rows)
		slices.Sort(want)
		equal(t, what, rows, want...)
	}
	f("without a warcinfo", [][]string{texts("a")}, "a "+good, "a "+good)
	f("of another crawler", [][]string{append([]string{info("Nutch 1.6 (CC), not bulkscan/1")}, texts("a")...)}, "a "+good,
		"a "+good)
	f("ours", [][]string{append([]string{info("bulkscan/1.0")}, texts("a")...)}, "a "+bad, "a "+bad)
	files, want := [][]string{append([]string{info("bulkscan/1.0")}, texts("a")...)}, []string{"a " + bad}
	for i := range runtime.GOMAXPROCS(0) { // so that each worker has another archive after it
		host := fmt.Sprintf("b%d", i)
		files, want = append(files, texts(host)), append(want, host+" "+good)
	}
	f("ours, and then others", files, append(want, want...)...)
	f("ours and others in one", [][]string{slices.Concat(texts("a"), []string{info("bulkscan/1.0")}, texts("b"),
		[]string{info("x")}, texts("c"))},
		"a "+good, "b "+bad, "c "+good, "a "+good, "b "+bad, "c "+good)
}

// TestDeepInAMember reads an archive in one gzip member: redirects lead to any of its records.
func TestDeepInAMember(t *testing.T) {
	var all strings.Builder
	for i := range 100 {
		all.WriteString(answer(fmt.Sprintf("https://%d.example/robots.txt", i), "200 A\n"))
	}
	all.WriteString(answer("http://0.example/robots.txt", "301 https://0.example/robots.txt"))
	rows, rejects, _ := read(t, Options{}, write(t, all.String(), answer("http://9.example/robots.txt",
		"301 https://99.example/robots.txt")))
	if len(rows) != 102 {
		t.Errorf("%d rows", len(rows))
	}
	equal(t, "hops", rows[100:],
		`100 http://0.example answered 200 301→https://0.example/robots.txt "A\n"`,
		`101 http://9.example answered 200 301→https://99.example/robots.txt "A\n"`)
	equal(t, "rejects", rejects)
}

// TestDamage checks that damage costs only the damaged record, and is reported with its place.
func TestDamage(t *testing.T) {
	path := write(t, answer("https://a.example/robots.txt", "200 A\n"), answer("https://b.example/robots.txt", "200 B\n"),
		answer("http://a.example/robots.txt", "301 https://a.example/robots.txt"))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(raw[1:], []byte("\x1f\x8b")) + 1
	end := begin + 1 + bytes.Index(raw[begin+1:], []byte("\x1f\x8b"))
	raw[begin+30] ^= 0xff
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	rows, rejects, _ := read(t, Options{}, path)
	equal(t, "rows", rows, `0 https://a.example answered 200 "A\n"`,
		`2 http://a.example answered 200 301→https://a.example/robots.txt "A\n"`)
	if len(rejects) != 1 || !strings.HasPrefix(rejects[0], "0:2 : a gzip member is ") || !strings.HasSuffix(rejects[0],
		fmt.Sprintf(": bytes %d to %d are passed over", begin, end)) {
		t.Errorf("%q", rejects)
	}
}

// TestUnsound checks that damage after returned records is reported with its place.
func TestUnsound(t *testing.T) {
	sound := write(t, answer("https://a.example/robots.txt", "200 A\n"))
	many := write(t, answer("https://b.example/robots.txt", "200 B\n"), answer("https://c.example/robots.txt", "200 C\n")+
		answer("https://d.example/robots.txt", "200 D\n")+answer("https://e.example/robots.txt", "200 E\n"))
	raw, err := os.ReadFile(many)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.LastIndex(raw, []byte("\x1f\x8b"))
	raw[len(raw)-5] ^= 1 // of the checksum
	if err := os.WriteFile(many, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	nights, rejects, r := readAll(t, Options{Date: "2024-05-18"}, sound, many)
	equal(t, "rows", nights["2024-05-18"], `0 https://a.example answered 200 "A\n"`,
		`1 https://b.example answered 200 "B\n"`,
		`2 https://c.example answered 200 "C\n"`, `3 https://d.example answered 200 "D\n"`)
	equal(t, "rejects", rejects,
		fmt.Sprintf(
			"1:4 : a gzip member is not what its checksum says: bytes %d to %d are passed over, but for 2 records at their beginning, which may be wrong", begin, len(raw)))
	if got, want := r.Unsound(), (Unsound{1, many, int64(begin)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, _, r := readAll(t, Options{Date: "2024-05-18"}, sound); r.Unsound().Members > 0 {
		t.Errorf("of a sound archive: %+v", r.Unsound())
	}
}

// TestAnyOrder checks that rows do not depend on the places of captures.
func TestAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var texts []string
	for i := range 200 {
		uri := fmt.Sprintf("https://%d.example/robots.txt", i)
		switch i % 4 {
		case 0:
			texts = append(texts, answer(uri, fmt.Sprintf("200 %d\n", i)))
		case 1:
			texts = append(texts, answer(uri, "404 "))
		default:
			texts = append(texts, answer(uri, fmt.Sprintf("301 https://%d.example/robots.txt", random.IntN(250))))
		}
	}
	var first []string
	for range 5 {
		files := make([][]string, 4)
		for _, i := range random.Perm(len(texts)) {
			n := random.IntN(len(files))
			files[n] = append(files[n], texts[i])
		}
		var paths []string
		for _, file := range files {
			paths = append(paths, write(t, file...))
		}
		rows, _, _ := read(t, Options{}, paths...)
		for i, row := range rows {
			_, rows[i], _ = strings.Cut(row, " ") // without the place
		}
		slices.Sort(rows)
		if first == nil {
			first = rows
		}
		equal(t, "rows", rows, first...)
	}
	if len(first) != len(texts) {
		t.Errorf("%d rows of %d origins", len(first), len(texts))
	}
}

// TestManyArchives reads more archives than workers in order, some of them empty, and one that is deleted before its
// turn.
func TestManyArchives(t *testing.T) {
	var paths, want []string
	seq := 0
	for n := range 50 {
		var texts []string
		for i := range n % 7 * 40 {
			texts = append(texts, answer(fmt.Sprintf("https://%d-%d.example/robots.txt", n, i), "200 "+strings.Repeat("A\n", i)))
			want = append(want, fmt.Sprintf("%d https://%d-%d.example answered 200", seq, n, i))
			seq++
		}
		paths = append(paths, write(t, texts...))
	}
	rows, _, stats := read(t, Options{}, paths...)
	for i, row := range rows {
		rows[i], _, _ = strings.Cut(row, ` "`)
	}
	equal(t, "rows", rows, want...)
	for n, file := range stats.Files {
		if file.Name != paths[n] || file.Lines != uint64(n%7*40) {
			t.Errorf("archive %d is %+v", n, file)
		}
	}

	if err := os.Remove(paths[20]); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), paths, newFetcher(t), Options{MaxBody: 1000}, nil); err == nil ||
		!strings.Contains(err.Error(), "cannot read "+paths[20]+": no such file") {
		t.Error(err)
	}
}

// TestStretches reads an archive in stretches of many sizes, and in one. Rows, rejects and counts are the same, whatever
// the archive contains: records that are not captures, several in a member, warcinfos, damage, and blocks that look like
// members with records.
func TestStretches(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	const day = "2024-05-18"
	f := func(name string, damage func([]byte) []byte) {
		t.Helper()
		var file bytes.Buffer
		for i := range 301 { // the last record is no capture
			uri := fmt.Sprintf("https://%d.example/robots.txt", i)
			text := captured("request", uri, "", "GET /robots.txt HTTP/1.1\r\n\r\n")
			switch {
			case i == 0 || i%50 == 20: // what a body with a coding is depends on it
				text = captured("warcinfo", "x", "", []string{"software: bulkscan/1\r\nisPartOf: A\r\n", "isPartOf: B\r\n"}[i/50%2])
			case i%3 > 0:
				text = captured("response", uri, "WARC-Date: "+day+"T12:00:00Z\r\n",
					fmt.Sprintf("HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\n\r\n%x\n", random.Uint64()))
			}
			level := gzip.DefaultCompression
			switch i % 30 {
			case 7:
				text += dated(fmt.Sprintf("http://%d.example/robots.txt", i), day, "301 /elsewhere")
			case 8: // A stored block, so that the member in it begins where a cut is looked for.
				inner, err := os.ReadFile(write(t, dated("https://false.example/robots.txt", day, "200 False\n")))
				if err != nil {
					t.Fatal(err)
				}
				text, level = dated(uri, day, "200 "+strings.Repeat(string(inner), 3)), gzip.NoCompression
			}
			z, _ := gzip.NewWriterLevel(&file, level) // the level is known
			_, _ = z.Write([]byte(text))              // to memory
			_ = z.Close()
		}
		path := filepath.Join(t.TempDir(), "x.warc.gz")
		raw := damage(file.Bytes())
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		seen := func(stretch int64) []string {
			t.Helper()
			nights, rejects, n := readAll(t, Options{By: Crawl, stretchBytes: stretch}, path, path)
			return slices.Concat(nights[day], rejects, []string{fmt.Sprint(n.Stats(), n.Found(), n.Unsound())})
		}
		want := seen(int64(len(raw)))
		for _, stretch := range []int64{1, 200, 500, 3000, 10_000} {
			equal(t, fmt.Sprintf("%s, stretches of %d bytes", name, stretch), seen(stretch), want...)
		}
	}
	f("sound", func(b []byte) []byte { return b })
	f("torn", func(b []byte) []byte { return b[:len(b)-30] })
	f("a part is missing", func(b []byte) []byte { return append(b[:len(b)/3], b[len(b)/2:]...) })
	f("no gzip in the middle", func(b []byte) []byte {
		copy(b[len(b)/2:], strings.Repeat("no gzip ", 1000))
		return b
	})
	for i := range 5 {
		f(fmt.Sprint("many bytes are wrong ", i), func(b []byte) []byte {
			for range 40 {
				b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
			}
			return b
		})
	}
}

func TestLimitAndSample(t *testing.T) {
	var texts []string
	for i := range 400 {
		texts = append(texts, answer(fmt.Sprintf("https://%d.example/robots.txt", i), "200 A\n"))
	}
	path := write(t, texts...)
	if rows, _, _ := read(t, Options{Limit: 7}, path); len(rows) != 7 {
		t.Errorf("%d rows of 7", len(rows))
	}
	rows, _, stats := read(t, Options{Sample: 0.25}, path)
	if len(rows) < 50 || len(rows) > 150 || stats.LeftOut != uint64(400-len(rows)) {
		t.Errorf("%d rows of a quarter, %+v", len(rows), stats)
	}
}

// TestErrors checks what ends the reading, and the messages.
func TestErrors(t *testing.T) {
	folder := t.TempDir()
	good := write(t, answer("https://a.example/robots.txt", "301 https://b.example/robots.txt"), "rubbish")
	f := func(what, content, want string) {
		t.Helper()
		path := filepath.Join(folder, what)
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		n, err := Read(t.Context(), []string{good, path}, newFetcher(t), Options{MaxBody: 1000, Date: "2024-05-18",
			Columns: named(t, "")}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if err == nil {
			_ = n.Close()
		}
	}
	f("absent", "", "no such file")
	f("broken.zst", "\x28\xb5\x2f\xfdxxxx", "cut off or damaged")
	f("dictionary.warc.zst", "\x5d\x2a\x4d\x18\x04\x00\x00\x00dict\x28\xb5\x2f\xfd\x27\x11\x05\x06\x07\x20\x00",
		"unpack it first")
	f("words", "no rows at all", "no column is known to hold hosts")
	f("array.json", "[{}]", "write one object a line")

	paths := "crawl-data/CC-MAIN-1/segments/1/robotstxt/CC-MAIN-1.warc.gz\ncrawl-data/CC-MAIN-1/segments/1/robotstxt/CC-MAIN-2.warc.gz\n"
	f("robotstxt.paths", "https://data.example/"+paths, "it is a list of archives: download those that it names")
	refused := func(path, want string) {
		t.Helper()
		if _, err := Read(t.Context(), []string{path}, newFetcher(t), Options{}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(write(t, paths), "it is a list of archives: download those that it names")
	record := answer("https://a.example/robots.txt", "200 "+strings.Repeat("A\n", 100))
	for _, at := range []int{10, len(record) / 2, len(record) - 5, len(record) + 10} {
		// in the head, the block, and a later record
		both := record + record
		refused(write(t, both[:at], both[at:]), "its gzip members end within records, as bgzip writes them: write it anew")
	}
	for _, texts := range [][]string{{record, record}, {record + record[:50]}, {record + record[:50], record},
		{record, "rubbish"}, {record + strings.Repeat("x", 1<<20), "rubbish"}} {
		if n, err := Read(t.Context(), []string{write(t, texts...)}, newFetcher(t), Options{Date: "2024-05-18"},
			nil); err != nil {
			t.Errorf("%.20q is refused: %v", texts[len(texts)-1], err)
		} else if err := n.Close(); err != nil {
			t.Error(err)
		}
	}

	read := func(o Options) *Nights {
		t.Helper()
		n, err := Read(t.Context(), []string{good}, newFetcher(t), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	full := errors.New("full")
	n := read(Options{MaxBody: 1000, Date: "2024-05-18"})
	night := n.Next()
	night.Reject = func(inputs.Reject) error { return full }
	for range 2 {
		if _, err := night.Next(); err != full {
			t.Errorf("%v, want what Reject said", err)
		}
	}
	if err := errors.Join(night.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, []string{good}, newFetcher(t), Options{MaxBody: 1000}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that of the context", err)
	}
	if _, err := Read(t.Context(), []string{good}, newFetcher(t), Options{MaxBody: 1000}, nil); !errors.Is(err,
		ErrNoDate) || !strings.HasPrefix(err.Error(), good+" has no dates") {
		t.Errorf("%v, want that there is no date", err)
	}
}
