package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkscan/bulkscan/internal/printable"
)

// pseudoTerminal returns both ends of a terminal of so many columns: what is written to the terminal can be read from
// the master.
func pseudoTerminal(t *testing.T, width int) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: this machine has no pseudo-terminals: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}

// onTerminal runs bulkscan on a terminal of so many columns, and returns what that has to show.
func onTerminal(t *testing.T, width int, args ...string) string {
	t.Helper()
	code := 0
	text := shownOn(t, width, func(terminal *os.File) { code = run(args, strings.NewReader(""), terminal, os.Stderr) })
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	return text
}

// shownOn returns what a terminal of so many columns has to show of what is written to it.
func shownOn(t *testing.T, width int, write func(terminal *os.File)) string {
	t.Helper()
	master, terminal := pseudoTerminal(t, width)
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // ends with an error when the last writer has closed: there is nobody left
		shown <- string(text)
	}()
	write(terminal)
	_ = terminal.Close()
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestTerminal has what a real terminal gets: colours unless something forbids them, and lines of its width.
func TestTerminal(t *testing.T) {
	robots := filepath.Join(t.TempDir(), "robots.txt")
	body := "User-agent: GPTBot\nDisallow: /\nLong: " + strings.Repeat("v", 300) + "\nSitemap: https://a.test/\x1b[31m\n"
	if err := os.WriteFile(robots, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	f := func(noColor, term, flag string, width, shownWidth int, colored bool) {
		t.Helper()
		t.Setenv("NO_COLOR", noColor)
		t.Setenv("TERM", term)
		got := onTerminal(t, width, "check", robots, "--category", "ai", "--color", flag)
		if strings.Contains(got, "\x1b[31m✗ blocked\x1b[0m") != colored || strings.Contains(got, "\x1b") != colored {
			t.Errorf("NO_COLOR=%q TERM=%q --color %s: coloured %t, want %t:\n%q", noColor, term, flag, !colored, colored, got)
		}
		page, widest := sgr.ReplaceAllString(got, ""), 0
		row := `(?m)^  OpenAI\n    GPTBot +✗ blocked +training +named in line 1$`
		if shownWidth >= pipeWidth {
			row = `(?m)^  OpenAI +GPTBot +✗ blocked +training +named in line 1$`
		}
		if !regexp.MustCompile(row).MatchString(page) {
			t.Errorf("on a terminal of %d columns the page is\n%s\nwant in it\n%s", width, page, row)
		}
		for line := range strings.Lines(page) {
			line = strings.TrimSuffix(line, "\n")
			if printable.Line(line) != line {
				t.Errorf("a line is not plain: %q", line)
			}
			widest = max(widest, columns(line))
		}
		if widest != shownWidth {
			t.Errorf("on a terminal of %d columns the page has %d, want %d", width, widest, shownWidth)
		}
	}
	f("", "xterm-256color", "auto", 80, 80, true)
	f("", "", "auto", 80, 80, true)
	f("1", "xterm", "auto", 80, 80, false)
	f("0", "xterm", "auto", 80, 80, false) // whatever its value (https://no-color.org)
	f("", "dumb", "auto", 80, 80, false)
	f("", "xterm", "never", 80, 80, false)
	f("1", "dumb", "always", 80, 80, true)
	f("", "xterm", "auto", 132, 132, true)
	f("", "xterm", "auto", 20, minWidth, true)
	f("", "xterm", "auto", 0, pipeWidth, true) // it does not say
}

// TestLogBesideBar has lines of the log clear what a bar has drawn, where there is a bar on a terminal that can do so.
func TestLogBesideBar(t *testing.T) {
	f := func(term, form, want string) {
		t.Helper()
		t.Setenv("TERM", term)
		master, terminal := pseudoTerminal(t, 80)
		w := besideBar(terminal, form)
		if n, err := io.WriteString(w, "word"); n != 4 || err != nil {
			t.Errorf("TERM=%q --progress %s: %d octets of 4 are written: %v", term, form, n, err)
		}
		_ = terminal.Close()
		if got, _ := io.ReadAll(master); string(got) != want { // it ends with an error: there is nobody left
			t.Errorf("TERM=%q --progress %s: got %q, want %q", term, form, got, want)
		}
	}
	f("xterm", "auto", "\r\x1b[Kword")
	f("xterm", "bar", "\r\x1b[Kword")
	f("xterm", "log", "word")
	f("xterm", "none", "word")
	f("dumb", "bar", "word")
	if w := besideBar(io.Discard, "bar"); w != io.Discard {
		t.Errorf("what is no terminal's goes to %T", w)
	}
}

// TestTerminalOfTest has that test colours what it decides, on a terminal.
func TestTerminalOfTest(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	robots := filepath.Join(t.TempDir(), "robots.txt")
	if err := os.WriteFile(robots, []byte("User-agent: *\nAllow: /\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := onTerminal(t, 80, "test", "--robots", robots, "--agent", "GPTBot", "/a")
	if want := "\x1b[32m✓ allowed\x1b[0m     GPTBot  /a"; !strings.HasPrefix(got, want) {
		t.Errorf("a row is %q, want one that begins with %q", got, want)
	}
}

// TestSummaryOnTerminals compares the pages of terminals with files: as wide as they are, in blocks by a locale of UTF-8, else in
// ASCII; and with colours, but for which they are the same.
func TestSummaryOnTerminals(t *testing.T) {
	f := func(name string, width int, locale map[string]string) {
		t.Helper()
		for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(variable, locale[variable])
		}
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "")
		page := func(color colorWhen) string {
			return shownOn(t, width, func(terminal *os.File) {
				if err := (&app{stdout: terminal}).printSummary(aSummary(), color); err != nil {
					t.Error(err)
				}
			})
		}
		plain, colored := page(colorNever), page(colorAuto)
		goldenPage(t, name, plain)
		if sgr.ReplaceAllString(colored, "") != plain || !strings.Contains(colored, "\x1b[32m") {
			t.Errorf("%s with colours: %q", name, colored)
		}
		t.Setenv("NO_COLOR", "1")
		if page(colorAuto) != plain {
			t.Errorf("%s has colours in spite of NO_COLOR", name)
		}
		for line := range strings.Lines(plain) {
			if n := columns(strings.TrimSuffix(line, "\n")); n > width || strings.HasSuffix(line, " \n") {
				t.Errorf("%s: a line of %d columns: %q", name, n, line)
			}
		}
	}
	f("80-columns", 80, map[string]string{"LANG": "en_US.UTF-8"})
	f("120-columns", 120, map[string]string{"LC_ALL": "de_DE.utf8", "LANG": "C"})
	f("80-columns-ascii", 80, map[string]string{"LC_CTYPE": "C", "LANG": "en_US.UTF-8"})
	f("60-columns-ascii", 60, nil)
}

// TestSummaryOfDatasetOnTerminal is the command, on a terminal, over a dataset that an older version wrote.
func TestSummaryOfDatasetOnTerminal(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	got := onTerminal(t, 80, "summary", "../../sink/testdata/versions", "--scan-id", "schema-1", "--color", "never")
	for _, want := range []string{"Scan schema-1, 2026-11-16, ", "schema-2 of 2026-11-17", "Sites: 40 listed", "  have rules", "█"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
