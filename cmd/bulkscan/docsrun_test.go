package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/simweb"
)

// A user can type the commands of a page in its order, in a folder with the lists and the datasets that the page names,
// and with a web that has the sites of its lists. In short mode only the pages that new users read first are run.
func TestShownCommands(t *testing.T) {
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Only: []string{"ok", "not-found"}, Addresses: 4,
		Bodies: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	pages, names := documents(t), []string{"../../README.md", "../../docs/first-survey.md"}
	given := givenFiles(t, web)
	if !testing.Short() {
		// TestInputsPage runs it
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(pages)),
			func(name string) bool { return name == "../../docs/inputs.md" })
		givenDatasets(t, web, given)
	}
	for _, name := range names {
		blocks, _ := commandsOf(pages[name])
		if blocks = slices.DeleteFunc(blocks, func(words []string) bool { return words[0] != "bulkscan" }); len(blocks) == 0 {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(given)); err != nil {
				t.Fatal(err)
			}
			t.Chdir(folder)
			for _, words := range blocks {
				runShown(t, web, words[1:])
			}
		})
	}
}

// TestInstallFirst applies as long as CHANGELOG.md says that there is no release. The first command to install works
// today, and instructions that need a release say whether there is one.
func TestInstallFirst(t *testing.T) {
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, newest, _ := strings.Cut(string(changelog), "\n## v")
	released := strings.Contains(newest, "\n## v") || !strings.Contains(newest, "Not released yet")
	for _, name := range []string{"../../README.md", "../../docs/install.md"} {
		page := documents(t)[name]
		blocks := fenced.FindAllStringSubmatch(page, -1)
		if first := blocks[0]; first[1] != "sh" || !strings.HasPrefix(first[2],
			"git clone https://github.com/bulkscan/bulkscan && cd bulkscan && make build") {
			t.Errorf("%s begins with %q", name, first[2])
		}
		before, _, found := strings.Cut(page, "```sh\ngo install ")
		if said := strings.Contains(before, "There is no release yet"); !found || said == released {
			t.Errorf("%s: says that there is no release: %v; there is one: %v", name, said, released)
		}
	}
}

// TestFirstSurveyOffline goes through docs/first-survey.md without a network, as the page says: the demo stands for the
// first steps, and its first site for that of the list. Step 5 is SQL, which TestCookbook of
// internal/integration/queries runs.
func TestFirstSurveyOffline(t *testing.T) {
	page := documents(t)["../../docs/first-survey.md"]
	instead := regexp.MustCompile(
		"Without one,\\s+`bulkscan (demo[^`]*)` stands for steps 1 to 3: .* the first is `([^`]+)`. Ask for that one\\s+instead of (\\S+) in step 4").FindStringSubmatch(page)
	_, steps, found := strings.Cut(page, "**4. ")
	if instead == nil || !found {
		t.Fatal("the page does not say what to do without a network")
	}
	t.Chdir(t.TempDir())
	t.Setenv("BULKSCAN_ORIGINS", "3") // of 20,000: it is the same list
	said(t, 0, strings.Fields(instead[1])...)
	blocks, _ := commandsOf(strings.ReplaceAll(steps, instead[3], instead[2]))
	n := 0
	for _, words := range blocks {
		if words[0] == "bulkscan" {
			n++
			said(t, 0, words[1:]...)
		}
	}
	if n < 4 {
		t.Errorf("only %d commands", n)
	}
}

// runShown runs a command of the documents: places in an object store, and those of root, are in the working folder.
func runShown(t *testing.T, web *simweb.Web, words []string) {
	t.Helper()
	want := 0
	leadTo(t, web)
	switch words[0] {
	case "demo": // which has a web of its own
		if len(words) > 1 {
			// it takes a quarter of a minute: once is enough here, and internal/integration runs the other ones
			return
		}
		for variable := range toWeb(web) {
			t.Setenv("BULKSCAN_"+variable, "")
		}
		t.Setenv("BULKSCAN_ORIGINS", "200")
	case "test":
		want = exitThreshold // something is disallowed
	}
	var typed []string
	for _, word := range words {
		if words[0] != "test" {
			word = strings.TrimPrefix(strings.TrimPrefix(word, "s3://"), "/")
		}
		if word == "127.0.0.1:9464" { // which may be taken
			word = "127.0.0.1:0"
		}
		if found, _ := filepath.Glob(word); strings.Contains(word, "*") && len(found) > 0 {
			typed = append(typed, found...)
			continue
		}
		typed = append(typed, word)
	}
	stdout, stderr := said(t, want, typed...)
	if quiet := []string{"report", "compact", "stats", "man"}; stdout+stderr == "" && !slices.Contains(quiet, words[0]) {
		t.Errorf("%s prints nothing", strings.Join(words, " "))
	}
}

