package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
)

// ownSequences are the control sequences that bulkscan itself sends to a terminal: with them the bar and the log share
// a line.
var ownSequences = regexp.MustCompile("\r\n|\r\x1b\\[K|\r")

// TestHostileTerminal scans the site on a terminal, with a bar over which the log is written.
func TestHostileTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1") // our colours would look like the site's
	site, dir := startHostile(t), t.TempDir()
	list := site.list(t, dir)
	master, terminal := hostiletest.Terminal(t, 80)
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // reading ends with an error when the last writer has closed
		shown <- string(text)
	}()
	args := append([]string{"scan", list, "-o", filepath.Join(dir, "out"), "--host-rate", "0", "--ip-rate", "0",
		"--dns-rate", "0",
		"--log-level", "debug", "--progress", "bar"}, site.flags...)
	code := run(args, strings.NewReader(""), io.Discard, terminal)
	_ = terminal.Close()
	text := <-shown
	if code != 0 {
		t.Fatalf("exit code %d\n%q", code, text)
	}
	if !strings.Contains(text, " failed ") || !strings.Contains(text, "Rejected: input ") ||
		!strings.Contains(text, "\r\x1b[K") {
		t.Errorf("there is no bar, or no log, on the terminal:\n%.2000q", text)
	}
	hostiletest.Check(t, "the terminal", []byte(ownSequences.ReplaceAllString(text, "\n")), hostileLine)
}
