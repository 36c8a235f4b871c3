package parser

import "bytes"

// maxLine is how many bytes of a line Google's code reads: eight times 2,083, the longest URL of Internet Explorer,
// less one.
const maxLine = 2083*8 - 1

// LineKind classifies a line.
type LineKind uint8

// The kinds of lines. The zero value is LineBlank.
const (
	LineBlank     LineKind = iota // nothing, or white space
	LineComment                   // nothing but a comment
	LineInvalid                   // text without a key
	LineCore                      // user-agent, allow, disallow as RFC 9309 spells them
	LineExtension                 // a known extension
	LineLegacy                    // noindex and its like
	LineUnknown                   // an unknown key
	LineOrphan                    // a rule before any user-agent line
	LineTypo                      // a record read only thanks to a tolerance that no document promises
)

// String returns blank, comment, invalid, core, extension, legacy, unknown, orphan or typo.
func (k LineKind) String() string {
	if k <= LineTypo {
		return [...]string{"blank", "comment", "invalid", "core", "extension", "legacy", "unknown", "orphan", "typo"}[k]
	}
	return "?"
}

// Line is one line of a body. The slices are views of the body.
type Line struct {
	Number     int // 1-based
	Start, End int // offsets into the body; End is after the terminator, and the next line's Start
	Kind       LineKind
	Key        Key
	Flags      Flags
	KeyText    []byte // trimmed; of an invalid line, the whole text
	Value      []byte // trimmed, without the comment
}

// Scanner reads a body line by line, syntax only. Its lines partition the body, so that a caller can show a file with
// the kind of each line.
type Scanner struct {
	src     []byte
	pos     int
	dialect Dialect
	ends    lineEnds
	named   bool // a user-agent line was read: rules are no longer orphans
	line    Line
}

// NewScanner returns a Scanner at the start of the body, which must stay unchanged while it is used.
func NewScanner(src []byte, d Dialect) Scanner { return Scanner{src: src, dialect: d.known()} }

// Line returns the current line.
func (s *Scanner) Line() Line { return s.line }

// Next advances to the next line and reports whether there is one. No line follows a final line end.
func (s *Scanner) Next() bool {
	if s.pos >= len(s.src) {
		return false
	}
	start, text := s.pos, s.pos
	if start == 0 {
		text = bomLen(s.src)
	}
	end, behind := s.ends.find(s.src, text)
	s.pos = behind
	p := splitLine(s.src, text, end, s.dialect)
	s.line = Line{Number: s.line.Number + 1, Start: start, End: behind, Key: p.key, Flags: p.flags}
	switch {
	case p.blank && p.comment:
		s.line.Kind = LineComment
	case p.blank:
		s.line.Kind = LineBlank
	default:
		s.line.KeyText, s.line.Value = s.src[p.keyStart:p.keyEnd], s.src[p.value:p.end]
		s.line.Kind = s.kind()
	}
	return true
}

// kind classifies the current line by its key and marks orphans.
func (s *Scanner) kind() LineKind {
	l := &s.line
	switch {
	case l.Key == KeyUserAgent:
		s.named = true
	case (l.Key == KeyAllow || l.Key == KeyDisallow) && !s.named:
		l.Flags |= FlagOrphan
		return LineOrphan
	}
	if l.Flags&FlagTypo != 0 {
		return LineTypo
	}
	return [...]LineKind{LineInvalid, LineCore, LineExtension, LineLegacy, LineUnknown}[l.Key.Class()]
}

// bomLen returns the length of the byte order mark at the start: 3 for a whole one, 1 or 2 for a broken one, which
// Google's code also skips.
func bomLen(src []byte) int {
	const bom = "\xEF\xBB\xBF"
	n := 0
	for n < len(bom) && n < len(src) && src[n] == bom[n] {
		n++
	}
	return n
}

// lineEnds finds line ends of all kinds. It looks at each octet at most twice.
type lineEnds struct {
	lf, cr int // offsets of the next ones, where known: not before the line's start
}

