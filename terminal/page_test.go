package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/audit"
	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
	"github.com/bulkscan/bulkscan/internal/sharedtest"
)

// TestClip shows texts clipped to so many columns: escaped, and measured as terminals do.
func TestClip(t *testing.T) {
	f := func(in string, most int, want string, wide int) {
		t.Helper()
		got := clip(in, most)
		if got != want || columns(got) != wide {
			t.Errorf("clip(%q, %d) = %q, %d columns wide; want %q, %d", in, most, got, columns(got), want, wide)
		}
	}
	f("", 5, "", 0)
	f("GPTBot", 6, "GPTBot", 6)
	f("GPTBot", 5, "GPTB…", 5)
	f("日本語", 6, "日本語", 6)
	f("日本語", 5, "日本…", 5)
	f("日本語", 4, "日…", 3)                                      // half a letter cannot be shown
	f("a\nb", 9, `a\nb`, 4)                                   // in one line
	f("\x1b[31m", 20, `\u001b[31m`, 10)                       // colours
	f("\u009b31m", 20, `\u009b31m`, 9)                        // the same, as one control of C1
	f("a\x00\x07\x7f", 30, `a\u0000\u0007\u007f`, 19)         // controls
	f("\u202egnp", 20, `\u202egnp`, 9)                        // reading order
	f("a\u200db\ufe0f\u3164", 30, `a\u200db\ufe0f\u3164`, 20) // what does not show
	f("\U000E0041", 30, `\U000e0041`, 10)
	f("\xff\xfe", 30, `\ufffd\ufffd`, 12) // not UTF-8
	f("e\u0301", 5, "e\u0301", 1)
	f("e"+strings.Repeat("\u0301", 5), 30, "e\u0301\u0301\u0301"+`\u0301\u0301`, 13) // piled up on the line above
	f("a b\tc", 20, `a b\u0009c`, 10)
	f(strings.Repeat("\x1b", 1<<20), 10, `\u001b\u0…`, 10)
	f(strings.Repeat("日", 1<<20), 10, "日日日日…", 9)
}

