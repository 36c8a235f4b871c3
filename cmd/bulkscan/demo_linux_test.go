package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/simweb/demo"
)

// TestDemoScreen runs the demonstration on a terminal of 24 lines and 80 columns. It ends with one screen, whose rows
// are true, and whose three commands work as printed. The dataset has its report, which readers of the dataset ignore.
func TestDemoScreen(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	master, terminal := hostiletest.Terminal(t, 80)
	screen := hostiletest.Watch(master)
	c := exec.Command("bulkscan", "demo", "--origins", "300", "-o", "a demo")
	c.Dir, c.Stdout, c.Stderr = folder, terminal, terminal
	err := c.Run()
	_ = terminal.Close()
	text := screen.End()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text[strings.LastIndex(text, "\r")+1:], "")
	for _, pattern := range []string{`Scan demo: 29\d of 300 sites answered`, `timeout \d`, `blocked most +GPTBot `,
		`truth +every row is what its host did`, `report +a demo/report.html`} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("nothing of %q in\n%s", pattern, text)
		}
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	var next []string
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("%d columns: %q", len(line), line)
		}
		if _, command, ok := strings.Cut(line, "  bulkscan "); ok {
			next = append(next, "bulkscan "+command)
		}
	}
	if len(next) != 3 {
		t.Fatalf("%q are not three commands", next)
	}
	for _, command := range []string{next[0], next[1], "bulkscan verify 'a demo'"} {
		run := exec.Command("sh", "-c", command)
		run.Dir = folder
		if out, err := run.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if want := "bulkscan demo --serve -o 'a demo'"; next[2] != want { // TestDemoServes runs it
		t.Errorf("got %q, want %q", next[2], want)
	}
	if page, err := os.ReadFile(demo.Folder(filepath.Join(folder, "a demo")).Report()); err != nil ||
		!bytes.HasPrefix(page, []byte("<!DOCTYPE html>")) {
		t.Errorf("no report: %v, %.40q", err, page)
	}
}
