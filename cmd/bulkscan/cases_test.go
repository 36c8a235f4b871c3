package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// eachCase runs f for small inputs of one kind that occur on the real web. It names inputs that have no case. Each kind
// also has a test with an input of its own.
func eachCase[C any](t *testing.T, kind string, cases map[string]C, f func(t *testing.T, path string, c C)) {
	folder := sharedtest.Path(t, "cases", kind)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		c, known := cases[entry.Name()]
		if !known {
			t.Logf("%s has no case", entry.Name())
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) { f(t, filepath.Join(folder, entry.Name()), c) })
	}
}

// TestCasesOfLists checks what --dry-run says of each list.
func TestCasesOfLists(t *testing.T) {
	type listCase struct {
		flags string
		code  int
		says  []string
	}
	columns := func(code int, columns string) listCase {
		return listCase{code: code, says: []string{"several columns hold host names (" + columns +
			"); choose one with --column"}}
	}
	eachCase(t, "lists", map[string]listCase{
		"ccrank.tsv": {says: []string{"host in column 5, rank in column 1, names reversed", "4 origins",
			"0 lines would be rejected"}},
		"crtsh.jsonl": {code: exitFailed,
			says: []string{`no key of its first objects is known to hold hosts ("common_name",`, "choose one with --column"}},
		"crux.parquet": {says: []string{`rank in column 2 "experimental.popularity.rank"`, "1 origins"}},
		"dbl.parquet":  {says: []string{"3 lines, parquet", "2 origins"}},
		"duckdb-label.parquet": {flags: "--label-column sector", says: []string{"1000 lines, parquet", "1000 origins",
			"0 lines would be rejected"}},
		"edges.csv": columns(exitFailed, `1 "source", 2 "target"`),
		"edges.tsv": columns(exitFailed, "1, 2"),
		"gsc.csv": {says: []string{`header, host in column 1 "Top pages"`, "111 origins",
			"0 lines would be rejected"}},
		"hosts.txt": {code: exitFailed, says: []string{"it is a hosts file", "write its names alone"}},
		"junk.csv": {code: exitUsage, says: []string{"5 origins", "21 of its 27 lines are no sites",
			"--accept-list"}},
		"links.tsv": columns(exitFailed, `1 "from", 2 "to"`),
		"ranks.csv": {says: []string{`rank in column 2 "rank"`, "5 origins"}},
		"sf.csv": {says: []string{`header, host in column 1 "Address"`, "69 origins",
			"0 lines would be rejected"}},
		"wikidata.csv": columns(exitFailed, `1 "item", 2 "officialWebsite"`),
	}, func(t *testing.T, path string, c listCase) {
		t.Chdir(t.TempDir())
		var out bytes.Buffer
		code := run(append([]string{"scan", path, "--dry-run"}, strings.Fields(c.flags)...), strings.NewReader(""), &out,
			&out)
		if code != c.code {
			t.Errorf("exit code %d, want %d", code, c.code)
		}
		for _, want := range c.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not say %q:\n%s", want, out.String())
			}
		}
	})
}

// TestCasesOfArchives checks which sites of each archive are judged. All have the same body, and no row has another.
func TestCasesOfArchives(t *testing.T) {
	type archiveCase struct {
		code  int
		hosts string // of rows, in order
		says  string
	}
	numbered := func(letter string, n int) string {
		var hosts []string
		for i := range n {
			hosts = append(hosts, letter+strconv.Itoa(i)+".example")
		}
		slices.Sort(hosts)
		return strings.Join(hosts, " ")
	}
	eachCase(t, "warc", map[string]archiveCase{
		"05-length-minus5.warc":   {hosts: "b.example c.example"},
		"05-length-plus1.warc":    {hosts: "b.example c.example"},
		"05-length-plus5.warc.gz": {hosts: "b.example c.example"},
		"06-bgzip-like.warc.gz":   {code: exitFailed, says: "its gzip members end within records"},
		"06-one-member.warc.gz":   {hosts: numbered("a", 50)},
		"06-paths.gz":             {code: exitFailed, says: "it is a list of archives"},
		"07-dates.warc":           {hosts: numbered("d", 10)},
		"10-minus2-nocl.warc":     {hosts: "b.example c.example"},
		"10-minus31-nocl.warc":    {hosts: "b.example c.example"},
		"10-minus5-nocl.warc":     {hosts: "b.example c.example"},
		"13-segments.warc.gz":     {hosts: "b.example"},
	}, func(t *testing.T, path string, c archiveCase) {
		var out, errs bytes.Buffer
		code := run([]string{"scan", "--format", "warc", path, "-o", "-", "--progress", "none", "--date", "2024-05-18"},
			strings.NewReader(""), &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, errs.String())
		}
		var hosts []string
		for line := range strings.Lines(out.String()) {
			var row struct {
				Host  string `json:"host"`
				Bytes int64  `json:"body_bytes"`
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			if hosts = append(hosts, row.Host); row.Bytes != 31 {
				t.Errorf("%s: %d bytes of 31", row.Host, row.Bytes)
			}
		}
		slices.Sort(hosts)
		if got := strings.Join(hosts, " "); got != c.hosts {
			t.Errorf("rows of %s, want %s", got, c.hosts)
		}
	})
}
