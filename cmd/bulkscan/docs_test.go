package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the pages for users: in docs and at the top level.
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

// commandsOf finds the commands of a page: those of its shell blocks and indented lines, and those between quotes in
// the text.
func commandsOf(page string) (blocks, phrases [][]string) {
	text := page
	var shell []string
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		text = strings.Replace(text, block[0], "", 1)
		shell = append(shell, typed(block)...)
	}
	for _, line := range append(shell, indented.FindAllString(text, -1)...) {
		blocks = append(blocks, commandsIn(line)...)
	}
	for _, phrase := range inline.FindAllStringSubmatch(text, -1) {
		phrases = append(phrases, commandsIn(phrase[1])...)
	}
	return blocks, phrases
}

// typed are the lines of a fenced block that are typed into a shell, continued lines joined.
func typed(block []string) (lines []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(block[2], "\\\n", " "), "\n") {
		if block[1] == "sh" || block[1] == "console" && strings.HasPrefix(strings.TrimSpace(line), "$ ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// commandsIn are the words of each command of a line.
func commandsIn(line string) (all [][]string) {
	line, _, _ = strings.Cut(" "+line, " #")
	line = regexp.MustCompile(` 2?[<>] ("[^"]*"|\S+)`).ReplaceAllString(line, "")
	for _, part := range regexp.MustCompile(` (?:\||&&|;) |; |[<>]\(|\)$`).Split(line, -1) {
		words := shellWords.FindAllString(part, -1)
		for len(words) > 0 && (words[0] == "$" || words[0] == "sudo" || words[0] == "time" ||
			regexp.MustCompile(`^[A-Z0-9_]+=`).MatchString(words[0])) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		for i := range words {
			words[i] = strings.Trim(words[i], `'"`)
		}
		if image := slices.Index(words, "bulkscan"); words[0] == "docker" && image > 1 && words[1] == "run" {
			all = append(all, append([]string{elsewhere}, words[image+1:]...))
		}
		if wrap := slices.Index(words, "--wrap"); words[0] == "sbatch" && wrap > 0 {
			all = append(all, append([]string{elsewhere}, strings.Fields(words[wrap+1])[1:]...))
		}
		if words[0] == "bin/bulkscan" {
			words[0] = "bulkscan"
		}
		all = append(all, words)
	}
	return all
}

// elsewhere stands for a bulkscan that another program starts: that of an image, or on a node of a cluster.
const elsewhere = "bulkscan elsewhere"

// notRun are the programs of the documents that tests do not run, and why.
var notRun = map[string]string{
	"cd":        ofShell,
	"do":        ofShell,
	"done":      ofShell,
	"echo":      ofShell,
	"export":    ofShell,
	"for":       ofShell,
	"sed":       ofShell,
	"cmp":       ofRelease,
	"cp":        ofRelease,
	"install":   ofRelease,
	"mkdir":     ofRelease,
	"sha256sum": ofRelease,
	"tar":       ofRelease,
	"tee":       ofRelease,
	"curl":      ofNetwork,
	"git":       ofNetwork,
	"go":        ofNetwork,
	"aws":       "it needs an account",
	"docker":    "it needs an engine",
	elsewhere:   "it needs what starts it; its arguments are parsed",
	"duckdb":    "internal/integration runs the SQL of the documents",
	"kubectl":   "it needs a cluster",
	"make":      "CI runs its targets",
	"man":       "it opens a pager",
	"sbatch":    "it needs Slurm: TestSlurm runs the script",
}

const (
	ofShell   = "it is the shell's"
	ofRelease = "it unpacks or installs a release"
	ofNetwork = "it needs the network"
)

// Every command of the documents is one that there is: bulkscan's have flags, values and arguments that it takes,
// make's are targets.
func TestDocumentedCommands(t *testing.T) {
	n, targets := 0, makeTargets(t)
	for name, page := range documents(t) {
		blocks, phrases := commandsOf(page)
		for _, words := range blocks {
			switch {
			case words[0] == "bulkscan" && strings.HasSuffix(name, "docs/inputs.md"): // TestInputsPage runs it
			case words[0] == "bulkscan" || words[0] == elsewhere:
				n++
				if err := parsed(words[1:]); err != nil && !strings.Contains(strings.Join(words, " "), "…") {
					t.Errorf("%s: %s: %v", name, strings.Join(words, " "), err)
				}
			case words[0] == "make":
				for _, word := range words[1:] {
					if !targets[word] && !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
						t.Errorf("%s: make %s: no such target", name, word)
					}
				}
			}
		}
		for _, words := range phrases {
			if words[0] != "bulkscan" {
				continue
			}
			n++
			words = words[1:]
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
	if n < 150 {
		t.Errorf("only %d commands of bulkscan were found", n)
	}
}

// A shell reads every block of commands; and of each program that the block has, it is known why tests do not run it.
func TestShellBlocks(t *testing.T) {
	bash, _ := exec.LookPath("bash") // without it the syntax is not checked
	unmarked := regexp.MustCompile(`(?m)^ *(\$ )?bulkscan `)
	for name, page := range documents(t) {
		for _, block := range fenced.FindAllStringSubmatch(page, -1) {
			if block[1] == "" && unmarked.MatchString(block[2]) {
				t.Errorf("%s: a block of commands is not marked as sh or console:\n%s", name, block[2])
			}
			for _, line := range typed(block) {
				for _, words := range commandsIn(line) {
					if notRun[words[0]] == "" && words[0] != "bulkscan" {
						t.Errorf("%s: no test runs %s, and notRun does not say why", name, words[0])
					}
				}
			}
			if bash == "" || block[1] != "sh" {
				continue
			}
			check := exec.Command(bash, "-n")
			check.Stdin = strings.NewReader(block[2])
			if said, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: no shell reads\n%s%s", name, block[2], said)
			}
		}
	}
}

// parsed reports what bulkscan would refuse of a command line before it does anything.
func parsed(words []string) error {
	c, rest, err := (&app{}).root().Find(words)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err == nil {
		err = rules.CheckChoices(c.Flags())
	}
	return err
}

// makeTargets are the targets of the Makefile.
func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, target := range regexp.MustCompile(`(?m)^([.a-z][\w./-]*):`).FindAllStringSubmatch(string(text), -1) {
		targets[target[1]] = true
	}
	return targets
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
