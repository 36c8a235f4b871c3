package main

import (
	"fmt"
	"html"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/sitetest"
	"github.com/bulkscan/bulkscan/sink"
	"github.com/bulkscan/bulkscan/store"
)

// shown has a printer for each block of output in the documents, by the page and the beginning of the block's first
// line. A printer works in an empty folder, and prints `…` for text that differs from run to run.
var shown = map[string]func(t *testing.T, block string) string{
	"docs/bot.md: 198.51.100.7":           printLogLine,
	"docs/configuration.md: bulkscan.tom": printMistake,
	"docs/configuration.md: rate = 500 #": printSettings,
	"docs/configuration.md: # delivery n": useRates,
	"docs/dataset.md: OUT/":               listDataset,
	"ARCHITECTURE.md: OUT/sites/scan_dat": listDataset,
	"docs/dataset.md: damaged: ":          printDamage,
	"docs/history.md: news.example":       printHistory,
	"docs/resuming.md: cannot resume sca": printLoss,
	"docs/summary.md: left out: ":         printOmission,
	"docs/cookbook.md: GPTBot      ":      nil, // TestFigures
	"ARCHITECTURE.md:  list ─► feed ─► r": nil, // a drawing
}

// TestShownOutput compares the blocks of output in the documents with actual output. `make generate` writes them anew.
func TestShownOutput(t *testing.T) {
	used := map[string]bool{}
	for path, page := range documents(t) {
		file, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, filepath.Join("../..")+string(filepath.Separator)))
		if strings.Contains(name, "/adr/") || name == "CHANGELOG.md" ||
			slices.Contains([]string{"docs/definitions.md", "docs/inputs.md", "docs/METRICS.md"}, name) {
			// their packages test them
			continue
		}
		for _, block := range outputs(page) {
			key := name + ": " + block
			at := ""
			for begins := range shown {
				if strings.HasPrefix(key, begins) {
					at = begins
				}
			}
			if at == "" {
				t.Errorf("%s: nothing prints this; give it a printer in shown:\n%s", name, block)
				continue
			}
			if used[at] = true; shown[at] == nil {
				continue
			}
			t.Run(at, func(t *testing.T) {
				t.Chdir(t.TempDir())
				printed := strings.TrimRight(shown[at](t, block), "\n")
				if block = strings.TrimRight(block, "\n"); block == printed {
					return
				}
				if !*update {
					t.Errorf("%s shows (make generate writes it)\n%s\nand this is printed:\n%s", name, block, printed)
					return
				}
				if !strings.Contains(page, block) {
					block, printed = indent(block), indent(printed)
				}
				page = strings.Replace(page, block, printed, 1)
				write(t, file, page)
			})
		}
	}
	for begins := range shown {
		if !used[begins] {
			t.Errorf("no page has %q", begins)
		}
	}
}

// typedIn matches the beginning of blocks that are typed, not printed.
var typedIn = regexp.MustCompile(`^(?:bulkscan|make|cd|export|aws|go|SELECT|SET|FROM|COPY|CREATE) `)

// outputs returns the blocks of output of a page: those without a language, and indented ones.
func outputs(page string) (all []string) {
	rest := fenced.ReplaceAllStringFunc(page, func(block string) string {
		found := fenced.FindStringSubmatch(block)
		if (found[1] == "" || found[1] == "text") && !typedIn.MatchString(found[2]) {
			all = append(all, found[2])
		}
		return ""
	})
	for _, block := range regexp.MustCompile(`(?m)(?:^\t.*\n+)+`).FindAllString(rest, -1) {
		if block = strings.ReplaceAll(block[1:], "\n\t", "\n"); !typedIn.MatchString(block) {
			all = append(all, block)
		}
	}
	return all
}

// indent makes an indented block of lines, as pages have them.
func indent(block string) string {
	return strings.ReplaceAll("\t"+strings.ReplaceAll(block, "\n", "\n\t"), "\n\t\n", "\n\n")
}

// printLogLine is a line of a log, with the User-Agent that a released version has.
func printLogLine(_ *testing.T, block string) string {
	defer func(was string) { version = was }(version)
	version = "v1.0.0"
	agent := (&fetchFlags{contact: "survey@example.org"}).agent()
	return regexp.MustCompile(`"bulkscan/[^"]*"`).ReplaceAllLiteralString(block, `"`+agent+`"`)
}

func printMistake(t *testing.T, _ string) string {
	write(t, "bulkscan.toml", "out = \"x\"\nrate = 1\nconcurency = 5\n")
	_, stderr := said(t, exitUsage, "scan", "--config", "bulkscan.toml", "list.csv")
	return strings.TrimPrefix(stderr, "bulkscan: ")
}

