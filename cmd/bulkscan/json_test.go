package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/history"
	"github.com/bulkscan/bulkscan/simweb"
	"github.com/bulkscan/bulkscan/sink/schema"
)

// TestJSONNumbers runs every command that prints JSON, over nights on which files change, and reads its output and each
// file of JSON that it leaves. Some readers keep numbers in 53 bits (JavaScript, jq). So a larger integer is an error,
// and so is an id of 64 bits that is a number, however small. It is also an error if a command with --json is not run
// here.
func TestJSONNumbers(t *testing.T) {
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Addresses: 4, Bodies: 64, Only: []string{"ok", "ok-gzip",
		"not-found", "html"}})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	folder := t.TempDir()
	t.Chdir(folder)
	leadTo(t, web)
	for name, text := range map[string]string{
		"ca.pem":     string(web.CAPEM()),
		"robots.txt": "User-agent: *\nDisallow: /private\nCrawl-delay: 123456789012345678901234567890\n",
		"list.csv":   "999999999999999999,a.ok.zoo.test\n900719925474099,b.ok.zoo.test\n7,c.not-found.zoo.test\n8,d.ok-gzip.zoo.test\n9,e.html.zoo.test\n10,no host\n",
		"1.warc": capturesOf("a.example", "User-agent: *\nDisallow: /private/\n", "b.example",
			"User-agent: GPTBot\nDisallow: /\n"),
		"2.warc": capturesOf("a.example", "User-agent: *\nUser-agent: CCBot\nDisallow: /\n", "b.example",
			"User-agent: GPTBot\nDisallow: /\n"),
		"n.toml": "[nightly]\nlist = \"list.csv\"\n[scan]\nout = \"nights\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said(t, 0, "scan", "--format", "warc", "1.warc", "-o", "out", "--scan-id", "n1", "--date", "2026-11-20")
	said(t, 0, "scan", "--format", "warc", "2.warc", "-o", "out", "--scan-id", "n2", "--date", "2026-11-21")
	said(t, 0, "nightly", "--config", "n.toml")
	for _, shard := range []string{"0/2", "1/2"} {
		said(t, 0, "scan", "list.csv", "-o", "shared", "--scan-id", "s", "--shard", shard)
	}
	t.Setenv("BULKSCAN_ORIGINS", "50")
	for name := range toWeb(web) {
		t.Setenv("BULKSCAN_"+name, "")
	}
	said(t, 0, "demo", "-o", "demo")
	leadTo(t, web)

	commands := map[string][][]string{
		"scan":    {{"list.csv", "-o", "-", "--scan-id", "x"}, {"--format", "warc", "2.warc", "-o", "-", "--scan-id", "x"}},
		"check":   {{"robots.txt"}, {"b.ok.zoo.test", "--body"}},
		"test":    {{"--robots", "robots.txt", "--agent", "GPTBot,x", "https://a.example/private", "/"}},
		"history": {{"out", "a.example"}, {"out", "a.example", "--token", "CCBot"}, {"out", "b.example"}},
		"diff":    {{"out", "2026-11-20", "2026-11-21"}, {"out", "n1", "n2", "--paired"}},
		"summary": {{"out"}, {"nights"}, {"out", "--sensitivity", "GPTBot"}},
		"verify":  {{"out"}, {"nights"}, {"demo"}},
		"status":  {{"shared"}, {"out"}, {"nights"}},
		"plan":    {{"list.csv"}},
		"schema":  {{}},
		"tokens":  {{}},
		"nightly": {{"--status", "--config", "n.toml"}},
		"reaudit": {{"out", "-o", "again", "--scan-id", "n2"}},
		"compact": {{"out"}},
	}
	known := map[string]bool{"scan": true}
	for _, c := range (&app{}).root().Commands() {
		if c.Flags().Lookup("json") != nil {
			known[c.Name()] = true
		}
	}
	if missing, gone := without(known, commands), without(commands, known); len(missing)+len(gone) > 0 {
		t.Errorf("not run here: %q; no such commands with JSON: %q", missing, gone)
	}
	look := jsonLook{t: t, ids: idNames(), seen: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		for _, args := range commands[name] {
			args = append([]string{name}, args...)
			if name != "scan" {
				args = append(args, "--json")
			}
			want := 0
			if name == "test" {
				want = exitThreshold
			}
			stdout, _ := said(t, want, args...)
			look.values(strings.Join(args, " "), stdout)
		}
	}
	_, log := said(t, 0, "scan", "list.csv", "-o", "logged", "--log-format", "json", "--log-level", "debug", "--progress",
		"log")
	look.values("the log", log)
	said(t, 0, "report", "out", "-o", "page.html", "--csv", "tables")
	err = filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if ext := path.Ext(name); err != nil || entry.IsDir() || ext != ".json" && ext != ".jsonl" {
			return err
		}
		text, err := os.ReadFile(name)
		if err == nil {
			look.values(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"body_hash", "site", "policy_id", "last_body", "body_hash_before", "body_hash_after"} {
		if look.seen[name] == 0 {
			t.Errorf("nothing here has a %s", name)
		}
	}
}

// without returns the names of one map that are not in another.
func without[A, B any](of map[string]A, other map[string]B) (names []string) {
	for name := range of {
		if _, ok := other[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// idNames are the columns with ids of 64 bits, and the JSON fields that are made of them.
func idNames() map[string]bool {
	ids := map[string]bool{"body_hash_before": true, "body_hash_after": true}
	columns := slices.Concat(schema.ColumnsOf(reflect.TypeFor[history.Episode]()),
		schema.ColumnsOf(reflect.TypeFor[history.Policy]()))
	for _, table := range schema.Tables() {
		columns = append(columns, table.Columns...)
	}
	for _, c := range columns {
		if c.Type == "int64" && regexp.MustCompile(`hash|\b(id|key) of\b`).MatchString(c.Name+" "+c.Meaning) {
			ids[c.Name] = true
		}
	}
	return ids
}

// jsonLook checks values of JSON.
type jsonLook struct {
	t    *testing.T
	ids  map[string]bool
	seen map[string]int // ids that were strings, by name
}

// values checks each value of a text.
func (l *jsonLook) values(where, text string) {
	l.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	n := 0
	for ; ; n++ {
		var v any
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			l.t.Errorf("%s: %v", where, err)
			return
		}
		l.value(where, "", v)
	}
	if n == 0 && text != "" {
		l.t.Errorf("%s: no JSON", where)
	}
}

func (l *jsonLook) value(where, name string, v any) {
	l.t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, v := range v {
			l.value(where, name, v)
		}
	case []any:
		for _, v := range v {
			l.value(where, name, v)
		}
	case json.Number:
		if f, err := v.Float64(); err != nil || math.Abs(f) > 1<<53 {
			l.t.Errorf("%s: %s is %s, which readers round", where, name, v)
		}
		if l.ids[name] {
			l.t.Errorf("%s: the id %s is the number %s", where, name, v)
		}
	case string:
		if l.ids[name] {
			l.seen[name]++
		}
	}
}

// capturesOf is an archive of hosts and their files.
func capturesOf(hostsAndFiles ...string) string {
	var b strings.Builder
	for pair := range slices.Chunk(hostsAndFiles, 2) {
		answer := "HTTP/1.1 200 OK\r\n\r\n" + pair[1]
		fmt.Fprintf(&b,
			"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://%s/robots.txt\r\nWARC-Date: 2026-11-20T12:00:00Z\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n", pair[0], len(answer), answer)
	}
	return b.String()
}
