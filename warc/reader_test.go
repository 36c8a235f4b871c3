package warc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// read returns what a Reader finds in a file, in its order.
func read(tb testing.TB, file []byte, maxBlock int) (list []found) {
	tb.Helper()
	return readWith(tb, NewReader(maxBlock), file)
}

// readWith is read, with a Reader that may have read other files.
func readWith(tb testing.TB, r *Reader, file []byte) (list []found) {
	tb.Helper()
	r.Broken = func(b Broken) error {
		if b.Reason == "" || b.Bytes < 1 {
			tb.Errorf("damage without a reason or an extent: %+v", b)
		}
		list = append(list, found{Offset: b.Offset, Bytes: b.Bytes, Records: b.Records})
		return nil
	}
	if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
		tb.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, describe(rec))
	}
}

// packed returns texts as gzip members.
func packed(texts ...string) []byte {
	var out bytes.Buffer
	for _, text := range texts {
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(text)) // to memory
		_ = z.Close()
	}
	return out.Bytes()
}

// record returns the text of a record.
func record(kind, uri, block string, fields ...string) string {
	head := "WARC/1.0\r\nWARC-Type: " + kind + "\r\nWARC-Target-URI: " + uri + "\r\n"
	for _, field := range fields {
		head += field + "\r\n"
	}
	return head + "Content-Length: " + itoa(len(block)) + "\r\n\r\n" + block + "\r\n\r\n"
}

func itoa(n int) string { return string(appendInt(nil, n)) }