// TestTable shows tables with texts whose width differs from their number of octets and runes.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	p := newPage(&out, ColorNever)
	p.width = 44
	number := func(s string) piece { return piece{text: s, right: true} }
	wide := &table{indent: 2, wrap: true}
	wide.add(number("7"), text("検索"), text("short; words"))
	wide.add(number("1234"), text("longer than that"), text("one two three four five six seven; / open; eight"))
	wide.add(number(""), text("a\x1bb"), text(""))
	wide.add(number("12"), text(""), text("日本語"))
	p.table(wide)
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	want := `
     7  検索            short; words
  1234  longer than t…  one two three four
                        five six seven;
                        / open; eight
        a\u001bb
    12                  日本語
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}

// TestColored shows when there are colours: a writer that is no terminal has them by request only.
func TestColored(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	for _, w := range []interface{ Write([]byte) (int, error) }{&bytes.Buffer{}, file, null} {
		if ColorAuto.Colored(w) || ColorNever.Colored(w) || !ColorAlways.Colored(w) {
			t.Errorf("%T: colours by auto %t, never %t, always %t", w, ColorAuto.Colored(w), ColorNever.Colored(w),
				ColorAlways.Colored(w))
		}
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]+m")

// fileOf is a body that was read from a file, judged.
func fileOf(body []byte) *audit.Site {
	s := &audit.Site{IsFile: true}
	s.Fetch.Body = body
	audit.Judge(s)
	return s
}

// checkPage shows a body's page with colours, and checks the rules for every page: no control sequences but our
// colours, no line wider than the page, and the same page without colours.
func checkPage(t *testing.T, body []byte, all bool, categories ...string) string {
	t.Helper()
	result := audit.Explain(fileOf(body))
	check := func(color Color) string {
		var out bytes.Buffer
		if err := Check(&out, "-", &result, CheckOptions{All: all, Categories: categories, Color: color}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	colored := check(ColorAlways)
	page := sgr.ReplaceAllString(colored, "")
	if plain := check(ColorNever); page != plain {
		t.Errorf("with colours\n%s\nwithout\n%s", page, plain)
	}
	if !utf8.ValidString(page) {
		t.Errorf("the page is not UTF-8")
	}
	for text := range strings.Lines(page) {
		text = strings.TrimSuffix(text, "\n")
		if printable.Line(text) != text {
			t.Errorf("a line is not plain: %q", text)
		}
		if n := columns(text); n > pipeWidth {
			t.Errorf("a line has %d columns: %q", n, text)
		}
		if strings.HasSuffix(text, " ") {
			t.Errorf("a line ends with a space: %q", text)
		}
	}
	return page
}

// TestCheckHostile has files that try to control a terminal, or to make the page very slow.
func TestCheckHostile(t *testing.T) {
	f := func(name string, body string, lines int, all bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			// The registry decides how many lines its names take; those of seo are few.
			categories := []string{"seo"}
			if all {
				categories = tokens.Default().Values(tokens.Category)
			}
			page := checkPage(t, []byte(body), all, categories...)
			if n := strings.Count(page, "\n"); n > lines {
				t.Errorf("the page has %d lines, want at most %d", n, lines)
			}
		})
	}
	nasty := "\x1b[2J\x1b]0;title\x07\u009b31m\x00\u202e\u2066\u200b\xff\xc3\u3164\U000E0041"
	f("empty", "", 25, false)
	f("every place", hostiletest.Robots, 45, false)
	f("keys and values", "User-agent: a"+nasty+"\nDisallow: /"+nasty+"\n"+nasty+": "+nasty+"\nSitemap: https://a.test/"+
		nasty+
		"\nContent-Signal: ai-train=no, "+nasty+"=yes\nContent-Usage: /"+nasty+" train-ai=n\nLicense: https://a.test/"+nasty+
		"\nCrawl-delay: 1"+nasty+"\nNoindex: "+nasty+"\nDisalow: "+nasty, 45, false)
	f("one long line of controls", "User-agent: *\nUnknown: "+strings.Repeat(nasty, 12_000), 40, false)
	f("one long name", "User-agent: "+strings.Repeat("x", 500_000)+"\nDisallow: /", 40, false)
	f("one long name of marks", "User-agent: "+strings.Repeat("\u0301", 250_000)+"\nDisallow: /", 40, false)
	f("one long wide name", "User-agent: "+strings.Repeat("検", 160_000)+"\nDisallow: /", 40, false)
	f("one long key", strings.Repeat("鍵", 160_000)+": v\n", 40, false)
	f("no space to break a line", "User-agent: *\nContent-Signal: ai-train=no"+strings.Repeat(",x=y", 4_000)+
		"\nDisallow: /x", 40, false)
	f("UTF-16", "\xff\xfe"+strings.Join(strings.Split("User-agent: *\nDisallow: /\n", ""), "\x00")+"\x00", 40, false)

	many := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	agent := func(i int) string {
		return "User-agent: " + string([]byte{'a' + byte(i/676%26), 'a' + byte(i/26%26), 'a' + byte(i%26)}) +
			"\nDisallow: /a\n"
	}
	f("ten thousand agents", many(10_000, agent), 40, false)
	f("ten thousand agents, all of them", many(10_000, agent), 10_500, true)
	f("ten thousand of a group", many(10_000, func(i int) string {
		return strings.TrimSuffix(agent(i),
			"Disallow: /a\n")
	})+
		many(1000, func(int) string { return "Content-Signal: ai-train=no\n" }), 60, false)
	f("ten thousand unknown lines", many(10_000, func(int) string { return "Key" + nasty + ": " + nasty + "\n" }), 45,
		false)
}

// TestCheckReal runs check over real files.
func TestCheckReal(t *testing.T) {
	bodies := sharedtest.Bodies(t, "modern-ai")
	for i := 0; i < len(bodies); i += 5 { // a fifth takes half a second
		checkPage(t, bodies[i], false, "ai")
		if t.Failed() {
			t.Fatalf("body %d:\n%.2000q", i, bodies[i])
		}
	}
}
