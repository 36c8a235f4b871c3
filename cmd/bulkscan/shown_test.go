package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
)

// notation is a robots.txt with text like the output of faulty programs. All of it must be shown unchanged.
const notation = "User-agent: GPTBot # n\\u00a0=\\u00a05\nDisallow: /%!d(MISSING)\nUser-agent: &amp;lt;nil&amp;gt;\nUser-agent: map-bot\\n\n" +
	"{{.Key}}: <nil>\nNaN: &nbsp; \\x1b[31m 0xc000123456\nSitemap: https://a.example/[object Object]?a=%d\n\nUser-agent: *\nDisallow: /private\nAllow: /\n"

// captures writes an archive of robots.txt files by their hosts, and returns its path.
func captures(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	for host, body := range files {
		status := "200 OK"
		if body == "" {
			status = "404 Not Found"
		}
		answer := fmt.Sprintf("HTTP/1.1 %s\r\n\r\n%s", status, body)
		fmt.Fprintf(&b,
			"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://%s/robots.txt\r\nWARC-Date: 2026-11-20T12:00:00Z\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n", host, len(answer), answer)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// shownDatasets makes the datasets whose pages are read, and returns a folder for each name. With SHOWN_DATASETS=DIR
// they are kept in DIR for other readers.
func shownDatasets(t *testing.T) map[string]string {
	t.Helper()
	must := func(args ...string) {
		t.Helper()
		if code, _, stderr := hostileRun(t, "", args...); code != 0 {
			t.Fatalf("bulkscan %.200q: exit code %d\n%.2000s", args, code, stderr)
		}
	}
	folder := cmp.Or(os.Getenv("SHOWN_DATASETS"), t.TempDir())
	sets := map[string]string{}
	scan := func(name string, args ...string) {
		t.Helper()
		sets[name] = filepath.Join(folder, name)
		must(append([]string{"scan", "-o", sets[name], "--progress", "none", "--allow-empty"}, args...)...)
	}
	list := filepath.Join(folder, "list.csv")
	if err := os.WriteFile(list, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	scan("empty", list)
	if !testing.Short() {
		sets["demo"] = filepath.Join(folder, "demo")
		must("demo", "-o", sets["demo"], "--origins", "300")
	}
	site := startHostile(t)
	scan("hostile", append([]string{site.list(t, folder), "--host-rate", "0", "--ip-rate", "0", "--dns-rate", "0"},
		site.flags...)...)
	scan("archive", "--format", "warc",
		captures(t, "a.warc", map[string]string{"a.example": "User-agent: GPTBot\nDisallow: /\n", "b.example": "",
			"c.example": "User-agent: ClaudeBot\nAllow: /\n"}))

	files := map[string]string{"a.example": "User-agent: *\nDisallow: /x\n", "b.example": notation,
		"c.example": "User-agent: GPTBot\nDisallow: /\n"}
	for night := range 8 {
		switch night {
		case 2:
			files["a.example"] = "User-agent: GPTBot\nUser-agent: ClaudeBot\nDisallow: /\n"
		case 3:
			files["b.example"] = strings.ReplaceAll(notation, "/private", "/")
		case 5:
			files["c.example"] = ""
		case 6:
			delete(files, "a.example")
		case 7:
			files["a.example"] = "<!doctype html><title>NaN</title>"
		}
		scan("nights", "--format", "warc", captures(t, fmt.Sprintf("%d.warc", night), files), "--scan-id",
			fmt.Sprintf("n%d", night), "--date", fmt.Sprintf("2026-11-%d", 10+night))
	}
	return sets
}

// readable returns the parts of a page that a reader sees or hears: its texts, including those of figures, and the
// attributes that are read out.
func readable(t *testing.T, page []byte) (texts []string) {
	t.Helper()
	document, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range document.Descendants() {
		switch n.Type {
		case html.TextNode:
			if !isCode(n.Parent) {
				texts = append(texts, n.Data)
			}
		case html.ElementNode:
			for _, a := range n.Attr {
				if slices.Contains([]string{"title", "alt", "placeholder", "aria-label", "data-v", "label", "value"}, a.Key) {
					texts = append(texts, a.Val)
				}
			}
		}
	}
	return texts
}

// isCode reports whether the text of an element is for machines: a script, styles, or a query.
func isCode(n *html.Node) bool {
	class := slices.IndexFunc(n.Parent.Attr, func(a html.Attribute) bool { return a.Key == "class" && a.Val == "sql" })
	return n.Data == "script" || n.Data == "style" || n.Data == "pre" && class >= 0
}

// TestShownPages reads the pages, terminal outputs and pictures about datasets, sites and files: the program's own
// texts contain no raw notation. Texts of sites may contain some, and are shown unchanged.
func TestShownPages(t *testing.T) {
	t.Parallel()
	foreign := []string{notation}
	for _, h := range hostiletest.Texts() {
		foreign = append(foreign, h.Text)
	}
	own := map[string][]string{"hostile": foreign, "nights": {notation}} // texts of a dataset's sites
	prints := func(what string, foreign []string, args ...string) {
		t.Helper()
		_, stdout, stderr := hostileRun(t, "", args...)
		hostiletest.Shown(t, what, string(stdout), foreign...)
		hostiletest.Shown(t, what+", standard error", string(stderr), foreign...)
		if len(stdout)+len(stderr) == 0 {
			t.Errorf("%s says nothing", what)
		}
	}
	for name, folder := range shownDatasets(t) {
		code, page, stderr := hostileRun(t, "", "report", folder, "-o", "-", "--progress", "none")
		if code != 0 {
			t.Fatalf("report of %s: exit code %d\n%s", name, code, stderr)
		}
		texts := readable(t, page)
		for _, text := range texts {
			hostiletest.Shown(t, "the page of "+name, text, own[name]...)
		}
		if says := slices.ContainsFunc(texts, func(text string) bool {
			return strings.HasSuffix(text,
				", since no site answered")
		}); says != (name == "empty") {
			t.Errorf("the page of %s says that no site answered: %v", name, says)
		}
		if name != "empty" && !slices.ContainsFunc(texts,
			func(text string) bool { return strings.Contains(text, ", n\u00a0=\u00a0") }) {
			t.Errorf("the page of %s may break a number of sites from its sign", name)
		}
		if len(texts) < 200 {
			t.Errorf("the page of %s has %d texts", name, len(texts))
		}
		prints("summary of "+name, own[name], "summary", folder)
		for _, definition := range []string{"mention", "rfc_effective"} {
			prints(name+" by "+definition, own[name], "summary", folder, "--definition", definition)
		}
		prints("sensitivity of "+name, own[name], "summary", folder, "--sensitivity", "GPTBot")
		prints("verify of "+name, own[name], "verify", folder)
		if name == "nights" {
			prints("diff", own[name], "diff", folder, "2026-11-11", "2026-11-13")
			for _, host := range []string{"a.example", "b.example", "c.example", "d.example"} {
				prints("history of "+host, own[name], "history", folder, host)
				prints("history of a token on "+host, own[name], "history", folder, host, "--token", "GPTBot")
			}
		}
	}
	robots := filepath.Join(t.TempDir(), "robots.txt")
	for _, text := range append([]string{notation, "User-agent: *\nDisallow: /\n", "", "<html><title>x</title>"},
		foreign...) {
		if err := os.WriteFile(robots, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		prints("check of a file", []string{text}, "check", robots, "--all")
		prints("test of a file", []string{text}, "test", "--robots", robots, "--agent", "GPTBot,*", "/", "/private/x?a=1")
	}
	prints("check of a site", nil, "check", "127.0.0.1:9", "--allow-private", "--connect-timeout", "1s")
	prints("tokens", nil, "tokens")
	prints("tokens, long", nil, "tokens", "--long")

	pictures, err := filepath.Glob("../../docs/gallery/*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("%d pictures: %v", len(pictures), err)
	}
	for _, name := range pictures {
		picture, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range readable(t, picture) {
			hostiletest.Shown(t, name, text)
		}
	}
}

// TestShownHelp reads the help of all commands.
func TestShownHelp(t *testing.T) {
	for _, c := range (&app{}).root().Commands() {
		code, stdout, stderr := hostileRun(t, "", c.Name(), "--help")
		if code != 0 {
			t.Errorf("%s --help: exit code %d\n%s", c.Name(), code, stderr)
		}
		hostiletest.Shown(t, c.Name()+" --help", string(stdout), c.Example) // examples have notation of the shell
	}
}
