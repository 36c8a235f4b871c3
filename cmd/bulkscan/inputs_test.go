package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/ulikunitz/xz"

	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/commit"
	"github.com/bulkscan/bulkscan/sink/schema"
	"github.com/bulkscan/bulkscan/sink/table"
)

// listed is a row of a list, in any form.
type listed struct {
	Rank   int64  `json:"rank" parquet:"rank"`
	Domain string `json:"domain" parquet:"domain"`
	Sector string `json:"sector" parquet:"sector,dict"`
}

// TestEveryForm scans one list in every form that bulkscan reads. Except for what a form cannot express, all forms give
// the same hosts, sequence, ranks, labels, and rejects with their lines. --limit and --sample choose the same sites,
// and --dry-run says the same. The same command resumes, and --restart begins anew.
func TestEveryForm(t *testing.T) {
	notShort(t)
	t.Parallel()
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Addresses: 4, Bodies: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.pem")
	if err := os.WriteFile(ca, web.CAPEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	base := []string{"--resolver", web.DNSAddr().String(), "--ca-file", ca, "--allow-private", "--host-rate", "0",
		"--ip-rate", "0", "--progress", "none"}
	for _, to := range web.ConnectTo() {
		base = append(base, "--connect-to", to)
	}
	rows := []listed{{1, "a.ok.zoo.test", "news"}, {2, "b.ok.zoo.test", "shop"}, {3, "no host", "news"},
		{4, "A.ok.zoo.test", "shop"}, {5, "c.not-found.zoo.test", "news"}, {6, "d.ok.zoo.test", "shop"}}
	var lines, csv, quoted, jsonl strings.Builder
	csv.WriteString("rank,domain,sector\n")
	for _, r := range rows {
		fmt.Fprintln(&lines, r.Domain)
		fmt.Fprintf(&csv, "%d,%s,%s\n", r.Rank, r.Domain, r.Sector)
		fmt.Fprintf(&quoted, "\"%d\";\"%s\";\"%s\"\r\n", r.Rank, r.Domain, r.Sector)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&jsonl, "%s\n", b)
	}
	var table bytes.Buffer
	w := parquet.NewGenericWriter[listed](&table)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	var sampled string // the same in all forms
	f := func(name string, content []byte, label string, header int, flags ...string) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, name)
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if label != "" {
				flags = append(flags, "--label-column", label)
			}
			out := func(what string) string { return filepath.Join(folder, what+" of "+name) }
			scan := func(out string, more ...string) (stdout, stderr string) {
				t.Helper()
				var o, e bytes.Buffer
				args := slices.Concat([]string{"scan", path, "-o", out, "--scan-id", "s"}, base, flags, more)
				if code := run(args, strings.NewReader(""), &o, &e); code != 0 {
					t.Fatalf("%q: exit code %d\n%s", args, code, e.String())
				}
				return o.String(), e.String()
			}
			asked := web.Stats().Requests
			says, _ := scan(out("none"), "--dry-run")
			for _, want := range []string{
				path + ": " + fmt.Sprint(len(rows)+header) + " lines, ", "4 origins would be asked",
				fmt.Sprintf("2 lines would be rejected (1 of them duplicates), %d are blank, comment or header", header),
			} {
				if !strings.Contains(says, want) {
					t.Errorf("--dry-run does not say %q:\n%s", want, says)
				}
			}
			if web.Stats().Requests != asked {
				t.Error("--dry-run asks")
			}

			scan(out("limit"), "--limit", "2")
			if got := hostsOf(t, out("limit")); got != "a.ok.zoo.test b.ok.zoo.test" {
				t.Errorf("--limit 2: %s", got)
			}
			scan(out("sample"), "--sample", "0.6")
			if got := hostsOf(t, out("sample")); sampled != "" && got != sampled || len(strings.Fields(got)) == 4 {
				t.Errorf("--sample: %s, and %s of another form", got, sampled)
			} else {
				sampled = got
			}

			// With a header, sequence and lines are one more.
			scan(out("all"))
			var got, want strings.Builder
			for i, r := range rows {
				if i == 2 || i == 3 {
					continue
				}
				if label == "" {
					r.Rank, r.Sector = 0, ""
				}
				fmt.Fprintf(&want, "%d %s %d %q\n", i+header, r.Domain, r.Rank, r.Sector)
			}
			for _, r := range sitesOf(t, out("all")) {
				fmt.Fprintf(&got, "%d %s %d %q\n", r.Seq, r.Host, r.Rank, r.Label)
			}
			if got.String() != want.String() {
				t.Errorf("got:\n%swant:\n%s", got.String(), want.String())
			}
			rejects, err := os.ReadFile(filepath.Join(out("all"), "_rejects", "s.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for i, reason := range []string{"not a host", "duplicate"} {
				line := strings.Split(string(rejects), "\n")[i]
				if !strings.Contains(line, fmt.Sprintf(`"line":%d,`, 3+i+header)) || !strings.Contains(line, reason) {
					t.Errorf("reject %d is %s", i, line)
				}
			}
			if n := bytes.Count(rejects, []byte("\n")); n != 2 {
				t.Errorf("%d rejects", n)
			}
			if got, want := labelsOf(t, out("all")), map[bool]string{true: "map[news:2 shop:2]",
				false: "map[]"}[label != ""]; got != want {
				t.Errorf("segments of the statistics by label: %s, want %s", got, want)
			}

			asked = web.Stats().Requests
			if _, says := scan(out("all")); !strings.Contains(says, "already_kept=4") || web.Stats().Requests != asked {
				t.Errorf("the same command does not resume:\n%s", says)
			}
			if scan(out("all"), "--restart"); web.Stats().Requests == asked || len(sitesOf(t, out("all"))) != 4 {
				t.Error("--restart does not begin anew")
			}
		})
	}
	f("hosts.txt", []byte(lines.String()), "", 0)
	f("hosts.csv", []byte(csv.String()), "Sector", 1)
	f("bom.csv", []byte("\xef\xbb\xbf"+csv.String()), "3", 1, "--column", "2")
	f("quoted.csv", []byte(quoted.String()), "3", 0)
	f("hosts.jsonl", []byte(jsonl.String()), "sector", 0)
	f("nested.jsonl", []byte(strings.ReplaceAll(strings.ReplaceAll(jsonl.String(), `"domain":`, `"site":{"name":`),
		`,"sector"`, `},"sector"`)), "sector", 0, "--column", "site.name")
	f("hosts.parquet", table.Bytes(), "sector", 0)
	f("forced.parquet", table.Bytes(), "3", 0, "--format", "parquet", "--column", "domain")
	f("hosts.csv.gz", pressed(t, csv.String(), func(w io.Writer) (io.WriteCloser, error) {
		return gzip.NewWriter(w),
			nil
	}), "sector", 1)
	f("hosts.csv.zst", pressed(t, csv.String(), func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }),
		"sector", 1)
	f("hosts.jsonl.xz", pressed(t, jsonl.String(), func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) }),
		"sector", 0)
	f("hosts.parquet.gz", pressed(t, table.String(), func(w io.Writer) (io.WriteCloser, error) {
		return gzip.NewWriter(w),
			nil
	}), "sector", 0)
	f("utf16.csv", inUTF16(csv.String()), "sector", 1)
}

