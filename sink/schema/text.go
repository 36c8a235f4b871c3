package schema

import "unicode/utf8"

// Bounded is a string as valid UTF-8 of at most limit bytes.
func Bounded(s string, limit int) string { return string(AppendValid(nil, []byte(s), limit)) }

// AppendValid appends raw as valid UTF-8: U+FFFD for each byte that is part of no character. It ends before limit
// bytes are exceeded, never within a character; and a last character that stands unfinished at the end of a raw text
// of limit bytes or more was cut by somebody before us, and is dropped.
func AppendValid(b, raw []byte, limit int) []byte {
	cut := len(raw) >= limit
	start := len(b)
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		if r == utf8.RuneError && size == 1 && cut && !utf8.FullRune(raw) {
			break
		}
		if len(b)-start+utf8.RuneLen(r) > limit {
			break
		}
		b = utf8.AppendRune(b, r)
		raw = raw[size:]
	}
	return b
}
