package schema

import "unicode/utf8"

// Bounded returns s as valid UTF-8 of at most limit bytes.
func Bounded(s string, limit int) string { return string(AppendValid(nil, []byte(s), limit)) }

// AppendValid appends raw as valid UTF-8, with U+FFFD for each byte that is not part of a character. It appends at most
// limit bytes and never cuts a character. If raw has limit bytes or more and ends in an incomplete character, that
// character was cut earlier, and is dropped.
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