func printSettings(t *testing.T, _ string) string {
	write(t, "bulkscan.toml", "# line\n# line\nrate = 500\n")
	t.Setenv("BULKSCAN_SCAN_ID", "night")
	stdout, _ := said(t, 0, "scan", "--config", "bulkscan.toml", "--print-config")
	return strings.Join(regexp.MustCompile(`(?m)^.* # .*$`).FindAllString(stdout, -1), "\n")
}

// useRates reads the block as a file of rates.
func useRates(t *testing.T, block string) string {
	write(t, "rates.txt", block)
	write(t, "list.csv", "1,example.com\n")
	said(t, 0, "plan", "list.csv", "--rates", "rates.txt", "--sample", "0")
	return block
}

// listDataset compares a listing of a dataset with a dataset: all listed files exist, except those that later nights
// and scans in shares add. docs/dataset.md lists all files.
func listDataset(t *testing.T, block string) string {
	captured(t, "kept.warc", "2026-11-21", append(manyBodies(3), "")...)
	said(t, 0, "scan", "--format", "warc", "kept.warc", "-o", "OUT", "--scan-id", "s", "--date", "2026-11-21")
	names := strings.NewReplacer("<scan>", "SCAN-ID", "<shard>-<n>", "SHARD-N", "<name>", "NAME", "<number>", "NNNNNNNN",
		"OUT/", "", "…", "").Replace(block)
	var missing []string
	there := map[string]bool{}
	for name := range files(t, "OUT") {
		for pattern, general := range map[string]string{
			`^(\w+)/scan_date=.*`: "$1/", `\bs(/|\.jsonl)`: "SCAN-ID$1", `\d+-\d+\.json$`: "SHARD-N.json",
			`files/\w+`: "files/NAME", `^history/[^_].*`: "history/", `^_scans/_months/.*`: "_scans/_months/",
			`^_head/\d+\.json$`: "_head/NNNNNNNN.json",
		} {
			name = regexp.MustCompile(pattern).ReplaceAllString(name, general)
		}
		if there[name] = true; !strings.Contains(names, name) {
			missing = append(missing, name)
		}
	}
	if strings.Contains(block, "README.md") && missing != nil {
		t.Errorf("not listed: %v", missing)
	}
	for _, name := range regexp.MustCompile(`(?m)^ *\S+|\b\w+/ `).FindAllString(names, -1) {
		name = strings.TrimSpace(name)
		if at := strings.Index(name, "scan_date="); at > 0 {
			name = name[:at]
		}
		if later := []string{"_nights/DATE/", "_scans/_months/", "_months/", "_scans/SCAN-ID/shares/<i>.json"}; name != "" &&
			!there[name] && !slices.Contains(later, name) {
			t.Errorf("%s is listed and not there", name)
		}
	}
	return block
}