func appendInt(b []byte, n int) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// TestReader checks which records are found in small files: the last letter of their URI, the kept part of their
// blocks, and `!` for damage.
func TestReader(t *testing.T) {
	a, b, c := record("response", "http://x/a", "first"), record("request", "http://x/b", "second!"),
		record("response", "http://x/c", "")
	damaged := func(file []byte, at int) []byte {
		file = slices.Clone(file)
		file[at] ^= 0xff
		return file
	}
	one := len(packed(a))
	whole := packed(a, b, c)
	f := func(name string, file []byte, want string) {
		t.Helper()
		var got []string
		r := NewReader(6)
		r.Broken = func(Broken) error { got = append(got, "!"); return nil }
		if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
			t.Fatal(err)
		}
		for {
			rec, err := r.Next()
			if err != nil {
				break
			}
			got = append(got, string(rec.TargetURI[max(0, len(rec.TargetURI)-1):])+"="+string(rec.Block))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
	f("nothing", nil, "")
	f("one byte", []byte("\x1f"), "!")
	f("plain", []byte(a+b+c), "a=first b=second c=")
	f("packed", whole, "a=first b=second c=")
	f("all in one member", packed(a+b+c), "a=first b=second c=")
	f("some in one member", packed(a+b, c), "a=first b=second c=")
	f("an empty member", packed(a, "", b), "a=first b=second")
	f("without the ends of records", packed(strings.TrimSpace(a), b), "a=first b=second")
	f("bare line feeds", []byte(strings.ReplaceAll(a+b, "\r\n", "\n")), "a=first b=second")
	f("a record over two members", packed(a, b[:len(b)-6], b[len(b)-6:], c), "a=first ! c=")
	f("bytes between members", append(append(packed(a), "rubbish"...), packed(b)...), "a=first ! b=second")
	f("zeros at the end", append(packed(a), make([]byte, 1000)...), "a=first !")
	f("a damaged header", damaged(whole, one), "a=first ! c=")
	f("a damaged block", damaged(whole, one+20), "a=first ! c=")
	f("a damaged checksum", damaged(whole, one-6), "! b=second c=")
	f("a damaged first member", damaged(whole, 15), "! b=second c=")
	f("cut off", whole[:len(whole)-9], "a=first b=second !")
	f("plain, cut off in a block", []byte(a+b[:len(b)-6]), "a=first !")
	f("plain, cut off in a head", []byte(a+b[:30]), "a=first !")
	f("plain, rubbish before", []byte("rubbish\n"+a), "! a=first")
	f("plain, a length too small", []byte(strings.Replace(a, "Length: 5", "Length: 3", 1)+b), "! b=second")
	f("plain, a length too large", []byte(strings.Replace(a, "Length: 5", "Length: 5000", 1)+b), "! b=second")
	f("a length too small", packed(strings.Replace(a, "Length: 5", "Length: 3", 1), b), "! b=second")
	f("text behind a block", packed(a+"rubbish", b), "! b=second")
	f("text behind the second block", packed(a+b+"rubbish", c), "a=first ! c=")
	f("half a record behind a block", packed(a+"WARC", b), "! b=second")
	f("a length of 2⁶²", packed(strings.Replace(a, "Length: 5", "Length: 4611686018427387904", 1), b), "! b=second")
	f("a negative length", packed(strings.Replace(a, "Length: 5", "Length: -5", 1), b), "! b=second")
	f("two lengths", packed(strings.Replace(a, "Content-", "Content-Length: 4\r\nContent-", 1), b), "! b=second")
	f("no length", packed(strings.Replace(a, "Content-Length", "X", 1), b), "! b=second")
	f("the length twice", packed(strings.Replace(a, "Content-", "Content-Length: 5\r\nContent-", 1), b),
		"a=first b=second")
	f("another version", packed("WARC/0.9"+a[8:], b), "! b=second")
	f("a head without an end", packed("WARC/1.0\r\n"+strings.Repeat("X: y\r\n", 20_000), b), "! b=second")
	f("a head of one line", packed("WARC/1.0"+strings.Repeat(" ", 100_000), b), "! b=second")
	f("a long head", packed(record("response", "http://x/a", "first", "X: "+strings.Repeat("y", 60_000)), b),
		"a=first b=second")
	f("line ends without an end", packed(strings.Repeat("\n", 100_000), b), "! b=second")
	f("a URI in brackets", packed(record("response", "<http://x/a>", "first")), "a=first")
	f("a long URI", packed(record("response", "http://x/"+strings.Repeat("a", MaxURI), "first")), "=first")
	f("a long block", packed(record("response", "http://x/a", strings.Repeat("0123456789", 100_000)), b),
		"a=012345 b=second")
	f("plain, a long block", []byte(record("response", "http://x/a", strings.Repeat("0123456789", 100_000))+b),
		"a=012345 b=second")
	// Records within a server's response are not records.
	f("a file in a block", packed(record("response", "http://x/a", string(packed(b)))), "a=\x1f\x8b\b\x00\x00\x00")
	f("plain, a record in a block", []byte(record("response", "http://x/a", "\r\n\r\n"+b)+c), "a=\r\n\r\nWA c=")
}

// TestWrongLength changes the length of each record of plain files and gzip members by a few bytes. No such record is
// returned, and all others are. The line ends behind the last record of a file or member may be part of its block:
// nothing behind it shows that.
func TestWrongLength(t *testing.T) {
	for _, end := range []string{"\r\n", "\n"} {
		for _, body := range []string{"first", "first\n", "first\r\n", "fi\rst\r", "a\n\n\n\n\n\n", "WARC/1.0\n",
			strings.Repeat("0123456789", 20), strings.Repeat("\n", 300)} {
			texts := make([]string, 3)
			for i := range texts {
				texts[i] = strings.ReplaceAll(record("response", "http://x/"+itoa(i), "\x00"), "\r\n", end)
			}
			for wrong := range texts {
				for by := max(-len(body), -5); by <= 5; by++ {
					list := make([]string, 3)
					for i, text := range texts {
						length := len(body)
						if i == wrong {
							length += by
						}
						list[i] = strings.Replace(strings.Replace(text, "Length: 1", "Length: "+itoa(length), 1), "\x00", body, 1)
					}
					for name, file := range map[string][]byte{"plain": []byte(strings.Join(list, "")), "members": packed(list...),
						"one member": packed(strings.Join(list, ""))} {
						if wrong == 2 && (by == 2*len(end) || by == len(end) && name == "plain") || by == 2*len(end) &&
							name == "members" {
							continue
						}
						var got string
						for _, x := range read(t, file, 3+997*(by&1)) {
							if x.Bytes == 0 {
								_, uri, _ := strings.Cut(x.Text, "http://x/")
								got += uri[:1]
							}
						}
						want := "012"
						switch {
						case by != 0 && name == "one member": // read on at the next member
							want = want[:wrong]
						case by != 0:
							want = strings.ReplaceAll(want, itoa(wrong), "")
						}
						if got != want {
							t.Fatalf("%s, %q, lines end in %q, length of record %d wrong by %d: %q, want %q", name, body, end, wrong, by,
								got, want)
						}
					}
				}
			}
		}
	}
}

// TestRecord checks the fields that are read from a head.
func TestRecord(t *testing.T) {
	file := packed(record("Response", "https://example.com/robots.txt", "HTTP", "warc-date: 2024-05-18T12:34:56Z",
		"WARC-IP-Address: 192.0.2.7",
		"WARC-Truncated: disconnect", "Content-Type: application/http; msgtype=response", "WARC-Protocol: h2",
		"WARC-Protocol: tls/1.3", "no field", " folded: x",
		"WARC-Record-ID: <urn:uuid:1>", "WARC-Concurrent-To: <urn:uuid:2>", "WARC-Segment-Number: 1", "WARC-Type: request"))
	r := NewReader(100)
	if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if rec.Type != Response || rec.Truncated != CutByDisconnect || !rec.Segmented ||
		!rec.Date().Equal(time.Date(2024, 5, 18, 12, 34, 56, 0, time.UTC)) || rec.Length != 4 {
		t.Errorf("%+v", rec)
	}
	for i, want := range []string{"https://example.com/robots.txt", "192.0.2.7", "application/http; msgtype=response",
		"h2", "tls/1.3", "<urn:uuid:1>", "<urn:uuid:2>", "HTTP"} {
		if got := [][]byte{rec.TargetURI, rec.IP, rec.ContentType, rec.Protocols[0], rec.Protocols[1], rec.ID, rec.Concurrent,
			rec.Block}[i]; string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f := func(date, want string) {
		t.Helper()
		rec := Record{date: []byte(date)}
		if got := rec.Date().Format(time.RFC3339Nano); got != want {
			t.Errorf("%q: %s, want %s", date, got, want)
		}
	}
	f("2024-05-18T12:34:56.789Z", "2024-05-18T12:34:56.789Z")
	f("2024-05-18T12:34:56+02:00", "2024-05-18T10:34:56Z")
	f("2024-05-18T12:34:56.123456789Z", "2024-05-18T12:34:56.123456789Z")
	f("2024-05-18T12:34Z", "2024-05-18T12:34:00Z")
	f("2024-05-18", "2024-05-18T00:00:00Z")
	f("2024-05", "2024-05-01T00:00:00Z")
	f("2024", "2024-01-01T00:00:00Z")
	f("20240518123456", "0001-01-01T00:00:00Z")
	f("", "0001-01-01T00:00:00Z")
	f(strings.Repeat("2", 100), "0001-01-01T00:00:00Z")
}

// TestFrom reads one record from an offset found earlier.
func TestFrom(t *testing.T) {
	a, b := record("response", "http://x/a", "first"), record("response", "http://x/b", "second")
	for _, file := range [][]byte{packed(a, b), []byte(a + b)} {
		list := read(t, file, 100)
		r := NewReader(100)
		for i, from := range []int64{list[1].Offset, list[0].Offset, list[1].Offset} {
			if err := r.Reset(bytes.NewReader(file), int64(len(file)), from); err != nil {
				t.Fatal(err)
			}
			rec, err := r.Next()
			if err != nil || describe(rec) != list[(i+1)%2] {
				t.Errorf("from %d: %v %v", from, rec, err)
			}
		}
	}
}

// TestCut checks where a second Reader may begin: at a member with a record, not far behind the offset asked for.
func TestCut(t *testing.T) {
	random := make([]byte, 3000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	short, long := record("response", "http://x/a", "first"), record("response", "http://x/b", string(random))
	one, two := int64(len(packed(short))), int64(len(packed(long)))
	r := NewReader(100)
	f := func(name string, file []byte, from, about, want int64) {
		t.Helper()
		if got := r.Cut(bytes.NewReader(file), int64(len(file)), from, about); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	f("the next member", packed(short, short, short), 0, 20, one)
	f("from the second on", packed(short, short, short), one, 20, 2*one)
	f("at a member", packed(short, short, short), 0, one, one)
	f("behind a member's begin", packed(short, short, short), 0, one+1, 2*one)
	f("a member without a record", packed(short, "rubbish", short), 0, 20, int64(len(packed(short, "rubbish"))))
	f("the last member", packed(short, short), one, 20, 2*one)
	f("behind the end", packed(short, short), 0, 10_000, 2*one)
	f("a long member", packed(long, short), 0, 1000, two)
	f("a member too long to search", packed(long, short), 0, 100, two+one)
	f("a plain file", append([]byte(long), packed(short, short)...), 0, 20, int64(len(long))+2*one)
	f("nothing", nil, 0, 20, 0)
}

// TestBrokenFile checks that errors of the file, and of the function Broken, are not taken for damage.
func TestBrokenFile(t *testing.T) {
	file := packed(record("response", "http://x/a", "first"), record("response", "http://x/b", "second"))
	gone := errors.New("gone")
	r := NewReader(100)
	if err := r.Reset(failing{bytes.NewReader(file), 100, gone}, int64(len(file)), 0); err == nil {
		_, err = r.Next()
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, gone) {
			t.Errorf("an error of the file became %v", err)
		}
	}
	if err := r.Reset(bytes.NewReader(file[:100]), int64(len(file)), 0); err == nil {
		_, err = r.Next()
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of a file that became shorter: %v", err)
		}
	}
	r.Broken = func(Broken) error { return gone }
	file[20] ^= 0xff
	if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
	}
}

// failing is a file that cannot be read after an offset.
type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at >= f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p[:min(int64(len(p)), f.from-at)], at)
}

