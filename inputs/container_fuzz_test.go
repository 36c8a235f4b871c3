package inputs

import (
	"bytes"
	"compress/bzip2"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/ulikunitz/xz"

	"github.com/bulkscan/bulkscan/sink/table"
)

// FuzzParquet compares the entries and rejects of a table with the table itself: each row is one or the other, in
// order, with the row's number, while the table can be read.
//
//	go test -run - -fuzz FuzzParquet -fuzztime 10s -fuzzminimizetime 10x ./inputs
func FuzzParquet(f *testing.F) {
	type row struct {
		Host *string `parquet:"host,optional,dict"`
		Rank int32   `parquet:"rank"`
	}
	a, b := "a.example", "not a host"
	rows := []row{{&a, 1}, {nil, 2}, {&a, 3}, {&b, -4}}
	f.Add(parquetOf(f, rows))
	f.Add(parquetOf(f, rows, parquet.DataPageVersion(2), parquet.Compression(&parquet.Zstd)))
	f.Add(parquetOf(f, rows, parquet.Compression(&parquet.Snappy)))
	f.Add(parquetOf(f, rows[:0]))
	f.Fuzz(func(t *testing.T, content []byte) {
		if !isTable(string(content[:min(len(content), 5)])) {
			return // another target's input
		}
		const most = 10_000 // a few bytes can stand for as many rows as they claim
		var rejects []Reject
		opt := Options{Format: Parquet, Parquet: openParquet, Stdin: bytes.NewReader(content), TempDir: t.TempDir(),
			Reject: func(r Reject) error {
				if rejects = append(rejects, r); len(rejects) == most {
					return io.ErrShortBuffer
				}
				return nil
			}}
		r, err := Open(t.Context(), []string{"-"}, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		entries, err := readAll(r)
		table, problem := table.OpenList(bytes.NewReader(content), int64(len(content)))
		if problem != nil {
			if err == nil || len(entries)+len(rejects) > 0 {
				t.Fatalf("%d entries of what is no table (%v), %v", len(entries), problem, err)
			}
			return
		}
		if s := r.Stats(); s.Lines != uint64(len(entries)+len(rejects)) {
			t.Fatalf("%+v of %d entries and %d rejects", s, len(entries), len(rejects))
		}
		if len(r.stats.Files) == 0 {
			return // no column was found
		}
		if err := table.Select(r.layout.host); err != nil {
			t.Fatal(err)
		}
		for line := uint64(1); len(entries)+len(rejects) > 0; line++ {
			if err := table.Next(); err != nil {
				t.Fatalf("row %d is one too many: %v", line, err)
			}
			value, _ := table.Text(0)
			text := trimSpace(bytes.TrimRight(value, "\x00"))
			switch {
			case len(entries) > 0 && entries[0].Seq == line-1:
				if !strings.HasPrefix(string(text), entries[0].Input) || !utf8.ValidString(entries[0].Label) {
					t.Fatalf("row %d is %q, and the entry %+v", line, text, entries[0])
				}
				entries = entries[1:]
			case len(rejects) > 0 && rejects[0].Line == line:
				if !bytes.HasPrefix(text, []byte(rejects[0].Text)) || len(rejects[0].Text) > MaxText {
					t.Fatalf("row %d is %q, and the reject %+v", line, text, rejects[0])
				}
				rejects = rejects[1:]
			default:
				t.Fatalf("row %d is neither an entry nor a reject", line)
			}
		}
	})
}

// FuzzContainer compares the unpacking of any bytes with the compression libraries: lines are cut from what these
// unpack, and half a line before an error is no line. A bomb is cut at a few MiB.
//
//	go test -run - -fuzz FuzzContainer -fuzztime 10s ./inputs
func FuzzContainer(f *testing.F) {
	const text = "a.example\r\nb.example\nc.example"
	for _, kind := range []string{"gzip", "zstd", "xz"} {
		one := packed(f, kind, text)
		f.Add(one)
		f.Add(slices.Concat(one, packed(f, kind, "\nd.example\n"))) // members, frames, streams
		f.Add(one[:len(one)-3])
		f.Add(packed(f, "gzip", string(one)))
	}
	bz2, err := os.ReadFile("testdata/lists/compressed.txt.bz2")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bz2)
	f.Add([]byte("\xff\xfea\x00.\x00b\x00\n\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		const most = 4 << 20
		kind, _ := magic(content)
		if kind == "" || kind == kindTable {
			return // another target's input
		}
		var got []string
		r, err := Open(t.Context(), []string{"-"}, Options{Format: Lines, Stdin: bytes.NewReader(content),
			Reject: func(r Reject) error {
				if r.Line == 0 || len(r.Text) > MaxText {
					t.Fatalf("%+v", r)
				}
				got = append(got, r.Text)
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			got = append(got, e.Input)
		}
		s := r.Stats()
		if uint64(len(got)) != s.Lines-s.Skipped {
			t.Fatalf("%d lines of %+v", len(got), s)
		}
		plain, ok := unpackPlainly(kind, content, most)
		inner, _ := magic(plain)
		if !ok || inner != "" || bytes.ContainsAny(plain, "\x00#") || bytes.HasPrefix(plain, []byte("\xef\xbb\xbf")) ||
			len(r.stats.Files) == 0 || r.layout.eol == '\r' {
			return // it is damaged, or exceeds the lines read
		}
		if n := countLines(plain, '\n'); s.Lines != n {
			t.Fatalf("%d lines, and %d of what the library unpacks", s.Lines, n)
		}
		lines := strings.Split(string(plain), "\n")
		i := 0
		for _, line := range got {
			for trimmed := ""; ; i++ {
				if trimmed = string(trimSpace([]byte(lines[i]))); trimmed != "" {
					break
				}
			}
			whole := lines[i]
			i++
			if !strings.Contains(whole, line) && len(line) < MaxText {
				t.Fatalf("line %d is %q, not %q", i, line, whole)
			}
		}
	})
}

// unpackPlainly unpacks with the library alone; ok is false for damaged or endless input.
func unpackPlainly(kind string, content []byte, most int64) (plain []byte, ok bool) {
	var r io.Reader
	var err error
	switch kind {
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(content))
	case "zstd":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
		}
		r = z
	case "xz":
		if len(content) > 20 && content[12] != 0 && len(content) > 12+4*(int(content[12])+1) {
			if size, sound := xzDictionary(content[12 : 12+4*(int(content[12])+1)]); !sound || size > maxWindow {
				return nil, false
			}
		}
		r, err = xz.NewReader(bytes.NewReader(content))
	case "bzip2":
		r = bzip2.NewReader(bytes.NewReader(content))
	default:
		return nil, false // no other decoder of UTF-16 to compare with
	}
	if err != nil {
		return nil, false
	}
	plain, err = io.ReadAll(io.LimitReader(r, most))
	return plain, err == nil && int64(len(plain)) < most
}
