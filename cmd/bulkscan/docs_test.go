package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/simweb"
)

// documents are the pages for users: those of docs and of the top level.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pages[name] = string(text)
		}
	}
	return pages
}

var (
	fenced     = regexp.MustCompile("(?ms)^ *```([a-z]*)[^\n]*\n(.*?)^ *```")
	indented   = regexp.MustCompile(`(?m)^(\t|    )\S.*$`)
	inline     = regexp.MustCompile("`([^`\n]+)`")
	shellWords = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commandsOf finds the command lines of a page that call bulkscan: in its blocks, and shorter ones in the text.
func commandsOf(page string) (blocks, phrases [][]string) {
	calls := func(line string) (all [][]string) {
		line, _, _ = strings.Cut(" "+line, " #")
		for _, part := range regexp.MustCompile(` (?:\||&&|;|<|>|2>) |; |[<>]\(|\)$`).Split(line, -1) {
			words := shellWords.FindAllString(part, -1)
			for len(words) > 0 && (words[0] == "$" || words[0] == "sudo" || words[0] == "time" || regexp.MustCompile(`^[A-Z0-9_]+=`).MatchString(words[0])) {
				words = words[1:]
			}
			if len(words) > 0 && (words[0] == "bulkscan" || words[0] == "bin/bulkscan") {
				for i := range words {
					words[i] = strings.Trim(words[i], `'"`)
				}
				all = append(all, words[1:])
			}
		}
		return all
	}
	text := page
	var shell []string
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		text = strings.Replace(text, block[0], "", 1)
		if kind := block[1]; kind == "" || kind == "sh" || kind == "bash" || kind == "console" {
			shell = append(shell, strings.Split(strings.ReplaceAll(block[2], "\\\n", " "), "\n")...)
		}
	}
	for _, line := range append(shell, indented.FindAllString(text, -1)...) {
		blocks = append(blocks, calls(line)...)
	}
	for _, phrase := range inline.FindAllStringSubmatch(text, -1) {
		phrases = append(phrases, calls(phrase[1])...)
	}
	return blocks, phrases
}

// Every command line of the documents has a command, flags, values and arguments that there are.
func TestDocumentedCommands(t *testing.T) {
	n := 0
	for name, page := range documents(t) {
		if strings.HasSuffix(name, "docs/inputs.md") { // TestInputsPage runs it
			continue
		}
		blocks, phrases := commandsOf(page)
		for _, words := range blocks {
			n++
			root := (&app{}).root()
			c, rest, err := root.Find(words)
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err == nil {
				err = checkChoices(c.Flags())
			}
			if err != nil && !strings.Contains(strings.Join(words, " "), "…") {
				t.Errorf("%s: bulkscan %s: %v", name, strings.Join(words, " "), err)
			}
		}
		for _, words := range phrases {
			n++
			c, rest, err := (&app{}).root().Find(words)
			if err != nil || len(words) > 0 && words[0] != "COMMAND" && !strings.HasPrefix(words[0], "-") && !c.HasParent() {
				t.Errorf("%s: bulkscan %s: no such command", name, strings.Join(words, " "))
				continue
			}
			c.InitDefaultHelpFlag()
			for _, word := range rest {
				flag, ok := strings.CutPrefix(word, "--")
				flag, _, _ = strings.Cut(flag, "=")
				if ok && c.Flags().Lookup(flag) == nil {
					t.Errorf("%s: bulkscan %s: no flag --%s", name, strings.Join(words, " "), flag)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d command lines were found", n)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<(?:img|source)[^>]* (?:src|srcset)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
)

// anchorsOf are the anchors that a forge gives the headings of a page.
func anchorsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(h[1], "$1")
		text = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`).ReplaceAllString(strings.ToLower(text), "")
		anchors[strings.ReplaceAll(text, " ", "-")] = true
	}
	for _, a := range regexp.MustCompile(`<a (?:id|name)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		anchors[a[1]] = true
	}
	return anchors
}

// Every relative link of the documents leads to a file that there is, and to a heading in it.
func TestLinks(t *testing.T) {
	n := 0
	for name, page := range documents(t) {
		text := inline.ReplaceAllString(fenced.ReplaceAllString(page, ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			to := found[1] + found[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			n++
			file, anchor, _ := strings.Cut(to, "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s: %s leads nowhere", name, to)
			} else if anchor != "" && strings.HasSuffix(target, ".md") && !anchorsOf(string(content))[anchor] {
				t.Errorf("%s: %s: no such heading", name, to)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d links were found", n)
	}
}

// What the README and the page about a first survey show can be typed in this order: with a web that has the sites of their lists.
func TestShownCommands(t *testing.T) {
	web, err := simweb.Start(t.Context(), simweb.Config{Seed: 1, Only: []string{"ok", "not-found"}, Addresses: 4, Bodies: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	pages := documents(t)
	for _, name := range []string{"../../docs/first-survey.md", "../../README.md"} {
		folder := t.TempDir()
		t.Chdir(folder)
		hosts := "example.com\nh1.ok.zoo.test\nh2.ok.zoo.test\nh3.not-found.zoo.test\n"
		packed := zippedList(t, "list.csv", "1,"+strings.ReplaceAll(strings.TrimSpace(hosts), "\n", "\n2,")+"\n")
		for file, text := range map[string]string{
			"top-1m.csv.zip": packed, "tranco.csv.zip": packed, "hosts.txt": hosts, "robots.txt": "User-agent: *\nDisallow: /private\n", "ca.pem": string(web.CAPEM()),
			"nightly.toml": "[nightly]\nlist = \"hosts.txt\"\n[scan]\nout = \"nights\"\n",
		} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for variable, value := range map[string]string{
			"RESOLVER": web.DNSAddr().String(), "CONNECT_TO": strings.Join(web.ConnectTo(), " "), "CA_FILE": "ca.pem", "ALLOW_PRIVATE": "true",
			"HOST_RATE": "0", "IP_RATE": "0", "RETRIES": "0", "PROGRESS": "none",
		} {
			t.Setenv("BULKSCAN_"+variable, value)
		}
		blocks, _ := commandsOf(pages[name])
		for _, words := range blocks {
			line := strings.Join(words, " ")
			want := 0
			switch {
			case words[0] == "demo", strings.Contains(line, "CC-MAIN"): // half a minute; and captures that are not here
				continue
			case words[0] == "test":
				want = exitThreshold // it is disallowed
			}
			if stdout, stderr := said(t, want, words...); stdout+stderr == "" && words[0] != "report" && words[0] != "compact" {
				t.Errorf("%s: %s prints nothing", name, line)
			}
		}
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
