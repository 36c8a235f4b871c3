// Package printable answers one question: what may a terminal show? Names, header fields, keys, values and error
// texts are hostile input. A terminal executes some characters instead of showing them, and shows others in another
// order or not at all. A line end in a text can fake a line of ours. This package replaces such characters by escapes
// with their numbers. The function depends on the output:
//
//	Text, Line        prose of several lines, or of one
//	Clip              one line of bounded length
//	AppendJSON        a string in JSON
//	EscapeJSON        JSON from another encoder
//	Writer            lines of a log
//
// Datasets keep texts unchanged: escaping belongs to display. Sinks for machines are safe by the escapes of their own
// formats.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Rune reports whether a terminal shows a rune as itself. It is false for format characters (bidirectional controls,
// joiners), private and unassigned characters, invisible letters and marks, and U+FFFD, which stands for invalid
// UTF-8.
func Rune(r rune) bool {
	if r < utf8.RuneSelf {
		return ' ' <= r && r <= '~'
	}
	return r != unicode.ReplacementChar && unicode.IsPrint(r) && !unicode.In(r, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// Plain reports whether a text surely needs no escapes on terminals and in JSON. It may be false for other texts
// without escapes.
func Plain[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Text makes any text safe for a terminal: it escapes characters that could move the cursor, colour, hide or reverse
// text, or stack marks over the lines above. Line ends stay.
func Text(s string) string {
	if Plain(s) {
		return s
	}
	var b strings.Builder
	var m marks
	for _, r := range s {
		if m.show(r) || r == '\n' {
			b.WriteRune(r)
		} else {
			b.WriteString(escape(r))
		}
	}
	return b.String()
}

// marks counts the combining marks on a letter.
type marks int

// show reports whether the next rune of a text shows as itself, and does not stack too many marks on a letter.
func (m *marks) show(r rune) bool {
	const most = 3 // no known language needs more
	if *m++; !unicode.IsMark(r) {
		*m = 0
	}
	return *m <= most && Rune(r)
}

// escape returns the escape of a character.
func escape(r rune) string {
	if r > 0xFFFF {
		return fmt.Sprintf("\\U%08x", r)
	}
	return fmt.Sprintf("\\u%04x", r)
}

// Line is Text in one line.
func Line(s string) string { return Text(strings.ReplaceAll(s, "\n", `\n`)) }

// Clip is Line of a text's first bytes: at most `most`, counted before escaping. An ellipsis stands for the rest.
func Clip(s string, most int) string {
	if len(s) <= most {
		return Line(s)
	}
	return Line(Head(s, most)) + "…"
}

// Short is what a message repeats of its input: at most 100 bytes of valid UTF-8, not escaped yet. An ellipsis stands
// for the rest.
func Short(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// Head returns at most n bytes of s as valid UTF-8, without splitting a sequence.
func Head(s string, n int) string {
	if len(s) > n {
		for back := n; n > 0 && n > back-utf8.UTFMax && !utf8.RuneStart(s[n]); {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// AppendJSON appends a JSON string of characters that show as themselves. It decodes to the same text, with U+FFFD in
// place of invalid UTF-8.
func AppendJSON[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	if Plain(s) {
		return append(append(b, s...), '"')
	}
	var m marks
	for _, r := range string(s) {
		shown := m.show(r)
		switch r {
		case '"', '\\':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = appendRune(b, r, shown)
		}
	}
	return append(b, '"')
}

// EscapeJSON appends JSON with escapes for characters that are unsafe on a terminal: encoding/json does not escape
// DEL, C1 controls, and characters that reverse or hide text. Line ends stay, because they separate tokens of JSON.
func EscapeJSON[T string | []byte](b []byte, json T) []byte {
	var m marks
	for _, r := range string(json) {
		if shown := m.show(r); r == '\n' {
			b = append(b, '\n')
		} else {
			b = appendRune(b, r, shown)
		}
	}
	return b
}

// appendRune appends a rune as itself or as JSON's escape.
func appendRune(b []byte, r rune, shown bool) []byte {
	if shown {
		return utf8.AppendRune(b, r)
	}
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return appendUnit(appendUnit(b, high), low)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// Writer escapes written text like EscapeJSON. So the text must be JSON, or a format with the same escapes. Each
// Write must have whole lines.
type Writer struct {
	To  io.Writer
	buf []byte
}

// Write implements io.Writer. It is called by one goroutine at a time.
func (w *Writer) Write(p []byte) (int, error) {
	w.buf = EscapeJSON(w.buf[:0], p)
	_, err := w.To.Write(w.buf)
	if cap(w.buf) > 64<<10 {
		w.buf = nil
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Wrap breaks the lines of a text anew, at most width characters each; a longer word has a line of its own. Lines that
// begin with a space stay as they are.
func Wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == ' ' || column == 0 {
			if i > 0 {
				b.WriteByte('\n')
			}
			column = 0
		}
		if line == "" || line[0] == ' ' {
			b.WriteString(line)
			continue
		}
		for word := range strings.FieldsSeq(line) {
			size := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+size > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += size
		}
	}
	return b.String()
}

// Number writes a number with commas between thousands.
func Number[T int | int64 | uint64](n T) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count writes a number of things.
func Count[T int | int64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Number(n) + " " + thing + "s"
}
