package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/simweb"
)

// TestScanOnTerminal scans on a terminal that is resized meanwhile: sentences instead of log lines, a bar that never
// needs two lines, and a last page.
func TestScanOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 40, simweb.Config{Seed: 4, Only: []string{"ok", "silent", "nxdomain"}})
	out := filepath.Join(t.TempDir(), "out")
	master, terminal := hostiletest.Terminal(t, 40)
	screen := hostiletest.Watch(master)
	scan := exec.Command("bulkscan", w.arguments(t, out, w.web.ConnectTo(), "--progress", "auto", "--retries", "0")...)
	scan.Env, scan.Stderr = append(os.Environ(), "TERM=xterm", "NO_COLOR=1"), terminal
	if err := scan.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = scan.Process.Kill() })
	for _, width := range []int{40, 80, 120, 80} {
		hostiletest.Resize(t, terminal, width)
		screen.Await(t, "bar", func(line string) bool {
			return len(line) == width-1 &&
				strings.Contains(line, " of 40 sites [")
		})
	}
	if err := scan.Wait(); err != nil {
		t.Error(err)
	}
	_ = terminal.Close()
	text := screen.End()
	bar, page, ok := strings.Cut(text, "\nScan s: ")
	if !ok {
		t.Fatalf("there is no last page:\n%s", text)
	}
	for line := range strings.FieldsFuncSeq(bar, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if strings.Contains(line, "msg=") || len(line) > 119 && strings.Contains(line, "sites [") {
			t.Errorf("on the terminal is %q", line)
		}
	}
	for _, want := range []string{"Scanning: scan s, out ", "40 of 40 sites [", " slow or told to retry"} {
		if !strings.Contains(bar, want) {
			t.Errorf("nothing of %q in %q", want, bar)
		}
	}
	for _, want := range []string{" of 40 sites answered (", "\n  failed ", "dns_not_found ", "timeout ",
		"\n  blocked most  ", "\n  dataset ", "\n  next ", "bulkscan summary " + out + "\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("nothing of %q in %s", want, page)
		}
	}
	for line := range strings.Lines(page) {
		if len(line) > 81 && !strings.Contains(line, out) {
			t.Errorf("a line of the page has %d columns: %q", len(line)-1, line)
		}
	}
}
