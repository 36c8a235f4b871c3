package printable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkscan/bulkscan/internal/hostiletest"
	"github.com/bulkscan/bulkscan/internal/printable"
)

func TestHostileTexts(t *testing.T) {
	for _, h := range hostiletest.Texts() {
		if strings.Count(h.Text, hostiletest.Mark) == 0 {
			t.Errorf("%s has no mark", h.Name)
		}
		for name, shown := range map[string]string{
			"Line": printable.Line(h.Text), "Clip": printable.Clip(h.Text, 60),
			"AppendJSON": string(printable.AppendJSON(nil, h.Text)),
			"Text":       strings.ReplaceAll(printable.Text(h.Text), "\n", ""),
		} {
			hostiletest.Check(t, h.Name+" by "+name, []byte(shown+"\n"), 6*len(h.Text)+10)
			if name != "Clip" && !strings.Contains(shown, hostiletest.Mark) {
				t.Errorf("%s by %s is gone: %.100q", h.Name, name, shown)
			}
			if strings.Contains(shown, "\n") {
				t.Errorf("%s by %s has a line end: %.100q", h.Name, name, shown)
			}
		}
		if shown := printable.Clip(h.Text, 60); len(shown) > 10*60+len("…") {
			t.Errorf("%s is clipped to %d bytes", h.Name, len(shown))
		}
		jsonIs(t, h.Name, printable.AppendJSON(nil, h.Text), h.Text)
		jsonIs(t, h.Name, printable.AppendJSON(nil, []byte(h.Text)), h.Text)
		text, err := json.Marshal(h.Text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := printable.EscapeJSON(nil, text)
		hostiletest.Check(t, h.Name+" by EscapeJSON", escaped, 6*len(h.Text)+10)
		jsonIs(t, h.Name, escaped, h.Text)
	}
}

// jsonIs checks that JSON decodes to a text, with U+FFFD in place of invalid UTF-8.
func jsonIs(t *testing.T, what string, data []byte, want string) {
	t.Helper()
	var got string
	if err := json.Unmarshal(data, &got); err != nil || got != string([]rune(want)) {
		t.Errorf("%s as JSON is %.200q (%v), which is %.200q", what, data, err, got)
	}
}

func TestText(t *testing.T) {
	f := func(in, text, line string) {
		t.Helper()
		if got := printable.Text(in); got != text {
			t.Errorf("Text(%q) = %q, want %q", in, got, text)
		}
		if got := printable.Line(in); got != line {
			t.Errorf("Line(%q) = %q, want %q", in, got, line)
		}
	}
	f("", "", "")
	f("plain", "plain", "plain")
	f(`"C:\x"`, `"C:\x"`, `"C:\x"`)
	f("a\nb", "a\nb", `a\nb`)
	f("a\r\n", `a\u000d`+"\n", `a\u000d\n`)
	f("日本語 ü €", "日本語 ü €", "日本語 ü €")
	f("\x1b[0m", `\u001b[0m`, `\u001b[0m`)
	f("\U000e0041", `\U000e0041`, `\U000e0041`)
	f("\xff", `\ufffd`, `\ufffd`)
}

func TestClip(t *testing.T) {
	f := func(in string, most int, want string) {
		t.Helper()
		if got := printable.Clip(in, most); got != want {
			t.Errorf("Clip(%q, %d) = %q, want %q", in, most, got, want)
		}
	}
	f("abc", 3, "abc")
	f("abcd", 3, "abc…")
	f("ab€", 5, "ab€")
	f("ab€€", 5, "ab€…")
	f("ab€€", 4, "ab…")
	f("ab\n€", 3, `ab\n…`)
	f("\xff\xff\xff\xff\xff", 3, `\ufffd…`)
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	w := &printable.Writer{To: &b}
	for _, line := range []string{"plain\n", "a=\x7f\u202e\xff b\n", strings.Repeat("\x1b", 1<<20) + "\n", "end\n"} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%d of %d bytes are written: %v", n, len(line), err)
		}
	}
	if want := "plain\n" + `a=\u007f\u202e\ufffd b` + "\n" + strings.Repeat(`\u001b`, 1<<20) +
		"\nend\n"; b.String() != want {
		t.Errorf("written is %.200q", b.String())
	}
	broken := &printable.Writer{To: failing{}}
	if _, err := broken.Write([]byte("x")); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errBroken }

func FuzzPrintable(f *testing.F) {
	for _, h := range hostiletest.Texts() {
		if len(h.Text) < 1000 {
			f.Add(h.Text, 7)
		}
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		line := printable.Line(s)
		hostiletest.Check(t, "Line", []byte(line), 6*len(s))
		if line != printable.Line(line) {
			t.Errorf("%q is escaped again: %q", line, printable.Line(line))
		}
		if most = max(0, min(most, 1000)); utf8.RuneCountInString(printable.Head(s, most)) > most {
			t.Errorf("Head(%q, %d) = %q", s, most, printable.Head(s, most))
		}
		data := printable.AppendJSON(nil, s)
		hostiletest.Check(t, "AppendJSON", data, 6*len(s)+2)
		jsonIs(t, "AppendJSON", data, s)
	})
}
