package inputs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/ulikunitz/xz"
)

func readAll(r *Reader) (entries []Entry, err error) {
	for {
		entry, err := r.Next()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, entry)
	}
}

func closeReader(t testing.TB, r *Reader) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// listFile writes a list to a file of the test.
func listFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// origins returns the entries of inputs as `seq:origin`, separated by spaces, with rejects as `!line`.
func origins(t testing.TB, opt Options, paths ...string) (string, Stats, error) {
	t.Helper()
	var b strings.Builder
	opt.Reject = func(r Reject) error { fmt.Fprintf(&b, "!%d ", r.Line); return nil }
	r, err := Open(t.Context(), paths, opt)
	if err != nil {
		return "", Stats{}, err
	}
	defer closeReader(t, r)
	for {
		e, err := r.Next()
		s := r.Stats()
		if got := s.Entries + s.Rejects + s.Skipped + s.LeftOut; got != s.Lines {
			t.Fatalf("the sum is %d of %+v", got, s)
		}
		if err != nil {
			if _, again := r.Next(); again != err {
				t.Errorf("after the error %v: %v", err, again)
			}
			if err == io.EOF {
				err = nil
			}
			return strings.TrimSpace(b.String()), s, err
		}
		fmt.Fprintf(&b, "%d:%s ", e.Seq, e.Origin)
	}
}