// files are the files below a folder, by their paths in it.
func files(t *testing.T, folder string) iter.Seq[string] {
	return func(yield func(string) bool) {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if name, _ := filepath.Rel(folder, path); err == nil && !entry.IsDir() && !yield(filepath.ToSlash(name)) {
				return fs.SkipAll
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// printDamage damages an interrupted scan: a byte of a part, a commit, a file without a commit.
func printDamage(t *testing.T, _ string) string {
	st, err := store.NewDir("OUT")
	if err != nil {
		t.Fatal(err)
	}
	w, err := sink.Open(t.Context(), st, sink.Options{ScanID: "s", Date: "2026-11-21", PartRows: 200})
	if err != nil {
		t.Fatal(err)
	}
	for seq := range 1200 {
		if err := w.Add(sitetest.Typical(t, uint64(seq))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const parts = "OUT/sites/scan_date=2026-11-21/"
	write(t, parts+"part-s-0-9.parquet", readFile(t, parts+"part-s-0-2.parquet"))
	if err := os.Remove("OUT/_scans/s/commits/0-4.json"); err != nil {
		t.Fatal(err)
	}
	damaged := []byte(readFile(t, parts+"part-s-0-1.parquet"))
	damaged[len(damaged)/2]++
	write(t, parts+"part-s-0-1.parquet", string(damaged))
	stdout, _ := said(t, exitDamaged, "verify", "OUT")
	line := func(file string) string { return regexp.MustCompile(`(?m)^\w+: ` + file + `.*$`).FindString(stdout) }
	sums := regexp.MustCompile(`(expected|found) \w+`).ReplaceAllString(line(`sites/.*-1.parquet`), "$1 …")
	return line(`_scans/s/commits/0-4.json`) + "\n" + sums + "\n" + line(`sites/.*-9.parquet`)
}

func printHistory(t *testing.T, _ string) string {
	const before = "User-agent: *\nDisallow: /private/\n\nAllow: /private/open/\n\nUser-agent: CCBot\nDisallow: /\n"
	after := strings.Replace(before, "CCBot\n", "CCBot\nUser-agent: GPTBot\n", 1)
	for _, night := range []struct{ date, body string }{{"2026-11-01", before}, {"2026-11-02", before}, {"2026-11-03", ""},
		{"2026-11-04", after}, {"2026-11-30", after}} {
		captured(t, night.date+".warc", night.date, night.body)
		said(t, 0, "scan", "--format", "warc", night.date+".warc", "-o", "OUT", "--scan-id", night.date, "--date", night.date,
			"--allow-empty")
	}
	stdout, _ := said(t, 0, "history", "OUT", "news.example")
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(stdout, "") // as editors leave it
}

// printLoss takes a commit from a complete scan, or its manifest.
func printLoss(t *testing.T, block string) string {
	captured(t, "kept.warc", "2026-11-21", manyBodies(9)...)
	scan := []string{"scan", "--format", "warc", "kept.warc", "-o", "OUT", "--scan-id", "ID", "--part-rows", "1",
		"--no-compact"}
	said(t, 0, scan...)
	lost := "OUT/_scans/ID/commits/0-2.json"
	if strings.Contains(block, "manifest.json: ") {
		lost = "OUT/_scans/ID/manifest.json"
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	_, stderr := said(t, exitDamaged, scan...)
	_, message, _ := strings.Cut(stderr, "bulkscan: ") // behind what was read
	return regexp.MustCompile(`(; rows: \d+ of \d+; )[^)]*\)`).ReplaceAllString(message, "$1…)")
}

func printOmission(t *testing.T, _ string) string {
	captured(t, "kept.warc", "2026-11-21", manyBodies(9)...)
	said(t, 0, "scan", "--format", "warc", "kept.warc", "-o", "OUT", "--scan-id", "night", "--part-rows", "3",
		"--no-compact")
	write(t, "OUT/sites/scan_date=2026-11-21/part-night-0-1.parquet", "")
	stdout, _ := said(t, 0, "summary", "OUT", "--skip-damaged")
	line, _, _ := strings.Cut(stdout, "\n")
	return regexp.MustCompile(`expected \d+`).ReplaceAllString(line, "expected …")
}

// captured writes an archive of captures: of news.example and of other sites. An empty body stands for a time-out.
func captured(t *testing.T, file, date string, bodies ...string) {
	t.Helper()
	var b strings.Builder
	for i, body := range bodies {
		host, cut, answer := "news.example", "", "HTTP/1.1 200 OK\r\n\r\n"+body
		if i > 0 {
			host = fmt.Sprintf("news%d.example", i)
		}
		if body == "" {
			cut, answer = "WARC-Truncated: time\r\n", "HTTP/1.1 200 OK\r\n"
		}
		fmt.Fprintf(&b,
			"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://%s/robots.txt\r\nWARC-Date: %sT12:00:00Z\r\n%sContent-Length: %d\r\n\r\n%s\r\n\r\n", host, date, cut, len(answer), answer)
	}
	write(t, file, b.String())
}

// manyBodies are bodies that differ.
func manyBodies(n int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("User-agent: *\nDisallow: /%d\n", i))
	}
	return bodies
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCheckPicture compares the picture of a check with actual output. `make generate` draws it anew.
func TestCheckPicture(t *testing.T) {
	picture := readFile(t, "../../docs/gallery/check.svg")
	t.Chdir("../../docs/gallery")
	printed, _ := said(t, 0, "check", "robots.txt")
	words := strings.Fields("$ bulkscan check robots.txt " + printed)
	var drawn []string
	for _, text := range regexp.MustCompile(`<text[^>]*>([^<]*)</text>`).FindAllStringSubmatch(picture, -1) {
		drawn = append(drawn, strings.Fields(html.UnescapeString(text[1]))...)
	}
	if drawn = slices.DeleteFunc(drawn, func(word string) bool { return word == "…" }); len(drawn) < 100 ||
		len(drawn) > len(words) || !slices.Equal(drawn, words[:len(drawn)]) {
		t.Errorf("docs/gallery/check.svg shows\n%s\nand the program prints\n%s\nmake generate draws it",
			strings.Join(drawn, " "), printed)
	}
}