// TestFlipped changes each byte of a file. The reference must find the same damage, and it must stay within the byte's
// record.
func TestFlipped(t *testing.T) {
	var texts []string
	for i := range 4 {
		texts = append(texts, record("response", "http://x/"+itoa(i), strings.Repeat("block "+itoa(i)+" ", 20)))
	}
	for _, file := range [][]byte{packed(texts...), []byte(strings.Join(texts, ""))} {
		for at := range file {
			file[at] ^= 0x15
			got, want := read(t, file, 1000), slowRead(file, 1000)
			if !slices.Equal(got, want) {
				t.Fatalf("byte %d:\n got %v\nwant %v", at, got, want)
			}
			records := 0
			for _, x := range got {
				if x.Bytes == 0 {
					records++
				}
			}
			if records < 3 && file[0] == 0x1f {
				t.Fatalf("byte %d: %d records are left", at, records)
			}
			file[at] ^= 0x15
		}
	}
}

// TestFlippedBits flips each bit of an archive, or with -short each 7th. Each record returned equals one of the
// original, byte by byte, or its gzip member has more records and is reported as damaged after it.
func TestFlippedBits(t *testing.T) {
	single := archive(t, [][]byte{
		[]byte(
			"User-agent: *\nDisallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\n\nSitemap: https://site.example/wp-sitemap.xml\n"),
		[]byte("User-agent: GPTBot\nDisallow: /\n\n\n\nUser-agent: CCBot\nDisallow: /\n\n\n\n"),
		nil,
	})
	var texts strings.Builder
	z, err := gzip.NewReader(bytes.NewReader(single))
	if err == nil {
		_, err = io.Copy(&texts, z)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Offsets are left out: the broken member is missing, and the others keep their places.
	original := map[string]bool{}
	for _, x := range read(t, single, 4000) {
		original[x.Text] = true
	}
	if len(original) != 7 {
		t.Fatalf("%d records", len(original))
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for name, file := range map[string][]byte{"a member a record": single, "one member": packed(texts.String())} {
		wrong, told, r := 0, 0, newReader(4000, MaxHead)
		for bit := 0; bit < 8*len(file); bit += step {
			file[bit/8] ^= 1 << (bit % 8)
			list := readWith(t, r, file)
			for _, x := range list {
				if x.Bytes > 0 || original[x.Text] {
					continue
				}
				wrong++
				if slices.ContainsFunc(list, func(b found) bool { return b.Bytes > 0 && b.Records > 0 && b.Offset == x.Offset }) {
					told++
				} else if wrong-told < 5 {
					t.Errorf("%s, bit %d: this is none of the original's records, and its member is not said to be damaged: %s", name,
						bit, x.Text)
				}
			}
			file[bit/8] ^= 1 << (bit % 8)
		}
		if name == "one member" && told == 0 || name != "one member" && wrong > 0 {
			t.Errorf("%s: %d wrong records, of which %d are told", name, wrong, told)
		}
	}
}

// FuzzReader compares the Reader with the reference. The text is split into members at each `|`, and a byte is
// flipped.
func FuzzReader(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.warc")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, seed := range seeds {
		text, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, false, uint16(0), byte(0))
		f.Add(text, true, uint16(0), byte(0))
		f.Add(text, true, uint16(77), byte(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, pack bool, at uint16, flip byte) {
		file := slices.Clone(text)
		if pack {
			file = packed(strings.Split(string(text), "|")...)
		}
		if int(at) < len(file) {
			file[at] ^= flip
		}
		got, want := read(t, file, 50), slowRead(file, 50)
		if !slices.Equal(got, want) {
			t.Errorf("%q:\n got %v\nwant %v", file, got, want)
		}
	})
}

// TestNoAllocations checks that going from record to record allocates nothing.
func TestNoAllocations(t *testing.T) {
	var texts []string
	for i := range 200 {
		texts = append(texts, record("response", "http://x/"+itoa(i), strings.Repeat("block "+itoa(i)+" ", 20),
			"WARC-Date: 2024-05-18T12:34:56Z", "WARC-Protocol: h2"))
	}
	for _, file := range [][]byte{packed(texts...), []byte(strings.Join(texts, ""))} {
		r, src := NewReader(1000), bytes.NewReader(file)
		if n := testing.AllocsPerRun(10, func() {
			if err := r.Reset(src, int64(len(file)), 0); err != nil {
				t.Fatal(err)
			}
			for {
				rec, err := r.Next()
				if err != nil {
					break
				}
				if rec.Date().IsZero() {
					t.Fatal("no date")
				}
			}
		}); n > 2 {
			t.Errorf("%v allocations for %d records", n, len(texts))
		}
	}
}

// TestWriter reads back what was written. The same exchanges give the same bytes.
func TestWriter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var list []Exchange
	for i := range 300 {
		block := make([]byte, random.IntN(3000))
		for i := range block {
			block[i] = "\r\n WARC/1.:abc\x1f\x8b\x08\x00"[random.IntN(18)]
		}
		x := Exchange{URI: "https://example.com/" + itoa(i), Date: time.UnixMilli(random.Int64N(1 << 41)).UTC(),
			Request: []byte("GET / HTTP/1.1\r\n\r\n"), Response: block}
		x.Payload = random.IntN(len(block) + 1)
		x.Truncated = Truncation(random.IntN(5))
		switch i % 5 {
		case 0:
			x.Request, x.Metadata = nil, []byte("a: b\r\n")
		case 1:
			x.Response, x.Payload = nil, 0
		}
		list = append(list, x)
	}
	write := func() []byte {
		var out bytes.Buffer
		w := NewWriter("test/1")
		if err := w.Begin(&out, "a.warc.gz", list[0].Date); err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if err := w.Write(&list[i]); err != nil {
				t.Fatal(err)
			}
			if w.Size() != int64(out.Len()) {
				t.Fatalf("%d bytes are said to be %d", out.Len(), w.Size())
			}
		}
		return out.Bytes()
	}
	file := write()
	if !bytes.Equal(file, write()) {
		t.Error("the same exchanges give other bytes")
	}
	r := NewReader(4000)
	r.Broken = func(b Broken) error { t.Errorf("%+v", b); return nil }
	if err := r.Reset(bytes.NewReader(file), int64(len(file)), 0); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	next := func(want Type) *Record {
		t.Helper()
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if rec.Type != want || ids[string(rec.ID)] || len(rec.ID) != len("<urn:uuid:00000000-0000-5000-8000-000000000000>") {
			t.Fatalf("%s %s, want %s", rec.Type, rec.ID, want)
		}
		ids[string(rec.ID)] = true
		return rec
	}
	if info := next(Info); !strings.Contains(string(info.Block), "software: test/1\r\n") {
		t.Errorf("%q", info.Block)
	}
	for _, x := range list {
		var request string
		if x.Request != nil {
			rec := next(Request)
			request = string(rec.ID)
			if !bytes.Equal(rec.Block, x.Request) || string(rec.TargetURI) != x.URI ||
				(rec.Concurrent != nil) != (x.Response != nil) {
				t.Fatalf("%+v of %+v", rec, x)
			}
		}
		if x.Response != nil {
			rec := next(Response)
			if !bytes.Equal(rec.Block, x.Response) || string(rec.TargetURI) != x.URI || string(rec.Concurrent) != request ||
				rec.Truncated != x.Truncated || !rec.Date().Equal(x.Date) {
				t.Fatalf("%+v of %+v", rec, x)
			}
		}
		if x.Metadata != nil {
			if rec := next(Metadata); !bytes.Equal(rec.Block, x.Metadata) {
				t.Fatalf("%+v of %+v", rec, x)
			}
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("behind the last: %v", err)
	}
}