// find returns the offset of the terminator (LF, CR LF or CR) of the line at pos, and the offset after it.
func (e *lineEnds) find(src []byte, pos int) (end, behind int) {
	if e.lf < pos || pos == 0 {
		e.lf = next(src, pos, '\n')
	}
	if e.cr < pos || pos == 0 {
		e.cr = next(src, pos, '\r')
	}
	end = min(e.lf, e.cr)
	behind = min(end+1, len(src))
	if end < e.lf && e.lf == behind {
		behind++ // CR LF
	}
	return end, min(behind, len(src))
}

// next returns the offset of the first c from pos on, len(src) if there is none.
func next(src []byte, pos int, c byte) int {
	if i := bytes.IndexByte(src[pos:], c); i >= 0 {
		return pos + i
	}
	return len(src)
}

// parts is a line split into its parts: offsets into the body.
type parts struct {
	keyStart, keyEnd int // the whole text of an invalid line
	value, end       int // value ≤ end; empty at the end of the text where there is none
	key              Key
	flags            Flags
	blank, comment   bool // blank: nothing but white space and comment; comment: it has a comment
}

// splitLine splits the line src[start:end]: it cuts at a NUL and at a comment, trims, and splits at the separator.
// This is the exact reading; readFast has shortcuts for the most common lines.
func splitLine(src []byte, start, end int, d Dialect) (p parts) {
	if d != RFC && end-start > maxLine {
		end = start + maxLine
	}
	if i := bytes.IndexByte(src[start:end], 0); i >= 0 {
		end = start + i
	}
	if i := bytes.IndexByte(src[start:end], '#'); i >= 0 {
		end, p.comment = start+i, true
	}
	start, end = trim(src, start, end)
	if start == end {
		p.blank = true
		return p
	}
	sep := bytes.IndexByte(src[start:end], ':')
	if sep >= 0 {
		sep += start
	}
	p.splitText(src, start, end, sep, d)
	return p
}

// splitText splits the trimmed, non-empty text src[start:end]. Its first colon is at sep, -1 if it has none.
func (p *parts) splitText(src []byte, start, end, sep int, d Dialect) {
	p.keyStart, p.keyEnd, p.value, p.end = start, end, end, end
	p.key, p.flags = KeyNone, 0
	switch {
	case sep > start:
		_, p.keyEnd = trim(src, start, sep)
		p.value, p.end = trim(src, sep+1, end)
		p.key, p.flags = keyOf(src[start:p.keyEnd], d)
	case sep < 0 && startsKey[src[start]]:
		p.splitAtBlank(src, d)
	}
}

// splitAtBlank reads a line without a colon as Google's code and the RFC's authors' tests do: if it has exactly two
// words, the first is the key. Only a known key makes a record; any other pair of words is an invalid line.
func (p *parts) splitAtBlank(src []byte, d Dialect) {
	first := indexBlank(src, p.keyStart, p.end)
	if first == p.end {
		return
	}
	second := first
	for src[second] == ' ' || src[second] == '\t' {
		second++
	}
	if indexBlank(src, second, p.end) != p.end {
		return
	}
	keyStart, keyEnd := trim(src, p.keyStart, first)
	key, _ := keyOf(src[keyStart:keyEnd], d)
	if key == KeyUnknown {
		return
	}
	p.key, p.flags = key, FlagTypo|FlagNoColon
	p.keyEnd = keyEnd
	p.value, p.end = trim(src, second, p.end)
}

// indexBlank returns the offset of the first space or tab in src[start:end], end if there is none.
func indexBlank(src []byte, start, end int) int {
	for start < end && src[start] != ' ' && src[start] != '\t' {
		start++
	}
	return start
}

// trim drops ASCII white space at both ends of src[start:end]. U+00A0 is no white space here.
func trim(src []byte, start, end int) (int, int) {
	for start < end && isSpace(src[start]) {
		start++
	}
	for start < end && isSpace(src[end-1]) {
		end--
	}
	return start, end
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