// TestStandardInputName shows that the copy of standard input is deleted, and that no message names it.
func TestStandardInputName(t *testing.T) {
	t.Parallel()
	f := func(content, want string) {
		t.Helper()
		out := t.TempDir()
		var o, e bytes.Buffer
		if code := run([]string{"scan", "-o", out, "--progress", "none"}, strings.NewReader(content), &o, &e); code == 0 ||
			!strings.Contains(e.String(), want) || strings.Contains(e.String(), "bulkscan-stdin-") {
			t.Errorf("exit code %d, want %s:\n%s", code, want, e.String())
		}
	}
	f("a,b\na.example,b.example\n", "cannot read standard input: several columns hold host names")
	gz := pressed(t, strings.Repeat("no host\n", 10), func(w io.Writer) (io.WriteCloser, error) {
		return gzip.NewWriter(w),
			nil
	})
	f(string(gz[:len(gz)-4]), "cannot read standard input from line 11 on")
}

// pressed compresses a text.
func pressed(t *testing.T, text string, by func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := by(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// inUTF16 is a text in UTF-16, as spreadsheets save it.
func inUTF16(text string) []byte {
	b := []byte("\xff\xfe")
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

// sitesOf returns the table sites, ordered by seq.
func sitesOf(t *testing.T, out string) []schema.SiteRow {
	t.Helper()
	scan, err := commit.ReadScan(t.Context(), mustPlace(t, out), "s")
	if err != nil {
		t.Fatal(err)
	}
	var rows []schema.SiteRow
	each(t, scan, schema.Sites, func(r *schema.SiteRow) { rows = append(rows, *r) })
	slices.SortFunc(rows, func(a, b schema.SiteRow) int { return int(a.Seq - b.Seq) })
	return rows
}

func hostsOf(t *testing.T, out string) string {
	t.Helper()
	var hosts []string
	for _, r := range sitesOf(t, out) {
		hosts = append(hosts, r.Host)
	}
	return strings.Join(hosts, " ")
}

// labelsOf returns the sites that the statistics have under each label.
func labelsOf(t *testing.T, out string) string {
	t.Helper()
	st := mustPlace(t, out)
	scan, err := commit.ReadScan(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]int64{}
	for r, err := range table.FileRows[schema.TokenStatsRow](t.Context(), st, commit.StatsName(schema.TokenStats,
		scan.Manifest.ScanDate, "s")) {
		if err != nil {
			t.Fatal(err)
		}
		if r.SegmentKind == "label" {
			labels[r.SegmentValue] = r.SitesAll
		}
	}
	return fmt.Sprint(labels)
}
