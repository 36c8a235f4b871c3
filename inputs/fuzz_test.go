package inputs

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/origin"
)

// There is one target for each format. Whatever the bytes are, nothing panics, every line is counted, and each entry is
// what origin.Parse makes of its text. For example:
//
//	go test -run - -fuzz FuzzCSV -fuzztime 10s ./inputs

func FuzzLines(f *testing.F) { fuzz(f, Options{Format: Lines}) }
func FuzzCSV(f *testing.F)   { fuzz(f, Options{Format: CSV}) }
func FuzzJSONL(f *testing.F) { fuzz(f, Options{Format: JSONL}) }
func FuzzAuto(f *testing.F)  { fuzz(f, Options{}) }

func fuzz(f *testing.F, opt Options) {
	seeds, err := filepath.Glob("testdata/lists/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range seeds {
		if strings.HasSuffix(path, ".golden") {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte("\"a\",\"b\"\"\n\"x\ty\";;;\n"))
	f.Add([]byte("sep=|\nhost|b\n|\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		opt := opt
		opt.Stdin = bytes.NewReader(content)
		var rejects uint64
		opt.Reject = func(r Reject) error {
			rejects++
			if r.Reason == "" || !utf8.ValidString(r.Reason) || len(r.Text) > MaxText || r.Line == 0 {
				t.Fatalf("%+v", r)
			}
			return nil
		}
		r, err := Open(t.Context(), []string{"-"}, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer closeReader(t, r)
		var entries uint64
		last := int64(-1)
		for {
			var e Entry
			if e, err = r.Next(); err != nil {
				break
			}
			entries++
			if int64(e.Seq) <= last {
				t.Fatalf("seq %d after %d", e.Seq, last)
			}
			last = int64(e.Seq)
			if again, err := origin.Parse(e.Input); len(e.Input) < MaxInput && (err != nil || again != e.Origin) ||
				len(e.Input) > MaxInput {
				t.Fatalf("%+v reads as %v, %v", e, again, err)
			}
			if !utf8.ValidString(e.Input) || !utf8.ValidString(e.Label) || e.Rank < 0 {
				t.Fatalf("%+v", e)
			}
		}
		s := r.Stats()
		if s.Entries != entries || s.Rejects != rejects || s.Lines != entries+rejects+s.Skipped || s.Duplicates > rejects {
			t.Fatalf("%+v, %d entries, %d rejects", s, entries, rejects)
		}
		text := len(s.Files) == 1 && s.Files[0].Compression == "" && err == io.EOF
		if n := countLines(content, r.layout.eol); text && s.Lines != n {
			t.Fatalf("%d lines of %d: %+v", s.Lines, n, s)
		}
	})
}

// countLines counts lines; a last line without an end counts.
func countLines(content []byte, eol byte) uint64 {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	n := bytes.Count(content, []byte{eol})
	if len(content) > 0 && content[len(content)-1] != eol {
		n++
	}
	return uint64(n)
}
