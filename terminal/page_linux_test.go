package terminal

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
)

// shownOn returns the bytes that a terminal of so many columns gets from write.
func shownOn(t *testing.T, width int, write func(terminal *os.File)) string {
	t.Helper()
	master, terminal := hostiletest.Terminal(t, width)
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // ends with an error when the last writer has closed: there is nobody left
		shown <- string(text)
	}()
	write(terminal)
	_ = terminal.Close()
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestTerminal shows what a real terminal gets: colours unless something forbids them, and lines of its width.
func TestTerminal(t *testing.T) {
	body := "User-agent: GPTBot\nDisallow: /\nLong: " + strings.Repeat("v", 300) + "\nSitemap: https://a.test/\x1b[31m\n"
	result := audit.Explain(fileOf([]byte(body)))
	f := func(noColor, term string, flag Color, width, shownWidth int, colored bool) {
		t.Helper()
		t.Setenv("NO_COLOR", noColor)
		t.Setenv("TERM", term)
		got := shownOn(t, width, func(terminal *os.File) {
			if err := Check(terminal, "robots.txt", &result, CheckOptions{Categories: []string{"ai"}, Color: flag}); err != nil {
				t.Error(err)
			}
		})
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

// TestLogBesideBar shows that lines of the log clear a drawn bar, if there is a bar on a terminal that supports this.
func TestLogBesideBar(t *testing.T) {
	f := func(term, form, want string) {
		t.Helper()
		t.Setenv("TERM", term)
		master, terminal := hostiletest.Terminal(t, 80)
		w := BesideBar(terminal, form)
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
	if w := BesideBar(io.Discard, "bar"); w != io.Discard {
		t.Errorf("what is no terminal's goes to %T", w)
	}
}

// TestSummaryOnTerminals compares the pages of terminals with files: as wide as they are, in blocks by a locale of
// UTF-8, else in ASCII; and with colours, but for which they are the same.
func TestSummaryOnTerminals(t *testing.T) {
	f := func(name string, width int, locale map[string]string) {
		t.Helper()
		for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(variable, locale[variable])
		}
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "")
		page := func(color Color) string {
			return shownOn(t, width, func(terminal *os.File) {
				if err := Summary(terminal, aSummary(), color); err != nil {
					t.Error(err)
				}
			})
		}
		plain, colored := page(ColorNever), page(ColorAuto)
		goldenPage(t, name, plain)
		if sgr.ReplaceAllString(colored, "") != plain || !strings.Contains(colored, "\x1b[32m") {
			t.Errorf("%s with colours: %q", name, colored)
		}
		t.Setenv("NO_COLOR", "1")
		if page(ColorAuto) != plain {
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