// packed returns compressed text.
func packed(t testing.TB, compression, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch compression {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "xz":
		w, err = xz.NewWriter(&b)
	case "zip":
		return zipped(t, "list.csv", text)
	}
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zipped returns a zip of names and contents.
func zipped(t testing.TB, namesAndTexts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(namesAndTexts); i += 2 {
		w, err := z.Create(namesAndTexts[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, namesAndTexts[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompressions(t *testing.T) {
	const text = "1,example.com\r\n2,example.org\r\n3,example.net"
	f := func(content []byte, compression string) {
		t.Helper()
		got, s, err := origins(t, Options{}, listFile(t, "list", content))
		if err != nil || got != "0:example.com 1:example.org 2:example.net" {
			t.Errorf("%s: %s, %v", compression, got, err)
			return
		}
		if s.Files[0].Compression != compression || !strings.HasPrefix(s.Files[0].Layout, "csv (comma)") {
			t.Errorf("%s: %+v", compression, s.Files)
		}
	}
	f([]byte(text), "")
	f(packed(t, "gzip", text), "gzip")
	f(packed(t, "zstd", text), "zstd")
	f(packed(t, "xz", text), "xz")
	f(packed(t, "zip", text), "zip")
	f(zipped(t, "list.gz", string(packed(t, "gzip", text))), "zip+gzip")
	f(packed(t, "zstd", string(packed(t, "gzip", text))), "zstd+gzip")
	f(append(packed(t, "gzip", text[:20]), packed(t, "gzip", text[20:])...), "gzip")
	f(append(packed(t, "zstd", text[:20]), packed(t, "zstd", text[20:])...), "zstd")
}

func TestZip(t *testing.T) {
	path := listFile(t, "lists.zip", zipped(t,
		"README.md", "# which.is no list",
		"a/", "",
		"a/ranks.csv", "1,example.com\n2,example.org\n",
		"__MACOSX/a/._ranks.csv", "junk.example\n",
		"b/plain\x1b[2J.txt", "example.net\nexample.com\n",
		"empty.txt", "",
	))
	var rejects []Reject
	r, err := Open(t.Context(), []string{path, path},
		Options{Reject: func(r Reject) error { rejects = append(rejects, r); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	entries, err := readAll(r)
	if err != nil || len(entries) != 3 || entries[2].Origin.Host() != "example.net" || entries[2].Seq != 2 {
		t.Errorf("%+v, %v", entries, err)
	}
	// A line of the same archive, read again, is a duplicate. A member's name cannot reach a terminal unescaped.
	if len(rejects) != 5 || rejects[0].Line != 2 || rejects[0].Input != path+`:b/plain\x1b[2J.txt` {
		t.Errorf("%+v", rejects)
	}
	if s := r.Stats(); len(s.Files) != 6 || s.Files[2].Layout != "empty" {
		t.Errorf("%+v", s)
	}
}

// TestDamage truncates and corrupts archives: Next returns complete lines before the damage, and never half a line.
func TestDamage(t *testing.T) {
	const all = 80_000
	var text strings.Builder
	for i := range all {
		fmt.Fprintf(&text, "site-%d-%x.example.com\n", i, i*2654435761)
	}
	whole := strings.Split(text.String(), "\n")
	f := func(name string, content []byte, sure int) {
		t.Helper()
		path := listFile(t, name, content)
		r, err := Open(t.Context(), []string{path}, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer closeReader(t, r)
		entries, err := readAll(r)
		lines := r.Stats().Lines
		damage, ok := errors.AsType[*Error](err)
		if !ok || !strings.HasPrefix(damage.File, path) || damage.Line != lines+1 || damage.Remedy == "" {
			t.Errorf("%s: after %d lines: %v", name, lines, err)
			return
		}
		if sure = min(sure, len(entries)); sure < 10_000 || len(entries) >= all {
			t.Errorf("%s: %d entries before the damage", name, len(entries))
		}
		for i, e := range entries[:sure] {
			if e.Input != whole[i] {
				t.Fatalf("%s: entry %d is %q, want %q", name, i, e.Input, whole[i])
			}
		}
	}
	for _, compression := range []string{"gzip", "zstd", "xz", "zip"} {
		content := packed(t, compression, text.String())
		if compression != "zip" { // a cut zip has no directory: see TestErrors
			f("cut."+compression, content[:len(content)/2], all)
		}
		// Deflate has no checksum within a stream: text after flipped bits may be read for a while.
		broken := bytes.Clone(content)
		for i := range 64 {
			broken[len(broken)/2+i] ^= 0x5a
		}
		f("broken."+compression, broken, 30_000)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	f := func(path string, opt Options, want ...string) {
		t.Helper()
		r, err := Open(t.Context(), []string{path}, opt)
		if err == nil {
			closeReader(t, r)
			t.Errorf("%s: no error", path)
			return
		}
		for _, part := range append(want, "cannot ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", path, err, part)
			}
		}
	}
	file := func(name, content string) string { return listFile(t, name, []byte(content)) }
	plain := file("plain.txt", "example.com\n")
	csv := file("list.csv", "rank,domain,tag\n1,example.com,a\n")

	f(dir, Options{}, dir, "folder")
	f(filepath.Join(dir, "absent"), Options{}, "absent", "no such file")
	f("-", Options{}, "standard input")
	f(plain, Options{Format: Parquet}, "parquet", "csv")
	f(plain, Options{Format: WARC}, "warc")
	f(plain, Options{Format: 99}, "invalid")
	f(plain, Options{Format: Lines, Column: "domain"}, "column")
	f(plain, Options{Sample: 1.5}, "from 0 to 1")
	f(plain, Options{Column: "domain"}, plain, `"domain"`, "--column")
	f(plain, Options{Column: "2"}, "no column 2")
	f(csv, Options{Column: "host"}, `"host"`, `2 "domain"`, "--column")
	f(csv, Options{Column: "4"}, "no column 4")
	f(csv, Options{LabelColumn: "label"}, `"label"`, `3 "tag"`, "--label-column")
	f(file("two.csv", "a.example,b.example\nc.example,d.example\n"), Options{}, "several", "--column")
	f(file("none.csv", "1,2,3\n4,5,6\n"), Options{}, "none of its 3 columns", "--column")
	f(file("array.json", `[{"domain":"example.com"}]`), Options{}, "JSON array", "jq")
	f(file("a.jsonl", `{"address":"example.com"}`+"\n"), Options{}, "--column")
	f(file("a.jsonl", `{"host":"example.com"}`+"\n"), Options{LabelColumn: "tag"}, "--label-column")
	f(plain, Options{Format: JSONL}, "JSON")
	f(file("page.html", "<!DOCTYPE html>\n"), Options{}, "HTML")
	f(file("a.parquet", "PAR1\x15\x04"), Options{}, "Parquet", "CSV")
	f(file("a.warc.gz", string(packed(t, "gzip", "WARC/1.0\r\n"))), Options{}, "WARC")
	f(file("a.tar", "a.txt"+strings.Repeat("\x00", 252)+"ustar\x0000"), Options{}, "tar")
	f(file("a.db", "SQLite format 3\x00"), Options{}, "SQLite")
	f(file("a.bin", "\x00\x01\x02\x03"), Options{}, "binary")
	f(file("comments.txt", strings.Repeat("# a comment\n", 10_000)+"example.com\n"), Options{}, "comments")
	f(file("utf32.txt", "\xff\xfe\x00\x00a\x00\x00\x00"), Options{}, "UTF-32")
	f(file("a.lz4", "\x04\x22\x4d\x18"), Options{}, "lz4")
	f(file("a.gz", "\x1f\x8b\x08"), Options{}, "damaged")
	f(file("cut.zip", string(packed(t, "zip", "example.com")[:40])), Options{}, "damaged")
	f(file("book.xlsx", string(zipped(t, "[Content_Types].xml", "<x/>", "xl/sheet.xml", "<x/>"))), Options{},
		"office document")
	f(file("nothing.zip", string(zipped(t, "README", "x"))), Options{}, "no list")
	f(file("zip.gz", string(packed(t, "gzip", string(packed(t, "zip", "example.com"))))), Options{}, "zip archive inside")
	deep := "example.com\n"
	for range 5 {
		deep = string(packed(t, "gzip", deep))
	}
	f(file("deep.gz", deep), Options{}, "too many compressions")
	huge := packed(t, "xz", "example.com\n")
	huge[12+4] = 39 // the dictionary's size: 3 GiB
	f(file("huge.xz", string(huge)), Options{}, "dictionary", "unpack")
	odd := packed(t, "zip", "example.com\n")
	method := bytes.LastIndex(odd, []byte("PK\x01\x02")) + 10
	odd[8], odd[method] = 97, 97
	f(file("odd.zip", string(odd)), Options{}, "unsupported", "unpack")
	odd = packed(t, "zip", "example.com\n")
	odd[6] |= 1
	odd[method-2] |= 1
	f(file("secret.zip", string(odd)), Options{}, "encrypted", "unpack")
	wide := []byte("\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00") // a zstd frame with a window of 1 GiB
	f(file("wide.zst", string(wide)), Options{}, "window", "unpack")

	if _, err := Open(t.Context(), nil, Options{}); err == nil {
		t.Error("no input is no error")
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "jsonl") {
		t.Errorf("ParseFormat: %v", err)
	}
	for _, name := range FormatNames {
		if format, err := ParseFormat(name); err != nil || format.String() != name {
			t.Errorf("ParseFormat(%q) = %v, %v", name, format, err)
		}
	}
}

func TestOptions(t *testing.T) {
	f := func(content string, opt Options, want string) {
		t.Helper()
		got, _, err := origins(t, opt, listFile(t, "list", []byte(content)))
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", content, got, err, want)
		}
	}
	f("a.example\nb.example\nb.example\nc.example\n", Options{Limit: 2}, "0:a.example 1:b.example")
	f("a.example,b.example\nc.example,d.example\n", Options{Column: "2"}, "0:b.example 1:d.example")
	f("from,to\na.example,b.example\n", Options{Column: "TO"}, "1:b.example")
	f("a b;c\n1;x.example\n", Options{Column: "c"}, "1:x.example")
	f("domain,alias\na.example,b.example\n", Options{Column: "alias"}, "1:b.example")
	f("a.example\n", Options{Column: "1"}, "0:a.example")
	f("domain,x\na.example,1\n", Options{Format: Lines}, "!1 !2")
	f("domain\na.example\n", Options{Format: Lines}, "!1 1:a.example")
	f("a.example\nb.example\n", Options{Format: CSV}, "0:a.example 1:b.example")
	f("\"a.example\"\n\"b.example\"\n", Options{}, "0:a.example 1:b.example")
	f("https://a.example/x,y\nhttps://b.example/?q=1;2,3\n", Options{}, "0:https://a.example 1:https://b.example")
	f("https://a.example,7\nhttps://b.example,8\n", Options{}, "0:https://a.example 1:https://b.example")
	f("192.0.2.1,9\n192.0.2.2,8\n", Options{}, "0:192.0.2.1 1:192.0.2.2")
	f("\ta.example\n\tb.example\n", Options{Format: CSV}, "0:a.example 1:b.example")
	f(`{"to":"a.example","domain":"b.example"}`, Options{Column: "to"}, "0:a.example")
	f("\xef\xbb\xbfa.example", Options{}, "0:a.example")
	f("\xef\xbb\xbf# comment\r\n\r\na.example\r\n", Options{}, "2:a.example")
	f("\n\n\n", Options{}, "")
}

// TestMisread: a number that browsers would read as a public address is a reject; one of a private address is an
// entry.
func TestMisread(t *testing.T) {
	f := func(content string, opt Options, want string) {
		t.Helper()
		got, _, err := origins(t, opt, listFile(t, "list", []byte(content)))
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", content, got, err, want)
		}
	}
	// Identifiers, dates, prices, padded and short addresses, wherever they stand.
	f("1699999999\n1700000001\n", Options{}, "!1 !2")
	f("domain\n1699999999\nexample.com\n", Options{}, "!2 2:example.com")
	f(`{"domain":1699999999}`, Options{}, "!1")
	f("11.21\n19.99\n8.8.8\n", Options{}, "!1 !2 !3")
	f("010.001.002.003\n8.8.8.010\n", Options{}, "!1 !2")
	f("0x08080808\nhttp://0x8.8.8.8/8.8.8.8\nhttps://134744072:8443\n", Options{}, "!1 !2 !3")
	f("1,example.com\n20000000,example.org\n", Options{Column: "1"}, "!1 !2")
	f("11.21,example.org\n12.5,example.com\n", Options{Column: "1"}, "!1 !2")
	// Ranges, in full and for short.
	f("203.0/16\n203.0.113/24\n10/8\n8.8.8.0/24\n", Options{}, "!1 !2 !3 !4")
	// Numbers too small for an address are ranks, even where the address would be private.
	f("0\n7\n16777215\n0177\n", Options{}, "!1 !2 !3 !4")
	// Private addresses are entries, whose rows will say that the address is blocked.
	f("127.1\n0x7f.2\n017700000003\n2130706436\nhttp://10.9\n192.168.001.001\n", Options{},
		"0:127.0.0.1 1:127.0.0.2 2:127.0.0.3 3:127.0.0.4 4:http://10.0.0.9 5:192.168.1.1")
	f("169.254.43518\n100.64.1\n0xac.16.1\n0xe0.1\n240.1\n", Options{},
		"0:169.254.169.254 1:100.64.0.1 2:172.16.0.1 3:224.0.0.1 4:240.0.0.1")
	// Four decimal numbers are an address, in any encoding.
	f("8.8.8.8\n1.1.1.1.\nhttp://%39.9.9.9/1.2\n４.4.4.4\n[::ffff:8.8.4.4]\n8.8.8.7/x\n", Options{},
		"0:8.8.8.8 1:1.1.1.1 2:http://9.9.9.9 3:4.4.4.4 4:8.8.4.4 5:8.8.8.7")

	r, err := Open(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader("11.21\n"), Reject: func(r Reject) error {
		if r.Reason != "write the address in full: this would be read as 11.0.0.21" {
			t.Errorf("the reason is %q", r.Reason)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if entries, err := readAll(r); err != nil || len(entries) != 0 {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestLabels(t *testing.T) {
	path := listFile(t, "list.csv", []byte("host,tag\na.example,x\nb.example, x"+strings.Repeat("é", 300)+
		"\nc.example,\n"))
	r, err := Open(t.Context(), []string{path}, Options{LabelColumn: "tag"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	entries, err := readAll(r)
	if err != nil || len(entries) != 3 || entries[0].Label != "x" || entries[1].Label != "x"+
		strings.Repeat("é", MaxLabel/2-1) || entries[2].Label != "" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestSample: the sample is the same in every run, list and spelling, and a larger share includes a smaller one.
func TestSample(t *testing.T) {
	var list, reversed strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&list, "host-%d.example\n", i)
		fmt.Fprintf(&reversed, "https://HOST-%d.example/\n", 19_999-i)
	}
	hosts := func(list string, share float64) map[string]bool {
		r, err := Open(t.Context(), []string{listFile(t, "list", []byte(list))}, Options{Sample: share})
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		entries, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		set := map[string]bool{}
		for _, e := range entries {
			set[e.Origin.Host()] = true
		}
		return set
	}
	tenth, same, half := hosts(list.String(), 0.1), hosts(reversed.String(), 0.1), hosts(list.String(), 0.5)
	if len(tenth) < 1800 || len(tenth) > 2200 || len(half) < 9700 || len(half) > 10_300 {
		t.Errorf("%d and %d of 20000 are sampled", len(tenth), len(half))
	}
	if len(same) != len(tenth) {
		t.Errorf("%d and %d of the same hosts", len(tenth), len(same))
	}
	for host := range tenth {
		if !same[host] || !half[host] {
			t.Fatalf("%s is not in every sample", host)
		}
	}
	if all := hosts(list.String(), 1); len(all) != 20_000 {
		t.Errorf("%d of all", len(all))
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine+1)
	f := func(content, want string) {
		t.Helper()
		for _, one := range []bool{false, true} {
			in := io.Reader(strings.NewReader(content))
			if one {
				in = iotest.HalfReader(in)
			}
			got, _, err := origins(t, Options{Stdin: in, Format: Lines}, "-")
			if err != nil || got != want {
				t.Errorf("%.20q of %d bytes: %s, %v, want %s", content, len(content), got, err, want)
			}
		}
	}
	f("a.example\n"+long+"\nb.example\n", "0:a.example !2 2:b.example")
	f(strings.Repeat(long, 5)+"\nb.example", "!1 1:b.example")
	f("a.example\n"+strings.Repeat(long, 5), "0:a.example !2")
	f("a.example/"+long[:MaxLine-10]+"\r\nb.example\n", "0:a.example 1:b.example")
	f("a.example/"+long[:MaxLine-9]+"\r\nb.example\n", "!1 1:b.example")

	r, err := Open(t.Context(), []string{"-"},
		Options{Stdin: strings.NewReader("a.example/" + strings.Repeat("é", 10_000))})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if e, err := r.Next(); err != nil || e.Origin.Host() != "a.example" || e.Input != "a.example/"+
		strings.Repeat("é", (MaxInput-10)/2) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestBomb unpacks a line of 64 MiB from 64 KiB of gzip: it is one reject and takes no memory.
func TestBomb(t *testing.T) {
	path := listFile(t, "bomb.gz", packed(t, "gzip", "a.example\n"+strings.Repeat("x", 64<<20)+"\nb.example\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _, err := origins(t, Options{}, path)
	runtime.ReadMemStats(&after)
	if err != nil || got != "0:a.example !2 2:b.example" {
		t.Errorf("%s, %v", got, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes are allocated", n)
	}
}

func TestSeveralInputs(t *testing.T) {
	a := listFile(t, "a.txt", []byte("a.example\n# comment\nb.example\n"))
	b := listFile(t, "b.csv", []byte("origin,rank\nhttps://c.example,5\nhttps://d.example,5"))
	empty := listFile(t, "empty", nil)
	got, s, err := origins(t, Options{Stdin: strings.NewReader("b.example\ne.example")}, a, empty, "-", b)
	if err != nil || got != "0:a.example 2:b.example !1 4:e.example 6:https://c.example 7:https://d.example" {
		t.Errorf("%s, %v", got, err)
	}
	if len(s.Files) != 4 || s.Files[0].Lines != 3 || s.Files[1].Lines != 0 || s.Files[2].Name != "standard input" ||
		s.Files[3].Lines != 3 {
		t.Errorf("%+v", s.Files)
	}
}

func TestRejectEndsReading(t *testing.T) {
	want := errors.New("disk full")
	path := listFile(t, "list", []byte("a.example\nnot a host\nb.example\n"))
	r, err := Open(t.Context(), []string{path}, Options{Reject: func(r Reject) error {
		if r.Line != 2 || r.Text != "not a host" || r.Input != path {
			t.Errorf("%+v", r)
		}
		return want
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if entries, err := readAll(r); err != want || len(entries) != 1 {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestContext(t *testing.T) {
	path := listFile(t, "list", []byte(strings.Repeat("a.example\n", 100_000)))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Open(ctx, []string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := readAll(r); err != context.Canceled {
		t.Errorf("after the end of the context: %v", err)
	}
	// A silent terminal does not block the reading.
	silent, w := io.Pipe()
	defer w.Close()
	r, err = Open(ctx, []string{"-"}, Options{Stdin: silent})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReader(t, r)
	if _, err := r.Next(); err != context.Canceled {
		t.Errorf("of a silent input: %v", err)
	}
}

// TestProgressTellsTheWhole shows that from a fiftieth of a list on, its length is estimated within 2 %, in every form.
// Bytes that are read or decompressed ahead of the lines do not count.
func TestProgressTellsTheWhole(t *testing.T) {
	const n = 100_000
	var text strings.Builder
	type row struct {
		Host string `parquet:"host"`
		Note string `parquet:"note"`
	}
	var rows []row
	for i := range n {
		host := fmt.Sprintf("host-%06d.%08x.example", i, uint32(i)*2654435761)
		fmt.Fprintln(&text, host)
		rows = append(rows, row{host, "n"})
	}
	f := func(what string, atLeast float64, contents ...[]byte) { // of the lines, at which it is known
		t.Helper()
		var paths []string
		for _, content := range contents {
			paths = append(paths, listFile(t, "list", content))
		}
		r, err := Open(t.Context(), paths, Options{Parquet: openParquet})
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		worst, known := 0.0, 0
		for i := 1; ; i++ {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if read, total := r.Progress(); i >= n/50 && total > 0 {
				known++
				worst = max(worst, math.Abs(float64(i)*float64(total)/float64(max(read, 1))/n-1))
			}
		}
		if worst > 0.02 || float64(known) < atLeast*n {
			t.Errorf("%s: the estimate is off by %.1f %%, and known at %d of %d lines", what, 100*worst, known, n)
		}
	}
	all := text.String()
	half := strings.Index(all[len(all)/2:], "\n") + len(all)/2 + 1
	f("lines", 0.97, []byte(all))
	f("two files", 0.97, []byte(all[:half]), []byte(all[half:]))
	f("gzip", 0.3, packed(t, "gzip", all))
	f("zip", 0.3, packed(t, "zip", all))
	f("zstd", 0, packed(t, "zstd", all))
	f("zip of two", 0, zipped(t, "a.csv", all[:half], "b.csv", all[half:]))
	f("parquet", 0.97, parquetOf(t, rows, parquet.MaxRowsPerRowGroup(30_000), parquet.Compression(&parquet.Zstd)))
}

func TestProgressAndClose(t *testing.T) {
	path := listFile(t, "list", []byte(strings.Repeat("a.example\n", 1000)))
	r, err := Open(t.Context(), []string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if read, total := r.Progress(); read != 0 || total != 10_000 {
		t.Errorf("before: %d of %d", read, total)
	}
	if _, err := readAll(r); err != nil {
		t.Fatal(err)
	}
	if read, total := r.Progress(); read != 10_000 || total != 10_000 {
		t.Errorf("after: %d of %d", read, total)
	}
	closeReader(t, r)
	closeReader(t, r)
	r, err = Open(t.Context(), []string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeReader(t, r)
	if e, err := r.Next(); err == nil || err == io.EOF {
		t.Errorf("after Close: %+v, %v", e, err)
	}
}

func TestFingerprint(t *testing.T) {
	a, b := listFile(t, "a", []byte("a.example\n")), listFile(t, "b", []byte("b.example\n"))
	moved := listFile(t, "elsewhere", []byte("a.example\n"))
	joined := listFile(t, "joined", []byte("a.example\nb.example\n"))
	of := func(paths ...string) Fingerprint {
		t.Helper()
		f, err := FingerprintOf(t.Context(), paths)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if of(a, b) != of(moved, b) || of(a) != of(moved) {
		t.Error("the names of files matter")
	}
	seen := map[Fingerprint]string{}
	for _, paths := range [][]string{nil, {a}, {b}, {a, b}, {b, a}, {a, a}, {joined}, {a, b, b}} {
		f := of(paths...)
		if other, ok := seen[f]; ok {
			t.Errorf("%v has the fingerprint of %s", paths, other)
		}
		seen[f] = fmt.Sprint(paths)
	}
	// sha256(sha256("a.example\n")), as `sha256sum a | xxd -r -p | sha256sum` says.
	if got := of(a).String(); got != "9abe2068117939135d1d0e5e0c3a6aadf4ec038ecf1163a8229b38f3d992c63d" {
		t.Errorf("the fingerprint has changed: scans could not be resumed: %s", got)
	}
	for _, path := range []string{"-", filepath.Join(t.TempDir(), "absent"), t.TempDir(), os.DevNull} {
		if _, err := FingerprintOf(t.Context(), []string{path}); err == nil {
			t.Errorf("%s has a fingerprint", path)
		}
	}
}

func TestSpool(t *testing.T) {
	dir := t.TempDir()
	content := packed(t, "gzip", strings.Repeat("a.example\n", 100_000)+"b.example")
	paths := map[string]bool{} // each copy has a path of its own
	for range 2 {
		path, err := Spool(t.Context(), iotest.HalfReader(bytes.NewReader(content)), dir)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, content) {
			t.Errorf("%d bytes of %d are kept, %v", len(kept), len(content), err)
		}
		paths[path] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent, w := io.Pipe()
	defer w.Close()
	go func() {
		_, _ = io.WriteString(w, "a.example\n")
		cancel()
	}()
	if _, err := Spool(ctx, silent, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("of a silent input: %v", err)
	}
	if _, err := Spool(t.Context(), iotest.ErrReader(io.ErrUnexpectedEOF), dir); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a broken input: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 || len(paths) != 2 {
		t.Errorf("%v are left, %v", files, err)
	}
	if _, err := Spool(t.Context(), strings.NewReader(""), filepath.Join(dir, "absent")); err == nil {
		t.Error("a missing folder is no error")
	}
}

// TestXZGuard finds the dictionary of every block of every stream, for any division into reads.
func TestXZGuard(t *testing.T) {
	blocks, err := os.ReadFile("testdata/lists/blocks.txt.xz") // xz -1 --block-size=256
	if err != nil {
		t.Fatal(err)
	}
	own := packed(t, "xz", "a.example\n")
	several := slices.Concat(blocks, own, []byte("\x00\x00\x00\x00"), packed(t, "xz", ""), own, blocks)
	f := func(content []byte, want error) {
		t.Helper()
		for _, r := range []io.Reader{bytes.NewReader(content), iotest.OneByteReader(bytes.NewReader(content))} {
			got, err := io.ReadAll(newXZGuard(bufio.NewReaderSize(r, 4<<10)))
			if !errors.Is(err, want) || want == nil && !bytes.Equal(got, content) {
				t.Errorf("%d bytes of %d pass, %v, want %v", len(got), len(content), err, want)
			}
		}
	}
	f(blocks, nil)
	f(own, nil)
	f(several, nil)
	for n := range len(several) - 1 {
		// The library reports the truncation.
		if got, err := io.ReadAll(newXZGuard(bufio.NewReaderSize(bytes.NewReader(several[:n]), 4<<10))); err != nil ||
			len(got) != n {
			if !errors.Is(err, errXZ) { // in a number of the index
				t.Fatalf("cut at %d: %d bytes, %v", n, len(got), err)
			}
		}
	}
	// The second block, and a later stream, claim 3 GiB.
	header := blocks[12 : 12+int(blocks[12]+1)*4]
	property := bytes.Index(header, []byte{0x21, 1}) + 2
	first := bytes.Index(blocks, header[:2])
	second := first + 2 + bytes.Index(blocks[first+2:], header[:2]) // blocks have the same size field and flags
	large := bytes.Clone(blocks)
	large[second+property] = 39
	f(large, errDictionary)
	f(slices.Concat(own, large), errDictionary)
	large[second+property] = 40
	f(large, errDictionary)
	large[second+property] = 41
	f(large, errXZ)
	got, _, err := origins(t, Options{}, listFile(t, "streams.xz", slices.Concat(own, []byte("\x00\x00\x00\x00"),
		packed(t, "xz", "b.example\n"))))
	if err != nil || got != "0:a.example 1:b.example" {
		t.Errorf("of two streams: %s, %v", got, err)
	}
}
