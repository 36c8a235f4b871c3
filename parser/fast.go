package parser

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The loop below reads a body without NUL as splitLine does, in a third of the time:
//
//   - The first eight octets, folded to lower case, identify a common key if a colon follows it at once. The line end is
//     then searched only after the colon.
//   - The next `#`, and for lines without a common key the next `:`, are searched once for many lines.
//   - A line whose first octet begins no key is unknown or no record. Most such lines are HTML.
//   - A line is taken to end at LF, and a CR before it is dropped and counted. If the body has more CR than were dropped,
//     some were line ends by themselves. The loop reports this, and the body is read again by splitLine.
//
// splitText handles all other lines. FuzzParse tests that both ways give the same records.

// The beginnings of common keys as eight octets, little-endian.
var (
	eightDisallow = binary.LittleEndian.Uint64([]byte("disallow"))
	eightUserAge  = binary.LittleEndian.Uint64([]byte("user-age"))
	eightCrawlDe  = binary.LittleEndian.Uint64([]byte("crawl-de"))
	eightSitemap  = binary.LittleEndian.Uint64([]byte("sitemap:"))
	eightAllow    = binary.LittleEndian.Uint64([]byte("allow:\x00\x00"))
)

const (
	eightSpaces = 0x2020202020202020 // also what makes letters lower case
	eightTabs   = 0x0909090909090909
	highBits    = 0x8080808080808080
	sixOctets   = 1<<48 - 1
)

// readFast reads all lines. It reports whether every CR belonged to a line end. If not, discard what it read.
func (f *File) readFast() bool {
	src, dialect := f.src, f.dialect
	r := reader{File: f}
	returns := 0 // CR that were dropped before LF
	pos := bomLen(src)
	hash, colon := -1, -1 // offsets of the next ones, where known
	var p parts
	for pos < len(src) {
		f.lines++
		start, sep := pos, pos
		key := KeyNone
		if pos+16 <= len(src) {
			// Folding maps CR (0x0D) to `-` and 0x1A to `:`. Neither does harm: bodies with a lone CR are read again,
			// and the colon is compared unfolded.
			text := src[pos : pos+16]
			switch first := binary.LittleEndian.Uint64(text) | eightSpaces; {
			case first == eightDisallow:
				if text[8] == ':' {
					key, sep = KeyDisallow, pos+8
				}
			case first&sixOctets == eightAllow:
				if text[5] == ':' {
					key, sep = KeyAllow, pos+5
				}
			case first == eightUserAge:
				if text[8]|0x20 == 'n' && text[9]|0x20 == 't' && text[10] == ':' {
					key, sep = KeyUserAgent, pos+10
				}
			case first == eightSitemap:
				if text[7] == ':' {
					key, sep = KeySitemap, pos+7
				}
			case first == eightCrawlDe:
				if text[8]|0x20 == 'l' && text[9]|0x20 == 'a' && text[10]|0x20 == 'y' && text[11] == ':' {
					key, sep = KeyCrawlDelay, pos+11
				}
			}
		}
		end := next(src, sep, '\n')
		pos = end + 1
		if end > start && src[end-1] == '\r' {
			end--
			returns++
		}
		if key == KeyNone && (start == end || src[start] == '#') {
			continue
		}
		if end-start > maxLine && dialect != RFC {
			end = start + maxLine
		}
		if hash < start {
			hash = next(src, start, '#')
		}
		end = min(end, hash)
		if key != KeyNone {
			value := sep + 1
			if value < end && src[value] == ' ' {
				value++
			}
			if value < end && (src[value] <= ' ' || src[end-1] <= ' ') {
				value, end = trim(src, value, end)
			}
			if key == KeyUserAgent || len(f.records) == maxRecords {
				r.add(key, 0, start, value, end)
				continue
			}
			f.counts[key]++
			flags := Flags(0)
			if key <= KeyDisallow {
				r.closed = true
				if len(f.groups) == 0 {
					flags = FlagOrphan
				}
			}
			f.another().fill(key, flags, start, value, end, f.lines, len(f.groups)-1)
			continue
		}
		if start < end && src[start] <= ' ' {
			start = afterBlanks(src, start, end)
		}
		if start, end = trim(src, start, end); start == end {
			continue
		}
		if colon < start {
			colon = next(src, start, ':')
		}
		sep = -1
		if colon < end {
			sep = colon
		}
		if !startsKey[src[start]] {
			key, value := KeyNone, end
			if sep > start {
				key = KeyUnknown
				value, end = trim(src, sep+1, end)
			}
			f.counts[key]++
			if f.keepsNoise() {
				f.another().fill(key, 0, start, value, end, f.lines, len(f.groups)-1)
			}
			continue
		}
		p.splitText(src, start, end, sep, dialect)
		r.add(p.key, p.flags, p.keyStart, p.value, p.end)
	}
	return returns == bytes.Count(src, []byte{'\r'})
}

// afterBlanks returns the offset of the first octet of src[start:end] that is no space or tab. HTML is indented by
// them. It may stop up to seven octets too early near the end.
func afterBlanks(src []byte, start, end int) int {
	for start+8 <= end {
		eight := binary.LittleEndian.Uint64(src[start:])
		if other := ^(zeros(eight^eightSpaces) | zeros(eight^eightTabs)) & highBits; other != 0 {
			return start + bits.TrailingZeros64(other)/8
		}
		start += 8
	}
	return start
}

// zeros returns the high bit of each octet that is zero.
func zeros(eight uint64) uint64 {
	return ^((eight&^highBits + ^uint64(highBits)) | eight | ^uint64(highBits))
}