// toWeb are the settings that lead to a web.
func toWeb(web *simweb.Web) map[string]string {
	return map[string]string{
		"RESOLVER": web.DNSAddr().String(), "CONNECT_TO": strings.Join(web.ConnectTo(), " "), "CA_FILE": "ca.pem",
		"ALLOW_PRIVATE": "true",
		"HOST_RATE":     "0", "IP_RATE": "0", "RETRIES": "0", "PROGRESS": "none",
	}
}

func leadTo(t *testing.T, web *simweb.Web) {
	t.Helper()
	for variable, value := range toWeb(web) {
		t.Setenv("BULKSCAN_"+variable, value)
	}
}

// givenFiles makes a folder with the files that documents take for granted, and works in it.
func givenFiles(t *testing.T, web *simweb.Web) (folder string) {
	t.Helper()
	folder = t.TempDir()
	t.Chdir(folder)
	leadTo(t, web)
	hosts := "google.com\nexample.com\nwww.example.com\nh1.ok.zoo.test\nh2.ok.zoo.test\nh3.not-found.zoo.test\n"
	numbered := "1," + strings.ReplaceAll(strings.TrimSpace(hosts), "\n", "\n2,") + "\n"
	packed := zippedList(t, "list.csv", numbered)
	body := `{"host": "a.example", "fetched_at": "2024-05-18", "body": "User-agent: *\nDisallow: /x\n"}` + "\n"
	if err := os.Mkdir("robots", 0o777); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"top-1m.csv.zip": packed, "tranco.csv.zip": packed, "list.csv": numbered, "hosts.txt": hosts,
		"ca.pem":       string(web.CAPEM()),
		"robots.txt":   "User-agent: *\nDisallow: /private\nDisallow: /img\n",
		"nightly.toml": "[nightly]\nlist = \"hosts.txt\"\n[scan]\nout = \"nights\"\n",
		"FILE":         "name\nMyBot\n",
		"rates.txt":    "192.0.2.0/24 100\n",
		// what a file is, its content says
		"bodies.jsonl": body, "bodies.jsonl.zst": body, "robots/a.example.txt": "User-agent: *\nDisallow: /x\n",
		"crawl.parquet": strings.NewReplacer("host", "site", "body", "robots").Replace(body),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said(t, 0, "scan", "hosts.txt", "-o", "captured", "--scan-id", "c", "--warc-out", "captures")
	captures, err := filepath.Glob("captures/*.warc.gz")
	if err != nil || len(captures) == 0 {
		t.Fatalf("%d archives: %v", len(captures), err)
	}
	for _, folder := range []string{"var/lib/node_exporter/textfile", "usr/local/share/man"} {
		err = errors.Join(err, os.MkdirAll(folder, 0o777))
	}
	err = errors.Join(err, os.Rename(captures[0], "CC-MAIN-2026-47-robotstxt-00000.warc.gz"), os.RemoveAll("captured"),
		os.RemoveAll("captures"))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// givenDatasets makes the datasets that documents name. Copies have the scans that are the same.
func givenDatasets(t *testing.T, web *simweb.Web, folder string) {
	t.Helper()
	t.Chdir(folder)
	leadTo(t, web)
	scan := func(out, id, date string, more ...string) {
		t.Helper()
		said(t, 0, append([]string{"scan", "list.csv", "-o", out, "--scan-id", id, "--date", date}, more...)...)
	}
	copies := func(out string, places ...string) {
		t.Helper()
		for _, place := range places {
			if err := os.CopyFS(place, os.DirFS(out)); err != nil {
				t.Fatal(err)
			}
		}
	}
	scan("OUT", "ID", "2026-11-18")
	scan("OUT", "20261120-5f3a9c", "2026-11-20")
	copies("OUT", "OLD")
	scan("OUT", "20261121-5f3a9c", "2026-11-21")
	copies("OUT", "NEW", "surveys/november")
	for place, id := range map[string]string{"frankfurt": "FRANKFURT-SCAN", "ohio": "OHIO-SCAN"} {
		scan("out-"+place, id, "2026-11-21", "--vantage", place)
		scan("OUT", id, "2026-11-19", "--vantage", place)
	}
	said(t, 0, "nightly", "--config", "nightly.toml")
	for _, shard := range []string{"1/4", "2/4", "3/4", "0/4"} {
		if shard == "0/4" { // which docs/cluster.md scans
			copies("shared/out", "bucket/surveys")
		}
		said(t, 0, "scan", "list.csv", "-o", "shared/out", "--scan-id", "tonight", "--shard", shard, "--workers", "4")
	}
}

// zippedList packs a list.
func zippedList(t *testing.T, name, text string) string {
	t.Helper()
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	w, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}
