// Package printable answers one question: what may a person's terminal be shown? Names, header fields, keys, values and error
// texts come from whoever wanted us to read them. A terminal obeys some characters instead of showing them, shows others in
// another order or not at all, and takes a line end for the end of what we said. Here such a character becomes an escape,
// which says what it was. What else a text needs depends on where it goes:
//
//	Text, Line        prose: several lines, or one
//	Clip              the same in one line of bounded length
//	AppendJSON        a string in JSON
//	EscapeJSON        JSON that somebody else has written
//	Writer            lines of a log, whoever writes them
//
// What is kept in a dataset is not changed: escaping belongs to display. A sink that writes for machines keeps texts whole,
// and is safe because of the escapes of its own format.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Rune reports whether a rune shows as itself on a terminal. Format characters (bidirectional controls, joiners), what
// Unicode calls private or unassigned, and letters and marks that are made not to be seen do not; nor does what stands for
// bytes that are no UTF-8.
func Rune(r rune) bool {
	if r < utf8.RuneSelf {
		return ' ' <= r && r <= '~'
	}
	return r != unicode.ReplacementChar && unicode.IsPrint(r) && !unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// Plain reports whether a text is shown as itself by terminals and in JSON. It may say no of one that is.
func Plain[T string | []byte](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Text makes text of any origin safe for a terminal: whatever could move a cursor, colour, hide or reverse text, or pile up
// marks on the lines above, is shown as an escape. Line ends stay.
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

// marks counts those that pile up on a letter.
type marks int

// show reports whether the next rune of a text shows as itself, and not over the lines above.
func (m *marks) show(r rune) bool {
	const most = 3 // no language is known to need more
	if *m++; !unicode.IsMark(r) {
		*m = 0
	}
	return *m <= most && Rune(r)
}

// escape spells a character as its number.
func escape(r rune) string {
	if r > 0xFFFF {
		return fmt.Sprintf("\\U%08x", r)
	}
	return fmt.Sprintf("\\u%04x", r)
}

// Line is Text in one line.
func Line(s string) string { return Text(strings.ReplaceAll(s, "\n", `\n`)) }

// Clip is Line of at most so many bytes of a text, before they are escaped; an ellipsis stands for the rest.
func Clip(s string, most int) string {
	if len(s) <= most {
		return Line(s)
	}
	return Line(Head(s, most)) + "…"
}

// Head returns at most n bytes of s as valid UTF-8, no sequence torn.
func Head(s string, n int) string {
	if len(s) > n {
		for back := n; n > 0 && n > back-utf8.UTFMax && !utf8.RuneStart(s[n]); {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// AppendJSON appends a JSON string of characters that show as themselves. A reader of JSON finds the text unchanged, but that
// U+FFFD stands for what is no UTF-8.
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

// EscapeJSON appends JSON with an escape for whatever a terminal might obey: encoding/json leaves DEL, C1 controls and
// characters that reverse or hide text as they are. Line ends stay: in JSON they are between the tokens.
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

// Writer escapes what is written through it, as EscapeJSON does, so that it must be JSON or text in which a backslash and a
// number mean a character. What is written at once must be whole lines.
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
