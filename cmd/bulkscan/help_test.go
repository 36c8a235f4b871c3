package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/cmd/bulkscan/options"
)

// Every command's help has an example, names each flag once, and breaks its lines; that of scan begins with the flags
// most used.
func TestHelp(t *testing.T) {
	root := (&app{stdout: os.Stdout}).root()
	for _, c := range root.Commands() {
		got, _ := said(t, 0, c.Name(), "--help")
		if c.Name() != "completion" && !strings.Contains(got, "\nExamples:\n  ") {
			t.Errorf("%s: no example in its help", c.Name())
		}
		_, flags, _ := strings.Cut(got, "\nUsage:\n")
		for line := range strings.Lines(flags) {
			if utf8.RuneCountInString(line) > maxHelpWidth && !strings.Contains(line, "bulkscan "+c.Name()) {
				t.Errorf("%s: a long line: %s", c.Name(), line)
			}
		}
		for _, f := range options.Divide(c.Flags(), groupsOf(c)) {
			for _, name := range f.Flags {
				flag := regexp.MustCompile(`(?m)^ +(-\w, )?--` + name + ` `)
				if n := len(flag.FindAllString(got, -1)); n != 1 {
					t.Errorf("%s: --%s is there %d times", c.Name(), name, n)
				}
			}
		}
	}
	got, _ := said(t, 0, "scan", "--help")
	at := -1
	for _, title := range []string{"Examples", "Most used", "Input", "Output", "Politeness", "Network", "Resume",
		"Monitoring", "Other"} {
		next := strings.Index(got, "\n"+title+":\n")
		if next <= at {
			t.Errorf("scan: %s is at %d, after %d", title, next, at)
		}
		at = next
	}
	if got, _ = said(t, 0, "--help"); !strings.Contains(got, "  4         a dataset is damaged\n") ||
		!strings.Contains(got, "  NO_COLOR ") {
		t.Errorf("no exit codes or variables in\n%s", got)
	}
}

// The example in tokens --help is a valid file.
func TestTokensHelp(t *testing.T) {
	got, _ := said(t, 0, "tokens", "--help")
	var rows []string
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "  ") && strings.Contains(line, " |") {
			rows = append(rows, line)
		}
	}
	file := filepath.Join(t.TempDir(), "mine.txt")
	if err := os.WriteFile(file, []byte(strings.Join(rows, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _ := said(t, 0, "tokens", "--tokens", file, "MyBot-News"); !strings.Contains(got, "My Group") {
		t.Errorf("it gives\n%s", got)
	}
}

// A shell is offered the values that begin with the typed text, and no files among them.
func TestCompletion(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		got, _ := said(t, 0, append([]string{"__complete"}, args...)...)
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if first := slices.Index(lines, ":4"); first != len(lines)-1 || strings.Join(lines[:first], " ") != want {
			t.Errorf("%q: offered %q, want %q", args, lines, want)
		}
	}
	f("jsonl", "scan", "--format", "js")
	f("verdicts", "scan", "--tables", "v")
	f("sites,verdicts", "scan", "--tables", "sites,v")
	f("rfc", "test", "--dialect", "r")
	f("auto always", "summary", "--color", "a")
	f("mention", "summary", "--definition", "m")
	f("GPTBot", "tokens", "gptb")
	f("CCBot,GPTBot", "test", "--agent", "CCBot,gptb")
	f("OpenAI", "tokens", "--operator", "opena")
	f("scan schema", "man", "sc")
	f("history", "man", "h")
	f("", "man", "scan", "sc")
	f("sites", "schema", "si")
	f("", "verify", "out", "")
	if got, _ := said(t, 0, "__complete", "h"); strings.Count(got, "help\t") != 1 {
		t.Errorf("commands that begin with h: offered %q", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got, _ := said(t, 0, "completion", shell); !strings.Contains(got, "__complete") {
			t.Errorf("the script for %s does not ask the program", shell)
		}
	}
}
