package inputs

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestLists reads each file of testdata/lists, detecting its format, and compares the result with a golden file.
func TestLists(t *testing.T) {
	paths, err := filepath.Glob("testdata/lists/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, ".golden") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := transcript(t, path)
			golden := path + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// transcript describes everything that reading a file gives.
func transcript(t *testing.T, path string) []byte {
	var b bytes.Buffer
	var rejects []string
	r, err := Open(t.Context(), []string{path}, Options{Reject: func(r Reject) error {
		rejects = append(rejects, fmt.Sprintf("reject line=%d %q: %s\n", r.Line, r.Text, r.Reason))
		return nil
	}})
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
		return b.Bytes()
	}
	defer closeReader(t, r)
	entries, err := readAll(r)
	s := r.Stats()
	for _, file := range s.Files {
		fmt.Fprintf(&b, "layout %s\n", strings.TrimPrefix(file.Compression+" ", " ")+file.Layout)
	}
	fmt.Fprintf(&b, "lines=%d entries=%d rejects=%d duplicates=%d skipped=%d\n\n", s.Lines, s.Entries, s.Rejects,
		s.Duplicates, s.Skipped)
	for _, e := range entries {
		fmt.Fprintf(&b, "entry seq=%d rank=%d %q: %s (%s)\n", e.Seq, e.Rank, e.Input, e.Origin, e.Origin.Scheme())
	}
	b.WriteString(strings.Join(rejects, ""))
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	return b.Bytes()
}
